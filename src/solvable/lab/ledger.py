"""The ledger: every claim of the papers behind the models, judged by the data stored in the package."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..contract.claims import VERDICTS, Claim, Judged, judge
from ..contract.declarations import Reference
from ..errors import SolvableError, UnknownName, nearest
from ..registry import listings, model_class


class Entry(NamedTuple):
    """A judged claim with its model and paper."""

    model: str
    paper: Reference
    judged: Judged

    def as_dict(self) -> dict[str, Any]:
        """The entry as a dictionary for JSON."""
        cited = {
            "key": self.paper.key,
            "authors": self.paper.authors,
            "year": self.paper.year,
            "arxiv": self.paper.arxiv,
        }
        return {"model": self.model, **self.judged.as_dict(), "paper": cited}


def claims_of(id: str) -> Sequence[Claim]:
    """The claims of the papers behind a model: `CLAIMS` in its `claims.py`.

    >>> claims_of("masked-regression")[0].paper
    'wortsman2026random'
    """
    package = listings()[id].module.rpartition(".")[0]
    if not package or importlib.util.find_spec(f"{package}.claims") is None:
        return ()
    return importlib.import_module(f"{package}.claims").CLAIMS


def ledger(what: str = "") -> list[Entry]:
    """The claims of a model, of a paper (its key or arXiv id), or all.

    >>> {entry.model for entry in ledger("2601.23208")}
    {'masked-regression'}
    """
    known = listings()
    ids = [what] if what in known else list(known)
    papers = {id: {r.key: r for r in model_class(id).references} for id in ids if claims_of(id)}
    entries = []
    for id, references in papers.items():
        for claim in claims_of(id):
            if claim.paper not in references:
                raise SolvableError(
                    f"a claim of {id} names the paper {claim.paper!r}, which is not among its references."
                )
            paper = references[claim.paper]
            if what in known or what in ("", paper.key, paper.arxiv):
                entries.append(Entry(id, paper, judge(claim, *_stored(claim.figures))))
    if what and not entries and what not in known:
        names = [*known, *{n for r in papers.values() for p in r.values() for n in (p.key, p.arxiv) if n}]
        raise UnknownName(f"there is neither a model nor a paper {what!r}; {nearest(what, names)}")
    return entries


def decided_by(figure: str) -> list[Entry]:
    """The claims that the stored data of a figure decide.

    >>> [entry.judged.claim.paper for entry in decided_by("random-labels-collapse")][0]
    'gerace2024gaussian'
    """
    models = [id for id in listings() if any(figure in claim.figures for claim in claims_of(id))]
    return [entry for id in models for entry in ledger(id) if figure in entry.judged.claim.figures]


def recomputed(claim: Claim) -> Judged:
    """The verdict on a claim from data computed again, in about `claim.seconds`, instead of the stored ones."""
    from ..render.figures import compute, fingerprint

    stored = {
        f"{figure}.{part}" if part else figure: data
        for figure in claim.figures
        for part, data in compute(figure).items()
    }
    return judge(claim, stored, [(name, fingerprint(data)) for name, data in stored.items()])


def _stored(figures: Iterable[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The stored data of figures, and the recomputed hash of each part."""
    from ..render.figures import fingerprint, kept

    stored, hashes = {}, []
    for figure in figures:
        for part, data in (kept(figure) or {}).items():
            name = f"{figure}.{part}" if part else figure
            stored[name] = data
            hashes.append((name, fingerprint(data)))
    return stored, hashes


def counts(entries: Iterable[Entry]) -> dict[str, int]:
    """The number of claims with each verdict."""
    found = [entry.judged.verdict for entry in entries]
    return {verdict: found.count(verdict) for verdict in VERDICTS}
