"""The commands about data sets: prepare, noise, detect, clean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError


def add_commands(command: Callable[..., Any]) -> None:
    """Register the commands; ``command`` is main.py's registrar."""
    from recbole_denoiser.data.prepare.convert import NAMES, RULES
    from recbole_denoiser.data.prepare.sources import listed
    from recbole_denoiser.integration.schema import NOISE_KINDS

    prepare = command("prepare", _prepare)
    prepare.add_argument("name", choices=("csv", *NAMES), help="csv: your own events, also .jsonl and .parquet")
    prepare.add_argument("--raw", required=True, help="the raw file, plain, .gz or (ml-1m) .zip")
    prepare.add_argument("--output", default="dataset", help="folder that gets <name>/ (dataset)")
    prepare.add_argument("--rule", choices=RULES, help="which rare users and items are dropped; default: the paper's")
    prepare.add_argument("--on_malformed", choices=("skip", "fail"), default="skip", help="lines that cannot be read")
    prepare.add_argument("--overwrite", action="store_true", help="replace files of an earlier conversion")
    prepare.epilog = listed()
    own = prepare.add_argument_group("your own events (prepare csv)")
    for what in ("user", "item", "time", "title"):
        note = ", numbers or ISO dates" if what == "time" else ", if there is one" if what == "title" else ""
        own.add_argument(f"--{what}", metavar="COLUMN", help=f"the column that holds the {what}{note}")
    own.add_argument("--core", type=int, help="keep users and items with so many events (5; 0: all)")
    own.add_argument("--name", dest="as_name", help="name of the data set; default: the file's")

    noise = command("noise", _noise, settings=True)
    noise.add_argument("dataset", help="name of a data set in data_path")
    noise.add_argument("--share", type=float, required=True, help="share of the training items that is noise, 0 to 1")
    noise.add_argument("--kind", choices=NOISE_KINDS, default="replace", help="see train_noise_kind (replace)")
    noise.add_argument("--output", default="dataset", help="folder that gets <name>/")
    noise.add_argument("--name", help="name of the copy; default: <dataset>-noise<per cent>")

    detect = command("detect", _detect, settings=True)
    _what(detect)
    detect.add_argument("--labels", help="known noise: a .csv or .tsv file with columns user, item, time and label (1: "
                        "noise), or the .noise.npz of the command noise")  # fmt: skip
    detect.add_argument("--output", "-o", help="folder for noise.csv and noise.html (results/detect-<data set>)")

    clean = command("clean", _clean, settings=True)
    _what(clean)
    clean.add_argument("--out", help="folder of the copy, which is also its name (dataset/<data set>-clean)")
    clean.add_argument("--keep_last", type=int, default=0, metavar="N",
                       help="the newest N interactions of every user stay: 2 for validation and test (0)")  # fmt: skip


def _prepare(options: Any) -> None:
    from recbole_denoiser.data.prepare.convert import prepare

    own = {f"--{key}": getattr(options, key) for key in ("user", "item", "time", "title", "core")}
    own["--name"] = options.as_name
    if options.name == "csv":
        _prepare_events(options)
        return
    given = [key for key, value in own.items() if value is not None]
    if given:
        raise UserError(f"{given[0]} is for your own events (prepare csv), not for {options.name}.")
    print(prepare(options.name, options.raw, options.output, options.on_malformed, options.rule,
                  overwrite=options.overwrite))  # fmt: skip


def _prepare_events(options: Any) -> None:
    from recbole_denoiser.data.prepare.columns import Columns
    from recbole_denoiser.data.prepare.events import prepare_events

    if options.rule is not None:
        raise UserError("--rule is for the public data sets; of your own events --core says which are kept.")
    for what in ("user", "item", "time"):
        if getattr(options, what) is None:
            raise UserError(f"Say which column holds the {what}: --{what} <column>.")
    columns = Columns(options.user, options.item, options.time, options.title)
    core = 5 if options.core is None else options.core
    report = prepare_events(options.raw, columns, options.output, options.as_name, core, options.on_malformed,
                            overwrite=options.overwrite)  # fmt: skip
    print(report)
    print(f"Use it with: recbole-denoiser run --dataset {report.name} --data_path {options.output}")


def _noise(options: Any) -> None:
    from recbole_denoiser.data.noise_files import write_noisy

    output = Path(options.output)
    print(write_noisy(options.dataset, options.share, output, options.name, options.settings, options.kind))


def _what(parser: Any) -> None:
    parser.add_argument("--dataset", "-d", default="ml-100k", help="name of a data set in data_path")
    parser.add_argument("--threshold", type=float, default=0.5, help="remove what is noise more likely than this (0.5)")
    parser.add_argument("--seed", type=int, default=0, help="of the injected items and the folds of users (0)")


def _found(options: Any, labels: str | None) -> Any:
    from recbole_denoiser.data.detected import detect_dataset

    return detect_dataset(
        options.dataset, options.settings, Path(labels) if labels else None, options.threshold, options.seed, True
    )


def _detect(options: Any) -> None:
    from recbole_denoiser.report.noise_page import write_noise_page

    found = _found(options, options.labels)
    print(found.report)
    known = found.known_quality()
    if known is not None:
        figures = {
            name: "-" if known[name] is None else f"{known[name]:.3f}" for name in ("auc", "precision", "recall")
        }
        print(
            f"against {known['labelled']:,.0f} labels ({known['share']:.1%} noise): AUC {figures['auc']}, "
            f"precision {figures['precision']}, recall {figures['recall']}"
        )
        without = len(found.data) - int(known["labelled"] or 0)
        if without:
            print(f"{without:,} of {len(found.data):,} interactions have no label; the figures are of the others")
    folder = Path(options.output or f"results/detect-{options.dataset}")
    for file in (found.write_csv(folder / "noise.csv"), write_noise_page(found, folder / "noise.html")):
        print(f"Wrote {file}")


def _clean(options: Any) -> None:
    from recbole_denoiser.data.detected import write_clean

    target = Path(options.out or f"dataset/{options.dataset}-clean")
    if target.exists():
        raise UserError(f"{target} exists already. Remove it or choose another --out.")
    if options.keep_last < 0:
        raise UserError(f"--keep_last {options.keep_last}: 0 or more interactions can stay.")
    found = _found(options, None)
    print(found.report)
    print(write_clean(found, target, options.keep_last))
    if not options.keep_last:
        print("Items that would be tested on may be gone too: to compare models use --keep_last 2, or train with "
              "noise_action, which leaves validation and test as they are.")  # fmt: skip
