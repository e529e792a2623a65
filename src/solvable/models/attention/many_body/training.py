"""Networks that learn whole distributions of short sequences: every loss is exact, and so are the clones.

These are functions, not cells of a study. `ManyBodyBias.experiment` trains a network (the model's arms) on drawn sequences;
here a network sees every state with its probability, and the seeds train side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.methods.sequences.interactions import (
    PopulationLoss,
    conditional_tables,
    interaction_floors,
    log_probabilities,
    maximum_entropy,
    optimal_conditional_loss,
    order_components,
    population_rows,
)
from solvable.methods.training.loops import Optimiser, geometric_steps, logits_at_hidden_site, train
from solvable.methods.training.squared_attention import InteractionStack, displacement
from solvable.methods.training.transformers import Transformer

from .laws import pure_law
from .model import ManyBodyBias

DEPTHS = (1, 2, 3)


class Tracked(eqx.Module):
    """A network that remembers where it began (what a loss does not see, an optimiser does not move)."""

    network: Any
    begin: Any

    def __call__(self, tokens: Any, masked: Any) -> Array:
        return self.network(tokens, masked)

    def at_hidden_site(self, tokens: Any, hidden: Any) -> Array:
        return logits_at_hidden_site(self.network, tokens, hidden)


@eqx.filter_jit
def stacks(keys: Any, colours: int, sites: int, depth: int, heads: int, width: int, scale: float) -> Any:
    """x² networks side by side, one for every key."""
    return eqx.filter_vmap(lambda k: InteractionStack(colours, sites, depth, heads, width, k, scale=scale))(keys)


def _rows(probability: Any, sites: int, colours: int) -> Any:
    """Every state with every site hidden once, and how probable it is."""
    tokens, masks, targets = population_rows(probability, sites, colours)
    return jnp.asarray(tokens), jnp.asarray(masks), jnp.asarray(targets, jnp.float32)


_exact = PopulationLoss()


def depths(model: ManyBodyBias, *, heads: int, width: int, rate: float, steps: int, seeds: int) -> xr.Dataset:
    """Networks of one, two, three layers, trained on the whole distribution: their last losses beside the floors."""
    probability = jnp.exp(log_probabilities(model.law()))
    rows, theory = _rows(probability, model.sites, model.colours), model.theory()
    keys, final = jax.random.split(jax.random.key(0), seeds), []
    rule = Optimiser("adam", rate=rate, steps=steps)
    for depth in DEPTHS:
        begin = stacks(keys, model.colours, model.sites, depth, heads, width, 1.0)
        run = train(begin, _exact, rows, rule, steps, keys, record=[steps], measure=_exact, held_out=rows)
        final.append(run.measures[-1])
    return xr.Dataset(
        {"loss": (("depth", "seed"), np.array(final)), "floor": (("order",), np.asarray(theory.floor))},
        {"depth": list(DEPTHS), "order": model.coordinates()["order"]},
    )


class _Watch(eqx.Module):
    """Exact loss on a law and on clones of it, the share of every order in the true logits, and displacements."""

    truth: Array
    orders: int = eqx.field(static=True)
    sites: int = eqx.field(static=True)
    colours: int = eqx.field(static=True)

    def __call__(self, tracked: Any, held_out: Any) -> dict[str, Array]:
        tokens, masks, targets = held_out
        logits = jnp.sum(jnp.where(masks[:, :, None], jax.vmap(tracked)(tokens, masks), 0.0), axis=1)
        losses = -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1)[None], axis=(1, 2))
        parts = order_components(logits, self.sites, self.colours, self.orders)
        size = jnp.sum(self.truth**2, axis=(1, 2))
        missing = jnp.sum((parts - self.truth) ** 2, axis=(1, 2)) / size
        seen = {"loss": losses, "share": jnp.where(size > 1e-9 * jnp.sum(size), 1.0 - missing, jnp.nan)}
        if isinstance(tracked.network, InteractionStack):
            seen["msd"] = displacement(tracked.network, tracked.begin)
        return seen


def exact_clones(
    sites: int,
    colours: int,
    strengths: Mapping[int, float],
    runs: Sequence[tuple[str, str, float, float]],
    *,
    heads: int,
    width: int,
    steps: int,
    points: int,
    seeds: int,
) -> xr.Dataset:
    """Learning on a whole distribution with pure interactions of two, three and four bodies, and on its exact clones.

    A clone of order p is the law of largest entropy with the same joint law of every p sites. A run is a name (`encoder, …` or
    `stack, …`), an optimiser, its rate, and the initial scale of a stack.
    """
    law = pure_law(sites, colours, dict(strengths), 1)
    probability = jnp.exp(log_probabilities(law))
    found = eqx.filter_jit(interaction_floors)(probability, sites, colours, 3)
    clones = [maximum_entropy(probability, sites, colours, p, tolerance=1e-10) for p in (1, 2, 3)]
    laws = [*clones, np.asarray(probability)]
    optimal = [float(optimal_conditional_loss(conditional_tables(jnp.asarray(q), sites, colours))) for q in laws]
    tokens, masks, targets = _rows(probability, sites, colours)
    several = jnp.stack([_rows(q, sites, colours)[2] for q in laws])
    truth = np.log(population_rows(probability, sites, colours)[2])
    truth = order_components(jnp.asarray(truth), sites, colours, 4)
    watch = _Watch(jnp.asarray(truth, jnp.float32), 4, sites, colours)
    keys = jax.random.split(jax.random.key(1), seeds)
    record = geometric_steps(steps, points)
    losses, shares, moved = [], [], []
    for label, kind, rate, scale in runs:
        if label.startswith("encoder"):
            make = partial(Transformer, colours, sites, width=32, depth=3, heads=4)
            begin = eqx.filter_vmap(lambda k, make=make: make(key=k))(keys)
            begin = Tracked(begin, None)
        else:
            begin = stacks(keys, colours, sites, 3, heads, width, scale)
            begin = Tracked(begin, begin)
        run = train(begin, _exact, (tokens, masks, targets), Optimiser(kind, rate=rate), steps, keys,
                    record=record, measure=watch, held_out=(tokens, masks, several))  # fmt: skip
        losses.append(run.measures["loss"])
        shares.append(run.measures["share"])
        moved.append(run.measures.get("msd", np.full((len(record), seeds, 3), np.nan)))
    dims = ("run", "step", "seed")
    levels = np.append(found.floors, found.optimal)
    curve = np.array(losses)[..., -1]
    late = dict(
        dwell=(("run", "seed", "order"), dwelling(np.moveaxis(curve, 1, -1), record, levels)),
        half_time=(("run", "seed", "order"), first_time(np.moveaxis(np.array(shares) > 0.5, 1, -1), record)),
        best_time=(("run", "seed", "clone"), record[np.argmin(losses, axis=1)]),
    )
    return xr.Dataset(
        {"loss": ((*dims, "clone"), np.array(losses, "f4")), "share": ((*dims, "order"), np.array(shares, "f4")),
         "msd": ((*dims, "layer"), np.array(moved, "f4")), "clone_optimal": (("clone",), optimal),
         "floor": (("order",), levels), **late},
        {"run": [r[0] for r in runs], "step": record, "clone": [1, 2, 3, 4], "order": [1, 2, 3, 4], "layer": [1, 2, 3]},
    )  # fmt: skip


def dwelling(curves: np.ndarray, record: np.ndarray, levels: np.ndarray, width: float = 0.05) -> np.ndarray:
    """Steps that loss curves (…, step) spend within `width` of the whole fall ℓ_1 − ℓ_opt around each level (…, level)."""
    near = np.abs(curves[..., None] - levels) < width * (levels[0] - levels[-1])
    return np.sum(near[..., :-1, :] * np.diff(record)[:, None], axis=-2)


def first_time(reached: np.ndarray, record: np.ndarray) -> np.ndarray:
    """The first recorded step at which something (…, step) is so; NaN if it never is."""
    return np.where(reached.any(-1), record[np.argmax(reached, -1)], np.nan)
