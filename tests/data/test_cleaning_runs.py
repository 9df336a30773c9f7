"""noise_action in whole runs: detected once and found again, told in result.json, opened as it was; items' texts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from suspects import load
from toy_data import quick_settings, toy_rows, write_inter

from recbole_denoiser.data import detection
from recbole_denoiser.data.items import item_texts
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.reopen import open_run

# ---- the cache ----


def test_a_grid_detects_once_and_damage_is_mended(
    workplace: Path, settings: dict, every_third: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    first = load(settings, noise_action="remove")
    file = first.dataset.cleaning.detection.file
    assert file.parent.parent == Path("results/.detect")
    for changes in ({"noise_action": "weight"}, {"seed": 7}):
        load({**settings, "noise_action": "remove", **changes})
    load(settings, "GRU4Rec", noise_action="remove")
    assert every_third.calls == 1
    for change in ({"noise_threshold": 0.4}, {"detect_seed": 1}, {"train_noise": 0.2}):
        load({**settings, "noise_action": "remove", **change})
    assert every_third.calls == 4
    whole = file.read_bytes()
    for damage in (b"", whole[: len(whole) // 2], b"x" * 100):
        file.write_bytes(damage)
        again = load(settings, noise_action="remove")
        np.testing.assert_array_equal(again.dataset.cleaning.removed, first.dataset.cleaning.removed)
    assert every_third.calls == 7
    assert "is damaged" in caplog.text
    assert len(list(file.parent.parent.glob("*/*"))) == 4  # nothing half-written is left


def test_another_version_of_the_detector_asks_again(
    workplace: Path, settings: dict, every_third: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(settings, noise_action="remove")
    monkeypatch.setattr(detection, "detector_version", lambda: "another")
    load(settings, noise_action="remove")
    assert every_third.calls == 2


# ---- whole runs ----


@pytest.mark.parametrize("model", ["SASRecDenoiser", "GRU4Rec"])
def test_a_run_tells_what_it_did_and_opens_as_it_was(
    workplace: Path, settings: dict, every_third: SimpleNamespace, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {**settings, "epochs": 1, "train_noise": 0.2, "noise_action": "remove"}
    result = pipeline.run(model, "toy", flags=flags)
    stored = json.loads((Path("results") / result["run"] / "result.json").read_text())["noise"]
    assert stored["share"] == 0.1 and stored["interval"] == [0.05, 0.15] and stored["verdict"] == "judged"
    assert stored["shares"] == {"uniform": 0.1, "popularity": 0.0} and stored["expected"]["recall"] is None
    part = np.arange(stored["interactions"])
    removed = part % 3 == 2
    assert stored["removed"] == removed.sum()
    opened = open_run(Path("results") / result["run"])
    view = opened.dataset.cleaning.before
    noise = view.noise[view.training]
    assert stored["known"]["share"] == pytest.approx(noise.mean())
    assert stored["known"]["precision"] == pytest.approx(noise[removed].mean())
    assert stored["known"]["recall"] == pytest.approx(removed[noise].mean())
    # posteriors are 0.9 and 0.1 only: AUC = P(0.9 | noise) P(0.1 | clean) + half the ties
    hit, miss = removed[noise].mean(), removed[~noise].mean()
    assert stored["known"]["auc"] == pytest.approx(hit * (1 - miss) + 0.5 * (hit * miss + (1 - hit) * (1 - miss)))
    # an improved detector changes nothing about a run that was trained with another one
    monkeypatch.setattr(detection, "detector_version", lambda: "another")
    monkeypatch.setattr(detection.detect, "detect_flat", None)
    again = open_run(Path("results") / result["run"])
    np.testing.assert_array_equal(again.dataset.cleaning.removed, opened.dataset.cleaning.removed)
    assert len(again.dataset.view) == len(view) - removed.sum()


def test_the_real_detector_in_a_run(workplace: Path) -> None:
    """Users who stay in one of six shelves, and a quarter of the items replaced."""
    random = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{20 * (user % 6) + random.integers(20)}", 100 * user + place)
        for user in range(400)
        for place in range(20)
    ]
    write_inter(workplace, "shelves", rows)
    settings = {**quick_settings(workplace), "epochs": 0, "train_noise": 0.25, "noise_action": "remove"}
    found = pipeline.run("GRU4Rec", "shelves", flags=settings)["noise"]
    assert found["known"]["share"] == pytest.approx(0.25, abs=0.001)
    assert found["share"] == pytest.approx(0.25, abs=0.03)
    assert found["interval"][0] < 0.25 < found["interval"][1] + 0.01
    assert found["verdict"] == "judged"
    assert found["known"]["auc"] > 0.9 and found["known"]["precision"] > 0.9 and found["known"]["recall"] > 0.7


def test_item_texts_are_all_words_of_an_item(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    text = 'item_id:token\ttitle:token_seq\tprice:float\tbrand:token\n1\tA "long lens\t5\tNikon\n2\t\t3\tCanon\n'
    (tmp_path / "shop" / "shop.item").write_text(text)
    config: Any = {"data_path": str(tmp_path / "shop"), "dataset": "shop", "field_separator": "\t",
                   "encoding": "utf-8", "ITEM_ID_FIELD": "item_id"}  # fmt: skip
    assert item_texts(config) == {"1": 'A "long lens Nikon', "2": " Canon"}
    config["dataset"] = "other"
    assert item_texts(config) == {}


def test_texts_reach_the_detector_by_item(
    workplace: Path, settings: dict, every_third: SimpleNamespace, toy: Path
) -> None:
    write_inter(workplace / "told", "toy", toy_rows())
    lines = "".join(f"i{n}\tword{n}\n" for n in range(40))
    (workplace / "told" / "toy" / "toy.item").write_text("item_id:token\ttitle:token_seq\n" + lines)
    data = load({**settings, "data_path": str(workplace / "told")}, noise_action="remove")
    view, tokens = data.dataset.cleaning.before, data.dataset.field2id_token["item_id"]
    read = tokens[view.flat.columns["item_id"].numpy()[view.training]]
    texts = every_third.settings["texts"]
    assert [texts[number] for number in every_third.item] == [str(token).replace("i", "word") for token in read]
    load(settings, noise_action="remove")
    assert every_third.settings["texts"] is None
