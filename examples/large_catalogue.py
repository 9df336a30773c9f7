"""Large catalogues: a graph index for the largest inner products, and its recall beside exact search.

pip install 'recbole-denoiser[export,serve]'
recbole-denoiser export --run <run> --format safetensors --output model
python examples/large_catalogue.py model       # the item vectors and states of a trained model
python examples/large_catalogue.py 100000      # as many made-up vectors, width 64, in 1,000 groups
"""

from __future__ import annotations

import sys
import time

import faiss
import numpy as np

QUERIES, K = 200, 10


def of_model(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Item vectors [N, d] and states of random histories [Q, d]: scores are their inner products."""
    import torch

    from recbole_denoiser import Recommender

    recommender = Recommender.load(folder)
    random = np.random.default_rng(0)
    items = torch.from_numpy(random.integers(1, len(recommender.items), (QUERIES, recommender.n)))
    with torch.no_grad():
        states = recommender.model(items, torch.full((QUERIES,), recommender.n)).numpy()
        return recommender.model.item_weights()[1 : len(recommender.items)].contiguous().numpy(), states


def made_up(count: int, width: int = 64, groups: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Normal vectors around the centres of groups; the queries are drawn around the same centres."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((groups, width), dtype=np.float32)
    owner = random.integers(groups, size=count + QUERIES)
    points = centres[owner] + random.standard_normal((count + QUERIES, width), dtype=np.float32) / 2
    return points[:count], points[count:]


def compare(vectors: np.ndarray, queries: np.ndarray) -> list[tuple[int, float, float]]:
    """For each width of the search: share of the exact top K that the index finds, and exact over index time."""
    begin = time.process_time()
    exact = faiss.knn(queries, vectors, K, metric=faiss.METRIC_INNER_PRODUCT)[1]
    exact_seconds = time.process_time() - begin
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 80
    index.add(vectors)
    rows = []
    for width in (32, 128, 512):
        index.hnsw.efSearch = width
        begin = time.process_time()
        found = index.search(queries, K)[1]
        seconds = time.process_time() - begin
        recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(exact, found, strict=True)])
        rows.append((width, float(recall), exact_seconds / max(seconds, 1e-9)))
    return rows


if __name__ == "__main__":
    vectors, queries = made_up(int(sys.argv[1])) if sys.argv[1].isdigit() else of_model(sys.argv[1])
    print(f"{len(vectors):,} items of width {vectors.shape[1]}, {len(queries)} queries")
    for width, recall, times in compare(vectors, queries):
        print(f"efSearch {width:>3}: recall@{K} {recall:.3f} beside exact search, {times:.1f} times as fast")
