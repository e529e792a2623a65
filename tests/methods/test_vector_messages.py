"""Message passing at finite size follows its state evolution, step by step, and ends where it should."""

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.fixed_points import gamp as passing
from solvable.methods.fixed_points.gamp import gamp, state_evolution
from solvable.methods.fixed_points.vector_amp import evolve, vamp
from solvable.methods.risk import mixtures
from solvable.methods.risk.outputs import Additive, Labels
from solvable.methods.risk.penalties import Elastic
from solvable.methods.risk.priors import named


def _sparse(key, size):
    """Weights of which exactly a fifth are not zero, of mean square one: fluctuations of both would hide the others."""
    some = jnp.where(jnp.arange(size) % 5 == 0, jax.random.normal(key, (size,)), 0.0)
    return some / jnp.sqrt(jnp.mean(some**2))


def test_message_passing_follows_state_evolution_step_by_step():
    prior, noise, samples, size = named("sparse", 0.2), 0.05, 0.7, 1000
    channel = Additive(mixtures.gaussian(noise))
    n = round(samples * size)

    def one(key):
        of_teacher, of_inputs, of_noise = jax.random.split(key, 3)
        teacher = _sparse(of_teacher, size)
        a = jax.random.normal(of_inputs, (n, size)) / size**0.5
        y = a @ teacher + noise**0.5 * jax.random.normal(of_noise, (n,))
        return gamp(
            a,
            y,
            channel.score,
            lambda field, precision: prior.posterior(field, jnp.broadcast_to(precision, field.shape))[:2],
            12,
            measure=lambda w: jnp.mean((w - teacher) ** 2),
        ).measured

    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 6))
    theory = state_evolution(
        lambda q_hat: prior.denoised(q_hat, 14).error,
        lambda error: samples * channel.information(1 - error, error, 14).conjugate,
        jnp.ones(()),
        12,
    )
    spread = jnp.std(found, axis=0, ddof=1) / 6**0.5
    assert jnp.all(jnp.abs(jnp.mean(found, axis=0) - theory[1:]) < 5 * spread + 0.02 * theory[1:])
    assert jnp.all(spread < 0.1 * theory[1:])
    assert theory[-1] < 0.2 * theory[1]  # it learns meanwhile


def test_masked_samples_are_no_samples_with_damping_and_in_a_batch():
    prior = named("sparse", 0.2)
    a = jax.random.normal(jax.random.key(0), (3, 40, 60)) / 60**0.5
    y = jax.random.normal(jax.random.key(1), (3, 40))
    score = lambda y, mean, variance: ((y - mean) / (variance + 0.05), jnp.ones_like(y) / (variance + 0.05))  # noqa: E731
    denoise = lambda field, precision: prior.posterior(field, jnp.broadcast_to(precision, field.shape))[:2]  # noqa: E731

    def one(a, y, mask):
        found = passing.gamp(a, y, score, denoise, 6, mask=mask, damping=0.8)
        return found.estimate, found.variance, found.change

    masked = jax.vmap(one)(a, y, jnp.broadcast_to(jnp.arange(40) < 33, (3, 40)).astype(float))
    removed = jax.vmap(one)(a[:, :33], y[:, :33], jnp.ones((3, 33)))
    for found, value in zip(masked, removed, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)


def test_message_passing_of_labels_reaches_the_binary_teacher():
    prior, channel = named("binary"), Labels(mixtures.gaussian(0.0))
    size, n = 600, 1200
    teacher = prior.sample(jax.random.key(4), (size,), jnp.dtype(float))
    a = jax.random.normal(jax.random.key(5), (n, size)) / size**0.5
    found = gamp(
        a,
        jnp.sign(a @ teacher),
        channel.score,
        lambda field, precision: prior.posterior(field, jnp.broadcast_to(precision, field.shape))[:2],
        60,
    )
    assert jnp.mean(found.estimate * teacher) > 0.99  # two samples per weight are beyond the spinodal


def _invariant(key, size):
    """A = U S Oᵀ with eigenvalues of AᵀA that are not those of a Gaussian matrix."""
    vectors = jnp.linalg.qr(jax.random.normal(key, (size, size)))[0]
    values = jnp.where(jnp.arange(size) % 2 == 0, 0.05, 1.5)
    return vectors, values


def test_vector_messages_follow_state_evolution_on_an_invariant_matrix():
    prior, noise, size = named("sparse", 0.2), 0.02, 800
    vectors, values = _invariant(jax.random.key(0), size)
    teacher = _sparse(jax.random.key(1), size)
    disturbed = jnp.sqrt(noise * values) * jax.random.normal(jax.random.key(2), (size,))
    moment = vectors @ (values * (vectors.T @ teacher) + disturbed)

    def denoise(r, precision):
        mean, variance, _ = prior.posterior(precision * r, jnp.broadcast_to(precision, r.shape))
        return mean, precision * variance

    found = vamp(vectors, values, moment, denoise, 12, noise=noise, measure=lambda w: jnp.mean((w - teacher) ** 2))

    def denoised(precision, _):
        error = prior.denoised(precision, 14).error
        return error, precision * error

    theory = evolve(values, denoised, 1.0, 12, noise=noise)
    np.testing.assert_allclose(found.measured, theory.error, rtol=0.25)


def test_vector_messages_of_a_proximal_map_solve_the_lasso():
    from sklearn.linear_model import Lasso

    size, penalty = 60, 0.2
    vectors, values = _invariant(jax.random.key(0), size)
    teacher = _sparse(jax.random.key(1), size)
    a = jnp.sqrt(values)[:, None] * vectors.T
    y = a @ teacher + 0.1 * jax.random.normal(jax.random.key(2), (size,))
    lasso = Elastic(penalty)

    def denoise(r, precision):
        w = lasso.prox(r, 1 / precision)
        return w, (w != 0).astype(r.dtype)

    found = vamp(vectors, values, a.T @ y, denoise, 200)
    oracle = Lasso(alpha=penalty / size, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(a, y)
    np.testing.assert_allclose(found.estimate, oracle.coef_, atol=1e-4)


def test_state_evolution_of_the_lasso_on_an_invariant_matrix_is_met_by_its_minimisers():
    from sklearn.linear_model import Lasso

    penalty, noise, size = 0.1, 0.05, 300
    lasso, prior = Elastic(penalty), mixtures.sparse(0.2)
    values = np.asarray(_invariant(jax.random.key(0), size)[1])

    def denoised(precision, variance):
        # B = γr = γw₀ + γ√τ ξ: m̂ = γ, q̂ = γ²τ, V̂ = γ
        w = lasso.weights(prior, precision, precision**2 * variance, precision)
        return 1 - 2 * w.overlap + w.norm, precision * w.response

    theory = evolve(jnp.asarray(values), denoised, 1.0, 400, noise=1.0, true_noise=noise).error[-1]
    errors = []
    for seed in range(6):
        vectors = np.asarray(_invariant(jax.random.key(10 + seed), size)[0])
        teacher = np.asarray(_sparse(jax.random.key(20 + seed), size))
        teacher = teacher / np.sqrt(np.mean(teacher**2))
        a = np.sqrt(values)[:, None] * vectors.T
        y = a @ teacher + np.sqrt(noise) * np.random.default_rng(seed).normal(size=size)
        fit = Lasso(alpha=penalty / size, fit_intercept=False, tol=1e-8, max_iter=10_000).fit(a, y)
        errors.append(np.mean((fit.coef_ - teacher) ** 2))
    error = np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert abs(np.mean(errors) - float(theory)) < 4 * error + 0.02 * float(theory)
    assert error < 0.1 * float(theory)
