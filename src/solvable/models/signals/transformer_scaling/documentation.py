"""Natural language without a download: the reference of the Python language that comes with Python itself."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

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


@lru_cache(maxsize=8)
def documentation_letters(letters: int) -> np.ndarray:
    """The same as numbers: the `letters` − 1 most common characters, and one number for all others.

    >>> text = documentation_letters(30)
    >>> int(text.min()), int(text.max())
    (0, 29)
    """
    text = python_documentation()
    common = [c for c, _ in sorted(Counter(text).items(), key=lambda item: (-item[1], item[0]))[: letters - 1]]
    place = {c: i for i, c in enumerate(common)}
    return np.array([place.get(c, len(common)) for c in text], np.int32)
