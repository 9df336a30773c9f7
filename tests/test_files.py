"""The one reader of arrays: whatever is wrong with a file is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import read_arrays


def test_damaged_arrays_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez_compressed(file, user=np.array(["a", "b"] * 50), rank=np.arange(100.0))
    whole = file.read_bytes()
    assert read_arrays(file, "rank")["rank"][99] == 99
    assert list(read_arrays(file)) == ["user", "rank"]
    with pytest.raises(UserError, match=r"a\.npz cannot be read: .*item"):
        read_arrays(file, "item")
    np.savez(tmp_path / "pickled.npz", user=np.array([{}], dtype=object))
    with pytest.raises(UserError, match=r"pickled\.npz"):
        read_arrays(tmp_path / "pickled.npz", "user")
    np.save(tmp_path / "single.npy", np.arange(3))
    with pytest.raises(UserError, match=r"no \.npz file"):
        read_arrays(tmp_path / "single.npy", "user")
    random = np.random.default_rng(0)
    for number in range(150):
        damaged = bytearray(whole[: random.integers(len(whole))] if number % 3 == 0 else whole)
        for place in random.integers(len(damaged) or 1, size=3) if damaged else []:
            damaged[place] = random.integers(256)
        file.write_bytes(bytes(damaged))
        try:
            read_arrays(file, "user", "rank")
        except UserError as error:
            assert "\n" not in str(error)
