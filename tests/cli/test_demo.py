"""The demo on small data, and its arithmetic."""

from __future__ import annotations

import re
from pathlib import Path

from recbole_denoiser.cli.demo import demo, recovered


def test_demo_tells_the_story(workplace: Path, aisles: tuple[Path, Path]) -> None:
    settings = {"data_path": str(aisles[0]), "epochs": 2, "MAX_ITEM_LIST_LENGTH": 10, "state": "ERROR"}
    text = demo(settings, "aisles")
    training = 400 * (24 - 2)
    assert f"aisles: {round(0.2 * training):,} of {training:,} training items replaced (20.0%)" in text
    found, missed = (int(n.replace(",", "")) for n in re.search(r": ([\d,]+) of the .* found, ([\d,]+) missed", text).groups())  # type: ignore[union-attr]  # fmt: skip
    assert found + missed == round(0.2 * training) and found > 0
    for row in ("plain, clean data", "plain, noisy data", "denoised, noisy data", "recovered of what noise cost"):
        assert re.search(rf"^{row} +\S+ ", text, re.MULTILINE)
    page = re.search(r"The page: (\S+)", text)
    assert page is not None and "removed" in Path(page[1]).read_text(encoding="utf-8")


def test_recovered_by_hand() -> None:
    assert recovered(0.8, 0.6, 0.7) == "50%"
    assert recovered(0.8, 0.6, 0.55) == "-25%"  # worse than doing nothing is said, too
    assert recovered(0.6, 0.6, 0.7) == "no loss"
