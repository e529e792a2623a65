"""The command `solvable explore`. The server is imported only when the command runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg


@dataclasses.dataclass
class Explore:
    """Open a local page with sliders for the exact curves and simulations to compare with them."""

    run: Positional[Annotated[Path | None, arg(metavar="RUN", help="A stored study to view.")]] = None
    port: Annotated[int, arg(metavar="N", help="Port on 127.0.0.1 (0: any free port).")] = 0
    no_browser: FlagCreatePairsOff[Annotated[bool, arg(help="Print the address without opening a browser.")]] = False
    json: Annotated[bool, arg(help="Print the address as one JSON object on standard output.")] = False


def run(command: Explore) -> int:
    from ..explorer.command import explore

    return explore(command.run, command.port, not command.no_browser, command.json)
