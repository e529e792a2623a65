r"""Minima of the population loss of a sum of ReLUs: the symmetric families, their curvature, and how width removes them.

**Data.** Inputs x ~ N(0, 1_d). A teacher of M units of norm one labels them, y = Σ_n (u_n·x)_+; any two of its units
have overlap `correlation`, zero for the orthonormal teacher of the literature.

**Learner.** f(x) = Σ_i (w_i·x)_+ with K = M + `splits` units; loss L = ½<(f − y)²>, the average over all inputs.

**Theory.** L is a closed form of the overlaps (`relu_loss`), and its minima are the fixed points of gradient descent.
Those that keep the symmetry S_{M−1} of permuting all units except the last have five different weights for any M,

    W = ( a on the diagonal, b beside it, c in the last column;  e in the last row, g in the corner ),

in the frame in which the teacher is the symmetric root of its Gram matrix: a fixed point in five unknowns. The family
`turned` has its last unit turned away from its teacher (g < 0): a saddle for M = 5 and a spurious minimum from M = 6 on
(Safran and Shamir 2018; Arjevani and Field 2020). The family `global` is W = U. By the same symmetry the M² curvatures
within the span of the teacher have twelve different values: five of the trivial representation (once each), five of the
standard one (M − 2 times), one each of antisymmetric and symmetric matrices with vanishing row sums ((M−2)(M−3)/2 and
(M−1)(M−4)/2 times). `lowest` also covers directions outside the span and networks with more units.

In a wider network, K > M, the family is split: the last unit w becomes (1−s)w and `splits` parts (s/splits)w of the same
direction. L does not change, and the split of a global minimum is a manifold of minima with one flat direction per split;
its Hessian has more zeros, d per split, because turning two parts against each other costs only a third power. The split
of a spurious minimum has a negative curvature: it is no longer a minimum.

**Simulation.** `family`: gradient descent with momentum in d dimensions, each step on d² fresh samples, from the identity
with its last diagonal entry turned; then the curvature, from differences of the gradient of fresh samples along directions
fixed by symmetry alone. The closed form is not used. `random`: gradient descent on the exact loss from random weights, and the
fraction of runs that end at zero.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import cholesky, orthonormal_columns
from solvable.methods.fixed_points.saddle import solve
from solvable.model import Control, FirstView, Model, Numerics, Reference, choice, control, dimension, observable

from .._papers import SAAD_SOLLA
from .relu_loss import relu_curvature, relu_gradient, relu_loss

FAMILY = {"start": "family", "splits": 0}
STEPS, MOMENTUM = 240, 0.8  # steps and momentum of a simulated descent
CHUNKS, NUDGE = 8, 0.05  # batches used to measure its curvature, and the step of the finite differences
DESCENT, SOLVED = 2000, 1e-4  # steps of a descent from random weights; a loss far below that of any spurious minimum


def _patterns(units: int) -> np.ndarray:
    """Masks of the entries a, b, c, e, g of W."""
    n, kinds = units - 1, np.zeros((5, units, units))
    kinds[0, :n, :n], kinds[1, :n, :n] = np.eye(n), 1 - np.eye(n)
    kinds[2, :n, n], kinds[3, n, :n], kinds[4, n, n] = 1.0, 1.0, 1.0
    return kinds


def _modes(units: int) -> list[np.ndarray]:
    """Orthonormal directions, one copy of each irreducible representation: trivial, standard, antisymmetric, symmetric."""
    n, tilt = units - 1, np.zeros(units - 1)
    tilt[:2] = 1.0, -1.0
    standard, off = np.zeros((5, units, units)), 1 - np.eye(n)
    standard[0, :n, :n] = np.diag(tilt)
    standard[1, :n, :n], standard[2, :n, :n] = tilt[:, None] * off, tilt[None, :] * off
    standard[3, :n, n], standard[4, n, :n] = tilt, tilt
    antisymmetric, symmetric = np.zeros((1, units, units)), np.zeros((1, units, units))
    for i, j in ((0, 1), (1, 2), (2, 0)):
        antisymmetric[0, i, j], antisymmetric[0, j, i] = 1.0, -1.0
    for i, j, sign in ((0, 1, 1), (2, 3, 1), (0, 2, -1), (1, 3, -1)):
        symmetric[0, i, j] = symmetric[0, j, i] = sign
    blocks = (_patterns(units), standard, antisymmetric, symmetric)
    return [np.linalg.qr(b.reshape(len(b), -1).T)[0].T.reshape(b.shape) for b in blocks]


class ReluLandscape(Model):
    """The symmetric minima of a sum of ReLUs: loss, overlaps, curvature; spurious from six units on.

    >>> import solvable as sv
    >>> found = sv.ReluLandscape(teachers=6).theory()
    >>> round(float(found.test_loss), 8), round(float(found.lowest), 5)
    (0.02508058, 0.0047)
    """

    id = "relu-landscape"
    title = "Minima of a sum of ReLUs"
    family = "online"
    sentence = "Minima of the population loss of a sum of ReLUs: spurious from six units on, removed by width."
    method = "fixed point in five unknowns, curvature by symmetry"
    numerics = Numerics(tolerance=1e-12, warmup=200, max_steps=800)
    typical_sizes = (16, 32, 48)
    theory_lanes = 64
    # Descents stay at the turned minimum as long as it is one: of six units it is a saddle from a correlation of 0.2 on.
    first_view = FirstView(values={"teachers": 8}, span=(0.0, 0.3), points=4, seeds=12)
    check_study = (
        {"values": {}, "over": {"teachers": [6, 8]}, "seeds": 12},
        {"values": {"teachers": 8, "correlation": 0.3}, "seeds": 12},
    )
    references = (
        Reference(
            "huang2026sharp", "J. Huang, B. Loureiro and S. Sarao Mannelli", "Sharp description of local minima in the loss "
            "landscape of high-dimensional two-layer ReLU neural networks", 2026, arxiv="2604.09412"),
        Reference(
            "safran2018spurious", "I. Safran and O. Shamir", "Spurious local minima are common in two-layer ReLU neural "
            "networks", 2018, "ICML", arxiv="1712.08968"),
        Reference(
            "arjevani2020analytic", "Y. Arjevani and M. Field", "Analytic characterization of the Hessian in shallow ReLU "
            "models: a tale of symmetry", 2020, "NeurIPS 33", arxiv="2008.01805"),
        SAAD_SOLLA,
    )  # fmt: skip

    correlation: Control = control(
        0.0, low=0.0, high=0.95, typical=(0.0, 0.5), symbol=r"\rho",
        meaning="overlap of any two units of the teacher")  # fmt: skip
    share: Control = control(
        0.5, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.1, 0.9), symbol="s",
        meaning="fraction of the last unit given to the extra units, where it is split")  # fmt: skip
    teachers: int = choice(6, low=5, high=40, symbol="M", meaning="units of the teacher")
    splits: int = choice(0, low=0, high=8, symbol="K-M", meaning="extra units of the student beyond the teacher's")
    minimum: str = choice(
        "turned",
        options=("turned", "global"),
        meaning="family of fixed points: last unit turned away, or global minimum",
    )
    start: str = choice(
        "family", options=("family", "random"),
        meaning="initial weights of a simulation: the family's symmetric ones, or random ones")  # fmt: skip
    starts: int = choice(16, high=1000, meaning="descents from random weights in one simulation")

    dimensions_declared = (
        dimension("entry", "kind of entry of the overlap matrix"),
        dimension("unit", "kind of unit"),
        dimension("mode", "block of the Hessian and number of its eigenvalue"),
    )
    main_declared = ("test_loss", "curvature", "lowest")
    observables_declared = (
        observable("test_loss", "half the mean squared difference to the label on a fresh input, at the end of the descent",
                   symbol="L", status="exact", low=0, when=FAMILY),
        observable("overlap", "overlaps of student and teacher units: of a unit with its own teacher, with another, with the "
                   "last one; of the last unit with another teacher, with its own", symbol="R", dims=("entry",),
                   status="exact", when=FAMILY),
        observable("norm", "squared norms of a student unit and of the last one", symbol="Q_{ii}", dims=("unit",),
                   status="exact", low=0, when=FAMILY),
        observable("curvature", "the twelve different eigenvalues of the Hessian within the span of the teacher: trivial and "
                   "standard representation, rising, then antisymmetric and symmetric one", symbol=r"\lambda",
                   dims=("mode",), status="exact", when=FAMILY),
        observable("lowest", "lowest eigenvalue of the Hessian in d > M dimensions; a fixed point with a negative one is a "
                   "saddle", symbol=r"\lambda_{\min}", status="exact", simulated=False),
        observable("flat", "zero eigenvalues of the Hessian in d = M dimensions", status="exact", low=0, simulated=False),
        observable("reached", "fraction of runs from random weights that end at a global minimum", low=0, high=1,
                   predicted=False, when={"start": "random"}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.start == "random" and not isinstance(self.correlation, Tracer) and np.any(self.correlation > 0.5):
            raise InvalidValue(
                f"correlation = {float(np.max(self.correlation)):g} with start = 'random' is outside [0, 0.5]: above 0.5 the "
                "losses of spurious minima are too close to zero to be distinguished from it."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        modes = [f"trivial {i}" for i in range(1, 6)] + [f"standard {i}" for i in range(1, 6)]
        entries = ["own", "other", "last", "last with other", "last with own"]
        return {
            "entry": np.array(entries),
            "unit": np.array(["aligned", "last"]),
            "mode": np.array([*modes, "antisymmetric", "symmetric"]),
        }

    # --- theory -----------------------------------------------------------------------------------------------------

    def _teacher(self) -> Array:
        """The symmetric root of the teacher's Gram matrix (1 - ρ) 1 + ρ 11ᵀ."""
        m = self.teachers
        narrow, wide = jnp.sqrt(1 - self.correlation), jnp.sqrt(1 - self.correlation + m * self.correlation)
        return narrow * jnp.eye(m) + (wide - narrow) / m * jnp.ones((m, m))

    def _fixed_point(self, numerics: Numerics) -> tuple[Array, Array, Array]:
        """The weights of the family, with convergence and the residual of their gradient."""
        if self.minimum == "global":
            return self._teacher(), jnp.asarray(True), jnp.zeros(())
        kinds = _patterns(self.teachers)
        alike = kinds / kinds.sum(axis=(1, 2), keepdims=True)

        def descend(entries: Array, model: ReluLandscape) -> Array:
            weights = jnp.tensordot(entries, jnp.asarray(kinds), 1)
            return entries - jnp.tensordot(jnp.asarray(alike), relu_gradient(weights, model._teacher()), 2)

        begin = jnp.asarray([1.0, 0.0, 0.0, 0.0, -1.0])
        found = solve(
            descend,
            begin,
            self,
            tolerance=numerics.tolerance,
            warmup=numerics.warmup,
            damping=4 / (self.teachers + 8),
            max_steps=numerics.max_steps,
        )
        return jnp.tensordot(found.x, jnp.asarray(kinds), 1), found.converged, found.residual

    def _split(self, weights: Array) -> Array:
        if not self.splits:
            return weights
        part = jnp.broadcast_to(self.share / self.splits * weights[-1:], (self.splits, weights.shape[1]))
        return jnp.concatenate([weights[:-1], (1 - self.share) * weights[-1:], part])

    def point(self, numerics: Numerics) -> dict[str, Array]:
        teacher = self._teacher()
        weights, converged, residual = self._fixed_point(numerics)
        status = {"converged": converged, "residual": residual}
        # one more dimension: outside the span of all units every direction is equivalent
        wide, wide_teacher = (jnp.pad(x, ((0, 0), (0, 1))) for x in (self._split(weights), teacher))
        modes = self._directions(wide.shape[0])
        hessian = relu_curvature(wide, wide_teacher, jnp.asarray(np.concatenate(modes)))
        edges = np.cumsum([0, *map(len, modes)])
        *inside, outside = (jnp.linalg.eigvalsh(hessian[i:j, i:j]) for i, j in zip(edges[:-1], edges[1:], strict=True))
        curvature, m = jnp.concatenate(inside), self.teachers
        copies = np.repeat([1, m - 2, (m - 2) * (m - 3) // 2, (m - 1) * (m - 4) // 2], [5, 5, 1, 1])
        copies = np.ones(curvature.shape[0]) if self.splits else copies
        status |= {
            "lowest": jnp.minimum(jnp.min(curvature), outside[0]),
            "flat": jnp.sum(jnp.where(jnp.abs(curvature) < 1e-9, jnp.asarray(copies, float), 0.0)),
        }
        if self.start == "random" or self.splits:
            return status
        found = {"test_loss": relu_loss(weights, teacher), "curvature": curvature}
        return {**found, **self._measured(weights, teacher), **status}

    def _directions(self, units: int) -> list[np.ndarray]:
        """Directions that block-diagonalise the Hessian: within the span (by symmetry, or whole if split), and outside it."""
        across = np.zeros((units, units, self.teachers + 1))
        across[:, :, -1] = np.eye(units)
        whole = [np.eye(units * self.teachers).reshape(-1, units, self.teachers)]
        inside = whole if self.splits else _modes(self.teachers)
        return [np.pad(b, ((0, 0), (0, 0), (0, 1))) for b in inside] + [across]

    def _measured(self, weights: Array, teacher: Array) -> dict[str, Array]:
        """Overlaps averaged over equivalent units, and norms."""
        kinds = _patterns(self.teachers)
        alike = jnp.asarray(kinds / kinds.sum(axis=(1, 2), keepdims=True), weights.dtype)
        square = jnp.sum(weights**2, axis=1)
        return {
            "overlap": jnp.tensordot(alike, weights @ teacher.T, 2),
            "norm": jnp.stack([jnp.mean(square[:-1]), square[-1]]),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if size < self.teachers:
            raise InvalidValue(f"size = {size} is smaller than the {self.teachers} units of the teacher.")
        if self.start == "random":
            return self._reach(key, size)
        if self.splits:
            raise InvalidValue(
                f"splits = {self.splits} with start = 'family' cannot be simulated: a split family is a saddle, which descent "
                "leaves; use start = 'random' or splits = 0."
            )
        frame_key, train_key, curve_key, test_key = jax.random.split(key, 4)
        frame = orthonormal_columns(jax.random.normal(frame_key, (size, self.teachers), float)).T.astype(dtype)
        teacher = self._teacher().astype(dtype) @ frame
        last = -1.0 if self.minimum == "turned" else 1.0
        begin = jnp.asarray(np.diag([*np.ones(self.teachers - 1), last]), dtype) @ frame

        def batch(number: Array, key: Array) -> Array:
            return jax.random.normal(jax.random.fold_in(key, number), (size * size, size), dtype)

        def loss(w: Array, x: Array) -> Array:
            difference = jnp.sum(jax.nn.relu(x @ w.T), axis=1) - jnp.sum(jax.nn.relu(x @ teacher.T), axis=1)
            return 0.5 * jnp.mean(difference**2)

        pull, pace = jax.grad(loss), 4 / (self.teachers + 8)

        def step(carry: tuple[Array, Array, Array], number: Array) -> tuple[tuple[Array, Array, Array], None]:
            w, speed, mean = carry
            speed = MOMENTUM * speed - pace * pull(w, batch(number, train_key))
            w = w + speed
            # average over the last third: the descent has converged, and averaging removes its noise
            late = (number >= STEPS - STEPS // 3).astype(dtype)
            return (w, speed, mean + late * w / (STEPS // 3)), None

        still = jnp.zeros_like(begin)
        (_, _, w), _ = jax.lax.scan(step, (begin, still, still), jnp.arange(STEPS))

        modes = [jnp.asarray(b, dtype) @ frame for b in _modes(self.teachers)]

        def block(directions: Array, x: Array) -> Array:
            bend = jax.vmap(lambda b: (pull(w + NUDGE * b, x) - pull(w - NUDGE * b, x)) / (2 * NUDGE))(directions)
            return jnp.einsum("asd,bsd->ab", directions, bend)

        def chunk(total: Any, number: Array) -> Any:
            x = batch(number, curve_key)
            seen = ([block(b, x) for b in modes], loss(w, batch(number, test_key)))
            return jax.tree.map(lambda a, b: a + b / CHUNKS, total, seen), None

        nothing = ([jnp.zeros((len(b), len(b)), dtype) for b in modes], jnp.zeros((), dtype))
        (blocks, test_loss), _ = jax.lax.scan(chunk, nothing, jnp.arange(CHUNKS))
        curvature = [jnp.linalg.eigvalsh(0.5 * (b + b.T).astype(float)) for b in blocks]
        out = {"test_loss": test_loss, "curvature": jnp.concatenate(curvature), **self._measured(w, teacher)}
        return {**out, "converged": jnp.isfinite(test_loss)}

    def _reach(self, key: Array, size: int) -> dict[str, Array]:
        """Run descents with momentum from weights of norm about one, in the M + K dimensions that matter."""
        units = self.teachers + self.splits
        dimension = min(size, self.teachers + units)
        teacher = jnp.pad(self._teacher(), ((0, 0), (0, dimension - self.teachers)))
        drawn = jax.random.normal(key, (self.starts, units, size), float) / np.sqrt(size)
        # outside the teacher's span only the Gram matrix matters: any root of it is an equivalent start
        rest = drawn[:, :, self.teachers :]
        if size > dimension:
            rest = jax.vmap(cholesky)(jnp.einsum("sid,sjd->sij", rest, rest))
        begin = jnp.concatenate([drawn[:, :, : self.teachers], rest], axis=2)
        pull, pace = jax.vmap(lambda w: relu_gradient(w, teacher)), 4 / (units + 8)

        def step(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            w, speed = carry
            speed = MOMENTUM * speed - pace * pull(w)
            return w + speed, speed

        w, _ = jax.lax.fori_loop(0, DESCENT, step, (begin, jnp.zeros_like(begin)))
        losses = jax.vmap(lambda w: relu_loss(w, teacher))(w)
        return {
            "reached": jnp.mean(jnp.where(losses < SOLVED, 1.0, 0.0)),
            "converged": jnp.all(jnp.isfinite(losses)),
        }
