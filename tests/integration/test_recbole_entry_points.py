"""RecBole's own entry points after ``import recbole_denoiser``; in a process of their own, as they may import ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recbole_denoiser.runs import pipeline

START = """
import json, sys
import recbole_denoiser
assert "ray" not in sys.modules, "this package must not import ray"
import torch
torch.set_num_threads(1)
from recbole.quick_start import load_data_and_model, run_recbole
from recbole.utils.case_study import full_sort_topk
data_path = sys.argv[1]
sys.argv = sys.argv[:1] + sys.argv[2:]
settings = {"data_path": data_path, "epochs": 1, "MAX_ITEM_LIST_LENGTH": 10, "show_progress": False, "state": "ERROR",
            "train_batch_size": 32}
"""

PLAIN = """
settings |= {"eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "uni10"},
             "load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "train_neg_sample_args": None, "checkpoint_dir": "saved"}
result = run_recbole("SASRec", "toy", config_dict=settings)
assert result["test_result"]["mrr@10"] > 0, result
from pathlib import Path
file = str(next(Path("saved").glob("*.pth")))
config, network, dataset, train, valid, test = load_data_and_model(file)
assert type(network).__name__ == "SASRec" and config["epochs"] == 1
"""

# naming only the mode keeps leave-one-out in time order
OURS = """
result = run_recbole(model="SASRecDenoiser", dataset="toy", config_dict={**settings, "eval_args": {"mode": MODE}})
written = json.load(open(f"results/{result['run']}/result.json"))
import os
assert os.listdir() == ["results"], "one folder holds everything"
assert set(os.listdir("results")) == {result["run"], ".detect"}, os.listdir("results")
config, network, dataset, train, valid, test = load_data_and_model(written["checkpoint"])
assert config["eval_args"]["split"] == {"LS": "valid_and_test"} and config["eval_args"]["order"] == "TO"
scores, items = full_sort_topk([3, 1, 2], network, test, k=5)
print(json.dumps([result, scores.tolist(), dataset.field2id_token["item_id"][items.numpy()].tolist(),
                  dataset.field2id_token["user_id"][[3, 1, 2]].tolist()]))
"""


def python(script: str, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", START + script, *words], capture_output=True, text=True, check=False
    )  # fmt: skip


def test_recbole_model(workplace: Path, toy: Path) -> None:
    done = python(PLAIN, str(toy))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("mode", ["full", "uni10"])
def test_our_model_gets_the_numbers_of_the_command(workplace: Path, toy: Path, mode: str) -> None:
    done = python(OURS.replace("MODE", repr(mode)), str(toy))
    assert done.returncode == 0, done.stderr[-3000:]
    result, scores, items, users = json.loads(done.stdout.splitlines()[-1])

    flags = {"data_path": str(toy), "epochs": 1, "MAX_ITEM_LIST_LENGTH": 10, "show_progress": False, "state": "ERROR",
             "train_batch_size": 32, "eval_args.mode": mode, "result_dir": "command", "num_threads": 1}  # fmt: skip
    ours = pipeline.run("SASRecDenoiser", "toy", flags=flags)
    assert result["test_result"] == pytest.approx(ours["test"], abs=1e-6)
    assert result["best_valid_result"] == pytest.approx(ours["valid"], abs=1e-6)
    assert result["best_valid_score"] == pytest.approx(ours["valid"]["ndcg@10"], abs=1e-6)

    from recbole_denoiser.analysis.recommend import Recommender

    # the run opens by name; full_sort_topk scores the history before the test item, as the test does
    recommender = Recommender.load(result["run"])
    for user, best, values in zip(users, items, scores, strict=True):
        history = history_before_test(toy, user)
        again = recommender.recommend([history], 5, exclude_seen=False)[0]
        assert [entry["item"] for entry in again] == best, user
        assert values == sorted(values, reverse=True)


def history_before_test(toy: Path, user: str) -> list[str]:
    rows = [line.split("\t") for line in (toy / "toy" / "toy.inter").read_text().splitlines()[1:]]
    own = sorted(((float(time), item) for who, item, time in rows if who == user), key=lambda pair: pair[0])
    return [item for _, item in own][:-1]


CUSTOM = """
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed
config = Config("SASRecDenoiser", "toy", config_dict={**settings, "eval_args": {"mode": "uni10"}, "checkpoint_dir": "own"})
assert config["epochs"] == 0, "RecBole reads --epochs from the command line"
assert config["eval_args"]["split"] == {"LS": "valid_and_test"} and config["eval_args"]["order"] == "TO"
init_seed(config["seed"], True)
train, valid, test = data_preparation(config, create_dataset(config))
assert type(test).__name__ == "CandidateLoader" and test.frozen is not None
init_seed(config["seed"], True)
trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, get_model(config["model"])(config, train._dataset))
trainer.fit(train, valid, verbose=False)
own = trainer.evaluate(test)
assert run_recbole("SASRecDenoiser", "toy", config_dict={**settings, "eval_args": {"mode": "uni10"}})["test_result"] == own
for refuse in (lambda s: Config("SASRecDenoiser", "toy", config_dict=s), lambda s: run_recbole("SASRecDenoiser", "toy", config_dict=s)):
    try:
        refuse({**settings, "eval_args": {"order": "RO"}})
    except recbole_denoiser.UserError as error:
        assert "eval_args.order = RO" in str(error)
    else:
        raise AssertionError("a random order was accepted")
assert Config("BPR", "toy", config_dict=settings)["eval_args"]["order"] == "RO"  # RecBole's models keep its defaults
"""


def test_recbole_steps_one_by_one_and_settings_on_every_path(workplace: Path, toy: Path) -> None:
    done = python(CUSTOM, str(toy), "--epochs=0", "--my_own_flag=3")
    assert done.returncode == 0, done.stderr[-3000:]
