"""``recbole-denoiser noise``: a copy of a data set's atomic files with noise in the training part (section 5.3).

Which items are replaced, and by what, is decided as for the configuration key ``train_noise`` (noise.py). The .inter
file is copied line by line, so that every column and the order stay; only the replaced items differ, and an inserted
one is a copy of the line it stands behind with another item.
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
    kind: str
    injected: int
    training: int
    interactions: int
    seed: int

    def __str__(self) -> str:
        done = f"inserted among {self.training:,} training items"
        if self.kind != "insert":
            done = f"of {self.training:,} training items replaced ({self.injected / self.training:.2%})"
        return (
            f"{self.name}: {self.injected:,} {done}, kind {self.kind}, {self.interactions:,} interactions, "
            f"seed {self.seed}\n"
            f"{self.folder / self.name}.inter and {self.name}.noise.npz (where the noise is); use it with "
            f"--dataset={self.name} --data_path={self.folder.parent} --config_files {self.folder / self.name}.yaml"
        )


def write_noisy(
    dataset: str, share: float, output: Path, name: str | None, settings: dict[str, Any], kind: str = "replace"
) -> NoisyCopy:
    """Write ``<output>/<name>/`` with the atomic files, the noise record and the data set's settings."""
    own = {"train_noise": share, "train_noise_kind": kind, "noise_action": "none"}
    config = Config("SASRecDenoiser", dataset, flags={**settings, **own})
    name = name or f"{dataset}-{'noise' if kind == 'replace' else kind}{100 * share:g}"
    name = require_plain_name(name, "--name")
    target, source = output / name, Path(config["data_path"])
    if not share:
        raise UserError("--share 0 would replace nothing.")
    data = SequenceDataset(config)
    data.build()
    assert data.noise is not None
    record = data.noise_arrays()
    with new_copy(source, dataset, target, original_settings(dataset, settings)) as folder:
        _copy_inter(source / f"{dataset}.inter", folder / f"{name}.inter", config, _by_place(data), len(data.source))
        np.savez_compressed(folder / f"{name}.noise.npz", **record)  # type: ignore[arg-type]
    injected, eligible = len(data.noise.index), len(data.noise.eligible)
    return NoisyCopy(name, target, kind, injected, eligible, len(data.view), int(record["seed"]))


Place = tuple[str, int]  # user and place in the user's complete history (0 = oldest)


def _by_place(data: SequenceDataset) -> dict[Place, tuple[str, str]]:
    """What noise does at each place of the clean histories: the item that was there ("": it stays, and the other is
    inserted behind it) and the one that comes."""
    noise = data.noise
    assert noise is not None
    users, items = data.field2id_token[data.uid_field], data.field2id_token[data.iid_field]
    owner = data.source.columns[data.uid_field].numpy()[noise.anchor]
    place = noise.anchor - data.source.user_start[noise.anchor]
    originals = [str(items[item]) if item else "" for item in noise.original]
    return {
        (str(users[user]), int(where)): (original, str(items[drawn]))
        for user, where, original, drawn in zip(owner, place, originals, noise.drawn, strict=True)
    }


def _copy_inter(
    source: Path, target: Path, config: Config, noise: dict[Place, tuple[str, str]], interactions: int
) -> None:
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
    inserted: dict[int, list[str]] = {}  # line -> what stands behind it
    for (who, place), (original, drawn) in noise.items():
        line = int(order[begin[who] + place])
        if not original:
            inserted[line] = [*cells[line][:item], drawn, *cells[line][item + 1 :]]
        elif cells[line][item] != original:
            raise UserError(
                f"{source}: {who}'s item {place + 1} is {cells[line][item]}, not {original} as read by RecBole."
            )
        else:
            cells[line][item] = drawn
    with target.open("w", encoding=encoding, newline="") as stream:
        stream.write(header)
        for line, row in enumerate(cells):
            stream.writelines(separator.join(part) + "\n" for part in (row, inserted.get(line)) if part is not None)
