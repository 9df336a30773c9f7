"""Four kinds of noise by exact count, noise that is only read, and what is known about it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_data import quick_settings, write_inter

from recbole_denoiser.cli.main import main
from recbole_denoiser.data import cleaning, detection
from recbole_denoiser.data.split import TRAIN
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline, results
from recbole_denoiser.runs.reopen import open_run


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Settings with a data set of 40 users with 20 items each, among 300 of very different popularity."""
    folder = tmp_path_factory.mktemp("long")
    random = np.random.default_rng(1)
    chance = 1.0 / np.arange(1, 301)
    rows = [
        (f"u{user}", f"i{item}", 1000 * user + place)
        for user in range(40)
        for place, item in enumerate(random.choice(300, 20, replace=False, p=chance / chance.sum()))
    ]
    write_inter(folder, "toy", rows)
    return quick_settings(folder)


def load(settings: dict, model: str = "SASRecDenoiser", **changes: Any) -> pipeline.Data:
    return pipeline.load_data(Config(model, "toy", flags={**settings, "noise_action": "none", **changes}))


def column(data: Any, name: str) -> np.ndarray:
    return data.flat.columns[name].numpy()


def test_replacing_is_what_it_always_was(workplace: Path, settings: dict) -> None:
    """The very same draws as in the first release."""
    data = load(settings, train_noise=0.2, noise_seed=3)
    found = hashlib.sha256(column(data.dataset, "item_id").tobytes()).hexdigest()
    assert found == REPLACED


@pytest.mark.parametrize("kind", ["replace", "popularity", "segment"])
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_replacing_kinds_are_exact(workplace: Path, long: dict, kind: str, share: float) -> None:
    clean, noisy = load(long), load(long, train_noise=share, train_noise_kind=kind)
    view = noisy.dataset.view
    changed = np.flatnonzero(column(clean.dataset, "item_id") != column(noisy.dataset, "item_id"))
    assert len(changed) == round(share * 40 * 18)
    np.testing.assert_array_equal(changed, np.flatnonzero(view.noise))
    assert (view.phase[changed] == TRAIN).all()
    np.testing.assert_array_equal(view.origin, np.arange(800))
    nobody_is_trained_on_what_is_held_out(noisy)


def test_inserting_is_exact_and_keeps_all_that_was_there(workplace: Path, long: dict) -> None:
    clean, noisy = load(long), load(long, train_noise=0.2, train_noise_kind="insert")
    view = noisy.dataset.view
    assert int(view.noise.sum()) == round(0.25 * 40 * 18)  # a fifth of what is then there
    assert view.noise[view.training].mean() == pytest.approx(0.2, abs=1e-3)
    for name in ("user_id", "item_id", "timestamp"):
        np.testing.assert_array_equal(column(noisy.dataset, name)[~view.noise], column(clean.dataset, name))
    np.testing.assert_array_equal(view.origin[~view.noise], np.arange(800))
    assert (view.origin[view.noise] == -1).all() and (view.phase[view.noise] == TRAIN).all()
    user, time = column(noisy.dataset, "user_id"), column(noisy.dataset, "timestamp")
    behind = np.flatnonzero(view.noise)
    np.testing.assert_array_equal(user[behind], user[behind - 1])
    np.testing.assert_array_equal(time[behind], time[behind - 1])
    nobody_is_trained_on_what_is_held_out(noisy)
    for part in ("valid", "test"):
        before, after = getattr(clean, part), getattr(noisy, part)
        assert torch.equal(before.positive, after.positive) and torch.equal(before.frozen, after.frozen)
    with pytest.raises(UserError, match="kind insert"):
        load(long, train_noise=0.6, train_noise_kind="insert")


def nobody_is_trained_on_what_is_held_out(data: pipeline.Data) -> None:
    view, user, item = data.dataset.view, column(data.dataset, "user_id"), column(data.dataset, "item_id")
    held_out = set(zip(user[view.phase > TRAIN], item[view.phase > TRAIN], strict=True))
    assert not held_out & set(zip(user[view.noise], item[view.noise], strict=True))


