"""Whether a model runs, or is being recorded as a graph."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Whether torch is recording this call (torch.export, torch.onnx, torch.jit.trace), so that nothing may depend on
    the values of the example: no shortcut for the longest sequence or for closed masks.
    """
    return torch.jit.is_tracing() or torch.compiler.is_exporting()
