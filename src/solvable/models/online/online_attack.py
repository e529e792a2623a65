r"""An attacker poisons the labels of an online learner, and pays for it: how far the learner is dragged at which cost.

**Data.** Inputs x ~ N(0, 1_D), fresh at every step. Clean labels y* = w*·x/√D with |w*|² = D. The attacker wants the learner to
become w^t, with |w^t|² = D and w*·w^t/D = τ (`similarity`, -1 by default: the opposite of the truth). With one number a per
batch it replaces labels by y = (1-a) y* + a y^t, s = w* - w^t being the difference and Δ² = |s|²/D = 2 - 2τ.

**Learner.** Linear, w ← w - (η/√D) (1/P) Σ_p (w·x_p/√D - y_p) x_p on batches of P samples, time t = steps/D.

**Attacker.** Pays ½C̃a² + ½|w - w^t|²/D per unit of time, C̃ = CΔ². Its strategies:

- `none`: a = 0;
- `constant`: the best constant, a = 1/(1+C) (at preference p: p/(p+C));
- `greedy`: sees the batch and minimises the cost of now and of the next weights, the latter times p·D/η;
- `optimal`: the policy of least mean cost in the long run.

**Theory** (after Margiotta, Goldt and Sanguinetti 2023; the equations at finite learning rate are derived here). For D → ∞ the
learner is known by κ = (w-w^t)·s/|s|² (`position`: 1 clean, 0 target) and q = |w-w^t|²/D (`distance`). In a batch let
S = Σs_p²/P and X = Σs_pδ_p/P, where s_p and δ_p are the fields of s and w - w^t; S is Δ²χ²_P/P, X = κS + √((q-κ²Δ²)S/P) z.
With ϵ = η/P, both greedy (c = 0) and optimal attacks have the form

    a = [p ((1-ϵ)X + ϵS) + cS]/(C̃ + pϵS),

    dκ/dt = -η [κ - 1 + <aS>/Δ²],
    dq/dt = -2η [q - κΔ² + <aX>] + ηϵ [q - 2κΔ² + Δ² + 2<a(X-S)> + <a²S>].

For fixed p and c these are linear with constant coefficients: their solution is closed up to averages over χ². The optimal p, c
follow from the costates μ of κ and q: p = 2ημ_q, c = ημ_κ/Δ². As η → 0, κ → C/(C + p(1+2/P)): the learner turns to the
target's side, for τ = -1, at C = 1 + 2/P for greedy and at C = 1 for constant attacks.

**Simulation.** The learner itself, from w = w*; the greedy attacker minimises its cost over the true next weights. Mean action
and cost are measured on fresh batches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ...errors import InvalidValue
from ...methods.committee import weights_with_gram
from ...methods.saddle import solve
from ...model import Control, Input, Model, Numerics, Reference, choice, control, input, observable

STRATEGIES = ("none", "constant", "greedy", "optimal")
PROBES = 1024  # fresh samples on which a simulated attacker's actions are averaged


class Policy(NamedTuple):
    """p and c of the attack a = [p ((1-ϵ)X + ϵS) + cS]/(C̃ + pϵS)."""

    preference: Array
    push: Array


class Actions(NamedTuple):
    """Averages over batches: <a>, <a²>, <aS>, <aX>, <a²S>."""

    mean: Array
    square: Array
    with_difference: Array
    with_error: Array
    square_with_difference: Array


class OnlineAttack(Model):
    """Labels of an online linear learner are poisoned by constant, greedy or optimal attacks that have a cost.

    >>> import solvable as sv
    >>> slow = sv.OnlineAttack(rate=1e-4, cost=[1.0, 3.0], times=[0.0, 1e6]).theory()
    >>> [round(float(x), 4) for x in slow.steady_position]  # C/(C + 1 + 2/P)
    [0.25, 0.5]
    """

    id = "online-attack"
    title = "Label attacks on an online learner"
    family = "online"
    numerics = Numerics(nodes=128, tolerance=1e-12)
    accuracy = 1e-9
    batch_accuracy = 1e-10
    typical_sizes = (50, 100, 200)
    check_study = (
        {"over": {"strategy": list(STRATEGIES), "cost": [0.5, 3.0]}, "seeds": 16},
        {"values": {"batch": 3, "rate": 0.6, "cost": 1.0}, "over": {"strategy": ["greedy", "optimal"]}, "seeds": 16},
    )
    references = (
        Reference(
            "margiotta2023attacks", "R. G. Margiotta, S. Goldt and G. Sanguinetti", "Attacks on online learners: a "
            "teacher-student analysis", 2023, "NeurIPS 36", arxiv="2305.11132"),
    )  # fmt: skip

    cost: Control = control(
        1.0, low=0.0, low_open=True, high=1e6, typical=(0.01, 100.0), scale="log", symbol="C",
        meaning="price of an attack: ½Ca² times the mean squared difference of clean and target labels")  # fmt: skip
    rate: Control = control(
        0.25, low=0.0, low_open=True, high=1000.0, typical=(0.02, 1.0), symbol=r"\eta", meaning="learning rate")  # fmt: skip
    preference: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.3, 3.0), scale="log", symbol="p",
        meaning="weight that greedy and constant attackers give to the learner's future, in units of D/η")  # fmt: skip
    similarity: Control = control(
        -1.0, low=-1.0, high=1.0, high_open=True, typical=(-1.0, 0.5), symbol=r"\tau",
        meaning="overlap of the attacker's target with the clean teacher")  # fmt: skip
    strategy: str = choice("greedy", options=STRATEGIES, meaning="how the attacker chooses its actions")
    batch: int = choice(1, high=100_000, symbol="P", meaning="samples of a batch, attacked by one action")
    times: Input = input(
        np.linspace(0.0, 40.0, 11), dims=("time",), low=0.0, symbol="t",
        meaning="times of measurement, increasing from the start at the clean teacher, in steps per input dimension")  # fmt: skip

    observables_declared = (
        observable("test_error", "probability that the learner's sign is not that of the clean label",
                   symbol=r"\varepsilon_g", dims=("time",), low=0, high=1),
        observable("position", "where the learner stands between target (0) and clean teacher (1)", symbol=r"\kappa",
                   dims=("time",)),
        observable("distance", "squared distance of learner and target, |w-w^t|²/D", symbol="q", dims=("time",), low=0),
        observable("action", "mean action of the attacker", symbol=r"\langle a\rangle", dims=("time",)),
        observable("running_cost", "mean cost per unit of time, ½C̃<a²> + ½q", symbol="g", dims=("time",), low=0),
        observable("steady_position", "position in the long run", symbol=r"\kappa_\infty", simulated=False),
        observable("steady_error", "test error in the long run", low=0, high=1, simulated=False),
        observable("steady_cost", "running cost in the long run", symbol=r"g_\infty", low=0, simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        if not isinstance(self.times, Tracer):
            times = np.asarray(self.times)
            if len(times) < 2 or np.any(np.diff(times) <= 0):
                raise InvalidValue("times must be at least two increasing numbers: the first is the start.")

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    def transition(self, along: str) -> Array:
        """The steady learner's overlap with the clean teacher: it turns to the target's side where this changes sign."""
        return self.similarity + (1 - self.similarity) * self.theory().steady_position

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def _difference(self) -> Array:
        """Δ², the mean squared difference of clean and target labels."""
        return 2 - 2 * self.similarity

    def _actions(self, policy: Policy, kappa: Array, q: Array, nodes: int) -> Actions:
        """Averages of the attacker's action over batches, given where the learner stands.

        a = A + Bz with A = S (p(1-ϵ)κ + pϵ + c)/(C̃ + pϵS) and B = p(1-ϵ)√((q-κ²Δ²)S/P)/(C̃ + pϵS).
        """
        delta = self._difference
        if self.strategy in ("none", "constant"):
            a = (
                jnp.zeros_like(self.cost)
                if self.strategy == "none"
                else self.preference / (self.preference + self.cost)
            )
            return Actions(a, a**2, a * delta, a * kappa * delta, a**2 * delta)
        ratios, weights = _chi_squared(self.batch, nodes)
        s, ratio = delta * ratios, self.rate / self.batch
        price = self.cost * delta + policy.preference * ratio * s
        level = policy.preference * (1 - ratio) * kappa + policy.preference * ratio + policy.push
        spread = (policy.preference * (1 - ratio)) ** 2 * (q - kappa**2 * delta) / self.batch

        def mean(values: Array) -> Array:
            return jnp.sum(weights * values)

        along = level * mean(s**2 / price)
        return Actions(
            mean=level * mean(s / price),
            square=level**2 * mean((s / price) ** 2) + spread * mean(s / price**2),
            with_difference=along,
            with_error=kappa * along
            + policy.preference * (1 - ratio) * (q - kappa**2 * delta) / self.batch * mean(s / price),
            square_with_difference=level**2 * mean(s**3 / price**2) + spread * mean((s / price) ** 2),
        )

    def _drift(self, policy: Policy, kappa: Array, q: Array, nodes: int) -> tuple[Array, Array]:
        """Time derivative of κ and q."""
        a, delta, eta = self._actions(policy, kappa, q, nodes), self._difference, self.rate
        error = q - 2 * kappa * delta + delta + 2 * (a.with_error - a.with_difference) + a.square_with_difference
        return (
            -eta * (kappa - 1 + a.with_difference / delta),
            -2 * eta * (q - kappa * delta + a.with_error) + eta**2 / self.batch * error,
        )

    def _price(self, policy: Policy, kappa: Array, q: Array, nodes: int) -> Array:
        """½C̃<a²> + ½q."""
        return 0.5 * (self.cost * self._difference * self._actions(policy, kappa, q, nodes).square + q)

    def _linear(self, policy: Policy, nodes: int) -> tuple[Array, Array, Array, Array]:
        """α, κ∞ of dκ/dt = -α(κ - κ∞), and B, (F₀, F₁, F₂) of dq/dt = -Bq + F₀ + F₁κ + F₂κ², read off the drift."""
        zero, one = jnp.asarray(0.0), jnp.asarray(1.0)

        def at(kappa: Array, q: Array) -> tuple[Array, Array]:
            return self._drift(policy, kappa, q, nodes)

        (k0, f0), (k1, up), (_, down), (_, tilted) = at(zero, zero), at(one, zero), at(-one, zero), at(zero, one)
        forcing = jnp.stack([f0, 0.5 * (up - down), 0.5 * (up + down) - f0])
        return k0 - k1, k0 / (k0 - k1), f0 - tilted, forcing

    def _steady(self, policy: Policy, nodes: int) -> tuple[Array, Array]:
        _, kappa, decay, (f0, f1, f2) = self._linear(policy, nodes)
        return kappa, (f0 + f1 * kappa + f2 * kappa**2) / decay

    def _policy(self, numerics: Numerics) -> tuple[Policy, Array, Array]:
        """The attacker's p and c, whether they are what its name says, and how well."""
        mine = Policy(self.preference, jnp.zeros_like(self.preference))
        if self.strategy != "optimal":
            return mine, jnp.asarray(True), jnp.asarray(0.0)

        def improved(x: Array, model: OnlineAttack) -> Array:
            """p and c that the costates of the present policy ask for: μ·∂(drift) + ∂(cost) = 0 in the steady state."""
            policy = Policy(x[0], x[1])
            place = jnp.stack(model._steady(policy, numerics.nodes))
            slopes = jax.jacfwd(lambda y: jnp.stack(model._drift(policy, y[0], y[1], numerics.nodes)))(place)
            gradient = jax.grad(lambda y: model._price(policy, y[0], y[1], numerics.nodes))(place)
            mu = _solve_two(slopes.T, -gradient)
            return jnp.stack([2 * model.rate * mu[1], model.rate * mu[0] / model._difference])

        found = solve(improved, jnp.asarray([1.0, 0.0]), self, tolerance=numerics.tolerance, warmup=3)
        return Policy(found.x[0], found.x[1]), found.converged, found.residual

    def point(self, numerics: Numerics) -> dict[str, Array]:
        policy, found, residual = self._policy(numerics)
        alpha, kappa_end, decay, forcing = self._linear(policy, numerics.nodes)
        time = self.times - self.times[0]
        # κ = κ∞ + k e^{-αt} drives q with the powers 0, 1, 2 of that exponential
        k = 1 - kappa_end
        f0, f1, f2 = forcing
        q_end = (f0 + f1 * kappa_end + f2 * kappa_end**2) / decay
        first, second = (f1 + 2 * f2 * kappa_end) * k, f2 * k**2
        kappa = kappa_end + k * jnp.exp(-alpha * time)
        q = q_end + (self._difference - q_end) * jnp.exp(-decay * time)
        q = q + first * _driven(alpha, decay, time) + second * _driven(2 * alpha, decay, time)
        steady = (kappa_end, q_end)
        actions = jax.vmap(lambda x, y: self._actions(policy, x, y, numerics.nodes))(kappa, q)
        return {
            "test_error": self._error(kappa, q),
            "position": kappa,
            "distance": q,
            "action": jnp.broadcast_to(actions.mean, q.shape),
            "running_cost": 0.5 * (self.cost * self._difference * actions.square + q),
            "steady_position": kappa_end,
            "steady_error": self._error(*steady),
            "steady_cost": self._price(policy, *steady, numerics.nodes),
            # too large a learning rate: the learner's distance grows without end
            "converged": found & (decay > 0) & (alpha > 0),
            "residual": residual,
        }

    def _error(self, kappa: Array, q: Array) -> Array:
        """arccos(w·w*/(|w||w*|))/π with w·w*/D = τ + (1-τ)κ and |w|²/D = 1 - κΔ² + q."""
        along = self.similarity + (1 - self.similarity) * kappa
        across = 1 - kappa * self._difference + q - along**2
        # a learner on the line through the teachers has no part across: what rounding leaves of it is none
        return jnp.arctan2(jnp.sqrt(jnp.maximum(across, 1e-24)), along) / math.pi

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        weight_key, sample_key, probe_key = jax.random.split(key, 3)
        one = jnp.ones_like(self.similarity)
        gram = jnp.stack([jnp.stack([one, self.similarity]), jnp.stack([self.similarity, one])])
        clean, target = weights_with_gram(weight_key, gram, size).astype(dtype)
        policy, found, _ = self._policy(type(self).numerics)
        p, c = (x.astype(dtype) for x in policy)
        rate, price = (x.astype(dtype) for x in (self.rate, self.cost * self._difference))
        constant = (self.preference / (self.preference + self.cost)).astype(dtype)
        apart = clean - target

        def attack(w: Array, x: Array) -> Array:
            """The action on a batch x."""
            if self.strategy == "none":
                return jnp.zeros((), dtype)
            if self.strategy == "constant":
                return constant
            s, error = x @ apart / math.sqrt(size), x @ (w - target) / math.sqrt(size)
            if self.strategy == "optimal":
                mean_s, mean_x, ratio = jnp.mean(s**2), jnp.mean(s * error), rate / self.batch
                return (p * ((1 - ratio) * mean_x + ratio * mean_s) + c * mean_s) / (price + p * ratio * mean_s)
            # greedy: the next weights are unattacked - a·turned, and ½C̃a² + (pD/η)½|next - target|²/D is least
            unattacked = w - target - rate / (self.batch * math.sqrt(size)) * ((error - s) @ x)
            turned = rate / (self.batch * math.sqrt(size)) * (s @ x)
            return p / rate * (unattacked @ turned) / (price + p / rate * (turned @ turned))

        def step(number: Array, w: Array) -> Array:
            x = jax.random.normal(jax.random.fold_in(sample_key, number), (self.batch, size), dtype)
            label = x @ (clean - attack(w, x) * apart) / math.sqrt(size)
            return w - rate / (self.batch * math.sqrt(size)) * ((x @ w / math.sqrt(size) - label) @ x)

        batches = max(1, PROBES // self.batch)
        probes = jax.random.normal(probe_key, (batches, self.batch, size), dtype)

        def until(carry: Any, end: Array) -> Any:
            begin, w = carry
            w = jax.lax.fori_loop(begin, end, step, w)
            away = w - target
            actions = jax.vmap(lambda x: attack(w, x))(probes)
            seen = (away @ apart / (apart @ apart), away @ away / size, jnp.mean(actions), jnp.mean(actions**2))
            cosine = w @ clean / jnp.sqrt((w @ w) * (clean @ clean))
            return (end, w), tuple(value.astype(float) for value in (*seen, cosine))

        ends = jnp.rint((self.times - self.times[0]) * size).astype(jnp.int32)
        _, (kappa, q, mean, square, cosine) = jax.lax.scan(until, (jnp.zeros_like(ends[0]), clean), ends)
        return {
            "test_error": jnp.arccos(jnp.clip(cosine, -1.0, 1.0)) / math.pi,
            "position": kappa,
            "distance": q,
            "action": mean,
            "running_cost": 0.5 * (self.cost * self._difference * square + q),
            "converged": found & jnp.all(jnp.isfinite(q)),
        }


def _chi_squared(freedom: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of averages over χ²_P/P, for functions that vanish at least linearly at 0.

    Equal steps in the logarithm: exponentially accurate for all functions that are analytic off the negative axis, such as
    S²/(C̃ + ϵS), however near to zero their pole lies.
    """
    half = freedom / 2
    # the exponent (P/2 + 1) u - (P/2) e^u of density × S du, at S = e^u, is followed until it has fallen by 44
    top = math.log((half + 1) / half)

    def fallen(u: float) -> float:
        return (half + 1) * (u - top) - half * (math.exp(u) - math.exp(top)) + 44

    ends = []
    for side in (-1, 1):
        near, far = 0.0, 1.0
        while fallen(top + side * far) > 0:
            far *= 2
        for _ in range(60):
            middle = 0.5 * (near + far)
            near, far = (middle, far) if fallen(top + side * middle) > 0 else (near, middle)
        ends.append(top + side * far)
    u = np.linspace(ends[0], ends[1], nodes)
    log_weight = half * np.log(half) - math.lgamma(half) + half * u - half * np.exp(u)
    return np.exp(u), np.exp(log_weight) * (u[1] - u[0])


def _driven(rate: Array, decay: Array, time: Array) -> Array:
    """∫₀^t e^{-decay (t-t')} e^{-rate t'} dt' = [e^{-rate t} - e^{-decay t}]/(decay - rate), also at resonance."""
    apart = jnp.abs(decay - rate)
    x = apart * time
    small = x < 1e-5
    # (1 - e^{-x})/x; its series where x is small, so that neither value nor derivative divides by zero
    safe = jnp.where(small, 1.0, x)
    shape = jnp.where(small, 1 - 0.5 * x * (1 - x / 3), -jnp.expm1(-safe) / safe)
    return time * jnp.exp(-jnp.minimum(rate, decay) * time) * shape


def _solve_two(matrix: Array, right: Array) -> Array:
    """A linear system of two unknowns."""
    (a, b), (c, d) = matrix
    return jnp.stack([d * right[0] - b * right[1], a * right[1] - c * right[0]]) / (a * d - b * c)
