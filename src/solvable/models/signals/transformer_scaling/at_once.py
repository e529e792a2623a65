"""Networks of one shape under several rules, rates, ε and decays, trained side by side by one compiled program.

A study compiles one program for every rule. Where networks are small and deep, that takes longer than to train them. The networks
and their data are those of the study: the keys are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.contract.compiled import PRECISION
from solvable.render.pieces import Arrays, Pieces

from .model import Language, TransformerScaling
from .network import AtSize

MEASURED = ("test_loss", "final_loss", "excess_loss", "change")


class Lane(NamedTuple):
    """One training: its rule, one control with its value, and the number of its seed."""

    rule: str
    control: str
    value: float
    seed: int


@eqx.filter_jit
def train(
    model: TransformerScaling,
    size: int,
    keys: PRNGKeyArray,
    controls: dict[str, Array],
    settings: AtSize,
    language: Language,
) -> dict[str, Array]:
    """Train all lanes; see `lanes_as_arrays` for the arguments."""

    def one(key: PRNGKeyArray, values: dict[str, Array], setting: AtSize) -> dict[str, Array]:
        with jax.default_matmul_precision(PRECISION):
            return model.with_values(values).trained(key, size, setting, jnp.float32, language)

    return jax.vmap(one)(keys, controls, settings)


def lanes_as_arrays(model: TransformerScaling, lanes: Sequence[Lane], size: int) -> tuple[Any, ...]:
    """The arguments of `train`: one program for all rules and values of a shape and number of lanes."""
    keys = {seed: model.key(size, seed) for seed in {lane.seed for lane in lanes}}
    settings = {rule: model.replace(rule=rule).setting(size) for rule in {lane.rule for lane in lanes}}
    stacked = jax.tree.map(lambda *x: jnp.asarray(x, jnp.float32), *(settings[lane.rule] for lane in lanes))
    controls = {
        name: jnp.asarray([lane.value if lane.control == name else float(value) for lane in lanes])
        for name, value in model.controls().items()
    }
    if any(lane.control == "contrast" for lane in lanes):
        raise ValueError("all lanes learn the same language: contrast cannot differ between them")
    language = model.language(jnp.float32)
    # The rule is a static field of the model and decides nothing here: the same for all, so that nothing compiles twice.
    return (
        model.replace(rule="standard"),
        size,
        jnp.stack([keys[lane.seed] for lane in lanes]),
        controls,
        stacked,
        language,
    )


def compiled(arguments: tuple[Any, ...]) -> Any:
    """The program of `train` for arguments of these shapes; it can be compiled while another one runs."""
    return train.lower(*arguments).compile()


def grid_of_lanes(rules: Sequence[str], control: str, values: Sequence[float], seeds: Sequence[int]) -> list[Lane]:
    """All combinations, in the order in which `as_dataset` expects them."""
    return [Lane(rule, control, float(value), seed) for rule in rules for value in values for seed in seeds]


def axes_of(lanes: Sequence[Lane]) -> tuple[list[str], list[float], list[int]]:
    """The rules, values and seeds of a grid of lanes.

    >>> axes_of(grid_of_lanes(["mup"], "rate", [0.1, 0.2], [0, 1]))
    (['mup'], [0.1, 0.2], [0, 1])
    """
    rules, values, seeds = ({getattr(lane, name): None for lane in lanes} for name in ("rule", "value", "seed"))
    return list(rules), list(values), list(seeds)


def as_dataset(model: TransformerScaling, lanes: Sequence[Lane], found: Mapping[str, Any]) -> Any:
    """Trainings of a grid of lanes over rule, value and seed; all of a training that diverged is NaN."""
    import xarray as xr

    control = lanes[0].control
    rules, values, seeds = axes_of(lanes)
    assert list(lanes) == grid_of_lanes(rules, control, values, seeds), "the lanes are not a grid in its order"
    shape = len(rules), len(values), len(seeds)
    good = np.asarray(found["converged"]).reshape(shape)
    declared = {o.name: o.dims for o in model.observables_declared}
    columns: dict[str, Any] = {}
    for name in MEASURED:
        part = np.asarray(found[name]).reshape(*shape, *np.shape(found[name])[1:])
        part = np.where(good.reshape(*shape, *(1,) * len(declared[name])), part, np.nan).astype(np.float32)
        columns[f"{name}_simulated"] = (("rule", control, "seed", *declared[name]), part)
    return xr.Dataset(columns, {"rule": rules, control: values, "seed": seeds, **model.coordinates()})


class Table(NamedTuple):
    """Trainings of networks of several shapes (width, depth) under several rules, over one control and seeds.

    About `at_once` networks are trained side by side: many small ones to use a GPU well, but not more than fit its memory.
    """

    model: TransformerScaling
    control: str
    values: tuple[float, ...]
    rules: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    seeds: int
    at_once: int = 72

    def portions(self) -> list[Portion]:
        """All trainings in parts that are trained side by side: of every shape some seeds, first seeds first."""
        some = max(1, self.at_once // (len(self.rules) * len(self.values)))
        starts = range(0, self.seeds, some)
        return [
            Portion(self, shape, tuple(range(i, min(i + some, self.seeds)))) for i in starts for shape in self.shapes
        ]


class Portion(NamedTuple):
    """Trainings of one shape under all rules and values of a table, with some of its seeds."""

    table: Table
    shape: tuple[int, int]
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """What is trained, in words."""
        return f"{self.table.control} at {self.shape[0]} x {self.shape[1]}, seeds {self.seeds[0]} to {self.seeds[-1]}"

    @property
    def model(self) -> TransformerScaling:
        """The model at the depth of the shape."""
        return self.table.model.replace(depth=self.shape[1])

    @property
    def settings(self) -> list[Any]:
        """All that decides the results."""
        return [repr(self.model), self.table.control, self.table.values, self.table.rules, self.shape, self.seeds]

    def lanes(self) -> list[Lane]:
        """The trainings."""
        return grid_of_lanes(self.table.rules, self.table.control, self.table.values, self.seeds)

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the program that trains them."""
        return lanes_as_arrays(self.model, self.lanes(), self.shape[0])


