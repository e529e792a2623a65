"""The curves, computed by compiled programs that do not depend on values or on the number of points.

All controls are passed as arrays of 1, 8, 16 or 64 lanes (more points in pieces of 64), padded with their last point. A
program is therefore compiled once per model and choices, for any swept control and any number of points. A compilation
does not delay curves that are already compiled.

A page may ask for a draft: until the program is compiled, its curves come from the same program without optimisation, which
is compiled in a fraction of the time. They differ by rounding, amplified where a flow leaves a plateau. A draft is neither
kept nor exported, and the page replaces it by the curve as soon as there is one.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..contract.axes import QUANTILES
from ..contract.compiled import _branches as branches_program
from ..contract.compiled import _theory as theory_program
from ..contract.declarations import QUANTILE
from ..errors import InvalidValue
from ..lab.execute import Executor
from ..model import Model
from ..study import Study
from .describe import symbol
from .drafts import UNOPTIMISED
from .room import forget_programs, give_back, is_full
from .turns import RUNNING
from .views import View
from .waves import LANES, lanes_for

MOST_NUMBERS = 2_000_000  # numbers in one response
MOST_KEPT = 8_000_000  # numbers in the cache
MOST_OPEN = 64  # waiting requests
SLOW = 0.03  # seconds above which a curve cannot follow a slider, so that a preview is compiled
COMPILED: set[tuple[Any, ...]] = set()  # programs of this process that need not be compiled before their turn
PREVIEW, COARSE = 0.045, (16, 8)  # seconds of a preview that can, and its number of points: as many as fit in that time


class Busy(Exception):
    """Too many requests for theory are already waiting."""


class Stale(Exception):
    """A newer request of the same stream has arrived."""


@dataclass(frozen=True)
class Curves:
    """A theory over the grid of a view: arrays with the grid's axes first (then `branch`, then the observable's own)."""

    values: dict[str, np.ndarray]
    converged: np.ndarray
    residual: np.ndarray
    lines: dict[str, np.ndarray]
    seconds: float
    compiled: bool = False
    """Whether the seconds are mostly compilation time, so that they do not measure the speed of the curve."""
    draft: bool = False
    """Whether they come from a program without optimisation."""

    @property
    def numbers(self) -> int:
        return sum(v.size for v in self.values.values())


Draft = Callable[[Any], tuple[dict[str, Any], Any, Any]]
"""A program without optimisation: from the arrays of a model to values, `converged` and `residual`."""


def compute(view: View, wanted: Callable[[], bool] = lambda: True, drafts: dict[Any, Draft] | None = None) -> Curves:
    """Evaluate the theory of a view; raises `Stale` between pieces once it is no longer needed.

    With `drafts`, by the program without optimisation that is found there, or made and put there.
    """
    begun = time.perf_counter()
    model, grid = view.model, view.grid
    shape = tuple(len(v) for v in grid.values())
    number = int(np.prod(shape, dtype=int))
    lengths = {d: len(c) for d, c in model.coordinates().items()}
    own = {n: int(np.prod([lengths.get(d, 1) for d in o.dims])) for n, o in model.observables().items()}
    if number * max(own.values(), default=1) > MOST_NUMBERS:
        raise InvalidValue(f"this view has more than {MOST_NUMBERS} numbers; use fewer points.")
    mesh = np.meshgrid(*(np.asarray(v) for v in grid.values()), indexing="ij")
    swept = {n: m.reshape(-1) for n, m in zip(grid, mesh, strict=True)}
    columns = {n: swept.get(n, np.full(number, float(v))) for n, v in model.controls().items()}
    lanes = lanes_for(number, type(model).theory_lanes)
    pieces = []
    for begin in range(0, number, lanes):
        if not wanted():
            raise Stale
        fill = np.minimum(np.arange(begin, begin + lanes), number - 1)
        piece = model.with_values({n: jnp.asarray(c[fill]) for n, c in columns.items()})
        if drafts is not None:
            draft = drafts.get(program(view)) or drafts.setdefault(program(view), draft_for(piece, view))
            with RUNNING:
                values, converged, residual = draft(eqx.filter(piece, is_traced))
                got = {n: np.asarray(v) for n, v in {**values, "converged": converged, "residual": residual}.items()}
        else:
            if program(view) not in COMPILED:  # other programs run in the meantime
                compile_for(piece, view)
                COMPILED.add(program(view))
            with RUNNING:
                outcome = piece.branches() if view.branches else piece.theory(only=needed(view))
                got = {**outcome.values, "converged": outcome.converged, "residual": outcome.residual}
                got = {n: np.asarray(v) for n, v in got.items()}
        got = got if columns else {n: v[None] for n, v in got.items()}
        pieces.append({n: v[: min(lanes, number - begin)] for n, v in got.items()})
    whole = {n: np.concatenate([p[n] for p in pieces]) for n in pieces[0]}
    whole = {n: v.reshape(shape + v.shape[1:]) for n, v in whole.items()}
    with RUNNING:
        lines = transition_lines(view)
    converged, residual = whole.pop("converged"), whole.pop("residual")
    return Curves(whole, converged, residual, lines, time.perf_counter() - begun, draft=drafts is not None)


def compile_for(model: Model, view: View) -> None:
    """Compile the theory of a view, at the controls of a model, without running it."""
    numerics = type(model).numerics.updated(None)
    if view.branches:
        branches_program.lower(model, numerics).compile()
    elif (only := needed(view)) is None:
        theory_program.lower(model, numerics).compile()
    else:
        theory_program.lower(model, numerics, only=tuple(only)).compile()


def draft_for(model: Model, view: View) -> Draft:
    """The program of a view without optimisation."""
    numerics, only = type(model).numerics.updated(None), needed(view)
    arrays, rest = eqx.partition(model, is_traced)

    def run(arrays: Any) -> tuple[dict[str, Any], Any, Any]:
        whole = eqx.combine(arrays, rest)
        found = theory_program(whole, numerics, only=tuple(only)) if only else theory_program(whole, numerics)
        return found[0], found[1], found[2]

    try:
        return jax.jit(run).lower(arrays).compile(compiler_options=UNOPTIMISED)
    except jax.errors.JaxRuntimeError:  # the compiler of another version may not have these options
        return jax.jit(run)


def is_traced(leaf: Any) -> bool:
    """Whether a part of a model is an argument of its programs."""
    return isinstance(leaf, jax.Array | np.ndarray)


def can_be_drafted(view: View) -> bool:
    """Whether a program without optimisation is fast enough to be worth its compilation."""
    return not view.branches and view.model.cost_class() == "instant" and jax.default_backend() == "cpu"


def transition_lines(view: View) -> dict[str, np.ndarray]:
    """The transition lines of the model in the plane of a view, at its values of x."""
    if view.x is None or view.y is None:
        return {}
    across = np.asarray(view.grid[view.x.field])
    filled = across[np.minimum(np.arange(LANES[-1] * -(-len(across) // LANES[-1])), len(across) - 1)]
    found = view.model.transition_lines(view.x.field, view.y.field, filled)
    return {name: np.asarray(line)[: len(across)] for name, line in found.items()}


def as_study(view: View, curves: Curves) -> Study:
    """A theory-only study with these curves as its results."""
    study = Study(view.model, view.grid)
    flat = {n: v.reshape(-1, *v.shape[len(view.grid) :]) for n, v in
            {**curves.values, "converged": curves.converged, "residual": curves.residual}.items()}  # fmt: skip
    begin = 0

    def next_block(block: dict[str, Any]) -> dict[str, np.ndarray]:  # they come in the order of the grid
        nonlocal begin
        cells = slice(begin, begin := begin + block["cells"])
        return {n: v[cells] for n, v in flat.items()}

    plan = study.stored_plan()
    Executor(plan, next_block, study.attach().commit).run_all(plan.rows)
    return study


def needed(view: View) -> tuple[str, ...] | None:
    """All scalar observables if only scalars are shown, else all: two programs at most, and costly ones are left out."""
    known = view.model.observables()
    if any(known[n].dims for n in view.observables) or not any(o.dims for o in known.values()):
        return None
    return tuple(n for n, o in known.items() if o.predicted and not o.dims)


def key_of(view: View) -> tuple[str, bool]:
    """The cache key of a curve: the view without its observables, and whether those with dimensions are needed."""
    return view.theory_key, needed(view) is None


def program(view: View) -> tuple[Any, ...]:
    """The cache key of a compiled program."""
    model = view.model
    choices = tuple(getattr(model, n) for n in model.fields_of("choice"))
    shapes = jax.tree.map(np.shape, [getattr(model, n) for n in model.fields_of("input", "data")])
    shapes = (str(jax.tree.structure(shapes)), tuple(jax.tree.leaves(shapes)))
    number = int(np.prod([len(v) for v in view.grid.values()], dtype=int))
    lanes = lanes_for(number, type(model).theory_lanes)
    return model.id, choices, shapes, lanes, view.branches, needed(view) is None


def answer(view: View, curves: Curves) -> dict[str, Any]:
    """The observables of a view, as the page draws them."""
    model, grid = view.model, view.grid
    declared = model.observables()
    series = []
    for name in view.observables:
        if name not in curves.values:
            continue
        observable = declared[name]
        common = {"observable": name, "label": name.replace("_", " "), "symbol_mathml": symbol(observable.symbol),
                  "status": observable.status, "dims": [*grid, *observable.shown_dims]}  # fmt: skip
        values, converged = curves.values[name], curves.converged
        if observable.random:
            values = np.moveaxis(np.quantile(values, QUANTILES, axis=-1), 0, -1)
        if view.branches:
            for b in range(values.shape[len(grid)]):
                at = (slice(None),) * len(grid) + (b,)
                done = converged[at] if converged.ndim > len(grid) else converged
                series.append(common | {"values": plain(values[at]), "converged": done.tolist(), "branch": b})
        else:
            series.append(common | {"values": plain(values), "converged": converged.tolist()})
    shapes = {d: n for s in series for d, n in zip(s["dims"], np.shape(s["values"]), strict=True) if d not in grid}
    known = model.coordinates() | {QUANTILE.name: np.array(QUANTILES)}
    coordinates = {d: np.asarray(known.get(d, np.arange(n))).tolist() for d, n in shapes.items()}
    first = next((d for s in series for d in s["dims"] if d in coordinates), None)
    across: dict[str, Any] | None = {"field": first, "values": coordinates[first]} if first else None
    if view.x is not None:
        across = {"field": view.x.field, "values": grid[view.x.field]}
    return {
        "x": across,
        "y": {"field": view.y.field, "values": grid[view.y.field]} if view.y else None,
        "coordinates": coordinates,
        "series": series,
        "lines": [{"name": n, "x": grid[view.x.field], "y": plain(v)} for n, v in curves.lines.items()]
        if view.x else [],
        "not_converged": int(curves.converged.size - np.count_nonzero(curves.converged)),
        "partly": partly(view, curves),
        "seconds": round(curves.seconds, 6),
        "compiled": curves.compiled,
        "draft": curves.draft,
    }  # fmt: skip


def partly(view: View, curves: Curves) -> int:
    """The number of points that did not converge but have values up to where they failed."""
    if view.branches:
        return 0
    shape = curves.converged.shape
    shown = [np.isfinite(curves.values[n]).reshape(*shape, -1).any(-1) for n in view.observables if n in curves.values]
    return int(np.count_nonzero(np.any(shown, axis=0) & ~curves.converged)) if shown else 0


def without_theory(view: View, sentence: str) -> dict[str, Any]:
    """The response for a model without theory, or whose theory needs a random draw first."""
    across = {"field": view.x.field, "values": view.grid[view.x.field]} if view.x else None
    up = {"field": view.y.field, "values": view.grid[view.y.field]} if view.y else None
    return {"x": across, "y": up, "coordinates": {}, "series": [], "lines": [], "not_converged": 0, "seconds": 0.0,
            "note": sentence}  # fmt: skip


def plain(values: np.ndarray) -> Any:
    """Nested lists with null for values that are not finite."""
    values = np.asarray(values)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values.tolist()
    boxed = values.astype(object)
    boxed[~np.isfinite(values)] = None
    return boxed.tolist()


class Theories:
    """One thread for compiled curves, two for compilations, one for drafts, and a cache; stale requests are not computed.

    A compilation cannot be interrupted. With two threads, the model that is looked at need not wait for one that was left.
    """

    def __init__(self) -> None:
        self._ready = ThreadPoolExecutor(1, "theory")
        self._first = ThreadPoolExecutor(2, "compile")
        self._early = ThreadPoolExecutor(1, "draft")
        self._pending: dict[tuple[Any, ...], Future[Curves]] = {}
        self._looked_at: OrderedDict[str, str] = OrderedDict()  # the model that each session looks at
        self._known: set[tuple[Any, ...]] = set()
        self._drafts: dict[Any, Draft] = {}
        self._coarse: dict[tuple[Any, ...], int] = {}
        self._kept: OrderedDict[tuple[str, bool, bool], Curves] = OrderedDict()  # the last is true for a draft
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._compiling: dict[tuple[Any, ...], float] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._open = 0

    def note(self, session: str, stream: str, sequence: int) -> Callable[[], bool]:
        """Register a request; returns a function that tells whether it is still the newest."""
        at = (session, stream)
        with self._lock:
            self._newest[at] = max(sequence, self._newest.get(at, sequence))
            self._newest.move_to_end(at)
            while len(self._newest) > 512:
                self._newest.popitem(last=False)
        return lambda: not self._ended and self._newest.get(at, sequence) <= sequence

    def kept(self, view: View) -> Curves | None:
        with self._lock:
            for at in ((*key_of(view), False), (view.theory_key, True, False)):
                if at in self._kept:
                    self._kept.move_to_end(at)
                    return self._kept[at]
            return None

    def submit(self, view: View, wanted: Callable[[], bool], draft: bool = False) -> Any:
        """Compute in the background; returns a future of the curves, which may raise `Stale`.

        With `draft`, a draft is computed if the program is not compiled yet; the program is compiled after it.
        """
        with self._lock:
            if self._open >= MOST_OPEN:
                raise Busy
            self._open += 1
        draft = draft and program(view) not in self._known and can_be_drafted(view)
        future = self._drafted(view, wanted) if draft else self._queued(view, wanted)
        future.add_done_callback(self._closed_one)
        return future

    def _drafted(self, view: View, wanted: Callable[[], bool]) -> Future[Curves]:
        """Compute a draft, then compile the program, unless that has begun or the model is left before."""
        future, made = self._queued(view, wanted, draft=True), program(view)

        def go_on(_: Any) -> None:
            with self._lock:
                pending = self._pending.get(made)
                if made in self._known or (pending is not None and not pending.done()):
                    return
            with suppress(RuntimeError):  # the server ends
                self._queued(view, lambda: self._is_looked_at(view))

        future.add_done_callback(go_on)
        return future

    def _queued(self, view: View, wanted: Callable[[], bool], draft: bool = False) -> Future[Curves]:
        """Compile each program once: a request for one that is being compiled continues when that is done."""
        made = (*program(view), "draft") if draft else program(view)
        with self._lock:
            if made in self._known:
                return self._ready.submit(self._run, view, wanted, draft)
            pending = self._pending.get(made)
            if pending is None or pending.done():
                pool = self._early if draft else self._first
                pending = self._pending[made] = pool.submit(self._run, view, wanted, draft)
                return pending
        later: Future[Curves] = Future()

        def forward(outcome: Future[Curves]) -> None:
            if (problem := outcome.exception()) is not None:
                later.set_exception(problem)
            else:
                later.set_result(outcome.result())

        def go_on(_: Any) -> None:
            try:
                self._queued(view, wanted, draft).add_done_callback(forward)
            except (RuntimeError, CancelledError):  # the server ends
                later.set_exception(Stale())

        pending.add_done_callback(go_on)
        return later

    def look_at(self, session: str, model: str) -> None:
        """Note which model a session looks at, so that nothing is compiled ahead for others."""
        with self._lock:
            self._looked_at[session] = model
            self._looked_at.move_to_end(session)
            while len(self._looked_at) > 64:
                self._looked_at.popitem(last=False)

    def _closed_one(self, _: Any) -> None:
        with self._lock:
            self._open -= 1

    def _is_looked_at(self, view: View) -> bool:
        return not self._ended and view.model.id in self._looked_at.values()

    def warm(self, view: View, draft: bool = False) -> None:
        """Compile a view's program, after a draft of it if asked, unless a compilation is already running."""
        if program(view) not in self._known and not self._compiling and not self._ended:
            begin = self._drafted if draft and can_be_drafted(view) else self._queued
            begin(view, lambda: self._is_looked_at(view))

    def coarse(self, view: View, curves: Curves) -> int:
        """The number of points of a coarse version of a curve that needs no compilation; 0 if there is none.

        For a slow curve, such a version is compiled in the background.
        """
        if view.x is None or curves.draft:
            return 0
        each = curves.seconds / curves.converged.size
        points = next((n for n in COARSE if n * each <= PREVIEW), COARSE[-1])
        # The first curve timed without a compilation decides: a later choice would compile while a slider moves.
        with self._lock:
            first = not curves.compiled and program(view) not in self._coarse
            points = self._coarse.setdefault(program(view), points) if not curves.compiled else points
        few = dataclasses.replace(view, x=dataclasses.replace(view.x, points=min(view.x.points, points)), y=None)
        if not curves.compiled and curves.seconds > (SLOW if first else 4 * SLOW):
            self.warm(few)
        return points if program(few) in self._known else 0

    def compiling(self) -> dict[str, float]:
        """The models whose theory is being compiled, and for how many seconds."""
        now = time.monotonic()
        with self._lock:
            return {made[0]: round(now - since, 3) for made, since in self._compiling.items()}

    def close(self) -> None:
        self._ended = True
        for pool in (self._ready, self._first, self._early):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, view: View, wanted: Callable[[], bool], draft: bool = False) -> Curves:
        if not wanted():
            raise Stale
        kept_as = (*key_of(view), draft)
        if (found := self.kept(view) or self._kept.get(kept_as)) is not None:
            return found
        made = (*program(view), "draft") if draft else program(view)
        new = made not in self._known
        with self._telling(made):
            curves = compute(view, wanted, self._drafts) if draft else compute(view, wanted)
            curves = dataclasses.replace(curves, compiled=new)
        with self._lock:
            if not draft:
                self._known.discard((*made, "draft"))
                self._drafts.pop(made, None)
            self._kept[kept_as] = curves
            while sum(c.numbers for c in self._kept.values()) > MOST_KEPT or len(self._kept) > 512:
                self._kept.popitem(last=False)
        return curves

    @contextmanager
    def _telling(self, made: tuple[Any, ...]) -> Iterator[None]:
        if made in self._known:
            yield
            return
        self._make_room(made)
        with self._lock:
            self._compiling[made] = time.monotonic()
        try:
            yield
            self._known.add(made)
        finally:
            with self._lock:
                self._compiling.pop(made, None)
            give_back()

    def _make_room(self, made: tuple[Any, ...]) -> None:
        """Before a compilation: forget all programs if they occupy too much. What is looked at next is compiled again.

        A draft, the program and a preview with the same choices stay together: they serve one curve.
        """
        with self._lock:
            together = any(known[:3] == made[:3] for known in self._known)
            if self._compiling or together or not is_full(len(self._known)):
                return
            self._known.clear()
            self._drafts.clear()
        COMPILED.clear()
        forget_programs()


def theory_of(model: Model) -> str | None:
    """One sentence on why this model has no curve; None if it has one."""
    if not model.has_theory:
        return "this model has no closed theory; it is an experiment, measured by simulation."
    if model.unprepared:
        return "the theory of this model needs a random draw; simulate to see it together with the points."
    if model.cost_class() == "kept":
        return (
            "a point of this theory takes minutes; simulate to compute it at the simulated points, "
            "or run a study and open it here."
        )
    return None
