"""What do transformers learn from masked language modelling? Sequences of a planted Potts model, and four learners.

**Data.** Sequences of L sites and C colours, P(s) ∝ exp(β Σ_{i<j} J_ij s_iᵀ U s_j), J ∈ {0, 1} on a sparse random graph (or
a ring), U a random symmetric matrix (or the identity of the standard Potts model). Sequences are drawn by Gibbs sampling; runs
that have not mixed are discarded. All learners with one seed get the same training, validation and test sequences.

**Learners**, all trained to predict a masked colour from all others:

- `factored`: one layer of factored attention, logits_i = Σ_j A_ij V s_j, whose map sees positions only and whose values see
  colours only; exactly the form of the conditionals (Rende et al. 2024);
- `dense`: pseudo-likelihood with a coupling for every pair of sites and colours;
- `transformer`: an encoder whose map and values see both tokens and positions, through learned vectors that are added or
  concatenated; `block = "bare"` is one attention layer and a linear head.

The penalty of the first two and the stopping time of the third are chosen on validation sequences, so that every learner is
at its best.

**Measured**: the masked loss on fresh sequences, averaged over the hidden colour by the true conditionals; its excess over
the loss of the true conditionals, a lower bound for every learner; and how well the learnt map reproduces J. There is no
closed theory here (for factored attention with known U there is one: `potts-attention`).
`solvable figure what-transformers-learn` draws studies of the arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.model import Control, Count, Guard, Input, Model, Reference, choice, control, dimension, input, observable

from .._papers import MAPPING
from .learners import Learnt, learn_couplings, learn_transformers
from .sequences import Planted, Sequences, contact_precision, coupling_error, map_correlation, planted, shared_sequences


class MaskedLanguage(Model):
    """Masked language modelling of Potts sequences by factored attention, dense pseudo-likelihood and transformers.

    The `size` of a simulation is the number of training sequences.

    >>> import solvable as sv
    >>> seen = sv.MaskedLanguage(learner="factored").simulate(seed=0, size=2000)
    >>> bool(seen.excess_loss < 0.01), bool(seen.contact_precision == 1.0)
    (True, True)
    """

    id = "masked-language"
    title = "Masked language modelling of Potts sequences"
    family = "attention"
    sentence = "What transformers, factored attention and dense couplings learn from masked Potts sequences."
    method = "no closed theory; the optimal loss is exact"
    revision = 3
    runs = "host"
    together = 16
    typical_sizes = (500, 1000, 2000)
    simulation_seconds = 7.0
    simulation_growth = 1.0
    arms_declared = MappingProxyType(
        {
            "factored": {"learner": "factored"},
            "dense": {"learner": "dense"},
            "1 layer": {"learner": "transformer", "depth": 1},
            "2 layers": {"learner": "transformer", "depth": 2},
            "3 layers": {"learner": "transformer", "depth": 3},
            "bare layer": {"learner": "transformer", "depth": 1, "block": "bare"},
            "1 layer, concatenated": {"learner": "transformer", "depth": 1, "positions": "concatenated"},
        }
    )
    paired = (
        "rate", "learner", "depth", "embedding", "heads", "attention", "block", "positions", "steps", "batch", "recorded",
        "penalties",
    )  # fmt: skip
    guard = Guard(values={"steps": 5, "sites": 6, "colours": 3, "held_out": 100, "penalties": [1.0]}, size=50, seeds=2)
    references = (
        MAPPING,
        Reference(
            "bhattacharya2020single", "N. Bhattacharya, N. Thomas, R. Rao, J. Dauparas, P. K. Koo, D. Baker, Y. S. Song "
            "and S. Ovchinnikov", "Single layers of attention suffice to predict protein contacts", 2020,
            "bioRxiv 2020.12.21.423882"),
    )  # fmt: skip

    inverse_temperature: Control = control(
        0.7, low=0.0, high=3.0, typical=(0.2, 1.0), symbol=r"\beta", meaning="strength of all interactions")  # fmt: skip
    rate: Control = control(
        2e-3, low=0.0, low_open=True, high=1.0, typical=(1e-4, 1e-2), scale="log", symbol=r"\eta",
        meaning="largest learning rate of Adam (transformer)", when={"learner": "transformer"})  # fmt: skip
    learner: str = choice("factored", options=("factored", "dense", "transformer"), meaning="what is trained")
    sites: int = choice(10, low=3, high=500, symbol="L", meaning="length of a sequence")
    colours: int = choice(5, low=2, high=50, symbol="C", meaning="number of colours")
    graph: str = choice(
        "random",
        options=("random", "ring"),
        symbol="J",
        meaning="which sites interact: every site picks two, or a ring",
    )
    interaction: str = choice(
        "random", options=("random", "potts"), symbol="U",
        meaning="how colours interact: a Gaussian (X+Xᵀ)/2, or equal colours only")  # fmt: skip
    instance: int = choice(3, low=0, high=1_000_000, meaning="index of the random J and U")
    depth: int = choice(1, low=1, high=4, meaning="layers (transformer)", when={"learner": "transformer"})
    embedding: int = choice(32, low=1, high=512, meaning="width of the transformer: length of its vectors")
    heads: int = choice(1, low=1, high=16, symbol="H", meaning="attention heads (factored, transformer)")
    attention: str = choice(
        "free", options=("free", "softmax"), meaning="map of factored attention: any numbers, or rows of a softmax"
    )
    block: str = choice(
        "full",
        options=("full", "bare"),
        meaning="with residual, layer norm and MLP, or attention alone (transformer)",
        when={"learner": "transformer"},
    )
    positions: str = choice(
        "added", options=("added", "concatenated"),
        meaning="position vectors: added to token vectors, or concatenated, half the embedding each (transformer)",
        when={"learner": "transformer"})  # fmt: skip
    steps: int = choice(
        1000, low=1, high=1_000_000, meaning="steps of Adam (transformer)", when={"learner": "transformer"}
    )
    batch: int = choice(
        256, low=1, high=100_000, meaning="sequences per step (transformer)", when={"learner": "transformer"}
    )
    recorded: int = choice(
        12,
        low=1,
        high=1000,
        meaning="number of evaluations during training (transformer)",
        when={"learner": "transformer"},
    )
    held_out: int = choice(2000, low=10, high=100_000, meaning="validation sequences, and as many test sequences")
    penalties: Input = input(
        (0.3, 1.0, 3.0, 10.0), dims=("penalty",), low=0.0,
        meaning="penalties from which the validation loss chooses one (factored, dense)")  # fmt: skip

    dimensions_declared = (
        dimension("site", "site whose colour is predicted", symbol="i", kind="site"),
        dimension("partner", "site that is attended to", symbol="j", kind="site"),
        dimension("colour", "predicted colour", kind="site"),
        dimension("other", "colour of the partner", kind="site"),
        dimension("record", "index of the evaluation", kind="time"),
    )
    main_declared = ("excess_loss", "coupling_error", "contact_precision", "map_correlation")
    observables_declared = (
        observable("test_loss", "masked cross-entropy on fresh sequences, nats per site", low=0, predicted=False),
        observable("optimal_loss", "the same for the true conditionals", low=0, predicted=False),
        observable("excess_loss", "test loss above the optimal one, on the same sequences", low=0, predicted=False),
        observable("train_loss", "masked cross-entropy of the training sequences", low=0, predicted=False),
        observable("map_correlation", "correlation of the learnt map with J over all pairs of sites", low=-1, high=1,
                   predicted=False),
        observable("contact_precision", "share of true contacts among the map's highest entries", low=0, high=1,
                   predicted=False),
        observable("coupling_error", "relative error of the couplings in zero-sum gauge", low=0, predicted=False,
                   when={"learner": ("factored", "dense")}),
        observable("validation_loss", "masked cross-entropy of the validation sequences", low=0, predicted=False),
        observable("map", "learnt interaction strength of pairs of sites: attention map, or contact scores",
                   symbol="A", dims=("site", "partner"), predicted=False),
        observable("colour_map", "values of the attention in zero-sum gauge, up to a factor", symbol="V",
                   dims=("colour", "other"), predicted=False, when={"learner": "factored"}),
        observable("curve", "excess loss during training", dims=("record",), predicted=False,
                   when={"learner": "transformer"}),
        observable("curve_step", "step of that evaluation", dims=("record",), low=0, predicted=False,
                   when={"learner": "transformer"}),
        observable("best_step", "evaluated step with the lowest validation loss", low=0, predicted=False,
                   when={"learner": "transformer"}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.learner != "transformer":
            return
        if self.embedding % self.heads:
            raise InvalidValue(f"heads = {self.heads} does not divide embedding = {self.embedding}.")
        if self.positions == "concatenated" and self.embedding < 2:
            raise InvalidValue(
                "embedding = 1 is too short for positions = 'concatenated': a token and a position need at least 2."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        sites, colours = np.arange(self.sites), np.arange(self.colours)
        return {"site": sites, "partner": sites, "colour": colours, "other": colours,
                "record": np.arange(self.recorded + 1)}  # fmt: skip

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        return self.experiments(key[None], size, counts, dtype)[0]

    def experiments(
        self, keys: Key[Array, " lanes"], size: int, counts: Mapping[str, Count], dtype: Any
    ) -> list[dict[str, Array]]:
        """Transformers are trained side by side, each on its own sequences; on a GPU in single precision with rounded factors."""
        beta = float(self.inverse_temperature)
        data = planted(self.instance, self.sites, self.colours, beta, self.graph, self.interaction)
        to_draw, to_learn = jax.vmap(jax.random.split, out_axes=1)(keys)
        drawn = [shared_sequences(key, data, size, self.held_out) for key in to_draw]
        learnt = self._learn(drawn, to_learn)
        return [self._measured(*pair, data, beta) for pair in zip(learnt, drawn, strict=True)]

    def _measured(self, learnt: Learnt, drawn: Sequences, data: Planted, beta: float) -> dict[str, Array]:
        true = np.asarray(data.couplings)
        seen: dict[str, Any] = {
            "test_loss": drawn.optimal + learnt.excess_loss,
            "optimal_loss": drawn.optimal,
            "excess_loss": learnt.excess_loss,
            "train_loss": learnt.train_loss,
            "map_correlation": map_correlation(learnt.map, true),
            "contact_precision": contact_precision(learnt.map, true),
            "validation_loss": learnt.validation_loss,
            "map": learnt.map,
        }
        if learnt.couplings is not None:
            seen["coupling_error"] = coupling_error(learnt.couplings, data, beta)
        if learnt.colours is not None:
            seen["colour_map"] = learnt.colours
        if learnt.curve is not None:
            seen |= {"curve": learnt.curve, "curve_step": learnt.steps, "best_step": learnt.best_step}
        return {n: jnp.asarray(v, float) for n, v in seen.items()} | {
            "converged": jnp.asarray(learnt.converged and drawn.mixed), "residual": jnp.asarray(drawn.apart)
        }  # fmt: skip

    def _learn(self, drawn: list[Sequences], keys: Key[Array, " lanes"]) -> list[Learnt]:
        if self.learner == "transformer":
            return learn_transformers(
                drawn, self.colours, keys, width=self.embedding, depth=self.depth, heads=self.heads, block=self.block,
                positions={"added": "learned"}.get(self.positions, self.positions), steps=self.steps, batch=self.batch,
                rate=float(self.rate), recorded=self.recorded)  # fmt: skip
        options = {"heads": self.heads, "attention": self.attention} if self.learner == "factored" else {}
        penalties = [float(p) for p in np.asarray(self.penalties)]
        return [
            learn_couplings(self.learner, one, self.colours, key, penalties=penalties, **options)
            for one, key in zip(drawn, keys, strict=True)
        ]
