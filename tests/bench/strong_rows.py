"""Rows of the table about training batches, objectives and GRU4Rec."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from row import Row, row


class StrongRows:
    """Part of ``Bench``."""

    data: dict[str, str]
    quick: bool
    place: Any
    rounds: Any

    def buckets(self) -> Iterator[Row]:
        """Epochs with batches of similar length against shuffled ones."""
        dataset = "amazon-games" if "amazon-games" in self.data else "ml-100k"
        common = {**self.place(dataset), "MAX_ITEM_LIST_LENGTH": 25, "denoise": False, "target_denoise": "none"}
        done = self.rounds(
            1 if self.quick else 5,
            bucketed=("ours_epoch", {**common, "train_batches": "bucketed"}),
            shuffled=("ours_epoch", {**common, "train_batches": "shuffled"}),
        )
        values = [r["shuffled"]["per_unit"] / r["bucketed"]["per_unit"] for r in done]
        target = "at least 2.5" if dataset == "amazon-games" else ""
        yield row(f"epoch, n=25, BCE, bucketed, {dataset}", "shuffled batches", target, values)

    def objectives(self) -> Iterator[Row]:
        """The softmax over all items: in pieces against the full matrix."""
        items, positions = 100_000, 500 if self.quick else 2_000  # the full matrix of 20,000 would not fit
        settings = {"items": items, "positions": positions}
        done = self.rounds(
            1 if self.quick else 3,
            pieces=("ours_cross_entropy", {**settings, "in_pieces": True}),
            matrix=("ours_cross_entropy", {**settings, "in_pieces": False}),
        )
        values = [r["pieces"]["per_unit"] / r["matrix"]["per_unit"] for r in done]
        yield row("time of a CE step, 100,000 items, in pieces", "full matrix", "at most 1.15", values)
        grown = done[-1]["matrix"]["grown"] * 20_000 / positions
        if self.quick:
            own = done[-1]["pieces"]["grown"]
        else:
            (whole,) = self.rounds(
                1,
                pieces=("ours_cross_entropy", {"items": items, "positions": 20_000, "in_pieces": True, "warm": False}),
            )
            own = whole["pieces"]["grown"]
        note = f"the full matrix at {positions:,} positions, scaled"
        yield row("its peak memory at 20,000 positions", "full matrix", "at most 0.2", [own / grown], note)

    def _larger(self) -> str:
        """The data set of the two rows that follow."""
        return "ml-1m" if "ml-1m" in self.data and not self.quick else "ml-100k"

    def softmax(self) -> Iterator[Row]:
        """SASRec with the softmax over all items, against RecTools."""
        dataset, place = self._larger(), self.place(self._larger())
        if importlib.util.find_spec("rectools") is not None:
            ours = {"steps": 2 if self.quick else 6, "MAX_ITEM_LIST_LENGTH": 200, "loss_type": "CE", "denoise": False,
                    "target_denoise": "none", "long_history": "windows"}  # fmt: skip
            done = self.rounds(
                1 if self.quick else 5,
                ours=("ours_train", {**place, **ours}),
                rectools=(
                    "rectools_train",
                    {**place, "n": 200, "loss": "softmax", "batches": ours["steps"], "warm": False},
                ),
            )
            values = [r["rectools"]["per_unit"] / r["ours"]["per_unit"] for r in done]
            name = f"training per position, CE, n=200, windows, {dataset}"
            yield row(name, "RecTools' SASRec softmax", "at least 1.2", values)

    def gru(self) -> Iterator[Row]:
        """GRU4Rec on whole sequences against RecBole's prefixes."""
        dataset, place = self._larger(), self.place(self._larger())
        sizes = {"embedding_size": 64, "hidden_size": 128, "num_layers": 1, "dropout_prob": 0.3}
        for loss in ("CE", "BPR"):  # the softmax over all items is the same work on both sides
            common = {**place, **sizes, "MAX_ITEM_LIST_LENGTH": 50, "loss_type": loss}
            done = self.rounds(
                1 if self.quick else 5,
                ours=("ours_train", {**common, "model": "GRU4RecSequence", "steps": 10, "long_history": "windows"}),
                recbole=("recbole_train", {**common, "model": "GRU4Rec", "steps": 1}),
            )
            values = [r["recbole"]["per_unit"] / r["ours"]["per_unit"] for r in done]
            yield row(f"GRU4RecSequence per position, {loss}, {dataset}", "RecBole's GRU4Rec", "at least 30", values)
