r"""Projected online descent on a sphere, simulated by its overlaps: exact at every dimension, at a cost independent of it.

A unit vector w in d dimensions takes steps along one fresh sample after another,

    w ← (w + g (x - a w)) / |…|,    a = w·x,

where the push g depends on the sample through a, |x|² - a² and attributes of the sample (a label), and x is Gaussian except
for its components f_i along k orthonormal directions v_i. Then the overlaps α_i = w·v_i alone are a Markov chain: of the
rest of x only two numbers matter, its component ζ ~ N(0, 1) along the rest of w, and the squared length ρ² ~ χ²_{d-k-1} of
the component orthogonal to all of these. With r = √(1 - Σα²) and R = |x|² - a² = Σf² + ζ² + ρ² - a²,

    a = Σ_i α_i f_i + r ζ,    α_i ← (α_i + g (f_i - a α_i)) / √(1 + g² R).

So a step costs a few operations at any d and has the same law as the step in d dimensions. Many descents run side by side
(lanes), in single precision with compensated summation: the rounding error of every step is carried to the next.

>>> import jax, jax.numpy as jnp
>>> def sample(bits):  # along the one direction: a sign
...     return jnp.where(bits[0] & 1 == 0, 1.0, -1.0).astype(jnp.float32)[None], None
>>> push = lambda a, square, _: -0.02 / 1000 * a**3
>>> law = Stream(sample, push, dimension=1000, words=1)
>>> path = reduced_descent(law, jax.random.key(0), jnp.full((1, 8), 0.6, jnp.float32), jnp.array([0, 200_000]))
>>> path.shape, bool(path[0].min() == path[0].max()), bool(jnp.all(path[1] > 0.8))
((2, 1, 8), True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

__all__ = ["BLOCK", "Hit", "Stream", "chi_squared", "normal", "reduced_descent", "reduced_hitting"]

BLOCK = 32
"""Steps whose random numbers are drawn together."""
FEW = 6  # degrees of freedom up to which χ² is a sum of squares
DEGREE = 14  # degree of the polynomial that maps a Gaussian to χ²


class Stream(NamedTuple):
    """The samples and the push of a descent; see the module's docstring.

    - `sample(bits)`: maps `words` rows of random bits (uint32) to the components f of a sample along the k directions,
      stacked, and to its other attributes.
    - `push(a, square, extra)`: g, from a, R and these attributes.
    - `dimension`: d. `directions`: k.
    """

    sample: Callable[[UInt32[Array, "words ..."]], tuple[Float[Array, "k ..."], Any]]
    push: Callable[[Array, Array, Any], Array]
    dimension: int
    words: int
    directions: int = 1

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the orthogonal component."""
        return self.dimension - self.directions - 1

    @property
    def all_words(self) -> int:
        return self.words + 1 + (self.freedom if self.freedom <= FEW else 1)


class Hit(NamedTuple):
    """The step at which each lane first met a condition (the last allowed step if it did not), and whether it did."""

    steps: Int[Array, "..."]
    met: Bool[Array, "..."]
    overlaps: Float[Array, "k ..."]


def normal(bits: UInt32[Array, "..."]) -> Float[Array, "..."]:
    """Standard Gaussians from the upper 23 of 32 random bits, leaving nine for signs and labels.

    >>> z = normal(jax.random.bits(jax.random.key(0), (100_000,), jnp.uint32))
    >>> bool(abs(z.mean()) < 0.02), bool(abs(z.std() - 1) < 0.01)
    (True, True)
    """
    middle = (bits >> 9).astype(jnp.float32) + jnp.float32(0.5)
    return jnp.float32(np.sqrt(2.0)) * jax.lax.erf_inv(middle * jnp.float32(2.0**-22) - 1)


@cache
def _cube_root(freedom: int) -> tuple[float, ...]:
    """(χ²/ν)^(1/3) as a polynomial in the Gaussian of equal rank, highest power first.

    It is nearly linear (Wilson and Hilferty), and fitted to the quantiles, to single precision over the range of `normal`.
    """
    from scipy.stats import chi2, norm

    z = 5.6 * np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    below, above = chi2.ppf(norm.cdf(z), freedom), chi2.isf(norm.sf(z), freedom)
    root = np.cbrt(np.where(z < 0, below, above) / freedom)
    fit = np.polynomial.chebyshev.chebfit(z / 5.6, root, DEGREE)
    powers = np.polynomial.chebyshev.cheb2poly(fit) / 5.6 ** np.arange(DEGREE + 1)
    # drop terms below single precision
    seen = np.flatnonzero(np.abs(powers) * 5.6 ** np.arange(DEGREE + 1) > 1e-8)[-1]
    return tuple(float(p) for p in powers[: seen + 1][::-1])


def chi_squared(bits: UInt32[Array, "n ..."], freedom: int) -> Float[Array, "..."]:
    """χ² with that many degrees of freedom, from one row of random bits; up to six degrees need one row each.

    >>> draws = chi_squared(jax.random.bits(jax.random.key(0), (1, 100_000), jnp.uint32), 50)
    >>> bool(abs(draws.mean() - 50) < 0.2), bool(abs(draws.var() / 100 - 1) < 0.03)
    (True, True)
    """
    if freedom <= FEW:
        return jnp.sum(normal(bits[:freedom]) ** 2, axis=0)
    z = normal(bits[0])
    root = jnp.zeros_like(z)
    for power in _cube_root(freedom):
        root = root * z + jnp.float32(power)
    return jnp.float32(freedom) * root * root * root