def test_popular_items_are_drawn_as_often_as_they_occur(workplace: Path, long: dict) -> None:
    clean = load(long).dataset
    counts = np.bincount(column(clean, "item_id")[clean.view.training], minlength=clean.item_num)
    drawn = np.zeros(clean.item_num)
    for seed in range(20):
        noise = load(long, train_noise=0.9, train_noise_kind="popularity", noise_seed=seed).dataset.noise
        drawn += np.bincount(noise.drawn, minlength=clean.item_num)
    top = np.argsort(-counts)[:5]  # held-out and repeated draws are refused, so popular items come a little less often
    expected = drawn.sum() * counts[top] / counts.sum()
    assert (np.abs(drawn[top] / expected - 1) < 0.25).all()
    assert (drawn[counts == 0] == 0).all()


def test_segments_are_runs_of_another_user(workplace: Path, long: dict) -> None:
    clean, noisy = load(long).dataset, load(long, train_noise=0.2, train_noise_kind="segment").dataset
    noise, user = noisy.noise, column(clean, "user_id")
    training = clean.view.training
    runs = {  # every run of 3 to 5 in somebody's training items
        (int(user[training[k]]), tuple(column(clean, "item_id")[training[k : k + n]]))
        for n in (3, 4, 5)
        for k in range(len(training) - n + 1)
        if user[training[k]] == user[training[k + n - 1]]
    }
    others: dict[tuple[int, ...], set[int]] = {}
    for owner, run in runs:
        others.setdefault(run, set()).add(owner)
    groups = np.split(noise.drawn, np.flatnonzero((np.diff(noise.index) != 1) | (np.diff(user[noise.index]) != 0)) + 1)
    hosts = np.split(
        user[noise.index], np.flatnonzero((np.diff(noise.index) != 1) | (np.diff(user[noise.index]) != 0)) + 1
    )
    whole = 0
    for drawn, host in zip(groups, hosts, strict=True):
        if 3 <= len(drawn) <= 5:  # longer ones are two runs beside each other
            whole += bool(others.get(tuple(drawn), set()) - {int(host[0])})
    short = sum(len(drawn) < 3 for drawn in groups)
    assert short <= 1  # the last one, cut where the share was reached
    assert whole == sum(3 <= len(drawn) <= 5 for drawn in groups) > 10


@pytest.mark.parametrize("kind", ["insert", "popularity", "segment"])
def test_larger_shares_contain_smaller_ones(workplace: Path, long: dict, kind: str) -> None:
    less = load(long, train_noise=0.1, train_noise_kind=kind).dataset.noise
    more = load(long, train_noise=0.2, train_noise_kind=kind).dataset.noise
    where = np.isin(more.anchor, less.anchor)
    np.testing.assert_array_equal(more.anchor[where], less.anchor)
    np.testing.assert_array_equal(more.drawn[where], less.drawn)


def test_noise_that_is_only_read(workplace: Path, long: dict) -> None:
    """eval_noise: trained on what clean data holds, evaluated on the histories that train_noise would give."""
    clean, both = load(long), load(long, train_noise=0.3)
    read = load(long, eval_noise=0.3)
    every = slice(None)
    for name in ("item_id_list", "target_item_id_list", "item_length"):
        assert torch.equal(clean.train._dataset[every][name], read.train._dataset[every][name])
    for part in ("valid", "test"):
        histories = [getattr(data, part)._dataset[every]["item_id_list"] for data in (clean, both, read)]
        assert torch.equal(histories[1], histories[2]) and not torch.equal(histories[0], histories[2])
        assert torch.equal(getattr(clean, part).frozen, getattr(read, part).frozen)
    assert read.dataset.fingerprint() == clean.dataset.fingerprint()
    with pytest.raises(UserError, match="train_noise and eval_noise"):
        load(long, train_noise=0.1, eval_noise=0.1)


