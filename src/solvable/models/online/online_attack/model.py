r"""An attacker poisons the labels of an online learner at a cost: position of the learner against the price of an attack.

**Data.** Inputs x ~ N(0, 1_D), fresh at every step. Clean labels y* = w*·x/√D with |w*|² = D. The attacker wants the learner to
become w^t, with |w^t|² = D and w*·w^t/D = τ (`similarity`, -1 by default: the opposite of the truth). With one number a per
batch it replaces labels by y = (1-a) y* + a y^t, s = w* - w^t being the difference and Δ² = |s|²/D = 2 - 2τ.

**Learner.** Linear, w ← w - (η/√D) (1/P) Σ_p (w·x_p/√D - y_p) x_p on batches of P samples, time t = steps/D.

**Attacker.** Pays ½C̃a² + ½|w - w^t|²/D per unit of time, C̃ = CΔ². Its strategies:

- `none`: a = 0;
- `constant`: the best constant, a = 1/(1+C) (at preference p: p/(p+C));
- `greedy`: sees the batch and minimises the cost of the action plus p·D/η times that of the next weights;
- `optimal`: the policy with the lowest long-run mean cost.

**Theory** (after Margiotta, Goldt and Sanguinetti 2023; the equations at finite learning rate are derived here). For D → ∞ the
learner is described by κ = (w-w^t)·s/|s|² (`position`: 1 clean, 0 target) and q = |w-w^t|²/D (`distance`). In a batch let
S = Σs_p²/P and X = Σs_pδ_p/P, where s_p and δ_p are the fields of s and w - w^t; S is Δ²χ²_P/P, X = κS + √((q-κ²Δ²)S/P) z.
With ϵ = η/P, both greedy (c = 0) and optimal attacks have the form

    a = [p ((1-ϵ)X + ϵS) + cS]/(C̃ + pϵS),

    dκ/dt = -η [κ - 1 + <aS>/Δ²],
    dq/dt = -2η [q - κΔ² + <aX>] + ηϵ [q - 2κΔ² + Δ² + 2<a(X-S)> + <a²S>].

The code computes κ and the noise ν = q - κ²Δ² across the line through both teachers, which avoids cancellation: with
price = C̃ + pϵS, u = (C̃ + pS)/price and v = (C̃ - cS)/price the mean action at given S is 1 - κ + uκ - v, and

    dκ/dt = -η <(uκ - v)S>/Δ²,
    dν/dt = -η [2 + 2g₁ - ϵ(1 + 2g₁ + g₂)] ν + ηϵ <(uκ - v)²S>

with g₁ = p(1-ϵ)<S/price>/P and g₂ = p²(1-ϵ)²<S²/price²>/P. For fixed p and c these are linear with constant coefficients: their
solution is explicit up to averages over χ². The learner's angle follows from its parts along the clean teacher, κ + τ(1-κ), and
across it, √(ν + (1-τ²)(1-κ)²). The optimal p, c follow from the costates μ of κ and q: p = 2ημ_q, c = ημ_κ/Δ². As η → 0,
κ → C/(C + p(1+2/P)): the learner turns to the target's side, for τ = -1, at C = 1 + 2/P for greedy and at C = 1 for constant
attacks.

**Simulation.** The learner itself, from w = w*; the greedy attacker minimises its cost over the true next weights. Mean action
and cost are measured on fresh batches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.fixed_points.saddle import solve
from solvable.methods.flows.committee import pair_gram, weights_with_gram
from solvable.methods.flows.descent import descend, steps_at
from solvable.model import Control, Input, Model, Numerics, Reference, choice, control, dimension, input, observable

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


class Batches(NamedTuple):
    """Effect of an attack in batches with each S (`strength`), and the weights of such batches.

    The mean action is 1 - κ + uκ - v (u: `slope`, v: `level`; `lift` is u - v), and `swing`·√(νS/P) its standard deviation.
    `turned` is v + τ(u - v).
    """

    weight: Array
    strength: Array
    slope: Array
    level: Array
    lift: Array
    turned: Array
    swing: Array

    def mean(self, values: Array) -> Array:
        return jnp.sum(self.weight * values)

    def rest(self) -> tuple[Array, Array, Array]:
        """Long-run κ, 1 - κ and uκ - v; the last is computed from the smaller of the first two to avoid cancellation."""
        if self.strength.shape == (1,):  # all batches are identical, and the steady learner does not move
            return self.level[0], self.lift[0], jnp.zeros(1)
        whole = self.mean(self.slope * self.strength)
        kappa, dragged = (self.mean(x * self.strength) / whole for x in (self.level, self.lift))
        return kappa, dragged, jnp.where(kappa < 0.5, self.slope * kappa - self.level, self.lift - self.slope * dragged)


class OnlineAttack(Model):
    """An online linear learner whose labels are poisoned by constant, greedy or optimal attacks at a cost.

    >>> import solvable as sv
    >>> slow = sv.OnlineAttack(rate=1e-4, cost=[1.0, 3.0], times=[0.0, 1e6]).theory()
    >>> [round(float(x), 4) for x in slow.steady_position]  # C/(C + 1 + 2/P)
    [0.25, 0.5]
    """

    id = "online-attack"
    title = "Label attacks on an online learner"
    family = "online"
    sentence = "An attacker poisons the labels of an online learner at a cost: constant, greedy and optimal attacks."
    method = "order-parameter flow in closed form, optimal policy from its costates"
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
        np.linspace(0.0, 40.0, 11), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="times of measurement, increasing from the start at the clean teacher, in steps per input dimension")  # fmt: skip

    dimensions_declared = (dimension("time", "training time", symbol=r"t", kind="time"),)
    main_declared = ("test_error", "position", "action", "steady_error")
    observables_declared = (
        observable("test_error", "probability that the learner's sign is not that of the clean label",
                   symbol=r"\varepsilon_g", dims=("time",), low=0, high=1),
        observable("position", "position of the learner between target (0) and clean teacher (1)", symbol=r"\kappa",
                   dims=("time",)),
        observable("distance", "squared distance of learner and target, |w-w^t|²/D", symbol="q", dims=("time",), low=0),
        observable("action", "mean action of the attacker", symbol=r"\langle a\rangle", dims=("time",)),
        observable("running_cost", "mean cost per unit of time, ½C̃<a²> + ½q", symbol="g", dims=("time",), low=0),
        observable("steady_position", "position in the long run", symbol=r"\kappa_\infty", simulated=False),
        observable("steady_error", "test error in the long run", low=0, high=1, simulated=False),
        observable("steady_cost", "running cost in the long run", symbol=r"g_\infty", low=0, simulated=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    def transition(self, along: str) -> Array:
        """The steady learner's overlap with the clean teacher; beyond its change of sign the learner is on the target's side."""
        return self.similarity + (1 - self.similarity) * self.theory().steady_position

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def _difference(self) -> Array:
        """Δ², the mean squared difference of clean and target labels."""
        return 2 - 2 * self.similarity

    def _batches(self, policy: Policy, nodes: int) -> Batches:
        """Effect of the attack in batches with every S."""
        delta, ratio, one = self._difference, self.rate / self.batch, jnp.ones(1)
        if self.strategy in ("none", "constant"):
            # all batches are identical
            pull = self.preference if self.strategy == "constant" else jnp.zeros_like(self.preference)
            whole = pull + self.cost
            turned = (self.cost + self.similarity * pull) / whole
            return Batches(one, delta * one, one, self.cost / whole * one, pull / whole * one, turned * one, 0 * one)
        shares, weights = _chi_squared(self.batch, nodes)
        s, (p, c) = delta * shares, policy
        price = self.cost * delta + p * ratio * s
        return Batches(
            weight=jnp.asarray(weights),
            strength=s,
            slope=(self.cost * delta + p * s) / price,
            level=(self.cost * delta - c * s) / price,
            lift=(p + c) * s / price,
            turned=(self.cost * delta + (self.similarity * (p + c) - c) * s) / price,
            swing=p * (1 - ratio) / price,
        )

    def _actions(self, policy: Policy, kappa: Array, noise: Array, nodes: int) -> Actions:
        """Averages of the attacker's action over batches, given the state of the learner."""
        b = self._batches(policy, nodes)
        mean, width = b.lift - b.swing * b.strength * (1 - kappa), noise / self.batch * b.swing**2 * b.strength
        along = b.mean(mean * b.strength)
        return Actions(
            mean=b.mean(mean),
            square=b.mean(mean**2 + width),
            with_difference=along,
            with_error=kappa * along + noise / self.batch * b.mean(b.swing * b.strength),
            square_with_difference=b.mean((mean**2 + width) * b.strength),
        )

    def _drift(self, policy: Policy, kappa: Array, noise: Array, nodes: int) -> tuple[Array, Array]:
        """Time derivative of κ and ν."""
        b = self._batches(policy, nodes)
        away = b.slope * kappa - b.level
        return (
            -self.rate * b.mean(away * b.strength) / self._difference,
            self.rate**2 / self.batch * b.mean(away**2 * b.strength) - self._decay(b) * noise,
        )

    def _decay(self, b: Batches) -> Array:
        """Decay rate of the noise ν."""
        ratio = self.rate / self.batch
        first, second = b.mean(b.swing * b.strength) / self.batch, b.mean((b.swing * b.strength) ** 2) / self.batch
        return self.rate * (2 * (1 + first) - ratio * (1 + 2 * first + second))

    def _price(self, policy: Policy, kappa: Array, noise: Array, nodes: int) -> Array:
        """½C̃<a²> + ½q."""
        square = self._actions(policy, kappa, noise, nodes).square
        return 0.5 * self._difference * (self.cost * square + kappa**2) + 0.5 * noise

    def _steady(self, policy: Policy, nodes: int) -> tuple[Array, Array]:
        """Long-run κ and ν."""
        b = self._batches(policy, nodes)
        kappa, _, away = b.rest()
        return kappa, self.rate**2 / self.batch * b.mean(away**2 * b.strength) / self._decay(b)

    def _policy(self, numerics: Numerics) -> tuple[Policy, Array, Array]:
        """The attacker's p and c, with convergence and residual."""
        mine = Policy(self.preference, jnp.zeros_like(self.preference))
        if self.strategy != "optimal":
            return mine, jnp.asarray(True), jnp.asarray(0.0)

        def improved(x: Array, model: OnlineAttack) -> Array:
            """p and c from the costates of the current policy: μ·∂(drift) + ∂(cost) = 0 in the steady state."""
            policy = Policy(x[0], x[1])
            place = jnp.stack(model._steady(policy, numerics.nodes))
            slopes = jax.jacfwd(lambda y: jnp.stack(model._drift(policy, y[0], y[1], numerics.nodes)))(place)
            gradient = jax.grad(lambda y: model._price(policy, y[0], y[1], numerics.nodes))(place)
            # costate of κ at constant ν; at constant q it is smaller by 2κΔ² times that of ν
            mu = _solve_two(slopes.T, -gradient)
            return model.rate * jnp.stack([2 * mu[1], mu[0] / model._difference - 2 * place[0] * mu[1]])

        found = solve(improved, jnp.asarray([1.0, 0.0]), self, tolerance=numerics.tolerance, warmup=3)
        return Policy(found.x[0], found.x[1]), found.converged, found.residual

    def point(self, numerics: Numerics) -> dict[str, Array]:
        policy, found, residual = self._policy(numerics)
        b = self._batches(policy, numerics.nodes)
        (kappa_end, dragged, away), (_, noise_end) = b.rest(), self._steady(policy, numerics.nodes)
        whole = b.mean(b.slope * b.strength)
        alpha, decay = self.rate * whole / self._difference, self._decay(b)
        turned = b.turned[0] if len(b.turned) == 1 else b.mean(b.turned * b.strength) / whole
        # κ = κ∞ + (1 - κ∞) e^{-αt} drives ν with the powers 0, 1, 2 of that exponential
        time = self.times - self.times[0]
        drive = self.rate**2 / self.batch * b.slope * b.strength
        first = 2 * dragged * b.mean(drive * away)
        second = dragged**2 * b.mean(drive * b.slope)
        noise = -noise_end * jnp.expm1(-decay * time)
        noise = noise + first * _driven(alpha, decay, time) + second * _driven(2 * alpha, decay, time)
        left, gone = jnp.exp(-alpha * time), -jnp.expm1(-alpha * time)
        kappa = kappa_end * gone + left
        actions = jax.vmap(lambda x, y: self._actions(policy, x, y, numerics.nodes))(kappa, noise)
        distance = noise + self._difference * kappa**2
        return {
            "test_error": self._error(turned * gone + left, dragged * gone, noise),
            "position": kappa,
            "distance": distance,
            "action": jnp.broadcast_to(actions.mean, noise.shape),
            "running_cost": 0.5 * (self.cost * self._difference * actions.square + distance),
            "steady_position": kappa_end,
            "steady_error": self._error(turned, dragged, noise_end),
            "steady_cost": self._price(policy, kappa_end, noise_end, numerics.nodes),
            # the learning rate is too large: the learner's distance diverges
            "converged": found & (decay > 0) & (alpha > 0),
            "residual": residual,
        }

    def _error(self, along: Array, dragged: Array, noise: Array) -> Array:
        """The angle of the learner's parts along and across the clean teacher, over π; `dragged` is 1 - κ."""
        across = noise + (1 - self.similarity) * (1 + self.similarity) * dragged**2
        # the root has no derivative where the part across vanishes: the angle is 0 or π there, and in between at w = 0
        some, nothing = across > 0, (across <= 0) & (along == 0)
        root = jnp.where(some, jnp.sqrt(jnp.where(some, across, 1.0)), 0.0)
        return jnp.where(nothing, 0.5, jnp.arctan2(root, jnp.where(nothing, 1.0, along)) / math.pi)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        weight_key, sample_key, probe_key = jax.random.split(key, 3)
        clean, target = weights_with_gram(weight_key, pair_gram(1.0, self.similarity, 1.0), size).astype(dtype)
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
            # greedy: the next weights are unattacked - a·turned; minimise ½C̃a² + (pD/η)½|next - target|²/D
            unattacked = w - target - rate / (self.batch * math.sqrt(size)) * ((error - s) @ x)
            turned = rate / (self.batch * math.sqrt(size)) * (s @ x)
            return p / rate * (unattacked @ turned) / (price + p / rate * (turned @ turned))

        def step(number: Array, w: Array) -> Array:
            x = jax.random.normal(jax.random.fold_in(sample_key, number), (self.batch, size), dtype)
            label = x @ (clean - attack(w, x) * apart) / math.sqrt(size)
            return w - rate / (self.batch * math.sqrt(size)) * ((x @ w / math.sqrt(size) - label) @ x)

        batches = max(1, PROBES // self.batch)
        probes = jax.random.normal(probe_key, (batches, self.batch, size), dtype)

        def measure(w: Array) -> tuple[Array, ...]:
            away = w - target
            actions = jax.vmap(lambda x: attack(w, x))(probes)
            seen = (away @ apart / (apart @ apart), away @ away / size, jnp.mean(actions), jnp.mean(actions**2))
            along = w @ clean / (clean @ clean)
            angle = jnp.arctan2(jnp.linalg.norm(w - along * clean), along * jnp.linalg.norm(clean))
            return tuple(value.astype(float) for value in (*seen, angle / math.pi))

        kappa, q, mean, square, error = descend(step, clean, steps_at(self.times, size), measure).path
        return {
            "test_error": error,
            "position": kappa,
            "distance": q,
            "action": mean,
            "running_cost": 0.5 * (self.cost * self._difference * square + q),
            "converged": found & jnp.all(jnp.isfinite(q)),
        }


def _chi_squared(freedom: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of averages over χ²_P/P, for functions that vanish at least linearly at 0.

    Equal steps in the logarithm: exponentially accurate for all functions that are analytic off the negative axis, such as
    S²/(C̃ + ϵS), however close to zero their pole is.
    """
    half = freedom / 2
    # the exponent (P/2 + 1) u - (P/2) e^u of density × S du, at S = e^u, is followed until it has dropped by 44
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
    # (1 - e^{-x})/x, by its series for small x, so that neither value nor derivative divides by zero
    safe = jnp.where(small, 1.0, x)
    shape = jnp.where(small, 1 - 0.5 * x * (1 - x / 3), -jnp.expm1(-safe) / safe)
    return time * jnp.exp(-jnp.minimum(rate, decay) * time) * shape


def _solve_two(matrix: Array, right: Array) -> Array:
    """Solve a linear system of two unknowns."""
    (a, b), (c, d) = matrix
    return jnp.stack([d * right[0] - b * right[1], a * right[1] - c * right[0]]) / (a * d - b * c)
