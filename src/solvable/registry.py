"""The registered models by short id, without importing them or JAX.

Other packages register models through entry points in the group `solvable.models`: the name is the id, the value is the
class, for example `my-model = "my_package:MyModel"`.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from .errors import SolvableError, UnknownName, nearest
from .models import LISTINGS, Listing

if TYPE_CHECKING:
    from .model import Model


@cache
def listings() -> dict[str, Listing]:
    """Every registered model by id: the built-in ones first, then those of other packages.

    >>> listings()["perceptron"].family
    'replica'
    """
    found = {line.id: line for line in LISTINGS}
    for entry in entry_points(group="solvable.models"):
        module, _, name = entry.value.partition(":")
        package = entry.dist.name if entry.dist is not None else module
        found.setdefault(entry.name, Listing(entry.name, module, name, "elsewhere", f"A model of {package}.", "other"))
    return found


def model_class(id: str) -> type[Model]:
    """The class of the model with this id (imports JAX and the model's file).

    >>> model_class("perceptron").__name__
    'Perceptron'
    """
    known = listings()
    if id not in known:
        raise UnknownName(f"there is no model {id!r}; {nearest(id, list(known))}")
    line = known[id]
    try:
        return getattr(importlib.import_module(line.module), line.name)
    except (ImportError, AttributeError) as problem:
        raise SolvableError(f"model {id!r} could not be loaded from {line.module}:{line.name}: {problem}.") from problem


def create(id: str, **values: Any) -> Model:
    """The model with this id and these values.

    >>> create("perceptron", samples=2).id
    'perceptron'
    """
    return model_class(id).create(**values)
