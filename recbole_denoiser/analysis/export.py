"""A trained model for other programs: an ONNX or torch.export graph, or its weights alone.

The graph takes ``items`` [B, w], ids of the histories, oldest first, filled up with 0 behind their ends, and ``length``
[B]; B and w are free. It returns the ids [B, k] of the best next items and their scores, exactly as ``recommend`` does:
the newest n items count, the gates of the masks act, padding and (unless asked for) the items of the history are left
out; where fewer than k items are left, the score is -inf. Ids stand for the tokens in ``model.json``.

What ``recommend`` does to a history before the model reads it (dropping unknown items and, in a run that removes noise,
what its detector suspects) happens before the graph: ``GraphAnswers`` does it. Every export is compared with
``recommend`` before it counts.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recbole_denoiser import files
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.data.sequences import Histories
from recbole_denoiser.errors import UserError
from recbole_denoiser.model.base import SequenceModel
from recbole_denoiser.model.positions import align
from recbole_denoiser.runs.exported import (
    ABOUT_FILE,
    EXPORT_EXTRA,
    WEIGHTS_FILE,
    copy_detector,
    open_exported,
    read_about,
    write_about,
)

FORMATS = ("onnx", "pt2", "safetensors")
FILES = {"onnx": "model.onnx", "pt2": "model.pt2", "safetensors": WEIGHTS_FILE}
SAMPLES = 24  # histories that an export is checked with
TOLERANCE = 1e-4
_LARGE = 1_500_000_000  # bytes of weights that no longer fit into one ONNX file

Answer = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # items, length -> best items, scores


class TopItems(nn.Module):
    """From ids of histories to the k best next items: what is exported."""

    def __init__(self, recommender: Recommender, k: int, exclude_seen: bool) -> None:
        super().__init__()
        dataset, config = recommender.run.dataset, recommender.run.config
        self.model, self.n, self.n_items = recommender.model, recommender.n, len(recommender.items)
        self.k, self.exclude_seen = min(k, self.n_items - 1), exclude_seen
        self.item_list = dataset.iid_field + config["LIST_SUFFIX"]
        self.length = dataset.item_list_length_field

    def forward(self, items: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """items [B, w], length [B] -> best items [B, k], scores [B, k]."""
        newest = align(items, length, self.n, to_end=False)  # [B, n]
        scores = self.model.full_sort_predict({self.item_list: newest, self.length: length.clamp(1, self.n)})
        scores = scores.view(-1, scores.shape[-1])[:, : self.n_items].float()
        nothing = torch.full_like(scores[:, :1], -torch.inf)
        scores = torch.cat([nothing, scores[:, 1:]], dim=1)  # id 0 is padding
        if self.exclude_seen:
            inside = torch.arange(items.shape[1], device=items.device) < length[:, None]
            scores = scores.scatter(1, torch.where(inside, items, 0), -torch.inf)
        scores = torch.where(length[:, None] > 0, scores, nothing)
        top = scores.topk(self.k, dim=1)
        return top.indices, top.values


def export(
    recommender: Recommender, format: str, folder: str | Path | None = None, k: int = 10, exclude_seen: bool = True
) -> Path:
    """Write ``model.onnx``, ``model.pt2`` or ``model.safetensors``, and ``model.json``; returns the model's file.

    >>> import pandas as pd
    >>> from recbole_denoiser import Recommender, run
    >>> rows = [(f"u{user}", f"i{(user + step) % 15}", step) for user in range(30) for step in range(7)]
    >>> frame = pd.DataFrame(rows, columns=["who", "what", "when"])
    >>> quick = {"epochs": 1, "eval_args.mode": "full", "state": "ERROR"}
    >>> result = run("SASRecDenoiser", data=frame, user="who", item="what", time="when", flags=quick)
    >>> export(Recommender.load(f"results/{result['run']}"), "safetensors", "exported").name
    'model.safetensors'
    """
    if format not in FORMATS:
        raise UserError(f"There is no export format {format!r}. Allowed: {', '.join(FORMATS)}.")
    if k < 1:
        raise UserError(f"k = {k} is not allowed: it takes a whole number >= 1.")
    folder = Path(folder) if folder is not None else recommender.run.folder / "export"
    _refuse(recommender, format)
    folder.mkdir(parents=True, exist_ok=True)
    more = {"k": k, "exclude_seen": exclude_seen}
    if format == "safetensors" and (folder / ABOUT_FILE).is_file():  # weights beside a graph: it stays as it was made
        more |= {key: value for key, value in read_about(folder).items() if key in more}
    write_about(folder, recommender.run, recommender.item_titles, max_length=recommender.n, **more)
    copy_detector(recommender.run, folder)
    file = folder / FILES[format]
    if format == "safetensors":
        _write_weights(recommender, file)
        opened = Recommender(open_exported(folder))
        _check(recommender, _python_answer(opened, k, exclude_seen), k, exclude_seen, file)
        return file
    top = TopItems(recommender, k, exclude_seen).eval()
    answer = _write_onnx(top, file) if format == "onnx" else _write_pt2(top, file)
    _check(recommender, answer, k, exclude_seen, file)
    return file


def _refuse(recommender: Recommender, format: str) -> None:
    """UserError for a model that reads more than items."""
    model = recommender.model
    if any("user_embedding" in name for name, _ in model.named_parameters()):
        raise _cannot(model, "it reads the user, and an exported model reads items alone")
    if format != "safetensors" and isinstance(model, SequenceModel) and model.posteriors.reads_inputs:
        raise _cannot(model, f"its masks read the noise detector (mask_prior), and {format} reads items alone")


def _cannot(model: nn.Module, why: str) -> UserError:
    return UserError(f"{type(model).__name__} cannot be exported: {why}.")


@contextmanager
def _recording(model: nn.Module) -> Iterator[None]:
    """torch's exporters, quietly; what they cannot record is told with the name of the model."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except ImportError as error:
        raise UserError(f"This export needs {error.name}: {EXPORT_EXTRA}.") from None
    except UserError as error:  # a model that misses something in its input, such as times
        raise _cannot(model, str(error).rstrip(".")) from error
    except Exception as error:  # torch's exporters raise whatever comes up, in many classes of their own
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise _cannot(model, f"its computation cannot be recorded ({reason[:200].rstrip('.')})") from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _example(top: TopItems) -> tuple[tuple[Tensor, Tensor], Any]:
    """Three histories to record with, and what is free: the number of histories and their width."""
    device = next(top.model.parameters()).device
    items = torch.ones(3, top.n + 3, dtype=torch.long, device=device)
    batch, width = torch.export.Dim("batch", min=1), torch.export.Dim("width", min=1)
    return (items, torch.tensor([top.n + 3, 2, 1], device=device)), ({0: batch, 1: width}, {0: batch})


