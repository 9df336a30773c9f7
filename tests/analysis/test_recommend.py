"""Recommendations are the model's own ranking, for raw tokens, unseen users and unknown items."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import config_from_plain
from recbole_denoiser.runs import pipeline

TITLES = ['Alien "director\'s cut"', "Tab <b>bold</b>", "Ünïcode 🎬", '"Quoted"']


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> Path:
    """A folder with a data set of its own, so that titles can lie beside it."""
    folder = tmp_path_factory.mktemp("recommend")
    (folder / "data" / "toy").mkdir(parents=True)
    (folder / "data" / "toy" / "toy.inter").write_bytes((toy / "toy" / "toy.inter").read_bytes())
    lines = ["item_id:token\tmovie_title:token_seq\tyear:float"]
    lines += [
        f"i{number}\t{TITLES[number] if number < len(TITLES) else f'Item {number}'}\t1990" for number in range(39)
    ]
    (folder / "data" / "toy" / "toy.item").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def train(place: Path, model: str, **changes: object) -> Path:
    flags = {
        "data_path": str(place / "data"),
        "result_dir": str(place / "results"),
        "noise_action": "none",
        "MAX_ITEM_LIST_LENGTH": 6,  # shorter than most histories
        "epochs": 1,
        "show_progress": False,
        "state": "ERROR",
        "eval_args.mode": "uni10",
        **changes,
    }
    return place / "results" / pipeline.run(model, "toy", flags=flags)["run"]


@pytest.fixture(scope="module")
def run(place: Path, module_workplace: None) -> Path:
    return train(place, "SASRecDenoiser")


@pytest.fixture(scope="module")
def module_workplace(tmp_path_factory: pytest.TempPathFactory) -> object:
    """RecBole writes its logs into the current folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.mark.parametrize(
    "model", ["SASRecDenoiser", "BERT4RecDenoiser", "SASRec", "BERT4Rec", "GRU4Rec", "Caser", "FPMC", "TransRec"]
)
def test_equals_full_sort_of_the_model(place: Path, module_workplace: None, model: str) -> None:
    """Histories of the test rows, given as tokens, against full_sort_predict on RecBole's own batch."""
    folder = train(place, model)
    recommender = Recommender.load(folder)
    config = config_from_plain(json.loads((folder / "result.json").read_text())["config"])
    rows = pipeline.load_data(config).test._dataset[torch.arange(50)]
    items, users = recommender.items, recommender.run.dataset.field2id_token["user_id"]
    histories = [items[row[:n]].tolist() for row, n in zip(rows["item_id_list"], rows["item_length"], strict=True)]
    table = pd.DataFrame(
        [(users[u], item, place) for u, history in zip(rows["user_id"], histories, strict=True) for place, item in enumerate(history)],
        columns=["user", "item", "time"],
    )  # fmt: skip
    found = recommender.recommend(table, k=7)
    with torch.no_grad():
        expected = recommender.model.full_sort_predict(rows).view(50, -1)[:, : len(items)]
    expected[:, 0] = -torch.inf
    for row, history in zip(expected, rows["item_id_list"], strict=True):
        row[history] = -torch.inf
    best = expected.sort(descending=True)
    np.testing.assert_allclose(found.scores, best.values[:, :7].numpy(), rtol=1e-5, atol=1e-5)
    ties = np.isclose(np.diff(best.values[:, :8].numpy(), axis=1), 0, atol=1e-5).any(1)
    assert ties.sum() < 25
    assert (found.items == items[best.indices[:, :7].numpy()])[~ties].all()


def test_only_the_newest_n_items_are_read_but_all_are_excluded(run: Path) -> None:
    recommender = Recommender.load(run)
    long = [f"i{number}" for number in range(20)]
    short = long[-6:]
    full = recommender.recommend([long, short], k=100, exclude_seen=False)
    np.testing.assert_allclose(full.scores[0], full.scores[1], rtol=1e-5)
    assert set(full.items[0]) == {f"i{number}" for number in range(40)}
    seen_out = recommender.recommend([long, short], k=40)
    assert not set(seen_out.items[0]) & set(long)
    assert len(seen_out[0]) == 20
    assert len(seen_out[1]) == 34
    assert seen_out.frame().groupby("user").size().tolist() == [20, 34]


def test_order_of_the_answer_is_the_order_of_the_question(run: Path) -> None:
    recommender = Recommender.load(run)
    sequences = [[f"i{(a + b) % 40}" for b in range(1 + a % 9)] for a in range(300)]
    together = recommender.recommend(sequences, k=3)
    for number in (0, 17, 150, 299):
        alone = recommender.recommend([sequences[number]], k=3)
        np.testing.assert_allclose(together.scores[number], alone.scores[0], rtol=1e-4, atol=1e-5)


def test_unknown_items_are_skipped_and_reported(run: Path) -> None:
    recommender = Recommender.load(run)
    found = recommender.recommend([["i1", "new", "i2", "[PAD]"], ["nothing", "new"], ["i1", "i2"], []], k=5)
    assert found.unknown == {"new": 2, "nothing": 1, "[PAD]": 1}
    assert found.empty == [1, 3]
    assert found[1] == []
    assert found[0] == found[2]
    notes = " ".join(found.notes())
    assert "4 interactions with 3 items" in notes
    assert "2 sequences have no known item" in notes


