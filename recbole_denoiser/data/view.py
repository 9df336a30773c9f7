"""What a part of the run reads: flat sequences in which every interaction knows its phase and where it came from.

Noise and its removal make new sequences out of those in the files. What is predicted at validation and test, and so
the users and candidates that runs are compared by, is the same in every view of a data set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from recbole_denoiser.data.rows import FlatSequences, SequenceRows
from recbole_denoiser.data.split import TRAIN

READ = -1  # the phase of what is only read: the first interaction of a user without training targets


@dataclass(frozen=True)
class View:
    """N interactions, sorted by user and time."""

    flat: FlatSequences
    phase: np.ndarray  # [N] TRAIN, VALID or TEST: where it is predicted; READ
    origin: np.ndarray  # [N] its index in the data as the files have them; -1: inserted
    noise: np.ndarray  # [N] bool: injected by train_noise or eval_noise

    @classmethod
    def of_files(cls, flat: FlatSequences, target: np.ndarray, target_phase: np.ndarray) -> View:
        """From the phases [R] of all targets [R]. The first interaction of a user, which nothing predicts, belongs to
        the training part if a training target follows it."""
        phase = np.full(len(flat), READ, dtype=np.int8)
        phase[target] = target_phase
        phase[flat.user_start[target[target_phase == TRAIN]]] = TRAIN
        return cls(flat, phase, np.arange(len(flat)), np.zeros(len(flat), dtype=bool))

    def __len__(self) -> int:
        return len(self.flat)

    @property
    def training(self) -> np.ndarray:
        """Indices of the training part."""
        return np.flatnonzero(self.phase == TRAIN)

    def targets(self, phase: int) -> np.ndarray:
        """Indices of what is predicted in a phase: not the first interaction of a user, which has no history."""
        target = self.flat.targets
        return target[self.phase[target] == phase]

    def rows(self, phase: int, max_length: int) -> SequenceRows:
        """RecBole's rows of a phase: every target and the history before it."""
        return SequenceRows.prefixes(self.flat, self.targets(phase), max_length)

    def seen_before(self, target: np.ndarray, source: FlatSequences) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs (place in ``target``, item): all that the files (``source``) have of a user before each target [R],
        without noise and whatever was removed, so that runs on the same data leave out the same items."""
        end = self.origin[target]  # [R] a target comes from the files
        start = source.user_start[end]
        count = end - start
        place = np.repeat(np.arange(len(target)), count)
        item = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)
        return torch.from_numpy(place), source.columns[source.fields.item][torch.from_numpy(item)]

    def kept(self, keep: np.ndarray) -> View:
        """The view without the interactions where ``keep`` [N] is False."""
        columns = {name: column[keep] for name, column in self.flat.columns.items()}
        return View(FlatSequences(columns, self.flat.fields), self.phase[keep], self.origin[keep], self.noise[keep])

    def with_column(self, name: str, values: np.ndarray) -> View:
        """The view with one more column, which then travels in every batch."""
        columns = {**self.flat.columns, name: torch.from_numpy(values)}
        return replace(self, flat=FlatSequences(columns, self.flat.fields))
