"""A fitted detector that can be kept and asked about users it has never seen."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from recbole_denoiser.detect.counts import Counts
from recbole_denoiser.detect.features import MU, Statistics, features
from recbole_denoiser.detect.forest import Forest
from recbole_denoiser.detect.gathered import Strata
from recbole_denoiser.detect.posterior import Posterior, applied, ranking
from recbole_denoiser.detect.settings import Settings
from recbole_denoiser.errors import UserError
from recbole_denoiser.files import read_arrays, write_atomically

FORMAT = 3  # 1: one group of users; 1 and 2: pairs at every distance count 1, and mu is larger
OLD_MU = 50.0
FILE = "detector.npz"


@dataclass
class Detector:
    """Statistics of the users outside the first fold, the classifiers, the shares and the posterior.

    Statistics of a part of the users, so that what a new user meets is what the classifiers were fitted on. A user of
    the data is better looked up in the report: here own pairs are among the counts and make own items look at home.

    >>> from recbole_denoiser import detect_noise
    >>> films, cartoons = ["alien", "aliens", "predator"], ["bambi", "dumbo", "pinocchio"]
    >>> report = detect_noise([films, cartoons, [*films, "bambi"]] * 20)
    >>> file = report.detector.save("kept.npz")
    >>> posterior = Detector.load(file).score(["alien", "aliens", "bambi"])  # of a user that it has never seen
    >>> posterior.shape
    (3,)
    """

    settings: Settings
    kinds: tuple[str, ...]
    statistics: Statistics
    forests: list[list[Forest]]  # [kind][half]
    share: float  # estimated share of noise in the data it was fitted on
    shares: np.ndarray  # [groups of users, kinds]
    curves: list[Posterior]  # of each group
    strata: Strata | None  # by which users are told apart; None where there is one group
    group_of_part: np.ndarray  # [parts + 1] of the strata
    tokens: list[Any] | None = None  # of item ids; None where items are ids

    @classmethod
    def fit(cls, data: Any, **options: Any) -> Detector:
        """The detector of `detect_noise(data, **options)`; data that cannot be judged have none."""
        from recbole_denoiser.detect.api import detect_noise

        found = detect_noise(data, **options).detector
        if found is None:
            raise UserError("a detector needs more data: at least 40 interactions of 4 users and two different items")
        return found

    def score(self, sequence: Sequence[Hashable]) -> np.ndarray:
        """Posterior of being noise of each item of one user, oldest first; reads only these items."""
        return self.score_rows(np.zeros(len(sequence), np.int64), sequence)

    def score_rows(self, user: np.ndarray, items: Sequence[Hashable]) -> np.ndarray:
        """The same of several users at once: rows grouped by user, in time order within a user."""
        item = self._ids(items)
        if not len(item):
            return np.zeros(0)
        window = self.settings.window
        found = features(user, item, np.arange(len(item)), item, self.statistics, window)
        scores = np.column_stack([np.mean([forest.score(found) for forest in halves], 0) for halves in self.forests])
        names = self.statistics.names
        group = np.zeros(len(item), np.int64)
        if self.strata is not None:
            group = self.group_of_part[self.strata.of(np.unique(user, return_inverse=True)[1], found, names)]
        posterior = applied(self.curves, group, ranking(scores, self.shares[group]))
        return np.where(found[:, names.index("neighbours")] == 0, self.shares[0].sum(), posterior)

    def _ids(self, sequence: Sequence[Hashable]) -> np.ndarray:
        """Item ids; items that were never seen are the empty item."""
        unknown = self.statistics.counts.n_items
        if self.tokens is None:
            ids = np.asarray(sequence)
            if len(ids) and not np.issubdtype(ids.dtype, np.integer):
                raise UserError("this detector was fitted on item ids: integers are needed")
            ids = ids.astype(np.int64)
            return np.where((ids < 0) | (ids >= unknown), unknown, ids)
        code = {token: number for number, token in enumerate(self.tokens)}
        return np.array([code.get(token, unknown) for token in sequence], dtype=np.int64)

    def save(self, path: str | Path) -> Path:
        """Write one .npz file (arrays, and JSON as bytes; no pickle), at `path` or as detector.npz in the folder."""
        path = _file(path)
        for token in self.tokens or []:
            if not isinstance(token, (str, int, float)):
                raise UserError(f"item {token!r:.60} cannot be written: items of a kept detector are texts or numbers")
        counts = self.statistics.counts
        arrays: dict[str, np.ndarray] = {
            "popularity": counts.popularity,
            "vectors": self.statistics.vectors,
            "shares": self.shares,
            "group_of_part": self.group_of_part,
        }
        for group, curve in enumerate(self.curves):
            arrays |= {f"at_{group}": curve.at, f"value_{group}": curve.value}
        if self.strata is not None:
            arrays |= {f"strata_{name}": np.asarray(value) for name, value in vars(self.strata).items()}
        table = sparse.csr_matrix(counts.table)
        arrays |= {"table_data": table.data, "table_indices": table.indices, "table_indptr": table.indptr}
        if self.statistics.texts is not None:
            arrays["texts"] = self.statistics.texts
        for c, halves in enumerate(self.forests):
            for h, forest in enumerate(halves):
                arrays |= {f"forest_{c}_{h}_{name}": np.asarray(value) for name, value in vars(forest).items()}
        about = {
            "format": FORMAT,
            "kinds": self.kinds,
            "settings": asdict(self.settings),
            "share": self.share,
            "tokens": self.tokens,
            "dense": isinstance(counts.table, np.ndarray),
            "halves": [len(halves) for halves in self.forests],
        }
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        write_atomically(path, lambda stream: np.savez_compressed(stream, **arrays))  # type: ignore[arg-type]
        return path

    @classmethod
    def load(cls, path: str | Path) -> Detector:
        """Read what `save` wrote."""
        path = _file(path)
        arrays = read_arrays(path)
        try:
            about = json.loads(arrays["about"].tobytes())
            if about["format"] in (1, 2, FORMAT):
                return cls._of(arrays, about)
        except (ValueError, KeyError, TypeError, IndexError) as error:  # what is there is not what `save` writes
            raise UserError(f"{path} is not a detector that this package has written") from error
        raise UserError(f"{path} has format {about['format']}; this version reads formats 1 to {FORMAT}")

    @classmethod
    def _of(cls, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Detector:
        size = len(arrays["popularity"])
        table = sparse.csr_matrix(
            (arrays["table_data"], arrays["table_indices"], arrays["table_indptr"]), shape=(size, size)
        )
        counts = Counts(table.toarray() if about["dense"] else table, arrays["popularity"])
        forests: list[list[Forest]] = []
        for c, halves in enumerate(about["halves"]):
            forests.append([])
            for h in range(halves):
                prefix = f"forest_{c}_{h}_"
                parts: dict[str, Any] = {
                    name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)
                }
                forests[c].append(
                    Forest(**parts | {"depth": int(parts["depth"]), "baseline": float(parts["baseline"])})
                )
        return cls(
            Settings(**about["settings"]),
            tuple(about["kinds"]),
            Statistics(counts, arrays["vectors"], arrays.get("texts"), MU if about["format"] == FORMAT else OLD_MU),
            forests,
            *_groups(arrays, about),
            about["tokens"],
        )


def _groups(
    arrays: dict[str, np.ndarray], about: dict[str, Any]
) -> tuple[float, np.ndarray, list[Posterior], Strata | None, np.ndarray]:
    """Share, shares, curves, strata and the group of each part, as `save` wrote them."""
    shares = np.atleast_2d(arrays["shares"])
    if about["format"] == 1:
        return float(shares.sum()), shares, [Posterior(arrays["at"], arrays["value"])], None, np.zeros(1, np.int64)
    curves = [Posterior(arrays[f"at_{group}"], arrays[f"value_{group}"]) for group in range(len(shares))]
    strata = None
    if "strata_weight" in arrays:
        strata = Strata(arrays["strata_weight"], arrays["strata_edges"], int(arrays["strata_least"]))
    return about["share"], shares, curves, strata, arrays["group_of_part"]


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path if path.suffix == ".npz" else path / FILE
