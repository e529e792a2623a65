"""Checks of the contract of a model: declarations, rejected values, identity, theory and simulation."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InvalidValue, SolvableError
from ..model import Model, Outcome

POINTS = 48


@dataclasses.dataclass
class Finding:
    """The result of checking one promise of the contract: kept or not, and what was observed."""

    promise: str
    kept: bool
    seen: str = ""
    numbers: int = 1

    def __str__(self) -> str:
        return f"{'ok  ' if self.kept else 'FAIL'} {self.promise}{': ' + self.seen if self.seen else ''}"


def check_model(model: Model | type[Model], *, size: int | None = None) -> list[Finding]:
    """Check every promise of the contract; raise AssertionError with one sentence per broken promise.

    >>> import solvable as sv
    >>> all(f.kept for f in check_model(sv.Perceptron(loss="square")))
    True
    """
    findings = examine_model(model, size=size)
    broken = [f for f in findings if not f.kept]
    if broken:
        raise AssertionError("\n".join(str(f) for f in broken))
    return findings


def examine_model(model: Model | type[Model], *, size: int | None = None, thorough: bool = True) -> list[Finding]:
    """Like `check_model`, but return all findings and raise nothing.

    Without `thorough`, the checks of gradients and finer numerics, which compile extra programs, are skipped.
    """
    findings: list[Finding] = []
    try:
        made = model() if isinstance(model, type) else model
    except Exception as problem:
        return [Finding("a model can be created from its defaults", False, str(problem))]
    checks: list[Callable[[Model], list[Finding]]] = [declarations, refusals, identity]
    if made.has_theory and type(made).cost_class() == "kept":
        checks += [_theory]  # one point takes minutes: a study checks the rest
    elif made.has_theory:
        checks += [_theory, _physicality, _batches, *((_gradients, _numerics) if thorough else ())]
    for check in checks:
        findings += guarded(check, made)
    if type(made).experiment is not Model.experiment:
        findings += guarded(lambda m: _simulation(m, size or type(m).typical_sizes[0]), made)
    return findings


def same_law(name: str, measured: np.ndarray, draws: np.ndarray, size: int, level: float) -> Finding:
    """Compare realisations of a random limit with the theory's draws by a two-sample test of every entry."""
    from scipy.stats import ks_2samp

    flat, drawn = measured.reshape(len(measured), -1), draws[0].reshape(-1, draws.shape[-1])
    tests: list[Any] = [ks_2samp(flat[:, i], drawn[i]) for i in range(len(drawn))]
    least = min(test.pvalue for test in tests) * len(tests)
    return Finding(f"simulated {name} has the theory's distribution at size {size}", least > level, f"p = {least:.1e}")


def guarded(check: Callable[[Model], list[Finding]], model: Model) -> list[Finding]:
    try:
        return check(model)
    except Exception as problem:
        name = getattr(check, "__name__", "simulation").strip("_<>")
        return [Finding(f"the check of its {name} runs without errors", False, f"{type(problem).__name__}: {problem}")]


def declarations(model: Model) -> list[Finding]:
    cls, fields, found = type(model), model.fields(), []
    found.append(Finding("has id, title and family", bool(cls.id and cls.title and cls.family)))
    found.append(Finding("has a docstring", bool((cls.__doc__ or "").strip())))
    found.append(Finding("cites at least one reference", bool(cls.references)))
    unexplained = [n for n, f in fields.items() if not f.meaning]
    found.append(Finding("every field has a meaning", not unexplained, ", ".join(unexplained)))
    unbounded = [n for n, f in model.fields_of("control").items() if not all(map(math.isfinite, f.span))]
    found.append(Finding("every control has a finite interval to search", not unbounded, ", ".join(unbounded)))
    names = [o.name for o in cls.observables_declared]
    found.append(Finding("observables have distinct names", len(names) == len(set(names)) and bool(names)))
    clash = sorted(set(names) & (set(fields) | {"converged", "converged_along", "residual", "status"}))
    found.append(Finding("no observable has the name of a field", not clash, ", ".join(clash)))
    doubled = [o.name for o in cls.observables_declared if len(set(o.dims)) != len(o.dims)]
    found.append(Finding("no observable repeats a dimension", not doubled, ", ".join(doubled)))
    axes = {d.name for d in cls.dimensions_declared}
    unknown = sorted({d for o in cls.observables_declared for d in o.dims} - axes)
    found.append(Finding("every dimension of an observable is declared", not unknown, ", ".join(unknown)))
    return found + _arms(model)


