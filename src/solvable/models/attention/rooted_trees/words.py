"""Whole numbers as rooted trees: an exactly known text for learners of sequences (plain NumPy).

The tree of 1 is a single vertex; the tree of n = ∏ p_i^{a_i}, p_1 < p_2 < …, is a root whose children, in this order, are
the trees of the exponents a_i. Written as a Dyck word, up "1" and down "0": D(1) is empty, D(n) = ∏_i 1 D(a_i) 0.

The text is D(1) D(2) D(3) …; a learner reads its beginning and is tested on later words. It is compared with tables of words
counted given their neighbours (Markov chains, or both sides), or given n mod m, which factorisation would use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

Ids = Int[np.ndarray, " n"]


# --- numbers, trees, words --------------------------------------------------------------------------------------------


def factors(n: int) -> list[tuple[int, int]]:
    """The primes of n in order, with their exponents.

    >>> factors(360)
    [(2, 3), (3, 2), (5, 1)]
    """
    if n < 1:
        raise ValueError(f"n = {n} has no factorisation: it must be a whole number of at least 1.")
    found, p = [], 2
    while p * p <= n:
        exponent = 0
        while n % p == 0:
            n, exponent = n // p, exponent + 1
        if exponent:
            found.append((p, exponent))
        p += 1 if p == 2 else 2
    return [*found, (n, 1)] if n > 1 else found


def integer_tree(n: int) -> tuple:
    """The tree of n as nested tuples: each vertex is the tuple of its children.

    >>> integer_tree(12), integer_tree(18), integer_tree(2**16)
    ((((),), ()), ((), ((),)), (((((),),),),))
    """
    return tuple(integer_tree(exponent) for _, exponent in factors(n))


def dyck_word(n: int) -> str:
    """The tree of n as a Dyck word.

    >>> dyck_word(360), dyck_word(7), dyck_word(1)
    ('1100110010', '10', '')
    """
    return "".join(f"1{dyck_word(exponent)}0" for _, exponent in factors(n))


def primes_to(limit: int) -> np.ndarray:
    """All primes up to a limit.

    >>> primes_to(20).tolist()
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    if limit < 2:
        return np.zeros(0, int)
    sieve = np.ones(limit + 1, bool)
    sieve[:2] = False
    for p in range(2, int(limit**0.5) + 1):
        if sieve[p]:
            sieve[p * p :: p] = False
    return np.flatnonzero(sieve)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The words of 1..N: `ids[n - 1]` is the index of n's word in `words`, which are in order of first appearance.

    A longer corpus begins like a shorter one, ids included.
    """

    ids: np.ndarray
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def word(self, n: int) -> str:
        """The word of n."""
        return self.words[self.ids[n - 1]]

    @cached_property
    def counts(self) -> np.ndarray:
        """How often each word occurs."""
        return np.bincount(self.ids, minlength=len(self.words))

    @property
    def symbols(self) -> int:
        """The number of letters of the whole text."""
        return int(self.counts @ [len(word) for word in self.words])

    @property
    def word_length(self) -> float:
        """Letters per word."""
        return self.symbols / len(self)

    def count(self, word: str) -> int:
        """How often a word occurs; π(N) for "10"."""
        return int(self.counts[self.words.index(word)]) if word in self.words else 0

    def entropy(self, given: int = 0) -> float:
        """Plug-in entropy, in bits, of a word given the `given` words before it (biased low where contexts are rare)."""
        return _block_entropy(self.ids, given + 1) - (_block_entropy(self.ids[:-1], given) if given else 0.0)


def rooted_trees(numbers: int, largest: int | None = None) -> Corpus:
    """The words of 1..`numbers`, by a sieve: ten million take seconds.

    For each prime p ≤ √N in increasing order, the word of the part of n made of smaller primes is extended by the subtree of
    p's exponent; the remaining factor of n is 1 or a last prime. With `largest`, only primes up to it are divided out, and the
    words are those of that part of n.

    >>> corpus = rooted_trees(12)
    >>> [corpus.word(n) for n in (1, 2, 4, 6, 12)]
    ['', '10', '1100', '1010', '110010']
    """
    if numbers < 1:
        raise ValueError(f"numbers = {numbers} is too small: a text needs at least 1.")
    subtrees = [""] + [f"1{dyck_word(a)}0" for a in range(1, max(2, numbers.bit_length()))]
    kinds = sorted(set(subtrees[1:]))
    kind_of = np.array([0] + [kinds.index(s) for s in subtrees[1:]], np.int16)
    words = [""]
    longer = np.full((1, len(kinds)), -1, np.int16)  # longer[word, kind]: the word with one more child

    def prolong(state: np.ndarray, kind: np.ndarray) -> np.ndarray:
        nonlocal longer
        after = longer[state, kind]
        missing = after < 0
        if missing.any():
            new = np.zeros(longer.shape, bool)
            new[state[missing], kind[missing]] = True
            for word, child in np.argwhere(new):
                longer[word, child] = len(words)
                words.append(words[word] + kinds[child])
                longer = np.concatenate([longer, np.full((1, len(kinds)), -1, np.int16)])
            after = longer[state, kind]
        return after

    ids, smooth = np.zeros(numbers, np.int16), np.ones(numbers, np.int32 if numbers < 2**31 else np.int64)
    for p in map(int, primes_to(int(numbers**0.5) + 1 if largest is None else min(largest, numbers))):
        multiples = slice(p - 1, None, p)
        exponent = np.ones(numbers // p, np.int8)
        power = p
        while power * p <= numbers:
            exponent[power - 1 :: power] += 1
            power *= p
        ids[multiples] = prolong(ids[multiples], kind_of[exponent])
        power = p
        while largest is None and power <= numbers:
            smooth[power - 1 :: power] *= p
            power *= p
    if largest is None:
        rest = smooth != np.arange(1, numbers + 1)
        ids[rest] = prolong(ids[rest], np.broadcast_to(kind_of[1], int(rest.sum())))
    first = np.full(len(words), numbers)
    first[ids[::-1]] = np.arange(numbers)[::-1]  # for equal indices the last assignment wins
    order = np.argsort(first, kind="stable")
    order = order[first[order] < numbers]
    rank = np.zeros(len(words), np.int16)
    rank[order] = np.arange(len(order), dtype=np.int16)
    return Corpus(rank[ids], tuple(words[i] for i in order))


# --- tables of counts -------------------------------------------------------------------------------------------------


class Score(NamedTuple):
    """Share of test words that were the most probable one, and their mean cross-entropy in nats."""

    accuracy: float
    loss: float


def past(order: int) -> list[tuple[int, ...]]:
    """The contexts of Markov chains of orders 0..order: the words before.

    >>> past(2)
    [(), (-1,), (-2, -1)]
    """
    return [tuple(range(-k, 0)) for k in range(order + 1)]


def both_sides(order: int) -> list[tuple[int, ...]]:
    """The contexts of a hidden word: 0..order words on each side.

    >>> both_sides(2)
    [(), (-1, 1), (-2, -1, 1, 2)]
    """
    return [tuple(k for k in range(-order, order + 1) if k) for order in range(order + 1)]


def context_scores(
    ids: Ids, vocabulary: int, begin: int, contexts: Sequence[tuple[int, ...]], weight: float = 50.0
) -> list[Score]:
    """Predict the words from index `begin` on with tables counted before it; one score per context, shortest first.

    The most probable word is the most frequent one in its context; a context that was never seen is shortened. Probabilities
    are counts smoothed with those of the next shorter context, p = (n_cw + μ p′_w)/(n_c + μ) with μ = `weight`; the shortest
    context adds ½ to every word's count.

    >>> ids = np.tile([0, 1, 2], 50)
    >>> [round(score.accuracy, 3) for score in context_scores(ids, 3, 120, past(1))]
    [0.333, 1.0]
    """
    reach = max((abs(k) for offsets in contexts for k in offsets), default=0)
    ahead = max(0, *(k for offsets in contexts for k in (0, *offsets)))
    train, test = np.arange(reach, begin - ahead), np.arange(max(begin, reach), len(ids) - ahead)
    best = np.zeros(len(test), np.int64)
    chance = np.full(len(test), 1.0 / vocabulary)
    scores = []
    for level, offsets in enumerate(contexts):
        total = vocabulary / 2 if level == 0 else weight
        seen, code = _coded(ids, offsets, train, test)
        codes, place, number = np.unique(seen, return_inverse=True, return_counts=True)
        pairs, often = np.unique(place * vocabulary + ids[train], return_counts=True)
        # The most frequent word of each context, the first in ties: sort by context, then by decreasing count.
        order = np.lexsort((pairs, -often, pairs // vocabulary))
        top = pairs[order][np.searchsorted(pairs[order] // vocabulary, np.arange(len(codes)))] % vocabulary
        at = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        known = codes[at] == code
        best = np.where(known, top[at], best)
        pair = at * vocabulary + ids[test]
        where = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
        both = np.where(known & (pairs[where] == pair), often[where], 0)
        chance = (both + total * chance) / (np.where(known, number[at], 0) + total)
        scores.append(Score(float(np.mean(best == ids[test])), float(-np.mean(np.log(chance)))))
    return scores


def table_scores(context: Ids, ids: Ids, vocabulary: int, begin: int) -> Score:
    """Predict words from a known context: counts up to index `begin`, one half added to each, tested on the rest.

    >>> ids = np.array([0, 1, 0, 1, 0, 1])
    >>> table_scores(np.arange(6) % 2, ids, 2, 4)
    Score(accuracy=1.0, loss=0.1823215567939546)
    """
    table = np.bincount(
        context[:begin] * np.int64(vocabulary) + ids[:begin], minlength=(int(context.max()) + 1) * vocabulary
    )
    table = table.reshape(-1, vocabulary)
    where, words = context[begin:], ids[begin:]
    chance = (table[where, words] + 0.5) / (table.sum(1)[where] + 0.5 * vocabulary)
    return Score(float(np.mean(np.argmax(table, 1)[where] == words)), float(-np.mean(np.log(chance))))


def residue_scores(corpus: Corpus, begin: int, modulus: int) -> Score:
    """Predict n's word from n mod m.

    >>> residue_scores(rooted_trees(1000), 800, 4).accuracy
    0.35
    """
    return table_scores(np.arange(1, len(corpus) + 1) % modulus, corpus.ids, len(corpus.words), begin)


def division_scores(corpus: Corpus, begin: int, largest: int) -> Score:
    """Predict n's word from the exponents of its primes up to `largest`: trial division that stops there.

    >>> division_scores(rooted_trees(1000), 800, 31).accuracy > residue_scores(rooted_trees(1000), 800, 4).accuracy
    True
    """
    known = rooted_trees(len(corpus), largest)
    return table_scores(known.ids, corpus.ids, len(corpus.words), begin)


def _coded(
    ids: Ids, offsets: tuple[int, ...], train: Int[np.ndarray, " a"], test: Int[np.ndarray, " b"]
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """One integer code per context, renumbered after every word so that codes do not overflow."""
    both = np.concatenate([train, test])
    code, number, words = np.zeros(len(both), np.int64), 1, int(ids.max()) + 1
    for k in offsets:
        code, number = _renumbered(code * words + ids[both + k], number * words)
    return code[: len(train)], code[len(train) :]


def _renumbered(code: Int[np.ndarray, " n"], limit: int) -> tuple[Int[np.ndarray, " n"], int]:
    """Renumber codes from 0 without gaps, keeping their order; also return how many there are."""
    if limit > 1 << 26:  # too many for a table of flags: sort
        distinct, code = np.unique(code, return_inverse=True)
        return code, len(distinct)
    there = np.zeros(limit, bool)
    there[code] = True
    rank = np.cumsum(there) - 1
    return rank[code], int(rank[-1]) + 1


def _block_entropy(ids: Ids, length: int) -> float:
    starts = np.arange(len(ids) - length + 1)
    code, _ = _coded(ids, tuple(range(length)), starts, starts[:0])
    share = np.bincount(code) / len(code)
    return float(-np.sum(share * np.log2(share)))
