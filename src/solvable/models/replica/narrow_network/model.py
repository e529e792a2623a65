r"""Specialisation of a narrow two-layer network (1 ≪ K ≪ d units) trained on a teacher of the same architecture.

**Data.** Inputs x ~ N(0, 1_d), labels y = f(x) + √Δ ξ of a teacher f(x) = K^{-1/2} Σ_k a_k σ(w*_k·x/√d) with known signs
a_k = ±1, half of each, and |w*_k|² = d. There are n = αKd samples for the Kd weights.

**Learner.** The same network with weights w. *bayes*: the mean of the posterior, whose prior is w*_k ~ N(0, 1_d).
*gibbs*: one draw of exp(−[½Σ(y−ŷ)² + ½λ|w|²]/T). *erm*: a minimum of ½Σ(y−ŷ)² + ½λ|w|².

**Theory** (d → ∞, then K → ∞; corrections 1/K and K/d). Outputs are Gaussian and their covariances are those of single
units, without the constant and linear parts of σ: these depend on d ≪ n parameters and are learnt perfectly. Unknowns are
Q = |w_k|²/d, t = w_k·w*_k/d and q, the overlap of two draws: see `committee` for φ and its saddle points.
A Bayes-optimal student (Q = 1, t = q) has

    q = q̂/(1+q̂),   q̂ = α g'(q)/(Δ + g(1) − g(q)),

of which q = 0, a linear fit, is always a solution. It gives way at α_c = (Δ + g(1))/(2c₂²) unless the activation is odd
(c₂ = 0): then specialised solutions appear at a spinodal, win at a transition of first order, and are never found from a
random start. `start` selects the solution: the one reached from the teacher, or from random weights.

**Stability.** Replica symmetry is an assumption except for *bayes*. `stability` is positive where the replica-symmetric
solution is stable. For *erm* with a kink in σ (ReLU, |x|) it never is: there are many minima, the theory is approximate,
and the minimum that is reached depends on the start. At α = 4, λ = Δ = 0.05 a ReLU network is unstable below T = 0.0022.
Chains cooled slowly (d = 144) follow the theory above that; the minima below them, found out of equilibrium, have excess
loss 0.0102(4), predicted 0.0107; minimisation from the teacher is trapped in higher minima with 0.0084(3). For smooth σ,
where stability is positive, minimisation from the teacher agrees. An *erm* solution that is lost at a fold (erf, strong noise)
is reported as not converged.

**Simulation.** Data are drawn and weights trained: *erm* by L-BFGS, *bayes* and *gibbs* by four chains of Hamiltonian Monte
Carlo. Informed chains start at the teacher and at overlap 0.7 with it, above and below the solution; the others start at
random weights. Units are matched to the teacher's. The number of units grows as √d/2, so that 1/K and K/d both fall as 1/√d.
Chains are extended, doubling their length, until in the second half of the run every observable has R̂ ≤ 1.05 and 50 effective
draws (`methods.averages.chains`). If that takes more than 2048 trajectories, the result is NaN and not converged, with residual
R̂ − 1. This happens near a transition, and at temperatures far below the onset of replica-symmetry breaking. Where two solutions
coexist, `start` selects the one that is sampled, without averaging over both. The barrier between them grows with the width,
and chains of four units cross it (erf, α = 4, Δ = 0.01, d = 64: specialised from random weights).
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Key

from solvable.contract.declarations import Observable
from solvable.errors import InvalidValue
from solvable.methods.averages.chains import run_chains_together
from solvable.model import Control, FirstView, Guard, Model, Numerics, Reference, choice, control, observable

from .committee import ACTIVATIONS, KINKED, ODD, Kernel, bayes_transitions, kernel_named
from .networks import Chains, Committee, PenalisedLoss, Task, descend, draw_task, matched, measure
from .solutions import bayes_branches, saddle_points

BAYES = {"learner": "bayes"}
DRAWN = {"learner": ("bayes", "gibbs")}
SMALLEST = 1e-3  # noise below which a Bayes-optimal student of a kinked teacher can have further solutions
FRESH = 8192  # inputs on which a trained network is tested
CHAINS, DRAWS = 4, 128  # chains, and draws kept of each
NEAR = 0.7  # overlap with the teacher of the lower half of informed starts
ITERATIONS, REST = 500, 2e-4  # iterations of a minimisation, and the gradient per weight at which it stops
LEGS, GAIN = (
    8,
    1e-4,
)  # successive minimisations, and the relative gain of the last one allowed where gradients do not vanish


class NarrowNetwork(Model):
    """A committee with 1 ≪ K ≪ d units learns another: specialisation of its units, and losses before and after it.

    >>> import solvable as sv
    >>> out = sv.NarrowNetwork(activation="erf", samples=[2.0, 4.0], noise=0.01).theory()
    >>> [round(float(t), 4) for t in out.overlap], round(float(out.transition[0]), 4)
    ([0.0, 0.9236], 2.3268)
    """

    id = "narrow-network"
    title = "Narrow two-layer network"
    family = "replica"
    sentence = (
        "A two-layer network with many units, but far fewer than inputs, learns another: specialisation of its units."
    )
    method = "replica saddle point; exact for Bayes, otherwise with its stability (kinked empirical risk: approximate)"
    revision = 3
    numerics = Numerics(tolerance=1e-11, max_steps=500, degrees=128, nodes=384)
    paired = ("longest",)
    runs = "host"
    together = 10
    typical_sizes = (64, 100, 144)
    theory_seconds = 5e-3
    simulation_seconds = 10.0
    simulation_growth = 3.2
    first_view = FirstView(sizes=(36, 64), span=(3.0, 10.0), points=1, seeds=6)  # each number of samples is compiled
    check_study = (
        {
            "values": {"learner": "erm", "activation": "erf", "samples": 6.0, "penalty": 0.002, "noise": 0.001},
            "seeds": 32,
            "sizes": (64, 100, 144),
        },
        {"values": {"activation": "relu", "samples": 4.0, "noise": 0.05}, "seeds": 12},
    )
    guard = Guard(size=36, seeds=3)
    references = (
        Reference(
            "perezortiz2025generalization", "R. Pérez Ortiz, G. Nwemadji, J. Barbier, F. Gerace, A. Ingrosso, C. Lauditi and "
            "E. M. Malatesta", "Generalization performance of narrow one-hidden layer networks in the teacher-student "
            "setting", 2025, arxiv="2507.00629"),
        Reference(
            "schwarze1993learning", "H. Schwarze", "Learning a rule in a multilayer neural network", 1993,
            "J. Phys. A 26, 5781", doi="10.1088/0305-4470/26/21/017"),
        Reference(
            "aubin2018committee", "B. Aubin, A. Maillard, J. Barbier, F. Krzakala, N. Macris and L. Zdeborová",
            "The committee machine: computational to statistical gaps in learning a two-layers neural network", 2018,
            "NeurIPS 31", arxiv="1806.05451"),
    )  # fmt: skip

    samples: Control = control(
        4.0, low=0.0, low_open=True, high=1e4, typical=(0.3, 10.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="training samples per weight, n/(Kd)")  # fmt: skip
    penalty: Control = control(
        0.02, low=1e-6, high=1e4, typical=(1e-3, 1.0), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 added to the sum of the losses (erm, gibbs)",
        when={"learner": ("erm", "gibbs")})  # fmt: skip
    noise: Control = control(
        0.05, low=0.0, high=100.0, typical=(0.001, 0.5), scale="log", symbol=r"\Delta",
        meaning="variance of the label noise; at least 0.001 for bayes")  # fmt: skip
    temperature: Control = control(
        0.05, low=1e-4, high=1e3, typical=(0.01, 1.0), scale="log", symbol="T",
        meaning="temperature of the measure from which the learner is drawn (gibbs)",
        when={"learner": "gibbs"})  # fmt: skip
    learner: str = choice(
        "bayes", options=("bayes", "gibbs", "erm"), meaning="posterior mean, Gibbs draw, or risk minimiser"
    )
    activation: str = choice("relu", options=ACTIVATIONS, symbol=r"\sigma", meaning="activation of teacher and student")
    start: str = choice("teacher", options=("teacher", "random"), meaning="weights from which the solution is reached")
    units: int = choice(
        0, low=0, high=512, symbol="K", meaning="hidden units of a simulation, an even number; 0 for √d/2")  # fmt: skip
    longest: int = choice(
        2048, low=512, high=1_048_576, meaning="trajectories of a chain after which it is given up (bayes, gibbs)",
        when=DRAWN)  # fmt: skip

    main_declared = ("overlap", "test_loss", "train_loss", "stability")
    observables_declared = (
        observable("overlap", "mean overlap of a unit with its teacher, w_k·w*_k/d", symbol="t", status="approximate", power=0.5),
        observable("norm", "mean squared norm of a unit, |w_k|²/d", symbol="Q", low=0, status="approximate", power=0.5),
        observable("replica_overlap", "mean overlap of the same unit in two draws", symbol="q", status="approximate",
                   power=0.5, when=DRAWN),
        observable("test_loss", "half the mean squared difference to a fresh noisy label", symbol=r"\mathcal{L}", low=0,
                   status="approximate", power=0.5),
        observable("excess_loss", "half the mean squared difference to the teacher, test_loss − Δ/2", low=0,
                   status="approximate", power=0.5),
        observable("train_loss", "half the mean squared difference to the training labels", symbol=r"\mathcal{L}_t", low=0,
                   status="approximate", power=0.5),
        observable("free_energy", "per weight: minus free entropy −φ (bayes), −Tφ (gibbs), penalised loss (erm)", symbol="f",
                   status="approximate", simulated=False),
        observable("stability", "(1−r)/(1+r), r the replicon's ratio: positive where replica symmetry is stable", low=-1,
                   high=1, simulated=False),
        observable("spinodal", "samples per weight from which a specialised solution exists", low=0, simulated=False,
                   when=BAYES),
        observable("transition", "samples per weight from which the specialised solution has the lower free energy", low=0,
                   symbol=r"\alpha_*", simulated=False, when=BAYES),
        observable("jump", "overlap of the specialised solution at the transition; zero where it is continuous", low=0,
                   high=1, simulated=False, when=BAYES),
        observable("threshold", "samples per weight from which the unspecialised solution is unstable", low=0,
                   symbol=r"\alpha_c", simulated=False,
                   when={**BAYES, "activation": tuple(a for a in ACTIVATIONS if a not in ODD)}),
    )  # fmt: skip

    def validate(self) -> None:
        small = not isinstance(self.noise, Tracer) and bool(np.any(np.asarray(self.noise) < SMALLEST))
        if self.learner == "bayes" and small:
            raise InvalidValue(
                f"noise = {float(np.min(self.noise)):g} with learner = 'bayes' is outside [{SMALLEST:g}, 100]: with less "
                "noise, solutions not covered here can exist."
            )
        if self.units % 2:
            raise InvalidValue(f"units = {self.units} is odd, but half of the signs are positive: use 0, 2, 4, … 512.")

    def observables(self) -> dict[str, Observable]:
        """Approximate only where the replica-symmetric solution is not known to be exact."""
        declared = super().observables()
        if self.learner != "bayes":
            return declared
        return {n: dataclasses.replace(o, status="asymptotic") for n, o in declared.items()}

    def transition(self, along: str) -> Array:
        """Positive where a Bayes-optimal student is specialised."""
        if self.learner != "bayes":
            return super().transition(along)
        return jnp.log(self.samples) - jnp.log(self.theory(only=["transition"]).transition)

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        """Spinodal, transition and threshold of the Bayes-optimal student, in the plane of noise and samples."""
        if self.learner != "bayes" or (x, y) != ("noise", "samples"):
            return {}
        kernel = self._kernel(type(self).numerics)
        found = jax.jit(jax.vmap(lambda noise: bayes_transitions(kernel, noise)))(jnp.asarray(values, float))
        if self.activation in ODD:
            return {"first order": found.transition, "spinodal": found.spinodal}
        return {"continuous": found.threshold}

    # --- theory -----------------------------------------------------------------------------------------------------

    def _kernel(self, numerics: Numerics) -> Kernel:
        return kernel_named(self.activation, numerics.degrees, numerics.nodes, unit=self.learner == "bayes")

    def _bayes(self, numerics: Numerics) -> dict[str, dict[str, Array]]:
        each = bayes_branches(self._kernel(numerics), self.samples, self.noise)
        without = ("threshold",) if self.activation in ODD else ()
        return {branch: {n: v for n, v in out.items() if n not in without} for branch, out in each.items()}

    def _saddle_points(self, numerics: Numerics) -> dict[str, Array]:
        temperature = self.temperature if self.learner == "gibbs" else None
        options = {"tolerance": numerics.tolerance, "max_steps": numerics.max_steps}
        return saddle_points(self._kernel(numerics), self.samples, self.penalty, self.noise, temperature, **options)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        if self.learner == "bayes":
            return self._bayes(numerics)[self.start]
        found = self._saddle_points(numerics)
        informed = jax.tree.map(lambda v: v[0], found)
        if self.start == "teacher":
            return {n: v for n, v in informed.items() if n != "push"}
        plain = jax.tree.map(lambda v: v[-1], found)
        # an unspecialised start stays unspecialised unless that solution is unstable; then it joins the informed one
        leaves = (plain["push"] > 1) | ((plain["stability"] < 0) & (self.learner == "gibbs"))
        chosen = {n: jnp.where(leaves, informed[n], plain[n]) for n in plain if n != "push"}
        return chosen | {"converged": plain["converged"] & chosen["converged"]}

    def point_branches(self, numerics: Numerics) -> dict[str, Array]:
        if self.learner == "bayes":
            each = self._bayes(numerics)
            found = {n: jnp.stack([each[b][n] for b in ("teacher", "unstable", "zero")]) for n in each["teacher"]}
        else:
            found = self._saddle_points(numerics)
            found.pop("push")
        t, there = found["overlap"], found["converged"]
        earlier = jnp.tril(jnp.ones((t.shape[0], t.shape[0]), bool), k=-1)
        again = earlier & there[None, :] & (jnp.abs(t[:, None] - t[None, :]) < 1e-7)
        there = there & ~jnp.any(again, axis=1)
        order = jnp.argsort(jnp.where(there, found["free_energy"], jnp.inf))
        values = {n: v[order] for n, v in (found | {"converged": there}).items()}
        return {n: jnp.where(values["converged"], v, jnp.nan) if n != "converged" else v for n, v in values.items()}

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        return self.experiments(key[None], size, counts, dtype)[0]

    def experiments(self, keys: Key[Array, " lanes"], size: int, counts: Any, dtype: Any) -> list[dict[str, Array]]:
        """Chains of several realisations are moved side by side; risks are minimised one after the other."""
        units = self.units or 2 * max(1, round(math.sqrt(size) / 4))
        if size < units:
            raise InvalidValue(f"size = {size} is smaller than the {units} units of the network.")
        network = Committee(self.activation)
        number = units * int(counts["samples"].actual)
        penalty, temperature = self.penalty, self.temperature
        if self.learner == "bayes":
            penalty, temperature = self.noise, self.noise
        if self.learner == "erm":
            temperature = jnp.ones(())
        tasks, losses = [], []
        for key in keys:
            task = draw_task(network, jax.random.fold_in(key, 0), size, units, number, FRESH, CHAINS, self.noise, dtype)
            tasks.append(task)
            losses.append(
                PenalisedLoss(network, task.inputs, task.labels, penalty.astype(dtype), temperature.astype(dtype))
            )
        if self.learner == "erm":
            found = [self._descend(*pair) for pair in zip(losses, tasks, strict=True)]
        else:
            found = self._sample(losses, tasks, jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, 1))
        return [out | {"test_loss": out["excess_loss"] + 0.5 * self.noise} for out in found]

    def _descend(self, loss: PenalisedLoss, task: Task) -> dict[str, Any]:
        start = task.teacher if self.start == "teacher" else task.random[0]
        fit = descend(loss, start, tolerance=REST, iterations=ITERATIONS)
        if self.activation in KINKED:
            # the gradient does not vanish at a minimum with a kink: stop when another minimisation gains nothing
            for _ in range(LEGS):
                before, fit = fit.value, descend(loss, fit.parameters, tolerance=REST, iterations=ITERATIONS)
                fit = fit._replace(converged=before - fit.value <= GAIN * before)
                if fit.converged:
                    break
        measured = self._measured(loss.network, task, fit.parameters[None, None], fit.parameters[None, None])
        out = {n: v[0, 0] for n, v in measured.items()}
        return out | {"converged": fit.converged, "residual": fit.residual}

    def _sample(
        self, losses: list[PenalisedLoss], tasks: list[Task], keys: Key[Array, " lanes"]
    ) -> list[dict[str, Any]]:
        """Means over four chains, in two pairs; informed chains start above and below, at overlaps 1 and 0.7."""
        chains, starts = _together(losses, tasks, self.start == "teacher")
        runs = run_chains_together(
            partial(_proceed, chains), _begin(chains, starts), keys,
            lambda lane, draws: self._measured(losses[lane].network, tasks[lane], draws[::2], draws[1::2]),
            draws=DRAWS, most=self.longest // (2 * DRAWS),  # the last piece is half of the run
        )  # fmt: skip
        return [
            {n: np.mean(v) for n, v in run.traces.items()} | {"converged": run.converged, "residual": run.residual}
            for run in runs
        ]

    def _measured(self, network: Committee, task: Task, one: Array, two: Array) -> dict[str, Array]:
        """The reported observables, for every draw of every pair."""
        shape, weights = one.shape[:2], one.shape[2:]
        drawn = [np.asarray(w).reshape(-1, *weights) for w in (one, two)]
        # Chains from the teacher also permute their units where these have not specialised.
        parity = "even" if self.activation == "abs" else "odd" if self.activation in ODD else "none"
        teacher = np.asarray(task.teacher)
        first = np.stack([matched(w, teacher, parity) for w in drawn[0]])
        second = np.stack([matched(w, to, parity) for w, to in zip(drawn[1], first, strict=True)])
        seen = measure(network, task, jnp.asarray(first), jnp.asarray(second))
        if (
            self.learner == "gibbs"
        ):  # losses of a single draw; the other learners use the mean of all draws or the minimum
            seen |= {n: seen[f"own_{n}"] for n in ("excess_loss", "train_loss")}
        wanted = [n for n, o in self.observables().items() if o.simulated and n in seen]
        return {n: jnp.asarray(np.asarray(seen[n], float).reshape(shape)) for n in wanted}


@eqx.filter_jit
def _together(losses: list[PenalisedLoss], tasks: list[Task], informed: bool) -> tuple[Chains, Array]:
    """The chains of all realisations, and where they start."""
    starts = jnp.stack([task.random for task in tasks])
    if informed:
        teachers = jnp.stack([task.teacher for task in tasks])[:, None]
        near = jnp.where(jnp.arange(CHAINS) < CHAINS // 2, 1.0, NEAR).astype(starts.dtype)[None, :, None, None]
        starts = near * teachers + jnp.sqrt(1 - near**2) * starts
    return Chains(jax.tree.map(lambda *parts: jnp.stack(parts), *losses)), starts


@eqx.filter_jit
def _begin(chains: Chains, starts: Array) -> Any:
    return eqx.filter_vmap(lambda chains, starts: chains.begin(starts))(chains, starts)


@eqx.filter_jit
def _proceed(chains: Chains, walkers: Any, keys: Key[Array, " lanes"], thin: Array) -> Any:
    return eqx.filter_vmap(lambda chains, walkers, key: chains.proceed(walkers, key, thin, draws=DRAWS))(
        chains, walkers, keys
    )
