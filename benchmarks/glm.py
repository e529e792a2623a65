"""Composed linear models: lasso points, a loss given as a function, and message passing against a NumPy loop."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.methods.fixed_points.gamp import gamp
from solvable.methods.fixed_points.gamp import state_evolution as state_evolution_of
from solvable.methods.fixed_points.vector_amp import evolve
from solvable.methods.risk import mixtures
from solvable.methods.risk.outputs import Additive
from solvable.methods.risk.priors import named

from .replica import timed
from .rows import Row, cpu_seconds, largest

INTERPRETER = "SOLVABLE_TRAMP_PYTHON"  # of an environment that has tramp
SIZE, ITERATIONS, NOISE, FRACTION = 10_000, 100, 0.01, 0.2
SAMPLES = 0.5
TOGETHER = 16  # label vectors of one matrix


def glm() -> Iterator[Row]:
    yield lasso()
    yield from own_loss()
    yield from message_passing()
    yield state_evolution()
    yield against_tramp()


def lasso() -> Row:
    """1,000 points of the lasso over samples and penalty."""
    model = sv.GLM(samples=np.geomspace(0.2, 5, 40)[:, None], penalty=np.geomspace(0.05, 2, 25)[None, :])
    ours, wall, outcome = timed(model.theory)
    lost = float((~np.asarray(outcome.converged)).sum())
    return Row("glm", "1,000 lasso points, warm", ours, most=1.0, difference=lost, tolerance=0.0, wall=wall,
               note="the difference is the number of points that did not converge")  # fmt: skip


def own_loss() -> Iterator[Row]:
    """Losses built in and given as functions of (y, z), 200 points each.

    Residual losses are closed forms where they are built in and averages where they are functions: no ratio is required.
    """
    logistic = lambda y, z: jnp.logaddexp(0.0, -y * z)  # noqa: E731
    square = lambda y, z: 0.5 * (y - z) ** 2  # noqa: E731
    for channel, name, function, least in (
        ("logistic", "logistic", logistic, 1 / 3), ("sign", "logistic", logistic, 1 / 3), ("gaussian", "square", square, None),
    ):  # fmt: skip
        fields: dict[str, Any] = {"prior": "gaussian", "channel": channel, "regulariser": "ridge"}
        fields |= {"samples": np.geomspace(0.3, 5, 200), "penalty": 0.3}
        built, own = sv.GLM(loss=name, **fields), sv.GLM(loss=function, **fields)
        theirs, _, wanted = timed(built.theory)
        ours, wall, found = timed(own.theory)
        difference = float(np.max(np.abs(np.asarray(found.error - wanted.error))))
        yield Row("glm", f"{name} loss as a function, {channel} channel, 200 points, warm", ours, "built in", theirs,
                  ratio_least=least, difference=difference, tolerance=1e-8, wall=wall)  # fmt: skip


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


def message_passing() -> Iterator[Row]:
    """Ten thousand weights, a hundred iterations, at the same precision on both sides and at each side's own; and its floor.

    Every processor is bound by reading A: an iteration reads it twice, the loop reads A and its squares twice each. So five
    times the speed of the loop has two sources: half of the readings, and either half of the bytes (single against double
    precision) or label vectors that share the readings.
    """
    a, y, _ = _problem(SIZE)
    compiled = jax.jit(lambda a, y: run_gamp(a, y, ITERATIONS).estimate)
    together = jax.jit(jax.vmap(lambda a, y: run_gamp(a, y, ITERATIONS).estimate, in_axes=(None, 0)))
    products = jax.jit(lambda a, w, g: (a @ w, g @ a))
    draws = np.random.default_rng(1).normal(size=(TOGETHER, len(y)))
    mine: dict[Any, tuple[float, np.ndarray]] = {}
    loops: dict[Any, tuple[float, np.ndarray]] = {}
    floors, batches = {}, {}
    for precision in (np.float32, np.float64):
        given = a.astype(precision), y.astype(precision)
        d, many = tuple(map(jnp.asarray, given)), jnp.asarray((given[1] + NOISE**0.5 * draws).astype(precision))
        ones = jnp.ones(SIZE, precision), jnp.ones(len(y), precision)
        mine[precision] = cpu_seconds(lambda d=d: compiled(*d), best_of=2)
        loops[precision] = cpu_seconds(lambda g=given: numpy_gamp(*g, ITERATIONS), best_of=1, warm=False)
        floors[precision] = ITERATIONS * cpu_seconds(lambda d=d, o=ones: products(d[0], *o), best_of=5)[0]
        batches[precision] = cpu_seconds(lambda d=d, m=many: together(d[0], m), best_of=1)[0]
    shapes = "GAMP, 10,000 weights, 5,000 samples, 100 iterations"
    apart = "root mean square difference of the estimates: one variance for all weights against one each"
    equal = "equal precision: the loop reads A and its squares twice each"
    for ours, theirs, least, note in (
        (
            np.float32,
            np.float64,
            5.0,
            f"{apart}; single precision against the loop in double, which is what NumPy draws",
        ),
        (np.float32, np.float32, None, equal),
        (np.float64, np.float64, None, equal),
    ):
        (spent, found), (loop, wanted) = mine[ours], loops[theirs]
        difference = float(np.sqrt(np.mean((np.asarray(found) - wanted) ** 2)))
        yield Row("glm", f"{shapes}, {np.dtype(ours).name}", spent,
                  f"NumPy loop, {np.dtype(theirs).name}, a variance each", loop, ratio_least=least, difference=difference,
                  tolerance=2e-2, note=note)  # fmt: skip
    for precision, (spent, found) in mine.items():
        apart_from = float(np.sqrt(np.mean((np.asarray(found) - np.asarray(mine[np.float64][1])) ** 2)))
        kind = np.dtype(precision).name
        yield Row("glm", f"{shapes}, {kind}", spent, "two products with A alone", floors[precision], floor=True,
                  difference=apart_from, tolerance=1e-4, note="difference from double precision")  # fmt: skip
        yield Row("glm", f"{shapes}, {kind}, {TOGETHER} label vectors at once", batches[precision],
                  f"the loop, {kind}, times {TOGETHER}", TOGETHER * loops[precision][0], ratio_least=5.0,
                  note="one matrix: products with vectors become products with matrices")  # fmt: skip


def state_evolution() -> Row:
    """Vector message passing's state evolution on 100 orthogonal designs, 200 iterations each."""
    prior, samples = named("sparse", FRACTION), jnp.linspace(0.2, 0.9, 100)

    def denoised(precision, _):
        error = prior.denoised(precision, 14).error
        return error, precision * error

    def path(alpha):
        """The spectrum of orthogonal rows, α ones and 1 − α zeros, as 100 equal shares."""
        ones = (jnp.arange(100) < 100 * alpha).astype(float)
        return evolve(ones, denoised, 1.0, 200, noise=NOISE).error[-1]

    compiled = jax.jit(jax.vmap(path))
    ours, _ = cpu_seconds(lambda: compiled(samples), best_of=2)
    return Row("glm", "state evolution, 100 orthogonal designs, 200 iterations, warm", ours)


