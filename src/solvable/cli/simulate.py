"""The command `solvable simulate`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Json, Model, Values, create_model, fields_given, print_json, print_table


@dataclasses.dataclass
class Simulate:
    """Simulate one realisation of finite size and compare it with the theory."""

    model: Positional[Model]
    values: Positional[Values] = ()
    size: Annotated[
        int, arg(metavar="N", help="Size of the realisation (0: the largest of the model's typical sizes).")
    ] = 0
    seed: Annotated[int, arg(metavar="S", help="Number of the realisation.")] = 0
    json: Json = False


def run(command: Simulate) -> int:
    from ..lab.compute import fitting
    from ..study import Study

    model = create_model(command.model, command.values)
    size = command.size or type(model).typical_sizes[-1]
    for block in Study(model, sizes=[size], seeds=[command.seed]).plan():
        fitting(model, block)  # raises an error before anything is allocated
    outcome = model.simulate(command.seed, size)
    drawn = model.prepared(model.key(size, command.seed), size)
    theory = drawn.realised(size).theory() if model.has_theory else None
    if command.json:
        print_json(
            {
                "model": model.id,
                "params": fields_given(model),
                "size": size,
                "seed": command.seed,
                "observables": dict(outcome.values),
                "status": outcome.status,
                "theory": dict(theory.values) if theory else None,
                "coordinates": model.coordinates(),
            }
        )
        return 0
    import numpy as np

    print(f"{model}, d = {size}, seed {command.seed}: {outcome.status}")
    rows = []
    for name in outcome:
        value = np.asarray(outcome[name])
        beside = np.asarray(theory[name]) if theory is not None and name in theory else None
        if value.ndim == 0:
            rows.append([name, f"{float(value):.6g}", "" if beside is None else f"{float(beside):.6g}"])
        else:
            gap = "" if beside is None else f"largest difference {np.nanmax(np.abs(value - beside)):.3g}"
            rows.append([name, f"{'×'.join(map(str, value.shape))} values", gap])
    print_table("", ["observable", "simulated", "theory"], rows)
    return 0
