"""Errors in atomic files, told by file and line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from recbole.utils import FeatureType

from recbole_denoiser.errors import UserError

_LONGEST_LINE = 1 << 20  # a header or row beyond a megabyte is not an atomic file
_TYPES = ", ".join(kind.value for kind in FeatureType)


def check_header(file: str, separator: str, encoding: str) -> list[str]:
    """The ``name:type`` columns in the first line, or a UserError that says what is wrong with it."""
    zero = _check_line_lengths(file)
    header = next(_lines(file, encoding), "").rstrip("\r\n")
    if header.startswith("\ufeff"):
        raise UserError(f"{file}, line 1: the file begins with a byte order mark; set encoding: utf-8-sig.")
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
    if zero is not None and not encoding.lower().startswith(("utf-16", "utf_16", "utf-32", "utf_32")):
        raise UserError(f"{file}, line {zero}: a NUL character, behind which the rest of the cell would be lost.")
    return columns


def _check_line_lengths(file: str) -> int | None:
    """Stop at the first megabyte without a line end, before a parser would take in all of it.

    Returns the line of the first zero byte, if there is one.
    """
    lines, zero = 1, None
    for block in _blocks(file):
        ends = block.count(b"\n")
        if zero is None and b"\x00" in block:
            zero = lines + block[: block.index(b"\x00")].count(b"\n")
        if len(block) == _LONGEST_LINE and not ends:
            raise UserError(f"{file}, line {lines}: longer than a megabyte; this is not an atomic file.")
        lines += ends
    return zero


def check_row_widths(file: str, separator: str, encoding: str, columns: int) -> None:
    """UserError for a row with more cells than the header, which pandas would silently cut or shift."""
    mark, ends, separators, last = separator.encode(), 0, 0, b"\n"
    for block in _blocks(file):
        ends, separators, last = ends + block.count(b"\n"), separators + block.count(mark), block[-1:]
    if separators == (columns - 1) * (ends + (last != b"\n")):
        return  # as many cells as there should be; else look at every row (quotes and missing cells are allowed)
    for number, line in enumerate(_lines(file, encoding), start=1):
        width = len(_cells(line, separator))
        if width > columns:
            raise UserError(f"{file}, line {number}: {width} columns, but the header has {columns}.")


def _blocks(file: str) -> Iterator[bytes]:
    try:
        with Path(file).open("rb") as stream:
            while block := stream.read(_LONGEST_LINE):
                yield block
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error}.") from None


def _cells(line: str, separator: str) -> list[str]:
    line = line.rstrip("\r\n")
    if len(separator) > 1:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # such as a cell beyond csv's own limit
        return line.split(separator)


def explain_bad_value(file: str, separator: str, encoding: str, error: Exception) -> UserError:
    """Find the first row that cannot be read and name it; fall back on pandas' own words."""
    columns = check_header(file, separator, encoding)
    for number, line in enumerate(_lines(file, encoding), start=1):
        if number == 1:
            continue
        for column, cell in zip(columns, _cells(line, separator), strict=False):
            if column.endswith(":float") and cell and not _is_number(cell):
                return UserError(f"{file}, line {number}: '{cell[:60]}' in column {column} is not a number.")
    return UserError(f"{file} cannot be read: {error}")


def _is_number(cell: str) -> bool:
    """A number that a 64-bit float can hold."""
    try:
        return "inf" in cell.lower() or not math.isinf(float(cell))
    except ValueError:
        return False


def _lines(file: str, encoding: str) -> Iterator[str]:
    number = 0
    try:
        with Path(file).open(encoding=encoding, newline="\n") as stream:
            for line in stream:
                number += 1
                yield line
    except UnicodeDecodeError:
        raise UserError(
            f"{file}, near line {number + 1}: not valid {encoding} text; set 'encoding' to the file's, such as latin-1."
        ) from None
    except (OSError, LookupError) as error:
        raise UserError(f"{file} cannot be read: {error}.") from None
