"""RecBole's own entry points after ``import recbole_denoiser``; in a process of their own, as they import ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="recbole.quick_start needs ray")

SCRIPT = """
import sys
import recbole_denoiser
assert "ray" not in sys.modules, "this package must not import ray"
from recbole.quick_start import load_data_and_model, run_recbole
from recbole.utils import get_model
model, data_path = sys.argv[1:3]
sys.argv = sys.argv[:1]
settings = {"data_path": data_path, "epochs": 1, "MAX_ITEM_LIST_LENGTH": 10, "show_progress": False, "checkpoint_dir": "saved",
            "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "uni10"},
            "load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "train_neg_sample_args": None}
result = run_recbole(model, "toy", config_dict=settings)
assert 0 <= result["test_result"]["hit@10"] <= 1, result
from pathlib import Path
file = str(next(Path("saved").glob("*.pth")))
config, network, dataset, train, valid, test = load_data_and_model(file)
assert type(network) is get_model(model)
assert config["epochs"] == 1
print("done")
"""


@pytest.mark.parametrize("model", ["SASRec", "SASRecDenoiser", "BERT4RecDenoiser"])
def test_run_recbole_and_load(workplace: Path, toy: Path, model: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, model, str(toy)], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("done")
