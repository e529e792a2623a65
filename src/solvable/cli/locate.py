"""The command `solvable locate`."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json, Model, Searched, create_model, fields_given, print_json, ranges_in, say


@dataclasses.dataclass
class Locate:
    """Find where something happens along a control: a transition, a spinodal, a crossing, a peak or a dip."""

    model: Positional[Model]
    values: Positional[Searched] = ()
    what: Annotated[
        str,
        arg(
            metavar="EVENT",
            help="transition, spinodal, 'X = 0.4', 'X = Y', 'peak of X' or 'dip of X'; X, Y observables.",
        ),
    ] = "transition"
    json: Json = False


def run(command: Locate) -> int:
    words, ranges = ranges_in(command.values)
    if len(ranges) != 1:
        raise InvalidValue(
            f"locate needs one control to search along, CONTROL=LOW:HIGH or CONTROL alone, but has {len(ranges)}."
        )
    model = create_model(command.model, words)
    model.check_names(ranges)
    from ..search import locate

    [(along, between)] = ranges.items()
    between = between or model.fields()[along].span
    value = locate(model, along=along, what=command.what, between=between)
    found = not math.isnan(value)
    if command.json:
        fixed = {n: v for n, v in fields_given(model).items() if n != along}
        print_json({"model": model.id, "params": fixed, "what": command.what, "along": along, "between": list(between),
                    "value": value if found else None})  # fmt: skip
    elif found:
        print(f"{command.what}: {along} = {value:.10g}")
    if not found:
        say(f"solvable: no {command.what!r} of {model.id} for {along} in [{between[0]:g}, {between[1]:g}].")
    return 0 if found else 1
