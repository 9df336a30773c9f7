"""The pages in docs/ say what the code does."""

from __future__ import annotations

import re

import pytest
from docs_scripts import DOCS, docs_script

import recbole_denoiser
from recbole_denoiser.core.config import ESTIMATORS
from recbole_denoiser.integration.paths import properties_folder
from recbole_denoiser.integration.schema import PACKAGE_KEYS
from recbole_denoiser.integration.values import read_yaml


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


def test_a_recbole_model_has_only_the_defaults_of_its_own_file() -> None:
    """RecBole's models do not train with this package's objective: its defaults are not said to be theirs."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `") and "GRU4RecKG" in line]
    assert {line.split("`")[1] for line in rows} == set(read_yaml(properties_folder() / "model" / "GRU4RecKG.yaml"))


def test_a_default_of_some_models_is_not_said_to_be_that_of_all() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `noise_action` |"))
    assert "`none`; BERT4RecDenoiser, SASRecDenoiser, SSEPTDenoiser, TiSASRecDenoiser `remove`" in row
    rows = next(line for line in text.splitlines() if line.startswith("| `train_rows` |"))
    assert "`prefixes`; this package's models `sequences`" in rows


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"^  - .+: (\w+\.md)$", navigation, flags=re.MULTILINE)
    assert sorted(listed) == sorted(file.name for file in DOCS.glob("*.md"))


def test_parts_of_the_readme_that_pages_show_are_there() -> None:
    """The site's start and limits are the README's, between markers that GitHub does not show."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    shown = [
        name for page in DOCS.glob("*.md") for name in re.findall(r'--8<-- "README.md:(\w+)"', page.read_text("utf-8"))
    ]
    assert sorted(shown) == ["limits", "start"]
    for name in shown:
        part = readme.split(f"[start:{name}] -->\n")[1].split(f"<!-- --8<-- [end:{name}]")[0]
        assert len(part) > 300
        assert not re.findall(r"\]\((?!https?:)", part), "a relative link would lead elsewhere from the site"


def test_the_api_page_has_every_public_name() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: recbole_denoiser[\w.]*\.(\w+)$", text, flags=re.MULTILINE))
    assert set(recbole_denoiser.__all__) - {"__version__"} == shown  # and what it shows is reachable
