"""Every repair that today's Python needs around RecBole 1.2, each with its reason.

Each public function mends one of RecBole's modules; install.py says which, and calls it when the module is imported.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from recbole_denoiser.integration.memory import use_huge_pages

# NumPy 2 removed these names. RecBole's Config reads the first three on every start; ray 2.6, which
# recbole.quick_start imports, reads bool8. Config sets np.float, np.int and np.object itself, but modules that are used
# without a Config read them too.
_REMOVED_NUMPY_NAMES = {
    "float_": np.float64,
    "complex_": np.complex128,
    "unicode_": np.str_,
    "bool8": np.bool_,
    "float": np.float64,
    "int": np.int_,
    "object": np.object_,
}


def prepare_environment(recbole: Any) -> None:
    """Before any other module of RecBole: NumPy's old names, quiet warnings, huge pages for large tensors."""
    use_huge_pages()
    for name, value in _REMOVED_NUMPY_NAMES.items():
        if name not in np.__dict__:
            setattr(np, name, value)
    _quieten()


def _quieten() -> None:
    """RecBole warns about its own use of old APIs, which its users cannot mend."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"recbole\..*")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"recbole\..*")
    warnings.filterwarnings("ignore", message=r".*torch\.cuda\.amp\.GradScaler.*")
    warnings.filterwarnings("ignore", message=r".*pkg_resources is deprecated.*")
    warnings.filterwarnings("ignore", message=r".*Failed to initialize NumPy.*")
    # RecBole always builds a CUDA GradScaler, which says on every epoch that there is no CUDA.
    warnings.filterwarnings("ignore", message=r".*GradScaler is enabled, but CUDA is not available.*")


@contextmanager
def anomaly_detection_unchanged() -> Iterator[None]:
    """RecBole's SINE switches autograd's anomaly detection on when its module is imported, for every model.

    That costs a third of the training time. The loss and the gradient are checked by the trainer instead.
    """
    import torch

    before = torch.is_anomaly_enabled()
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(before)


@contextmanager
def ray_is_optional() -> Iterator[None]:
    """RecBole's quick_start imports ray at its top, for tuning only; ray 2.6 has no release for Python 3.12."""
    if importlib.util.find_spec("ray") is not None:
        yield
        return
    stub = ModuleType("ray")
    stub.tune = _NoTune()  # type: ignore[attr-defined]
    sys.modules["ray"] = stub
    try:
        yield
    finally:
        del sys.modules["ray"]  # for everybody else ray is not installed


class _NoTune:
    """``ray.tune`` where there is no ray."""

    def report(self, **metrics: Any) -> None:
        """RecBole's objective function reports to ray even when ray does not tune: then nobody listens."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError(
            f"ray.tune.{name}: ray is not installed. RecBole's tuning needs ray <= 2.6.3, which exists up to "
            f"Python 3.11 (pip install 'ray<=2.6.3'); recbole-denoiser tune needs none.",
            name="ray",
        )


def mend_configuration(configurator: Any) -> None:
    """RecBole's own Config learns this package's defaults, and several processes without a GPU."""
    from recbole_denoiser.integration import parallel
    from recbole_denoiser.integration.registry import MODELS

    config, single_process = configurator.Config, configurator.Config._init_device
    load, merge = config._load_internal_config_dict, config._get_final_config_dict

    def load_with_package_defaults(self: Any, model: str, model_class: Any, dataset: str) -> None:
        from recbole_denoiser.integration.config import Config, package_defaults  # it imports the module mended here

        load(self, model, model_class, dataset)
        if model in MODELS and not isinstance(self, Config):  # other models keep RecBole's
            self.internal_config_dict.update(package_defaults(model, dataset, overall=True))

    def merged(self: Any) -> dict[str, Any]:
        from recbole_denoiser.integration.config import check_order, merge_nested

        final = merge(self)
        if self.model in MODELS:
            merge_nested(final, self.internal_config_dict, self.external_config_dict)
            check_order(final)
        return final

    config._init_device = lambda self: parallel.init_device(self, single_process)
    config._load_internal_config_dict = load_with_package_defaults
    config._get_final_config_dict = merged


def offer_models(utils: Any) -> None:
    """``recbole.utils.get_model`` finds this package's models by their names."""
    from recbole_denoiser.integration.registry import MODELS, package_model

    recbole_get_model = utils.get_model

    def get_model(model_name: str) -> Any:
        return package_model(model_name) if model_name in MODELS else recbole_get_model(model_name)

    get_model.__doc__ = recbole_get_model.__doc__
    _replace_everywhere("get_model", recbole_get_model, get_model)


def mend_models(models: Any) -> None:
    """RecBole's models read what their checkpoints hold beside weights as plain data, and fill SciPy's matrices."""
    from recbole_denoiser.integration.parameters import from_plain, mend_dok_matrix

    load = models.AbstractRecommender.load_other_parameter

    def load_other_parameter(self: Any, held: dict[str, Any] | None) -> None:
        load(self, held and {name: from_plain(value) for name, value in held.items()})

    models.AbstractRecommender.load_other_parameter = load_other_parameter
    mend_dok_matrix()


def offer_data_sets(datasets: Any) -> None:
    """RecBole looks for ``<Model>Dataset`` in recbole.data.dataset."""
    _offer(datasets, "Dataset", "recbole_denoiser.data.dataset", "SequenceDataset")


