"""Makes RecBole know this package's models, and finds a model, data set or trainer class by name.

RecBole 1.2 has no plug-in registry. It looks for ``recbole.model.<type>.<name in lower case>``,
``recbole.trainer.<Model>Trainer`` and ``recbole.data.dataset.<Model>Dataset``, so this package's classes
are entered there.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from typing import Any

from recbole_denoiser.errors import UserError

# name of the model -> module that defines it
MODELS = {
    "SASRecDenoiser": "recbole_denoiser.model.sasrec",
    "BERT4RecDenoiser": "recbole_denoiser.model.bert4rec",
    "TiSASRec": "recbole_denoiser.model.tisasrec",
    "TiSASRecDenoiser": "recbole_denoiser.model.tisasrec",
    "SSEPT": "recbole_denoiser.model.ssept",
    "SSEPTDenoiser": "recbole_denoiser.model.ssept",
    "SASRecEntmax": "recbole_denoiser.model.entmax",
    "BERT4RecEntmax": "recbole_denoiser.model.entmax",
    "SASRecSparse": "recbole_denoiser.model.sparse",
}


def register() -> None:
    """Enter this package's models, trainers and data sets where RecBole looks for them."""
    import recbole.config.configurator as configurator
    import recbole.data.dataset as datasets
    import recbole.trainer as trainers

    from recbole_denoiser.config import with_package_defaults
    from recbole_denoiser.data.dataset import SequenceDataset
    from recbole_denoiser.trainer import SequenceTrainer

    for name, module_name in MODELS.items():
        module = importlib.import_module(module_name)
        sys.modules[f"recbole.model.sequential_recommender.{name.lower()}"] = module
        setattr(datasets, f"{name}Dataset", SequenceDataset)
        setattr(trainers, f"{name}Trainer", SequenceTrainer)
    configurator.Config._load_internal_config_dict = with_package_defaults(
        configurator.Config._load_internal_config_dict
    )


def recbole_sequential_models() -> list[str]:
    """Names of RecBole's own sequential models, as users write them."""
    package = importlib.import_module("recbole.model.sequential_recommender")
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return sorted(name for name in vars(package) if name.lower() in modules and isinstance(vars(package)[name], type))


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


def dataset_class(name: str) -> Any:
    """This package's data set, except for the few RecBole models that need one of their own."""
    import recbole.data.dataset as datasets

    from recbole_denoiser.data.dataset import SequenceDataset

    return getattr(datasets, f"{name}Dataset", SequenceDataset)


def trainer_class(name: str) -> Any:
    """This package's trainer; a RecBole model with a trainer of its own gets both."""
    import recbole.trainer as trainers

    from recbole_denoiser.trainer import SequenceTrainer

    own = getattr(trainers, f"{name}Trainer", SequenceTrainer)
    if issubclass(own, SequenceTrainer):
        return own
    return type(own.__name__, (SequenceTrainer, own), {})