class _Samples(NamedTuple):
    """A block of samples: arrays with the steps of the block first."""

    fields: Array
    zeta: Array
    rest: Array
    extra: Any


def _samples(stream: Stream, key: PRNGKeyArray, block: Array, lanes: tuple[int, ...]) -> _Samples:
    """All samples of a block at once, before its steps: inside the steps the compiler would compute them several times."""
    bits = _words(jax.random.fold_in(key, block), stream.all_words, (BLOCK, *lanes))
    fields, extra = stream.sample(bits[: stream.words])
    rest = chi_squared(bits[stream.words + 1 :], stream.freedom)
    return _Samples(jnp.moveaxis(fields, 1, 0), normal(bits[stream.words]), rest, extra)


def _words(key: PRNGKeyArray, number: int, shape: tuple[int, ...]) -> UInt32[Array, "words ..."]:
    """That many rows of random 32-bit words: two from each 64-bit one, which costs JAX no more than a 32-bit one."""
    if jnp.result_type(float) != jnp.float64:
        return jax.random.bits(key, (number, *shape), jnp.uint32)
    wide = jax.random.bits(key, (-(-number // 2), *shape), jnp.uint64)
    return jnp.concatenate([wide.astype(jnp.uint32), (wide >> 32).astype(jnp.uint32)])[:number]


def _step(stream: Stream, sample: _Samples, overlaps: Array, lost: Array) -> tuple[Array, Array]:
    """Take one step; `lost` is the accumulated rounding error of the overlaps."""
    fields, zeta, rest, extra = sample
    across = jnp.sqrt(jnp.maximum(1 - jnp.sum(overlaps * overlaps, axis=0), 0.0))
    a = jnp.sum(overlaps * fields, axis=0) + across * zeta
    square = jnp.maximum(jnp.sum(fields * fields, axis=0) + zeta * zeta + rest - a * a, 0.0)
    g = stream.push(a, square, extra)
    # 1/√(1 + g²R) = 1 - shrink: of order 1/d, and it must not be rounded against one
    grown = g * g * square
    root = jnp.sqrt(1 + grown)
    shrink = (grown / (root * (1 + root)))[None]
    change = g[None] * (fields - a[None] * overlaps) * (1 - shrink) - overlaps * shrink - lost
    moved = overlaps + change
    return moved, (moved - overlaps) - change


def _whole() -> Any:
    """The longest available integer type: steps may exceed 32 bits."""
    return jnp.int64 if jnp.result_type(float) == jnp.float64 else jnp.int32


def reduced_descent(
    stream: Stream, key: PRNGKeyArray, start: Float[Array, "k ..."], ends: Int[Array, " time"]
) -> Float[Array, "time k ..."]:
    """The overlaps after each number of steps in `ends` (not decreasing), from `start`.

    The samples depend only on the key and the number of the step, not on what is recorded.
    """
    lanes = start.shape[1:]

    def stretch(carry: tuple[Array, Array, Array], end: Array) -> tuple[tuple[Array, Array, Array], Array]:
        first, *state = carry

        def block(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            def step(state: tuple[Array, Array], row: tuple[Array, _Samples]) -> tuple[tuple[Array, Array], None]:
                valid, sample = row
                return jax.tree.map(
                    lambda new, old: jnp.where(valid, new, old), _step(stream, sample, *state), state
                ), None

            done = number * BLOCK + jnp.arange(BLOCK)
            rows = ((done >= first) & (done < end), _samples(stream, key, number, lanes))
            return jax.lax.scan(step, state, rows)[0]

        overlaps, lost = jax.lax.fori_loop(first // BLOCK, -(-end // BLOCK), block, tuple(state))
        return (end, overlaps, lost), overlaps

    ends = ends.astype(_whole())
    begin = (jnp.zeros_like(ends[0]), start.astype(jnp.float32), jnp.zeros(start.shape, jnp.float32))
    return jax.lax.scan(stretch, begin, ends)[1]


def reduced_hitting(
    stream: Stream,
    key: PRNGKeyArray,
    start: Float[Array, "k ..."],
    condition: Callable[[Float[Array, "k ..."]], Bool[Array, "..."]],
    most: int | Array,
) -> Hit:
    """The first number of steps after which a `condition` on the overlaps holds, lane by lane; a lane stops there.

    The loop ends when all lanes have met it, or after `most` steps (rounded up to blocks).
    """
    lanes = start.shape[1:]
    whole = _whole()

    def step(carry: tuple[Array, ...], sample: _Samples) -> tuple[tuple[Array, ...], None]:
        overlaps, lost, steps, met = carry
        moved, rest = _step(stream, sample, overlaps, lost)
        overlaps, lost = (jnp.where(met[None], old, new) for new, old in ((moved, overlaps), (rest, lost)))
        steps = steps + (~met).astype(whole)
        return (overlaps, lost, steps, met | condition(overlaps)), None

    def block(carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        number, state = carry
        return number + 1, jax.lax.scan(step, state, _samples(stream, key, number, lanes))[0]

    blocks = -(-jnp.asarray(most).astype(whole) // BLOCK)
    start = start.astype(jnp.float32)
    begin = (start, jnp.zeros(start.shape, jnp.float32), jnp.zeros(lanes, whole), condition(start))
    _, (overlaps, _, steps, met) = jax.lax.while_loop(
        lambda carry: (carry[0] < blocks) & ~jnp.all(carry[1][3]), block, (jnp.zeros((), whole), begin)
    )
    return Hit(steps, met, overlaps)
