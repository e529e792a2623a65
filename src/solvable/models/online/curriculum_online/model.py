r"""Easy samples first? A sparse teacher hidden among irrelevant inputs, learnt online, with the order of samples chosen.

**Data.** A fraction ρ of the N inputs is relevant and N(0, 1); the others are N(0, Δ), with Δ = `easy` in an easy sample and
Δ = `hard` in a hard one. The teacher uses relevant inputs only, |W_T|²/N = ρ, and y = sign(W_T·x/√N).

**Learner.** g(h) = erf(h/√2) with h = w·x/√N, one step of gradient descent on ½(y − g)² per fresh sample, time in steps per N:

    w ← w + (η/√N) (y − g) g'(h) x − (η λ/N) w.

For a time `horizon` T cut into equal intervals, a *protocol* sets the fraction u(t) of easy samples:

- `curriculum`: easy samples for a fraction `share` of the horizon, then hard ones;
- `anti`: hard samples first, then easy ones, with the same `share` of easy samples;
- `mixed`: easy samples with probability `share` throughout; `share` = 0 is training on hard samples alone;
- `optimal`: the fractions that minimise the error on hard inputs at T;
- `optimal-difficulty`: no sample is easy; instead Δ(t) itself is chosen between easy and hard, for the same purpose;
- `given`: `given_fraction`.

The rate η is multiplied by a *pace*: `constant` (one), `optimal` (at most `fastest`, optimised together with the fractions
if those are optimised), or `given` (`given_pace`). Orders of samples can be compared fairly only if the rate is tuned for each:
what the first samples teach is lost if the rate that is best for them is wrong for the last.

**Theory** (Saglietti, Sarao Mannelli and Saxe 2022; here with our own choice of loss). For N → ∞ the overlaps R = w·W_T/N and
the squared norms Q_r, Q_i per N on relevant and irrelevant inputs follow a flow that is linear in u. With T = ρ,
S = Q_r + Δ Q_i, δ = (y − g) g' and c = 2/π, for a field a of covariances C_ah with h and C_au with the teacher's field,

    <δ a> = c (C_au − C_ah R/(1+S)) / √((1+S)T − R²) − c C_ah / ((1+S)√(1+2S))
    <δ²>  = (c/√k) [1 − 2c asin( (R/k) / √((T − 2R²/k)(1 + S/k)) ) + c asin( (S/k)/(1 + S/k) )],    k = 1 + 2S
    dR/dt   = η <δ u> − ηλ R                                   (C_ah = R,   C_au = T)
    dQ_r/dt = 2η <δ h_r> + η² ρ <δ²> − 2ηλ Q_r                 (C_ah = Q_r, C_au = R)
    dQ_i/dt = 2η <δ h_i> + η² (1−ρ) Δ <δ²> − 2ηλ Q_i           (C_ah = Δ Q_i, C_au = 0)

and the error on inputs of difficulty Δ is arccos(R/√(T S))/π. The optimal protocol obeys Pontryagin's principle
(`methods.flows.control`): `gap` is zero where it holds. It is searched from several starts, and NaN where no search converged.

**Results** (ρ = 0.2, Δ_e = 0.05). The outcome depends on what else is tuned. At a constant rate, with rate and decay tuned for
every arm, hard samples *first* win (23 % over hard samples alone at T = 5, against 3 % for the curriculum): late easy samples
reduce the noise of a rate that does not decrease. With the rate free to decrease and no decay, the optimum is a curriculum: easy
for the first fifth of T = 10, then hard, 11 % better than hard samples alone. With weight decay too (λ = 0.4), which shrinks
irrelevant weights on its own, easy samples throughout are optimal up to T = 10.

**Simulation.** Weights with exactly the given overlaps, at any N, then gradient descent with the protocol's samples. The
errors are exact population averages given the weights.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.functions import function_named
from solvable.methods.flows.control import Box, Difficulty, Rate, evaluate, search
from solvable.methods.flows.descent import descend
from solvable.methods.flows.integrate import until_failure
from solvable.model import Control, Guard, Input, Model, Numerics

from .._papers import OPTIMAL_PROTOCOLS
from .._protocols import PROTOCOL_DIMENSIONS

PROTOCOLS = ("curriculum", "anti", "mixed", "optimal", "optimal-difficulty", "given")


class Overlaps(NamedTuple):
    """State of a student: R, and its squared norms on relevant and on irrelevant inputs."""

    overlap: Array
    relevant: Array
    irrelevant: Array


def _inside(x: Array) -> Array:
    return jnp.clip(x, -1.0, 1.0)


class CurriculumOnline(Model):
    """Easy and hard samples in a chosen order, online: curriculum, anti-curriculum, mixed, and the optimal protocol.

    >>> import solvable as sv
    >>> errors = [float(sv.CurriculumOnline(protocol=p).theory().final_error) for p in ("curriculum", "mixed", "anti")]
    >>> errors == sorted(errors)
    True
    """

    id = "curriculum-online"
    title = "Curriculum learning, online"
    family = "online"
    sentence = "Easy samples first or last, online: curriculum, anti-curriculum, mixed, and the optimal protocol."
    method = "order-parameter flow and optimal control"
    search_settings = ("iterations", "tolerance")
    numerics = Numerics(accuracy=1e-7, max_steps=4096, iterations=2000, tolerance=1e-5)
    converges_along = "progress"
    accuracy = 1e-6
    batch_accuracy = 1e-10
    theory_lanes = 128  # reverse mode stores all steps of a flow
    typical_sizes = (200, 400, 800)
    check_study = (
        {"over": {"protocol": ["curriculum", "mixed"]}, "seeds": 16},
        {"values": {"relevant": 0.2, "easy": 0.05, "horizon": 8.0, "protocol": "given", "pace": "given", "intervals": 8,
                    "given_fraction": [1.0, 1.0, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0],
                    "given_pace": [3.0, 2.8, 2.0, 1.2, 1.0, 0.8, 0.6, 0.5]}, "seeds": 16},
    )  # fmt: skip
    guard = Guard(values={"protocol": "anti"}, corner_points=6)
    references = (
        Reference(
            "saglietti2022analytical", "L. Saglietti, S. Sarao Mannelli and A. Saxe", "An analytical theory of curriculum "
            "learning in teacher-student networks", 2022, "NeurIPS 35", arxiv="2106.08068"),
        OPTIMAL_PROTOCOLS,
    )  # fmt: skip

    relevant: Control = control(
        0.5, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.1, 0.9), symbol=r"\rho", counts=True,
        meaning="fraction of inputs that are relevant")  # fmt: skip
    easy: Control = control(
        0.0, low=0.0, high=100.0, typical=(0.0, 0.5), symbol=r"\Delta_e",
        meaning="variance of irrelevant inputs in an easy sample")  # fmt: skip
    hard: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.5, 2.0), symbol=r"\Delta_h",
        meaning="variance of irrelevant inputs in a hard sample, and in the test")  # fmt: skip
    rate: Control = control(
        1.0, low=0.0, low_open=True, high=20.0, typical=(0.2, 2.0), symbol=r"\eta",
        meaning="learning rate at pace 1")  # fmt: skip
    penalty: Control = control(
        0.02, low=0.0, high=10.0, typical=(0.0, 0.2), symbol=r"\lambda",
        meaning="weight decay, relative to the loss of one sample")  # fmt: skip
    horizon: Control = control(
        5.0, low=0.0, low_open=True, high=200.0, typical=(1.0, 20.0), symbol="T",
        meaning="training time, in samples per input dimension")  # fmt: skip
    share: Control = control(
        0.45,
        low=0.0,
        high=1.0,
        symbol="f",
        meaning="fraction of easy samples (curriculum, anti, mixed)",
        when={"protocol": ("curriculum", "anti", "mixed")},
    )
    fastest: Control = control(
        3.0, low=0.0, low_open=True, high=20.0, typical=(1.0, 5.0), symbol=r"\eta_{\max}/\eta",
        meaning="largest pace, if the pace is optimal", when={"pace": "optimal"})  # fmt: skip
    protocol: str = choice("curriculum", options=PROTOCOLS, meaning="which samples are easy, and when")
    pace: str = choice(
        "constant", options=("constant", "optimal", "given"),
        meaning="factor of the learning rate: one, optimal for this protocol, or given_pace")  # fmt: skip
    intervals: int = choice(50, high=500, meaning="equal intervals of the horizon on which a protocol is constant")
    given_fraction: Input = input(
        lambda m: np.full(m.intervals, 0.5), dims=("intervals",), low=0.0, high=1.0, symbol="u",
        meaning="fraction of easy samples in each interval, for the protocol given")  # fmt: skip
    given_pace: Input = input(
        lambda m: np.ones(m.intervals), dims=("intervals",), low=0.0,
        meaning="factor of the learning rate in each interval, for the pace given")  # fmt: skip
    initial: Input = input(
        np.array([0.05, 0.5, 0.5]), dims=("overlaps",), symbol="R, Q_r, Q_i",
        meaning="initial overlap with the teacher, squared norms on relevant and on irrelevant inputs")  # fmt: skip

    dimensions_declared = (
        *PROTOCOL_DIMENSIONS,
        dimension("inputs", "relevant and irrelevant inputs"),
    )
    main_declared = ("test_error", "final_error", "overlap", "fraction")
    observables_declared = (
        observable("test_error", "probability of a wrong label on a fresh hard input, at the interval boundaries",
                   symbol=r"\varepsilon", dims=("progress",), low=0, high=1),
        observable("final_error", "test error at the end", symbol=r"\varepsilon(T)", low=0, high=1),
        observable("test_loss", "half the mean squared difference to the label on a fresh hard input",
                   symbol=r"\mathcal{L}", dims=("progress",), low=0),
        observable("overlap", "overlap of student and teacher", symbol="R", dims=("progress",)),
        observable("norm", "squared norm of the student on relevant and on irrelevant inputs, per input dimension",
                   symbol="Q_r, Q_i", dims=("progress", "inputs"), low=0),
        observable("fraction", "fraction of easy samples in each interval", symbol="u", dims=("interval",), low=0, high=1,
                   simulated=False),
        observable("difficulty", "mean variance of irrelevant inputs in each interval", symbol=r"\Delta(t)",
                   dims=("interval",), low=0, simulated=False),
        observable("speed", "factor of the learning rate in each interval", dims=("interval",), low=0, simulated=False),
        observable("switching", "change of the final error with the fraction of easy samples in each interval, per unit of "
                   "time; hard samples are better where it is positive", symbol="s", dims=("interval",),
                   simulated=False),
        observable("gap", "Frank–Wolfe gap of the optimised controls (of the fraction if none are), zero where "
                   "Pontryagin's principle holds", low=0, simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        given = (self.relevant, self.initial)
        if any(isinstance(value, Tracer) for value in given):
            return
        smallest, initial = float(np.min(self.relevant)), np.asarray(self.initial)
        if len(initial) != 3:
            raise InvalidValue(f"initial has {len(initial)} entries but needs three: R, Q_r and Q_i.")
        if initial[1] < 0 or initial[2] < 0 or initial[0] ** 2 > smallest * initial[1] * (1 + 1e-12):
            raise InvalidValue(
                f"initial = ({initial[0]:g}, {initial[1]:g}, {initial[2]:g}) is impossible at relevant = {smallest:g}: norms "
                "must not be negative, and R² ≤ ρ Q_r."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        edges = np.linspace(0.0, 1.0, self.intervals + 1)
        middle = 0.5 * (edges[1:] + edges[:-1])
        return {"progress": edges, "interval": middle, "inputs": np.array(["relevant", "irrelevant"])}

    # --- theory -----------------------------------------------------------------------------------------------------

    def _velocity(self, state: Overlaps, difficulty: Array, rate: Array) -> Overlaps:
        """The flow under samples of one difficulty (equations above)."""
        c, rho, (r, q_r, q_i) = 2 / math.pi, self.relevant, state
        s = q_r + difficulty * q_i
        k = 1 + 2 * s
        # R² ≤ ρ Q_r < (1+S)ρ holds for every student; the floor only catches steps that overshoot
        root = jnp.sqrt(jnp.maximum((1 + s) * rho - r * r, 1e-12))

        def mean(with_field: Array, with_teacher: Array | float) -> Array:
            pull = (with_teacher - with_field * r / (1 + s)) / root
            return c * (pull - with_field / ((1 + s) * jnp.sqrt(k)))

        clean = jnp.sqrt(jnp.maximum((rho - 2 * r * r / k) * (1 + s / k), 1e-12))
        labels = 1 - 2 * c * jnp.arcsin(_inside(r / k / clean)) + c * jnp.arcsin(_inside(s / (k + s)))
        kick = rate**2 * c / jnp.sqrt(k) * labels
        decay = rate * self.penalty
        return Overlaps(
            overlap=rate * mean(r, rho) - decay * r,
            relevant=2 * rate * mean(q_r, r) + rho * kick - 2 * decay * q_r,
            irrelevant=2 * rate * mean(difficulty * q_i, 0.0) + (1 - rho) * difficulty * kick - 2 * decay * q_i,
        )

    def _drift(self, state: Overlaps, u: dict[str, Array]) -> Overlaps:
        """The flow with a fraction of easy samples and the interval's difficulty for the others."""
        rate, share = u["pace"] * self.rate, u["fraction"]
        gentle, harsh = (self._velocity(state, level, rate) for level in (self.easy, u["difficulty"]))
        return jax.tree.map(lambda a, b: share * a + (1 - share) * b, gentle, harsh)

    def _error(self, state: Overlaps) -> Array:
        """Error of the sign of the student's field on a hard input."""
        field = state.relevant + self.hard * state.irrelevant
        edge = jnp.sqrt(jnp.maximum(self.relevant * field - state.overlap**2, 1e-300))
        return jnp.arctan2(edge, state.overlap) / jnp.pi

    def _loss(self, state: Overlaps) -> Array:
        c, field = 2 / math.pi, state.relevant + self.hard * state.irrelevant
        aligned = jnp.arcsin(_inside(state.overlap / jnp.sqrt(self.relevant * (1 + field))))
        return 0.5 * (1 - 2 * c * aligned + c * jnp.arcsin(field / (1 + field)))

    def _fractions(self, protocol: str) -> Array:
        """The fractions of a fixed protocol; an interval that contains its switch has a share of both."""
        if protocol == "given":
            return self.given_fraction
        if protocol == "mixed":
            return jnp.broadcast_to(self.share, (self.intervals,))
        edges = jnp.asarray(np.arange(self.intervals, dtype=float))
        done = jnp.clip(self.share * self.intervals - edges, 0.0, 1.0)
        return done if protocol == "curriculum" else done[::-1]

    def _sets(self) -> dict[str, Any]:
        chosen = {
            "optimal": {"fraction": Box(0.0, 1.0)},
            "optimal-difficulty": {"difficulty": Difficulty(self.easy, self.hard)},
        }
        sets: dict[str, Any] = chosen.get(self.protocol, {})
        return {**sets, "pace": Rate(self.fastest)} if self.pace == "optimal" else sets

    def _schedule(self, numerics: Numerics) -> tuple[dict[str, Array], Array]:
        """The protocol as controls, and whether the search for it converged."""
        speed, none = self.given_pace if self.pace == "given" else jnp.ones(self.intervals), jnp.zeros(self.intervals)
        fixed = jax.lax.stop_gradient(self)  # no derivative passes through a search
        hard = jnp.broadcast_to(self.hard, (self.intervals,))
        if not self._sets():
            return {"fraction": self._fractions(self.protocol), "difficulty": hard, "pace": speed}, jnp.asarray(True)
        # starts of the search: (fractions, difficulties), and a level of the pace
        if self.protocol == "optimal":
            mixtures = (jnp.full(self.intervals, 0.5), *(fixed._fractions(p) for p in ("curriculum", "anti")))
            begin = [(fractions, hard) for fractions in mixtures]
        elif self.protocol == "optimal-difficulty":
            ramp = jnp.linspace(0.0, 1.0, self.intervals)
            begin = [
                (none, fixed.easy + x * (fixed.hard - fixed.easy)) for x in (jnp.full_like(ramp, 0.5), ramp, ramp[::-1])
            ]
        else:
            begin = [(fixed._fractions(self.protocol), hard)] * 2
        levels = jnp.minimum(jnp.asarray([1.0, 0.5, 0.7]), fixed.fastest)
        starts = [
            {
                "fraction": fractions,
                "difficulty": jax.lax.stop_gradient(difficulties),
                "pace": jnp.full(self.intervals, level) if self.pace == "optimal" else speed,
            }
            for (fractions, difficulties), level in zip(begin, levels[: len(begin)], strict=True)
        ]
        found = search(
            fixed._drift,
            fixed._error,
            fixed._start,
            starts,
            fixed._sets(),
            fixed.horizon,
            accuracy=numerics.accuracy,
            max_steps=numerics.max_steps,
            iterations=numerics.iterations,
            tolerance=numerics.tolerance,
        )
        held = {} if self.protocol == "optimal-difficulty" else {"difficulty": hard}
        return {**found.controls, **held}, found.converged

    @property
    def _start(self) -> Overlaps:
        return Overlaps(*(self.initial[i] for i in range(3)))

    def point(self, numerics: Numerics) -> dict[str, Array]:
        controls, found = self._schedule(numerics)
        sets = self._sets() or {"fraction": Box(0.0, 1.0)}
        settings = {name: numerics[name] for name in ("accuracy", "max_steps")}
        followed = evaluate(self._drift, self._error, self._start, controls, sets, self.horizon, **settings)
        observed = self._observed(followed.path)
        reached = until_failure(jnp.isfinite(observed["test_loss"]))
        return {
            **observed,
            "fraction": controls["fraction"],
            "difficulty": controls["fraction"] * self.easy + (1 - controls["fraction"]) * controls["difficulty"],
            "speed": controls["pace"],
            "switching": followed.slopes["fraction"],
            "gap": followed.gap,
            # the forward flow may converge where the backward one does not
            "converged": found & reached & (jnp.isfinite(followed.cost) | ~reached[-1]),
        }

    def _observed(self, path: Overlaps) -> dict[str, Array]:
        errors = jax.vmap(self._error)(path)
        return {
            "test_error": errors,
            "final_error": errors[-1],
            "test_loss": jax.vmap(self._loss)(path),
            "overlap": path.overlap,
            "norm": jnp.stack([path.relevant, path.irrelevant], axis=-1),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if size < 3:
            raise InvalidValue(f"size = {size} is smaller than 3, two relevant inputs and one irrelevant one.")
        controls, found = self._schedule(type(self).numerics)
        teacher_key, student_key, sample_key, level_key = jax.random.split(key, 4)
        number = jnp.clip(counts["relevant"].actual, 2, size - 1)
        mask = (jnp.arange(size, dtype=jnp.int32) < number).astype(float)

        def of_norm(vector: Array, square: Array) -> Array:
            return vector * jnp.sqrt(size * square / jnp.sum(vector**2))

        teacher = of_norm(mask * jax.random.normal(teacher_key, (size,), float), self.relevant)
        noise = jax.random.normal(student_key, (size,), float)
        overlap, q_r, q_i = self._start
        across = mask * noise
        across = across - (across @ teacher) / (teacher @ teacher) * teacher
        along = overlap / self.relevant
        student = along * teacher + of_norm(across, jnp.maximum(q_r - along * overlap, 0.0))
        student = student + of_norm((1 - mask) * noise, q_i)
        mask, teacher, student = (x.astype(dtype) for x in (mask, teacher, student))
        rate, decay = (self.rate / math.sqrt(size)).astype(dtype), (self.rate * self.penalty / size).astype(dtype)
        gentle, erf = jnp.sqrt(mask + (1 - mask) * self.easy.astype(dtype)), function_named("erf")

        def step(number: Array, w: Array, setting: tuple[Array, Array, Array]) -> Array:
            share, harsh, pace = setting
            z = jax.random.normal(jax.random.fold_in(sample_key, number), (size,), dtype)
            easy = jax.random.uniform(jax.random.fold_in(level_key, number), (), dtype) < share
            x = z * jnp.where(easy, gentle, harsh)
            field = w @ x / math.sqrt(size)
            label = jnp.sign(teacher @ x)
            slope = math.sqrt(2 / math.pi) * jnp.exp(-0.5 * field**2)
            error = label - erf(field)
            return w + pace * (rate * error * slope * x - decay * w)

        def overlaps(w: Array) -> Overlaps:
            w = w.astype(float)
            square = w**2 / size
            inside = mask.astype(float)
            return Overlaps(w @ teacher.astype(float) / size, inside @ square, (1 - inside) @ square)

        done = jnp.asarray(np.arange(1, self.intervals + 1) / self.intervals)
        ends = jnp.rint(self.horizon * size * done).astype(jnp.int32)
        share, level, pace = (controls[name].astype(dtype) for name in ("fraction", "difficulty", "pace"))
        harsh = jnp.sqrt(mask[None, :] + (1 - mask)[None, :] * level[:, None])
        run = descend(step, student, ends, overlaps, (share, harsh, pace), measure_start=True)
        observed = self._observed(run.path)
        return {**observed, "converged": found & until_failure(jnp.isfinite(observed["test_loss"]))}
