"""Diagnostics of chains against known cases and a twin in NumPy; runs that end once chains have met."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm, rankdata

from solvable.methods.averages.chains import effective_size, r_hat, run_chains, run_chains_together
from solvable.models.replica.narrow_network.hamiltonian import begin, proceed


def autoregressive(rho, chains, draws, seed=0):
    rng = np.random.default_rng(seed)
    x = np.empty((chains, draws))
    x[:, 0] = rng.normal(size=chains)
    for i in range(1, draws):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * rng.normal(size=chains)
    return x


def split(x):
    n = x.shape[1] // 2
    return np.concatenate([x[:, :n], x[:, -n:]])


def scores(x):
    return norm.ppf((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))


def twin_r_hat(x):
    ratios = []
    for y in (x, np.abs(x - np.median(x))):
        z = split(scores(y))
        n = z.shape[1]
        within = np.mean([np.sum((c - c.mean()) ** 2) / (n - 1) for c in z])
        means = z.mean(axis=1)
        ratios.append(np.sqrt((within * (n - 1) / n + np.sum((means - means.mean()) ** 2) / (len(z) - 1)) / within))
    return max(ratios)


def twin_effective_size(x):
    z = split(scores(x))
    m, n = z.shape
    centred = z - z.mean(axis=1, keepdims=True)
    lagged = [np.mean([c[: n - t] @ c[t:] / (n - 1) for c in centred]) for t in range(n)]
    total = (n - 1) / n * lagged[0] + np.var(z.mean(axis=1), ddof=1)
    rho = [1.0] + [1 - (lagged[0] - c) / total for c in lagged[1:]]
    sums, least = 0.0, np.inf
    for t in range(0, n - 1, 2):
        pair = rho[t] + rho[t + 1]
        if pair <= 0:
            break
        least = min(least, pair)
        sums += least
    return m * n / max(2 * sums - 1, 1 / np.log10(m * n))


@pytest.mark.parametrize(("rho", "chains", "draws"), [(0.0, 4, 200), (0.9, 4, 301), (-0.5, 2, 128), (0.99, 3, 100)])
def test_diagnostics_are_those_of_a_twin_that_sums_lag_by_lag(rho, chains, draws):
    x = autoregressive(rho, chains, draws)
    x[0] = np.round(x[0], 1)  # some draws are equal
    np.testing.assert_allclose(r_hat(jnp.asarray(x)), twin_r_hat(x), rtol=1e-10)
    np.testing.assert_allclose(effective_size(jnp.asarray(x)), twin_effective_size(x), rtol=1e-8)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_effective_size_of_an_autoregressive_chain_is_known(rho):
    x = jnp.asarray(autoregressive(rho, 4, 20_000))
    np.testing.assert_allclose(effective_size(x), x.size * (1 - rho) / (1 + rho), rtol=0.08)
    assert r_hat(x) < 1.003


def test_r_hat_sees_shifts_drifts_widths_and_heavy_tails():
    x = autoregressive(0.0, 4, 400)
    assert r_hat(jnp.asarray(x)) < 1.01
    assert r_hat(jnp.asarray(x + np.arange(4)[:, None])) > 1.5
    assert r_hat(jnp.asarray(x + np.linspace(0, 3, 400))) > 1.2  # all chains drift in the same way
    assert r_hat(jnp.asarray(x * np.array([1, 1, 1, 5])[:, None])) > 1.1  # the means agree
    heavy = np.random.default_rng(0).standard_cauchy((4, 400))
    assert r_hat(jnp.asarray(heavy)) < 1.01 < r_hat(jnp.asarray(heavy + 2 * (np.arange(4) == 0)[:, None]))


def test_constant_chains_agree_only_where_equal_and_non_finite_ones_have_no_diagnosis():
    still = jnp.ones((4, 20))
    assert r_hat(still) == 1
    assert r_hat(still.at[0].set(2.0)) == jnp.inf
    assert jnp.isnan(r_hat(still.at[0, 0].set(jnp.nan)))
    assert jnp.isnan(effective_size(still.at[0, 0].set(jnp.inf)))


def well(barrier, starts):
    """Chains in U = b(x² − 1)² of one coordinate; those beside it are free."""

    def energy(x):
        return barrier * (x[0] ** 2 - 1) ** 2 + 0.5 * jnp.sum(x[1:] ** 2), jnp.concatenate(
            [4 * barrier * x[:1] * (x[:1] ** 2 - 1), x[1:]]
        )

    @jax.jit
    def piece(walkers, key, thin):
        keys = jax.random.split(key, len(starts))
        move = lambda w, k: proceed(energy, w, k, leaps=8, draws=64, thin=thin)  # noqa: E731
        return jax.vmap(move)(walkers, keys)

    begun = jax.vmap(lambda x: begin(energy, jnp.zeros(4).at[0].set(x), 0.2))(jnp.asarray(starts))
    return run_chains(
        piece, begun, jax.random.key(0), lambda x: {"side": x[..., 0], "other": x[..., 1]}, draws=64, most=8
    )


def test_a_double_well_at_low_temperature_is_flagged_and_at_high_temperature_met():
    starts = [1.0, -1.0, 1.0, -1.0]
    cold, warm = well(30.0, starts), well(1.0, starts)
    assert warm.converged
    assert warm.residual <= 0.05
    assert min(each.effective for each in warm.diagnoses.values()) >= 50
    assert not cold.converged
    assert cold.residual > 0.5  # R̂ − 1 of the sides
    assert cold.diagnoses["other"].r_hat < 1.05  # independent of the other coordinate
    assert cold.steps == 64 * (1 + 1 + 2 + 4 + 8)


def test_pieces_of_all_lengths_are_one_program_and_a_run_stops_between_them():
    compiled, lengths = [], []

    @jax.jit
    def walk(x, key, thin):
        compiled.append(1)
        steps = jax.random.normal(key, (32, *x.shape))

        def draw(x, step):
            x = jax.lax.fori_loop(0, thin, lambda i, x: x, x) + 0.01 * step
            return x, x

        x, drawn = jax.lax.scan(draw, x, steps)
        return x, drawn.T

    def piece(x, key, thin):
        lengths.append(int(thin))
        if len(lengths) == 5:
            raise KeyboardInterrupt
        return walk(x, key, thin)

    with pytest.raises(KeyboardInterrupt):
        run_chains(piece, jnp.zeros(2), jax.random.key(0), lambda x: {"x": x}, draws=32)
    assert len(compiled) == 1
    assert lengths == [1, 1, 2, 4, 8]


def test_runs_side_by_side_are_reported_as_if_alone():
    """Walks on rings of 4 and of 64 sites: the first has met long before the second, and both are as they are alone."""

    def walk(x, key, thin, sites):
        def draw(x, key):
            steps = jax.random.randint(key, (16, 2), -3, 4)
            x = jax.lax.fori_loop(0, thin, lambda i, x: (x + steps[i]) % sites, x)
            return x, x

        return jax.lax.scan(draw, x, jax.random.split(key, 64))

    rings, starts = jnp.array([4, 64]), jnp.array([[0, 2], [0, 32]])
    keys = jax.random.split(jax.random.key(3))
    seen = lambda sites, x: {"cosine": jnp.cos(2 * jnp.pi * x.T.astype(float) / float(sites))}  # noqa: E731
    both = run_chains_together(
        jax.jit(lambda x, keys, thin: jax.vmap(walk, in_axes=(0, 0, None, 0))(x, keys, thin, rings)),
        starts, keys, lambda lane, x: seen(rings[lane], x), draws=64,
    )  # fmt: skip
    assert both[0].steps < both[1].steps
    for lane, run in enumerate(both):
        alone = run_chains(
            jax.jit(lambda x, key, thin, lane=lane: walk(x, key, thin, rings[lane])),
            starts[lane], keys[lane], lambda x, lane=lane: seen(rings[lane], x), draws=64,
        )  # fmt: skip
        np.testing.assert_array_equal(run.draws, alone.draws)
        assert (run.steps, run.converged, run.diagnoses) == (alone.steps, alone.converged, alone.diagnoses)
