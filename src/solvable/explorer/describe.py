"""The description of a model for the page: numbers as numbers, prose and symbols as safe HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ..contract.declarations import QUANTILE, Dimension
from ..contract.describe import describe
from ..errors import InvalidValue
from ..model import Model
from ..registry import listings, model_class
from ..render.equations import mathml
from .defaults import default_view
from .prose import line, prose, sentence


@lru_cache(maxsize=64)
def describe_model(id: str) -> dict[str, Any]:
    """Everything the page needs to know about a model."""
    kind = model_class(id)
    about = describe(kind)
    model = kind()
    fields = [declaration | _field(kind, declaration["name"]) for declaration in about["fields"]]
    observables = [
        declaration | {"symbol_mathml": symbol(declaration["symbol"]), "meaning_html": sentence(declaration["meaning"])}
        for declaration in about["observables"]
    ]
    for declaration, declared in zip(observables, kind.observables_declared, strict=True):
        declaration["exists_when"] = {field: list(allowed) for field, allowed in declared.when}
        declaration["dims"] = list(declared.shown_dims)
    return about | {
        "sentence": listings()[id].sentence,
        "sentence_html": line(listings()[id].sentence),
        "kind": listings()[id].kind,
        "has_theory": model.has_theory,
        "about_html": prose(about["about"]),
        "fields": fields,
        "observables": observables,
        "references": [reference(r) for r in kind.references],
        "coordinates": {d: _plain(v) for d, v in model.coordinates().items()},
        "dimensions": dimensions(model.dimensions()),
        "has_branches": kind.point_branches is not Model.point_branches,
        "lines": kind.transition_lines is not Model.transition_lines,
        "default_view": default_view(kind).json(),
    }


@lru_cache(maxsize=64)
def claims(id: str) -> list[dict[str, Any]]:
    """Claims of the papers behind a model, each with its verdict and numbers; prose as safe HTML."""
    from ..lab.ledger import ledger

    found = []
    for entry in ledger(id):
        judged, claim = entry.judged, entry.judged.claim
        numbers = [{"text_html": line(n.describe()), "holds": n.holds(claim.margin)} for n in judged.numbers]
        why = {f"What {heading}": text for heading, text in judged.decided.items()}
        notes = {"Tried": claim.settings, "Missing": claim.missing, **why, "Recomputed in": judged.duration}
        found.append(
            {
                "verdict": judged.verdict,
                "sentence_html": prose(claim.sentence),
                "paper": f"{entry.paper.authors} ({entry.paper.year})",
                "numbers": numbers,
                "notes_html": {name: line(text) for name, text in notes.items() if text},
                "command": judged.command,
            }
        )
    return found


def dimensions(declared: Mapping[str, Dimension]) -> dict[str, dict[str, str]]:
    """How the page draws along each dimension."""
    every = {**declared, QUANTILE.name: QUANTILE}
    return {n: {"meaning": d.meaning, "symbol_mathml": symbol(d.symbol), "scale": d.scale, "kind": d.kind}
            for n, d in every.items()}  # fmt: skip


def _field(kind: type[Model], name: str) -> dict[str, Any]:
    declaration = kind.fields()[name]
    more: dict[str, Any] = {"symbol_mathml": symbol(declaration.symbol), "dims": list(declaration.dims)}
    more["meaning_html"] = sentence(declaration.meaning)
    more["matters_when"] = {field: list(allowed) for field, allowed in declaration.when}
    if declaration.kind in ("control", "choice"):
        more |= {"default": declaration.default, "low": _finite(declaration.low), "high": _finite(declaration.high)}
        more |= {"low_open": declaration.low_open, "high_open": declaration.high_open}
    if declaration.kind == "control":
        try:
            more["span"] = list(declaration.span)
        except InvalidValue:
            more["span"] = [declaration.default - 1, declaration.default + 1]
    return more


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(values: Any) -> list[Any]:
    return np.asarray(values).tolist()


@lru_cache(maxsize=2048)
def symbol(latex: str) -> str:
    """A symbol as MathML; empty where there is none.

    >>> symbol(r"\\alpha").startswith("<math")
    True
    """
    return mathml(latex) if latex else ""


def reference(paper: Any) -> dict[str, str | None]:
    """A paper and its link."""
    url = None
    if paper.arxiv:
        url = f"https://arxiv.org/abs/{paper.arxiv}"
    elif paper.doi:
        url = f"https://doi.org/{paper.doi}"
    return {"text": str(paper), "url": url, "bibtex": paper.bibtex()}
