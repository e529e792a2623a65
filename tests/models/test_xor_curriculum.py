"""Curricula for XOR: tickets, symmetry, slow twins, counted errors, plateau, blow-up, gradient descent itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erfcx, ndtr
from scipy.stats import norm

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.online.xor_curriculum.model import CENTRES, LABELS, Overlaps, _sign_of_output

FEW = {"nodes": 128}


def test_four_units_along_the_centres_fit_the_labels_and_two_cannot():
    ticket = {"initial_overlap": CENTRES, "initial_readout": [1.0, 1.0, -1.0, -1.0], "hard": 0.1, "horizon": 1e-6}
    four = sv.XorCurriculum(initial_norm=np.eye(4)[:, :4] @ (CENTRES @ CENTRES.T), **ticket).theory(FEW)
    assert four.final_error < 1e-3
    two = {n: np.asarray(v)[:2] if np.ndim(v) else v for n, v in ticket.items()}
    blind = sv.XorCurriculum(students=2, initial_norm=CENTRES[:2] @ CENTRES[:2].T, **two).theory(FEW)
    # no unit can lower the output: every label is +, and half of them are wrong
    assert blind.final_error == 0.5


def test_units_without_any_overlap_never_find_one():
    still = sv.XorCurriculum(initial_overlap=np.zeros((4, 2)), horizon=20.0).theory(FEW)
    assert np.abs(still.overlap).max() < 1e-9  # exactly, because all clusters have the same points
    assert still.final_error > 0.45


def test_mirrored_networks_stay_mirrored():
    model = sv.XorCurriculum(horizon=6.0)
    mirrored = model.replace(initial_overlap=-model.initial_overlap)
    np.testing.assert_allclose(
        mirrored.theory(FEW).test_loss, model.theory(FEW).test_loss, atol=5e-3
    )  # the rest of the weights is not mirrored: Sobol error only


def test_a_slow_twin_by_plain_sampling_gives_the_same_first_steps():
    """The drift of one step of gradient descent in forty dimensions, averaged over drawn samples and samples only."""
    model = sv.XorCurriculum(loss="square", protocol="hard", horizon=0.02, softness=0.2, points=1, rate=0.7,
                             biases="trained")  # fmt: skip
    rng, d, k = np.random.default_rng(0), 40, 4
    rest = np.linalg.qr(rng.normal(size=(d - 2, k)))[0].T
    root = np.linalg.cholesky(np.asarray(model.initial_norm - model.initial_overlap @ model.initial_overlap.T))
    w, v = np.concatenate([model.initial_overlap, root @ rest], axis=1), np.asarray(model.initial_readout)
    n = 400_000
    which = np.arange(n) % 4
    x = 0.4 * rng.normal(size=(n, d))
    x[:, :2] += CENTRES[which]
    fields = x @ w.T
    on = norm.cdf(fields / 0.2)
    hidden = fields * on + 0.2 * norm.pdf(fields / 0.2)
    pull = hidden @ v - np.where(which < 2, 1.0, -1.0)
    steps = pull[:, None] * on * v[None, :]
    expected = {"overlap": -0.7 * steps.T @ x[:, :2] / n, "readout": -0.7 * pull @ hidden / n}
    expected["bias"] = -0.7 * steps.mean(axis=0)
    square = -2 * 0.7 * np.mean(steps * fields, axis=0) + 0.7**2 * np.mean(steps**2, axis=0) * 0.16
    outcome = model.theory({"nodes": 4096})
    for name, slope in {**expected, "norm": square}.items():
        moved = np.asarray(outcome[name][-1] - outcome[name][0]) / 0.02
        np.testing.assert_allclose(moved, slope, atol=6e-3)


def by_scipy(model, nodes):
    """Q, M and v at the end of both stages: the documented flow over the model's points, by NumPy and SciPy's integrator."""
    k, eta, softness = model.students, float(model.rate), float(model.softness)
    points = model._draws(nodes)[:k, :nodes].T
    labels = np.repeat(LABELS, nodes)

    def drift(_, y, spread):
        q, m, v = y[: k * k].reshape(k, k), y[k * k : -k].reshape(k, 2), y[-k:]
        root = np.linalg.cholesky(q)
        noise = spread * points @ root.T
        fields = np.concatenate([noise + m @ c for c in CENTRES])
        plane = np.concatenate([c + spread * points @ np.linalg.solve(root, m) for c in CENTRES])
        on = ndtr(fields / softness)
        hidden = fields * on + softness * norm.pdf(fields / softness)
        out = hidden @ v
        pull = out - labels if model.loss == "square" else -labels / (1 + np.exp(labels * out))
        b = pull[:, None] * on * v
        cross = b.T @ fields / len(b)
        dq = -eta * (cross + cross.T) + (eta * spread) ** 2 * b.T @ b / len(b)
        return np.concatenate([dq.ravel(), -eta * (b.T @ plane).ravel() / len(b), -eta * hidden.T @ pull / len(b)])

    y = np.concatenate([np.ravel(x) for x in (model.initial_norm, model.initial_overlap, model.initial_readout)])
    ends = []
    for spread in (float(model.easy), float(model.hard)):
        y = solve_ivp(
            drift, (0, float(model.horizon) / 2), y, args=(spread,), method="DOP853", rtol=1e-9, atol=1e-10
        ).y[:, -1]
        ends.append(y)
    path = np.array(ends)
    return {"norm": path[:, : k * k : k + 1], "overlap": path[:, k * k : -k].reshape(2, k, 2), "readout": path[:, -k:]}


@pytest.mark.parametrize(
    "fields",
    [{"loss": "square", "horizon": 60.0}, {"rate": 10.0, "horizon": 10.0}, {"loss": "square", "horizon": 70.0}],
)
def test_long_and_fast_training_is_followed_as_by_another_integrator(fields):
    model = sv.XorCurriculum(**fields)
    result, exact = model.theory(FEW), by_scipy(model, FEW["nodes"])
    assert result.converged
    for name, values in exact.items():
        np.testing.assert_allclose(result[name][5::5], values, rtol=1e-6, atol=1e-6, err_msg=name)
    # where it is measured makes no difference
    seldom = model.replace(points=1).theory(FEW)
    np.testing.assert_allclose(seldom.overlap, result.overlap[::5], atol=1e-6)


def counted(state, hard, softness, number):
    """How often plain draws have the wrong label, and the standard error."""
    q, m, v, b = (np.asarray(x) for x in state)
    rng, wrong = np.random.default_rng(3), []
    root = np.linalg.cholesky(q + 1e-12 * np.eye(len(v)))
    for centre, label in zip(CENTRES, LABELS, strict=True):
        x = (m @ centre + b + hard * rng.normal(size=(number // 4, len(v))) @ root.T) / softness
        output = (x * ndtr(x) + norm.pdf(x)) @ v
        # where all units are off: φ(x) (1 - √(π/2) |x| erfcx(|x|/√2)), the largest of them set to one
        off = np.all(x < -5, axis=1)
        far = -x[off]
        size = -0.5 * far**2 + np.log1p(-np.sqrt(np.pi / 2) * far * erfcx(far / np.sqrt(2)))
        output[off] = np.exp(size - size.max(axis=1, keepdims=True)) @ v
        wrong.append(0.5 - 0.5 * label * np.sign(output))
    return np.mean(wrong), np.std(wrong) / np.sqrt(number)


@pytest.mark.parametrize("students", [1, 3, 6])
def test_the_error_is_the_frequency_of_wrong_labels_however_small_the_outputs(students):
    rng = np.random.default_rng(students)
    w = 0.6 * rng.normal(size=(students, 9))
    v, b = 0.1 * rng.normal(size=students), 0.2 * rng.normal(size=students)
    state = Overlaps(*(jnp.asarray(x) for x in (w @ w.T, w[:, :2], v, b)))
    model = sv.XorCurriculum(students=students, hard=0.3)
    lines = jnp.asarray(model._draws(1024)[:students, :1024].T)
    found = eqx.filter_jit(lambda model: model._error(state, lines, 33))
    for softness in (0.01, 0.1, 0.5):
        frequency, error = counted(state, 0.3, softness, 1_000_000)
        assert float(found(model.replace(softness=softness))) == pytest.approx(frequency, abs=4 * error + 1e-3)


def test_a_simulation_counts_wrong_labels():
    """At the start the overlaps are exact: counts of 4000 samples a seed, and nothing between right and wrong."""
    model = sv.XorCurriculum(students=3, initial_readout=[0.05, -0.04, 0.03], points=1, horizon=0.01)
    runs = np.stack([model.simulate(seed, 100).test_error for seed in range(8)])
    np.testing.assert_allclose(4000 * runs, np.rint(4000 * runs), atol=1e-2)
    error = runs[:, 0].std(ddof=1) / np.sqrt(8)
    start = float(model.theory(FEW).test_error[0])
    assert runs[:, 0].mean() == pytest.approx(start, abs=4 * error + 1e-3)
    state = (model.initial_norm, model.initial_overlap, model.initial_readout, np.zeros(3))
    frequency, error = counted(state, 0.4, 0.1, 1_000_000)
    assert start == pytest.approx(frequency, abs=4 * error + 1e-3)


def test_the_sign_of_an_output_is_right_where_all_units_are_off():
    """Both units far below zero: the nearer one decides, by however little."""
    x = np.array([[-9.9, -10.1], [-10.1, -9.9], [-45.0, -46.0], [-500.0, -499.0], [-3.0, -3.1], [2.0, 1.0]])
    sized = jax.vmap(lambda x, v: _sign_of_output(x, v, jnp.asarray(1.0)), in_axes=(0, None))
    signs = np.sign(sized(jnp.asarray(x), jnp.array([1.0, -1.0])))
    np.testing.assert_array_equal(signs, [1, -1, 1, -1, 1, 1])
    # and the switch from one expression to the other, at ten softnesses, is seamless
    far = np.array([9.9, 9.999999, 10.0, 10.000001, 12.0])
    exact = np.exp(-0.5 * far**2) * (1 - np.sqrt(np.pi / 2) * far * erfcx(far / np.sqrt(2)))
    ratio = sized(jnp.stack([jnp.asarray(-far), jnp.full(5, -9.0)], axis=1), jnp.array([1.0, 1e-300]))
    beside = np.exp(-0.5 * 81) * (1 - np.sqrt(np.pi / 2) * 9 * erfcx(9 / np.sqrt(2)))
    np.testing.assert_allclose(ratio, exact / beside, rtol=1e-6)


def test_finer_numerics_move_the_path_by_less_than_the_stated_accuracy():
    for fields in ({"horizon": 20.0, "rate": 1.5}, {"horizon": 20.0, "rate": 1.5, "loss": "square"}):
        model = sv.XorCurriculum(biases="trained", **fields)
        result, finer = model.theory(), model.theory({"nodes": 8192, "lines": 2048, "brackets": 65, "tolerance": 1e-9})
        for name in ("test_error", "test_loss", "overlap", "norm", "readout", "bias"):
            np.testing.assert_allclose(
                result[name], finer[name], rtol=model.accuracy, atol=model.accuracy, err_msg=name
            )


def test_a_flow_that_blows_up_is_nan_from_there_on_without_an_exception():
    wild = sv.XorCurriculum(loss="square", rate=20.0, hard=10.0).theory({"nodes": 32})
    assert not wild.converged
    assert np.isnan(wild.final_error)
    done = np.asarray(wild.converged_along)
    assert done.any()
    for name in ("test_error", "test_loss", "overlap", "norm", "readout"):
        assert np.isfinite(np.asarray(wild[name])[done]).all()
        assert np.isnan(np.asarray(wild[name])[~done]).all()


def test_easy_first_beats_hard_only_in_the_midst_of_learning():
    final = {
        p: float(sv.XorCurriculum(protocol=p, horizon=20.0).theory(FEW).final_error) for p in ("curriculum", "hard")
    }
    assert final["curriculum"] < final["hard"] - 0.02


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_gradient_descent_follows_the_flow(loss):
    """On mixed samples; `solvable check` compares the same of a curriculum at three sizes."""
    model = sv.XorCurriculum(loss=loss, protocol="mixed", rate=0.6, points=2)
    theory, seeds = model.theory({"nodes": 4096}), 16
    for size in (200, 800):
        batch = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
        for observable in ("test_error", "test_loss", "overlap", "norm", "readout"):
            runs, exact = np.asarray(batch[observable]), np.asarray(theory[observable])
            error = runs.std(axis=0, ddof=1) / np.sqrt(seeds)
            # 4096 points per cluster leave 0.005; the correction of order 1/d is a few units
            assert np.all(np.abs(runs.mean(axis=0) - exact) < 4.5 * error + 5 / size + 0.005), (observable, size)


def test_random_starts_are_drawn_with_the_requested_scaling():
    model = sv.XorCurriculum(start="random", students=64, scaling="inverse-root")
    drawn = model.prepare(jax.random.key(0), 500)
    assert float(jnp.mean(drawn.initial_readout**2)) == pytest.approx(1 / 64, rel=0.6)
    np.testing.assert_allclose(np.diag(drawn.initial_norm), 1.0, atol=0.3)
    with pytest.raises(sv.SolvableError, match="must be prepared first"):
        model.theory()


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"hard = 0 is outside its range \(0, 10\]"):
        sv.XorCurriculum(hard=0.0)
    with pytest.raises(sv.InvalidValue, match="initial_overlap has 3 columns but needs two"):
        sv.XorCurriculum(initial_overlap=np.zeros((4, 3)))
    with pytest.raises(sv.InvalidValue, match="initial_norm is not symmetric"):
        sv.XorCurriculum(initial_norm=np.eye(4) + np.eye(4, k=1))
    with pytest.raises(sv.InvalidValue, match="Q - MMᵀ has the negative eigenvalue"):
        sv.XorCurriculum(initial_overlap=np.ones((4, 2)))
    with pytest.raises(sv.InvalidValue, match="size = 5 is smaller than the 6 directions"):
        sv.XorCurriculum().simulate(seed=0, size=5)
