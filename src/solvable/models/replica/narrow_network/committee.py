"""Committees of many hidden units in far more dimensions, 1 ≪ K ≪ d: kernels of the units and their saddle points.

A committee ŷ = K^{-1/2} Σ_k a_k σ(w_k·x/√d) with signs a_k = ±1 has, in this limit, Gaussian outputs whose covariances are
those of single units. With n = αKd samples its constant and linear parts, d parameters, are learnt perfectly, so only

    g(t; A, B) = Σ_{l≥2} s_l(A) s_l(B) c^l,   c = t/√(AB),   s_l(A) = E[σ(√A x) He_l(x)]/√l!

counts: the covariance of σ(u) and σ(v), for Gaussian u, v of variances A, B and covariance t, less its degrees 0 and 1.
With Q = |w_k|²/d, q the overlap of a unit in two students, t with its teacher (whose norm is one), the replicated free
entropy per weight is a function of overlaps alone, and quadratic loss makes it explicit:

    φ = −βλQ/2 + ½ log(Q−q) + (q−t²)/(2(Q−q)) − (α/2)[log D + βC/D],
    D = 1 + β(g(Q;Q,Q) − g(q;Q,Q)),   C = Δ + g(1;1,1) − 2g(t;Q,1) + g(q;Q,Q).

It is stable against replica-symmetry breaking where r < 1: the second variation of ½ log det(Q_ab − t_a t_b) −
(α/2) log det(1 + βG_ab), along perturbations of the overlaps q_ab whose rows sum to zero, is −¼(1−r)/(Q−q)² times their
square, with χ = β(Q−q) and

    r = αχ² [g'(q)² + C g''(q)]/D²,

derivatives with respect to the first argument at A = B = Q. At zero temperature q → Q, where g'' of an activation with a
kink diverges as 1/√(Q−q): its empirical risk has no stable replica-symmetric minimum at any noise.
"""

from __future__ import annotations

import abc
import math
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from solvable.methods.averages.functions import FUNCTIONS, function_named
from solvable.methods.fixed_points.bisection import bisect
from solvable.methods.fixed_points.saddle import Solution, solve

Scalar = Float[Array, ""]

ACTIVATIONS = ("relu", "abs", "erf", "tanh", "gelu", "softplus")
KINKED = tuple(name for name in ACTIVATIONS if FUNCTIONS[name].kinks)
ODD = tuple(name for name in ACTIVATIONS if FUNCTIONS[name].odd)
FLOOR = 1e-8  # variance below which the coefficients of a series are only rounding errors


class Diagonal(NamedTuple):
    """g at t = A = B = Q and its total derivative along Q; the slope ∂_t g there and its derivative along Q."""

    value: Scalar
    growth: Scalar
    slope: Scalar
    slope_growth: Scalar


