"""Functions as values of a choice: named by where they are defined, so that a specification stays plain JSON.

An importable function is the text `module:name`, which a command line, a stored study and a worker understand. Any other
function (a lambda, one defined in a notebook) has a name that holds in this process only; a stored study refuses it.

A text alone imports nothing, because it may come from a stored file or a link: the module has been imported by the user, or
is named in the environment variable `SOLVABLE_FUNCTIONS` (separated by commas). A function given in Python, or by a word of
the command line, adds its module there, for the processes that this one starts.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import InvalidValue

LOCAL = "here:"
TRUSTED = "SOLVABLE_FUNCTIONS"
_TEXT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
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
    if not text.startswith("__main__:") and _found(text) is function:
        trust(text.partition(":")[0])
        return text
    if id(function) not in _names:
        name = f"{LOCAL}{getattr(function, '__name__', 'function')}:{next(_number)}"
        _names[id(function)], _local[name] = name, function  # kept alive, so that the id stays its own
    return _names[id(function)]


def function_named(text: str) -> Callable[..., Any] | None:
    """The function that a text stands for, or None.

    >>> function_named("math:hypot")(3, 4), function_named("math:nothing"), function_named("antigravity:fly")
    (5.0, None, None)
    """
    return _local.get(text) if text.startswith(LOCAL) else _found(text)


def is_text_of_a_function(text: str) -> bool:
    """Whether a text has the form `module:name`.

    >>> is_text_of_a_function("my.losses:huber"), is_text_of_a_function("0.5:2:8")
    (True, False)
    """
    return _TEXT.match(text) is not None


def trust(module: str) -> None:
    """Let texts name functions of a module, here and in processes that are started from now on."""
    known = _trusted()
    if module not in known:
        os.environ[TRUSTED] = ",".join([*known, module])


def trust_words(words: Iterable[str]) -> None:
    """Trust the modules that words `name=module:function` of a command line name, in the current folder too."""
    for word in words:
        values = word.partition("=")[2].split(",") if not word.startswith("?") else []
        for text in filter(is_text_of_a_function, values):
            trust(text.partition(":")[0])
            here = os.getcwd()
            if here not in sys.path:
                sys.path.append(here)
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), here]))


def _trusted() -> list[str]:
    return [name for name in os.environ.get(TRUSTED, "").split(",") if name]


def _found(text: str) -> Callable[..., Any] | None:
    module, _, name = text.partition(":")
    if not (module and name) or "<" in name or not (module in sys.modules or module in _trusted()):
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
