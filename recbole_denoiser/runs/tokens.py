"""Token-to-id maps that are kept with a run: ``tokens.npz`` beside result.json.

Ids follow the order of the data file, so a model's rows mean nothing without the file that was read. With the maps a
run answers without its data, and a data file that has changed since is noticed where it is read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recbole_denoiser.errors import UserError
from recbole_denoiser.files import read_arrays, write_arrays
from recbole_denoiser.integration.config import Config

TOKENS_FILE = "tokens.npz"


class NeedsDataError(UserError):
    """A run that was opened without its data is asked for something that only the data holds."""


@dataclass(frozen=True)
class Tokens:
    """The text of every user and item id; id 0 is padding."""

    user: np.ndarray  # [users + 1] of str objects
    item: np.ndarray  # [items + 1] of str objects

    @classmethod
    def of(cls, dataset: Any) -> Tokens:
        """The maps of a data set that was read."""
        texts = [
            np.array([str(token) for token in dataset.field2id_token[field]], dtype=object)
            for field in (dataset.uid_field, dataset.iid_field)
        ]
        return cls(*texts)

    def fingerprint(self) -> str:
        """SHA-256 over all tokens in the order of their ids."""
        digest = hashlib.sha256()
        for texts in (self.user, self.item):
            text, end = _packed(texts)
            digest.update(end.tobytes())
            digest.update(text.tobytes())
        return digest.hexdigest()


def _packed(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All texts behind one another as UTF-8, and where each ends: one very long token must not widen all others."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return np.frombuffer(b"".join(parts), dtype=np.uint8), np.cumsum([len(part) for part in parts], dtype=np.int64)


def write_tokens(folder: Path, tokens: Tokens) -> None:
    """Keep the maps with a run."""
    arrays = {}
    for name, texts in (("user", tokens.user), ("item", tokens.item)):
        arrays[f"{name}_text"], arrays[f"{name}_end"] = _packed(texts)
    write_arrays(folder / TOKENS_FILE, arrays)


def read_tokens(folder: Path) -> Tokens | None:
    """The maps of a run; None for a run of an earlier version, which kept none."""
    file = folder / TOKENS_FILE
    if not file.is_file():
        return None
    arrays = read_arrays(file, "user_text", "user_end", "item_text", "item_end")
    return Tokens(*(_unpacked(arrays[f"{name}_text"], arrays[f"{name}_end"], file) for name in ("user", "item")))


def _unpacked(text: np.ndarray, end: np.ndarray, file: Path) -> np.ndarray:
    right = text.ndim == end.ndim == 1 and text.dtype == np.uint8 and end.dtype == np.int64 and len(end) > 0
    if not right or (np.diff(end, prepend=0) < 0).any() or int(end[-1]) != len(text):
        raise UserError(f"{file} is damaged: its texts and their ends do not fit.")
    content = text.tobytes()
    try:
        texts = [content[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *end[:-1]], end, strict=True)]
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is damaged: {error}") from error
    return np.array(texts, dtype=object)


class KeptDataset:
    """Stands in for a data set that is not read: the names of its columns and the maps, no interactions.

    It has what the constructors of most models ask for; whatever else is asked for raises NeedsDataError.
    """

    def __init__(self, config: Config, tokens: Tokens) -> None:
        self._name = config["dataset"]
        self.uid_field, self.iid_field = config["USER_ID_FIELD"], config["ITEM_ID_FIELD"]
        self.time_field, self.item_list_length_field = config["TIME_FIELD"], config["ITEM_LIST_LENGTH_FIELD"]
        self.field2id_token = {self.uid_field: tokens.user, self.iid_field: tokens.item}
        self.field2token_id = {
            field: {token: number for number, token in enumerate(texts)} for field, texts in self.field2id_token.items()
        }
        self.user_num, self.item_num = len(tokens.user), len(tokens.item)
        self.inter_feat = _NoRows(self.uid_field, self._name)

    def num(self, field: str) -> int:
        """How many ids a column has, padding among them."""
        if field not in self.field2id_token:
            raise _needs(self._name)
        return len(self.field2id_token[field])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _needs(self.__dict__.get("_name", ""))


class _NoRows:
    """No interactions: the users of the training part are known to be in the checkpoint (SSEPT)."""

    def __init__(self, user_field: str, name: str) -> None:
        self.user_field, self.name = user_field, name

    def __getitem__(self, field: str) -> torch.Tensor:
        if field != self.user_field:
            raise _needs(self.name)
        return torch.zeros(0, dtype=torch.long)


def _needs(name: str) -> NeedsDataError:
    return NeedsDataError(
        f"This needs data set '{name}' itself, but the run was opened without it: say where it is with data_path."
    )
