"""From a study to blocks: cells of equal shape that share one compiled program and are committed together.

A block is its specification: plain JSON that says everything its results depend on. A worker that holds the models can
compute any block from its specification alone, and assembling a study never asks in which plan a cell was computed.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

FORMAT = 1
BUCKETS = 3  # padded lengths per program family: few compilations against little padding
LANES = {"theory": 512, "simulation": 32}
ELEMENTS = 2**25  # padded numbers in one simulated block: 128 MB in float32


class Cell(NamedTuple):
    """One unit of work. Theories at nominal controls have no size; a seed is None unless something is drawn."""

    kind: str
    variant: str
    controls: tuple[str, ...]  # float.hex, in the order of the model's declaration
    size: int | None
    seed: int | None


def pad_lengths(counts: Iterable[int], most: int = BUCKETS) -> list[int]:
    """At most `most` lengths that cover all counts with the least padding in sum.

    >>> pad_lengths([10, 11, 12, 50, 200, 210], most=3)
    [12, 50, 210]
    """
    values = sorted(counts)
    distinct = sorted(set(values))
    if len(distinct) <= most:
        return distinct
    up_to = {v: sum(1 for c in values if c <= v) for v in distinct}
    # best[k][i]: least total padded length of everything up to distinct[i] with k lengths, the last being distinct[i]
    best: list[dict[int, tuple[int, list[int]]]] = [{i: (v * up_to[v], [v]) for i, v in enumerate(distinct)}]
    for _ in range(most - 1):
        row = {}
        for i, v in enumerate(distinct):
            options = [
                (cost + v * (up_to[v] - up_to[distinct[j]]), chosen + [v])
                for j, (cost, chosen) in best[-1].items()
                if j < i
            ]
            row[i] = min([*options, best[-1][i]])
        best.append(row)
    return best[-1][len(distinct) - 1][1]


def plan_blocks(
    cells: Sequence[Cell],
    variants: Mapping[str, dict[str, Any]],
    counting: Mapping[str, tuple[int, ...]],
    *,
    numerics: Mapping[str, dict[str, Any]],
    dtypes: Mapping[str, str],
    prepare: Mapping[str, bool],
) -> list[dict[str, Any]]:
    """Group cells into block specifications.

    `variants` maps a variant's hash to its specification without controls; `counting` to the positions of the controls
    that set array lengths. The result depends on the cells and their order only, so a plan can be made again.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[
            cell.kind, cell.variant, cell.size if cell.kind == "simulation" or prepare[cell.variant] else None
        ].append(cell)
    blocks = []
    for (kind, variant, size), members in groups.items():
        common: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind,
            "variant": variants[variant],
            "prepare": prepare[variant],
        }
        if kind == "theory":
            common["numerics"] = numerics[variant]
            families = {(): members}
        else:
            common |= {"dtype": dtypes[variant]}
            families = _padded_families(members, counting[variant], size)
        for padded, family in families.items():
            lanes = _lanes(kind, len(family), size, padded)
            for chunk in _chunks(family, lanes):
                blocks.append(
                    common
                    | {"size": size, "padded": list(padded), "lanes": lanes}
                    | {"controls": [list(c.controls) for c in chunk], "seeds": [c.seed for c in chunk]}
                    | ({"sizes": [c.size for c in chunk]} if kind == "theory" else {})
                )
    return blocks


def _padded_families(
    members: Sequence[Cell], positions: tuple[int, ...], size: int
) -> dict[tuple[int, ...], list[Cell]]:
    """Split cells by the lengths that their counting controls are padded to."""

    def count(cell: Cell, position: int) -> int:
        return max(1, round(float.fromhex(cell.controls[position]) * size))

    lengths = {p: pad_lengths(count(c, p) for c in members) for p in positions}
    families: dict[tuple[int, ...], list[Cell]] = defaultdict(list)
    for cell in members:
        families[tuple(min(n for n in lengths[p] if n >= count(cell, p)) for p in positions)].append(cell)
    return families


def _lanes(kind: str, number: int, size: int | None, padded: tuple[int, ...]) -> int:
    """How many cells share a block: few enough for memory and for a short loss when interrupted, then split evenly."""
    most = LANES[kind]
    if kind == "simulation" and size is not None:
        rows = max([size, *padded])
        most = max(1, min(most, ELEMENTS // (rows * size)))
    blocks = -(-number // most)
    return -(-number // blocks)


def _chunks(members: Sequence[Cell], lanes: int) -> Iterator[Sequence[Cell]]:
    it = iter(members)
    while chunk := list(itertools.islice(it, lanes)):
        yield chunk


def cells_of(block: Mapping[str, Any], variant: str) -> list[Cell]:
    """The cells that a block holds, lane by lane (`variant` is the hash of the block's variant)."""
    sizes = block.get("sizes") or [block["size"]] * len(block["seeds"])
    return [
        Cell(block["kind"], variant, tuple(controls), size, seed)
        for controls, size, seed in zip(block["controls"], sizes, block["seeds"], strict=True)
    ]
