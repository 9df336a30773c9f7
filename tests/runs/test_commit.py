"""A result names the code it came from, and whether that code was changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from recbole_denoiser.runs.results import commit_of

WHO = ("-c", "user.name=test", "-c", "user.email=test@example.org")


def git(*words: str) -> str:
    return subprocess.run(["git", *WHO, *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for file in ("recbole_denoiser/a.py", "properties/b.yaml", "published/table.md"):
        Path(file).parent.mkdir()
        Path(file).write_text("1")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "mark"),
    [
        ("published/table.md", ""),
        ("recbole_denoiser/a.py", "+"),
        ("properties/b.yaml", "+"),
        ("properties/new.yaml", "+"),
    ],
)
def test_only_changed_code_and_defaults_make_a_result_uncertain(checkout: Path, file: str, mark: str) -> None:
    head = git("rev-parse", "HEAD")
    assert commit_of(checkout) == head
    Path(file).write_text("2")
    assert commit_of(checkout) == head + mark


def test_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / ".git").mkdir()  # a repository without a commit
    assert commit_of(tmp_path) is None
