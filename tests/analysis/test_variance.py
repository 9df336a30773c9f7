"""The variance command on a small trained model."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_denoiser.analysis.variance import Setting, relative_variances, settings, variance_of_run
from recbole_denoiser.cli.main import main
from recbole_denoiser.runs import pipeline
from recbole_denoiser.runs.record import load_run


def test_row_credit_lowers_the_variance(workplace: Path, settings_of_run: dict) -> None:
    own = {"run_name": "r", "epochs": 10, "learning_rate": 0.01, "mask_form": "product"}  # the paper's masks
    result = pipeline.run(dataset="toy", flags={**settings_of_run, **own})
    from recbole_denoiser.integration.config import config_from_plain
    from recbole_denoiser.training import checkpoint

    config = config_from_plain(result["config"])
    data = pipeline.load_data(config)
    model = pipeline.build_model(config, data.train._dataset)
    checkpoint.load_weights(model, checkpoint.load(result["checkpoint"]), "r")
    found = relative_variances(model, next(iter(data.train)), draws=12, reference_draws=100, progress=False)
    assert set(found) == set(settings())
    assert found[Setting("arm", "batch", "total")][1] > 5 * found[Setting("arm", "sequence", "row")][1]
    assert found[Setting("arm", "sequence", "row")][1] > found[Setting("disarm", "sequence", "row")][1]
    assert found[Setting("ar", "batch", "total")][0] > found[Setting("arm", "batch", "total")][0]


def test_command(workplace: Path, settings_of_run: dict, capsys: pytest.CaptureFixture) -> None:
    pipeline.run(dataset="toy", flags={**settings_of_run, "run_name": "plain", "denoise": False, "epochs": 1})
    assert "disarm" in variance_of_run(load_run("results/plain"), draws=2, progress=False)
    assert main(["variance", "results/plain", "--draws=2"]) == 0
    out, err = capsys.readouterr()
    table = [line for line in out.splitlines() if line.startswith(("relative variance", "arm", "reinforce", "disarm"))]
    assert "all layers" in table[0]
    assert len({len(line) for line in table}) == 1  # columns are aligned
    assert "draws" in err  # progress
    assert main(["variance", "plain", "--draws=1"]) == 0  # by name, as for report
    assert main(["variance", "results/nothing"]) == 2


@pytest.fixture
def settings_of_run(settings: dict) -> dict:
    """``settings`` under a name that does not hide the function under test."""
    return settings
