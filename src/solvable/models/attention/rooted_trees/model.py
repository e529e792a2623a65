"""A transformer reads the whole numbers, written as rooted trees, and predicts the next or a hidden one.

**Data.** n = ∏ p_i^{a_i} becomes a root whose children, in the order of the primes, are the trees of the exponents; its
Dyck word is one token. The text is the words of 1, 2, …, N: no randomness, an exactly known generator, and structure at
every period p^k. The first 80 % are for training, the rest for testing: later numbers, where the law has drifted. With
`read`, only that many numbers are for training, the last ones before the test: texts of different length, the same test.

**Learner.** A transformer on windows of `context` words at random positions; it sees only words, not n. Task `next`:
causal, every word from those before it. Task `masked`: both sides are visible, an eighth of the words are hidden.

**Theory.** No closed theory. The network is compared with exact tables counted on the same training text: of the word given
its neighbours (Markov chains; both sides when masked), given n mod m (a clock that knows the phase), and given the exponents
of n's primes up to P (trial division that stops there). Tables read the whole text before the test. A learner that finds the
periods in its context can surpass the first; the other two measure its progress.

**Simulation.** Adam with warm-up and cosine decay, networks of several seeds side by side, on a GPU with factors rounded to
eleven bits (the scores are not). Every test number is scored once, and every word by itself too. In `next` every scored
word has at least half a window before it, in `masked` at least a quarter of one on each side.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.training.loops import (
    Optimiser,
    cross_entropies,
    draw_windows,
    evaluate,
    masked_cross_entropy,
    next_token_loss,
    train,
)
from solvable.methods.training.transformers import Transformer
from solvable.model import Control, Count, FirstView, Guard, Model, Reference, choice, control, dimension, observable

from .words import Corpus, both_sides, context_scores, division_scores, past, residue_scores, rooted_trees

TRAINED = 0.8
ORDERS = {"next": 4, "masked": 2}
MODULI = (1, 4, 12, 36, 180, 900)
PRIMES = (2, 3, 5, 7, 11, 13)
PROGRESS = (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
HIDDEN = 8
"""Group size of the mask (task `masked`): one random word is hidden in each group; in the test, every word once."""

CURVE = {"next": 65_536, "masked": 32_768}
"""Number of test words, drawn once, on which the learning curve is measured; the final scores use the whole test."""

PRIME = 1  # the word "10" is the second to appear
WORDS = 16  # words whose scores are given: the first to appear, which are also the most frequent


class RootedTrees(Model):
    """A transformer learns the arithmetic of rooted trees from their text: an experiment, compared with exact tables.

    >>> import solvable as sv
    >>> sv.RootedTrees(task="masked").observables()["neighbour_accuracy"].dims
    ('order',)
    """

    id = "rooted-trees"
    title = "Whole numbers as rooted trees, read by a transformer"
    family = "attention"
    sentence = "A transformer reads the whole numbers as rooted trees, compared with Markov, residue and trial-division tables."
    method = "no closed theory; compared with exact counts and tables"
    runs = "host"
    together = 4
    simulation_dtype = "float32"
    typical_sizes = (5_000, 50_000, 500_000)
    simulation_seconds = 4.0
    simulation_growth = 0.6
    first_view = FirstView(seeds=4)
    guard = Guard(values={"steps": 1, "batch": 1, "context": 8, "embedding": 4, "heads": 1}, size=10000, seeds=2)
    references = (
        Reference(
            "breccia2025testing", "A. Breccia, F. Gerace, M. Lippi, G. Sicuro and P. Contucci",
            "Testing transformer learnability on the arithmetic sequence of rooted trees", 2025, arxiv="2512.01870"),
    )  # fmt: skip

    rate: Control = control(
        3e-3, low=0.0, low_open=True, high=1.0, typical=(1e-4, 1e-2), scale="log", symbol=r"\eta",
        meaning="peak learning rate of Adam, after the warm-up")  # fmt: skip
    steps: Control = control(
        60.0, low=1.0, high=1e6, typical=(20.0, 1e4), scale="log",
        meaning="optimiser steps, a whole number: a tenth of them warm-up, then half a cosine")  # fmt: skip
    task: str = choice(
        "next", options=("next", "masked"),
        meaning="predict the next word (causal), or hidden words from both sides")  # fmt: skip
    depth: int = choice(1, low=1, high=24, meaning="number of blocks of the transformer")
    heads: int = choice(4, low=1, high=64, meaning="attention heads per block; divides the embedding")
    embedding: int = choice(32, low=4, high=4096, meaning="length of the vectors in the transformer")
    context: int = choice(48, low=HIDDEN, high=4096, meaning="words in a window, a multiple of 8")
    batch: int = choice(16, low=1, high=4096, meaning="windows per optimiser step")
    read: int = choice(
        0, low=0, high=10**9,
        meaning="length of the training text, in numbers up to the test; 0: all of them")  # fmt: skip
    positions: str = choice(
        "learned", options=("learned", "rotary"),
        meaning="position encoding: learnt vectors, or relative angles")  # fmt: skip

    dimensions_declared = (
        dimension("given", "number of known previous words", kind="site"),
        dimension("order", "number of words that the table uses", kind="site"),
        dimension("modulus", "period of the clock"),
        dimension("prime", "largest prime of the trial division"),
        dimension("word", "smallest number with this tree", kind="site"),
        dimension("progress", "elapsed fraction of the training", kind="time"),
    )
    main_declared = ("accuracy_curve", "network_accuracy", "markov_accuracy", "division_accuracy")
    observables_declared = (
        observable("distinct_words", "number of different words among 1..N", low=1, predicted=False),
        observable("entropy", "plug-in entropy of a word given 0, 1, 2 words before it, in bits", dims=("given",), low=0,
                   predicted=False),
        observable("word_length", "letters per word", symbol=r"\ell", low=0, predicted=False),
        observable("prime_share", "fraction of primes in the test", low=0, high=1, predicted=False),
        observable("markov_accuracy", "test accuracy of the Markov chain of this order", dims=("order",), low=0, high=1,
                   predicted=False, when={"task": "next"}),
        observable("markov_loss", "cross-entropy per word of that chain, in nats", dims=("order",), low=0, predicted=False,
                   when={"task": "next"}),
        observable("neighbour_accuracy", "test accuracy of the table of this many words on each side", dims=("order",),
                   low=0, high=1, predicted=False, when={"task": "masked"}),
        observable("neighbour_loss", "cross-entropy per word of that table, in nats", dims=("order",), low=0, predicted=False,
                   when={"task": "masked"}),
        observable("residue_accuracy", "test accuracy of the table of n mod m", dims=("modulus",), low=0, high=1,
                   predicted=False),
        observable("residue_loss", "cross-entropy per word of that table, in nats", dims=("modulus",), low=0, predicted=False),
        observable("division_accuracy", "test accuracy of the table of n's exponents of primes up to P", dims=("prime",),
                   low=0, high=1, predicted=False),
        observable("division_loss", "cross-entropy per word of that table, in nats", dims=("prime",), low=0, predicted=False),
        observable("network_accuracy", "fraction of test words that the trained transformer predicts correctly", low=0, high=1,
                   predicted=False),
        observable("network_loss", "cross-entropy per word of the transformer, in nats", low=0, predicted=False),
        observable("prime_recall", "fraction of test primes that the transformer predicts as prime", low=0, high=1,
                   predicted=False),
        observable("prime_precision", "fraction of primes among those it predicts; NaN if it predicts none", low=0, high=1,
                   predicted=False),
        observable("word_share", "share of a word in the test", dims=("word",), low=0, high=1, predicted=False),
        observable("word_recall", "fraction of its occurrences that the transformer predicts; NaN if it has none", low=0,
                   high=1, dims=("word",), predicted=False),
        observable("word_precision", "fraction of its predictions that are correct; NaN if there are none", low=0, high=1,
                   dims=("word",), predicted=False),
        observable("new_share", "share of test words that do not occur in the training text", low=0, high=1, predicted=False),
        observable("new_called", "share of predictions that do not occur in the training text", low=0, high=1,
                   predicted=False),
        observable("accuracy_curve", "accuracy during training, on a part of the test", dims=("progress",), low=0, high=1,
                   predicted=False),
        observable("loss_curve", "cross-entropy during training, on a part of the test", dims=("progress",), low=0,
                   predicted=False),
        observable("train_curve", "mean training loss since the previous point; NaN at the start", dims=("progress",), low=0,
                   predicted=False),
    )  # fmt: skip

    def validate(self) -> None:
        if self.embedding % self.heads:
            raise InvalidValue(f"heads = {self.heads} does not divide embedding = {self.embedding}.")
        if self.context % HIDDEN:
            raise InvalidValue(f"context = {self.context} is not a multiple of {HIDDEN}, the number of words per mask.")

    def coordinates(self) -> dict[str, np.ndarray]:
        return {
            "given": np.arange(3),
            "order": np.arange(ORDERS[self.task] + 1),
            "modulus": np.array(MODULI),
            "prime": np.array(PRIMES),
            "word": first_numbers(),
            "progress": np.array(PROGRESS),
        }

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Any]:
        return self.experiments(key[None], size, counts, dtype)[0]

    def experiments(
        self, keys: Key[Array, " lanes"], size: int, counts: Mapping[str, Count], dtype: Any
    ) -> list[dict[str, Any]]:
        begin = int(TRAINED * size)
        if size - begin < 2 * self.context:
            raise InvalidValue(
                f"size = {size} leaves no test for context = {self.context}: use at least {10 * self.context}."
            )
        if self.read and not self.context <= self.read <= begin:
            raise InvalidValue(f"read = {self.read} is not in [{self.context}, {begin}], the numbers before the test.")
        corpus, common = rooted_trees(size), tables(size, self.task)
        return [common | one for one in self._learn(keys, corpus, begin, dtype)]

    def _learn(self, keys: Key[Array, " lanes"], corpus: Corpus, begin: int, dtype: Any) -> list[dict[str, Any]]:
        starts, walks = jax.vmap(jax.random.split, out_axes=1)(keys)
        options = {"width": self.embedding, "depth": self.depth, "heads": self.heads, "causal": self.task == "next",
                   "positions": self.positions, "dtype": dtype}  # fmt: skip
        networks = _made(starts, len(corpus.words), self.context, tuple(options.items()))
        steps = round(float(self.steps))
        optimiser = Optimiser(
            "adam", rate=self.rate, warmup=steps // 10, steps=steps, memory=(0.9, 0.99), clip=1.0, decay=0.1
        )
        text = corpus.ids[begin - self.read if self.read else 0 : begin]
        test = jnp.asarray(windows(corpus.ids[begin:], self.context))
        few = min(len(test), CURVE[self.task] // (self.context // 2))
        some = test[np.sort(np.random.default_rng(0).choice(len(test), few, replace=False))]
        record = np.round(np.array(PROGRESS) * steps).astype(int)
        loss, scores = Reading(self.task, self.batch, self.context), Scores(self.task, len(corpus.words))
        run = train(
            networks, loss, jnp.asarray(text), optimiser, steps, walks, record=np.unique(record), measure=scores,
            held_out=some, precision="default",
        )  # fmt: skip
        where = np.searchsorted(run.steps, record)
        final = jax.device_get(evaluate(run.network, scores, test, True))
        new = np.bincount(text, minlength=len(corpus.words)) == 0
        found = []
        for lane in range(len(keys)):
            there, called, right = (final[n][lane] for n in ("there", "called", "right"))
            with np.errstate(invalid="ignore"):  # 0/0: no such word, or never predicted
                recall, precision = right / there, right / called
            found.append({
                "network_accuracy": final["accuracy"][lane],
                "network_loss": final["loss"][lane],
                "prime_recall": recall[PRIME],
                "prime_precision": precision[PRIME],
                "word_share": _first(there / there.sum(), 0.0),
                "word_recall": _first(recall),
                "word_precision": _first(precision),
                "new_share": there[new].sum() / there.sum(),
                "new_called": called[new].sum() / called.sum(),
                "accuracy_curve": run.measures["accuracy"][where, lane],
                "loss_curve": run.measures["loss"][where, lane],
                "train_curve": run.losses[where, lane],
            })  # fmt: skip
        return found


@eqx.filter_jit
def _made(keys: Key[Array, " lanes"], words: int, context: int, options: tuple[tuple[str, Any], ...]) -> Transformer:
    return eqx.filter_vmap(lambda key: Transformer(words, context, **dict(options), key=key))(keys)


def _first(values: np.ndarray, missing: float = np.nan) -> np.ndarray:
    """Values of the first words; short texts have fewer."""
    return np.append(values, np.full(WORDS, missing))[:WORDS]


@lru_cache(maxsize=1)
def first_numbers() -> np.ndarray:
    """The smallest numbers whose trees are the first words.

    >>> first_numbers()[:6].tolist()
    [1, 2, 4, 6, 12, 16]
    """
    return np.unique(rooted_trees(2000).ids, return_index=True)[1][:WORDS] + 1


class Reading(eqx.Module):
    """The training loss of either task, on windows at random positions of the text."""

    task: str = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    context: int = eqx.field(static=True)

    def __call__(self, network: Any, text: Array, key: PRNGKeyArray) -> Array:
        place, hide = jax.random.split(key)
        rows = draw_windows(place, text, self.batch, self.context)
        if self.task == "next":
            return next_token_loss(network, rows)
        # Hide one random word of each eight: every window has hidden words, and their neighbours are mostly visible.
        groups = jax.random.bits(hide, (self.batch, self.context // HIDDEN), jnp.uint8) % np.uint8(HIDDEN)
        masked = jax.nn.one_hot(groups, HIDDEN, dtype=bool).reshape(self.batch, self.context)
        return masked_cross_entropy(network, rows, masked)


class Scores(eqx.Module):
    """Accuracy, cross-entropy, and how often each word is there, predicted, and both, over the scored half of every window."""

    task: str = eqx.field(static=True)
    words: int = eqx.field(static=True)

    def __call__(self, network: Any, test: Array) -> dict[str, Array]:
        context = test.shape[1]
        begin = context // 2 if self.task == "next" else context // 4
        scored = slice(begin, begin + context // 2)

        def of_one(row: Array) -> dict[str, Array]:
            logits = self._logits(network, row)[scored]
            words, best = row[scored], jnp.argmax(logits, -1).astype(jnp.int32)
            there, called = (jax.nn.one_hot(one, self.words, dtype=bool) for one in (words, best))
            return {
                "accuracy": jnp.mean((best == words).astype(jnp.float32)),
                "loss": jnp.mean(cross_entropies(logits, words)).astype(jnp.float32),
                "there": jnp.sum(there, axis=0),
                "called": jnp.sum(called, axis=0),
                "right": jnp.sum(there & called, axis=0),
            }

        each = jax.lax.map(of_one, test.astype(jnp.int32), batch_size=min(32, test.shape[0]))
        return {n: jnp.mean(v) if n in ("accuracy", "loss") else jnp.sum(v, axis=0) for n, v in each.items()}

    def _logits(self, network: Any, row: Array) -> Array:
        """Logits for the word at every position of a window, from the words visible in the task."""
        if self.task == "next":
            logits = network(row)
            return jnp.concatenate([logits[:1], logits[:-1]])  # the first position has no past and is not scored
        # As in training, each group of eight hides a random position: equal distances would hide one phase of n.
        shift = np.random.default_rng(0).integers(HIDDEN, size=row.shape[0] // HIDDEN)
        here = (np.arange(row.shape[0]) + np.repeat(shift, HIDDEN)) % HIDDEN
        masks = jnp.asarray(here[None, :] == np.arange(HIDDEN)[:, None])
        logits = jax.vmap(lambda masked: network(row, masked))(masks)
        return jnp.sum(jnp.where(masks[:, :, None], logits, 0.0), 0)


def windows(ids: np.ndarray, context: int) -> np.ndarray:
    """Windows of a text that overlap by half, so that the scored halves cover it.

    >>> windows(np.arange(8), 4).tolist()
    [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    """
    starts = np.arange(0, len(ids) - context + 1, context // 2)
    return ids[starts[:, None] + np.arange(context)[None, :]]


@lru_cache(maxsize=8)
def tables(size: int, task: str) -> dict[str, Any]:
    """Statistics of the text and scores of the tables on its last fifth; they depend on the numbers alone."""
    corpus, begin = rooted_trees(size), int(TRAINED * size)
    contexts = past(ORDERS[task]) if task == "next" else both_sides(ORDERS[task])
    near = context_scores(corpus.ids, len(corpus.words), begin, contexts)
    clock = [residue_scores(corpus, begin, m) for m in MODULI]
    divided = [division_scores(corpus, begin, p) for p in PRIMES]
    name = "markov" if task == "next" else "neighbour"
    out: dict[str, Any] = {
        "distinct_words": len(corpus.words),
        "entropy": np.array([corpus.entropy(given) for given in range(3)]),
        "word_length": corpus.word_length,
        "prime_share": float(np.mean(corpus.ids[begin:] == PRIME)),
    }
    for prefix, scores in ((name, near), ("residue", clock), ("division", divided)):
        out[f"{prefix}_accuracy"] = np.array([s.accuracy for s in scores])
        out[f"{prefix}_loss"] = np.array([s.loss for s in scores])
    return out
