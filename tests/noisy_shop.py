"""A data set whose noise is known: customers who stay in one aisle, and some of their items replaced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_denoiser.data.detected import Detected, detect_dataset
from recbole_denoiser.runs import pipeline

USERS, LENGTH, AISLES, EACH, SHARE = 400, 24, 10, 20, 0.15


def write_aisles(folder: Path) -> tuple[Path, Path]:
    """``<folder>/aisles/`` with .inter (in shuffled order) and .item files, and labels.csv; returns data_path and labels."""
    random = np.random.default_rng(3)
    rows = []
    for user in range(USERS):
        aisle = random.integers(AISLES)
        for place in range(LENGTH):
            noise = random.random() < SHARE
            item = random.integers(AISLES * EACH) if noise else aisle * EACH + random.integers(EACH)
            rows.append((f"u{user}", f"i{item}", 1_300_000_000 + 60 * place + 7 * user, int(noise)))
    rows = [rows[place] for place in random.permutation(len(rows))]
    (folder / "aisles").mkdir(parents=True)
    lines = ["rating:float\tuser_id:token\titem_id:token\ttimestamp:float"]
    lines += [f"3\t{user}\t{item}\t{time}" for user, item, time, _ in rows]
    (folder / "aisles" / "aisles.inter").write_text("\n".join(lines) + "\n", encoding="utf-8")
    titles = ["item_id:token\ttitle:token\taisle:token_seq"]
    titles += [f'i{n}\t<b>Item "{n}" & more\taisle{n // EACH} shelf{n % 4}' for n in range(AISLES * EACH)]
    (folder / "aisles" / "aisles.item").write_text("\n".join(titles) + "\n", encoding="utf-8")
    labels = pd.DataFrame(rows, columns=["user", "item", "time", "label"]).sample(frac=1, random_state=0)
    labels.to_csv(folder / "labels.csv", index=False)
    return folder, folder / "labels.csv"


@pytest.fixture(scope="session")
def aisles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """data_path and the labels."""
    return write_aisles(tmp_path_factory.mktemp("aisles"))


@pytest.fixture(scope="session")
def found(aisles: tuple[Path, Path]) -> Detected:
    """What the detector says about it."""
    return detect_dataset("aisles", {"data_path": str(aisles[0])}, aisles[1])


@pytest.fixture(scope="session")
def cleaned_run(aisles: tuple[Path, Path], away: Path) -> Path:
    """A plain model trained on what the detector left of it, without masks."""
    flags = {
        "data_path": str(aisles[0]), "result_dir": str(away / "results"),
        "MAX_ITEM_LIST_LENGTH": 10, "epochs": 3, "learning_rate": 0.01, "show_progress": False, "state": "ERROR",
        "noise_action": "remove", "denoise": False, "target_denoise": "none", "run_name": "cleaned",
    }  # fmt: skip
    return away / "results" / pipeline.run("SASRecDenoiser", "aisles", flags=flags)["run"]
