"""Wrong items, drawn the way each kind of noise is thought to arise, to be put at places of the data.

uniform      each of the n items with probability 1 / n
popularity   an item with probability q: the item of a random interaction
"""

from __future__ import annotations

import numpy as np

KINDS = ("uniform", "popularity")


def draw(kind: str, item: np.ndarray, n_items: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """`number` item ids of this kind."""
    if kind == "uniform":
        return rng.integers(0, n_items, number)
    return rng.choice(item, number)
