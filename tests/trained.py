"""A trained shop (Figure 1 of the paper) and a trained toy model with noise, shared by the tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from docs_scripts import docs_script

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.runs import pipeline


def scores_without_column(recommender: Recommender, given: Any, items: Any, column: int) -> Any:
    """Scores with Phi closed in one column (but for its own row) in every layer."""
    masks: list[Any] = list(recommender.model.denoiser.masks)
    before = [mask.phi.data.clone() for mask in masks]
    for mask in masks:
        own = mask.phi.data[column, column].clone()
        mask.phi.data[:, column] = -1e4
        mask.phi.data[column, column] = own
    try:
        return recommender.scores(given, items)
    finally:
        for mask, phi in zip(masks, before, strict=True):
            mask.phi.data.copy_(phi)


@pytest.fixture(scope="session")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A current folder of the test session's own."""
    folder = tmp_path_factory.mktemp("away")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="session")
def figure1() -> ModuleType:
    return docs_script("make_figure1")


@pytest.fixture(scope="session")
def shop_run(away: Path, figure1: ModuleType) -> Path:
    """Folder of the run that learned Figure 1."""
    return figure1.train(away / "shop")


@pytest.fixture(scope="session")
def train_toy(away: Path, toy: Path) -> Any:
    """``train_toy(model, **settings)`` returns the folder of a run on the toy data."""

    def train(model: str = "SASRecDenoiser", **changes: Any) -> Path:
        flags: dict[str, Any] = {
            "data_path": str(toy),
            "result_dir": str(away / "results"),
            "MAX_ITEM_LIST_LENGTH": 8,
            "epochs": 2,
            "show_progress": False,
            "state": "ERROR",
            "eval_args.mode": "uni10",
            "noise_action": "none",
            **changes,
        }
        return away / "results" / pipeline.run(model, "toy", flags=flags)["run"]

    return train


@pytest.fixture(scope="session")
def noisy_run(train_toy: Any) -> Path:
    """Random masks that keep half, on data with noise."""
    return train_toy(train_noise=0.3, random_keep=0.5, mask_form="product", run_name="noisy")


@pytest.fixture(scope="session")
def noisy(noisy_run: Path) -> Recommender:
    return Recommender.load(noisy_run)
