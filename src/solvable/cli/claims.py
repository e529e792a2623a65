"""The command `solvable claims`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Json, print_json


@dataclasses.dataclass
class Claims:
    """List claims of the papers with the verdicts computed from stored data."""

    what: Positional[
        Annotated[str, arg(metavar="MODEL|PAPER", help="A model's id, or a paper's key or arXiv id (default: all).")]
    ] = ""
    json: Json = False


def run(command: Claims) -> int:
    from ..lab.ledger import counts, ledger

    entries = ledger(command.what)
    numbers = counts(entries)
    if command.json:
        print_json({"counts": numbers, "claims": [entry.as_dict() for entry in entries]})
        return 0
    paper = None
    for entry in entries:
        if (entry.model, entry.paper.key) != paper:
            paper = (entry.model, entry.paper.key)
            where = f", arXiv {entry.paper.arxiv}" if entry.paper.arxiv else ""
            print(f"\n{entry.model} — {entry.paper.authors} {entry.paper.year}{where}")
        _print(entry.judged)
    print("\n" + ", ".join(f"{n} {verdict}" for verdict, n in numbers.items()))
    return 0


def _print(judged) -> None:
    import textwrap

    claim, margin = judged.claim, judged.claim.margin
    print(f"\n  {judged.verdict.upper():13s}{_indented(claim.sentence, 15)}")
    signs = {True: "✓", False: "✗", None: "?"}
    for number in judged.numbers:
        print(f"{'':15s}{signs[number.holds(margin)]} {_indented(number.describe(), 17)}")
    lines = {
        "expected if it holds": claim.seen if not judged.numbers else "",
        "settings": claim.settings,
        "missing": claim.missing,
        **judged.decided,
        "shown by": judged.command + (f" (recomputed in {judged.duration})" if judged.duration else ""),
    }
    for name, text in lines.items():
        if text:
            print(textwrap.fill(f"{name}: {text}", 118, initial_indent=" " * 15, subsequent_indent=" " * 17))


def _indented(text: str, by: int) -> str:
    import textwrap

    return textwrap.fill(text, 118 - by, subsequent_indent=" " * by)
