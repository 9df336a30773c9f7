"""RecBole's trainer as far as it evaluates: safe checkpoints, fast sampled evaluation, a rank of every user."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from recbole.data.dataloader import FullSortEvalDataLoader
from recbole.trainer import Trainer
from tqdm import tqdm

from recbole_denoiser.integration import parallel
from recbole_denoiser.model.protocols import MaskedModel
from recbole_denoiser.training import checkpoint
from recbole_denoiser.training.evaluation import (
    CandidateLoader,
    CollectedRows,
    RankCollector,
    average_rank,
    check_finite,
    collect_candidates,
    score_candidates,
)


class EvaluatingTrainer(Trainer):
    """Evaluates the model, or the best one that was saved."""

    # what RecBole's constructor sets
    model: Any
    item_tensor: Any

    trust_checkpoint = False  # whether a pickled checkpoint, which can run code, may be read; never from a file
    ranks: RankCollector

    @torch.no_grad()
    def evaluate(
        self, eval_data: Any, load_best_model: bool = True, model_file: Any = None, show_progress: bool = False
    ) -> dict[str, float] | None:
        """RecBole's metrics; ``self.ranks`` then holds each user's rank."""
        if not eval_data:
            return None
        if load_best_model:
            file = model_file or self.saved_model_file
            state = parallel.from_first(lambda: checkpoint.load(file, self.device, self.trust_checkpoint))
            checkpoint.load_weights(self.model, state, file)
        self.model.eval()
        self.ranks = RankCollector()
        if not isinstance(eval_data, (CandidateLoader, FullSortEvalDataLoader)):
            result = super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)
            return parallel.from_first(lambda: {name: float(value) for name, value in result.items()})
        self.tot_item_num = eval_data._dataset.item_num
        if isinstance(eval_data, FullSortEvalDataLoader) and self.item_tensor is None:
            self.item_tensor = eval_data._dataset.get_item_feature().to(self.device)
        rows = CollectedRows(self.eval_collector)
        with self.model.counting_kept() if isinstance(self.model, MaskedModel) else nullcontext():
            for batch in tqdm(
                eval_data, ncols=100, desc="Evaluate", disable=None if show_progress else True, leave=False
            ):
                if isinstance(eval_data, CandidateLoader):
                    self._collect_candidates(eval_data, *batch)
                else:
                    self._collect_full(batch)
                rows.take()
        rows.gather()
        self.ranks.gather()
        return parallel.from_first(self._metrics)

    def _metrics(self) -> dict[str, float]:
        result = self.evaluator.evaluate(self.eval_collector.get_data_struct())
        return {name: float(value) for name, value in result.items()}

    def _collect_candidates(self, eval_data: CandidateLoader, interaction: Any, candidates: torch.Tensor) -> None:
        interaction, candidates = interaction.to(self.device), candidates.to(self.device)
        scores = score_candidates(self.model, interaction, candidates)  # [B, 1 + negatives]
        check_finite(scores)
        user = interaction[self.config["USER_ID_FIELD"]]
        self.ranks.add(user, average_rank(scores, scores[:, 0]))
        collect_candidates(
            self.eval_collector, interaction, scores, candidates, eval_data.one_row_per_user, user, self.tot_item_num
        )

    def _collect_full(self, batch: Any) -> None:
        interaction, scores, positive_u, positive_i = self._full_sort_batch_eval(batch)
        check_finite(scores)
        positive = scores[positive_u, positive_i]
        self.ranks.add(
            interaction[self.config["USER_ID_FIELD"]][positive_u], average_rank(scores[positive_u], positive)
        )
        self.eval_collector.eval_batch_collect(scores, interaction, positive_u, positive_i)
