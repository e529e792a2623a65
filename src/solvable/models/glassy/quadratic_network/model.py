r"""A wide network of squares learns a narrow one: how many samples it needs, and how fast its loss then falls.

**Data.** Inputs x ~ N(0, 1_d). A teacher of m* units labels them, y = (1/m*) Σ_i (w*_i·x)² = xᵀA*x. Only A* = (1/m*) Σ w*w*ᵀ
matters, of rank m*; its eigenvalues other than zero are the `spectrum` (a teacher with more than d units is one with d).

**Learner.** f(x) = (1/m) Σ_i (w_i·x)² = xᵀAx, A = (1/m) Σ wwᵀ, trained by gradient flow on

    E_n = (1/4n) Σ_k (f(x_k) − y_k)²,        dw_i/dt = −(m/2) ∂E_n/∂w_i = −G w_i,        G = ∂E_n/∂A,

so that dA/dt = −(AG + GA) is closed in A.

**Theory** (Sarao Mannelli, Vanden-Eijnden and Zdeborová 2020). For m ≥ d all minima of E_n are zeros, whose A agrees with A* on
the samples. By counting constraints, among all A ≥ 0 only A* does so if there are at least

    n_c = d(m*+1) − m*(m*+1)/2        (`threshold`; m* = d: d(d+1)/2)

samples. With many samples and D = A − A*,

    E = ½ Tr D² + ¼ (Tr D)²,        G = D + ½ Tr D,

and from A(0) = a₀ (`scale`) the flow stays diagonal in the eigenbasis of A*, with one equation per eigenvalue,

    da_i/dt = −2a_i (a_i − a*_i + ½T),        T = Tr D.

It is exact for every d. In the d − m* directions in the null space of A*, a → (m*+2)/(2(d+2)t), while the others follow
with D = −½T, T = 2(d−m*)a/(m*+2): the loss falls as

    t²E → (d−m*)(m*+2)/(8(d+2))        (`decay`),

whatever the spectrum. A teacher of full rank is learnt exponentially, E ~ exp(−`rate` t): twice the lowest eigenvalue
of 2a*_i(δ_ij + ½).

**Simulation.** The `size` is the number of samples n. `flow`: the network itself, from W(0) with A(0) = a₀, follows the gradient
of its loss (automatic differentiation, Runge–Kutta), and the mean losses on the samples and, from D, on fresh inputs are
measured. `minimum`: L-BFGS from Gaussian weights of m = `units` units, until it converges; the teacher counts as found if the
loss on fresh inputs is below 1e-5 of its initial value. With m < d there can be spurious minima.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import orthonormal_columns
from solvable.methods.flows.integrate import integrate
from solvable.methods.risk.lbfgs import minimise
from solvable.model import Control, Guard, Input, Model, Numerics

FLOW, MINIMUM = {"learner": "flow"}, {"learner": "minimum"}
RECOVERED = 1e-5  # relative to the initial loss on fresh inputs
STEPS = 20  # minimum number of Runge–Kutta steps between two times


def sample_threshold(inputs: int, teachers: int) -> float:
    """n_c: the number of samples from which the teacher is the only network that fits them.

    >>> sample_threshold(8, 1), sample_threshold(8, 4), sample_threshold(8, 8)
    (15.0, 30.0, 36.0)
    """
    return inputs * (inputs + 1) / 2 if teachers >= inputs else inputs * (teachers + 1) - teachers * (teachers + 1) / 2


def decay_constant(inputs: int, teachers: int) -> float:
    """The limit of t²E(t) with many samples; zero where the decay is exponential.

    >>> decay_constant(10, 4), decay_constant(10, 10)
    (0.375, 0.0)
    """
    return max(inputs - teachers, 0) * (teachers + 2) / (8 * (inputs + 2))


class QuadraticNetwork(Model):
    """A wide network with quadratic activations and a teacher of any rank: flow, sample threshold, recovery.

    >>> import solvable as sv
    >>> model = sv.QuadraticNetwork(inputs=10, units=10, teachers=4, times=[0.0, 1.0, 1000.0])
    >>> found = model.theory()
    >>> float(found.threshold), float(found.decay), round(float(1e6 * found.test_loss[-1]), 3)
    (40.0, 0.375, 0.376)
    """

    id = "quadratic-network"
    title = "Networks with quadratic activations"
    family = "glassy"
    sentence = (
        "A wide network of squares learns a narrow one: sample threshold, and a loss that falls as one over t squared."
    )
    method = "exact flow of eigenvalues, counting of constraints"
    numerics = Numerics(rtol=1e-11, atol=1e-13, max_steps=32768)
    accuracy = 1e-6  # the escape from a small start amplifies the error of the steps
    batch_accuracy = 1e-9  # step sizes adapt to the point
    typical_sizes = (200, 800, 3200)
    simulation_seconds = 0.15
    simulation_growth = 1.0
    converges_along = "time"
    check_study = (
        {"over": {"teachers": [1, 4, 6]}, "sizes": [1600, 6400], "seeds": 16, "judge": ["test_loss", "trace"]},
    )
    guard = Guard(values={"times": [0.0, 0.5, 2.0, 6.0]}, size=1000, seeds=8)
    finite_size = 100.0  # with n samples of d²/2 unknowns, losses are off by about d²/n
    references = (
        Reference(
            "saraomannelli2020optimization", "S. Sarao Mannelli, E. Vanden-Eijnden and L. Zdeborová", "Optimization and "
            "generalization of shallow neural networks with quadratic activation functions", 2020, "NeurIPS 33",
            arxiv="2006.15459"),
    )  # fmt: skip

    scale: Control = control(
        0.5, low=1e-6, high=100.0, typical=(0.05, 2.0), scale="log", symbol="a_0",
        meaning="eigenvalues of the student's A at the start of the flow")  # fmt: skip
    inputs: int = choice(6, low=2, high=256, symbol="d", meaning="dimension of the inputs")
    teachers: int = choice(2, low=1, high=256, symbol="m^*", meaning="units of the teacher: the rank of A*, at most d")
    units: int = choice(6, low=1, high=1024, symbol="m", meaning="units of the student; d units can represent any A")
    learner: str = choice(
        "flow",
        options=("flow", "minimum"),
        meaning="gradient flow up to the times, or a minimum of the loss on the samples",
    )
    spectrum: Input = input(
        lambda model: np.ones(model.teachers), dims=("teachers",), low=1e-3, symbol="a^*",
        meaning="eigenvalues of the teacher's A* other than zero")  # fmt: skip
    times: Input = input(
        np.array([0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="measurement times, increasing from the start")  # fmt: skip

    dimensions_declared = (dimension("time", "training time", symbol="t", scale="log", kind="time"),)
    main_declared = ("test_loss", "trace", "threshold")
    observables_declared = (
        observable("test_loss", "a quarter of the mean squared difference to the label, on fresh inputs", symbol="E",
                   dims=("time",), low=0, when=FLOW),
        observable("trace", "trace of the student's A minus that of the teacher's", symbol="T", dims=("time",),
                   when=FLOW),
        observable("null", "eigenvalue of the student in directions that the teacher lacks", symbol="a", dims=("time",),
                   low=0, simulated=False, when=FLOW),
        observable("train_loss", "the same as the test loss, on the samples", symbol="E_n", dims=("time",), low=0,
                   predicted=False, when=FLOW),
        observable("threshold", "samples from which the teacher is the only network that fits them", symbol="n_c",
                   status="exact", low=0, simulated=False),
        observable("decay", "limit of t²E with many samples, for teachers that lack a direction", symbol="t^2E",
                   status="exact", low=0, simulated=False),
        observable("rate", "rate of the exponential decay of E, for teachers of full rank", status="exact", low=0,
                   simulated=False),
        observable("final_train", "loss on the samples where L-BFGS ends", symbol="E_n", low=0, predicted=False, when=MINIMUM),
        observable("final_loss", "loss on fresh inputs there, relative to its initial value", symbol="E/E_0", low=0,
                   predicted=False, when=MINIMUM),
        observable("reached", "whether that minimum is the teacher", low=0, high=1, predicted=False, when=MINIMUM),
        observable("spurious", "whether the search ended with a nonzero loss on the samples", low=0, high=1,
                   predicted=False, when=MINIMUM),
    )  # fmt: skip

    def validate(self) -> None:
        if self.teachers > self.inputs:
            raise InvalidValue(
                f"teachers = {self.teachers} exceeds inputs = {self.inputs}: a wider teacher equals one of {self.inputs} units."
            )
        if self.learner == "flow" and self.units < self.inputs:
            raise InvalidValue(
                f"units = {self.units} is less than inputs = {self.inputs}: learner = 'flow' starts at A = a₀, which has full "
                "rank and needs at least as many units as inputs."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        zero, missing = jnp.zeros(()), self.inputs - self.teachers
        star = self.spectrum
        # a* is similar to the symmetric √a*_i (δ_ij + ½) √a*_j
        root = jnp.sqrt(star)
        rate = 4 * jnp.linalg.eigvalsh(jnp.diag(star) + 0.5 * jnp.outer(root, root))[0]
        known = {
            "threshold": zero + sample_threshold(self.inputs, self.teachers),
            "decay": zero + decay_constant(self.inputs, self.teachers),
            "rate": rate if missing == 0 else zero,
        }
        if self.learner == "minimum":
            return known

        def drift(_: Array, y: tuple[Array, Array], star: Array) -> tuple[Array, Array]:
            """Time derivatives of the differences a_i − a*_i and of the logarithm of the other, positive eigenvalues."""
            difference, null = y[0], jnp.exp(y[1])
            half = 0.5 * (jnp.sum(difference) + missing * null)
            return -2 * (difference + star) * (difference + half), -2 * (null + half)

        begin = (self.scale - star, jnp.log(self.scale))
        flow = integrate(
            drift,
            begin,
            self.times,
            star,
            rtol=numerics.rtol,
            atol=numerics.atol,
            max_steps=numerics.max_steps,
        )
        difference, null = flow.values[0], jnp.exp(flow.values[1])
        trace = jnp.sum(difference, axis=1) + missing * null
        loss = 0.5 * (jnp.sum(difference**2, axis=1) + missing * null**2) + 0.25 * trace**2
        return {"test_loss": loss, "trace": trace, "null": null, **known, "converged": flow.reached}

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        d, m = self.inputs, self.units
        # descent along flat directions is slow: minima need full precision
        dtype = float if self.learner == "minimum" else dtype
        frame_key, start_key, data_key = jax.random.split(key, 3)
        frame = orthonormal_columns(jax.random.normal(frame_key, (d, d), float))[:, : self.teachers]
        star = ((frame * self.spectrum[None, :]) @ frame.T).astype(dtype)
        x = jax.random.normal(data_key, (size, d), dtype)
        labels = jnp.sum((x @ star) * x, axis=1)

        def loss(w: Array) -> Array:
            return 0.25 * jnp.mean((jnp.sum((x @ w.T) ** 2, axis=1) / m - labels) ** 2)

        def fresh(w: Array) -> tuple[Array, Array]:
            """The mean over all inputs, and the trace."""
            away = w.T @ w / m - star
            return 0.5 * jnp.sum(away**2) + 0.25 * jnp.trace(away) ** 2, jnp.trace(away)

        if self.learner == "minimum":
            return search_minimum(x, labels, jnp.ones(size), jax.random.normal(start_key, (m, d), float), star)

        turned = orthonormal_columns(jax.random.normal(start_key, (m, d), float)).astype(dtype)
        w = jnp.sqrt(self.scale.astype(dtype) * m) * turned
        pull = jax.grad(loss)
        # the stiffest direction relaxes at d + 2 times the largest eigenvalue
        largest = jnp.maximum(jnp.max(self.spectrum), self.scale).astype(dtype)
        shortest = 1.0 / ((d + 2) * largest)
        times = self.times.astype(dtype)

        def stretch(w: Array, ends: tuple[Array, Array]) -> tuple[Array, tuple[Array, ...]]:
            begin, end = ends
            steps = jnp.maximum(STEPS, jnp.ceil(2 * (end - begin) / shortest)).astype(jnp.int32)
            h = (end - begin) / steps.astype(dtype)

            def step(_: Array, w: Array) -> Array:
                def speed(w: Array) -> Array:
                    return -0.5 * m * pull(w)

                one = speed(w)
                two = speed(w + 0.5 * h * one)
                three = speed(w + 0.5 * h * two)
                return w + h / 6 * (one + 2 * two + 2 * three + speed(w + h * three))

            w = jax.lax.fori_loop(0, steps, step, w)
            return w, (*fresh(w), loss(w))

        first = (*fresh(w), loss(w))
        _, rest = jax.lax.scan(stretch, w, (times[:-1], times[1:]))
        test, trace, train = (jnp.concatenate([a[None], b]) for a, b in zip(first, rest, strict=True))
        return {"test_loss": test, "trace": trace, "train_loss": train, "converged": jnp.isfinite(test)}


class Fit(eqx.Module):
    """The loss on the samples of the mask, with its gradient."""

    x: Array
    labels: Array
    mask: Array

    def __call__(self, w: Array) -> tuple[Array, Array]:
        fields, number = self.x @ w.T, jnp.sum(self.mask)
        away = self.mask * (jnp.sum(fields**2, axis=1) / w.shape[0] - self.labels)
        return 0.25 * jnp.sum(away**2) / number, (away[:, None] * fields).T @ self.x / (w.shape[0] * number)


def fresh_loss(w: Array, star: Array) -> Array:
    """Loss on fresh inputs of the weights w against a teacher with the matrix `star`."""
    away = w.T @ w / w.shape[0] - star
    return 0.5 * jnp.sum(away**2) + 0.25 * jnp.trace(away) ** 2


def search_minimum(x: Array, labels: Array, mask: Array, w: Array, star: Array) -> dict[str, Array]:
    """The minimum that L-BFGS finds on the samples of the mask from the weights w, and its distance from the teacher."""
    found = minimise(Fit(x, labels, mask), w, tolerance=1e-10, iterations=2000, history=12)
    test = fresh_loss(found.parameters, star) / fresh_loss(w, star)
    return {
        "final_train": found.value,
        "final_loss": test,
        "reached": (test < RECOVERED).astype(float),
        "spurious": (found.value > 1e-6).astype(float),
        "converged": jnp.isfinite(test),
    }
