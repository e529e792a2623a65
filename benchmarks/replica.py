"""Replica theories on structured inputs: random features against nested quadrature, phase diagrams, the peak, and the
theory of arbitrary covariances against scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import solvable as sv
from solvable.methods.risk.covariate import Sign, learn, of_matrices

from . import peers
from .rows import Row, cpu_seconds, largest

SIDE = 200  # points a side of a phase diagram


def replica() -> Iterator[Row]:
    yield curve()
    for loss, most in (("square", 5.0), ("logistic", 60.0)):
        yield phase_diagram(loss, most)
    yield from peak()
    yield covariances()


def curve() -> Row:
    """The test error of logistic regression at 100 widths; the peer computes two of them."""
    width = np.geomspace(0.3, 10, 100)
    model = sv.RandomFeatures(activation="tanh", samples=3.0, width=width, penalty=0.1)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory().values)
    spent, differences = [], []
    for k in (30, 80):
        eigenvalues, weights = peers.marchenko_pastur(float(width[k]), 400)
        begun = time.process_time()
        found = peers.logistic_features(float(width[k]), 3.0, 0.1, *peers.tanh_coefficients(), eigenvalues, weights)
        spent.append(time.process_time() - begun)
        differences += [largest(outcome[name][k], value) for name, value in found.items()]
    one = float(np.mean(spent))
    return Row(
        "replica",
        "random features, logistic curve, 100 points, warm",
        ours,
        "SciPy quad + minimize_scalar, 2 points × 50",
        100 * one,
        ratio_least=1000,
        difference=max(differences),
        tolerance=1e-6,
        note=f"the peer's points took {spent[0]:.1f} and {spent[1]:.1f} s; values: test error, overlap, norm, response",
    )


def phase_diagram(loss: str, most: float) -> Row:
    """Width × samples at a small penalty, every point with its status."""
    axis = np.geomspace(0.1, 10, SIDE)
    model = sv.RandomFeatures(  # type: ignore[attr-defined]
        loss=loss, activation="tanh", penalty=1e-3, width=axis[None, :], samples=axis[:, None]
    )
    ours, wall, outcome = timed(lambda: model.theory())
    lost = int((~np.asarray(outcome.converged)).sum())
    return Row(
        "replica",
        f"width × samples, {SIDE} × {SIDE} points, {loss}, warm",
        ours,
        most=most,
        difference=float(lost),
        tolerance=0.0,
        wall=wall,
        note=f"the difference is the number of points that did not converge; largest residual {np.max(outcome.residual):.1e}",
    )


def peak() -> Iterator[Row]:
    """2,001 points through interpolation and separability at λ = 1e-6."""
    width = 3.0 * np.geomspace(0.2, 5, 2001)
    for loss in ("square", "logistic", "hinge"):
        model = sv.RandomFeatures(loss=loss, activation="sign", samples=3.0, width=width, penalty=1e-6)  # type: ignore[attr-defined]
        ours, wall, outcome = timed(lambda model=model: model.theory())
        yield Row(
            "replica",
            f"2,001 points through the peak, λ = 1e-6, {loss}, warm",
            ours,
            difference=float((~np.asarray(outcome.converged)).sum()),
            tolerance=0.0,
            wall=wall,
            note="the difference is the number of points lost",
        )


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU and wall seconds of a second call, and its result."""
    jax.block_until_ready(call().values)
    begun, clock = time.process_time(), time.perf_counter()
    outcome = call()
    jax.block_until_ready(outcome.values)
    return time.process_time() - begun, time.perf_counter() - clock, outcome


def covariances() -> Row:
    """A random triple of covariances: `learn` against scikit-learn's logistic regression at two sizes."""
    ours, theirs, difference, notes = 0.0, 0.0, 0.0, []
    for p, seeds in ((200, 20), (400, 10)):
        joint, k, theta = peers.covariance_triple(p, seed=1)
        spectrum = of_matrices(joint[:k, :k], joint[:k, k:], joint[k:, k:], theta)
        ours, found = cpu_seconds(lambda s=spectrum: learn("logistic", Sign(flips=0.05), s, 2.0, 0.1), best_of=2)
        begun = time.process_time()
        errors = peers.logistic_errors(joint, k, theta, 2.0, 0.1, 0.05, seeds)
        theirs = time.process_time() - begun
        mean, error = errors.mean(), errors.std(ddof=1) / np.sqrt(seeds)
        z = abs(mean - float(found.test_error)) / error
        difference = max(difference, z)
        notes.append(f"p = {p}: theory {float(found.test_error):.4f}, fits {mean:.4f} ± {error:.4f}")
    return Row(
        "replica",
        "any covariances, logistic, p = 400, warm",
        ours,
        "scikit-learn, 10 fits at p = 400, n = 800",
        theirs,
        difference=difference,
        tolerance=4.0,
        note=f"the difference is in standard errors of the fits; {'; '.join(notes)}",
    )
