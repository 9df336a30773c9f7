"""The noise detector on a data set's atomic files, and what is written of it: noise.csv and a clean copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_denoiser.data.copies import new_copy, original_settings
from recbole_denoiser.data.detection import known_quality
from recbole_denoiser.data.interactions import Interactions, read_interactions
from recbole_denoiser.data.items import item_texts, read_titles
from recbole_denoiser.detect import NoiseReport, detect_flat
from recbole_denoiser.errors import UserError
from recbole_denoiser.files import read_arrays, write_atomically
from recbole_denoiser.integration.config import Config

KEYS = ("user", "item", "time", "label")
NAMES = {"user_id": "user", "item_id": "item", "timestamp": "time", "noise": "label"}  # other headers of labels


@dataclass
class Detected:
    """Interactions of a data set and the detector's report about them, in one order (user, time)."""

    config: Config
    data: Interactions
    report: NoiseReport
    labels: np.ndarray | None = None  # [N] 1: known noise, 0: known clean, -1: not known
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """An interaction goes where posterior * bound > threshold: the lower bound of the share over the share."""
        report = self.report
        if report.share <= 0 or report.verdict != "judged":
            return 0.0
        return report.share_interval[0] / report.share

    def known_quality(self) -> dict[str, float | None] | None:
        """AUC of the posterior, precision and recall of what is recommended for removal, against the labels."""
        if self.labels is None:
            return None
        known = self.labels >= 0
        found = known_quality(self.report.posterior[known], self.report.remove[known], self.labels[known] == 1)
        return {**found, "labelled": float(known.sum())}

    def frame(self) -> pd.DataFrame:
        """A row per interaction, in the order of the file: user, item, time, posterior, remove, label, features."""
        data, report = self.data, self.report
        columns: dict[str, Any] = {"user": data.users[data.user], "item": data.items[data.item]}
        if data.time is not None:
            columns["time"] = data.time
        columns["posterior"] = report.posterior
        columns["remove"] = report.remove.astype(int)
        if self.labels is not None:
            columns["label"] = self.labels
        for number, name in enumerate(report.feature_names):
            columns[name] = report.features[:, number]
        back = np.argsort(data.row)
        return pd.DataFrame({name: values[back] for name, values in columns.items()})

    def write_csv(self, file: Path) -> Path:
        """noise.csv."""
        table = self.frame()
        write_atomically(file, lambda stream: table.to_csv(stream, index=False, float_format="%.6g"))
        return file


def detect_dataset(
    dataset: str,
    settings: dict[str, Any],
    labels: Path | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    progress: bool = False,
) -> Detected:
    """Read the .inter file (and texts of the .item file) and judge every interaction."""
    config = Config("SASRecDenoiser", dataset, flags=settings)
    data = read_interactions(config)
    label = None if labels is None else read_labels(labels, data)
    texts = item_texts(config)
    known = [texts.get(item, "") for item in data.items.tolist()] if texts else None
    report = detect_flat(
        data.user, data.item, len(data.items), texts=known, seed=seed, threshold=threshold, progress=progress
    )
    return Detected(config, data, report, label, read_titles(config))


