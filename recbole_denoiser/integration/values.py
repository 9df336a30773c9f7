"""Values of settings from YAML files and flags: data, never code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import yaml

from recbole_denoiser.errors import UserError


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # ten times faster, where it is
    """Safe YAML in which 1e-4 is a number, as in RecBole's files."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9][0-9_]*)?\.?[0-9]+([eE][-+]?[0-9]+)$|^[-+]?[0-9][0-9_]*\.([eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)


DEEPEST = 100  # levels of lists and mappings in each other; libyaml's own limit is the end of the process


def parse_yaml(text: str) -> Any:
    """What YAML text holds; an error, not a crash, if it is nested too deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader) if len(text) > DEEPEST else ():
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested more than {DEEPEST} deep", problem_mark=event.start_mark)
    return yaml.load(text, Loader=Loader)


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping."""
    try:
        text = file.read_text(encoding="utf-8")
        content = parse_yaml(text)
        refuse_repeated_keys(yaml.compose(text, Loader=Loader), file)
    except FileNotFoundError:
        raise UserError(f"Config file '{file}' does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Config file '{file}' cannot be read: {error}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise UserError(f"Config file '{file}'{line} is not valid YAML: {getattr(error, 'problem', error)}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UserError(f"Config file '{file}' must hold 'key: value' lines.")
    return content


def refuse_repeated_keys(node: yaml.Node | None, file: Path) -> None:
    """UserError if a mapping has a key twice: YAML's reader would silently take the last."""
    todo, known = [node], set()
    while todo:
        node = todo.pop()
        if id(node) in known or not isinstance(node, (yaml.MappingNode, yaml.SequenceNode)):
            continue
        known.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
            continue
        seen: dict[str, int] = {}
        for key, value in node.value:
            todo += [key, value]
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in seen:
                    raise UserError(
                        f"Config file '{file}', line {line}: '{key.value}' is written twice, the first time in line "
                        f"{seen[key.value]}."
                    )
                seen[key.value] = line


def parse_value(text: str) -> Any:
    """The value of a ``--key=value`` flag. RecBole evaluates such text as Python; here it is only data."""
    if text == "None":
        return None
    if text.startswith("("):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: nested too deeply
            return text
    try:
        return parse_yaml(text)
    except (yaml.YAMLError, ValueError):
        return text
