"""Transfer between tasks on handwritten digits: gain of a source's first layer, for like and unlike sources.

A task is a grouping of the ten digits into two groups of five. The source is the target's own grouping, one that differs by
one or two exchanged pairs of digits (label correlation 0.6, 0.2), the target's grouping of images with permuted pixels (an
unrelated manifold), or a grouping whose training labels are shuffled. As in the model, a network of tanh units learns the
source, its first layer is frozen, and a last layer is learnt on a few other images with the target's labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.data.digits import digit_images
from solvable.methods.data.own import own_table
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, log_axis, standard_error

from .model import SCRATCH_STEPS
from .networks import random_network, train_network

SOURCES = {
    "same task": {"exchanged": 0},
    "one pair exchanged": {"exchanged": 1},
    "two pairs exchanged": {"exchanged": 2},
    "pixels permuted": {"exchanged": 0, "permuted": True},
    "labels shuffled": {"exchanged": 0, "shuffled": True},
}
SAMPLES = (10, 20, 40, 80, 160, 320)
SOURCE_IMAGES, UNITS, EPOCHS, RATE, PENALTY = 900, 128, 60, 0.02, 0.05
LEAST = 200
"""Rows that a table of the reader's must have: half of them are the source's, a third at most is tested on."""


@partial(jax.jit, static_argnames=("samples", "taught_on", "kinds"))
def _errors(keys: Array, images: Array, shown: Array, exchanged: Array, permuted: Array, shuffled: Array,
            samples: tuple[int, ...], taught_on: int = SOURCE_IMAGES, kinds: int = 10) -> Array:  # fmt: skip
    """Test errors (seeds, learners, samples): the source's features, random features, both layers trained on the target."""
    most, pixels, half = max(samples), images.shape[1], kinds // 2
    loss = loss_named("logistic")

    def one(key: Array) -> Array:
        order_key, group_key, pixel_key, label_key, start_key, walk_key = jax.random.split(key, 6)
        order = jax.random.permutation(order_key, images.shape[0])
        x, digits = images[order], shown[order]
        place = jnp.argsort(jax.random.permutation(group_key, kinds))  # the first half are one group
        target = jnp.where(place < half, 1.0, -1.0)
        source = jnp.where((place % half < exchanged) & (place < 2 * half), -target, target)
        labels = target[digits]
        rest, few, test = (
            slice(0, taught_on),
            slice(taught_on, taught_on + most),
            slice(taught_on + most, None),
        )
        pixel = jnp.where(permuted, jax.random.permutation(pixel_key, pixels), jnp.arange(pixels))
        taught = source[digits][rest]
        taught = jnp.where(shuffled, jax.random.permutation(label_key, taught), taught)
        starts = [random_network(k, UNITS, pixels, jnp.float32) for k in jax.random.split(start_key, 3)]
        walks = jax.random.split(walk_key)
        seen, rate = x[rest][:, pixel].astype(jnp.float32), jnp.asarray(RATE, jnp.float32)
        steps = EPOCHS * taught_on // 100
        learnt = train_network(walks[0], starts[0], seen, taught.astype(jnp.float32), taught_on, rate, steps)

        def wrong(outputs: Array) -> Array:
            return jnp.mean((labels[test] * outputs <= 0).astype(float))

        def relearn(first: Array, number: Array) -> Array:
            features = jnp.tanh(x @ first.astype(float).T) / math.sqrt(UNITS)
            mask = (jnp.arange(most) < number).astype(float)
            fit = minimise_risk(loss, features[few], labels[few], jnp.asarray(PENALTY), mask)
            return wrong(features[test] @ fit.weights)

        def scratch(number: Array) -> Array:
            y = labels.astype(jnp.float32)
            inputs = x.astype(jnp.float32)
            network = train_network(walks[1], starts[2], inputs[few], y[few], number, rate, SCRATCH_STEPS)
            return wrong(network(inputs[test]))

        numbers = jnp.asarray(samples)
        return jnp.stack([
            jax.lax.map(lambda n: relearn(learnt.first, n), numbers),
            jax.lax.map(lambda n: relearn(starts[1].first, n), numbers),
            jax.lax.map(scratch, numbers),
        ])  # fmt: skip

    return jax.vmap(one)(keys)