def test_a_run_with_noise_that_is_only_read(workplace: Path, long: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def suspicious(dataset: Any, part: Any, kept: Path | None) -> detection.Detection:
        posterior = np.where(np.arange(len(part.index)) % 5 == 3, 0.9, 0.0)
        file = Path(f"{len(posterior)}.npz")
        np.savez(file, posterior=posterior)
        return detection.Detection(
            posterior, posterior > 0.5, {"share": 0.2, "interval": [0.1, 0.3], "verdict": "judged"}, file
        )

    monkeypatch.setattr(cleaning, "detect", suspicious)
    flags = {**long, "epochs": 1, "eval_noise": 0.2, "train_noise_kind": "insert", "noise_action": "remove"}
    result = pipeline.run("GRU4Rec", "toy", flags=flags)
    record = np.load(Path("results") / result["run"] / "noise.npz")
    assert len(record["user"]) == round(0.25 * 720) and str(record["kind"]) == "insert"
    assert set(record["original"]) == {""}
    assert "known" not in result["noise"] and result["noise"]["read"]["known"]["share"] == pytest.approx(0.2, abs=1e-3)
    opened = open_run(Path("results") / result["run"])
    assert result["noise"]["removed"] == 720 // 5 and result["noise"]["read"]["removed"] == 900 // 5
    assert len(opened.test.view) == 980 - 900 // 5 and len(opened.dataset.view) == 800 - 720 // 5
    assert (Path("results") / result["run"] / "detection-read.npz").is_file()


@pytest.mark.parametrize("kind", ["insert", "segment"])
def test_the_command_writes_what_train_noise_trains_on(workplace: Path, long: dict, kind: str) -> None:
    main(["noise", "toy", "--share", "0.2", "--kind", kind, "--output", "out", f"--data_path={long['data_path']}",
          "--noise_seed=4"])  # fmt: skip
    name = f"toy-{kind}20"
    copied = pipeline.load_data(
        Config("SASRecDenoiser", name, flags={**long, "data_path": "out", "noise_action": "none"})
    )
    drawn = load(long, train_noise=0.2, train_noise_kind=kind, noise_seed=4)
    for column_name in ("user_id", "item_id"):
        names = [
            data.dataset.field2id_token[column_name][column(data.dataset, column_name)] for data in (copied, drawn)
        ]
        tokens = [sorted(zip(column(data.dataset, "timestamp"), own, strict=True), key=lambda row: row[0])
                  for data, own in zip((copied, drawn), names, strict=True)]  # fmt: skip
        assert [str(token) for _, token in tokens[0]] == [str(token) for _, token in tokens[1]]


# ---- the oracle ----


def sequences(data: pipeline.Data, part: str) -> list[tuple[int, tuple[int, ...], int]]:
    rows = getattr(data, part)._dataset[:]
    return [
        (int(u), tuple(history[:length].tolist()), int(target))
        for u, history, length, target in zip(
            rows["user_id"], rows["item_id_list"], rows["item_length"], rows["item_id"], strict=True
        )
    ]


@pytest.mark.parametrize("model", ["SASRecDenoiser", "GRU4Rec"])
def test_oracle_removal_is_the_clean_data_without_what_was_replaced(workplace: Path, long: dict, model: str) -> None:
    clean, oracle = load(long, model), load(long, model, train_noise=0.3, noise_oracle="remove")
    replaced = oracle.dataset.noise.index
    view = clean.dataset.view
    keep = ~np.isin(np.arange(800), replaced)
    expected = view.kept(keep)
    assert len(oracle.dataset.view) == keep.sum()
    np.testing.assert_array_equal(column(oracle.dataset, "item_id"), expected.flat.columns["item_id"].numpy())
    items, begin = column(clean.dataset, "item_id"), clean.dataset.flat.user_start
    for user, history, target in sequences(oracle, "test"):
        last = np.flatnonzero(column(clean.dataset, "user_id") == user)[-1]
        own = [int(items[i]) for i in range(begin[last], last) if keep[i]][-10:]
        assert (history, target) == (tuple(own), int(items[last]))
    summary = results.noise_summary(oracle.dataset)
    assert summary is not None and summary["action"] == "oracle remove" and summary["removed"] == len(replaced)


def test_nobody_is_lost_to_the_oracle(workplace: Path, settings: dict) -> None:
    data = load(settings, train_noise=0.95, noise_oracle="remove")
    view = data.dataset.view
    kept = np.bincount(column(data.dataset, "user_id")[view.training], minlength=data.dataset.user_num)[1:]
    assert kept.min() == 2 and len(data.test.user) == 60


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_oracle": "remove"}, "needs train_noise"),
        ({"noise_oracle": "mask", "train_noise": 0.1}, "set denoise: False"),
        ({"noise_oracle": "remove", "train_noise": 0.1, "noise_action": "remove"}, "takes the detector's place"),
        ({"noise_oracle": "target", "train_noise": 0.1, "model": "GRU4Rec"}, "GRU4Rec takes remove"),
    ],
)
def test_an_oracle_must_know(workplace: Path, settings: dict, changes: dict, message: str) -> None:
    model = changes.pop("model", "SASRecDenoiser")
    with pytest.raises(UserError, match=message):
        Config(model, "toy", flags={**settings, **changes})


REPLACED = "e8e2dfa2282e3e7d357c42152b3cb7cbccd0a18bf77f9e56038e1f362dec6604"
