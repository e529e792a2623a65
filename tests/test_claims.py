"""Claims are decided by stored data; each names its paper, its data and what would be observed, but not its verdict."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

import solvable as sv
from commands import answer
from solvable.contract.claims import CONTRADICTED, OPEN, PARTLY, SHOWN, Claim, Measured, judge
from solvable.lab.ledger import claims_of, counts, ledger, recomputed
from solvable.models import FIGURES
from solvable.render.figures import kept

CLAIMED = [id for id in sv.listings() if claims_of(id)]
CHEAP = 60.0  # seconds in which the data of a claim are computed again by `make verify`; all others carry their hash
AGAIN = [(id, i) for id in CLAIMED for i, claim in enumerate(claims_of(id)) if 0 < claim.seconds <= CHEAP]


@pytest.mark.parametrize("id", CLAIMED)
def test_claims_cite_papers_of_the_model_and_figures_whose_data_are_kept(id):
    entries, figures = ledger(id), {figure.name for figure in FIGURES}
    assert len(entries) == len(claims_of(id))
    for entry in entries:
        claim = entry.judged.claim
        assert claim.sentence.endswith(".")
        assert claim.seen
        assert set(claim.figures) <= figures
        assert all(np.isfinite(number.value) for number in entry.judged.numbers), entry
        assert {name.split(".")[0] for name, _ in entry.judged.data} == set(claim.figures)
        # Each number has a required interval; a claim that is not shown says what is missing or what would decide it.
        assert all(np.isfinite(n.above) or np.isfinite(n.below) for n in entry.judged.numbers)
        assert claim.would_change or entry.judged.verdict != CONTRADICTED, claim.sentence
        assert claim.missing or claim.would_change or entry.judged.verdict == SHOWN, claim.sentence
        # what is missing does not explain a number that is not as claimed
        assert claim.would_change or all(n.holds(claim.margin) for n in entry.judged.numbers), claim.sentence
        assert claim.missing or entry.judged.verdict != OPEN, claim.sentence


@pytest.mark.slow
@pytest.mark.parametrize(("id", "number"), AGAIN)
def test_cheap_claims_have_the_same_verdict_when_their_data_are_computed_again(id, number):
    claim = claims_of(id)[number]
    before = next(e.judged for e in ledger(id) if e.judged.claim is claim)
    again = recomputed(claim)
    assert again.verdict == before.verdict
    assert {name for name, _ in again.data} == {name for name, _ in before.data}
    for new, old in zip(again.numbers, before.numbers, strict=True):
        # the seeds are the same: only rounding, amplified by iterations in single precision, may differ
        assert new.value == pytest.approx(old.value, rel=1e-2, abs=0.5 * old.error + 1e-9), new.what


def test_a_verdict_carries_the_hash_stored_with_its_data():
    for id in CLAIMED:
        for entry in ledger(id):
            for name, digest in entry.judged.data:
                figure, _, part = name.partition(".")
                stored = kept(figure)
                assert stored is not None
                assert stored[part].attrs["sha256"] == digest, name


def test_a_verdict_follows_the_data():
    claim = next(c for c in claims_of("masked-language") if "several layers" in c.sentence)
    found = next(e for e in ledger("masked-language") if e.judged.claim is claim)
    assert found.judged.verdict == CONTRADICTED
    stored = {}
    for figure in ("what-transformers-learn", "masked-language-depth"):
        parts = kept(figure)
        assert parts is not None
        stored |= {figure + (f".{part}" if part else ""): data for part, data in parts.items()}
    runs, trained = stored["what-transformers-learn.sequences"], stored["masked-language-depth"]
    shallow = {
        "what-transformers-learn.sequences": runs.learner == "1 layer",
        "masked-language-depth": trained.depth == 1,
    }
    for name, one in shallow.items():
        losses = stored[name].excess_loss
        stored[name] = stored[name].assign(excess_loss=losses.where(~one, 100 * losses))
    judged = judge(claim, stored)
    assert judged.verdict == PARTLY  # every number holds; one without data keeps it from being shown
    assert all(n.value > 2 for n in judged.numbers)


def test_the_seconds_of_a_claim_are_declared_or_those_that_its_figures_recorded():
    def data(seconds):
        return xr.Dataset(attrs={"core_seconds": seconds} if seconds else {})

    claim = Claim("It grows.", "paper", "a positive slope", measure=lambda _: [Measured("slope", 1.0, above=0)])
    two_parts = {"one": data(3.0), "one.runs": data(3.0)}
    assert judge(claim, two_parts | {"two": data(40.0)}).duration == "43 s"
    assert judge(claim, two_parts | {"two": data(0)}).as_dict()["seconds"] is None
    assert judge(dataclasses.replace(claim, seconds=720), two_parts).duration == "12 min"


def test_noisy_data_leave_a_claim_open_and_missing_data_leave_it_partly_shown():
    claim = Claim("It grows.", "paper", "a positive slope", measure=lambda _: [Measured("slope", 1.0, 0.1, above=0)])
    assert judge(claim, {}).verdict == SHOWN
    assert judge(dataclasses.replace(claim, missing="real data"), {}).verdict == PARTLY
    assert judge(dataclasses.replace(claim, margin=20), {}).verdict == OPEN
    assert judge(dataclasses.replace(claim, measure=None), {}).verdict == OPEN
    assert judge(dataclasses.replace(claim, measure=lambda _: [Measured("slope", np.nan, above=0)]), {}).verdict == OPEN


def test_the_ledger_is_printed_as_text_and_as_json(capsys):
    code, out, _ = answer(capsys, "claims", "masked-regression")
    assert code == 0
    assert "SHOWN" in out
    assert "solvable figure masked-regression-peak" in out
    _, out, _ = answer(capsys, "claims", "2601.23208", "--json")
    found = json.loads(out)
    assert found["counts"] == counts(ledger("wortsman2026random"))
    assert all(len(d["sha256"]) == 64 for claim in found["claims"] for d in claim["data"])
    code, _, err = answer(capsys, "claims", "2601.2320")
    assert code == 2
    assert "neither a model nor a paper '2601.2320'" in err
    assert "2601.23208" in err
