"""Finds the packages; everything else stands in setup.cfg.

properties/ lies at the top of the checkout and is installed as recbole_denoiser/properties.
"""

from pathlib import Path

from setuptools import find_packages, setup

properties = [Path("properties"), *sorted(path for path in Path("properties").iterdir() if path.is_dir())]
setup(
    packages=[
        *find_packages(include=["recbole_denoiser*"]),
        *(f"recbole_denoiser.{'.'.join(p.parts)}" for p in properties),
    ],
    package_dir={"recbole_denoiser.properties": "properties"},
    package_data={"": ["*.yaml"], "recbole_denoiser": ["py.typed"], "recbole_denoiser.report": ["templates/*"]},
)
