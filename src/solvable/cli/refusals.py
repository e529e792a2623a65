"""Refusals of the command line's parser, in one sentence of ours that names the option, its value and what is allowed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from ..errors import nearest

KINDS = {"NoneType": "", "int": "a whole number", "float": "a number", "bool": "True or False", "Path": "a path"}


def refusal(boxed: str, words: Iterable[str], commands: Mapping[str, type]) -> str:
    """The sentence for what tyro printed in a box about these words; `commands` maps "sweep run" to its dataclass.

    >>> box = "╭─ Value error ─╮\\n│ Error parsing --size: invalid literal for int() with base 10: 'x' │\\n╰─╯"
    >>> refusal(box, ["simulate", "perceptron", "--size", "x"], {})
    "--size = 'x' is not a whole number."
    """
    # Boxes are drawn with lines, or on some terminals with the characters - + |.
    lines = [line.strip("╭╮╰╯│─+| \t").removeprefix("- ") for line in boxed.splitlines()]
    shown = [line for line in lines if line.strip("-") and not line.startswith("For full helptext")]
    # The first line is the title of the box; it is used only if there is nothing else.
    text = " ".join(shown[1:] or shown).partition(" Argument helptext:")[0]
    command = _command(list(words), commands)
    for begin, explain in (
        ("Error parsing ", _wrong_kind),
        ("Missing value for argument", _no_value),
        ("Missing from ", _missing),
        ("invalid choice ", _wrong_choice),
        ("Expected one of ", _no_command),
        ("Unrecognized ", _unknown),
    ):
        if text.startswith(begin) and (sentence := explain(text, command, commands)):
            return sentence
    return f"{text} (see solvable --help)"


def _command(words: list[str], commands: Mapping[str, type]) -> str:
    """The longest command that the words begin with."""
    return next((name for name in (" ".join(words[:2]), " ".join(words[:1])) if name in commands), "")


def _wrong_kind(text: str, command: str, commands: Mapping[str, type]) -> str | None:
    option = re.match(r"Error parsing (\S+):", text)
    value = re.search(r"instantiated from \[(.*?)\]", text) or re.search(r"(?:base 10|to float): (.*)$", text)
    kinds = re.findall(r"<class '(?:\w+\.)*(\w+)'>", text) or re.findall(r"(?:for|to) (int|float)\b", text)
    wanted = " or ".join(dict.fromkeys(KINDS[kind] for kind in kinds if KINDS.get(kind)))
    return f"{option[1]} = {value[1]} is not {wanted}." if option and value and wanted else None


def _no_value(text: str, command: str, commands: Mapping[str, type]) -> str | None:
    option = re.search(r"'(\S+)'", text)
    return f"{option[1]} needs a value{_of(command)}." if option else None


def _missing(text: str, command: str, commands: Mapping[str, type]) -> str | None:
    begun = re.match(r"Missing from solvable ([\w ]+?): ", text)
    needed = re.findall(r"(\S+) (.+?) \(required\)(?: |$)", text[begun.end() :]) if begun else []
    if begun is None or not needed:
        return None
    if len(needed) > 1:
        return f"solvable {begun[1]} needs {' and '.join(name for name, _ in needed)}{_of(begun[1])}."
    name, meaning = needed[0]
    return f"solvable {begun[1]} needs {name}: {meaning[0].lower()}{meaning[1:].rstrip('.')}."


def _wrong_choice(text: str, command: str, commands: Mapping[str, type]) -> str | None:
    found = re.match(r"invalid choice (.+?) for argument '(\S+)'\. Expected one of \((.*?),?\)\.", text)
    return f"{found[2]} = {found[1]} is not one of {found[3]}." if found else None


def _no_command(text: str, command: str, commands: Mapping[str, type]) -> str | None:
    found = re.match(r"Expected one of \{(.*?)\}", text)
    return f"one of the commands {found[1]} is missing." if found else None


def _unknown(text: str, command: str, commands: Mapping[str, type]) -> str | None:
    known = re.search(r"Available subcommands: (.*)$", text)
    if known:
        given = re.match(r"Unrecognized options: ([^\s,]+)", text)
        return f"there is no command {given[1]!r}; {nearest(given[1], known[1].split(', '))}" if given else None
    if command not in commands:
        return None
    fields = dataclasses.fields(commands[command])
    options = ["--" + field.name.replace("_", "-") for field in fields if "Positional" not in str(field.type)]
    given = re.findall(r"(\S+) \(applied to", text) or re.findall(r"Unrecognized options: ([^\s,]+)", text)
    wrong = next((word for word in given if word.startswith("-")), None)
    if wrong is None:
        if given and "over" in {field.name for field in fields} and "=" in given[0]:
            return f"{given[0]!r} is one word too many: --over takes one field, repeat it to sweep another."
        return f"{given[0]!r} is one word too many for solvable {command}." if given else None
    return f"solvable {command} has no option {wrong!r}; {nearest(wrong, options)}"


def _of(command: str) -> str:
    return f" (see solvable {command} --help)" if command else ""
