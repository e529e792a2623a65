"""The view with which the page opens a model: its axis, its observables, and a simulation that decides something soon."""

from __future__ import annotations

from typing import Any

from ..lab.planning import variant_of
from ..model import Model
from .views import View, default_observables

POINTS = 8  # simulated points along an axis
CORE_SECONDS = 10.0  # declared cost of the default simulation, beside which it compiles
SEEDS = (8, 64)  # with fewer, errors are large; with more, little is learnt
SEEDS_OF_RANDOM = 128  # distributions need more than means
FEWEST = 4  # seeds of an expensive model: with fewer, no difference would be significant
FEWEST_MEASURED = 2  # of an experiment, which is compared with nothing


def default_view(kind: type[Model]) -> View:
    """The view shown first; a model declares what is to be different in `first_view`."""
    model = kind.create(**kind.first_view.values)
    controls = kind.fields_of("control")
    shown = kind.first_view.observables or default_observables(model)
    own = any(model.observables()[n].dims for n in shown)
    axis = None
    if controls and model.has_theory and not own:
        swept = next((n for n, declaration in controls.items() if declaration.counts), next(iter(controls)))
        swept = kind.first_view.along or swept
        low, high = kind.first_view.span or controls[swept].span
        logarithmic = controls[swept].scale == "log" and low > 0
        axis = {"field": swept, "from": low, "to": high, "points": 60, "scale": "log" if logarithmic else "linear"}
    sizes = list(kind.typical_sizes[: 2 if model.has_theory else 1])
    view = {"model": kind.id, "x": axis, "observables": list(shown), "sizes": sizes, "seeds": 1, "values": {}}
    view |= {"simulated": POINTS} if axis else {}
    declared = kind.first_view.changes()
    checked = View.checked(view | declared)
    return checked if "seeds" in declared else View.checked(checked.json() | {"seeds": affordable(checked)})


def affordable(view: View) -> int:
    """The number of seeds that the declared cost of the view's simulation allows.

    >>> from solvable.registry import model_class
    >>> affordable(default_view(model_class("perceptron")))
    64
    """
    model = view.model
    fewest, (some, most) = (FEWEST if model.has_theory else FEWEST_MEASURED), SEEDS
    most = SEEDS_OF_RANDOM if any(model.observables()[n].random for n in view.observables) else most
    fitting = int(CORE_SECONDS / max(seconds(view), 1e-9))
    return min(most, 4 * (fitting // 4)) if fitting >= some else max(fewest, fitting)


def seconds(view: View) -> float:
    """The declared core-seconds of one seed of the view's simulation."""
    cost = variant_of(view.model, {}, None).cost
    counting = [n for n, declared in view.model.fields_of("control").items() if declared.counts]
    over: list[dict[str, Any]] = [{view.x.field: v} for v in view.x.values(view.simulated)] if view.x else [{}]
    total = 0.0
    for at in over:
        values = {n: at.get(n, float(getattr(view.model, n))) for n in counting}
        for size in view.sizes:
            total += cost.of("simulation", size, [max(1, round(v * size)) for v in values.values()])
    return total
