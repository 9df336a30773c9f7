"""Readers of the public raw files behind the paper's Table 1 (section 5.1.1): MovieLens-1M, Amazon, Steam.

Each reader streams one file line by line and yields (user, item, time) per action; what a line must look like
is said by the small parse functions below. Files may be plain or .gz, and MovieLens may stay in its .zip.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from recbole_denoiser.errors import UserError

Action = tuple[str, str, int]  # user, item, seconds since 1970 (UTC)
TimedAction = tuple[str, str, float]  # the same with a fraction of a second, or any number that orders the actions
ParseLine = Callable[[str], Action]

SHOWN_MALFORMED = 5
PROGRESS_LINES = 5000  # lines between two updates of the progress bar
# what goes wrong when a line is not what its format says
BAD_LINE = (ValueError, SyntaxError, KeyError, TypeError, RecursionError)


@dataclass
class Malformed:
    """How many lines could not be read, the first few of them, and whether one of them ends the work."""

    fatal: bool
    count: int = 0
    examples: list[str] = field(default_factory=list)

    @classmethod
    def of_setting(cls, on_malformed: str) -> Malformed:
        if on_malformed not in ("skip", "fail"):
            raise UserError(f"on_malformed is {on_malformed!r}. Allowed: skip, fail.")
        return cls(fatal=on_malformed == "fail")

    def add(self, path: Path | str, number: int, line: bytes | str, reason: str) -> None:
        text = (line.decode("utf-8", "replace") if isinstance(line, bytes) else line).strip()
        example = f"line {number}: {reason}: {text[:80]!r}"
        if self.fatal:
            raise UserError(f"{path} has a malformed {example}. Use on_malformed='skip' to leave such lines out.")
        self.count += 1
        if len(self.examples) < SHOWN_MALFORMED:
            self.examples.append(example)


def is_in_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


def _zip_member(archive: zipfile.ZipFile, path: Path, member: str) -> zipfile.ZipInfo:
    """The one file called ``member`` in any folder of the archive."""
    for info in archive.infolist():
        if Path(info.filename).name == member:
            return info
    raise UserError(f"{path} holds no {member}. Allowed: the ml-1m.zip of GroupLens, or {member} itself.")


@contextmanager
def opened(path: Path, member: str | None) -> Iterator[tuple[IO[bytes], IO[bytes], int]]:
    """(stream of plain bytes, the stream whose position the progress bar follows, its size in bytes)."""
    if member is not None and is_in_zip(path):
        with zipfile.ZipFile(path) as archive:
            info = _zip_member(archive, path, member)
            with archive.open(info) as stream:
                yield stream, stream, info.file_size
        return
    with path.open("rb") as raw:
        size = path.stat().st_size
        if path.suffix.lower() == ".gz":
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream, raw, size  # type: ignore[misc]  # GzipFile is a readable byte stream
        else:
            yield raw, raw, size


def read_lines(path: Path, member: str | None = None, progress: bool = False) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, the line's bytes), blank lines left out, with a progress bar over the file's bytes."""
    number = 0
    try:
        with (
            opened(path, member) as (stream, followed, size),
            tqdm(total=size, unit="B", unit_scale=True, desc=path.name, disable=not progress) as bar,
        ):
            for number, line in enumerate(stream, start=1):
                if number % PROGRESS_LINES == 0:
                    bar.update(followed.tell() - bar.n)
                if line.strip():
                    yield number, line
            bar.update(size - bar.n)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        # gzip reports a half-downloaded file as EOFError, a wrong one as BadGzipFile (an OSError)
        raise UserError(f"{path} cannot be read (stopped after line {number}): {error}") from error


def read_actions(
    path: Path, parse: ParseLine, malformed: Malformed, member: str | None = None, progress: bool = False
) -> Iterator[Action]:
    """The actions of one file in file order; lines that do not parse go to ``malformed``."""
    for number, line in read_lines(path, member, progress):
        try:
            user, item, time = parse(line.decode("utf-8-sig"))
            if not user or not item:
                raise ValueError("empty user or item")
        except BAD_LINE as error:
            malformed.add(path, number, line, reason(error))
            continue
        yield user, item, time


def reason(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


# --- one line of each format ---------------------------------------------------------------------------------


def parse_movielens(line: str) -> Action:
    """``user::item::rating::seconds``"""
    fields = line.strip().split("::")
    if len(fields) != 4:
        raise ValueError(f"{len(fields)} fields instead of 4 (user::item::rating::timestamp)")
    return fields[0], fields[1], int(fields[3])


class ParseAmazonCsv:
    """``user,item,rating,seconds`` (2014) or ``item,user,rating,seconds`` (2018); no header.

    Which of the two it is shows in the first good line: an Amazon item number has ten characters and begins with
    a digit or B, a reviewer's name begins with A. A file that shows neither is taken as 2014's.
    """

    ASIN = re.compile(r"[0-9B][0-9A-Z]{9}")

    def __init__(self) -> None:
        self.item_first: bool | None = None

    def __call__(self, line: str) -> Action:
        fields = line.strip().split(",")
        if len(fields) != 4:
            raise ValueError(f"{len(fields)} fields instead of 4 (user,item,rating,timestamp)")
        first, second, _, time = fields
        seconds = int(time)
        if self.item_first is None:
            self.item_first = bool(self.ASIN.fullmatch(first)) and not self.ASIN.fullmatch(second)
        return (second, first, seconds) if self.item_first else (first, second, seconds)


def parse_record(line: str) -> dict[str, Any]:
    """One JSON object, or one Python dict display such as ``{u'username': u'..'}`` as the older files have."""
    text = line.strip()
    if not text.startswith(("{'", "{u'", '{u"')):
        try:
            return _as_record(json.loads(text))
        except json.JSONDecodeError:
            pass  # not JSON: the one other form that is allowed is tried below, and its error is the one reported
    return _as_record(ast.literal_eval(text))


def _as_record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not a record of key: value pairs")
    return value


def parse_amazon_json(line: str) -> Action:
    """Keys reviewerID, asin, unixReviewTime (2014 and 2018)."""
    record = parse_record(line)
    return str(record["reviewerID"]), str(record["asin"]), int(record["unixReviewTime"])


def parse_steam(line: str) -> Action:
    """Keys username, product_id and date (YYYY-MM-DD, so times have the resolution of a day)."""
    record = parse_record(line)
    days = (date.fromisoformat(record["date"]) - date(1970, 1, 1)).days
    return str(record["username"]), str(record["product_id"]), days * 86_400
