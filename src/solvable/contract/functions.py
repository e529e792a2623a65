"""Functions as values of a choice: named by where they are defined, so that a specification stays plain JSON.

An importable function is the text `module:name`, which a command line, a stored study and a worker understand. Any other
function (a lambda, one defined in a notebook) has a name that holds in this process only; a stored study refuses it.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

from ..errors import InvalidValue

LOCAL = "here:"
_local: dict[str, Callable[..., Any]] = {}
_names: dict[int, str] = {}
_number = itertools.count(1)


def name_of(function: Callable[..., Any]) -> str:
    """The text that stands for a function.

    >>> import math
    >>> name_of(math.hypot), name_of(lambda x: x).startswith("here:")
    ('math:hypot', True)
    """
    text = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if not text.startswith("__main__:") and _imported(text) is function:
        return text
    if id(function) not in _names:
        name = f"{LOCAL}{getattr(function, '__name__', 'function')}:{next(_number)}"
        _names[id(function)], _local[name] = name, function  # kept alive, so that the id stays its own
    return _names[id(function)]


def function_named(text: str) -> Callable[..., Any] | None:
    """The function that a text stands for, or None.

    >>> function_named("math:hypot")(3, 4), function_named("math:nothing")
    (5.0, None)
    """
    return _local.get(text) if text.startswith(LOCAL) else _imported(text)


def _imported(text: str) -> Callable[..., Any] | None:
    module, _, name = text.partition(":")
    if not (module and name) or "<" in name:
        return None
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return None
    return found if callable(found) else None


def refuse_local(name: str, value: Any) -> None:
    """Raise unless a value can be found again in another process.

    >>> refuse_local("loss", "math:hypot")
    """
    if isinstance(value, str) and value.startswith(LOCAL):
        raise InvalidValue(
            f"{name} = {value!r} exists in this process only: for a stored study put the function in a module and pass "
            "'module:name'."
        )
