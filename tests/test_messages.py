"""Remedies that messages name are there: flags, settings, commands, extras and functions."""

from __future__ import annotations

import argparse
import ast
import configparser
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import recbole_denoiser
from recbole_denoiser.cli.main import COMMANDS, build_parser
from recbole_denoiser.data.prepare.convert import NAMES
from recbole_denoiser.data.prepare.sources import SOURCES, how_to_get
from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.key import Key
from recbole_denoiser.integration.recbole_schema import RECBOLE_KEYS
from recbole_denoiser.integration.schema import PACKAGE_KEYS

PACKAGE = Path(recbole_denoiser.__file__).parent
SPEAKERS = {"UserError", "NonFiniteLossError", "warning", "print"}
# arguments and functions of torch, Hugging Face and RecBole, columns of data sets, entries of mappings
ELSEWHERE = {
    "use_cache", "attn_implementation", "scaled_dot_product_attention", "use_reentrant", "preserve_rng_state", "add_bias_kv", "add_zero_attn",
    "attn_mask", "is_causal", "item_id", "user_id", "group_by", "test_only", "valid_and_test", "valid_only", "max_norm",
    "norm_type", "other_parameter", "state_dict",
}  # fmt: skip


class Message(NamedTuple):
    place: str
    text: str


def spoken(node: ast.AST) -> str:
    """The fixed parts of a message; what it fills in is {}."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(spoken(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp):
        return spoken(node.left) + spoken(node.right)
    return ""


def messages() -> list[Message]:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                text = spoken(node.args[0]) if name in SPEAKERS else ""
                if text:
                    found.append(Message(f"{file.relative_to(PACKAGE)}:{node.lineno}", text))
    return found + [Message("sources", how_to_get(name)) for name in (*SOURCES, "mine")]


MESSAGES = messages()


def options() -> dict[str, set[str]]:
    """Command -> its options."""
    found = {}
    for command in COMMANDS:
        (subparsers,) = [a for a in build_parser(command)._actions if isinstance(a, argparse._SubParsersAction)]
        found[command] = {word for action in subparsers.choices[command]._actions for word in action.option_strings}
    return found


OPTIONS = options()
SETTINGS = Config.all_keys() | set(PACKAGE_KEYS) | set(RECBOLE_KEYS)


def python_names() -> set[str]:
    """Public functions of the package and their arguments, which messages of the Python interface name."""
    names = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                names |= {node.name} | {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
    return names


CHOICES = {choice for key in (*RECBOLE_KEYS.values(), *PACKAGE_KEYS.values()) for choice in key.choices or ()}
KNOWN_WORDS = (
    SETTINGS | CHOICES | {word.removeprefix("--") for words in OPTIONS.values() for word in words} | python_names()
)


def test_there_are_messages_to_check() -> None:
    assert len(MESSAGES) > 300
    assert sum("--" in message.text for message in MESSAGES) > 30


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.place)
def test_what_a_message_names_exists(message: Message) -> None:
    commands = re.findall(r"recbole-denoiser ([a-z]+)", message.text)
    assert set(commands) <= set(COMMANDS)
    known = set().union(*(OPTIONS[name] for name in commands or COMMANDS))
    if message.place.startswith("cli/"):  # said by a command of this group
        group = message.place.split("/")[1].split(".")[0]
        known |= set().union(*(OPTIONS[name] for name, entry in COMMANDS.items() if entry.group == group))
    for flag in re.findall(r"(?<![\w-])--([a-z]\w*)", message.text):
        assert f"--{flag}" in known or flag in SETTINGS or flag == "key", f"--{flag}"
    words = set(re.findall(r"(?<![\w./-])[a-z]+(?:_[a-z]+)+(?![\w/(.-])", message.text)) - ELSEWHERE
    assert words <= KNOWN_WORDS, words - KNOWN_WORDS


def test_extras_that_messages_name_can_be_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(PACKAGE.parent / "setup.cfg", encoding="utf-8")
    named = {extra for message in MESSAGES for extra in re.findall(r"recbole-denoiser\[(\w+)\]", message.text)}
    assert {"plots", "tune", "parquet"} <= named <= set(setup["options.extras_require"])


@pytest.mark.parametrize("key", [*PACKAGE_KEYS.values(), *RECBOLE_KEYS.values()], ids=lambda key: key.name)
def test_meanings_name_settings_that_exist(key: Key) -> None:
    words = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)", key.help)) - set(key.choices or ())
    choices = {choice for other in PACKAGE_KEYS.values() for choice in other.choices or ()}
    assert words <= SETTINGS | choices, words


def test_every_public_data_set_says_where_it_is_to_be_had() -> None:
    assert set(SOURCES) == set(NAMES)
    assert "https://files.grouplens.org/datasets/movielens/ml-1m.zip" in how_to_get("ml-1m")
    assert "recbole-denoiser prepare ml-1m --raw ml-1m.zip" in how_to_get("ml-1m")
