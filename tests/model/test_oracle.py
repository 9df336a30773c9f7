"""The oracle of known noise: its attention columns are closed in every layer, its targets do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from recbole_denoiser.core.attention import AttentionCall, Site
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline

MODELS = ["SASRecDenoiser", "BERT4RecDenoiser", "TiSASRec", "SASRecEntmax"]


def built(settings: dict, model: str, **changes: Any) -> tuple[pipeline.Data, Any]:
    plain = {} if model.startswith("TiSAS") else {"denoise": False}
    config = Config(model, "toy", flags={
        **settings, "train_noise": 0.4, "target_denoise": "none", **plain, **changes
    })  # fmt: skip
    data = pipeline.load_data(config)
    return data, pipeline.build_model(config, data.train._dataset).eval()


class Watched:
    """The oracle's rule, and what it made of each attention."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.seen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, site: Site, call: AttentionCall) -> Tensor:
        M = self.rule(site, call)
        self.seen.append((call.weights.detach(), M.detach()))
        return M


@pytest.mark.parametrize("form", ["product", "renormalise"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("phase", ["train", "test"])
def test_columns_of_known_noise_are_closed_in_every_layer(
    workplace: Path, settings: dict, form: str, model: str, phase: str
) -> None:
    data, net = built(settings, model, noise_oracle="mask", mask_form=form)
    sites = net.posteriors.oracle.sites
    assert len(sites) == 2
    watched = Watched(sites[0].rule)
    for site in sites:
        site.rule = watched
    part = getattr(data, phase)._dataset
    interaction, marked = part[:20], noise_of(part, 20)
    if phase == "train":
        batch = net.batch(interaction)
        net.batch = lambda _: batch  # BERT4Rec masks at random
        net.calculate_loss(interaction)
    else:
        batch = net.inference_batch(interaction)[0]
        net.full_sort_predict(interaction)
    assert len(watched.seen) == 2
    for row in range(20):
        assert set(batch.items[row][batch.prior[row] == 1].tolist()) <= marked[row]
    assert batch.prior.sum() > 20
    closed = batch.prior[:, None, None, :] == 1
    for A, M in watched.seen:
        kept = A * ~closed
        if form == "product":
            assert torch.equal(M, kept)
            continue
        total = kept.sum(-1, keepdim=True)
        left = total.squeeze(-1) > 1e-6  # RecBole's forbidden pairs have a weight of exactly 0 unless all are forbidden
        torch.testing.assert_close(M[left], (kept / total)[left], rtol=1e-4, atol=1e-6)
        own = torch.eye(M.shape[-1]).expand_as(M)
        assert torch.equal(M[~left], own[~left])
        assert left.float().mean() > 0.5


def noise_of(part: Any, count: int) -> list[set[int]]:
    """Items that noise put into each history (and its target)."""
    rows, view = part.inter_feat, part.view
    item = view.flat.columns["item_id"].numpy()
    found = []
    for start, target in zip(rows.start[:count].tolist(), rows.target[:count].tolist(), strict=True):
        found.append({int(item[i]) for i in range(start, target + 1) if view.noise[i]})
    return found


@pytest.mark.parametrize("start", ["end", "start"])
def test_marks_stand_where_the_items_stand(workplace: Path, settings: dict, start: str) -> None:
    """batch.prior is 1 exactly at injected items, walking through the flat sequences."""
    data, net = built(settings, "SASRecDenoiser", noise_oracle="both", position_from=start)
    part = data.train._dataset
    rows, view = part.inter_feat, part.view
    batch = net.batch(part[:])
    m = batch.items.size(1)
    for row, (first, last) in enumerate(zip(rows.start.tolist(), rows.target.tolist(), strict=True)):
        shift = m - (last - first) if start == "end" else 0
        prior, trust = torch.zeros(m), torch.ones(m)
        for k, place in enumerate(range(first, last)):
            prior[shift + k] = float(view.noise[place])
            trust[shift + k] = 1 - float(view.noise[place + 1])
        assert torch.equal(batch.prior[row], prior)
        real = batch.targets[row] != 0
        assert torch.equal(batch.trust[row][real], trust[real])


def test_known_targets_do_not_count(workplace: Path, settings: dict) -> None:
    data, net = built(settings, "SASRecDenoiser", noise_oracle="target")
    part = data.train._dataset
    interaction = part[:16]
    batch = net.batch(interaction)
    assert batch.prior is None
    losses, _ = net.position_losses(net.encode(net.embed(batch)), batch)
    clean = (batch.targets != 0) & (batch.trust == 1)
    assert 0 < clean.sum() < (batch.targets != 0).sum()
    torch.testing.assert_close(net.calculate_loss(interaction)[0], losses[clean].mean())


def test_plain_models_know_nothing(workplace: Path, settings: dict) -> None:
    _, net = built(settings, "SASRecDenoiser", noise_action="none")
    assert net.posteriors.oracle is None and not net.posteriors.reads_inputs


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
def test_a_prior_reaches_the_masks(
    workplace: Path, settings: dict, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mask_prior: the gate of an untrained mask is closed exactly where the posterior is above one half."""
    from recbole_denoiser.data import cleaning, detection

    def fake(dataset: Any, part: Any, kept: Any) -> Any:
        posterior = torch.rand(len(part.index), generator=torch.Generator().manual_seed(1)).double().numpy()
        return detection.Detection(posterior, posterior > 2, {}, Path("nowhere"))

    monkeypatch.setattr(cleaning, "detect", fake)
    config = Config(model, "toy", flags={**settings, "mask_prior": True, "noise_action": "none"})
    data = pipeline.load_data(config)
    net = pipeline.build_model(config, data.train._dataset).eval()
    interaction = data.test._dataset[:12]
    batch, _ = net.inference_batch(interaction)
    gates: list[Tensor] = []
    rule = net.denoiser._gate
    monkeypatch.setattr(type(rule), "of", _listening(type(rule).of, gates))
    net.full_sort_predict(interaction)
    assert len(gates) == 2
    open_columns = (batch.prior <= 0.5)[:, None, None, :]
    for Z in gates:
        assert torch.equal(Z > 0, open_columns.expand_as(Z))
    assert 0.2 < (batch.prior > 0.5).float().mean() < 0.6
    loss = sum(net.train().calculate_loss(data.train._dataset[:12]))
    assert torch.isfinite(loss)


def _listening(of: Any, gates: list[Tensor]) -> Any:
    def listening(self: Any, site: Any, call: Any) -> Tensor:
        gates.append(of(self, site, call).detach())
        return gates[-1]

    return listening
