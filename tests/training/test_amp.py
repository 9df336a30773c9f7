"""Training under autocast (RecBole's enable_amp): bfloat16 on a CPU."""

from __future__ import annotations

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
    flags = {**settings, "learning_rate": 0.01, "topk": [3], "valid_metric": "NDCG@3", **flags}
    dtypes: set[torch.dtype] = set()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, _, output: dtypes.add(output.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    try:
        result = pipeline.run(model, "toy", flags={**flags, "enable_amp": True})
    finally:
        hook.remove()
    assert torch.bfloat16 in dtypes
    ranks = np.load(f"results/{result['run']}/ranks.npz")["test_rank"]
    assert result["test"]["hit@3"] == pytest.approx((ranks <= 3).mean())  # evaluation is in full precision
    exact = pipeline.run(model, "toy", flags=flags)
    for half, full in zip(result["epochs"], exact["epochs"], strict=True):
        assert half["losses"] == pytest.approx(full["losses"], rel=0.02)  # bfloat16 has 8 bits
        assert half["losses"] != full["losses"]
