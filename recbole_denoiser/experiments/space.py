"""Search spaces of ``tune``: around a model's defaults, a named one, or a file of the user.

search_space:
  learning_rate: {low: 0.0001, high: 0.01, log: True}
  n_layers: [1, 2, 3]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.paths import properties_folder, property_file
from recbole_denoiser.integration.values import read_yaml

# setting -> how far from its default, as a factor each way, on a logarithmic scale
_FACTORS = {"learning_rate": 5, "mask_learning_rate": 5, "beta": 10, "gamma": 10}
_SIZES = ("hidden_size", "embedding_size")  # half, the default, double
_SHARES = ("hidden_dropout_prob", "attn_dropout_prob", "dropout_prob", "target_rate")  # up to 0.2 each way


def around_defaults(model: str) -> dict[str, Any]:
    """What a user would turn first, near the values that were chosen: the defaults are inside."""
    defaults = Config(model).final_config_dict
    space: dict[str, Any] = {}
    for key, factor in _FACTORS.items():
        if isinstance(defaults.get(key), (int, float)) and defaults[key] > 0:
            space[key] = {"low": defaults[key] / factor, "high": defaults[key] * factor, "log": True}
    for key in _SIZES:
        if isinstance(defaults.get(key), int) and defaults[key] >= 4:
            space[key] = [defaults[key] // 2, defaults[key], defaults[key] * 2]
    for key in _SHARES:
        if isinstance(defaults.get(key), float):
            space[key] = {
                "low": max(0.0, round(defaults[key] - 0.2, 3)),
                "high": min(0.8, round(defaults[key] + 0.2, 3)),
            }
    return space


def named_spaces() -> list[str]:
    """Spaces that come with the package."""
    return sorted(file.stem for file in (properties_folder() / "search").glob("*.yaml"))


def search_space(model: str, name: str | None = None) -> dict[str, Any]:
    """The space around the model's defaults, or that of a file or of a name such as ``paper``."""
    if name is None:
        return around_defaults(model)
    named = None if Path(name).is_file() else property_file("search", name)
    if named is None and not Path(name).is_file():
        raise UserError(f"--search_space {name}: there is no such file, and no space of this name; named spaces: "
                        f"{', '.join(named_spaces())}.")  # fmt: skip
    space = read_yaml(named or Path(name)).get("search_space")
    if not isinstance(space, dict) or not space:
        raise UserError(f"There is no search space in {name}: it needs a mapping 'search_space'.")
    if named is not None:  # for any model: the keys that it has
        known = Config(model).final_config_dict
        space = {key: values for key, values in space.items() if key in known}
        if not space:
            raise UserError(f"{model} has none of the settings of the search space {name}.")
    for key, values in space.items():
        is_range = isinstance(values, dict) and {"low", "high"} <= set(values) <= {"low", "high", "log"}
        is_list = isinstance(values, list) and values and not any(isinstance(value, (list, dict)) for value in values)
        if not is_range and not is_list:
            raise UserError(
                f"search_space.{key} = {values!r} must be a list of numbers or texts, or {{low: a, high: b}}."
            )
        if isinstance(values, dict):
            _check_range(key, values)
    return space


def _check_range(key: str, values: Mapping[str, Any]) -> None:
    """UserError for a range that Optuna cannot draw from."""
    low, high, log = values["low"], values["high"], values.get("log", False)
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not -math.inf < low <= high < math.inf:
        raise UserError(f"search_space.{key}: low = {low!r} and high = {high!r} must be numbers, low <= high.")
    if not isinstance(log, bool):
        raise UserError(f"search_space.{key}: log = {log!r} must be True or False.")
    if log and low <= 0:
        raise UserError(f"search_space.{key}: low = {low!r} must be above 0 with log: True.")