def trained(portions: Sequence[Portion], pieces: Pieces) -> list[Arrays]:
    """Train all portions in their order, while the programs of the next ones are compiled."""
    programs: dict[Any, Future[Any]] = {}

    def shapes(portion: Portion) -> Any:
        return repr(portion.model), portion.shape, len(portion.lanes())

    def train(portion: Portion) -> Arrays:
        found = programs[shapes(portion)].result()(*portion.arguments())
        return {name: np.asarray(found[name]) for name in (*MEASURED, "converged")}

    with ThreadPoolExecutor(1) as pool:
        for portion in portions:
            if not pieces.has(portion.name, portion.settings) and shapes(portion) not in programs:
                programs[shapes(portion)] = pool.submit(compiled, portion.arguments())
        return [pieces.get(p.name, p.settings, lambda p=p: train(p)) for p in portions]


def together(table: Table, found: Sequence[tuple[Portion, Arrays]]) -> Any:
    """Portions of a table as one dataset over shapes, with the seeds that all of them have."""
    import xarray as xr

    parts = [as_dataset(portion.model, portion.lanes(), arrays) for portion, arrays in found]
    of_shape = [[d for d, (p, _) in zip(parts, found, strict=True) if p.shape == shape] for shape in table.shapes]
    data = xr.concat([xr.concat(x, "seed") for x in of_shape], "shape", combine_attrs="drop", join="inner")
    width, depth = (("shape", list(x)) for x in zip(*table.shapes, strict=True))
    return data.assign_coords(shape=[f"{w} × {d}" for w, d in table.shapes], width=width, depth=depth)
