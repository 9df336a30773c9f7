"""Settings as people type them, through the whole command: it ends well or with one line, never with a stack trace.

What is typed comes from the schema, so a new setting is covered when it is added. ``make test`` types a part of it that
is the same every time, ``HOSTILE_INPUT=12`` (make soak) all of it for one model and more for the others.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from recbole_denoiser.cli.main import main
from recbole_denoiser.integration.key import Key
from recbole_denoiser.integration.recbole_schema import RECBOLE_KEYS
from recbole_denoiser.integration.schema import PACKAGE_KEYS

KEYS = {**RECBOLE_KEYS, **PACKAGE_KEYS}
ELSEWHERE = {
    "nproc", "world_size", "ip", "port", "offset", "group_offset",  # would wait for other processes
    "data_path", "result_dir", "checkpoint_dir", "run_name", "epochs", "state", "show_progress",  # set by this test
}  # fmt: skip
WHOLE = int(os.environ.get("HOSTILE_INPUT", "1")) > 1
PART = 15  # settings of each model in make test


def typed(key: Key) -> list[Any]:
    """What may be typed for a key, right at its lower bounds, and what may not."""
    values: list[Any] = [*(key.choices or ()), None, True, False, 0, -1, 0.5, 10**30, "foo", [], ["foo"], {"foo": 1}]
    if key.is_number:
        low = key.at_least if key.at_least is not None else key.above
        values += [low, low + 1, 1e-9]  # type: ignore[operator]
    return values


def cases(model: str) -> list[tuple[str, str]]:
    """Settings and what is typed for them: lists and mappings of what does not exist, and a part of all others."""
    names = sorted(KEYS.keys() - ELSEWHERE)
    if WHOLE and model == "SASRecDenoiser":
        return [(name, json.dumps(value)) for name in names for value in typed(KEYS[name])]
    draw = random.Random(model)
    inside = [name for name in names if {list, dict} & set(KEYS[name].types)] if model == "SASRecDenoiser" else []
    found = [(name, value) for name in inside for value in (["foo"], {"foo": 1})]
    found += [
        (name, value)
        for name in draw.sample(names, 5 * PART if WHOLE else PART)
        for value in draw.sample(typed(KEYS[name]), 2)
    ]
    return [(name, json.dumps(value)) for name, value in found]


@pytest.mark.parametrize("model", ["SASRecDenoiser", "BERT4RecDenoiser", "GRU4Rec"])
def test_any_value_of_any_setting_ends_well_or_with_one_line(
    workplace: Path, toy: Path, capfd: pytest.CaptureFixture, model: str
) -> None:
    small = ["hidden_size=8", "inner_size=8", "n_layers=1", "n_heads=2", "embedding_size=8", "MAX_ITEM_LIST_LENGTH=5"]
    ends = {0: 0, 2: 0}
    for name, value in cases(model):
        fixed = [f"--{setting}" for setting in small if not setting.startswith(f"{name}=")]
        noise = [] if name == "noise_action" else ["--noise_action=none"]  # the detector takes seconds
        noise += [] if name == "eval_args" else ["--eval_args.mode=uni10"]  # the toy has 40 items
        given = [
            f"--{name}={value}",
            "--epochs=1",
            "--state=ERROR",
            f"--data_path={toy}",
            *fixed,
            *noise,
            "--overwrite",
        ]
        code = main(["run", f"--model={model}", "--dataset=toy", "--run_name=typed", *given])
        said = capfd.readouterr().err
        assert code in ends, f"--{name}={value}"
        ends[code] += 1
        if code == 2:
            told = [line for line in said.splitlines() if line.startswith("Error: ")]
            assert len(told) == 1 and "Traceback" not in said, f"--{name}={value}: {said}"
    assert all(ends.values()), ends  # both kinds occur
