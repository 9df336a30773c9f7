"""A warning that points at this package's code fails the test in which it occurs (setup.cfg)."""

from __future__ import annotations

import warnings

import pytest


@pytest.mark.parametrize("module", ["recbole_denoiser", "recbole_denoiser.core.masks"])
def test_warnings_of_ours_are_errors(module: str) -> None:
    with pytest.raises(FutureWarning, match="old"):
        warnings.warn_explicit("old", FutureWarning, "masks.py", 1, module=module)


def test_warnings_of_others_are_not() -> None:
    with pytest.warns(UserWarning, match="theirs"):
        warnings.warn_explicit("theirs", UserWarning, "other.py", 1, module="recbole_denoiser_elsewhere")
