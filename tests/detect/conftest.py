"""Made-up data, made once."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import made_up, with_noise


@pytest.fixture(scope="session")
def clean() -> tuple[np.ndarray, np.ndarray, int]:
    return made_up()


@pytest.fixture(scope="session")
def small() -> list[list[str]]:
    """60 users of 12 items with a tenth replaced, as lists of tokens."""
    _, item, n_items = made_up(users=60, length=12, topics=4, per_topic=8)
    item, _ = with_noise(item, n_items, 0.1, "uniform")
    return [[f"i{x}" for x in row] for row in item.reshape(60, 12)]
