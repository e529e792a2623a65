"""Sharpness across widths: the secular equation against the Hessian itself, limits, and trained networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.random_matrices.lanczos import Tridiagonal, lanczos, largest_eigenvalue, largest_of_tridiagonal
from solvable.model import simulate_batch

SMALL = {"steps": 10, "every": 5}


def seen(model, size, seeds):
    return simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)


def test_the_sharpness_is_the_top_eigenvalue_of_a_whole_hessian():
    """A network of 2000 units with moments of the theory, as one dense matrix in the space of matrices M, v_i = M z_i."""
    model = sv.Sharpness(patterns=3, input_dimension=4, richness=2.0, steps=4, every=4)
    x, y = np.asarray(model.given_inputs), np.asarray(model.targets)
    # the recursion, coded again from averages over a Gaussian vector z = (a, w)
    z, beta, e = np.eye(5), np.zeros(4), float(model.rate * model.richness)
    for _ in range(4):
        g = (y - x @ beta) @ x / 3
        pull = np.zeros((5, 5))
        pull[0, 1:] = pull[1:, 0] = g
        z = (np.eye(5) + e * pull) @ z @ (np.eye(5) + e * pull)
        beta = z[0, 1:] / 2.0
    g = (y - x @ beta) @ x / 3
    pull = np.zeros((5, 5))
    pull[0, 1:] = pull[1:, 0] = g
    maps = []
    for row in x:
        t = np.zeros((5, 5))
        t[0, 1:] = t[1:, 0] = row
        maps.append(t)
    operator = np.kron(-2.0 * pull, np.eye(5))  # acts on M, row-major
    for t in maps:
        operator += np.outer(t.ravel(), (t @ z).ravel()) / 3
    exact = np.linalg.eigvals(operator).real.max()
    assert abs(float(model.theory().sharpness[-1]) - exact) < 1e-10


def test_the_lazy_limit_and_ntk_scaling_keep_the_sharpness():
    ntk = sv.Sharpness(scaling="ntk", **SMALL).theory()
    lazy = sv.Sharpness(richness=1e-6, **SMALL).theory()
    np.testing.assert_allclose(ntk.sharpness, ntk.sharpness[0], atol=1e-12)
    np.testing.assert_allclose(lazy.sharpness, ntk.sharpness, atol=1e-4)
    np.testing.assert_allclose(lazy.train_loss, ntk.train_loss, rtol=1e-8)


def test_without_residuals_only_gauss_newton_is_left():
    outcome = sv.Sharpness(patterns=2, steps=2000, every=1000, rate=0.3).theory()
    assert outcome.train_loss[-1] < 1e-20
    assert abs(outcome.sharpness[-1] - outcome.kernel_sharpness[-1]) < 1e-9
    assert outcome.sharpness[0] > outcome.kernel_sharpness[0] + 1e-3


@pytest.mark.parametrize("scaling", ["mup", "ntk"])
def test_networks_follow_the_theory(scaling):
    model = sv.Sharpness(scaling=scaling, richness=1.5, **SMALL)
    theory, runs = model.theory(), seen(model, 512, 12)
    for name in ("sharpness", "kernel_sharpness", "train_loss"):
        found, exact = np.asarray(runs[name]), np.asarray(theory[name])
        error = found.std(axis=0, ddof=1) / np.sqrt(12)
        assert np.all(np.abs(found.mean(axis=0) - exact) < 4 * error + 10 / 512 * exact), name


def test_lanczos_finds_the_top_eigenvalue_and_not_the_largest_in_size():
    matrix = jax.random.normal(jax.random.key(0), (60, 60))
    matrix = (matrix + matrix.T) / 2 - 20 * jnp.outer(jnp.ones(60), jnp.ones(60)) / 60
    exact = np.linalg.eigvalsh(matrix)
    start = jax.random.normal(jax.random.key(1), (60,))
    top = jax.jit(lambda v: largest_eigenvalue(lambda u: matrix @ u, v, 50))(start)
    assert abs(exact[0]) > abs(exact[-1])
    assert abs(float(top) - exact[-1]) < 1e-8


def test_lanczos_stops_in_an_invariant_subspace():
    found = lanczos(lambda v: 3.0 * v, jnp.ones(5), 4)
    assert np.allclose(found.diagonal, [3, 0, 0, 0], atol=1e-12)
    assert np.allclose(found.beside, 0)


def test_tridiagonal_eigenvalues_match_numpy():
    rng = np.random.default_rng(0)
    for size in (1, 2, 17):
        diagonal, beside = rng.standard_normal(size), rng.standard_normal(size - 1)
        whole = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        found = largest_of_tridiagonal(Tridiagonal(jnp.asarray(diagonal), jnp.asarray(beside)))
        assert abs(float(found) - np.linalg.eigvalsh(whole)[-1]) < 1e-12


def test_wrong_combinations_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="every = 7 does not divide steps = 60"):
        sv.Sharpness(every=7)
    with pytest.raises(sv.InvalidValue, match="size = 33 is not even"):
        sv.Sharpness(**SMALL).simulate(0, size=33)
