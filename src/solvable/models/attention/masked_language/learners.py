"""The learners: factored attention, dense pseudo-likelihood, and transformers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.methods.sequences.potts import zero_sum_colours
from solvable.methods.sequences.pseudolikelihood import contact_scores, fit_dense, fit_factored, test_loss, zero_sum
from solvable.methods.training.loops import (
    Optimiser,
    geometric_steps,
    logits_at_hidden_site,
    masked_loss,
    one_site_loss,
    train,
)
from solvable.methods.training.transformers import Transformer

from .sequences import Sequences

PENALTIES = (0.3, 1.0, 3.0, 10.0)


class Learnt(NamedTuple):
    """A trained learner on the test sequences."""

    test_loss: float
    train_loss: float
    map: Float[np.ndarray, "L L"]
    """How strongly each pair of sites is seen to interact: contact scores of the couplings, or mean attention."""
    colours: Float[np.ndarray, "C C"] | None
    """The learnt interaction of colours in zero-sum gauge (factored attention only), up to a factor."""
    couplings: Float[np.ndarray, "L C L C"] | None
    converged: bool
    penalty: float = 0.0


def learn_couplings(
    kind: str,
    data: Sequences,
    colours: int,
    key: PRNGKeyArray,
    *,
    penalties: Sequence[float] = PENALTIES,
    **options: Any,
) -> Learnt:
    """Factored attention or dense pseudo-likelihood, at the penalty of the least validation loss."""
    fits = []
    for penalty in penalties:
        if kind == "factored":
            fit = fit_factored(data.train, colours, key=key, penalty=penalty, fields=False, **options)
        else:
            fit = fit_dense(data.train, colours, penalty=penalty, dtype=jnp.float64, **options)
        fits.append((test_loss(fit, data.validation), penalty, fit))
    _, penalty, fit = min(fits, key=lambda found: found[0])
    if kind == "factored":
        _, couplings = fit.potts()
        maps = np.asarray(fit.network.attention_maps()[0])
        mixed = np.asarray(zero_sum_colours(fit.network.values[0]))
    else:
        _, couplings = zero_sum(fit.fields, fit.couplings)
        maps, mixed = np.asarray(contact_scores(couplings)), None
    # A and V are known up to a common factor: the map is shown with the sign that makes its sum positive.
    flip = -1.0 if kind == "factored" and maps.sum() < 0 else 1.0
    mixed = None if mixed is None else flip * mixed
    return Learnt(
        test_loss(fit, data.test),
        float(fit.loss),
        flip * maps,
        mixed,
        np.asarray(couplings),
        bool(fit.converged),
        penalty,
    )


class Trainee(eqx.Module):
    """A transformer and the rows of the pool that it may see: replicas with training sets of different size share one
    program."""

    network: Transformer
    first: Int[Array, ""]
    rows: Int[Array, ""]

    def __call__(self, tokens: Array, masked: Array) -> Array:
        return self.network(tokens, masked)

    def at_hidden_site(self, tokens: Array, hidden: Array) -> Array:
        return logits_at_hidden_site(self.network, tokens, hidden)


class OwnRows(eqx.Module):
    """Masked-language loss on a batch of the trainee's own rows, one hidden site each."""

    batch: int = eqx.field(static=True)

    def __call__(self, trainee: Trainee, pool: Int[Array, "rows L"], key: PRNGKeyArray) -> Float[Array, ""]:
        pick, rest = jax.random.split(key)
        number = jax.random.bits(pick, (self.batch,), jnp.uint32) % trainee.rows.astype(jnp.uint32)
        return one_site_loss(trainee, pool[trainee.first + number.astype(jnp.int32)], rest)


def _held_out_losses(trainee: Trainee, held_out: tuple[Array, Array]) -> tuple[Array, Array]:
    return masked_loss(trainee, held_out[0]), masked_loss(trainee, held_out[1])


class Transformers(NamedTuple):
    """Replicas of a transformer after training, each at its best validation loss."""

    test_loss: Float[np.ndarray, " replicas"]
    train_loss: Float[np.ndarray, " replicas"]
    validation_loss: Float[np.ndarray, " replicas"]
    best_step: Int[np.ndarray, " replicas"]
    steps: Int[np.ndarray, " recorded"]
    curve: Float[np.ndarray, "recorded replicas"]
    """Test loss at every recorded step."""
    maps: Float[np.ndarray, "replicas L L"]
    """Attention of site i when it is masked, averaged over heads, layers and test sequences (end of the training)."""


def learn_transformers(
    pool: Int[Array, "rows L"],
    rows: Sequence[int],
    validation: Int[Array, "v L"],
    test: Int[Array, "t L"],
    colours: int,
    key: PRNGKeyArray,
    *,
    first: Sequence[int] | None = None,
    width: int,
    depth: int,
    heads: int = 1,
    block: str = "full",
    steps: int = 5000,
    batch: int = 256,
    rate: float = 2e-3,
    recorded: int = 24,
) -> Transformers:
    """Train one replica per entry of `rows` (its number of training sequences), side by side: Adam with warm-up and
    cosine decay. Replica r sees `rows[r]` sequences of the pool, beginning at number `first[r]`."""
    replicas, sites = len(rows), pool.shape[1]
    first = [0] * replicas if first is None else first
    bare = {"mlp": 0, "layer_norm": False, "residual": False} if block == "bare" else {}
    start, run_keys = jax.random.split(key, (2, replicas))

    @eqx.filter_vmap
    def make(key, first, rows):
        network = Transformer(colours, sites, width=width, depth=depth, heads=heads, **bare, key=key)
        return Trainee(network, first, rows)

    trainees = make(start, jnp.asarray(first, jnp.int32), jnp.asarray(rows, jnp.int32))
    optimiser = Optimiser("adam", rate=rate, warmup=min(200, steps // 10), steps=steps)
    record = np.union1d(geometric_steps(steps, recorded // 2), np.linspace(0, steps, recorded // 2 + 1).round())
    run = train(
        trainees, OwnRows(batch), pool, optimiser, steps, run_keys,
        record=record, measure=_held_out_losses, held_out=(validation, test),
    )  # fmt: skip
    on_validation, on_test = run.measures
    best = np.nanargmin(on_validation, axis=0)
    replica = np.arange(replicas)
    maps = np.asarray(_mean_maps(run.network, test[:200]))
    return Transformers(
        on_test[best, replica], np.asarray(run.losses)[best, replica], on_validation[best, replica], run.steps[best],
        run.steps, on_test, maps,
    )  # fmt: skip


@eqx.filter_jit
def _mean_maps(trainees: Trainee, sequences: Int[Array, "t L"]) -> Float[Array, "replicas L L"]:
    masks = jnp.eye(sequences.shape[1], dtype=bool)

    def of_one(trainee, tokens):
        def row(masked):  # the attention of the masked site
            maps = trainee.network.with_maps(tokens, masked)[1]
            return jnp.sum(jnp.where(masked[None, None, :, None], maps, 0.0), axis=2).mean((0, 1))

        return jax.vmap(row)(masks)

    def of_replica(trainee):
        return jnp.mean(jax.lax.map(lambda tokens: of_one(trainee, tokens), sequences, batch_size=20), axis=0)

    return eqx.filter_vmap(of_replica)(trainees)
