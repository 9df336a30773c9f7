"""What if: removed items in place, put back or others taken out, against the model itself; and the sentence about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_denoiser.analysis.explain import explain
from recbole_denoiser.analysis.histories import telling_histories, user_history
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.analysis.story import cut_everywhere, effect, story


@pytest.fixture(scope="module")
def cleaned(cleaned_run: Path) -> Recommender:
    return Recommender.load(cleaned_run)


@pytest.fixture(scope="module")
def data(cleaned: Recommender) -> dict[str, Any]:
    return explain(cleaned, telling_histories(cleaned, 3), k=5).data


def file_items(data_path: Path, user: str) -> list[str]:
    rows = [line.split("\t") for line in (data_path / "aisles" / "aisles.inter").read_text().splitlines()[1:]]
    return [row[2] for row in sorted((row for row in rows if row[1] == user), key=lambda row: float(row[3]))]


def test_removed_items_stand_where_they_were(data: dict[str, Any], aisles: tuple[Path, Path]) -> None:
    """Kept and removed items, put together, are the end of the user's training and validation part in the file."""
    for user in data["users"]:
        assert user["removed"]
        together = [entry["item"] for entry in user["items"]]
        for entry in reversed(user["removed"]):
            together.insert(entry["place"], entry["item"])
        before_test = file_items(aisles[0], user["user"])[:-1]
        expected = before_test[-len(together) :]
        assert together == expected
        assert all(0.5 < entry["posterior"] <= 1 for entry in user["removed"])


def test_putting_back_and_taking_out_is_what_the_model_says(cleaned: Recommender, data: dict[str, Any]) -> None:
    user = data["users"][0]
    history = user_history(cleaned, user["user"])
    tokens = [entry["item"] for entry in user["items"]]

    def scores(sequence: list[str]) -> torch.Tensor:
        values = cleaned.scores(cleaned.histories([sequence]), np.zeros(1, dtype=np.int64))[0]
        out = np.setdiff1d(history.seen, [history.next])
        values[torch.from_numpy(out)] = -torch.inf
        return values

    def rank(values: torch.Tensor, number: int) -> int:
        return int((values > values[number]).sum()) + 1

    base = scores(tokens)
    taken = scores(tokens[:2] + tokens[3:])
    entry = user["removed"][0]
    back = scores([*tokens[: entry["place"]], entry["item"], *tokens[entry["place"] :]])
    for variant, values in ((user["out"][2], taken), (entry["back"], back)):
        assert variant["top"] == values.topk(5).indices.tolist()
        assert variant["was"] == [rank(base, number) for number in variant["top"]]
        assert variant["now"] == [rank(values, shown["number"]) for shown in user["on"]]
        assert variant["next"] == rank(values, int(history.next or 0))
        assert all(str(number) in data["names"] for number in variant["top"])
    assert user["out"][2]["top"] != user["back"]["top"] or user["out"][2]["was"] != user["back"]["was"]


def test_the_first_sentence(data: dict[str, Any]) -> None:
    user = data["users"][0]
    total = len(user["removed"]) + len(user["items"])
    assert user["story"].startswith(f"Ignored {len(user['removed'])} of {total} items as noise: ")
    assert user["removed"][0]["title"] in user["story"]
    assert "back, " in user["story"]
    effects = [effect(entry) for entry in data["users"]]
    assert data["start"] == int(np.argmax(effects))  # a first user chosen for effect


def test_a_removed_item_has_its_reason(data: dict[str, Any]) -> None:
    for user in data["users"]:
        for entry in user["removed"]:
            why = entry["why"]
            assert 0 <= why["never"] <= why["around"] <= 2 * why["window"]
            gaps = [(near["chance"] - near["together"]) / (near["chance"] + 1) ** 0.5 for near in why["neighbours"]]
            assert gaps == sorted(gaps, reverse=True)


def made_up(**changes: Any) -> dict[str, Any]:
    """Three items, two recommendations; the mask closes the first item to the last position."""
    names = [{"item": str(n), "title": f"T{n}", "number": n} for n in range(5)]
    gate = [[1.0], [0.9, 1.0], [0.0, 0.9, 1.0]]
    user: dict[str, Any] = {
        "items": names[:3], "last": 2, "layers": [{"gate": [gate]}, {"gate": [gate]}], "removed": [], "back": None,
        "on": [{**names[3], "other_rank": 4}, {**names[4], "other_rank": 1}],
        "off": [{**names[4], "other_rank": 2}, {**names[0], "other_rank": 9}], "next": None,
    }  # fmt: skip
    return user | changes


def test_sentences_about_masks_by_hand() -> None:
    assert cut_everywhere(made_up()) == [0]
    assert story(made_up()) == (
        "Ignored 1 of 3 items: the newest position reads T0 in no layer; with the masks off, T3 would move from 1 to 4."
    )
    nearly = [{"gate": [[[1.0], [0.9, 1.0], [0.8, 0.9, 1.0]]]}, *made_up()["layers"][1:]]
    assert story(made_up(layers=nearly)).startswith("Ignored none of 3 items")
    after = {"item": "9", "title": "T9", "rank": 12, "rank_off": 3}
    assert story(made_up(next=after)).endswith("with the masks off, T9, which came next, would move from 12 to 3.")
    unseen = after | {"rank": 700, "rank_off": 500}
    assert story(made_up(next=unseen)).endswith("with the masks off, T3 would move from 1 to 4.")
    comma = {**made_up()["items"][0], "title": "Birds, The"}
    assert "reads “Birds, The” in no layer" in story(made_up(items=[comma, *made_up()["items"][1:]]))
    assert effect(made_up(next=after)) == pytest.approx(1 / 2 + 2 / 4)  # T3 is new; log2(12 / 3) = 2
    same = [{**entry, "other_rank": place} for place, entry in enumerate(made_up()["on"], start=1)]
    assert story(made_up(on=same)).endswith("the first 2 recommendations would stay as they are.")


def test_sentence_without_masks_names_what_counts_most() -> None:
    out = [{"now": [1, 2], "next": None}, {"now": [6, 2], "next": None}, None]
    assert story(made_up(off=None, out=out)) == (
        "Read all 3 items: nothing is masked and nothing was removed. What counts most is T1: without it, T3 would move "
        "from 1 to 6."
    )
