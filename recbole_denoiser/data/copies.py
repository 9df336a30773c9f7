"""A changed copy of a data set: a folder that appears complete or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import set_key
from recbole_denoiser.integration.paths import property_file
from recbole_denoiser.integration.values import read_yaml


@contextmanager
def new_copy(source: Path, dataset: str, target: Path, settings: str) -> Iterator[Path]:
    """A folder to write the .inter file and others into, which becomes ``target`` at the end.

    The .item and .user files come along under the new name, ``settings`` as <name>.yaml.
    """
    if target.exists():
        raise UserError(f"{target} exists already. Remove it or choose another name.")
    name = target.name
    partial = target.with_name(f".{name}-{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        for kind in ("item", "user"):
            if (source / f"{dataset}.{kind}").is_file():
                shutil.copyfile(source / f"{dataset}.{kind}", partial / f"{name}.{kind}")
        (partial / f"{name}.yaml").write_text(settings, encoding="utf-8")
        os.replace(partial, target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error}") from error
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def original_settings(dataset: str, settings: dict[str, Any]) -> str:
    """The settings of the original, which a data set of another name would not get, and those asked for."""
    file = property_file("dataset", dataset)
    values = read_yaml(file) if file is not None else {}
    for key, value in settings.items():
        if key.startswith(("eval_args", "MAX_ITEM_LIST_LENGTH")):
            set_key(values, key, value)
    return yaml.safe_dump(values, sort_keys=False)
