"""Actions as numbers: read once, filtered by a rule, written as RecBole's atomic files."""

from __future__ import annotations

import os
import re
import shutil
import urllib.parse
import uuid
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recbole_denoiser.data.prepare.raw import Action, Malformed, TimedAction
from recbole_denoiser.data.prepare.statistics import PrepareReport
from recbole_denoiser.errors import UserError

MIN_ACTIONS = 5
RULES = ("sasrec", "users-then-items", "5-core")
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
    time: np.ndarray  # [actions] int64 seconds, or float64
    user_names: list[str]
    item_names: list[str]


def factorise(stream: Iterable[Action] | Iterable[TimedAction], fractions: bool = False) -> Actions:
    """Number users and items while they stream by: 16 bytes per action, each name held once."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    user, item, time = array("i"), array("i"), array("d" if fractions else "q")
    for user_name, item_name, seconds in stream:
        user.append(users.setdefault(user_name, len(users)))
        item.append(items.setdefault(item_name, len(items)))
        time.append(seconds)  # type: ignore[arg-type]  # an int where fractions is False
    arrays = (np.array(user, np.int32), np.array(item, np.int32), np.array(time, np.float64 if fractions else np.int64))
    return Actions(*arrays, list(users), list(items))


def keep(user: np.ndarray, item: np.ndarray, rule: str) -> np.ndarray:
    """Which actions a rule keeps: a mask [actions]. Rule ``<k>-core`` goes by any k, the others by MIN_ACTIONS."""
    everything = np.ones(len(user), dtype=bool)
    if rule == "sasrec":
        return _frequent(user, everything) & _frequent(item, everything)
    if rule == "users-then-items":
        by_active_users = _frequent(user, everything)
        return by_active_users & _frequent(item, by_active_users)
    kept, least = everything, int(rule.removesuffix("-core"))
    while kept.any():
        smaller = kept & _frequent(user, kept, least) & _frequent(item, kept, least)
        if smaller.sum() == kept.sum():
            break
        kept = smaller
    return kept


def _frequent(number: np.ndarray, kept: np.ndarray, least: int = MIN_ACTIONS) -> np.ndarray:
    """Mask [actions]: the action's user (or item) has at least ``least`` among the kept actions."""
    return (np.bincount(number[kept], minlength=int(number.max()) + 1) >= least)[number]


def target_folder(output: str | Path, name: str, overwrite: bool) -> Path:
    """``<output>/<name>``, which must not hold an earlier conversion unless that may be replaced."""
    target = Path(output) / name
    if (target / f"{name}.inter").exists() and not overwrite:
        raise UserError(f"{target / f'{name}.inter'} exists already. Remove it, overwrite it, or name another folder.")
    return target


def write_dataset(
    target: Path,
    actions: Actions,
    rule: str,
    malformed: Malformed,
    source: str,
    columns: tuple[str, ...],
    titles_of: Callable[[frozenset[str]], dict[str, tuple[str, ...]]],
) -> PrepareReport:
    """Filter and order the actions and write ``<target>/<name>.inter``, and ``.item`` if there are titles.

    ``columns`` are the .item file's after item_id, ``titles_of`` returns their values for those items that have any.
    """
    name = target.name
    if not len(actions.user):
        shown = "".join(f"\n  {example}" for example in malformed.examples)
        raise UserError(f"{source} holds no action that can be read ({malformed.count} malformed lines).{shown}")
    kept = np.flatnonzero(keep(actions.user, actions.item, rule))
    if not len(kept):
        least = rule.removesuffix("-core") if rule.endswith("-core") else MIN_ACTIONS
        raise UserError(f"Nothing is left of {source} after rule {rule}: no user and item with {least} actions.")
    # by user, then time; lexsort is stable, so actions at the same time stay in file order
    rows = kept[np.lexsort((actions.time[kept], actions.user[kept]))]

    kept_items = [actions.item_names[i] for i in np.unique(actions.item[rows])]
    titles = titles_of(frozenset(kept_items))
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
            file.writelines(f"{users[u]}\t{items[i]}\t{_number(t)}\n" for u, i, t in zip(*numbers, strict=True))


def _number(time: float) -> str:
    """Whole numbers without a fraction, others so that reading them returns the same number."""
    return f"{time:.0f}" if time == int(time) else repr(time)
