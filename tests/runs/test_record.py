"""The one reader of result.json: whatever is wrong with the file is one line, for every field of its own table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.record import FIELDS, load_run, read_result

PUBLISHED = sorted(Path(__file__).parents[2].glob("published/*/*/result.json"))
GOOD: dict[str, Any] = {
    "run": "r", "label": "SASRec", "model": "SASRec", "dataset": "toy", "seed": 1, "test": {"hit@10": 0.5},
    "valid": None, "config": {"model": "SASRec", "dataset": "toy", "data_path": "dataset/toy"}, "data": {},
    "versions": {}, "best_epoch": 0, "ranks": "ranks.npz", "seconds": 1.5, "kept": [0.5], "checkpoint": "saved/r.pth",
    "valid_by_mode": None, "test_by_mode": {"full": {"hit@10": 0.25}},
    "noise": {"action": "remove", "share": 0.2, "interval": [0.1, 0.3], "verdict": "judged"},
    "epochs": [{"epoch": 0, "losses": {"rec": 1.0}, "valid": {"hit@10": 0.1}, "kept": None}],
}  # fmt: skip
WRONG: list[Any] = [True, -1.5, 10**400, float("nan"), "../x", "", [], [[]], [1, "a"], [{}], {}, {"a": "b"},
                    {"a": float("inf")}, {"model": 1}, {"share": 0.5}, [{"epoch": 0, "losses": {"rec": None}}]]  # fmt: skip


def written(folder: Path, content: Any) -> Path:
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_the_good_file_is_good_and_names_every_field(tmp_path: Path) -> None:
    assert set(GOOD) == set(FIELDS)
    run = load_run(written(tmp_path, GOOD))
    assert (run.valid, run.kept, run.checkpoint) == ({}, [0.5], "saved/r.pth")
    assert read_result(tmp_path, "seconds") == {"seconds": 1.5}
    shortest = {name: value for name, value in GOOD.items() if FIELDS[name].required}
    assert set(read_result(written(tmp_path, shortest))) == set(FIELDS)  # readers need not ask what is there


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_or_mistyped_field_is_named(tmp_path: Path, name: str) -> None:
    without = {key: value for key, value in GOOD.items() if key != name}
    if FIELDS[name].required:
        with pytest.raises(UserError, match=rf"result\.json lacks {name}\."):
            load_run(written(tmp_path, without))
    else:
        load_run(written(tmp_path, without))
    refused = 0
    for value in [*WRONG, None]:
        try:
            load_run(written(tmp_path, {**GOOD, name: value}))
        except UserError as error:
            refused += 1
            assert f"{name} is " in str(error) and "\n" not in str(error) and len(str(error)) < 400
    assert refused >= 5


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "1", "[" * 100_000, '{"run":' * 5000 + "1" + "}" * 5000, "1" * 5000, "\x00"],
    ids=["empty", "cut", "list", "number", "deep list", "deep object", "long number", "nul"],
)
def test_damaged_json_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(UserError, match=r"result\.json") as caught:
        read_result(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "result.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserError, match=r"cannot be read"):
        read_result(tmp_path)


def test_every_published_run_passes() -> None:
    assert len(PUBLISHED) > 30
    for file in PUBLISHED:
        assert load_run(file.parent).test
