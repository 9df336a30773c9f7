"""Runs that differ in nothing but the seed are one line and one row of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recbole_denoiser.experiments.reference import denoising_parts, reference
from recbole_denoiser.integration.schema import DERIVED, PLACES
from recbole_denoiser.report.runs import names_of, setting_text
from recbole_denoiser.runs.record import Run

_SEEDS = {"seed", "noise_seed"}


@dataclass(frozen=True)
class Group:
    """The seeds of one experiment."""

    name: str
    runs: list[Run]

    @property
    def first(self) -> Run:
        """Whose settings stand for all."""
        return self.runs[0]


def group_seeds(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their first runs; twins with the same seed, too, are apart."""
    found: dict[tuple, list[Run]] = {}
    for run in runs:
        keys = sorted(set(run.config) - PLACES - DERIVED - _SEEDS)
        settings = tuple((key, setting_text(run.config[key])) for key in keys)
        key: tuple = (run.dataset, run.label, run.model, settings)
        twins = sum(other.seed == run.seed for other in found.get(key, []))
        while twins:  # the same experiment again: a line of its own
            key = (*key, twins)
            twins = sum(other.seed == run.seed for other in found.get(key, []))
        found.setdefault(key, []).append(run)
    groups = list(found.values())
    names = names_of([_without_seed(group[0]) for group in groups])
    return [Group(name, group) for name, group in zip(names, groups, strict=True)]


def _without_seed(run: Run) -> Run:
    """The seed must not become part of a group's name."""
    return replace(run, config={key: value for key, value in run.config.items() if key not in _SEEDS})


def references(groups: Sequence[Group]) -> dict[str, Group]:
    """Name of each group -> the group it is compared with, if there is one.

    That is the plain backbone on the same data set with the same share of noise; for the backbone itself, and where
    there is none, the one with the least noise.
    """
    found: dict[str, Group] = {}
    for group in groups:
        here = [other for other in groups if other.first.dataset == group.first.dataset]
        alike = [other for other in here if _noise(other) == _noise(group)]
        for candidates in (alike, here):
            chosen = reference([other.first for other in candidates])
            base = next(other for other in candidates if other.first is chosen)
            if base is not group and (candidates is here or not denoising_parts(chosen)):
                found[group.name] = base
                break
    return found


def _noise(group: Group) -> float:
    return float(group.first.config.get("train_noise") or 0.0)
