"""Whose history is explained: users of the data set, or sequences from outside."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.data.sequences import Histories
from recbole_denoiser.errors import UserError
from recbole_denoiser.runs.reopen import OpenRun


@dataclass
class History:
    """A history to explain: the newest n items of somebody, and what came next if that is known."""

    user: str
    item: np.ndarray  # [m] ids
    time: np.ndarray | None  # [m]; None: not known
    seen: np.ndarray  # ids of everything that the user has interacted with before, not recommended again
    next: int | None = None  # id of the held-out item
    original: dict[int, str] = field(default_factory=dict)  # place in the history -> token that noise replaced


def user_history(recommender: Recommender, user: str) -> History:
    """What the model reads to predict the user's test item; without one, the complete history."""
    run = recommender.run
    dataset, flat = run.dataset, getattr(run.test, "flat", None)
    if flat is None:
        raise UserError("Benchmark files hold no complete histories: give the sequences themselves (--input).")
    column = flat.columns[dataset.uid_field].numpy()
    number = run.user_id(user)
    first, end = (int(np.searchsorted(column, number, side)) for side in ("left", "right"))
    rows = run.test.inter_feat
    targets = rows.target.numpy()[rows[dataset.uid_field].numpy() == number] if len(rows) else np.array([], dtype=int)
    target = int(targets[-1]) if len(targets) else end
    start = max(first, target - recommender.n)
    item = flat.columns[dataset.iid_field].numpy()
    return History(
        user,
        item[start:target],
        flat.columns[dataset.time_field].numpy()[start:target],
        np.unique(item[first:target]),
        int(item[target]) if target < end else None,
        _replaced(run, start, target),
    )


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
