r"""Approximate message passing in Gaussian landscapes of finite size: any mixture of matrices and tensors.

The landscape H of N variables has Gaussian noise of covariance N Q(x·y/N) in its energy. One iteration takes a step along
the force −∇H, removes the correlation of the last two estimates through the noise (the Onsager term), and denoises:

    B^k = −∇H(x^k) − Q″(x^k·x^{k−1}/N) χ^k x^{k−1},      x^{k+1} = η(B^k),      χ^{k+1} = (1/N) Σ_i ∂η_i/∂B_i.

B^k then behaves like the signal's pull plus Gaussian noise of covariance Q′(x^k·x^l/N), so that state evolution with a
few numbers becomes exact as N grows (Bolthausen 2014; Bayati and Montanari 2011; for tensors Richard and Montanari 2014).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.methods.flows.descent import on_sphere

__all__ = ["Passed", "iterate", "normalised"]

Vector = Float[Array, " n"]


class Passed(NamedTuple):
    """Estimates after 0, 1, … iterations, and the mean response χ of the denoiser that gave each (0 at the start)."""

    estimates: Float[Array, "iteration n"]
    responses: Float[Array, " iteration"]


def normalised(field: Vector) -> tuple[Vector, Float[Array, ""]]:
    """The maximum-likelihood denoiser on the sphere |x|² = N, √N B/|B|, and its mean response.

    >>> x, chi = normalised(jnp.asarray([3.0, 4.0]))
    >>> round(float(x @ x), 12), round(float(chi), 12)
    (2.0, 0.282842712475)
    """
    return on_sphere(field), jnp.sqrt(field.shape[0] / (field @ field)).astype(field.dtype)


def iterate(
    force: Callable[[Vector], Vector],
    memory: Callable[[Float[Array, ""]], Float[Array, ""]],
    denoise: Callable[[Vector, Vector], tuple[Vector, Float[Array, ""]]],
    start: Vector,
    iterations: int,
) -> Passed:
    """Iterate from `start`, which must not depend on the noise.

    `force` is −∇H, `memory` Q″ as a function of the overlap, and `denoise(B, x)` the next estimate with its mean response;
    x is the estimate from which B came, whose norm may set the denoiser's scale.

    The largest eigenvalue of a symmetric Gaussian matrix of variance 1/N is 2; maximum likelihood finds it:

    >>> noise = jax.random.normal(jax.random.key(0), (400, 400))
    >>> matrix = (noise + noise.T) / (2 * 400) ** 0.5
    >>> start = normalised(jax.random.normal(jax.random.key(1), (400,)))[0]
    >>> found = iterate(lambda x: matrix @ x, jnp.ones_like, lambda field, _: normalised(field), start, 60)
    >>> x = found.estimates[-1]
    >>> bool(abs(x @ matrix @ x / 400 - 2) < 0.05)
    True
    """

    def step(state: tuple[Vector, Vector, Array], _):
        x, before, response = state
        field = force(x) - memory(x @ before / x.shape[0]) * response * before
        after, reacts = denoise(field, x)
        return (after, x, reacts), (after, reacts)

    first = jnp.zeros((), start.dtype)
    _, (estimates, responses) = jax.lax.scan(step, (start, jnp.zeros_like(start), first), None, length=iterations)
    return Passed(jnp.concatenate([start[None], estimates]), jnp.concatenate([first[None], responses]))
