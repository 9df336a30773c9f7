"""recommend reads a history as the run read its own: without what the detector suspects, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.clean_history import HistoryCleaner
from recbole_denoiser.analysis.export import export
from recbole_denoiser.analysis.graph_answers import GraphAnswers
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.data import cleaning, detection
from recbole_denoiser.data.detection import Detection, TrainingPart
from recbole_denoiser.detect.detector import Detector
from recbole_denoiser.errors import UserError


def test_the_kept_detector_knows_tokens(tmp_path: Path) -> None:
    """Detected, written and read again: a stranger in a shelf is more suspicious than what belongs there."""
    random = np.random.default_rng(0)
    user = np.repeat(np.arange(150), 18)
    item = 20 * (user % 6) + random.integers(20, size=len(user))
    noisy = random.random(len(item)) < 0.2
    item[noisy] = random.integers(0, 120, noisy.sum())
    known, number = np.unique(item, return_inverse=True)
    part = TrainingPart(np.arange(len(user)), user, number, known)
    names = [f"i{k}" for k in known]
    found = detection.detect_training(part, None, {"threshold": 0.5, "seed": 0}, tmp_path, tokens=names)
    detector = Detector.load(found.detector_file)
    alone = detector.score(["i0", "i1", "i2", "i3", "i100", "i4", "i5", "i6", "i7"])
    assert alone[4] > 0.5 > np.delete(alone, 4).max()
    score = detector.score([*(f"i{k}" for k in range(8)), "i100", "never seen"])
    assert score[8:].min() > 5 * score[:8].max()  # a second stranger beside it speaks for the first
    tokens = [*(f"i{k}" for k in range(8)), "i100", "never seen", *names[:3]]
    both = detector.score_rows(np.array([0] * 10 + [1] * 3), tokens)
    np.testing.assert_allclose(both[:10], score)
    np.testing.assert_allclose(both[10:], detector.score(names[:3]))
    cleaner = HistoryCleaner(detector, True, 1.0, 0.5, {name: number for number, name in enumerate(names)})
    assert cleaner._strangers([f"i{k}" for k in range(8)] + ["i100"], 8).endswith(
        "of its 8 neighbours in other histories"
    )


@pytest.fixture(scope="module")
def run(train_toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that removed item i7 wherever it stood, and its (made-up) detector."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "detect", _suspects_i7(tmp_path_factory.mktemp("detected")))
        return train_toy(noise_action="remove", run_name="suspicious")


def _suspects_i7(folder: Path) -> Any:
    def detect(dataset: Any, part: TrainingPart, kept: Path | None) -> Detection:
        tokens = dataset.field2id_token[dataset.iid_field][part.items[part.item]]
        posterior = np.where(tokens == "i7", 0.9, 0.1)
        data: dict[str, Any] = {
            "data": np.array(part.digest(None)),
            "settings": np.array('{"seed": 0, "threshold": 0.5}'),
        }
        summary = {"share": 0.2, "interval": [0.18, 0.22], "verdict": "judged"}
        remove = posterior > 0.5
        np.savez(folder / "detection.npz", posterior=posterior, remove=remove, summary=json.dumps(summary), **data)
        (folder / "detector.npz").write_bytes(b"stands for a detector")
        return Detection(posterior, remove, summary, folder / "detection.npz")

    return detect


@pytest.fixture
def recommender(run: Path, monkeypatch: pytest.MonkeyPatch) -> Recommender:
    table = np.ones((40, 40)) - np.eye(40)
    table[7, 5] = 0
    fake = SimpleNamespace(
        score_rows=lambda user, tokens: np.where(np.array(tokens) == "i7", 0.9, 0.1),
        settings=SimpleNamespace(window=2),
        tokens=[f"i{k}" for k in range(40)],
        statistics=SimpleNamespace(counts=SimpleNamespace(table=table)),
    )
    monkeypatch.setattr("recbole_denoiser.analysis.clean_history.Detector.load", lambda file: fake)
    return Recommender.load(run)


def test_suspicious_items_are_left_out_and_named(recommender: Recommender) -> None:
    cleaner = recommender.cleaner
    assert cleaner is not None and cleaner.removes and cleaner.bound == pytest.approx(0.9)
    found = recommender.recommend([["i3", "i5", "i7", "i6"], ["i1", "i2"]], k=40)
    without = recommender.recommend([["i3", "i5", "i6"], ["i1", "i2"]], k=40)
    assert [(entry["user"], entry["item"], entry["posterior"]) for entry in found.left_out] == [("0", "i7", 0.9)]
    assert found.left_out[0]["reason"] == "near 2 of its 3 neighbours in other histories"
    assert "left out, as the run did in training: i7 (90% likely noise, near 2 of" in found.notes()[0]
    assert without.left_out == [] and without.notes() == []
    # read as if it were not there, but not recommended either: the user has it
    scores = {entry["item"]: entry["score"] for entry in without[0]}
    assert "i7" in scores and "i7" not in {entry["item"] for entry in found[0]}
    for entry in found[0]:
        assert entry["score"] == pytest.approx(scores[entry["item"]], abs=1e-5)
    assert found[1] == without[1]
    records = list(found.records())
    assert records[0]["left_out"][0]["item"] == "i7" and "left_out" not in records[1]


def test_two_items_always_stay(recommender: Recommender) -> None:
    assert recommender.recommend([["i7", "i7", "i7"]]).left_out[0]["item"] == "i7"
    assert len(recommender.cleaned(recommender.histories([["i7", "i7", "i7"]])).item) == 2
    assert recommender.recommend([["i7"]]).left_out == []


def test_users_of_the_data_set(recommender: Recommender) -> None:
    """What the run removed from their training items; nobody judges what came later."""
    dataset = recommender.run.dataset
    removed = dataset.cleaning.removed
    before = dataset.cleaning.before.flat
    owner = before.columns["user_id"].numpy()[removed]
    user = str(dataset.field2id_token["user_id"][owner[0]])
    histories = recommender.user_histories([user])
    assert len(histories.left_out) == int((owner == owner[0]).sum())
    assert {str(recommender.items[gone.item]) for gone in histories.left_out} == {"i7"}
    found = recommender.recommend_histories(histories, k=40)
    assert "i7" not in {entry["item"] for entry in found[0]} and "i7 (90% likely noise)" in found.notes()[0]


def test_the_command_says_it(
    recommender: Recommender, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "in.jsonl").write_text('["i3", "i5", "i7", "i6"]\n')
    assert main(["recommend", "--run", str(run), "--input", str(tmp_path / "in.jsonl"), "-k", "3"]) == 0
    assert "were left out, as the run did in training: i7" in capsys.readouterr().err


def test_exported_models_read_a_history_the_same_way(recommender: Recommender, tmp_path: Path) -> None:
    """The graph behind ``GraphAnswers``, and weights opened without the run."""
    histories = [["i3", "i5", "i7", "i6"], ["i1", "i2"], ["never seen"], ["i7", "i7", "i7"]]
    wanted = recommender.recommend(histories, k=40)
    pytest.importorskip("safetensors", reason="the extra export has it")
    program = torch.export.load(export(recommender, "pt2", tmp_path, k=40)).module()
    export(recommender, "safetensors", tmp_path)  # beside it: the graph is still described
    assert json.loads((tmp_path / "model.json").read_text())["k"] == 40

    def graph(feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            return [part.numpy() for part in program(*map(torch.from_numpy, (feed["items"], feed["length"])))]

    found = GraphAnswers(tmp_path, graph)(histories)
    assert wanted.left_out and "i7" not in {entry["item"] for entry in found[0]}
    for row, answer in enumerate(found):
        scores = {entry["item"]: entry["score"] for entry in answer}
        assert scores == pytest.approx({entry["item"]: entry["score"] for entry in wanted[row]}, abs=1e-4)
    assert GraphAnswers(tmp_path, graph)([]) == []

    opened = Recommender.load(tmp_path).recommend(histories, k=40)
    assert opened.left_out == wanted.left_out
    assert opened.frame().equals(wanted.frame())


def test_without_its_detector_the_run_cannot_read_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recbole_denoiser.analysis.clean_history.DETECTOR_FILE", "gone.npz")
    with pytest.raises(UserError, match=r"gone\.npz is missing"):
        Recommender.load(run)


def test_a_run_without_removal_reads_everything(train_toy: Any) -> None:
    assert Recommender.load(train_toy(run_name="reads-everything")).cleaner is None
