"""Errors in atomic files, told by file and line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from recbole.utils import FeatureType

from recbole_denoiser.errors import UserError

_LONGEST_LINE = 1 << 20  # a header or row beyond a megabyte is not an atomic file
_TYPES = ", ".join(kind.value for kind in FeatureType)


def check_header(file: str, separator: str, encoding: str) -> list[str]:
    """The ``name:type`` columns in the first line, or a UserError that says what is wrong with it."""
    header = next(_lines(file, encoding), "").rstrip("\r\n")
    if not header:
        raise UserError(
            f"{file}, line 1: the file is empty; expected a header such as user_id:token<TAB>item_id:token."
        )
    columns = header.split(separator)
    for column in columns:
        name, _, kind = column.partition(":")
        if not name or kind not in {feature.value for feature in FeatureType}:
            raise UserError(
                f"{file}, line 1: column '{column[:60]}' is not of the form name:type; types are {_TYPES}. "
                f"Columns are separated by {separator!r} (field_separator)."
            )
    if len(set(columns)) < len(columns):
        raise UserError(f"{file}, line 1: a column occurs twice in '{header[:200]}'.")
    return columns


def explain_bad_value(file: str, separator: str, encoding: str, error: Exception) -> UserError:
    """Find the first row that cannot be read and name it; fall back on pandas' own words."""
    columns = check_header(file, separator, encoding)
    for number, line in enumerate(_lines(file, encoding), start=1):
        if number == 1:
            continue
        cells = (
            next(csv.reader([line.rstrip("\r\n")], delimiter=separator))
            if len(separator) == 1
            else line.split(separator)
        )
        if len(cells) > len(columns):
            return UserError(f"{file}, line {number}: {len(cells)} columns, but the header has {len(columns)}.")
        for column, cell in zip(columns, cells, strict=False):
            if column.endswith(":float") and cell and not _is_number(cell):
                return UserError(f"{file}, line {number}: '{cell[:60]}' in column {column} is not a number.")
    return UserError(f"{file} cannot be read: {error}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _lines(file: str, encoding: str) -> Iterator[str]:
    number = 0
    try:
        with Path(file).open(encoding=encoding, newline="\n") as stream:
            while line := stream.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise UserError(f"{file}, line {number}: longer than a megabyte; this is not an atomic file.")
                yield line
    except UnicodeDecodeError:
        raise UserError(
            f"{file}, near line {number + 1}: not valid {encoding} text; set 'encoding' to the file's, such as latin-1."
        ) from None
    except (OSError, LookupError) as error:
        raise UserError(f"{file} cannot be read: {error}.") from None
