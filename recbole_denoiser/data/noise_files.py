"""``recbole-denoiser noise``: a copy of a data set's atomic files with noise in the training part (section 5.3).

Which items are replaced, and by what, is decided as for the configuration key ``train_noise`` (noise.py). The .inter
file is copied line by line, so that every column and the order stay; only the replaced items differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.data.atomic import check_header
from recbole_denoiser.data.copies import new_copy, original_settings
from recbole_denoiser.data.dataset import SequenceDataset
from recbole_denoiser.errors import UserError
from recbole_denoiser.files import require_plain_name
from recbole_denoiser.integration.config import Config


@dataclass(frozen=True)
class NoisyCopy:
    """What was written."""

    name: str
    folder: Path
    replaced: int
    training: int
    interactions: int
    seed: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.replaced:,} of {self.training:,} training items replaced "
            f"({self.replaced / self.training:.2%}), {self.interactions:,} interactions, seed {self.seed}\n"
            f"{self.folder / self.name}.inter and {self.name}.noise.npz (where the noise is); use it with "
            f"--dataset={self.name} --data_path={self.folder.parent} --config_files {self.folder / self.name}.yaml"
        )


def write_noisy(dataset: str, share: float, output: Path, name: str | None, settings: dict[str, Any]) -> NoisyCopy:
    """Write ``<output>/<name>/`` with the atomic files, the noise record and the data set's settings."""
    config = Config("SASRecDenoiser", dataset, flags={**settings, "train_noise": share, "noise_action": "none"})
    name = require_plain_name(name or f"{dataset}-noise{100 * share:g}", "--name")
    target, source = output / name, Path(config["data_path"])
    if not share:
        raise UserError("--share 0 would replace nothing.")
    data = SequenceDataset(config)
    data.build()
    assert data.noise is not None
    record = data.noise_arrays()
    with new_copy(source, dataset, target, original_settings(dataset, settings)) as folder:
        _copy_inter(source / f"{dataset}.inter", folder / f"{name}.inter", config, record, len(data.source))
        np.savez_compressed(folder / f"{name}.noise.npz", **record)  # type: ignore[arg-type]
    return NoisyCopy(
        name, target, len(data.noise.index), len(data.noise.eligible), len(data.source), int(record["seed"])
    )


def _copy_inter(source: Path, target: Path, config: Config, record: dict[str, np.ndarray], interactions: int) -> None:
    separator, encoding = config["field_separator"], config["encoding"]
    names = [column.partition(":")[0] for column in check_header(str(source), separator, encoding)]
    user, item, time = (names.index(config[key]) for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD"))
    with source.open(encoding=encoding, newline="") as stream:
        header, *lines = stream.read().splitlines(keepends=True)
    lines = [line for line in lines if line.strip("\r\n")]
    if len(lines) != interactions:
        raise UserError(
            f"{source} has {len(lines):,} interactions, of which the data set's settings keep {interactions:,}. Noise "
            f"is drawn after filtering, so filter the file first."
        )
    cells = [line.rstrip("\r\n").split(separator) for line in lines]
    users = np.array([row[user] for row in cells])
    order = np.lexsort((np.array([float(row[time]) for row in cells]), users))  # stable: ties keep file order
    begin = dict(zip(*np.unique(users[order], return_index=True), strict=True))
    for who, place, original, drawn in zip(
        record["user"], record["position"], record["original"], record["item"], strict=True
    ):
        row = cells[order[begin[who] + place]]
        if row[item] != original:
            raise UserError(f"{source}: {who}'s item {place + 1} is {row[item]}, not {original} as read by RecBole.")
        row[item] = drawn
    with target.open("w", encoding=encoding, newline="") as stream:
        stream.write(header)
        stream.writelines(separator.join(row) + "\n" for row in cells)
