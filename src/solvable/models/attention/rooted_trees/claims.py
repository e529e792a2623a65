"""Claims about transformers that read the integers as rooted trees, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "rooted-trees-learning"
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
        (FIGURE,), _partial, SETTINGS, missing="accuracy by word or motif, and predictions of words that do not occur",
    ),
    Claim(
        "Longer texts teach more.",
        "breccia2025testing",
        "the accuracy of a given network grows with the number of integers it reads",
        "no dependence",
        missing="more than one length of text: accuracy at 10⁵, 10⁶ and 10⁷ numbers with the same network",
    ),
)  # fmt: skip
