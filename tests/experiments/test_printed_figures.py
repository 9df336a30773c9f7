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
PAGES = ["README.md", "published/README.md", "published/details.md", "docs/strong.md", "docs/noise.md"]
FIGURE = re.compile(r"(?<![\d.,])0\.\d{4}(?!\d)")
FOLDER = re.compile(r"(?:published/|\]\()([\w-]+)\b(?!:|\.md)")
# "p = 0.12", "p 0.12 / 0.5", and cells of a table with a pair of three digits
P_VALUES = re.compile(r"\bp(?: =)? (\d\.\d+)(?: / (\d\.\d+))?|(?<=\| )(\d\.\d{3}) / (\d\.\d{3})(?= \|)")
PERCENTS = re.compile(r"(?<![\d.])(-?\d+) % / (-?\d+) %")
TENTHS = re.compile(r"(?<![\d.])(\d+\.\d)(?=(?:(?:,| and| to) [+-]?\d+\.\d)* %)")  # also "1.4, 2.9 and 5.1 %"


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
    return {f"{number:.4f}" for number in found} | set(FIGURE.findall(table_text(folder)))


def table_text(folder: str) -> str:
    """A folder's table.md: means over seeds, with one table for each way to rank."""
    file = PUBLISHED / folder / "table.md"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def p_values(folder: str) -> set[float]:
    """The columns p of all tables in a folder's table.md."""
    found: set[float] = set()
    columns: list[int] = []
    for line in table_text(folder).splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if "p" in cells:
            columns = [place for place, cell in enumerate(cells) if cell == "p"]
        elif line.startswith("|"):
            found |= {float(cells[place]) for place in columns if re.fullmatch(r"\d\.\d+", cells[place])}
    return found


def percents(folder: str) -> set[str]:
    """Shares of the loss that models recover and shares of the attentions that they keep, as they are printed."""
    found: set[float] = set()
    for file in (PUBLISHED / folder).glob("recovered.csv"):
        with file.open(encoding="utf-8") as lines:
            found |= {float(row["recovered"]) for row in csv.DictReader(lines) if row["recovered"]}
    for file in (PUBLISHED / folder).glob("*/result.json"):
        kept = json.loads(file.read_text(encoding="utf-8")).get("kept")
        found |= set(numbers(kept))
    return {str(round(100 * number)) for number in found}


def tenths(folder: str) -> set[str]:
    """Improvements (RI) in a folder's table.md, shares that its models keep and its detector estimates; without sign, with one digit."""
    pattern = r"(?<=\| )[+-](\d+\.\d\d)(?= \|)|by up to (\d+\.\d\d)(?= %)"  # RI, and how far apart two seeds are
    found = {float(text) for pair in re.findall(pattern, table_text(folder)) for text in pair if text}
    for file in (PUBLISHED / folder).glob("*/result.json"):
        result = json.loads(file.read_text(encoding="utf-8"))
        shares = [result.get("kept"), (result.get("noise") or {}).get("share")]
        found |= {round(100 * share, 2) for share in numbers(shares)}
    # the second digit is rounded already, so a 5 may stand for either side of a half
    return {f"{number + slack:.1f}" for number in found for slack in (-0.004, 0.004)}


def of_the_paper() -> set[str]:
    """Metrics in the paper's Table 2 and the improvements that follow from them."""
    table = load_paper_table()
    metrics = {f"{number:.4f}" for row in table.values.values() for cells in row.values() for number in cells}
    ratios = {
        f"{table.improvement(label, label.removesuffix('+Denoiser'), dataset, metric) or 0:.1f}"
        for label in table.values
        for dataset in table.datasets
        for metric in table.metrics
    }
    return metrics | ratios


def sections(page: str) -> list[str]:
    return re.split(r"\n(?=##+ )", (CHECKOUT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_is_in_the_runs_that_its_section_names(page: str) -> None:
    for section in sections(page):
        printed = set(FIGURE.findall(section))
        known = of_the_paper().union(*(figures(folder) for folder in FOLDER.findall(section)))
        title = section.splitlines()[0]
        assert printed <= known, f"{page}, '{title}': no run has {', '.join(sorted(printed - known))}"


@pytest.mark.parametrize("page", PAGES)
def test_every_p_value_is_in_the_tables_that_its_section_names(page: str) -> None:
    for section in sections(page):
        known = set[float]().union(*(p_values(folder) for folder in FOLDER.findall(section)))
        for text in (text for pair in P_VALUES.findall(section) for text in pair if text):
            digits = len(text.partition(".")[2])
            # a table has three digits; rounding those to fewer may be half a unit of theirs off
            slack = 0.5 * 10**-digits + 5e-4 if digits < 3 else 1e-9
            near = any(abs(float(text) - p) <= slack for p in known)
            assert near, f"{page}, '{section.splitlines()[0]}': no table has p = {text}"


@pytest.mark.parametrize("page", PAGES)
def test_every_pair_of_percentages_is_in_the_runs_that_its_section_names(page: str) -> None:
    for section in sections(page):
        printed = {text for pair in PERCENTS.findall(section) for text in pair}
        known = set[str]().union(*(percents(folder) for folder in FOLDER.findall(section)))
        assert printed <= known, f"{page}, '{section.splitlines()[0]}': no run has {sorted(printed - known)} %"


@pytest.mark.parametrize("page", PAGES)
def test_every_percentage_with_a_digit_is_in_the_tables_that_its_section_names(page: str) -> None:
    for section in sections(page):
        known = of_the_paper().union(*(tenths(folder) for folder in FOLDER.findall(section)))
        printed = set(TENTHS.findall(section))
        assert printed <= known, f"{page}, '{section.splitlines()[0]}': no table has {sorted(printed - known)} %"


def test_a_wrong_figure_is_found() -> None:
    assert "0.6971" in figures("removal-ml-100k") and "0.9999" not in figures("removal-ml-100k")
    assert 0.009 in p_values("gru-ml-100k") and 0.01 not in p_values("gru-ml-100k")
    assert "73" in percents("figure3-ml-1m") and "55" in percents("table2") and "999" not in percents("table2")
    assert P_VALUES.findall("p = 0.12 / 0.5, p 1.0; p < 0.001") == [("0.12", "0.5", "", ""), ("1.0", "", "", "")]
    assert P_VALUES.findall("| 0.002 / 1.000 | 0.1234 / 0.1234 |") == [("", "", "0.002", "1.000")]
    assert "1.1" in tenths("table2-seeds") and "9.8" not in tenths("table2-seeds")
    assert "7.3" in of_the_paper() and "9.8" not in of_the_paper()
    assert TENTHS.findall("+1.4, +2.9 and +5.1 %, 0.52 %, 3.0 of") == ["1.4", "2.9", "5.1"]
    assert PERCENTS.findall("52 % / -6 % and 7 %") == [("52", "-6")]
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
