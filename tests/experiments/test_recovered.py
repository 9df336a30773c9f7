"""The recovered share: by hand, its interval against draws counted one by one, and in the tables of an experiment."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_grid import SmallGrid, make_once

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import canvas, plots, recovered
from recbole_denoiser.experiments.outputs import write_outputs
from recbole_denoiser.experiments.plan import EXPERIMENTS, PlannedRun, load_experiment, parse_experiment, plan
from recbole_denoiser.experiments.recovered import RecoveredShare
from recbole_denoiser.experiments.stats import per_user
from recbole_denoiser.integration.config import Config


@pytest.fixture(scope="module")
def small_grid(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> SmallGrid:
    return make_once(tmp_path_factory, toy)


def test_by_hand() -> None:
    assert recovered.recovered(0.7583, 0.7096, 0.7745) == pytest.approx(0.7504, abs=1e-4)
    assert recovered.recovered(0.5, 0.5, 0.6) == 0.0
    assert recovered.recovered(0.4, 0.5, 0.6) == pytest.approx(-1.0)
    assert recovered.recovered(0.6, 0.5, 0.5) is None


def test_interval_of_the_ratio() -> None:
    """Against the normal approximation of a ratio of means, and exactly where every user is the same."""
    random = np.random.default_rng(0)
    plain = random.random(3000)
    gap = 0.2 + 0.1 * random.standard_normal(3000)
    gain = 0.6 * gap + 0.1 * random.standard_normal(3000)
    low, high = recovered.ratio_interval(plain + gain, plain, plain + gap) or (0.0, 0.0)
    share = gain.mean() / gap.mean()
    spread = np.std(gain - share * gap) / (np.sqrt(3000) * gap.mean())
    assert (low, high) == pytest.approx((share - 1.96 * spread, share + 1.96 * spread), abs=0.15 * spread)
    same = np.full(50, 0.5)
    assert recovered.ratio_interval(same + 0.1, same, same + 0.4) == pytest.approx((0.25, 0.25))
    nothing = random.standard_normal(50)
    assert recovered.ratio_interval(same, same, same + nothing - nothing.mean()) is None


def test_tables_of_an_experiment(small_grid: SmallGrid, tmp_path: Path) -> None:
    """Any three labels do: content as the method, GRU4Rec (which does not vary) as the oracle."""
    experiment = replace(small_grid.experiment, recovered={"plain": "SASRec", "oracle": "GRU4Rec"}, pruning=False)
    names = [file.name for file in write_outputs(experiment, small_grid.planned, tmp_path)]
    assert {"recovered.tex", "recovered.csv"} <= set(names)
    rows = list(csv.DictReader((tmp_path / "recovered.csv").read_text().splitlines()))
    assert {row["model"] for row in rows} == {"content"}
    for row in rows:
        cells = {
            label: [float(per_user(c_ranks(cell), row["metric"]).mean()) for cell in _cells(small_grid, label, row)]
            for label in ("content", "SASRec", "GRU4Rec")
        }
        means = [float(np.mean(cells[label])) for label in ("content", "SASRec", "GRU4Rec")]
        assert float(row["value"]) == pytest.approx(means[0])
        expected = recovered.recovered(*means)
        assert row["recovered"] == "" if expected is None else float(row["recovered"]) == pytest.approx(expected)
    assert "## Recovered" in (tmp_path / "table.md").read_text()


def test_bars_are_as_long_as_the_shares(tmp_path: Path) -> None:
    """In the SVG: every bar begins at 0, and their lengths are in the proportion of the recovered shares."""
    shares = [
        RecoveredShare("half", "toy", "hit@10", 0.5, 0.6, 0.7, 0.5, (0.4, 0.6), 1, 9),
        RecoveredShare("worse", "toy", "hit@10", 0.5, 0.45, 0.7, -0.25, (-0.3, -0.2), 1, 9),
        RecoveredShare("no gap", "toy", "hit@10", 0.5, 0.6, 0.5, None, None, 1, 9),
    ]
    files = plots.recovered_figure(shares, tmp_path / "recovered")
    assert [file.suffix for file in files] == [".png", ".svg"]
    root = ET.parse(files[1]).getroot()
    bars = []
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        if canvas.look(1)[0].lower() in path.get("style", "") and "clip-path" in path.attrib:
            corners = re.findall(r"[ML] (-?[\d.]+) ", path.get("d", ""))
            bars.append((float(corners[0]), float(corners[1])))  # left or zero end, other end
    assert len(bars) == 2
    (zero, half), (also_zero, worse) = bars
    assert zero == also_zero and worse < zero < half
    assert (half - zero) / (zero - worse) == pytest.approx(2.0, abs=1e-3)
    texts = {"".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"half", "worse", "no gap", "Hit@10", "toy"} <= texts


def test_panels_of_bars_have_one_scale(tmp_path: Path) -> None:
    """In the SVG: a bar of the same share is as long beside a bar of ten times its length as alone."""
    shares = [
        RecoveredShare("same", "one", "hit@10", 0.5, 0.6, 0.7, 0.5, None, 1, 9),
        RecoveredShare("same", "two", "hit@10", 0.5, 0.6, 0.7, 0.5, None, 1, 9),
        RecoveredShare("long", "two", "hit@10", 0.5, 1.5, 0.7, 5.0, None, 1, 9),
    ]
    root = ET.parse(plots.recovered_figure(shares, tmp_path / "recovered")[1]).getroot()
    lengths = []
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        if canvas.look(1)[0].lower() in path.get("style", "") and "clip-path" in path.attrib:
            left, right = map(float, re.findall(r"[ML] (-?[\d.]+) ", path.get("d", ""))[:2])
            lengths.append(right - left)
    assert len(lengths) == 3
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-3) and lengths[2] == pytest.approx(10 * lengths[1], rel=1e-3)


def test_no_share_is_minus_nothing() -> None:
    share = RecoveredShare("same", "toy", "hit@10", 0.5, 0.4999, 0.7, -0.0005, (-0.004, 0.003), 1, 9)
    assert "| 0% | 0% to 0% |" in recovered.to_markdown([share])


def test_bars_need_what_they_show() -> None:
    content = {"models": {"a": {}}, "datasets": ["toy"], "seeds": [1], "figures": [{"x": "recovered"}]}
    with pytest.raises(UserError, match="needs recovered"):
        parse_experiment(content, "x", "x.yaml")


def _cells(grid: SmallGrid, label: str, row: dict[str, str]) -> list[PlannedRun]:
    """The runs behind a column; one that does not vary is in all of them."""
    share = float(row["dataset"].rpartition("= ")[2])
    return [cell for cell in grid.planned if cell.label == label and cell.point in ((), (("train_noise", share),))]


def c_ranks(cell: PlannedRun) -> np.ndarray:
    with np.load(cell.folder / "ranks.npz") as arrays:
        return arrays["test_rank"].astype(float)


def test_models_skip_values_and_mistakes_are_told(toy: Path) -> None:
    content = {
        "models": {
            "plain": {"model": "SASRecDenoiser", "denoise": False},
            "oracle": {"model": "SASRecDenoiser", "noise_oracle": "remove", "skip": {"train_noise": [0.0]}},
        },
        "datasets": ["toy"], "seeds": [1], "vary": {"train_noise": [0.0, 0.1]},
    }  # fmt: skip
    runs = plan(parse_experiment(content, "x", "x.yaml"), "results", {"data_path": str(toy)})
    assert [(run.label, dict(run.point)["train_noise"]) for run in runs] == [
        ("plain", 0.0), ("plain", 0.1), ("oracle", 0.1)
    ]  # fmt: skip
    assert all("skip" not in run.settings for run in runs)
    with pytest.raises(UserError, match="recovered"):
        parse_experiment({**content, "recovered": {"plain": "plain"}}, "x", "x.yaml")


def test_models_skip_data_sets_and_seeds(toy: Path) -> None:
    content = {
        "models": {
            "all": {"model": "SASRecDenoiser", "denoise": False},
            "some": {"model": "SASRecDenoiser", "skip": {"dataset": ["ml-100k"], "seed": [2, 3]}},
        },
        "datasets": ["toy", "ml-100k"], "seeds": [1, 2, 3],
    }  # fmt: skip
    runs = plan(parse_experiment(content, "x", "x.yaml"), "results", {"data_path": str(toy)})
    assert sorted((run.label, run.dataset, run.seed) for run in runs) == [
        *[("all", dataset, seed) for dataset in ("ml-100k", "toy") for seed in (1, 2, 3)], ("some", "toy", 1)
    ]  # fmt: skip
    content["models"]["some"]["skip"] = {"datasets": ["toy"]}  # type: ignore[index]
    with pytest.raises(UserError, match="skip has datasets; allowed: dataset, seed"):
        plan(parse_experiment(content, "x", "x.yaml"), "results", {"data_path": str(toy)})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_built_in_experiment_can_be_planned(name: str) -> None:
    experiment = load_experiment(name)
    runs = plan(experiment, "results", {})
    assert {run.label for run in runs} == set(experiment.models)
    if experiment.recovered:
        assert set(experiment.recovered.values()) <= set(experiment.models)


def test_presets() -> None:
    """The default removes what the detector finds, the paper's method does not, and a control can do either."""
    for model in ("SASRecDenoiser", "BERT4RecDenoiser", "TiSASRecDenoiser", "SSEPTDenoiser"):
        assert Config(model, "ml-100k")["noise_action"] == "remove"
        assert Config(model, "ml-100k", config_files=["default"])["noise_action"] == "remove"
        assert Config(model, "ml-100k", config_files=["paper"])["noise_action"] == "none"
    for model in ("TiSASRec", "SSEPT", "SASRecEntmax", "SASRecSparse", "GRU4Rec"):
        assert Config(model, "ml-100k")["noise_action"] == "none"
    for action in ("none", "remove"):
        flags = {"denoise": False, "noise_action": action}
        assert Config("SASRecDenoiser", "ml-100k", flags=flags)["noise_action"] == action
