"""Linear models on designs that are not independent Gaussians: limits, closed forms, and other solvers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from solvable.methods.random_matrices.spectra import joint_spectrum
from solvable.methods.risk import mixtures
from solvable.methods.risk.bayes_optimal import Bayes, solutions
from solvable.methods.risk.covariate import learn as learn_covariate
from solvable.methods.risk.designs import Design
from solvable.methods.risk.existence import recovery_threshold
from solvable.methods.risk.losses import loss_named
from solvable.methods.risk.outputs import Additive, Labels
from solvable.methods.risk.penalties import Elastic
from solvable.methods.risk.priors import named
from solvable.methods.risk.real_losses import absolute, square
from solvable.methods.risk.risk_minimiser import Composition, learn
from solvable.methods.risk.rotated_bayes import RotatedBayes
from solvable.methods.risk.rotated_minimiser import learn_rotated
from solvable.methods.risk.structured import Composed

NAMES = ("overlap", "norm", "mean_square_error", "train_loss", "test_loss", "energy", "m", "q")
LEARN, ROTATED = eqx.filter_jit(learn), eqx.filter_jit(learn_rotated)
BRANCHES = eqx.filter_jit(solutions)


def gaussian_matrix(samples, nodes=400):
    """The spectrum of a matrix of independent Gaussians, by the law of Marchenko and Pastur."""
    ratio = min(samples, 1.0) / max(samples, 1.0)
    angle = (np.arange(nodes) + 0.5) * np.pi / nodes
    values = 1 + ratio + 2 * np.sqrt(ratio) * np.cos(angle)
    return Design(values, "invariant", 2 * np.sin(angle) ** 2 / nodes / values)


def compositions():
    signs, lasso, both = Labels(mixtures.gaussian(0.1)), Elastic(0.3), Elastic(0.1, 0.2)
    return {
        "lasso": Composition(mixtures.sparse(0.2), Additive(mixtures.gaussian(0.1)), square(), lasso),
        "absolute": Composition(mixtures.binary(), Additive(mixtures.gaussian(0.1)), absolute(), both),
        "logistic": Composition(mixtures.gaussian(), signs, loss_named("logistic"), both),
    }


@pytest.mark.parametrize("name", ["lasso", "absolute", "logistic"])
@pytest.mark.parametrize("samples", [0.6, 2.0])
def test_equal_eigenvalues_and_gaussian_matrices_are_the_case_of_independent_inputs(name, samples):
    parts, alpha = compositions()[name], jnp.asarray(samples)
    wanted = LEARN(parts, alpha)
    found = (
        LEARN(parts, alpha, Design([2.0, 2.0], "aligned")),
        ROTATED(parts, alpha, Design([2.0], "rotated")),
        ROTATED(parts, alpha, gaussian_matrix(samples)),
    )
    for one in found:
        assert one.converged
        for quantity in NAMES:
            assert abs(float(getattr(one, quantity) - getattr(wanted, quantity))) < 1e-10
    for one in found[:2]:
        assert abs(float(one.stability - wanted.stability)) < 1e-10
    assert (found[2].stability < 1) == (wanted.stability < 1)


@pytest.mark.parametrize(
    ("prior", "channel", "samples"),
    [
        (named("sparse", 0.4), Additive(mixtures.gaussian(1e-4)), 0.52),
        (named("binary"), Labels(mixtures.gaussian(0.0)), 1.35),
        (named("laplace"), Additive(mixtures.gaussian(0.1)), 0.7),
    ],
)
def test_all_branches_and_free_energies_of_the_posterior_are_those_of_independent_inputs(prior, channel, samples):
    alpha = jnp.asarray(samples)
    wanted = BRANCHES(Bayes(prior, channel), alpha)
    for found in (
        BRANCHES(Bayes(prior, channel, Design([1.0, 1.0], "aligned")), alpha),
        BRANCHES(RotatedBayes(prior, channel, Design([1.0], "rotated"), alpha), alpha),
        BRANCHES(RotatedBayes(prior, channel, gaussian_matrix(samples), alpha), alpha),
    ):
        np.testing.assert_array_equal(found.found, wanted.found)
        np.testing.assert_array_equal(found.stable, wanted.stable)
        there = np.asarray(wanted.found)
        np.testing.assert_allclose(found.error[there], wanted.error[there], rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(found.fresh_error[there], wanted.error[there], rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(found.free_energy[there], wanted.free_energy[there], atol=2e-7)


OMEGA = np.array([0.05, 0.3, 0.8, 1.4, 2.45])


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_ridge_on_a_rotated_covariance_is_the_theory_of_structured_covariates(loss):
    """A teacher of independent weights has equal squared components on all eigenvectors, τ = ω²."""
    channel = Labels(mixtures.gaussian(0.1))
    loss_ = square() if loss == "square" else loss_named(loss)
    found = ROTATED(
        Composition(mixtures.sparse(0.3), channel, loss_, Elastic(l2=0.2)), jnp.asarray(1.5), Design(OMEGA, "rotated")
    )
    other = learn_covariate(loss, Composed(channel), joint_spectrum(OMEGA, OMEGA**2), 1.5, 0.2)
    for ours, theirs in ((found.m, other.m), (found.q, other.q), (found.test_error, other.test_error)):
        assert abs(float(ours - theirs)) < 1e-9


def test_gaussian_weights_under_a_ridge_penalty_do_not_know_the_basis_of_the_covariance():
    parts = Composition(mixtures.gaussian(), Additive(mixtures.gaussian(0.1)), absolute(), Elastic(l2=0.2))
    aligned, rotated = (
        f(parts, jnp.asarray(0.8), Design(OMEGA, k)) for f, k in ((LEARN, "aligned"), (ROTATED, "rotated"))
    )
    for quantity in NAMES:
        assert abs(float(getattr(aligned, quantity) - getattr(rotated, quantity))) < 1e-9
    prior, channel, alpha = named("gaussian"), Labels(mixtures.logistic()), jnp.asarray(2.0)
    first = BRANCHES(Bayes(prior, channel, Design(OMEGA, "aligned")), alpha)
    second = BRANCHES(RotatedBayes(prior, channel, Design(OMEGA, "rotated"), alpha), alpha)
    for quantity in ("error", "fresh_error", "free_energy"):
        assert abs(float(getattr(first, quantity)[0] - getattr(second, quantity)[0])) < 1e-9


def test_ridge_regression_on_a_covariance_is_its_closed_form():
    """κ and the error of ridge regression by SciPy's root of α − λ/κ = ⟨ω/(ω + κ)⟩ (Dobriban and Wager 2018)."""
    from scipy.optimize import brentq

    alpha, penalty, noise = 0.7, 0.2, 0.3
    omega = OMEGA / OMEGA.mean()
    kappa = brentq(lambda k: alpha - penalty / k - np.mean(omega / (omega + k)), 1e-6, 1e3, xtol=1e-14)
    bias, variance = kappa**2 * np.mean(omega / (omega + kappa) ** 2), np.mean((omega / (omega + kappa)) ** 2) / alpha
    test_error = (bias + noise * variance) / (1 - variance)
    parts = Composition(mixtures.binary(), Additive(mixtures.gaussian(noise)), square(), Elastic(l2=penalty))
    found = ROTATED(parts, jnp.asarray(alpha), Design(OMEGA, "rotated"))
    assert abs(float(2 * found.test_loss) - noise - test_error) < 1e-9


