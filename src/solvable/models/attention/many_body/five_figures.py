"""A law of five bodies: stacks of three layers can hold five, so N + 1 bodies for N layers is no limit of the network."""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.sequences.interactions import (
    PopulationLoss,
    interaction_floors,
    log_probabilities,
    population_rows,
)
from solvable.methods.training.loops import Optimiser, train
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, log_axis

from .._interactions import evaluated_steps, networks
from ..long_sequences.laws import pure_law

SITES, COLOURS_OF_A_SITE, DEPTHS = 5, 3, (1, 2, 3, 4)
STRENGTHS = {2: 1.0, 3: 1.0, 4: 1.0, 5: 2.0}


class _Exact(eqx.Module):
    """The loss on the law itself."""

    def __call__(self, tracked: Any, rows: Any) -> Any:
        tokens, masks, targets = rows
        logits = jnp.sum(jnp.where(masks[:, :, None], jax.vmap(tracked)(tokens, masks), 0.0), axis=1)
        return {"loss": -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1))}


def five(quick: bool, pieces: Any) -> dict[str, Any]:
    import xarray as xr

    sites, colours, depths, steps, heads, number = (
        (5, 2, (1, 2), 100, 2, 2) if quick else (SITES, COLOURS_OF_A_SITE, DEPTHS, 3000, 8, 4)
    )
    probability = np.asarray(jnp.exp(log_probabilities(pure_law(sites, colours, STRENGTHS, 0))), float)
    floors = eqx.filter_jit(interaction_floors)(jnp.asarray(probability), sites, colours, 4)
    levels = [*np.asarray(floors.floors), float(floors.optimal)]  # interactions of all five sites are the law itself
    tokens, masks, targets = (jnp.asarray(v) for v in population_rows(probability, sites, colours))
    rows, record = (tokens, masks, targets.astype(jnp.float32)), evaluated_steps(steps)

    def run(depth: int) -> dict[str, np.ndarray]:
        keys = jax.random.split(jax.random.key(depth), 2 * number)
        begin = networks(keys[:number], "stack", colours, sites, depth, heads, 12, jnp.ones((), jnp.float32))
        done = train(begin, PopulationLoss(), rows, Optimiser("adam", rate=5e-3, steps=steps), steps, keys[number:],
                     record=record, measure=_Exact(), held_out=rows)  # fmt: skip
        return {"loss": np.asarray(done.measures["loss"], float).reshape(len(record), number)}

    found = [pieces.get(f"five, depth {n}", [sites, colours, steps, heads, number, str(STRENGTHS)], lambda n=n: run(n))
             for n in depths]  # fmt: skip
    table = xr.Dataset(
        {"loss": (("depth", "step", "seed"), np.stack([f["loss"] for f in found])),
         "floor": ("order", levels)},
        {"depth": list(depths), "step": record, "order": np.arange(1, 6)},
        {"sites": sites, "colours": colours, "heads": heads},
    )  # fmt: skip
    return {"": table}


def draw_five(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained", sharey=True)
    later = table.isel(step=table.step.values > 0)
    for depth, colour in zip(table.depth.values.tolist(), itertools.cycle(COLOURS)):
        runs = later.loss.sel(depth=depth)
        words = f"{depth} layer{'s' if depth > 1 else ''} (at most {2 ** (depth - 1) + 1} bodies)"
        axes[0].plot(later.step, runs.mean("seed"), color=colour, label=words)
        ends = runs.isel(step=-1).values
        places = depth + 0.09 * (np.arange(len(ends)) - (len(ends) - 1) / 2)
        axes[1].plot(places, ends, "o", color=colour, markersize=4)
    for order in table.order.values.tolist():
        level = float(table.floor.sel(order=order))
        for axis in axes:
            axis.axhline(level, color=INK, linestyle="--", linewidth=0.8)
        axes[1].text(float(table.depth[-1]) + 0.45, level, f"{order} bod{'y' if order == 1 else 'ies'}", fontsize=8,
                     va="bottom", ha="right")  # fmt: skip
    log_axis(axes[0].xaxis)
    axes[0].set(xlabel="steps of Adam", ylabel="masked loss, exact (nats)", yscale="log")
    axes[0].set_title("during training: from three layers on,\nstacks pass the best model of four bodies")
    axes[0].legend(fontsize=8)
    axes[1].set(xlabel="layers of the stack", xlim=(0.5, float(table.depth[-1]) + 0.5))
    axes[1].set_xticks(table.depth.values)
    axes[1].set_title("after training: three layers hold all five bodies\n(dashed: the best model of so many bodies)")
    figure.suptitle("A law of five bodies", fontsize=11)
    return figure


RECIPES = {
    "many-body-five": Recipe(
        five,
        draw_five,
        resumes=True,
        sentence="Stacks of one to four layers on a law of up to five bodies, beside the best models of every order.",
    )
}
