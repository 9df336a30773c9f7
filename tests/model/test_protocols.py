"""What tells this package's models from others, on every Python."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_type_hints

import pytest
from built import build

from recbole_denoiser.core import Denoiser
from recbole_denoiser.integration.registry import MODELS
from recbole_denoiser.model.protocols import MaskedModel, denoiser_of

MEMBERS = {*get_type_hints(MaskedModel), *(name for name, _ in inspect.getmembers(MaskedModel, inspect.isfunction))}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_this_package_is_known_as_one(workplace: Path, settings: dict, name: str) -> None:
    """From Python 3.12 on isinstance looks members up as getattr_static does, which does not see torch's sub-modules."""
    model = build(name, settings).model
    for member in {member for member in MEMBERS if not member.startswith("_")}:
        inspect.getattr_static(model, member)  # AttributeError where Python 3.12 would not find it
    assert isinstance(model, MaskedModel)
    denoiser = denoiser_of(model)
    assert isinstance(denoiser, Denoiser) if name.endswith("Denoiser") else denoiser is None


def test_a_model_of_recbole_is_not(workplace: Path, settings: dict) -> None:
    model = build("GRU4Rec", settings).model
    assert not isinstance(model, MaskedModel)
    assert denoiser_of(model) is None
