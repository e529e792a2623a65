"""Entry point of the command line; every command has its own file.

Heavy modules are imported only when a command needs them; `list` and `--help` never import JAX.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Annotated, Any

import tyro
from tyro.conf import OmitSubcommandPrefixes, subcommand

from ..contract.functions import trust_words
from ..errors import SolvableError
from . import (
    check,
    cite,
    claims,
    equations,
    explore,
    figure,
    forecast,
    listing,
    locate,
    new,
    notebook,
    optimise,
    potts,
    predict,
    refusals,
    show,
    simulate,
    study,
    sweep,
    text,
    theory,
    transformer,
)
from .common import complain, with_arms

Command = OmitSubcommandPrefixes[
    Annotated[listing.List, subcommand("list")]
    | Annotated[show.Show, subcommand("show")]
    | Annotated[theory.Theory, subcommand("theory")]
    | Annotated[simulate.Simulate, subcommand("simulate")]
    | Annotated[optimise.Optimise, subcommand("optimise")]
    | Annotated[locate.Locate, subcommand("locate")]
    | Annotated[study.Study, subcommand("study")]
    | Annotated[sweep.Sweep, subcommand("sweep")]
    | Annotated[potts.Potts, subcommand("potts")]
    | Annotated[text.Text, subcommand("text")]
    | Annotated[forecast.Forecast, subcommand("forecast")]
    | Annotated[predict.Predict, subcommand("predict")]
    | Annotated[transformer.Transformer, subcommand("transformer")]
    | Annotated[figure.Figure, subcommand("figure")]
    | Annotated[equations.Equations, subcommand("equations")]
    | Annotated[notebook.Notebook, subcommand("notebook")]
    | Annotated[explore.Explore, subcommand("explore")]
    | Annotated[check.Check, subcommand("check")]
    | Annotated[claims.Claims, subcommand("claims")]
    | Annotated[cite.Cite, subcommand("cite")]
    | Annotated[new.New, subcommand("new")]
]

COMMANDS: dict[type, Callable[[Any], int]] = {
    listing.List: listing.run,
    show.Show: show.run,
    theory.Theory: theory.run,
    simulate.Simulate: simulate.run,
    optimise.Optimise: optimise.run,
    locate.Locate: locate.run,
    study.Study: study.run,
    **sweep.COMMANDS,
    **potts.COMMANDS,
    text.Text: text.run,
    forecast.Forecast: forecast.run,
    predict.Predict: predict.run,
    **transformer.COMMANDS,
    figure.Figure: figure.run,
    equations.Equations: equations.run,
    notebook.Notebook: notebook.run,
    explore.Explore: explore.run,
    check.Check: check.run,
    claims.Claims: claims.run,
    cite.Cite: cite.run,
    new.New: new.run,
}

_ABOUT = "Exactly solvable models of learning: theory and experiment on the same axis, with the agreement measured."


def main(argv: list[str] | None = None) -> None:
    """Run `solvable` and exit with code 0 (success), 1 (failed check or unfinished work) or 2 (invalid input)."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        from .._version import __version__

        print(f"solvable {__version__}")
        return
    trust_words(words)
    command = _parsed(with_arms(sweep.with_sbatch(words)) or ["--help"])
    command = command.action if isinstance(command, (sweep.Sweep, potts.Potts, transformer.Transformer)) else command
    try:
        code = COMMANDS[type(command)](command)
    except SolvableError as problem:
        complain(str(problem), command.json)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code)


def _parsed(words: list[str]) -> Any:
    """Parse the command line; on a parse error, print one sentence and exit with code 2."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(Command, prog="solvable", description=_ABOUT, args=words)  # type: ignore[arg-type]
    except SystemExit as stop:
        if not stop.code:
            raise
        complain(refusals.refusal(box.getvalue(), words, _names()), "--json" in words)
        sys.exit(2)


def _names() -> dict[str, type]:
    """The commands by the words that call them: "theory", "sweep run"."""
    groups = {sweep: "Sweep", potts: "", transformer: ""}
    alone = {kind.__name__.lower(): kind for kind in COMMANDS}
    within = {
        f"{group.__name__.rpartition('.')[2]} {kind.__name__.removeprefix(prefix).lower()}": kind
        for group, prefix in groups.items()
        for kind in group.COMMANDS
    }
    return alone | within
