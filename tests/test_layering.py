"""One direction: core knows no RecBole, data knows no model, nothing but the entry points knows the command line."""

from __future__ import annotations

import ast
from pathlib import Path

import recbole_denoiser

PACKAGE = Path(recbole_denoiser.__file__).parent


def imports(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_core_imports_no_recbole() -> None:
    allowed = ("recbole_denoiser.core", "recbole_denoiser.errors")
    for file in (PACKAGE / "core").glob("*.py"):
        for name in imports(file):
            assert not name.startswith("recbole.") and name != "recbole", f"{file.name} imports {name}"
            assert not name.startswith("recbole_denoiser.") or name.startswith(allowed), f"{file.name} imports {name}"


def test_data_imports_no_model() -> None:
    for file in (PACKAGE / "data").glob("*.py"):
        assert not any(name.startswith(("recbole_denoiser.model", "recbole.model")) for name in imports(file)), (
            file.name
        )


def test_nothing_imports_the_command_line() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.name != "__main__.py":
            assert "recbole_denoiser.cli" not in imports(file), file.name


def test_nothing_imports_quick_start() -> None:
    for file in PACKAGE.rglob("*.py"):
        assert not any(name.startswith("recbole.quick_start") for name in imports(file)), file.name
