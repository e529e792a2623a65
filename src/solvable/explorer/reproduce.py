"""The current view as a Python program, a shell command and a link; run unchanged, they give the same numbers."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

from ..model import Model
from ..registry import listings
from .views import Axis, View


def reproduce(view: View, address: str) -> dict[str, str]:
    """The program, the command and the link."""
    return {"python": python(view), "shell": shell(view), "link": link(view, address)}


WORDS = ("model", "x", "y", "show", "branches", "sizes", "seeds", "simulated", "study", "at", "pin", "axis", "type", "tour",
         "token", "step", "along", "lines", "by", "log")  # fmt: skip


def link(view: View, address: str) -> str:
    """An address that restores the view (in a browser with access)."""
    query = [("model", view.model.id)]
    query += [(f"field.{n}" if n in WORDS else n, _word(v)) for n, v in view.values.items()]
    query += [("x", _along(view.x) if view.x else "none"), *([("y", _along(view.y))] if view.y else [])]
    query += [("show", ",".join(view.observables)), *([("branches", "1")] if view.branches else [])]
    query += [("sizes", ",".join(map(str, view.sizes))), ("seeds", str(view.seeds)), ("simulated", str(view.simulated))]
    return f"{address}/?{urlencode(query, safe=':,')}"


def _along(axis: Axis) -> str:
    return f"{axis.field}:{axis.low!r}:{axis.high!r}:{axis.points}:{axis.scale}"


def python(view: View) -> str:
    """A Python program for the curve and then the simulation."""
    fixed = ", ".join(f"{n}={v!r}" for n, v in view.changed.items())
    line = listings()[view.model.id]
    ours = line.module.startswith("solvable.")
    made = f"sv.{line.name}({fixed})" if ours else f"sv.create({view.model.id!r}{', ' if fixed else ''}{fixed})"
    drawn = drawable(view.model, list(view.observables), bool(view.axes))
    shown = repr(drawn[0]) if len(drawn) == 1 else repr(drawn)
    lines = ["import solvable as sv", "", f"model = {made}"]
    if view.axes:
        lines.insert(0, "import numpy as np")
    if view.model.answers_at_once:
        lines += ["", *_python_theory(view)]
    if view.sizes:
        over = f", over={_over(view.axes, view.simulated)}" if view.axes else ""
        lines += ["", f"study = sv.Study(model{over}, sizes={list(view.sizes)}, seeds={view.seeds})",
                  "simulated = study.run()"]  # fmt: skip
        lines += ["print(study.agreement())"] if view.model.has_theory else ["print(simulated)"]
        if drawn:
            lines += [f"study.plot({shown}).savefig({view.model.id + '.png'!r})"]
    return "\n".join(lines) + "\n"


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


def shell(view: View) -> str:
    """Commands for the curve (its numbers as JSON) and for the simulation (stored in a folder, with a figure)."""
    words = [view.model.id, *(f"{n}={_word(v)}" for n, v in view.changed.items())]
    lines = []
    if view.model.answers_at_once:
        if view.axes and not view.branches:
            lines.append(["solvable", "study", *words, *_swept(view.axes), "--json"])
        else:
            along = [f"{a.field}={a.word()}" for a in view.axes]
            lines.append(["solvable", "theory", *words, *along, *(["--branches"] if view.branches else []), "--json"])
    if view.sizes:
        sizes = ",".join(map(str, view.sizes))
        lines.append(["solvable", "study", *words, *_swept(view.axes, view.simulated), "--size", sizes,
                      "--seeds", str(view.seeds), "--out", f"runs/{view.model.id}"])  # fmt: skip
    return "\n".join(" ".join(shlex.quote(w) for w in line) for line in lines) + "\n"


def _swept(axes: tuple[Axis, ...], points: int | None = None) -> list[str]:
    return [w for a in axes for w in ("--over", f"{a.field}={a.word(points)}")]


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, list) else repr(value)
