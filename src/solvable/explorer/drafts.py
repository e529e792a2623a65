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

from ..errors import SolvableError
from ..lab.planning import cells_of, parts_of, regrouped
from ..lab.store import block_id
from .turns import MADE, RUNNING, name_of
from .waves import cost_of

# Compiled in a fifth of the time, programs take up to five times as long.
UNOPTIMISED: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0", "xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": "1",
}  # fmt: skip
SECONDS, LONGEST = 0.3, 2.0  # declared core-seconds of a draft, and of a single realisation beyond which there is none
SOON = 1.0  # of a whole batch that needs no draft once its program is compiled
MOST = 8
_LOCK = threading.Lock()
_DRAFTS: OrderedDict[str, Future[Any]] = OrderedDict()


def draft_of(study: Any, block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The draft of a block, which has its first realisations only, with its results; None if there is none.

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
            few = first_realisations(study, block)
            future.set_result(few and (few, _computed(study, few)))
        except Exception:  # the block itself reports why
            future.set_result(None)
    return future.result()


def first_realisations(study: Any, block: Mapping[str, Any]) -> dict[str, Any] | None:
    """A block of one realisation at each point of another one, or at some; None if that one comes as soon as its draft."""
    import jax

    (model,) = study.variants().values()
    if block["kind"] != "simulation" or block["prepare"] or type(model).runs == "host":
        return None
    each = cost_of(study).of("simulation", block["size"], block["padded"])
    made = name_of(block) in MADE and block["lanes"] * each <= SOON
    if made or each > LONGEST or jax.default_backend() != "cpu":
        return None
    cells = cells_of(block, "")
    few = [cell for cell in cells if cell.seed == cells[0].seed][: max(1, int(SECONDS / each))]
    return regrouped(parts_of(block)[0] | {"lanes": len(few)}, few)


def _computed(study: Any, block: Mapping[str, Any]) -> dict[str, Any]:
    from ..lab.compute import compute_block, fitting, immense, lowered_simulation

    (model,) = study.variants().values()
    block = fitting(model, block)
    if immense(model, block) is not None:
        raise SolvableError("a draft of this size cannot be compiled.")  # the block itself is refused in its own words
    program = lowered_simulation(model, block).compile(UNOPTIMISED)
    with RUNNING:
        return compute_block(model, block, program)
