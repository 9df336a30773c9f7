"""All speed figures of the README in one table: ``make bench``, or ``make bench QUICK=1`` for a first impression.

    python tests/bench/bench.py [--quick] [--data_path <folder with ml-1m/>] [--threads 1] [--only training,evaluation]

Figures are ratios of CPU time. Every subject is a process of its own; their rounds alternate, each round gives one
ratio, and the table has the median with the smallest and the largest. ml-100k comes with RecBole; ml-1m is used where
--data_path (or RECBOLE_DATA) has it. Writes bench.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cold_start import cold_start
from data_build import build
from row import Row, row
from strong_rows import StrongRows

HERE = Path(__file__).resolve().parent
EQ_8 = {"mask_form": "product"}  # the paper's masks


class Subject:
    """A worker process."""

    def __init__(self, name: str, settings: dict[str, Any], threads: int, folder: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path)}
        if not name.startswith("ours_"):
            environment["THP_MEM_ALLOC_ENABLE"] = "0"  # huge pages are this package's setting, not RecBole's
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), name, json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment, cwd=folder,
        )  # fmt: skip

    def answer(self) -> dict[str, float]:
        """The next line of the worker."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"A subject failed:\n{self.errors.read()[-3000:]}")
        return json.loads(line)

    def round(self) -> dict[str, float]:
        """Seconds of CPU per unit of one round, and the growth of the peak so far."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self.answer()
        return {**answer, "per_unit": answer["seconds"] / answer["units"]}

    def end(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Bench(StrongRows):
    """The rows of the table."""

    def __init__(self, data_path: str | None, quick: bool, threads: int, folder: str) -> None:
        self.quick, self.threads, self.folder = quick, threads, folder
        example = Path(importlib.util.find_spec("recbole").submodule_search_locations[0]) / "dataset_example"  # type: ignore[union-attr,index]
        self.data = {"ml-100k": str(example)}
        for name in ("ml-1m", "amazon-games"):
            if data_path and (Path(data_path) / name).is_dir():
                self.data[name] = str(Path(data_path).resolve())

    def place(self, dataset: str) -> dict[str, str]:
        """Where a data set is."""
        return {"dataset": dataset, "data_path": self.data[dataset]}

    @contextmanager
    def subjects(self, **given: tuple[str, dict[str, Any]]) -> Iterator[dict[str, Subject]]:
        """Processes that are set up and warm."""
        with ExitStack() as stack:
            made = {}
            for key, (name, settings) in given.items():
                made[key] = Subject(name, settings, self.threads, self.folder)
                stack.callback(made[key].end)
            for subject in made.values():  # all are ready before the first round
                subject.answer()
            yield made

    def rounds(self, count: int, **given: tuple[str, dict[str, Any]]) -> list[dict[str, dict[str, float]]]:
        """Interleaved rounds of the given subjects."""
        with self.subjects(**given) as made:
            return [{key: subject.round() for key, subject in made.items()} for _ in range(count)]

    def training(self) -> Iterator[Row]:
        """Against RecBole's prefixes, and against RecTools."""
        for dataset in [name for name in self.data if name != "amazon-games"] if not self.quick else ["ml-100k"]:
            place = self.place(dataset)
            given: dict[str, Any] = {
                "ours": ("ours_train", {**place, "steps": 20, "denoise": False, "MAX_ITEM_LIST_LENGTH": 50}),
                "recbole": ("recbole_train", {**place, "steps": 2, "MAX_ITEM_LIST_LENGTH": 50}),
            }
            rectools = importlib.util.find_spec("rectools") is not None
            if rectools:
                given["rectools"] = ("rectools_train", place)
            done = self.rounds(3 if self.quick else 5, **given)
            name = f"training per predicted position, {dataset}"
            values = [r["recbole"]["per_unit"] / r["ours"]["per_unit"] for r in done]
            yield row(name, "RecBole's SASRec on its prefixes", "at least 50", values)
            if rectools:
                values = [r["rectools"]["per_unit"] / r["ours"]["per_unit"] for r in done]
                yield row(name, "RecTools' SASRec", "at least 1", values)
            else:
                print("RecTools is not installed (pip install 'rectools[torch]'): its row is left out.", flush=True)

    def step(self) -> Iterator[Row]:
        """Denoised steps against the plain backbone's: the paper's masks, and renormalised ones."""
        common = {**self.place("ml-100k"), "MAX_ITEM_LIST_LENGTH": 50, "steps": 4, "batch_size": 128}
        ways: dict[str, tuple[dict[str, Any], str]] = {
            "ARM, row credit, mask per sequence": ({"estimator": "arm"}, "at most 1.4"),
            "DisARM, row credit, mask per sequence": ({"estimator": "disarm"}, "at most 1.4"),
            "DisARM, the same renormalised": ({"estimator": "disarm", "mask_form": "renormalise"}, ""),
            "ARM + Jacobian, default sub-batch": ({"estimator": "arm", "gamma": 1e-4}, "at most 1.7"),
            "AR": ({"estimator": "ar"}, "at most 1.15"),
        }
        given: dict[str, Any] = {"plain": ("ours_step", {**common, "denoise": False})}
        given |= {name: ("ours_step", {**common, **EQ_8, **flags}) for name, (flags, _) in ways.items()}
        done = self.rounds(5 if self.quick else 25, **given)
        for name, (_, target) in ways.items():
            values = [r[name]["per_unit"] / r["plain"]["per_unit"] for r in done]
            yield row(f"training step, {name}", "plain backbone", target, values)

    def evaluation(self) -> Iterator[Row]:
        """Sampled and full ranking against RecBole's own."""
        for mode, target in (("uni100", "at least 40"), ("full", "at least 1")):
            common = {**self.place("ml-100k"), "mode": mode, "MAX_ITEM_LIST_LENGTH": 50}
            if self.quick:  # a quarter of the users: those with the longest histories
                common["user_inter_num_interval"] = "[150,inf)"
            rounds = {"uni100": (1, 2), "full": (5, 9)}[mode]
            theirs = {**common, "warm": mode == "full"}  # a round of RecBole's takes half a minute
            done = self.rounds(
                rounds[0 if self.quick else 1], ours=("ours_evaluate", common), recbole=("recbole_evaluate", theirs)
            )
            values = [r["recbole"]["per_unit"] / r["ours"]["per_unit"] for r in done]
            yield row(f"{mode} evaluation, ml-100k", "RecBole's evaluation", target, values)

    def inference(self) -> Iterator[Row]:
        """States of the next item, open masks and 80 % pruned at random places."""
        for n in (50, 200):
            place = {**self.place("ml-100k"), "n": n}
            given: dict[str, Any] = {
                "recbole": ("recbole_infer", place),
                "open": ("ours_infer", {**place, **EQ_8, "keep": None}),
                "pruned": ("ours_infer", {**place, **EQ_8, "keep": 0.2}),
                "shared": ("ours_infer", {**place, "keep": 0.2, "mask_form": "renormalise"}),
            }
            if not self.quick:  # rows without a target
                given["plain"] = ("ours_infer", {**place, "keep": None, "denoise": False})
                given["closed"] = ("ours_infer", {**place, **EQ_8, "keep": 0.2, "closed": True})
            done = self.rounds(5 if self.quick else 25, **given)
            for key, words, target in (
                ("plain", "no masks", ""),
                ("open", "open masks", "at least 1.8"),
                ("pruned", "80 % pruned", "at least 3" if n == 200 else ""),  # eq. 8: pruned keys are still computed
                ("shared", "80 % pruned, mask_form renormalise", "at least 3"),
                ("closed", "and the newest row", ""),
            ):
                if key not in given:
                    continue
                values = [r["recbole"]["per_unit"] / r[key]["per_unit"] for r in done]
                yield row(f"scoring, batch 256, n={n}, {words}", "RecBole's SASRec forward", target, values)

    def building(self) -> Iterator[Row]:
        """Data sets: time and peak memory."""
        dataset = "ml-1m" if "ml-1m" in self.data else "ml-100k"
        for_target = "at most 0.1" if dataset == "ml-1m" else ""
        pairs = [[build(who, dataset, self.data[dataset]) for who in ("sequences", "recbole")]
                 for _ in range(1 if self.quick else 3)]  # fmt: skip
        for figure in ("seconds", "megabytes"):
            values = [ours[figure] / theirs[figure] for ours, theirs in pairs]
            yield row(f"data set build, {dataset}, {figure}", "RecBole's augmentation", for_target, values)

    def memory(self) -> Iterator[Row]:
        """Peak resident memory of training steps; each pair of processes anew, as huge pages come and go."""
        common = {**self.place("ml-100k"), "MAX_ITEM_LIST_LENGTH": 200, "steps": 2, "batch_size": 128}
        plain: tuple[str, dict[str, Any]] = ("ours_step", {**common, "denoise": False})
        masked: tuple[str, dict[str, Any]] = ("ours_step", {**common, **EQ_8, "estimator": "arm"})
        pairs = [self.rounds(1, plain=plain, masked=masked)[0] for _ in range(3 if self.quick else 7)]
        values = [done["masked"]["grown"] / done["plain"]["grown"] for done in pairs]
        yield row("peak memory of a training step, n=200, ARM", "plain backbone", "at most 1.5", values)

    def length(self) -> Iterator[Row]:
        """The denoised step over the plain one as sequences grow."""
        ratios = {}
        for n in (50, 200, 400):
            common = {**self.place("ml-100k"), "MAX_ITEM_LIST_LENGTH": n, "steps": 2, "batch_size": 32}
            done = self.rounds(
                11,
                plain=("ours_step", {**common, "denoise": False}),
                masked=("ours_step", {**common, **EQ_8, "estimator": "arm"}),
            )
            ratios[n] = [r["masked"]["per_unit"] / r["plain"]["per_unit"] for r in done]
            yield row(f"training step, batch 32, n={n}, ARM", "plain backbone", "", ratios[n])
            if n > 50:
                grown = [value / statistics.median(ratios[50]) for value in ratios[n]]
                yield row(f"that ratio at n={n} over n=50", "", "at most 1", grown)

    def recommending(self) -> Iterator[Row]:
        """Recommendations from raw tokens."""
        count = 10_000 if self.quick else 100_000
        done = self.rounds(1, all=("ours_recommend", {**self.place("ml-100k"), "count": count}))
        values = [r["all"]["seconds"] for r in done]
        yield row(f"recommend for {count:,} sequences, ml-100k, CPU seconds", "", "", values)

    def outside(self) -> Iterator[Row]:
        """CPU time of an epoch that is spent outside loss, backward and update."""
        given = ("ours_outside", {**self.place("ml-100k"), "MAX_ITEM_LIST_LENGTH": 50})
        done = self.rounds(3 if self.quick else 7, epoch=given)
        values = [1 - r["epoch"]["units"] / r["epoch"]["seconds"] for r in done]
        yield row("share of an epoch outside the model", "", "at most 0.1", values)

    def starting(self) -> Iterator[Row]:
        """Import and --help against importing torch."""
        yield from cold_start(3 if self.quick else 5)


