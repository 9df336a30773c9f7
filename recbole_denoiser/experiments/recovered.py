"""How much of what noise costs a method wins back: recovered = (method - plain) / (oracle removal - plain).

All three on the same users of the same noisy data; plain does nothing about the noise, the oracle removes exactly what
was injected. 0 is no gain, 1 all that can be had. The interval is a bootstrap over users, of the ratio itself; seeds,
those that all three have, are averaged per user first, as in the tests (stats.py). Where the oracle is not better than
plain there is nothing to recover, and no figure; where that is so in more than 2.5 % of the draws there is no interval.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recbole_denoiser.experiments.stats import BOOTSTRAPS, CHUNK, common_seeds, require_same_users, seed_mean
from recbole_denoiser.experiments.table_text import latex_text, metric_name
from recbole_denoiser.experiments.tables import group_runs
from recbole_denoiser.runs.record import Run


@dataclass(frozen=True)
class RecoveredShare:
    """One method on one data set by one metric."""

    label: str
    dataset: str
    metric: str
    plain: float
    method: float
    oracle: float
    recovered: float | None
    interval: tuple[float, float] | None
    seeds: int
    users: int


def recovered(method: float, plain: float, oracle: float) -> float | None:
    """The share of the gap that is closed; None where there is no gap."""
    return (method - plain) / (oracle - plain) if oracle > plain else None


def ratio_interval(
    method: np.ndarray, plain: np.ndarray, oracle: np.ndarray, level: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile interval of the recovered share when users are drawn again; aligned values [users] of each."""
    rng = np.random.default_rng(seed)
    users = len(plain)
    gain, gap = method - plain, oracle - plain  # [users]
    drawn: list[np.ndarray] = []
    left = BOOTSTRAPS
    while left:
        rows = min(left, max(1, CHUNK // users))
        index = rng.integers(0, users, (rows, users))
        above, below = gain[index].sum(1), gap[index].sum(1)
        drawn.append(np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan))
        left -= rows
    shares = np.concatenate(drawn)
    if np.isnan(shares).mean() > (1 - level) / 2:
        return None
    low, high = np.nanquantile(shares, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def recovered_shares(runs: Sequence[Run], plain: str, oracle: str, metrics: Sequence[str]) -> list[RecoveredShare]:
    """Every other label on every data set that has both the plain and the oracle runs."""
    groups = group_runs(runs)
    found = []
    for (label, dataset), group in groups.items():
        if label in (plain, oracle) or any((other, dataset) not in groups for other in (plain, oracle)):
            continue
        three = common_seeds(group, groups[plain, dataset], groups[oracle, dataset])
        for metric in metrics:
            values = method_values, plain_values, oracle_values = _aligned(three, metric)
            method, base, best = (float(value.mean()) for value in values)
            share = recovered(method, base, best)
            interval = None if share is None else ratio_interval(method_values, plain_values, oracle_values)
            users = len(plain_values)
            found.append(
                RecoveredShare(label, dataset, metric, base, method, best, share, interval, len(three[0]), users)
            )
    return found


def _aligned(groups: Sequence[Sequence[Run]], metric: str) -> list[np.ndarray]:
    """Per-user values [users] of each group, of the same users in the same order."""
    found = [seed_mean([run.ranks() for run in group], metric, [run.run for run in group]) for group in groups]
    for (users, _), group in zip(found, groups, strict=True):
        require_same_users(found[0][0], users, (groups[0][0].run, group[0].run))
    return [values for _, values in found]


# ---- texts ----

_HEAD = ("Model", "Data set", "Metric", "Seeds", "Users", "Plain", "Method", "Oracle removal", "Recovered", "95 %")


def _texts(share: RecoveredShare) -> list[str]:
    low_high = "-" if share.interval is None else " to ".join(map(_percent, share.interval))
    values = [f"{value:.4f}" for value in (share.plain, share.method, share.oracle)]
    part = "-" if share.recovered is None else _percent(share.recovered)
    names = [share.label, share.dataset, metric_name(share.metric)]
    return [*names, str(share.seeds), f"{share.users:,}", *values, part, low_high]


def _percent(share: float) -> str:
    return f"{round(100 * share)}%"  # a whole number has no -0


def to_markdown(shares: Sequence[RecoveredShare]) -> str:
    """A table, one line per model, data set and metric."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|---|---|---|" + "---:|" * (len(_HEAD) - 3)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in _texts(share)) + " |" for share in shares]
    note = "Recovered = (method - plain) / (oracle removal - plain); interval by bootstrap over users."
    return "\n".join([*lines, "", note]) + "\n"


def to_latex(shares: Sequence[RecoveredShare]) -> str:
    """The same as a tabular for booktabs."""
    rows = [" & ".join(latex_text(text) for text in _texts(share)) + r" \\" for share in shares]
    head = " & ".join(latex_text(text) for text in _HEAD) + r" \\"
    columns = "lll" + "r" * (len(_HEAD) - 3)
    begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*begin, *rows, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_csv(shares: Sequence[RecoveredShare]) -> str:
    """The same with unrounded numbers; empty where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["plain", "value", "oracle", "recovered", "low", "high", "seeds", "users"]
    writer.writerow(["model", "dataset", "metric", *names])
    for share in shares:
        low, high = share.interval or (None, None)
        numbers = [share.plain, share.method, share.oracle, share.recovered, low, high, share.seeds, share.users]
        writer.writerow([share.label, share.dataset, share.metric, *numbers])
    return text.getvalue()
