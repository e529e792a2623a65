"""A laboratory for exactly solvable models of learning.

Every model is a pair: an exact theory and a finite-size simulation of the same observables. Importing this package is
cheap; JAX is imported by the first name that needs it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from typing import TYPE_CHECKING, Any

from ._version import __version__

# Theories need 64-bit floats. JAX reads the variable when it is imported; afterwards only its config can be changed.
if os.environ.get("SOLVABLE_ENABLE_X64", "1") != "0":
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)
    else:
        os.environ["JAX_ENABLE_X64"] = "1"

# On CPUs these releases read some reductions before they are written (github.com/jax-ml/jax/issues/39103), so that programs of
# products, maxima and sums return wrong numbers, silently. They are right without fusions by YNNPACK. XLA reads the variable
# when it is first used.
_MISCOMPILING = ("0.10.2", "0.11.0")
if "ynn_fusion_type" not in os.environ.get("XLA_FLAGS", ""):
    try:
        if importlib.metadata.version("jaxlib") in _MISCOMPILING:
            _given = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{_given} --xla_cpu_experimental_ynn_fusion_type=".strip()
    except importlib.metadata.PackageNotFoundError:
        pass

_HOMES = {
    "Model": "model",
    "Numerics": "model",
    "Outcome": "model",
    "Control": "model",
    "Count": "model",
    "Input": "model",
    "Reference": "model",
    "control": "model",
    "choice": "model",
    "input": "model",
    "data": "model",
    "dimension": "model",
    "graph": "model",
    "Graph": "model",
    "observable": "model",
    "Study": "study",
    "open": "study",
    "optimise": "search",
    "locate": "search",
    "predict": "tools.predict",
    "create": "registry",
    "model_class": "registry",
    "listings": "registry",
    "SolvableError": "errors",
    "InvalidValue": "errors",
    "UnknownName": "errors",
}

if TYPE_CHECKING:
    from .errors import InvalidValue as InvalidValue
    from .errors import SolvableError as SolvableError
    from .errors import UnknownName as UnknownName
    from .model import Control as Control
    from .model import Count as Count
    from .model import Graph as Graph
    from .model import Input as Input
    from .model import Model as Model
    from .model import Numerics as Numerics
    from .model import Outcome as Outcome
    from .model import Reference as Reference
    from .model import choice as choice
    from .model import control as control
    from .model import data as data
    from .model import dimension as dimension
    from .model import graph as graph
    from .model import input as input
    from .model import observable as observable
    from .registry import create as create
    from .registry import listings as listings
    from .registry import model_class as model_class
    from .search import locate as locate
    from .search import optimise as optimise
    from .study import Study as Study
    from .study import open as open
    from .tools.predict import predict as predict

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    else:
        from .models import LISTINGS

        for line in LISTINGS:
            if line.name == name:
                value = getattr(importlib.import_module(line.module), name)
                break
        else:
            raise AttributeError(f"module 'solvable' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from .models import LISTINGS

    return sorted([*__all__, *(line.name for line in LISTINGS)])
