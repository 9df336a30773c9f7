"""Ctrl-C at start-up: one line and exit code 130 from every door, whatever is being imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DOORS = {
    "module": ["-m", "recbole_denoiser", "run"],
    "console script": ["recbole-denoiser", "run"],
    "RecBole's script": [str(CHECKOUT / "run_recbole_denoiser.py")],
}
# Python imports it at its start: SIGINT arrives when the module $AT is about to be imported, or at the very end
PRESSES = """
import atexit, os, signal, sys
def press(*_):
    os.kill(os.getpid(), signal.SIGINT)
def hook(event, arguments, pressed=[]):
    if event == "import" and arguments[0] == os.environ["AT"] and not pressed:
        pressed.append(True)
        press()
sys.addaudithook(hook)
if os.environ["AT"] == "the end":
    atexit.register(press)
"""
SCRIPT = "import sys\nfrom recbole_denoiser.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"


def typed(door: list[str], at: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(PRESSES)
    (folder / "recbole-denoiser").write_text(SCRIPT)
    paths = f"{folder}{os.pathsep}{CHECKOUT}"
    return subprocess.run(
        [sys.executable, *door], cwd=folder, env={**os.environ, "AT": at, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
@pytest.mark.parametrize("at", ["recbole_denoiser.integration.install", "argparse", "torch"])
def test_ctrl_c_before_the_work_is_one_line(door: list[str], at: str, tmp_path: Path) -> None:
    done = typed([*door, "--dataset=ml-100k", "--epochs=1"], at, tmp_path)
    assert (done.returncode, done.stderr.split("\n")) == (130, ["", "Interrupted.", ""])


@pytest.mark.parametrize("at", ["torch._C", "torch.nn", "numpy.linalg", "pandas", "recbole.utils", "scipy.sparse"])
def test_ctrl_c_inside_the_imports_of_libraries(at: str, tmp_path: Path) -> None:
    done = typed([*DOORS["module"], "--dataset=ml-100k", "--epochs=1", "--show_progress=False"], at, tmp_path)
    assert done.returncode == 130
    assert done.stderr.strip().splitlines()[-1] == "Interrupted."
    assert "Traceback" not in done.stderr


def test_ctrl_c_at_the_very_end(tmp_path: Path) -> None:
    done = typed(["-m", "recbole_denoiser", "--version"], "the end", tmp_path)
    assert (done.returncode, done.stderr.strip()) == (130, "Interrupted.")


def test_programs_that_import_the_package_keep_their_rule(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text("import recbole_denoiser, signal\nassert signal.getsignal(2) is signal.default_int_handler")
    done = typed([str(program)], "nothing", tmp_path)
    assert done.returncode == 0, done.stderr
