"""Attacks on learners of handwritten digits: the strategies of the model, used unchanged on real images and deeper networks.

The clean label of an image is +1 for digits 5 to 9 and -1 for 0 to 4, and the target is its opposite, so that Δ² = 4. The learner
is linear, or has two hidden layers of ReLUs; it learns from clean labels first, then from attacked ones, on fresh random
images of the training set, by gradient descent on the squared error. Attacks are those of the model in its limit of small
rates, which needs only outputs and labels of the batch: constant a = 1/(1 + C), and greedy a = X/(CΔ²) with X the batch mean of
s (f - y^t). The control flips labels at random with probability 1/(1 + C)²: the mean price ½CΔ²<a²> is that of the
constant attack.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.data.digits import PIXELS, digit_images
from solvable.methods.flows.descent import descend

LEARNERS = {"linear": 0, "two hidden layers": 2}
ATTACKS = {
    "constant": ("constant", 1),
    "greedy, P = 1": ("greedy", 1),
    "greedy, P = 10": ("greedy", 10),
    "random flips": ("flips", 1),
}
TRAINED = 1200  # images of the training set; the other 597 are the test set
UNITS = 64
RATES = {
    0: 0.05,
    2: 0.64,
}  # over the number of pixels: the model's unit for the first; networks would diverge at larger ones
DIFFERENCE = 4.0  # Δ², the squared difference of clean and target labels
Layers = list[tuple[Array, Array]]


def network(key: PRNGKeyArray, hidden: int, inputs: int = PIXELS) -> Layers:
    """Random weights of variance two per fan-in, and zero biases; zero weights for the linear learner.

    >>> [w.shape for w, _ in network(jax.random.key(0), 2)]
    [(64, 64), (64, 64), (64, 1)]
    """
    sizes = [inputs, *[UNITS] * hidden, 1]
    keys, scale = jax.random.split(key, hidden + 1), math.sqrt(2.0) if hidden else 0.0
    return [
        (scale / math.sqrt(a) * jax.random.normal(k, (a, b), jnp.float32), jnp.zeros(b, jnp.float32))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def output(layers: Layers, x: Float[Array, "n pixels"]) -> Float[Array, " n"]:
    """f(x) of a batch."""
    for weights, shift in layers[:-1]:
        x = jax.nn.relu(x @ weights + shift[None, :])
    weights, shift = layers[-1]
    return (x @ weights + shift[None, :])[:, 0]


@partial(jax.jit, static_argnames=("hidden", "attack", "batch", "clean", "attacked", "windows", "trained"))
def attacked_errors(
    keys: Array, costs: Array, images: Array, labels: Array, *, hidden: int, attack: str, batch: int, clean: int,
    attacked: int, windows: int = 16, trained: int = TRAINED,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(costs, seeds): test error on clean labels before the attack, at its end, and the attacker's cost per step at its end.

    The end is the mean over the second half of the windows.
    """

    pixels = images.shape[1]

    def one(cost: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        split_key, start_key, walk = jax.random.split(key, 3)
        order = jax.random.permutation(split_key, images.shape[0])
        train, test = order[:trained], order[trained:]
        even, ones = 1 / (1 + cost), jnp.ones(batch, images.dtype)

        def step(number: Array, carry: tuple[Layers, Array], attacking: Array) -> tuple[Layers, Array]:
            layers, spent = carry
            draw, flip = jax.random.split(jax.random.fold_in(walk, number))
            rows = train[jax.random.randint(draw, (batch,), 0, trained)]
            x, y = images[rows], labels[rows]
            seen, pull = jax.vjp(lambda layers: output(layers, x), layers)
            if attack == "constant":
                action = even * ones
            elif attack == "greedy":
                action = jnp.mean(2 * y * (seen + y)) / (cost * DIFFERENCE) * ones
            else:
                action = (jax.random.uniform(flip, (batch,), images.dtype) < even**2).astype(images.dtype)
            action = attacking * action
            (slope,) = pull((seen - (1 - 2 * action) * y) / batch)
            layers = jax.tree.map(lambda w, g: w - RATES[hidden] / pixels * g, layers, slope)
            price = 0.5 * cost * DIFFERENCE * jnp.mean(action**2) + 0.5 * jnp.mean((seen + y) ** 2)
            return layers, spent + price

        def measure(carry: tuple[Layers, Array]) -> tuple[Array, Array]:
            seen = output(carry[0], images[test])
            wrong = jnp.mean((labels[test] * seen <= 0).astype(images.dtype))
            # a learner that has diverged has no error
            return jnp.where(jnp.all(jnp.isfinite(seen)), wrong, jnp.nan), carry[1]

        ends = jnp.asarray([clean, *(clean + attacked * np.arange(1, windows + 1) // windows)])
        start = (network(start_key, hidden, pixels), jnp.zeros((), images.dtype))
        run = descend(step, start, ends, measure, jnp.asarray([0.0, *[1.0] * windows], images.dtype))
        errors, spent = run.path
        late = windows // 2
        per_step = (spent[-1] - spent[late]) / (ends[-1] - ends[late]).astype(spent.dtype)
        return errors[0], jnp.mean(errors[late + 1 :]), per_step

    return jax.vmap(lambda cost: jax.vmap(lambda key: one(cost, key))(keys))(costs)


def attacks_on_digits(costs: Any, seeds: int, clean: int, attacked: int) -> dict[str, np.ndarray]:
    """Errors and costs, (learners, attacks, costs, seeds); all arms of a seed have the same images and start."""
    pictures, shown = digit_images()
    return attacks_on(pictures, np.where(shown >= 5, 1.0, -1.0), TRAINED, costs, seeds, clean, attacked)


def attacks_on(
    rows: np.ndarray, signs: np.ndarray, trained: int, costs: Any, seeds: int, clean: int, attacked: int
) -> dict[str, np.ndarray]:
    """The same on any rows with labels ±1, of which `trained` are learnt from and the others tested on."""
    images, labels = jnp.asarray(rows, jnp.float32), jnp.asarray(signs, jnp.float32)
    keys, prices = jax.random.split(jax.random.key(0), seeds), jnp.asarray(costs, jnp.float32)
    arms = [
        [
            attacked_errors(keys, prices, images, labels, hidden=hidden, attack=attack, batch=batch, clean=clean,
                            attacked=attacked, trained=trained)
            for attack, batch in ATTACKS.values()
        ]
        for hidden in LEARNERS.values()
    ]  # fmt: skip
    names = ("clean_error", "error", "cost_paid")
    return {name: np.asarray([[arm[i] for arm in row] for row in arms], float) for i, name in enumerate(names)}
