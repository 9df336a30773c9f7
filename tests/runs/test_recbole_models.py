"""Every sequential model of RecBole by the one command, an epoch each; and what they say when a file is missing."""

from __future__ import annotations

import logging
import math
import random
from pathlib import Path
from typing import Any

import pytest
from toy_data import toy_rows, write_inter

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.registry import recbole_sequential_models
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.reopen import open_run

ITEMS = [f"i{number}" for number in range(30)]
# small, so that an epoch takes a moment; what a model needs for data of this size
SMALL = {"MAX_ITEM_LIST_LENGTH": 5, "hidden_size": 8, "inner_size": 8, "embedding_size": 8, "n_layers": 1,
         "mlp_hidden_size": [8], "epochs": 1, "train_batch_size": 64, "eval_args.mode": "uni10", "topk": [5],
         "valid_metric": "NDCG@5", "show_progress": False, "state": "ERROR"}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "FEARec": {"n_layers": 2},
    "KSR": {"kg_embedding_size": 8},
    "SASRecCPR": {"reranker_CAN_NUM": 10},
    "GRU4RecCPR": {"reranker_CAN_NUM": 10},
}


@pytest.fixture(scope="module")
def featured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with classes of the items, a knowledge graph and its vectors."""
    folder = tmp_path_factory.mktemp("featured")
    write_inter(folder, "toy", toy_rows(users=16, items=len(ITEMS)))
    pick = random.Random(0)

    def write(ending: str, header: str, lines: list[str]) -> None:
        text = "\n".join([header.replace(" ", "\t"), *lines]) + "\n"
        (folder / "toy" / f"toy.{ending}").write_text(text, encoding="utf-8")

    def vector() -> str:
        return " ".join(f"{pick.gauss(0, 1):.3f}" for _ in range(8))

    write("item", "item_id:token class:token_seq", [f"{i}\t{pick.choice('abc')} {pick.choice('de')}" for i in ITEMS])
    write("link", "item_id:token entity_id:token", [f"{i}\te{i}" for i in ITEMS])
    write("kg", "head_id:token relation_id:token tail_id:token",
          [f"e{i}\tr{pick.randrange(3)}\te{pick.choice(ITEMS)}" for i in ITEMS])  # fmt: skip
    write("ent", "ent_id:token ent_emb:float_seq", [f"e{i}\t{vector()}" for i in ITEMS])
    write("rel", "rel_id:token rel_emb:float_seq", [f"r{relation}\t{vector()}" for relation in range(3)])
    return folder


def flags(model: str, folder: Path, **changes: Any) -> dict[str, Any]:
    known = Config(model).final_config_dict
    small = {key: value for key, value in SMALL.items() if key.split(".")[0] in known or key == "MAX_ITEM_LIST_LENGTH"}
    return {**small, **OWN.get(model, {}), "data_path": str(folder), "run_name": model, **changes}


def test_there_are_31() -> None:
    assert len(recbole_sequential_models()) == 31


@pytest.mark.parametrize("model", recbole_sequential_models())
def test_one_epoch(workplace: Path, featured: Path, model: str) -> None:
    result = pipeline.run(model, "toy", flags=flags(model, featured))
    assert len(result["epochs"]) == 1
    losses = list(result["epochs"][0]["losses"].values())
    assert losses and all(map(math.isfinite, losses))
    assert result["test"]["hit@5"] > 0  # 16 users, 5 of 11 candidates: none at all would be no model
    opened = open_run(model)
    assert type(opened.model).__name__ == model


def test_s3rec_goes_on_from_its_pretraining(workplace: Path, featured: Path, capsys: pytest.CaptureFixture) -> None:
    typed = [f"--{key}={value}" for key, value in flags("S3Rec", featured).items()]
    assert main(["run", "-m", "S3Rec", "-d", "toy", *typed]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "only pre-trained" in line]
    words = line.partition("then: ")[2].split()
    again = [word for word in typed if "run_name" not in word]
    assert main(["run", "-m", "S3Rec", "-d", "toy", *again, "--run_name=tuned", *words]) == 0
    assert "only pre-trained" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (
            "SASRecF",
            {},
            r"SASRecF reads features of the items, and toy.item has no column class\..*--selected_features",
        ),
        ("GRU4RecF", {"selected_features": ["brand"]}, "no column brand"),
        ("S3Rec", {}, r"no column class\. .*--item_attribute"),
        ("GRU4RecKG", {}, r"needs a knowledge graph, .* no toy.kg \(the triples .*toy.link .*toy.ent "),
        ("KSR", {}, r"toy.rel \(a vector rel_emb"),
        ("SASRecCPR", {"reranker_CAN_NUM": 100}, "has only 40: lower reranker_CAN_NUM"),
    ],
)
def test_what_is_missing_is_said(workplace: Path, toy: Path, model: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        pipeline.run(model, "toy", flags=flags(model, toy, **changes))


def test_vectors_of_another_size(workplace: Path, featured: Path) -> None:
    with pytest.raises(UserError, match=r"ent_emb of 'toy' have 8 numbers: set --embedding_size=8"):
        pipeline.run("GRU4RecKG", "toy", flags=flags("GRU4RecKG", featured, embedding_size=6))


def test_older_keys_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Config(
            "GRU4Rec", config_dict={"neg_sampling": {"uniform": 1}, "training_neg_sample_num": 1, "split_ratio": [1]}
        )
    assert "'neg_sampling' or 'training_neg_sample_num' has been deprecated" in caplog.text
    assert "'split_ratio' has been deprecated in the new version, please use 'eval_args.split'" in caplog.text
