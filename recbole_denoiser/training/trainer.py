"""RecBole's trainer with named losses, learning rates of the masks and a stop at what is not finite.

Below it: resuming_trainer.py (checkpoints after every epoch) and evaluating_trainer.py.

The masks' ARM update (section 4.1.2) needs no code here: the model's loss carries Phi's gradient through autograd.
What Phi does need is its own parameter group.
"""

from __future__ import annotations

import math
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from recbole.utils import calculate_valid_score, dict2str, early_stopping
from torch.nn.utils import clip_grad_norm_
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

from recbole_denoiser.errors import NonFiniteLossError, UserError
from recbole_denoiser.integration import parallel, trackers
from recbole_denoiser.model.protocols import MaskedModel
from recbole_denoiser.training.checkpoint import files_of
from recbole_denoiser.training.evaluation import RankCollector
from recbole_denoiser.training.optimizer import check_sparse, fused
from recbole_denoiser.training.resuming_trainer import ResumingTrainer
from recbole_denoiser.training.schedule import learning_rates
from recbole_denoiser.training.tracking import TensorBoard, Tracker, epoch_figures


class SequenceTrainer(ResumingTrainer):
    """Trainer of every model that this package runs."""

    def __init__(self, config: Any, model: Any) -> None:
        # RecBole would wrap the model's forward, not its loss
        with parallel.as_single_process(config), trackers.without_recboles_own(config):
            super().__init__(config, model)
        tensorboard = "tensorboard" in trackers.chosen(config)
        self.trackers: list[Tracker] = [TensorBoard(self.tensorboard)] if tensorboard else []
        self.resume_file = Path(self.saved_model_file).with_suffix(".last.pth")
        self.parallel_loss = None if config["single_spec"] else self._wrap()
        if config["run_name"]:
            best, last = files_of(config)
            self.saved_model_file, self.resume_file = str(best), last
        self.history = []
        self.best_epoch = -1
        self.stopped = False
        self.ranks = RankCollector()
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=bool(self.enable_scaler))
        self.scheduler = learning_rates(self.optimizer, config)

    def _wrap(self) -> torch.nn.Module:
        if self.device.type == "cuda":
            self.model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
        return parallel.wrap(self.model)

    def _build_optimizer(self, **kwargs: Any) -> torch.optim.Optimizer:
        """Phi gets its own learning rate and no weight decay, which would pull every mask towards 0.5."""
        masks = self.model.mask_parameters() if isinstance(self.model, MaskedModel) else []
        if masks:
            known = {id(parameter) for parameter in masks}
            backbone = [parameter for parameter in self.model.parameters() if id(parameter) not in known]
            phi = {"params": masks, "lr": self.config["mask_learning_rate"], "weight_decay": 0.0}
            kwargs["params"] = [{"params": backbone}, phi]
        optimizer = super()._build_optimizer(**kwargs)
        check_sparse(optimizer, self.model)
        return fused(optimizer)

    def fit(
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Any = None,
    ) -> tuple[float, Any]:
        """Train until ``epochs`` or until validation has not improved for ``stopping_step`` evaluations."""
        self.eval_collector.data_collect(train_data)
        if self.config["train_neg_sample_args"].get("dynamic", False):
            train_data.get_model(self.model)
        self.train_loader = train_data
        if self.pending_loader_state is not None:
            train_data.generator.set_state(self.pending_loader_state)
        if saved and self.start_epoch == 0:
            self._save_checkpoint(-1, verbose=False)  # so that epochs: 0 can be evaluated, too
        for epoch in range(self.start_epoch, self.epochs):
            if self.stopped:
                break
            record = self._fit_epoch(epoch, train_data, valid_data, verbose, saved, show_progress)
            if callback_fn and record["valid"]:
                callback_fn(epoch, calculate_valid_score(record["valid"], self.valid_metric))
        if math.isfinite(self.best_valid_score):
            self._add_hparam_to_tensorboard(self.best_valid_score)
        return self.best_valid_score, self.best_valid_result

    def _fit_epoch(
        self, epoch: int, train_data: Any, valid_data: Any, verbose: bool, saved: bool, show_progress: bool
    ) -> dict[str, Any]:
        if isinstance(self.model, MaskedModel):
            self.model.start_epoch(epoch)
        begin = perf_counter()
        losses = self._train_epoch(train_data, epoch, show_progress=show_progress)
        self.scheduler.step()
        record: dict[str, Any] = {
            "epoch": epoch,
            "train_seconds": perf_counter() - begin,
            "losses": losses,
            "valid": None,
            "kept": None,
        }
        self.train_loss_dict[epoch] = sum(losses.values())
        improved = not valid_data or self.eval_step <= 0  # without validation the newest epoch is the best
        if valid_data and self.eval_step > 0 and (epoch + 1) % self.eval_step == 0:
            improved = self._validate(record, valid_data, show_progress)
        self.history.append(record)
        self._log_epoch(record, verbose)
        if improved:
            self.best_epoch = epoch
        if saved:
            if improved:
                self._save_checkpoint(epoch, verbose=False)
            self._save_checkpoint(epoch, verbose=False, saved_model_file=self.resume_file)
        return record

    def _validate(self, record: dict[str, Any], valid_data: Any, show_progress: bool) -> bool:
        begin = perf_counter()
        score, result = self._valid_epoch(valid_data, show_progress=show_progress)
        record["valid_seconds"] = perf_counter() - begin
        record["valid"] = {name: float(value) for name, value in result.items()}
        if isinstance(self.model, MaskedModel):
            record["kept"] = self.model.kept_share()
        self.best_valid_score, self.cur_step, self.stopped, improved = early_stopping(
            score, self.best_valid_score, self.cur_step, max_step=self.stopping_step, bigger=self.valid_metric_bigger
        )
        if improved:
            self.best_valid_result = record["valid"]
        return improved

    def _train_epoch(
        self, train_data: Any, epoch_idx: int, loss_func: Any = None, show_progress: bool = False
    ) -> dict[str, float]:
        """One pass over the training rows; returns the mean of each loss term by name."""
        self.model.train()
        loss_func = loss_func or self.parallel_loss or self.model.calculate_loss
        if self.parallel_loss is not None and train_data.shuffle and isinstance(train_data.sampler, DistributedSampler):
            train_data.sampler.set_epoch(epoch_idx)  # bucketed batches need none: their generator goes on
        totals: dict[str, float] = {}
        progress = tqdm(
            train_data,
            ncols=100,
            desc=f"Train {epoch_idx + 1:>4}",
            disable=None if show_progress else True,
            leave=False,
        )
        steps = 0
        for step, interaction in enumerate(progress):
            self.optimizer.zero_grad()
            terms = self._terms(loss_func, interaction, epoch_idx, step)
            if terms is not None and self._step(sum(terms.values()), epoch_idx, step):
                steps += 1
                for name, term in terms.items():
                    totals[name] = totals.get(name, 0.0) + float(term.detach())
        sums = parallel.total(list(totals.values()), self.device)
        count = max(steps, 1) * parallel.world_size()
        return {name: total / count for name, total in zip(totals, sums, strict=True)}

    def _terms(self, loss_func: Any, interaction: Any, epoch: int, step: int) -> dict[str, Any] | None:
        """The loss terms by name; None if one is not finite, here or in another process, and the step is skipped."""
        problem, terms = "", None
        try:
            with torch.autocast(device_type=self.device.type, enabled=bool(self.enable_amp)):
                terms = self._named_terms(loss_func(interaction.to(self.device)))
        except NonFiniteLossError as error:
            problem = f"loss ({error})"
        else:
            if not torch.isfinite(sum(terms.values())):
                bad = [name for name, term in terms.items() if not torch.isfinite(term)]
                problem = f"loss term '{', '.join(bad) or 'sum'}'"
        if not parallel.any_process(bool(problem), self.device):
            return terms
        self._nonfinite(problem or "loss of another process", epoch, step)
        return None

    def _step(self, loss: Any, epoch: int, step: int) -> bool:
        """Backward and update; False if the gradient was not finite and the step is skipped."""
        self.scaler.scale(loss).backward()
        if self.clip_grad_norm:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), **self.clip_grad_norm)
        if not self.enable_scaler:
            trained = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
            norms = torch._foreach_norm([parameter.grad for parameter in trained if parameter.grad is not None])
            if not torch.isfinite(torch.stack(norms).sum()):
                return self._nonfinite("gradient", epoch, step)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return True

    def _named_terms(self, losses: Any) -> dict[str, Any]:
        if not isinstance(losses, tuple):
            return {"loss": losses}
        ours = isinstance(self.model, MaskedModel)
        names = self.model.loss_terms if ours else [f"loss{i + 1}" for i in range(len(losses))]
        return dict(zip(names, losses, strict=True))

    def _nonfinite(self, what: str, epoch: int, step: int) -> bool:
        place = f"epoch {epoch + 1}, step {step + 1}"  # people count from 1
        if self.config["on_nonfinite"] == "skip":
            self.logger.warning("The %s is not finite (%s): step skipped.", what, place)
            return False
        kept = f"The checkpoint of the last good epoch is {self.resume_file}." if self.resume_file.is_file() else ""
        raise UserError(
            f"Training stopped: the {what} is not finite ({place}). {kept} Lower learning_rate, mask_learning_rate or "
            f"gamma, set clip_grad_norm, or set on_nonfinite: skip."
        )

    def _log_epoch(self, record: dict[str, Any], verbose: bool) -> None:
        epoch, losses, valid = record["epoch"] + 1, record["losses"], record["valid"]  # people count from 1
        text = f"epoch {epoch} [{record['train_seconds']:.1f}s] " + ", ".join(
            f"{k}: {v:.4f}" for k, v in losses.items()
        )
        if record["kept"]:
            text += ", kept: " + "/".join(f"{share:.2f}" for share in record["kept"])
        if valid:
            text += f" | valid [{record['valid_seconds']:.1f}s] {dict2str({k: round(v, 4) for k, v in valid.items()})}"
        for tracker in self.trackers:
            tracker.epoch(epoch, epoch_figures(record))
        if verbose:
            self.logger.info(text)
