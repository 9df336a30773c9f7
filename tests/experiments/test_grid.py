"""A grid that is killed, resumed, interrupted and crashed, on plain processes and on Dask."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from filelock import FileLock

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import cell, engines, grid
from recbole_denoiser.experiments.plan import PlannedRun, load_experiment, plan

EPOCHS = 60
CHECKOUT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(CHECKOUT)}


@pytest.fixture(scope="module", autouse=True)
def before() -> set[int]:
    """Processes that other tests keep, such as a browser."""
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture(params=["processes", "dask"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both engines of this machine; without Dask the plain one is the default."""
    if request.param == "processes":
        without_dask(monkeypatch)
    else:
        pytest.importorskip("distributed", reason="Dask needs the extra cluster")
    return request.param


def without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "distributed" else real(name, *rest)
    )


def write_experiment(toy: Path) -> list[str]:
    """mine.yaml with two models; returns the arguments of reproduce."""
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


def check_resumed(run: PlannedRun) -> None:
    assert "Resuming after epoch" in (run.folder / "log.txt").read_text()
    result = json.loads((run.folder / "result.json").read_text())
    assert [record["epoch"] for record in result["epochs"]] == list(range(EPOCHS))


def test_killed_in_the_middle_and_resumed(workplace: Path, toy: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = write_experiment(toy)
    first, second = plan(load_experiment("mine.yaml"), "results", {"data_path": str(toy)})
    parent = subprocess.Popen(
        [sys.executable, "-m", "recbole_denoiser", *arguments, "--jobs=1"],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for((first.folder / "last.pth").is_file)
    assert main([*arguments, "--jobs=2"]) == 2
    assert "Another grid works on" in capsys.readouterr().err
    family = psutil.Process(parent.pid).children(recursive=True)
    assert any(cell.__name__ in " ".join(process.cmdline()) for process in family)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    psutil.wait_procs(family, 60)  # workers and cells end with their grid
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not first.finished

    assert main([*arguments, "--jobs=2"]) == 0
    assert first.finished and second.finished
    check_resumed(first)
    assert "2 of 2 runs are finished" in capsys.readouterr().out

    written = second.folder.joinpath("result.json").stat().st_mtime_ns
    assert grid.run_grid([first, second], jobs=2).failed == []
    assert second.folder.joinpath("result.json").stat().st_mtime_ns == written


@pytest.fixture
def cluster(workplace: Path) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """The address of a real scheduler, and its two worker processes, which have no nanny to restart them."""
    pytest.importorskip("distributed", reason="Dask needs the extra cluster")
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host=127.0.0.1", "--port=0", "--no-dashboard"]
    started = [subprocess.Popen([*command, "--scheduler-file=scheduler.json"], stderr=subprocess.DEVNULL)]
    try:
        wait_for(Path("scheduler.json").is_file)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file=scheduler.json"]
        command += ["--nthreads=1", "--no-nanny", "--no-dashboard", f"--local-directory={workplace}"]
        started += [subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL) for _ in range(2)]
        yield json.loads(Path("scheduler.json").read_text())["address"], started[1:]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def test_a_worker_of_a_cluster_is_killed_and_another_resumes_its_cell(cluster: Any, toy: Path) -> None:
    address, workers = cluster
    write_experiment(toy)
    first = plan(load_experiment("mine.yaml"), "results", {"data_path": str(toy)})[0]
    killed: list[int] = []

    def kill() -> None:
        wait_for((first.folder / "last.pth").is_file)
        for worker in workers:
            for child in psutil.Process(worker.pid).children():
                if first.name in " ".join(child.cmdline()):
                    os.kill(worker.pid, signal.SIGKILL)
                    killed.append(worker.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    outcome = grid.run_grid([first], scheduler=address)
    thread.join()
    assert len(killed) == 1
    assert outcome.failed == []
    check_resumed(first)


def test_a_scheduler_that_is_not_there(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask needs the extra cluster")
    monkeypatch.setattr(engines, "_CONNECT_SECONDS", 1)
    with pytest.raises(UserError, match=r"tcp://127\.0\.0\.1:9 cannot be reached"):
        grid.run_grid(cells(1), scheduler="tcp://127.0.0.1:9")
    without_dask(monkeypatch)
    with pytest.raises(UserError, match=r"recbole-denoiser\[cluster\]"):
        grid.run_grid(cells(1), scheduler="tcp://127.0.0.1:9")


def test_a_cell_that_cannot_be_trained(
    workplace: Path, toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    write_experiment(toy)
    flags = {"data_path": str(toy), "learning_rate": 1e30, "denoise": False}
    run = plan(load_experiment("mine.yaml"), "results", flags)[0]
    cell.write_cell(run.folder, run.model, run.dataset, run.settings)
    monkeypatch.setattr(cell, "end_with_starter", lambda: None)  # nobody holds this process's standard input
    assert cell.main([str(run.folder)]) == 2
    assert "Error: " in capsys.readouterr().err
    assert not run.finished


def test_a_run_belongs_to_one_process(workplace: Path) -> None:
    """A second process waits for the first, and finds the run finished."""
    (run,) = cells(1)
    cell.write_cell(run.folder, run.model, run.dataset, {})
    held = FileLock(run.folder / cell.LOCK_FILE)
    done: list[bool] = []

    def wait_and_run() -> None:
        cell.run_cell(run.folder)
        done.append(True)

    with held:
        thread = threading.Thread(target=wait_and_run)
        thread.start()
        time.sleep(0.3)
        assert not done
        run.folder.joinpath("result.json").write_text("{}")
    thread.join()
    assert done


def cells(count: int) -> list[PlannedRun]:
    return [
        PlannedRun(f"m{i}", "SASRecDenoiser", "toy", 1, (), {}, f"run{i}", Path("results") / f"run{i}")
        for i in range(count)
    ]


def script_grid(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Cells run a short script instead of a training."""
    Path("scripted.py").write_text("import os, sys, time, pathlib\n" + script)
    monkeypatch.setattr(grid, "CELL_MODULE", "scripted")


FINISH = "(pathlib.Path(sys.argv[1]) / 'result.json').write_text('{\"seconds\": 1}')"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_processes(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, engine: str, number: int
) -> None:
    script_grid(monkeypatch, "pathlib.Path(sys.argv[1], 'pid').write_text(str(os.getpid()))\ntime.sleep(600)")
    started: list[int] = []

    def interrupt() -> None:
        files = [run.folder / "pid" for run in cells(2)]
        wait_for(lambda: all(file.is_file() and file.read_text() for file in files))
        started.extend(int(file.read_text()) for file in files)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        grid.run_grid(cells(3), jobs=2)
    thread.join()
    assert len(started) == 2
    wait_for(lambda: not any(psutil.pid_exists(process) for process in started))
    assert not cells(3)[2].folder.exists()


def test_crashes_are_reported_and_do_not_stop_the_rest(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    crash = "if 'run1' in sys.argv[1]: sys.exit('no memory')\nif 'run2' in sys.argv[1]: os.abort()\n"
    script_grid(monkeypatch, f"{crash}if 'run3' not in sys.argv[1]: {FINISH}")
    outcome = grid.run_grid(cells(5), jobs=2)
    assert [(run.name, reason) for run, reason in sorted(outcome.failed, key=lambda f: f[0].name)] == [
        ("run1", "no memory"),
        ("run2", "killed by SIGABRT"),
        ("run3", "the process ended well but left no result.json"),
    ]
    assert [run.finished for run in cells(5)] == [True, False, False, False, True]


def test_shards_work_side_by_side_and_one_grid_alone(workplace: Path) -> None:
    folder = Path("results")
    with (
        grid.only_one(folder, "1/2"),
        grid.only_one(folder, "2/2"),
        pytest.raises(UserError, match="Another grid works on results already"),
        grid.only_one(folder, "1/2"),
    ):
        pass
    with grid.only_one(folder, "1/2"):
        pass


def test_time_left_comes_from_similar_runs(workplace: Path) -> None:
    from recbole_denoiser.experiments.progress import GridProgress, duration

    slow = [PlannedRun("slow", "", "big", i, (), {}, f"s{i}", Path(f"s{i}")) for i in range(3)]
    quick = [PlannedRun("quick", "", "big", i, (), {}, f"q{i}", Path(f"q{i}")) for i in range(3)]
    for run, seconds in ((slow[0], 100), (quick[0], 10)):
        run.folder.mkdir()
        (run.folder / "result.json").write_text(json.dumps({"seconds": seconds}))
    progress = GridProgress([*slow, *quick], jobs=2)
    assert progress.time_left() == pytest.approx((100 + 100 + 10 + 10) / 2)
    progress.failed(slow[1], "boom")
    assert progress.time_left() == pytest.approx((100 + 10 + 10) / 2)
    assert [duration(s) for s in (None, 20, 130, 7500)] == ["?", "20 s", "2 min", "2 h 05 min"]


def test_no_process_is_left_over(before: set[int]) -> None:
    children = (child for child in psutil.Process().children() if child.pid not in before)
    left = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in left if "resource_tracker" not in " ".join(child.cmdline())]