def _learn_layout(top: TopItems, example: tuple[Tensor, Tensor]) -> None:
    """Attention sites learn how their module lays out its heads from a full pass, which is not recorded."""
    if not isinstance(top.model, SequenceModel):
        top(*example)
        return
    fast, top.model.fast_inference = top.model.fast_inference, False
    try:
        top(*example)
    finally:
        top.model.fast_inference = fast


def _write_pt2(top: TopItems, file: Path) -> Answer:
    example, free = _example(top)
    with _recording(top.model):
        _learn_layout(top, example)
        program = torch.export.export(top, example, dynamic_shapes=free)
    files.write_atomically(file, lambda stream: torch.export.save(program, stream))
    loaded = torch.export.load(file).module()

    def answer(items: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        device = example[0].device
        with torch.no_grad():
            best, scores = loaded(torch.from_numpy(items).to(device), torch.from_numpy(length).to(device))
        return best.cpu().numpy(), scores.cpu().numpy()

    return answer


def _write_onnx(top: TopItems, file: Path) -> Answer:
    example, free = _example(top)
    with _recording(top.model):
        import onnxruntime

        _learn_layout(top, example)
        program = torch.onnx.export(
            top, example, dynamo=True, dynamic_shapes=free, input_names=["items", "length"],
            output_names=["best", "scores"], verbose=False,
        )  # fmt: skip
        assert program is not None
        size = sum(parameter.numel() * parameter.element_size() for parameter in top.parameters())
        program.save(str(file), external_data=size > _LARGE)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda items, length: tuple(session.run(None, {"items": items, "length": length}))


def _write_weights(recommender: Recommender, file: Path) -> None:
    try:
        from safetensors.torch import save
    except ImportError:
        raise UserError(f"This export needs safetensors: {EXPORT_EXTRA}.") from None
    if recommender.model.other_parameter():
        raise _cannot(recommender.model, "it keeps more than weights")
    # tensors that share memory, or are views of others, are written each on its own
    state = recommender.model.state_dict()
    weights = {name: value.detach().cpu().clone().contiguous() for name, value in state.items()}
    content = save(weights, metadata={"format": "pt"})
    files.write_atomically(file, lambda stream: stream.write(content))


# ---- comparison ----


def _python_answer(recommender: Recommender, k: int, exclude_seen: bool) -> Answer:
    def answer(items: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = recommender.recommend_histories(histories_of_ids(items, length), k, exclude_seen)
        ids = recommender.item_ids
        return np.vectorize(lambda token: ids.get(token, 0), otypes=[np.int64])(found.items), found.scores

    return answer


def histories_of_ids(items: np.ndarray, length: np.ndarray) -> Histories:
    """Padded ids [B, w] as histories whose times are their places."""
    inside = np.arange(items.shape[1]) < length[:, None]
    start = np.concatenate([[0], np.cumsum(length)])
    time = np.nonzero(inside)[1].astype(np.float64)
    return Histories([str(row) for row in range(len(items))], start, items[inside], time, Counter())


def _check(recommender: Recommender, answer: Answer, k: int, exclude_seen: bool, file: Path) -> None:
    """What was written must answer as ``recommend`` does; else it is taken away again."""
    random = np.random.default_rng(0)
    length = random.integers(1, 2 * recommender.n + 1, SAMPLES)
    length[:2] = 1, 2 * recommender.n
    items = random.integers(1, len(recommender.items), (SAMPLES, 2 * recommender.n))
    items = np.where(np.arange(items.shape[1]) < length[:, None], items, 0)
    _, expected = _python_answer(recommender, k, exclude_seen)(items, length)
    for rows in (slice(None), slice(1)):  # a batch, and one history
        _, scores = answer(items[rows], length[rows])
        if not np.allclose(scores, expected[rows], rtol=TOLERANCE, atol=TOLERANCE):
            file.unlink(missing_ok=True)
            raise _cannot(recommender.model, f"{file.name} answers otherwise than recommend does")
