"""The serving example answers a real request as recommend does."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_denoiser.analysis.export import export
from recbole_denoiser.analysis.recommend import Recommender

for _name in ("fastapi", "uvicorn", "onnxruntime", "onnxscript", "safetensors", "faiss"):
    pytest.importorskip(_name, reason="needs the extras export and serve")

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve.py"


def example() -> Any:
    specification = importlib.util.spec_from_file_location("serve_example", EXAMPLE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_a_request_on_loopback_and_the_index(train_toy: Any, tmp_path: Path) -> None:
    serve = example()
    recommender = Recommender.load(train_toy("SASRecDenoiser", n_layers=2))
    export(recommender, "onnx", tmp_path, 3)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = serve.uvicorn.Server(serve.uvicorn.Config(serve.make_app(tmp_path), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.05)
        histories = [recommender.items[[3, 4, 5]].tolist(), ["never seen"], recommender.items[[9]].tolist()]
        body = json.dumps({"histories": histories}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/recommend", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            answer = json.load(reply)
    finally:
        server.should_exit = True
        thread.join()
    wanted = recommender.recommend(histories, 3)
    assert [[entry["item"] for entry in row] for row in answer] == [
        [entry["item"] for entry in wanted[number]] for number in range(3)
    ]
    assert answer[1] == []
    for row in range(3):
        np.testing.assert_allclose([e["score"] for e in answer[row]], [e["score"] for e in wanted[row]], rtol=1e-4)

    export(recommender, "safetensors", tmp_path, 3)
    assert serve.model_recall(tmp_path, 20) == 1.0  # 40 items: the index finds all
