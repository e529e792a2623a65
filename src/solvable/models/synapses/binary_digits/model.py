r"""Deep networks of stochastic binary weights trained on handwritten digits: how deep they can be at given initial means.

**Data.** scikit-learn's digits, 8 × 8 pixels, ten classes; 1,200 images for training, drawn with the seed, and 597 for
testing. Pixels are centred and clipped to [−1, 1], mean square one half.

**Learner.** `depth` layers of width `size` and ten outputs, without biases; Adam descends on the cross-entropy of the
output fields on batches of 100. There are three ways of `training`:

- `surrogate`: the deterministic surrogate of `binary-initialisation` with tanh neurons. Means start at ±σ_m and stay in
  [−1, 1].
- `straight-through`: the binary network itself, fields divided by the root of the layer's width; gradients pass through
  sign(W) as through W, and through sign(h) as through h where |h| < 1. W starts at ±σ_m and stays in [−1, 1].
- `full precision`: tanh neurons and real weights, whose variance is one over the number of inputs at the start.

At the end the network is also *binarised*: weights sign(M), neurons sign(h), outputs by the largest field.

**Theory.** No closed theory. `binary-initialisation` gives the depth that signals reach before training, ξ_c =
−1/ln σ_m². The criterion of Schoenholz et al. (2017), that networks train up to about 6 ξ_c, is compared with the
measurements.

**Simulation.** The training itself; every seed draws its split, its network and its batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.methods.data.digits import digit_images
from solvable.methods.training.adam import adam_step, no_moments
from solvable.model import Control, Count, Guard, Model, choice, control, observable

from .._papers import CRITICAL_MEANS

TRAINED, BATCH, CLASSES = 1200, 100, 10


def images() -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [−1, 1] with mean square one half, and the digits they show.

    >>> round(float((images()[0] ** 2).mean()), 2), images()[0].shape
    (0.5, (1797, 64))
    """
    pixels, shown = digit_images()
    scale = 0.0
    wide = pixels / pixels.std()
    low, high = 0.1, 10.0
    for _ in range(60):  # find the scale at which clipped pixels have this mean square
        scale = math.sqrt(low * high)
        low, high = (scale, high) if np.mean(np.clip(scale * wide, -1, 1) ** 2) < 0.5 else (low, scale)
    return np.clip(scale * wide, -1, 1), shown


def forward_surrogate(means: tuple[Array, Array, Array], x: Array) -> Array:
    """Output fields of the surrogate, images along the first axis."""

    def field(M, x):
        return x @ M.T / jnp.sqrt(jnp.maximum(M.shape[1] - x**2 @ (M**2).T, 1e-3 * M.shape[1]))

    first, inner, last = means
    x = jnp.tanh(field(first, x))
    x, _ = jax.lax.scan(lambda x, M: (jnp.tanh(field(M, x)), None), x, inner)
    return field(last, x)


def forward_straight(weights: tuple[Array, Array, Array], x: Array) -> Array:
    """Output fields of the binary network, with the gradients of straight-through estimation."""

    def through(value, slope):  # `value`, with the gradient of `slope`
        return slope + jax.lax.stop_gradient(value - slope)

    def field(w, x):
        return x @ through(sign(w), w).T / math.sqrt(w.shape[1])

    def neuron(h):
        return through(sign(h), jnp.clip(h, -1.0, 1.0))

    first, inner, last = weights
    x = neuron(field(first, x))
    x, _ = jax.lax.scan(lambda x, w: (neuron(field(w, x)), None), x, inner)
    return field(last, x)


def forward_precise(weights: tuple[Array, Array, Array], x: Array) -> Array:
    """Output fields of a network with tanh neurons and real weights."""
    first, inner, last = weights
    x = jnp.tanh(x @ first.T)
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w.T), None), x, inner)
    return x @ last.T


def sign(v: Array) -> Array:
    """±1, and 1 at zero."""
    return jnp.where(v >= 0, 1.0, -1.0).astype(v.dtype)


def forward_binary(means: tuple[Array, Array, Array], x: Array) -> Array:
    """Output fields of the network with binarised weights."""
    first, inner, last = means
    x = sign(x @ sign(first).T)
    x, _ = jax.lax.scan(lambda x, M: (sign(x @ sign(M).T), None), x, inner)
    return x @ sign(last).T


