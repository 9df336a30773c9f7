"""Two processes that need the same detection at the same time: one makes it, both read the same."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest
from made_up import QUICK, made_up

from recbole_denoiser import files
from recbole_denoiser.data import detection


def found_by_a_process(folder: Path, name: str, locks: bool) -> None:
    """Detect (slowly: not before the other process has come), and write down what was found."""
    if not locks:
        files.fcntl = None  # type: ignore[assignment]  # as on Windows
    real = detection.detect.detect_flat

    def slow(*args, **settings):
        with (folder / "calls").open("a") as stream:
            stream.write(f"{name}\n")
        while len(list(folder.glob("here.*"))) < 2:
            time.sleep(0.01)
        return real(*args, **settings)

    detection.detect.detect_flat = slow
    (folder / f"here.{name}").touch()
    user, item, _ = made_up(users=60, length=12)
    _, number = np.unique(item, return_inverse=True)
    part = detection.TrainingPart(np.arange(len(item)), user, number, np.unique(item))
    found = detection.detect_training(part, None, dict(QUICK, seed=0), folder / "kept")
    np.savez(folder / f"{name}.npz", posterior=found.posterior, remove=found.remove)


@pytest.mark.parametrize("locks", [True, False])
def test_two_processes(tmp_path: Path, locks: bool) -> None:
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=found_by_a_process, args=(tmp_path, name, locks)) for name in ("one", "two")]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    if locks and files.fcntl is not None:
        assert len((tmp_path / "calls").read_text().splitlines()) == 1
    one, two = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("one", "two"))
    np.testing.assert_array_equal(one["posterior"], two["posterior"])
    np.testing.assert_array_equal(one["remove"], two["remove"])
    (folder,) = (tmp_path / "kept").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["detection.npz", "detector.npz"]
    with np.load(folder / "detection.npz") as kept:
        np.testing.assert_array_equal(kept["posterior"], one["posterior"])
