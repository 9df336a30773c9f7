"""What the detector found, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

JUDGED = "judged"
TOO_THIN = "too thin to judge"


@dataclass
class NoiseReport:
    """Posterior of being noise per interaction, and what to expect of it on this data.

    `posterior` and `remove` have the order of the input: a flat array for flat arrays and frames, a list of arrays for
    a list of sequences. Everything "expected" comes from injected items that were scored like the data.

    >>> from recbole_denoiser import detect_noise
    >>> films, cartoons = ["alien", "aliens", "predator"], ["bambi", "dumbo", "pinocchio"]
    >>> report = detect_noise([films, cartoons, [*films, "bambi"]] * 20)
    >>> low, high = report.share_interval  # print(report) also tells the AUC, precision and recall to expect
    >>> low <= report.share <= high
    True
    >>> len(report.posterior), len(report.posterior[0]), len(report.remove[2])
    (60, 3, 4)
    """

    posterior: Any  # [rows]: probability of being noise
    remove: Any  # [rows]: bool, recommended for removal
    share: float  # estimated share of noise
    share_interval: tuple[float, float]  # bootstrap over users
    shares: dict[str, float]  # by kind
    auc: float  # expected: noise against clean interactions
    precision: float  # expected of `remove`
    recall: float
    popularity_auc: float  # the same AUC of rarity alone
    verdict: str  # "judged" or "too thin to judge"
    feature_names: tuple[str, ...]
    features: np.ndarray  # [rows, features], order of the input (lists: one sequence after the other)
    curve: dict[str, np.ndarray]  # threshold, precision, recall, removed: for a slider
    histogram: dict[str, np.ndarray]  # edges, data, and one density per kind of injected items
    settings: dict[str, Any]
    sizes: dict[str, int]  # interactions, users, items
    seconds: float
    gathered: float = 0.0  # the part of `share` that is found in some users only, beyond what is everywhere
    detector: Any = field(default=None, repr=False)

    @property
    def removed(self) -> int:
        """How many interactions are recommended for removal."""
        return int(sum(int(np.sum(part)) for part in self.remove)) if len(self.remove) else 0

    def __str__(self) -> str:
        low, high = self.share_interval
        kinds = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        number = self.sizes["interactions"]
        rows = [
            ("data", f"{number:,} interactions, {self.sizes['users']:,} users, {self.sizes['items']:,} items"),
            ("estimated share of noise", f"{self.share:.1%} ({low:.1%} to {high:.1%}); {kinds}"),
            *([("of it in some users only", f"{self.gathered:.1%}")] if self.gathered > 0 else []),
            ("verdict", self.verdict),
            ("recommended for removal", f"{self.removed:,} ({self.removed / max(number, 1):.2%})"),
            ("expected precision, recall", f"{_figure(self.precision)}, {_figure(self.recall)}"),
            ("expected AUC (rarity alone)", f"{_figure(self.auc)} ({_figure(self.popularity_auc)})"),
            ("threshold, seed", f"{self.settings['threshold']:g}, {self.settings['seed']}"),
            ("used", ", ".join(self.feature_names)),
            ("time", f"{self.seconds:.1f} s"),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _figure(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"
