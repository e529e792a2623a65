"""Networks of one shape under several rules, rates, ε and decays, trained side by side by one compiled program.

A study compiles one program for every rule. Where networks are small and deep, that takes longer than to train them. The networks
and their data are those of the study: the keys are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.contract.compiled import PRECISION

from .model import TransformerScaling
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
    model: TransformerScaling, size: int, keys: PRNGKeyArray, controls: dict[str, Array], settings: AtSize
) -> dict[str, Array]:
    """Train all lanes; see `lanes_as_arrays` for the arguments."""

    def one(key: PRNGKeyArray, values: dict[str, Array], setting: AtSize) -> dict[str, Array]:
        with jax.default_matmul_precision(PRECISION):
            return model.with_values(values).trained(key, size, setting, jnp.float32)

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
    # The rule is a static field of the model and decides nothing here: the same for all, so that nothing compiles twice.
    return model.replace(rule="standard"), size, jnp.stack([keys[lane.seed] for lane in lanes]), controls, stacked


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


def trained_at_once(
    model: TransformerScaling,
    rules: Sequence[str],
    control: str,
    values: Sequence[float],
    seeds: Sequence[int],
    size: int,
) -> Any:
    """A dataset over rule, the values of one control, and seed.

    >>> model = TransformerScaling(depth=2, steps=8, batch=2, context=4, letters=4, base_width=16)
    >>> found = trained_at_once(model, ["mup", "completep"], "rate", [0.01, 0.1], [0], 16)
    >>> dict(found.final_loss_simulated.sizes)
    {'rule': 2, 'rate': 2, 'seed': 1}
    """
    lanes = grid_of_lanes(rules, control, values, seeds)
    return as_dataset(model, lanes, train(*lanes_as_arrays(model, lanes, size)))
