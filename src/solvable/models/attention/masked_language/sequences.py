"""Sequences of a planted Potts model: the law, the data sets, and scores of a learner's map."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.methods.sequences.monte_carlo import sample
from solvable.methods.sequences.potts import (
    ManyBody,
    conditionals,
    random_graph,
    random_symmetric,
    ring,
    standard_potts,
    zero_sum_colours,
)


class Planted(NamedTuple):
    """A Potts model that generates sequences."""

    couplings: Float[Array, "L L"]
    colours: Float[Array, "C C"]
    law: ManyBody


@lru_cache(maxsize=16)
def planted(
    instance: int,
    sites: int,
    colours: int,
    inverse_temperature: float,
    graph: str = "random",
    interaction: str = "random",
) -> Planted:
    """Draw J and U from the index of the instance.

    >>> planted(0, 20, 10, 1.0).couplings.shape
    (20, 20)
    """
    one, two = jax.random.split(jax.random.key(instance))
    matrix = ring(sites) if graph == "ring" else random_graph(one, sites, neighbours=2)
    mixed = standard_potts(colours) if interaction == "potts" else random_symmetric(two, colours)
    law = ManyBody.of_matrix(matrix, mixed.astype(jnp.float32), inverse_temperature)
    return Planted(matrix, mixed, law)


class Sequences(NamedTuple):
    """Sequences for training, for choosing penalties and stopping times, and for testing."""

    train: Int[Array, "n L"]
    validation: Int[Array, "v L"]
    test: Int[Array, "t L"]
    truth: Float[Array, "t L C"]
    """Logarithms of the true conditionals of every site of the test sequences."""
    optimal: float
    """Masked loss of the true conditionals: their mean entropy on the test sequences."""
    apart: float
    """R̂ − 1 of the chains that drew them."""
    mixed: bool


def draw_sequences(key: PRNGKeyArray, data: Planted, number: int, held_out: int) -> Sequences:
    """Draw `number` training sequences and `held_out` each for validation and test, all independent."""
    drawn = sample(data.law, key, number + 2 * held_out)
    train, validation, test = jnp.split(drawn.sequences, [number, number + held_out])
    truth = conditionals(data.law, test)
    optimal = -float(jnp.mean(jnp.sum(jnp.exp(truth) * truth, axis=-1)))
    return Sequences(train, validation, test, truth, optimal, float(drawn.mixing.r_hat) - 1, drawn.mixed)


_drawn: dict[Any, tuple[Planted, Sequences]] = {}
_drawing = Lock()


def shared_sequences(key: PRNGKeyArray, data: Planted, number: int, held_out: int) -> Sequences:
    """Draw sequences once for all learners with this key; the last sixteen sets are kept in memory."""
    name = (np.asarray(jax.random.key_data(key)).tobytes(), id(data), number, held_out)
    with _drawing:
        if name not in _drawn:
            _drawn[name] = data, draw_sequences(key, data, number, held_out)
            while len(_drawn) > 16:
                del _drawn[next(iter(_drawn))]
        return _drawn[name][1]


# --- scores of a learner ----------------------------------------------------------------------------------------------------


def map_correlation(learnt: Float[np.ndarray, "L L"], couplings: Float[np.ndarray, "L L"]) -> float:
    """Pearson correlation between a map, both directions averaged, and J over all pairs of sites."""
    pairs = np.triu_indices(len(couplings), 1)
    together = (learnt + learnt.T)[pairs]
    spread = together.std()
    return float(np.corrcoef(together, couplings[pairs])[0, 1]) if spread > 0 else 0.0


def contact_precision(learnt: Float[np.ndarray, "L L"], couplings: Float[np.ndarray, "L L"]) -> float:
    """Share of true contacts among the highest entries of a map, as many entries as there are contacts."""
    pairs = np.triu_indices(len(couplings), 1)
    true = couplings[pairs] != 0
    chosen = np.argsort(-(learnt + learnt.T)[pairs], kind="stable")[: true.sum()]
    return float(true[chosen].mean())


def coupling_error(learnt: Float[np.ndarray, "L C L C"], data: Planted, inverse_temperature: float) -> float:
    """Relative error |Ŵ − βJ⊗U|/|βJ⊗U| in zero-sum gauge."""
    true = inverse_temperature * np.einsum("ij,ab->iajb", data.couplings, zero_sum_colours(data.colours))
    return float(np.linalg.norm(learnt - true) / np.linalg.norm(true))
