"""Write constraints.txt anew: one version of every package that holds for each Python from 3.10 on (needs uv).

    make constraints

Versions that stand in the file already stay where they can. Where the oldest Python needs another version, the file has
two lines with environment markers, which pip understands.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
FILE = CHECKOUT / "constraints.txt"
HEAD = """\
# Versions that resolve on Python 3.10 to 3.13 (the tests run on 3.11): pip install -c constraints.txt .
# Written by make constraints; torch brings its own CUDA libraries, if it is a build that has them.
"""
LEFT_OUT = re.compile(r"^(nvidia|cuda|triton)\b")  # of torch's CUDA builds


def main() -> None:
    command = ["uv", "pip", "compile", "--universal", "--python-version=3.10", "--all-extras", "--no-header",
               "--no-annotate", f"--output-file={FILE}", "setup.cfg"]  # fmt: skip
    subprocess.run([*command, "--quiet"], check=True, cwd=CHECKOUT)
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not LEFT_OUT.match(line)]
    # from Python 3.12 on RecBole is installed without its dependencies: no marker
    lines = [line.partition(" ;")[0] if line.startswith("recbole==") else line for line in lines]
    FILE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
