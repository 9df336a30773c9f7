"""recbole-denoiser noise and prepare as commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recbole_denoiser.cli.main import main
from recbole_denoiser.integration.config import Config
from recbole_denoiser.runs import pipeline

HEADER = "item_id:token\trating:float\tuser_id:token\ttimestamp:float\n"


def read(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text().splitlines()]


def test_the_copy_is_what_train_noise_trains_on(workplace: Path, toy: Path, settings: dict) -> None:
    arguments = ["noise", "toy", "--share=0.2", "--name=bad", f"--data_path={toy}", "--MAX_ITEM_LIST_LENGTH=10"]
    assert main(arguments) == 0
    before, after = read(toy / "toy" / "toy.inter"), read(Path("dataset/bad/bad.inter"))
    assert [(row[0], row[2]) for row in before] == [(row[0], row[2]) for row in after]
    noisy = pipeline.load_data(Config("SASRecDenoiser", "toy", flags={**settings, "train_noise": 0.2}))
    copied = pipeline.load_data(
        Config("SASRecDenoiser", "bad", ["dataset/bad/bad.yaml"], flags={**settings, "data_path": "dataset"})
    )
    tokens = [
        data.dataset.field2id_token["item_id"][data.dataset.flat.columns["item_id"].numpy()] for data in (noisy, copied)
    ]
    assert tokens[0].tolist() == tokens[1].tolist()
    record = np.load("dataset/bad/bad.noise.npz")
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert len(record["user"]) == changed == round(0.2 * (len(before) - 1 - 2 * 60))
    assert record["user"].tolist() == noisy.dataset.noise_arrays()["user"].tolist()


def test_other_columns_files_and_order_stay(workplace: Path, toy: Path) -> None:
    folder = Path("data/odd")
    folder.mkdir(parents=True)
    rows = read(toy / "toy" / "toy.inter")[1:]
    (folder / "odd.inter").write_text(HEADER + "".join(f"{i}\t{n % 5}\t{u}\t{t}\n" for n, (u, i, t) in enumerate(rows)))
    (folder / "odd.item").write_text("item_id:token\ttitle:token_seq\ni1\tOne\n")
    assert main(["noise", "odd", "--share=0.1", "--data_path=data", "--output=data", "--noise_seed=3"]) == 0
    before, after = read(folder / "odd.inter"), read(Path("data/odd-noise10/odd-noise10.inter"))
    assert [row[1:] for row in before] == [row[1:] for row in after]
    assert sum(a != b for a, b in zip(before, after, strict=True)) == round(0.1 * (len(rows) - 120))
    assert Path("data/odd-noise10/odd-noise10.item").read_text() == (folder / "odd.item").read_text()
    assert int(np.load("data/odd-noise10/odd-noise10.noise.npz")["seed"]) == 3


def test_mistakes_leave_nothing_behind(workplace: Path, toy: Path, capsys: pytest.CaptureFixture) -> None:
    where = [f"--data_path={toy}", "--output=out"]
    for arguments, words in (
        (["noise", "toy", "--share=1.5", *where], "train_noise = 1.5"),
        (["noise", "toy", "--share=0", *where], "replace nothing"),
        (["noise", "nowhere", "--share=0.1", *where], "not found"),
        (["noise", "toy", "--share=0.1", "--user_inter_num_interval=[10,inf)", *where], "filter the file first"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
    assert not list(Path().glob("out/*"))
    assert main(["noise", "toy", "--share=0.1", *where]) == 0
    assert main(["noise", "toy", "--share=0.1", *where]) == 2
    assert "exists already" in capsys.readouterr().err


def test_prepare_command(workplace: Path, capsys: pytest.CaptureFixture) -> None:
    lines = [f"{u}::{i}::5::{1_000 + 10 * u + i}" for u in range(1, 7) for i in range(1, 8)]
    Path("ratings.dat").write_text("\n".join([*lines, "broken"]) + "\n")
    assert main(["prepare", "ml-1m", "--raw=ratings.dat", "--output=data"]) == 0
    out = capsys.readouterr().out
    assert "Table 1 (MovieLens)" in out
    assert "malformed" in out
    assert len(read(Path("data/ml-1m/ml-1m.inter"))) == 1 + 42
    assert main(["prepare", "ml-1m", "--raw=ratings.dat", "--output=data"]) == 2
    assert main(["prepare", "ml-1m", "--raw=ratings.dat", "--output=new", "--on_malformed=fail"]) == 2
    assert "line 43" in capsys.readouterr().err
    assert not Path("new/ml-1m").exists()
