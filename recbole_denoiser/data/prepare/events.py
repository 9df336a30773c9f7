"""Any log of events as a data set: CSV, JSON lines, Parquet or a DataFrame with a user, an item and a time column.

Files are read in pieces, so that memory holds 16 bytes per event and every name once. A time is a number, kept as it
is, or an ISO date (2024-05-31, 2024-05-31T10:00:00Z; without a zone: UTC), which becomes seconds since 1970. One file
must keep to one of the two. A title column, where named, becomes the data set's item titles.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from recbole_denoiser.data.prepare import raw as readers
from recbole_denoiser.data.prepare.actions import factorise, target_folder, write_dataset
from recbole_denoiser.data.prepare.columns import Columns
from recbole_denoiser.data.prepare.raw import BAD_LINE, Malformed, TimedAction
from recbole_denoiser.data.prepare.statistics import PrepareReport
from recbole_denoiser.data.prepare.titles import TITLE_COLUMNS, clean_text
from recbole_denoiser.errors import UserError

FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
CHUNK = 65_536  # rows read at once from a Parquet file or a frame
Row = tuple[int, tuple[Any, ...], str]  # line or row number, values of the named columns, the text to show


def prepare_events(
    raw: str | Path,
    columns: Columns,
    output: str | Path = "dataset",
    name: str | None = None,
    core: int = 5,
    on_malformed: str = "skip",
    progress: bool = True,
    overwrite: bool = False,
) -> PrepareReport:
    """Convert one file of events into ``<output>/<name>/<name>.inter``; ``name`` defaults to the file's.

    >>> from pathlib import Path
    >>> from recbole_denoiser import Columns
    >>> lines = [f"u{user},i{(user + step) % 9},{step}" for user in range(9) for step in range(6)]
    >>> written = Path("events.csv").write_text("who,what,when\\n" + "\\n".join(lines))
    >>> report = prepare_events("events.csv", Columns("who", "what", "when"), progress=False)
    >>> Path("dataset/events/events.inter").read_text().splitlines()[:2]
    ['user_id:token\\titem_id:token\\ttimestamp:float', 'u0\\ti0\\t0']
    """
    raw = Path(raw)
    kind = format_of(raw)
    if not raw.is_file():
        raise UserError(f"There is no raw file {raw}.")
    name = checked_name(name or raw.name[: raw.name.lower().index(kind)])
    malformed = Malformed.of_setting(on_malformed)
    target = target_folder(output, name, overwrite)
    return _convert(_rows(raw, kind, columns, malformed, progress), str(raw), columns, target, core, malformed)


def prepare_frame(
    frame: pd.DataFrame, columns: Columns, output: str | Path, name: str = "events", core: int = 0
) -> PrepareReport:
    """Write a DataFrame as the data set ``<name>-<hash>``: equal frames get the same name, different ones never."""
    columns.check(list(frame.columns), "The DataFrame")
    core = _checked_core(core)
    parts = frame[columns.names]
    digest = hashlib.sha256(repr((core, columns.title is not None)).encode())
    digest.update(pd.util.hash_pandas_object(parts.astype(str), index=False).to_numpy().tobytes())
    target = target_folder(output, f"{checked_name(name)}-{digest.hexdigest()[:8]}", overwrite=True)
    malformed = Malformed(fatal=True)  # a frame is in the caller's hands: nothing is left out silently
    return _convert(_frame_rows(parts), "The DataFrame", columns, target, core, malformed)


def format_of(raw: Path) -> str:
    """The ending that says how to read a file, without .gz."""
    ending = Path(raw.name.lower().removesuffix(".gz")).suffix
    if ending not in FORMATS or (ending == ".parquet" and raw.suffix.lower() == ".gz"):
        raise UserError(f"{raw} is of no known format. Allowed: {', '.join(FORMATS)}, and .gz of the text formats.")
    return ending


def checked_name(name: str) -> str:
    """A data set's name is a folder's and part of file names."""
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise UserError(f"'{name}' cannot be the name of a data set. Allowed: letters, digits, '_', '-' and '.'.")
    return name


def _checked_core(core: int) -> int:
    if core < 0:
        raise UserError(f"core = {core} is not allowed: it takes a whole number >= 0 (0 and 1 keep everything).")
    return max(core, 1)


def _convert(
    rows: Iterator[Row], source: str, columns: Columns, target: Path, core: int, malformed: Malformed
) -> PrepareReport:
    titles: dict[str, str] = {}
    actions = factorise(_actions(rows, source, titles, malformed), fractions=True)
    return write_dataset(
        target,
        actions,
        f"{_checked_core(core)}-core",
        malformed,
        source,
        TITLE_COLUMNS,
        lambda items: {item: (title,) for item, title in titles.items() if item in items},
    )


def _actions(rows: Iterator[Row], source: str, titles: dict[str, str], malformed: Malformed) -> Iterator[TimedAction]:
    """Checked actions in order; the first title of every item goes to ``titles``."""
    clock = Clock()
    for number, values, shown in rows:
        try:
            user, item, time = token(values[0], "user"), token(values[1], "item"), clock(values[2])
            title = token(values[3], "title") if len(values) > 3 and not _missing(values[3]) else ""
        except BAD_LINE as error:
            malformed.add(source, number, shown, readers.reason(error))
            continue
        if title and item not in titles:
            titles[item] = clean_text(title)
        yield user, item, time


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value == "" or value != value


def token(value: Any, what: str) -> str:
    """A user's or an item's name as text. A whole number that was stored as a float (5.0) is that number (5)."""
    if _missing(value):
        raise ValueError(f"empty {what}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (bool, list, dict)):
        raise ValueError(f"{what} is {value!r}, not a name or a number")
    return sys.intern(str(value))


class Clock:
    """Times as numbers. The first one says whether the file holds numbers or dates; the others must agree."""

    def __init__(self) -> None:
        self.dates: bool | None = None

    def __call__(self, value: Any) -> float:
        if _missing(value):
            raise ValueError("empty time")
        time, is_date = _time(value)
        if not math.isfinite(time):
            raise ValueError(f"time {value!r} is not finite")
        if self.dates is None:
            self.dates = is_date
        if is_date != self.dates:
            raise ValueError("a date, but times before it are numbers" if is_date else "a number, but dates before it")
        return time


def _time(value: Any) -> tuple[float, bool]:
    """(the number, whether it stood there as a date)."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp(), True
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days * 86_400.0, True
    if isinstance(value, bool):
        raise ValueError(f"time is {value}")
    try:
        return float(value), False
    except ValueError:
        text = str(value).strip()
        try:
            found = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        except ValueError:
            raise ValueError("the time is neither a number nor a date like 2024-05-31T10:00:00") from None
        return _time(found)


