"""kill -9 at random moments, again and again: the run must end with the numbers of one that was left alone.

    python tests/soak/crash.py            20 kills, then a full disk

Each kill waits for one of three moments in turn: any time (start-up included), shortly after a finished epoch, or while
a checkpoint is being written (its temporary file is there).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import torch

MOMENTS = ("any time", "after an epoch", "while writing")


def command(folder: str, flags: dict[str, Any], limit: int | None = None) -> None:
    """Body of a child process: the command line, quietly, with an optional limit on the size of files."""
    from recbole_denoiser.cli.main import main

    os.chdir(folder)
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = Path("out.txt").open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - until the end
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead of the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    os._exit(main(["run", "--dataset=toy", *(f"--{key}={value}" for key, value in flags.items())]))


def start(flags: dict[str, Any], limit: int | None = None) -> Any:
    """The command in a process of its own.

    It is forked from a server that has imported everything but runs no threads: a fork of this process, where torch and
    TensorBoard have threads, could wait for ever for a lock that one of them held.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["recbole_denoiser.cli.main", "recbole_denoiser.runs.pipeline"])
    process = context.Process(target=command, args=(str(Path.cwd()), flags, limit))
    process.start()
    return process


def finish(flags: dict[str, Any], limit: int | None = None) -> int:
    """Run the command to its end; its exit code."""
    process = start(flags, limit)
    process.join()
    return process.exitcode


def kill_once(flags: dict[str, Any], moment: str, draw: random.Random) -> str:
    """Start the command, kill it at the moment; what was hit: the moment, or 'finished' if it was too late."""
    saved = Path("results", flags["run_name"])
    newest = saved / "last.pth"
    before = newest.stat().st_mtime_ns if newest.is_file() else 0
    process = start(flags)
    wait = draw.uniform(0.0, 1.0)
    begin = time.monotonic()
    while process.is_alive():
        if moment == "any time" and time.monotonic() - begin > wait:
            break
        changed = newest.is_file() and newest.stat().st_mtime_ns != before
        if moment == "after an epoch" and changed:
            time.sleep(wait / 5)
            break
        if moment == "while writing" and changed and any(saved.glob(".*.pth.*")):
            break
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    if process.exitcode == 0:
        return "finished"
    assert process.exitcode == -signal.SIGKILL, Path("out.txt").read_text(encoding="utf-8")
    return moment


def crash(flags: dict[str, Any], kills: int, seed: int = 0) -> dict[str, int]:
    """Kill the run ``cut`` until ``kills`` kills have hit, let it finish, compare with ``whole``; hits by moment."""
    whole, cut = {**flags, "run_name": "whole"}, {**flags, "run_name": "cut", "resume": True}
    assert finish(whole) == 0, Path("out.txt").read_text(encoding="utf-8")
    draw = random.Random(seed)
    hits = dict.fromkeys((*MOMENTS, "finished"), 0)
    for number in range(kills):
        hits[kill_once(cut, MOMENTS[number % len(MOMENTS)], draw)] += 1
    assert finish(cut) == 0, Path("out.txt").read_text(encoding="utf-8")
    compare()
    left = [file.name for file in Path("results/cut").glob(".*")]
    assert not left, f"temporary files left behind: {left}"
    return hits


def compare() -> None:
    """The runs ``whole`` and ``cut`` have the same metrics, losses and weights, to the last bit."""
    import json

    results = [json.loads(Path("results", name, "result.json").read_text()) for name in ("whole", "cut")]
    for key in ("test", "valid", "kept", "best_epoch"):
        assert results[0][key] == results[1][key], key
    histories = [[(r["epoch"], r["losses"], r["valid"]) for r in result["epochs"]] for result in results]
    assert histories[0] == histories[1]
    for file in ("model.pth", "last.pth"):
        states = [torch.load(Path("results", name, file), weights_only=True) for name in ("whole", "cut")]
        for name, weights in states[0]["state_dict"].items():
            assert torch.equal(weights, states[1]["state_dict"][name]), name


def full_disk(flags: dict[str, Any], limit: int | None) -> str:
    """The run ``cut`` meets a full disk after some epochs; the checkpoint before stays whole and is resumed.

    ``limit``: largest file in bytes that can be written, instead of a disk that is full.
    """
    last = Path(flags.get("result_dir", "results"), "cut/last.pth")
    good = last.read_bytes()
    size = Path("out.txt").stat().st_size
    code = finish({**flags, "run_name": "cut", "resume": True, "epochs": flags["epochs"] + 2}, limit)
    said = Path("out.txt").read_text(encoding="utf-8")[size:]
    assert code == 2, said
    assert "Traceback" not in said
    assert "Cannot write" in said
    assert "unchanged" in said
    assert last.read_bytes() == good
    return said.strip().splitlines()[-1]


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from toy_data import quick_settings, toy_rows, write_inter

    import recbole_denoiser  # noqa: F401 - before the first fork

    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_inter(Path("data"), "toy", toy_rows())
        flags = {**quick_settings(Path("data")), "epochs": 60, "stopping_step": 60}
        begin = time.monotonic()
        hits = crash(flags, kills)
        print(f"{kills} kills in {time.monotonic() - begin:.0f} s: {hits}; same metrics, losses and weights.")
        print("File size limit:", full_disk(flags, limit=50_000))
        tmpfs(flags)
        forkserver._forkserver._stop()  # type: ignore[attr-defined] # waited for: its processor time is ours


def tmpfs(flags: dict[str, Any]) -> None:
    """A real full disk, where this user may mount one."""
    Path("small").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", "small"], capture_output=True, check=False
    )
    if mounted.returncode:
        print("Full disk: not tried, no right to mount a tmpfs.")
        return
    try:
        flags = {**flags, "result_dir": "small", "epochs": 2}
        assert finish({**flags, "run_name": "cut"}) == 0
        with Path("small/filler").open("wb") as filler:
            free = os.statvfs("small").f_bavail * os.statvfs("small").f_frsize
            filler.write(b"x" * (free - 10_000))
        print("Full disk:", full_disk(flags, limit=None))
    finally:
        subprocess.run(["umount", "small"], check=True)


if __name__ == "__main__":
    main()
