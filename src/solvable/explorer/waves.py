"""The order in which the page simulates: seed by seed, so that every point lands early and its error bar then shrinks.

Blocks are regrouped only where that changes no bit: lanes are independent, and a program keeps its number of lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ..lab.planning import Cost, cells_of, parts_of, regrouped

LANES = (1, 8, 16, 64)  # points of a theory that one program computes at once

FIRST = (1, 1, 2, 4)  # seeds in the first waves of a program; then as many as it has lanes for
SHORT = 1.0  # declared core-seconds of a program whose lanes may stay partly empty in those waves
ONE_BY_ONE = {
    "host": 1,
    "map": 4,
}  # lanes that run one after the other; a loop over a single one may compile differently


def in_waves(blocks: list[dict[str, Any]], runs: str, cost: Cost, together: int = 64) -> list[dict[str, Any]]:
    """The blocks of a study, regrouped into waves of seeds: a size after the other, each over the whole axis at once.

    Theories come last: the points they are compared with are visible in the meantime. The model computes at most `together`
    points of them in parallel.
    """
    theories = [_as_curves(b, together) for b in blocks if b["kind"] == "theory"]
    simulated = [b for b in blocks if b["kind"] != "theory"]
    out = []
    for _, ours in itertools.groupby(sorted(simulated, key=lambda b: b["size"]), key=lambda b: b["size"]):
        programs: dict[str, list[dict[str, Any]]] = {}
        for block in ours:
            programs.setdefault(repr(sorted(parts_of(block)[0].items(), key=str)), []).append(block)
        waves = [list(_waves(own, runs, cost)) for own in programs.values()]
        out += [block for wave in itertools.zip_longest(*waves, fillvalue=[]) for own in wave for block in own]
    return [*out, *theories]


def _as_curves(block: dict[str, Any], together: int) -> dict[str, Any]:
    """A theory with as many lanes as the page's curves have, so that one program serves both and little is padding."""
    return block if block["prepare"] else block | {"lanes": lanes_for(block["cells"], together)}


def _waves(blocks: list[dict[str, Any]], runs: str, cost: Cost) -> Iterator[list[dict[str, Any]]]:
    """The waves of one program, each a list of blocks with one batch."""
    program, _ = parts_of(blocks[0])
    cells = sorted((c for b in blocks for c in cells_of(b, "")), key=lambda c: c.seed or 0)
    lanes = min(program["lanes"], ONE_BY_ONE.get(runs, program["lanes"]))
    program = program | {"lanes": lanes}
    seconds = lanes * cost.of("simulation", program["size"], program["padded"])
    seeds = [list(own) for _, own in itertools.groupby(cells, key=lambda c: c.seed)]
    if runs == "vmap" and seconds <= SHORT:
        for number in FIRST:
            if wave := [c for own in seeds[:number] for c in own]:
                yield [regrouped(program, some) for some in _chunks(wave, lanes)]
            seeds = seeds[number:]
    for some in _chunks([c for own in seeds for c in own], lanes):
        yield [regrouped(program, some)]


def _chunks(cells: list[Any], most: int) -> Iterator[list[Any]]:
    for begin in range(0, len(cells), most):
        yield cells[begin : begin + most]


def lanes_for(number: int, together: int = LANES[-1]) -> int:
    """The number of points one program computes at once, for a model that computes at most `together` in parallel.

    If points are computed one after the other, larger programs gain nothing; small ones can be stopped between pieces
    and also serve previews.

    >>> [lanes_for(n) for n in (1, 2, 16, 60, 64, 3600)], [lanes_for(n, together=1) for n in (1, 60)]
    ([1, 8, 16, 64, 64, 64], [1, 8])
    """
    known = [lanes for lanes in LANES if lanes <= max(together, LANES[1])]
    return next((lanes for lanes in known if number <= lanes), known[-1])


def cost_of(study: Any) -> Cost:
    """What the realisations of a view's study cost, as its model declares."""
    return next(iter(study.planning.variants.values())).cost
