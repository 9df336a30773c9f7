"""The commands about finished runs: recommend, explain, report, pruning, variance."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recbole_denoiser.cli.arguments import add_result_dir, add_trust, positive, say
from recbole_denoiser.errors import UserError, printable

if TYPE_CHECKING:
    from recbole_denoiser.analysis.recommend import Recommendations, Recommender
    from recbole_denoiser.data.sequences import Histories


SHOWN = 5  # users in a page if none is asked for


def add_commands(command: Callable[..., Any]) -> None:
    """Register the commands; ``command`` is main.py's registrar."""
    recommend = command("recommend", _recommend)
    _who(recommend)
    recommend.add_argument(
        "--output", "-o", help="recommendations as .csv or, with .jsonl, as JSON lines; else a table"
    )
    recommend.add_argument("-k", type=positive, default=10, help="items per sequence (10)")
    recommend.add_argument("--include_seen", action="store_true", help="also recommend items of the sequence itself")

    explain = command("explain", _explain)
    _who(explain)
    explain.add_argument("--output", "-o", help="the page; default: explain.html in the folder of the run")
    explain.add_argument("--json", help="also write the same data as JSON")
    explain.add_argument("--tensors", help="also write the attention as tensors for bertviz (a torch .pt file)")
    explain.add_argument("-k", type=positive, default=10, help="recommendations to show (10)")

    report = command("report", _report)
    report.add_argument("runs", nargs="+", metavar="run", help="folders or names of finished runs, or folders of runs")
    add_result_dir(report)
    report.add_argument("--output", "-o", help="the page (results/report/report.html; of one run in its own folder)")

    pruning = command("pruning", _pruning)
    pruning.add_argument("runs", nargs="+", metavar="run", help="folders or names of finished runs, or folders of runs")
    add_result_dir(pruning)
    pruning.add_argument("--users", type=positive, default=2000, help="histories to look at")
    pruning.add_argument("--output", help="folder that gets pruning.md and pruning.csv")

    variance = command("variance", _variance)
    variance.add_argument("run", help="folder or name of a finished run")
    add_result_dir(variance)
    variance.add_argument("--draws", type=positive, default=50, help="gradient draws per estimator")


def _who(parser: Any) -> None:
    parser.add_argument("--run", required=True, help="folder or name of a finished run")
    add_result_dir(parser)
    parser.add_argument("--data_path", help="where the data set is, if it was moved since")
    add_trust(parser)
    parser.add_argument(
        "--user", action="append", default=[], help="a user of the data set; may be given several times"
    )
    parser.add_argument(
        "--input", help="sequences: a .csv file with columns user, item and perhaps time, or a .jsonl file of lists"
    )


def _open(options: Any) -> Recommender:
    if not options.user and not options.input:
        raise UserError("Say for whom: --user with a user of the data set, or --input with a file of sequences.")
    return _opened(options)


def _opened(options: Any) -> Recommender:
    from recbole_denoiser.analysis.recommend import Recommender
    from recbole_denoiser.runs.reopen import open_run

    return Recommender(
        open_run(
            options.run,
            options.data_path,
            options.result_dir,
            trust=options.trust_checkpoint,
            needs_data=bool(options.user) or not options.input,
        )
    )


def _given(recommender: Recommender, file: str) -> Histories:
    from recbole_denoiser.data.sequences import read_sequences

    return recommender.cleaned(read_sequences(Path(file), recommender.item_ids, recommender.field_names))


def _recommend(options: Any) -> None:
    recommender = _open(options)
    if options.user and options.input:
        raise UserError("Give either --user or --input, not both.")
    histories = recommender.user_histories(options.user) if options.user else _given(recommender, options.input)
    found = recommender.recommend_histories(
        histories, options.k, exclude_seen=not options.include_seen, progress=len(histories) > 1000
    )
    for note in found.notes():
        print(f"Note: {printable(note)}", file=sys.stderr)
    if options.output:
        _write(found, Path(options.output))
        print(f"{len(found):,} lists in {options.output}")
    else:
        say(found.frame().to_string(index=False))


def _write(found: Recommendations, file: Path) -> None:
    from recbole_denoiser.files import write_atomically

    if file.suffix in (".jsonl", ".ndjson"):
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in found.records())
        write_atomically(file, lambda stream: stream.writelines(line.encode("utf-8") for line in lines))
    else:
        table = found.frame()
        write_atomically(file, lambda stream: table.to_csv(stream, index=False, encoding="utf-8"))


def _explain(options: Any) -> None:
    import torch

    from recbole_denoiser.analysis.explain import explain
    from recbole_denoiser.analysis.histories import histories_of, telling_histories, user_history
    from recbole_denoiser.files import write_atomically, write_json
    from recbole_denoiser.report.explain_page import write_explain_page

    recommender = _opened(options)
    histories = [user_history(recommender, user) for user in options.user]
    if options.input:
        histories += histories_of(recommender, _given(recommender, options.input))
    if not histories:
        histories = telling_histories(recommender, SHOWN)
    explanation = explain(recommender, histories, options.k)
    page = Path(options.output) if options.output else recommender.run.folder / "explain.html"
    write_explain_page(explanation, page)
    written = [page]
    if options.json:
        write_json(Path(options.json), explanation.data)
        written.append(Path(options.json))
    if options.tensors:
        write_atomically(Path(options.tensors), lambda stream: torch.save(explanation.tensors, stream))
        written.append(Path(options.tensors))
    _say_written(written)


def _report(options: Any) -> None:
    from recbole_denoiser.report.report_page import write_report
    from recbole_denoiser.runs.record import find_runs

    runs = find_runs(options.runs, options.result_dir)
    default = runs[0].folder / "report.html" if len(runs) == 1 else Path(options.result_dir, "report", "report.html")
    page, *figures = write_report(runs, Path(options.output) if options.output else default)
    print(f"Wrote {page}")
    if figures:
        print(f"Wrote {len(figures)} figures (PNG and SVG) into {figures[0].parent}/")


def _say_written(files: Iterable[Path]) -> None:
    for file in files:
        print(f"Wrote {file}")


def _pruning(options: Any) -> None:
    from recbole_denoiser.analysis import pruning
    from recbole_denoiser.files import write_text
    from recbole_denoiser.runs.record import find_runs

    rows = []
    for run in find_runs(options.runs, options.result_dir):
        quality = pruning.of_run(run, options.users)
        if quality is None:
            print(f"{run.run} is left out: trained without noise, or not a model of this package.", file=sys.stderr)
        else:
            rows.append(pruning.row(run, quality))
    if not rows:
        raise UserError("None of these runs has known noise and attention; train with --train_noise=0.2.")
    if options.output:
        write_text(Path(options.output) / "pruning.md", pruning.to_markdown(rows))
        write_text(Path(options.output) / "pruning.csv", pruning.to_csv(rows))
    say(pruning.to_markdown(rows))


def _variance(options: Any) -> None:
    from recbole_denoiser.analysis.variance import variance_of_run
    from recbole_denoiser.runs.record import find_run, load_run

    print(variance_of_run(load_run(find_run(options.run, options.result_dir)), options.draws))
