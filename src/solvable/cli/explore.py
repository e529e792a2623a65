"""The command `solvable explore`. Nothing of the server is imported before it runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg


@dataclasses.dataclass
class Explore:
    """A local page on which exact curves follow the sliders and simulated points land on them."""

    run: Positional[Annotated[Path | None, arg(metavar="RUN", help="A stored study to look at.")]] = None
    port: Annotated[int, arg(metavar="N", help="Port on 127.0.0.1 (0: a free one).")] = 0
    no_browser: FlagCreatePairsOff[Annotated[bool, arg(help="Print the address and open nothing.")]] = False
    json: Annotated[bool, arg(help="Print the address as one JSON object on standard output.")] = False


def run(command: Explore) -> int:
    from ..explorer.command import explore

    return explore(command.run, command.port, not command.no_browser, command.json)
