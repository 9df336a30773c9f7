"""Training under autocast (RecBole's enable_amp): bfloat16 on a CPU."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from recbole_denoiser.runs import pipeline


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("SASRecDenoiser", {"estimator": "arm", "gamma": 1e-3}),
        ("SASRecDenoiser", {"mask": "content"}),
        ("SASRecDenoiser", {"estimator": "straight_through", "loss_type": "CE"}),
        ("BERT4RecDenoiser", {"estimator": "disarm"}),
    ],
)
def test_training_in_half_precision(workplace: Path, settings: dict, model: str, flags: dict) -> None:
    dtypes: set[torch.dtype] = set()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, _, output: dtypes.add(output.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    try:
        result = pipeline.run(model, "toy", flags={**settings, **flags, "enable_amp": True, "learning_rate": 0.01})
    finally:
        hook.remove()
    assert torch.bfloat16 in dtypes
    for record in result["epochs"]:
        assert all(math.isfinite(value) for value in record["losses"].values())
    ranks = np.load(f"results/{result['run']}/ranks.npz")["test_rank"]
    assert result["test"]["hit@10"] == pytest.approx((ranks <= 10).mean(), abs=0.05)  # scores in bfloat16 may tie
