"""``recbole-denoiser demo``: noise goes into ml-100k, the detector finds it, and training without it is better again.

Three runs with one seed and the same number of epochs: the plain backbone on clean data, on noisy data, and on noisy
data from which the detector has removed what it found (noise_action: remove).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARE = 0.2
# the epoch is chosen on validation; no run stops early, so that all are trained alike
SETTINGS = {"epochs": 50, "eval_step": 5, "stopping_step": 1000, "show_progress": False, "state": "WARNING"}
PLAIN = {"denoise": False, "target_denoise": "none", "noise_action": "none"}
METRICS = ("hit@10", "ndcg@10")


def add_commands(command: Callable[..., Any]) -> None:
    """Register the command; ``command`` is main.py's registrar."""
    demo_command = command("demo", _demo, settings=True)
    demo_command.add_argument("--dataset", "-d", default="ml-100k", help="name of a data set in data_path (ml-100k)")


def _demo(options: Any) -> None:
    print(demo(options.settings, options.dataset))


def demo(settings: dict[str, Any], dataset: str = "ml-100k") -> str:
    """Train the three, write the page and return the story."""
    from recbole_denoiser.runs import pipeline

    begin = time.perf_counter()
    noisy = {"train_noise": SHARE}
    results = {}
    for number, (name, changes) in enumerate(
        {
            "plain, clean data": PLAIN,
            "plain, noisy data": {**PLAIN, **noisy},
            "denoised, noisy data": {**PLAIN, **noisy, "noise_action": "remove"},
        }.items(),
        start=1,
    ):
        print(f"{number} of 3: SASRec, {name} ...", file=sys.stderr, flush=True)
        results[name] = pipeline.run(
            dataset=dataset, flags={**SETTINGS, **settings, **changes, "label": f"SASRec ({name})"}
        )
    page = write_page(results["denoised, noisy data"])
    seconds = time.perf_counter() - begin
    return "\n".join([*story(dataset, results), f"The page: {page}", f"{seconds:.0f} seconds in all"])


def write_page(result: dict[str, Any]) -> Path:
    """The explain page of the denoised run: users of whom the detector removed most."""
    from recbole_denoiser.analysis.explain import explain
    from recbole_denoiser.analysis.histories import telling_histories
    from recbole_denoiser.analysis.recommend import Recommender
    from recbole_denoiser.report.explain_page import write_explain_page

    folder = Path(result["config"]["result_dir"]) / result["run"]
    recommender = Recommender.load(folder)
    write_explain_page(explain(recommender, telling_histories(recommender, 5)), folder / "explain.html")
    return folder / "explain.html"


def story(dataset: str, results: dict[str, dict[str, Any]]) -> list[str]:
    """What was put in, what was found, what it cost and how much of that came back."""
    clean, noisy, denoised = results.values()
    found = denoised["noise"]
    known = found["known"]
    injected = round(known["share"] * found["interactions"])
    right = round(known["recall"] * injected)
    low, high = found["interval"]
    lines = [
        f"{dataset}: {injected:,} of {found['interactions']:,} training items replaced ({known['share']:.1%})",
        f"Detector: {found['share']:.1%} noise estimated ({low:.1%} to {high:.1%}; {found['verdict']}); AUC "
        f"{known['auc']:.3f}",
        f"Removed {found['removed']:,}: {right:,} of the replaced items found, {injected - right:,} missed, "
        f"{found['removed'] - right:,} others removed with them",
        "",
        f"{'SASRec, one seed, same epochs':<32}" + "".join(f"{f'test {metric}':>14}" for metric in METRICS),
    ]
    lines += [f"{name:<32}" + "".join(f"{run['test'][metric]:>14.4f}" for metric in METRICS)
              for name, run in results.items()]  # fmt: skip
    shares = [recovered(clean["test"][m], noisy["test"][m], denoised["test"][m]) for m in METRICS]
    lines.append(f"{'recovered of what noise cost':<32}" + "".join(f"{share:>14}" for share in shares))
    return lines


def recovered(clean: float, noisy: float, denoised: float) -> str:
    """(denoised - noisy) / (clean - noisy); nothing to recover where noise cost nothing."""
    return f"{(denoised - noisy) / (clean - noisy):.0%}" if clean > noisy else "no loss"
