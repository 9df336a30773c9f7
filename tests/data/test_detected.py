"""The detector on atomic files: labels, noise.csv, clean copies, and the commands detect and clean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_data import write_inter

from recbole_denoiser.cli.main import main
from recbole_denoiser.data.detected import Detected, read_labels, write_clean
from recbole_denoiser.data.interactions import read_interactions
from recbole_denoiser.data.items import item_texts, read_titles
from recbole_denoiser.detect import quality
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def test_rows_are_in_time_order_and_know_their_line(tmp_path: Path) -> None:
    write_inter(tmp_path, "few", [("b", "x", 5), ("a", "y", 9), ("b", "z", 2), ("b", "w", 5)])
    data = read_interactions(Config(dataset="few", flags={"data_path": str(tmp_path)}))
    assert data.users[data.user].tolist() == ["a", "b", "b", "b"]
    assert data.items[data.item].tolist() == ["y", "z", "x", "w"]  # equal times keep the order of the file
    assert data.row.tolist() == [1, 2, 0, 3]
    assert data.time is not None and data.time.tolist() == [9, 2, 5, 5]


def test_labels_reach_their_interactions(found: Detected, aisles: tuple[Path, Path]) -> None:
    """Against a join by hand, whatever the order of both files."""
    table = pd.read_csv(aisles[1])
    known = {(row.user, row.item, row.time): row.label for row in table.itertuples()}
    data = found.data
    assert data.time is not None and found.labels is not None
    expected = [known[u, i, t] for u, i, t in zip(data.users[data.user], data.items[data.item], data.time, strict=True)]
    assert found.labels.tolist() == expected
    quality_by_hand = quality(found.report.posterior, np.array(expected))
    known_quality = found.known_quality()
    assert known_quality is not None
    assert known_quality["auc"] == quality_by_hand["auc"] > 0.9
    gone = found.report.remove
    assert known_quality["precision"] == np.array(expected)[gone].mean()
    assert known_quality["recall"] == gone[np.array(expected) == 1].mean()


@pytest.mark.parametrize(
    ("name", "header", "separator"),
    [
        ("l.csv", "user,item,time,label", ","),
        ("l.tsv", "label\tuser_id:token\titem_id:token\ttimestamp:float", "\t"),
        ("l.txt", "\ufeffItem_ID;User_ID;Timestamp;Noise;comment", ";"),
    ],
)
def test_a_strangers_labels(tmp_path: Path, name: str, header: str, separator: str) -> None:
    """Any separator, RecBole's headers, shuffled rows, the same event twice, one row without a label."""
    rows = [("07", "x", 1), ("07", "y", 2), ("07", "y", 2), ("07", "x", 3), ("b", "z", 3)]
    write_inter(tmp_path, "few", rows)
    data = read_interactions(Config(dataset="few", flags={"data_path": str(tmp_path)}))
    cells = {"user": ["07", "07", "b", "07"], "item": ["x", "y", "z", "y"], "time": ["3", "2", "3.0", "2"]}
    cells |= {"label": ["1", "0", "True", "1"], "comment": ["", "a", "b", ""]}
    order = [key.strip("\ufeff").lower().partition(":")[0] for key in header.split(separator)]
    meaning = {"user_id": "user", "item_id": "item", "timestamp": "time", "noise": "label"}
    lines_of = [separator.join(row) for row in zip(*(cells[meaning.get(key, key)] for key in order), strict=True)]
    (tmp_path / name).write_text("\n".join([header, *lines_of]) + "\n", encoding="utf-8")
    assert read_labels(tmp_path / name, data).tolist() == [-1, 0, 1, 1, 1]


def test_wrong_labels_are_told(found: Detected, tmp_path: Path) -> None:
    for text, message in (
        ("user,item\nu1,i1\n", "no column label"),
        ("user,item,time,label\nu1,i1,0,1\n", "line 2: .* has no such interaction of user u1 with item i1"),
        ("user,item,label\nu1,i1,maybe\n", "line 2: label 'maybe'"),
        ("user,item,noise,label\nu1,i1,1,1\n", "two columns that mean label"),
        ("", "cannot be read"),
    ):
        (tmp_path / "labels.csv").write_text(text)
        with pytest.raises(UserError, match=message):
            read_labels(tmp_path / "labels.csv", found.data)
    with pytest.raises(UserError, match="do not exist"):
        read_labels(tmp_path / "none.csv", found.data)