# --- rows of each format ----------------------------------------------------------------------------------------


def _rows(raw: Path, kind: str, columns: Columns, malformed: Malformed, progress: bool) -> Iterator[Row]:
    if kind == ".parquet":
        return _parquet_rows(raw, columns, progress)
    if kind in (".jsonl", ".ndjson"):
        return _json_rows(raw, columns, malformed, progress)
    return _csv_rows(raw, columns, malformed, "\t" if kind == ".tsv" else ",", progress)


def _csv_rows(raw: Path, columns: Columns, malformed: Malformed, separator: str, progress: bool) -> Iterator[Row]:
    """With a header; fields may be quoted and then hold separators and line ends."""
    with _text(raw, progress) as lines:
        reader = csv.reader(lines, delimiter=separator)
        header = [name.strip() for name in next(reader, [])]
        columns.check(header, str(raw))
        places = [header.index(name) for name in columns.names]
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                malformed.add(raw, reader.line_num, "", str(error))
                continue
            if not fields:
                continue  # a blank line
            shown = separator.join(fields)
            if len(fields) != len(header):
                malformed.add(raw, reader.line_num, shown, f"{len(fields)} fields instead of {len(header)}")
            else:
                yield reader.line_num, tuple(fields[place] for place in places), shown


@contextmanager
def _text(raw: Path, progress: bool) -> Iterator[Iterator[str]]:
    """Lines of a plain or .gz file, with a progress bar over its bytes; what is not UTF-8 becomes a question mark."""
    try:
        with readers.opened(raw, None) as (stream, followed, size):
            bar = tqdm(total=size, unit="B", unit_scale=True, desc=raw.name, disable=not progress)

            def lines() -> Iterator[str]:
                for number, line in enumerate(io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")):
                    if number % readers.PROGRESS_LINES == 0:
                        bar.update(followed.tell() - bar.n)
                    yield line

            with bar:
                yield lines()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{raw} cannot be read: {error}") from error


def _json_rows(raw: Path, columns: Columns, malformed: Malformed, progress: bool) -> Iterator[Row]:
    """One JSON object per line; a title may be missing."""
    for number, line in readers.read_lines(raw, progress=progress):
        try:
            record = json.loads(line.decode("utf-8-sig"))
            if not isinstance(record, dict):
                raise TypeError("not a record of key: value pairs")
            values = (*(record[name] for name in columns.names[:3]), *(record.get(name) for name in columns.names[3:]))
        except BAD_LINE as error:
            malformed.add(raw, number, line, readers.reason(error))
            continue
        yield number, values, line.decode("utf-8", "replace")


def _parquet_rows(raw: Path, columns: Columns, progress: bool) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError("Parquet files need pyarrow: pip install 'recbole-denoiser[parquet]'.") from None
    try:
        with ParquetFile(raw) as file:
            columns.check(file.schema_arrow.names, str(raw))
            first = 1
            with tqdm(total=file.metadata.num_rows, unit=" rows", desc=raw.name, disable=not progress) as bar:
                for batch in file.iter_batches(CHUNK, columns=list(dict.fromkeys(columns.names))):
                    parts = [batch.column(name).to_pylist() for name in columns.names]
                    for number, values in enumerate(zip(*parts, strict=True), start=first):
                        yield number, values, str(values)
                    first += len(batch)
                    bar.update(len(batch))
    except (OSError, ArrowException) as error:
        raise UserError(f"{raw} cannot be read as Parquet: {error}") from error


def _frame_rows(frame: pd.DataFrame) -> Iterator[Row]:
    for start in range(0, len(frame), CHUNK):
        part = frame.iloc[start : start + CHUNK]
        values = zip(*(part.iloc[:, place].tolist() for place in range(part.shape[1])), strict=True)
        for number, row in enumerate(values, start=start + 1):
            yield number, row, str(row)