def _arms(model: Model) -> list[Finding]:
    """Check that every declared arm can be created."""
    found = []
    for name, values in type(model).arms_declared.items():
        try:
            model.replace(**values)
        except SolvableError as problem:
            found.append(Finding(f"arm {name!r} can be created", False, str(problem)))
    return found


def refusals(model: Model) -> list[Finding]:
    found = []
    for name, declaration in model.fields().items():
        bad: list[Any] = ["nonsense", None] if declaration.kind in ("control", "choice") else ["nonsense"]
        if declaration.kind == "control":
            bad += [math.nan, math.inf, [declaration.span[0], math.nan]]
            bad += [declaration.low - 1] if math.isfinite(declaration.low) else []
            bad += [declaration.high + 1] if math.isfinite(declaration.high) else []
        elif declaration.kind == "choice" and declaration.options is None:
            bad += [int(declaration.high) + 1, int(declaration.low) - 1, 1.5]
        for value in bad:
            try:
                model.replace(**{name: value})
                found.append(Finding(f"{name} = {value!r} is rejected", False, "it was accepted"))
            except InvalidValue as refusal:
                text = str(refusal)
                if name not in text or "\n" in text:
                    found.append(Finding(f"{name} = {value!r} is rejected in one sentence that names it", False, text))
    return found or [Finding("invalid values are rejected in one sentence that names the field", True)]


def identity(model: Model) -> list[Finding]:
    spec = model.specification()
    again = type(model)(**{n: getattr(model, n) for n in model.fields()}).specification()
    same = json.dumps(spec, sort_keys=True) == json.dumps(again, sort_keys=True)
    return [Finding("its specification is plain JSON and reproducible", same)]


def _theory(model: Model) -> list[Finding]:
    return complete(model, model.theory())


def complete(model: Model, outcome: Outcome) -> list[Finding]:
    """Check that the outcome at the defaults converged and has every declared observable."""
    declared = model.observables()
    wanted = {n for n, o in declared.items() if o.predicted}
    found = [Finding("the theory gives exactly the declared observables", set(outcome.keys()) == wanted,
                     f"differing: {sorted(set(outcome.keys()) ^ wanted)}" if set(outcome.keys()) != wanted else "")]  # fmt: skip
    ranks = [n for n in outcome if outcome[n].ndim != len(declared[n].theory_dims)]
    found.append(Finding("observables have their declared dimensions", not ranks, ", ".join(ranks)))
    found.append(Finding("the theory converges at the defaults", bool(np.all(outcome.converged))))
    return found


def random_points(model: Model, number: int, seed: int = 0) -> Model:
    """The model at `number` points that cover the typical ranges of all its controls, including the ends."""
    rng, values = np.random.default_rng(seed), {}
    for name, declaration in model.fields_of("control").items():
        u = rng.permutation((np.arange(number) + rng.uniform(size=number)) / number)
        u[rng.permutation(number)[:2]] = (0.0, 1.0)
        low, high = declaration.span
        low = low + 1e-6 * (high - low) if declaration.low_open and low == declaration.low else low
        high = high - 1e-6 * (high - low) if declaration.high_open and high == declaration.high else high
        logarithmic = declaration.scale == "log" and low > 0
        values[name] = np.exp(np.log(low) + u * np.log(high / low)) if logarithmic else low + u * (high - low)
        values[name] = np.clip(values[name], low, high)
    return model.replace(**values) if values else model


def _physicality(model: Model) -> list[Finding]:
    return physical(model, random_points(model, POINTS).theory())


def physical(model: Model, outcome: Outcome) -> list[Finding]:
    """Check residuals and declared bounds at points that cover the typical ranges."""
    found = []
    converged = np.asarray(outcome.converged)
    share = float(converged.mean())
    found.append(
        Finding(
            "the theory converges over the typical ranges", share >= 0.95, f"{share:.0%} of {converged.size} points"
        )
    )
    worst = float(np.max(np.asarray(outcome.residual)[converged], initial=0.0))
    limit = type(model).residual_accuracy
    found.append(Finding(f"residuals are at most {limit:.0e}", worst <= limit, f"{worst:.1e}"))
    for name, observable in model.observables().items():
        if observable.predicted:
            value = np.asarray(outcome[name])
            there = value[converged.reshape(-1)] if converged.ndim else value
            if not np.isfinite(there).all():
                found.append(Finding(f"{name} is a number wherever the theory converged", False))
            slack = 1e-9 * (1 + np.abs(there))
            outside = (there < observable.low - slack) | (there > observable.high + slack)
            if outside.any():
                seen = f"{there[outside][0]:g} outside [{observable.low:g}, {observable.high:g}]"
                found.append(Finding(f"{name} stays within its physical bounds", False, seen))
            if np.isfinite(value[_missing(outcome, name)]).any():
                found.append(Finding(f"{name} is NaN where the theory did not converge", False))
    return found


