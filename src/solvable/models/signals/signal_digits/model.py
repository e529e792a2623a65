r"""Transformers trained on handwritten digits: which depth, query/key strength and residual strength train.

**Data.** scikit-learn's digits, 8 × 8 pixels, ten classes, as sequences of T = 16 patches of 2 × 2 pixels; 1,200 images to
train on, drawn with the seed, and 597 for the test.

**Learner.** Patches are mapped to vectors of dimension d = `size` and added to positions, both N(0, 1) per entry; then
`depth` blocks of [signals through a transformer](transformer-signals.md): one head, scores of weights N(0, β (log T)^{1/2}/d),
values N(0, σ_v²/d), a ReLU MLP with weights N(0, σ_w²/d), residual strengths α_A and 1, normalisation after each sum or
before each branch, no biases; the mean over tokens, normalised, is read out by ten vectors that start at zero. Adam or
gradient descent on the cross-entropy, batches of 100.

**Theory.** None closed. That of `transformer-signals` gives the overlap of tokens after the last block at the start, which is
measured here too (`start_overlap`); whether it says which networks train is the question. So is whether networks whose queries
and keys have much smaller gradients than their values (`gradient_ratio`) need Adam.

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
from solvable.model import Control, Count, FirstView, Guard, Model, choice, control, observable

from .._papers import TWO_FAILURES

TRAINED, BATCH, CLASSES, TOKENS, PATCH = 1200, 100, 10, 16, 4


def patches() -> tuple[np.ndarray, np.ndarray]:
    """Images as 16 patches of 4 pixels, of mean square one, and their labels.

    >>> patches()[0].shape
    (1797, 16, 4)
    """
    images, labels = digit_images()
    tiles = images.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, TOKENS, PATCH)
    return tiles, labels


class SignalDigits(Model):
    """Loss and accuracy of transformers on digits after training, by depth, query/key strength and residual strength.

    >>> import solvable as sv
    >>> seen = sv.SignalDigits(depth=1, steps=60).simulate(seed=0, size=32)
    >>> bool(seen.train_accuracy > 0.3)
    True
    """

    id = "signal-digits"
    title = "Transformers trained on digits"
    family = "signals"
    sentence = "Transformers trained on digits over depth and query/key strength, beside the overlap at their start."
    method = "none closed; the recursion of transformer-signals beside it"
    typical_sizes = (32, 64, 128)
    simulation_seconds = 20.0
    first_view = FirstView(values={"depth": 2})
    guard = Guard(values={"depth": 1, "steps": 10}, size=16, seeds=2)
    references = (TWO_FAILURES,)
    paired = ("optimiser",)

    strength: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.1, 5.0), symbol=r"\beta",
        meaning="strength of queries and keys: their weights have variance β (log T)^{1/2}/d")  # fmt: skip
    attention_residual: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.2, 2.0), symbol=r"\alpha_A",
        meaning="residual strength beside the attention")  # fmt: skip
    value_variance: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.05, 2.0), symbol=r"\sigma_v^2",
        meaning="variance of the values' weights, times d")  # fmt: skip
    weight_variance: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.05, 4.0), symbol=r"\sigma_w^2",
        meaning="variance of the MLP's weights, times d")  # fmt: skip
    rate: Control = control(
        1e-3, low=0.0, low_open=True, high=10.0, typical=(1e-4, 1e-2), scale="log", symbol=r"\eta",
        meaning="learning rate")  # fmt: skip
    depth: int = choice(4, high=1000, symbol="L", meaning="number of blocks")
    steps: int = choice(400, high=1_000_000, meaning="gradient steps on batches of 100 images")
    layer_norm: str = choice(
        "after", options=("after", "before"), meaning="normalisation after each sum, or before each branch"
    )
    optimiser: str = choice("adam", options=("adam", "sgd"), meaning="Adam or plain gradient descent")

    observables_declared = (
        observable("train_loss", "mean cross-entropy on the training images", low=0, predicted=False),
        observable("train_accuracy", "fraction of training images classified correctly", low=0, high=1, predicted=False),
        observable("accuracy", "the same on images never trained on", low=0, high=1, predicted=False),
        observable("gradient_ratio", "logarithm of the squared gradient of the values' weights over that of queries and keys, "
                   "before training, of a random projection of the output", predicted=False),
        observable("start_overlap", "overlap of two tokens after the last block before training", symbol=r"\rho_L", low=-1,
                   high=1, predicted=False),
    )  # fmt: skip

    def _network(self, key: PRNGKeyArray, d: int, dtype: Any) -> dict[str, Array]:
        to_blocks, to_ends = jax.random.split(key)
        blocks = jax.random.normal(to_blocks, (self.depth, 5, d, d), dtype) / math.sqrt(d)
        sharp = jnp.sqrt(self.strength.astype(dtype) * math.sqrt(math.log(TOKENS)))
        v, w = jnp.sqrt(self.value_variance.astype(dtype)), jnp.sqrt(self.weight_variance.astype(dtype))
        scales = jnp.stack([sharp, sharp, v, w, w])[None, :, None, None]
        ends = jax.random.normal(to_ends, (PATCH + TOKENS, d), dtype)
        return {
            "blocks": scales * blocks,
            "embedding": ends[:PATCH] / math.sqrt(PATCH),
            "positions": ends[PATCH:],
            "readout": jnp.zeros((d, CLASSES), dtype),
        }

    def _tokens(self, network: dict[str, Array], x: Array) -> Array:
        """Tokens after the last block, for one image."""
        residual = self.attention_residual.astype(x.dtype)
        after = self.layer_norm == "after"

        def normalised(x):
            x = x - jnp.mean(x, axis=1, keepdims=True)
            return x / jnp.sqrt(jnp.mean(x**2, axis=1, keepdims=True) + 1e-12)

        def block(x, weights):
            queries, keys, values, first, second = weights
            inside = x if after else normalised(x)
            scores = (inside @ queries) @ (inside @ keys).T / math.sqrt(x.shape[1])
            x = jax.nn.softmax(scores, axis=1) @ inside @ values + residual * x
            x = normalised(x) if after else x
            inside = x if after else normalised(x)
            x = jax.nn.relu(inside @ first) @ second + x
            return normalised(x) if after else x, None

        x = normalised(x @ network["embedding"] + network["positions"])
        # Blocks are recomputed for gradients, so that deep networks fit in memory.
        return normalised(jax.lax.scan(jax.checkpoint(block), x, network["blocks"])[0])

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        to_split, to_build, to_learn = jax.random.split(key, 3)
        tiles, shown = patches()
        order = jax.random.permutation(to_split, len(shown))
        x, y = jnp.asarray(tiles, dtype)[order], jnp.asarray(shown)[order]
        network = self._network(to_build, size, dtype)

        def logits(network, x):
            tokens = jax.vmap(lambda one: self._tokens(network, one))(x)
            return jnp.mean(tokens, axis=1) @ network["readout"]

        def loss(network, x, y):
            out = logits(network, x)
            return jnp.mean(jax.nn.logsumexp(out, axis=1) - jnp.take_along_axis(out, y[:, None], axis=1)[:, 0])

        rate = self.rate.astype(dtype)

        def step(state, inputs):
            network, moments = state
            number, key = inputs
            chosen = jax.random.randint(key, (BATCH,), 0, TRAINED)
            gradient = jax.grad(loss)(network, x[chosen], y[chosen])
            if self.optimiser == "sgd":
                return (jax.tree.map(lambda w, g: w - rate * g, network, gradient), moments), None
            return adam_step(network, moments, gradient, number, rate), None

        def overlap(tokens):
            square, total = jnp.sum(tokens**2), jnp.sum(jnp.sum(tokens, axis=0) ** 2)
            return (total - square) / ((TOKENS - 1) * square)

        start = jnp.mean(jax.vmap(lambda one: overlap(self._tokens(network, one)))(x[:BATCH]))
        # The readout is zero at first, so that a random one is used for these gradients.
        readout = jax.random.normal(jax.random.fold_in(to_build, 1), (size, CLASSES), dtype)

        def shown_loss(blocks):
            return loss({**network, "blocks": blocks, "readout": readout / math.sqrt(size)}, x[:BATCH], y[:BATCH])

        squares = jnp.sum(jax.grad(shown_loss)(network["blocks"]) ** 2, axis=(0, 2, 3))
        number = jnp.arange(1, self.steps + 1, dtype=dtype)
        (network, _), _ = jax.lax.scan(
            step, (network, no_moments(network)), (number, jax.random.split(to_learn, self.steps))
        )
        parts = jnp.reshape(x[:TRAINED], (TRAINED // BATCH, BATCH, TOKENS, PATCH))
        trained = jax.lax.map(lambda part: logits(network, part), parts).reshape(TRAINED, CLASSES)
        tested = logits(network, x[TRAINED:])

        def right(out, y):
            return jnp.mean((jnp.argmax(out, axis=1).astype(y.dtype) == y).astype(dtype))

        chosen = jnp.take_along_axis(trained, y[:TRAINED, None], axis=1)[:, 0]
        return {
            "train_loss": jnp.mean(jax.nn.logsumexp(trained, axis=1) - chosen),
            "train_accuracy": right(trained, y[:TRAINED]),
            "accuracy": right(tested, y[TRAINED:]),
            "gradient_ratio": jnp.log(squares[2] / (0.5 * (squares[0] + squares[1]))),
            "start_overlap": start,
        }