def against_tramp() -> Row:
    """Message passing's state evolution on independent Gaussian inputs, 20 numbers of samples, 200 iterations each."""
    prior, samples, iterations = named("sparse", FRACTION), np.linspace(0.3, 0.9, 20), 200

    def last(alpha):
        path = state_evolution_of(
            lambda q_hat: prior.denoised(q_hat, 14).error, lambda e: alpha / (NOISE + e), jnp.ones(()), iterations
        )
        return path[-1]

    compiled, at = jax.jit(jax.vmap(last)), jnp.asarray(samples)
    ours, found = cpu_seconds(lambda: compiled(at), best_of=2)
    what = "state evolution, 20 Gaussian designs, 200 iterations, warm"
    python = os.environ.get(INTERPRETER)
    if not python:
        composed = sv.GLM(learner="bayes", fraction=FRACTION, noise=NOISE, samples=samples).theory()
        return Row("glm", what, ours, difference=largest(found, composed.error), tolerance=1e-6,
                   note=f"the peer, tramp, was skipped: {INTERPRETER} names no interpreter that has it; the difference is to "
                   "the saddle points of `glm`")  # fmt: skip
    words = [python, str(Path(__file__).with_name("tramp_peer.py")), *map(str, (iterations, FRACTION, NOISE, *samples))]
    peer = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=900, check=True).stdout)
    return Row("glm", what, ours, "tramp, one after the other", peer["cpu"], difference=largest(found, peer["error"]),
               tolerance=1e-6)  # fmt: skip
