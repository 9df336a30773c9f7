"""Where the property files are: inside an installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

NO_RECBOLE = (
    "RecBole is not installed: pip install --no-deps recbole==1.2.1 (from Python 3.12 on pip cannot install it "
    "together with its dependencies, because one of them, ray, has no release for it; this package needs no ray)."
)


def properties_folder() -> Path:
    """``recbole_denoiser/properties`` of an installation, else ``properties`` beside the package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "properties", package.parent / "properties"):
        if (folder / "overall.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"The property files of recbole_denoiser are missing: looked in {package / 'properties'} "
        f"and {package.parent / 'properties'}. Install the package again."
    )


def property_file(kind: str, name: str) -> Path | None:
    """``properties/<kind>/<name>.yaml`` if there is one; kind is model, dataset or experiment."""
    file = properties_folder() / kind / f"{name}.yaml"
    return file if file.is_file() else None
