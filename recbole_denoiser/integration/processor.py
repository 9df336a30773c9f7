"""Half precision on processors that promise more than they keep.

Some virtual machines list AMX among the processor's features and then fault on its first instruction, which ends
Python without a message. oneDNN, which multiplies torch's bfloat16 matrices, can be told to leave AMX alone, but only
before its first call. So the instruction is tried once, in a process that may die.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from logging import getLogger
from pathlib import Path

_SETTING, _WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
_TRIAL = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"


def lists_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Does the system say that the processor has AMX for bfloat16?"""
    return cpuinfo.is_file() and "amx_bf16" in cpuinfo.read_text(encoding="utf-8", errors="replace")


@functools.cache
def mend_half_precision() -> bool:
    """Keep oneDNN off AMX where a trial of it dies; True if that was needed. Call it before torch's first product."""
    if _SETTING in os.environ or not lists_amx():
        return False
    if subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False).returncode >= 0:
        return False
    os.environ[_SETTING] = _WITHOUT_AMX
    getLogger().warning("This machine lists AMX but faults on it: bfloat16 runs without AMX (%s).", _WITHOUT_AMX)
    return True