GROUPS = (
    "training",
    "buckets",
    "objectives",
    "softmax",
    "gru",
    "step",
    "evaluation",
    "inference",
    "building",
    "memory",
    "length",
    "outside",
    "recommending",
    "starting",
)
# without ml-1m the first two have no target, and three rounds say nothing about a ratio of ratios
NOT_QUICK = ("building", "recommending", "length")


def show(line: Row) -> str:
    """One row as text."""
    verdict = {True: "met", False: "MISSED", None: ""}[line.met]
    spread = f"{line.median:9.2f}  [{line.low:.2f} .. {line.high:.2f}]"
    return f"| {line.what:<58} | {line.against:<34} | {line.target:<13} | {spread:<28} | {verdict:<6} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data_path", default=os.environ.get("RECBOLE_DATA"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="comma-separated: " + ", ".join(GROUPS))
    parser.add_argument("--output", default="bench.json")
    options = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:  # RecBole writes logs where it stands
        bench = Bench(options.data_path, options.quick, options.threads, folder)
        print(f"CPU time ratios, {options.threads} thread(s), median [smallest .. largest]", flush=True)
        chosen = [group for group in GROUPS if not (options.quick and group in NOT_QUICK)]
        for group in options.only.split(",") if options.only else chosen:
            make: Callable[[], Iterator[Row]] = getattr(bench, group)
            for line in make():
                rows.append(line)
                print(show(line), flush=True)
    about = {"threads": options.threads, "quick": options.quick, "cpu": platform.processor() or platform.machine()}
    content = {**about, "python": platform.python_version(), "rows": [{**asdict(r), "met": r.met} for r in rows]}
    Path(options.output).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
