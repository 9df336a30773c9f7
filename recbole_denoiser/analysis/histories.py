"""Whose history is explained: users of the data set, or sequences from outside."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.data.cleaning import Cleaning
from recbole_denoiser.data.sequences import Histories
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.reopen import OpenRun


@dataclass(frozen=True)
class Removed:
    """An item that the noise detector took out of a history."""

    place: int  # it stood before this place of the history
    item: int  # id
    time: float
    posterior: float  # of being noise
    row: int  # among the training interactions that the detector read
    original: str | None  # token that train_noise replaced by it


@dataclass
class History:
    """A history to explain: the newest n items of somebody, and what came next if that is known."""

    user: str
    item: np.ndarray  # [m] ids
    time: np.ndarray | None  # [m]; None: not known
    seen: np.ndarray  # ids of everything that the user has interacted with before, not recommended again
    next: int | None = None  # id of the held-out item
    original: dict[int, str] = field(default_factory=dict)  # place in the history -> token that noise replaced
    removed: list[Removed] = field(default_factory=list)


def user_history(recommender: Recommender, user: str) -> History:
    """What the model reads to predict the user's test item; without one, the complete history."""
    run = recommender.run
    dataset, flat = run.dataset, run.test.flat
    column = flat.columns[dataset.uid_field].numpy()
    number = run.user_id(user)
    first, end = (int(np.searchsorted(column, number, side)) for side in ("left", "right"))
    rows = run.test.inter_feat
    targets = rows.target.numpy()[rows[dataset.uid_field].numpy() == number] if len(rows) else np.array([], dtype=int)
    target = int(targets[-1]) if len(targets) else end
    start = max(first, target - recommender.n)
    item = flat.columns[dataset.iid_field].numpy()
    removed = _removed(run, first, start, target)
    return History(
        user,
        item[start:target],
        flat.columns[dataset.time_field].numpy()[start:target],
        np.unique(np.r_[item[first:target], np.array([entry.item for entry in removed], dtype=item.dtype)]),
        int(item[target]) if target < end else None,
        _replaced(run, start, target),
        removed,
    )


def telling_histories(recommender: Recommender, count: int) -> list[History]:
    """Histories of test users that have most to show: of whom the detector removed most, else the longest ones."""
    dataset, rows = recommender.run.dataset, recommender.run.test.inter_feat
    tokens = dataset.field2id_token[dataset.uid_field]
    users = np.unique(rows[dataset.uid_field].numpy())
    column = recommender.run.test.flat.columns[dataset.uid_field].numpy()
    weight = np.minimum(np.bincount(column, minlength=len(tokens)), recommender.n).astype(float)
    cleaning = cleaning_of(recommender.run)
    if cleaning is not None:
        before = cleaning.before.flat.columns[dataset.uid_field].numpy()
        share = np.bincount(before[cleaning.removed], minlength=len(tokens)) / np.maximum(
            np.bincount(before, minlength=len(tokens)), 1
        )
        weight *= 1e-3 + share  # about as many as stand in the part that is read
    chosen = users[np.argsort(-weight[users], kind="stable")[:count]]
    return [user_history(recommender, str(tokens[user])) for user in chosen]


def histories_of(recommender: Recommender, given: Histories) -> list[History]:
    """Sequences from outside the data set."""
    found = []
    for number, user in enumerate(given.users):
        item = given.item[given.start[number] : given.start[number + 1]]
        time = given.time[given.start[number] : given.start[number + 1]]
        if len(item) == 0:
            raise UserError(f"Sequence '{user}' has no item that the model knows.")
        found.append(
            History(user, item[-recommender.n :], time[-recommender.n :] if given.timed else None, np.unique(item))
        )
    return found


def _replaced(run: OpenRun, start: int, end: int) -> dict[int, str]:
    """Place in the history -> token of the item that train_noise replaced there."""
    view, source = run.test.view, run.dataset.clean_items()
    replaced = view.noise[start:end] & (view.origin[start:end] >= 0)
    return {int(place): str(run.items[source[view.origin[start + place]]]) for place in np.flatnonzero(replaced)}


def cleaning_of(run: OpenRun) -> Cleaning | None:
    """What the detector did to the histories that are read at test, if it was asked."""
    return run.dataset.read_cleaning or run.dataset.cleaning


def _removed(run: OpenRun, first: int, start: int, target: int) -> list[Removed]:
    """What noise_action: remove took out between the shown places [start, target) of a user who begins at ``first``."""
    cleaning = cleaning_of(run)
    if cleaning is None or not cleaning.removed.any():
        return []
    kept = np.flatnonzero(~cleaning.removed)  # place in the view before -> for each interaction that is left
    user = cleaning.before.flat.columns[run.dataset.uid_field].numpy()
    own = user[kept[first]]
    low = int(np.searchsorted(user, own)) if start == first else int(kept[start])
    high = (
        int(kept[target])
        if target < len(kept) and user[kept[target]] == own
        else int(np.searchsorted(user, own, "right"))
    )
    item = cleaning.before.flat.columns[run.dataset.iid_field].numpy()
    time = cleaning.before.flat.columns[run.dataset.time_field].numpy()
    training, source = cleaning.before.training, run.dataset.clean_items()
    found = []
    for row in low + np.flatnonzero(cleaning.removed[low:high]):
        origin = cleaning.before.origin[row]
        injected = cleaning.before.noise[row] and origin >= 0
        found.append(
            Removed(
                int(np.searchsorted(kept[start:target], row)),
                int(item[row]),
                float(time[row]),
                float(cleaning.posterior[row]),
                int(np.searchsorted(training, row)),
                str(run.items[source[origin]]) if injected else None,
            )
        )
    return found
