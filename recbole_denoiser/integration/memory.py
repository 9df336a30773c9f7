"""Freed memory stays with the process: a training step then finds it again instead of asking the system each time.

glibc gives large freed blocks back at once. Every step would take them anew, page by page, which costs up to a quarter
of a step. Only glibc has these switches; elsewhere nothing is done. Blocks above 32 MB are always given back, so torch
takes them in huge pages, which makes steps on long sequences up to a third faster.
"""

from __future__ import annotations

import ctypes
import os
import sys

# glibc's malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGEST_THRESHOLD = 32 << 20  # what glibc accepts
_KEEP = 1 << 30
_PAD = 64 << 20


def use_huge_pages() -> None:
    """For torch's large tensors, unless the user has decided; torch reads it once, at its first tensor (Linux)."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed_memory() -> bool:
    """Blocks up to 32 MB come from a heap that is kept, up to 1 GB of it; True if the system has such switches."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    settings = ((_TRIM_THRESHOLD, _KEEP), (_MMAP_THRESHOLD, _LARGEST_THRESHOLD), (_TOP_PAD, _PAD))
    return all([bool(mallopt(ctypes.c_int(name), ctypes.c_int(value))) for name, value in settings])
