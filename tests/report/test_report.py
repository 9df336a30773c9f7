"""The report of one run and of several."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.capture import mask_gates
from recbole_denoiser.cli.main import main
from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments import canvas
from recbole_denoiser.experiments.paper import load_paper_table
from recbole_denoiser.experiments.stats import per_user
from recbole_denoiser.report.figures import Curve, kept_figure, losses_figure, validation_figure
from recbole_denoiser.report.groups import group_seeds, references
from recbole_denoiser.report.html import fill, json_block
from recbole_denoiser.report.metrics import differences, measured
from recbole_denoiser.report.report_page import write_report
from recbole_denoiser.report.runs import differing_settings, names_of
from recbole_denoiser.runs.record import Run, find_runs, load_run


@pytest.fixture(scope="module")
def runs(train_toy: Any, noisy_run: Path) -> list[Run]:
    """Two shares of noise under one label, a plain backbone and a RecBole model."""
    clean = train_toy(random_keep=0.5, mask_form="product", run_name="clean")
    plain = train_toy(denoise=False, target_denoise="none", run_name="plain", label="<b>plain</b> & $x$")
    gru = train_toy("GRU4Rec", run_name="gru")
    quality = {"layer": 1, "injected": 0.3, "pruned": 0.5, "precision": 0.31, "recall": None, "gate_auc": 0.5}
    (noisy_run / "pruning.json").write_text(json.dumps({"layers": [quality]}))
    return [load_run(folder) for folder in (clean, noisy_run, plain, gru)]


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report(runs, file)
    return file


def test_all_parts_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in (
        "Results",
        "Differences to &lt;b&gt;plain",
        "Training",
        "Masks",
        "Noise",
        "Settings",
        "attention AUC",
    ):
        assert words in text
    assert text.count("<figure>") == 8  # metrics, losses, validation, kept, two masks, two noise curves
    assert "&lt;b&gt;plain&lt;/b&gt; &amp; $x$" in text
    assert "<b>plain" not in text
    pictures = sorted(file.name for file in page.with_name("report_figures").glob("*.png"))
    assert pictures == [
        "kept-1.png", "kept-2.png", "losses-1.png", "losses-2.png", "losses-3.png", "masks-1-1.png", "masks-1-2.png",
        "masks-2-1.png", "masks-2-2.png", "metrics-1.png", "metrics-2.png", "noise-hit10-1.png", "noise-ndcg10-1.png",
        "validation-1.png", "validation-2.png",
    ]  # fmt: skip
    for file in page.with_name("report_figures").glob("*.png"):
        assert file.read_bytes().startswith(b"\x89PNG")


def test_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) > 8 and all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "default-src 'none'" in text
    assert text.count("<script") == 1


def test_numbers_of_the_page(runs: list[Run], page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for run in runs:
        assert f"{run.test['ndcg@10']:.4f}" in text
        assert f"{run.valid['mrr@5']:.4f}" in text
    entry = next(row for row in measured(runs[:1], load_paper_table()) if row.metric == "hit@10")
    values = per_user(runs[0].ranks().rank, "hit@10")
    assert entry.test == pytest.approx(values.mean(), abs=1e-5)
    # against the normal interval of a share
    deviation = np.sqrt(entry.test * (1 - entry.test) / len(values))
    assert entry.interval is not None
    np.testing.assert_allclose(entry.interval, entry.test + 1.96 * deviation * np.array([-1, 1]), atol=0.03)


def test_paper_values_stand_beside(runs: list[Run]) -> None:
    paper = load_paper_table()
    label, dataset = "SASRec", "ml-1m"

    def published(**changes: Any) -> dict[str, float | None]:
        settings = {**runs[0].config, "eval_args": {"mode": {"test": "uni100"}}, **changes}
        rows = measured([replace(runs[0], label=label, dataset=dataset, config=settings)], paper)
        return {row.metric: row.paper for row in rows}

    assert published()["hit@10"] == paper.value(label, dataset, "hit@10") is not None
    assert published()["mrr@5"] is None
    assert published(train_noise=0.1)["hit@10"] is None  # the paper's values are of clean data ...
    assert published(eval_args={"mode": {"test": "full"}})["hit@10"] is None  # ... and of 100 negatives


def test_differences_are_paired_with_the_plain_backbone(runs: list[Run]) -> None:
    """Every run against the plain one, though it is third in the list; at 30 % noise there is no plain run."""
    groups = group_seeds(runs)
    clean, noisy, plain, gru = groups
    assert {name: base.name for name, base in references(groups).items()} == {
        clean.name: plain.name, noisy.name: plain.name, gru.name: plain.name,
    }  # fmt: skip
    found, notes = differences(groups, ["hit@10", "ndcg@10"])
    assert notes == []
    assert [entry.run for entry in found[::2]] == [clean.name, noisy.name, gru.name]
    assert found[0].difference == pytest.approx(runs[0].test["hit@10"] - runs[2].test["hit@10"], abs=1e-5)
    assert all(entry.interval[0] <= entry.difference <= entry.interval[1] for entry in found)


def test_a_noisy_run_is_compared_with_the_noisy_backbone(runs: list[Run]) -> None:
    noisy_plain = replace(runs[2], label="noisy plain", config={**runs[2].config, "train_noise": 0.3})
    groups = group_seeds([*runs, noisy_plain])
    bases = {name: base.name for name, base in references(groups).items()}
    assert bases[groups[1].name] == "noisy plain"
    assert bases[groups[0].name] == bases["noisy plain"] == groups[2].name


def test_of_denoised_runs_the_least_denoised_is_the_reference(runs: list[Run]) -> None:
    """--denoise=False alone leaves the detector on: still the better reference than the run with masks before it."""
    common = {"noise_action": "remove", "target_denoise": "truncate"}
    masked = replace(runs[0], config={**runs[0].config, **common, "denoise": True})
    plain = replace(runs[0], label="SASRec", config={**runs[0].config, **common, "denoise": False})
    groups = group_seeds([masked, plain])
    assert {name: base.name for name, base in references(groups).items()} == {groups[0].name: groups[1].name}


def test_a_single_epoch_has_whole_ticks(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[list[float]] = []

    def save(figure: Any, stem: Path, plain_text: bool) -> list[Path]:
        figure.draw_without_rendering()
        for axis in figure.axes:
            left, right = axis.get_xlim()
            ticks.append([tick for tick in axis.get_xticks() if left <= tick <= right])
            assert not axis.yaxis.get_offset_text().get_text()
        return []

    monkeypatch.setattr(canvas, "save", save)
    losses = [{"rec": 1.38900001}, {"rec": 1.38900009}]
    short = [
        replace(run, epochs=[{**run.epochs[0], "losses": loss}]) for run, loss in zip(runs[:2], losses, strict=True)
    ]
    losses_figure(group_seeds(short), tmp_path / "losses")
    assert ticks == [[1]]


def test_seeds_are_one_line(runs: list[Run], tmp_path: Path) -> None:
    """Mean over the seeds by hand; 8 experiments of 3 seeds have a small panel each and no legend that could cover them."""
    many = [
        replace(runs[2], label=f"model {place}", seed=seed, config={**runs[2].config, "seed": seed},
                test={name: value + seed / 100 for name, value in runs[2].test.items()})
        for place in range(8) for seed in (1, 2, 3)
    ]  # fmt: skip
    groups = group_seeds(many)
    assert [(group.name, len(group.runs)) for group in groups] == [(f"model {place}", 3) for place in range(8)]
    row = next(entry for entry in measured(groups[0].runs, load_paper_table()) if entry.metric == "hit@10")
    assert row.test == pytest.approx(runs[2].test["hit@10"] + 0.02)
    assert row.deviation == pytest.approx(0.01)
    curve = Curve.of(groups[0], lambda record: record["losses"].get("rec"))
    assert curve is not None and curve.values.shape == (3, len(runs[2].epochs))
    figure = validation_figure(groups, ["hit@10", "ndcg@10"], tmp_path / "validation")
    assert len(figure.files) == 2 * 8 and figure.legend == []
    assert kept_figure(groups[:2], tmp_path / "kept").files == []


def test_kept_axes_start_at_0(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[float, float]] = []

    def save(figure: Any, stem: Path, plain_text: bool) -> list[Path]:
        limits.extend(axis.get_ylim() for axis in figure.axes)
        return []

    monkeypatch.setattr(canvas, "save", save)
    kept_figure(group_seeds(runs[:2]), tmp_path / "kept")
    assert limits == [(0, 102)] * 2


def test_names_tell_runs_apart(runs: list[Run]) -> None:
    assert names_of(runs[:1]) == ["SASRecDenoiser"]
    assert names_of(runs[:2]) == ["SASRecDenoiser, train_noise 0", "SASRecDenoiser, train_noise 0.3"]
    assert names_of([runs[0], runs[0]]) == ["clean", "clean"]
    elsewhere = replace(runs[0], dataset="other", config={**runs[0].config, "dataset": "other"})
    assert names_of([runs[0], elsewhere]) == ["SASRecDenoiser, toy", "SASRecDenoiser, other"]
    assert dict(differing_settings(runs[:2])) == {"train_noise": ["0", "0.3"]}
    older = replace(runs[1], config={key: v for key, v in runs[1].config.items() if key != "noise_action"})
    today = replace(runs[0], config={**runs[0].config, "noise_action": "none"})
    assert dict(differing_settings([today, older])) == {"train_noise": ["0", "0.3"]}  # before the setting: none


def test_heat_maps_show_the_masks_of_the_checkpoint(runs: list[Run]) -> None:
    gates = mask_gates(runs[0])
    assert gates is not None
    assert [tuple(Z.shape) for Z in gates] == [(1, 8, 8)] * 2
    open_share = [float((Z > 0).float().tril().sum() / torch.ones(8, 8).tril().sum()) for Z in gates]
    assert open_share == pytest.approx([0.5, 0.5], abs=0.02)  # random_keep
    assert mask_gates(runs[2]) is None


def test_heat_maps_follow_the_inference_gate(train_toy: Any) -> None:
    run = load_run(train_toy(epochs=1, run_name="soft"))
    hard = replace(run, config={**run.config, "inference_gate": "hard"})
    for soft, certain in zip(mask_gates(run) or [], mask_gates(hard) or [], strict=True):
        assert 0.5 < float(soft.max()) < 1 and torch.equal(certain, (soft > 0).float())


def test_a_run_without_checkpoint_or_epochs_has_a_report(train_toy: Any, tmp_path: Path) -> None:
    folder = train_toy(epochs=0, run_name="untrained")
    Path(json.loads((folder / "result.json").read_text())["checkpoint"]).unlink()
    write_report([load_run(folder)], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "its masks cannot be shown" in text
    assert "Training" not in text


def test_command(runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(runs[3].folder)]) == 0
    assert (runs[3].folder / "report.html").is_file()
    assert main(["report", "clean", "gru", f"--result_dir={runs[0].folder.parent}", f"-o={tmp_path / 'two.html'}"]) == 0
    assert (tmp_path / "two_figures" / "losses-1.png").is_file()
    assert "two.html" in capsys.readouterr().out
    assert main(["report", "nothing"]) == 2
    assert "'nothing' is not the folder of a finished run" in capsys.readouterr().err
    assert len(find_runs([str(runs[0].folder.parent), str(runs[0].folder)])) >= 4
    with pytest.raises(UserError):
        find_runs([str(tmp_path)])


# ---- standalone pages ----


def test_json_in_a_page_cannot_end_its_block() -> None:
    data = {"title": "</script><!--<script>&\u2028\u2029'\"\\", "emoji": "\U0001f3ac"}
    block = json_block(data)
    inside = re.fullmatch(r'<script type="application/json" id="data">(.*)</script>', block)
    assert inside is not None
    assert not set("<>&\u2028\u2029") & set(inside[1])
    assert json.loads(inside[1]) == data


def test_what_is_filled_in_is_not_filled_again() -> None:
    assert fill("{{a}} {{b}}", a="{{b}}", b="2") == "{{b}} 2"
