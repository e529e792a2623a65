"""Fits of sequences: gauge, contacts, energies, samples, and storage in a folder."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.errors import SolvableError
from solvable.lab.store import Store
from solvable.methods.sequences import pseudolikelihood as pl
from solvable.methods.sequences.monte_carlo import NotMixed
from solvable.tools import potts

CONTACTS = {(1, 2), (2, 3), (3, 4), (4, 5), (1, 5), (6, 7), (3, 7)}
SITES, LETTERS = 7, "ACG-"


def family(number=2000, seed=0):
    """Sequences of a small Potts model, drawn exactly: all 4⁷ states are listed."""
    u = np.random.default_rng(0).normal(size=(4, 4))
    u = u + u.T
    rng = np.random.default_rng(seed)
    states = np.asarray(list(itertools.product(range(4), repeat=SITES)))
    log_weight = 0.3 * (states == 0).sum(axis=1) + sum(u[states[:, i - 1], states[:, j - 1]] for i, j in CONTACTS)
    law = np.exp(log_weight - log_weight.max())
    return states[rng.choice(len(states), number, p=law / law.sum())]


@pytest.fixture(scope="module")
def found():
    return potts.fit(family(), LETTERS, penalty=1.0, reweight=None)


def test_strongest_pairs_are_those_of_the_planted_graph_counted_from_one(found):
    best = found.contacts(top=len(CONTACTS))
    assert {(c.i, c.j) for c in best} == CONTACTS
    assert [c.score for c in best] == sorted((c.score for c in best), reverse=True)
    assert all(j - i >= 3 for i, j, _ in found.contacts(separation=3))
    assert len(found.contacts()) == SITES * (SITES - 1) // 2


@pytest.mark.parametrize("sites", [6, 7])
def test_model_is_the_fit_of_the_method_in_zero_sum_gauge(sites):
    s = family(300)[:, :sites]
    ours = potts.fit(s, LETTERS, penalty=1.0, reweight=None)
    theirs = pl.fit_dense(s, 4, penalty=1.0)
    h, w = pl.zero_sum(theirs.fields, theirs.couplings)
    np.testing.assert_allclose(ours.fields, h, atol=2e-5)
    np.testing.assert_allclose(ours.dense_couplings(), w, atol=2e-6)
    np.testing.assert_allclose(ours.scores(), pl.contact_scores(theirs.couplings, without=3), atol=1e-5)
    np.testing.assert_array_equal(ours.couplings(1, 4), ours.couplings(4, 1).T)
    np.testing.assert_array_equal(ours.couplings(1, 4), ours.dense_couplings()[1, :, 4])


def test_factored_model_is_the_network_in_zero_sum_gauge():
    s = family(300)
    ours = potts.fit(s, LETTERS, method="factored", heads=2, reweight=None, seed=3, iterations=40)
    theirs = pl.fit_factored(
        s, 4, key=jax.random.key(3), heads=2, iterations=40
    )  # not converged, and equal all the same
    h, w = theirs.potts()
    np.testing.assert_allclose(ours.fields, h, atol=1e-12)
    np.testing.assert_allclose(ours.dense_couplings(), w, atol=1e-6)  # kept in float32
    assert ours.about["heads"] == 2


def test_energy_differences_are_log_ratios_of_the_law(found):
    s = family(50, seed=1)
    wanted = pl.pair_energies(jnp.asarray(found.fields), jnp.asarray(found.dense_couplings(), float), jnp.asarray(s))
    np.testing.assert_allclose(found.energies(s), wanted, rtol=1e-6, atol=1e-5)
    strings = ["".join(LETTERS[c] for c in row) for row in s]
    np.testing.assert_array_equal(found.energies(strings), found.energies(s))


def test_sample_has_the_one_and_two_site_frequencies_of_the_family(found):
    drawn = found.sample(4000, seed=1)
    assert drawn.mixed
    assert drawn.r_hat < 1.05
    one = np.eye(4)
    data, new = (one[x].reshape(len(x), -1) for x in (family(20_000, seed=5), drawn.sequences))
    # The fit saw 2,000 sequences, the sample has 4,000: four standard errors of a frequency are at most 0.055.
    assert np.abs(data.mean(0) - new.mean(0)).max() < 0.055
    pairs = [x.T @ x / len(x) for x in (data, new)]
    assert np.abs(pairs[0] - pairs[1]).max() < 0.055
    assert np.corrcoef(pairs[0].ravel(), pairs[1].ravel())[0, 1] > 0.99
    np.testing.assert_array_equal(drawn.sequences, found.sample(4000, seed=1).sequences)
    assert set("".join(drawn.strings()[:100])) <= set(LETTERS)


def test_kept_model_reads_back_bit_by_bit_and_can_be_verified(found, tmp_path):
    found.save(tmp_path / "model")
    back = potts.load(tmp_path / "model")
    np.testing.assert_array_equal(back.fields, found.fields)
    np.testing.assert_array_equal(back.pairs, found.pairs)
    assert (back.alphabet, back.about) == (found.alphabet, found.about)
    assert Store.open(tmp_path / "model").verify() == []
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    with pytest.raises(SolvableError, match="already exists"):
        found.save(tmp_path / "model")


def test_factored_model_keeps_its_maps(tmp_path):
    found = potts.fit(family(300), LETTERS, method="factored", heads=2, reweight=None, iterations=3)
    found.save(tmp_path / "model")
    back = potts.load(tmp_path / "model")
    np.testing.assert_array_equal(back.network["maps"], found.network["maps"])
    assert not back.converged
    assert "NOT converged" in repr(back)


def test_damaged_or_foreign_folders_are_refused_in_one_sentence(found, tmp_path):
    found.save(tmp_path / "model")
    block = next((tmp_path / "model" / "blocks").rglob("*.npz"))
    data = bytearray(block.read_bytes())
    data[len(data) // 2] ^= 1
    block.write_bytes(data)
    Store.create(tmp_path / "other")
    strange = Store.create(tmp_path / "strange")
    strange.write_document("potts-fit", {"format": 1, "about": []})
    for name in ("model", "other", "strange", "missing"):
        with pytest.raises(SolvableError) as refusal:
            potts.load(tmp_path / name)
        assert "\n" not in str(refusal.value)


def test_failed_save_leaves_no_files(found, tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "write_document", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        found.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_similar_sequences_share_one_vote():
    s = family(150)
    twice = potts.fit(np.concatenate([s, s[:1].repeat(150, axis=0)]), LETTERS, penalty=1.0, reweight=1.0)
    distinct = len(np.unique(s, axis=0))
    assert twice.about["effective"] == pytest.approx(distinct)
    assert twice.about["sequences"] == 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "sparse"}, {"attention": "hard"}, {"heads": 0}, {"penalty": -1.0}, {"penalty": float("nan")},
        {"tolerance": 0.0}, {"iterations": 0}, {"reweight": 2.0}, {"alphabet": "A"},
    ],
)  # fmt: skip
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(SolvableError) as refusal:
        potts.fit(family(20), **{"alphabet": LETTERS, **wrong})
    assert next(iter(wrong)) in str(refusal.value) or "threshold" in str(refusal.value)


def test_no_variation_is_refused(tmp_path):
    with pytest.raises(SolvableError, match="no variation"):
        potts.fit(["ACGU"] * 5, "rna")
    file = tmp_path / "same.fasta"
    file.write_text(">a\nACGU\n>b\nACGU\n")
    with pytest.raises(SolvableError, match="line 3 is the start of the last of 2 sequences, all the same"):
        potts.fit(file, "rna")


def test_picture_marks_the_strongest_pairs(found):
    figure = found.plot_contacts(top=4)
    marked = next(line for line in figure.axes[0].lines if len(line.get_xdata()) == 4)
    assert {(int(i), int(j)) for j, i in zip(*marked.get_data(), strict=True)} == {
        (c.i, c.j) for c in found.contacts(top=4)
    }


def test_unmixed_chains_are_reported(found):
    ferromagnet = np.broadcast_to(6 * (np.eye(4, dtype=np.float32) - 0.25), found.pairs.shape)
    stuck = potts.PottsFit(found.alphabet, 0 * found.fields, ferromagnet)
    with pytest.warns(NotMixed):
        drawn = stuck.sample(50, sweeps=16, most_sweeps=16)
    assert not drawn.mixed
    assert drawn.r_hat > 1.05
