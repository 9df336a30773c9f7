"""Only one process works on a run, and a dead one does not keep it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from recbole_denoiser.experiments import claim

THREADS = 16


def write_claim(folder: Path, number: int, **changes: object) -> None:
    holder = {"host": claim.myself().host, "pid": os.getpid(), "started": psutil.Process().create_time(), **changes}
    folder.mkdir(exist_ok=True)
    (folder / f"claim-{number}.json").write_text(json.dumps(holder))


def all_at_once(folder: Path) -> list[int]:
    """The claims that many contenders got."""
    with ThreadPoolExecutor(THREADS) as pool:
        got = list(pool.map(lambda _: claim.claim(folder), range(THREADS)))
    return [number for number in got if number is not None]


@pytest.mark.parametrize("round_", range(20))
def test_one_of_many_gets_it(tmp_path: Path, round_: int) -> None:
    assert all_at_once(tmp_path / "run") == [0]
    assert claim.holder(tmp_path / "run") == claim.myself()


@pytest.mark.parametrize("round_", range(20))
def test_one_of_many_takes_over_from_a_dead_process(tmp_path: Path, round_: int) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    write_claim(tmp_path, 0, pid=dead.pid)
    assert claim.holder(tmp_path) is None
    assert all_at_once(tmp_path) == [1]


def test_a_process_id_that_was_used_again_is_another_process(tmp_path: Path) -> None:
    write_claim(tmp_path, 0, started=psutil.Process().create_time() - 3600)
    assert claim.holder(tmp_path) is None
    assert claim.claim(tmp_path) == 1


def test_another_machine_is_left_alone(tmp_path: Path) -> None:
    write_claim(tmp_path, 0, host="elsewhere", pid=1)
    found = claim.holder(tmp_path)
    assert found is not None and not found.here
    assert claim.claim(tmp_path) is None


def test_giving_up_lets_the_next_one_in_and_finishing_leaves_nothing(tmp_path: Path) -> None:
    assert claim.claim(tmp_path) == 0
    claim.release(tmp_path, 0, finished=False)
    assert claim.holder(tmp_path) is None
    assert claim.claim(tmp_path) == 1
    claim.release(tmp_path, 1, finished=True)
    assert list(tmp_path.iterdir()) == []


def test_a_claim_that_was_never_written_is_void(tmp_path: Path) -> None:
    file = tmp_path / "claim-0.json"
    file.touch()
    os.utime(file, (1, 1))
    assert claim.holder(tmp_path) is None
    assert claim.claim(tmp_path) == 1
