"""A data set's .inter file as it stands: no filtering and no split, each interaction with its line."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from recbole_denoiser.data.atomic import check_header, check_row_widths, explain_bad_value
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config


@dataclass
class Interactions:
    """Sorted by user and time; equal times keep the order of the file, which is also the order without times."""

    file: Path
    users: np.ndarray  # tokens by code
    items: np.ndarray
    user: np.ndarray  # [N] codes
    item: np.ndarray  # [N] codes
    time: np.ndarray | None  # [N] float64
    row: np.ndarray  # [N] number of the interaction in the file, from 0

    def __len__(self) -> int:
        return len(self.row)


def read_interactions(config: Config) -> Interactions:
    """Users, items and times of the data set that the settings name."""
    name, folder = config["dataset"], Path(config["data_path"])
    file = folder / f"{name}.inter"
    if not file.is_file():
        raise UserError(
            f"Data set '{name}' not found: there is no {file}. Set --data_path to the folder that holds '{name}/'."
        )
    separator, encoding = config["field_separator"], config["encoding"] or "utf-8"
    header = check_header(str(file), separator, encoding)
    check_row_widths(str(file), separator, encoding, len(header))
    names = [column.partition(":")[0] for column in header]
    user, item, time = (config[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD"))
    for key, field in (("USER_ID_FIELD", user), ("ITEM_ID_FIELD", item)):
        if field not in names:
            raise UserError(f"{file} has no column '{field}' ({key}); it has {', '.join(names)}.")
    timed = time in names
    try:
        table = pd.read_csv(
            file,
            sep=separator,
            names=names,
            header=0,
            usecols=[user, item, *([time] if timed else [])],
            dtype={user: str, item: str, **({time: np.float64} if timed else {})},
            keep_default_na=False,
            encoding=encoding,
            quoting=csv.QUOTE_NONE,
            engine="c" if len(separator) == 1 else "python",
        )
    except (ValueError, OverflowError, pd.errors.ParserError) as error:
        raise explain_bad_value(str(file), separator, encoding, error) from error
    if table.empty:
        raise UserError(f"{file} has a header but no rows.")
    moment = table[time].to_numpy() if timed else None
    if moment is not None and not np.isfinite(moment).all():
        line = int(np.flatnonzero(~np.isfinite(moment))[0]) + 2
        raise UserError(f"{file}, line {line}: the time is missing or infinite.")
    user_code, users = pd.factorize(table[user], sort=True)
    item_code, items = pd.factorize(table[item], sort=True)
    row = np.arange(len(table))
    order = np.lexsort((row, row if moment is None else moment, user_code))
    return Interactions(
        file,
        np.asarray(users, dtype=str),
        np.asarray(items, dtype=str),
        user_code[order],
        item_code[order],
        None if moment is None else moment[order],
        row[order],
    )
