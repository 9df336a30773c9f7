"""Events of any file or frame become a data set: every format the same, every kind of time, nothing lost silently."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.data.prepare.columns import Columns
from recbole_denoiser.data.prepare.events import prepare_events, prepare_frame
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs import pipeline

NAMES = Columns("who", "what", "when", "name")
# users and items with 2 actions each, in falling order of time; user z and item rare are alone
EVENTS = [("a", "x", 30.5), ("a", "y", 20.0), ("b", "y", 5.0), ("b", "x", 4.0), ("z", "x", 1.0), ("a", "rare", 2.0)]
LINES = ["user_id:token\titem_id:token\ttimestamp:float", "a\ty\t20", "a\tx\t30.5", "b\tx\t4", "b\ty\t5"]


def frame() -> pd.DataFrame:
    rows = [(t, u, i, f'The "{i}",\nbest') for u, i, t in EVENTS]
    return pd.DataFrame(rows, columns=["when", "who", "what", "name"])


def written(kind: str, folder: Path) -> Path:
    file = folder / f"shop.{kind}"
    if kind.startswith("parquet"):
        pytest.importorskip("pyarrow", reason="Parquet needs the extra parquet")
        frame().to_parquet(file)
    elif kind.startswith("jsonl"):
        text = "".join(json.dumps(record) + "\n" for record in frame().to_dict("records"))
        file.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    else:
        frame().to_csv(file, index=False, sep="\t" if kind.startswith("tsv") else ",")
    return file


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_files(tmp_path: Path, kind: str) -> None:
    report = prepare_events(written(kind, tmp_path), NAMES, tmp_path / "out", core=2, progress=False)
    assert (report.name, report.users, report.items, report.actions, report.read) == ("shop", 2, 2, 4, 6)
    assert (report.malformed, report.titles) == (0, 2)
    assert report.inter_file.read_text().splitlines() == LINES
    assert report.item_file is not None
    assert report.item_file.read_text().splitlines() == [
        "item_id:token\ttitle:token",
        *(f"{i}\tThe '{i}', best" for i in "xy"),
    ]
    assert "2-core" in str(report) and "Table 1" not in str(report)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_the_command(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, kind: str
) -> None:
    """ISO dates, titles and a core, typed; the table and the malformed lines are shown."""
    dated = frame().assign(when=pd.to_datetime(frame()["when"], unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    monkeypatch.setattr(sys.modules[__name__], "frame", lambda: dated)
    file = written(kind, workplace)
    if kind in ("csv", "jsonl"):
        with file.open("a") as stream:
            stream.write("not an event\n")
    words = ["--user", "who", "--item", "what", "--time", "when", "--title", "name", "--core", "2"]
    assert main(["prepare", "csv", "--raw", str(file), *words]) == 0
    assert Path("dataset/shop/shop.inter").read_text().splitlines() == LINES
    assert Path("dataset/shop/shop.item").read_text().splitlines()[1:] == [f"{i}\tThe '{i}', best" for i in "xy"]
    told = capsys.readouterr().out
    assert "2-core" in told and ("not an event" in told) == (kind in ("csv", "jsonl"))
    assert main(["prepare", "csv", "--raw", str(file), *words]) == 2  # nothing is replaced unasked
    assert "shop.inter exists already" in capsys.readouterr().err


def test_the_core_is_a_core_and_can_be_left_out(tmp_path: Path) -> None:
    rows = [("u", "i", 1), ("u", "j", 2), ("v", "i", 3), ("w", "k", 4)]  # 2-core: w, k go, then j, then u, then all
    (tmp_path / "e.csv").write_text("who,what,when\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    names = Columns("who", "what", "when")
    assert prepare_events(tmp_path / "e.csv", names, tmp_path, core=0, progress=False).actions == 4
    with pytest.raises(UserError, match=r"Nothing is left .* 2-core"):
        prepare_events(tmp_path / "e.csv", names, tmp_path, "f", core=2, progress=False)


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["1969-12-31", "1970-01-02"], ["-86400", "86400"]),
        (["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:01.5Z"], ["0", "1.5"]),
        (["1700000000123", "1700000000123.25"], ["1700000000123", "1700000000123.25"]),
        ([0.1, 0.2], ["0.1", "0.2"]),
        (list(pd.to_datetime(["1970-01-01", "1970-01-03"])), ["0", "172800"]),
    ],
)
def test_times_are_numbers_or_dates(tmp_path: Path, texts: list, seconds: list[str]) -> None:
    table = pd.DataFrame({"who": "a", "what": [7.0, 8.0], "when": texts})
    file = prepare_frame(table, Columns("who", "what", "when"), tmp_path).inter_file
    assert file.read_text().splitlines()[1:] == [f"a\t7\t{seconds[0]}", f"a\t8\t{seconds[1]}"]


def test_malformed_lines_are_counted_with_their_numbers_or_end_the_work(tmp_path: Path) -> None:
    good = [f"u{u},i{i},{u * 10 + i}" for u in range(2) for i in range(2)]
    bad = ["u1,i1", ",i1,5", "u1,i1,soon", "u1,i1,2024-05-31", "u1,i1,inf", "u1,i1,"]
    raw = tmp_path / "e.csv"
    raw.write_text("\n".join(["who,what,when", *good[:2], *bad, "", *good[2:]]))
    names = Columns("who", "what", "when")
    report = prepare_events(raw, names, tmp_path, core=2, progress=False)
    assert (report.malformed, report.read, report.actions) == (6, 4, 4)
    assert [example.partition(":")[0] for example in report.malformed_examples] == [f"line {n}" for n in range(4, 9)]
    assert "numbers" in report.malformed_examples[3]  # a date among numbers would be sorted in silently
    with pytest.raises(UserError, match="line 4: 2 fields instead of 3"):
        prepare_events(raw, names, tmp_path / "new", on_malformed="fail", progress=False)
    (tmp_path / "e.jsonl").write_text(
        '{"who": 1, "what": 2, "when": 3}\n{"who": 1}\n[1]\n{"who": [], "what": 1, "when": 1}\nx\n'
    )
    report = prepare_events(tmp_path / "e.jsonl", names, tmp_path / "new", core=0, progress=False)
    assert (report.malformed, report.actions) == (4, 1)


def test_mistakes_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "e.csv").write_text("who,what,when\na,b,1\n")
    with pytest.raises(UserError, match=r"no column 'usr'\. It has: who, what, when"):
        prepare_events(tmp_path / "e.csv", Columns("usr", "what", "when"), tmp_path, progress=False)
    with pytest.raises(UserError, match="no known format"):
        prepare_events(tmp_path / "e.xlsx", NAMES, tmp_path)
    with pytest.raises(UserError, match="cannot be the name"):
        prepare_events(tmp_path / "e.csv", NAMES, tmp_path, name="a/b")
    with pytest.raises(UserError, match="line 2: empty user"):
        prepare_frame(
            pd.DataFrame({"who": ["a", None], "what": 1, "when": 1}), Columns("who", "what", "when"), tmp_path
        )
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    if "pyarrow" in sys.modules:
        with pytest.raises(UserError, match="cannot be read as Parquet"):
            prepare_events(tmp_path / "bad.parquet", NAMES, tmp_path, progress=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"recbole-denoiser\[parquet\]"):
        prepare_events(tmp_path / "bad.parquet", NAMES, tmp_path, progress=False)


def test_a_frame_is_trained_on_and_recommended_from(workplace: Path, settings: dict, toy: Path) -> None:
    """The same rows from a file and from a frame give the same fingerprint, run and lists."""
    table = pd.read_csv(toy / "toy" / "toy.inter", sep="\t").set_axis(["u", "i", "t"], axis=1)
    table.to_csv("shop.csv", index=False)
    prepare_events("shop.csv", Columns("u", "i", "t"), "data", core=0, progress=False)
    own = {key: value for key, value in settings.items() if key != "data_path"} | {"epochs": 1}
    from_file = pipeline.run(dataset="shop", flags={**own, "data_path": "data"})
    names: dict[str, Any] = {"user": "u", "item": "i", "time": "t"}
    from_frame = pipeline.run(flags=own, data=table, **names)
    assert from_frame["data"]["sha256"] == from_file["data"]["sha256"] != ""
    assert from_frame["epochs"][0]["losses"] == from_file["epochs"][0]["losses"]  # test negatives depend on the name
    again = prepare_frame(table, Columns("u", "i", "t"), Path(from_frame["config"]["result_dir"]) / "data")
    assert again.name == from_frame["dataset"]
    other = prepare_frame(table.iloc[1:], Columns("u", "i", "t"), workplace)
    assert other.name != again.name
    lists = Recommender.load(f"results/{from_frame['run']}").recommend(table, 3, **names).frame()
    assert lists.equals(Recommender.load(f"results/{from_file['run']}").recommend(table, 3, **names).frame())
    with pytest.raises(UserError, match="no column 'nope'"):
        Recommender.load(f"results/{from_frame['run']}").recommend(table, user="nope")
