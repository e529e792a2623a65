"""Compiled programs run one at a time in a process; compilations need no turn.

jaxlib spreads a batch of decompositions (of `eigh`, for example) over the threads of its pool, and waits for them in one of
these. Two programs that do so at the same time can occupy all threads and wait for each other for ever.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..lab.planning import parts_of

RUNNING = threading.RLock()
MADE: set[str] = set()  # programs of blocks that this process has compiled and not forgotten


def taking_turns(study: Any) -> Callable[[Mapping[str, Any]], Any]:
    """A function that computes the blocks of a study of one model: it compiles at once, and runs when nothing else does."""
    from ..lab.compute import needed_memory

    (model,), made = study.variants().values(), set[str]()

    def compute(block: Mapping[str, Any]) -> Any:
        program = name_of(block)
        if program not in made:
            needed_memory(model, block)  # compiles, if the program can be known in advance
            made.add(program)
            MADE.add(program)
        with RUNNING:
            return study.compute(block)

    return compute


def name_of(block: Mapping[str, Any]) -> str:
    """The program of a block, as a name."""
    return json.dumps(parts_of(block)[0], sort_keys=True)
