"""Planning: divide a study into blocks of cells that share one compiled program and are committed together.

A block is defined by its specification: plain JSON with everything its results depend on. It consists of a *program* (what
is compiled: kind, model, sizes, lanes) and the block's own part: columns of controls, seeds and sizes, with one value per
cell, or a single value shared by all cells. A worker that has the models can compute any block from its specification
alone, and assembling a study does not depend on the plan in which a cell was computed. Planning iterates over the grid
without storing it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .store import StoreError, block_id

if TYPE_CHECKING:
    from ..model import Model

FORMAT = 2
OWN = ("cells", "controls", "seeds", "sizes")  # a block's own part of its specification; the rest is its program
BUCKETS = 3  # padded lengths per program family at most: a compromise between few compilations and little padding
COMPILING = 3.0  # core-seconds of a compilation, which another padded length has to save
CANDIDATES = 200  # candidate lengths
# A block is one batch of cells computed in parallel, or several batches in sequence.
LANES = {"theory": 512, "prepared": 64, "vmap": 512, "map": 32}  # largest number of cells in a batch
LEAST_LANES = 32  # smallest batch of small simulations, used while there are fewer than
FEW_BLOCKS = 32  # blocks, so that several workers can share the work
ELEMENTS = 2**25  # padded numbers in one simulated batch: 128 MB in float32
QUICK_ELEMENTS = 2**22  # beyond this, simulations take long enough for LEAST_LANES of them to make a batch
# Target duration of a block, by the costs that models declare: long compared with a commit, short enough to lose.
BLOCK_SECONDS = 20.0
LONGEST_SECONDS = 40.0  # limit of one batch
MOST_CELLS = 2**15  # limit of a block, which keeps its specification small

Column = Any  # a list with one value per cell, or the value that all cells share


class Cell(NamedTuple):
    """One unit of work. Theories at nominal controls have no size; the seed is None unless something is drawn."""

    kind: str
    variant: str
    controls: tuple[str, ...]  # float.hex, in the order of the model's declaration
    size: int | None
    seed: int | None


@dataclass(frozen=True)
class Family:
    """The points of a study with the same variant and fixed controls: a full grid of the swept controls."""

    variant: str
    fixed: tuple[str | None, ...]  # float.hex, in the order of declaration; None where swept
    swept: tuple[tuple[int, tuple[str, ...]], ...]  # position and values of each swept control, the last fastest

    def points(self, allowed: Mapping[int, Collection[str]] | None = None) -> Iterator[tuple[str, ...]]:
        """The controls of every point; with `allowed`, only points whose controls in these positions have allowed values."""
        kept = [(p, [v for v in values if v in allowed[p]] if allowed and p in allowed else values)
                for p, values in self.swept]  # fmt: skip
        if allowed and any(self.fixed[p] is not None and self.fixed[p] not in values for p, values in allowed.items()):
            return
        point: list[Any] = list(self.fixed)
        for values in itertools.product(*(values for _, values in kept)):
            for (position, _), value in zip(kept, values, strict=True):
                point[position] = value
            yield tuple(point)

    def values(self, position: int) -> tuple[str, ...]:
        """The values of a control."""
        fixed = self.fixed[position]
        return next(values for p, values in self.swept if p == position) if fixed is None else (fixed,)

    def __len__(self) -> int:
        number = 1
        for _, values in self.swept:
            number *= len(values)
        return number


class Cost(NamedTuple):
    """Approximate cost of a cell in core-seconds, from the model's declarations."""

    theory: float
    simulation: float  # seconds of a realisation of this size, with the usual lengths
    size: int
    growth: float
    usual: tuple[float, ...]  # counted controls by default

    def of(self, kind: str, size: int | None, padded: Sequence[int]) -> float:
        """Seconds of a cell.

        >>> Cost(1e-3, 0.5, 200, 2.0, (2.0,)).of("simulation", 400, [400])  # twice the size, half as many rows each
        1.0
        """
        if kind == "theory" or size is None:
            return self.theory
        seconds = self.simulation * (size / self.size) ** self.growth
        for length, usual in zip(padded, self.usual, strict=True):
            seconds *= length / max(1, round(usual * size))
        return seconds


class Variant(NamedTuple):
    """The properties of a model needed for planning: its specification without controls, and how its cells are computed."""

    specification: dict[str, Any]
    counting: tuple[int, ...]  # positions of the controls that set array lengths
    numerics: dict[str, Any]
    dtype: str
    prepare: bool
    has_theory: bool
    runs: str
    theory_lanes: int
    together: int
    cost: Cost


