r"""Two groups, a rule each, one or two logistic learners: the saddle point of the teacher-mixture model.

Group c = ±1 has share ρ_c, inputs x = c v/√d + √Δ_c z and labels y = sign(W_c·x/√d + β_c); |W_±|² = |v|² = d, and T is the Gram
matrix of (W_+, W_−, v) over d. A learner ŷ = sign(w·x/√d + b) is found by minimising Σ_μ k_{c,y} log(1 + e^{−y(w·x/√d + b)}) +
λ|w|²/2 over αd samples, b unpenalised. Either one learner sees both groups, or each group has its own and they are tied by
γ|w_+ − w_−|²/2. (Sarao Mannelli, Gerace, Rostamzadeh and Saglietti 2024, arXiv:2205.15935; derived independently.)

**Output side**, group c with its learner's Q = |w|²/d, m = w·v/d, R = w·W_c/d, V, b. The student's field on a sample left
out is ω = cm + b + √(Δ Q) ξ, the teacher's in units of √Δ is Gaussian with mean t = (c T_{cv} + β)/√Δ + (R/√Q) ξ and variance
s² = 1 − R²/Q, so P(y|ξ) = Φ(yt/s). The sample moves the field to prox, of width ΔV, and f = (prox − ω)/(ΔV):

    m̂_c = αρ c E f,   R̂_c = αρ√Δ ∫Dξ Σ_y y N(t; 0, s²) f,   q̂_c = αρΔ E f²,   V̂_c = −αρΔ E f′,

and Σ ρ E f = 0 over the groups of every bias.

**Input side.** With the rows h of (R̂_+, R̂_−, m̂) summed over the groups that a learner sees, Λ the matrix of the quadratic
penalty and G = (Λ + diag V̂)⁻¹:  (R_+, R_−, m) = G h T,  Q = diag G(h T hᵀ + diag q̂)G,  V = diag G.

The solver's unknowns, for every learner: its entries of h times G_kk, log(q̂ G_kk²), log V̂, b.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from solvable.methods.averages.quadrature import gaussian_panels
from solvable.methods.fixed_points.saddle import solve
from solvable.methods.risk.losses import Logistic

Scalar = Float[Array, ""]
Learner = Literal["single", "coupled", "shared"]
SIGNS = np.array([1.0, -1.0])


class Mixture(NamedTuple):
    """The data: shares ρ_c, Gram matrix T of (W_+, W_−, v), variances Δ_c, thresholds β_c of the rules."""

    share: Float[Array, " group"]
    gram: Float[Array, "3 3"]
    spread: Float[Array, " group"]
    threshold: Float[Array, " group"]


class Students(NamedTuple):
    """Order parameters of the learner of each group; `rest` is s² = 1 − R_c²/Q, computed without cancellation."""

    norm: Float[Array, " group"]
    overlap: Float[Array, "group rule"]
    shift: Float[Array, " group"]
    bias: Float[Array, " group"]
    response: Float[Array, " group"]
    rest: Float[Array, " group"]
    residual: Scalar
    converged: Bool[Array, ""]


class _Hats(NamedTuple):
    """Conjugates per sample of each group; `force` and `stiffness` are E f and −E f′."""

    shift: Array
    overlap: Array
    norm: Array
    response: Array
    force: Array
    stiffness: Array


def gram_matrix(similarity: Scalar, tilts: Float[Array, " group"]) -> Float[Array, "3 3"]:
    """T from q_T = W_+·W_−/d and m_T = W_±·v/d.

    >>> gram_matrix(jnp.asarray(0.5), jnp.asarray([0.1, 0.2])).tolist()
    [[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]]
    """
    one = jnp.ones_like(similarity)
    rows = ((one, similarity, tilts[0]), (similarity, one, tilts[1]), (tilts[0], tilts[1], one))
    return jnp.stack([jnp.stack(row) for row in rows])


def _teach(mean: Scalar, deviation: Scalar, label: Scalar, slope: Scalar, width: Scalar, weight: Scalar, nodes: int):
    """∫Dξ of (f Φ, f N, f² Φ, −f′ Φ) for the label +1: ω = mean + deviation·ξ, Φ of (label + slope·ξ), N its density.

    f = (prox − ω)/width of the loss times `weight`. The label −1 is the same with mean and label reversed, f reversed.
    """
    loss, wide = Logistic(), weight * width
    # The proximal map has three regimes, with crossovers of width one at ω = −kV and ω = log kV; the label adds a step.
    turns = jnp.concatenate([jnp.log1p(wide) + jnp.asarray([-6.0, 0.0, 8.0]), jnp.asarray([-8.0, 0.0, 6.0]) - wide])
    turns = jnp.concatenate([turns, jnp.stack([-jnp.minimum(80.0, 0.5 * wide), -0.5 * wide])])
    steep = jnp.maximum(jnp.abs(slope), 1e-3) * jnp.where(slope < 0, -1.0, 1.0)
    steps = jnp.clip((jnp.asarray([-7.0, 0.0, 7.0]) - label) / steep, -9.0, 9.0)
    breaks = jnp.concatenate([(turns - mean) / deviation, steps, jnp.asarray([-3.0, 3.0])])
    xi, mass = gaussian_panels(breaks, nodes)
    omega, one = mean + deviation * xi, jnp.ones_like(xi)
    prox = loss.prox(one, omega, wide * one)
    curvature = weight * loss.curvature(one, prox)
    force = weight * jax.nn.sigmoid(-prox)  # −kℓ′(prox), equal to (prox − ω)/V but without cancellation
    argument = label + slope * xi
    chance = mass * ndtr(argument)
    density = mass * jnp.exp(-0.5 * argument**2) / np.sqrt(2 * np.pi)
    return jnp.stack(
        [chance @ force, density @ force, chance @ force**2, chance @ (curvature / (1 + width * curvature))]
    )


def _output(mixture: Mixture, students: Students, weights: Float[Array, "group label"], nodes: int) -> _Hats:
    """The equations of the output side, per sample of each group (without αρ)."""
    signs, root = jnp.asarray(SIGNS), jnp.sqrt(mixture.spread)
    own = jnp.stack([students.overlap[0, 0], students.overlap[1, 1]])
    spread = jnp.sqrt(students.rest)
    mean = signs * students.shift + students.bias
    deviation = root * jnp.sqrt(students.norm)
    tilt = jnp.stack([mixture.gram[0, 2], mixture.gram[1, 2]])
    label = (signs * tilt + mixture.threshold) / (root * spread)
    slope = own / (jnp.sqrt(students.norm) * spread)
    width = mixture.spread * students.response
    # Rows: (+, −1), (+, +1), (−, −1), (−, +1). Reversing ω and the label's field maps the label −1 to +1.
    y = jnp.asarray([-1.0, 1.0, -1.0, 1.0])
    twice = [jnp.repeat(x, 2) for x in (mean, deviation, label, slope, width)]
    found = jax.vmap(partial(_teach, nodes=nodes))(
        y * twice[0], twice[1], y * twice[2], twice[3], twice[4], weights.reshape(-1)
    )
    force, step, square, stiff = found.reshape(2, 2, 4).transpose(2, 0, 1)
    force = force[:, 1] - force[:, 0]
    return _Hats(
        shift=signs * force,
        overlap=root / spread * jnp.sum(step, axis=1),
        norm=mixture.spread * jnp.sum(square, axis=1),
        response=mixture.spread * jnp.sum(stiff, axis=1),
        force=force,
        stiffness=jnp.sum(stiff, axis=1),
    )


def _resolvent(learner: Learner, penalty: Scalar, coupling: Scalar, v: Float[Array, " k"]) -> Float[Array, "k k"]:
    """G = (Λ + diag V̂)⁻¹, without cancellation for any coupling."""
    if learner == "single":
        return (1 / (penalty + v))[:, None]
    if learner == "shared":  # γ → ∞: one w pays the penalty of two
        return jnp.full((2, 2), 1 / (2 * penalty + jnp.sum(v)))
    a = penalty + v
    entries = jnp.stack([a[1] + coupling, coupling, coupling, a[0] + coupling]).reshape(2, 2)
    return entries / (a[0] * a[1] + coupling * (a[0] + a[1]))


def _read(learner: Learner, mixture: Mixture, penalty: Scalar, coupling: Scalar, x: Array) -> Students:
    """Order parameters from the solver's unknowns: the equations of the input side."""
    gram, nan = mixture.gram, jnp.asarray(jnp.nan)
    rows = x.reshape(1, 6) if learner == "single" else x.reshape(2, 5)
    known = rows.shape[1] - 3
    resolvent = _resolvent(learner, penalty, coupling, jnp.exp(rows[:, known + 1]))
    ratio = resolvent / jnp.diagonal(resolvent)[None, :]  # G_kj/G_jj
    if learner == "single":
        h = rows[:, :3]
    else:
        zero = jnp.zeros_like(x[0])
        h = jnp.stack([jnp.stack([rows[0, 0], zero, rows[0, 1]]), jnp.stack([zero, rows[1, 0], rows[1, 1]])])
    coefficients = ratio @ h  # w = Σ coefficients (W_+, W_−, v) + a part orthogonal to all three
    noise = ratio**2 @ jnp.exp(rows[:, known])
    overlaps = coefficients @ gram
    if learner == "single":
        coefficients, overlaps = jnp.tile(coefficients, (2, 1)), jnp.tile(overlaps, (2, 1))
        noise, bias, response = (jnp.tile(a, 2) for a in (noise, rows[:, known + 2], jnp.diagonal(resolvent)))
    else:
        bias, response = rows[:, known + 2], jnp.diagonal(resolvent)
    # Q − R_c² is the squared part of w orthogonal to W_c: a quadratic form in the other two coefficients.
    q, m = gram[0, 1], gram[:2, 2]
    cross = jnp.stack([m[1] - q * m[0], m[0] - q * m[1]])
    other = jnp.stack([coefficients[0, 1], coefficients[1, 0]])
    across = (1 - q) * (1 + q) * other**2 + 2 * cross * other * coefficients[:, 2]
    across = across + (1 - m) * (1 + m) * coefficients[:, 2] ** 2
    own = jnp.stack([overlaps[0, 0], overlaps[1, 1]])
    open_part = jnp.maximum(across, 0.0) + noise
    norm = own**2 + open_part
    return Students(norm, overlaps[:, :2], overlaps[:, 2], bias, response, open_part / norm, nan, jnp.asarray(False))


