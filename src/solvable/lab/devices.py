"""Which GPU a worker takes, decided before JAX is imported: one worker per GPU, by shard."""

from __future__ import annotations

import os
from collections.abc import Mapping

VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA = "/proc/driver/nvidia/gpus"


def one_of(index: int, environment: Mapping[str, str], folder: str = NVIDIA) -> dict[str, str]:
    """The setting by which worker `index` sees one GPU of several; nothing where there are not several.

    A queueing system that has already given this process one GPU is left alone.

    >>> one_of(5, {"CUDA_VISIBLE_DEVICES": "0,1,3"}), one_of(5, {"CUDA_VISIBLE_DEVICES": "2"})
    ({'CUDA_VISIBLE_DEVICES': '3'}, {})
    """
    if VISIBLE in environment:
        known = [word.strip() for word in environment[VISIBLE].split(",") if word.strip()]
    else:
        known = [str(i) for i in range(len(os.listdir(folder)) if os.path.isdir(folder) else 0)]
    return {VISIBLE: known[index % len(known)]} if len(known) > 1 else {}
