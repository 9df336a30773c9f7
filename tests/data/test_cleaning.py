"""noise_action: fitted on the training part alone, removal and weights as by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from suspects import load, report
from toy_data import toy_rows, write_inter

from recbole_denoiser.data import detection
from recbole_denoiser.detect import NoiseReport
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline


def sequences(data: pipeline.Data, part: str) -> list[tuple[str, tuple[str, ...], str]]:
    """User, history and target of every row of a part, as tokens."""
    dataset = getattr(data, part)._dataset
    users, items = dataset.field2id_token["user_id"], dataset.field2id_token["item_id"]
    rows = dataset[: len(dataset)]
    return sorted(
        (str(users[u]), tuple(str(items[i]) for i in history[:length]), str(items[target]))
        for u, history, length, target in zip(
            rows["user_id"], rows["item_id_list"], rows["item_length"], rows["item_id"], strict=True
        )
    )


def counted(data: pipeline.Data) -> set[tuple[str, str]]:
    """What each user counts as having interacted with when negatives are drawn, as tokens."""
    dataset = data.train._dataset
    keys = dataset.inter_feat.negatives.histories.keys.numpy()
    users, items = dataset.field2id_token["user_id"], dataset.field2id_token["item_id"]
    return {(str(users[key // len(items)]), str(items[key % len(items)])) for key in keys}


def write_without(folder: Path, rows: list[tuple[str, str, float]], gone: set[tuple[str, float]]) -> Path:
    write_inter(folder, "toy", [row for row in rows if (row[0], row[2]) not in gone])
    return folder


@pytest.mark.parametrize("model", ["SASRecDenoiser", "GRU4Rec", "DIEN"])
def test_removal_equals_a_file_without_those_rows(
    workplace: Path, settings: dict, every_third: SimpleNamespace, model: str
) -> None:
    cleaned = load(settings, model, noise_action="remove")
    whole = load(settings, model, noise_action="none")
    view = cleaned.dataset.cleaning.before
    users = whole.dataset.field2id_token["user_id"]
    removed = np.flatnonzero(cleaned.dataset.cleaning.removed)
    assert len(removed) == len(every_third.item) // 3
    assert (view.phase[removed] == 0).all()
    stamps, owner = view.flat.columns["timestamp"].numpy(), view.flat.columns["user_id"].numpy()
    gone = {(str(users[owner[i]]), stamps[i]) for i in removed}
    other = write_without(workplace / "by_hand", toy_rows(), gone)
    by_hand = load({**settings, "data_path": str(other)}, model, noise_action="none")
    for part in ("train", "valid", "test"):
        assert sequences(cleaned, part) == sequences(by_hand, part)
    if model == "SASRecDenoiser":
        assert counted(cleaned) == counted(by_hand)
    assert sequences(cleaned, "test") != sequences(whole, "test")
    for part in ("valid", "test"):  # who is asked for what, among which candidates, does not change
        before, after = getattr(whole, part), getattr(cleaned, part)
        assert torch.equal(before.user, after.user) and torch.equal(before.positive, after.positive)
        assert torch.equal(before.frozen, after.frozen)
    assert cleaned.dataset.fingerprint() == whole.dataset.fingerprint()


def test_held_out_items_do_not_reach_the_detector(
    workplace: Path, settings: dict, every_third: SimpleNamespace
) -> None:
    """Other validation and test items, an unknown one among them: the detector is asked the very same, to the bit."""
    by_user: dict[str, list[tuple[str, str, float]]] = {}
    for row in sorted(toy_rows(), key=lambda row: row[2]):
        by_user.setdefault(row[0], []).append(row)
    held_out = {(row[0], row[2]) for own in by_user.values() for row in own[-2:]}
    random = np.random.default_rng(5)
    changed = [
        (user, f"i{random.integers(40)}" if random.random() < 0.9 else "never-seen", time)
        if (user, time) in held_out
        else (user, item, time)
        for user, item, time in toy_rows()
    ]
    write_inter(workplace / "changed", "toy", changed)
    one = load(settings, noise_action="weight")
    user, item, n_items = every_third.user, every_third.item, every_third.n_items
    # another folder for what is kept, so that it is really asked again
    changes = {"data_path": str(workplace / "changed"), "result_dir": "elsewhere"}
    other = load({**settings, **changes}, noise_action="weight")
    assert every_third.calls == 2
    assert one.dataset.fingerprint() != other.dataset.fingerprint()
    assert other.dataset.item_num == one.dataset.item_num + 1
    np.testing.assert_array_equal(every_third.user, user)
    np.testing.assert_array_equal(every_third.item, item)
    assert every_third.n_items == n_items == len(np.unique(item))
    found, again = one.dataset.cleaning.detection, other.dataset.cleaning.detection
    np.testing.assert_array_equal(found.posterior, again.posterior)
    assert found.file.parent.name == again.file.parent.name


def test_nobody_is_lost_and_posteriors_outside_training_are_zero(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real protection: a detector that suspects everything leaves two training items of everyone."""
    from recbole_denoiser.detect.removal import protect

    def suspicious(user: np.ndarray, item: np.ndarray, n_items: int, **settings: Any) -> NoiseReport:
        posterior = 0.6 + 0.3 * np.arange(len(item)) / len(item)
        return report(posterior, protect(user, posterior, np.ones(len(item), dtype=bool)))

    monkeypatch.setattr(detection.detect, "detect_flat", suspicious)
    data = load(settings, noise_action="remove")
    view = data.dataset.view
    kept = np.bincount(view.flat.columns["user_id"].numpy()[view.training], minlength=data.dataset.user_num)[1:]
    assert (kept == 2).all()
    assert len(data.train._dataset) == len(data.test.user) == data.dataset.user_num - 1
    cleaning = data.dataset.cleaning
    assert (cleaning.posterior[cleaning.before.phase != 0] == 0).all()


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser"])
@pytest.mark.parametrize("start", ["end", "start"])
@pytest.mark.parametrize("action", ["weight", "remove"])
def test_weights_by_hand(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch, model: str, start: str, action: str
) -> None:
    """sum (1 - p) loss / sum (1 - p) over the targets that stay, p found again by walking through the sequences."""

    def graded(user: np.ndarray, item: np.ndarray, n_items: int, **settings: Any) -> NoiseReport:
        posterior = 0.1 * (np.arange(len(item)) % 7)
        return report(posterior, posterior > 0.5)

    monkeypatch.setattr(detection.detect, "detect_flat", graded)
    config = Config(model, "toy", flags={
        **settings, "noise_action": action, "denoise": False, "target_denoise": "none", "position_from": start,
    })  # fmt: skip
    data = pipeline.load_data(config)
    net = pipeline.build_model(config, data.train._dataset)
    net.eval()
    rows = data.train._dataset.inter_feat
    interaction = data.train._dataset[:7]
    torch.manual_seed(3)
    loss = net.calculate_loss(interaction)[0]
    torch.manual_seed(3)
    batch = net.batch(interaction)
    losses, _ = net.position_losses(net.encode(net.embed(batch)), batch)
    cleaning = data.dataset.cleaning
    posterior = cleaning.posterior[~cleaning.removed]
    assert cleaning.removed.any() == (action == "remove")
    total = weight = 0.0
    for row in range(7):
        first, last = int(rows.start[row]), int(rows.target[row])
        places = np.arange(first, last + 1) if model == "BERT4RecDenoiser" else np.arange(first + 1, last + 1)
        places = places[-batch.targets.size(1) :]
        columns = np.arange(len(places)) + (batch.targets.size(1) - len(places) if start == "end" else 0)
        for place, column in zip(places, columns, strict=True):
            if batch.targets[row, column]:
                assert int(batch.targets[row, column]) == int(data.dataset.flat.columns["item_id"][place])
                total += (1 - posterior[place]) * float(losses[row, column].detach())
                weight += 1 - posterior[place]
    assert float(loss.detach()) == pytest.approx(total / weight, rel=1e-5)
    assert len(np.unique(posterior)) > 5