def _write(learner: Learner, penalty: Scalar, coupling: Scalar, hats: _Hats, bias: Array) -> Array:
    """The solver's unknowns from the conjugates (times αρ_c), with a Newton step for each bias."""
    if learner == "single":
        v = jnp.sum(hats.response)[None]
        h = jnp.concatenate([hats.overlap, jnp.sum(hats.shift)[None]])[None, :]
        norm, step = jnp.sum(hats.norm)[None], (jnp.sum(hats.force) / jnp.sum(hats.stiffness))[None]
        bias = bias[:1]
    else:
        v, h = hats.response, jnp.stack([hats.overlap, hats.shift], axis=1)
        norm, step = hats.norm, hats.force / hats.stiffness
    g = jnp.diagonal(_resolvent(learner, penalty, coupling, v))
    rest = jnp.stack([jnp.log(norm * g**2), jnp.log(v), bias + step], axis=1)
    return jnp.concatenate([h * g[:, None], rest], axis=1).reshape(-1)


def mixture_students(
    learner: Learner,
    mixture: Mixture,
    samples: Scalar,
    penalty: Scalar,
    coupling: Scalar,
    weights: Float[Array, "group label"],
    *,
    nodes: int = 16,
    tolerance: float = 1e-11,
    max_steps: int = 600,
) -> Students:
    """Logistic learners of a teacher mixture: `single`, `coupled` (γ = 0: independent), `shared` (one w, two biases).

    >>> same_rule = gram_matrix(jnp.asarray(1.0), jnp.zeros(2))
    >>> data = Mixture(jnp.full(2, 0.5), same_rule, jnp.ones(2), jnp.zeros(2))
    >>> one = jnp.ones(())
    >>> found = mixture_students("single", data, 2 * one, 0.1 * one, one, jnp.ones((2, 2)))
    >>> bool(found.converged), found.bias.round(6).tolist()
    (True, [0.0, 0.0])
    """

    def update(x, args):
        mixture, samples, penalty, coupling, weights = args
        students = _read(learner, mixture, penalty, coupling, x)
        seen = samples * mixture.share
        hats = jax.tree.map(lambda a: seen * a, _output(mixture, students, weights, nodes))
        return _write(learner, penalty, coupling, hats, students.bias)

    args = (mixture, samples, penalty, coupling, weights)
    start = _start(learner, mixture, samples, penalty, coupling, weights)
    found = solve(update, start, args, tolerance=tolerance, max_steps=max_steps)
    students = _read(learner, mixture, penalty, coupling, found.x)
    return students._replace(residual=found.residual, converged=found.converged)


def _start(learner, mixture, samples, penalty, coupling, weights) -> Array:
    """The first step of gradient descent from zero at a curvature of 1/4; exact for strong penalties."""
    seen, mean = samples * mixture.share, jnp.mean(weights, axis=1)
    stiff = 0.25 * seen * mean / (1 + 0.25 * mean / (0.1 + penalty))
    pull = 0.4 * seen * mean * jnp.sqrt(mixture.spread)
    force, zero = 0.25 * seen * mean**2 * mixture.spread, jnp.zeros(2)
    hats = _Hats(zero, pull, force, stiff * mixture.spread, zero, stiff)
    return _write(learner, penalty + 0.05, coupling, hats, zero)
