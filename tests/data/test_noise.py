"""Noise in the training data: exact rate, everything that is evaluated untouched, nested and repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline, results


def load(settings: dict, model: str = "SASRecDenoiser", **changes: Any) -> pipeline.Data:
    return pipeline.load_data(Config(model, "toy", flags={**settings, **changes}))


def items(data: pipeline.Data) -> np.ndarray:
    return data.dataset.flat.columns["item_id"].numpy()


def held_out_places(data: pipeline.Data) -> np.ndarray:
    """Flat indices of the validation and test items, from the users' last places alone."""
    user = data.dataset.flat.columns["user_id"].numpy()
    last = np.flatnonzero(np.diff(user, append=-1))
    return np.sort(np.concatenate([last, last - 1]))


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.9])
def test_the_rate_is_exact_and_nothing_held_out_changes(workplace: Path, settings: dict, share: float) -> None:
    clean, noisy = load(settings), load(settings, train_noise=share)
    changed = np.flatnonzero(items(clean) != items(noisy))
    held_out = held_out_places(clean)
    assert len(changed) == round(share * (len(items(clean)) - len(held_out)))
    assert not np.isin(changed, held_out).any()
    np.testing.assert_array_equal(changed, noisy.dataset.noise.index)
    np.testing.assert_array_equal(noisy.dataset.clean_items(), items(clean))
    for phase in ("valid", "test"):
        before, after = getattr(clean, phase), getattr(noisy, phase)
        assert torch.equal(before.user, after.user)
        assert torch.equal(before.positive, after.positive)
        assert torch.equal(before.frozen, after.frozen)


def test_no_user_is_trained_on_a_held_out_item(workplace: Path, settings: dict) -> None:
    data = load(settings, train_noise=0.9)
    user = data.dataset.flat.columns["user_id"].numpy()
    held_out = held_out_places(data)
    pairs = set(zip(user[held_out], items(data)[held_out], strict=True))
    noise = data.dataset.noise
    assert not pairs & set(zip(user[noise.index], noise.drawn, strict=True))
    assert (noise.drawn != noise.original).all()
    assert noise.drawn.min() >= 1


def test_drawn_items_are_uniform(workplace: Path, settings: dict) -> None:
    counts = np.zeros(41)
    for seed in range(40):
        counts += np.bincount(load(settings, train_noise=0.9, noise_seed=seed).dataset.noise.drawn, minlength=41)
    expected = counts.sum() / 40
    assert (np.abs(counts[1:] / expected - 1) < 0.15).all()  # about 380 draws per item, 5 % deviation


def test_evaluation_histories_hold_the_corrupted_training_items(workplace: Path, settings: dict) -> None:
    clean, noisy = load(settings), load(settings, train_noise=0.5)
    before, after = clean.test.dataset[:60], noisy.test.dataset[:60]
    assert not torch.equal(before["item_id_list"], after["item_id_list"])
    last = before["item_length"] - 1  # the validation item
    rows = torch.arange(60)
    assert torch.equal(before["item_id_list"][rows, last], after["item_id_list"][rows, last])


def test_same_seed_same_noise_and_larger_shares_contain_smaller_ones(workplace: Path, settings: dict) -> None:
    one, again = load(settings, train_noise=0.2), load(settings, train_noise=0.2, model="GRU4Rec")
    np.testing.assert_array_equal(items(one), items(again))
    other = load(settings, train_noise=0.2, noise_seed=9)
    assert (items(one) != items(other)).any()
    less = load(settings, train_noise=0.1).dataset.noise
    where = np.isin(one.dataset.noise.index, less.index)
    np.testing.assert_array_equal(one.dataset.noise.index[where], less.index)
    np.testing.assert_array_equal(one.dataset.noise.drawn[where], less.drawn)


def test_fingerprint_is_that_of_the_data_set(workplace: Path, settings: dict) -> None:
    clean, noisy = load(settings), load(settings, train_noise=0.2)
    assert clean.dataset.fingerprint() == noisy.dataset.fingerprint()
    assert results.data_statistics(noisy.dataset, noisy.train._dataset)["replaced"] == len(noisy.dataset.noise.index)
    assert results.data_statistics(clean.dataset, clean.train._dataset)["replaced"] == 0


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "SASRec", "GRU4Rec", "FPMC", "Caser"])
def test_every_model_trains_on_noise_and_keeps_its_record(workplace: Path, settings: dict, model: str) -> None:
    result = pipeline.run(model, "toy", flags={**settings, "epochs": 1, "train_noise": 0.2})
    record = np.load(Path("results") / result["run"] / "noise.npz")
    n_train = result["data"]["interactions"] - 2 * result["data"]["users"]
    assert len(record["user"]) == round(0.2 * n_train)
    data = load({**settings, "train_noise": 0.0})
    tokens = data.dataset.field2id_token
    clean = {
        (tokens["user_id"][u], place): tokens["item_id"][i]
        for u, i, place in zip(
            data.dataset.flat.columns["user_id"], items(data), np.arange(len(items(data))) - data.dataset.flat.user_start,
            strict=True,
        )
    }  # fmt: skip
    for user, place, original in zip(record["user"], record["position"], record["original"], strict=True):
        assert clean[user, place] == original


def test_a_model_with_a_reader_of_its_own_reads_the_same_noise(workplace: Path, settings: dict) -> None:
    one, other = load(settings, train_noise=0.3), load(settings, model="DIEN", train_noise=0.3)
    np.testing.assert_array_equal(items(one), items(other))


@pytest.mark.parametrize("share", [-0.1, 1.0, True])
def test_impossible_shares(workplace: Path, settings: dict, share: Any) -> None:
    with pytest.raises(UserError, match="train_noise"):
        load(settings, train_noise=share)
