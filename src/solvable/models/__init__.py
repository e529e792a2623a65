"""The models, one folder each, and what is known of them without importing one.

`listing.json` is made from the declarations of models and figures by `python -m solvable.models` (`make listing`), which also
renews the table in the README; a test keeps both current. A new model touches its own folder and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ..errors import UnknownName, nearest


class Listing(NamedTuple):
    """Where a model lives and what it is, in one sentence."""

    id: str
    module: str
    name: str
    family: str
    sentence: str
    kind: str = "theory and simulation"
    method: str = ""
    title: str = ""

    @property
    def shown_title(self) -> str:
        """The declared title; for a model of another package, which is not imported for it, its id in words.

        >>> LISTINGS[0].shown_title
        'Teacher–student perceptron'
        """
        return self.title or self.id.replace("-", " ").capitalize()


class FigureListing(NamedTuple):
    """A figure's name, the model beside which it is kept, a caption in one sentence, and other models it shows."""

    name: str
    model: str
    module: str
    sentence: str
    also: tuple[str, ...] = ()

    def shows(self, model: str) -> bool:
        return model == self.model or model in self.also


FILE = Path(__file__).parent / "listing.json"
_KNOWN = json.loads(FILE.read_text(encoding="utf-8"))
LISTINGS = tuple(Listing(**line) for line in _KNOWN["models"])
FIGURES = tuple(FigureListing(**{**line, "also": tuple(line.get("also", ()))}) for line in _KNOWN["figures"])
FAMILIES: dict[str, str] = {line["id"]: line["title"] for line in _KNOWN["families"]}
"""Titles of the families: what the docstring of a family's package says before its colon."""


def figure_named(name: str) -> FigureListing:
    """The listing of a figure, or one sentence with the nearest name.

    >>> figure_named("perceptron-learning-curves").model
    'perceptron'
    """
    for line in FIGURES:
        if line.name == name:
            return line
    raise UnknownName(f"there is no figure {name!r}; {nearest(name, [f.name for f in FIGURES])}")
