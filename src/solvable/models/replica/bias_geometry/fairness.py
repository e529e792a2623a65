"""Group fairness of a binary classifier, from the joint law of group, label and prediction; and the bivariate normal law.

Group c = +, − (index 0, 1), label y and prediction ŷ = −1, +1 (index 0, 1), where +1 is the favourable outcome. Everything
is a function of the table P(c, y, ŷ), whether predicted by a theory or counted on a test set. Differences and ratios are
signed, group + against group −; the unsigned definitions of fairness libraries are |difference| and min(r, 1/r).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, xlogy
from jaxtyping import Array, Float

from solvable.methods.averages.quadrature import legendre

Scalar = Float[Array, ""]
Table = Float[Array, "group=2 label=2 prediction=2"]


class Fairness(NamedTuple):
    """Rates of each group, their differences, and the information that a prediction carries about the group."""

    accuracy: Float[Array, " group"]
    selection_rate: Float[Array, " group"]
    true_positive_rate: Float[Array, " group"]
    false_positive_rate: Float[Array, " group"]
    precision: Float[Array, " group"]
    base_rate: Float[Array, " group"]
    test_error: Scalar
    accuracy_gap: Scalar
    accuracy_ratio: Scalar
    parity_difference: Scalar
    disparate_impact: Scalar
    opportunity_difference: Scalar
    odds_difference: Scalar
    predictive_difference: Scalar
    information: Scalar
    conditional_information: Scalar


def fairness(table: Table) -> Fairness:
    """Every measure of group fairness that depends on the table P(c, y, ŷ) alone.

    - accuracy P(ŷ = y | c), its difference and its ratio (overall accuracy equality);
    - selection rate P(ŷ = 1 | c): its difference (demographic or statistical parity), its ratio (disparate impact);
    - true and false positive rates P(ŷ = 1 | y = ±1, c): the difference of the first (equal opportunity; Hardt, Price and
      Srebro 2016), and the larger of both differences in absolute value (equalised odds);
    - precision P(y = 1 | ŷ = 1, c), its difference (predictive parity);
    - mutual informations I(ŷ; c) and I(ŷ; c | y), in nats: zero exactly at demographic parity, and at equalised odds.

    >>> table = jnp.asarray([[[0.2, 0.1], [0.1, 0.1]], [[0.2, 0.05], [0.05, 0.2]]])
    >>> result = fairness(table)
    >>> round(float(result.parity_difference), 4), round(float(result.opportunity_difference), 4)
    (-0.1, -0.3)
    """
    total = jnp.sum(table, axis=(1, 2))
    selected = jnp.sum(table[:, :, 1], axis=1)
    accuracy = (table[:, 0, 0] + table[:, 1, 1]) / total
    selection, base = selected / total, jnp.sum(table[:, 1, :], axis=1) / total
    rates = table[:, :, 1] / jnp.sum(table, axis=2)
    precision = table[:, 1, 1] / selected
    odds = rates[0] - rates[1]
    return Fairness(
        accuracy=accuracy,
        selection_rate=selection,
        true_positive_rate=rates[:, 1],
        false_positive_rate=rates[:, 0],
        precision=precision,
        base_rate=base,
        test_error=jnp.sum(table[:, 0, 1] + table[:, 1, 0]) / jnp.sum(table),
        accuracy_gap=accuracy[0] - accuracy[1],
        accuracy_ratio=accuracy[0] / accuracy[1],
        parity_difference=selection[0] - selection[1],
        disparate_impact=selection[0] / selection[1],
        opportunity_difference=odds[1],
        odds_difference=jnp.max(jnp.abs(odds)),
        predictive_difference=precision[0] - precision[1],
        information=_information(jnp.sum(table, axis=1)),
        conditional_information=_information(table[:, 0, :]) + _information(table[:, 1, :]),
    )


def _information(joint: Float[Array, "a b"]) -> Scalar:
    """Σ p log(p Σp / (p_a p_b)) in nats: the mutual information times the mass of the table."""
    rows, columns, mass = jnp.sum(joint, axis=1), jnp.sum(joint, axis=0), jnp.sum(joint)
    entropies = jnp.sum(xlogy(joint, joint)) + xlogy(mass, mass)
    return jnp.maximum(entropies - jnp.sum(xlogy(rows, rows)) - jnp.sum(xlogy(columns, columns)), 0.0)


def balancing_weights(table: Table) -> Float[Array, "group label"]:
    """P(c)P(y)/P(c, y): the weights under which group and label are independent (Kamiran and Calders 2012).

    >>> table = jnp.asarray([[[0.1, 0.1], [0.2, 0.2]], [[0.2, 0.0], [0.1, 0.1]]])
    >>> balancing_weights(table).round(3).tolist()
    [[1.2, 0.9], [0.8, 1.2]]
    """
    joint = jnp.sum(table, axis=2)
    groups, labels = jnp.sum(joint, axis=1), jnp.sum(joint, axis=0)
    return groups[:, None] * labels[None, :] / joint


# Angles at which panels begin, halving from π/2: below the last one, 1 − |r| < 1e-13.
_EDGES = np.append(0.5 * np.pi, 0.8 * 0.5 ** np.arange(22.0))


def bivariate_normal(h: Scalar, k: Scalar, correlation: Scalar, nodes: int = 16) -> Scalar:
    """Φ₂(h, k; r) = P(x < h, y < k) for standard Gaussians of correlation r, to 1e-14 for every r, with its gradient.

    Φ₂ = Φ(h)Φ(k) + (1/2π) ∫₀^{arcsin r} exp(−(h² + k² − 2hk sin θ)/(2cos²θ)) dθ. For |r| → 1 the integrand changes on the scale
    of cos θ (it is exp(−(h − k)²/(2cos²θ) − hk/(1 + sin θ))), so the Gauss–Legendre panels halve towards θ = π/2.

    >>> third = bivariate_normal(jnp.asarray(0.0), jnp.asarray(0.0), jnp.asarray(0.5))
    >>> bool(abs(third - 1 / 3) < 1e-15)
    True
    """
    sign = jnp.where(correlation < 0, -1.0, 1.0)
    r, k_up = sign * correlation, sign * k  # θ → −θ turns r into −r and k into −k
    last = jnp.arctan2(jnp.sqrt(jnp.maximum((1 - r) * (1 + r), 1e-30)), r)  # π/2 − arcsin r
    edges = jnp.maximum(jnp.asarray(_EDGES), last)
    u, weight = legendre(nodes)
    length = (edges[:-1] - edges[1:])[:, None]
    angle = edges[1:, None] + length * jnp.asarray(u)[None, :]
    cosine, sine = jnp.sin(angle), jnp.cos(angle)  # of θ = π/2 − angle
    density = jnp.exp(-0.5 * ((h - k_up) / cosine) ** 2 - h * k_up / (1 + sine))
    return ndtr(h) * ndtr(k) + sign * jnp.sum(length * jnp.asarray(weight)[None, :] * density) / (2 * np.pi)


def confusion(
    share: Float[Array, " group"],
    label: Float[Array, " group"],
    prediction: Float[Array, " group"],
    correlation: Float[Array, " group"],
) -> Table:
    """P(c, y, ŷ) where y and ŷ are the signs of two Gaussian fields.

    `label` and `prediction` are the means of the fields in units of their standard deviations, `correlation` is that between
    them, and `share` the fraction of each group.

    >>> half, zero = jnp.full(2, 0.5), jnp.zeros(2)
    >>> confusion(half, zero, zero, zero).ravel().tolist()
    [0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]
    """

    signs = jnp.asarray([-1.0, 1.0])
    shape = (2, 2, 2)
    a = jnp.broadcast_to(signs[None, :, None], shape).ravel()
    b = jnp.broadcast_to(signs[None, None, :], shape).ravel()
    h, k, r, part = (jnp.repeat(x, 4) for x in (label, prediction, correlation, share))
    # Each cell has its own orthant probability; the floor catches rounding where a cell is empty.
    cells = jax.vmap(bivariate_normal)(a * h, b * k, a * b * r)
    return (part * jnp.maximum(cells, 1e-30)).reshape(shape)
