r"""A perceptron whose weights have a few levels: how much it stores, how dense its solutions are, whether they are found.

**Data.** αN random patterns ξ = ±1 with random labels, absorbed in ξ: the weights must give w·ξ/√N > κ for all of
them. Patterns of 0 and 1 with a free threshold are the same problem (ξ = (1 + s)/2: the threshold absorbs the mean
weight, and only s matters).

**Learner.** N weights, each one of L `levels`: {−1, 1}, {0, 1, …, L−1}, {−1, 0, 1} or any other set.

**Theory** (Baldassi et al. 2016; equations in `methods.fixed_points.discrete_weights`).

- Typical solutions: the replica-symmetric entropy per weight S(α), which vanishes at the `capacity` (Krauth and Mézard 1989).
  It is exact for ±1; for more levels it ignores a possible breaking of replica symmetry, as the authors do.
- Dense regions: y copies at mutual distance D = ⟨(w − w′)²⟩/2 have an entropy φ per copy; `distance` is D in units of the levels'
  variance (for ±1: d = 1 − q₁). For y → ∞ this is the local entropy of the densest regions. If it rises with the distance
  from d = 0, dense regions reach down to single solutions; they break up at the α_U from which it has a maximum and a
  minimum. The result is NaN at distances larger than those of typical solutions.

**Simulation.** Message passing at finite N. Without reinforcement, the overlap and the Bethe entropy of its fixed point
are compared with the replica theory. With reinforcement it is a search, whose success (`solved`, `sweeps`) no theory
here predicts.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.belief_propagation import pass_messages
from solvable.methods.fixed_points.discrete_weights import capacity, local_entropy, typical_entropy
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics


class FewBitSynapses(Model):
    """Storage with weights of a few levels: capacity, typical and local entropy, and search by message passing.

    >>> import solvable as sv
    >>> [round(float(sv.FewBitSynapses(levels=np.arange(n), replicas="none").theory().capacity), 5) for n in (2, 3)]
    [0.58974, 0.74115]
    """

    id = "few-bit-synapses"
    title = "Synapses with a few levels"
    family = "synapses"
    sentence = (
        "Storage by weights of a few levels: capacity, dense regions of solutions, and search by message passing."
    )
    method = "replica-symmetric and replicated entropies; message passing at finite size"
    numerics = Numerics(nodes=96, panel=10, inner=256, tolerance=1e-11)
    typical_sizes = (101, 201, 401)
    theory_seconds = 0.08
    simulation_seconds = 0.08
    first_view = FirstView(seeds=48, points=4)
    batch_accuracy = 1e-9
    accuracy = 1e-7
    finite_size = 4.0
    guard = Guard(
        values={"replicas": "none"}, simulated_values={"samples": 0.4, "reinforcement": 0.02}, size=75, seeds=8
    )
    check_study = (
        {"over": {"samples": [0.2, 0.4, 0.6]}, "values": {"replicas": "none", "reinforcement": 0.02}, "seeds": 48},
        {"over": {"samples": [0.2, 0.4]}, "seeds": 48,
         "values": {"replicas": "none", "levels": np.array([0.0, 1.0, 2.0]), "reinforcement": 0.02}},
    )  # fmt: skip
    references = (
        Reference(
            "baldassi2016learning", "C. Baldassi, F. Gerace, C. Lucibello, L. Saglietti and R. Zecchina", "Learning may need "
            "only a few bits of synaptic precision", 2016, "Phys. Rev. E 93, 052313", arxiv="1602.04129"),
        Reference(
            "baldassi2015subdominant", "C. Baldassi, A. Ingrosso, C. Lucibello, L. Saglietti and R. Zecchina", "Subdominant "
            "dense clusters allow for simple learning and high computational performance in neural networks with discrete "
            "synapses", 2015, "Phys. Rev. Lett. 115, 128101", arxiv="1509.05753"),
        Reference(
            "krauth1989storage", "W. Krauth and M. Mézard", "Storage capacity of memory networks with binary couplings", 1989,
            "J. Phys. France 50, 3057"),
        Reference(
            "braunstein2006learning", "A. Braunstein and R. Zecchina", "Learning by message passing in networks of discrete "
            "synapses", 2006, "Phys. Rev. Lett. 96, 030201", arxiv="cond-mat/0511159"),
    )  # fmt: skip

    samples: Control = control(
        0.6, low=0.0, low_open=True, high=10.0, typical=(0.4, 0.8), counts=True, symbol=r"\alpha",
        meaning="patterns per weight")  # fmt: skip
    distance: Control = control(
        0.2, low=0.0, low_open=True, high=1.0, typical=(0.06, 0.4), symbol="d",
        meaning="mutual distance ⟨(w − w′)²⟩/2 of the copies, in units of the levels' variance (±1: d = 1 − q₁)")  # fmt: skip
    margin: Control = control(
        0.0, low=0.0, high=5.0, typical=(0.0, 0.02), symbol=r"\kappa",
        meaning="margin that every field w·ξ/√N must exceed")  # fmt: skip
    copies: Control = control(
        20.0, low=1.0, high=400.0, typical=(5.0, 100.0), scale="log", symbol="y",
        meaning="number of coupled copies (replicas = finite)", when={"replicas": "finite"})  # fmt: skip
    reinforcement: Control = control(
        0.003, low=0.0, low_open=True, high=0.1, typical=(0.003, 0.02), scale="log", symbol=r"\gamma",
        meaning="growth per sweep of the fraction of the old log-marginals that the search keeps")  # fmt: skip
    replicas: str = choice(
        "infinite", options=("infinite", "finite", "none"),
        meaning="copies of the local entropy: y → ∞, a finite number, or no local entropy at all")  # fmt: skip
    levels: Input = input(
        np.array([-1.0, 1.0]), dims=("level",), symbol="w_l", meaning="allowed weight values, in increasing order")  # fmt: skip

    main_declared = ("entropy", "local_entropy", "overlap", "solved")
    observables_declared = (
        observable("entropy", "logarithm of the number of solutions per weight", symbol="S"),
        observable("local_entropy", "entropy per weight and copy of solutions at the mutual distance", symbol=r"\phi",
                   simulated=False, when={"replicas": ("infinite", "finite")}),
        observable("local_slope", "its derivative with respect to distance: negative where dense regions break up",
                   symbol=r"\phi'", simulated=False, when={"replicas": "infinite"}),
        observable("overlap", "overlap of two typical solutions", symbol="q", low=0),
        observable("square", "mean square of the weights of a typical solution", symbol="Q", low=0),
        observable("capacity", "patterns per weight up to which there are solutions", symbol=r"\alpha_c", low=0,
                   simulated=False),
        observable("solved", "whether reinforced message passing found a solution", low=0, high=1, predicted=False),
        observable("sweeps", "sweeps that the search took", low=0, predicted=False),
        observable("train_error", "fraction of patterns that the search left unsolved", low=0, high=1, predicted=False),
    )  # fmt: skip

    def validate(self) -> None:
        if isinstance(self.levels, Tracer):
            return
        levels = np.asarray(self.levels)
        if levels.size < 2 or np.any(np.diff(levels) <= 0) or levels.size > 64:
            raise InvalidValue(
                f"levels = {levels.tolist()} are not 2 to 64 increasing numbers, the values that a weight may take."
            )

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        settings = {"nodes": numerics.nodes, "panel": numerics.panel}
        typical = typical_entropy(self.levels, self.samples, self.margin, **settings)
        most = capacity(self.levels, self.margin, **settings)
        values = {
            "entropy": typical.entropy,
            "overlap": typical.overlap,
            "square": typical.square,
            "capacity": most.samples,
            "converged": typical.converged & most.converged,
            "residual": jnp.maximum(typical.residual, most.residual),
        }
        if self.replicas != "none":
            local = local_entropy(
                self.levels, self.samples, self.distance * jnp.var(self.levels), self.margin,
                self.copies if self.replicas == "finite" else None,
                **settings, inner=numerics.inner, tolerance=numerics.tolerance,
            )  # fmt: skip
            values["local_entropy"] = local.entropy
            values["local_entropy_converged"] = local.converged
            values["residual"] = jnp.maximum(values["residual"], jnp.where(local.converged, local.residual, 0.0))
            if self.replicas == "infinite":
                values["local_slope"] = local.slope * jnp.var(self.levels)
                values["local_slope_converged"] = local.converged
        return values

    def transition(self, along: str) -> Array:
        """Positive beyond the capacity."""
        return jnp.log(self.samples / self.theory(only=["capacity"]).capacity)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        rows = counts["samples"]
        signs = jax.random.bernoulli(key, 0.5, (rows.padded, size))
        patterns = jnp.where(signs, 1.0, -1.0).astype(dtype)
        levels, margin, mask = self.levels.astype(dtype), self.margin.astype(dtype), rows.mask(dtype)
        calm = pass_messages(patterns, levels, margin, mask, most=500, tolerance=1e-4)
        search = pass_messages(
            patterns, levels, margin, mask, reinforcement=self.reinforcement.astype(dtype), most=1500
        )
        return {
            "entropy": calm.entropy,
            "overlap": calm.overlap,
            "square": calm.square,
            "solved": search.solved.astype(dtype),
            "sweeps": search.sweeps.astype(dtype),
            "train_error": search.error,
            "converged": calm.change < 1e-2,
            "residual": calm.change,
        }
