"""The sampler of denoising diffusion, with a linear denoiser: noise schedule, and the Gaussian it draws from.

Data are centred by their mean μ̂, which is added to the samples. The denoiser of step t is ε(x, t) = W_t x, with W_t a function
w_t of the empirical covariance S. Along an eigenvector of S with eigenvalue l the sampler is a scalar recursion, for samples
as for their variance:

    u_{t−1} = (1−β_t)^{−½} (u_t − β_t(1−ᾱ_t)^{−½} ε(u_t, t)) + √β_t ξ_t,    u_T ~ N(0, 1),    no noise in the last step,
    variance_{t−1} = g_t² variance_t + β_t,    g_t = (1−β_t)^{−½} (1 − β_t(1−ᾱ_t)^{−½} w_t(l)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

FIRST, LAST, USUAL = 1e-4, 1e-2, 1000
"""β_t grows linearly from the first to the last number in the usual number of steps."""


class Schedule(NamedTuple):
    """β_t and ᾱ_t for t = 1…T."""

    beta: np.ndarray
    signal: np.ndarray


def schedule(steps: int) -> Schedule:
    """β_t = 10⁻⁴ + (10⁻² − 10⁻⁴)t/T, times 1000/T, so that any number of steps adds the same noise.

    >>> found = schedule(1000)
    >>> round(float(found.beta[-1]), 12), round(float(found.signal[-1]), 5)
    (0.01, 0.00627)
    """
    beta = (FIRST + (LAST - FIRST) * np.arange(1, steps + 1) / steps) * USUAL / steps
    return Schedule(beta, np.cumprod(1.0 - beta))


def denoiser(eigenvalue: Num[Array, "*k"], signal: Any, penalty: Any, time: Any | None) -> Num[Array, "*k"]:
    """w(l) = √b (1 − e^{−τC})/C, C = a(l + c) + b, a = ᾱ, b = 1 − a; without a time, its limit √b/C."""
    signal, penalty = (jnp.asarray(v).astype(eigenvalue.dtype) for v in (signal, penalty))
    curvature = signal * (eigenvalue + penalty) + (1.0 - signal)
    done = 1.0 if time is None else -jnp.expm1(-jnp.asarray(time).astype(eigenvalue.dtype) * curvature)
    return jnp.sqrt(1.0 - signal) * done / curvature


def sampled(eigenvalue: Num[Array, "*k"], penalty: Any, time: Any | None, steps: int) -> Num[Array, "*k"]:
    """Variances of the samples along eigenvectors of S with these eigenvalues (complex ones for contour integrals).

    >>> found = sampled(jnp.array([1.0, 0.1, 0.01, 5.0]), 0.0, None, 1000)
    >>> [round(float(v), 6) for v in found]       # the data's own variances, nearly
    [0.99989, 0.100371, 0.010075, 4.98684]
    """
    plan = schedule(steps)

    def back(variance: Array, step: tuple[Array, Array, Array]) -> tuple[Array, None]:
        beta, signal, noise = step
        gain = 1.0 - beta * denoiser(eigenvalue, signal, penalty, time) / jnp.sqrt(1.0 - signal)
        return gain**2 * variance / (1.0 - beta) + noise, None

    noise = plan.beta.copy()
    noise[0] = 0.0
    path: Any = tuple(jnp.asarray(v[::-1].copy(), eigenvalue.dtype) for v in (plan.beta, plan.signal, noise))
    return jax.lax.scan(back, jnp.ones_like(eigenvalue), path)[0]


def draw(key: Array, eigenvalues: Array, penalty: Any, time: Any | None, steps: int, number: int) -> Array:
    """Samples (number, d) of the sampler itself, step by step, in the eigenbasis of S, before μ̂ is added."""
    plan, dtype = schedule(steps), eigenvalues.dtype
    start_key, noise_key = jax.random.split(key)

    def back(u: Array, step: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
        beta, signal, spread, place = step
        epsilon = u * denoiser(eigenvalues, signal, penalty, time)[None, :]
        xi = jax.random.normal(jax.random.fold_in(noise_key, place), u.shape, dtype)
        return (u - beta / jnp.sqrt(1.0 - signal) * epsilon) / jnp.sqrt(1.0 - beta) + spread * xi, None

    spread = np.sqrt(plan.beta)
    spread[0] = 0.0
    backwards = (jnp.asarray(v[::-1].copy(), dtype) for v in (plan.beta, plan.signal, spread))
    path: Any = (*backwards, jnp.arange(steps, dtype=jnp.int32))
    start = jax.random.normal(start_key, (number, eigenvalues.shape[0]), dtype)
    return jax.lax.scan(back, start, path)[0]
