"""The command `solvable explore`. The server is imported only when the command runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg


@dataclasses.dataclass
class Explore:
    """Open a local page with sliders for the exact curves and simulations to compare with them."""

    what: Positional[
        Annotated[
            str | None, arg(metavar="RUN|LINK", help="A stored study to open, or a link such as '?model=perceptron'.")
        ]
    ] = None
    snapshot: Annotated[
        Path | None, arg(metavar="FILE", help="Write what RUN or LINK shows as one HTML file, and serve nothing.")
    ] = None
    simulate: FlagCreatePairsOff[Annotated[bool, arg(help="With --snapshot LINK: also run its simulation.")]] = False
    port: Annotated[int, arg(metavar="N", help="Port on 127.0.0.1 (0: any free port).")] = 0
    no_browser: FlagCreatePairsOff[Annotated[bool, arg(help="Print the address without opening a browser.")]] = False
    json: Annotated[bool, arg(help="Print the address as one JSON object on standard output.")] = False


def run(command: Explore) -> int:
    if command.snapshot is not None:
        from ..explorer.snapshot import write_snapshot

        return write_snapshot(command.what, command.snapshot, command.simulate, command.json)
    from ..explorer.command import explore

    return explore(command.what, command.port, not command.no_browser, command.json)
