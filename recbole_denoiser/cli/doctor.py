"""``recbole-denoiser doctor``: what is installed and what is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def add_commands(command: Callable[..., Any]) -> None:
    """Register the command; ``command`` is main.py's registrar."""
    doctor = command("doctor", _doctor)
    doctor.add_argument("--data_path", default="dataset/", help="folder of your data sets (dataset/)")


def _doctor(options: Any) -> None:
    print(report(options.data_path))


def report(data_path: str) -> str:
    """A few lines for a person who wonders why something does not run."""
    import recbole
    import torch

    from recbole_denoiser.integration.paths import properties_folder
    from recbole_denoiser.integration.registry import MODELS, recbole_sequential_models
    from recbole_denoiser.runs.results import versions

    device = f"cuda ({torch.cuda.get_device_name()})" if torch.cuda.is_available() else "cpu"
    included = Path(recbole.__file__).parent / "dataset_example"
    lines = [
        *(f"{name:<18}{version}" for name, version in versions().items()),
        f"{'device':<18}{device}, {torch.get_num_threads()} threads",
        f"{'RecBole':<18}{Path(recbole.__file__).parent}",
        f"{'quick_start':<18}{_quick_start()}",
        f"{'properties':<18}{properties_folder()}",
        f"{'models':<18}{', '.join(MODELS)}; {len(recbole_sequential_models())} of RecBole",
        f"{'data sets':<18}{', '.join(_data_sets(included)) or 'none'} (included)",
        f"{'':<18}{', '.join(_data_sets(Path(data_path))) or 'none'} (in {data_path}; change with --data_path)",
    ]
    return "\n".join(lines)


def _quick_start() -> str:
    import importlib.util

    found = importlib.util.find_spec("ray") is not None
    return "available" if found else "available, without RecBole's own tuning, which needs ray"


def _data_sets(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(inner.name for inner in folder.iterdir() if (inner / f"{inner.name}.inter").is_file())