class Planning(NamedTuple):
    """The properties of a study needed for planning."""

    families: Sequence[Family]
    variants: Mapping[str, Variant]
    sizes: Sequence[int]
    seeds: Sequence[int]


class Batch(NamedTuple):
    """Cells that share a program: their number, and how to iterate over them."""

    program: dict[str, Any]
    number: int
    cells: Any  # a function that returns an iterator of (controls, size, seed)


def variant_of(model: Model, numerics: Mapping[str, Any], dtype: str | None) -> Variant:
    """The `Variant` of a model with these numerics and this precision of simulations (None: the model's own)."""
    kind, counted = type(model), [field for field in model.fields_of("control").values() if field.counts]
    return Variant(
        specification_without_controls(model),
        tuple(i for i, field in enumerate(model.fields_of("control").values()) if field.counts),
        dict(kind.numerics.updated(numerics)),
        dtype or kind.simulation_dtype,
        model.unprepared,
        model.has_theory,
        kind.runs,
        kind.theory_lanes,
        kind.together,
        Cost(
            kind.theory_seconds,
            kind.simulation_seconds,
            max(kind.typical_sizes),
            kind.simulation_growth,
            tuple(float(field.default) for field in counted),
        ),
    )


def specification_without_controls(model: Model) -> dict[str, Any]:
    """The specification of a model without its controls."""
    controls = model.fields_of("control")
    return {n: v for n, v in model.specification().items() if n not in controls}


def variant_id(model: Model) -> str:
    """The hash of a model without its controls; cells of the same variant can share a program."""
    return block_id(specification_without_controls(model))


def cells_of_study(
    families: Sequence[Family], variants: Mapping[str, Variant], sizes: Sequence[int], seeds: Sequence[int]
) -> Iterator[Cell]:
    """Every unit of work, first of the theory and then of the simulation."""
    for family in families:
        if variants[family.variant].has_theory:
            for controls, size, seed in _theories(family, variants[family.variant], sizes, seeds):
                yield Cell("theory", family.variant, controls, size, seed)
    for size, family in itertools.product(sizes, families):
        for controls, seed in itertools.product(family.points(), seeds):
            yield Cell("simulation", family.variant, controls, size, seed)


def number_of_cells(
    families: Sequence[Family], variants: Mapping[str, Variant], sizes: Sequence[int], seeds: Sequence[int]
) -> int:
    """The number of cells that `cells_of_study` yields."""
    total = 0
    for family in families:
        variant_spec, simulations = variants[family.variant], len(sizes) * len(seeds)
        theories = simulations if variant_spec.prepare else 1 + len(sizes) if variant_spec.counting else 1
        total += len(family) * (simulations + (theories if variant_spec.has_theory else 0))
    return total


def _theories(
    family: Family, variant_spec: Variant, sizes: Sequence[int], seeds: Sequence[int]
) -> Iterator[tuple[Any, ...]]:
    for controls in family.points():
        if variant_spec.prepare:  # theory and simulation are paired by seed
            yield from ((controls, size, seed) for size in sizes for seed in seeds)
        else:
            yield from ((controls, size, None) for size in ([None, *sizes] if variant_spec.counting else [None]))


