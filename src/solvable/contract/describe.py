"""A model's declarations as plain values, for `solvable show`, the documentation and the page."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any

import numpy as np

from ..model import Model
from .graphs import Graph


def describe(model: type[Model]) -> dict[str, Any]:
    """Everything a model declares, as plain JSON values.

    >>> import solvable as sv
    >>> [f["name"] for f in describe(sv.Perceptron)["fields"]]
    ['samples', 'penalty', 'noise', 'loss', 'teacher']
    """
    module = sys.modules[model.__module__]
    return {
        "id": model.id,
        "title": model.title,
        "family": model.family,
        "revision": model.revision,
        "about": inspect.getdoc(module) or inspect.getdoc(model) or "",
        "runs": model.runs,
        "numerics": dict(model.numerics),
        "accuracy": model.accuracy,
        "typical_sizes": list(model.typical_sizes),
        "fields": [_field(name, declaration) for name, declaration in model.fields().items()],
        "dimensions": [dataclasses.asdict(d) for d in model.dimensions_declared],
        "observables": [
            {
                "name": o.name,
                "meaning": o.meaning,
                "symbol": o.symbol,
                "dims": list(o.dims),
                "status": o.status if o.predicted else "measured",
                "power": o.power,
                "simulated": o.simulated,
                "predicted": o.predicted,
                "random": o.random,
                "when": "; ".join(f"{k} = {' or '.join(map(str, v))}" for k, v in o.when),
            }
            for o in model.observables_declared
        ],
        "arms": [
            {"name": name, "changes": ", ".join(f"{n} = {v}" for n, v in values.items())}
            for name, values in model.arms_declared.items()
        ],
        "references": [str(r) for r in model.references],
    }


def _field(name: str, declaration: Any) -> dict[str, Any]:
    if declaration.kind in ("control", "choice"):
        default = f"{declaration.default:g}" if isinstance(declaration.default, float) else str(declaration.default)
    elif declaration.default is None:
        default = "none"
    elif callable(declaration.default):
        default = "from the choices"
    elif declaration.type == "graph":
        default = repr(Graph.of(declaration.default))
    else:
        default = "×".join(map(str, np.shape(declaration.default))) + " values"
    return {
        "name": name,
        "kind": declaration.kind,
        "type": declaration.type,
        "symbol": declaration.symbol,
        "default": default,
        "range": " × ".join(declaration.dims) if declaration.dims else declaration.range,
        "typical": list(declaration.typical) if declaration.typical else None,
        "scale": declaration.scale,
        "options": list(declaration.options) if declaration.options else None,
        "counts": declaration.counts,
        "meaning": declaration.meaning,
        "when": "; ".join(f"{k} = {' or '.join(map(str, v))}" for k, v in declaration.when),
    }
