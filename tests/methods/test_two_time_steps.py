"""Exact discrete-time dynamics: a random matrix's spectrum, pure signal, schedules, rotations of time, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.flows.two_time_steps import Kernel, Method, follow, gradient_descent, heavy_ball, nesterov

NOISE = 0.7


def matrix_kernel(noise=NOISE):
    return Kernel(lambda q: q**2 / (2 * noise), lambda q: q / noise, lambda q: 1 / noise + 0 * q)


NOTHING = Kernel(lambda q: 0 * q, lambda q: 0 * q, lambda q: 0 * q)


def by_the_spectrum(method, nodes=400):
    """C, and energies at both points, for H = -x·Wx/2: the eigenvalues of W fill a semicircle of radius 2/√Δ."""
    angle = np.pi * (np.arange(nodes) + 0.5) / nodes
    eigenvalue, weight = 2 / np.sqrt(NOISE) * np.cos(angle), 2 / nodes * np.sin(angle) ** 2
    points, iterates = [], []
    forces = []
    for ahead, at in zip(np.asarray(method.gradient_at), np.asarray(method.iterate), strict=True):
        past = np.array(forces).reshape(len(forces), nodes)
        points.append(1 + ahead[: len(past)] @ past)
        iterates.append(1 + at[: len(past)] @ past)
        forces.append(eigenvalue * points[-1])
    z, x = np.array(points), np.array(iterates)
    return (z * weight) @ z.T, -0.5 * z**2 @ (weight * eigenvalue), -0.5 * x**2 @ (weight * eigenvalue)


RATES = 0.1 / (1 + 0.1 * np.arange(30.0))


@pytest.mark.parametrize(
    "method",
    [gradient_descent(30, 0.05), heavy_ball(30, 0.03, 0.8), nesterov(30, 0.04), gradient_descent(30, RATES)],
    ids=["descent", "heavy ball", "nesterov", "schedule"],
)
def test_descent_in_a_random_matrix_follows_its_semicircle(method):
    path = follow(matrix_kernel(), method, signal=NOTHING)
    correlation, ahead, at = by_the_spectrum(method)
    np.testing.assert_allclose(path.correlation, correlation, rtol=1e-11)
    np.testing.assert_allclose(path.energy, ahead, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        path.at(method.iterate, matrix_kernel(), signal=NOTHING).energy, at, rtol=1e-10, atol=1e-13
    )


def test_without_noise_the_signal_alone_is_followed():
    """x has a part along the signal and one across it: two numbers that descend independently."""
    signal, ridge, rate = Kernel(lambda q: q**3 / 3, lambda q: q**2, lambda q: 2 * q), 4.0, 0.05
    path = follow(NOTHING, heavy_ball(60, rate, 0.5), ridge=ridge, overlap=0.4, signal=signal)
    x = np.array([0.4, np.sqrt(1 - 0.16)])
    before = x
    for t in range(60):
        np.testing.assert_allclose([path.overlap[t], path.norm[t]], [x[0], x @ x], rtol=1e-12)
        energy = -(x[0] ** 3) / 3 + ridge / 4 * (x @ x - 1) ** 2
        np.testing.assert_allclose(path.energy[t], energy, rtol=1e-10, atol=1e-13)
        force = np.array([x[0] ** 2, 0.0]) - ridge * (x @ x - 1) * x
        x, before = x + 0.5 * (x - before) + rate * force, x


def test_a_heavy_ball_without_momentum_is_gradient_descent_and_a_method_may_be_written_by_hand():
    kernel = Kernel(lambda q: q**3 / 2, lambda q: 1.5 * q**2, lambda q: 3 * q)
    plain = follow(kernel, gradient_descent(20, 0.03), ridge=10.0)
    triangle = jnp.tril(jnp.full((21, 21), 0.03), -1)
    by_hand = follow(kernel, Method(triangle, triangle), ridge=10.0)
    np.testing.assert_allclose(by_hand.energy, plain.energy, rtol=1e-12)
    np.testing.assert_allclose(plain.response[5, 4], 0.03, rtol=1e-12)


def test_the_future_does_not_act_on_the_past():
    kernel = Kernel(lambda q: q**3 / 2, lambda q: 1.5 * q**2, lambda q: 3 * q)
    short, long = (follow(kernel, nesterov(steps, 0.02), ridge=10.0, overlap=0.2) for steps in (15, 40))
    np.testing.assert_allclose(long.correlation[:16, :16], short.correlation, rtol=1e-12)
    np.testing.assert_allclose(long.force_force[:16, :16], short.force_force, rtol=1e-12)
    assert np.all(np.triu(np.asarray(long.response)) == 0)


def test_small_steps_are_a_flow_and_it_is_left_as_their_square():
    """E at time 1 by 25, 50 and 100 steps: the error halves with the step."""
    kernel = Kernel(lambda q: q**3 / 2, lambda q: 1.5 * q**2, lambda q: 3 * q)
    a, b, c = (float(follow(kernel, gradient_descent(n, 1 / n), ridge=5.0).energy[-1]) for n in (25, 50, 100))
    assert (a - b) / (b - c) == pytest.approx(2.0, abs=0.25)


def test_derivatives_are_those_of_differences():
    kernel = Kernel(lambda q: q**3 / 2, lambda q: 1.5 * q**2, lambda q: 3 * q)

    def last(rate):
        return follow(kernel, heavy_ball(15, rate, 0.7), ridge=8.0, overlap=0.3).energy[-1]

    h = 1e-5
    assert float(jax.grad(last)(0.02)) == pytest.approx(float(last(0.02 + h) - last(0.02 - h)) / (2 * h), rel=1e-6)
