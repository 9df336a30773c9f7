"""The README says what is there: its map is the tree, its commands are the command line's, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from recbole_denoiser.cli.main import COMMANDS

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


def mapped(heading: str) -> list[str]:
    """Names in the README's map below ``heading``, as far as it is indented."""
    lines = README.split(f"```\n{heading}\n")[1].split("```")[0].splitlines()
    inside = [line for line in lines if line.startswith("  ")]
    return [line.split()[0] for line in inside]


def test_the_map_is_the_tree() -> None:
    package = CHECKOUT / "recbole_denoiser"
    folders = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert set(mapped("recbole_denoiser/")) == folders | modules


def test_the_table_of_commands_is_complete() -> None:
    table = README.split("## Commands")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z]+)[^`]*`", re.sub(r"\|[^|\n]*\|$", "|", table, flags=re.MULTILINE))) >= set(COMMANDS)


def shown_commands(page: str) -> set[str]:
    """Every command line of a page: lines of its blocks, fenced or indented, and `recbole-denoiser ...` in its text."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^    (.*)$", text, flags=re.MULTILINE)
    lines = {re.sub(r"\s+#.*", "", line).strip() for block in blocks for line in block.splitlines()}
    typed = {line for line in lines if re.match(r"(recbole-denoiser|make) ", line)}
    return typed | set(re.findall(r"`(recbole-denoiser [^`]*)`", text))


def test_the_newcomer_types_every_command() -> None:
    script = CHECKOUT / "tests" / "newcomer.sh"
    listed = subprocess.run(["bash", str(script), "--list"], capture_output=True, text=True, check=True).stdout
    plan = dict(line.split(" -> ") for line in listed.splitlines())
    docs = [page.read_text(encoding="utf-8") for page in (CHECKOUT / "docs").glob("*.md")]
    assert set(plan) == set().union(*map(shown_commands, (README, *docs)))
    assert len(shown_commands(README)) > 10 and len(plan) > 25
    for line, typed in plan.items():
        if typed.startswith("needs ml-1m"):
            assert re.search(r"ml-1m|amazon-games|reproduce", line), line
        elif typed.startswith("tests/"):
            assert (CHECKOUT / typed.split()[0].rstrip(":")).is_file(), typed
        elif line != "make test":
            assert typed.split()[1] in COMMANDS, typed
            assert "<" not in typed, typed


@pytest.mark.parametrize("file", ["README.md", "published/README.md", "published/details.md"])
def test_links_lead_somewhere(file: str) -> None:
    path = CHECKOUT / file
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert local, "no link to check"
    assert not [target for target in local if not (path.parent / target).exists()]
