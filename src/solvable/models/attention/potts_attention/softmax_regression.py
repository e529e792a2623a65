"""Softmax regression in high dimension: its proximal operator, Gaussian averages over it, and the risk minimiser.

**Channel.** C classes; the learner's logits are Bh with loadings B (one row per class) and a field h of r components. A
sample of class y, drawn with probability p(y), has the field ω = s·B_y + √q ξ before it is learnt (a Gaussian mixture
whose means are the loadings) and

    h = argmin_h  log Σ_a exp(Bh)_a − (Bh)_y + |h − ω|²/(2V)

after. Nodes of an average are the *last* axis here, so that operations on small matrices are elementwise over many nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from solvable.methods.data.parts import equal_parts, parts_of
from solvable.methods.fixed_points.linear_algebra import solve_positive
from solvable.methods.risk.erm import Fit

Scalar = Float[Array, ""]

TOGETHER = 1024  # nodes handled at once: their matrices fit into the processor cache
RADIUS = 7.0  # the mass of a standard Gaussian beyond it is 3e-12 in one dimension, 1e-10 in three


class Channel(eqx.Module):
    """Loadings B and probabilities p(y) of the classes.

    **Arguments:**
    - `symmetric`: all classes are equivalent (BBᵀ is a multiple of the centred identity): one class represents all, and a
        Newton step costs C operations instead of a linear solve.
    """

    loadings: Float[Array, "classes rank"]
    shares: Float[Array, " classes"]
    symmetric: bool = eqx.field(static=True, default=False)

    @property
    def scale(self) -> Scalar:
        """κ of equivalent classes, BBᵀ = κ(1 − 11ᵀ/C)."""
        return jnp.sum(self.loadings**2) / (self.loadings.shape[0] - 1)


def alike(classes: int) -> Float[Array, "classes rank"]:
    """Loadings of equivalent classes, BBᵀ = 1 − 11ᵀ/C: Helmert contrasts, each class against those after it.

    >>> (3 * alike(3) @ alike(3).T).round(4).tolist()
    [[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0], [-1.0, -1.0, 2.0]]
    """
    contrasts = np.tril(np.full((classes, classes - 1), -1.0), -1)
    contrasts[np.arange(classes - 1), np.arange(classes - 1)] = np.arange(classes - 1, 0, -1)
    return jnp.asarray(contrasts / np.linalg.norm(contrasts, axis=0))


class Conjugates(NamedTuple):
    """Conjugates per sample, with the force g = Bᵀ(e_y − p): E B_y·g, E|g|², E tr H(1+VH)⁻¹, H = Bᵀ(diag p − ppᵀ)B."""

    overlap: Scalar
    norm: Scalar
    response: Scalar


# --- Gaussian averages --------------------------------------------------------------------------------------------------


@cache
def gaussian_nodes(rank: int, nodes: int, mirrored: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(rank, n)` and weights of an average over a standard Gaussian of `rank` components.

    `mirrored`: the function is even in the last component, and nodes where that is negative are omitted.

    Up to three components: the trapezoidal rule on a cubic lattice cut to a ball of radius 7, with 12, 1 and ½ times
    `nodes` per side for one, two and three components. For a function analytic in a strip of half-width a (in standard
    deviations) its error falls like exp(−2πa·side/14), against exp(−a√(2·side)) for Gauss–Hermite. From four components on:
    Sobol points, 64 times `nodes` rounded up to a power of two, with their mirror images and exact first and second moments;
    errors of 1e-4 to 2e-3, the larger ones for oscillating functions.

    >>> x, w = gaussian_nodes(2, 40)
    >>> bool(abs(w @ np.cos(x[0] + x[1]) - np.exp(-1)) < 1e-8)
    True
    """
    if rank <= 3:
        side = np.linspace(-RADIUS, RADIUS, _side(rank, nodes) + 1)
        x = np.stack([g.reshape(-1) for g in np.meshgrid(*[side] * rank, indexing="ij")])
        square = (x**2).sum(0)
        x, square = x[:, square <= RADIUS**2 + 1e-9], square[square <= RADIUS**2 + 1e-9]
        weights = np.exp(-0.5 * square)
        if mirrored:
            kept = x[-1] > -1e-9
            x, weights = x[:, kept], (np.where(x[-1] > 1e-9, 2.0, 1.0) * weights)[kept]
        return x, weights / weights.sum()
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    power, bits = int(np.ceil(np.log2(64 * nodes))), 30
    whole = (Sobol(rank, scramble=False, bits=bits).random_base2(power) * 2**bits).astype(np.int64)
    # Apply a fixed digital shift, because unshifted Sobol points cluster along the diagonal.
    whole = whole ^ np.random.default_rng(1).integers(2**bits, size=rank)[None, :]
    u = (whole + 0.5) / 2**bits
    x = ndtri(u).T
    x = np.linalg.solve(np.linalg.cholesky(x @ x.T / x.shape[1]), x)
    return np.concatenate([x, -x], axis=1), np.full(2 * x.shape[1], 0.5 / x.shape[1])


