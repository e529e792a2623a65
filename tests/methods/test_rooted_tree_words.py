"""The text of rooted trees: exact counts, the sieve against plain factorisation, the tables against loops."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from solvable.models.attention.rooted_trees.words import (
    both_sides,
    context_scores,
    division_scores,
    dyck_word,
    factors,
    integer_tree,
    past,
    primes_to,
    residue_scores,
    rooted_trees,
    table_scores,
)


@pytest.fixture(scope="module")
def million():
    return rooted_trees(1_000_000)


@pytest.mark.parametrize(
    ("n", "word"),
    [
        (1, ""), (2, "10"), (97, "10"), (6, "1010"), (4, "1100"), (8, "1100"), (32, "1100"), (16, "111000"),
        (64, "110100"), (12, "110010"), (18, "101100"), (360, "1100110010"), (2**16, "11110000"), (4096, "11100100"),
        (5040, "11100011001010"),
    ],
)  # fmt: skip
def test_words_of_single_numbers(n, word):
    assert dyck_word(n) == word


def test_children_stand_in_the_order_of_the_primes():
    assert dyck_word(12) != dyck_word(18)
    assert integer_tree(12) == (((),), ())
    assert integer_tree(18) == ((), ((),))


def test_factors_are_primes_that_multiply_to_the_number():
    primes = set(primes_to(2000).tolist())
    for n in range(1, 2000):
        found = factors(n)
        assert np.prod([p**a for p, a in found]) == n
        assert {p for p, _ in found} <= primes
        assert [p for p, _ in found] == sorted(p for p, _ in found)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 9, 10, 2000])
def test_the_sieve_gives_the_words_of_plain_factorisation(number):
    corpus = rooted_trees(number)
    assert [corpus.word(n) for n in range(1, number + 1)] == [dyck_word(n) for n in range(1, number + 1)]


@pytest.mark.parametrize(
    ("number", "words", "entropy", "symbols", "primes"),
    [
        (10**3, 30, 3.21732, 5240, 168),
        (10**4, 64, 3.43495, 58658, 1229),
        (10**5, 124, 3.58215, 633878, 9592),
        (10**6, 231, 3.69296, 6719312, 78498),
    ],
)
def test_counts_of_the_text_are_exact(number, words, entropy, symbols, primes):
    corpus = rooted_trees(number)
    assert len(corpus.words) == words
    assert corpus.symbols == symbols
    assert corpus.word_length == symbols / number
    assert abs(corpus.entropy() - entropy) < 5e-6
    assert corpus.count("10") == primes == len(primes_to(number))


def test_products_of_two_primes_are_counted():
    corpus = rooted_trees(1000)
    assert corpus.count("1010") == 288
    assert corpus.count("nonsense") == 0


def test_conditional_entropies_are_those_of_the_counts(million):
    assert abs(million.entropy(1) - 3.5420) < 5e-5
    assert abs(million.entropy(2) - 3.1438) < 5e-5
    small = rooted_trees(3000)
    pairs, first = Counter(zip(small.ids, small.ids[1:], strict=False)), Counter(small.ids[:-1])
    loop = -sum(c / 2999 * np.log2(c / first[a]) for (a, _), c in pairs.items())
    assert abs(small.entropy(1) - loop) < 1e-10


def test_words_are_balanced_and_stand_in_order_of_first_appearance(million):
    for word in million.words:
        heights = np.cumsum([1 if letter == "1" else -1 for letter in word])
        assert not word or (heights.min() >= 0 and heights[-1] == 0)
    assert len(set(million.words)) == len(million.words)
    assert million.words[:4] == ("", "10", "1100", "1010")
    firsts = [int(np.argmax(million.ids == i)) for i in range(len(million.words))]
    assert firsts == sorted(firsts)


def exponent_lists(limit, primes):
    """Every list of exponents that a number up to the limit has: the least such number uses the first primes."""
    found, power = [()], primes[0]
    while power <= limit:
        exponent = round(np.log(power) / np.log(primes[0]))
        found += [(exponent, *rest) for rest in exponent_lists(limit // power, primes[1:])]
        power *= primes[0]
    return found


def test_the_words_are_those_of_all_possible_lists_of_exponents(million):
    lists = exponent_lists(10**6, primes_to(40).tolist())
    assert len(lists) == len(set(lists)) == 785
    words = {"".join(f"1{dyck_word(a)}0" for a in exponents) for exponents in lists}
    assert words == set(million.words)


def test_a_longer_text_begins_like_a_shorter_one(million):
    short = rooted_trees(12345)
    np.testing.assert_array_equal(short.ids, million.ids[:12345])
    assert million.words[: len(short.words)] == short.words


def test_only_small_primes_are_divided_out_on_request():
    known, whole = rooted_trees(500, 5), rooted_trees(500)
    for n in range(1, 501):
        assert known.word(n) == "".join(f"1{dyck_word(a)}0" for p, a in factors(n) if p <= 5)
    assert rooted_trees(500, 500).words == whole.words


def test_ten_million_numbers_are_read():
    corpus = rooted_trees(10**7)
    assert corpus.count("10") == 664_579
    rng = np.random.default_rng(0)
    assert all(corpus.word(n) == dyck_word(n) for n in rng.integers(1, 10**7, 300).tolist())


# --- tables -----------------------------------------------------------------------------------------------------------


def counted(ids, offsets, places):
    table = defaultdict(Counter)
    for i in places:
        table[tuple(ids[i + k] for k in offsets)][ids[i]] += 1
    return table


@pytest.mark.parametrize("contexts", [past(3), both_sides(1)], ids=["past", "both sides"])
def test_context_tables_equal_counts_in_a_loop(contexts):
    corpus, begin, weight = rooted_trees(3000), 2400, 7.0
    ids, words = corpus.ids.tolist(), len(corpus.words)
    reach = max(abs(k) for k in contexts[-1])
    ahead = max(0, *contexts[-1])
    tables = [counted(ids, offsets, range(reach, begin - ahead)) for offsets in contexts]
    hits, losses = np.zeros(len(contexts)), np.zeros(len(contexts))
    test = range(begin, 3000 - ahead)
    for i in test:
        best, chance = None, 1 / words
        for level, (offsets, table) in enumerate(zip(contexts, tables, strict=True)):
            counts = table.get(tuple(ids[i + k] for k in offsets), {})
            if counts:
                best = min(counts, key=lambda w: (-counts[w], w))
            total = words / 2 if level == 0 else weight
            chance = (counts.get(ids[i], 0) + total * chance) / (sum(counts.values()) + total)
            hits[level] += best == ids[i]
            losses[level] -= np.log(chance)
    scores = context_scores(corpus.ids, words, begin, contexts, weight)
    np.testing.assert_allclose([s.accuracy for s in scores], hits / len(test), rtol=1e-12)
    np.testing.assert_allclose([s.loss for s in scores], losses / len(test), rtol=1e-10)


def test_markov_chains_predict_as_well_as_counted_before(million):
    scores = context_scores(million.ids, 231, 800_000, past(4))
    np.testing.assert_allclose([s.accuracy for s in scores], [0.2018, 0.2328, 0.2757, 0.3001, 0.3004], atol=0.002)
    assert (np.diff([s.loss for s in scores]) < 0).all()


def test_residue_tables_predict_as_well_as_counted_before(million):
    scores = [residue_scores(million, 800_000, m) for m in (1, 4, 12, 36, 180, 900, 44100)]
    accuracy = [0.2018, 0.3190, 0.3563, 0.3990, 0.4153, 0.4318, 0.4088]
    np.testing.assert_allclose([s.accuracy for s in scores], accuracy, atol=6e-5)
    np.testing.assert_allclose([s.loss for s in scores], [2.588, 2.066, 1.902, 1.693, 1.592, 1.583, 3.20], atol=4e-3)
    assert abs(np.mean(million.ids[800_000:] == 1) - 0.0727) < 5e-5


def test_dividing_by_more_primes_predicts_better_and_by_all_of_them_exactly():
    corpus = rooted_trees(20_000)
    scores = [division_scores(corpus, 16_000, p) for p in (2, 3, 5, 7, 20_000)]
    assert (np.diff([s.accuracy for s in scores]) > 0).all()
    assert (np.diff([s.loss for s in scores]) < 0).all()
    unseen = 1 - np.mean(np.isin(corpus.ids[16_000:], corpus.ids[:16_000]))
    assert scores[-1].accuracy == 1 - unseen


def test_probabilities_of_a_table_sum_to_one():
    context, ids = np.array([0, 0, 1, 0]), np.array([0, 1, 1, 0])
    losses = [table_scores(context, np.array([0, 1, 1, word]), 3, 3).loss for word in range(3)]
    assert abs(np.exp(-np.array(losses)).sum() - 1) < 1e-12
    assert table_scores(context, ids, 3, 3).accuracy == 1.0  # of equals the first


@pytest.mark.parametrize("call", [lambda: rooted_trees(0), lambda: factors(0)])
def test_numbers_below_one_are_refused(call):
    with pytest.raises(ValueError):
        call()
