"""Entry point of the command line; every command has its own file.

Heavy modules are imported only when a command needs them; `list` and `--help` never import JAX.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args

import tyro
from tyro.conf import OmitSubcommandPrefixes, subcommand

from ..errors import SolvableError, nearest
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
    refusal = io.StringIO()
    try:
        with contextlib.redirect_stderr(refusal):
            return tyro.cli(Command, prog="solvable", description=_ABOUT, args=words)  # type: ignore[arg-type]
    except SystemExit as stop:
        if not stop.code:
            raise
        sentence = _in_one_sentence(refusal.getvalue(), words)
        if "--json" in words:
            print(json.dumps({"error": sentence}, ensure_ascii=False))
        print(f"solvable: {sentence}", file=sys.stderr)
        sys.exit(2)


_COMMAND_WORDS = [one.__metadata__[0].name for one in get_args(get_args(Command)[0])]


def _in_one_sentence(refusal: str, words: list[str]) -> str:
    """What tyro's box says about these words; its lines are indented once for a name and twice for its meaning."""
    lines = [line[1:].rstrip("╮╯│ ") for line in refusal.splitlines()]  # without the box's sides, which may be spaces
    lines = [line for line in lines if line.strip("─- ")]  # rules go
    command = next((word for word in words if not word.startswith("-")), "")
    where = f"; see solvable {command} --help" if command in _COMMAND_WORDS else "; see solvable --help"
    named = [line.strip() for line in lines if re.match(r" {5}(?!solvable )\S", line)]
    text = " ".join(
        line.strip() for line in lines[1:] or [line.strip("─- ") for line in lines]
    )  # after the box's title
    text = re.split(r" Argument helptext:| For full helptext", text)[0].strip()
    if missing := re.match(r"Missing from solvable ([a-z -]+):", text):
        return f"{missing[1]} needs {' and '.join(named)}{where}."
    if empty := re.match(r"Missing value for argument '(\S+)'", text):
        return f"{empty[1]} needs a value{where}."
    if unknown := re.match(r"Unrecognized (?:or misplaced )?options: (\S+?),?(\s|$)", text):
        word = unknown[1]
        if command not in _COMMAND_WORDS and word == command:
            return f"there is no command {word!r}; {nearest(word, _COMMAND_WORDS)}"
        if not word.startswith("-"):
            return f"{word!r} is one word too many{where}."
        own = [line.split()[0].rstrip(",") for line in named if line.startswith("--")]
        close = own and (" in solvable " not in text or f" in solvable {command} --help" in text)
        return f"there is no option {word}" + (f"; did you mean {own[0]}?" if close else f"{where}.")
    if wrong := re.match(r"Error parsing (\S+): (.*): '?(.*?)'?$", text):
        kind = {"int()": "a whole number", "float": "a number"}
        is_not = next((what for mark, what in kind.items() if mark in wrong[2]), None)
        if is_not:
            return f"{wrong[1]} {wrong[3]} is not {is_not}{where}."
    return text.rstrip(".") + where + "."
