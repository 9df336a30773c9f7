"""Recommendations over HTTP from an exported model (pip install 'recbole-denoiser[export,serve]').

recbole-denoiser export --run <run> --format onnx --output model
python examples/serve.py model                 # then: POST /recommend {"histories": [["50", "181"]]}
python examples/serve.py model --recall 100    # recall of an approximate index beside exact search, and stop
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Histories(BaseModel):
    """Item tokens of each history, oldest first."""

    histories: list[list[str]]


def make_app(folder: Path) -> FastAPI:
    """A service that holds one model."""
    about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    ids = {token: number for number, token in enumerate(about["items"])}
    app = FastAPI(title=f"{about['model']} on {about['dataset']}")

    @app.post("/recommend")
    def recommend(request: Histories) -> list[list[dict[str, str | float]]]:
        known = [[ids[token] for token in history if ids.get(token)] for history in request.histories]
        length = np.array([len(history) for history in known], dtype=np.int64)
        items = np.zeros((len(known), max([1, *length])), dtype=np.int64)
        for row, history in enumerate(known):
            items[row, : len(history)] = history
        if not known:
            return []
        best, scores = session.run(None, {"items": items, "length": length})
        return [
            [{"item": about["items"][i], "score": float(s)} for i, s in zip(*row, strict=True) if np.isfinite(s)]
            for row in zip(best, scores, strict=True)
        ]

    return app


def recall(vectors: np.ndarray, queries: np.ndarray, k: int = 10) -> float:
    """Share of the exact top k by inner product that a graph index (faiss) finds: for catalogues of millions."""
    import faiss

    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :k]
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = 128
    index.add(vectors)
    found = index.search(queries, k)[1]
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(exact, found, strict=True)]))


def model_recall(folder: Path, count: int) -> float:
    """``recall`` of the item vectors of model.safetensors, asked with the states of random histories."""
    import torch

    from recbole_denoiser.analysis.recommend import Recommender

    recommender = Recommender.load(folder)
    random, model = np.random.default_rng(0), recommender.model
    items = torch.from_numpy(random.integers(1, len(recommender.items), (count, recommender.n)))
    with torch.no_grad():
        states = model(items, torch.full((count,), recommender.n)).numpy()
        vectors = model.item_weights()[1 : len(recommender.items)].contiguous().numpy()
    return recall(vectors, states)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--recall", type=int, metavar="N", help="measure with N histories (needs model.safetensors)")
    options = parser.parse_args()
    if options.recall:
        print(f"recall@10 of the index beside exact search: {model_recall(options.folder, options.recall):.3f}")
    else:
        uvicorn.run(make_app(options.folder), port=options.port)
