"""Studies as plain JSON values, and back: what a store keeps beside the results of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..contract.values import arrays_in, from_plain, to_plain
from ..errors import SolvableError
from ..model import Model
from ..registry import model_class
from .store import block_id


def given_fields(model: Model) -> dict[str, Any]:
    """The fields of a model that were given, not taken from its defaults."""
    given = {n: getattr(model, n) for n in model.fields() if n not in model._from_defaults}
    return {n: v for n, v in given.items() if v is not None}


def describe(model: Model) -> dict[str, Any]:
    """A model as plain values; arrays are referred to by the name of the block that stores them."""
    types = {n: d.type for n, d in model.fields().items()}
    fields = {n: plain(v, types[n]) for n, v in given_fields(model).items()}
    return {"id": model.id, "revision": model.revision, "fields": fields}


def plain(value: Any, type: str) -> Any:
    """A field's value as a plain value; arrays by name."""
    return to_plain(value, type, array_name)


def array_name(array: np.ndarray) -> str:
    """The name of the block that stores an array: a hash of its contents."""
    return block_id({"array": array.ravel().tolist(), "shape": list(array.shape)})


def named_arrays(values: Mapping[str, Any], types: Mapping[str, str]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays among the values of fields, with their names."""
    for field, value in values.items():
        for array in arrays_in(value, types.get(field, "float")):
            yield array_name(array), array


def arguments(spec: Mapping[str, Any], read: Callable[[str], np.ndarray]) -> dict[str, Any]:
    """The arguments of the study that a specification describes; `read` returns a stored array.

    Raises `SolvableError` if a model has another revision, and what Python raises for values that do not fit.
    """

    def value(v: Any) -> Any:
        return from_plain(v, read)

    def model(stored: Mapping[str, Any]) -> Model:
        kind = model_class(stored["id"])
        if kind.revision != stored["revision"]:
            raise SolvableError(
                f"this run was made with revision {stored['revision']} of {stored['id']!r}, but revision "
                f"{kind.revision} is installed."
            )
        return kind.create(**{n: value(v) for n, v in stored["fields"].items()})

    models = {k: model(m) for k, m in spec["models"].items()}
    if not all(isinstance(spec[name], list) for name in ("sizes", "seeds")):
        raise TypeError("sizes and seeds are lists")
    return {
        "models": models if spec["several"] else next(iter(models.values())),
        "over": spec["over"],
        "arms": {k: {n: value(v) for n, v in a.items()} for k, a in spec["arms"].items()},
        **{name: spec[name] for name in ("sizes", "seeds", "numerics", "dtype")},
    }