def read_labels(file: Path, data: Interactions) -> np.ndarray:
    """[N] 1 noise, 0 clean, -1 not in the file.

    Text with commas, semicolons or tabs and the columns user, item, time and label (or as RecBole writes them, see
    NAMES), or the .noise.npz of ``recbole-denoiser noise``. Rows in any order; what a user did with an item several
    times (at one time, where there are times) is taken in the order of the lines.
    """
    if not file.is_file():
        raise UserError(f"Labels '{file}' do not exist.")
    if file.suffix == ".npz":
        return _noise_record(file, data)
    try:
        with file.open(encoding="utf-8-sig") as stream:
            header = stream.readline()
        separator = max("\t;,", key=header.count)
        table = pd.read_csv(file, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (ValueError, OSError, pd.errors.ParserError) as error:
        raise UserError(f"Labels '{file}' cannot be read: {error}.") from error
    names = [str(name).partition(":")[0].strip().lower() for name in table.columns]
    table.columns = pd.Index([NAMES.get(name, name) for name in names])
    if twice := [name for name in KEYS if list(table.columns).count(name) > 1]:
        raise UserError(f"{file} has two columns that mean {twice[0]}: {', '.join(names)}.")
    missing = [name for name in ("user", "item", "label") if name not in table.columns]
    if missing:
        raise UserError(
            f"{file} has no column {', '.join(missing)}; user, item, label and perhaps time are needed, it has "
            f"{', '.join(map(str, table.columns))}."
        )
    label = table["label"].str.strip().str.lower().map({"1": 1, "0": 0, "true": 1, "false": 0, "1.0": 1, "0.0": 0})
    if label.isna().any():
        row = int(np.flatnonzero(label.isna())[0])
        raise UserError(f"{file}, line {row + 2}: label '{table['label'].iloc[row]}'; allowed: 1 (noise), 0 (clean).")
    timed = "time" in table.columns and data.time is not None
    keys = ["user", "item", *(["time"] if timed else [])]
    ours = pd.DataFrame({"user": data.users[data.user], "item": data.items[data.item]})
    if timed:
        ours["time"] = data.time
        table["time"] = pd.to_numeric(table["time"], errors="coerce")
    ours["again"], table["again"] = ours.groupby(keys).cumcount(), table.groupby(keys).cumcount()
    table["label"] = label.astype(np.int64)
    table["line"] = np.arange(len(table)) + 2
    joined = ours.merge(table[[*keys, "again", "label", "line"]], on=[*keys, "again"], how="left")
    unknown = table.loc[~table["line"].isin(joined["line"])]
    if len(unknown):
        first = unknown.iloc[0]
        raise UserError(
            f"{file}, line {first['line']}: {data.file} has no such interaction of user {first['user']} with item "
            f"{first['item']} ({len(unknown):,} such lines)."
        )
    return joined["label"].fillna(-1).to_numpy(np.int64)


def _noise_record(file: Path, data: Interactions) -> np.ndarray:
    """Users and places in their history of the replaced items; everything else is clean."""
    user, position, item = read_arrays(file, "user", "position", "item").values()
    if not (user.shape == position.shape == item.shape == (len(position),)) or position.dtype.kind not in "iu":
        raise UserError(f"{file} is no record of noise: user, position and item must be lists of one length.")
    code = {token: number for number, token in enumerate(data.users.tolist())}
    if unknown := [name for name in user.tolist() if name not in code]:
        raise UserError(f"{file} is of other data: {data.file} has no user '{unknown[0]}'.")
    start = np.searchsorted(data.user, [code[name] for name in user.tolist()])
    place = start + position
    if len(place) and (position.min() < 0 or place.max() >= len(data) or (data.items[data.item[place]] != item).any()):
        raise UserError(f"{file} is of other data: its items do not stand at those places of {data.file}.")
    label = np.zeros(len(data), np.int64)
    label[place] = 1
    return label


@dataclass(frozen=True)
class CleanCopy:
    """What was written."""

    folder: Path
    removed: int
    interactions: int

    def __str__(self) -> str:
        name = self.folder.name
        return (
            f"{self.removed:,} of {self.interactions:,} interactions removed ({self.removed / self.interactions:.2%})\n"
            f"{self.folder / name}.inter and {name}.removed.csv (what was removed); use it with "
            f"--dataset={name} --data_path={self.folder.parent} --config_files {self.folder / name}.yaml"
        )


def write_clean(found: Detected, target: Path, keep_last: int = 0) -> CleanCopy:
    """Atomic files without what the report recommends to remove; ``keep_last`` items of every user stay in any case."""
    data, config = found.data, found.config
    remove = found.report.remove.copy()
    if keep_last:
        end = np.searchsorted(data.user, data.user, side="right")
        remove[end - np.arange(len(data)) <= keep_last] = False
    gone = np.zeros(len(data), bool)
    gone[data.row] = remove
    table = found.frame()[gone]
    with new_copy(data.file.parent, config["dataset"], target, original_settings(config["dataset"], {})) as folder:
        encoding = config["encoding"] or "utf-8"
        with data.file.open(encoding=encoding, newline="") as stream:
            header, *lines = stream
        lines = [line for line in lines if line.strip("\r\n")]
        if len(lines) != len(data):
            raise UserError(f"{data.file} has {len(lines):,} lines with interactions, but {len(data):,} were read.")
        with (folder / f"{target.name}.inter").open("w", encoding=encoding, newline="") as stream:
            stream.write(header)
            stream.writelines(line for line, out in zip(lines, gone, strict=True) if not out)
        table.to_csv(folder / f"{target.name}.removed.csv", index=False, float_format="%.6g")
    return CleanCopy(target, int(remove.sum()), len(data))
