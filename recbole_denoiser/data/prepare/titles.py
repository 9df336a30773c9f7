"""Item titles of the raw data sets: in MovieLens' own archive, and in the metadata files of Amazon and Steam.

Amazon and Steam publish titles in a file of their own. It is used when it lies beside the raw file under its
published name: ``meta_<Category>.json[.gz]`` or ``steam_games.json[.gz]``.
"""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path

from recbole_denoiser.data.prepare.raw import BAD_LINE, is_in_zip, parse_record, read_lines

# columns of the .item file after item_id, as RecBole's header writes them
MOVIELENS_COLUMNS = ("movie_title:token_seq", "genre:token_seq")
TITLE_COLUMNS = ("title:token",)


def clean_text(text: str) -> str:
    """Text that fits one field of an atomic file: no tab or line end, no double quote (RecBole reads it as quoting)."""
    return " ".join(text.replace('"', "'").split())


def movielens_titles(raw: Path, items: Container[str], progress: bool) -> dict[str, tuple[str, ...]]:
    """item -> (title, genres) from movies.dat: ``item::title::genre|genre``, Latin-1."""
    movies = raw if is_in_zip(raw) else raw.with_name("movies.dat")
    titles: dict[str, tuple[str, ...]] = {}
    if not movies.is_file():
        return titles
    for _, line in read_lines(movies, "movies.dat", progress):
        fields = line.decode("latin-1").strip().split("::")
        if len(fields) == 3 and fields[0] in items:
            titles[fields[0]] = (clean_text(fields[1]), clean_text(fields[2].replace("|", " ")))
    return titles


def amazon_metadata(raw: Path) -> Path | None:
    """``meta_Beauty.json[.gz]`` beside ``reviews_Beauty_5.json.gz``, ``ratings_Beauty.csv`` or ``Beauty.json.gz``."""
    category = re.sub(r"^(reviews|ratings)_", "", raw.name.split(".")[0])
    category = re.sub(r"_5$", "", category)
    return _first_file(raw, f"meta_{category}.json.gz", f"meta_{category}.json")


def steam_metadata(raw: Path) -> Path | None:
    return _first_file(raw, "steam_games.json.gz", "steam_games.json")


def _first_file(raw: Path, *names: str) -> Path | None:
    candidates = [raw.with_name(name) for name in names]
    return next((path for path in candidates if path.is_file()), None)


def record_titles(
    path: Path | None, id_key: str, title_keys: tuple[str, ...], items: Container[str], progress: bool
) -> dict[str, tuple[str, ...]]:
    """item -> (title,) from lines of records. A record without id or title gives no title: that is no error."""
    titles: dict[str, tuple[str, ...]] = {}
    if path is None:
        return titles
    for _, line in read_lines(path, progress=progress):
        try:
            record = parse_record(line.decode("utf-8-sig"))
        except BAD_LINE:
            continue  # titles are an extra: an unreadable one is left out, the actions are not touched
        item = str(record.get(id_key, ""))
        title = next((str(record[key]) for key in title_keys if record.get(key)), "")
        if item in items and title:
            titles[item] = (clean_text(title),)
    return titles
