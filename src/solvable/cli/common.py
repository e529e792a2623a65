"""Shared code of the commands: arguments, output, and creation of models and studies. Imports nothing heavy.

Exit codes are the same for all commands: 0 (success), 1 (failed check or unfinished work), 2 (invalid input).
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Protocol

from tyro.conf import UseAppendAction, arg

from ..errors import InvalidValue, SolvableError, UnknownName, nearest

Json = Annotated[bool, arg(help="Print one JSON object on standard output.")]
Model = Annotated[str, arg(metavar="MODEL", help="A model's id, as `solvable list` prints it.")]
Values = Annotated[
    tuple[str, ...],
    arg(metavar="NAME=VALUE", help="Fields of the model: a number, a word, a,b,c, a:b:n[:log], [[..]], or @file.npy."),
]
Searched = Annotated[
    tuple[str, ...],
    arg(metavar="NAME=VALUE|RANGE", help="Fields of the model; a control to vary is NAME=LOW:HIGH, or NAME alone."),
]
Over = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(metavar="NAME=RANGE", help="Sweep a field: a:b:n, a:b:n:log, or a,b,c. Repeat for a grid."),
]
Sizes = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(metavar="N", help="Size to simulate (a list a,b,c, or repeat the option; default: theory only)."),
]
ALL_ARMS = "all"
Arms = Annotated[
    str,
    arg(metavar="[NAME,...]", help="Run the model's named variations: all of them, or a,b,c."),
]
Seeds = Annotated[int, arg(metavar="S", help="Realisations of each cell.")]


class StudyArguments(Protocol):
    """The arguments that define a study."""

    model: str
    values: tuple[str, ...]
    over: tuple[str, ...]
    size: tuple[str, ...]
    seeds: int
    arms: str


def say(sentence: str) -> None:
    """Print a sentence on standard error and flush."""
    print(sentence, file=sys.stderr, flush=True)


def complain(sentence: str, as_json: bool) -> None:
    """Print an error on standard error, and also as a JSON object if `as_json`."""
    if as_json:
        print(json.dumps({"error": sentence}))
    print(f"solvable: {sentence}", file=sys.stderr)


def print_json(value: Any) -> None:
    """Print one JSON object on standard output."""
    from ..contract.parse_values import json_ready

    print(json.dumps(json_ready(value), ensure_ascii=False))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; brackets and colons in the cells (error messages, file names) are printed literally."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def create_model(id: str, words: tuple[str, ...]) -> Any:
    """The model with this id and fields given as `name=value`. Imports JAX."""
    from ..lab.jax_environment import configure

    configure()
    from ..contract.parse_values import assignments
    from ..registry import model_class

    return model_class(id).create(**assignments(words))


def ranges_in(words: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, tuple[float, float] | None]]:
    """The words that set fields, and the ranges of the controls to vary: None for a typical range.

    >>> ranges_in(("samples=2", "penalty=0.1:10", "noise"))
    (('samples=2',), {'penalty': (0.1, 10.0), 'noise': None})
    """
    plain, ranges = [], {}
    for word in words:
        name, equals, text = word.partition("=")
        if equals and (":" not in text or text.startswith(("@", "[", "{"))):
            plain.append(word)
            continue
        if not name or name in ranges:
            raise InvalidValue(f"{word!r} is not of the form NAME=LOW:HIGH, or repeats a name.")
        try:
            low, high = (float(t) for t in text.split(":")) if equals else (0.0, 0.0)
        except ValueError:
            raise InvalidValue(f"{word!r} is not a range NAME=LOW:HIGH of two numbers.") from None
        ranges[name] = (low, high) if equals else None
    return tuple(plain), ranges


def write_text(file: Path, text: str) -> None:
    """Write a file, and the folders above it; raises `SolvableError` with the reason where that is impossible."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise SolvableError(f"the file {str(file)!r} cannot be written: {problem.strerror}.") from None


def fields_given(model: Any) -> dict[str, Any]:
    """The fields of a model that were given explicitly."""
    return {
        n: getattr(model, n) for n in model.fields() if n not in model._from_defaults and getattr(model, n) is not None
    }


def study_of(command: StudyArguments) -> Any:
    """The study described by the arguments of a command."""
    from ..contract.parse_values import values_of

    model = create_model(command.model, command.values)
    from ..study import Study as Lab

    over: dict[str, Any] = {}
    for word in command.over:
        name, equals, text = word.partition("=")
        if not equals or not name or name in over:
            raise InvalidValue(f"--over {word!r} is not of the form name=range, or repeats a name.")
        over[name] = values_of(name, text)
    sizes = []
    for word in command.size:
        sizes += [s if isinstance(s, int) else _refuse_size(s) for s in values_of("size", word)]
    if sizes and command.seeds < 1:
        raise InvalidValue(f"seeds = {command.seeds} is not a whole number in [1, ∞): the realisations of each cell.")
    arms = arms_of(model, command.arms) if command.arms else None
    return Lab(model, over, arms=arms, sizes=sorted(sizes), seeds=command.seeds if sizes else 0)


def with_arms(words: list[str]) -> list[str]:
    """The words of a command line, with `--arms` without names replaced by `--arms=all`.

    >>> with_arms(["study", "masked-language", "--arms", "--size", "500"])
    ['study', 'masked-language', '--arms=all', '--size', '500']
    >>> with_arms(["study", "masked-language", "--arms", "factored,1 layer"])
    ['study', 'masked-language', '--arms', 'factored,1 layer']
    """
    bare = [
        i for i, word in enumerate(words) if word == "--arms" and (words[i + 1 : i + 2] or ["-"])[0].startswith("-")
    ]
    return [f"--arms={ALL_ARMS}" if i in bare else word for i, word in enumerate(words)]


def arms_of(model: Any, text: str) -> dict[str, Any]:
    """The declared arms with these names, or all; raises `UnknownName`, which names the nearest."""
    known = dict(type(model).arms_declared)
    if not known:
        raise InvalidValue(f"--arms {text!r}: {model.id} declares no arms.")
    names = [name.strip() for name in text.split(",")]
    if names == [ALL_ARMS] and ALL_ARMS not in known:
        return known
    for name in names:
        if name not in known:
            raise UnknownName(f"{model.id} has no arm {name!r}; {nearest(name, list(known))}")
    return {name: known[name] for name in names}


def _refuse_size(value: Any) -> int:
    raise InvalidValue(f"size = {value!r} is not a whole number in [2, 10000000]: the dimension d of one realisation.")


def command_again() -> str:
    """The command line as it was given."""
    return shlex.join(["solvable", *sys.argv[1:]])
