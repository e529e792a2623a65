"""A convolutional denoiser on images of two classes of unequal variance and share: when is each learnt, when memorised?

scikit-learn's digits (8 × 8 pixels): class 1 are the digits below five, class 2 the others, each centred and scaled to a variance
per pixel of its own. A small U-Net (convolutions of 3 × 3 at 8 × 8, 4 × 4 and 2 × 2 pixels with skip connections) predicts the
noise of a noised image at one diffusion time, trained by Adam with fresh noise in every step. Losses per pixel of every class
are measured on the training images and on images never seen, at chosen steps, with the same noise throughout.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.data.digits import digit_images
from solvable.methods.training.adam import Moments, adam_step, no_moments

SIDE, BATCH, TESTED, COPIES = 8, 64, 128, 2
Layer = dict[str, Array]


def two_classes() -> tuple[np.ndarray, np.ndarray]:
    """Images of the two classes as rows, each class of mean zero and mean variance one per pixel.

    >>> [part.shape[1] for part in two_classes()]
    [64, 64]
    """
    images, shown = digit_images()
    parts = [images[shown < 5], images[shown >= 5]]
    centred = [part - part.mean(axis=0) for part in parts]
    first, second = (part / np.sqrt(np.mean(part**2)) for part in centred)
    return first, second


def _layer(key: PRNGKeyArray, inside: int, outside: int) -> Layer:
    scale = float(np.sqrt(2 / (9 * inside)))
    return {
        "w": scale * jax.random.normal(key, (9 * inside, outside), jnp.float32),
        "b": jnp.zeros(outside, jnp.float32),
    }


def draw_network(key: PRNGKeyArray, channels: int) -> dict[str, Layer]:
    """A U-Net whose last layer starts at zero."""
    c = channels
    shapes = {"enter": (1, c), "down1": (c, 2 * c), "down2": (2 * c, 2 * c), "middle": (2 * c, 2 * c),
              "up2": (4 * c, 2 * c), "up1": (3 * c, c), "leave": (c, 1)}  # fmt: skip
    keys = jax.random.split(key, len(shapes))
    layers = {name: _layer(k, *shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}
    return {**layers, "leave": jax.tree.map(jnp.zeros_like, layers["leave"])}


def neighbours(h: Float[Array, "n side side c"]) -> Float[Array, "n side side c9"]:
    """The 3 × 3 pixels around every pixel, side by side; zeros beyond the edge.

    A convolution is then a product with a matrix, and many networks trained side by side stay a batch of products.

    >>> neighbours(jnp.ones((1, 8, 8, 2))).shape
    (1, 8, 8, 18)
    """
    side = h.shape[1]
    padded = jnp.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([padded[:, i : i + side, j : j + side] for i in range(3) for j in range(3)], axis=-1)


def denoise(network: dict[str, Layer], x: Float[Array, "n pixels"]) -> Float[Array, "n pixels"]:
    """The noise that the network sees in images."""

    def convolve(name: str, x: Array) -> Array:
        return neighbours(x) @ network[name]["w"] + network[name]["b"][None, None, None]

    def halve(x: Array) -> Array:
        n, side, _, c = x.shape
        return jnp.mean(x.reshape(n, side // 2, 2, side // 2, 2, c), axis=(2, 4))

    def double(x: Array) -> Array:
        return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)

    fine = jax.nn.silu(convolve("enter", x.reshape(-1, SIDE, SIDE, 1)))
    half = jax.nn.silu(convolve("down1", halve(fine)))
    low = jax.nn.silu(convolve("middle", jax.nn.silu(convolve("down2", halve(half)))))
    half = jax.nn.silu(convolve("up2", jnp.concatenate([double(low), half], axis=-1)))
    fine = jax.nn.silu(convolve("up1", jnp.concatenate([double(half), fine], axis=-1)))
    return convolve("leave", fine).reshape(x.shape)


@partial(jax.jit, static_argnames=("time", "samples", "steps", "channels", "rate", "records"))
def losses(
    key: PRNGKeyArray,
    spreads: Float[Array, "2"],
    share: Float[Array, ""],
    *,
    time: float,
    samples: int,
    steps: int,
    channels: int = 16,
    rate: float = 1e-3,
    records: int = 40,
) -> dict[str, Array]:
    """Train and test losses (record, class) of one network, per pixel; without training they are one.

    >>> spreads, share = jnp.asarray([0.5, 2.0], jnp.float32), jnp.asarray(0.5, jnp.float32)
    >>> run = losses(jax.random.key(0), spreads, share, time=0.1, samples=32, steps=8, channels=4, records=3)
    >>> run["test_loss"].shape, bool(jnp.all(jnp.abs(run["test_loss"][0] - 1) < 0.1))
    ((3, 2), True)
    """
    to_order, to_network, to_noise, to_learn = jax.random.split(key, 4)
    keep, added = np.float32(np.exp(-time)), np.float32(-np.expm1(-2 * time))
    classes = two_classes()
    number = jnp.clip(jnp.rint(share * samples), 1, samples - 1).astype(jnp.int32)
    seen, held = [], []
    for c, (images, to) in enumerate(zip(classes, jax.random.split(to_order), strict=True)):
        rows = jnp.sqrt(spreads[c]) * jnp.asarray(images, jnp.float32)[jax.random.permutation(to, len(images))]
        seen.append(rows[:samples])
        held.append(rows[samples : samples + TESTED])
    # The first `number` training images are of the first class, the others of the second.
    place = jnp.arange(samples, dtype=jnp.int32)
    first = place < number
    data = jnp.where(first[:, None], seen[0], seen[1][jnp.where(first, 0, place - number)])
    network = draw_network(to_network, channels)
    noise = jax.random.normal(to_noise, (COPIES, max(samples, TESTED), SIDE * SIDE), jnp.float32)

    def each(network: Any, x: Array, xi: Array) -> Array:
        return jnp.mean((denoise(network, keep * x + jnp.sqrt(added) * xi) - xi) ** 2, axis=1)

    def measure(network: Any) -> dict[str, Array]:
        on_train = jnp.mean(jnp.stack([each(network, data, xi[:samples]) for xi in noise]), axis=0)
        on_test = [jnp.mean(jnp.stack([each(network, x, xi[:TESTED]) for xi in noise])) for x in held]
        weight = jnp.stack([first, ~first]).astype(jnp.float32)
        return {"train_loss": weight @ on_train / jnp.sum(weight, axis=1), "test_loss": jnp.stack(on_test)}

    def loss(network: Any, key: PRNGKeyArray) -> Array:
        to_pick, to_add = jax.random.split(key)
        chosen = data[jax.random.randint(to_pick, (BATCH,), 0, samples)]
        return jnp.mean(each(network, chosen, jax.random.normal(to_add, chosen.shape, jnp.float32)))

    def step(number: Array, state: tuple[Any, Moments]) -> tuple[Any, Moments]:
        network, moments = state
        slope = jax.grad(loss)(network, jax.random.fold_in(to_learn, number))
        return adam_step(network, moments, slope, (number + 1).astype(jnp.float32), rate)

    stops = jnp.asarray(steps_recorded(steps, records), jnp.int32)

    def record(state: Any, between: Array) -> tuple[Any, dict[str, Array]]:
        state = jax.lax.fori_loop(between[0], between[1], step, state)
        return state, measure(state[0])

    between = jnp.stack([jnp.concatenate([stops[:1], stops[:-1]]), stops], axis=1)
    return jax.lax.scan(record, (network, no_moments(network)), between)[1]


def steps_recorded(steps: int, records: int) -> np.ndarray:
    """The steps after which losses are measured: 0, then evenly spaced in their logarithm (repeated where they coincide)."""
    return np.concatenate([[0], np.geomspace(1, steps, records - 1).round()]).astype(int)


ARMS = {
    "variances 0.5 and 2, equal shares": ((0.5, 2.0), 0.5),
    "variances 0.5 and 2, share 0.9": ((0.5, 2.0), 0.9),
    "variances 2 and 0.5, equal shares": ((2.0, 0.5), 0.5),
    "equal variances, equal shares": ((1.0, 1.0), 0.5),
    "equal variances, share 0.9": ((1.0, 1.0), 0.9),
}
"""Variances of the two classes, and the share of the first one."""


def clocks_of(data: Any) -> Any:
    """Steps after which a class is half-way to its lowest test loss, and after which half of its final gap is reached.

    Between records, losses are interpolated in the logarithm of the step; a class that is never learnt has NaN.
    """
    import xarray as xr

    log_step = np.log(np.maximum(data.step.values, 0.5))

    def first(values: np.ndarray, goal: float) -> float:
        above = np.flatnonzero(values >= goal)
        if not len(above) or above[0] == 0:
            return np.nan
        i = above[0]
        part = (goal - values[i - 1]) / (values[i] - values[i - 1])
        return float(np.exp(log_step[i - 1] + part * (log_step[i] - log_step[i - 1])))

    def learning(test: np.ndarray) -> float:
        drop = test[0] - test
        return first(drop, 0.5 * drop.max())

    def memorisation(test: np.ndarray, train: np.ndarray) -> float:
        gap = (test - test[0]) - (train - train[0])
        return first(gap, 0.5 * gap[-1])

    found = {}
    for name, rule, inputs in (("learning_time", learning, ("test_loss",)),
                               ("memorisation_time", memorisation, ("test_loss", "train_loss"))):  # fmt: skip
        each = [data[n] for n in inputs]
        found[name] = xr.apply_ufunc(rule, *each, input_core_dims=[["step"]] * len(each), vectorize=True)
    return xr.Dataset(found)


def curves(seeds: int, **shape: Any) -> Any:
    """Losses of all arms as a dataset over arm, seed, record and class; an arm's networks are trained side by side."""
    import xarray as xr

    keys = jax.random.split(jax.random.key(0), seeds)
    run = jax.vmap(partial(losses, **shape), (0, None, None))
    each = [run(keys, jnp.asarray(spreads, jnp.float32), jnp.float32(share)) for spreads, share in ARMS.values()]
    found = {name: np.stack([np.asarray(arm[name]) for arm in each]) for name in each[0]}
    steps = steps_recorded(shape["steps"], shape.get("records", 40))
    dims = ("arm", "seed", "step", "group")
    coords = {"arm": list(ARMS), "step": steps, "group": [1, 2]}
    return xr.Dataset({name: (dims, value) for name, value in found.items()}, coords).assign_attrs(shape)