def test_titles_come_from_the_item_file(run: Path) -> None:
    recommender = Recommender.load(run)
    assert recommender.item_titles is not None
    titles = dict(zip(recommender.items.tolist(), recommender.item_titles.tolist(), strict=True))
    assert [titles[f"i{number}"] for number in range(3)] == TITLES[:3]
    assert titles["i3"] == "Quoted"  # quotes around a whole field are the file's, not the title's
    assert titles["i39"] == ""
    entry = recommender.recommend([["i5"]], k=1)[0][0]
    assert entry["title"] == titles[entry["item"]]


def test_a_table_is_ordered_by_user_and_time(run: Path) -> None:
    recommender = Recommender.load(run)
    shuffled = pd.DataFrame(
        {
            "user_id": ["b", "a", "b", "a", "b"],
            "item_id": ["i3", "i8", "i1", "i7", "i2"],
            "timestamp": [30, 2, 10, 1, 20],
        }
    )
    found = recommender.recommend(shuffled, k=4)
    expected = recommender.recommend([["i1", "i2", "i3"], ["i7", "i8"]], k=4)
    assert found.users == ["b", "a"]
    assert (found.items == expected.items).all()
    dated = shuffled.assign(timestamp=[f"2024-01-{day:02d}" for day in shuffled["timestamp"]])
    assert (recommender.recommend(dated, k=4).items == expected.items).all()
    no_time = pd.DataFrame({"user": [1, 1], "item": ["i7", "i8"]})
    assert (recommender.recommend(no_time, k=4).items[0] == expected.items[1]).all()


@pytest.mark.parametrize(
    ("sequences", "words"),
    [
        (["i1", "i2"], "list of sequences"),
        (pd.DataFrame({"user": ["a"], "thing": ["i1"]}), "column item"),
        (pd.DataFrame({"user": ["a"], "item": ["i1"], "time": ["soon"]}), "'soon' in row 1"),
    ],
)
def test_mistakes_in_sequences(run: Path, sequences: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Recommender.load(run).recommend(sequences)


def test_a_run_is_found_by_name_and_after_a_move(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent.parent)
    by_name = Recommender.load(run.name).recommend([["i1"]], k=3)
    moved = tmp_path / "copy"
    moved.mkdir()
    result = json.loads((run / "result.json").read_text())
    (moved / Path(result["checkpoint"]).name).write_bytes(Path(result["checkpoint"]).read_bytes())
    result["checkpoint"] = "gone/" + Path(result["checkpoint"]).name
    (moved / "result.json").write_text(json.dumps(result))
    assert (Recommender.load(moved).recommend([["i1"]], k=3).items == by_name.items).all()
    with pytest.raises(UserError, match=f"Finished runs in results/: .*{run.name}"):
        Recommender.load("no-such-run")


def test_relative_paths_of_a_run_hold_from_any_folder(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    (tmp_path / "there" / "data").symlink_to(toy)
    flags = {"data_path": "data", "epochs": 0, "state": "ERROR", "show_progress": False, "eval_args.mode": "uni10"}
    result = pipeline.run(dataset="toy", flags=flags)
    monkeypatch.chdir(tmp_path)
    assert len(Recommender.load(Path("there/results") / result["run"]).recommend([["i1"]], k=3)[0]) == 3


# ---- the command ----


def test_command_for_a_user_prints_a_table(run: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["recommend", "--run", str(run), "--user", "u3", "-k", "4"]) == 0
    out = capsys.readouterr().out
    assert out.split()[:5] == ["user", "rank", "item", "title", "score"]
    assert out.count("u3") == 4
    recommender = Recommender.load(run)
    first = recommender.recommend_histories(recommender.user_histories(["u3"]), k=1)[0][0]
    assert first["item"] in out


def test_command_reads_and_writes_csv_and_json_lines(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "in.csv").write_text("user,item,time\nx,i2,2\nx,i1,1\ny,i9,1\ny,zzz,2\n")
    (tmp_path / "in.jsonl").write_text('{"user": "x", "items": ["i1", "i2"], "times": [1, 2]}\n["i9"]\n')
    for kind in ("csv", "jsonl"):
        arguments = [
            "--run",
            str(run),
            "--input",
            str(tmp_path / f"in.{kind}"),
            "--output",
            str(tmp_path / f"out.{kind}"),
        ]
        assert main(["recommend", *arguments, "-k", "3"]) == 0
    assert "zzz" in capsys.readouterr().err
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["user"].tolist() == ["x"] * 3 + ["y"] * 3
    assert table["rank"].tolist() == [1, 2, 3] * 2
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [entry["item"] for entry in records[0]["recommendations"]] == table["item"].tolist()[:3]
    assert records[1]["user"] == "1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--user"),
        (["--user", "nobody"], "no user 'nobody'"),
        (["--input", "none.csv"], "does not exist"),
        (["--input", "bad.jsonl"], "line 2"),
        (["--user", "u1", "--input", "none.csv"], "not both"),
    ],
)
def test_command_says_what_is_wrong(
    run: Path, workplace: Path, capsys: pytest.CaptureFixture, arguments: list[str], words: str
) -> None:
    Path("bad.jsonl").write_text('["i1"]\n{"user": 3}\n')
    assert main(["recommend", "--run", str(run), *arguments]) == 2
    assert words in capsys.readouterr().err
