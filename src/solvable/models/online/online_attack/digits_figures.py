"""Label attacks on learners of handwritten digits, linear and with a hidden layer: does the transition survive?"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.data.digits import PIXELS, digit_images
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis

LEARNERS = ("linear", "hidden layer")
ATTACKS = {"constant": 10, "greedy, P = 1": 1, "greedy, P = 10": 10, "random flips": 10}
"""Samples in a batch of each attack; random flips cost as much as the constant attack."""
RATE, UNITS, PROBES, DIFFERENCE = 0.25, 64, 128, 4.0


def _network(learner: str, key: Any) -> tuple[Any, Any]:
    """Output as a function of weights and inputs (divided by √D), and initial weights."""
    if learner == "linear":
        return lambda w, x: x @ w, jnp.zeros(PIXELS)
    first, second = jax.random.split(key)
    begin = (jax.random.normal(first, (UNITS, PIXELS)), 0.1 * jax.random.normal(second, (UNITS,)))
    return lambda w, x: jnp.tanh(x @ w[0].T) @ w[1] / math.sqrt(UNITS), begin


@partial(jax.jit, static_argnums=(0, 1, 2))
def _attacked(learner: str, attack: str, steps: int, cost: Any, seed: Any, images: Any, clean: Any) -> Any:
    """Accuracy on clean labels and mean cost, averaged over the last quarter of the training; the target is the opposite
    label."""
    batch, start, walk = ATTACKS[attack], *jax.random.split(jax.random.fold_in(jax.random.key(0), seed))
    output, begin = _network(learner, start)
    price, constant = cost * DIFFERENCE, 1 / (1 + cost)

    def step(carry: Any, number: Any) -> Any:
        w, right, spent = carry
        rows_key, probe_key, flip_key = jax.random.split(jax.random.fold_in(walk, number), 3)
        rows = jax.random.randint(rows_key, (batch,), 0, images.shape[0])
        x, y = images[rows], clean[rows]
        probe = jax.random.randint(probe_key, (PROBES,), 0, images.shape[0])
        seen, target = images[probe], -clean[probe]

        def moved(labels: Any) -> Any:
            """The change of the weights by a step on given labels."""
            pull = jax.grad(lambda v: 0.5 * jnp.mean((output(v, x) - labels) ** 2))(w)
            return jax.tree.map(lambda g: -RATE * g, pull)

        if attack.startswith("greedy"):
            # the step is linear in the action: outputs after it, in first order, are `now + a·turn`
            honest = jax.tree.map(jnp.add, w, moved(y))
            push = jax.tree.map(lambda a, b: a - b, moved(-y), moved(y))
            now, turn = jax.jvp(lambda v: output(v, seen), (honest,), (push,))
            weight = PIXELS / RATE
            action = -weight * jnp.mean(turn * (now - target)) / (price + weight * jnp.mean(turn**2))
            labels = (1 - 2 * action) * y
            square = action**2
        elif attack == "random flips":
            flipped = jax.random.uniform(flip_key, (batch,)) < constant**2
            labels, square = jnp.where(flipped, -y, y), jnp.mean(jnp.where(flipped, 1.0, 0.0))
        else:
            labels, square = (1 - 2 * constant) * y, constant**2
        w = jax.tree.map(jnp.add, w, moved(labels))
        late = jnp.where(number >= steps - steps // 4, 1.0 / (steps // 4), 0.0)
        away = 0.5 * jnp.mean((output(w, seen) - target) ** 2)
        good = jnp.mean(jnp.where(output(w, seen) * target < 0, 1.0, 0.0))
        return (w, right + late * good, spent + late * (0.5 * price * square + away)), None

    (_, right, spent), _ = jax.lax.scan(step, (begin, jnp.zeros(()), jnp.zeros(())), jnp.arange(steps))
    return jnp.stack([right, spent])


def digits(quick: bool) -> dict[str, Any]:
    import xarray as xr

    costs, seeds, steps = (np.geomspace(0.1, 10, 3), 2, 40) if quick else (np.geomspace(0.1, 10, 13), 6, 3000)
    pixels, shown = digit_images()
    images, clean = jnp.asarray(pixels / math.sqrt(PIXELS)), jnp.asarray(np.where(shown % 2 == 0, 1.0, -1.0))
    found = np.full((len(LEARNERS), len(ATTACKS), 2, len(costs), seeds), np.nan)
    for i, learner in enumerate(LEARNERS):
        for j, attack in enumerate(ATTACKS):
            one = partial(_attacked, learner, attack, steps)
            every = jax.vmap(jax.vmap(one, (None, 0, None, None)), (0, None, None, None))
            both = every(jnp.asarray(costs), jnp.arange(seeds), images, clean)
            found[i, j] = np.moveaxis(np.asarray(both), -1, 0)
    dims = ("learner", "attack", "cost", "seed")
    return {
        "": xr.Dataset(
            {"accuracy": (dims, found[:, :, 0]), "running": (dims, found[:, :, 1])},
            {"learner": list(LEARNERS), "attack": list(ATTACKS), "cost": costs},
        )
    }


def draw_digits(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained", sharey=True)
    for axis, learner in zip(axes, table.learner.values, strict=True):
        for attack, colour, marker in zip(table.attack.values, COLOURS, MARKERS * 2, strict=False):
            runs = table.accuracy.sel(learner=learner, attack=attack)
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(
                table.cost, runs.mean("seed"), error, fmt=f"{marker}-", color=colour, label=str(attack), markersize=4
            )
        axis.axhline(0.5, color="0.5", linewidth=0.8, zorder=0)
        axis.axvline(1.0, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
        log_axis(axis.xaxis)
        axis.set(xlabel=label("price of an attack", "C"))
        axis.set_title(f"{learner} learner")
    axes[0].set(ylabel="accuracy on clean labels")
    axes[0].legend(fontsize=8)
    figure.suptitle(
        "Handwritten digits, even or odd, with poisoned labels: learners switch at a critical price", fontsize=11
    )
    return figure


RECIPES = {
    "online-attack-digits": Recipe(
        digits,
        draw_digits,
        sentence="Accuracy of learners of handwritten digits with poisoned labels, against the price of an attack.",
    )
}
