"""Repairs and registration, each at the moment RecBole's module is imported and not before.

``import recbole_denoiser`` only puts a finder in front of Python's own. A user of ``recbole_denoiser.core`` or
``recbole_denoiser.detect`` therefore never imports RecBole, patches NumPy or changes an environment variable.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

# RecBole's module -> function of compat.py that mends it, called with the module as soon as it has run
REPAIRS = {
    "recbole": "prepare_environment",
    "recbole.config.configurator": "mend_configuration",
    "recbole.data.dataset": "offer_data_sets",
    "recbole.data.utils": "make_own_loaders",
    "recbole.evaluator.collector": "collect_plain_numbers",
    "recbole.model.abstract_recommender": "mend_models",
    "recbole.quick_start.quick_start": "mend_quick_start",
    "recbole.trainer": "offer_trainers",
    "recbole.trainer.trainer": "write_plain_checkpoints",
    "recbole.utils.utils": "offer_models",
}
# RecBole's module -> context manager of compat.py that it runs in
GUARDS = {
    "recbole.model.sequential_recommender.sine": "anomaly_detection_unchanged",
    "recbole.quick_start.quick_start": "ray_is_optional",
}


def install() -> None:
    """Mend what is imported already, and everything else when it is imported. Calling it twice does nothing."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in REPAIRS:
        if name in sys.modules:
            _repair_of(name)(sys.modules[name])


def _compat() -> Any:
    return importlib.import_module("recbole_denoiser.integration.compat")


def _repair_of(name: str) -> Callable[[Any], None]:
    return getattr(_compat(), REPAIRS[name])


def _guard_of(name: str) -> AbstractContextManager[None]:
    return getattr(_compat(), GUARDS[name])() if name in GUARDS else contextlib.nullcontext()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds RecBole's modules as Python does, and wraps the loader of those that need a repair."""

    def __init__(self) -> None:
        self.searching: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if (fullname not in REPAIRS and fullname not in GUARDS) or fullname in self.searching:
            return None
        self.searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)  # asks the finders behind this one
        finally:
            self.searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(fullname, spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, name: str, loader: Any) -> None:
        self.name, self.loader = name, loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # get_source, get_data, ...: what tools ask a loader for

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        with _guard_of(self.name):
            self.loader.exec_module(module)
        if self.name in REPAIRS:
            _repair_of(self.name)(module)
