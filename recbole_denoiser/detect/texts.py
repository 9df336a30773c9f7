"""Vectors of item texts: TF-IDF of words, latent semantic analysis, length 1.

weight(word, item) = (1 + log tf) * (log((1 + n) / (1 + df)) + 1), rows of length 1, then a truncated SVD
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from recbole_denoiser.detect.vectors import unit_rows

RANK = 100


def text_vectors(texts: list[str], seed: int, rank: int = RANK) -> np.ndarray | None:
    """A vector per item and a zero vector for the empty item: [n + 1, at most rank]; None where no word is shared."""
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, max_df=0.5, token_pattern=r"(?u)\b\w+\b", dtype=np.float32)
    try:
        table = words.fit_transform([*texts, ""])
    except ValueError:  # no word is in two items
        return None
    if min(table.shape) < 3:
        return unit_rows(table.toarray())
    reduced = TruncatedSVD(min(rank, min(table.shape) - 1), random_state=seed).fit_transform(table)
    return unit_rows(reduced)
