"""Finds a model, data set or trainer class by name: this package's or RecBole's.

RecBole 1.2 has no plug-in registry. compat.py makes its own look-ups answer from this one.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.paths import NO_RECBOLE

# name of the model -> module that defines it
MODELS = {
    "SASRecDenoiser": "recbole_denoiser.model.sasrec",
    "BERT4RecDenoiser": "recbole_denoiser.model.bert4rec",
    "TiSASRec": "recbole_denoiser.model.tisasrec",
    "TiSASRecDenoiser": "recbole_denoiser.model.tisasrec",
    "SSEPT": "recbole_denoiser.model.ssept",
    "SSEPTDenoiser": "recbole_denoiser.model.ssept",
    "GRU4RecSequence": "recbole_denoiser.model.gru4rec",
    "SASRecEntmax": "recbole_denoiser.model.entmax",
    "BERT4RecEntmax": "recbole_denoiser.model.entmax",
    "SASRecSparse": "recbole_denoiser.model.sparse",
}


# models of the user: name -> class, and the model whose property file holds their defaults
_REGISTERED: dict[str, Any] = {}
DEFAULTS_OF: dict[str, str] = {}


def register_model(model: Any, defaults_of: str = "SASRecDenoiser") -> None:
    """Make a model class of your own known by its name, to ``run`` as to RecBole's entry points.

    >>> register_model(MyModel, defaults_of="SASRecDenoiser")
    """
    if defaults_of not in MODELS:
        raise UserError(f"defaults_of = {defaults_of} must be one of {', '.join(MODELS)}.")
    name = model.__name__
    if name in recbole_sequential_models() or (name in MODELS and name not in _REGISTERED):
        raise UserError(f"There is a model {name} already: give your class another name.")
    MODELS[name], _REGISTERED[name], DEFAULTS_OF[name] = model.__module__, model, defaults_of


def shown_name(model: str, denoise: Any) -> str:
    """What a model is called in names, tables and pages: a denoiser with ``denoise: False`` is its plain backbone."""
    return model.removesuffix("Denoiser") if denoise is False else model


def resolve(module: str, name: str) -> Any:
    """A class or function of a layer above, by its dotted place, looked up when it is needed."""
    return getattr(importlib.import_module(module), name)


def package_model(name: str) -> Any:
    """The class of one of this package's models."""
    return _REGISTERED[name] if name in _REGISTERED else resolve(MODELS[name], name)


@functools.cache
def recbole_sequential_models() -> list[str]:
    """Names of RecBole's own sequential models, as users write them; read from its files, not imported."""
    spec = importlib.util.find_spec("recbole")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(NO_RECBOLE)
    folder = Path(next(iter(spec.submodule_search_locations))) / "model" / "sequential_recommender"
    return sorted(
        name
        for file in folder.glob("*.py")
        for name in re.findall(r"^class (\w+)\(", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if name.lower() == file.stem
    )


def known_models() -> list[str]:
    """Every model that the command runs."""
    return sorted(MODELS) + recbole_sequential_models()


def model_class(name: str) -> Any:
    """The class of a model, this package's or RecBole's."""
    from recbole.utils import get_model

    if name in known_models():
        return get_model(name)
    near = difflib.get_close_matches(name, known_models(), n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UserError(
        f"Unknown model '{name}'.{hint}\n"
        f"Models of this package: {', '.join(sorted(MODELS))}.\n"
        f"RecBole's sequential models: {', '.join(recbole_sequential_models())}."
    )


def trains_on_sequences(model: Any) -> bool:
    """Whether a model's class learns from whole sequences, as this package's do, and not from RecBole's prefixes."""
    return issubclass(model, resolve("recbole_denoiser.model.base", "SequenceModel"))


def dataset_class(name: str) -> Any:
    """This package's data set; a RecBole model with a data set of its own gets both."""
    import recbole.data.dataset as datasets

    if name == "DIEN":
        return resolve("recbole_denoiser.data.interest", "InterestDataset")
    ours = resolve("recbole_denoiser.data.dataset", "SequenceDataset")
    own = getattr(datasets, f"{name}Dataset", ours)
    return own if issubclass(own, ours) else type(own.__name__, (ours, own), {})


def trainer_class(name: str) -> Any:
    """This package's trainer; a RecBole model with a trainer of its own gets both."""
    import recbole.trainer as trainers

    ours = resolve("recbole_denoiser.training.trainer", "SequenceTrainer")
    own = getattr(trainers, f"{name}Trainer", ours)
    return own if issubclass(own, ours) else type(own.__name__, (ours, own), {})
