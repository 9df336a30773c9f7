"""Tables and figures of an experiment, against its own result files."""

from __future__ import annotations

import csv
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_grid import SmallGrid, make_once

from recbole_denoiser.analysis import pruning
from recbole_denoiser.cli.main import main
from recbole_denoiser.experiments import canvas, plots
from recbole_denoiser.experiments.plan import load_experiment
from recbole_denoiser.runs.reopen import open_run

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def small_grid(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> SmallGrid:
    return make_once(tmp_path_factory, toy)


@pytest.fixture(scope="module")
def reported(small_grid: SmallGrid) -> Path:
    """The folder of the grid after ``reproduce --report``."""
    arguments = ["reproduce", str(small_grid.folder / "small.yaml"), f"--data_path={small_grid.data_path}"]
    assert main([*arguments, f"--result_dir={small_grid.folder / 'results'}", "--report"]) == 0
    return small_grid.folder / "results" / "small"


def test_the_table_holds_the_means_of_the_result_files(small_grid: SmallGrid, reported: Path) -> None:
    rows = {
        (row["model"], row["dataset"], row["metric"]): row for row in csv.DictReader((reported / "table.csv").open())
    }
    assert len(rows) == 3 * 2 * 2
    for (label, column, metric), row in rows.items():
        share = float(column.rpartition(" ")[2])
        cells = [c for c in small_grid.planned if c.label == label and c.point in ((("train_noise", share),), ())]
        values = [json.loads((c.folder / "result.json").read_text())["test"][metric] for c in cells]
        assert len(values) == 2
        assert float(row["mean"]) == pytest.approx(np.mean(values))
        assert float(row["deviation"]) == pytest.approx(np.std(values, ddof=1))
        assert (row["p"] == "") == (label == "SASRec")
    markdown = (reported / "table.md").read_text()
    assert markdown.index("## toy, train_noise = 0\n") < markdown.index("## toy, train_noise = 0.25\n")
    assert "10 of 10 runs are finished" in markdown
    assert "different versions of the data" not in markdown
    assert (reported / "table.tex").read_text().count(r"\begin{tabular}") == 2


def test_tables_of_finished_runs_need_no_data(small_grid: SmallGrid, reported: Path, tmp_path: Path) -> None:
    table = (reported / "table.csv").read_text()
    copy = shutil.copytree(reported.parent, tmp_path / "results")
    arguments = ["reproduce", str(small_grid.folder / "small.yaml"), "--data_path=nowhere", f"--result_dir={copy}"]
    assert main([*arguments, "--report"]) == 0
    assert (copy / "small" / "table.csv").read_text() == table


def test_every_run_by_itself(small_grid: SmallGrid, reported: Path) -> None:
    rows = list(csv.DictReader((reported / "runs.csv").open()))
    assert {row["run"] for row in rows} == {cell.name for cell in small_grid.planned}
    masked = next(row for row in rows if row["label"] == "content")
    assert len(masked["kept"].split("/")) == 2


def test_the_effective_experiment_can_be_run_again(small_grid: SmallGrid, reported: Path) -> None:
    content = yaml.safe_load((reported / "experiment.yaml").read_text())
    assert content["models"] == small_grid.experiment.models
    assert load_experiment(str(reported / "experiment.yaml")).seeds == [1, 2]


def test_figures_are_written_twice_and_show_all_lines(reported: Path) -> None:
    for stem, labels in (("train_noise-ndcg10", ["SASRec", "content", "GRU4Rec"]), ("kept", ["content, layer 2"])):
        png = (reported / f"{stem}.png").read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) > 5_000
        texts = {"".join(text.itertext()).strip() for text in ET.parse(reported / f"{stem}.svg").iter(f"{SVG}text")}
        assert set(labels) <= texts


def test_pruning_is_measured_where_there_is_noise_and_attention(small_grid: SmallGrid, reported: Path) -> None:
    rows = list(csv.DictReader((reported / "pruning.csv").open()))
    assert {(row["model"], row["train_noise"]) for row in rows} == {("SASRec", "0.25"), ("content", "0.25")}
    assert all(row["gate_auc"] == "" for row in rows if row["model"] == "SASRec")
    cells = {str(c.seed): c for c in small_grid.planned if c.label == "content" and c.point == (("train_noise", 0.25),)}
    measured = {seed: pruning.measure(open_run(cell.folder)) for seed, cell in cells.items()}
    told = [row for row in rows if row["model"] == "content"]
    assert len(told) == 4
    for row in told:
        layer = measured[row["seed"]].layers[int(row["layer"]) - 1]
        assert float(row["gate_auc"]) == layer.gate_auc and float(row["pruned"]) == layer.pruned


