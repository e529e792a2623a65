"""The learners: factored attention, dense pseudo-likelihood and transformers, each trained on one set of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from solvable.methods.sequences.potts import zero_sum_colours
from solvable.methods.sequences.pseudolikelihood import contact_scores, fit_dense, fit_factored, test_loss, zero_sum
from solvable.methods.training.loops import (
    Optimiser,
    evaluate,
    logits_at_hidden_site,
    masked_loss,
    one_site_loss,
    train,
)
from solvable.methods.training.transformers import Transformer

from .sequences import Sequences

POOL = 65536
"""Training sets are padded to this length times a power of 16, so that one compiled program serves many sizes."""


class Learnt(NamedTuple):
    """A trained learner, evaluated on the test sequences."""

    excess_loss: float
    """Mean divergence of its conditionals from the true ones: its expected loss above the optimum."""
    train_loss: float
    validation_loss: float
    map: Float[np.ndarray, "L L"]
    """How strongly each pair of sites interacts: the attention map, or contact scores of the couplings."""
    converged: bool = True
    colours: Float[np.ndarray, "C C"] | None = None
    """The learnt interaction of colours in zero-sum gauge, up to a factor (factored attention)."""
    couplings: Float[np.ndarray, "L C L C"] | None = None
    """In zero-sum gauge (factored attention, dense couplings)."""
    penalty: float = 0.0
    best_step: int = 0
    steps: Int[np.ndarray, " recorded"] | None = None
    curve: Float[np.ndarray, " recorded"] | None = None
    """Excess loss at the recorded steps (transformer)."""


def divergence(truth: Float[Array, "*rest C"], logits: Float[Array, "*rest C"]) -> Float[Array, ""]:
    """Mean of Σ_c p_c ln(p_c/q_c) for true logarithms ln p and the learner's logits of q.

    The average over the hidden colour is exact, which leaves far less noise than a difference of two losses.

    >>> float(divergence(jnp.log(jnp.array([[0.5, 0.5]])), jnp.array([[3.0, 3.0]])))
    0.0
    """
    return jnp.mean(jnp.sum(jnp.exp(truth) * (truth - jax.nn.log_softmax(logits, axis=-1)), axis=-1))


# --- couplings --------------------------------------------------------------------------------------------------------


def learn_couplings(
    kind: str, data: Sequences, colours: int, key: PRNGKeyArray, *, penalties: Sequence[float], **options: Any
) -> Learnt:
    """Fit factored attention or dense couplings at each penalty; return the fit with the lowest validation loss."""
    fits = []
    for penalty in penalties:
        if kind == "factored":
            fit = fit_factored(data.train, colours, key=key, penalty=penalty, fields=False, **options)
        else:
            fit = fit_dense(data.train, colours, penalty=penalty, dtype=jnp.float64, **options)
        fits.append((test_loss(fit, data.validation), penalty, fit))
    validation, penalty, fit = min(fits, key=lambda found: found[0])
    mixed, flip = None, 1.0
    if kind == "factored":
        _, couplings = fit.potts()
        maps = np.asarray(fit.network.attention_maps()[0])
        # A and V are known up to a common factor: choose the sign that makes the sum of the map positive.
        flip = -1.0 if maps.sum() < 0 else 1.0
        mixed = flip * np.asarray(zero_sum_colours(fit.network.values[0]))
    else:
        _, couplings = zero_sum(fit.fields, fit.couplings)
        maps = np.asarray(contact_scores(couplings))
    excess = float(divergence(data.truth, fit.logits(data.test).astype(data.truth.dtype)))
    return Learnt(
        excess,
        float(fit.loss),
        float(validation),
        flip * maps,
        bool(fit.converged),
        mixed,
        np.asarray(couplings),
        penalty,
    )


# --- transformers -----------------------------------------------------------------------------------------------------


class Trainee(eqx.Module):
    """A transformer, and which rows of the padded pool form its training set."""

    network: Transformer
    rows: Int[Array, ""]
    data: Int[Array, ""]
    """The index of its set of sequences, among several of equal length."""

    def __call__(self, tokens: Array, masked: Array) -> Array:
        return self.network(tokens, masked)

    def at_hidden_site(self, tokens: Array, hidden: Array) -> Array:
        return logits_at_hidden_site(self.network, tokens, hidden)


class OwnRows(eqx.Module):
    """Masked-language loss on a random batch of the trainee's own rows, one hidden site each."""

    batch: int = eqx.field(static=True)

    def __call__(self, trainee: Trainee, pools: Int[Array, "sets rows L"], key: PRNGKeyArray) -> Float[Array, ""]:
        pick, rest = jax.random.split(key)
        number = jax.random.bits(pick, (self.batch,), jnp.uint32) % trainee.rows.astype(jnp.uint32)
        return one_site_loss(trainee, pools[trainee.data, number.astype(jnp.int32)], rest)


