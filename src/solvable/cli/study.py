"""The command `solvable study`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from ..errors import InvalidValue
from .common import Arms, Json, Model, Over, Seeds, Sizes, Values, command_again, fields_given, print_json, study_of


@dataclasses.dataclass
class Study:
    """Compute theory and simulation over a grid and measure their agreement; can be interrupted and resumed."""

    model: Positional[Model]
    values: Positional[Values] = ()
    over: Over = ()
    size: Sizes = ()
    seeds: Seeds = 8
    arms: Arms = ""
    out: Annotated[Path | None, arg(metavar="RUN", help="Folder in which the study is stored and resumed.")] = None
    figure: Annotated[
        Path | None, arg(metavar="FILE", help="File for the plot (default: RUN.png beside the folder).")
    ] = None
    show: Annotated[
        str, arg(metavar="NAME,...", help="Observables to draw, or all (default: the model's main ones).")
    ] = ""
    along: Annotated[str, arg(metavar="NAME", help="What runs along the horizontal axis; two names span a plane.")] = ""
    lines: Annotated[str, arg(metavar="NAME,...", help="What makes lines of different colours.")] = ""
    by: Annotated[str, arg(metavar="NAME,...", help="What makes panels.")] = ""
    log: Annotated[str, arg(metavar="x|y|x,y|none", help="Logarithmic axes (default: as the model declares).")] = ""
    scale: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="NAME=SCALE", help="Draw the axis of a control or an observable linear or log. Repeat for more."),
    ] = ()
    json: Json = False


def run(command: Study) -> int:
    study, scales = study_of(command), _scales(command.scale)
    model, over, sizes = next(iter(study.models.values())), study.over, study.sizes
    picture = command.figure or (command.out.with_name(command.out.name + ".png") if command.out else None)
    words = {n: w for n in ("show", "along", "lines", "by", "log") if (w := getattr(command, n))}
    if words and picture is None:
        raise InvalidValue(
            f"--{next(iter(words))} steers the picture: name its file with --figure, or a run with --out."
        )
    if words:  # refuse a misspelt name before hours of computing
        from ..render.layout import check_words

        check_words(study, **words)
    try:
        data = study.run(command.out, progress=None if not command.json else False)
    except KeyboardInterrupt:
        _interrupted(study, command)
        return 1
    agreement = study.agreement() if sizes and model.has_theory else None
    if picture is not None and (over or model.coordinates()):
        picture.parent.mkdir(parents=True, exist_ok=True)
        study.plot(**words, **({"scales": scales} if scales else {})).savefig(picture)
    if command.json:
        print_json(
            {
                "model": model.id,
                "params": fields_given(model),
                "arms": list(study.arms),
                "out": str(command.out) if command.out else None,
                "cells": study.number_of_cells(),
                "missing": study.missing(),
                "agreement": None if agreement is None else {
                    "verdict": agreement.verdict,
                    "observables": {o: agreement.counts(o) for o in agreement.observables},
                },
                "theory": {n: data[n].values for n in data if str(n).endswith("_theory")},
                "figure": str(picture) if picture else None,
            }
        )  # fmt: skip
        return 0
    print(agreement if agreement is not None else data)
    if command.out:
        print(f"results in {command.out}; picture {picture}" if picture else f"results in {command.out}")
    return 0


def _scales(words: tuple[str, ...]) -> dict[str, str]:
    """The scales of axes by name.

    >>> _scales(("test_error=log",))
    {'test_error': 'log'}
    """
    pairs = [word.partition("=") for word in words]
    for word, (name, _, scale) in zip(words, pairs, strict=True):
        if not name or scale not in ("linear", "log"):
            raise InvalidValue(f"--scale {word!r} is not of the form name=linear or name=log.")
    return {name: scale for name, _, scale in pairs}


def _interrupted(study: Any, command: Study) -> None:
    total = study.number_of_cells()
    if command.out is None:
        print("solvable: interrupted; nothing was kept, because no --out was given.", file=sys.stderr)
        return
    done = total - study.missing()
    print(f"solvable: interrupted; {done} of {total} cells are kept. Resume with: {command_again()}", file=sys.stderr)
