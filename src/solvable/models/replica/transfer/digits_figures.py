"""Transfer between tasks on handwritten digits: the sign of its gain against samples and similarity of the tasks."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.data.digits import digit_images
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, log_axis

from .networks import random_network, train_network

EVEN = np.where(np.arange(10) % 2 == 0, 1.0, -1.0)
SOURCES = {"same task": 0, "nine labels of ten": 1, "five labels of ten": 5, "shuffled labels": 0}
"""Number of digits whose label differs between source and target (even or odd)."""
UNITS, RATE, PENALTY = 128, 0.01, 0.05


@partial(jax.jit, static_argnums=(4, 5))
def _errors(key: Any, images: Any, target: Any, source: Any, samples: tuple[int, ...], steps: int) -> Any:
    """Errors on the target with the source's features, with random ones, and of both layers trained, (3, samples)."""
    order_key, first, second, third = jax.random.split(key, 4)
    order = jax.random.permutation(order_key, images.shape[0])
    half = images.shape[0] // 2
    old, new, test = order[:half], order[half : half + max(samples)], order[half + max(samples) :]
    begin = random_network(first, UNITS, images.shape[1], images.dtype)
    rate = jnp.asarray(RATE, images.dtype)
    learnt = train_network(second, begin, images[old], source[old], half, rate, steps)
    other = random_network(third, UNITS, images.shape[1], images.dtype)
    loss, found = loss_named("logistic"), []
    for network in (learnt, other):
        hidden = jnp.tanh(images @ network.first.T) / math.sqrt(UNITS)
        fits = [
            minimise_risk(loss, hidden[new[:n]], target[new[:n]], jnp.asarray(PENALTY), jnp.ones(n, images.dtype))
            for n in samples
        ]
        found.append(jnp.stack([jnp.mean((hidden[test] @ f.weights) * target[test] < 0) for f in fits]))
    alone = [train_network(second, other, images[new[:n]], target[new[:n]], n, rate, steps) for n in samples]
    found.append(jnp.stack([jnp.mean(network(images[test]) * target[test] < 0) for network in alone]))
    return jnp.stack(found)


def digits(quick: bool) -> dict[str, Any]:
    import xarray as xr

    samples, seeds, steps = ((20, 100), 2, 30) if quick else ((20, 100, 400), 12, 500)
    pixels, shown = digit_images()
    images, target = jnp.asarray(pixels), jnp.asarray(EVEN[shown])
    found = np.full((len(SOURCES), seeds, 3, len(samples)), np.nan)
    for i, (name, changed) in enumerate(SOURCES.items()):
        for seed in range(seeds):
            rng = np.random.default_rng([i, seed])
            signs = EVEN.copy()
            signs[rng.choice(10, changed, replace=False)] *= -1
            labels = rng.permutation(signs[shown]) if name.startswith("shuffled") else signs[shown]
            found[i, seed] = _errors(jax.random.key(seed), images, target, jnp.asarray(labels), samples, steps)
    return {
        "": xr.Dataset(
            {"error": (("source", "seed", "learner", "samples"), found)},
            {"source": list(SOURCES), "learner": ["source's features", "random features", "both layers"],
             "samples": list(samples)},
        )
    }  # fmt: skip


def draw_digits(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    own = table.error.sel(learner="source's features")
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained", sharey=True)
    for axis, learner in zip(axes, ("random features", "both layers"), strict=True):
        gain = table.error.sel(learner=learner) - own
        for source, colour in zip(table.source.values, COLOURS, strict=False):
            here = gain.sel(source=source)
            error = here.std("seed", ddof=1) / np.sqrt(here.sizes["seed"])
            axis.errorbar(
                table.samples, here.mean("seed"), error, fmt="o-", color=colour, label=str(source), markersize=4
            )
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        log_axis(axis.xaxis)
        axis.set(xlabel="target samples $n$")
        axis.set_title(f"gain over {learner}" + (" trained on the target" if learner == "both layers" else ""))
    axes[0].set(ylabel="gain in test error")
    axes[0].legend(title="source task", fontsize=8, title_fontsize=8)
    figure.suptitle("Handwritten digits, even or odd: a first layer learnt on a source task, frozen", fontsize=11)
    return figure


RECIPES = {
    "transfer-digits": Recipe(
        digits,
        draw_digits,
        sentence="Gain of transfer between tasks on handwritten digits, against samples and similarity.",
    )
}