class BinaryDigits(Model):
    """Accuracy of deep binary networks on digits after training through their surrogate, by depth and initial means.

    >>> import solvable as sv
    >>> seen = sv.BinaryDigits(variance=0.9, depth=2, steps=100).simulate(seed=0, size=32)
    >>> bool(seen.accuracy > 0.5)
    True
    """

    id = "binary-digits"
    title = "Binary networks trained on digits"
    family = "synapses"
    revision = 2
    sentence = (
        "Deep binary networks trained on handwritten digits through their surrogate: depth against initial means."
    )
    method = "no closed theory; compared with the depth scale of binary-initialisation"
    typical_sizes = (32, 64, 128)
    simulation_seconds = 2.5
    guard = Guard(values={"depth": 2, "steps": 20}, size=16, seeds=2)
    references = CRITICAL_MEANS

    variance: Control = control(
        0.9, low=0.0, low_open=True, high=1.0, typical=(0.1, 0.99), symbol=r"\sigma_m^2",
        meaning="square of the initial means ±σ_m", when={"training": ("surrogate", "straight-through")})  # fmt: skip
    rate: Control = control(
        0.003, low=0.0, low_open=True, high=1.0, typical=(3e-4, 3e-2), scale="log", symbol=r"\eta",
        meaning="learning rate of Adam")  # fmt: skip
    training: str = choice(
        "surrogate", options=("surrogate", "straight-through", "full precision"), meaning="the network that is trained"
    )
    depth: int = choice(5, low=2, high=1000, symbol="L", meaning="hidden layers")
    steps: int = choice(600, high=1_000_000, meaning="gradient steps on batches of 100 images")

    observables_declared = (
        observable("train_accuracy", "fraction of training images that the trained network classifies correctly", low=0, high=1,
                   predicted=False),
        observable("accuracy", "the same on test images", low=0, high=1, predicted=False),
        observable("binarised_accuracy", "the same for the binary network", low=0, high=1, predicted=False),
        observable("train_loss", "mean cross-entropy on the training images", low=0, predicted=False),
    )  # fmt: skip

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        to_split, to_build, to_learn = jax.random.split(key, 3)
        pixels, shown = images()
        order = jax.random.permutation(to_split, len(shown))
        x, y = jnp.asarray(pixels, dtype)[order], jnp.asarray(shown)[order]
        shapes = ((size, x.shape[1]), (self.depth - 1, size, size), (CLASSES, size))
        root = jnp.sqrt(self.variance.astype(dtype))
        keys = jax.random.split(to_build, 3)
        precise = self.training == "full precision"
        if precise:
            means = tuple(
                jax.random.normal(k, shape, dtype) / math.sqrt(shape[-1]) for k, shape in zip(keys, shapes, strict=True)
            )
        else:
            means = tuple(
                root * jnp.where(jax.random.bernoulli(k, 0.5, shape), 1.0, -1.0).astype(dtype)
                for k, shape in zip(keys, shapes, strict=True)
            )
        bound = math.inf if precise else 1.0
        forward = {"surrogate": forward_surrogate, "straight-through": forward_straight}.get(
            self.training, forward_precise
        )

        def loss(means, x, y):
            logits = forward(means, x)
            return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0])

        rate = self.rate.astype(dtype)

        def step(state, inputs):
            means, moments = state
            number, key = inputs
            chosen = jax.random.randint(key, (BATCH,), 0, TRAINED)
            gradient = jax.grad(loss)(means, x[chosen], y[chosen])
            moved, moments = adam_step(means, moments, gradient, number, rate)
            return (jax.tree.map(lambda w: jnp.clip(w, -bound, bound), moved), moments), None

        number = jnp.arange(1, self.steps + 1, dtype=dtype)
        (means, _), _ = jax.lax.scan(step, (means, no_moments(means)), (number, jax.random.split(to_learn, self.steps)))

        def right(logits, y):
            return jnp.mean((jnp.argmax(logits, axis=1).astype(y.dtype) == y).astype(dtype))

        train, test = (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:])
        return {
            "train_accuracy": right(forward(means, train[0]), train[1]),
            "accuracy": right(forward(means, test[0]), test[1]),
            "binarised_accuracy": right(forward_binary(means, test[0]), test[1]),
            "train_loss": loss(means, *train),
        }
