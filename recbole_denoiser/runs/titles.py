"""Item titles of a data set, from its .item file, which the runs themselves do not load."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd

from recbole_denoiser.data.atomic import check_header
from recbole_denoiser.integration.config import Config

_TITLE_WORDS = ("title", "name")  # a column of the .item file with one of these in its name holds titles


def read_titles(config: Config) -> dict[str, str]:
    """Item token -> title; empty if the data set has no titles."""
    file = Path(config["data_path"]) / f"{config['dataset']}.item"
    if not file.is_file():
        return {}
    separator, encoding = config["field_separator"], config["encoding"] or "utf-8"
    columns = check_header(str(file), separator, encoding)
    names = [column.partition(":")[0] for column in columns]
    title = next((name for word in _TITLE_WORDS for name in names if word in name.lower()), None)
    if title is None or config["ITEM_ID_FIELD"] not in names:
        return {}
    # quotes are ordinary characters: one stray quote in a title must not swallow the rows behind it
    table = pd.read_csv(
        file,
        sep=separator,
        names=names,
        header=0,
        usecols=[config["ITEM_ID_FIELD"], title],
        dtype=str,
        keep_default_na=False,
        encoding=encoding,
        quoting=csv.QUOTE_NONE,
        engine="c" if len(separator) == 1 else "python",
    )
    pairs = zip(table[config["ITEM_ID_FIELD"]], table[title], strict=True)
    return {str(item): _unquoted(str(text)) for item, text in pairs if text}


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text
