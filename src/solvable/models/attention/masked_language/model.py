"""What do transformers learn from masked language modelling? Sequences of a planted Potts model, and four learners.

**Data.** Sequences of L sites and C colours, P(s) ∝ exp(β Σ_{i<j} J_ij s_iᵀ U s_j), J ∈ {0, 1} on a sparse random graph (or
a ring), U a random symmetric matrix (or the identity of the standard Potts model). Gibbs samples; a run that has not mixed
is not used.

**Learners**, all trained to predict a masked colour from all others:

- `factored`: one layer of factored attention, logits_i = Σ_j A_ij V s_j, its map knowing positions only and its values
  colours only; exactly the form of the conditionals (Rende et al. 2024);
- `dense`: pseudo-likelihood with a coupling for every pair of sites and colours;
- `transformer`: an encoder with token and position vectors, whose map and values see both; `block = "bare"` is one
  attention layer and a linear head.

The penalty of the first two and the moment to stop the third are chosen on validation sequences: every learner at its best.

**Measured**: the masked loss on fresh sequences, its excess over the loss of the true conditionals on the same sequences
(no learner does better on average), and how well the learnt map shows J. There is no closed theory here (for factored
attention with known U there is one: `potts-attention`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.sequences.monte_carlo import sample
from solvable.methods.sequences.potts import (
    ManyBody,
    optimal_loss,
    random_graph,
    random_symmetric,
    ring,
    standard_potts,
    zero_sum_colours,
)
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
from solvable.model import Control, Count, Guard, Model, Reference, choice, control, observable

PENALTIES = (0.3, 1.0, 3.0, 10.0)
HELD_OUT = 2000
"""Validation sequences, and as many for the test."""


class Planted(NamedTuple):
    """A Potts model that generates sequences."""

    couplings: Float[Array, "L L"]
    colours: Float[Array, "C C"]
    law: ManyBody


def planted(
    instance: int,
    sites: int,
    colours: int,
    inverse_temperature: float,
    graph: str = "random",
    interaction: str = "random",
) -> Planted:
    """The instance of this number: J and U are drawn from it and nothing else.

    >>> planted(0, 20, 10, 1.0).couplings.shape
    (20, 20)
    """
    one, two = jax.random.split(jax.random.key(instance))
    matrix = ring(sites) if graph == "ring" else random_graph(one, sites, neighbours=2)
    mixed = standard_potts(colours) if interaction == "potts" else random_symmetric(two, colours)
    law = ManyBody.of_matrix(matrix, mixed.astype(jnp.float32), inverse_temperature)
    return Planted(matrix, mixed, law)


class Sequences(NamedTuple):
    """What the learners get: training sequences, those that choose penalties and stopping, those that judge."""

    train: Int[Array, "n L"]
    validation: Int[Array, "v L"]
    test: Int[Array, "t L"]
    optimal: float
    """Masked loss of the true conditionals on the test sequences."""
    apart: float
    """R̂ − 1 of the chains that drew them."""
    mixed: bool


def draw_sequences(key: PRNGKeyArray, data: Planted, number: int, held_out: int = HELD_OUT) -> Sequences:
    """Independent training, validation and test sequences."""
    drawn = sample(data.law, key, number + 2 * held_out)
    train, validation, test = jnp.split(drawn.sequences, [number, number + held_out])
    return Sequences(
        train, validation, test, float(optimal_loss(data.law, test)), float(drawn.mixing.r_hat) - 1, drawn.mixed
    )


# --- learners -----------------------------------------------------------------------------------------------------------


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


# --- what a learner knows -------------------------------------------------------------------------------------------------


def map_correlation(learnt: Float[np.ndarray, "L L"], couplings: Float[np.ndarray, "L L"]) -> float:
    """Pearson correlation between a map, both directions averaged, and J over all pairs of sites."""
    pairs = np.triu_indices(len(couplings), 1)
    together = (learnt + learnt.T)[pairs]
    spread = together.std()
    return float(np.corrcoef(together, couplings[pairs])[0, 1]) if spread > 0 else 0.0


def contact_precision(learnt: Float[np.ndarray, "L L"], couplings: Float[np.ndarray, "L L"]) -> float:
    """Share of true contacts among the highest entries of a map, as many as there are contacts."""
    pairs = np.triu_indices(len(couplings), 1)
    true = couplings[pairs] != 0
    chosen = np.argsort(-(learnt + learnt.T)[pairs], kind="stable")[: true.sum()]
    return float(true[chosen].mean())


def coupling_error(learnt: Float[np.ndarray, "L C L C"], data: Planted, inverse_temperature: float) -> float:
    """Relative error |Ŵ − βJ⊗U|/|βJ⊗U| in zero-sum gauge."""
    true = inverse_temperature * np.einsum("ij,ab->iajb", data.couplings, zero_sum_colours(data.colours))
    return float(np.linalg.norm(learnt - true) / np.linalg.norm(true))


class MaskedLanguage(Model):
    """Masked language modelling of Potts sequences by factored attention, dense pseudo-likelihood and transformers.

    The `size` of a simulation is the number of training sequences.

    >>> import solvable as sv
    >>> seen = sv.MaskedLanguage(learner="factored").simulate(seed=0, size=2000)
    >>> bool(seen.excess_loss < 0.01), bool(seen.contact_precision == 1.0)
    (True, True)
    """

    id = "masked-language"
    title = "Masked language modelling of Potts sequences"
    family = "attention"
    sentence = "What transformers, factored attention and dense couplings learn from masked Potts sequences."
    method = "none closed; the optimal loss is exact"
    revision = 2
    runs = "host"
    typical_sizes = (500, 1000, 2000)
    simulation_seconds = 7.0
    simulation_growth = 1.0
    guard = Guard(values={"steps": 5, "sites": 6, "colours": 3}, size=50, seeds=2)
    references = (
        Reference(
            "rende2024mapping", "R. Rende, F. Gerace, A. Laio and S. Goldt",
            "Mapping of attention mechanisms to a generalized Potts model", 2024, "Phys. Rev. Research 6, 023057",
            arxiv="2304.07235"),
        Reference(
            "bhattacharya2020single", "N. Bhattacharya, N. Thomas, R. Rao, J. Dauparas, P. K. Koo, D. Baker, Y. S. Song "
            "and S. Ovchinnikov", "Single layers of attention suffice to predict protein contacts", 2020,
            "bioRxiv 2020.12.21.423882"),
    )  # fmt: skip

    inverse_temperature: Control = control(
        0.7, low=0.0, high=3.0, typical=(0.2, 1.0), symbol=r"\beta", meaning="strength of all interactions")  # fmt: skip
    rate: Control = control(
        2e-3, low=0.0, low_open=True, high=1.0, typical=(1e-4, 1e-2), scale="log", symbol=r"\eta",
        meaning="largest learning rate of Adam (transformer)")  # fmt: skip
    learner: str = choice("factored", options=("factored", "dense", "transformer"), meaning="what is trained")
    sites: int = choice(10, low=3, high=500, symbol="L", meaning="length of a sequence")
    colours: int = choice(5, low=2, high=50, symbol="C", meaning="number of colours")
    graph: str = choice(
        "random", options=("random", "ring"), symbol="J", meaning="who interacts: every site picks two, or a ring"
    )
    interaction: str = choice(
        "random", options=("random", "potts"), symbol="U",
        meaning="how colours interact: a Gaussian (X+Xᵀ)/2, or equal colours only")  # fmt: skip
    instance: int = choice(3, low=0, high=1_000_000, meaning="number of the draw of J and U")
    depth: int = choice(1, low=1, high=4, meaning="layers (transformer)")
    embedding: int = choice(32, low=1, high=512, meaning="length of token and position vectors (transformer)")
    heads: int = choice(1, low=1, high=16, symbol="H", meaning="attention heads (factored, transformer)")
    attention: str = choice(
        "free", options=("free", "softmax"), meaning="map of factored attention: any numbers, or rows of a softmax"
    )
    block: str = choice(
        "full", options=("full", "bare"), meaning="with residual, layer norm and MLP, or attention alone (transformer)"
    )
    steps: int = choice(1000, low=1, high=1_000_000, meaning="steps of Adam in batches of 256 (transformer)")

    observables_declared = (
        observable("test_loss", "masked cross-entropy on fresh sequences, nats per site", low=0, predicted=False),
        observable("optimal_loss", "the same for the true conditionals", low=0, predicted=False),
        observable("excess_loss", "test loss above the optimal one, on the same sequences", predicted=False),
        observable("train_loss", "masked cross-entropy of the training sequences", low=0, predicted=False),
        observable("map_correlation", "correlation of the learnt map with J over all pairs of sites", low=-1, high=1,
                   predicted=False),
        observable("contact_precision", "share of true contacts among the map's highest entries", low=0, high=1,
                   predicted=False),
        observable("coupling_error", "relative error of the couplings in zero-sum gauge", low=0, predicted=False,
                   when={"learner": ("factored", "dense")}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.embedding % self.heads and self.learner == "transformer":
            raise InvalidValue(f"heads = {self.heads} does not divide embedding = {self.embedding}.")

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        beta = float(self.inverse_temperature)
        data = _planted_once(self.instance, self.sites, self.colours, beta, self.graph, self.interaction)
        to_draw, to_learn = jax.random.split(key)
        drawn = draw_sequences(to_draw, data, size)
        if self.learner == "transformer":
            run = learn_transformers(
                drawn.train, [size], drawn.validation, drawn.test, self.colours, to_learn, width=self.embedding,
                depth=self.depth, heads=self.heads, block=self.block, steps=self.steps, rate=float(self.rate))  # fmt: skip
            learnt = Learnt(float(run.test_loss[0]), float(run.train_loss[0]), run.maps[0], None, None, True)
        else:
            options = {"heads": self.heads, "attention": self.attention} if self.learner == "factored" else {}
            learnt = learn_couplings(self.learner, drawn, self.colours, to_learn, **options)
        true = np.asarray(data.couplings)
        seen = {
            "test_loss": learnt.test_loss,
            "optimal_loss": drawn.optimal,
            "excess_loss": learnt.test_loss - drawn.optimal,
            "train_loss": learnt.train_loss,
            "map_correlation": map_correlation(learnt.map, true),
            "contact_precision": contact_precision(learnt.map, true),
        }
        if learnt.couplings is not None:
            seen["coupling_error"] = coupling_error(learnt.couplings, data, beta)
        return {n: jnp.asarray(v) for n, v in seen.items()} | {
            "converged": jnp.asarray(learnt.converged and drawn.mixed), "residual": jnp.asarray(drawn.apart)
        }  # fmt: skip


_planted_once = lru_cache(maxsize=16)(planted)
