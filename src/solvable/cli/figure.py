"""The command `solvable figure`. Listing the figures needs no JAX."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..contract.parse_values import assignments
from ..errors import InvalidValue
from .common import Json, command_again, print_json, print_table


@dataclasses.dataclass
class Figure:
    """Draw a figure of a paper; without a name, list them."""

    name: Positional[Annotated[str, arg(metavar="NAME", help="The figure's name.")]] = ""
    values: Positional[
        Annotated[
            tuple[str, ...],
            arg(
                metavar="X=@FILE",
                help="Your own data for a figure of real data: X=@rows.npy y=@classes.npy [group=@groups.npy].",
            ),
        ]
    ] = ()
    quick: Annotated[bool, arg(help="Draw a coarser version in under a minute.")] = False
    recompute: Annotated[bool, arg(help="Recompute the data stored with the package.")] = False
    out: Annotated[Path, arg(metavar="FOLDER", help="Folder for the picture and its data.")] = Path("figures")
    json: Json = False


def run(command: Figure) -> int:
    from ..models import FIGURES, figure_named

    if not command.name:
        if command.json:
            print_json({"figures": [f._asdict() for f in FIGURES]})
        else:
            print_table("", ["figure", "model", "what"], [[f.name, f.model, f.sentence] for f in FIGURES])
        return 0
    if command.quick and command.recompute:
        raise InvalidValue("--quick and --recompute cannot be combined.")
    figure_named(command.name)
    if command.values and command.recompute:
        raise InvalidValue("--recompute is for the data stored with the package: leave it out with data of your own.")
    own = assignments(command.values)
    from ..lab.jax_environment import configure

    configure()
    from ..render.figures import draw, pieces_of

    try:
        files = draw(command.name, command.out, quick=command.quick, recompute=command.recompute, own=own)
    except KeyboardInterrupt:
        kept = (
            f"finished parts are kept. Resume with: {command_again()}"
            if pieces_of(command.name, command.out).is_dir()
            else ""
        )
        print(f"solvable: interrupted; {kept or 'nothing was kept.'}", file=sys.stderr, flush=True)
        os._exit(1)  # a normal exit would wait for threads that are still computing
    from ..lab.ledger import decided_by

    sentence = figure_named(command.name).sentence
    claims = [] if own else [(entry.judged.verdict, entry.judged.claim.sentence) for entry in decided_by(command.name)]
    if command.json:
        decided = [{"verdict": verdict, "sentence": claim} for verdict, claim in claims]
        print_json({"figure": command.name, "sentence": sentence, "claims": decided, "files": [str(f) for f in files]})
        return 0
    print("\n".join(str(f) for f in files))
    print(f"\n{sentence}")
    for verdict, claim in claims:
        print(f"decides: {claim} ({verdict}, by the data in the package)")
    return 0
