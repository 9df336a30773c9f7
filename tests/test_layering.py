"""One direction, strictly downward: every import of the package, lazy ones included, goes to a folder further up this table."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import recbole_denoiser

PACKAGE = Path(recbole_denoiser.__file__).parent
# a folder (or a module at the top) may import itself and what stands in the lines above; one line: they do not know each other
ORDER = [
    ("errors", "interrupt", "lazy"),
    ("files",),
    ("core", "detect"),
    ("integration",),
    ("data",),
    ("model",),
    ("training",),
    ("runs",),
    ("analysis",),
    ("experiments",),
    ("report",),
    ("cli",),
    ("__init__", "__main__"),  # the doors
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(file: Path) -> set[str]:
    """Dotted names that a file imports anywhere in it, those for type checkers only excepted."""
    names: set[str] = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    ignored = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in ignored:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def folder_of(module: str) -> str:
    """recbole_denoiser.core.masks -> core"""
    return module.split(".")[1]


def test_no_file_is_long() -> None:
    """300 lines are what one reads in one go; a longer file has two duties."""
    checkout = PACKAGE.parent
    folders = [checkout / name for name in ("recbole_denoiser", "tests", "examples", "docs")]
    files = [*checkout.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    lines = {str(file.relative_to(checkout)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert len(lines) > len(MODULES)
    assert not {file: count for file, count in lines.items() if count > 300}


def test_every_class_has_a_name_of_its_own() -> None:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in MODULES]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_downward(file: Path) -> None:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    here = parts[0]
    assert here in LEVEL, f"{here} has no place in ORDER"
    for name in imports(file):
        if not name.startswith("recbole_denoiser."):
            continue
        there = folder_of(name)
        if there not in LEVEL:  # a public name of the package itself, which reaches everywhere
            raise AssertionError(f"{'/'.join(parts)} imports {name}: import it from the module that defines it")
        assert there == here or LEVEL[there] < LEVEL[here], f"{'/'.join(parts)} imports {name}"


@pytest.mark.parametrize(("folder", "forbidden"), [("core", ("recbole",)), ("detect", ("recbole", "torch"))])
def test_core_and_detect_stand_alone(folder: str, forbidden: tuple[str, ...]) -> None:
    for file in (PACKAGE / folder).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(file)} & set(forbidden), file.name


def test_nothing_imports_quick_start() -> None:
    """It imports ray at its top."""
    for file in MODULES:
        assert not any(name.startswith("recbole.quick_start") for name in imports(file)), file.name


PURE = (
    "import os, sys, numpy as np; before = set(np.__dict__), dict(os.environ); import recbole_denoiser;"
    "from recbole_denoiser.core import denoise;"
    "assert not [m for m in sys.modules if m.split('.')[0] == 'recbole'], 'RecBole was imported';"
    "assert 'recbole_denoiser.integration.compat' not in sys.modules;"
    "assert not hasattr(np, 'float_') or 'float_' in before[0], 'NumPy was patched';"
    "assert dict(os.environ) == before[1], 'the environment was changed'"
)
REPAIRED = (
    "import recbole_denoiser, numpy as np, recbole; assert np.float_ is np.float64;"
    "from recbole.utils import get_model;"
    "assert get_model('SASRecDenoiser').__module__ == 'recbole_denoiser.model.sasrec';"
    "assert get_model('SASRec').__module__.startswith('recbole.');"
    "import recbole.trainer, torch; assert recbole.trainer.SASRecDenoiserTrainer.__name__ == 'SequenceTrainer';"
    "import recbole.model.sequential_recommender; assert not torch.is_anomaly_enabled()"
)
RECBOLE_FIRST = (
    "import numpy as np; np.float_ = np.float64; np.complex_ = np.complex128; np.unicode_ = np.str_;"
    "from recbole.config import Config; import recbole.utils, recbole_denoiser;"
    "assert recbole.utils.get_model('SASRecDenoiser').__module__ == 'recbole_denoiser.model.sasrec'"
)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(PURE, id="core loads neither RecBole nor the repairs"),
        pytest.param(REPAIRED, id="the repairs come with RecBole"),
        pytest.param(RECBOLE_FIRST, id="RecBole may come first"),
    ],
)
def test_imports_in_a_process_of_their_own(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True)
