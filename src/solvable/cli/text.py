"""The command `solvable text`. JAX is imported only after the file has been read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json, print_json, print_table


@dataclasses.dataclass
class Text:
    """Make clones of a text with interactions of limited order, and measure which of them a transformer learns first."""

    file: Positional[Annotated[Path, arg(metavar="FILE", help="A text in UTF-8; characters are its tokens.")]]
    sites: Annotated[int, arg(metavar="L", help="Characters per window.")] = 12
    colours: Annotated[
        int, arg(metavar="C", help="Number of tokens: the C-1 most common characters, one for the rest.")
    ] = 28
    steps: Annotated[int, arg(metavar="N", help="Training steps of every network.")] = 2000
    sweeps: Annotated[int, arg(metavar="N", help="Gibbs sweeps to generate a clone.")] = 20
    seeds: Annotated[int, arg(metavar="S", help="Number of encoders trained in parallel.")] = 2
    figure: Annotated[Path | None, arg(metavar="FILE", help="File for a plot of the losses.")] = None
    json: Json = False


def run(command: Text) -> int:
    from ..lab.jax_environment import configure

    for name, most in (("steps", 10**7), ("sweeps", 10**5), ("seeds", 64)):
        if not 1 <= getattr(command, name) <= most:
            raise InvalidValue(f"{name} = {getattr(command, name)} is not a whole number in [1, {most}].")
    configure()
    from ..tools.text import cut_windows, draw_learnt, learn_text, read_text

    windows = cut_windows(read_text(command.file), command.sites, command.colours)
    learnt = learn_text(windows, steps=command.steps, sweeps=command.sweeps, seeds=command.seeds)
    if command.figure is not None:
        draw_learnt(learnt, command.figure)
    rows = [
        {"order": one.order or "text", "loss": float(one.losses[-1]), "best_step": one.best_step,
         "settled_step": one.settled_step, "stack_loss": learnt.stack_losses.get(one.order)}
        for one in learnt.sets
    ]  # fmt: skip
    if command.json:
        losses = {str(one.order or "text"): one.losses.tolist() for one in learnt.sets}
        print_json({"windows": len(windows.train), "steps": learnt.steps.tolist(), "sets": rows, "losses": losses})
        return 0
    columns = ["bodies", "encoder's last loss", "lowest at step", "within 5 % from step", "stack's loss on the text"]
    shown = [
        [str(r["order"]), f"{r['loss']:.4f}", str(r["best_step"]), str(r["settled_step"]),
         "" if r["stack_loss"] is None else f"{r['stack_loss']:.4f}"]
        for r in rows
    ]  # fmt: skip
    print_table(f"{len(windows.train)} windows of {command.sites} characters, {learnt.seeds} encoders", columns, shown)
    return 0
