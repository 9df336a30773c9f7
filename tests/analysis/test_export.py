"""Exported models answer as recommend does, for any number of histories; what cannot be exported is named."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.export import TopItems, export, histories_of_ids
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError

K = 5


@pytest.fixture(scope="module", params=["product", "renormalise"])
def recommender(train_toy: Any, request: pytest.FixtureRequest) -> Recommender:
    """A trained model whose masks close some attentions."""
    found = Recommender.load(train_toy("SASRecDenoiser", n_layers=2, mask_form=request.param))
    generator = torch.Generator().manual_seed(0)
    for mask in found.model.denoiser.masks:
        mask.phi.data = torch.randn(mask.phi.shape, generator=generator)
    return found


def samples(recommender: Recommender, count: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Histories of 0 to 20 items; the model reads 8."""
    random = np.random.default_rng(1)
    length = random.integers(0, 21, count)
    items = random.integers(1, len(recommender.items), (count, 20))
    return np.where(np.arange(20) < length[:, None], items, 0), length


def expected(recommender: Recommender, items: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = recommender.recommend_histories(histories_of_ids(items, length), K)
    ids = [[recommender.item_ids.get(token, -1) for token in row] for row in found.items]
    return np.array(ids), found.scores


def same(found: Iterable[np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> None:
    best, scores = found
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-4, atol=1e-5)
    real = np.isfinite(wanted[1])
    assert (best[real] == wanted[0][real]).mean() > 0.99  # two equal scores may change places


def test_gates_act_in_what_is_compared(recommender: Recommender) -> None:
    items, length = samples(recommender)
    with_gates = expected(recommender, items, length)[1]
    recommender.model.denoiser.off()
    without = expected(recommender, items, length)[1]
    recommender.model.denoiser.on()
    real = np.isfinite(without) & np.isfinite(with_gates)
    assert np.abs(with_gates[real] - without[real]).max() > 1e-3


def test_onnx_answers_as_recommend_for_100_users(recommender: Recommender, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX needs the extra export")
    pytest.importorskip("onnxscript", reason="ONNX needs the extra export")
    file = export(recommender, "onnx", tmp_path, K)
    session = onnxruntime.InferenceSession(str(file))
    items, length = samples(recommender)
    wanted = expected(recommender, items, length)
    same(session.run(None, {"items": items, "length": length}), wanted)
    for row in np.flatnonzero(length)[:2]:  # alone, and without the padding behind it
        width = max(int(length[row]), 1)
        found = session.run(None, {"items": items[row : row + 1, :width], "length": length[row : row + 1]})
        same(found, (wanted[0][row : row + 1], wanted[1][row : row + 1]))
    about = json.loads((tmp_path / "model.json").read_text())
    assert (about["k"], about["max_length"], about["items"]) == (K, 8, recommender.items.tolist())


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # sides of constant length are compared
def test_pt2_and_jit_trace_answer_as_recommend(recommender: Recommender, tmp_path: Path) -> None:
    items, length = samples(recommender)
    wanted = expected(recommender, items, length)
    program = torch.export.load(export(recommender, "pt2", tmp_path, K)).module()
    tensors = torch.from_numpy(items), torch.from_numpy(length)
    same((part.detach().numpy() for part in program(*tensors)), wanted)
    with torch.no_grad():
        traced = torch.jit.trace(TopItems(recommender, K, True).eval(), (tensors[0][:3], tensors[1][:3]))
        same((part.numpy() for part in traced(*tensors)), wanted)


def test_safetensors_open_without_run_and_data(recommender: Recommender, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra export has it")
    file = export(recommender, "safetensors", tmp_path / "a", K)
    shutil.move(tmp_path / "a", tmp_path / "elsewhere")
    items, length = samples(recommender)
    wanted = expected(recommender, items, length)
    for place in (tmp_path / "elsewhere", tmp_path / "elsewhere" / file.name):
        opened = Recommender.load(place)
        np.testing.assert_array_equal(expected(opened, items, length)[1], wanted[1])
    tokens = [recommender.items[items[1, : length[1]]].tolist()]
    assert opened.recommend(tokens).frame().equals(recommender.recommend(tokens).frame())
    (tmp_path / "elsewhere" / file.name).write_bytes(b"broken")
    with pytest.raises(UserError, match="cannot be read"):
        Recommender.load(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("BERT4RecDenoiser", {"position_from": "start"}),
        ("SASRecDenoiser", {"mask": "content"}),
        ("SASRecSparse", {}),
        ("SASRecEntmax", {}),
        ("GRU4Rec", {}),
    ],
)
def test_other_models_are_recorded(train_toy: Any, tmp_path: Path, model: str, changes: dict) -> None:
    recommender = Recommender.load(train_toy(model, epochs=1, **changes))
    items, length = samples(recommender)
    program = torch.export.load(export(recommender, "pt2", tmp_path, K)).module()
    best, scores = program(torch.from_numpy(items), torch.from_numpy(length))
    same((best.numpy(), scores.detach().numpy()), expected(recommender, items, length))


@pytest.mark.parametrize(("model", "reason"), [("TiSASRec", "time of every item"), ("SSEPT", "reads the user")])
def test_models_that_cannot_be_exported_are_named(train_toy: Any, tmp_path: Path, model: str, reason: str) -> None:
    recommender = Recommender.load(train_toy(model, epochs=1))
    with pytest.raises(UserError, match=f"{model} cannot be exported: .*{reason}"):
        export(recommender, "pt2", tmp_path)


def test_the_command_and_what_is_missing(
    recommender: Recommender, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recommender.run.folder
    assert main(["export", "--run", str(folder), "--format=pt2", "-k=3"]) == 0
    assert f"Wrote {folder / 'export' / 'model.pt2'}" in capsys.readouterr().out
    for module, kind in (("onnxruntime", "onnx"), ("safetensors.torch", "safetensors")):
        monkeypatch.setitem(sys.modules, module, None)
        assert main(["export", "--run", str(folder), f"--format={kind}"]) == 2
        assert "recbole-denoiser[export]" in capsys.readouterr().err
