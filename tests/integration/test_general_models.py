"""RecBole's general models through run_recbole: what torch's safe loading and SciPy broke, mended by our import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from recbole_denoiser.integration.parameters import from_plain, to_plain

SCRIPT = """
import sys
import recbole_denoiser, torch
torch.set_num_threads(1)
from pathlib import Path
from recbole.quick_start import load_data_and_model, run_recbole
data_path, *models = sys.argv[1:]
sys.argv = sys.argv[:1]
for name in models:
    settings = {"data_path": data_path, "epochs": 1, "show_progress": False, "state": "ERROR", "checkpoint_dir": name,
                "load_col": {"inter": ["user_id", "item_id"]}, "embedding_size": 8}
    result = run_recbole(name, "toy", config_dict=settings)
    assert result["test_result"]["recall@10"] > 0, name
    (file,) = Path(name).glob("*.pth")
    torch.load(file, weights_only=True)  # no code in it
    config, model, dataset, train, valid, test = load_data_and_model(str(file))
    assert type(model).__name__ == name
    from recbole.utils import get_trainer
    again = get_trainer(config["MODEL_TYPE"], name)(config, model).evaluate(test, load_best_model=False)
    assert again == result["test_result"], (name, again, result)
"""


def test_models_train_are_tested_and_loaded_again(workplace: Path, toy: Path) -> None:
    models = ["ItemKNN", "EASE", "SLIMElastic", "LightGCN", "NGCF"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(toy), *models], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("kind", ["csr", "csc", "lil", "coo", "dok"])
def test_sparse_matrices_come_back(tmp_path: Path, kind: str) -> None:
    matrix = sparse.random(5, 7, 0.3, format="csr", random_state=0).asformat(kind)
    torch.save(to_plain(matrix), tmp_path / "m.pt")
    again = from_plain(torch.load(tmp_path / "m.pt", weights_only=True))
    assert again.format == kind
    assert np.array_equal(again.toarray(), matrix.toarray())


def test_other_values_come_back() -> None:
    matrix = np.asmatrix([[1.0, 2.0]])
    assert isinstance(from_plain(to_plain(matrix)), np.matrix)
    assert np.array_equal(from_plain(to_plain(np.arange(3))), np.arange(3))
    assert from_plain(to_plain({"a": 1})) == {"a": 1}
    assert to_plain(np.float64(0.5)) == 0.5
