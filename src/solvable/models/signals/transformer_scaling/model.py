r"""Small transformers whose learning rate is tuned once: which rule carries it over to other widths and depths?

**Data.** Sequences of a random language: the logits of the next of C letters are a sum of two tables, one for each of the last
two letters, with entries drawn once from N(0, g²/2) (`instance`, `contrast`). Every batch is fresh. The entropy per
letter, which no learner beats, is measured on the test sequences. Or text: windows of
the reference that comes with Python (`data = "documentation"`) or of the source of its standard library (`"library"`, ten times
as long), over the C − 1 most common characters and *other*; the last tenth is the test, and the entropy is replaced by the loss
of the frequencies of a character given the last two.

**Learner.** A GPT (`network`) of width N (the size of a simulation) and depth L, trained by AdamW at a constant rate after a
short warm-up. A *rule* translates the settings of a base model of width N₀ and depth L₀ to those of the network: initial
variances, multipliers of branches and logits, and rate, ε and weight decay of every group of parameters:

- `standard`: nothing follows the size, as in GPT-2;
- `mup`: the width alone;
- `depth-mup`: branches times (L/L₀)^{−1/2};
- `completep`: branches times (L/L₀)^{−1}.

**Theory.** None: this is an experiment. What is expected: if a rule transfers, the best rate and the size of the changes of
activations (`change`, a coordinate check) depend neither on width nor on depth.

**Simulation.** Loss on test sequences during training, and the mean absolute change of the residual stream since the start, at
five places between embedding and last block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.training.loops import cross_entropies, draw_windows
from solvable.model import Control, Count, Guard, Model, choice, control, dimension, observable

from .._parametrisations import RULES
from ..depth_transfer.model import BORDELON, DEY, PLACES
from .documentation import TEXTS, text_as_letters
from .network import GPT, AtSize, adamw, at_size, initialised

TESTED, WINDOWS = 64, 256
"""Test sequences of the random language, and of the text."""
HELD_OUT = 0.1
"""The end of the text that is never trained on."""
RECORDS = 8
"""Records of the loss in the course of training; the coordinate check records the first steps."""


class Language(NamedTuple):
    """Logits of the next letter after every pair, and of a text what is trained on and the windows that are tested."""

    logits: Array
    text: Array | None = None
    tested: Array | None = None


class TransformerScaling(Model):
    """A GPT on a random language, with hyperparameters of a base model that a rule carries over to its width and depth.

    The `size` of a simulation is the width N, a multiple of the head size.

    >>> import solvable as sv
    >>> seen = sv.TransformerScaling(depth=2, steps=8, rate=0.01).simulate(seed=0, size=16)
    >>> seen.test_loss.shape, seen.change.shape
    ((9,), (9, 5))
    """

    id = "transformer-scaling"
    title = "Hyperparameters of transformers across width and depth"
    family = "signals"
    sentence = "Small transformers under four rules (standard, μP, depth-μP, CompleteP): which carry a tuned rate over."
    method = "no closed theory; training across widths and depths"
    typical_sizes = (32, 64, 128)
    simulation_seconds = 20.0
    paired = ("rule", "rate", "epsilon", "decay", "depth")
    guard = Guard(values={"depth": 2, "steps": 8, "batch": 4, "context": 8, "letters": 4}, size=16, seeds=2)
    references = (DEY, BORDELON)

    rate: Control = control(
        2.0**-7, low=0.0, low_open=True, high=10.0, typical=(2.0**-12, 2.0**-3), scale="log", symbol=r"\eta",
        meaning="learning rate of the base model")  # fmt: skip
    scale: Control = control(
        0.1, low=0.0, low_open=True, high=10.0, typical=(0.02, 0.3), scale="log", symbol=r"\sigma",
        meaning="initial standard deviation of the matrices of the base model")  # fmt: skip
    epsilon: Control = control(
        1e-8, low=0.0, high=1.0, typical=(1e-12, 1e-4), scale="log", symbol=r"\epsilon",
        meaning="AdamW's ε of the base model")  # fmt: skip
    decay: Control = control(
        0.0, low=0.0, high=10.0, typical=(0.0, 0.2), symbol=r"\lambda",
        meaning="decoupled weight decay of the base model")  # fmt: skip
    contrast: Control = control(
        2.0, low=0.0, high=20.0, typical=(0.5, 3.0), symbol="g", when={"data": "random"},
        meaning="standard deviation of the logits of the language")  # fmt: skip
    data: str = choice("random", options=("random", *TEXTS),
                       meaning="a random language, or the reference of the Python language, or its standard library")  # fmt: skip
    rule: str = choice("completep", options=tuple(RULES), meaning="how settings follow width and depth")
    depth: int = choice(2, high=512, symbol="L", meaning="number of blocks, each with attention and an MLP")
    steps: int = choice(128, low=RECORDS, high=100_000, symbol="T", meaning="steps of AdamW")
    batch: int = choice(16, high=4096, meaning="sequences in a batch")
    context: int = choice(16, low=3, high=4096, meaning="letters in a sequence")
    letters: int = choice(8, low=2, high=256, symbol="C", meaning="letters of the language")
    head_size: int = choice(16, high=1024, meaning="length of the vectors of an attention head")
    base_width: int = choice(32, high=100_000, symbol="N_0", meaning="width of the base model")
    base_depth: int = choice(2, high=512, symbol="L_0", meaning="depth of the base model")
    instance: int = choice(0, low=0, high=10**9, meaning="number of the language")

    dimensions_declared = (
        dimension("time", "steps of training", symbol="t", kind="time"),
        dimension("step", "first steps of training", symbol="t", kind="time"),
        dimension("layer", "block over depth, rounded down to a whole block", symbol=r"\ell/L"),
    )
    main_declared = ("test_loss", "final_loss", "excess_loss", "change")
    observables_declared = (
        observable("test_loss", "cross-entropy of the next letter on test sequences", dims=("time",), low=0, predicted=False),
        observable("final_loss", "the same at the end of training", low=0, predicted=False),
        observable("excess_loss", "final loss above that of the law of a letter given the last two", predicted=False),
        observable("change", "mean absolute change of the residual stream since the start, on test sequences",
                   dims=("step", "layer"), low=0, predicted=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {
            "time": np.append(0, RECORDS + self._part * np.arange(RECORDS)),
            "step": np.arange(RECORDS + 1),
            "layer": np.asarray(PLACES),
        }

    @property
    def _part(self) -> int:
        """Steps between two records of the loss, after the first ones."""
        return (self.steps - RECORDS) // (RECORDS - 1)

    def language(self, dtype: Any) -> Language:
        """The tables of the random language, or a text: what is the same for all seeds."""
        if self.data == "random":
            tables = jax.random.normal(jax.random.key(self.instance), (2, self.letters, self.letters), dtype)
            return Language(self.contrast.astype(dtype) * (tables[0][:, None] + tables[1][None]) / 2**0.5)
        text, c = text_as_letters(self.data, self.letters), self.letters
        held = int(len(text) * (1 - HELD_OUT))
        seen, unseen = text[:held], text[held:]
        counts = np.bincount((seen[:-2] * c + seen[1:-1]) * c + seen[2:], minlength=c**3).reshape(c, c, c)
        logits = np.log(counts + 10.0 * (counts.sum((0, 1)) + 1) / len(seen))
        starts = np.linspace(0, len(unseen) - self.context, WINDOWS).astype(int)
        tested = unseen[starts[:, None] + np.arange(self.context)[None]]
        return Language(jnp.asarray(logits, dtype), jnp.asarray(seen), jnp.asarray(tested))

    def _batches(self, language: Language, to_test: PRNGKeyArray) -> tuple[Array, Callable[[PRNGKeyArray], Array]]:
        """Test sequences, and a function that draws a batch."""
        logits, text, tested = language
        if text is None or tested is None:
            tested = sequences(logits, TESTED, self.context, to_test)
            return tested, lambda key: sequences(logits, self.batch, self.context, key)
        return tested, lambda key: draw_windows(key, text, self.batch, self.context)

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        return self.trained(key, size, self.setting(size), dtype)

    def setting(self, size: int) -> AtSize:
        """What the rule sets for a network of this width."""
        if size % self.head_size:
            raise InvalidValue(f"size = {size} is not a multiple of head_size = {self.head_size}: it is the width.")
        return at_size(self.rule, width=size, depth=self.depth, base_width=self.base_width, base_depth=self.base_depth)

    def trained(
        self, key: PRNGKeyArray, size: int, setting: AtSize, dtype: Any, language: Language | None = None
    ) -> dict[str, Array]:
        """Train one network under a rule, whose numbers may be arrays, and measure it.

        `language` is `self.language(dtype)`; as an argument of a compiled function it is no constant that the compiler folds.
        """
        to_draw, to_test, to_train = jax.random.split(key, 3)
        language = self.language(dtype) if language is None else language
        drawn = GPT.draw(
            self.letters,
            self.context,
            width=size,
            depth=self.depth,
            heads=size // self.head_size,
            key=to_draw,
            dtype=dtype,
        )
        network: Any = initialised(drawn, setting, self.scale.astype(dtype))
        optimiser = adamw(
            drawn, setting, rate=self._warmed(dtype), epsilon=self.epsilon.astype(dtype), decay=self.decay.astype(dtype)
        )
        tested, draw_batch = self._batches(language, to_test)
        places = np.floor(self.depth * np.asarray(PLACES)).astype(int)

        def forward(network: GPT, letters: Array) -> tuple[Array, Array]:
            # The multipliers enter here and not as fields of the network that is trained: they may be arrays.
            return jax.vmap(lambda s: network.with_stream(s, setting.forward))(letters)

        def loss(network: GPT, seen: Array) -> Array:
            return jnp.mean(cross_entropies(forward(network, seen[:, :-1])[0], seen[:, 1:])[:, 1:])

        def stream(network: GPT) -> Array:
            return forward(network, tested[:, :-1])[1][:, places]

        def step(number: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
            network, memory = state
            slope = jax.grad(loss)(network, draw_batch(jax.random.fold_in(to_train, number)))
            with jax.numpy_dtype_promotion("standard"):  # optax mixes Python floats and integers
                updates, memory = optimiser.update(slope, memory, network)
            return eqx.apply_updates(network, updates), memory

        start = stream(network)

        def record(state: tuple[Any, Any], between: Array) -> tuple[tuple[Any, Any], tuple[Array, Array]]:
            """Train from one step to another, then measure."""
            state = jax.lax.fori_loop(between[0], between[1], step, state)
            change = jnp.mean(jnp.abs(stream(state[0]) - start), axis=(0, 2, 3))
            return state, (change, loss(state[0], tested))

        # The first steps are measured one by one for the coordinate check, the others in equal parts.
        stops = np.append(np.arange(RECORDS), self.coordinates()["time"][1:])
        between = jnp.asarray(np.stack([np.append(0, stops[:-1]), stops], axis=1))
        _, (changes, losses) = jax.lax.scan(record, (network, optimiser.init(network)), between)
        changes, losses = changes[: RECORDS + 1], jnp.append(losses[0], losses[RECORDS:])
        entropy = jnp.mean(cross_entropies(language.logits[tested[:, :-2], tested[:, 1:-1]], tested[:, 2:]))
        return {
            "test_loss": losses,
            "final_loss": losses[-1],
            "excess_loss": losses[-1] - entropy,
            "change": changes,
            "converged": jnp.all(jnp.isfinite(losses)),
        }

    def _warmed(self, dtype: Any) -> Any:
        rate = self.rate.astype(dtype)
        return lambda step: rate * jnp.minimum(1.0, (step + 1.0) / RECORDS).astype(dtype)


def sequences(logits: Array, number: int, length: int, key: PRNGKeyArray) -> Array:
    """Sequences in which each letter is drawn given the last two; the first two are uniform."""
    letters = logits.shape[0]
    to_start, to_go = jax.random.split(key)
    start = jax.random.randint(to_start, (2, number), 0, letters)
    noise = jax.random.gumbel(to_go, (length - 1, number, letters), logits.dtype)

    def following(last: tuple[Array, Array], noise: Array) -> tuple[tuple[Array, Array], Array]:
        letter = jnp.argmax(logits[last[0], last[1]] + noise, axis=-1).astype(start.dtype)
        return (last[1], letter), letter

    rest = jax.lax.scan(following, (start[0], start[1]), noise)[1]
    return jnp.concatenate([start, rest]).T
