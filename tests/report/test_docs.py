"""The pages in docs/ say what the code does."""

from __future__ import annotations

import re

import pytest
from docs_scripts import DOCS, docs_script

from recbole_denoiser.core.config import ESTIMATORS
from recbole_denoiser.integration.schema import PACKAGE_KEYS


def test_configuration_page_is_up_to_date() -> None:
    script = docs_script("make_configuration")
    current = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert script.text() == current, "docs/configuration.md is old: run python docs/make_configuration.py"


def test_every_key_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for name, key in PACKAGE_KEYS.items():
        assert f"| `{name}` |" in text
        assert key.help.strip(), f"{name} has no words of help"


def test_every_estimator_is_documented() -> None:
    text = (DOCS / "estimators.md").read_text(encoding="utf-8")
    for name in ESTIMATORS:
        assert f"`{name}`" in text


@pytest.mark.parametrize("page", ["estimators.md", "protocol.md"])
def test_files_and_keys_named_in_a_page_exist(page: str) -> None:
    """`core/masks.py`-like names are files of the package; `key: value` and `--key=` name known keys."""
    text = (DOCS / page).read_text(encoding="utf-8")
    package = DOCS.parent / "recbole_denoiser"
    for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text):
        assert (package / name).is_file() or (DOCS.parent / name).is_file(), name
    for target in re.findall(r"\]\(([\w./]+)\)", text):
        assert (DOCS / target).exists(), target
    known = set(PACKAGE_KEYS) | {"eval_args", "seed"}
    for name in re.findall(r"`(?:--)?([a-z_]+)(?:\.\w+)?[:=] ?[^`]*`", text):
        assert name in known, name
