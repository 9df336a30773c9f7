"""What RecBole's models keep beside their weights (matrices of SciPy and NumPy) as tensors and plain data, and back.

torch >= 2.6 refuses to load pickled matrices, so RecBole's ItemKNN, EASE and others cannot read their own checkpoints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse

_KIND = "recbole_denoiser.kind"  # marks a mapping that stands for a matrix


def to_plain(value: Any) -> Any:
    """``value`` in a form that needs no pickle; what has no such form stays as it is."""
    if sparse.issparse(value):
        rows = value.tocsr()
        parts = {name: torch.from_numpy(np.asarray(getattr(rows, name))) for name in ("data", "indices", "indptr")}
        return {_KIND: "sparse", "format": value.format, "shape": list(value.shape), **parts}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return {_KIND: "matrix" if isinstance(value, np.matrix) else "array", "data": torch.from_numpy(np.array(value))}
    if isinstance(value, np.generic):
        return value.item()
    return value


def from_plain(value: Any) -> Any:
    """Inverse of ``to_plain``."""
    if not isinstance(value, dict) or _KIND not in value:
        return value
    if value[_KIND] == "sparse":
        parts = tuple(value[name].cpu().numpy() for name in ("data", "indices", "indptr"))
        return sparse.csr_matrix(parts, shape=tuple(value["shape"])).asformat(value["format"])
    array = value["data"].cpu().numpy()
    return np.asmatrix(array) if value[_KIND] == "matrix" else array


def other_parameters(model: Any) -> dict[str, Any] | None:
    """What a checkpoint of RecBole's model holds beside the weights; modules are among the weights already."""
    found = model.other_parameter()
    if not found:
        return found
    return {name: to_plain(value) for name, value in found.items() if not isinstance(value, torch.nn.Module)}


def mend_dok_matrix() -> None:
    """RecBole fills SciPy's dok_matrix by ``_update``, which SciPy has removed."""
    if not hasattr(sparse.dok_matrix, "_update"):
        sparse.dok_matrix._update = lambda self, entries: self._dict.update(entries)