def test_the_lasso_of_an_orthogonal_matrix_is_soft_thresholding():
    penalty, noise, fraction = 0.4, 0.2, 0.3

    def error(power):
        wide = np.sqrt(power + noise)
        shrunk = lambda y: np.sign(y) * max(abs(y) - penalty, 0.0)  # noqa: E731
        # given y = w₀ + √Δ ξ, w₀ is Gaussian with mean κy and variance κΔ
        kappa = power / (power + noise)
        inside = lambda y: (shrunk(y) - kappa * y) ** 2 * stats.norm.pdf(y, scale=wide)  # noqa: E731
        pieces = [
            integrate.quad(inside, a, b, epsabs=1e-13)[0]
            for a, b in ((-15, -penalty), (-penalty, penalty), (penalty, 15))
        ]
        return sum(pieces) + kappa * noise

    wanted = (1 - fraction) * error(0.0) + fraction * error(1 / fraction)
    parts = Composition(mixtures.sparse(fraction), Additive(mixtures.gaussian(noise)), square(), Elastic(penalty))
    found = ROTATED(parts, jnp.asarray(1.0), Design([1.0], "invariant"))
    assert abs(float(found.mean_square_error) - wanted) < 1e-9


def test_the_posterior_mean_of_an_orthogonal_matrix_is_that_of_one_gaussian_observation():
    prior, noise = named("sparse", 0.3), 0.2
    parts = RotatedBayes(prior, Additive(mixtures.gaussian(noise)), Design([1.0], "invariant"), jnp.ones(()))
    found = BRANCHES(parts, jnp.ones(()))
    assert abs(float(found.error[0] - prior.denoised(jnp.asarray(1 / noise), 14).error)) < 1e-9


def test_the_lasso_recovers_from_orthogonal_rows_where_it_does_from_independent_ones_but_with_smaller_errors():
    """The transition without noise is the same (Kabashima, Wadayama and Tanaka 2009); with noise orthogonal rows are better."""
    edge = float(recovery_threshold(0.2))
    design = Design([1.0], "invariant")

    def error(factor, noise, penalty, rows):
        parts = Composition(mixtures.sparse(0.2), Additive(mixtures.gaussian(noise)), square(), Elastic(penalty))
        solver, arguments = (ROTATED, (design,)) if rows else (LEARN, ())
        return float(solver(parts, jnp.asarray(factor * edge), *arguments).mean_square_error)

    # nearly without noise: at 1e-8 and a penalty of 1e-4 rounding leaves residuals of 1e-10, which is not converged
    assert error(0.93, 1e-6, 1e-3, True) > 1e-2
    assert error(1.07, 1e-6, 1e-3, True) < 1e-4
    assert error(1.2, 0.01, 0.1, True) < 0.95 * error(1.2, 0.01, 0.1, False)


def test_replica_symmetry_of_a_convex_risk_holds_on_every_design():
    for design, solver in (
        (Design(OMEGA, "aligned"), LEARN),
        (Design(OMEGA, "rotated"), ROTATED),
        (Design(OMEGA, "invariant"), ROTATED),
    ):
        for parts in compositions().values():
            assert 0 <= float(solver(parts, jnp.asarray(0.8), design).stability) <= 1 + 1e-9


def test_no_solution_is_lost_at_a_pole_of_the_curve():
    """Orthogonal rows: the curve has a pole where it turns, and rounding there must not hide the worse solution."""
    prior, channel, rows = named("sparse", 0.4), Additive(mixtures.gaussian(1e-8)), Design([1.0], "invariant")
    alphas = jnp.linspace(0.588, 0.5892, 240)
    found = jax.jit(jax.vmap(lambda a: solutions(RotatedBayes(prior, channel, rows, a), a, 28).found))(alphas)
    assert np.asarray(found.sum(axis=1)).tolist() == [3] * 240
