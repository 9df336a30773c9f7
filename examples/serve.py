"""Recommendations over HTTP from an exported model (pip install 'recbole-denoiser[serve]').

recbole-denoiser export --run <run> --format onnx --output model
python examples/serve.py model 8000
curl -H 'Content-Type: application/json' -d '{"histories": [["50", "181"]]}' http://127.0.0.1:8000/recommend
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import onnxruntime
    import uvicorn
    from fastapi import Body, FastAPI
except ImportError as error:
    sys.exit(f"{error.name} is missing: pip install 'recbole-denoiser[serve]'.")

from recbole_denoiser.analysis.graph_answers import GraphAnswers


def make_app(folder: Path) -> FastAPI:
    """A service that holds one model; a history is a list of item tokens, oldest first."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    answers = GraphAnswers(folder, lambda feed: session.run(None, feed))
    app = FastAPI(title=f"{answers.about['model']} on {answers.about['dataset']}")

    @app.post("/recommend")
    def recommend(histories: Annotated[list[list[str]], Body(embed=True)]) -> list[list[dict[str, str | float]]]:
        return answers(histories)

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(Path(sys.argv[1])), port=int(sys.argv[2]))
