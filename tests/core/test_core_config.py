"""Settings: every limit in the metadata is kept, and every field has one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from recbole_denoiser.core import DenoiserConfig
from recbole_denoiser.core.settings import allowed_words
from recbole_denoiser.errors import UserError

FIELDS = {field.name: field for field in dataclasses.fields(DenoiserConfig)}
NEVER: list[Any] = [float("nan"), float("inf"), -math.inf, [], {}, b"x", object(), 1 + 1j, "", "no such thing"]


def make(**settings: Any) -> DenoiserConfig:
    return DenoiserConfig(**{"max_length": 6, **settings})


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_says_what_it_is_and_what_it_may_be(name: str) -> None:
    limits = FIELDS[name].metadata
    assert limits["help"].endswith(".") and len(limits["help"]) > 10
    assert allowed_words(FIELDS[name])
    if limits["type"] is int:
        assert limits["minimum"] is not None and limits["maximum"] is not None, "a size without an upper bound"
    if limits["type"] is str:
        assert limits["choices"] and FIELDS[name].default in limits["choices"]


def outside(name: str) -> list[Any]:
    """Values just beyond each limit, and values of other types."""
    limits, values = FIELDS[name].metadata, list(NEVER)
    step = 1 if limits["type"] is int else 1e-6
    if limits["minimum"] is not None:
        values.append(limits["minimum"] - step)
    if limits["maximum"] is not None:
        values.append(limits["maximum"] * (1 + 1e-9) + step)
    values += [limits[key] for key in ("above", "below") if limits[key] is not None]
    values += [] if limits["optional"] else [None]
    values += [] if limits["type"] is bool else [True]
    values.append(10**400)
    return values


@pytest.mark.parametrize("name", FIELDS)
def test_what_lies_outside_is_refused_by_name(name: str) -> None:
    for value in outside(name):
        with pytest.raises(UserError, match=f"^Denoiser setting {name} is .*; allowed: "):
            make(**{name: value})


@pytest.mark.parametrize("name", FIELDS)
def test_the_limits_themselves_are_allowed(name: str) -> None:
    limits = FIELDS[name].metadata
    ends = [*(limits["choices"] or ()), *(limits[key] for key in ("minimum", "maximum") if limits[key] is not None)]
    for value in ends:
        kept = {"mask_sampling": "sequence"} if name == "mask" else {}
        assert getattr(make(**{**kept, name: value}), name) == value
    if limits["optional"]:
        assert getattr(make(**{name: None}), name) is None


def test_combinations_that_do_not_go_together() -> None:
    with pytest.raises(UserError, match="mask_sampling is 'batch'; allowed: sequence when mask is content"):
        make(mask="content", mask_sampling="batch")
    with pytest.raises(UserError, match="random_keep is "):
        make(mask="content", random_keep=0.5)
    assert make(random_keep=0.5, estimator="arm").estimator == "straight_through"
    assert make(sites=["a.b"]).sites == ("a.b",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_length", "a whole number >= 1 and <= 20000"),
        ("jacobian_step", "a number > 0 and <= 1"),
        ("mask", "one of position, content"),
        ("n_heads", "None or a whole number >= 1 and <= 4096"),
        ("causal", "True or False"),
    ],
)
def test_words(name: str, words: str) -> None:
    assert allowed_words(FIELDS[name]) == words
