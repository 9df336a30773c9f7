"""Several processes, one model: DistributedDataParallel over gloo (CPU) or nccl (GPU).

The place of a process comes from torch's environment variables (torchrun sets them, and so does ``launch.py`` for
RecBole's ``nproc``), or from the ``local_rank`` that RecBole's own entry point puts into the configuration.

Gradients, Phi's surrogate among them, are synchronised by DDP's autograd hooks. DDP takes the plain mean over the
processes, so every process scales its terms by its share of the batch (``batch_share``): the mean is then that of the
whole batch, whatever the lengths of the sequences each process got.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recbole_denoiser.core.objective import WHOLE, Share
from recbole_denoiser.errors import UserError

# ---- this process's place ----


def is_parallel() -> bool:
    """True in one of several processes that train one model."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Number of this process among all; 0 writes files and logs."""
    return dist.get_rank() if is_parallel() else 0


def world_size() -> int:
    """How many processes train the model."""
    return dist.get_world_size() if is_parallel() else 1


def is_started_by_environment() -> bool:
    """True if torchrun (or launch.py, or a cluster's scheduler) has set this process's place."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)


def init_device(config: Any, single_process: Callable[[Any], None]) -> None:
    """Replaces RecBole's ``Config._init_device``, which knows several processes on GPUs only."""
    final = config.final_config_dict
    by_environment = is_started_by_environment()
    if not by_environment and "local_rank" not in final:
        single_process(config)
        return
    gpu_id = final["gpu_id"]
    final["gpu_id"] = ",".join(map(str, gpu_id)) if isinstance(gpu_id, (tuple, list)) else str(gpu_id)
    os.environ["CUDA_VISIBLE_DEVICES"] = final["gpu_id"]
    if by_environment:
        local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
        local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
        place = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    else:
        missing = [name for name in ("nproc", "offset", "world_size", "ip", "port") if name not in final]
        if missing:
            raise UserError(f"local_rank is set, but not {', '.join(missing)}: use recbole-denoiser run --nproc=2.")
        local_rank, local_processes = int(final["local_rank"]), int(final["nproc"])
        place = local_rank + int(final["offset"]), int(final["world_size"])
        address = f"{final['ip']}:{final['port']}"
    gpus = torch.cuda.device_count() if final["gpu_id"] and torch.cuda.is_available() else 0
    if 0 < gpus < local_processes:
        raise UserError(
            f"gpu_id = {final['gpu_id']!r} gives {gpus} GPU(s) to {local_processes} processes; each needs one of its "
            f"own, such as --gpu_id=0,1. An empty gpu_id trains on the CPU."
        )
    _start("nccl" if gpus else "gloo", place, address)
    final.update(single_spec=False, local_rank=local_rank, world_size=world_size())
    final["device"] = torch.device("cuda", local_rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(local_rank)
    if rank() != 0:  # rank 0 alone speaks
        final.update(state="ERROR", show_progress=False, log_wandb=False)


def _start(backend: str, place: tuple[int, int], address: str) -> None:
    if is_parallel():
        return
    try:
        dist.init_process_group(backend, init_method=f"tcp://{address}", rank=place[0], world_size=place[1])
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"Process {place[0]} of {place[1]} cannot join the others at {address}: {reason}") from error


def stop() -> None:
    """Leave the group of processes, if there is one."""
    if is_parallel():
        dist.destroy_process_group()


@contextmanager
def as_single_process(config: Any) -> Iterator[None]:
    """RecBole's constructors inside the context do not prepare for several processes: this package does it."""
    single, config["single_spec"] = config["single_spec"], True
    try:
        yield
    finally:
        config["single_spec"] = single


# ---- training ----


class LossModule(nn.Module):
    """What DDP wraps: its forward is the model's ``calculate_loss``, so that DDP sees every gradient."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, interaction: Any) -> Any:
        return self.model.calculate_loss(interaction)


def wrap(model: Any) -> nn.Module:
    """The model's loss as a module that averages gradients over the processes; weights start as rank 0's."""
    return DistributedDataParallel(LossModule(model), find_unused_parameters=True)


def batch_share(counts: Callable[[], tuple[Any, Any, Any]]) -> Share:
    """This process's share of the batch, from ``counts() -> (targets, live attentions, real positions)``."""
    if not is_parallel():
        return WHOLE
    own = torch.stack([torch.as_tensor(count).double() for count in counts()])
    total = own.clone()
    dist.all_reduce(total)
    return Share(*(own * world_size() / total.clamp(min=1.0)).tolist())


def of_all(values: Tensor) -> tuple[Tensor, slice]:
    """[P] numbers of every process, one behind the other, and where this process's own stand."""
    if not is_parallel():
        return values, slice(0, len(values))
    counts = [torch.zeros(1, dtype=torch.int64, device=values.device) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([len(values)], device=values.device))
    sizes = [int(count) for count in counts]
    padded = [values.new_zeros(max(sizes)) for _ in sizes]
    dist.all_gather(padded, nn.functional.pad(values, (0, max(sizes) - len(values))))
    begin = sum(sizes[: rank()])
    return torch.cat([part[:size] for part, size in zip(padded, sizes, strict=True)]), slice(begin, begin + len(values))


def any_process(value: bool, device: torch.device) -> bool:
    """True everywhere if it is true in one process."""
    if not is_parallel():
        return value
    flag = torch.tensor(float(value), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def total(values: list[float], device: torch.device) -> list[float]:
    """Sum over the processes, number by number."""
    if not is_parallel():
        return values
    summed = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(summed)
    return summed.tolist()


# ---- whole objects (settings, metrics, checkpoints) between processes of one run ----


def from_first(make: Callable[[], Any]) -> Any:
    """What ``make()`` returns in process 0, in every process."""
    if not is_parallel():
        return make()
    box = [make() if rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: Any) -> list[Any]:
    """Process 0 gets every process's value in order; the others get an empty list."""
    if not is_parallel():
        return [value]
    values: list[Any] = [None] * world_size()
    dist.gather_object(value, values if rank() == 0 else None, dst=0)
    return values if rank() == 0 else []


def own_part(count: int) -> slice:
    """This process's contiguous part of ``count`` things; the parts in order are the whole."""
    edges = [count * part // world_size() for part in range(world_size() + 1)]
    return slice(edges[rank()], edges[rank() + 1])


def gather_rows(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name, rows of all processes in order, in process 0; elsewhere empty."""
    parts = gather({name: values.cpu() for name, values in columns.items()})
    names = {name for part in parts for name in part}
    return {name: torch.cat([part[name] for part in parts if name in part]) for name in names}
