"""The wheel carries what the command needs: property files, templates, type marker."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from recbole_denoiser.integration.paths import property_file

CHECKOUT = Path(__file__).parent.parent


def test_wheel_holds_properties_and_templates(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
    ]
    source = tmp_path / "source"  # a copy, so that no build folder is left in the checkout
    tracked = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout: the list of source files is unknown")
    names = [name for name in tracked.stdout.split("\0") if name and (CHECKOUT / name).is_file()]
    for name in names:
        if name.startswith(("recbole_denoiser/", "properties/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((CHECKOUT / name).read_bytes())
    subprocess.run([*command, str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for name in names:
        if name.startswith("properties/"):
            assert f"recbole_denoiser/{name}" in held
        elif name.startswith("recbole_denoiser/"):
            assert name in held


def test_property_files_are_found() -> None:
    assert property_file("model", "SASRecDenoiser") is not None
    assert property_file("model", "NoSuchModel") is None
