"""Everything that takes longer than a test may, two parts at a time; exit code 1 if one of them failed.

    make soak                                   all of it: under 30 minutes on two idle cores, see docs/reliability.md
    python tests/soak/all.py crash newcomer     only these parts

What a part says goes to build/soak/<part>.log and .err, the last line of the former into the table. Every part is one
process at a time, so that two of them fill two cores; the longest come first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[2]
LOGS = CHECKOUT / "build" / "soak"
AT_ONCE = 2


class Part(NamedTuple):
    """A command, what it tries in a few words, and what it needs in its environment."""

    what: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}


def python(*words: str) -> tuple[str, ...]:
    return (sys.executable, *words)


MANY = {"HOSTILE_INPUT": "12"}
PARTS = {
    "newcomer": Part("every command of README and docs/, typed in a fresh environment", ("bash", "tests/newcomer.sh")),
    "extras": Part("every extra alone in a fresh environment, and without it", ("bash", "tests/soak/extras.sh")),
    "scale": Part(
        "1, 5 and 20 million interactions; a million items ranked",
        python("tests/soak/scale.py", "1", "5", "20", "--items", "1000000"),
    ),
    "crash": Part(
        "20 kill -9 of one run, file size limit, full disk", python("tests/soak/crash.py", "20")
    ),
    "settings": Part(
        "every setting with values of every kind, in the schema and typed",
        python("-m", "pytest", "tests/integration/test_schema.py", "tests/cli/test_any_setting.py"), MANY,
    ),
    "hostile": Part(
        "damaged tables, arbitrary bytes, crafted pickles",
        python("-m", "pytest", "tests/test_hostile_input.py", "tests/test_trust.py"), MANY,
    ),
    "Transformers": Part("192 random ones", python("-m", "pytest", "tests/core/test_core_properties.py"), MANY),
    **{
        name: Part(f"smoke tests and the metrics of one epoch: {what}", ("bash", "tests/soak/compatibility.sh", *names))
        for name, what, names in (
            ("oldest and newest", "oldest and newest dependencies", ("oldest", "newest")),
            ("Python 3.10, 3.11", "constraints.txt", ("3.10", "3.11")),
            ("Python 3.12, 3.13", "constraints.txt", ("3.12", "3.13")),
        )
    },
    **{
        f"{path} path": Part("tests/core and tests/model on it", ("sh", "tests/soak/cpu_paths.sh", path))
        for path in ("default", "avx2", "avx512")
    },
    "detector": Part("noise of a million interactions", python("tests/soak/detect_scale.py", "1")),
}  # fmt: skip


class Outcome(NamedTuple):
    name: str
    passed: bool
    last: str
    seconds: float
    cpu: float


def run(name: str) -> Outcome:
    """One part to its end; its processor time with that of all the processes that it waited for."""
    part, log = PARTS[name], LOGS / f"{name.replace(',', '').replace(' ', '-')}.log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, **part.environment}
    begin = time.monotonic()
    with log.open("w", encoding="utf-8") as stream, log.with_suffix(".err").open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            part.command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    said = log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    outcome = Outcome(name, process.returncode == 0, last, time.monotonic() - begin, used.ru_utime + used.ru_stime)
    print(row(outcome), flush=True)
    return outcome


def row(outcome: Outcome) -> str:
    verdict = "passed" if outcome.passed else f"FAILED, see {LOGS.relative_to(CHECKOUT)}"
    last = outcome.last.strip("|=* ").replace("|", ",")
    cells = (outcome.name, PARTS[outcome.name].what, f"{verdict}: {last}", clock(outcome.seconds), clock(outcome.cpu))
    return f"| {' | '.join(cells)} |"


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def main(wanted: Sequence[str]) -> int:
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"No part {unknown[0]!r}; there are: {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    print("| part | what | outcome: its last line | elapsed | processor time |\n|---|---|---|---|---|", flush=True)
    begin = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(run, wanted or PARTS))
    failed = [outcome.name for outcome in outcomes if not outcome.passed]
    cpu = sum(outcome.cpu for outcome in outcomes)
    verdict = f"{len(outcomes) - len(failed)} of {len(outcomes)} passed"
    print(f"| all | {AT_ONCE} parts at a time | {verdict} | {clock(time.monotonic() - begin)} | {clock(cpu)} |")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
