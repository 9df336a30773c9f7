"""Raw files to atomic files: hand-counted toy files of every format, the filter rules, and what may go wrong."""

from __future__ import annotations

import gzip
import json
import urllib.parse
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_denoiser.data.prepare.actions import keep, safe_token
from recbole_denoiser.data.prepare.convert import prepare
from recbole_denoiser.data.prepare.statistics import agrees
from recbole_denoiser.errors import UserError

DAY = 86_400
# 5 users x 5 items, every pair once: 25 actions that every rule keeps. Times fall along the file, so that the
# result must be turned round. Two users of one action each and one rare item come on top and must go.
CORE = [(u, i, 100 - i) for u in range(5) for i in range(5)]


def rows_of(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]


def check_core(file: Path, user: str, item: str, time) -> None:
    """The file holds exactly the core, each user's actions in order of time."""
    rows = rows_of(file)
    assert rows[0] == ["user_id:token", "item_id:token", "timestamp:float"]
    expected = [[f"{user}{u}", f"{item}{i}", str(time(100 - i))] for u in range(5) for i in reversed(range(5))]
    assert rows[1:] == expected


def check_counts(report, raw_actions: int) -> None:
    assert (report.users, report.items, report.actions, report.read) == (5, 5, 25, raw_actions)
    assert report.train_actions == 15
    assert report.average == 5.0
    assert report.train_average == 3.0


@pytest.mark.parametrize("kind", ["file", "folder", "zip"])
def test_movielens(tmp_path: Path, kind: str) -> None:
    lines = [f"1{u}::2{i}::{1 + i % 5}::{t}" for u, i, t in CORE] + ["99::20::5::1", "10::77::5::1"]
    movies = [f"2{i}::Film {i}: Amélie (2001)::Comedy|Drama" for i in range(5)] + ["555::Unseen::Drama"]
    ratings_text, movies_text = "\n".join(lines) + "\n", "\n".join(movies) + "\n"
    if kind == "zip":
        raw = tmp_path / "ml-1m.zip"
        with zipfile.ZipFile(raw, "w") as archive:
            archive.writestr("ml-1m/ratings.dat", ratings_text)
            archive.writestr("ml-1m/movies.dat", movies_text.encode("latin-1"))
    else:
        (tmp_path / "ratings.dat").write_text(ratings_text)
        (tmp_path / "movies.dat").write_bytes(movies_text.encode("latin-1"))
        raw = tmp_path if kind == "folder" else tmp_path / "ratings.dat"
    report = prepare("ml-1m", raw, tmp_path / "out", progress=False)
    check_counts(report, 27)
    check_core(tmp_path / "out" / "ml-1m" / "ml-1m.inter", "1", "2", lambda t: t)
    items = rows_of(tmp_path / "out" / "ml-1m" / "ml-1m.item")
    assert items[0] == ["item_id:token", "movie_title:token_seq", "genre:token_seq"]
    assert items[1:] == [[f"2{i}", f"Film {i}: Amélie (2001)", "Comedy Drama"] for i in range(5)]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["ml-1m"]  # no partial folder left


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
@pytest.mark.parametrize("item_first", [False, True])
def test_amazon_ratings(tmp_path: Path, suffix: str, item_first: bool) -> None:
    pairs = [(f"A12345678901{u}", f"B00000000{i}", t) for u, i, t in CORE] + [("A999999999999", "B000000000", 1)]
    lines = [f"{i},{u},5.0,{t}" if item_first else f"{u},{i},5.0,{t}" for u, i, t in pairs]
    raw = tmp_path / f"ratings_Beauty.{suffix}"
    opener = gzip.open if suffix.endswith("gz") else open
    with opener(raw, "wt") as file:
        file.write("\n".join(lines))
    (tmp_path / "meta_Beauty.json").write_text("{'asin': 'B000000003', 'title': 'A \"good\"\\tsoap'}\nnot a record\n")
    report = prepare("amazon-beauty", raw, tmp_path, progress=False)
    check_counts(report, 26)
    check_core(tmp_path / "amazon-beauty" / "amazon-beauty.inter", "A12345678901", "B00000000", lambda t: t)
    items = rows_of(tmp_path / "amazon-beauty" / "amazon-beauty.item")
    assert items[0] == ["item_id:token", "title:token"]
    assert items[4] == ["B000000003", "A 'good' soap"]
    assert report.titles == 1


@pytest.mark.parametrize("name", ["amazon-games", "amazon-movies-tv"])
@pytest.mark.parametrize("literal", [False, True])
def test_amazon_reviews(tmp_path: Path, name: str, literal: bool) -> None:
    records = [{"reviewerID": f"A{u}", "asin": f"B{i}", "reviewText": "it's", "unixReviewTime": t} for u, i, t in CORE]
    raw = tmp_path / "reviews.json.gz"
    with gzip.open(raw, "wt") as file:
        file.writelines((repr(record) if literal else json.dumps(record)) + "\n" for record in records)
    report = prepare(name, raw, tmp_path, progress=False)
    check_counts(report, 25)
    check_core(tmp_path / name / f"{name}.inter", "A", "B", lambda t: t)
    assert report.item_file is None
    assert not (tmp_path / name / f"{name}.item").exists()


