r"""Gradient flow in phase retrieval: trapped by rough minima until their Hessian points to the signal.

**Data.** A signal w* on the sphere |w*|² = N and M = αN measurements ξ ~ N(0, 1_N), of which only y² is known,
y = ξ·w*/√N.

**Learner.** w on the same sphere follows the projected gradient of L = Σ_μ ℓ(ŷ_μ, y_μ), ŷ = ξ·w/√N,

    ℓ = ρ(y) (ŷ² − y²)²/4,        ρ(y) = 1/(1 + κy²),

in the time of dw/dt = −∇L/α. κ = 0 (`normalisation`) is the loss of Sarao Mannelli et al. (2020); κ > 0 tames the largest
measurements. The signal is recovered if |m| = |w·w*|/N → 1.

**Theory.** With ℓ″ = a and μ = αE[ℓ′ŷ], the Hessian on the sphere is H = (1/N)Σ_μ a_μ ξ_μξ_μᵀ − μ. Its bulk, and the eigenvalue
that points to w* where there is one, follow from the law of (y, ŷ) (`methods.random_matrices.reweighted`). With g the resolvent
at the lower edge, w* has left the bulk if

    α E[ag(1−y²)/(1+ag)] > 1        (`margin` above zero).

The law is that of one of two kinds of `state`, both without overlap:

- `initial`: y and ŷ are independent, as at any random start. The result is exact as N grows, for κ > 0; for κ = 0 the weights
  a have no lower bound and the bulk has no edge.
- `trapped`: the marginal minima at which the flow ages, by one step of replica-symmetry breaking at zero temperature
  (`threshold_states`): given y the cavity field has the density ∝ exp(−h²/2 − s min_z[(z−h)²/2χ + ℓ(z, y)]), ŷ = z, and

    αE[ℓ′²] = 1/(χ(χ+s)),        αE[(χa/(1+χa))²] = 1        (marginal: g = χ at the edge).

  This is an approximation. A marginal state has its edge at zero. Where ŷ jumps as h changes sign (κ < χ and y² > 1/(χ−κ)) the
  computed edge is not zero, and measures the error of the approximation: 0.05 at κ = 0 and α = 14, 0.15 at α = 5. For
  κ = 1 and α ≥ 3 it is below 0.002.

**Thresholds.** w* leaves the bulk of trapped states at α = 13.80 for κ = 0 and 7.09 for κ = 1: above these values
trapped states of large systems are unstable towards the signal, so that none of them can trap the flow.

**Observations** (N = 64 to 256, 24 descents up to t = 200). Descents escape far below these thresholds: at κ = 0 half of them
between α = 4 and 6 and all at 10, with no shift in N beyond errors. The loss of trapped ones exceeds the theory's by 46 % at
α = 3 and 18 % at α = 5 (κ = 0, N = 256). The Hessian points to the signal early on, but with few measurements no longer
does when the flow stops.

**Simulation.** Descent from a random start, step 0.1, all measurements in memory. Loss, overlap, the lowest
eigenvalue of the dense Hessian and the squared cosine between its eigenvector and w* are recorded at the requested times. A
run that recovers the signal has no trapped state: observables of that state are then NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.saddle import solve
from solvable.methods.flows.descent import descend, on_sphere, steps_at
from solvable.methods.random_matrices.reweighted import lowest_direction
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

from .threshold_states import Law, losses, start_law, trapped_law

STEPS_PER_TIME = 10  # of a simulated descent
RECOVERED = 0.99  # overlap from which the signal counts as found
INFORMED = 0.9  # overlap of an informed start


class PhaseRetrieval(Model):
    """Signals from the squares of random projections: trapped states, their Hessian, and descents.

    >>> import solvable as sv
    >>> found = sv.PhaseRetrieval(samples=14.0).theory()
    >>> round(float(found.train_loss), 5), round(float(found.margin), 5)
    (0.42113, 0.02472)
    """

    id = "phase-retrieval"
    title = "Gradient flow in phase retrieval"
    family = "glassy"
    sentence = "Gradient flow in phase retrieval: trapped by rough minima until their Hessian points to the signal."
    method = "one step of replica-symmetry breaking, outlier of a reweighted covariance"
    numerics = Numerics(nodes=64, tolerance=1e-12, max_steps=200)
    accuracy = 1e-6
    gradient_accuracy = 1e-5  # the edge of a marginal state is zero: finite differences of it are rounding errors
    theory_lanes = 16
    theory_seconds = 0.02
    typical_sizes = (64, 128, 256)
    simulation_seconds = 4.0
    simulation_growth = 2.0
    # the initial Hessian, whose theory is exact; trapped states are undefined wherever a run finds the signal
    first_view = FirstView(
        values={"state": "initial", "normalisation": 1.0, "times": [0.0, 0.1]}, observables=("lowest", "alignment"),
        span=(3.0, 30.0), points=4, seeds=64,
    )  # fmt: skip
    check_study = (
        {  # the state whose theory is exact; trapped ones are compared in the figures
            "values": {"state": "initial", "normalisation": 1.0, "times": [0.0, 0.1]},
            "over": {"samples": [4.0, 8.0]},
            "sizes": [64, 128, 256],
            "seeds": 64,
            "judge": ["train_loss", "lowest", "alignment", "prediction_variance"],
        },
    )
    guard = Guard(
        values={"times": [0.0, 0.2]},
        simulated_values={"state": "initial", "normalisation": 1.0, "samples": 6.0},
        size=48,
    )
    references = (
        Reference(
            "saraomannelli2020complex", "S. Sarao Mannelli, G. Biroli, C. Cammarota, F. Krzakala, P. Urbani and L. Zdeborová",
            "Complex dynamics in simple neural networks: understanding gradient flow in phase retrieval", 2020,
            "NeurIPS 33", arxiv="2006.06997"),
        Reference(
            "bonnaire2024zero", "T. Bonnaire, G. Biroli and C. Cammarota", "The role of the time-dependent Hessian in "
            "high-dimensional optimization", 2024, arxiv="2403.02418"),
    )  # fmt: skip

    samples: Control = control(
        4.0, low=2.5, high=1000.0, typical=(2.5, 30.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="measurements per dimension of the signal, M/N")  # fmt: skip
    normalisation: Control = control(
        0.0, low=0.0, high=10.0, typical=(0.0, 2.0), symbol=r"\kappa",
        meaning="how strongly the loss of a measurement is divided by its size: 1/(1 + κy²)")  # fmt: skip
    state: str = choice(
        "trapped",
        options=("trapped", "initial"),
        meaning="where the Hessian is taken: at the states in which flows age, or at the start",
    )
    start: str = choice(
        "random", options=("random", "informed"),
        meaning=f"start of a simulation: a random point, or one with overlap {INFORMED}")  # fmt: skip
    times: Input = input(
        np.array([0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="times at which a simulated descent is measured, increasing from its start")  # fmt: skip

    dimensions_declared = (dimension("time", "training time", symbol="t", scale="log", kind="time"),)
    main_declared = ("train_loss", "lowest", "alignment", "overlap")
    observables_declared = (
        observable("train_loss", "mean loss of a measurement in the state", symbol=r"\ell", status="approximate", low=0),
        observable("lowest", "lowest eigenvalue of the state's Hessian", symbol=r"\lambda_{\min}", status="approximate"),
        observable("alignment", "squared cosine between its eigenvector and the signal", symbol="c^2",
                   status="approximate", low=0, high=1),
        observable("prediction_variance", "mean square of the predictions in the state", symbol=r"\langle\hat y^2\rangle",
                   status="approximate", low=0),
        observable("edge", "lower edge of the bulk of the state's Hessian", symbol=r"\lambda_-", status="approximate",
                   simulated=False),
        observable("margin", "distance of the signal from its transition: it has left the bulk where this is positive",
                   symbol=r"\Gamma", status="approximate", simulated=False),
        observable("response", "response of a prediction to its cavity field", symbol=r"\chi", status="approximate", low=0,
                   simulated=False, when={"state": "trapped"}),
        observable("breaking", "replica parameter, per temperature", symbol="s", status="approximate", low=0,
                   simulated=False, when={"state": "trapped"}),
        observable("loss_path", "mean loss of a measurement during the descent", symbol=r"\ell(t)", dims=("time",), low=0,
                   predicted=False),
        observable("overlap", "overlap of the descent with the signal, |w·w*|/N", symbol="|m|(t)", dims=("time",), low=0,
                   predicted=False),
        observable("lowest_path", "lowest eigenvalue of the Hessian during the descent", symbol=r"\lambda_{\min}(t)",
                   dims=("time",), predicted=False),
        observable("alignment_path", "squared cosine between its eigenvector and the signal", symbol="c^2(t)",
                   dims=("time",), low=0, high=1, predicted=False),
        observable("reached", "whether the descent ends at the signal", low=0, high=1, predicted=False),
    )  # fmt: skip

    def validate(self) -> None:
        if self.state != "initial":
            return
        if self.start == "informed":
            raise InvalidValue(
                "start = 'informed' is not allowed with state = 'initial': the initial Hessian is known for random starts only."
            )
        if not isinstance(self.normalisation, Tracer) and np.any(self.normalisation < 0.05):
            raise InvalidValue(
                f"normalisation = {float(np.min(self.normalisation)):g} with state = 'initial' is outside [0.05, 10]: without "
                "normalisation the bulk of the Hessian has no lower edge."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    def transition(self, along: str) -> Array:
        """Distance of the signal from its transition: it leaves the bulk of the Hessian where this changes sign."""
        return self.theory(only=["margin"]).margin

    # --- theory -----------------------------------------------------------------------------------------------------

    def _law(self, numerics: Numerics) -> tuple[Law, dict[str, Array], Array, Array]:
        """Nodes of the state's law, its parameters, whether they converged, and their residual."""
        if self.state == "initial":
            return start_law(self.normalisation, numerics.nodes), {}, jnp.asarray(True), jnp.zeros(())

        def improved(x: Array, model: PhaseRetrieval) -> Array:
            chi, s = jnp.exp(x)
            law = trapped_law(chi, s, model.normalisation, numerics.nodes)
            soft = chi * law.curvature / (1 + chi * law.curvature)
            saddle = model.samples * (law.chance @ law.slope**2) * chi * (chi + s)
            marginal = model.samples * (law.chance @ soft**2)
            return x - jnp.log(jnp.stack([saddle, marginal]))

        # rough solutions for few and many measurements, and for weak and strong normalisation
        near = 1.3 * (1 + self.normalisation) / (self.samples - 1)
        raised = 1 + 3 * self.normalisation / (self.normalisation + 0.7) * jnp.minimum(1.0, 3 / self.samples)
        begin = jnp.log(jnp.stack([near, 1.4 * near * raised]))
        found = solve(improved, begin, self, tolerance=numerics.tolerance, max_steps=numerics.max_steps, reach=0.7)
        chi, s = jnp.exp(found.x)
        law = trapped_law(chi, s, self.normalisation, numerics.nodes)
        return law, {"response": chi, "breaking": s}, found.converged, found.residual

    def point(self, numerics: Numerics) -> dict[str, Array]:
        law, own, converged, residual = self._law(numerics)
        end = lowest_direction(law.curvature, law.amplitude**2, law.chance, self.samples)
        shift = self.samples * (law.chance @ (law.slope * law.prediction))
        return {
            "train_loss": law.chance @ law.loss,
            "lowest": end.lowest - shift,
            "alignment": end.overlap,
            "prediction_variance": law.chance @ law.prediction**2,
            "edge": end.edge - shift,
            "margin": end.margin,
            **own,
            "converged": converged & end.converged,
            "residual": jnp.maximum(residual, end.residual),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        rows, kappa = counts["samples"], self.normalisation.astype(dtype)
        mask, number = rows.mask(dtype), rows.actual.astype(dtype)
        signal, w, xi = _draw(key, size, rows.padded, self.start == "informed", dtype)
        y = xi @ signal
        step = _descent(xi, y, mask, number, kappa)

        def measure(w: Array) -> dict[str, Array]:
            prediction = xi @ w
            loss, slope, curvature = losses(prediction, y, kappa)
            along = w / math.sqrt(size)
            hessian = jnp.matmul((mask * curvature)[None, :] * xi.T, xi, precision="highest")
            hessian = hessian - (mask @ (slope * prediction) / size) * jnp.eye(size, dtype=dtype)
            # w itself is not a direction on the sphere: its eigenvalue is moved into the middle of the spectrum
            hw = hessian @ along
            middle = jnp.trace(hessian) / size
            hessian = hessian - jnp.outer(hw, along) - jnp.outer(along, hw)
            hessian = hessian + (along @ hw + middle) * jnp.outer(along, along)
            values, vectors = jnp.linalg.eigh(hessian)
            overlap = w @ signal / size
            tangent = signal / math.sqrt(size) - overlap * along
            cosine = (vectors[:, 0] @ tangent) / jnp.maximum(jnp.linalg.norm(tangent), 1e-6)
            return {
                "loss_path": mask @ loss / number,
                "overlap": jnp.abs(overlap),
                "lowest_path": values[0],
                "alignment_path": jnp.minimum(cosine**2, 1.0),
                "prediction_variance": mask @ prediction**2 / number,
            }

        path = descend(step, w, steps_at(self.times, STEPS_PER_TIME), measure).path
        reached = path["overlap"][-1] > RECOVERED
        at, hold = (0, 1.0) if self.state == "initial" else (-1, jnp.where(reached, jnp.nan, 1.0))
        names = {"train_loss": "loss_path", "lowest": "lowest_path", "alignment": "alignment_path"}
        of_state = {name: hold * path[name_of][at] for name, name_of in names.items()}
        variance = path.pop("prediction_variance")
        return {
            **of_state,
            "prediction_variance": hold * variance[at],
            **path,
            "reached": reached.astype(dtype),
            "converged": jnp.all(jnp.isfinite(path["loss_path"])),
        }


def _draw(key: Array, size: int, number: int, informed: bool, dtype: Any) -> tuple[Array, Array, Array]:
    """Signal, start and measurements, divided by √N."""
    signal_key, start_key, data_key = jax.random.split(key, 3)
    signal = on_sphere(jax.random.normal(signal_key, (size,), dtype))
    w = jax.random.normal(start_key, (size,), dtype)
    if informed:
        aside = on_sphere(w - (w @ signal / size) * signal)
        w = INFORMED * signal + math.sqrt(1 - INFORMED**2) * aside
    return signal, on_sphere(w), jax.random.normal(data_key, (number, size), dtype) / math.sqrt(size)


def _descent(xi: Array, y: Array, mask: Array, number: Array, kappa: Array) -> Callable[[Array, Array], Array]:
    size = xi.shape[1]

    def step(_: Array, w: Array) -> Array:
        slope = losses(xi @ w, y, kappa)[1]
        pull = (size / number) * ((mask * slope) @ xi)
        # the part along w only changes its length
        pull = pull - (pull @ w / size) * w
        return on_sphere(w - pull / STEPS_PER_TIME)

    return step


def final_predictions(key: Array, size: int, samples: float, until: float) -> tuple[Array, Array, Array]:
    """Labels' amplitudes and predictions of all measurements where a descent of the plain loss ends, and its overlap."""
    number = round(samples * size)
    signal, w, xi = _draw(key, size, number, False, jnp.float32)
    y, one = xi @ signal, jnp.ones((), jnp.float32)
    step = _descent(xi, y, jnp.ones(number, jnp.float32), number * one, 0 * one)
    w = descend(step, w, jnp.asarray([round(until * STEPS_PER_TIME)]), lambda w: w).state
    return y, xi @ w, w @ signal / size
