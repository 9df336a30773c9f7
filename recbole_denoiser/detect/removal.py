"""Which interactions to remove: carefully, and never a user."""

from __future__ import annotations

import numpy as np

KEPT = 2  # items that every user keeps (or all, where there are no more)


def protect(user: np.ndarray, posterior: np.ndarray, remove: np.ndarray) -> np.ndarray:
    """The mask without the KEPT least suspicious items of each user; of equal ones the earlier are kept."""
    order = np.lexsort((np.arange(len(user)), posterior, user))  # by user, least suspicious first
    start = np.flatnonzero(np.r_[True, user[order][1:] != user[order][:-1]]) if len(user) else np.empty(0, int)
    size = np.diff(np.r_[start, len(user)])
    place = np.arange(len(user)) - np.repeat(start, size)
    out = remove.copy()
    out[order[place < KEPT]] = False
    return out
