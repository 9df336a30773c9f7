"""The command ``export``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recbole_denoiser.cli.arguments import add_result_dir, add_trust, positive


def add_commands(command: Callable[..., Any]) -> None:
    """Register the command; ``command`` is main.py's registrar."""
    export = command("export", _export)
    export.add_argument("--run", required=True, help="folder or name of a finished run")
    export.add_argument("--format", required=True, choices=("onnx", "pt2", "safetensors"))
    export.add_argument("--output", "-o", help="folder that gets the files; default: export/ in the folder of the run")
    export.add_argument("-k", type=positive, default=10, help="items per history (10)")
    export.add_argument("--include_seen", action="store_true", help="also recommend items of the history itself")
    export.add_argument("--data_path", help="where the data set is, if it was moved since and the model needs it")
    add_result_dir(export)
    add_trust(export)


def _export(options: Any) -> None:
    from recbole_denoiser.analysis.export import export
    from recbole_denoiser.analysis.recommend import Recommender
    from recbole_denoiser.runs.reopen import open_run

    run = open_run(options.run, options.data_path, options.result_dir, trust=options.trust_checkpoint, needs_data=False)
    file = export(Recommender(run), options.format, options.output, options.k, not options.include_seen)
    print(f"Wrote {file} ({file.stat().st_size / 1e6:.1f} MB) and model.json; its answers are those of recommend.")
