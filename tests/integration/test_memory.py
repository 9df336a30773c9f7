"""Freed memory is kept by the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from recbole_denoiser.integration.memory import use_huge_pages

PROGRAM = """
import resource
import torch
from recbole_denoiser.integration.memory import keep_freed_memory
print(keep_freed_memory())
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(4_000_000)  # 16 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(3)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a switch of glibc")
def test_a_freed_block_is_used_again_without_a_page_fault() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    switched, faults = done.stdout.split()
    if switched == "False":
        pytest.skip("this C library has no such switch")
    assert int(faults) < 100  # 16 MB are 4096 pages


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("0", "0")])
def test_huge_pages_are_asked_for_unless_the_user_decided(
    given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    if given is not None:
        monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", given)
    use_huge_pages()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == expected
