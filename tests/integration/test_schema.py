"""Settings have one source; every setting is fuzzed from its own description, so a new one is covered when it is added."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from recbole_denoiser.core import DenoiserConfig
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config, package_defaults
from recbole_denoiser.integration.key import Key
from recbole_denoiser.integration.paths import properties_folder, property_file
from recbole_denoiser.integration.recbole_schema import RECBOLE_KEYS
from recbole_denoiser.integration.registry import MODELS
from recbole_denoiser.integration.schema import PACKAGE_KEYS, check_value
from recbole_denoiser.integration.values import read_yaml

KEYS = {**RECBOLE_KEYS, **PACKAGE_KEYS}
NAN, INF = float("nan"), float("inf")
ANY: list[Any] = [None, True, 0, -1, 10**12, 10**400, 0.5, -1e300, 1e300, NAN, INF, "", "foo", "a\x00b", [], ["foo"], {},
                  {"foo": 1}]  # fmt: skip


def wrong_values(key: Key) -> list[Any]:
    """Values that the description of a key rules out."""
    found: list[Any] = [object()]
    kinds = set(key.types)
    if not key.optional:
        found.append(None)
    if key.choices is not None:
        return [*found, "foo", [], {}, 0.123, NAN, str(key.choices[0]) + " "]
    found += [] if bool in kinds else [True]
    found += [] if kinds & {int, float} else [3]
    found += [] if float in kinds else [0.5, NAN, INF]
    found += [] if str in kinds else ["foo", ""]
    found += [] if list in kinds else [[], ["foo"]]
    found += [] if dict in kinds else [{}, {"foo": 1}]
    found += ["a\x00b"] if str in kinds else []
    found += ["foo"] if key.pattern is not None else []
    if key.is_number:
        found += [key.at_least - 1] if key.at_least is not None else [key.above]
        found += [key.at_most * 2 + 1] if key.at_most is not None else [key.below]
        found += [-INF, INF, NAN, 10**400, -(10**400)]
    return found


@pytest.mark.parametrize("name", KEYS)
def test_wrong_values_of_every_key_are_one_line_that_names_it(name: str) -> None:
    key = KEYS[name]
    wrong = wrong_values(key)
    assert len(wrong) > 5
    for value in wrong:
        with pytest.raises(UserError) as caught:
            check_value(name, value, "in x.yaml", None, package_model=True)
        text = str(caught.value)
        assert text.startswith(f"{name} = ") and "(in x.yaml)" in text and key.allowed() in text
        assert "\n" not in text and len(text) < 500


@pytest.mark.parametrize("name", KEYS)
def test_bounds_are_there_and_are_allowed(name: str) -> None:
    key = KEYS[name]
    for choice in key.choices or ():
        assert not key.problem(choice)
    if key.is_number:
        assert (key.at_least, key.above) != (None, None), f"{name} has no lower bound"
        assert (key.at_most, key.below) != (None, None), f"{name} has no upper bound"
        for bound in (key.at_least, key.at_most):
            assert bound is None or not key.problem(int(bound) if int in key.types else float(bound))


@pytest.mark.parametrize("model", ["SASRecDenoiser", "GRU4Rec"])
def test_any_value_of_any_setting_is_a_configuration_or_one_line(model: str) -> None:
    """All settings that a run has, a model's own among them; one value of each kind per setting in turn."""
    launch = {"nproc", "world_size", "ip", "port", "offset", "group_offset"}  # would look for other processes
    settings = sorted((Config(model, "toy").final_config_dict.keys() | KEYS.keys()) - launch)
    for number, name in enumerate(settings):
        for value in (ANY[number % len(ANY)], ANY[(number + 7) % len(ANY)]):
            try:
                Config(model, "toy", config_dict={name: value})
            except UserError as error:
                assert "\n" not in str(error)


def test_a_billion_layers_are_refused() -> None:
    for name in ("n_layers", "hidden_size", "inner_size", "MAX_ITEM_LIST_LENGTH", "content_rank", "train_negatives"):
        with pytest.raises(UserError, match=name):
            Config(flags={name: 10**9})
    with pytest.raises(UserError, match="n_layers"):
        Config(flags={"n_layers": 1000, "hidden_size": 65536, "inner_size": 65536})


# ---- one source ----


def test_defaults_are_those_of_the_dataclass() -> None:
    """properties/denoiser.yaml against DenoiserConfig: beta and mask_form differ, and the file says why."""
    file = properties_folder() / "denoiser.yaml"
    defaults = read_yaml(file)
    public = {field.name: field.default for field in dataclasses.fields(DenoiserConfig) if field.metadata["public"]}
    assert public.keys() <= defaults.keys()
    differing = {name for name, default in public.items() if defaults[name] != default}
    marked = {line.split(":")[0] for line in file.read_text().splitlines() if "# marked:" in line}
    assert differing == marked == {"beta"}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_file_holds_only_what_differs(model: str) -> None:
    common = read_yaml(properties_folder() / "denoiser.yaml")
    file = property_file("model", model)
    assert file is not None
    own = read_yaml(file)
    assert not [name for name, value in own.items() if name in common and common[name] == value]
    for name, value in package_defaults(model, "toy", overall=True).items():
        check_value(name, value, "default", None, package_model=True)


TABLE = json.loads(Path(__file__).with_name("resolved_settings.json").read_text())
CHANGED_SINCE = {
    "noise_action",
    "mask_learning_rate",
    "beta",
    "mask_form",
}  # chosen knowingly: detection, ml-100k's own file, default-parts twice


@pytest.mark.parametrize("model", TABLE["models"])
def test_settings_resolve_as_before_there_was_one_source(model: str) -> None:
    """The table was written when every model's file held all settings."""
    table = TABLE
    now = json.loads(json.dumps(Config(model, "ml-100k").plain()))
    before = {**table["common"], **table["models"][model]}
    kept = before.keys() - CHANGED_SINCE
    assert {name: now.get(name) for name in kept} == {name: before[name] for name in kept}


def test_a_key_written_twice_is_told(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("epochs: 1\nseed: 2\nepochs: 3\n")
    with pytest.raises(UserError, match=r"my\.yaml', line 3: 'epochs' is written twice, the first time in line 1"):
        read_yaml(file)
    file.write_text("eval_args:\n  mode: full\n  mode: uni5\n")
    with pytest.raises(UserError, match="line 3: 'mode' is written twice"):
        read_yaml(file)
    file.write_text("a: &x {k: 1}\nb: {<<: *x, k: 2}\nc: [*x, *x]\n")
    assert read_yaml(file)["b"] == {"k": 2}


def test_clipping_takes_a_number() -> None:
    """As the message about non-finite losses recommends."""
    assert Config(flags={"clip_grad_norm": 5})["clip_grad_norm"] == {"max_norm": 5}
    assert Config(flags={"clip_grad_norm": {"max_norm": 2.0, "norm_type": 1}})["clip_grad_norm"]["norm_type"] == 1
    for wrong in ({"max": 5}, {"norm_type": 2}, {"max_norm": "a"}, {"max_norm": -1}):
        with pytest.raises(UserError, match="clip_grad_norm"):
            Config(flags={"clip_grad_norm": wrong})
