"""Broken and hostile input: a run with finite metrics, or one message for a person; never anything else."""

from __future__ import annotations

import math
import os
import pickle
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_data import toy_rows, write_inter

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.recbole_schema import RECBOLE_KEYS
from recbole_denoiser.integration.schema import PACKAGE_KEYS
from recbole_denoiser.integration.values import parse_value
from recbole_denoiser.model.time_attention import time_intervals
from recbole_denoiser.runs import pipeline

HEADER = ["user_id:token", "item_id:token", "timestamp:float"]
SMALL = {
    "MAX_ITEM_LIST_LENGTH": 5,
    "epochs": 1,
    "show_progress": False,
    "state": "ERROR",
    "hidden_size": 4,
    "inner_size": 4,
    "n_layers": 1,
    "n_heads": 1,
    "eval_args.mode": "uni2",
    "topk": [2, 4],
    "valid_metric": "NDCG@4",
}
MORE = int(os.environ.get("HOSTILE_INPUT", "1"))  # make soak tries this many times as much, and new ones each time
QUICK = settings(
    max_examples=40 * MORE,
    deadline=None,
    derandomize=MORE == 1,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def outcome(content: bytes, flags: dict[str, Any] | None = None, model: str = "SASRecDenoiser") -> str:
    """'run' or the message of the error, for an .inter file of this content; anything else is a test failure."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            Path("toy").mkdir()
            Path("toy/toy.inter").write_bytes(content)
            result = pipeline.run(model, "toy", flags={**SMALL, "data_path": ".", **(flags or {})})
        except UserError as error:
            return str(error)
        finally:
            os.chdir(before)
    for part in ("valid", "test"):
        if result[part] is not None:
            assert all(math.isfinite(value) and value >= 0 for value in result[part].values()), result[part]
    assert all(math.isfinite(value) for record in result["epochs"] for value in record["losses"].values())
    return "run"


def table() -> list[list[str]]:
    return [
        HEADER,
        *([f"u{user}", f"i{(user + step) % 9}", str(100 * user + step)] for user in range(4) for step in range(5)),
    ]


def as_bytes(rows: list[list[str]], separator: str = "\t", end: str = "\n", encoding: str = "utf-8") -> bytes:
    return "".join(separator.join(row) + end for row in rows).encode(encoding)


CELLS = ["", " ", "abc", "nan", "inf", "-inf", "1e400", "-1e308", "9" * 400, '"', '"open', 'a"b', "\x00", "é", "[PAD]",
         "NA", "None", "0x10", "1,5", "#", "'", "\\", "x" * 5000, "\u202e", "-1", "1e-320"]  # fmt: skip


@st.composite
def damaged(draw: Callable[..., Any]) -> bytes:
    """A small valid table with one to three things wrong in it."""
    rows = [list(row) for row in table()]
    separator, end, encoding = "\t", "\n", "utf-8"
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["cell", "column", "header", "row", "rows", "text"]))
        row = draw(st.integers(0, max(len(rows) - 1, 0)))
        if kind == "cell" and rows and rows[row]:
            rows[row][draw(st.integers(0, len(rows[row]) - 1))] = draw(st.sampled_from(CELLS))
        elif kind == "column":
            column = draw(st.integers(0, 2))
            rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        elif kind == "header" and rows:
            rows[0] = draw(
                st.sampled_from([[], [*HEADER[:2], "timestamp:token"], HEADER[:1] * 3, [*HEADER, "rating:float"],
                                 ["user_id", "item_id", "timestamp"], ["user_id:token_seq", *HEADER[1:]],
                                 ["user_id:float", *HEADER[1:]], [*HEADER[:1], "item_id:float_seq", HEADER[2]]])
            )  # fmt: skip
        elif kind == "row" and rows:
            rows.insert(row, draw(st.sampled_from([rows[row], [], ["u1"], [*rows[row], "more"], ["", "", ""]])))
        elif kind == "rows":
            keep = draw(st.sampled_from(["none", "one user", "one item", "twice", "first of each user"]))
            body = rows[1:]
            chosen = {
                "none": [],
                "one user": body[:5],
                "one item": [[*cells[:1], "i", *cells[2:]] for cells in body],
                "twice": body + body,
                "first of each user": body[::5],
            }
            rows = rows[:1] + chosen[keep]
        elif kind == "text":
            separator = draw(st.sampled_from(["\t", ",", " "]))
            end = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
            encoding = draw(st.sampled_from(["utf-8", "utf-16", "utf-8-sig", "utf-32"]))
    content = as_bytes(rows, separator, end, encoding)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=3)) + content[at:]
    return content


@QUICK
@given(content=damaged(), mode=st.sampled_from(["uni2", "full"]), loss=st.sampled_from(["BCE", "CE"]))
def test_damaged_tables(content: bytes, mode: str, loss: str) -> None:
    said = outcome(content, {"eval_args.mode": mode, "loss_type": loss})
    assert said == "run" or "\n" not in said


@QUICK
@given(content=st.binary(max_size=300))
def test_arbitrary_bytes(content: bytes) -> None:
    assert "toy.inter" in outcome(content)


def changed(row: int, column: int, cell: str) -> bytes:
    rows = [list(cells) for cells in table()]
    rows[row][column] = cell
    return as_bytes(rows)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "toy.inter, line 1: the file is empty"),
        (as_bytes(table()[:1]), "toy.inter has a header but no rows"),
        (as_bytes(table()[:4]), "topk = [2, 4], but data set 'toy' has only 3 item(s)"),
        (as_bytes(table()[:2]), "no user has two interactions"),
        (as_bytes([row[:2] for row in table()]), "no column 'timestamp'"),
        (as_bytes([row[1:] for row in table()]), "user_id"),
        (as_bytes([["other:float"], ["1"], ["2"]]), "No column of ./toy/toy.inter is loaded: it has other:float."),
        (changed(7, 2, "abc"), "toy.inter, line 8: 'abc' in column timestamp:float is not a number"),
        (changed(7, 2, "inf"), "line 8"),
        (changed(7, 2, "nan"), "line 8"),
        (changed(7, 2, "1e400"), "line 8"),
        (changed(7, 2, ""), "line 8"),
        (as_bytes([*table(), ["a", "b", "1", "more"]]), "line 22: 4 columns, but the header has 3"),
        (as_bytes(table()).replace(b"u1\t", b"u\xff\t"), "not valid utf-8"),
        (as_bytes(table(), encoding="utf-8-sig"), "encoding: utf-8-sig"),
        (as_bytes(table(), encoding="utf-16"), "not valid utf-8"),
        (as_bytes(table(), separator=","), "field_separator"),
        (changed(7, 2, "1\x002"), "toy.inter, line 8: a NUL character"),
        (changed(9, 1, "i\x00"), "toy.inter, line 10: a NUL character"),
        (b"x" * (3 << 20), "longer than a megabyte"),
        (as_bytes(table()) + b"u" * (3 << 20) + b"\ti1\t5\n", "longer than a megabyte"),
        (as_bytes([["user_id:token_seq", *HEADER[1:]], *table()[1:]]), "user_id"),
        (as_bytes([[row[0], "i", *row[2:]] if number else row for number, row in enumerate(table())]), "negative"),
    ],
)
def test_each_fault_is_named(content: bytes, words: str) -> None:
    assert words in outcome(content)


@pytest.mark.parametrize(
    "content",
    [
        as_bytes(table(), end="\r\n"),
        as_bytes([*table(), *table()[1:]]),
        as_bytes(table()).rstrip(b"\n"),
        changed(7, 0, "9" * 400),
        changed(7, 1, "é'\\"),
        changed(7, 2, "-1e300"),
    ],
    ids=["CRLF", "every row twice", "no last line end", "huge id", "odd characters", "far past"],
)
def test_harmless_oddities_run(content: bytes) -> None:
    assert outcome(content) == "run"


def test_times_that_overflow_are_far_apart() -> None:
    rows = [list(cells) for cells in table()]
    for number, time in enumerate(["-9e307", "-1", "9e307", "9e307", "1.7e308"], start=1):
        rows[number][2] = time
    assert outcome(as_bytes(rows), model="TiSASRec") == "run"
    times = torch.tensor([[-1.7e308, 0.0, 1e-300, 1.7e308, 1.7e308]], dtype=torch.float64)
    valid = torch.ones(1, 5, dtype=torch.bool)
    far = time_intervals(times, valid, span=9)[0]
    assert far.tolist() == [[0, 9, 9, 9, 9], [9, 0, 1, 9, 9], [9, 1, 0, 9, 9], [9, 9, 9, 0, 0], [9, 9, 9, 0, 0]]


@pytest.mark.parametrize(("model", "words"), [("S3Rec", "class"), ("FDSA", "class"), ("KSR", "toy.ent")])
def test_a_model_that_needs_other_columns_says_so(model: str, words: str) -> None:
    said = outcome(as_bytes(table()), {"loss_type": "CE"}, model)
    assert model in said and words in said and "\n" not in said


# ---- settings ----

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(-2, 2), max_size=2),
)
LAUNCH = {"nproc", "world_size", "ip", "port", "offset", "group_offset"}  # would look for other processes
KEYS = sorted({*RECBOLE_KEYS, *PACKAGE_KEYS, "eval_args.mode", "eval_args.split", "eval_args.order"} - LAUNCH)


@settings(QUICK, max_examples=80 * MORE)
@given(key=st.sampled_from(KEYS), value=JUNK)
def test_any_value_of_any_key_gives_a_configuration_or_a_message(key: str, value: Any) -> None:
    try:
        Config(dataset="toy", flags={key: value})
    except UserError as error:
        assert str(error)


@QUICK
@given(text=st.text(max_size=30))
def test_any_text_after_an_equals_sign_is_data(text: str) -> None:
    todo = [parse_value(text)]
    while todo:
        value = todo.pop()
        assert isinstance(value, (str, int, float, bytes, date, list, tuple, set, dict, type(None)))
        todo += (
            [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
        )


# ---- files that would run code ----


class Bomb:
    """Unpickling this makes a folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("exploded",))


