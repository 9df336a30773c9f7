"""From public raw files to RecBole's atomic files (section 5.1.1: preprocessing "as in" SASRec and TiSASRec).

Every rating counts as an action (implicit feedback), a user's actions are ordered by time with ties in file order,
and rare users and items are dropped by one of three rules:

sasrec            users and items with at least 5 actions, both counted on the raw data, one pass (SASRec's script);
users-then-items  users with at least 5 actions in the raw data, then items with at least 5 actions by those users.
                  The same as sasrec followed by a second pass over the items only, and what gives the 30,935 users
                  and 12,111 items of the paper's Games; a user may be left with fewer than 5 actions;
5-core            both, repeated until nothing changes.

Table 1's MovieLens is exactly rule sasrec and its Games exactly users-then-items. Beauty follows Games. No rule is
known that gives its Movies&TV and Steam; 5-core is the strictest, so the nearest to these small rows.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.parse
import uuid
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recbole_denoiser.data.prepare import raw as readers
from recbole_denoiser.data.prepare import titles as title_files
from recbole_denoiser.data.prepare.statistics import PrepareReport
from recbole_denoiser.errors import UserError

MIN_ACTIONS = 5
RULES = ("sasrec", "users-then-items", "5-core")
DEFAULT_RULE = {
    "ml-1m": "sasrec",
    "amazon-beauty": "users-then-items",
    "amazon-games": "users-then-items",
    "amazon-movies-tv": "5-core",
    "steam": "5-core",
}
NAMES = tuple(DEFAULT_RULE)
WRITE_ROWS = 100_000  # rows turned into text at a time
# words that pandas, with which RecBole reads atomic files, takes for a missing value, and RecBole's padding token
RESERVED = frozenset(
    (
        *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
        *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "[PAD]"),
    )
)
# a double quote, a percent sign, white space other than a space inside the name, a zero byte
UNSAFE = re.compile(r"""["%\x00]|[^\S ]|^ | $""")


@dataclass
class Actions:
    """Actions as integers: user and item numbers in order of first appearance, and the names they stand for."""

    user: np.ndarray  # [actions] int32
    item: np.ndarray  # [actions] int32
    time: np.ndarray  # [actions] int64, seconds
    user_names: list[str]
    item_names: list[str]