def padded(sequences: Int[Array, "n L"]) -> Int[Array, "rows L"]:
    """The sequences followed by rows of zeros.

    >>> padded(jnp.ones((5000, 3), jnp.int8)).shape
    (65536, 3)
    """
    length = POOL
    while length < len(sequences):
        length *= 16
    return jnp.pad(sequences, ((0, length - len(sequences)), (0, 0)))


def recorded_steps(steps: int, number: int) -> Int[np.ndarray, " recorded"]:
    """Zero and `number` more steps, half geometrically and half equally spaced; small ones may repeat.

    >>> recorded_steps(1000, 6).tolist()
    [0, 1, 32, 333, 667, 1000, 1000]
    """
    early = np.geomspace(1, steps, number // 2).round() if number > 1 else np.zeros(0)
    late = np.linspace(0, steps, number - len(early) + 1)[1:].round()
    return np.sort(np.concatenate([[0], early, late])).astype(int)


def _evaluated(trainee: Trainee, held_out: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Loss on its validation sequences, and excess loss on its test sequences."""
    validation, test, truth = (one[trainee.data] for one in held_out)
    masks = jnp.eye(test.shape[1], dtype=bool)

    def of_one(sequence):
        tokens, truth = sequence
        return divergence(truth, jax.vmap(lambda hidden: trainee.at_hidden_site(tokens, hidden))(masks))

    excess = jnp.mean(jax.lax.map(of_one, (test, truth), batch_size=min(256, test.shape[0])))
    return masked_loss(trainee, validation, 256), excess


def learn_transformers(
    every: Sequence[Sequences],
    colours: int,
    keys: Key[Array, " sets"],
    *,
    width: int,
    depth: int,
    heads: int,
    block: str,
    positions: str,
    steps: int,
    batch: int,
    rate: float,
    recorded: int,
) -> list[Learnt]:
    """Train a transformer on each set of sequences, side by side, by Adam with warm-up and cosine decay.

    Each is evaluated at the recorded step with the lowest validation loss.
    """
    bare = {"mlp": 0, "layer_norm": False, "residual": False} if block == "bare" else {}
    starts, runs = jax.vmap(jax.random.split, out_axes=1)(keys)
    number, sites = every[0].train.shape
    options = {"width": width, "depth": depth, "heads": heads, "positions": positions, **bare}
    rows = jnp.full(len(every), number, jnp.int32)
    trainees = _made(starts, rows, colours, sites, tuple(options.items()))
    optimiser = Optimiser("adam", rate=rate, warmup=min(200, steps // 10), steps=steps)
    record = recorded_steps(steps, recorded)
    held_out = tuple(jnp.stack(one) for one in zip(*((d.validation, d.test, d.truth) for d in every), strict=True))
    run = train(
        trainees, OwnRows(batch), jnp.stack([padded(d.train) for d in every]), optimiser, steps, runs,
        record=record, measure=_evaluated, held_out=held_out, precision="default",
    )  # fmt: skip
    maps = evaluate(run.network, _mean_map, held_out[1][:, :200], True)
    found = []
    for lane in range(len(every)):
        on_validation, excess = (seen[:, lane] for seen in run.measures)
        best = int(np.nanargmin(on_validation)) if np.isfinite(on_validation).any() else 0
        learnt = Learnt(
            float(excess[best]), float(run.losses[best, lane]), float(on_validation[best]), np.asarray(maps[lane]),
            bool(np.isfinite(excess[best])), best_step=int(run.steps[best]), steps=record,
            curve=excess[np.searchsorted(run.steps, record)],
        )  # fmt: skip
        found.append(learnt)
    return found


@eqx.filter_jit
def _made(
    keys: Key[Array, " sets"], rows: Array, colours: int, sites: int, options: tuple[tuple[str, Any], ...]
) -> Trainee:
    def one(key, rows, data):
        return Trainee(Transformer(colours, sites, **dict(options), key=key), rows, data)

    return eqx.filter_vmap(one)(keys, rows, jnp.arange(len(rows), dtype=jnp.int32))


def _mean_map(trainee: Trainee, tests: Int[Array, "sets t L"]) -> Float[Array, "L L"]:
    """Attention of every site when it is masked, averaged over heads, layers and sequences."""
    network, sequences = trainee.network, tests[trainee.data]
    masks = jnp.eye(sequences.shape[1], dtype=bool)

    def of_one(tokens):
        def row(masked):  # the attention of the masked site
            maps = network.with_maps(tokens, masked)[1]
            return jnp.sum(jnp.where(masked[None, None, :, None], maps, 0.0), axis=2).mean((0, 1))

        return jax.vmap(row)(masks)

    return jnp.mean(jax.lax.map(of_one, sequences, batch_size=20), axis=0)
