"""The command `solvable theory`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Json, Model, Values, create_model, fields_given, print_json


@dataclasses.dataclass
class Theory:
    """Print the exact prediction of a model."""

    model: Positional[Model]
    values: Positional[Values] = ()
    branches: Annotated[bool, arg(help="Print every solution found, not only the one that is learnt.")] = False
    json: Json = False


def run(command: Theory) -> int:
    model = create_model(command.model, command.values)
    outcome = model.branches() if command.branches else model.theory()
    if command.json:
        print_json(
            {
                "model": model.id,
                "params": fields_given(model),
                "observables": dict(outcome.values),
                "status": outcome.status,
                "residual": outcome.residual,
                "coordinates": model.coordinates(),
            }
        )
    else:
        print(f"{model}\n{outcome}")
    return 0