def test_the_bomb_explodes(workplace: Path) -> None:
    """The positive control of the tests below."""
    pickle.loads(pickle.dumps(Bomb()))
    assert Path("exploded").is_dir()


def test_yaml_cannot_run_code(workplace: Path) -> None:
    Path("evil.yaml").write_text("epochs: !!python/object/apply:os.mkdir [exploded]\n")
    with pytest.raises(UserError, match=r"evil\.yaml', line 1"):
        Config(dataset="toy", config_files=["evil.yaml"])
    for value in ("__import__('os').mkdir('exploded')", "!!python/object/apply:os.mkdir [exploded]"):
        with pytest.raises(UserError, match="epochs"):
            Config(dataset="toy", flags={"epochs": parse_value(value)})
    assert not Path("exploded").exists()


def test_cached_data_sets_and_loaders_are_never_read(workplace: Path) -> None:
    """RecBole would unpickle these files; this package's pipeline builds the data anew."""
    write_inter(Path(), "toy", toy_rows())
    Path("saved").mkdir()
    evil = pickle.dumps(Bomb())
    for name in ("toy-SequenceDataset.pth", "toy-SequentialDataset.pth", "toy-for-SASRecDenoiser-dataloader.pth"):
        Path("saved", name).write_bytes(evil)
    places = {"dataset_save_path": "saved/toy-SequenceDataset.pth",
              "dataloaders_save_path": "saved/toy-for-SASRecDenoiser-dataloader.pth"}  # fmt: skip
    pipeline.run(dataset="toy", flags={**SMALL, **places, "data_path": ".", "save_dataset": True})
    assert not Path("exploded").exists()


def test_a_crafted_checkpoint_is_not_resumed(workplace: Path) -> None:
    write_inter(Path(), "toy", toy_rows())
    Path("saved").mkdir()
    torch.save({"state_dict": Bomb(), "config": {}}, "saved/run.last.pth")
    with pytest.raises(UserError, match="can run code"):
        pipeline.run(dataset="toy", flags={**SMALL, "data_path": ".", "run_name": "run", "resume": True})
    assert not Path("exploded").exists()
