"""Fixtures for all tests: the toy data set, and a folder of its own for every test that runs a model."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from noisy_shop import aisles, cleaned_run, found  # noqa: F401 - fixtures
from suspects import every_third  # noqa: F401 - a fixture
from toy_data import quick_settings, toy_rows, write_inter
from trained import away, figure1, noisy, noisy_run, shop_run, train_toy  # noqa: F401 - fixtures

from recbole_denoiser.integration.processor import mend_half_precision

torch.set_num_threads(1)
mend_half_precision()  # before the first matrix product of the whole test run
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # tests in the background of a script: Ctrl-C would never arrive
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data_path with the data set ``toy`` in it."""
    folder = tmp_path_factory.mktemp("data")
    write_inter(folder, "toy", toy_rows())
    return folder


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, so that logs, checkpoints and results of a run stay in the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def settings(toy: Path) -> dict[str, object]:
    """Flags that make a run on the toy data quick."""
    return quick_settings(toy)
