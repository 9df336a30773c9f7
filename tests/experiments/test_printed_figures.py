"""Every figure that is printed has a finished run behind it, and every run its ranks."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_denoiser.cli.main import main
from recbole_denoiser.experiments.paper import load_paper_table

CHECKOUT = Path(__file__).parents[2]
PUBLISHED = CHECKOUT / "published"
RUNS = sorted(PUBLISHED.glob("*/*/result.json"))
EXPERIMENTS = sorted(file.stem for file in PUBLISHED.glob("*.yaml") if (PUBLISHED / file.stem / "table.csv").is_file())
PAGES = ["README.md", "published/README.md", "docs/strong.md", "docs/noise.md"]
FIGURE = re.compile(r"(?<![\d.,])0\.\d{4}(?!\d)")
FOLDER = re.compile(r"published/([\w-]+)")


def numbers(value: Any) -> Iterator[float]:
    """All numbers inside nested mappings and lists."""
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)
    elif isinstance(value, float):
        yield value


def figures(folder: str) -> set[str]:
    """Metrics of the runs in a folder of published/ and the means in its table, as they are printed."""
    found: set[float] = set()
    for file in (PUBLISHED / folder).glob("*/result.json"):
        result = json.loads(file.read_text(encoding="utf-8"))
        for name in ("valid", "test", "valid_by_mode", "test_by_mode", "epochs"):
            found |= set(numbers(result.get(name)))
    for file in (PUBLISHED / folder).glob("*table*.csv"):
        with file.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                found |= {float(row[name]) for name in ("mean", "deviation") if row.get(name)}
    return {f"{number:.4f}" for number in found}


def of_the_paper() -> set[str]:
    values = load_paper_table().values.values()
    return {f"{number:.4f}" for row in values for cells in row.values() for number in cells}


def sections(page: str) -> list[str]:
    return re.split(r"\n(?=##+ )", (CHECKOUT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_is_in_the_runs_that_its_section_names(page: str) -> None:
    for section in sections(page):
        printed = set(FIGURE.findall(section))
        known = of_the_paper().union(*(figures(folder) for folder in FOLDER.findall(section)))
        title = section.splitlines()[0]
        assert printed <= known, f"{page}, '{title}': no run has {', '.join(sorted(printed - known))}"


def test_a_wrong_figure_is_found() -> None:
    assert "0.6971" in figures("removal-ml-100k") and "0.9999" not in figures("removal-ml-100k")
    assert FIGURE.findall("0.7613 / 0.5210 (0.12345, 10.1234)") == ["0.7613", "0.5210"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_are_made_again_from_the_runs(name: str, tmp_path: Path) -> None:
    shutil.copytree(PUBLISHED / name, tmp_path / name)
    (tmp_path / name / "table.csv").unlink()
    assert not main(["reproduce", str(PUBLISHED / f"{name}.yaml"), f"--result_dir={tmp_path}", "--report"])
    for file in ("table.csv", "table.md"):
        assert (tmp_path / name / file).read_text() == (PUBLISHED / name / file).read_text(), file


@pytest.mark.parametrize("file", RUNS, ids=lambda file: f"{file.parts[-3]}/{file.parts[-2]}")
def test_metrics_follow_from_the_ranks(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r'"/(work|tmp|home|root)', text), "paths of a machine"
    result = json.loads(text)
    with np.load(file.parent / "ranks.npz") as ranks:
        rank = ranks["test_rank"]
    hit, gain = rank <= 10, np.where(rank <= 10, 1 / np.log2(rank + 1), 0)
    ties = np.mean(rank != np.round(rank))  # RecBole breaks ties by order, the kept ranks share their mean
    assert result["test"]["hit@10"] == pytest.approx(hit.mean(), abs=1e-4 + ties)
    assert result["test"]["ndcg@10"] == pytest.approx(gain.mean(), abs=1e-4 + ties)
