"""Drafts: curves and first points from programs without optimisation, which are compiled in a fraction of the time.

They differ by rounding, amplified where a flow leaves a plateau. A draft is shown until the result replaces it; it is
neither stored nor exported, and nothing is judged by it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from ..lab.store import block_id
from .turns import MADE, RUNNING, name_of
from .waves import cost_of

# Compiled in a fifth of the time, programs take up to five times as long.
UNOPTIMISED: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0", "xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": "1",
}  # fmt: skip
LONGEST = 1.0  # declared core-seconds of a batch of which a draft is worth its time
MOST = 8
_LOCK = threading.Lock()
_DRAFTS: OrderedDict[str, Future[Any]] = OrderedDict()


def draft_of(study: Any, block: Mapping[str, Any]) -> dict[str, Any] | None:
    """The results of a block by a program without optimisation; None if it is not worth while.

    Each is computed once: whoever asks while that is under way waits for it.
    """
    name = block_id(dict(block))
    with _LOCK:
        under_way = _DRAFTS.get(name)
        future = _DRAFTS.setdefault(name, Future())
        while len(_DRAFTS) > MOST:
            _DRAFTS.popitem(last=False)
    if under_way is None:
        try:
            future.set_result(_computed(study, block) if is_worth(study, block) else None)
        except Exception:  # the block itself reports why
            future.set_result(None)
    return future.result()


def is_worth(study: Any, block: Mapping[str, Any]) -> bool:
    """Whether a draft of this block comes before the block itself: its program is still to be compiled, and is quick."""
    import jax

    (model,) = study.variants().values()
    if block["kind"] != "simulation" or block["prepare"] or type(model).runs == "host" or name_of(block) in MADE:
        return False
    seconds = block["lanes"] * cost_of(study).of("simulation", block["size"], block["padded"])
    return seconds <= LONGEST and jax.default_backend() == "cpu"


def _computed(study: Any, block: Mapping[str, Any]) -> dict[str, Any]:
    from ..lab.compute import compute_block, fitting, lowered_simulation

    (model,) = study.variants().values()
    block = fitting(model, block)
    program = lowered_simulation(model, block).compile(UNOPTIMISED)
    with RUNNING:
        return compute_block(model, block, program)
