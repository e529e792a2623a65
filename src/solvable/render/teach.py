"""A notebook that teaches a model, written from its declarations: question, curve, simulation, phase diagram, exercise.

An experiment, which has no theory, gets a notebook that draws its kept results and runs it once at a small size.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import SolvableError
from ..models import FIGURES
from ..registry import listings
from .figures import kept_in
from .notebooks import Cell, code, text
from .paper import about_markdown, markdown_line, references_markdown

BUDGET = 12.0  # core-seconds that one cell may take, as the model declares its costs
BETTER_IF_SMALL = ("loss", "error", "forgetting", "entropy", "gap", "mse")
KNOBS = ("penalty", "rate", "temperature", "noise", "coupling", "momentum")  # what one tunes, before what one is given


def teaching_cells(model: Any) -> list[Cell]:
    """The notebook of a model, unexecuted; the model's values are those of the notebook.

    >>> import solvable as sv
    >>> [cell.source.splitlines()[0] for cell in teaching_cells(sv.Perceptron()) if cell.source.startswith("## ")]
    ['## The question', '## The exact curve', '## Simulation', '## Phase diagram', '## Exercise', '## Where next']
    """
    return _of_theory(model) if model.has_theory and type(model).cost_class() != "kept" else _of_experiment(model)


def _of_theory(model: Any) -> list[Cell]:
    kind = type(model)
    names = [n for n in model.main_observables() if model.observables()[n].predicted] or _predicted(model)
    numbers = [n for n in names if not model.observables()[n].dims]
    controls = _controls(model)
    numbers = numbers if controls and _moves(model, controls[0], numbers) else []
    cells = [*_opening(model, controls, names), _creation(model)]
    if not model.unprepared:
        cells.append(code("model.theory()"))
    if not controls:
        return [*cells, *_simulation(model, "", names)]
    x = controls[0]
    cells += [
        text(f"## The exact curve\n\n{_curve_words(model, x, numbers or names)}"),
        _curve(model, x, numbers, names),
    ]
    cells += _simulation(model, x, names)
    if not model.unprepared:
        cells += _plane(model, x, controls[1:], (numbers or names)[0])
        cells += _exercise(model, x, numbers, names)
    return [*cells, _where_next(kind)]


# --- the parts ------------------------------------------------------------------------------------------------------------


def _opening(model: Any, controls: list[str], names: list[str]) -> list[Cell]:
    kind = type(model)
    line = listings().get(kind.id)
    how = f" It is solved by: {markdown_line(kind.method)}." if kind.method else ""
    observables, fields = model.observables(), model.fields()
    asked = _joined([f"*{markdown_line(observables[n].meaning)}* (`{n}`)" for n in names[:3]])
    on = f" depend on *{markdown_line(fields[controls[0]].meaning)}* (`{controls[0]}`)" if controls else " behave"
    where = {"theory": ", in theory", "experiment": ""}.get(kind.what_it_has(), ", in theory and in a finite system")
    question = f"How do {asked}{on}{where}?"
    family = f" Family *{kind.family}*." if line is not None else ""
    return [
        text(f"# {kind.title}\n\n{markdown_line(kind.sentence)}{how}{family}\n\n{references_markdown(kind)}"),
        text(f"## The question\n\n{question}\n\n{about_markdown(kind)}"),
    ]


def _creation(model: Any) -> Cell:
    return code(f"import numpy as np\n\nimport solvable as sv\n\nmodel = {_made(model)}")


def _made(model: Any, **changes: Any) -> str:
    """The expression that creates a model, with the values that differ from the defaults."""
    kind = type(model)
    given = {}
    for name, declaration in kind.fields_of("control", "choice").items():
        value = getattr(model, name)
        value = value if declaration.kind == "choice" else float(value)
        if value != declaration.default:
            given[name] = value
    words = ", ".join(f"{n}={_literal(v)}" for n, v in {**given, **changes}.items())
    line = listings().get(kind.id)
    if line is not None and line.module.startswith("solvable."):
        return f"sv.{line.name}({words})"
    return f"sv.create({kind.id!r}{', ' if words else ''}{words})"


def _literal(value: Any) -> str:
    import numpy as np

    return repr(np.asarray(value).tolist() if hasattr(value, "__array__") else value)


def _controls(model: Any) -> list[str]:
    """The controls that matter, with the one that the page sweeps first."""
    fields = model.fields_of("control")
    mattering = [n for n in fields if model.matters(n)]
    first = next((n for n in mattering if fields[n].counts), mattering[0] if mattering else "")
    return [first, *(n for n in mattering if n != first)] if first else []


def _predicted(model: Any) -> list[str]:
    return [n for n, o in model.observables().items() if o.predicted]


def _space(model: Any, name: str, points: int) -> str:
    low, high = model.fields()[name].span
    return f"np.{_spacing(model, name)}({low:g}, {high:g}, {points})"


def _spacing(model: Any, name: str) -> str:
    declaration = model.fields()[name]
    return "geomspace" if declaration.scale == "log" and declaration.span[0] > 0 else "linspace"


def _grid(model: Any, name: str, points: int) -> Any:
    import numpy as np

    return getattr(np, _spacing(model, name))(*model.fields()[name].span, points)


def _curve_words(model: Any, x: str, names: list[str]) -> str:
    meaning = markdown_line(model.fields()[x].meaning)
    instant = (
        "all points in one batch" if type(model).cost_class() == "instant" else "a few points, since each takes a while"
    )
    shown = _joined([f"`{n}`" for n in names])
    return f"The theory of {shown} along `{x}` ({meaning}), {instant}. A point where it did not converge is left out."


def _moves(model: Any, x: str, numbers: list[str]) -> bool:
    """Whether any of the numbers changes along x; those that a simulation measures are taken to do so."""
    import numpy as np

    observables = model.observables()
    if (
        not numbers
        or model.unprepared
        or any(observables[n].simulated for n in numbers)
        or not any(o.simulated for o in observables.values())
    ):
        return bool(numbers)
    found = model.replace(**{x: _grid(model, x, 3)}).theory(only=numbers)
    return any(np.ptp(v[np.isfinite(v)]) > 1e-9 for n in numbers if np.isfinite(v := np.asarray(found[n])).any())


def _curve(model: Any, x: str, numbers: list[str], names: list[str]) -> Cell:
    each = type(model).theory_seconds
    points = max(3, min(25, int(BUDGET / each))) if numbers else max(2, min(4, int(BUDGET / each)))
    sizes = f", sizes={_sizes(model)[:1]}, seeds=2" if model.unprepared else ""
    shown = numbers or names[:2]
    return code(
        f'curve = sv.Study(model, over={{"{x}": {_space(model, x, points)}}}{sizes})\n'
        f"curve.run(progress=False)\n"
        f"figure = curve.plot(show={json.dumps(shown)})"
    )


def _sizes(model: Any) -> list[int]:
    kind = type(model)
    return sorted({kind.guard.size or kind.typical_sizes[0], kind.typical_sizes[0]})


def _seconds(model: Any, size: int) -> float:
    kind = type(model)
    return kind.simulation_seconds * (size / kind.typical_sizes[-1]) ** kind.simulation_growth


def _simulation(model: Any, x: str, names: list[str]) -> list[Cell]:
    kind = type(model)
    if kind.what_it_has() == "theory":
        return []
    guard = kind.guard
    plans = [
        (5, list(kind.typical_sizes[:2]), 8),
        (4, _sizes(model), 6),
        (3, [kind.typical_sizes[0]], 6),
        (3, [guard.size or kind.typical_sizes[0]], 4),
    ]
    costs = [points * seeds * sum(_seconds(model, s) for s in sizes) for points, sizes, seeds in plans]
    chosen = next((k for k, cost in enumerate(costs) if cost <= BUDGET), len(plans) - 1)
    points, sizes, seeds = plans[chosen]
    small = {**guard.values, **guard.simulated_values} if costs[chosen] > BUDGET else {}
    small = {n: v for n, v in small.items() if n != x}
    over = f'over={{"{x}": {_space(model, x, points)}}}, ' if x else ""
    compared = [n for n, o in model.observables().items() if o.predicted and o.simulated]
    shown = [n for n in names if n in compared] or compared[:1]
    words = (
        f"## Simulation\n\nA finite system is drawn, trained and measured: sizes {_joined([str(s) for s in sizes])}, "
        f"{seeds} realisations of each. The verdict of every observable takes all comparisons into account; *finite-size* "
        f"means a deviation that falls with the declared power, *inconclusive* that more realisations are needed."
    )
    if small:
        words += " The system here is smaller than the one above, so that the notebook stays quick."
    made = _made(model, **small) if small else "model"
    lines = [f"study = sv.Study({made}, {over}sizes={sizes}, seeds={seeds})", "study.run(progress=False)"]
    lines += ["print(study.agreement())", *([f"figure = study.plot(show={json.dumps(shown)})"] if x and shown else [])]
    return [text(words), code("\n".join(lines))]


def _plane(model: Any, x: str, others: list[str], name: str) -> list[Cell]:
    kind = type(model)
    if not others:
        return []
    y, lines = _second(model, x, others)
    points = int(min(20.0, max(4.0, (2 * BUDGET / kind.theory_seconds) ** 0.5)))
    words = f"## Phase diagram\n\n`{name}` over `{x}` and `{y}` ({markdown_line(model.fields()[y].meaning)})"
    if model.observables()[name].dims:
        words += ", at the last value along its own axis"
    words += (
        f"; transition lines: {_joined(list(lines))}."
        if lines
        else ". This model declares no transition line in this plane."
    )
    cells = [
        text(words),
        code(
            f'plane = sv.Study(model, over={{"{x}": {_space(model, x, points)}, "{y}": {_space(model, y, points)}}})\n'
            f'plane.run(progress=False)\nfigure = plane.plot(show="{name}", along="{x},{y}")'
        ),
    ]
    along = _with_transition(model, [x, *others])
    if along:
        cells += [text(f"The transition along `{along}`, to ten digits:"),
                  code(f'sv.locate(model, along="{along}", what="transition")')]  # fmt: skip
    return cells


def _second(model: Any, x: str, others: list[str]) -> tuple[str, dict[str, Any]]:
    """The control that spans a plane with the first one, and the transition lines there."""
    import numpy as np

    from ..model import Model

    if type(model).transition_lines is not Model.transition_lines:
        low, high = model.fields()[x].span
        values = np.linspace(low, high, 3)
        for y in others:
            if lines := model.transition_lines(x, y, values):
                return y, dict(lines)
    return others[0], {}


def _with_transition(model: Any, names: list[str]) -> str:
    """The first control along whose typical range the model knows a transition; only the first one where points take long."""
    import numpy as np

    from ..model import Model

    if type(model).transition is Model.transition:
        return ""
    for name in names if type(model).cost_class() == "instant" else names[:1]:
        try:
            signs = np.sign(np.asarray(model.replace(**{name: _grid(model, name, 17)}).transition(name), float))
        except SolvableError:
            continue
        signs = signs[np.isfinite(signs)]
        if len(signs) and signs.min() < signs.max():
            return name
    return ""


def _exercise(model: Any, x: str, numbers: list[str], names: list[str]) -> list[Cell]:
    kind = type(model)
    if numbers and kind.cost_class() == "instant":
        name = next((n for n in numbers if n.startswith(("test", "final")) or n.endswith(BETTER_IF_SMALL)), numbers[0])
        knob = next((k for k in KNOBS if k in _controls(model)), x)
        word = "minimise" if name.endswith(BETTER_IF_SMALL) else "maximise"
        question = f"Which `{knob}` ({markdown_line(model.fields()[knob].meaning)}) {word}s `{name}`, and how much does it gain over the value above? Scan first, then use the theory's gradient."  # noqa: E501
        return [
            text(f"## Exercise\n\n{question}"),
            code(
                f'best = sv.optimise(model, "{knob}", {word}="{name}")\n'
                f"scan = model.replace({knob}={_space(model, knob, 41)}).theory().{name}\n"
                f"print(best)\n"
                f'print("best of a scan", float(np.nan{"min" if word == "minimise" else "max"}(scan)), '
                f'"at the value above", float(model.theory().{name}))',
                "solution",
            ),
        ]
    name = names[0]
    end = "[..., -1]" if len(model.observables()[name].dims) == 1 else ""
    last = "its last value" if end else "its mean over all entries"
    question = f"By how many per cent does `{name}` ({last}) change if `{x}` grows by one per cent? Guess the sign first, then take a central difference of the theory."  # noqa: E501
    return [
        text(f"## Exercise\n\n{question}"),
        code(
            f"def height(value):\n"
            f"    return float(np.nanmean(np.asarray(model.replace({x}=value).theory().{name}){end}))\n\n\n"
            f"middle = {_middle(model, x)}\n"
            f"step = 0.01 * middle\n"
            f"slope = (height(middle + step) - height(middle - step)) / (2 * step)\n"
            f'print("elasticity", slope * middle / height(middle))',
            "solution",
        ),
    ]


def _middle(model: Any, name: str) -> str:
    """A value well inside the typical range: the model's own, unless it is at the edge."""
    low, high = model.fields()[name].span
    value = float(getattr(model, name))
    inside = low < 0.99 * value and 1.01 * value < high if value > 0 else False
    return f"{value:g}" if inside else f"{0.5 * (low + high):g}"


