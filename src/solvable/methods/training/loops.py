"""Mini-batch training of networks: one compiled program per shape, many seeds at once, measured at chosen steps.

A *loss* is a function `loss(network, data, key)` that draws its batch with the key; `MaskedTokens` and `NextToken` are
two for sequences of tokens. A *measure* is a function `measure(network, data)` of any quantity to be followed.
Functions are compared by identity: create them once (or as Equinox modules), and later runs are already compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

Predictor = Callable[[Array, Array], Array]
"""Maps the tokens of one sequence and the mask of hidden ones to logits at every site."""


# --- optimisers -------------------------------------------------------------------------------------------------------


class Optimiser(eqx.Module):
    """An optimiser: `"adam"`, `"sgd"` or `"momentum"`, with warm-up, cosine decay, clipping and weight decay.

    Rate, warm-up and length are arrays: changing them does not recompile.

    >>> optimiser = Optimiser("adam", rate=1e-3, warmup=2, steps=10)
    >>> [round(1e3 * float(optimiser.rate_at(jnp.asarray(t))), 3) for t in (0, 1, 5, 10)]
    [0.5, 0.976, 0.5, 0.0]
    """

    rate: Float[Array, ""]
    warmup: Float[Array, ""]
    steps: Float[Array, ""] | None
    kind: str = eqx.field(static=True)
    memory: tuple[float, float] = eqx.field(static=True)
    clip: float | None = eqx.field(static=True)
    decay: float = eqx.field(static=True)

    def __init__(
        self,
        kind: str = "adam",
        *,
        rate: Any,
        warmup: int = 0,
        steps: int | None = None,
        memory: tuple[float, float] = (0.9, 0.999),
        clip: float | None = None,
        decay: float = 0.0,
    ):
        """`steps` is the end of the cosine decay of the rate (None for a constant rate); `decay` is the weight decay."""
        if kind not in ("adam", "sgd", "momentum"):
            raise ValueError(f"optimiser {kind!r} is not one of 'adam', 'sgd', 'momentum'.")
        self.kind, self.memory, self.clip, self.decay = kind, memory, clip, decay
        self.rate, self.warmup = jnp.asarray(rate, jnp.float32), jnp.asarray(warmup, jnp.float32)
        self.steps = None if steps is None else jnp.asarray(steps, jnp.float32)

    def rate_at(self, step: Any) -> Float[Array, ""]:
        """The learning rate at a step: linear warm-up, times half a cosine."""
        time = jnp.asarray(step, jnp.float32)
        rate = self.rate * jnp.minimum(1.0, (time + 1.0) / jnp.maximum(self.warmup, 1.0))
        if self.steps is not None:
            rate = rate * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(time / self.steps, 1.0)))
        return rate

    def transformation(self) -> optax.GradientTransformation:
        """The same as an optax chain."""
        first, second = self.memory
        rule = {
            "adam": lambda: optax.scale_by_adam(b1=first, b2=second),
            "momentum": lambda: optax.trace(decay=first),
            "sgd": optax.identity,
        }[self.kind]()
        clip = [] if self.clip is None else [optax.clip_by_global_norm(self.clip)]
        decay = [optax.add_decayed_weights(self.decay, mask=_matrices)] if self.decay else []
        return optax.chain(*clip, rule, *decay, optax.scale_by_learning_rate(self.rate_at))


def _matrices(weights: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, weights)


# --- losses -----------------------------------------------------------------------------------------------------------


def cross_entropies(logits: Float[Array, "*rest colours"], tokens: Int[Array, "*rest"]) -> Float[Array, "*rest"]:
    """−ln of the probability that the logits assign to the tokens.

    >>> cross_entropies(jnp.zeros((1, 4)), jnp.asarray([2])).round(6).tolist()
    [1.386294]
    """
    here = jax.nn.one_hot(tokens.astype(jnp.int32), logits.shape[-1], dtype=logits.dtype)
    right = jnp.sum(here * logits, -1)
    return jax.nn.logsumexp(logits, -1) - right


def draw_rows(key: PRNGKeyArray, data: Int[Array, "rows sites"], number: int) -> Int[Array, "number sites"]:
    """Rows drawn with replacement."""
    return data[_below(key, number, data.shape[0])]


def draw_windows(key: PRNGKeyArray, text: Int[Array, " n"], number: int, length: int) -> Int[Array, "number length"]:
    """Windows of one long text, at uniformly drawn positions.

    >>> rows = draw_windows(jax.random.key(0), jnp.arange(100), 2, 4)
    >>> jnp.diff(rows, axis=1).tolist()
    [[1, 1, 1], [1, 1, 1]]
    """
    starts = _below(key, number, text.shape[0] - length + 1)
    return text[starts[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]]


def _below(key: PRNGKeyArray, number: int, limit: int) -> Array:
    """Integers below a limit, uniform up to limit/2³²; compiles in half the time of `jax.random.randint`."""
    return (jax.random.bits(key, (number,), jnp.uint32) % np.uint32(limit)).astype(jnp.int32)


def mask_one_site(key: PRNGKeyArray, sequences: Int[Array, "n sites"]) -> Bool[Array, "n sites"]:
    """Hide one random site of every sequence.

    >>> mask_one_site(jax.random.key(0), jnp.zeros((3, 5), int)).sum(1).tolist()
    [1, 1, 1]
    """
    number, sites = sequences.shape
    return jax.nn.one_hot(_below(key, number, sites), sites, dtype=bool)


def mask_fraction(key: PRNGKeyArray, sequences: Int[Array, "n sites"], fraction: float) -> Bool[Array, "n sites"]:
    """Hide each site with this probability, plus one site of every sequence, so that none is left complete."""
    here, there = jax.random.split(key)
    return (jax.random.uniform(here, sequences.shape) < fraction) | mask_one_site(there, sequences)


def logits_at_hidden_site(
    predict: Predictor, tokens: Int[Array, " sites"], hidden: Bool[Array, " sites"]
) -> Float[Array, " colours"]:
    """Logits at the one hidden site.

    Uses the network's method `at_hidden_site(tokens, hidden)`, which avoids the logits at all other sites, if it has one.
    """
    shortcut = getattr(predict, "at_hidden_site", None)
    if shortcut is not None:
        return shortcut(tokens, hidden)
    return jnp.sum(jnp.where(hidden[:, None], predict(tokens, hidden), 0.0), 0)


def one_site_loss(predict: Predictor, sequences: Int[Array, "n sites"], key: PRNGKeyArray) -> Float[Array, ""]:
    """The mean cross-entropy of one hidden token of every sequence, at a uniformly drawn site."""
    hidden = mask_one_site(key, sequences)
    logits = jax.vmap(lambda tokens, hidden: logits_at_hidden_site(predict, tokens, hidden))(sequences, hidden)
    return jnp.mean(cross_entropies(logits, jnp.sum(jnp.where(hidden, sequences, 0), 1)))


def masked_cross_entropy(
    network: Any, sequences: Int[Array, "n sites"], masked: Bool[Array, "n sites"]
) -> Float[Array, ""]:
    """The mean cross-entropy of the hidden tokens."""
    logits = jax.vmap(network)(sequences, masked)
    weight = masked.astype(logits.dtype)
    return jnp.sum(weight * cross_entropies(logits, sequences)) / jnp.sum(weight)


def next_token_loss(network: Any, sequences: Int[Array, "n sites"]) -> Float[Array, ""]:
    """The mean cross-entropy of every token but the first, given those before it (for causal networks)."""
    logits = jax.vmap(network)(sequences)
    return jnp.mean(cross_entropies(logits[:, :-1], sequences[:, 1:]))


class MaskedTokens(eqx.Module):
    """Masked-language loss on random batches: one hidden site per sequence, or a `fraction` of all sites."""

    batch: int = eqx.field(static=True)
    fraction: float | None = eqx.field(static=True, default=None)

    def __call__(self, network: Any, data: Int[Array, "rows sites"], key: PRNGKeyArray) -> Float[Array, ""]:
        rows_key, mask_key = jax.random.split(key)
        rows = draw_rows(rows_key, data, self.batch)
        if self.fraction is None:
            return one_site_loss(network, rows, mask_key)
        return masked_cross_entropy(network, rows, mask_fraction(mask_key, rows, self.fraction))


class NextToken(eqx.Module):
    """Next-token loss on random batches of rows."""

    batch: int = eqx.field(static=True)

    def __call__(self, network: Any, data: Int[Array, "rows sites"], key: PRNGKeyArray) -> Float[Array, ""]:
        return next_token_loss(network, draw_rows(key, data, self.batch))


def masked_loss(predict: Predictor, sequences: Int[Array, "n sites"], chunk: int = 64) -> Float[Array, ""]:
    """Mean cross-entropy of a token given all others, with every site of every sequence hidden once.

    `predict(tokens, masked)` gives logits at every site of one sequence; `chunk` sequences are processed at a time.

    >>> flat = lambda tokens, masked: jnp.zeros((4, 3))
    >>> round(float(masked_loss(flat, jnp.zeros((10, 4), int))), 6)     # ln 3
    1.098612
    """
    masks = jnp.eye(sequences.shape[1], dtype=bool)

    def of_one(tokens: Array) -> Array:
        logits = jax.vmap(lambda hidden: logits_at_hidden_site(predict, tokens, hidden))(masks)
        return jnp.mean(cross_entropies(logits, tokens))

    return jnp.mean(jax.lax.map(of_one, sequences, batch_size=min(chunk, sequences.shape[0])))


# --- training ---------------------------------------------------------------------------------------------------------


class Training(NamedTuple):
    """The trained network, and at every recorded step the mean loss since the previous one (NaN at step 0) and the measures.

    With replicas every array has a replica axis after that of the recorded steps.
    """

    network: Any
    steps: np.ndarray
    losses: np.ndarray
    measures: Any


def train(
    network: Any,
    loss: Callable[[Any, Any, Any], Array],
    data: PyTree,
    optimiser: Optimiser,
    steps: int,
    key: Key[Array, "*replicas"],
    *,
    record: Sequence[int] | np.ndarray | None = None,
    measure: Callable[[Any, Any], PyTree] | None = None,
    held_out: PyTree = None,
    say: Callable[[int, Any], None] | None = None,
    precision: str | None = None,
) -> Training:
    """Take `steps` optimiser steps of `loss(network, data, key)`, measuring on the way.

    **Arguments:**
    - `key`: one key; or an array of keys for as many replicas, trained side by side. Then every array of `network` has a
        leading replica axis (`eqx.filter_vmap(make)(keys)`); the data are shared.
    - `record`: the steps (0 is before the first) after which to record; by default after each of 20 equal parts.
    - `measure`: `measure(network, held_out)`, evaluated at every recorded step.
    - `say`: called with the step and the measures at every recorded step.
    - `precision`: of products of matrices in the steps (not in the measures), as in `jax.default_matmul_precision`.
        `"default"` lets a GPU round their factors to eleven bits, which makes steps several times faster.

    The same key gives the same weights, bit for bit, independent of what is recorded.

    >>> target = jnp.asarray([1.0, -2.0], jnp.float32)
    >>> square = lambda w, data, key: jnp.sum((w - data) ** 2)
    >>> run = train(jnp.zeros(2, jnp.float32), square, target, Optimiser("sgd", rate=0.1), 40, jax.random.key(0))
    >>> run.network.round(3).tolist()
    [1.0, -2.0]
    """
    wanted = np.linspace(0, steps, 21).round() if record is None else np.asarray(record)
    stops = np.unique(wanted[(wanted >= 0) & (wanted <= steps)].astype(int))
    state = _start(network, optimiser, key)
    before, losses, measures = 0, [], []
    for stop in [*stops, *([steps] if not len(stops) or stops[-1] < steps else [])]:
        network, state, total = _advance(network, state, loss, data, optimiser, key, int(before), int(stop), precision)
        if stop in stops:
            mean = np.asarray(total) / (stop - before) if stop > before else np.full_like(total, np.nan)
            seen = None if measure is None else jax.device_get(evaluate(network, measure, held_out, key.ndim > 0))
            losses.append(mean)
            measures.append(seen)
            if say is not None:
                say(int(stop), seen)
        before = stop
    gathered = None if measure is None else jax.tree.map(lambda *values: np.stack(values), *measures)
    return Training(network, stops, np.stack(losses) if losses else np.zeros(0), gathered)


def descend(
    network: Any,
    loss: Callable[[Any, Any, Any], Array],
    data: PyTree,
    optimiser: Optimiser,
    steps: Any,
    key: PRNGKeyArray,
) -> Any:
    """The network after `steps` steps, without records: `train` for use inside compiled and batched functions.

    The number of steps may be traced. The same key gives the same weights as `train`.

    >>> square = lambda w, data, key: jnp.sum((w - data) ** 2)
    >>> goals = jnp.asarray([[1.0], [-2.0]], jnp.float32)
    >>> of_one = lambda goal: descend(jnp.zeros(1, jnp.float32), square, goal, Optimiser("sgd", rate=0.1), 40, jax.random.key(0))
    >>> jax.vmap(of_one)(goals).round(3).tolist()
    [[1.0], [-2.0]]
    """
    state = _start(network, optimiser, key)
    span = (jnp.zeros((), jnp.int32), jnp.asarray(steps, jnp.int32))
    return _take(network, state, loss, data, optimiser, key, *span)[0]


def geometric_steps(steps: int, number: int = 20) -> np.ndarray:
    """About `number` steps from 1 to `steps`, evenly spaced in their logarithm, preceded by 0.

    >>> geometric_steps(100, 5).tolist()
    [0, 1, 3, 10, 32, 100]
    """
    return np.unique(np.concatenate([[0], np.geomspace(1, max(steps, 1), number).round()]).astype(int))


def evaluate(network: Any, measure: Callable[[Any, Any], PyTree], data: PyTree, replicas: bool = False) -> PyTree:
    """Evaluate `measure(network, data)` with the compiled program of `train`; with `replicas`, for each of them."""
    return _evaluate(network, measure, data, replicas)


@eqx.filter_jit
def _evaluate(network, measure, data, replicas):
    return _over_replicas(measure, replicas, [True, False])(network, data)


def _over_replicas(function: Any, replicas: bool, batched: Sequence[bool]) -> Any:
    """The function itself, or vmapped over its batched arguments."""
    if not replicas:
        return function
    return eqx.filter_vmap(function, in_axes=tuple(eqx.if_array(0) if b else None for b in batched))


@eqx.filter_jit
def _start(network, optimiser, key):
    def start(network):
        return optimiser.transformation().init(eqx.filter(network, eqx.is_inexact_array))

    return _over_replicas(start, key.ndim > 0, [True])(network)


ROUND = 64
"""Steps in one loop of fixed length: an accelerator need not ask the host after every step whether to go on."""


def _advance(network, state, loss, data, optimiser, key, begin, end, precision):
    """Take steps begin..end−1, on an accelerator mostly in rounds; return the sum of their losses too."""
    middle = end - (end - begin) % ROUND if jax.default_backend() != "cpu" else begin
    total = jnp.zeros(key.shape, jnp.float32)
    for first, last, length in ((begin, middle, ROUND), (middle, end, 1)):
        if last > first:
            span = (jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32))
            network, state, more = _take(network, state, loss, data, optimiser, key, *span, length, precision)
            total = total + more
    return network, state, total


@eqx.filter_jit
def _take(network, state, loss, data, optimiser, key, begin, end, length=1, precision=None):
    """Take steps begin..end−1 in rounds of `length`. Their number is not part of the program, so runs of any length share it."""
    rule = optimiser.transformation()

    def advance(network, state, key, data):
        weights, rest = eqx.partition(network, eqx.is_inexact_array)

        def step(t, carry):
            weights, state, total = carry
            now = jax.random.fold_in(key, t)
            value, slope = jax.value_and_grad(lambda w: loss(eqx.combine(w, rest), data, now))(weights)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes Python floats and integers
                moves, state = rule.update(slope, state, weights)
            return optax.apply_updates(weights, moves), state, total + value.astype(jnp.float32)

        def several(number, carry):
            first = begin + number * length
            return jax.lax.fori_loop(np.int32(0), np.int32(length), lambda t, carry: step(first + t, carry), carry)

        start = (weights, state, jnp.zeros((), jnp.float32))
        if length == 1:
            weights, state, total = jax.lax.fori_loop(begin, end, step, start)
        else:
            weights, state, total = jax.lax.fori_loop(np.int32(0), (end - begin) // length, several, start)
        return eqx.combine(weights, rest), state, total

    with jax.default_matmul_precision(precision) if precision else nullcontext():
        return _over_replicas(advance, key.ndim > 0, [True, True, True, False])(network, state, key, data)
