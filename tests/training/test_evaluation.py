"""Fast sampled evaluation against RecBole's own, with the same negatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recbole.data.dataloader import FullSortEvalDataLoader, NegSampleEvalDataLoader
from recbole.trainer import Trainer

from recbole_denoiser.integration.config import Config
from recbole_denoiser.integration.registry import trainer_class
from recbole_denoiser.runs.pipeline import build_model, load_data
from recbole_denoiser.training import evaluation
from recbole_denoiser.training.evaluation import CandidateLoader, average_rank

METRICS = ["Hit", "NDCG", "MRR", "Recall", "Precision", "MAP", "GAUC"]


class SameNegatives:
    """RecBole's sampler interface, with the frozen negatives of the user."""

    phase = "test"

    def __init__(self, loader: CandidateLoader) -> None:
        self.table: dict[tuple[int, int], torch.Tensor] = {}
        assert loader.frozen is not None
        for user, item, negatives in zip(loader.user.tolist(), loader.positive.tolist(), loader.frozen, strict=True):
            self.table[user, item] = negatives

    def sample_by_user_ids(self, users: Any, items: Any, count: int) -> torch.Tensor:
        rows = [self.table[int(u), int(i)][:count] for u, i in zip(users, items, strict=True)]
        return torch.stack(rows).t().reshape(-1)


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec", "GRU4Rec", "FPMC", "SASRecDenoiser", "BERT4RecDenoiser"])
@pytest.mark.parametrize("split", [{"LS": "valid_and_test"}, {"RS": [0.6, 0.2, 0.2]}], ids=["one row", "many rows"])
def test_fast_evaluation_equals_recbole(workplace: Path, settings: dict, model: str, split: dict) -> None:
    flags = {**settings, "metrics": METRICS, "topk": [3, 10], "eval_args.split": split, "eval_batch_size": 37}
    config = Config(model, "toy", flags=flags)
    data = load_data(config)
    network = build_model(config, data.train._dataset)
    torch.nn.init.normal_(
        network.item_embedding.weight if hasattr(network, "item_embedding") else network.LI_emb.weight
    )
    trainer = trainer_class(model)(config, network)
    trainer.train_loader = data.train
    fast = trainer.evaluate(data.test, load_best_model=False)
    recbole_loader = NegSampleEvalDataLoader(config, data.test.dataset, SameNegatives(data.test))
    slow = Trainer.evaluate(trainer, recbole_loader, load_best_model=False)
    assert fast == pytest.approx(slow, abs=1e-6)
    assert 0 < fast["hit@10"] < 1


def test_metrics_that_need_item_ids(workplace: Path, settings: dict) -> None:
    flags = {
        **settings,
        "metrics": ["Hit", "ItemCoverage", "AveragePopularity"],
        "valid_metric": "Hit@3",
        "topk": [3],
    }
    config = Config("SASRecDenoiser", "toy", flags=flags)
    data = load_data(config)
    trainer = trainer_class("SASRecDenoiser")(config, build_model(config, data.train._dataset))
    trainer.eval_collector.data_collect(data.train)
    result = trainer.evaluate(data.test, load_best_model=False)
    best = []
    for interaction, candidates in data.test:
        with torch.no_grad():
            scores = trainer.model.score_candidates(interaction, candidates)
        best.append(candidates.gather(1, scores.topk(3).indices))
    items = torch.cat(best).flatten().tolist()
    assert result["itemcoverage@3"] == pytest.approx(len(set(items)) / data.dataset.item_num, abs=1e-4)
    count = data.train.dataset.counter("item_id")
    assert result["averagepopularity@3"] == pytest.approx(np.mean([count[item] for item in items]), abs=1e-4)


def test_evaluating_twice_gives_the_same(workplace: Path, settings: dict) -> None:
    config = Config("SASRecDenoiser", "toy", flags=settings)
    data = load_data(config)
    trainer = trainer_class("SASRecDenoiser")(config, build_model(config, data.train._dataset))
    first = trainer.evaluate(data.test, load_best_model=False)
    assert trainer.evaluate(data.test, load_best_model=False) == first
    again = load_data(config).test
    assert torch.equal(again.frozen, data.test.frozen)


def test_recbole_redraw_changes(workplace: Path, settings: dict) -> None:
    config = Config("SASRecDenoiser", "toy", flags={**settings, "eval_negatives": "recbole"})
    loader = load_data(config).test
    assert not torch.equal(loader.negatives(), loader.negatives())
    assert (loader.negatives() != loader.positive[:, None]).all()


@pytest.mark.parametrize("mode", ["full", "uni10", "pop10"])
def test_modes(workplace: Path, settings: dict, mode: str) -> None:
    config = Config("SASRecDenoiser", "toy", flags={**settings, "eval_args.mode": mode})
    data = load_data(config)
    trainer = trainer_class("SASRecDenoiser")(config, build_model(config, data.train._dataset))
    result = trainer.evaluate(data.test, load_best_model=False)
    ranks = trainer.ranks.arrays(data.dataset)
    assert len(ranks["rank"]) == len(set(ranks["user"])) == 60
    assert result["hit@10"] == pytest.approx(np.mean(ranks["rank"] <= 10), abs=1e-6)
    ndcg = np.where(ranks["rank"] <= 10, 1 / np.log2(ranks["rank"] + 1), 0)
    assert result["ndcg@10"] == pytest.approx(ndcg.mean(), abs=1e-6)


def test_average_rank_by_hand() -> None:
    scores = torch.tensor([[0.5, 0.9, 0.5, 0.1], [1.0, 0.0, 0.0, 0.0]])
    assert average_rank(scores, scores[:, 0]).tolist() == [2.5, 1.0]


def test_full_ranking_in_small_pieces_gives_the_same(
    workplace: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {**settings, "eval_args.mode": "full", "metrics": METRICS[:3]}
    config = Config("SASRecDenoiser", "toy", flags=flags)
    data = load_data(config)
    network = build_model(config, data.train._dataset)
    torch.nn.init.normal_(network.item_embedding.weight)
    trainer = trainer_class("SASRecDenoiser")(config, network)
    whole = trainer.evaluate(data.test, load_best_model=False)
    ranks = trainer.ranks.arrays(data.dataset)
    assert len(data.test) == 1
    monkeypatch.setattr(evaluation, "SCORES_AT_ONCE", 41 * 7 + 3)  # 40 items and padding: seven users at once
    pieces = load_data(config).test
    assert len(pieces) == 9
    assert [len(batch[0]) for batch in pieces] == [7] * 8 + [4]
    assert trainer.evaluate(pieces, load_best_model=False) == pytest.approx(whole, abs=1e-6)
    assert trainer.ranks.arrays(data.dataset)["rank"].tolist() == ranks["rank"].tolist()
    slow = Trainer.evaluate(trainer, FullSortEvalDataLoader(config, data.test._dataset, None), load_best_model=False)
    assert whole == pytest.approx(slow, abs=1e-6)
