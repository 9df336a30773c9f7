"""RecBole's quick_start without ray, which has no release for Python 3.12 and newer."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import importlib.machinery, sys
plain = importlib.machinery.PathFinder.find_spec  # ray cannot be found
importlib.machinery.PathFinder.find_spec = lambda name, path=None, target=None: None if name == "ray" else plain(name, path, target)
import recbole_denoiser
from recbole.quick_start import quick_start
assert callable(quick_start.run_recbole) and callable(quick_start.objective_function)
quick_start.tune.report(hit=1.0)  # nobody listens
try:
    quick_start.tune.run
except ImportError as error:
    assert "ray is not installed" in str(error) and "recbole-denoiser tune" in str(error), error
else:
    raise AssertionError("tuning was promised")
assert "ray" not in sys.modules
"""


def test_quick_start_imports_and_tuning_explains_itself() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