def prepare(
    name: str,
    raw: str | Path,
    output: str | Path,
    on_malformed: str = "skip",
    rule: str | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> PrepareReport:
    """Convert the raw file(s) of one data set into ``<output>/<name>/<name>.inter`` (and ``.item`` with titles)."""
    if name not in NAMES:
        raise UserError(f"There is no data set {name!r} to prepare. Allowed: {', '.join(NAMES)}.")
    rule = rule or DEFAULT_RULE[name]
    if rule not in RULES:
        raise UserError(f"There is no filter rule {rule!r}. Allowed: {', '.join(RULES)}.")
    if on_malformed not in ("skip", "fail"):
        raise UserError(f"on_malformed is {on_malformed!r}. Allowed: skip, fail.")
    raw, target = _raw_file(name, Path(raw)), Path(output) / name
    if (target / f"{name}.inter").exists() and not overwrite:
        raise UserError(f"{target / f'{name}.inter'} exists already. Remove it, overwrite it, or name another folder.")

    malformed = readers.Malformed(fatal=on_malformed == "fail")
    member = "ratings.dat" if readers.is_in_zip(raw) else None
    actions = factorise(readers.read_actions(raw, _parser(name, raw), malformed, member, progress))
    if not len(actions.user):
        shown = "".join(f"\n  {example}" for example in malformed.examples)
        raise UserError(f"{raw} holds no action that can be read ({malformed.count} malformed lines).{shown}")
    kept = np.flatnonzero(keep(actions.user, actions.item, rule))
    if not len(kept):
        raise UserError(f"Nothing is left of {raw} after rule {rule}: no user and item with {MIN_ACTIONS} actions.")
    # by user, then time; lexsort is stable, so actions at the same time stay in file order
    rows = kept[np.lexsort((actions.time[kept], actions.user[kept]))]

    kept_items = [actions.item_names[i] for i in np.unique(actions.item[rows])]
    titles = _titles(name, raw, frozenset(kept_items), progress)
    columns = title_files.MOVIELENS_COLUMNS if name == "ml-1m" else title_files.TITLE_COLUMNS
    item_rows = [(item, *titles.get(item, ("",) * len(columns))) for item in kept_items] if titles else []
    _write(target, name, actions, rows, columns, item_rows)

    per_user = np.bincount(actions.user[rows])
    per_user = per_user[per_user > 0]
    return PrepareReport(
        name=name,
        rule=rule,
        users=len(per_user),
        items=len(kept_items),
        actions=len(rows),
        # leave-one-out needs three actions; SASRec keeps a shorter history in the train split as a whole
        train_actions=int(np.where(per_user >= 3, per_user - 2, per_user).sum()),
        read=len(actions.user),
        malformed=malformed.count,
        malformed_examples=tuple(malformed.examples),
        titles=len(titles),
        inter_file=target / f"{name}.inter",
        item_file=target / f"{name}.item" if titles else None,
    )


def factorise(stream: Iterable[readers.Action]) -> Actions:
    """Number users and items while they stream by: 16 bytes per action, each name held once."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    user, item, time = array("i"), array("i"), array("q")
    for user_name, item_name, seconds in stream:
        user.append(users.setdefault(user_name, len(users)))
        item.append(items.setdefault(item_name, len(items)))
        time.append(seconds)
    return Actions(
        np.frombuffer(user, dtype=np.int32) if user else np.empty(0, dtype=np.int32),
        np.frombuffer(item, dtype=np.int32) if item else np.empty(0, dtype=np.int32),
        np.frombuffer(time, dtype=np.int64) if time else np.empty(0, dtype=np.int64),
        list(users),
        list(items),
    )


def keep(user: np.ndarray, item: np.ndarray, rule: str) -> np.ndarray:
    """Which actions a rule keeps: a mask [actions]."""
    everything = np.ones(len(user), dtype=bool)
    if rule == "sasrec":
        return _frequent(user, everything) & _frequent(item, everything)
    if rule == "users-then-items":
        by_active_users = _frequent(user, everything)
        return by_active_users & _frequent(item, by_active_users)
    kept = everything
    while True:
        smaller = kept & _frequent(user, kept) & _frequent(item, kept)
        if smaller.sum() == kept.sum():
            return kept
        kept = smaller


def _frequent(number: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Mask [actions]: the action's user (or item) has at least MIN_ACTIONS among the kept actions."""
    return (np.bincount(number[kept], minlength=int(number.max()) + 1) >= MIN_ACTIONS)[number]


def safe_token(name: str) -> str:
    """A name as an atomic file can hold it.

    Steam's user names may contain tabs or quotes, or be the word "null", which RecBole's reader would split, swallow
    or take for a missing value. Such a name is percent-encoded; urllib.parse.unquote gives it back, and since a
    percent sign is always encoded no two names become one.
    """
    if name in RESERVED:
        return "".join(f"%{byte:02X}" for byte in name.encode())
    if UNSAFE.search(name):
        return urllib.parse.quote(name, safe="")
    return name


def _raw_file(name: str, raw: Path) -> Path:
    if name == "ml-1m" and raw.is_dir():
        raw = raw / "ratings.dat"
    if raw.is_dir():
        raise UserError(f"{raw} is a folder. Name the raw file of {name} itself.")
    if not raw.is_file():
        raise UserError(f"There is no raw file {raw}.")
    if name != "ml-1m" and readers.is_in_zip(raw):
        raise UserError(f"{raw} is a zip file, which only ml-1m comes in. Allowed for {name}: plain or .gz files.")
    return raw


def _parser(name: str, raw: Path) -> readers.ParseLine:
    if name == "ml-1m":
        return readers.parse_movielens
    if name == "steam":
        return readers.parse_steam
    return readers.ParseAmazonCsv() if ".csv" in raw.name.lower() else readers.parse_amazon_json


def _titles(name: str, raw: Path, items: frozenset[str], progress: bool) -> dict[str, tuple[str, ...]]:
    if name == "ml-1m":
        return title_files.movielens_titles(raw, items, progress)
    if name == "steam":
        metadata = title_files.steam_metadata(raw)
        return title_files.record_titles(metadata, "id", ("title", "app_name"), items, progress)
    return title_files.record_titles(title_files.amazon_metadata(raw), "asin", ("title",), items, progress)


def _write(
    target: Path,
    name: str,
    actions: Actions,
    rows: np.ndarray,
    columns: tuple[str, ...],
    item_rows: list[tuple[str, ...]],
) -> None:
    """Write both files in a folder beside the target and move them in when they are whole, the .inter file last."""
    partial = target.with_name(f".{name}-{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        _write_inter(partial / f"{name}.inter", actions, rows)
        if item_rows:
            with (partial / f"{name}.item").open("w", encoding="utf-8", newline="\n") as file:
                file.write("\t".join(("item_id:token", *columns)) + "\n")
                file.writelines("\t".join((safe_token(row[0]), *row[1:])) + "\n" for row in item_rows)
        target.mkdir(exist_ok=True)
        (target / f"{name}.item").unlink(missing_ok=True)  # titles of an earlier conversion do not fit this one
        if item_rows:
            os.replace(partial / f"{name}.item", target / f"{name}.item")
        os.replace(partial / f"{name}.inter", target / f"{name}.inter")
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error}") from error
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def _write_inter(path: Path, actions: Actions, rows: np.ndarray) -> None:
    users = {i: safe_token(actions.user_names[i]) for i in np.unique(actions.user[rows]).tolist()}
    items = {i: safe_token(actions.item_names[i]) for i in np.unique(actions.item[rows]).tolist()}
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for start in range(0, len(rows), WRITE_ROWS):
            part = rows[start : start + WRITE_ROWS]
            numbers = (actions.user[part].tolist(), actions.item[part].tolist(), actions.time[part].tolist())
            file.writelines(f"{users[u]}\t{items[i]}\t{t}\n" for u, i, t in zip(*numbers, strict=True))