def test_steam(tmp_path: Path) -> None:
    def day(t: int) -> str:
        return f"2017-{1 + (t - 90) // 28:02d}-{1 + (t - 90) % 28:02d}"

    lines = [f"{{u'username': u'name{u}', u'product_id': u'g{i}', u'date': u'{day(t)}'}}" for u, i, t in CORE]
    raw = tmp_path / "steam_reviews.json.gz"
    with gzip.open(raw, "wt") as file:
        file.write("\n".join(lines))
    (tmp_path / "steam_games.json").write_text("{u'id': u'g1', u'app_name': u'Portal'}\n")
    report = prepare("steam", raw, tmp_path, progress=False)
    check_counts(report, 25)
    first = 1_483_228_800  # 2017-01-01 00:00 UTC
    check_core(tmp_path / "steam" / "steam.inter", "name", "g", lambda t: first + (t - 90) * DAY)
    assert rows_of(tmp_path / "steam" / "steam.item")[2] == ["g1", "Portal"]  # items in order of first sight


def test_rules_on_a_hand_made_case() -> None:
    # users 0..3 rate items 0..3; user 4 has five actions, four of them on items of its own, and item 4 is rated by
    # five users of whom one (5) is rare, so that the three rules differ
    pairs = [(u, i) for u in range(4) for i in range(4)]  # items 0..3 have 4 actions, users 0..3 have 4
    pairs += [(u, 4) for u in range(4)] + [(5, 4)]  # users 0..3 now have 5; item 4 has 5, one by user 5
    pairs += [(4, i) for i in range(4)] + [(4, 9)]  # user 4 has 5; items 0..3 now have 5; item 9 has 1
    user, item = np.array(pairs).T

    def kept(rule: str) -> set[tuple[int, int]]:
        return {pair for pair, k in zip(pairs, keep(user, item, rule), strict=True) if k}

    active = {(u, i) for u in range(5) for i in range(4)}
    # raw counts: users 0..4 and items 0..4 have 5 actions each; user 5 and item 9 go
    assert kept("sasrec") == active | {(u, 4) for u in range(4)}
    # without user 5, item 4 has 4 actions
    assert kept("users-then-items") == active
    # then users 0..3 have 4 actions, and so on until nothing is left
    assert kept("5-core") == set()


def test_5_core_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    user, item = rng.integers(0, 40, 260), rng.zipf(1.5, 260) % 30
    frame = pd.DataFrame({"u": user, "i": item})
    while True:
        before = len(frame)
        frame = frame[frame.groupby("u")["u"].transform("size") >= 5]
        frame = frame[frame.groupby("i")["i"].transform("size") >= 5]
        if len(frame) == before:
            break
    assert 0 < len(frame) < 260
    assert np.flatnonzero(keep(user, item, "5-core")).tolist() == frame.index.tolist()


def test_ties_keep_file_order_and_repeats_count(tmp_path: Path) -> None:
    lines = [f"A{u},B{i},1,7" for u in range(5) for i in (3, 1, 4, 1, 5)]  # all at second 7, item 1 twice
    raw = tmp_path / "ratings.csv"
    raw.write_text("\n".join(lines))
    report = prepare("amazon-games", raw, tmp_path, progress=False)
    assert (report.users, report.items, report.actions) == (5, 4, 25)
    items = [row[1] for row in rows_of(tmp_path / "amazon-games" / "amazon-games.inter")[1:6]]
    assert items == ["B3", "B1", "B4", "B1", "B5"]


def test_short_histories_stay_whole_in_the_train_count(tmp_path: Path) -> None:
    # user 5 has 5 actions, of which two are on items that stay: 2 train actions, not 0
    lines = [f"A{u},B{i},1,{t}" for u, i, t in CORE]
    lines += [f"A5,{item},1,1" for item in ("B0", "B1", "X1", "X2", "X3")]
    raw = tmp_path / "ratings.csv"
    raw.write_text("\n".join(lines))
    report = prepare("amazon-games", raw, tmp_path, progress=False)
    assert (report.users, report.actions, report.train_actions) == (6, 27, 17)


