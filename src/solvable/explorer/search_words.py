"""The words by which a model is found: those of its set-up, from its source, so that nothing heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

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
    # Constants of compiled code: syntax trees of Python 3.11 cannot be made in several threads at once.
    module = compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True)
    own = next(c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == line.name)
    for text in _texts(own.co_consts):
        yield from re.findall(r"[^\W\d_][\w'-]*[^\W_]", text)


def _texts(constants: tuple[Any, ...]) -> Iterator[str]:
    """The texts among constants; not those of functions, which are not about the set-up.

    >>> list(_texts(("loss", 1.0, ("hinge", "square"))))
    ['loss', 'hinge', 'square']
    """
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from _texts(constant)
