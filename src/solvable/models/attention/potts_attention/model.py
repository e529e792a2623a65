"""Masked-token learning on Potts data: one row of factored attention with known colour couplings.

**Data.** Sequences of colours s_i ∈ {1…C} from P(s) ∝ exp(β Σ_{i<j} J_ij U[s_i, s_j]); U is symmetric with rows summing to
zero. One site is masked; its colour y is predicted from N others, coupled to it by J_0j = J̃_j/√N with |J̃|² = ρN. On
the *star* the others are coupled only to it; on the *dense* graph all pairs have i.i.d. J_ij ~ N(0, ρ/N).

**Learner.** The row w of a factored attention map: logits_a = Σ_j w_j U[a, s_j]/√N, the form of the true conditional
law, which it equals at w = βJ̃. It minimises Σ_μ cross-entropy + λ|w|²/2 over αN sequences: pseudo-likelihood.

**Theory** (own derivation; the question is that of Rende et al. 2024). Without the masked site the others give Gaussian
fields; its colour tilts their law by exp(βh*_y). With UUᵀ/C = BBᵀ, row B_y: colours have p(y) ∝ exp(β²ρ|B_y|²/2), and
given y the learner's field is βm B_y + √q ξ, the truth's β²ρ B_y + β√ρ ξ: softmax regression on a Gaussian mixture
(`softmax_regression`). With the conjugates m̂ = αβE B_y·g, q̂ = αE|g|², V̂ = αE tr H(1+VH)⁻¹ and the spectrum c of
the other sites' covariance (star: c = 1; dense paramagnet: c = 1/(1+x²−2x cos θ) with θ on the semicircle,
x = β√ρ u/C < 1, u the eigenvalue of U),

    V = ⟨c/(λ+V̂c)⟩,   m = ρm̂⟨c²/(λ+V̂c)⟩,   q = ⟨c²(ρm̂²c + q̂)/(λ+V̂c)²⟩

describe the fields, while the weights have J̃·w/N = ρm̂⟨c/(λ+V̂c)⟩ and |w|²/N = ⟨(ρm̂²c² + q̂c)/(λ+V̂c)²⟩.
Without penalty the dense graph has the same losses as the star; only the noise of its couplings is larger, by 1 + x².

**Simulation.** Star: exact sampling (y, then every other site independently). Dense: Gibbs sampling of the whole sequence,
several sites masked in turn. Half of the sequences start at random, half with one colour everywhere. If their energies still
depend on the start, or if sequences resemble their own past more than another's (R̂ > 1.05), the result is not converged. From
about ten colours on this happens well before x = 1. Test losses average the cross-entropy over the true conditional law on fresh
sequences.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from solvable.errors import InvalidValue
from solvable.methods.averages.chains import R_HAT, ensemble_r_hat
from solvable.methods.fixed_points.saddle import solve
from solvable.model import Control, FirstView, Input, Model, Numerics, choice, control, data, observable

from .._papers import MAPPING
from .softmax_regression import Channel, alike, conjugates, fresh_loss, minimise_cross_entropy, resolved, trained_loss

MASKED_SITES = 5
"""Number of masked sites of a dense sequence, each with its own learner; measurements are averaged over them."""


class PottsAttention(Model):
    """Pseudo-likelihood learning of one site's couplings in a Potts model with known colour couplings.

    >>> import solvable as sv
    >>> ising = sv.PottsAttention(colours=2, samples=3.0, penalty=0.5, inverse_temperature=1.5)
    >>> round(float(ising.theory().overlap), 5)
    0.8368
    """

    id = "potts-attention"
    title = "Factored attention on Potts data"
    family = "attention"
    sentence = (
        "One row of factored attention learns a site's couplings from Potts sequences by masked-token prediction."
    )
    method = "replica saddle point of softmax regression"
    revision = 2
    numerics = Numerics(nodes=64, tolerance=1e-11, max_steps=400)
    accuracy = 1e-6
    runs = "map"
    theory_lanes = 1
    simulation_dtype = "float64"
    typical_sizes = (50, 100, 200)
    theory_seconds = 2e-3
    simulation_seconds = 1.0
    simulation_growth = 3.0
    first_view = FirstView(seeds=20, points=5)
    inconclusive = 0.25  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"samples": [2.0, 6.0]}},
        {"values": {"interaction": "random", "inverse_temperature": 2.0}, "over": {"samples": [6.0]}},
        {"values": {"colours": 2, "penalty": 0.0}, "over": {"samples": [8.0]}},
        {"values": {"graph": "dense"}, "over": {"samples": [6.0]}, "sizes": (30, 60, 120)},
    )
    references = (
        MAPPING,
    )  # fmt: skip

    samples: Control = control(
        6.0, low=0.0, low_open=True, high=1e4, typical=(0.5, 20.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="training sequences per other site, M/N")  # fmt: skip
    penalty: Control = control(
        0.5, low=0.0, high=1e6, typical=(0.01, 10.0), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 added to the sum of the losses; without it, small samples have no minimiser")  # fmt: skip
    inverse_temperature: Control = control(
        1.5, low=0.0, low_open=True, high=20.0, typical=(0.1, 3.0), symbol=r"\beta",
        meaning="inverse temperature of the sequences' law")  # fmt: skip
    strength: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.2, 2.0), symbol=r"\rho",
        meaning="squared couplings of the masked site, |J̃|²/N")  # fmt: skip
    colours: int = choice(3, low=2, high=20, symbol="C", meaning="number of colours (tokens)")
    interaction: str = choice(
        "potts", options=("potts", "random", "given"), symbol="U",
        meaning="colour couplings: centred identity, or random symmetric, both with ΣU² = C; or your own")  # fmt: skip
    instance: int = choice(0, low=0, high=10_000, meaning="number of the random colour couplings (random)")
    graph: str = choice(
        "star", options=("star", "dense"), meaning="whether the other sites are coupled to each other too")  # fmt: skip
    colour_matrix: Input | None = data(
        dims=("colours", "partner"), symbol="U",
        meaning="your own symmetric colour couplings; used double-centred, rows and columns summing to zero (given)")  # fmt: skip

    _rank: int = eqx.field(default=1, init=False, static=True, repr=False)

    main_declared = ("excess_loss", "coupling_error", "overlap", "test_loss")
    observables_declared = (
        observable("overlap", "overlap of learnt and true couplings J̃·w/N", symbol="m"),
        observable("norm", "squared norm of the learnt couplings |w|²/N", symbol="q", low=0),
        observable("coupling_error", "squared error of the learnt couplings |w − βJ̃|²/N", symbol=r"\varepsilon", low=0),
        observable("test_loss", "cross-entropy of the masked colour on a fresh sequence", low=0),
        observable("train_loss", "mean cross-entropy of the masked colour on the training sequences", low=0),
        observable("optimal_loss", "conditional entropy of the masked colour: the test loss of the truth", low=0),
        observable("excess_loss", "test loss above the optimal one", low=0),
        observable("colour_entropy", "entropy of the masked colour: the loss of a learner that knows only frequencies",
                   low=0, when={"graph": "star"}),
        observable("response", "response of the field on a sequence to that sequence", symbol="V", low=0,
                   simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        given = self.colour_matrix
        if (given is not None) != (self.interaction == "given"):
            raise InvalidValue("colour_matrix is needed with interaction = 'given', and only then.")
        if self.graph == "dense" and self.interaction != "potts":
            raise InvalidValue(
                f"graph = 'dense' needs interaction = 'potts', not {self.interaction!r}: with other colour couplings "
                "sites and colours do not factorise, and no closed theory is known."
            )
        rank = self.colours - 1
        if self.interaction == "given":
            assert given is not None
            if given.shape[0] != given.shape[1]:
                raise InvalidValue(f"colour_matrix must be {self.colours}×{self.colours}.")
            if not isinstance(given, Tracer):
                own = np.asarray(given)
                if not np.allclose(own, own.T):
                    raise InvalidValue("colour_matrix is not symmetric.")
                values = np.abs(np.linalg.eigvalsh(_centred(own)))
                rank = int((values > 1e-10 * max(values.max(), 1e-300)).sum())
                if values.max() < 1e-10 * max(np.abs(own).max(), 1e-300):
                    raise InvalidValue("colour_matrix is constant along rows or columns, so colours do not interact.")
        self._rank = rank

    # --- theory -----------------------------------------------------------------------------------------------------

    def _colour_matrix(self) -> Float[Array, "colours colours"]:
        """U, its rows and columns summing to zero."""
        if self.interaction == "given":
            assert self.colour_matrix is not None
            return _centred(self.colour_matrix)
        if self.interaction == "random":
            draw = np.random.default_rng(self.instance).normal(size=(self.colours, self.colours))
            matrix = _centred(draw + draw.T)
        else:
            matrix = _centred(np.eye(self.colours))
        return jnp.asarray(matrix * math.sqrt(self.colours / (matrix**2).sum()))

    def _channel(self) -> Channel:
        if self.interaction == "potts":
            B = alike(self.colours) / math.sqrt(self.colours - 1)
        else:
            U = self._colour_matrix()
            values, vectors = jnp.linalg.eigh(U @ U / self.colours)
            B = (vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :])[:, -self._rank :]
        tilt = 0.5 * self.inverse_temperature**2 * self.strength * jnp.sum(B**2, axis=1)
        return Channel(B, jax.nn.softmax(tilt), symmetric=self.interaction == "potts")

    @property
    def stated_accuracy(self) -> float:
        """Lower with four or more components of the field, where averages use quasi-Monte Carlo."""
        return type(self).accuracy if self._rank <= 3 else 1e-3

    @property
    def _correlation(self) -> Array:
        """x = β√ρ u/C, the distance of the dense graph from the edge of its paramagnetic phase at one."""
        u = math.sqrt(self.colours / (self.colours - 1))
        return self.inverse_temperature * jnp.sqrt(self.strength) * u / self.colours

    def _spectrum(self, nodes: int) -> tuple[Array, Array]:
        """Eigenvalues of the other sites' covariance, with weights."""
        if self.graph == "star":
            return jnp.ones(1), jnp.ones(1)
        number, x = 16 * nodes, self._correlation
        angle = np.pi * np.arange(1, number + 1) / (number + 1)
        values = 1.0 / (1.0 + x**2 - 2.0 * x * jnp.cos(angle))
        return values, jnp.asarray(2 / (number + 1) * np.sin(angle) ** 2)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        nodes = numerics.nodes

        def order_parameters(x, model):
            """Order parameters of the fields (m, q, V) and of the weights (J̃·w/N, |w|²/N)."""
            m_hat, q_hat, V_hat = jnp.exp(x)
            c, weights = model._spectrum(nodes)
            R, signal = 1 / (model.penalty + V_hat * c), model.strength * m_hat
            noise = signal * m_hat * c + q_hat
            V, m, q = weights @ (c * R), signal * (weights @ (c**2 * R)), weights @ (noise * c**2 * R**2)
            return (m, q, V), (signal * (weights @ (c * R)), weights @ (noise * c * R**2))

        def update(x, model, nodes=nodes):
            (m, q, V), _ = order_parameters(x, model)
            beta = model.inverse_temperature
            hat = conjugates(model._channel(), beta * m, q, V, nodes)
            return jnp.log(model.samples * jnp.stack([beta * hat.overlap, hat.norm, hat.response]))

        beta, channel = self.inverse_temperature, self._channel()
        truth = beta**2 * self.strength
        # Start from the limit of weak fields, correct up to a factor: every force has the size of its loading.
        force = channel.shares @ jnp.sum(channel.loadings**2, axis=1)
        start = jnp.log(0.5 * self.samples * force * jnp.stack([beta, jnp.ones(()), jnp.ones(())]))
        found = solve(
            update, start, self, tolerance=numerics.tolerance, max_steps=numerics.max_steps,
            rough=partial(update, nodes=nodes // 3),
        )  # fmt: skip
        (m, q, V), (overlap, norm) = order_parameters(found.x, self)
        test_loss, train_loss = fresh_loss(channel, beta * m, q, nodes), trained_loss(channel, beta * m, q, V, nodes)
        optimal = fresh_loss(channel, truth, truth, nodes)
        values = {
            "overlap": overlap,
            "norm": norm,
            "coupling_error": norm - 2 * beta * overlap + truth,
            "test_loss": test_loss,
            "train_loss": train_loss,
            "optimal_loss": optimal,
            "excess_loss": test_loss - optimal,
            "response": V,
            "converged": found.converged & resolved(channel, q, nodes),
            "residual": found.residual,
        }
        if self.graph == "star":
            return values | {"colour_entropy": -jnp.sum(channel.shares * jnp.log(channel.shares))}
        return values | {"converged": values["converged"] & (self._correlation < 1)}

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        model = jax.tree.map(lambda v: v.astype(dtype), self)
        samples, fresh = counts["samples"], min(20 * size, 4000) // (1 if self.graph == "star" else MASKED_SITES)
        # Draw fresh sequences first, so that unmasked rows do not depend on the padding of the training ones.
        rows = fresh + samples.padded
        if self.graph == "star":
            couplings, labels, others, entropy = model._star(key, size, rows, dtype)
            measured = model._learn(couplings, labels, others, samples, fresh)
            return measured | {"colour_entropy": entropy}
        couplings, sequences, earlier = model._dense(key, size, rows, dtype)
        apart = model._memory(couplings, sequences, earlier, jnp.concatenate([jnp.ones(fresh), samples.mask(float)]))

        def masking(site):
            def first(array):
                return jnp.roll(array, -site, axis=-1)

            own = first(sequences)
            return model._learn(first(couplings[site])[1:] * math.sqrt(size), own[:, 0], own[:, 1:], samples, fresh)

        each = jax.lax.map(masking, jnp.arange(min(MASKED_SITES, size + 1)))
        whole = {n: jnp.all(v) if v.dtype == bool else jnp.mean(v) for n, v in each.items()}
        return whole | {
            "converged": whole["converged"] & (self._correlation < 1) & (apart <= R_HAT - 1),
            "residual": jnp.maximum(whole["residual"], apart.astype(dtype)),
        }

    def _star(self, key: Array, size: int, rows: int, dtype: Any) -> tuple[Array, Array, Array, Array]:
        """J̃, exact equilibrium samples of the centre's and the others' colours, and the entropy of p(y)."""
        couplings = jax.random.normal(jax.random.fold_in(key, 0), (size,), dtype)
        couplings = couplings * jnp.sqrt(self.strength * size) / jnp.linalg.norm(couplings)
        uniform = jax.random.uniform(jax.random.fold_in(key, 1), (rows, size + 1), dtype)
        fields = self.inverse_temperature / math.sqrt(size) * couplings
        tilt = fields[None, :, None] * self._colour_matrix().astype(dtype)[:, None, :]  # (centre, site, colour)
        log_shares = jax.nn.log_softmax(jnp.sum(jax.nn.logsumexp(tilt, axis=2), axis=1))
        below = jnp.cumsum(jax.nn.softmax(tilt, axis=2), axis=2)[..., :-1]
        labels = jnp.sum(uniform[:, :1] > jnp.cumsum(jnp.exp(log_shares))[None, :-1], axis=1)
        others = jnp.sum(uniform[:, 1:, None] > below[labels], axis=2)
        return couplings, labels, others, -jnp.sum(jnp.exp(log_shares) * log_shares)

    def _dense(self, key: Array, size: int, rows: int, dtype: Any) -> tuple[Array, Array, Array]:
        """J (with N + 1 sites), sequences from Gibbs sampling, and the same sequences half-way.

        Even rows start at random, odd rows with colour 0 everywhere.
        """
        sites, beta, U = size + 1, self.inverse_temperature, self._colour_matrix().astype(dtype)
        draw = jax.random.normal(jax.random.fold_in(key, 0), (sites, sites), dtype)
        lower = jnp.sqrt(self.strength / size) * jnp.tril(draw, -1)
        couplings = lower + lower.T
        start = jax.random.randint(jax.random.fold_in(key, 1), (rows, sites), 0, self.colours)
        start = jnp.where(jnp.arange(rows)[:, None] % 2 == 0, start, 0)
        colours = jax.nn.one_hot(start.T, self.colours, dtype=jnp.float32)

        def update(step, state):
            site = step % sites
            fields = jnp.tensordot((beta * couplings[site]).astype(jnp.float32), state, axes=1) @ U.astype(jnp.float32)
            below = jnp.cumsum(jax.nn.softmax(fields, axis=1), axis=1)[:, :-1]
            uniform = jax.random.uniform(jax.random.fold_in(key, 2 + step), (rows, 1), jnp.float32)
            return state.at[site].set(jax.nn.one_hot(jnp.sum(uniform > below, axis=1), self.colours, dtype=jnp.float32))

        # Chains are rows of every draw, so that no chain depends on the number of chains or on padding.
        # In the paramagnet the slowest mode shrinks by (2x/(1+x²))² per sweep.
        x = self._correlation
        sweeps = jnp.ceil(8 / (-2 * jnp.log(2 * x / (1 + x**2)))).astype(jnp.int32)
        half = jnp.clip((sweeps + 1) // 2, 5, 500) * sites

        def run(state, number):
            state = jax.lax.fori_loop(half * number, half * (number + 1), update, state)
            return state, jnp.argmax(state, axis=2).T

        _, (earlier, sequences) = jax.lax.scan(run, colours, jnp.arange(2, dtype=half.dtype))
        return couplings, sequences, earlier

    def _memory(self, couplings: Array, sequences: Array, earlier: Array, present: Array) -> Array:
        """R̂ − 1 of the energies between the two kinds of start, and of the resemblance to the own and to another past."""
        rows, U = sequences.shape[0], self._colour_matrix().astype(jnp.float32)
        fields = jnp.einsum("ij,rjb->rib", couplings.astype(jnp.float32), U[sequences])
        energies = jnp.sum(jnp.take_along_axis(fields, sequences[..., None], axis=2), axis=(1, 2))
        number = jnp.arange(rows)
        # another chain with the same kind of start; the first two have no predecessor
        alike = [jnp.sum(sequences == other, axis=1, dtype=float) for other in (earlier, jnp.roll(earlier, 2, axis=0))]
        there = jnp.concatenate([present, jnp.where(number < 2, 0.0, present)])
        own = jnp.arange(2 * rows) < rows
        return jnp.maximum(
            ensemble_r_hat(energies, number % 2 == 1, present), ensemble_r_hat(jnp.concatenate(alike), own, there)
        ) - 1  # fmt: skip

    def _learn(self, couplings: Array, labels: Array, others: Array, samples: Any, fresh: int) -> dict[str, Array]:
        """Fit the row of one masked site to the training sequences and measure it; J̃ is used only for measuring."""
        size, beta, dtype = others.shape[1], self.inverse_temperature, couplings.dtype
        scaled = self._colour_matrix().astype(dtype) / math.sqrt(size)
        features = jnp.swapaxes(scaled[others], 1, 2)
        mask = samples.mask(dtype)
        fit = minimise_cross_entropy(features[fresh:], labels[fresh:], self.penalty, mask)
        w = fit.weights
        true, learnt = (jax.nn.log_softmax(features @ v, axis=1) for v in (beta * couplings, w))
        # Average over the true conditional law of the masked colour instead of one drawn colour.
        law = jnp.exp(true[:fresh])
        test_loss = -jnp.mean(jnp.sum(law * learnt[:fresh], axis=1))
        optimal = -jnp.mean(jnp.sum(law * true[:fresh], axis=1))
        chosen = jnp.take_along_axis(learnt[fresh:], labels[fresh:, None], axis=1)[:, 0]
        return {
            "overlap": couplings @ w / size,
            "norm": w @ w / size,
            "coupling_error": jnp.sum((w - beta * couplings) ** 2) / size,
            "test_loss": test_loss,
            "train_loss": -mask @ chosen / samples.actual.astype(dtype),
            "optimal_loss": optimal,
            "excess_loss": test_loss - optimal,
            "converged": fit.residual < 1e-4,
            "residual": fit.residual,
        }


def _centred(matrix: Any) -> Any:
    """Remove row means, which act as fields, and column means, on which a softmax does not depend."""
    rows, columns = matrix.mean(axis=1), matrix.mean(axis=0)
    return matrix - rows[:, None] - columns[None, :] + matrix.mean()