class Kernel(abc.ABC):
    """g(t; A, B) of one activation, with its derivatives."""

    kinked = False

    @abc.abstractmethod
    def value(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """g(t; A, B)."""

    @abc.abstractmethod
    def slope(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """∂g/∂t."""

    @abc.abstractmethod
    def bend(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """∂²g/∂t²; infinite on the diagonal for activations with a kink."""

    @abc.abstractmethod
    def pull(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """∂g/∂A."""

    @abc.abstractmethod
    def diagonal(self, norm: Scalar) -> Diagonal:
        """Values on the diagonal q = Q, as an empirical-risk minimiser needs them."""

    @abc.abstractmethod
    def second(self) -> float:
        """The square of the second normalised Hermite coefficient at unit variance, c₂² = g''(0; 1, 1)/2."""


class Homogeneous(Kernel):
    """ReLU and |x|: g = √(AB) h(c), h(c) = w (√(1−c²) + c asin c − 1), h' = w asin c.

    ReLU is half of x + |x| and the linear part does not count, so w = 1/2π for ReLU is a quarter of the 2/π for |x|: ReLU
    learns like |x| at a quarter of the noise, penalty and temperature.
    """

    kinked = True

    def __init__(self, weight: float):
        self.weight = weight

    def value(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        scale = _scale(a, b)
        c = t / scale
        return self.weight * scale * (_sine(c) + c * _arcsine(c) - 1)

    def second(self) -> float:
        return self.weight / 2

    def slope(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        return self.weight * _arcsine(t / _scale(a, b))

    def bend(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        scale = _scale(a, b)
        return self.weight / (scale * _sine(t / scale))

    def pull(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        return 0.5 * self.weight * jnp.sqrt(b / jnp.maximum(a, 1e-100)) * (_sine(t / _scale(a, b)) - 1)

    def diagonal(self, norm: Scalar) -> Diagonal:
        height, slope = self.weight * (np.pi / 2 - 1), self.weight * np.pi / 2
        return Diagonal(height * norm, height * jnp.ones_like(norm), slope * jnp.ones_like(norm), 0.0 * norm)


class ErrorFunction(Kernel):
    """erf(x/√2): g = (2/π)(asin z − z), z = t/√((1+A)(1+B))."""

    def value(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        z = t / jnp.sqrt((1 + a) * (1 + b))
        return 2 / np.pi * (jnp.arcsin(z) - z)

    def slope(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        scale = jnp.sqrt((1 + a) * (1 + b))
        return 2 / np.pi * (1 / jnp.sqrt(1 - (t / scale) ** 2) - 1) / scale

    def bend(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        scale = (1 + a) * (1 + b)
        return 2 / np.pi * t / (scale - t**2) ** 1.5

    def pull(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        return -0.5 * t / (1 + a) * self.slope(t, a, b)

    def diagonal(self, norm: Scalar) -> Diagonal:
        wide, once = 1 / jnp.sqrt(1 + 2 * norm), 1 / (1 + norm)
        slope = 2 / np.pi * (wide - once)
        return Diagonal(
            value=self.value(norm, norm, norm),
            growth=slope * once,
            slope=slope,
            slope_growth=2 / np.pi * (once**2 - wide**3),
        )

    def second(self) -> float:
        return 0.0


class Series(Kernel):
    """A smooth activation by its Hermite series, coefficients by the trapezoidal rule.

    For an activation analytic in a strip of half-width a (tanh, softplus: π/2, π) and inputs of variance A, degrees above L
    contribute to g at order exp(−2a√(L/A)) on the diagonal, smaller by a factor c^L off it: with 128 degrees 1e-14 for tanh
    at A = 1 and 4e-8 at A = 4. The error of the rule, exp(−2πa/(h√A)) for a step h, is smaller.
    Derivatives along a variance follow from 2A ds_l/dA = l s_l + √((l+1)(l+2)) s_{l+2}.
    """

    def __init__(self, name: str, degrees: int, nodes: int):
        self.activation = function_named(name)
        self.odd = name in ODD
        self.places, self.projection = _hermite_rule(degrees + 2, nodes)
        self.degree = np.arange(2.0, degrees + 1)
        self.raising = np.sqrt((self.degree + 1) * (self.degree + 2))

    def coefficients(self, variance: Scalar) -> tuple[Float[Array, " degree"], Float[Array, " degree"]]:
        """s_l(A) for l = 2, 3, … and √((l+1)(l+2)) s_{l+2}(A)."""
        s = jnp.asarray(self.projection) @ self.activation(jnp.sqrt(variance) * jnp.asarray(self.places))
        return s[:-2], jnp.asarray(self.raising) * s[2:]

    def _scale(self, a: Scalar, b: Scalar) -> Scalar:
        return jnp.sqrt(jnp.maximum(a, FLOOR) * jnp.maximum(b, FLOOR))

    def _powers(self, c: Scalar) -> Float[Array, " degree"]:
        """c^{l−2}."""
        return jnp.concatenate([jnp.ones(1), jnp.cumprod(jnp.full(self.degree.shape[0] - 1, c))])

    def value(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        c = t / self._scale(a, b)
        return c**2 * jnp.sum(self.coefficients(a)[0] * self.coefficients(b)[0] * self._powers(c))

    def slope(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        scale = self._scale(a, b)
        both = self.coefficients(a)[0] * self.coefficients(b)[0] * jnp.asarray(self.degree)
        return t / scale**2 * jnp.sum(both * self._powers(t / scale))

    def bend(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        scale = self._scale(a, b)
        both = self.coefficients(a)[0] * self.coefficients(b)[0] * jnp.asarray(self.degree * (self.degree - 1))
        return jnp.sum(both * self._powers(t / scale)) / scale**2

    def pull(self, t: Scalar, a: Scalar, b: Scalar) -> Scalar:
        c = t / self._scale(a, b)
        return (
            0.5
            * c**2
            / jnp.maximum(a, FLOOR)
            * jnp.sum(self.coefficients(a)[1] * self.coefficients(b)[0] * self._powers(c))
        )

    def diagonal(self, norm: Scalar) -> Diagonal:
        norm = jnp.maximum(norm, FLOOR)
        s, raised = self.coefficients(norm)
        l = jnp.asarray(self.degree)
        slope = jnp.sum(l * s**2) / norm
        return Diagonal(
            value=jnp.sum(s**2),
            growth=slope + jnp.sum(s * raised) / norm,
            slope=slope,
            slope_growth=jnp.sum(l * s * (raised + (l - 1) * s)) / norm**2,
        )

    def second(self) -> float:
        with jax.ensure_compile_time_eval():
            values = np.asarray(self.activation(jnp.asarray(self.places)))
        return 0.0 if self.odd else float(self.projection[0] @ values) ** 2


class UnitSeries(Series):
    """Hermite series at unit variances, as for a Bayes-optimal student: its coefficients are constants."""

    def __init__(self, name: str, degrees: int, nodes: int):
        super().__init__(name, degrees, nodes)
        with jax.ensure_compile_time_eval():
            self.known = tuple(np.asarray(s) for s in super().coefficients(jnp.ones(())))

    def coefficients(self, variance: Scalar) -> tuple[Float[Array, " degree"], Float[Array, " degree"]]:
        first, raised = self.known
        return jnp.asarray(first), jnp.asarray(raised)


@cache
def kernel_named(name: str, degrees: int = 128, nodes: int = 384, unit: bool = False) -> Kernel:
    """The kernel of an activation.

    `degrees` and `nodes` apply to activations without a closed form; `unit` restricts the kernel to unit variances.

    >>> one = jnp.asarray(1.0)
    >>> round(float(kernel_named("relu").value(one, one, one)), 8)  # 1/4 − 1/2π
    0.09084506
    """
    if name in KINKED:
        return Homogeneous(2 / np.pi if name == "abs" else 1 / (2 * np.pi))
    if name == "erf":
        return ErrorFunction()
    return UnitSeries(name, degrees, nodes) if unit else Series(name, degrees, nodes)


@cache
def _hermite_rule(degrees: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes x_i and weights of E[f(x) He_l(x)]/√l!, l = 2 … degrees, on ±13 standard deviations."""
    x = np.linspace(-13.0, 13.0, nodes)
    step = x[1] - x[0]
    rows = [np.ones_like(x), x]
    for l in range(1, degrees):
        rows.append((x * rows[l] - math.sqrt(l) * rows[l - 1]) / math.sqrt(l + 1))
    density = step * np.exp(-0.5 * x**2) / math.sqrt(2 * np.pi)
    return x, np.stack(rows[2 : degrees + 1]) * density[None, :]


def _scale(a: Scalar, b: Scalar) -> Scalar:
    """√(AB), safe where a norm vanishes."""
    return jnp.sqrt(jnp.maximum(a * b, 1e-200))


def _sine(c: Scalar) -> Scalar:
    return jnp.sqrt(jnp.maximum((1 - c) * (1 + c), 1e-300))


def _arcsine(c: Scalar) -> Scalar:
    """asin with finite value and derivative at one, which rounding can exceed."""
    return jnp.arctan2(c, _sine(c))


# --- Bayes-optimal students: one unknown ------------------------------------------------------------------------------

NEAR, FAR = (
    -14.0,
    32.0,
)  # ends of the search along logit q: overlaps from 1e-6, below which the leading power of q suffices, to 1 − 1e-14
GRID, HALVINGS = 193, 60


class BayesTransitions(NamedTuple):
    """Transitions of the Bayes-optimal student, in samples per weight.

    Specialised solutions appear at `spinodal` and have the lower free energy from `transition` on, with the given overlap
    there. At a continuous transition all coincide with the `threshold` (Δ + g(1))/(2c₂²).
    """

    spinodal: Scalar
    transition: Scalar
    overlap: Scalar
    first_order: Bool[Array, ""]
    threshold: Scalar
    turn: Scalar  # logit of the overlap at the spinodal


class BayesSolution(NamedTuple):
    """Overlaps of the specialised solutions, stable (`upper`) and unstable (`lower`); zero where they do not exist."""

    upper: Scalar
    lower: Scalar
    has_upper: Bool[Array, ""]
    has_lower: Bool[Array, ""]
    residual: Scalar


def bayes_samples(kernel: Kernel, x: Scalar, noise: Scalar) -> Scalar:
    """log α at which q = 1/(1 + e^{−x}) is an overlap of the Bayes-optimal student (Q = 1, q = t) with its teacher:

        α = q (Δ + g(1) − g(q)) / ((1−q) g'(q)).

    Every specialised solution at α is a root of α(q) = α; it is stable where α(q) rises.
    """
    q, one = jax.nn.sigmoid(x), jnp.ones_like(x)
    return x + jnp.log(_left(kernel, q, noise)) - jnp.log(kernel.slope(q, one, one))


def bayes_free_energy(kernel: Kernel, q: Scalar, samples: Scalar, noise: Scalar) -> Scalar:
    """−φ = −½ log(1−q) − q/2 + (α/2) log(Δ + g(1) − g(q)), up to terms that do not depend on q."""
    return -0.5 * jnp.log1p(-q) - 0.5 * q + 0.5 * samples * jnp.log(_left(kernel, q, noise))


def bayes_transitions(kernel: Kernel, noise: Scalar) -> BayesTransitions:
    """Where a Bayes-optimal student specialises.

    α(q) has one minimum: at q = 0 where the transition is continuous, inside where it is of first order.

    >>> found = bayes_transitions(kernel_named("erf"), jnp.asarray(0.01))
    >>> round(float(found.spinodal), 4), round(float(found.transition), 4), round(float(found.overlap), 3)
    (2.1483, 2.3268, 0.768)
    """
    fixed = jax.lax.stop_gradient(noise)
    grid = jnp.linspace(NEAR, FAR, GRID)
    heights = jax.vmap(lambda x: bayes_samples(kernel, x, fixed))(grid)
    k = jnp.argmin(heights)
    second = kernel.second()
    threshold = _left(kernel, jnp.zeros_like(noise), noise) / (2 * second) if second else jnp.full_like(noise, jnp.inf)
    first_order = (k > 0) & (heights[k] < jnp.log(jax.lax.stop_gradient(threshold)) - 1e-9)
    turn = _bisect(
        jax.grad(lambda x: bayes_samples(kernel, x, fixed)),
        grid[jnp.maximum(k - 1, 0)],
        grid[jnp.minimum(k + 1, GRID - 1)],
    )
    turn = jnp.where(first_order, turn, NEAR)

    def advantage(x, noise):
        q, samples = jax.nn.sigmoid(x), jnp.exp(bayes_samples(kernel, x, noise))
        zero = jnp.zeros_like(q)
        return bayes_free_energy(kernel, zero, samples, noise) - bayes_free_energy(kernel, q, samples, noise)

    even = _implicit(lambda x: advantage(x, noise), _bisect(lambda x: advantage(x, fixed), turn, jnp.asarray(FAR)))
    return BayesTransitions(
        # at the minimum the total derivative equals that of α(q) at fixed q
        spinodal=jnp.where(first_order, jnp.exp(bayes_samples(kernel, turn, noise)), threshold),
        transition=jnp.where(first_order, jnp.exp(bayes_samples(kernel, even, noise)), threshold),
        overlap=jnp.where(first_order, jax.nn.sigmoid(even), 0.0),
        first_order=first_order,
        threshold=threshold,
        turn=turn,
    )


def bayes_solution(kernel: Kernel, samples: Scalar, noise: Scalar, known: BayesTransitions) -> BayesSolution:
    """All specialised overlaps at α samples per weight, by bisection on either side of the minimum of α(q).

    >>> kernel, alpha, noise = kernel_named("relu"), jnp.asarray(4.0), jnp.asarray(0.05)
    >>> round(float(bayes_solution(kernel, alpha, noise, bayes_transitions(kernel, noise)).upper), 6)
    0.916496
    """
    target, fixed = jnp.log(jax.lax.stop_gradient(samples)), jax.lax.stop_gradient(noise)
    has_upper = target > jnp.log(jax.lax.stop_gradient(known.spinodal))
    has_lower = has_upper & known.first_order & (target < jnp.log(jax.lax.stop_gradient(known.threshold)))
    turn = jax.lax.stop_gradient(known.turn)

    def height(x):
        return bayes_samples(kernel, x, noise) - jnp.log(samples)

    above = _bisect(lambda x: bayes_samples(kernel, x, fixed) - target, turn, jnp.asarray(FAR))
    below = _bisect(lambda x: target - bayes_samples(kernel, x, fixed), jnp.asarray(-FAR), turn)
    above, below = _implicit(height, above), _implicit(height, below)
    gap = jnp.where(has_upper, jnp.abs(height(above)), 0.0) + jnp.where(has_lower, jnp.abs(height(below)), 0.0)
    return BayesSolution(
        upper=jnp.where(has_upper, jax.nn.sigmoid(above), 0.0),
        lower=jnp.where(has_lower, jax.nn.sigmoid(below), 0.0),
        has_upper=has_upper,
        has_lower=has_lower,
        residual=jax.lax.stop_gradient(gap),
    )


def _left(kernel: Kernel, q: Scalar, noise: Scalar) -> Scalar:
    """Δ + g(1) − g(q): the variance of a label that a Bayes-optimal student leaves unexplained."""
    one = jnp.ones_like(q)
    return noise + kernel.value(one, one, one) - kernel.value(q, one, one)


def _bisect(function, low: Scalar, high: Scalar) -> Scalar:
    """The zero of a function that rises between `low` and `high`; the nearer end if there is none."""

    low, high = bisect(lambda x: ~(function(x) > 0), low, high, HALVINGS)
    return jax.lax.stop_gradient(0.5 * (low + high))


def _implicit(function, root: Scalar) -> Scalar:
    """A root known to rounding, with its derivative in everything the function depends on."""
    value, slope = jax.value_and_grad(function)(root)
    return root - value / jax.lax.stop_gradient(slope)


# --- Gibbs measures and empirical risk: three unknowns ----------------------------------------------------------------


class Order(NamedTuple):
    """Order parameters: Q, q, t, and χ = β(Q − q)."""

    norm: Scalar
    replica: Scalar
    overlap: Scalar
    response: Scalar


class Fields(NamedTuple):
    """Functions of the order parameters: kernels g at Q, q and t, D, C, and the derivatives of g."""

    g_norm: Scalar
    g_replica: Scalar
    g_overlap: Scalar
    denominator: Scalar
    rest: Scalar
    slope: Scalar  # g'(q; Q, Q)
    turn: Scalar  # ∂_t g(t; Q, 1)
    growth: Scalar  # d/dQ g(Q; Q, Q) − 2 ∂_Q g(t; Q, 1)
    bending: Scalar  # β [d/dQ g(Q;Q,Q) − ∂_Q g(q;Q,Q) − g'(q;Q,Q)], its limit at zero temperature


def order_parameters(x: Float[Array, " 3"], temperature: Scalar | None) -> Order:
    """Order parameters from three unknowns: log χ, ±(q − t²) and ±t; the last two may vanish, and at T = 0, q = Q."""
    response, t = jnp.exp(x[0]), jnp.abs(x[2])
    replica = t**2 + jnp.abs(x[1])
    return Order(replica if temperature is None else replica + temperature * response, replica, t, response)


def fields(kernel: Kernel, order: Order, noise: Scalar, temperature: Scalar | None) -> Fields:
    """Functions of the order parameters; `None` for the temperature means empirical risk, β → ∞ at fixed χ."""
    norm, q, t, response = order
    one = jnp.ones_like(norm)
    d = kernel.diagonal(norm)
    g_overlap = kernel.value(t, norm, one)
    if temperature is None:
        g_replica, slope = d.value, d.slope
        denominator, bending = 1 + response * d.slope, response * d.slope_growth
    else:
        g_replica, slope = kernel.value(q, norm, norm), kernel.slope(q, norm, norm)
        denominator = 1 + (d.value - g_replica) / temperature
        bending = (d.growth - 2 * kernel.pull(q, norm, norm) - slope) / temperature
    return Fields(
        g_norm=d.value,
        g_replica=g_replica,
        g_overlap=g_overlap,
        denominator=denominator,
        rest=noise + kernel.value(one, one, one) - 2 * g_overlap + g_replica,
        slope=slope,
        turn=kernel.slope(t, norm, one),
        growth=d.growth - 2 * kernel.pull(t, norm, one),
        bending=bending,
    )


def committee_saddle_point(
    kernel: Kernel,
    start: Float[Array, " 3"],
    samples: Scalar,
    penalty: Scalar,
    noise: Scalar,
    temperature: Scalar | None,
    **options: Any,
) -> Solution:
    """The stationary point of φ from a start (see `order_parameters`); t = 0 is kept, the unspecialised solution:

    t = αχ ∂_t g(t;Q,1)/D,   q − t² = αχ² C g'(q)/D²,
    1/χ = λ + α[(d g(Q;Q,Q)/dQ − 2 ∂_Q g(t;Q,1))/D − C β (d g(Q;Q,Q)/dQ − ∂_Q g(q) − g'(q))/D²].
    """

    def update(x, args):
        samples, penalty, noise, temperature = args
        order = order_parameters(x, temperature)
        f = fields(kernel, order, noise, temperature)
        gain = samples * order.response / f.denominator
        spread = gain**2 * f.rest * f.slope / samples
        stiffness = penalty + samples * (f.growth / f.denominator - f.rest * f.bending / f.denominator**2)
        return jnp.stack([-jnp.log(stiffness), spread, gain * f.turn])

    return solve(update, start, (samples, penalty, noise, temperature), **options)


def replicon(kernel: Kernel, order: Order, f: Fields, samples: Scalar, temperature: Scalar | None) -> Scalar:
    """(1−r)/(1+r), r = αχ²[g'(q)² + C g''(q)]/D²: positive where the replica-symmetric solution is stable."""
    if temperature is None and kernel.kinked:
        return -jnp.ones_like(order.norm)
    bend = kernel.bend(order.replica, order.norm, order.norm)
    r = samples * order.response**2 * (f.slope**2 + f.rest * bend) / f.denominator**2
    return (1 - r) / (1 + r)


def free_energy(order: Order, f: Fields, samples: Scalar, penalty: Scalar, temperature: Scalar | None) -> Scalar:
    """−Tφ; at zero temperature its limit ½λQ − (Q−t²)/(2χ) + (α/2)C/D, the penalised loss per weight."""
    norm, q, t, response = order
    energy = 0.5 * penalty * norm - 0.5 * (q - t**2) / response + 0.5 * samples * f.rest / f.denominator
    if temperature is None:
        return energy
    return energy + 0.5 * temperature * (samples * jnp.log(f.denominator) - jnp.log(temperature * response))
