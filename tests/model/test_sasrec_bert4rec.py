"""SASRecDenoiser and BERT4RecDenoiser against RecBole's own models and on bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from recbole.data.interaction import Interaction
from recbole.utils import get_model

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.model.positions import align
from recbole_denoiser.runs.pipeline import build_model, load_data

BACKBONES = {"SASRecDenoiser": "SASRec", "BERT4RecDenoiser": "BERT4Rec"}


def make(model: str, settings: dict, **flags: Any) -> tuple[Any, Any, Config]:
    """The model, its data and its settings, with weights large enough to tell positions apart."""
    config = Config(model, "toy", flags={**settings, **flags})
    data = load_data(config)
    network = build_model(config, data.train._dataset)
    for parameter in network.parameters():
        if parameter.dim() > 1 and parameter.shape[0] != config["MAX_ITEM_LIST_LENGTH"]:
            torch.nn.init.normal_(parameter, std=0.3)
    return network, data, config


@pytest.mark.parametrize("model", list(BACKBONES))
def test_scores_equal_recbole_with_the_same_weights(workplace: Path, settings: dict, model: str) -> None:
    ours, data, config = make(model, settings, denoise=False, position_from="start")
    names = {"loss_type": "CE", "transform": "mask_itemseq", "MASK_ITEM_SEQ": "m", "POS_ITEMS": "p", "NEG_ITEMS": "n"}
    for name, value in names.items():
        config[name] = value
    theirs = get_model(BACKBONES[model])(config, data.train._dataset)
    theirs.load_state_dict(ours.state_dict())
    ours.double().eval(), theirs.double().eval()  # in float32 the two orders of summation differ by 1e-5
    batch = data.test.dataset[np.arange(60)]
    expected = theirs.full_sort_predict(batch)
    assert expected.std() > 0.1
    torch.testing.assert_close(ours.full_sort_predict(batch), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours.predict(batch), theirs.predict(batch), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("model", list(BACKBONES))
def test_open_masks_and_no_regularisers_are_the_plain_backbone_bit_for_bit(
    workplace: Path, settings: dict, model: str
) -> None:
    plain, data, _ = make(model, settings, denoise=False)
    denoised, _, _ = make(model, settings, denoise=True, beta=0.0, gamma=0.0)
    denoised.load_state_dict(plain.state_dict(), strict=False)
    denoised.denoiser.off()
    batch = next(iter(data.train))
    losses = []
    for network in (plain, denoised):
        torch.manual_seed(3)
        losses.append(sum(network.train().calculate_loss(batch)))
    assert torch.equal(*losses)
    scores = [network.eval().full_sort_predict(data.test.dataset[np.arange(9)]) for network in (plain, denoised)]
    assert torch.equal(*scores)


def test_loss_is_equation_7_by_hand(workplace: Path, settings: dict) -> None:
    network, data, _ = make("SASRecDenoiser", settings, denoise=False, target_denoise="none", train_negatives=2)
    network.eval()
    interaction = next(iter(data.train))
    rec, mask, jacobian = network.calculate_loss(interaction)
    total, count = 0.0, 0
    table = network.item_embedding.weight
    for row in range(len(interaction)):
        length = int(interaction["item_length"][row])
        items = interaction["item_id_list"][row, :length]
        for t in range(length):  # the state after items[: t + 1], laid against the end of its own sequence
            batch = network.batch(interaction)
            states = network.encode(network.embed(batch))
            state = states[row, batch.items.size(1) - length + t]
            positive = state @ table[interaction["target_item_id_list"][row, t]]
            negatives = state @ table[interaction["neg_item_id_list"][row, t]].T
            total -= float(F.logsigmoid(positive) + F.logsigmoid(-negatives).sum())
            count += 1
            if count == 25:
                break
        assert items.ne(0).all()
        if count == 25:
            break
    batch = network.batch(interaction)
    losses, _ = network.position_losses(network.encode(network.embed(batch)), batch)
    first = losses[batch.targets != 0][:25]  # row-major order of the real positions
    assert float(first.detach().sum()) == pytest.approx(total, rel=1e-5)
    assert float(rec) == pytest.approx(float(losses.sum() / (batch.targets != 0).sum()), rel=1e-5)
    assert float(mask) == float(jacobian) == 0


def test_a_position_sees_no_later_item(workplace: Path, settings: dict) -> None:
    network, data, _ = make("SASRecDenoiser", settings, mask="content")
    network.eval()
    batch = network.batch(next(iter(data.train)))
    before = network.encode(network.embed(batch))
    batch.items[:, -1] = 1 + batch.items[:, -1] % 5
    after = network.encode(network.embed(batch))
    torch.testing.assert_close(before[:, :-1][batch.valid[:, :-1]], after[:, :-1][batch.valid[:, :-1]])
    assert not torch.allclose(before[:, -1], after[:, -1])


def test_bert4rec_masks_at_its_ratio_and_only_real_items(workplace: Path, settings: dict) -> None:
    network, data, _ = make("BERT4RecDenoiser", settings, mask_ratio=0.3, ft_ratio=0.0)
    torch.manual_seed(0)
    interaction = data.train._dataset[np.arange(60)]
    share, rows = [], []
    for _ in range(50):
        batch = network.batch(interaction)
        masked = batch.items == network.mask_token
        assert torch.equal(masked, batch.targets != 0)
        share.append(float(masked.sum() / batch.valid.sum()))
        rows.append(masked.any(1).all())
    assert all(rows)
    assert np.mean(share) == pytest.approx(0.3, abs=0.02)
    network.ft_ratio = 1.0
    batch = network.batch(interaction)
    assert (batch.items[:, -1] == network.mask_token).all()
    assert ((batch.items == network.mask_token).sum(1) == 1).all()
    assert torch.equal(batch.targets[:, -1], interaction["item_id"])


@pytest.mark.parametrize("end", [True, False])
def test_align_by_hand(end: bool) -> None:
    sequence = torch.tensor([[1, 2, 3, 0], [4, 0, 0, 0], [5, 6, 7, 8]])
    length = torch.tensor([3, 1, 4])
    expected = [[1, 2, 3], [0, 0, 4], [6, 7, 8]] if end else [[1, 2, 3], [4, 0, 0], [6, 7, 8]]
    assert align(sequence, length, 3, end).tolist() == expected


@pytest.mark.parametrize("model", list(BACKBONES))
@pytest.mark.parametrize("start", ["end", "start"])
class TestBadInput:
    def scores(self, settings: dict, model: str, start: str, items: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        network, _, _ = make(model, settings, position_from=start)
        return network.double().eval().full_sort_predict(Interaction({"item_id_list": items, "item_length": length}))

    def test_longer_than_n_is_cut_to_the_newest(self, workplace: Path, settings: dict, model: str, start: str) -> None:
        items = torch.arange(1, 26).repeat(2, 1)  # n is 10
        cut = torch.arange(16, 26).repeat(2, 1)
        long = self.scores(settings, model, start, items, torch.tensor([25, 25]))
        torch.testing.assert_close(long, self.scores(settings, model, start, cut, torch.tensor([10, 10])))

    def test_all_padding_and_one_item_are_finite(self, workplace: Path, settings: dict, model: str, start: str) -> None:
        items = torch.tensor([[0, 0, 0], [7, 0, 0]])
        assert torch.isfinite(self.scores(settings, model, start, items, torch.tensor([0, 1]))).all()

    def test_a_row_scores_the_same_in_any_batch(self, workplace: Path, settings: dict, model: str, start: str) -> None:
        items, length = torch.tensor([[7, 8, 0, 0, 0], [1, 2, 3, 4, 5]]), torch.tensor([2, 5])
        both = self.scores(settings, model, start, items, length)
        alone = self.scores(settings, model, start, items[:1], length[:1])
        torch.testing.assert_close(both[:1], alone, atol=1e-6, rtol=1e-5)


def test_nan_embeddings_are_told(workplace: Path, settings: dict) -> None:
    network, data, _ = make("SASRecDenoiser", settings)
    with torch.no_grad():
        network.item_embedding.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="finite"):
        network.train().calculate_loss(next(iter(data.train)))


def test_closed_masks_give_finite_scores(workplace: Path, settings: dict) -> None:
    network, data, _ = make("SASRecDenoiser", settings, mask_init=-3.0)
    assert torch.isfinite(network.eval().full_sort_predict(data.test.dataset[np.arange(5)])).all()
    with network.counting_kept():
        network.full_sort_predict(data.test.dataset[np.arange(5)])
    assert network.kept_share() == [0.0, 0.0]


def test_masks_have_their_own_learning_rate(workplace: Path, settings: dict) -> None:
    from recbole_denoiser.integration.registry import trainer_class

    network, _, config = make("SASRecDenoiser", settings, mask_learning_rate=0.5, weight_decay=0.1)
    groups = trainer_class("SASRecDenoiser")(config, network).optimizer.param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.001, 0.1), (0.5, 0.0)]
    assert sum(p.numel() for p in groups[1]["params"]) == 2 * 10 * 10
