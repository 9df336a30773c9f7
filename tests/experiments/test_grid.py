"""A grid that is killed, resumed, interrupted and crashed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from recbole_denoiser.cli.main import main
from recbole_denoiser.experiments import cell, claim, grid, processes
from recbole_denoiser.experiments.plan import PlannedRun, load_experiment, plan

EPOCHS = 60
CHECKOUT = Path(__file__).parents[2]


def write_experiment(toy: Path) -> list[str]:
    """mine.yaml with two models; gives the arguments of reproduce."""
    content = {
        "datasets": ["toy"],
        "seeds": [1],
        "settings": {
            "MAX_ITEM_LIST_LENGTH": 10,
            "eval_args": {"mode": "uni10"},
            "stopping_step": 1000,
            "epochs": EPOCHS,
        },
        "models": {
            "SASRecDenoiser": {},
            "SASRec": {"model": "SASRecDenoiser", "denoise": False, "epochs": 2},
        },
        "test": "none",
    }
    Path("mine.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return ["reproduce", "mine.yaml", f"--data_path={toy}"]


def wait_for(what: Any) -> Any:
    """The first true answer; the test fails if none comes."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if answer := what():
            return answer
        time.sleep(0.05)
    raise AssertionError("waited for nothing")


def test_killed_in_the_middle_and_resumed(workplace: Path, toy: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = write_experiment(toy)
    first, second = plan(load_experiment("mine.yaml"), "results", {"data_path": str(toy)})
    parent = subprocess.Popen(
        [sys.executable, "-m", "recbole_denoiser", *arguments, "--jobs=1"],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for((first.folder / f"{first.name}.last.pth").is_file)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    worker = claim.holder(first.folder)  # it outlives the grid, and a new grid would leave its run alone
    assert worker is not None and worker.pid != parent.pid
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: claim.holder(first.folder) is None)
    assert not first.finished

    assert main([*arguments, "--jobs=2"]) == 0
    assert first.finished and second.finished
    assert "Resuming after epoch" in (first.folder / "log.txt").read_text()
    result = json.loads((first.folder / "result.json").read_text())
    assert [record["epoch"] for record in result["epochs"]] == list(range(EPOCHS))
    assert "2 of 2 runs are finished" in capsys.readouterr().out

    written = second.folder.joinpath("result.json").stat().st_mtime_ns
    assert grid.run_grid([first, second], jobs=2).failed == []
    assert second.folder.joinpath("result.json").stat().st_mtime_ns == written


def test_a_cell_that_cannot_be_trained(workplace: Path, toy: Path, capsys: pytest.CaptureFixture) -> None:
    write_experiment(toy)
    flags = {"data_path": str(toy), "learning_rate": 1e30, "denoise": False}
    run = plan(load_experiment("mine.yaml"), "results", flags)[0]
    cell.write_cell(run.folder, run.model, run.dataset, run.settings)
    assert cell.main([str(run.folder)]) == 2
    assert "Error: " in capsys.readouterr().err
    assert not run.finished
    assert claim.holder(run.folder) is None


def sleeping_grid(monkeypatch: pytest.MonkeyPatch, script: str) -> list[subprocess.Popen]:
    """Cells run a short script instead of a training; gives the processes as they are started."""
    started: list[subprocess.Popen] = []

    def start(module: str, arguments: list[str], log: Path) -> subprocess.Popen:
        with log.open("ab") as stream:
            process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=stream, stderr=stream)
        started.append(process)
        return process

    monkeypatch.setattr(processes, "start", start)
    return started


def cells(count: int) -> list[PlannedRun]:
    return [
        PlannedRun(f"m{i}", "SASRecDenoiser", "toy", 1, (), {}, f"run{i}", Path("results") / f"run{i}")
        for i in range(count)
    ]


FINISH = "import sys, pathlib; (pathlib.Path(sys.argv[1]) / 'result.json').write_text('{\"seconds\": 1}')"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_the_processes(workplace: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    started = sleeping_grid(monkeypatch, "import time; time.sleep(600)")
    threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
    with pytest.raises(KeyboardInterrupt):
        grid.run_grid(cells(3), jobs=2)
    assert len(started) == 2
    assert all(process.returncode == -signal.SIGTERM for process in started)


def test_crashes_are_reported_and_do_not_stop_the_rest(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"import sys, os\nif 'run1' in sys.argv[1]: sys.exit('no memory')\nif 'run2' in sys.argv[1]: os.abort()\n{FINISH}"
    sleeping_grid(monkeypatch, script)
    outcome = grid.run_grid(cells(5), jobs=2)
    assert [(run.name, reason) for run, reason in sorted(outcome.failed, key=lambda f: f[0].name)] == [
        ("run1", "no memory"),
        ("run2", "killed by SIGABRT"),
    ]
    assert [run.finished for run in cells(5)] == [True, False, False, True, True]


def test_runs_of_others_are_waited_for_here_and_left_alone_elsewhere(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = sleeping_grid(monkeypatch, FINISH)
    here, elsewhere, free = cells(3)
    for run in (here, elsewhere):
        run.folder.mkdir(parents=True)
    claim.claim(here.folder)
    (elsewhere.folder / "claim-0.json").write_text('{"host": "elsewhere", "pid": 1, "started": 0.0}')
    threading.Timer(1.0, lambda: here.folder.joinpath("result.json").write_text('{"seconds": 2}')).start()
    outcome = grid.run_grid([here, elsewhere, free], jobs=1)
    assert len(started) == 1  # the free one
    assert here.finished and free.finished
    assert [(run.name, holder.host) for run, holder in outcome.elsewhere] == [("run1", "elsewhere")]


def test_time_left_comes_from_similar_runs(workplace: Path) -> None:
    from recbole_denoiser.experiments.progress import Progress, duration

    slow = [PlannedRun("slow", "", "big", i, (), {}, f"s{i}", Path(f"s{i}")) for i in range(3)]
    quick = [PlannedRun("quick", "", "big", i, (), {}, f"q{i}", Path(f"q{i}")) for i in range(3)]
    for run, seconds in ((slow[0], 100), (quick[0], 10)):
        run.folder.mkdir()
        (run.folder / "result.json").write_text(json.dumps({"seconds": seconds}))
    progress = Progress([*slow, *quick], jobs=2)
    assert progress.time_left() == pytest.approx((100 + 100 + 10 + 10) / 2)
    progress.failed(slow[1], "boom")
    assert progress.time_left() == pytest.approx((100 + 10 + 10) / 2)
    assert [duration(s) for s in (None, 20, 130, 7500)] == ["?", "20 s", "2 min", "2 h 05 min"]


def test_no_process_is_left_over() -> None:
    assert not [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
