"""The command `solvable list`. It needs no JAX."""

from __future__ import annotations

import dataclasses

from .common import Json, print_json, print_table


@dataclasses.dataclass
class List:
    """List all models, one per line."""

    json: Json = False


def run(command: List) -> int:
    from ..registry import listings

    lines = list(listings().values())
    if command.json:
        print_json({"models": [line._asdict() for line in lines]})
    else:
        print_table("", ["model", "family", "what"], [[line.id, line.family, line.sentence] for line in lines])
    return 0
