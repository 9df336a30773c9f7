"""What a trainer writes after every epoch, and how it goes on from there as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from recbole_denoiser import files
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration import parallel
from recbole_denoiser.integration.config import plain_value
from recbole_denoiser.integration.parameters import other_parameters
from recbole_denoiser.training import checkpoint
from recbole_denoiser.training.evaluating_trainer import EvaluatingTrainer


class ResumingTrainer(EvaluatingTrainer):
    """Saves all that training depends on and reads it back."""

    # what RecBole's constructor sets
    start_epoch: int
    cur_step: int
    best_valid_score: float
    saved_model_file: str
    best_valid_result: dict[str, float] | None

    # what SequenceTrainer's constructor sets
    history: list[dict[str, Any]]  # one record per finished epoch
    best_epoch: int
    stopped: bool
    resume_file: Path  # the newest epoch, for --resume; saved_model_file is the best one
    scaler: torch.amp.GradScaler
    scheduler: torch.optim.lr_scheduler.LRScheduler
    train_loader: Any

    data_identity: dict[str, str] | None = None  # fingerprints of the data that the model is trained on
    pending_loader_state: torch.Tensor | None = None  # of the generator that shuffles, until training goes on

    def _save_checkpoint(self, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
        random = parallel.gather(checkpoint.random_states())
        if parallel.rank() != 0:
            return
        state = {
            "config": {key: plain_value(value) for key, value in self.config.final_config_dict.items()},
            "data": self.data_identity,
            "epoch": epoch,
            "cur_step": self.cur_step,
            "stopped": self.stopped,
            "best_epoch": self.best_epoch,
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": self.best_valid_result,
            "history": self.history,
            "state_dict": self.model.state_dict(),
            "other_parameter": other_parameters(self.model),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "scheduler": {"last_epoch": self.scheduler.last_epoch},
            "random": random,  # one per process
            "loader": self.train_loader.generator.get_state(),
        }
        checkpoint.save(state, Path(kwargs.pop("saved_model_file", self.saved_model_file)))

    def resume_checkpoint(self, resume_file: str | Path) -> None:
        """Continue after the last finished epoch, exactly as if there had been no interruption."""
        state = parallel.from_first(lambda: checkpoint.load(resume_file, self.device, self.trust_checkpoint))
        checkpoint.require_resumable(state, self.config.final_config_dict, self.data_identity, resume_file)
        states = state["random"] if isinstance(state["random"], list) else [state["random"]]
        if len(states) != parallel.world_size():
            raise UserError(
                f"'{resume_file}' was written by {len(states)} process(es) and can only be resumed by as many, "
                f"not by {parallel.world_size()}."
            )
        checkpoint.load_weights(self.model, state, resume_file)
        with checkpoint.damage_is_told(resume_file):
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            self.scheduler.last_epoch = int(state.get("scheduler", {"last_epoch": state["epoch"] + 1})["last_epoch"])
        self.start_epoch = state["epoch"] + 1
        self.cur_step, self.stopped = state["cur_step"], state["stopped"]
        self.best_epoch, self.history = state["best_epoch"], state["history"]
        self.best_valid_score, self.best_valid_result = state["best_valid_score"], state["best_valid_result"]
        self.pending_loader_state = state["loader"].cpu()
        with checkpoint.damage_is_told(resume_file):
            checkpoint.restore_random_states(states[parallel.rank()])
            torch.Generator().set_state(self.pending_loader_state)
        if parallel.rank() == 0:
            for file in (self.resume_file, Path(self.saved_model_file)):
                files.remove_leftovers(file)
        self.logger.info("Resuming after epoch %d from %s", state["epoch"] + 1, resume_file)