def test_a_damaged_record_of_noise_is_told(tmp_path: Path) -> None:
    write_inter(tmp_path, "few", [("a", "x", 1), ("a", "y", 2), ("b", "z", 3)])
    data = read_interactions(Config(dataset="few", flags={"data_path": str(tmp_path)}))
    file = tmp_path / "noise.npz"
    right = {"user": np.array(["a", "b"]), "position": np.array([1, 0]), "item": np.array(["y", "z"])}
    np.savez(file, **right)  # type: ignore[arg-type]
    assert read_labels(file, data).tolist() == [0, 1, 1]
    whole = file.read_bytes()
    for cut in (whole[:40], whole[:-40], b"", whole[:140] + b"????????" + whole[148:]):
        file.write_bytes(cut)
        with pytest.raises(UserError, match=r"noise\.npz cannot be read"):
            read_labels(file, data)
    for wrong, words in (
        ({"position": np.array(["1", "0"])}, "no record of noise"),
        ({"position": np.array([1, 0, 0])}, "no record of noise"),
        ({"user": np.array(["a", "c"])}, "no user 'c'"),
        ({"position": np.array([-1, 0])}, "other data"),
        ({"position": np.array([7, 0])}, "other data"),
    ):
        np.savez(file, **{**right, **wrong})  # type: ignore[arg-type]
        with pytest.raises(UserError, match=words):
            read_labels(file, data)


def test_the_bound_is_what_removal_used(found: Detected) -> None:
    """posterior * bound > threshold, but for the two items that every user keeps."""
    above = found.report.posterior * found.bound > found.report.settings["threshold"]
    assert found.report.remove.sum() > 100
    assert not (found.report.remove & ~above).any()
    kept = above & ~found.report.remove
    for user in np.unique(found.data.user[kept]):
        assert (~found.report.remove[found.data.user == user]).sum() == 2


def test_titles_and_texts(aisles: tuple[Path, Path]) -> None:
    config = Config(dataset="aisles", flags={"data_path": str(aisles[0])})
    assert read_titles(config)["i7"] == '<b>Item "7" & more'
    assert item_texts(config)["i13"] == '<b>Item "13" & more aisle0 shelf1'
    assert item_texts(Config(dataset="ml-100k"))["1"] == "Toy Story 1995 Animation Children's Comedy"


def test_a_clean_copy_lacks_exactly_what_is_removed(found: Detected, tmp_path: Path) -> None:
    copy = write_clean(found, tmp_path / "less", keep_last=0)
    before, after = lines(found.data.file), lines(tmp_path / "less" / "less.inter")
    gone = np.zeros(len(found.data), bool)
    gone[found.data.row] = found.report.remove
    assert after == [before[0], *(line for line, out in zip(before[1:], gone, strict=True) if not out)]
    removed = pd.read_csv(tmp_path / "less" / "less.removed.csv")
    assert len(removed) == copy.removed == gone.sum()
    assert removed["posterior"].min() > 0.5
    assert set(removed["user"] + " " + removed["item"]) <= {" ".join(line.split("\t")[1:3]) for line in before[1:]}
    assert lines(tmp_path / "less" / "less.item") == lines(found.data.file.with_name("aisles.item"))
    with pytest.raises(UserError, match="exists already"):
        write_clean(found, tmp_path / "less")


def test_the_newest_can_stay(found: Detected, tmp_path: Path) -> None:
    write_clean(found, tmp_path / "most", keep_last=2)
    data = read_interactions(Config(dataset="most", flags={"data_path": str(tmp_path)}))
    for user in range(len(found.data.users)):
        mine = found.data.items[found.data.item[found.data.user == user]]
        left = data.items[data.item[data.users[data.user] == found.data.users[user]]]
        assert left[-2:].tolist() == mine[-2:].tolist()


def test_commands(workplace: Path, aisles: tuple[Path, Path], capsys: pytest.CaptureFixture) -> None:
    place = f"--data_path={aisles[0]}"
    assert main(["detect", "-d", "aisles", place, "--labels", str(aisles[1])]) == 0
    out = capsys.readouterr().out
    assert "estimated share of noise" in out and "against 9,600 labels" in out and "AUC 0.9" in out
    assert "have no label" not in out
    pd.read_csv(aisles[1]).head(9_000).to_csv("some.tsv", sep="\t", index=False)
    assert main(["detect", "-d", "aisles", place, "--labels", "some.tsv"]) == 0
    out = capsys.readouterr().out
    assert "against 9,000 labels" in out and "600 of 9,600 interactions have no label" in out
    table = pd.read_csv("results/detect-aisles/noise.csv")
    assert table.columns[:6].tolist() == ["user", "item", "time", "posterior", "remove", "label"]
    assert "lift" in table.columns
    first = lines(aisles[0] / "aisles" / "aisles.inter")[1].split("\t")
    assert [table["user"][0], table["item"][0]] == first[1:3]  # the order of the file
    assert Path("results/detect-aisles/noise.html").is_file()
    assert main(["clean", "-d", "aisles", place, "--out", "copies/aisles2"]) == 0
    out = capsys.readouterr().out
    assert f"{table['remove'].sum():,} of 9,600 interactions removed" in out
    assert len(lines(Path("copies/aisles2/aisles2.inter"))) == 9601 - table["remove"].sum()
    assert main(["clean", "-d", "aisles", place, "--out", "copies/aisles2"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["detect", "-d", "nowhere", place]) == 2
    assert "nowhere.inter" in capsys.readouterr().err