def test_malformed_lines_are_counted_or_fatal(tmp_path: Path) -> None:
    good = [f"A{u},B{i},1,{t}" for u, i, t in CORE]
    raw = tmp_path / "ratings.csv"
    raw.write_text("\n".join(["user,item,rating,timestamp", *good, "", "A1,B1,5", ",B1,5,3"]))
    report = prepare("amazon-games", raw, tmp_path / "out", progress=False)
    assert report.malformed == 3
    assert [example.split(":")[0] for example in report.malformed_examples] == ["line 1", "line 28", "line 29"]
    assert "3 malformed lines were skipped" in str(report)
    with pytest.raises(UserError, match=r"line 1: .*on_malformed='skip'"):
        prepare("amazon-games", raw, tmp_path / "other", on_malformed="fail", progress=False)
    assert not (tmp_path / "other").exists()


def test_errors_for_people(tmp_path: Path) -> None:
    raw = tmp_path / "ratings.csv"
    raw.write_text("A1,B1,5,3\n")
    with pytest.raises(UserError, match=r"no data set 'ml-2m'.*ml-1m.*steam"):
        prepare("ml-2m", raw, tmp_path)
    with pytest.raises(UserError, match="no filter rule"):
        prepare("steam", raw, tmp_path, rule="10-core")
    with pytest.raises(UserError, match="Allowed: skip, fail"):
        prepare("steam", raw, tmp_path, on_malformed="ignore")
    with pytest.raises(UserError, match="no raw file"):
        prepare("steam", tmp_path / "none.json", tmp_path)
    with pytest.raises(UserError, match="is a folder"):
        prepare("steam", tmp_path, tmp_path)
    with pytest.raises(UserError, match="Nothing is left"):
        prepare("amazon-games", raw, tmp_path, progress=False)
    with pytest.raises(UserError, match=r"no action that can be read \(1 malformed lines\).\n  line 1"):
        prepare("steam", raw, tmp_path, progress=False)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    with pytest.raises(UserError, match=r"holds no ratings\.dat"):
        prepare("ml-1m", tmp_path / "x.zip", tmp_path, progress=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ratings.csv", "x.zip"]  # nothing half-written


def test_half_a_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(f"A{u},B{i},1,{t}" for u, i, t in CORE).encode())
    raw = tmp_path / "ratings.csv.gz"
    raw.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be read"):
        prepare("amazon-games", raw, tmp_path, progress=False)


def test_overwriting_is_asked_for_and_drops_old_titles(tmp_path: Path) -> None:
    raw = tmp_path / "ratings_G.csv"
    raw.write_text("\n".join(f"A{u},B{i},1,{t}" for u, i, t in CORE))
    meta = tmp_path / "meta_G.json"
    meta.write_text('{"asin": "B1", "title": "T"}')
    folder = tmp_path / "amazon-games"
    folder.mkdir()
    (folder / "note.txt").write_text("mine")  # a folder that exists already is no obstacle
    assert prepare("amazon-games", raw, tmp_path, progress=False).item_file == folder / "amazon-games.item"
    with pytest.raises(UserError, match="exists already"):
        prepare("amazon-games", raw, tmp_path, progress=False)
    meta.unlink()
    prepare("amazon-games", raw, tmp_path, progress=False, overwrite=True)
    assert sorted(p.name for p in folder.iterdir()) == ["amazon-games.inter", "note.txt"]


def test_report_beside_table_1(tmp_path: Path) -> None:
    raw = tmp_path / "ratings.csv"
    raw.write_text("\n".join(f"A{u},B{i},1,{t}" for u, i, t in CORE))
    text = str(prepare("amazon-games", raw, tmp_path, progress=False))
    assert "30,935" in text
    assert "users 5 instead of 30,935 (-100.0%)" in text
    # Table 1 rounds 163.4985 to 163.5 and cuts 0.987531 to 0.987
    assert agrees(163.4985, "163.5")
    assert agrees(0.987531, "0.987")
    assert not agrees(0.9881, "0.987")
    assert not agrees(6.475, "6.46")


NASTY = ["null", "NA", 'say "hi"', '"open', "tab\there", " lead", "100%", "%22", "plain", "two words", "[PAD]", "émile"]


def test_nasty_names_come_back_from_recboles_reader(tmp_path: Path) -> None:
    assert len({safe_token(name) for name in NASTY}) == len(NASTY)
    assert [urllib.parse.unquote(safe_token(name)) for name in NASTY] == NASTY
    assert safe_token("two words") == "two words"
    assert safe_token("émile") == "émile"
    raw = tmp_path / "steam.json"
    records = [
        {"username": n, "product_id": f"g{i}", "date": "2015-03-0" + str(1 + i)} for n in NASTY for i in range(5)
    ]
    raw.write_text("\n".join(json.dumps(record) for record in records))
    prepare("steam", raw, tmp_path, progress=False)
    frame = pd.read_csv(tmp_path / "steam" / "steam.inter", delimiter="\t", dtype=str, engine="python")
    assert not frame.isna().any().any()
    names = [urllib.parse.unquote(token) for token in frame["user_id:token"]]
    assert names == [name for name in NASTY for _ in range(5)]
