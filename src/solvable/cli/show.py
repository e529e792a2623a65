"""The command `solvable show`."""

from __future__ import annotations

import dataclasses

from tyro.conf import Positional

from .common import Json, Model, print_json, print_table


@dataclasses.dataclass
class Show:
    """Describe a model: fields, observables, arms, references."""

    model: Positional[Model]
    json: Json = False


def run(command: Show) -> int:
    from ..contract.describe import describe
    from ..registry import model_class

    shown = describe(model_class(command.model))
    if command.json:
        print_json(shown)
        return 0
    print(f"{shown['title']} ({shown['id']}, family {shown['family']})\n\n{shown['about']}\n")
    rows = [[f["name"], f["kind"], f["symbol"], f["default"], f["range"], f["meaning"]] for f in shown["fields"]]
    print_table("Fields", ["name", "kind", "symbol", "default", "range", "meaning"], rows)
    print()
    rows = [[o["name"], " × ".join(o["dims"]), o["status"], o["when"], o["meaning"]] for o in shown["observables"]]
    print_table("Observables", ["name", "dimensions", "status", "when", "meaning"], rows)
    if shown["arms"]:
        print()
        print_table("Arms (--arms)", ["name", "changes"], [[a["name"], a["changes"]] for a in shown["arms"]])
    print("\nReferences\n" + "\n".join(f"  {r}" for r in shown["references"]))
    return 0
