"""Curricula in batch learning: limits, more phases than two, every arm tuned, risk minimisation itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.replica.curriculum_batch.elastic_phases import Phase, error_at, learn

SPARSE = {"relevant": 0.2, "samples_easy": 0.5, "samples_hard": 0.5}


def phase(samples, level, penalty, pull):
    return Phase(jnp.asarray([samples]), jnp.asarray([level]), jnp.asarray(penalty), jnp.asarray(pull))


def test_without_a_pull_the_first_phase_is_forgotten_and_with_an_infinite_one_it_is_kept():
    result = sv.CurriculumBatch(samples_easy=0.6, samples_hard=0.6, first_penalty=[0.01, 3.0, 0.1],
                              consolidation=[0.0, 0.0, 1e8], penalty=[0.1, 0.1, 1e-8]).theory()  # fmt: skip
    np.testing.assert_allclose(result.test_error[0], result.test_error[1], atol=1e-12)
    np.testing.assert_allclose(result.test_error[2], result.first_error[2], atol=1e-6)
    assert abs(result.first_error[0] - result.first_error[1]) > 0.005


def test_identical_input_distributions_give_the_perceptron():
    """Δ = 1 everywhere and a teacher of squared norm ρ: only its direction is seen by a sign."""
    result = sv.CurriculumBatch(protocol="joint", easy=1.0, hard=1.0, penalty=0.1, relevant=0.3).theory()
    # logistic regression with n/d = 2 and λ = 0.1 (the perceptron's documented value)
    np.testing.assert_allclose(result.test_error, 0.17966239286095, atol=1e-11)
    np.testing.assert_allclose(result.easy_error, result.test_error, atol=1e-12)
    np.testing.assert_allclose(jnp.sum(result.norm), 4.145803620748, atol=1e-9)


def test_phases_without_pull_back_restart_and_a_pull_without_samples_keeps_the_weights():
    rho = jnp.asarray(0.4)
    ends = learn([phase(0.8, 0.1, 0.2, 0.0), phase(0.5, 1.0, 0.05, 0.7), phase(0.7, 0.5, 0.1, 1.3)], rho)
    assert len(ends) == 3
    assert all(bool(e.converged) for e in ends)
    for end in ends:  # Cauchy–Schwarz, and the part across without cancellation
        np.testing.assert_allclose(end.across, rho * end.relevant - end.overlap**2, atol=1e-12)
        assert end.across > 0
    again = learn([phase(0.5, 1.0, 0.05, 0.0), phase(0.7, 0.5, 0.1, 0.0)], rho)
    alone = learn([phase(0.7, 0.5, 0.1, 0.0)], rho)
    np.testing.assert_allclose(again[-1].overlap, alone[-1].overlap, atol=1e-11)
    # next to no samples and no penalty: a phase that is pulled to the last place stays there
    still = learn([phase(0.8, 0.1, 0.2, 0.0), phase(1e-9, 1.0, 1e-9, 2.0)], rho)
    np.testing.assert_allclose(error_at(still[1], rho, rho), error_at(still[0], rho, rho), atol=1e-8)


def test_two_phases_of_equal_shape_are_searched_by_the_program_of_one():
    def loops(protocol):
        model = sv.CurriculumBatch(protocol=protocol)
        return str(jax.make_jaxpr(lambda c: model.with_values(c).point(model.numerics))(model.controls())).count(
            "while["
        )

    assert loops("curriculum") == loops("anti") == loops("joint") > 0


def test_with_every_arm_tuned_on_its_own_the_curriculum_beats_joint_training_and_sparsity_helps_the_prior():
    bounds = {"first_penalty": (1e-3, 10.0), "penalty": (1e-6, 10.0), "consolidation": (1e-2, 1e2)}
    best = {}
    for arm in ("curriculum", "anti", "joint"):
        free = ["penalty"] if arm == "joint" else list(bounds)
        model = sv.CurriculumBatch(protocol=arm, **SPARSE)
        found = sv.optimise(model, free, minimise="test_error", between={n: bounds[n] for n in free})
        best[arm] = found.value
    # upper bounds found by a simplex search of 110 evaluations
    assert best["curriculum"] <= 0.1865
    assert best["anti"] <= 0.1972
    assert best["joint"] <= 0.2148
    assert best["curriculum"] < best["anti"] < best["joint"]


def test_risk_minimisation_agrees_with_theory_within_error_bars():
    """With slices of unequal length; `solvable check` compares every protocol with equal ones."""
    model, size, lanes = sv.CurriculumBatch(protocol="anti", relevant=0.25, samples_easy=1.5), 100, 24
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(5), i))(jnp.arange(lanes))
    out = simulate_batch(model, {}, keys, size)
    theory = model.theory()
    assert bool(out["converged"].all())
    for name in ("test_error", "easy_error", "overlap", "norm"):
        mean, error = out[name].mean(axis=0), out[name].std(axis=0, ddof=1) / np.sqrt(lanes)
        assert np.all(np.abs(mean - theory[name]) < 4.5 * error + 2.0 / size * np.abs(theory[name])), name


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"relevant = 1 is outside its range \(0, 1\)"):
        sv.CurriculumBatch(relevant=1.0)
    with pytest.raises(sv.InvalidValue, match=r"consolidation = -1 is outside its range \[0, 1e\+08\]"):
        sv.CurriculumBatch(consolidation=-1.0)
    with pytest.raises(sv.InvalidValue, match="size = 2 is smaller than 3"):
        sv.CurriculumBatch().simulate(seed=0, size=2)