def _side(rank: int, nodes: int) -> int:
    """Lattice points per side."""
    return (12 * nodes, nodes, nodes // 2)[rank - 1]


def resolved(channel: Channel, q: Scalar, nodes: int) -> Bool[Array, ""]:
    """Whether the nodes are dense enough for fields of this variance: neighbours differ by at most 3 in any logit.

    If the classes are nearly separable and the weights are not penalised, q grows without bound and the softmax becomes a
    step; averages over it then appear converged but are not. (Sobol points count as a spacing of 0.2.)
    """
    B = channel.loadings
    spacing = 2 * RADIUS / _side(B.shape[1], nodes) if B.shape[1] <= 3 else 0.2 * 64 / nodes
    steepest = jnp.sqrt(jnp.max(jnp.sum((B[:, None, :] - B[None, :, :]) ** 2, axis=2)))
    return spacing * jnp.sqrt(q) * steepest < 3


def _turned(channel: Channel) -> Channel:
    """A channel of equivalent classes in the coordinates of Helmert contrasts.

    The first component separates the first class from the others and the last one separates the last two classes, so that
    averages of the first class are even in it.
    """
    if not channel.symmetric:
        return channel
    return Channel(jnp.sqrt(channel.scale) * alike(channel.loadings.shape[0]), channel.shares, symmetric=True)


def _classes(channel: Channel) -> tuple[Float[Array, "kinds classes"], Float[Array, " kinds"]]:
    """One-hot labels of the classes to average over, with their shares."""
    labels = jnp.eye(channel.loadings.shape[0])
    return (labels[:1], jnp.ones(1)) if channel.symmetric else (labels, channel.shares)


def _average(
    channel: Channel, shift: Scalar, q: Scalar, nodes: int, values: Callable[[Array, Array], Array]
) -> Float[Array, " values"]:
    """Average of `values(label, ω)`, an array `(values, n)`, over classes and fields.

    Nodes are processed sequentially in chunks that fit into the cache, so that each solver within `values` stops as soon as its
    own chunk has converged.
    """
    labels, shares = _classes(channel)
    rank = channel.loadings.shape[1]
    x, weights = gaussian_nodes(rank, nodes, mirrored=channel.symmetric and rank > 1)
    parts = parts_of(len(weights), TOGETHER)
    x = jnp.asarray(equal_parts(x.T, parts).swapaxes(1, 2))  # part × rank × node
    weights = jnp.asarray(equal_parts(weights, parts))

    def of_class(label):
        centre = shift * (label @ channel.loadings)

        def of_part(part):
            nodes, weights = part
            return values(label, centre[:, None] + jnp.sqrt(q) * nodes) @ weights

        return jnp.sum(jax.lax.map(of_part, (x, weights)), axis=0)

    return shares @ (of_class(labels[0])[None] if len(labels) == 1 else jax.lax.map(of_class, labels))


def cross_entropy(logits: Float[Array, "classes n"], label: Float[Array, " classes"]) -> Float[Array, " n"]:
    """−log softmax(logits)_y, for one label and many logits."""
    return jax.nn.logsumexp(logits, axis=0) - label @ logits


def conjugates(channel: Channel, shift: Scalar, q: Scalar, V: Scalar, nodes: int) -> Conjugates:
    """Conjugates per sample, averaged over the mixture.

    >>> even = Channel(jnp.asarray([[1.0], [-1.0]]) / 2**0.5, jnp.full(2, 0.5), symmetric=True)
    >>> found = conjugates(even, jnp.asarray(0.5), jnp.asarray(1.0), jnp.asarray(0.7), 80)
    >>> [round(float(v), 6) for v in found]
    [0.320606, 0.286207, 0.277688]
    """
    channel = _turned(channel)

    def values(label, omega):
        learnt = softmax_prox(channel, label, omega, V)
        force = channel.loadings.T @ (label[:, None] - learnt.probabilities)
        along = (label @ channel.loadings) @ force
        return jnp.stack([along, jnp.sum(force**2, axis=0), learnt.curvature])

    return Conjugates(*_average(channel, shift, q, nodes, values))


def trained_loss(channel: Channel, shift: Scalar, q: Scalar, V: Scalar, nodes: int) -> Scalar:
    """Mean cross-entropy on the training samples (at h)."""
    channel = _turned(channel)

    def values(label, omega):
        return cross_entropy(softmax_prox(channel, label, omega, V).logits, label)[None]

    return _average(channel, shift, q, nodes, values)[0]


def fresh_loss(channel: Channel, shift: Scalar, q: Scalar, nodes: int) -> Scalar:
    """Mean cross-entropy on fresh samples (at ω)."""
    channel = _turned(channel)

    def values(label, omega):
        return cross_entropy(channel.loadings @ omega, label)[None]

    return _average(channel, shift, q, nodes, values)[0]


# --- the proximal operator ----------------------------------------------------------------------------------------------


class Learnt(NamedTuple):
    """Logits and probabilities after learning, and tr H(1+VH)⁻¹ there."""

    logits: Float[Array, "classes n"]
    probabilities: Float[Array, "classes n"]
    curvature: Float[Array, " n"]


def softmax_prox(
    channel: Channel,
    label: Float[Array, " classes"],
    omega: Float[Array, "rank n"],
    V: Scalar,
    max_steps: int = 100,
) -> Learnt:
    """The learner's logits on a sample that it has learnt, for one label and many fields ω.

    Newton's method, with each step shortened to 1/(1+c), c being the largest change of a logit. For a softmax this always
    decreases the objective: its third derivative is at most s times its second, s ≤ 2c being the spread of the change, so
    steps up to log(1+s)/s decrease it, and 1/(1+c) ≤ 2/(2+s) ≤ log(1+s)/s needs no logarithm. Close to the minimum the step
    becomes the full Newton step. The last step is taken outside the loop, and only it is differentiated: exact at the minimum.

    >>> even = Channel(jnp.asarray([[1.0], [-1.0]]), jnp.full(2, 0.5))
    >>> learnt = softmax_prox(even, jnp.asarray([1.0, 0.0]), jnp.asarray([[0.3]]), jnp.asarray(2.0))
    >>> h = learnt.logits[0]
    >>> bool(abs((h - 0.3) / 2.0 - (1 - jnp.tanh(h)))[0] < 1e-12)      # (h − ω)/V = B_y·(e_y − p)
    True
    """
    problem = _problem(channel, label, omega, V)
    still = jax.lax.stop_gradient(problem)

    def unfinished(state):
        _, worst, step = state
        return (worst > 1e-8) & (step < max_steps)

    def body(state):
        h, _, step = state
        move = still.newton(h)
        change = jnp.max(jnp.abs(still.logits(move)), axis=0)
        h = h + move / (1 + change)[None, :]
        return h, jnp.max(change) / (1 + jnp.max(jnp.abs(h))), step + 1

    h, _, _ = jax.lax.while_loop(unfinished, body, (still.start, jnp.asarray(jnp.inf, omega.dtype), jnp.asarray(0)))
    h = jax.lax.stop_gradient(h)
    h = h + problem.newton(h)
    logits = problem.logits(h)
    p = jax.nn.softmax(logits, axis=0)
    return Learnt(logits, p, problem.curvature(p))


class _General(NamedTuple):
    """Newton problem in the field h, `(rank, n)`."""

    loadings: Array
    label: Array
    start: Array
    V: Array

    def logits(self, h):
        return self.loadings @ h

    def hessian(self, p):
        """H = Bᵀ(diag p − ppᵀ)B, as `(rank, rank, n)`."""
        B = self.loadings
        mean = B.T @ p
        second = jnp.einsum("ai,aj,an->ijn", B, B, p)
        return second - mean[:, None, :] * mean[None, :, :]

    def newton(self, h):
        p = jax.nn.softmax(self.logits(h), axis=0)
        downhill = self.loadings.T @ (self.label[:, None] - p) - (h - self.start) / self.V
        matrix = self.V * self.hessian(p) + jnp.eye(h.shape[0])[:, :, None]
        return _eliminate(matrix, self.V * downhill[:, None, :])[:, 0]

    def curvature(self, p):
        hessian = self.hessian(p)
        solved = _eliminate(self.V * hessian + jnp.eye(hessian.shape[0])[:, :, None], hessian)
        return jnp.einsum("iin->n", solved)


class _Symmetric(NamedTuple):
    """Newton problem in the logits a, `(classes, n)`; `V` is κV here.

    With BBᵀ = κ(1 − 11ᵀ/C) the penalty on h is |a − Bω|²/(2κV), so that the Hessian is diagonal plus rank one.
    """

    label: Array
    start: Array
    V: Array
    scale: Array

    def logits(self, a):
        return a

    def newton(self, a):
        p = jax.nn.softmax(a, axis=0)
        downhill = self.V * (self.label[:, None] - p) - (a - self.start)
        damp = 1 / (1 + self.V * p)
        plain = damp * downhill
        along = self.V * jnp.sum(p * plain, axis=0) / jnp.sum(p * damp, axis=0)
        return plain + damp * p * along[None, :]

    def curvature(self, p):
        damped = p / (1 + self.V * p)
        total = jnp.sum(damped, axis=0)
        return self.scale * (total - jnp.sum(damped**2, axis=0) / total)


def _problem(channel: Channel, label: Array, omega: Array, V: Array) -> _General | _Symmetric:
    if not channel.symmetric:
        return _General(channel.loadings, label, omega, V)
    return _Symmetric(label, channel.loadings @ omega, channel.scale * V, channel.scale)


def _eliminate(matrix: Float[Array, "r r n"], right: Float[Array, "r k n"]) -> Float[Array, "r k n"]:
    """matrix⁻¹ right at every node, by Gauss–Jordan: for 1 + VH, positive definite, no pivoting is needed."""
    rank = matrix.shape[0]
    both = jnp.concatenate([matrix, right], axis=1)
    for k in range(rank):
        row = both[k] / both[k, k][None, :]
        both = (both - both[:, k][:, None, :] * row[None, :, :]).at[k].set(row)
    return both[:, rank:]


# --- the minimiser ------------------------------------------------------------------------------------------------------


def minimise_cross_entropy(
    features: Float[Array, "n classes d"],
    labels: Int[Array, " n"],
    penalty: Scalar,
    mask: Float[Array, " n"],
    max_steps: int = 60,
) -> Fit:
    """argmin_w Σ_μ −log softmax(A_μ w)_{y_μ} + λ|w|²/2 over rows with mask 1, by Newton's method with step halving.

    The residual is the length of the last Newton step relative to |w|, not the gradient: if the classes are separable and
    λ = 0 there is no minimiser, and on the way to infinity the gradient vanishes but the steps do not.

    >>> a = jax.random.normal(jax.random.key(0), (60, 3, 4))
    >>> fit = minimise_cross_entropy(a, jnp.arange(60) % 3, jnp.asarray(0.1), jnp.ones(60))
    >>> bool(fit.residual < 1e-7)
    True
    """
    n, classes, d = features.shape
    flat = features.reshape(n * classes, d)
    own = jax.nn.one_hot(labels, classes, dtype=features.dtype)
    eps = float(jnp.finfo(features.dtype).eps)
    lengths = 0.5 ** jnp.arange(8, dtype=features.dtype)

    def logits(w):
        return (flat @ w).reshape(n, classes)

    def risks(z):
        """Σ CE for logits `(..., n, classes)`."""
        chosen = jnp.take_along_axis(z, jnp.broadcast_to(labels[:, None], (*z.shape[:-1], 1)), axis=-1)[..., 0]
        return (jax.nn.logsumexp(z, axis=-1) - chosen) @ mask

    def unfinished(state):
        _, _, size, step, improving = state
        return (step < max_steps) & (size > 4 * eps) & improving

    def body(state):
        w, z, _, step, _ = state
        p = jax.nn.softmax(z, axis=1)
        gradient = ((p - own) * mask[:, None]).reshape(-1) @ flat + penalty * w
        mean = jnp.einsum("na,nad->nd", p, features)
        spread = jnp.sqrt(p * mask[:, None])[:, :, None] * (features - mean[:, None, :])
        spread = spread.reshape(n * classes, d)
        hessian = spread.T @ spread + penalty * jnp.eye(d, dtype=w.dtype)
        move = -solve_positive(hessian, gradient)
        along = logits(move)
        trials = risks(z[None] + lengths[:, None, None] * along[None])
        trials = trials + 0.5 * penalty * jnp.sum((w[None, :] + lengths[:, None] * move[None, :]) ** 2, axis=1)
        least = jnp.min(trials)
        # Take the longest of the steps that are best up to rounding: close to the minimum, the full Newton step.
        best = lengths[jnp.argmax(trials <= least + 64 * eps * jnp.abs(least))]
        new = w + best * move
        size = jnp.linalg.norm(move) / jnp.maximum(jnp.linalg.norm(new), 1e-30)
        fine = jnp.isfinite(size)
        return jnp.where(fine, new, w), jnp.where(fine, z + best * along, z), size, step + 1, fine

    zero = jnp.zeros(d, features.dtype)
    first = (zero, logits(zero), jnp.asarray(jnp.inf, features.dtype), jnp.asarray(0), jnp.asarray(True))
    w, _, size, _, fine = jax.lax.while_loop(unfinished, body, first)
    return Fit(w, jnp.where(fine, size, jnp.inf))
