"""Random labels: the pair of equations without a covariance, capacity, clouds, simulations, digits."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import root
from scipy.stats import norm

import solvable as sv
from commands import answer
from solvable.model import simulate_batch

P = 300
RAMP, STEEP = 2 * np.arange(1, P + 1) / P, np.arange(1, P + 1) ** -0.6
SAMPLES = np.array([2.05, 2.2, 2.5, 3.0, 5.0])  # five points, like the reference values: one program


def of_spectrum(spectrum, **fields):
    return sv.RandomLabels(inputs="clouds", shares=[1.0], spectra=np.asarray(spectrum)[None, :], **fields).theory()


def hinge_without_covariance(samples):
    """α E[1 − prox′] = 1 and q = α E[(prox − ω)²] in closed form, solved in log q and log V."""

    def gap(x):
        s, V = np.exp(0.5 * x[0]), np.exp(x[1])
        a, b = (1 - V) / s, 1 / s
        D = norm.cdf(b) - norm.cdf(a)
        square = (
            V**2 * norm.cdf(a) + D - 2 * s * (norm.pdf(a) - norm.pdf(b))
            + s**2 * (D + a * norm.pdf(a) - b * norm.pdf(b))
        )  # fmt: skip
        return np.array([np.log(samples * D), np.log(samples * square / s**2)])

    found = root(gap, [np.log(10 / (samples - 2)), 1.0], tol=1e-13)
    assert found.success
    s, V = np.exp(0.5 * found.x[0]), np.exp(found.x[1])
    a = (1 - V) / s
    return s**2, (1 - V) * norm.cdf(a) + s * norm.pdf(a)


def test_without_a_penalty_the_covariance_drops_out_and_the_hinge_loss_is_the_closed_pair_of_equations():
    known = np.array([hinge_without_covariance(a) for a in SAMPLES])
    for spectrum in (RAMP, STEEP):
        found = of_spectrum(spectrum, loss="hinge", samples=SAMPLES, penalty=0.0)
        np.testing.assert_allclose(found.norm, known[:, 0], rtol=1e-8)
        np.testing.assert_allclose(found.train_loss, known[:, 1], rtol=1e-8)


def test_with_a_penalty_every_covariance_has_a_curve_of_its_own_and_much_data_costs_the_loss_of_no_prediction():
    ramp, steep = (of_spectrum(s, loss="hinge", samples=[0.5, 1.5, 3.0, 5.0, 1e4], penalty=0.05) for s in (RAMP, STEEP))
    assert np.all(np.abs(np.asarray(ramp.train_loss - steep.train_loss))[1:3] > 3e-3)
    assert abs(float(ramp.train_loss[-1]) - 1) < 0.01


@pytest.mark.parametrize(("loss", "capacity"), [("square", 1.0), ("hinge", 2.0)])
def test_below_the_capacity_the_loss_is_zero_and_flagged_and_above_it_grows(loss, capacity):
    samples = capacity * np.array([0.3, 1.0, 1.01, 1.1, 2.0])
    found = of_spectrum(RAMP, loss=loss, samples=samples, penalty=0.0)
    assert bool(found.converged.all())
    assert np.all(np.asarray(found.train_loss[:2]) == 0)
    assert np.all(np.isinf(np.asarray(found.response[:2])))
    assert np.all(np.diff(np.asarray(found.train_loss)[1:]) > 0)
    np.testing.assert_allclose(found.capacity, capacity)


def test_capacity_counts_directions_that_vary():
    flat = np.where(np.arange(P) < P // 3, 0.0, RAMP)
    found = of_spectrum(flat, loss="square", samples=[0.5, 0.66, 0.7, 1.0, 2.0], penalty=0.0)
    np.testing.assert_allclose(found.capacity, 2 / 3, rtol=1e-12)
    known = np.maximum(0.5 * (1 - (2 / 3) / np.array([0.5, 0.66, 0.7, 1.0, 2.0])), 0)
    np.testing.assert_allclose(found.train_loss, known, atol=1e-12)


def test_clouds_of_one_covariance_are_one_gaussian():
    """The square loss by plain iteration: V = ⟨ω/(λ + V̂ω)⟩, V̂ = α/(1 + V), q = α(1 + q)/(1 + V)² ⟨ω²/(λ + V̂ω)²⟩."""
    omega, samples, penalty, V = RAMP[::10], 1.5, 0.1, 1.0
    for _ in range(300):
        R = 1 / (penalty + samples / (1 + V) * omega)
        V = np.mean(omega * R)
    gain = samples / (1 + V) ** 2 * np.mean((omega * R) ** 2)
    known = 0.5 / (1 - gain) / (1 + V) ** 2
    two = sv.RandomLabels(
        loss="square",
        inputs="clouds",
        spectra=np.stack([omega, omega]),
        shares=[0.4, 0.6],
        samples=samples,
        penalty=penalty,
    )
    assert abs(float(two.theory().train_loss) - known) < 1e-9


def within_error_bars(model, size, lanes, names=("train_loss", "train_error", "norm")):
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(jnp.arange(lanes))
    seen, theory = simulate_batch(model, {}, keys, size), model.realised(size).theory()
    assert bool(seen["converged"].all())
    for name in names:
        mean, error = seen[name].mean(), seen[name].std(ddof=1) / np.sqrt(lanes)
        assert abs(mean - theory[name]) < 4.5 * error + 1.0 / size * abs(theory[name]), name


def test_a_simulation_of_clouds_with_distant_means_agrees_with_theory():
    within_error_bars(sv.RandomLabels(loss="square", inputs="clouds", samples=2.0, penalty=0.1), 64, 24)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_simulations_agree_with_theory(loss):
    """On a ramp with a penalty; `solvable check` compares the same of power laws and clouds."""
    within_error_bars(sv.RandomLabels(loss=loss, inputs="ramp", samples=1.5, penalty=0.05), 128, 24)


def test_bad_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"shares = \[0.5, 0.6\] must be positive numbers that sum to 1"):
        sv.RandomLabels(shares=[0.5, 0.6])
    with pytest.raises(sv.InvalidValue, match="spectra has a cloud without a positive eigenvalue"):
        sv.RandomLabels(spectra=[[1.0], [0.0]])
    with pytest.raises(sv.InvalidValue, match="size = 60 is not 61"):
        sv.RandomLabels(inputs="digits").simulate(0, 60)
    with pytest.raises(
        sv.InvalidValue, match="samples gives 2000 samples at size = 200, but there are only 1797 digits"
    ):
        sv.RandomLabels(inputs="digits-tanh", samples=10.0).simulate(0, 200)
    with pytest.raises(sv.InvalidValue, match="inputs = 'given' needs rows"):
        sv.RandomLabels(inputs="given")
    with pytest.raises(sv.InvalidValue, match="rows has no column that varies"):
        sv.RandomLabels(inputs="given", rows=np.ones((5, 3)))
    with pytest.raises(sv.InvalidValue, match="size = 4 is not 3, the number of columns of rows"):
        sv.RandomLabels(inputs="given", rows=np.eye(5, 3), samples=1.0).simulate(0, 4)
    with pytest.raises(sv.SolvableError, match="must be prepared first"):
        sv.RandomLabels(inputs="digits-tanh").theory()


def test_digits_have_the_square_loss_of_gaussians_of_their_covariance():
    model = sv.RandomLabels(loss="square", inputs="digits", samples=4.0, penalty=0.1)
    within_error_bars(model, 61, 40, ("train_loss", "train_error"))


def test_random_features_of_digits_have_the_logistic_loss_of_gaussians_of_their_covariance():
    model = sv.RandomLabels(inputs="digits-tanh", samples=3.0, penalty=0.01)
    study = sv.Study(model, sizes=[150], seeds=8)
    data = study.run(progress=False)
    gap = np.asarray(data.train_loss_simulated - data.train_loss_expected)
    assert abs(gap.mean()) < 4.5 * gap.std(ddof=1) / np.sqrt(gap.size) + 0.005


def test_own_rows_have_the_theory_of_their_covariance():
    """Rows that are digits give the digits' theory, whatever their unit and origin; a linear map of one column matters."""
    from solvable.models.replica.random_labels.model import digits

    settings = {"samples": 3.0, "penalty": 0.01}
    same = sv.RandomLabels(inputs="given", rows=7.0 + 3.0 * digits(), **settings).theory().train_loss
    np.testing.assert_allclose(same, sv.RandomLabels(inputs="digits", **settings).theory().train_loss, rtol=1e-9)
    longer = digits() * np.where(np.arange(61) == 0, 100.0, 1.0)
    assert abs(sv.RandomLabels(inputs="given", rows=longer, **settings).theory().train_loss - same) > 1e-3


def test_own_rows_are_read_from_a_file(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(60, 5)) @ np.diag([1.0, 2.0, 3.0, 4.0, 5.0])
    np.save(tmp_path / "rows.npy", rows)
    fields = ["inputs=given", f"rows=@{tmp_path / 'rows.npy'}", "loss=square", "samples=4"]
    code, out, _ = answer(capsys, "theory", "random-labels", *fields, "--json")
    assert code == 0
    expected = sv.RandomLabels(inputs="given", rows=rows, loss="square", samples=4.0).theory().train_loss
    assert json.loads(out)["observables"]["train_loss"] == pytest.approx(float(expected), rel=1e-12)
