"""Item vectors: truncated SVD of the positive pointwise mutual information.

ppmi_ij = max(0, log( k_ij D^a / (deg_i deg_j^a) )),   a = 0.75 (frequent contexts weigh less),
ppmi = U S V',   vector_i = (U S^(1/2))_i, scaled to length 1; the empty item has the zero vector.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from recbole_denoiser.detect.counts import Counts

CONTEXT_POWER = 0.75
LARGE = 30_000_000  # more stored pairs than this: pairs seen once are left out of the factorisation


def ppmi(counts: Counts) -> np.ndarray | sparse.csr_matrix:
    """Positive PMI, of the form (dense, CSR) of the counts."""
    degree = np.maximum(counts.degree, 1e-12)
    row, column = np.log(degree), CONTEXT_POWER * (np.log(degree) - np.log(counts.total))
    if isinstance(counts.table, np.ndarray):
        with np.errstate(divide="ignore"):
            out = np.log(counts.table)
        out -= row[:, None].astype(np.float32)
        out -= column[None, :].astype(np.float32)
        return np.maximum(out, 0.0, out=out)
    pairs = counts.table.tocoo()
    keep = pairs.data > (1.5 if pairs.nnz > LARGE else 0.0)
    i, j = pairs.row[keep], pairs.col[keep]
    value = (np.log(pairs.data[keep]) - row[i] - column[j]).astype(np.float32)
    keep = value > 0
    return sparse.csr_matrix((value[keep], (i[keep], j[keep])), shape=counts.table.shape)


def item_vectors(counts: Counts, rank: int, seed: int) -> np.ndarray:
    """Vectors of length 1 (0 for items without pairs): [n + 1, at most rank], float32."""
    matrix = ppmi(counts)
    rank = min(rank, max(counts.n_items - 1, 1))
    left, values, _ = randomized_svd(matrix, rank, n_oversamples=10, n_iter=3, random_state=seed)
    return unit_rows(left * np.sqrt(values), counts.degree > 0)


def unit_rows(vectors: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """Rows scaled to length 1; rows that are (almost) zero, or not known, become zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    good = length > 1e-6
    if known is not None:
        good &= known[:, None]
    return np.where(good, vectors / np.where(good, length, 1.0), 0.0).astype(np.float32)
