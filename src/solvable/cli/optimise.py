"""The command `solvable optimise`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json, Model, Searched, create_model, fields_given, print_json, ranges_in


@dataclasses.dataclass
class Optimise:
    """Find the controls that minimise or maximise an observable, by the gradient of the theory."""

    model: Positional[Model]
    values: Positional[Searched] = ()
    minimise: Annotated[str, arg(metavar="NAME", help="The observable to minimise.")] = ""
    maximise: Annotated[str, arg(metavar="NAME", help="The observable to maximise.")] = ""
    json: Json = False


def run(command: Optimise) -> int:
    if bool(command.minimise) == bool(command.maximise):
        raise InvalidValue("optimise needs exactly one of --minimise NAME and --maximise NAME.")
    words, ranges = ranges_in(command.values)
    if not ranges:
        raise InvalidValue(
            "optimise needs a control to vary: CONTROL=LOW:HIGH, or CONTROL alone for its typical range."
        )
    model = create_model(command.model, words)
    model.check_names(ranges)
    from ..search import optimise

    goal: dict[str, Any] = {"minimise": command.minimise} if command.minimise else {"maximise": command.maximise}
    best = optimise(model, list(ranges), between={n: r for n, r in ranges.items() if r is not None}, **goal)
    if command.json:
        fixed = {n: v for n, v in fields_given(model).items() if n not in ranges}
        found = {"controls": best.controls, "value": best.value, "gradient": best.gradient, "at_bound": best.at_bound}
        print_json({"model": model.id, "params": fixed, **goal, **found})
    else:
        print(f"{next(iter(goal))} {next(iter(goal.values()))}: {best}\n{best.model}")
    return 0
