"""The noise page: how much noise a data set holds, where to cut, and which interactions look wrong and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recbole_denoiser.analysis.evidence import evidence
from recbole_denoiser.analysis.explain import when
from recbole_denoiser.data.detected import Detected
from recbole_denoiser.detect import NoiseReport
from recbole_denoiser.files import write_text
from recbole_denoiser.report.html import page, template

STYLES = ("base.css", "controls.css", "noise.css")
SCRIPTS = ("base.js", "chart.js", "noise.js")
SUSPICIOUS = 300  # interactions in the list
EXPLAINED = 1500  # interactions with their neighbours
ROWS = 200_000  # interactions of the users that can be looked up


def noise_html(found: Detected) -> str:
    """The page as text."""
    return page(f"Noise in {found.config['dataset']}", STYLES, SCRIPTS, template("noise.html"), noise_data(found))


def write_noise_page(found: Detected, file: Path) -> Path:
    """Write the page; returns the file."""
    return write_text(file, noise_html(found))


def noise_data(found: Detected) -> dict[str, Any]:
    """What the page shows, as plain JSON."""
    data, report = found.data, found.report
    order = _most_suspicious(report)
    listed = order[:SUSPICIOUS]
    users = _users(found)
    shown = set(users.tolist())
    explained = [int(row) for row in order[:EXPLAINED] if int(data.user[row]) in shown]
    reasons = evidence(data.user, data.item, len(data.items), explained, int(report.settings["window"]))
    start = np.searchsorted(data.user, np.arange(len(data.users) + 1))
    rank = {int(code): place for place, code in enumerate(users)}
    popularity = np.bincount(data.item, minlength=len(data.items))
    return {
        "dataset": found.config["dataset"],
        "sizes": report.sizes,
        "share": report.share,
        "interval": list(report.share_interval),
        "shares": report.shares,
        "gathered": report.gathered,
        "verdict": report.verdict,
        "threshold": report.settings["threshold"],
        "bound": found.bound,
        "removed": report.removed,
        "auc": _number(report.auc),
        "popularity_auc": _number(report.popularity_auc),
        "window": report.settings["window"],
        "texts": "text" in report.feature_names,
        "seconds": round(report.seconds, 1),
        "curve": {name: _numbers(values) for name, values in report.curve.items()},
        "histogram": {name: _numbers(values) for name, values in report.histogram.items()},
        "known": found.known_quality(),
        "items": [
            [str(token), found.titles.get(str(token), ""), int(seen)]
            for token, seen in zip(data.items, popularity, strict=True)
        ],
        "users": [
            {
                "user": str(data.users[code]),
                "item": data.item[start[code] : start[code + 1]].tolist(),
                "posterior": np.rint(1000 * report.posterior[start[code] : start[code + 1]]).astype(int).tolist(),
                "remove": np.flatnonzero(report.remove[start[code] : start[code + 1]]).tolist(),
                "noise": _labelled(found, slice(int(start[code]), int(start[code + 1]))),
            }
            for code in users
        ],
        "all_users": len(data.users),
        "suspicious": [
            {
                "user": str(data.users[data.user[row]]),
                "number": rank.get(int(data.user[row])),
                "place": int(row - start[data.user[row]]),
                "item": int(data.item[row]),
                "posterior": round(1000 * float(report.posterior[row])),
                "when": when(None if data.time is None else float(data.time[row])),
                "noise": None if found.labels is None else int(found.labels[row]),
            }
            for row in listed
        ],
        "evidence": {
            f"{data.users[data.user[row]]} {row - start[data.user[row]]}": {
                "others": reason.others,
                "neighbours": [[int(data.item[z]), k, c] for z, k, c in zip(reason.neighbours, reason.together,
                                                                              reason.chance, strict=True)],
            }
            for row, reason in zip(explained, reasons, strict=True)
        },
    }  # fmt: skip


def _most_suspicious(report: NoiseReport) -> np.ndarray:
    """Rows by posterior; of equal ones first what its neighbours make least likely (the feature lift)."""
    names = report.feature_names
    lift = report.features[:, names.index("lift")] if "lift" in names else np.zeros(len(report.posterior))
    return np.lexsort((np.arange(len(lift)), lift, -report.posterior))


def _users(found: Detected) -> np.ndarray:
    """Codes of the users that can be looked up, most expected noise first, ROWS interactions in all."""
    data = found.data
    expected = np.bincount(data.user, found.report.posterior, minlength=len(data.users))
    length = np.bincount(data.user, minlength=len(data.users))
    order = np.argsort(-expected, kind="stable")
    return order[np.cumsum(length[order]) <= max(ROWS, length[order[0]])]


def _labelled(found: Detected, rows: slice) -> list[int] | None:
    return None if found.labels is None else np.flatnonzero(found.labels[rows] == 1).tolist()


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 5)


def _numbers(values: Sequence[float] | np.ndarray) -> list[float | None]:
    return [_number(float(value)) for value in values]
