"""The words by which a model is found: those of its set-up, from its source, so that nothing heavy is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..models import LISTINGS, Listing

HOME = Path(__file__).parents[1]


@cache
def words_of_models() -> dict[str, str]:
    """For every model of this package the distinct words of its set-up, meanings and references, in one line.

    >>> "hinge" in words_of_models()["perceptron"].split()
    True
    """
    return {line.id: " ".join(sorted({w.lower() for w in _words(line)})) for line in LISTINGS}


def _words(line: Listing) -> Iterator[str]:
    """The words in the docstring of a model's class, and in the texts of its declarations."""
    file = HOME.joinpath(*line.module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    own = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == line.name)
    # Not the bodies of functions: those are not about the set-up.
    for part in (node for node in own.body if not isinstance(node, ast.FunctionDef)):
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from re.findall(r"[^\W\d_][\w'-]*[^\W_]", node.value)
