"""Designs of the composed model: realisations at two sizes, compositions drawn at random, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import solvable as sv
from solvable.errors import InvalidValue
from solvable.model import simulate_batch

OBSERVED = ("error", "overlap", "norm", "train_loss", "test_loss", "test_error")
KINDS = (
    {"design": "power-law", "decay": 1.0},
    {"design": "power-law", "decay": 1.5, "basis": "rotated"},
    {"design": "eigenvalues", "eigenvalues": np.array([0.2, 0.6, 2.2]), "basis": "rotated"},
    {"design": "orthogonal"},
    {"design": "invariant", "eigenvalues": np.array([0.1, 0.5, 2.4])},
)


def measured(model, size, seeds):
    keys = jnp.stack([model.key(size, seed) for seed in range(seeds)])
    found = simulate_batch(model, {}, keys, size)
    assert np.asarray(found["converged"]).mean() > 0.9
    done = np.asarray(found["converged"])
    return {name: np.asarray(found[name])[done] for name in OBSERVED if name in found}


def agrees(model, sizes, seeds=10):
    for size in sizes:
        theory = model.realised(size).theory()
        assert theory.converged
        for name, values in measured(model, size, seeds).items():
            wanted, error = float(theory[name]), values.std(ddof=1) / np.sqrt(len(values))
            # Student's t with a few degrees of freedom, and a finite-size correction of a few over d
            assert abs(values.mean() - wanted) < 6 * error + 4 * max(abs(wanted), 0.1) / size, (
                size,
                name,
                values.mean(),
                wanted,
            )


@pytest.mark.parametrize("design", KINDS, ids=lambda d: f"{d['design']}-{d.get('basis', '')}")
def test_the_lasso_agrees_with_its_minimisers_at_two_sizes(design):
    agrees(sv.GLM(samples=0.8, penalty=0.3, noise=0.1, fraction=0.3, **design), (64, 192))


@pytest.mark.parametrize("design", KINDS, ids=lambda d: f"{d['design']}-{d.get('basis', '')}")
def test_the_posterior_mean_agrees_with_message_passing_at_two_sizes(design):
    agrees(sv.GLM(learner="bayes", samples=0.8, noise=0.1, fraction=0.3, **design), (64, 192))


def test_the_posterior_mean_of_labels_agrees_with_message_passing_on_an_orthogonal_design():
    agrees(
        sv.GLM(learner="bayes", prior="laplace", channel="logistic", strength=3.0, samples=1.5, design="orthogonal"),
        (96, 192),
    )


@settings(max_examples=5, deadline=None, derandomize=True, phases=(Phase.generate,))  # shrinking would take minutes
@given(
    st.fixed_dictionaries({
        "design": st.sampled_from(KINDS),
        "parts": st.sampled_from((
            ("gaussian", "absolute"), ("laplace", "huber"), ("quantile", "square"),
            ("sign", "hinge"), ("probit", "logistic"), ("logistic", "exponential"),
        )),
        "prior": st.sampled_from(("gaussian", "sparse", "binary", "laplace")),
        "regulariser": st.sampled_from(("ridge", "lasso", "elastic-net", "box")),
        "samples": st.sampled_from((0.8, 2.0)),
    })
)  # fmt: skip
def test_compositions_with_a_design_drawn_at_random_agree_with_simulation(values):
    channel, loss = values.pop("parts")
    model = sv.GLM(**values.pop("design"), **values, channel=channel, loss=loss, penalty=0.5, noise=0.3, flips=0.1,
                   noise_level=0.3, fraction=0.3)  # fmt: skip
    agrees(model, (150,))


def covariance(size=96, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(size, 2 * size)) * np.linspace(0.3, 2.0, size)[:, None]
    return a @ a.T / size


def test_your_own_covariance_agrees_with_ridge_regression_and_with_message_passing():
    matrix = covariance()
    agrees(sv.GLM(design="covariance", basis="rotated", matrix=matrix, prior="binary", channel="probit", loss="hinge",
                  regulariser="ridge", samples=1.5), (96,), 16)  # fmt: skip
    agrees(
        sv.GLM(design="covariance", basis="rotated", matrix=matrix, prior="gaussian", learner="bayes", samples=0.8),
        (96,),
        16,
    )
    agrees(sv.GLM(design="covariance", matrix=np.diag(np.linspace(0.1, 2.0, 96)), samples=0.8), (96,), 16)


def test_a_covariance_of_the_perceptron_is_its_own():
    """Equal eigenvalues, given as a matrix, are the perceptron's independent inputs."""
    values = {"samples": np.array([0.5, 2.0]), "penalty": 0.3, "noise": 0.2}
    found = sv.GLM(
        prior="gaussian", regulariser="ridge", design="covariance", matrix=2.0 * np.eye(8), **values
    ).theory()
    other = sv.Perceptron(teacher="linear", loss="square", **values).theory()
    for name in ("overlap", "norm", "test_loss", "train_loss"):
        np.testing.assert_allclose(found[name], other[name], atol=1e-10)


def test_orthogonal_rows_have_the_spinodal_of_independent_ones_without_noise_and_smaller_errors_with_it():
    """For Δ → 0 the linear node sends (α/E, …) in both cases; with noise orthogonal rows waste none of their directions."""
    fields = {"learner": "bayes", "fraction": 0.4}
    rows, independent = (
        sv.GLM(design=design, noise=1e-8, **fields).thresholds() for design in ("orthogonal", "gaussian")
    )
    assert abs(float(rows.algorithmic / independent.algorithmic) - 1) < 1e-5
    assert 0.4 <= float(rows.information) < float(independent.information) < 0.9 * float(independent.algorithmic)
    noisy = [
        float(sv.GLM(design=d, noise=0.1, samples=0.8, **fields).theory().error) for d in ("orthogonal", "gaussian")
    ]
    assert noisy[0] < 0.95 * noisy[1]


def test_branches_of_an_orthogonal_design():
    found = sv.GLM(learner="bayes", fraction=0.4, noise=1e-8, design="orthogonal", samples=0.5).branches()
    there = np.isfinite(np.asarray(found.error))
    assert there.sum() == 3
    np.testing.assert_array_equal(np.asarray(found["stable"])[there], [1, 0, 1])
    assert np.asarray(found.free_energy)[there].argmin() == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"design": "covariance"}, "needs `matrix`"),
        ({"matrix": np.eye(3)}, "only design = 'covariance'"),
        ({"design": "covariance", "matrix": covariance(8)}, "matrix is not diagonal: basis"),
        ({"design": "covariance", "matrix": covariance(8), "basis": "rotated"}, "regulariser = 'lasso' has no theory"),
        (
            {"design": "covariance", "matrix": covariance(8), "basis": "rotated", "learner": "bayes"},
            "prior = 'sparse' has no theory",
        ),
        ({"design": "covariance", "matrix": -np.eye(3)}, "not a covariance"),
        ({"design": "eigenvalues", "eigenvalues": np.zeros(3)}, "no positive entry"),
        ({"design": "eigenvalues", "eigenvalues": np.array([0.0, 1.0])}, "has a zero"),
    ],
)
def test_designs_that_the_theory_does_not_cover_are_refused_in_a_sentence(values, message):
    with pytest.raises(InvalidValue, match=message):
        sv.GLM(**values)


def test_a_simulation_of_another_size_than_the_matrix_is_refused():
    model = sv.GLM(design="covariance", matrix=np.eye(8))
    with pytest.raises(InvalidValue, match="use size = 8"):
        simulate_batch(model, {}, jnp.stack([model.key(12, 0)]), 12)