def test_weights_of_prefixes(workplace: Path, settings: dict, every_third: SimpleNamespace) -> None:
    config = Config("SASRecDenoiser", "toy", flags={**settings, "noise_action": "weight", "train_rows": "prefixes",
                                                    "denoise": False, "target_denoise": "none"})  # fmt: skip
    data = pipeline.load_data(config)
    net = pipeline.build_model(config, data.train._dataset).eval()
    interaction = data.train._dataset[:9]
    batch = net.batch(interaction)
    wanted = 1 - torch.from_numpy(data.dataset.cleaning.posterior)[data.train._dataset.inter_feat.target[:9].long()]
    assert torch.allclose(batch.trust[batch.targets != 0].double(), wanted, atol=1e-6)


@pytest.mark.parametrize(("model", "changes"), [("SASRecDenoiser", {"noise_weight": False}), ("GRU4Rec", {})])
def test_removal_without_weights(
    workplace: Path, settings: dict, every_third: SimpleNamespace, model: str, changes: dict
) -> None:
    """Switched off, or in a model of RecBole's: what stays counts fully, and no batch carries posteriors."""
    data = load({**settings, **changes}, model, noise_action="remove")
    assert data.dataset.cleaning.removed.any()
    assert "noise_posterior" not in data.dataset.flat.columns


def test_weight_is_refused_where_the_loss_is_recboles(workplace: Path, settings: dict) -> None:
    with pytest.raises(UserError, match="noise_action = weight: GRU4Rec"):
        load(settings, "GRU4Rec", noise_action="weight")