def plan_blocks(
    families: Sequence[Family],
    variants: Mapping[str, Variant],
    sizes: Sequence[int],
    seeds: Sequence[int],
    done: Collection[Cell] = (),
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The blocks that cover every cell not in `done`, as pairs of program and own part, ordered by program.

    The result depends only on the arguments, so that a plan is reproducible.
    """
    for batch in _batches(families, variants, sizes, seeds):
        number, kind, variant = batch.number, batch.program["kind"], batch.program.pop("key")
        cells = batch.cells
        if done:

            def cells(batch=batch, kind=kind, variant=variant):
                return (c for c in batch.cells() if Cell(kind, variant, *c) not in done)

            number = sum(1 for _ in cells())
        if number:
            lanes, together = _lanes(variants[variant], kind, number, batch.program["size"], batch.program["padded"])
            program, found = batch.program | {"lanes": lanes}, iter(cells())
            while chunk := list(itertools.islice(found, together)):
                yield program, _own(kind, chunk)


def _batches(
    families: Sequence[Family], variants: Mapping[str, Variant], sizes: Sequence[int], seeds: Sequence[int]
) -> Iterator[Batch]:
    for key, variant_spec in variants.items():
        ours = [f for f in families if f.variant == key]
        common = {"format": FORMAT, "key": key, "variant": variant_spec.specification, "prepare": variant_spec.prepare}
        theory = common | {"kind": "theory", "numerics": variant_spec.numerics, "padded": []}
        points = sum(map(len, ours))
        if variant_spec.has_theory and variant_spec.prepare:
            for size in sizes:

                def paired(ours=ours, variant_spec=variant_spec, size=size):
                    return itertools.chain.from_iterable(_theories(f, variant_spec, [size], seeds) for f in ours)

                yield Batch(theory | {"size": size}, points * len(seeds), paired)
        elif variant_spec.has_theory:

            def alone(ours=ours, variant_spec=variant_spec):
                return itertools.chain.from_iterable(_theories(f, variant_spec, sizes, seeds) for f in ours)

            yield Batch(theory | {"size": None}, points * (1 + len(sizes) if variant_spec.counting else 1), alone)
        for size in sizes:
            for padded, allowed in _padded(ours, variant_spec, size, len(seeds)):

                def simulations(ours=ours, size=size, allowed=allowed):
                    drawn = (itertools.product(f.points(allowed), [size], seeds) for f in ours)
                    return itertools.chain.from_iterable(drawn)

                number = sum(_number_allowed(f, allowed) for f in ours) * len(seeds)
                program = common | {"kind": "simulation", "dtype": variant_spec.dtype, "padded": padded, "size": size}
                yield Batch(program, number, simulations)


def _number_allowed(family: Family, allowed: Mapping[int, Collection[str]]) -> int:
    number = len(family)
    for position, values in allowed.items():
        ours = family.values(position)
        number = number * sum(v in values for v in ours) // len(ours)
    return number


def _padded(
    families: Sequence[Family], variant_spec: Variant, size: int, seeds: int
) -> Iterator[tuple[list[int], dict[int, set[str]]]]:
    """The padded lengths of the counting controls, each with the values of the controls that it covers."""
    positions, cost = variant_spec.counting, variant_spec.cost
    each = seeds * cost.simulation * (size / cost.size) ** cost.growth
    bins: list[list[tuple[int, set[str]]]] = []
    for position, usual in zip(positions, cost.usual, strict=True):
        counts = {v: max(1, round(float.fromhex(v) * size)) for f in families for v in f.values(position)}
        weights: Counter[int] = Counter()
        for family in families:
            values = family.values(position)
            for value in values:
                weights[counts[value]] += len(family) // len(values)
        lengths = pad_lengths(weights, row=each / max(1, round(usual * size)))
        least = [0, *lengths]
        bins.append([(n, {v for v, c in counts.items() if below < c <= n}) for below, n in zip(least, lengths)])  # noqa: B905
    for chosen in itertools.product(*bins):
        allowed = {p: values for p, (_, values) in zip(positions, chosen, strict=True)}
        yield [length for length, _ in chosen], allowed


def pad_lengths(counts: Iterable[int] | Mapping[int, int], most: int = BUCKETS, row: float | None = None) -> list[int]:
    """At most `most` lengths that cover all counts (with weights, if a mapping) with the least total padding.

    With `row`, the core-seconds of one padded row, there are only as many as save more than they take to compile.

    >>> pad_lengths([10, 11, 12, 50, 200, 210], most=3), pad_lengths([10, 11, 12, 50, 200, 210], row=1e-3)
    ([12, 50, 210], [210])
    """
    weights = Counter(counts)
    distinct = sorted(weights)
    if len(distinct) > CANDIDATES:  # a subset of many candidate lengths is good enough
        distinct = sorted({distinct[-1 - i * len(distinct) // CANDIDATES] for i in range(CANDIDATES)})
    if row is None and len(distinct) <= most:
        return distinct
    ordered = sorted(weights.items())
    up_to, total, at = {}, 0, 0
    for value in distinct:
        while at < len(ordered) and ordered[at][0] <= value:
            total, at = total + ordered[at][1], at + 1
        up_to[value] = total
    # best[k][i]: least total padded length of everything up to distinct[i] with k lengths, the last being distinct[i]
    best: list[dict[int, tuple[int, list[int]]]] = [{i: (v * up_to[v], [v]) for i, v in enumerate(distinct)}]
    for _ in range(most - 1):
        more = {}
        for i, v in enumerate(distinct):
            options = [
                (cost + v * (up_to[v] - up_to[distinct[j]]), chosen + [v])
                for j, (cost, chosen) in best[-1].items()
                if j < i
            ]
            more[i] = min([*options, best[-1][i]])
        best.append(more)
    ends = [found[len(distinct) - 1] for found in best]
    if row is None:
        return ends[-1][1]
    return min(ends, key=lambda end: end[0] * row + COMPILING * len(end[1]))[1]


def _lanes(variant_spec: Variant, kind: str, number: int, size: int | None, padded: Sequence[int]) -> tuple[int, int]:
    """The numbers of cells per batch and per block.

    A batch is small enough for memory, and a block has as many batches as its target duration allows; cells are split evenly.
    """
    each = variant_spec.cost.of(kind, size, padded)
    if kind == "theory":
        most = LANES["prepared"] if variant_spec.prepare else LANES["theory"]
    elif variant_spec.runs == "host":
        most = variant_spec.together
    else:
        elements = max([size or 1, *padded]) * (size or 1)
        most = min(LANES[variant_spec.runs], max(LEAST_LANES, QUICK_ELEMENTS // elements))
        most = min(most, max(LEAST_LANES, -(-number // FEW_BLOCKS)), max(1, ELEMENTS // elements))
    # A few cells that are trained side by side stay together, however long that takes.
    if kind == "theory" or number > variant_spec.together:
        most = max(1, min(most, int(LONGEST_SECONDS / each)))
    batches = -(-number // most)
    lanes = -(-number // batches)
    allowed = min(BLOCK_SECONDS / each, number / FEW_BLOCKS, MOST_CELLS) / lanes
    blocks = -(-batches // max(1, int(allowed)))
    return lanes, lanes * -(-batches // blocks)


def _own(kind: str, cells: Sequence[tuple[tuple[str, ...], int | None, int | None]]) -> dict[str, Any]:
    """The block's own part of its specification."""
    own = {
        "cells": len(cells),
        "controls": [_column(values) for values in zip(*(controls for controls, _, _ in cells), strict=True)],
        "seeds": _column([seed for _, _, seed in cells]),
    }
    return own | ({"sizes": _column([size for _, size, _ in cells])} if kind == "theory" else {})


def _column(values: Sequence[Any]) -> Column:
    return values[0] if all(v == values[0] for v in values) else list(values)


def parts_of(block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A block's program and its own part.

    >>> parts_of({"kind": "theory", "lanes": 2, "cells": 2, "seeds": None})
    ({'kind': 'theory', 'lanes': 2}, {'cells': 2, 'seeds': None})
    """
    return {n: v for n, v in block.items() if n not in OWN}, {n: v for n, v in block.items() if n in OWN}


def check_format(number: Any, what: str) -> None:
    """Raise an error for blocks and plans that are not in the current format; `what` begins the message."""
    if type(number) is not int:
        raise ValueError
    if number != FORMAT:
        version = "a version before the first release" if number < FORMAT else "a later version"
        raise StoreError(
            f"{what} has format {number} and was written by {version}; only format {FORMAT} is supported, so compute it "
            "again in a new folder."
        )


def columns_of(block: Mapping[str, Any]) -> tuple[list[Column], Column, Column]:
    """Controls, sizes and seeds of a block, as columns."""
    return block["controls"], block.get("sizes", block["size"]), block["seeds"]


def spread(column: Column, number: int) -> list[Any]:
    """A column with one value per cell.

    >>> spread("0x1p+0", 2), spread([1, 2], 2)
    (['0x1p+0', '0x1p+0'], [1, 2])
    """
    return column if isinstance(column, list) else [column] * number


def cells_of(block: Mapping[str, Any], variant: str) -> list[Cell]:
    """The cells of a block, in the order of its lanes (`variant` is the hash of the block's variant)."""
    number = block["cells"]
    controls, sizes, seeds = columns_of(block)
    rows = zip(*(spread(c, number) for c in controls), strict=True) if controls else itertools.repeat((), number)
    return [
        Cell(block["kind"], variant, tuple(row), size, seed)
        for row, size, seed in zip(rows, spread(sizes, number), spread(seeds, number), strict=True)
    ]


def split_block(block: Mapping[str, Any], lanes: int) -> list[dict[str, Any]]:
    """Split a block into blocks of at most `lanes` cells; they compile to other programs, so the last bits may differ."""
    number = block["cells"]
    pieces = -(-number // lanes)
    lanes = -(-number // pieces)
    program, _ = parts_of(block)
    cells = [(c.controls, c.size, c.seed) for c in cells_of(block, "")]
    return [
        program | {"lanes": lanes} | _own(block["kind"], cells[start : start + lanes])
        for start in range(0, number, lanes)
    ]


def regrouped(program: Mapping[str, Any], cells: Sequence[Cell]) -> dict[str, Any]:
    """A block of a simulated program with these cells, in this order."""
    return {**program, **_own("simulation", [(c.controls, c.size, c.seed) for c in cells])}
