"""Every public name is explained, by an example that runs, and comes from the module that is said to define it."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import recbole_denoiser


@pytest.mark.parametrize("name", [name for name in recbole_denoiser.__all__ if name != "__version__"])
def test_public_names_are_explained_by_an_example_that_runs(name: str, workplace: Path) -> None:
    explained = getattr(recbole_denoiser, name)
    text = inspect.getdoc(explained) or ""
    example = doctest.DocTestParser().get_doctest(text, {name: explained}, name, None, None)
    assert example.examples and len(text.splitlines()[0]) > 20
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    assert not told, "".join(told)


def test_public_names_come_from_where_they_are_said_to() -> None:
    for name, place in recbole_denoiser._PLACES.items():
        assert hasattr(importlib.import_module(f"recbole_denoiser.{place}"), name)
    assert set(recbole_denoiser._PLACES) | {"__version__"} == set(recbole_denoiser.__all__)
