"""Claims about transformers that read the integers as rooted trees, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE, LENGTH = "rooted-trees-learning", "rooted-trees-length"
SETTINGS = "numbers to 10⁶, four layers of width 128, context 256, 3,000 steps, three seeds"


def _ahead(runs: Any, table: str, words: str) -> Measured:
    """Accuracy of the network on later numbers minus that of the best table of a kind."""
    dim = {"markov": "order", "neighbour": "order", "residue": "modulus"}[table]
    best = runs[f"{table}_accuracy_simulated"].max(dim)
    return Measured(words, *mean_and_error(runs.network_accuracy_simulated - best), above=0.0)


def _next_word(stored: Stored) -> list[Measured]:
    runs = stored[f"{FIGURE}.next"].isel(size=0)
    alone = runs.markov_accuracy_simulated.sel(order=0)  # what remains if words are shuffled
    return [
        _ahead(runs, "markov", "accuracy above the best Markov chain (orders 0 to 4)"),
        _ahead(runs, "residue", "accuracy above the best table of residues (n mod 900)"),
        Measured(
            "accuracy above that of word frequencies",
            *mean_and_error(runs.network_accuracy_simulated - alone),
            above=0.0,
        ),
    ]


def _masked_word(stored: Stored) -> list[Measured]:
    runs = stored[f"{FIGURE}.masked"].isel(size=0)
    return [_ahead(runs, "neighbour", "accuracy above the best table of neighbours (up to two per side)")]


def _partial(stored: Stored) -> list[Measured]:
    found = []
    for task, words in (("next", "next word"), ("masked", "hidden word")):
        runs = stored[f"{FIGURE}.{task}"].isel(size=0)
        recall, precision = runs.prime_recall_simulated, runs.prime_precision_simulated
        ratio = mean_and_error(recall / runs.network_accuracy_simulated)
        above = mean_and_error(precision / runs.prime_share_simulated)
        found += [
            Measured(f"recall of primes over the accuracy on all words, {words}", *ratio, below=0.5),
            Measured(f"precision of primes over their share, {words}", *above, above=1.0),
        ]
    return found


def _by_word(stored: Stored) -> list[Measured]:
    """How unevenly words are learnt, and how often words are predicted that the network never read."""
    runs = stored[f"{LENGTH}.own"].isel(size=-1)
    often = runs.word_share_simulated.mean("seed") >= 0.01
    best = runs.word_recall_simulated.where(often).max("word")
    apart = mean_and_error(best - runs.prime_recall_simulated)
    words = "largest recall of a word with a share of 1 % or more, minus that of primes, one layer"
    return [
        Measured(words, *apart, above=0.3),
        Measured("share of its predictions that do not occur in the training text",
                 float(runs.new_called_simulated.max()), below=1e-4),
    ]  # fmt: skip


def _longer(stored: Stored) -> list[Measured]:
    own, same = (stored[f"{LENGTH}.{name}"].network_accuracy_simulated for name in ("own", "same"))
    found = []
    for runs, dim, words in (
        (own, "size", "later numbers of each text"), (same.isel(size=0), "read", "the last fifth of 10⁶")
    ):  # fmt: skip
        for n in range(runs.sizes[dim] - 1):
            short, long = (runs.isel({dim: k}) for k in (n, n + 1))
            gain = mean_and_error(long - short.drop_vars(dim))
            ends = f"{int(short[dim]):,} to {int(long[dim]):,} numbers"
            found.append(Measured(f"gain of accuracy from {ends}, tested on {words}", *gain, above=0.0))
    return found


CLAIMS = (
    Claim(
        "A transformer learns part of the grammar of the integers written as trees.",
        "breccia2025testing",
        "its accuracy on the next word, for later numbers, is above that of every Markov chain",
        "words in shuffled order: word frequencies are all that is left",
        (FIGURE,), _next_word, SETTINGS,
    ),
    Claim(
        "It also learns from predicting hidden words.",
        "breccia2025testing",
        "its accuracy is above that of tables of neighbouring words",
        "words in shuffled order: word frequencies are all that is left",
        (FIGURE,), _masked_word, SETTINGS,
    ),
    Claim(
        "Learning is partial: motifs are learnt, primes hardly.",
        "breccia2025testing",
        "few of the primes are found, although predicted primes are correct more often than by chance",
        "the share of primes among later numbers",
        (FIGURE, LENGTH), lambda stored: [*_partial(stored), *_by_word(stored)],
        SETTINGS + "; words one by one: one layer of width 32, context 48, 500 steps",
        missing="accuracy by word of the larger network, and in the masked task",
    ),
    Claim(
        "Longer texts teach more.",
        "breccia2025testing",
        "the accuracy of a given network grows with the number of integers it reads",
        "no dependence",
        (LENGTH,), _longer,
        "one layer of width 32, context 48, 500 steps (384,000 words read) for every text, three seeds; texts of 10⁴, 10⁵ and "
        "10⁶ numbers, each tested on its last fifth, and parts of the last one that end at the same test",
        would_change="a network that gains from longer texts: a larger one, or more than one reading of each; this one reads 10⁵ "
        "numbers five times, and not half of 10⁶",
    ),
)  # fmt: skip
