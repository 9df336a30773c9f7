"""Features and scores in which no user's rows meet statistics, or a classifier, that saw that user.

Users are dealt into folds. Counts, vectors and popularity for a fold's rows come from the users of all other folds; the
classifiers that score it were fitted on the users of the other half of the folds (even or odd).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from recbole_denoiser.detect.counts import count
from recbole_denoiser.detect.features import Statistics, features
from recbole_denoiser.detect.forest import Forest, grow
from recbole_denoiser.detect.inject import KINDS, draw
from recbole_denoiser.detect.progress import Progress
from recbole_denoiser.detect.settings import Settings
from recbole_denoiser.detect.vectors import item_vectors

CHUNK = 1_000_000  # rows scored at once


@dataclass
class Rows:
    """Flat data: rows grouped by user (ids 0 .. users - 1), in time order within a user."""

    user: np.ndarray
    item: np.ndarray
    n_items: int
    texts: np.ndarray | None = None  # text vectors [n + 1, t]

    def __len__(self) -> int:
        return len(self.item)

    @property
    def users(self) -> int:
        return int(self.user[-1]) + 1 if len(self) else 0

    def in_company(self) -> np.ndarray:
        """Rows of users with at least two: the others have no neighbours and nothing to be judged by."""
        return np.flatnonzero((np.bincount(self.user) > 1)[self.user])


@dataclass
class Injected:
    """Items of one kind put at places of the data, with the features that they have there."""

    places: np.ndarray
    item: np.ndarray
    features: np.ndarray


@dataclass
class CrossFit:
    """What the folds returned."""

    fold: np.ndarray  # [users]
    names: tuple[str, ...]
    features: np.ndarray  # [rows, features]
    injected: list[Injected]  # by kind
    serving: Statistics  # of the users outside fold 0: for users who are not in the data


def inject(rows: Rows, settings: Settings, rng: np.random.Generator) -> list[Injected]:
    """Places spread evenly over the data, and an item of each kind at each."""
    company = rows.in_company()
    number = min(settings.draws, 5 * len(company))
    out = []
    for kind in KINDS:
        whole, rest = divmod(number, len(company))
        places = np.concatenate([company] * whole + [rng.choice(company, rest, replace=False)])
        places.sort()
        out.append(Injected(places, draw(kind, rows.item, rows.n_items, number, rng), np.empty(0)))
    return out


def cross_fit(rows: Rows, settings: Settings, rng: np.random.Generator, progress: Progress) -> CrossFit:
    """Features of every row and of the injected items, fold by fold."""
    folds = settings.fold_count(len(rows), rows.users)
    fold = rng.permutation(rows.users) % folds  # folds of equal size, at random
    of_row = fold[rows.user]
    injected = inject(rows, settings, rng)
    out: np.ndarray | None = None
    serving: Statistics | None = None
    for f in range(folds):
        fit, held = of_row != f, np.flatnonzero(of_row == f)
        counts = count(rows.user[fit], rows.item[fit], rows.n_items, settings.window)
        statistics = Statistics(counts, item_vectors(counts, settings.rank, settings.seed), rows.texts)
        progress.step(f"fold {f + 1} of {folds}: counted")
        if out is None:
            serving, width = statistics, len(statistics.names)
            out = np.empty((len(rows), width), np.float32)
            for kind in injected:
                kind.features = np.empty((len(kind.places), width), np.float32)
        out[held] = features(rows.user, rows.item, held, rows.item[held], statistics, settings.window)
        for kind in injected:
            there = np.flatnonzero(of_row[kind.places] == f)
            places, items = kind.places[there], kind.item[there]
            kind.features[there] = features(rows.user, rows.item, places, items, statistics, settings.window)
        progress.step(f"fold {f + 1} of {folds}: compared")
    assert out is not None and serving is not None
    return CrossFit(fold, serving.names, out, injected, serving)


@dataclass
class Scores:
    """Log odds of each kind against data: of the rows [rows, kinds], of each kind's injected items [draws, kinds]."""

    data: np.ndarray
    injected: list[np.ndarray]
    forests: list[list[Forest]]  # [kind][half that it scores]


def score(rows: Rows, fitted: CrossFit, settings: Settings, rng: np.random.Generator, progress: Progress) -> Scores:
    """One classifier for each kind and half of the users, applied to the other half."""
    kinds = len(fitted.injected)
    half = (fitted.fold % 2)[rows.user]
    data = np.empty((len(rows), kinds))
    injected = [np.empty((len(kind.places), kinds)) for kind in fitted.injected]
    forests: list[list[Forest]] = []
    for c, kind in enumerate(fitted.injected):
        forests.append([])
        for part in (0, 1):
            clean = np.flatnonzero(half != part)
            if len(clean) > settings.rows:
                clean = np.sort(rng.choice(clean, settings.rows, replace=False))
            wrong = np.flatnonzero(half[kind.places] != part)
            x = np.concatenate([fitted.features[clean], kind.features[wrong]])
            y = np.repeat([0, 1], [len(clean), len(wrong)])
            model = grow(x, y, settings.trees, settings.seed)
            offset = float(np.log(len(clean) / len(wrong)))  # log odds at equal sizes = log of the density ratio
            forests[c].append(Forest.of(model, offset))
            here = np.flatnonzero(half == part)
            data[here, c] = _applied(model, fitted.features, here) + offset
            for scores, other in zip(injected, fitted.injected, strict=True):
                there = np.flatnonzero(half[other.places] == part)
                scores[there, c] = _applied(model, other.features, there) + offset
            progress.step(f"classifier {2 * c + part + 1} of {2 * kinds}")
    return Scores(data, injected, forests)


def _applied(model: HistGradientBoostingClassifier, features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Log odds of some rows, in pieces: scikit-learn copies what it is given, as float64."""
    pieces = (model.decision_function(features[rows[at : at + CHUNK]]) for at in range(0, len(rows), CHUNK))
    return np.concatenate([np.empty(0), *pieces])
