"""The serving example answers a real request as recommend does; the index example finds what exact search finds."""

from __future__ import annotations

import json
import runpy
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_denoiser.analysis.export import export
from recbole_denoiser.analysis.recommend import Recommender

for _name in ("fastapi", "uvicorn", "onnxruntime", "onnxscript", "safetensors", "faiss"):
    pytest.importorskip(_name, reason="needs the extras export and serve")

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def served(app: Any) -> Iterator[int]:
    """The application on a free port of loopback, ready inside the context; yields the port."""
    import uvicorn

    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            ready.set()

    listening = socket.create_server(("127.0.0.1", 0))  # bound here: nobody else can take the port
    server = Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        while not ready.wait(0.2):
            assert thread.is_alive(), "the server ended before it was ready"
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def ask(port: int, histories: list) -> Any:
    body = json.dumps({"histories": histories}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/recommend", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def test_a_request_on_loopback(train_toy: Any, tmp_path: Path) -> None:
    recommender = Recommender.load(train_toy("SASRecDenoiser", n_layers=2))
    export(recommender, "onnx", tmp_path, 3)
    histories = [recommender.items[[3, 4, 5]].tolist(), ["never seen"], recommender.items[[9]].tolist()]
    with served(runpy.run_path(str(EXAMPLES / "serve.py"))["make_app"](tmp_path)) as port:
        answer = ask(port, histories)
        assert ask(port, []) == []
    wanted = recommender.recommend(histories, 3)
    assert answer[1] == []
    for row in range(3):
        assert [entry["item"] for entry in answer[row]] == [entry["item"] for entry in wanted[row]]
        np.testing.assert_allclose([e["score"] for e in answer[row]], [e["score"] for e in wanted[row]], rtol=1e-4)


def test_the_index_finds_what_exact_search_finds(train_toy: Any, tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "large_catalogue.py"))
    export(Recommender.load(train_toy("SASRecDenoiser", n_layers=2)), "safetensors", tmp_path, 3)
    vectors, states = example["of_model"](str(tmp_path))
    assert [recall for _, recall, _ in example["compare"](vectors, states)] == [1.0] * 3  # 40 items: all are found
    vectors, queries = example["made_up"](2000, width=16, groups=20)
    recalls = [recall for _, recall, _ in example["compare"](vectors, queries)]
    assert recalls == sorted(recalls) and recalls[-1] > 0.95
