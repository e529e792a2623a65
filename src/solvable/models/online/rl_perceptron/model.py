r"""A perceptron learns to act from rewards that come at the end of an episode: four reward rules, phases, schedules.

**Data.** Inputs x ~ N(0, 1_D), each used once. In an episode of T inputs the learner acts by a_t = sign(w·x_t/√D); an action
is right if it is that of a teacher with |w*|² = D.

**Learner.** After each episode, w ← w + (u/√D) (1/T) Σ_t G_t a_t x_t, time t = episodes/D, with the pace u and the return G_t:

- `all`: G = η₁ if all T actions were right, else -η₂ (reward, punishment);
- `enough`: G = η₁ if n or more were right, else -η₂;
- `survival`: η₁ if all were right, and a bonus on the first n steps if those were right;
- `breadcrumb`: a bonus for every right action from t on, and η₁ if all were right.

The pace is 1 (`constant`), `given` over time, greedily optimal (`best-rate`), or greedily optimal together with the episode
length up to T (`best-rate-and-length`, rule `all`), as a function of the current overlaps. At pace 1 the greedy length is not
optimal in the end: `optimal-length` (rule `all`) is the schedule of lengths up to T, constant between the times, that minimises
the final error (`methods.flows.control`: lengths may be mixed, but the optimum is pure). With a free pace, episodes grow longer
as the student improves; at pace 1 they grow shorter (T = 12, t = 100: 4, then 3; final error 0.06855, against 0.06894 with the
best constant length, 4).

**Theory** (Patel, Lee, Sarao Mannelli, Goldt and Saxe 2023). With R = w·w*/D, Q = |w|²/D, ρ = R/√Q, P = 1 - arccos(ρ)/π,

    dR/dt = u f(ρ),      dQ/dt = 2u√Q g(ρ) + u² h(ρ),      f = <G aν>,  g = <G|λ|>/√Q,  h = <Σ_t G_t²>/T²,

so that dρ/dt = ũ (f - ρg) - ½ρh ũ² with ũ = u/√Q: one-dimensional, hence the greedy ũ = (f - ρg)/(ρh) is optimal for every
rule. Fixed points of a constant pace are the roots of f with g < 0, at √Q = -h/(2g). For `all` and `enough`, f touches zero
at a critical share η₂/(η₁+η₂), the `threshold`: above it there are a trap at small ρ and a saddle, whose stable manifold
separates success from failure.

**Simulation.** Episodes of a perceptron of dimension D that starts with exactly the given ρ and Q.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.flows.committee import pair_gram, weights_with_gram
from solvable.methods.flows.control import Lengths, Protocol, Simplex, evaluate, search
from solvable.methods.flows.descent import descend, steps_at
from solvable.methods.flows.integrate import integrate, until_failure
from solvable.model import Control, Guard, Input, Model, Numerics

from .averages import Averages, K, all_right, breadcrumb, enough_right, survival, wrong_actions
from .portrait import FixedPoint, fixed_points, lowest_share, stable_manifold

RULES = ("all", "enough", "survival", "breadcrumb")
SCHEDULES = ("constant", "best-rate", "best-rate-and-length", "optimal-length", "given")
OF_LENGTHS = ("best-rate-and-length", "optimal-length")
PUNISHING = {"rule": ("all", "enough")}


class RLPerceptron(Model):
    """A perceptron rewarded for whole episodes of right actions: delayed learning, traps, and the best schedules.

    >>> import solvable as sv
    >>> punished = sv.RLPerceptron(steps=13, punishment=0.05)
    >>> [(round(p.alignment, 4), round(p.norm, 5), p.stable) for p in punished.fixed_points()]
    [(0.0026, 1e-05, True), (0.7408, 0.01548, False)]
    """

    id = "rl-perceptron"
    title = "The RL perceptron"
    family = "online"
    sentence = (
        "A perceptron learns to act from rewards of whole episodes: four reward rules, traps, the best schedules."
    )
    method = "order-parameter flow, closed-form schedules and phases"
    search_settings = ("iterations", "tolerance")
    numerics = Numerics(rtol=2e-12, atol=2e-14, max_steps=8192, accuracy=1e-8, iterations=2000, tolerance=1e-5)
    converges_along = "time"
    accuracy = 1e-8
    batch_accuracy = 1e-9  # rounding changes the adaptive steps
    theory_lanes = 128  # reverse mode stores all steps of a flow
    typical_sizes = (50, 100, 200)
    check_study = (
        {"values": {"steps": 6, "punishment": 0.1, "bonus": 0.2, "needed": 4, "times": [0.0, 2.0, 5.0, 10.0]},
         "over": {"rule": list(RULES)}, "seeds": 32},
        {"values": {"times": [0.0, 0.5, 1.0, 2.0, 4.0], "initial_alignment": 0.5, "steps": 8},
         "over": {"schedule": ["best-rate", "best-rate-and-length", "optimal-length"]}, "seeds": 32},
    )  # fmt: skip
    guard = Guard(values={"steps": 13, "times": [0.0, 5.0, 20.0]})
    references = (
        Reference(
            "patel2025rl", "N. Patel, S. Lee, S. Sarao Mannelli, S. Goldt and A. Saxe", "RL perceptron: generalization "
            "dynamics of policy learning in high dimensions", 2025, "Phys. Rev. X 15, 021051", arxiv="2306.10404",
            doi="10.1103/PhysRevX.15.021051"),
    )  # fmt: skip

    reward: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.2, 3.0), symbol=r"\eta_1",
        meaning="return of an episode that satisfies the rule, times the learning rate")  # fmt: skip
    punishment: Control = control(
        0.0, low=0.0, high=100.0, typical=(0.0, 0.1), symbol=r"\eta_2",
        meaning="negative return of any other episode, for the rules all and enough",
        when={"rule": ("all", "enough")})  # fmt: skip
    bonus: Control = control(
        0.2, low=0.0, high=100.0, typical=(0.0, 0.5), symbol="b",
        meaning="return for surviving the first steps (survival) or for each right action (breadcrumb)",
        when={"rule": ("survival", "breadcrumb")})  # fmt: skip
    initial_alignment: Control = control(
        0.3, low=-1.0, low_open=True, high=1.0, high_open=True, typical=(0.1, 0.9), symbol=r"\rho(0)",
        meaning="initial cosine of student and teacher")  # fmt: skip
    initial_norm: Control = control(
        1.0, low=0.0, low_open=True, high=1e6, typical=(0.3, 3.0), scale="log", symbol="Q(0)",
        meaning="initial squared norm of the student, |w|²/D")  # fmt: skip
    fastest: Control = control(
        50.0, low=0.0, low_open=True, high=1e6, typical=(1.0, 100.0), scale="log", symbol=r"\tilde u_{\max}",
        meaning="largest pace in units of √Q, for the schedules best-rate and best-rate-and-length",
        when={"schedule": ("best-rate", "best-rate-and-length")})  # fmt: skip
    rule: str = choice("all", options=RULES, meaning="which episodes are rewarded, and how")
    schedule: str = choice("constant", options=SCHEDULES, meaning="schedule of the pace and of the episode length")
    steps: int = choice(8, high=200, symbol="T", meaning="actions per episode; the maximum if the length varies")
    needed: int = choice(6, low=0, high=200, symbol="n",
                         meaning="right actions that are enough (enough), or first steps to survive (survival)",
        when={"rule": ("enough", "survival")})  # fmt: skip
    times: Input = input(
        np.linspace(0.0, 20.0, 21), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="times of measurement, increasing from the start, in episodes per input dimension")  # fmt: skip
    given_pace: Input = input(
        lambda m: np.ones(len(m.times)), dims=("time",), low=0.0, symbol="u",
        meaning="pace at the times, linear in between, for the schedule given", when={"schedule": "given"})  # fmt: skip

    dimensions_declared = (dimension("time", "training time", symbol=r"t", kind="time"),)
    main_declared = ("test_error", "final_error", "alignment")
    observables_declared = (
        observable("test_error", "probability of a wrong action on a fresh input", symbol="1-P", dims=("time",), low=0,
                   high=1),
        observable("final_error", "test error at the last time", symbol="1-P", low=0, high=1),
        observable("alignment", "cosine of student and teacher", symbol=r"\rho", dims=("time",), low=-1, high=1),
        observable("overlap", "overlap of student and teacher", symbol="R", dims=("time",)),
        observable("norm", "squared norm of the student", symbol="Q", dims=("time",), low=0),
        observable("pace", "factor of the returns", symbol="u", dims=("time",), low=0, simulated=False),
        observable("length", "actions of an episode, on average", symbol="T", dims=("time",), low=1, simulated=False),
        observable("gap", "Frank–Wolfe gap of the lengths, zero where Pontryagin's principle holds", low=0,
                   simulated=False, when={"schedule": ("optimal-length",)}),
        observable("threshold", "share η₂/(η₁+η₂) of punishment above which there is a trap; 1 if there is none",
                   symbol=r"x_c", low=0, high=1, simulated=False, when=PUNISHING),
    )  # fmt: skip

    def validate(self) -> None:
        if self.rule in ("enough", "survival") and self.needed > self.steps:
            raise InvalidValue(f"needed = {self.needed} is more than the steps = {self.steps} of an episode.")
        if self.schedule in OF_LENGTHS and self.rule != "all":
            raise InvalidValue(
                f"schedule = {self.schedule!r} goes with rule = 'all', not {self.rule!r}: only that rule rewards episodes "
                "of any length in the same way."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    # --- theory: averages over an episode ---------------------------------------------------------------------------

    def averages(self, alignment: Array, length: Any = None) -> Averages:
        r"""f, g and h of the rule at an alignment, for episodes of `length` steps (default T).

        With k = 1/√(2π), <1_right aν> = k(1+ρ), <1_wrong aν> = -k(1-ρ), <1_right|λ|> = k√Q(1+ρ), <1_wrong|λ|> = k√Q(1-ρ),
        and independent actions within an episode. `enough`: A, B, C are the probabilities that the other T-1 actions have n-1
        or more, n or more, and that all T have n or more right ones,

            f = (η₁+η₂) k [(1+ρ)A - (1-ρ)B] - 2kη₂ρ,   g = (η₁+η₂) k [(1+ρ)A + (1-ρ)B] - 2kη₂,
            h = [(η₁²-η₂²)C + η₂²]/T,

        and `all` is n = T.

        >>> one_step = RLPerceptron(steps=1).averages(jnp.asarray(0.0))
        >>> round(float(one_step.along * math.sqrt(2 * math.pi)), 12), float(one_step.kick)
        (1.0, 0.5)
        """
        rho, steps = alignment, self.steps if length is None else length
        if self.rule == "all":
            return all_right(rho, steps, self.reward, self.punishment)
        if self.rule == "enough":
            return enough_right(rho, steps, self.needed, self.reward, self.punishment)
        if self.rule == "survival":
            return survival(rho, steps, self.needed, self.reward, self.bonus)
        return breadcrumb(rho, steps, self.reward, self.bonus)

    def policy(self, time: Array, alignment: Array, log_norm: Array) -> tuple[Array, Array]:
        """The pace ũ = u/√Q and the episode length of the schedule at this time and state."""
        full = jnp.asarray(float(self.steps))
        if self.schedule == "constant":
            return jnp.exp(-log_norm / 2), full
        if self.schedule == "given":
            return jnp.interp(time, self.times, self.given_pace) * jnp.exp(-log_norm / 2), full
        if self.schedule == "best-rate":
            return self._best_pace(alignment, self.averages(alignment))[0], full
        lengths = jnp.arange(1.0, self.steps + 1)
        paces, gains = jax.vmap(lambda n: self._best_pace(alignment, self.averages(alignment, n)))(lengths)
        chosen = jnp.argmax(gains)
        return paces[chosen], lengths[chosen]

    def _best_pace(self, rho: Array, averaged: Averages) -> tuple[Array, Array]:
        """The pace ũ in [0, fastest] that maximises dρ/dt = ũ (f - ρg) - ½ρh ũ², and the maximum."""
        pull, drag = averaged.along - rho * averaged.growth, rho * averaged.kick

        def gain(pace: Array) -> Array:
            return pace * pull - 0.5 * drag * pace**2

        inside = jnp.clip(pull / jnp.where(drag > 0, drag, 1.0), 0.0, self.fastest)
        # without drag the gain has no interior maximum: the pace is 0 or `fastest`
        ends = jnp.where(gain(self.fastest) > 0, self.fastest, 0.0)
        pace = jnp.where(drag > 0, inside, ends)
        return pace, gain(pace)

    def _drift(self, time: Array, place: tuple[Array, Array]) -> tuple[Array, Array]:
        """Time derivative of ρ and ln Q."""
        rho, log_norm = place
        pace, length = self.policy(time, rho, log_norm)
        return self._moved(rho, pace, self.averages(rho, length if self.schedule == "best-rate-and-length" else None))

    @staticmethod
    def _moved(rho: Array, pace: Array, averaged: Averages) -> tuple[Array, Array]:
        pull = averaged.along - rho * averaged.growth
        return pace * pull - 0.5 * rho * averaged.kick * pace**2, 2 * pace * averaged.growth + averaged.kick * pace**2

    @property
    def _start(self) -> tuple[Array, Array]:
        return self.initial_alignment, jnp.log(self.initial_norm)

    @property
    def stated_accuracy(self) -> float:
        """Lower for an optimised schedule, because rounding affects the search."""
        return type(self).accuracy if self.schedule != "optimal-length" else 1e-6

    @property
    def accurate_observables(self) -> tuple[str, ...]:
        """The final error and its gap alone for an optimised schedule: where the error is flat, lengths move freely."""
        return ("final_error", "gap") if self.schedule == "optimal-length" else super().accurate_observables

    def mixed_drift(self, place: tuple[Array, Array], u: dict[str, Array]) -> tuple[Array, Array]:
        """The drift when a fraction `u["length"]` of the episodes has each length, for a time `u["duration"]`."""
        rho, log_norm = place
        pace = jnp.exp(-log_norm / 2)
        each = jax.vmap(lambda n: self._moved(rho, pace, self.averages(rho, n)))(Lengths(self.steps).values)
        return Simplex.mix(jax.tree.map(lambda x: u["duration"] * x, each), u["length"])

    def _lengths(self, numerics: Numerics) -> Protocol:
        """The distribution of lengths in each interval between times that minimises the final error."""
        kind, intervals = Lengths(self.steps), len(self.times) - 1
        ramp = 1 + np.arange(intervals) * (self.steps - 1) // max(intervals - 1, 1)
        starts = [jnp.full((intervals, self.steps), 1 / self.steps), kind.only(self.steps, intervals)]
        starts.append(jnp.asarray(np.eye(self.steps)[ramp - 1]))
        return search(
            self.mixed_drift,
            lambda place: wrong_actions(place[0]),
            self._start,
            [{"length": length, "duration": jnp.diff(self.times)} for length in starts],
            {"length": kind},
            float(intervals),
            accuracy=numerics.accuracy,
            max_steps=numerics.max_steps,
            iterations=numerics.iterations,
            tolerance=numerics.tolerance,
        )

    def point(self, numerics: Numerics) -> dict[str, Array]:
        if self.schedule == "optimal-length":
            return self._optimal(numerics)
        settings = {name: numerics[name] for name in ("rtol", "atol", "max_steps")}
        flow = integrate(lambda t, place, model: model._drift(t, place), self._start, self.times, self, **settings)
        rho, log_norm = flow.values
        pace, length = jax.vmap(self.policy)(self.times, rho, log_norm)
        observed = self._observed(rho, jnp.exp(log_norm))
        averaged = {**observed, "pace": pace * jnp.exp(log_norm / 2), "length": length, "converged": flow.reached}
        return {**averaged, "threshold": self.threshold()} if self.rule in PUNISHING["rule"] else averaged

    def _optimal(self, numerics: Numerics) -> dict[str, Array]:
        found = jax.lax.stop_gradient(self)._lengths(numerics)  # no derivative passes through a search
        kind, controls = Lengths(self.steps), found.controls
        averaged = evaluate(
            self.mixed_drift,
            lambda place: wrong_actions(place[0]),
            self._start,
            {**controls, "duration": jnp.diff(self.times)},
            {"length": kind},
            float(len(self.times) - 1),
            accuracy=numerics.accuracy,
            max_steps=numerics.max_steps,
        )
        rho, log_norm = averaged.path
        lengths = kind.mean(controls["length"])
        return {
            **self._observed(rho, jnp.exp(log_norm)),
            "pace": jnp.ones_like(rho),
            "length": jnp.concatenate([lengths, lengths[-1:]]),
            "gap": averaged.gap,
            "threshold": self.threshold(),
            "converged": found.converged & jnp.isfinite(averaged.cost),
        }

    def _observed(self, rho: Array, norm: Array) -> dict[str, Array]:
        wrong = wrong_actions(rho)
        return {
            "test_error": wrong,
            "final_error": wrong[-1],
            "alignment": rho,
            "overlap": rho * jnp.sqrt(norm),
            "norm": norm,
        }

    # --- theory: fixed points of a constant pace --------------------------------------------------------------------

    def threshold(self) -> Array:
        """The smallest share x = η₂/(η₁+η₂) at which f = (η₁+η₂)[b - 2kxρ] has a root: the minimum of b/(2kρ).

        >>> round(float(RLPerceptron(steps=8).threshold()), 6)
        0.054501
        """
        if self.rule not in PUNISHING["rule"]:
            raise InvalidValue(f"rule = {self.rule!r} does not punish, so it has no threshold of punishment.")
        unpunished = self.with_values({"reward": jnp.asarray(1.0), "punishment": jnp.asarray(0.0)})
        return lowest_share(lambda rho: unpunished.averages(rho).along, 2 * K)

    def transition(self, along: str) -> Array:
        """Positive where punishment makes a trap: its share above the threshold."""
        if self.rule not in PUNISHING["rule"]:
            return super().transition(along)
        return self.punishment / (self.reward + self.punishment) - self.theory().threshold

    def fixed_points(self) -> list[FixedPoint]:
        """All fixed points of (ρ, Q) at pace 1 in order of ρ: roots of f with g < 0, at √Q = -h/(2g)."""
        if self.shape != ():
            raise InvalidValue(f"fixed points need scalar controls, but the controls have shape {self.shape}.")
        return fixed_points(self.averages, self.velocity)

    def separatrix(self, norms: Any) -> np.ndarray:
        """The alignment that separates success from failure at each initial norm Q; NaN if there is none.

        It is the stable manifold of the saddle, followed backwards in time.

        >>> [round(float(rho), 3) for rho in RLPerceptron(steps=13, punishment=0.05).separatrix([0.1, 1.0])]
        [0.602, 0.504]
        """
        norms = np.asarray(norms, float)
        if not np.all((norms > 0) & np.isfinite(norms)):
            raise InvalidValue(f"norms = {norms.tolist()} has an entry outside (0, ∞), the range of squared norms.")
        saddles = [p for p in self.fixed_points() if not p.stable]
        if not saddles:
            return np.full(norms.shape, np.nan)
        return stable_manifold(saddles[0], self.velocity, norms)

    def velocity(self, alignment: Array, log_norm: Array) -> tuple[Array, Array]:
        """Time derivative of ρ and ln Q at pace 1: the phase portrait."""
        return self._constant()._drift(jnp.asarray(0.0), (alignment, log_norm))

    def _constant(self) -> RLPerceptron:
        return self if self.schedule == "constant" else self.replace(schedule="constant")

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        weight_key, sample_key = jax.random.split(key)
        length_key = jax.random.fold_in(key, 1)
        overlap = self.initial_alignment * jnp.sqrt(self.initial_norm)
        gram = pair_gram(self.initial_norm, overlap, 1.0)
        student, teacher = weights_with_gram(weight_key, gram, size).astype(dtype)
        reward, punishment, bonus = (x.astype(dtype) for x in (self.reward, self.punishment, self.bonus))
        number_of = jnp.arange(self.steps, dtype=dtype)

        def measured(w: Array) -> tuple[Array, Array]:
            norm = jnp.sum(w**2).astype(float) / size
            return jnp.sum(w * teacher).astype(float) / size / jnp.sqrt(norm), norm

        def returns(right: Array, there: Array) -> Array:
            """The returns G_t of an episode, given its right actions; zero for steps beyond its length."""
            everything = jnp.all((right > 0) | (there == 0)).astype(dtype)
            if self.rule == "breadcrumb":
                return bonus * jnp.cumsum(right[::-1])[::-1] + reward * everything
            if self.rule == "survival":
                first = number_of < self.needed
                return reward * everything + bonus * jnp.all((right > 0) | ~first).astype(dtype) * first.astype(dtype)
            good = everything if self.rule == "all" else (jnp.sum(right) >= self.needed).astype(dtype)
            return there * (reward * good - punishment * (1 - good))

        def episode(number: Array, w: Array, chances: Array) -> Array:
            x = jax.random.normal(jax.random.fold_in(sample_key, number), (self.steps, size), dtype)
            if self.schedule == "constant":
                pace, length = jnp.ones((), dtype), jnp.asarray(float(self.steps), dtype)
            elif self.schedule == "optimal-length":
                drawn = jax.random.uniform(jax.random.fold_in(length_key, number), (), float)
                pace, length = jnp.ones((), dtype), (1 + jnp.sum(drawn > chances[:-1])).astype(dtype)
            else:
                rho, norm = measured(w)
                time = self.times[0] + number.astype(float) / size
                scaled, length = self.policy(time, rho, jnp.log(norm))
                pace, length = (scaled * jnp.sqrt(norm)).astype(dtype), length.astype(dtype)
            there = (number_of < length).astype(dtype)
            action = jnp.sign(x @ w)
            right = there * (action == jnp.sign(x @ teacher)).astype(dtype)
            return w + pace / (length * math.sqrt(size)) * ((returns(right, there) * action) @ x)

        chances, found = jnp.zeros((len(self.times), 1)), jnp.asarray(True)
        if self.schedule == "optimal-length":
            protocol = self._lengths(type(self).numerics)
            # the first row is the start, before any episode
            rows, found = protocol.controls["length"], protocol.converged
            chances = jnp.cumsum(jnp.concatenate([rows[:1], rows]), axis=1)
        rho, norm = descend(episode, student, steps_at(self.times, size), measured, chances).path
        observed = self._observed(rho, norm)
        return {**observed, "converged": found & until_failure(jnp.isfinite(observed["norm"]))}