def _missing(outcome: Outcome, name: str) -> np.ndarray:
    """Mask of the entries that must be NaN: all of a failed lane, or those that failed along its dimension."""
    value, dims, lost = np.asarray(outcome[name]), dict(outcome.dims)[name], ~np.asarray(outcome.converged)
    shape = [*lost.shape, *(1,) * (value.ndim - lost.ndim)]
    if outcome.converged_along is not None and outcome.along in dims:
        shape[lost.ndim + dims.index(outcome.along)] = -1
        lost = ~np.asarray(outcome.converged_along)
    return np.broadcast_to(lost.reshape(shape), value.shape)


def _lanes(model: Model, rows: list[dict[str, float]]) -> Model:
    """The model at some points, padded to the batch shape shared by all checks, so that they compile once."""
    filled = [rows[min(i, len(rows) - 1)] for i in range(POINTS)]
    return model.with_values({n: jnp.asarray([row[n] for row in filled]) for n in model.fields_of("control")})


def _batches(model: Model) -> list[Finding]:
    if not model.controls():
        return []
    many = random_points(model, POINTS, seed=1)
    together, worst = many.theory(), 0.0
    for lane in range(3):
        alone = model.with_values({n: jnp.asarray(np.asarray(v)[lane]) for n, v in many.controls().items()}).theory()
        for name in together:
            a, b = np.asarray(alone[name]), np.asarray(together[name][lane])
            gap = np.abs(a - b) / (1 + np.abs(b))
            worst = max(worst, float(np.nanmax(gap)) if np.isfinite(gap).any() else 0.0)
            if (np.isnan(a) != np.isnan(b)).any():
                worst = math.inf
    limit = type(model).batch_accuracy
    return [Finding(f"a point alone and in a batch agree to {limit:.0e}", worst <= limit, f"{worst:.1e}")]


def _gradients(model: Model) -> list[Finding]:
    """Compare the gradient along every control with a central difference, extrapolated once (Richardson).

    Each observable enters as Σ sin(values), which no symmetry makes constant. Both are computed at the model's
    `gradient_numerics`: a difference over a step h of values with errors e, such as those of adaptive steps, is off by e/h.
    """
    numerics = type(model).gradient_numerics
    controls = model.fields_of("control")
    if not controls:
        return []
    numbers = [n for n, o in model.observables().items() if o.predicted]
    centre, steps = {}, {}
    for name, declaration in controls.items():
        low, high = declaration.span
        at = float(getattr(model, name))
        room = min(at - declaration.low, declaration.high - at)
        if room <= 0:
            at, room = 0.5 * (low + high), 0.5 * (high - low)
        centre[name] = at
        steps[name] = min(1e-3 * max(abs(at), 1e-2 * (high - low)), 0.4 * room)
    ratios = (-1.0, -0.5, 0.5, 1.0)
    rows = [centre | {n: centre[n] + r * steps[n]} for n in controls for r in ratios]
    if len(rows) > POINTS:
        raise ValueError(f"{len(controls)} controls need more than {POINTS} lanes")

    def totals(out: Any, lead: int) -> Any:
        return jnp.stack([jnp.sum(jnp.sin(out[n]), axis=tuple(range(lead, out[n].ndim))) for n in numbers])

    heights = np.asarray(totals(_lanes(model, rows).theory(numerics), 1))
    slopes = jax.jit(jax.jacfwd(lambda c: totals(model.with_values(c).theory(numerics), 0)))(
        {n: jnp.asarray(v) for n, v in centre.items()}
    )
    found = []
    for i, name in enumerate(controls):
        h = steps[name]
        down, half_down, half_up, up = heights[:, 4 * i : 4 * i + 4].T
        difference = (4 * (half_up - half_down) / h - (up - down) / (2 * h)) / 3
        # If an observable hardly changes, the difference consists of rounding errors.
        scale = np.maximum(np.abs(difference), 1e-6 * (1 + np.abs(half_up)) / max(abs(centre[name]), h))
        error = np.abs(np.asarray(slopes[name]) - difference) / scale
        worst = int(np.argmax(np.where(np.isfinite(error), error, np.inf)))
        seen = f"{error[worst]:.1e} for {numbers[worst]}"
        limit = type(model).gradient_accuracy
        found.append(Finding(f"the gradient along {name} is right to {limit:.0e}", bool(error[worst] < limit), seen))
    return found


