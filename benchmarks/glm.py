"""Composed linear models: lasso points, a loss given as a function, and message passing against a NumPy loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.methods.fixed_points.gamp import gamp
from solvable.methods.fixed_points.vector_amp import evolve
from solvable.methods.risk import mixtures
from solvable.methods.risk.outputs import Additive
from solvable.methods.risk.priors import named

from .replica import timed
from .rows import Row

SIZE, ITERATIONS, NOISE, FRACTION = 10_000, 100, 0.01, 0.2
SAMPLES = 0.5


def glm() -> Iterator[Row]:
    yield lasso()
    yield own_loss()
    yield message_passing()
    yield state_evolution()


def lasso() -> Row:
    """1,000 points of the lasso over samples and penalty."""
    model = sv.GLM(samples=np.geomspace(0.2, 5, 40)[:, None], penalty=np.geomspace(0.05, 2, 25)[None, :])
    ours, wall, outcome = timed(model.theory)
    lost = float((~np.asarray(outcome.converged)).sum())
    return Row("glm", "1,000 lasso points, warm", ours, most=1.0, difference=lost, tolerance=0.0, wall=wall,
               note="the difference is the number of points that did not converge")  # fmt: skip


def own_loss() -> Row:
    """The logistic loss built in and given as a function of (y, z), 200 points."""
    fields: dict[str, Any] = {"prior": "gaussian", "channel": "logistic", "regulariser": "ridge"}
    fields |= {"samples": np.geomspace(0.3, 5, 200), "penalty": 0.3}
    built = sv.GLM(loss="logistic", **fields)
    own = sv.GLM(loss=lambda y, z: jnp.logaddexp(0.0, -y * z), **fields)
    theirs, _, wanted = timed(built.theory)
    ours, wall, found = timed(own.theory)
    difference = float(np.max(np.abs(np.asarray(found.error - wanted.error))))
    return Row("glm", "a loss given as a function, 200 points, warm", ours, "the same loss built in", theirs,
               ratio_least=1 / 3, difference=difference, tolerance=1e-8, wall=wall)  # fmt: skip


def _problem(size: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    n = int(SAMPLES * size)
    a = rng.normal(size=(n, size)).astype(np.float32) / np.float32(size**0.5)
    teacher = (rng.random(size) < FRACTION) * rng.normal(size=size) / FRACTION**0.5
    teacher = teacher.astype(np.float32)
    y = a @ teacher + np.float32(NOISE**0.5) * rng.normal(size=n).astype(np.float32)
    return a, y, teacher


def run_gamp(a: Any, y: Any, iterations: int) -> Any:
    """Bayes-optimal message passing for a sparse prior and Gaussian noise, as a compiled function of the data."""
    prior, channel = named("sparse", FRACTION), Additive(mixtures.gaussian(NOISE))

    def denoise(field, precision):
        return prior.posterior(field, jnp.broadcast_to(precision, field.shape))[:2]

    return gamp(a, y, channel.score, denoise, iterations)


def numpy_gamp(a: np.ndarray, y: np.ndarray, iterations: int) -> np.ndarray:
    """The same in NumPy, written as in the papers: separate variances for every weight and sample, a loop in Python."""
    n, d = a.shape
    squares = a**2
    w, v, g = np.zeros(d, a.dtype), np.ones(d, a.dtype), np.zeros(n, a.dtype)
    for _ in range(iterations):
        V = squares @ v
        omega = a @ w - V * g
        g = (y - omega) / (V + NOISE)
        precision = squares.T @ (1 / (V + NOISE))
        field = precision * w + a.T @ g
        under = 1 + precision / FRACTION
        mean, variance = field / FRACTION / under, 1 / FRACTION / under
        odds = FRACTION / (1 - FRACTION) / np.sqrt(under) * np.exp(0.5 * field * mean)
        share = odds / (1 + odds)
        share[~np.isfinite(odds)] = 1.0
        w, v = share * mean, share * variance + share * (1 - share) * mean**2
    return w


def message_passing() -> Row:
    """Ten thousand weights, a hundred iterations, single precision, one problem."""
    a, y, _ = _problem(SIZE)
    compiled = jax.jit(lambda a, y: run_gamp(a, y, ITERATIONS).estimate)
    on_device = jnp.asarray(a), jnp.asarray(y)
    ours, wall, found = timed(lambda: compiled(*on_device))
    spent = {}
    for precision in (np.float32, np.float64):
        given = a.astype(precision), y.astype(precision)
        begun, clock = time.process_time(), time.perf_counter()
        wanted = numpy_gamp(*given, ITERATIONS)
        spent[precision] = time.process_time() - begun, time.perf_counter() - clock
    theirs, slow = spent[np.float64]
    single, quick = spent[np.float32]
    difference = float(np.sqrt(np.mean((np.asarray(found) - wanted) ** 2)))
    return Row("glm", "GAMP, 10,000 weights, 5,000 samples, 100 iterations, float32", ours,
               "NumPy loop in double precision, a variance each",
               theirs, ratio_least=5.0, difference=difference, tolerance=2e-2, wall=wall,
               note="root mean square difference of the estimates: one variance for all weights against one each. Wall seconds: "
               f"{slow / wall:.1f} times ours; the loop in single precision: {single / ours:.1f} times our processor seconds, "
               f"{quick / wall:.1f} times our wall seconds")  # fmt: skip


def state_evolution() -> Row:
    """Vector message passing's state evolution on 100 orthogonal designs, 200 iterations each; the peer would be tramp's."""
    prior, samples = named("sparse", FRACTION), jnp.linspace(0.2, 0.9, 100)

    def denoised(precision, _):
        error = prior.denoised(precision, 14).error
        return error, precision * error

    def path(alpha):
        """The spectrum of orthogonal rows, α ones and 1 − α zeros, as 100 equal shares."""
        ones = (jnp.arange(100) < 100 * alpha).astype(float)
        return evolve(ones, denoised, 1.0, 200, noise=NOISE).error[-1]

    compiled = jax.jit(jax.vmap(path))
    jax.block_until_ready(compiled(samples))
    begun, clock = time.process_time(), time.perf_counter()
    jax.block_until_ready(compiled(samples))
    ours, wall = time.process_time() - begun, time.perf_counter() - clock
    return Row("glm", "state evolution, 100 orthogonal designs, 200 iterations, warm", ours, wall=wall,
               note="tramp was skipped: it is on no package index (the package of that name there is another one)")  # fmt: skip
