r"""Curricula for an XOR of four clusters: do wide networks, which already hold winning tickets, still benefit?

**Data.** x = c + σz in d dimensions, z ~ N(0, 1_d), the centre c one of ±μ_1 (label y = +1) and ±μ_2 (y = −1), orthonormal, all
four equally likely. Samples are easy at σ = `easy` and hard at σ = `hard`.

**Learner.** f(x) = Σ_k v_k g(w_k·x + b_k) with K units and a rounded ReLU, g(λ) = <max(0, λ + s z)> over a normal z, the ReLU for
s = `softness` → 0. One step of gradient descent per fresh sample, time in steps per d, on the loss ℓ = log(1 + e^{−yf})
(`logistic`) or ½(f − y)² (`square`):

    w_k ← w_k − (η/d) ℓ' v_k g'(λ_k) x,        v_k ← v_k − (η/d) ℓ' g(λ_k),        b_k ← b_k − (η/d) ℓ' v_k g'(λ_k),

with λ_k = w_k·x + b_k; the biases start at zero and stay there unless `biases` are `trained`.

Training has two stages, of `share` and 1 − `share` of the horizon. `curriculum`: easy samples, then hard ones; `anti`: hard, then
easy; `mixed`: a fraction `share` of the samples easy throughout; `hard`: hard samples only.

**Theory** (Saglietti, Sarao Mannelli and coworkers 2024; own derivation). For d → ∞ the overlaps Q = WWᵀ (K×K),
M = W(μ_1, μ_2) (K×2), v and b follow a flow. In a cluster the fields are normal, λ = Mc + b + σLξ with LLᵀ = Q and ξ ∈ R^K, and
given them the sample in the plane of the centres is p = c + σ(L⁻¹M)ᵀξ on average. With B_k = ℓ' v_k g'(λ_k), averaged over the
four clusters,

    dM_kα/dt = −η <B_k p_α>
    dQ_kl/dt = −η <B_k (λ−b)_l + B_l (λ−b)_k> + η² σ² <B_k B_l>
    dv_k/dt  = −η <ℓ' g(λ_k)>,        db_k/dt = −η <B_k>.

No closed form is known for the logistic loss: the averages are sums over fixed Sobol points in K dimensions, the same in all
clusters, so that units without overlap stay without. The flow is integrated with error control, and no step crosses the
change of stage. It is followed with two sets of points, and has not converged where their test losses differ. Given the
overlaps, `test_error` is the probability of a wrong sign of f, not smoothed: in each cluster one normal direction of the
fields, that of the mean gradient of f, is integrated exactly by finding the zeros of f along it; the other directions are
averaged over Sobol points.

**Start.** `random`: w ~ N(0, 1/d), v ~ N(0, 1), or N(0, 1/K) with `scaling` `inverse-root`; overlaps are measured on those
weights, because the escape from M = 0 depends on them. `given`: any.

**Results.** From random starts the gain of a curriculum over hard samples alone has a peak in the horizon T: it is zero before
anything is learnt, and zero (or negative, for K = 4) afterwards. Wide networks reach the peak earlier, and it is higher. At a
given T the gain therefore grows with width if learning is slow (v ~ N(0, 1/K), σ_h = 0.5, T = 40, 48 starts: 0.09, 0.20, 0.26
for K = 4, 8, 16, each to 0.01), and falls with width if wide networks have learnt by then (v ~ N(0, 1), σ_h = 0.4, T = 40).

**Simulation.** Weights with exactly the start's overlaps, in d dimensions; gradient descent; wrong signs counted and losses
averaged on fresh samples.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray
from scipy.special import ndtri
from scipy.stats import qmc

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import orthonormal_columns
from solvable.methods.flows.committee import gram_root
from solvable.methods.flows.descent import descend
from solvable.methods.flows.integrate import integrate, until_failure
from solvable.model import Control, Guard, Input, Model, Numerics

from .crossings import probability_negative

CENTRES = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
LABELS = np.array([1.0, 1.0, -1.0, -1.0])
TESTS = 4000  # fresh samples on which a simulated network is tested
STEPS = 16384  # a flow that needs more steps has failed: far outside the typical ranges it is stiff


class Overlaps(NamedTuple):
    """State of a network: Q, M, v and b."""

    norm: Array
    overlap: Array
    readout: Array
    bias: Array


def _rounded(field: Array, softness: Array) -> tuple[Array, Array]:
    """The rounded ReLU and its derivative."""
    x = field / softness
    on = 0.5 * jax.lax.erfc(-math.sqrt(0.5) * x)
    return field * on + softness * math.sqrt(0.5 / math.pi) * jnp.exp(-0.5 * x * x), on


def _sign_of_output(fields: Array, readout: Array, softness: Array) -> Array:
    """A number with the sign of Σ_k v_k g(λ_k), even where all units are off and g underflows.

    The largest g in the sum is scaled to one; below -10 softnesses log g uses its asymptotic form, accurate to 1e-7.
    """
    x = fields / softness
    near, far = jnp.maximum(x, -10.0), jnp.minimum(x, -10.0)
    u = 1 / far**2
    tail = 1 - u * (3 - u * (15 - u * (105 - u * (945 - u * 10395))))
    height = jnp.where(
        x > -10.0,
        jnp.log(_rounded(near, jnp.ones_like(near))[0]),
        jnp.log(tail * u / math.sqrt(2 * math.pi)) - 0.5 * far**2,
    )
    top = jnp.max(jnp.where(readout != 0, height, -jnp.inf))
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0.0))
    return jnp.sum(readout * jnp.exp(jnp.minimum(height - top, 80.0)))


def _small(model: XorCurriculum) -> np.ndarray:
    """Initial overlaps with a small bias of each unit towards one of the four centres in turn."""
    lean = 0.1 * CENTRES[np.arange(model.students) % 4]
    return lean + 0.01 * np.sin(1.0 + np.arange(2 * model.students)).reshape(-1, 2)


class XorCurriculum(Model):
    """Online learning of an XOR of Gaussian clusters, easy or hard samples first, at any width.

    >>> import solvable as sv
    >>> result = sv.XorCurriculum(protocol="hard", hard=0.1, horizon=20.0).theory({"nodes": 256}, only=["final_error"])
    >>> bool(result.final_error < 0.05)
    True
    """

    id = "xor-curriculum"
    title = "Curricula for XOR and width"
    family = "online"
    sentence = "Easy or hard samples of an XOR of clusters first: gain of a curriculum against width and training time."
    method = "order-parameter flow, averages over Sobol points"
    revision = 2
    numerics = Numerics(nodes=1024, lines=512, brackets=33, tolerance=1e-6)
    converges_along = "stage"
    # Error of averages over Sobol points, compared with 16 384 points: 0.005 at most (0.02 with 256), 0.001 on average. For
    # the test error alone, given the overlaps: 0.0005. What two sets of points do not agree on to this accuracy is NaN.
    accuracy = 1e-2
    batch_accuracy = 1e-8
    gradient_accuracy = 1e-4  # finite differences of a function that is smooth on the scale of `softness`
    gradient_numerics = Numerics(tolerance=1e-8)
    theory_lanes = 16
    theory_seconds = 0.4
    typical_sizes = (200, 400, 800)
    check_study = (
        {"over": {"loss": ["logistic", "square"]}, "values": {"rate": 0.5}, "seeds": 16},
        {"values": {"protocol": "anti", "biases": "trained"}, "seeds": 16},
    )
    guard = Guard(values={"protocol": "hard"}, points=8, corner_points=4)
    references = (
        Reference(
            "mannelli2024tilting", "S. Sarao Mannelli, Y. Ivashynka, A. Saxe and L. Saglietti", "Tilting the odds at the "
            "lottery: the interplay of overparameterisation and curricula in neural networks", 2024, "ICML",
            arxiv="2406.01589"),
        Reference(
            "refinetti2021classifying", "M. Refinetti, S. Goldt, F. Krzakala and L. Zdeborová", "Classifying high-dimensional "
            "Gaussian mixtures: where kernel methods fail and neural networks succeed", 2021, "ICML", arxiv="2102.11742"),
    )  # fmt: skip

    hard: Control = control(
        0.4, low=0.0, low_open=True, high=10.0, typical=(0.2, 0.6), symbol=r"\sigma_h",
        meaning="standard deviation of a cluster in hard samples, and in the test")  # fmt: skip
    easy: Control = control(
        0.1, low=0.0, low_open=True, high=10.0, typical=(0.05, 0.3), symbol=r"\sigma_e",
        meaning="standard deviation of a cluster in easy samples")  # fmt: skip
    rate: Control = control(
        1.0, low=0.0, high=20.0, typical=(0.2, 1.5), symbol=r"\eta", meaning="learning rate of both layers")  # fmt: skip
    horizon: Control = control(
        10.0, low=0.0, low_open=True, high=1000.0, typical=(2.0, 20.0), symbol="T",
        meaning="training time, in samples per dimension")  # fmt: skip
    share: Control = control(
        0.5, low=0.0, high=1.0, typical=(0.1, 0.9), symbol="f",
        meaning="fraction of the horizon in the first stage; fraction of easy samples if mixed")  # fmt: skip
    softness: Control = control(
        0.1, low=0.01, high=1.0, typical=(0.05, 0.2), symbol="s", meaning="width on which the ReLU is rounded")  # fmt: skip
    protocol: str = choice(
        "curriculum", options=("curriculum", "anti", "mixed", "hard"), meaning="which samples are easy, and when"
    )
    loss: str = choice("logistic", options=("logistic", "square"), symbol=r"\ell", meaning="training loss")
    students: int = choice(4, high=64, symbol="K", meaning="hidden units")
    start: str = choice(
        "given", options=("given", "random"), meaning="initial overlaps as given, or measured on random weights"
    )
    scaling: str = choice(
        "plain", options=("plain", "inverse-root"), meaning="variance of a random initial readout: 1, or 1/K"
    )
    biases: str = choice(
        "none", options=("none", "trained"), symbol="b", meaning="biases of the units: none, or trained from zero"
    )
    points: int = choice(5, high=200, meaning="equally spaced measurements in each stage, in addition to the start")
    initial_norm: Input = input(
        lambda m: np.eye(m.students), dims=("students", "students"), symbol="Q(0)",
        meaning="initial Gram matrix of the units")  # fmt: skip
    initial_overlap: Input = input(
        _small, dims=("students", "centres"), symbol="M(0)",
        meaning="initial overlaps of the units with both centres")  # fmt: skip
    initial_readout: Input = input(
        lambda m: np.where(np.arange(m.students) % 4 < 2, 0.5, -0.5) + 0.02 * np.cos(np.arange(m.students)),
        dims=("students",), symbol="v(0)", meaning="initial second layer")  # fmt: skip

    dimensions_declared = (
        dimension("stage", "training time in units of a stage: first until 1, second until 2", kind="time"),
        dimension("student", "unit of the student"),
        dimension("centre", "direction of a pair of clusters"),
    )
    main_declared = ("test_error", "final_error", "test_loss")
    observables_declared = (
        observable("test_error", "probability of a wrong label on a fresh hard sample; an output of zero counts half",
                   symbol=r"\varepsilon", dims=("stage",), low=0, high=1, status="approximate"),
        observable("final_error", "test error at the end", symbol=r"\varepsilon(T)", low=0, high=1, status="approximate"),
        observable("test_loss", "mean loss on a fresh hard sample", symbol=r"\mathcal{L}", dims=("stage",), low=0),
        observable("overlap", "overlaps of the units with both centres", symbol="M", dims=("stage", "student", "centre")),
        observable("norm", "squared norm of every unit", symbol="Q_{kk}", dims=("stage", "student"), low=0),
        observable("readout", "second layer", symbol="v", dims=("stage", "student")),
        observable("bias", "biases of the units", symbol="b", dims=("stage", "student"), when={"biases": ("trained",)}),
    )  # fmt: skip

    def validate(self) -> None:
        given = (self.initial_norm, self.initial_overlap)
        if any(isinstance(value, Tracer) for value in given):
            return
        norm, overlap = (np.asarray(value) for value in given)
        if overlap.shape[1] != 2:
            raise InvalidValue(f"initial_overlap has {overlap.shape[1]} columns but needs two, one for each centre.")
        if not np.allclose(norm, norm.T, rtol=0, atol=1e-9 * (1 + np.abs(norm).max())):
            raise InvalidValue("initial_norm is not symmetric: it must be a Gram matrix.")
        lowest = np.linalg.eigvalsh(norm - overlap @ overlap.T)[0]
        if lowest < -1e-9:
            raise InvalidValue(
                f"no weights have these initial_norm and initial_overlap: Q - MMᵀ has the negative eigenvalue {lowest:.3g}."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"stage": np.linspace(0.0, 2.0, 2 * self.points + 1), "centre": np.array([1, 2])}

    # --- theory -----------------------------------------------------------------------------------------------------

    def _pull(self, output: Array, label: Array) -> Array:
        """The derivative of the loss with respect to the output."""
        return output - label if self.loss == "square" else -label * jax.nn.sigmoid(-label * output)

    def _cost(self, output: Array, label: Array) -> Array:
        if self.loss == "square":
            return 0.5 * (output - label) ** 2
        worth = label * output
        return jnp.maximum(-worth, 0.0) + jnp.log(1 + jnp.exp(-jnp.abs(worth)))

    def _draws(self, nodes: int, scramble: int = 0) -> np.ndarray:
        """Fixed normal points, the same in each of the four clusters, stacked on the cluster's centre: (K + 2, 4·nodes).

        Their mean is zero, and their covariance is close to the identity if they are many.
        """
        uniform = qmc.Sobol(self.students, scramble=True, rng=scramble).random(nodes)
        normal = ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)).T
        normal = normal - normal.mean(axis=1, keepdims=True)
        if nodes > 2 * self.students:
            normal = np.linalg.solve(np.linalg.cholesky(normal @ normal.T / nodes), normal)
        return np.concatenate([np.tile(normal, 4), np.repeat(CENTRES.T, nodes, axis=1)])

    def _fields(self, state: Overlaps, spread: Array, draws: Array) -> tuple[Array, Array]:
        """Fields of all units in all four clusters, (K, samples), and given them the mean sample in the plane of the centres,
        (2, samples)."""
        root = jnp.linalg.cholesky(state.norm + 1e-9 * jnp.eye(self.students))
        along = jax.scipy.linalg.solve_triangular(root, state.overlap, lower=True)
        fields = jnp.concatenate([spread * root, state.overlap], axis=1) @ draws
        plane = jnp.concatenate([spread * along.T, jnp.eye(2)], axis=1) @ draws
        return fields + state.bias[:, None] if self.biases == "trained" else fields, plane

    def _velocity(self, state: Overlaps, spread: Array, draws: Array) -> Overlaps:
        fields, plane = self._fields(state, spread, draws)
        hidden, slopes = _rounded(fields, self.softness)
        labels = jnp.asarray(np.repeat(LABELS, draws.shape[1] // 4))
        pull = self._pull(state.readout @ hidden, labels)
        steps = slopes * pull[None, :] * state.readout[:, None]
        # every average with B_k in one product: with the fields, the plane, itself and one
        against = jnp.concatenate([fields, plane, steps, jnp.ones((1, labels.shape[0]))])
        k, means = self.students, steps @ against.T / labels.shape[0]
        drag, kick = means[:, :k] - means[:, -1:] * state.bias[None, :], means[:, k + 2 : 2 * k + 2]
        return Overlaps(
            norm=-self.rate * (drag + drag.T) + (self.rate * spread) ** 2 * kick,
            overlap=-self.rate * means[:, k : k + 2],
            readout=-self.rate * (hidden @ pull) / labels.shape[0],
            bias=-self.rate * means[:, -1] if self.biases == "trained" else jnp.zeros_like(state.bias),
        )

    def _error(self, state: Overlaps, points: Array, brackets: int) -> Array:
        """The probability of a wrong label on a hard sample; `points` are normal, (lines, K)."""
        root = jnp.linalg.cholesky(state.norm + 1e-9 * jnp.eye(self.students))
        width = jnp.sqrt(self.softness**2 + self.hard**2 * jnp.diagonal(state.norm))

        def output(z: Array, line: tuple[Array, Array, Array, Array]) -> Array:
            base, along, readout, softness = line
            return _sign_of_output(base + z * along, readout, softness)

        def wrong(centre: Array, label: Array) -> Array:
            middle = state.overlap @ centre + state.bias
            # the mean gradient of the output, along which the sign changes fastest
            pull = root.T @ (state.readout * 0.5 * jax.lax.erfc(-math.sqrt(0.5) * middle / width))
            pull = pull + 1e-12 * jnp.ones_like(pull)
            along = pull / jnp.linalg.norm(pull)
            rest = points - (points @ along)[:, None] * along[None, :]
            lines = (
                middle[None, :] + self.hard * rest @ root.T,
                self.hard * root @ along,
                label * state.readout,
                self.softness,
            )
            each = jax.vmap(lambda *line: probability_negative(output, line, brackets), in_axes=(0, None, None, None))
            return jnp.mean(each(*lines))

        return jnp.mean(jax.vmap(wrong)(jnp.asarray(CENTRES), jnp.asarray(LABELS)))

    def _stages(self) -> Array:
        """Durations of both stages."""
        return jnp.stack([self.share, 1 - self.share]) * self.horizon

    def _spreads(self) -> Array:
        """σ of the samples in both stages; does not apply to `mixed`."""
        pair = {"curriculum": (self.easy, self.hard), "anti": (self.hard, self.easy), "hard": (self.hard, self.hard)}
        return jnp.stack(pair[self.protocol])

    def point(self, numerics: Numerics) -> dict[str, Array]:
        # The flow follows two sets of points. Where a plateau amplifies their difference, neither average is good enough.
        sets = jnp.asarray(np.stack([self._draws(numerics.nodes, scramble) for scramble in (0, 1)]))

        def drift(stage: Array, state: Overlaps, model: XorCurriculum) -> Overlaps:
            second = jnp.where(stage < 1.0, 0, 1)

            def velocity(spread: Array) -> Overlaps:
                return jax.vmap(lambda one, draws: model._velocity(one, spread, draws))(state, sets)

            if model.protocol == "mixed":
                easy, hard = velocity(model.easy), velocity(model.hard)
                moved = jax.tree.map(lambda x, y: model.share * x + (1 - model.share) * y, easy, hard)
            else:
                moved = velocity(model._spreads()[second])
            return jax.tree.map(lambda x: model._stages()[second] * x, moved)

        one = Overlaps(self.initial_norm, self.initial_overlap, self.initial_readout, jnp.zeros(self.students))
        # The drift is smooth, but only on the scale of `softness`: use a solver of fifth order rather than eighth.
        flow = integrate(
            drift, jax.tree.map(lambda x: jnp.stack([x, x]), one), jnp.linspace(0.0, 2.0, 2 * self.points + 1), self,
            rtol=numerics.tolerance, atol=0.1 * numerics.tolerance, max_steps=STEPS, solver="tsit5", jumps=jnp.ones(1),
        )  # fmt: skip
        lines = jnp.asarray(self._draws(numerics.lines)[: self.students, : numerics.lines].T)

        def loss(state: Overlaps) -> Array:
            fields, _ = self._fields(state, self.hard, sets[0])
            labels = jnp.asarray(np.repeat(LABELS, numerics.nodes))
            return jnp.mean(self._cost(state.readout @ _rounded(fields, self.softness)[0], labels))

        path: Overlaps = jax.tree.map(lambda x: x[:, 0], flow.values)
        losses = jax.lax.map(jax.vmap(loss), flow.values)
        agreed = jnp.abs(losses[:, 0] - losses[:, 1]) <= 0.5 * type(self).accuracy
        errors = jax.lax.map(lambda state: self._error(state, lines, numerics.brackets), path)
        return {
            **self._observed(path, errors, losses[:, 0]),
            "converged": until_failure(flow.reached & jnp.isfinite(losses[:, 0]) & agreed),
        }

    def _observed(self, path: Overlaps, errors: Array, losses: Array) -> dict[str, Array]:
        return {
            "test_error": errors,
            "final_error": errors[-1],
            "test_loss": losses,
            "overlap": path.overlap,
            "norm": jnp.diagonal(path.norm, axis1=1, axis2=2),
            "readout": path.readout,
            **({"bias": path.bias} if self.biases == "trained" else {}),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    @property
    def unprepared(self) -> bool:
        return self.start == "random"

    def prepare(self, key: PRNGKeyArray, size: int) -> XorCurriculum:
        """Draw random weights and measure their overlaps."""
        self._check_size(size)
        first, second = jax.random.split(key)
        weights = jax.random.normal(first, (self.students, size), float) / math.sqrt(size)
        scale = 1.0 if self.scaling == "plain" else 1 / math.sqrt(self.students)
        readout = scale * jax.random.normal(second, (self.students,), float)
        # take the centres as the first two axes: the law of the weights is rotation invariant
        found = {"initial_norm": weights @ weights.T, "initial_overlap": weights[:, :2], "initial_readout": readout}
        return self.replace(start="given", **found)

    def _check_size(self, size: int) -> None:
        if size < self.students + 2:
            raise InvalidValue(
                f"size = {size} is smaller than the {self.students + 2} directions of units and centres."
            )

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        self._check_size(size)
        frame_key, sample_key, test_key = jax.random.split(key, 3)
        # weights with exactly these overlaps: the centres are the first two axes, the remaining part has random directions
        rest = jax.random.normal(frame_key, (size - 2, self.students), float)
        frame = orthonormal_columns(rest).T
        root = gram_root(self.initial_norm - self.initial_overlap @ self.initial_overlap.T)
        w = jnp.concatenate([self.initial_overlap, root @ frame], axis=1).astype(dtype)
        centres = jnp.pad(jnp.asarray(CENTRES, dtype), ((0, 0), (0, size - 2)))
        labels, softness = jnp.asarray(LABELS, dtype), self.softness.astype(dtype)
        moving = 1.0 if self.biases == "trained" else 0.0
        pace, easy, hard, share = ((x).astype(dtype) for x in (self.rate / size, self.easy, self.hard, self.share))

        def sample(key: Array, spread: Array) -> tuple[Array, Array]:
            where, what, level = jax.random.split(key, 3)
            cluster = jax.random.randint(where, (), 0, 4)
            if self.protocol == "mixed":
                spread = jnp.where(jax.random.uniform(level, (), dtype) < share, easy, hard)
            return centres[cluster] + spread * jax.random.normal(what, (size,), dtype), labels[cluster]

        def step(number: Array, network: tuple[Array, Array, Array], spread: Array) -> tuple[Array, Array, Array]:
            w, v, b = network
            x, label = sample(jax.random.fold_in(sample_key, number), spread)
            hidden, slopes = _rounded(w @ x + b, softness)
            pull = pace * self._pull(v @ hidden, label)
            turn = pull * v * slopes
            return w - turn[:, None] * x[None, :], v - pull * hidden, b - moving * turn

        z = jax.random.normal(test_key, (4, TESTS // 4, size), dtype)

        def measure(network: tuple[Array, Array, Array]) -> tuple[Overlaps, Array, Array]:
            w, v, b = network
            x = (centres[:, None, :] + hard * z).reshape(-1, size)
            fields = x @ w.T + b[None, :]
            output = _rounded(fields, softness)[0] @ v
            label = jnp.repeat(labels, TESTS // 4, total_repeat_length=TESTS)
            state = Overlaps(*(part.astype(float) for part in (w @ w.T, w[:, :2], v, b)))
            signs = jnp.sign(jax.vmap(lambda x: _sign_of_output(x, v, softness))(fields))
            wrong = 0.5 - 0.5 * jnp.mean(label * signs)
            return state, wrong.astype(float), jnp.mean(self._cost(output, label)).astype(float)

        stage = np.repeat([0, 1], self.points)
        ends = jnp.rint(jnp.cumsum(self._stages()[stage] / self.points) * size).astype(jnp.int32)
        spreads = (jnp.zeros(2) if self.protocol == "mixed" else self._spreads()).astype(dtype)[stage]
        start = (w, self.initial_readout.astype(dtype), jnp.zeros(self.students, dtype))
        run = descend(step, start, ends, measure, spreads, measure_start=True)
        observed = self._observed(*run.path)
        return {**observed, "converged": until_failure(jnp.isfinite(observed["test_loss"]))}
