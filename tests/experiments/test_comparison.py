"""recbole-denoiser compare, on finished runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_grid import SmallGrid, make_once

from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.comparison import compare_runs, named_runs
from recbole_denoiser.experiments.stats import per_user


@pytest.fixture(scope="module")
def small_grid(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> SmallGrid:
    return make_once(tmp_path_factory, toy)


def folders(grid: SmallGrid, label: str) -> list[str]:
    """The runs without noise of a label."""
    return [
        str(cell.folder) for cell in grid.planned if cell.label == label and ("train_noise", 0.25) not in cell.point
    ]


def test_differences_are_those_of_the_ranks(small_grid: SmallGrid) -> None:
    comparison = compare_runs(named_runs(folders(small_grid, "SASRec") + folders(small_grid, "content")), ["ndcg@10"])
    found = comparison.tests["content", "toy", "ndcg@10"]
    values = {
        label: np.mean([per_user(np.load(Path(f) / "ranks.npz")["test_rank"], "ndcg@10") for f in folders(small_grid, label)], axis=0)
        for label in ("SASRec", "content")
    }  # fmt: skip
    assert found.users == 60
    assert found.difference == pytest.approx((values["content"] - values["SASRec"]).mean(), abs=1e-6)
    assert comparison.table.cells["content", "toy", "ndcg@10"].p == pytest.approx(found.permutation)
    assert not any("candidates" in note for note in comparison.table.notes)


def test_command_writes_three_tables(small_grid: SmallGrid, workplace: Path, capsys: pytest.CaptureFixture) -> None:
    plain, masked = folders(small_grid, "SASRec"), folders(small_grid, "GRU4Rec")
    assert main(["compare", *plain, *masked, "--metrics", "hit@5", "--test=wilcoxon", "--output=out"]) == 0
    out = capsys.readouterr().out
    assert "Paired tests over users against SASRec" in out
    assert "| GRU4Rec | toy | Hit@5 | 60 |" in out
    for kind in ("md", "tex", "csv"):
        assert Path(f"out/table.{kind}").stat().st_size > 0


def test_the_reference_is_the_plain_backbone_wherever_it_stands(small_grid: SmallGrid) -> None:
    """Last in the list, or named by the user."""
    runs = named_runs(
        [*folders(small_grid, "content"), *folders(small_grid, "GRU4Rec"), *folders(small_grid, "SASRec")]
    )
    assert compare_runs(runs, ["hit@10"]).reference == "SASRec"
    named = compare_runs(runs, ["hit@10"], against="GRU4Rec")
    assert "against GRU4Rec" in str(named)
    assert {label for label, _, _ in named.tests} == {"SASRec", "content"}
    with pytest.raises(UserError, match="--reference nobody: no run has this label"):
        compare_runs(runs, ["hit@10"], against="nobody")


def test_names_and_runs_that_look_alike(small_grid: SmallGrid) -> None:
    (one, two) = folders(small_grid, "SASRec")
    assert [run.label for run in named_runs([f"a={one}", f"b={one}"])] == ["a", "b"]
    by_name = named_runs([f"a={Path(one).name}", Path(two).name], str(Path(one).parent))
    assert [(run.label, run.folder) for run in by_name] == [("a", Path(one)), ("SASRec", Path(two))]
    noisy = next(
        str(c.folder) for c in small_grid.planned if c.label == "SASRec" and c.point == (("train_noise", 0.25),)
    )
    assert [run.label for run in named_runs([one, noisy])] == [Path(one).name, Path(noisy).name]
    with pytest.raises(UserError, match="nothing to compare"):
        compare_runs(named_runs([one, two]), ["hit@10"])


def test_other_candidates_are_noted(small_grid: SmallGrid, tmp_path: Path) -> None:
    one = Path(folders(small_grid, "SASRec")[0])
    other = tmp_path / "other"
    shutil.copytree(one, other)
    arrays = dict(np.load(other / "negatives.npz"))
    arrays["test_negatives"] = np.roll(arrays["test_negatives"], 1, axis=0)
    np.savez(other / "negatives.npz", **arrays)
    assert _other_candidates(one, other)


def test_candidates_of_the_first_release_are_compared_with_todays(small_grid: SmallGrid, tmp_path: Path) -> None:
    """Release 0.1 wrote tokens, and runs of before and after stand in one comparison."""
    one = Path(folders(small_grid, "SASRec")[0])
    other = tmp_path / "other"
    shutil.copytree(one, other)
    arrays = dict(np.load(other / "negatives.npz"))
    items = arrays.pop("items")
    arrays |= {name: items[arrays[name]] for name in arrays if not name.endswith("_user")}
    np.savez(other / "negatives.npz", **arrays)
    assert not _other_candidates(one, other)
    arrays["test_negatives"] = np.roll(arrays["test_negatives"], 1, axis=0)
    np.savez(other / "negatives.npz", **arrays)
    assert _other_candidates(one, other)


def _other_candidates(one: Path, other: Path) -> bool:
    comparison = compare_runs(named_runs([f"a={one}", f"b={other}"]), ["hit@10"])
    return any("did not rank the same candidates" in note for note in comparison.table.notes)


def test_unfinished_run(workplace: Path, capsys: pytest.CaptureFixture) -> None:
    Path("empty").mkdir()
    assert main(["compare", "empty", "empty"]) == 2
    assert "not the folder of a finished run" in capsys.readouterr().err


def test_result_files_say_how_much_was_replaced(small_grid: SmallGrid) -> None:
    for cell in small_grid.planned:
        data = json.loads((cell.folder / "result.json").read_text())["data"]
        share = dict(cell.point).get("train_noise", 0.0)
        assert data["replaced"] == round(share * (data["interactions"] - 2 * data["users"]))
