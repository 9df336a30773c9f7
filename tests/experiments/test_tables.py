"""A table from hand-made results against hand-computed numbers, and the paper's Table 2 against its own arithmetic."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from records import record

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.paper import load_paper_table
from recbole_denoiser.experiments.table_text import latex_text, to_csv, to_latex, to_markdown
from recbole_denoiser.experiments.tables import ResultTable, build_table, default_pairs
from recbole_denoiser.runs.record import Run, load_runs

USERS = 40


def write_run(folder: Path, label: str, dataset: str, seed: int, hits: range, rank: float, **changes) -> None:
    """A run that ranks the held-out item of the users in ``hits`` at ``rank`` and of all others at 20."""
    ranks = np.full(USERS, 20.0)
    ranks[list(hits)] = rank
    hit = len(hits) / USERS
    test = {"hit@10": hit, "ndcg@10": hit / math.log2(rank + 1)}
    data = {"users": 6040, "items": 3416, "interactions": 999611, "sha256": "a"}
    told = record(label, seed, dataset, **{"data": data, "valid": {}, "test": test, **changes})
    path = folder / told["run"]
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps(told))
    np.savez(path / "ranks.npz", test_user=np.array([f"u{i}" for i in range(USERS)]), test_rank=ranks)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    write_run(tmp_path, "SASRec", "ml-1m", 1, range(20), 3)  # 0.5, and 1 / log2(4) = 0.5 of it
    write_run(tmp_path, "SASRec", "ml-1m", 2, range(22), 3)  # 0.55, 0.275
    write_run(tmp_path, "SASRecDenoiser", "ml-1m", 1, range(40), 1)  # 1, 1
    write_run(tmp_path, "SASRecDenoiser", "ml-1m", 2, range(38), 1)  # 0.95, 0.95
    write_run(tmp_path, "GRU4Rec", "ml-1m", 1, range(0), 1)  # 0, 0
    # the denoiser wins two users and loses one: every pattern of three signs has a sum at least as large, p = 1
    write_run(tmp_path, "SASRec", "toy", 1, range(20), 3)
    write_run(tmp_path, "SASRecDenoiser", "toy", 1, range(1, 22), 3)
    return load_runs(tmp_path)


@pytest.fixture
def table(runs: list[Run]) -> ResultTable:
    return build_table(runs, pairs={"SASRecDenoiser": "SASRec"}, paper=load_paper_table())


def test_cells_by_hand(table: ResultTable) -> None:
    plain = table.cells["SASRec", "ml-1m", "hit@10"]
    denoiser = table.cells["SASRecDenoiser", "ml-1m", "hit@10"]
    assert plain.mean == pytest.approx(0.525)
    assert plain.deviation == pytest.approx(0.05 / math.sqrt(2))
    assert plain.seeds == 2
    assert plain.paper == 0.7434
    assert plain.improvement is None
    assert denoiser.mean == pytest.approx(0.975)
    assert denoiser.improvement == pytest.approx(85.7142857)
    assert denoiser.paper == 0.7980
    assert table.cells["SASRecDenoiser", "ml-1m", "ndcg@10"].improvement == pytest.approx(271.428571)
    assert table.cells["GRU4Rec", "ml-1m", "hit@10"].deviation is None
    assert ("GRU4Rec", "toy", "hit@10") not in table.cells
    assert table.cells["SASRec", "toy", "hit@10"].paper is None


def test_p_values_are_holm_corrected(table: ResultTable) -> None:
    # four comparisons: on ml-1m all differences have one sign (20 users), which no random draw of signs repeats, so
    # p = 1 / 10,000 twice; on toy p = 1 twice. Holm: 4e-4, max(4e-4, 3e-4), 1, 1
    for metric in ("hit@10", "ndcg@10"):
        assert table.cells["SASRecDenoiser", "ml-1m", metric].p == pytest.approx(4e-4)
        assert table.cells["SASRecDenoiser", "toy", metric].p == 1.0


def test_best_and_second_are_marked_and_significance_is_said(table: ResultTable) -> None:
    for dataset, significant in (("ml-1m", True), ("toy", False)):
        best, second = (table.cells[label, dataset, "hit@10"] for label in ("SASRecDenoiser", "SASRec"))
        assert (best.mark, second.mark) == ("best", "second")
        assert (best.significant, second.significant) == (significant, False)
    assert table.cells["GRU4Rec", "ml-1m", "hit@10"].mark == ""
    (legend,) = [note for note in table.notes if note.startswith("bold: best mean of its column; underlined: second")]
    assert "permutation test over users" in legend and "p < 0.05 after Holm's correction over 4 columns" in legend
    assert any(note.startswith("RI and p: against SASRec;") for note in table.notes)


def test_markdown(table: ResultTable) -> None:
    lines = to_markdown(table).splitlines()
    assert lines[0] == (
        "| Model | ml-1m seeds | ml-1m Hit@10 | RI % | p | paper | ml-1m NDCG@10 | RI % | p | paper "
        "| toy seeds | toy Hit@10 | RI % | p | toy NDCG@10 | RI % | p |"
    )
    assert lines[1].count("|") == lines[0].count("|")
    assert lines[2] == "| GRU4Rec | 1 | 0.0000 |  |  | 0.5582 | 0.0000 |  |  | 0.3383 |  | - |  |  | - |  |  |"
    assert lines[4] == (
        "| SASRecDenoiser | 2 | **0.9750**† ± 0.0354 | +85.71 | &lt;0.001 | 0.7980 | **0.9750**† ± 0.0354 | +271.43 "
        "| &lt;0.001 | 0.5610 | 1 | **0.5250** | +5.00 | 1.000 | **0.2625** | +5.00 | 1.000 |"
    )
    assert "<u>0.5250</u> ± 0.0354" in lines[3]
    assert any("SASRec+Denoiser Steam hit@10 +8.05 % (printed 5.05)" in line for line in lines)


def test_latex(table: ResultTable) -> None:
    lines = to_latex(table).splitlines()
    assert lines[2] == r" & \multicolumn{9}{c}{ml-1m} & \multicolumn{7}{c}{toy} \\"
    assert r"\textbf{0.9750}$^\dagger$ $\pm$ 0.0354 & +85.71 & $<$0.001 & 0.7980" in lines[7]
    assert lines[7].count("&") == lines[3].count("&") == 16
    assert r"\underline{0.5250}" in lines[6]
    assert latex_text("50% of a_b & c") == r"50\% of a\_b \& c"


def test_csv(table: ResultTable) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == 10  # 5 pairs of model and data set, 2 metrics
    row = next(r for r in rows if (r["model"], r["dataset"], r["metric"]) == ("SASRecDenoiser", "ml-1m", "hit@10"))
    assert float(row["mean"]) == pytest.approx(0.975)
    assert float(row["ri_percent"]) == pytest.approx(85.7142857)
    assert (row["seeds"], row["paper"], row["mark"], row["significant"]) == ("2", "0.798", "best", "1")
    assert next(r for r in rows if r["model"] == "GRU4Rec")["deviation"] == ""


def test_without_a_test_nothing_is_significant_and_no_ranks_are_read(runs: list[Run]) -> None:
    for run in runs:
        (run.folder / "ranks.npz").unlink()
    table = build_table(runs, test=None)
    assert not any(cell.significant for cell in table.cells.values())
    assert any("No test was made" in note for note in table.notes)
    assert all(cell.p is None for cell in table.cells.values())
    assert table.cells["SASRecDenoiser", "ml-1m", "hit@10"].improvement == pytest.approx(85.7142857)
    with pytest.raises(UserError, match="cannot be read"):
        build_table(runs)


def test_rows_can_be_chosen_and_ordered(runs: list[Run]) -> None:
    table = build_table(runs, labels=["SASRecDenoiser", "SASRec"], test="t")
    assert table.labels == ["SASRecDenoiser", "SASRec"]
    assert all(place[0] != "GRU4Rec" for place in table.cells)
    with pytest.raises(UserError, match=r"No run has the label SASrec\. There are: GRU4Rec, SASRec, SASRecDenoiser"):
        build_table(runs, labels=["SASrec"])


def test_notes_say_what_cannot_be_compared(tmp_path: Path, runs: list[Run]) -> None:
    other = {"users": 22363, "items": 12101, "interactions": 1, "sha256": "b"}
    write_run(tmp_path / "more", "X", "amazon-beauty", 1, range(9), 1, data=other)
    write_run(tmp_path / "more", "YDenoiser", "amazon-beauty", 2, range(9), 1, test={"hit@10": 0.9, "ndcg@10": 0.225})
    table = build_table(load_runs(tmp_path / "more"), pairs={"YDenoiser": "X"}, paper=load_paper_table())
    text = "\n".join(table.notes)
    assert "amazon-beauty: the runs used 2 different versions of the data." in text
    assert "22,363 users here, 51,369 in the paper" in text
    assert "YDenoiser and X were run with different seeds, none in common." in text

    assert "YDenoiser-amazon-beauty-2: hit@10 is 0.9000, but 0.2250 by its ranks." in text
    table = build_table(runs, pairs={"SASRecDenoiser": "Sasrec"})
    assert "There is no run of Sasrec: no improvement can be given for SASRecDenoiser." in table.notes


def test_errors(tmp_path: Path, runs: list[Run]) -> None:
    with pytest.raises(UserError, match="no test 'anova'"):
        build_table(runs, test="anova")
    with pytest.raises(UserError, match="no test metric 'hit@5'"):
        build_table(runs, metrics=["hit@5"])
    with pytest.raises(UserError, match="both SASRec on toy with seed 1"):
        build_table([*runs, next(run for run in runs if run.label == "SASRec" and run.dataset == "toy")])
    with pytest.raises(UserError, match="no runs"):
        build_table([])


def test_default_pairs() -> None:
    labels = ["SASRec", "SASRecDenoiser", "SSE-PT", "SSE-PT+Denoiser", "BERT4RecDenoiser"]
    assert default_pairs(labels) == {"SASRecDenoiser": "SASRec", "SSE-PT+Denoiser": "SSE-PT"}


def test_paper_slips_are_exactly_the_printed_improvements_that_do_not_follow() -> None:
    import yaml

    from recbole_denoiser.integration.paths import properties_folder

    paper = load_paper_table()
    content = yaml.safe_load((properties_folder() / "experiment" / "paper_table2.yaml").read_text(encoding="utf-8"))
    found = []
    for model, printed in content["printed_improvement"].items():
        places = [(dataset, metric) for dataset in paper.datasets for metric in paper.metrics]
        for (dataset, metric), value in zip(places, printed, strict=True):
            right = paper.improvement(model, model.removesuffix("+Denoiser"), dataset, metric)
            assert right is not None
            if abs(right - value) > 0.02:
                found.append((model, dataset, metric, value, round(right, 2)))
    assert found == [tuple(slip.values()) for slip in paper.slips]
    assert paper.value("SSEPTDenoiser", "steam", "NDCG@10") == 0.6133
    assert paper.value("SASRec", "ml-100k", "hit@10") is None
    assert all(len(row) == 5 for row in paper.values.values())


def test_broken_paper_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("title: only\n")
    with pytest.raises(UserError, match=r"x\.yaml cannot be read"):
        load_paper_table(tmp_path / "x.yaml")


def test_models_are_compared_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """Seed 2 draws other noise, say: against its mean with seed 1, the masks would seem to lose a fifth."""
    write_run(tmp_path, "SASRec", "toy", 1, range(20), 3)
    write_run(tmp_path, "SASRec", "toy", 2, range(40), 3)
    write_run(tmp_path, "SASRecDenoiser", "toy", 1, range(24), 3)
    table = build_table(load_runs(tmp_path), pairs={"SASRecDenoiser": "SASRec"})
    assert table.cells["SASRec", "toy", "hit@10"].mean == pytest.approx(0.75)
    cell = table.cells["SASRecDenoiser", "toy", "hit@10"]
    assert cell.mean == pytest.approx(0.6) and cell.improvement == pytest.approx(20)
    # four users more: 2 of the 16 patterns of signs have as large a sum; Holm doubles the smaller of two equal ones
    assert cell.p == pytest.approx(2 * 2 / 16, abs=0.02)
    assert any("different seeds; RI and p are over those that both have (1)." in note for note in table.notes)


def test_how_far_apart_two_seeds_of_the_plain_model_are(tmp_path: Path, table: ResultTable) -> None:
    """SASRec has 0.5 and 0.55 on ml-1m, one seed on toy; GRU4Rec and the denoiser are no plain models here."""
    (note,) = [note for note in table.notes if "another seed" in note]
    # 0.05 of 0.525; two users of 40 differ: t = 0.05 / sqrt(0.05 * 0.95 / 39) = 1.4327, p 0.16
    assert "hit@10 by up to 9.52 %, p < 0.05 in 0 of 1 pairs; in ndcg@10 by up to 9.52 %, p < 0.05 in 0 of 1" in note
    write_run(tmp_path / "more", "SASRec", "toy", 1, range(10), 1)
    write_run(tmp_path / "more", "SASRec", "toy", 2, range(10, 40), 1)  # all 40 users differ: t = -3.6, p 0.001
    write_run(tmp_path / "more", "SASRecDenoiser", "toy", 1, range(10), 1)
    (note,) = [note for note in build_table(load_runs(tmp_path / "more")).notes if "another seed" in note]
    assert "differ in hit@10 by up to 100.00 %, p < 0.05 in 1 of 1 pairs" in note


def test_without_a_second_seed_of_the_plain_model_nothing_is_said_of_seeds(tmp_path: Path) -> None:
    write_run(tmp_path, "SASRec", "toy", 1, range(10), 1)
    write_run(tmp_path, "SASRecDenoiser", "toy", 1, range(10), 1)
    write_run(tmp_path, "SASRecDenoiser", "toy", 2, range(20), 1)
    assert not any("another seed" in note for note in build_table(load_runs(tmp_path)).notes)


def test_a_run_beside_every_value_of_what_is_varied_is_compared_once(tmp_path: Path) -> None:
    """Two runs that stand in three columns are one comparison per metric, so Holm corrects over 2 and not over 6."""
    write_run(tmp_path, "SASRec", "toy", 1, range(20), 3)
    write_run(tmp_path, "SASRecDenoiser", "toy", 1, range(26), 3)  # wins six users: p of 2 / 2^6 = 0.03 before
    runs = [replace(run, dataset=f"toy, beta = {beta}") for run in load_runs(tmp_path) for beta in (1, 2, 3)]
    table = build_table(runs)
    assert any("Holm-corrected over 2 comparisons" in note for note in table.notes)
    for beta in (1, 2, 3):
        p = table.cells["SASRecDenoiser", f"toy, beta = {beta}", "hit@10"].p
        assert p == pytest.approx(2 * 2 / 64, abs=0.01)
