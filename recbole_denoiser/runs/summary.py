"""The table that a finished run prints."""

from __future__ import annotations

from typing import Any


def run_table(result: dict[str, Any]) -> str:
    """Metrics of validation and test side by side, then the masks and where everything is."""
    rows: list[tuple[str, ...]] = [("", "valid", "test")]
    names = list(result["valid"] or result["test"] or {})
    for name in names:
        rows.append((name, *(_number((result[part] or {}).get(name)) for part in ("valid", "test"))))
    lines = [f"{result['label']} on {result['dataset']}, seed {result['seed']}, best epoch {result['best_epoch'] + 1}"]
    lines += _aligned(rows)
    for mode, metrics in (result.get("test_by_mode") or {}).items():
        lines.append(
            f"test, {mode}: " + ", ".join(f"{name} {_number(value)}" for name, value in (metrics or {}).items())
        )
    if result.get("kept"):
        lines.append("kept attention per layer: " + ", ".join(f"{share:.1%}" for share in result["kept"]))
    losses = result["epochs"][-1]["losses"] if result["epochs"] else {}
    if losses:
        lines.append("last losses: " + ", ".join(f"{name} {value:.4f}" for name, value in losses.items()))
    lines.append(f"{result['seconds']:.0f} s, checkpoint {result['checkpoint']}")
    if result["config"].get("train_stage") == "pretrain":
        lines.append(f"only pre-trained; then: --train_stage=finetune --pre_model_path={result['checkpoint']}")
    lines.append(f"result in {result['config']['result_dir']}/{result['run']}/")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  "
        + row[0].ljust(widths[0])
        + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