def _numerics(model: Model) -> list[Finding]:
    """Check that finer numerics change nothing beyond the stated accuracy."""
    if not type(model).numerics:
        return []
    points = random_points(model, POINTS)
    worst, seen = moved(points, points.theory())
    limit = model.stated_accuracy
    return [Finding(f"finer numerics change nothing beyond {limit:.0e}", worst <= limit, seen)]


def finer(numerics: Mapping[str, Any]) -> dict[str, Any]:
    """Finer settings: integers doubled, steps halved, tolerances divided by ten.

    A tolerance already close to rounding is multiplied by ten instead, which must not matter either.

    >>> finer({"nodes": 16, "step": 0.5, "tolerance": 1e-9, "rtol": 1e-13, "solver": "dopri8"})
    {'nodes': 32, 'step': 0.25, 'tolerance': 1e-10, 'rtol': 1e-12}
    """

    def changed(value: float) -> float:
        if isinstance(value, int):
            return 2 * value
        return value / 2 if value > 1e-2 else value / 10 if value > 1e-12 else 10 * value

    return {name: changed(value) for name, value in numerics.items() if not isinstance(value, str)}


def moved(model: Model, coarse: Outcome, own: Mapping[str, Any] | None = None) -> tuple[float, str]:
    """The largest change of converged values under finer numerics, and the observable in which it occurs.

    `own` are numerics of the coarse result that differ from the defaults.
    """
    # A longer search may find a different, equally good schedule, so search settings stay as they are.
    settings = {
        n: v for n, v in {**type(model).numerics, **(own or {})}.items() if n not in type(model).search_settings
    }
    fine = model.theory(finer(settings))
    worst, where = 0.0, "nothing"
    for name in model.accurate_observables:
        if name not in coarse:  # measured only
            continue
        a, b = np.asarray(coarse[name]), np.asarray(fine[name])
        if model.observables()[name].random and a.shape != b.shape:  # different draws: compare their distributions
            lanes, drawn = a.reshape(-1, a.shape[-1]), b.reshape(1, -1, b.shape[-1])
            same = same_law(name, lanes.T, drawn, 0, 1e-4).kept
            worst, where = max((worst, where), (0.0 if same else math.inf, name))
            continue
        both = np.isfinite(a) & np.isfinite(b)
        gap = float(np.max(np.abs(a[both] - b[both]) / (1 + np.abs(b[both])), initial=0.0))
        worst, where = max((worst, where), (gap, name))
    return worst, f"{worst:.1e} in {where}"


def _simulation(model: Model, size: int) -> list[Finding]:
    declared = {n for n, o in model.observables().items() if o.simulated}
    first, again, other = model.simulate(0, size), model.simulate(0, size), model.simulate(1, size)
    found = [Finding("the simulation measures exactly the declared observables", set(first.keys()) == declared,
                     f"differing: {sorted(set(first.keys()) ^ declared)}" if set(first.keys()) != declared else "")]  # fmt: skip
    same = all(np.array_equal(first[n], again[n], equal_nan=True) for n in first)
    found.append(Finding("the same seed gives a bit-identical realisation", same))
    differs = any(not np.array_equal(first[n], other[n], equal_nan=True) for n in first)
    found.append(Finding("another seed gives another realisation", differs))
    if model.has_theory:
        theory = model.realised(size).theory()
        draws = {n for n, o in model.observables().items() if o.random}
        seen = {n: theory[n][..., 0] if n in draws else theory[n] for n in theory}
        shapes = [n for n in first if n in seen and first[n].shape != seen[n].shape]
        found.append(Finding("theory and simulation have the same shapes", not shapes, ", ".join(shapes)))
    try:
        model.simulate(0, 1)
        found.append(Finding("a size of one is rejected", False))
    except SolvableError:
        pass
    return found