def test_runs_without_a_checkpoint_are_named_and_the_rest_is_reported(small_grid: SmallGrid, workplace: Path) -> None:
    folder = workplace / "results" / "small"
    noisy = [cell for cell in small_grid.planned if cell.label == "content" and cell.point == (("train_noise", 0.25),)]
    for cell in noisy:
        shutil.copytree(cell.folder, folder / cell.name)
        (folder / cell.name / "pruning.json").unlink(missing_ok=True)
    first, second = noisy
    (folder / first.name / "model.pth").unlink()
    result = json.loads((folder / first.name / "result.json").read_text())
    (folder / first.name / "result.json").write_text(
        json.dumps(result | {"checkpoint": "model.pth"})
    )  # not the original
    arguments = ["reproduce", str(small_grid.folder / "small.yaml"), f"--data_path={small_grid.data_path}", "--report"]
    assert main(arguments) == 0
    told = (folder / "pruning.md").read_text()
    assert f"Not measured, for want of a checkpoint or data: 1, such as {first} (" in told and str(second) not in told
    rows = list(csv.DictReader((folder / "pruning.csv").open()))
    assert {row["seed"] for row in rows} == {str(second.seed)}


def test_a_part_of_the_grid_is_reported_as_such(
    small_grid: SmallGrid, workplace: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = workplace / "results" / "small"
    for cell in small_grid.planned[:2]:
        shutil.copytree(cell.folder, folder / cell.name)
    arguments = ["reproduce", str(small_grid.folder / "small.yaml"), f"--data_path={small_grid.data_path}"]
    assert main([*arguments, "--plan"]) == 0
    assert capsys.readouterr().out.count("finished") == 2
    assert main([*arguments, "--report"]) == 0
    assert "2 of 10 runs are finished" in (folder / "table.md").read_text()


def test_lines_by_hand() -> None:
    line = plots.Line([0.0, 0.1], [[0.5, 0.7], [0.4]])
    np.testing.assert_allclose(line.mean, [0.6, 0.4])
    np.testing.assert_allclose(line.deviation, [0.2 / np.sqrt(2), 0.0])


def test_labels_of_ticks_that_would_touch_are_left_out() -> None:
    lengths = [20, 30, 40, 50, 60, 70, 80, 200]  # the closest that may be: 0.09 * 180 = 16.2
    assert plots.spaced_labels(lengths) == ["20", "", "40", "", "60", "", "80", "200"]
    assert plots.spaced_labels([0, 5, 10, 15, 20, 25]) == ["0", "5", "10", "15", "20", "25"]
    assert plots.spaced_labels([0, 50, 98, 100]) == ["0", "50", "", "100"]
    assert plots.spaced_labels([0.5]) == ["0.5"] and plots.spaced_labels([]) == []


def test_thirty_lines_look_different() -> None:
    assert len({(*canvas.look(number), canvas.marker(number)) for number in range(30)}) == 30
    assert canvas.look(0)[0] == canvas.look(8)[0] and canvas.look(0)[1] != canvas.look(8)[1]


def test_kept_shares_end_with_the_shortest_seed() -> None:
    def record(epoch: int, share: float | None) -> dict:
        return {"epoch": epoch, "kept": None if share is None else [share, 1.0]}

    long = [record(0, 0.9), record(1, None), record(2, 0.5), record(3, 0.1)]
    short = [record(0, 0.7), record(1, None), record(2, 0.3)]
    epochs, share = plots._kept([long, short])
    assert epochs.tolist() == [1, 3]
    np.testing.assert_allclose(share.mean(0), [[0.8, 1.0], [0.4, 1.0]])


def test_nothing_finished_is_an_error(workplace: Path, toy: Path, capsys: pytest.CaptureFixture) -> None:
    Path("mine.yaml").write_text("datasets: [toy]\nseeds: [1]\nmodels: {SASRecDenoiser: {}}\n")
    assert main(["reproduce", "mine.yaml", f"--data_path={toy}", "--report"]) == 2
    assert "No run of mine is finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed=3"], "use --seeds"),
        (["--datasets", "nowhere"], "no data for nowhere"),
        (["--models", "SASRek"], "has no model SASRek"),
        (["--shard=3/2"], "--shard"),
        (["--epoch=3"], "epochs"),
    ],
)
def test_mistakes(
    small_grid: SmallGrid, workplace: Path, capsys: pytest.CaptureFixture, arguments: list[str], words: str
) -> None:
    typed = ["reproduce", str(small_grid.folder / "small.yaml"), f"--data_path={small_grid.data_path}", *arguments]
    assert main(typed) == 2
    assert words in capsys.readouterr().err
