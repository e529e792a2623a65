"""The current view as a Python program, a shell command and a link; run unchanged, they give the same numbers."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

from ..model import Model
from ..registry import listings
from .links import WORDS
from .pictures import Shown
from .views import Axis, View


def reproduce(shown: Shown, address: str) -> dict[str, str]:
    """The program, the command and the link."""
    return {"python": python(shown), "shell": shell(shown), "link": link(shown, address)}


def link(shown: Shown, address: str) -> str:
    """An address that restores the view (in a browser with access)."""
    view = shown.view
    query = [("model", view.model.id)]
    query += [(f"field.{n}" if n in WORDS else n, _word(v)) for n, v in view.values.items()]
    query += [("x", _along(view.x) if view.x else "none"), *([("y", _along(view.y))] if view.y else [])]
    query += [("show", ",".join(view.observables)), *([("branches", "1")] if view.branches else [])]
    query += [("sizes", ",".join(map(str, view.sizes))), ("seeds", str(view.seeds)), ("simulated", str(view.simulated))]
    for pin in shown.pins:
        query.append(("pin", ",".join(f"{n}:{_word(v)}" for n, v in pin.values.items()) or "defaults"))
    query += [("axis", "log")] if shown.logarithmic else []
    return f"{address}/?{urlencode(query, safe=':,')}"


def _along(axis: Axis) -> str:
    return f"{axis.field}:{axis.low!r}:{axis.high!r}:{axis.points}:{axis.scale}"


def python(shown: Shown) -> str:
    """A Python program for the curve, the pinned ones, the simulation, and the picture of all of them."""
    view = shown.view
    drawn = drawable(view.model, list(view.observables), bool(view.axes))
    lines = ["import solvable as sv", "", f"model = {_made(view)}"]
    if view.axes:
        lines.insert(0, "import numpy as np")
    if view.model.answers_at_once:
        lines += ["", *_python_theory(view)]
    if shown.pins:
        lines += ["", *_python_pins(shown, drawn)]
    if view.sizes:
        over = f", over={_over(view.axes, view.simulated)}" if view.axes else ""
        lines += ["", f"study = sv.Study(model{over}, sizes={list(view.sizes)}, seeds={view.seeds})",
                  "simulated = study.run()"]  # fmt: skip
        lines += ["print(study.agreement())"] if view.model.has_theory else ["print(simulated)"]
    if drawn and (view.sizes or shown.pins):
        lines += _python_picture(shown, drawn)
    return "\n".join(lines) + "\n"


def _made(view: View) -> str:
    """The model of a view, as an expression."""
    fixed = ", ".join(f"{n}={v!r}" for n, v in view.changed.items())
    line = listings()[view.model.id]
    if line.module.startswith("solvable."):
        return f"sv.{line.name}({fixed})"
    return f"sv.create({view.model.id!r}{', ' if fixed else ''}{fixed})"


def _python_pins(shown: Shown, drawn: list[str]) -> list[str]:
    over = f", over={_over(shown.view.axes)}" if shown.view.axes else ""
    made = [f"    {text!r}: {_made(pin)}," for text, pin in zip(shown.captions[1:], shown.pins, strict=True)]
    return ["pinned = {", *made, "}",
            f"pinned = {{name: sv.Study(each{over}) for name, each in pinned.items()}}",
            "for name, each in pinned.items():",
            "    print(name, each.run())"]  # fmt: skip


def _python_picture(shown: Shown, drawn: list[str]) -> list[str]:
    view = shown.view
    source = "study"
    lines = []
    if not view.sizes:
        source = "curve"
        if view.branches or not view.axes:  # the numbers above are not those of a study
            lines = [f"curve = sv.Study(model{f', over={_over(view.axes)}' if view.axes else ''})", "curve.run()"]
    words = [repr(drawn[0]) if len(drawn) == 1 else repr(drawn)]
    words += [f"scales={shown.declared_otherwise!r}"] if shown.declared_otherwise else []
    words += ["branches=True"] if view.branches else []
    words += [f"beside=pinned, caption={shown.captions[0]!r}"] if shown.pins else []
    return [*lines, f"{source}.plot({', '.join(words)}).savefig({view.model.id + '.png'!r})"]


def drawable(model: Model, names: list[str], swept: bool) -> list[str]:
    """The observables with an axis to be drawn along: a swept control, or a dimension of their own."""
    declared = model.observables()
    return names if swept else [n for n in names if declared[n].dims]


def _python_theory(view: View) -> list[str]:
    names = [n for n in view.observables if view.model.observables()[n].predicted]
    if not view.axes:
        call = "branches" if view.branches else "theory"
        return [f"outcome = model.{call}()", *(f"print(outcome[{n!r}])" for n in names)]
    if view.branches and len(view.axes) == 1:
        lines = [f"outcome = model.replace({view.axes[0].field}={_space(view.axes[0])}).branches()"]
        return [*lines, *(f"print(outcome[{n!r}])" for n in names)]
    if view.branches:
        x, y = view.axes
        lines = [f"x, y = np.meshgrid({_space(x)}, {_space(y)}, indexing='ij')"]
        lines += [f"outcome = model.replace({x.field}=x, {y.field}=y).branches()"]
        return [*lines, *(f"print(outcome[{n!r}])" for n in names)]
    lines = [f"curve = sv.Study(model, over={_over(view.axes)})", "theory = curve.run()"]
    return [*lines, *(f"print(theory[{n + '_theory'!r}].values)" for n in names)]


def _over(axes: tuple[Axis, ...], points: int | None = None) -> str:
    return "{" + ", ".join(f"{a.field!r}: {_space(a, points)}" for a in axes) + "}"


def _space(axis: Axis, points: int | None = None) -> str:
    space = "geomspace" if axis.scale == "log" else "linspace"
    return f"np.{space}({axis.low!r}, {axis.high!r}, {points or axis.points})"


def shell(shown: Shown) -> str:
    """Commands for the curve and the pinned ones (their numbers as JSON) and for the simulation (stored, with a figure)."""
    view = shown.view
    lines = [_curve(each) for each in (view, *shown.pins)] if view.model.answers_at_once else []
    if view.sizes:
        sizes = ",".join(map(str, view.sizes))
        scales = [w for n, s in shown.declared_otherwise.items() for w in ("--scale", f"{n}={s}")]
        lines.append(["solvable", "study", *_words(view), *_swept(view.axes, view.simulated), "--size", sizes,
                      "--seeds", str(view.seeds), "--out", f"runs/{view.model.id}", *scales])  # fmt: skip
    return "\n".join(" ".join(shlex.quote(w) for w in line) for line in lines) + "\n"


def _words(view: View) -> list[str]:
    return [view.model.id, *(f"{n}={_word(v)}" for n, v in view.changed.items())]


def _curve(view: View) -> list[str]:
    if view.axes and not view.branches:
        return ["solvable", "study", *_words(view), *_swept(view.axes), "--json"]
    along = [f"{a.field}={a.word()}" for a in view.axes]
    return ["solvable", "theory", *_words(view), *along, *(["--branches"] if view.branches else []), "--json"]


def _swept(axes: tuple[Axis, ...], points: int | None = None) -> list[str]:
    return [w for a in axes for w in ("--over", f"{a.field}={a.word(points)}")]


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, list) else repr(value)
