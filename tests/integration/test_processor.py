"""AMX that is listed but faults: tried in another process, then left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from recbole_denoiser.integration import processor


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(processor._SETTING, "x")  # so that it is put back after the test
    monkeypatch.delenv(processor._SETTING)
    processor.mend_half_precision.cache_clear()
    yield
    processor.mend_half_precision.cache_clear()


def test_cpuinfo_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    assert not processor.lists_amx(file)
    file.write_text("flags : avx2 avx512f amx_bf16 amx_tile\n")
    assert processor.lists_amx(file)
    file.write_text("flags : avx2 avx512f\n")
    assert not processor.lists_amx(file)


@pytest.mark.parametrize(("code", "mended"), [(-signal.SIGILL, True), (0, False), (1, False)])
def test_only_a_trial_that_dies_counts(monkeypatch: pytest.MonkeyPatch, code: int, mended: bool) -> None:
    monkeypatch.setattr(processor, "lists_amx", lambda: True)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=code))
    assert processor.mend_half_precision() is mended
    assert (os.environ.get(processor._SETTING) == "AVX512_CORE_BF16") is mended


def test_the_users_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(processor._SETTING, "AVX2")
    assert processor.mend_half_precision() is False
    assert os.environ[processor._SETTING] == "AVX2"
