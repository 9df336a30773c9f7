"""Texts of items for the noise detector: what the .item file says in words about each item."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_denoiser.data.atomic import check_header


def item_texts(config: Any) -> dict[str, str]:
    """Item token -> all its token and token_seq columns, joined; empty where the data set has no such columns.

    The file is read here and not by RecBole: what a run loads (load_col) does not decide what the detector knows.
    """
    file = Path(config["data_path"]) / f"{config['dataset']}.item"
    if not file.is_file():
        return {}
    separator, encoding = config["field_separator"], config["encoding"] or "utf-8"
    columns = check_header(str(file), separator, encoding)
    names = [column.partition(":")[0] for column in columns]
    item = config["ITEM_ID_FIELD"]
    told = [
        name
        for name, column in zip(names, columns, strict=True)
        if column.endswith((":token", ":token_seq")) and name != item
    ]
    if item not in names or not told:
        return {}
    # quotes are ordinary characters: one stray quote must not swallow the rows behind it
    table = pd.read_csv(
        file,
        sep=separator,
        names=names,
        header=0,
        usecols=[item, *told],
        dtype=str,
        keep_default_na=False,
        encoding=encoding,
        quoting=csv.QUOTE_NONE,
        engine="c" if len(separator) == 1 else "python",
    )
    joined = table[told].agg(" ".join, axis=1)
    return dict(zip(table[item], joined, strict=True))
