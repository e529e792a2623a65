"""The command `solvable notebook`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json, Model, Values, create_model, print_json, say, write_text


@dataclasses.dataclass
class Notebook:
    """Write a notebook that teaches a model, with its results: question, curve, simulation, phase diagram, exercise."""

    model: Positional[Model]
    values: Positional[Values] = ()
    out: Annotated[
        Path | None, arg(metavar="FILE", help="A file .ipynb, or .py for a script (default: MODEL.ipynb).")
    ] = None
    execute: Annotated[bool, arg(help="Run the cells; a script is never run.")] = True
    json: Json = False


def run(command: Notebook) -> int:
    file = command.out or Path(f"{command.model}.ipynb")
    if file.suffix not in (".ipynb", ".py"):
        raise InvalidValue(f"--out {str(file)!r} does not end in .ipynb (a notebook) or .py (a script).")
    model = create_model(command.model, command.values)
    if model.shape:
        raise InvalidValue(
            f"a notebook is about one model: its controls must be numbers, but have shape {model.shape}."
        )
    from ..render.notebooks import run as run_cells
    from ..render.notebooks import to_ipynb, to_script
    from ..render.teach import teaching_cells

    cells = teaching_cells(model)
    executed = command.execute and file.suffix == ".ipynb"
    if executed:
        cells = run_cells(cells, done=None if command.json else lambda n, of: say(f"cell {n} of {of}"))
    write_text(file, to_ipynb(cells) if file.suffix == ".ipynb" else to_script(cells))
    if command.json:
        pictures = sum(o.kind == "png" for cell in cells for o in cell.outputs)
        print_json(
            {"model": model.id, "file": str(file), "cells": len(cells), "executed": executed, "pictures": pictures}
        )
    else:
        print(file)
    return 0
