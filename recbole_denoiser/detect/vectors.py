"""Item vectors: truncated SVD of the positive pointwise mutual information.

ppmi_ij = max(0, log( k_ij D^a / (deg_i deg_j^a) )),   a = 0.75 (frequent contexts weigh less),
ppmi = U S V',   vector_i = (U S^(1/2))_i, scaled to length 1; the empty item has the zero vector.

The SVD is found by subspace iteration from a random start (Halko, Martinsson and Tropp, 2011, algorithm 4.4). Only the
products with the matrix depend on the number of pairs, and every factorisation is of a small square matrix:
    Y = Q R with R'R = Y'Y = W L W',  Q = Y W L^(-1/2);      ppmi' Q = B,  B'B = W S^2 W',  U = Q W
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from recbole_denoiser.detect.counts import Counts

CONTEXT_POWER = 0.75
LARGE = 30_000_000  # more stored pairs than this: pairs seen once, apart, are left out of the factorisation
CHUNK = 8_000_000  # stored pairs at once
OVERSAMPLE, ROUNDS = 10, 3


def ppmi(counts: Counts) -> np.ndarray | sparse.csr_matrix:
    """Positive PMI, of the form (dense, CSR) of the counts."""
    degree = np.maximum(counts.degree, 1e-12)
    row = np.log(degree).astype(np.float32)
    column = (CONTEXT_POWER * (np.log(degree) - np.log(counts.total))).astype(np.float32)
    table = counts.table
    if isinstance(table, np.ndarray):
        with np.errstate(divide="ignore"):
            out = np.log(table)
        out -= row[:, None]
        out -= column[None, :]
        return np.maximum(out, 0.0, out=out)
    least = 0.5 if table.nnz > LARGE else 0.0
    values, columns, sizes = [], [], []
    pieces = max(1, -(-table.nnz // CHUNK))
    ends = np.searchsorted(table.indptr, np.linspace(0, table.nnz, pieces + 1)[1:-1]).tolist()
    for first, last in zip([0, *ends], [*ends, table.shape[0]], strict=True):  # rows first .. last - 1
        part = slice(table.indptr[first], table.indptr[last])
        number = np.repeat(np.arange(last - first), np.diff(table.indptr[first : last + 1]))
        column_of = table.indices[part]
        value = np.log(table.data[part]) - row[first:last][number] - column[column_of]
        keep = (value > 0) & (table.data[part] > least)
        values.append(value[keep])
        columns.append(column_of[keep])
        sizes.append(np.bincount(number[keep], minlength=last - first))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    return sparse.csr_matrix((np.concatenate(values), np.concatenate(columns), starts), shape=table.shape)


def item_vectors(counts: Counts, rank: int, seed: int) -> np.ndarray:
    """Vectors of length 1 (0 for items without pairs): [n + 1, at most rank], float32."""
    left, values = leading(ppmi(counts), min(rank, max(counts.n_items - 1, 1)), seed)
    return unit_rows(left * np.sqrt(values), counts.degree > 0)


def leading(matrix: np.ndarray | sparse.csr_matrix, rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Left singular vectors [n, rank] and singular values [rank] of a square matrix, largest first."""
    size = matrix.shape[0]
    random = np.random.default_rng(seed).standard_normal((size, min(rank + OVERSAMPLE, size)), dtype=np.float32)
    basis = orthonormal(matrix @ random)
    for _ in range(ROUNDS):
        basis = orthonormal(matrix @ orthonormal(matrix.T @ basis))
    squares, turn = symmetric(matrix.T @ basis)
    values = np.sqrt(np.maximum(squares[-rank:][::-1], 0.0)).astype(np.float32)
    return basis @ turn[:, -rank:][:, ::-1].astype(np.float32), values


def symmetric(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L (rising) and W with Y'Y = W L W': Y [n, r] -> [r], [r, r]."""
    return np.linalg.eigh((columns.T @ columns).astype(np.float64))


def orthonormal(columns: np.ndarray) -> np.ndarray:
    """Y W L^(-1/2), without the directions in which Y has (almost) nothing; none is left of a Y of zeros."""
    squares, turn = symmetric(columns)
    held = squares > 1e-10 * squares.max(initial=1e-20)
    return columns @ (turn[:, held] / np.sqrt(squares[held])).astype(np.float32)


def unit_rows(vectors: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """Rows scaled to length 1; rows that are (almost) zero, or not known, become zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    good = length > 1e-6
    if known is not None:
        good &= known[:, None]
    return np.where(good, vectors / np.where(good, length, 1.0), 0.0).astype(np.float32)