def on_digits(quick: bool) -> dict[str, Any]:
    sources = dict(list(SOURCES.items())[:2]) if quick else SOURCES
    samples, seeds = ((20, 80), 2) if quick else (SAMPLES, 96)
    pictures, shown = digit_images()
    return {"": _runs(pictures, shown, sources, samples, seeds, SOURCE_IMAGES, 10)}


def on_own(quick: bool, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same on rows X of at least four classes y: tasks are groupings of the classes into two halves."""
    table = own_table(arrays, least_rows=LEAST, least_classes=4)
    kinds, number = int(table.classes.max()) + 1, len(table.rows)
    sources = {name: how for name, how in SOURCES.items() if 2 * how["exchanged"] <= kinds // 2}
    samples = tuple(n for n in SAMPLES if n <= number // 5)
    found = _runs(table.rows, table.classes, sources, samples, 2 if quick else 96, number // 2, kinds)
    return {"": found.assign_attrs(inputs=f"{number} rows of your own, {kinds} classes in two groups")}


def _runs(
    rows: Any, classes: Any, sources: Any, samples: tuple[int, ...], seeds: int, taught_on: int, kinds: int
) -> Any:
    import xarray as xr

    keys = jax.random.split(jax.random.key(0), seeds)  # targets and images are the same for every source
    found = [
        _errors(keys, jnp.asarray(rows), jnp.asarray(classes), jnp.asarray(how["exchanged"]),
                jnp.asarray(how.get("permuted", False)), jnp.asarray(how.get("shuffled", False)), samples, taught_on, kinds)
        for how in sources.values()
    ]  # fmt: skip
    coords = {"source": list(sources), "learner": ["source", "random", "scratch"], "samples": np.asarray(samples)}
    return xr.Dataset({"error": (("source", "seed", "learner", "samples"), np.asarray(found, float))}, coords)


def draw_on_digits(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    errors = data[""].error
    figure, axes = plt.subplots(1, 3, figsize=(12.8, 4.0), layout="constrained")
    _points(axes[0], errors.sel(learner="random").mean("source"), color=INK, fmt="x--", label="random features")
    _points(axes[0], errors.sel(learner="scratch").mean("source"), color="0.5", fmt="d:", label="both layers trained")
    for source, colour, marker in zip(errors.source.values, COLOURS, MARKERS, strict=False):
        own = errors.sel(source=source, learner="source")
        _points(axes[0], own, color=colour, fmt=f"{marker}-", label=f"source: {source}")
        for axis, other in zip(axes[1:], ("random", "scratch"), strict=True):
            _points(axis, errors.sel(source=source, learner=other) - own, color=colour, fmt=f"{marker}-", label=source)
    axes[0].set(ylabel="test error on the target", ylim=(0, None))
    inputs = data[""].attrs.get("inputs", "digits in two groups of five")
    axes[0].set_title(inputs)
    axes[0].legend(fontsize=7.5)
    axes[1].set(ylabel="gain over random features, in error")
    axes[1].set_title("gain over random features")
    axes[2].set(ylabel="gain over both layers trained, in error")
    axes[2].set_title("gain over training both layers on the target")
    for axis in axes:
        axis.set(xlabel="training images of the target, $n$")
        log_axis(axis.xaxis)
    for axis in axes[1:]:
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
    where = "real data" if "own" in inputs else "digits"
    figure.suptitle(
        f"Transfer between tasks on {where}: like sources against unlike ones, permuted pixels and shuffled labels",
        fontsize=11,
    )
    return figure


def _points(axis: Any, runs: Any, **look: Any) -> None:
    error = standard_error(runs)
    axis.errorbar(runs.samples, runs.mean("seed"), error, markersize=4.5, linewidth=1, **look)


RECIPES = {
    "transfer-digits": Recipe(
        on_digits,
        draw_on_digits,
        sentence="Gain of a first layer learnt on a grouping of digits, by similarity of the source: the model's "
        "signs on real data.",
        own=on_own,
    )
}
