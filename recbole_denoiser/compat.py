"""Every repair that today's Python needs around RecBole 1.2, each with its reason.

``apply()`` runs once, on ``import recbole_denoiser``, before anything imports RecBole.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

# NumPy 2 removed these names. RecBole's Config reads the first three on every start; ray 2.6, which
# recbole.quick_start imports, reads bool8.
_REMOVED_NUMPY_NAMES = {
    "float_": np.float64,
    "complex_": np.complex128,
    "unicode_": np.str_,
    "bool8": np.bool_,
}


def apply() -> None:
    """Make RecBole importable and runnable on NumPy 2 and torch >= 2.6."""
    _restore_numpy_names()
    _quieten_recbole()
    _write_plain_checkpoints()
    _switch_off_anomaly_detection()
    _collect_plain_numbers()
    _allow_processes_on_cpu()
    _after_import("recbole.quick_start.quick_start", _load_plain_checkpoints)


def _restore_numpy_names() -> None:
    for name, value in _REMOVED_NUMPY_NAMES.items():
        if name not in np.__dict__:
            setattr(np, name, value)
    # Config sets np.bool, np.int, np.float, ... itself, but modules that are used without a Config read them too.
    for name, value in {"float": np.float64, "int": np.int_, "object": np.object_}.items():
        if name not in np.__dict__:
            setattr(np, name, value)


def _quieten_recbole() -> None:
    """RecBole warns about its own use of old APIs, which its users cannot mend."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"recbole\..*")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"recbole\..*")
    warnings.filterwarnings("ignore", message=r".*torch\.cuda\.amp\.GradScaler.*")
    warnings.filterwarnings("ignore", message=r".*pkg_resources is deprecated.*")
    warnings.filterwarnings("ignore", message=r".*Failed to initialize NumPy.*")
    # RecBole always builds a CUDA GradScaler, which says on every epoch that there is no CUDA.
    warnings.filterwarnings("ignore", message=r".*GradScaler is enabled, but CUDA is not available.*")


def _switch_off_anomaly_detection() -> None:
    """RecBole's SINE switches autograd's anomaly detection on when its module is imported, for every model.

    That costs a third of the training time. The loss and the gradient are checked by the trainer instead.
    """
    import torch

    before = torch.is_anomaly_enabled()
    importlib.import_module("recbole.model.sequential_recommender")
    torch.autograd.set_detect_anomaly(before)


def _allow_processes_on_cpu() -> None:
    """RecBole's configuration starts several processes on GPUs only, and each of them writes TensorBoard files."""
    from recbole.config import Config
    from recbole.trainer import trainer

    from recbole_denoiser import distributed

    single_process, get_tensorboard = Config._init_device, trainer.get_tensorboard
    Config._init_device = lambda self: distributed.init_device(self, single_process)
    trainer.get_tensorboard = lambda logger: get_tensorboard(logger) if distributed.rank() == 0 else _NoTensorBoard()


class _NoTensorBoard:
    """Takes what a SummaryWriter takes and writes nothing."""

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        """No figure is written."""

    def add_hparams(self, *args: Any, **kwargs: Any) -> None:
        """No settings are written."""


def _collect_plain_numbers() -> None:
    """RecBole's collector calls ``.cpu()`` on item and user counts too, so coverage and popularity metrics crash."""
    import copy

    from recbole.evaluator import Collector

    def get_data_struct(self: Any) -> Any:
        for key, value in self.data_struct._data_dict.items():
            self.data_struct._data_dict[key] = value.cpu() if hasattr(value, "cpu") else value
        returned = copy.deepcopy(self.data_struct)
        for key in ("rec.topk", "rec.meanrank", "rec.score", "rec.items", "data.label"):
            if key in self.data_struct:
                del self.data_struct[key]
        return returned

    Collector.get_data_struct = get_data_struct


def _write_plain_checkpoints() -> None:
    """RecBole pickles its Config into the checkpoint, which torch >= 2.6 refuses to load.

    Writing the configuration as plain values makes RecBole's own ``torch.load`` calls work again, and such a
    file cannot run code.
    """
    from recbole.trainer.trainer import Trainer

    from recbole_denoiser.checkpoint import save_recbole_checkpoint

    Trainer._save_checkpoint = save_recbole_checkpoint


def _load_plain_checkpoints(quick_start: Any) -> None:
    """``load_data_and_model`` expects a pickled Config in the checkpoint: build one from the plain values."""
    from recbole_denoiser.checkpoint import load_data_and_model

    quick_start.load_data_and_model = load_data_and_model
    package = sys.modules.get("recbole.quick_start")
    if package is not None:
        package.load_data_and_model = load_data_and_model  # type: ignore[attr-defined]


def _after_import(module_name: str, repair: Callable[[Any], None]) -> None:
    """Call ``repair(module)`` as soon as ``module_name`` is imported, or now if it is already.

    recbole.quick_start imports ray at its top, so it must not be imported just to be repaired.
    """
    if module_name in sys.modules:
        repair(sys.modules[module_name])
    else:
        sys.meta_path.insert(0, _RepairAfterImport(module_name, repair))


class _RepairAfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, module_name: str, repair: Callable[[Any], None]) -> None:
        self.module_name, self.repair = module_name, repair

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.module_name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        self.loader = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        self.repair(module)
