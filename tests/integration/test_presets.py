"""The strong presets are complete and plain."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.paths import property_file
from recbole_denoiser.integration.values import read_yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("preset", "n", "mode"), [("strong", 200, "unseen"), ("strong-amazon-games", 25, "uni100")])
def test_strong_presets(toy: Path, preset: str, n: int, mode: str) -> None:
    config = Config("SASRecDenoiser", "toy", [preset], flags={"data_path": str(toy)})
    assert (config["MAX_ITEM_LIST_LENGTH"], config["long_history"], config["loss_type"]) == (n, "windows", "CE")
    assert not config["denoise"] and config["target_denoise"] == config["noise_action"] == "none"
    assert config["eval_args"]["mode"] == {"valid": mode, "test": mode} and config["eval_args"]["order"] == "TO"
    assert config["eval_modes"] == ["uni100", "full", "unseen"]


def test_strong_bert4rec(toy: Path) -> None:
    """The preset and the committed experiment are one setting."""
    config = Config("BERT4RecDenoiser", "toy", ["strong-bert4rec"], flags={"data_path": str(toy)})
    assert (config["long_history"], config["loss_type"], config["denoise"]) == ("windows", "CE", False)
    file = property_file("experiment", "strong-bert4rec")
    published = read_yaml(ROOT / "published" / "strong-bert4rec-ml-1m.yaml")["settings"]
    assert published.pop("beta") == 0.02  # the default of then, without effect where nothing is masked
    assert file is not None and read_yaml(file) == published