def _where_next(kind: Any) -> Cell:
    shown = [f.name for f in FIGURES if f.shows(kind.id)]
    figures = f" Figures of the papers: {_joined([f'`solvable figure {n}`' for n in shown])}." if shown else ""
    return text(
        f"## Where next\n\n`solvable show {kind.id}` lists every field and observable, `solvable explore` has sliders for "
        f"them, `solvable equations {kind.id} --latex` is the set-up for your paper.{figures}"
    )


# --- experiments ------------------------------------------------------------------------------------------------------------


def _of_experiment(model: Any) -> list[Cell]:
    kind = type(model)
    names = list(model.main_observables())
    cells = _opening(model, _controls(model), names)
    for listing in (f for f in FIGURES if f.shows(kind.id)):
        if not list(kept_in(listing.name).glob(f"{listing.name}.*nc")):
            continue
        cells += [
            text(f"## Kept results: {listing.name}\n\n{markdown_line(listing.sentence)}"),
            code(
                f"from {listing.module} import RECIPES\nfrom solvable.render.figures import kept\n"
                f"from solvable.render.plots import house_style\n\n"
                f'with house_style():\n    figure = RECIPES["{listing.name}"].picture(kept("{listing.name}"))'
            ),
        ]
    small = {**kind.guard.values, **kind.guard.simulated_values}
    size = kind.guard.size or kind.typical_sizes[0]
    cells += [
        text(f"## One small run\n\nThe experiment itself, at size {size} and with few steps, to see what it measures."),
        code(f"import solvable as sv\n\nmodel = {_made(model, **small)}\nmodel.simulate(seed=0, size={size})"),
        text("## Exercise\n\nHow much do the results of this small run vary from one realisation to the next?"),
        code(
            f"import numpy as np\n\nruns = [model.simulate(seed=seed, size={size}) for seed in range(4)]\n"
            f"for name in {json.dumps([n for n in names if not model.observables()[n].dims] or names[:1])}:\n"
            f"    values = [float(np.nanmean(np.asarray(run[name]))) for run in runs]\n"
            f'    print(f"{{name}}: mean {{np.mean(values):.4g}}, spread {{np.std(values, ddof=1):.2g}}")',
            "solution",
        ),
        _where_next(kind),
    ]
    return cells


def _joined(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
