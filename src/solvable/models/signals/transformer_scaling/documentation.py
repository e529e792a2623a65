"""Text without a download: the reference of the Python language, and its library, which come with Python itself."""

from __future__ import annotations

import sysconfig
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np

from solvable.errors import SolvableError


@lru_cache(maxsize=1)
def python_documentation() -> str:
    """The texts behind Python's `help`, in the order of their topics, with runs of blanks merged: about 400,000 characters.

    The text belongs to the version of Python: other versions have other words.

    >>> len(python_documentation()) > 100_000
    True
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise SolvableError("this Python comes without the texts of its help (the module pydoc_data.topics).") from None
    return " ".join(" ".join(topics[name] for name in sorted(topics)).split())


@lru_cache(maxsize=1)
def python_library() -> str:
    """The source of Python's standard library, in the order of its modules: about four million characters.

    These are the modules without a folder of their own whose name does not begin with an underscore.

    >>> "def " in python_library()
    True
    """
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py"))
    if not files:
        raise SolvableError("this Python comes without the source of its standard library.")
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


TEXTS = {"documentation": python_documentation, "library": python_library}


@lru_cache(maxsize=8)
def text_as_letters(name: str, letters: int) -> np.ndarray:
    """One of the texts as numbers: the `letters` − 1 most common characters, and one number for all others.

    >>> text = text_as_letters("documentation", 30)
    >>> int(text.min()), int(text.max())
    (0, 29)
    """
    text = TEXTS[name]()
    common = [c for c, _ in sorted(Counter(text).items(), key=lambda item: (-item[1], item[0]))[: letters - 1]]
    place = {c: i for i, c in enumerate(common)}
    return np.array([place.get(c, len(common)) for c in text], np.int32)
