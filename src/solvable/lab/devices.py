"""Assignment of GPUs to workers before JAX is imported: one GPU per worker, by shard."""

from __future__ import annotations

import os
from collections.abc import Mapping

VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA = "/proc/driver/nvidia/gpus"


def one_of(index: int, environment: Mapping[str, str], folder: str = NVIDIA) -> dict[str, str]:
    """The environment setting that shows worker `index` one GPU of several; empty if there is only one.

    If a queueing system has already assigned one GPU to this process, it is not changed.

    >>> one_of(5, {"CUDA_VISIBLE_DEVICES": "0,1,3"}), one_of(5, {"CUDA_VISIBLE_DEVICES": "2"})
    ({'CUDA_VISIBLE_DEVICES': '3'}, {})
    """
    if VISIBLE in environment:
        known = [word.strip() for word in environment[VISIBLE].split(",") if word.strip()]
    else:
        known = [str(i) for i in range(len(os.listdir(folder)) if os.path.isdir(folder) else 0)]
    return {VISIBLE: known[index % len(known)]} if len(known) > 1 else {}
