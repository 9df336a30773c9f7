"""What a data set's .item file says about its items: titles for people, texts for the noise detector."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd

from recbole_denoiser.data.atomic import check_header
from recbole_denoiser.errors import printable
from recbole_denoiser.integration.config import Config

_TITLE_WORDS = ("title", "name")  # a column with one of these in its name holds titles
_TEXT_TYPES = ("token", "token_seq")


def read_titles(config: Config) -> dict[str, str]:
    """Item token -> title, control characters written out; empty if the data set has no titles."""
    names = list(_columns(config))
    title = next((name for word in _TITLE_WORDS for name in names if word in name.lower()), None)
    if title is None or config["ITEM_ID_FIELD"] not in names:
        return {}
    table = _read(config, [title])
    pairs = zip(table[config["ITEM_ID_FIELD"]], table[title], strict=True)
    return {str(item): printable(str(text), keep="") for item, text in pairs if text}


def item_texts(config: Config) -> dict[str, str]:
    """Item token -> all its token and token_seq columns, joined; empty where the data set has no such columns.

    The file is read here and not by RecBole: what a run loads (load_col) does not decide what the detector knows.
    """
    columns = _columns(config)
    own = config["ITEM_ID_FIELD"]
    told = [name for name, kind in columns.items() if kind in _TEXT_TYPES and name != own]
    if own not in columns or not told:
        return {}
    table = _read(config, told)
    return dict(zip(table[own], table[told].agg(" ".join, axis=1), strict=True))


def _file(config: Config) -> Path:
    return Path(config["data_path"]) / f"{config['dataset']}.item"


def _columns(config: Config) -> dict[str, str]:
    """Name -> type of the columns; empty without a file."""
    file = _file(config)
    if not file.is_file():
        return {}
    header = check_header(str(file), config["field_separator"], config["encoding"] or "utf-8")
    return {name: kind for name, _, kind in (column.partition(":") for column in header)}


def _read(config: Config, columns: list[str]) -> pd.DataFrame:
    """The ids and some columns as text.

    Quotes are ordinary characters: one stray quote in a title must not swallow the rows behind it.
    """
    separator = config["field_separator"]
    table = pd.read_csv(
        _file(config),
        sep=separator,
        names=list(_columns(config)),
        header=0,
        usecols=[config["ITEM_ID_FIELD"], *columns],
        dtype=str,
        keep_default_na=False,
        encoding=config["encoding"] or "utf-8",
        quoting=csv.QUOTE_NONE,
        engine="c" if len(separator) == 1 else "python",
    ).fillna("")
    return table.apply(lambda column: column.map(_unquoted))


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text