def offer_trainers(trainers: Any) -> None:
    """RecBole looks for ``<Model>Trainer`` in recbole.trainer."""
    _offer(trainers, "Trainer", "recbole_denoiser.training.trainer", "SequenceTrainer")


def _offer(module: Any, suffix: str, where: str, name: str) -> None:
    """``module.<Model><suffix>`` of this package's models, looked up when it is asked for (PEP 562)."""
    from recbole_denoiser.integration.registry import MODELS, resolve

    def lookup(attribute: str) -> Any:
        if attribute.endswith(suffix) and attribute.removesuffix(suffix) in MODELS:
            return resolve(where, name)
        raise AttributeError(f"module '{module.__name__}' has no attribute '{attribute}'")

    module.__getattr__ = lookup


def collect_plain_numbers(collector: Any) -> None:
    """RecBole's collector calls ``.cpu()`` on item and user counts too, so coverage and popularity metrics crash."""

    import torch

    def get_data_struct(self: Any) -> Any:
        for key, value in self.data_struct._data_dict.items():
            self.data_struct._data_dict[key] = value.cpu() if isinstance(value, torch.Tensor) else value
        returned = copy.deepcopy(self.data_struct)
        for key in ("rec.topk", "rec.meanrank", "rec.score", "rec.items", "data.label"):
            if key in self.data_struct:
                del self.data_struct[key]
        return returned

    collector.Collector.get_data_struct = get_data_struct


def write_plain_checkpoints(trainer: Any) -> None:
    """RecBole pickles its Config into the checkpoint, which torch >= 2.6 refuses to load.

    Writing the configuration as plain values makes RecBole's own ``torch.load`` calls work again, and such a
    file cannot run code. Of several processes only the first writes TensorBoard files, those of a run of this package
    into the run's folder.
    """
    from recbole_denoiser.integration.registry import resolve

    def save_checkpoint(self: Any, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
        save = resolve("recbole_denoiser.training.checkpoint", "save_recbole_checkpoint")
        save(self, epoch, verbose=verbose, **kwargs)

    recbole_tensorboard = trainer.get_tensorboard

    def get_tensorboard(logger: Any) -> Any:
        return resolve("recbole_denoiser.integration.logs", "tensorboard")(logger, recbole_tensorboard)

    trainer.Trainer._save_checkpoint = save_checkpoint
    trainer.get_tensorboard = get_tensorboard


def mend_quick_start(quick_start: Any) -> None:
    """``run_recbole`` of this package's models is this package's run; ``load_data_and_model`` reads plain settings."""
    from recbole_denoiser.integration.registry import resolve

    recbole_run = quick_start.run_recbole

    def load_data_and_model(model_file: str, trust: bool = False) -> Any:
        return resolve("recbole_denoiser.runs.reopen", "load_data_and_model")(model_file, trust)

    def run_recbole(
        model: Any = None,
        dataset: Any = None,
        config_file_list: Any = None,
        config_dict: Any = None,
        saved: bool = True,
        queue: Any = None,
    ) -> Any:
        places = _named_in(config_file_list, config_dict)
        named = model or places.get("model")
        name = getattr(named, "__name__", named)  # RecBole takes a model's class, too
        if name not in _models():
            return recbole_run(model, dataset, config_file_list, config_dict, saved, queue)
        run = resolve("recbole_denoiser.runs.quick_start", "run_recbole")
        return run(name, dataset or places.get("dataset"), config_file_list, config_dict, saved, queue)

    run_recbole.__doc__ = recbole_run.__doc__
    _replace_everywhere("load_data_and_model", quick_start.load_data_and_model, load_data_and_model)
    _replace_everywhere("run_recbole", recbole_run, run_recbole)


def _models() -> dict[str, str]:
    from recbole_denoiser.integration.registry import MODELS

    return MODELS


def _named_in(files: Any, settings: Any) -> dict[str, str]:
    """``model`` and ``dataset`` where RecBole also looks for them: command line over dictionary over files."""
    from pathlib import Path

    from recbole_denoiser.integration.values import read_yaml

    found: dict[str, Any] = {}
    for file in files or []:
        found.update(read_yaml(Path(file)))
    found.update(settings or {})
    for word in sys.argv[1:]:
        name, _, value = word.removeprefix("--").partition("=")
        if word.startswith(("--model=", "--dataset=")):
            found[name] = value
    return {name: found[name] for name in ("model", "dataset") if name in found}


def make_own_loaders(utils: Any) -> None:
    """``data_preparation`` of this package's models makes this package's loaders: frozen negatives, exact order."""
    recbole_preparation = utils.data_preparation

    def data_preparation(config: Any, dataset: Any) -> Any:
        if config["model"] not in _models():
            return recbole_preparation(config, dataset)
        pipeline = importlib.import_module("recbole_denoiser.runs.pipeline")
        data = pipeline.make_loaders(config, pipeline.Parts(dataset, *dataset.build()))
        return data.train, data.valid, data.test

    data_preparation.__doc__ = recbole_preparation.__doc__
    _replace_everywhere("data_preparation", recbole_preparation, data_preparation)


def _replace_everywhere(name: str, old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Put ``new`` in the place of ``old`` in every module of RecBole that has imported it already."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] == "recbole" and vars(module).get(name) is old:
            setattr(module, name, new)
