"""The process that simulates for the page: it reads jobs, computes block by block, and sends results.

It also judges the claims of the papers, whose data sets take seconds to import and read, while it has nothing else to do.
Messages are framed: two lengths (big-endian, 32 bits each), a JSON object, raw bytes. The process ends when the page's
server ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

FRAME = struct.Struct(">II")
PAUSE = 0.25  # seconds between checks for new points
MORE = 1.25  # a point is sent again once its number of seeds has grown by this factor
FEWEST_SEEDS = 4  # with fewer, hardly any difference would be significant, so that none says little
MOST = 500 * 2**20  # bytes of this process, beyond which the programs of earlier simulations are forgotten
QUICK = (
    2.0  # declared core-seconds of a block that is computed before it is asked for; of others, only the program is made
)
MOST_VALUES = 4096  # numbers of one observable at one point: larger ones are exported, not drawn


def write_frame(pipe: BinaryIO, message: dict[str, Any], data: bytes = b"") -> None:
    head = json.dumps(message).encode()
    pipe.write(FRAME.pack(len(head), len(data)) + head + data)
    pipe.flush()


def read_frame(pipe: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    lengths = pipe.read(FRAME.size)
    if len(lengths) < FRAME.size:
        return None
    head, data = FRAME.unpack(lengths)
    return json.loads(pipe.read(head)), pipe.read(data)


class Simulation:
    """One job: a study, computed block by block."""

    def __init__(self, job: str, view: dict[str, Any], send: Any, cancelled: threading.Event):
        self.job, self.send, self.cancelled = job, send, cancelled
        from .views import View

        self.view = View.checked(view)
        self.study = self.view.study()
        self.sent: dict[tuple[Any, ...], tuple[int, bool]] = {}

    def run(self) -> None:
        from ..lab._files import pack
        from ..lab.execute import Executor
        from .ahead import Ahead
        from .turns import taking_turns

        tidy_up()
        study, begun = self.study, time.monotonic()
        store, blocks = study.attach(), ordered(study)
        plan = study.stored_plan(blocks)
        cells, done, looked = sum(row.cells for row in plan.rows), 0, time.monotonic()
        self.send({"job": self.job, "plan": blocks})
        self._progress(0, cells, begun)

        def report(row: Any, arrays: Any) -> None:
            nonlocal done, looked
            self.send({"job": self.job, "block": row.block}, bytes(pack(arrays)))
            done += row.cells
            self._progress(done, cells, begun)
            if not self.sent or time.monotonic() - looked > PAUSE:
                self._points()
                looked = time.monotonic()
            while ahead.compiling() and next(imports, None):
                pass

        imports = imports_of_a_verdict()
        with Ahead(blocks, taking_turns(study), draft=self._draft) as ahead:
            executor = Executor(plan, ahead.compute, store.commit)
            done_all = executor.run_all(plan.rows, done=report, wanted=lambda: not self.cancelled.is_set())
        if not done_all:
            self.send({"job": self.job, "event": "cancelled", "data": {}})
            return
        self._points(last=True)
        self._agreement()
        self.send({"job": self.job, "event": "done", "data": {"seconds": round(time.monotonic() - begun, 3)}})

    def _progress(self, done: int, cells: int, begun: float) -> None:
        seconds = round(time.monotonic() - begun, 3)
        self.send({"job": self.job, "event": "progress", "data": {"done": done, "cells": cells, "seconds": seconds}})

    def _points(self, last: bool = False) -> None:
        """Send every point that has more seeds than before."""
        for point in points_of(self.study, self.view.axes, self.sent, last):
            self.send({"job": self.job, "event": "points", "data": point})

    def _draft(self, block: Mapping[str, Any]) -> bool:
        """Send the points of the first block if there is a draft of them; the results replace them."""
        from .drafts import draft_of

        if (draft := draft_of(self.study, block)) is None or self.cancelled.is_set():
            return False
        study, (few, arrays) = self.view.study(), draft
        (row,) = study.stored_plan([few]).rows
        study.attach().commit(row.block, arrays, {})
        for point in points_of(study, self.view.axes, {}, False):
            self.send({"job": self.job, "event": "points", "data": point | {"draft": True}})
        return True

    def _agreement(self) -> None:
        if self.view.model.has_theory:
            self.send({"job": self.job, "event": "agreement", "data": agreement_of(self.study)})


def imports_of_a_verdict() -> Iterator[str]:
    """Import, one after the other, what only a verdict needs: seconds in which the first points should not have to wait."""
    for name in ("pandas", "xarray", "dask.array", "scipy.special"):  # xarray looks for dask at its first dataset
        if name not in sys.modules and importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)
            yield name


def points_of(study: Any, axes: Any, sent: dict[tuple[Any, ...], tuple[int, bool]], last: bool) -> list[dict[str, Any]]:
    """The simulated points with clearly more seeds than when they were sent, or now with their theory; at last, all."""
    import numpy as np

    from ..contract.declarations import QUANTILE
    from ..lab.dataset import EXTRA
    from .theory import plain

    tables, found = study.tables(), []
    awaited = not next(iter(study.models.values())).answers_at_once
    random = {n for m in study.variants().values() for n, o in m.observables().items() if o.random}
    fields = [a.field for a in axes]
    places = (*fields, "size", "seed")
    if "converged_simulated" not in tables:
        return []
    for name, (dims, array) in tables.items():
        base, _, kind = name.rpartition("_")
        if kind != "simulated" or base in EXTRA:
            continue
        own = [d for d in dims if d not in places]
        values = array.transpose([dims.index(d) for d in (*places, *own)])
        if int(np.prod(values.shape[len(places) :], dtype=int)) > MOST_VALUES:
            continue
        known, expected = tables.get(f"{base}_expected", ((), None))
        for index in np.ndindex(*values.shape[: len(fields) + 1]):
            here = values[index]
            finite = np.isfinite(here)
            ready = int(finite.reshape(len(here), -1).any(1).sum())
            at = dict(zip((*fields, "size"), index, strict=True))
            one = None if expected is None else expected[tuple(at.get(d, slice(None)) for d in known)]
            # The theory that a point is compared with is sent with it, and later than the point if it comes later.
            paired = one is not None and bool(np.isfinite(one).any())
            before, had = sent.get((base, index), (0, False))
            if not ready or ((ready, paired) == (before, had)):
                continue
            if not (last or ready == len(here) or paired != had or ready >= MORE * before):
                continue
            sent[base, index] = ready, paired
            number = finite.sum(0)
            if base in random:
                mean, error = quantiles_of(here)
            else:
                mean = np.nanmean(np.where(number > 0, here, 0.0), 0)
                error = np.full(mean.shape, np.nan)
                if ready > 1:
                    with np.errstate(invalid="ignore"):  # what is measured may be infinite
                        error = np.where(number > 1, np.nanstd(np.where(number > 1, here, 0.0), 0, ddof=1), np.nan)
                    error = error / np.sqrt(np.maximum(number, 1))
            levels = (QUANTILE.name,) if base in random else ()
            point = {"observable": base, "size": int(study.sizes[index[-1]]), "dims": [*own, *levels],
                     "x": study.over[fields[0]][index[0]] if fields else None,
                     "mean": plain(mean), "error": plain(error), "seeds": int(number.min()) or ready}  # fmt: skip
            if len(fields) > 1:
                point["y"] = study.over[fields[1]][index[1]]
            if one is not None and base not in random and (last or not awaited or paired):
                rest = [d for d in known if d not in at]
                point["expected"] = plain(mean_over(one, rest.index("seed")) if "seed" in rest else one)
            found.append(point)
    return found


def mean_over(values: Any, axis: int) -> Any:
    """The mean of the finite values along an axis; NaN where there is none."""
    import numpy as np

    number = np.isfinite(values).sum(axis)
    return np.where(number > 0, np.where(np.isfinite(values), values, 0.0).sum(axis) / np.maximum(number, 1), np.nan)


def quantiles_of(values: Any) -> tuple[Any, Any]:
    """The quantiles over the first axis, the realisations, on a new last axis, and their standard errors."""
    import numpy as np

    from ..contract.axes import QUANTILES
    from ..lab.agreement import quantile_errors

    levels = np.moveaxis(np.nanquantile(values, QUANTILES, axis=0), 0, -1)
    flat = values.reshape(len(values), -1)
    errors = [quantile_errors(column[np.isfinite(column)], int(np.isfinite(column).sum())) for column in flat.T]
    return levels, np.array(errors).reshape(levels.shape)


def agreement_of(study: Any) -> dict[str, Any]:
    """The verdict, and for every observable its own, with one sentence on what was found."""
    from ..lab.agreement import Agreement

    table = study.agreement()
    rows = []
    for name in table.observables:
        mine = [r for r in table if r.observable == name]
        verdict = Agreement(tuple(mine), table.sizes).verdict
        seeds = min(r.seeds for r in mine)
        if verdict == "agree" and seeds < FEWEST_SEEDS:
            verdict = "inconclusive"
        z = max((abs(gaussian_z(r.z, r.seeds)) for r in mine), default=0.0)
        rows.append(
            {"observable": name, "verdict": verdict, "z": z, "points": len(mine), "counts": table.counts(name),
             "sizes": list(table.sizes), "seeds": len(study.seeds), "sentence": verdict_sentence(verdict, mine, table.sizes),
             "distances": distances(study, name)}
        )  # fmt: skip
    return {"verdict": table.verdict, "rows": rows}


def distances(study: Any, name: str) -> list[dict[str, float]]:
    """For every size the root mean square distance of the simulated means from the theory, and that of their errors."""
    import numpy as np

    data = study.dataset(copy=False)
    theory = data.get(f"{name}_expected", data.get(f"{name}_theory"))
    random = any(o.random for m in study.variants().values() for n, o in m.observables().items() if n == name)
    if theory is None or random or f"{name}_simulated" not in data:
        return []
    found, simulated = [], data[f"{name}_simulated"]
    for size in data["size"].values:
        here = simulated.sel(size=size)
        exact = theory.sel(size=size) if "size" in theory.dims else theory
        with np.errstate(invalid="ignore"):  # both may be infinite
            away = (here - exact).mean("seed").values
            error = here.std("seed", ddof=1).values / np.sqrt(here.sizes["seed"]) if here.sizes["seed"] > 1 else np.nan
        pair = [float(np.sqrt(np.nanmean(np.square(v)))) if np.isfinite(v).any() else None for v in (away, error)]
        found.append({"size": int(size), "distance": pair[0], "error": pair[1]})
    return found


def gaussian_z(t: float, seeds: int) -> float:
    """The deviation of a normal variable that is as improbable as Student's t with this number of seeds.

    >>> round(gaussian_z(-100.0, 2), 1), round(gaussian_z(2.0, 1000), 2), gaussian_z(float("nan"), 8)
    (-2.7, 2.0, 0.0)
    """
    import math

    from scipy.special import ndtri, stdtr

    if not math.isfinite(t) or seeds < 2:
        return 0.0
    return float(math.copysign(min(-ndtri(float(stdtr(seeds - 1, -abs(t)))), 99.0), t))


def per_power(power: float) -> str:
    """One over a power of the size, in a line.

    >>> per_power(1), per_power(0.5), per_power(2)
    ('/N', '/√N', '/N²')
    """
    return {0.5: "/√N", 1: "/N", 2: "/N²"}.get(power, f"/N to the {power:g}")


def verdict_sentence(verdict: str, rows: list[Any], sizes: Any) -> str:
    """What a comparison of one observable has shown, in one sentence."""
    number, seeds = len(rows), min(r.seeds for r in rows)
    points = f"{number} {'point' if number == 1 else 'points'}"
    worst = max([r for r in rows if r.verdict == verdict] or rows, key=lambda r: abs(gaussian_z(r.z, r.seeds)))
    where = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in worst.point.items())
    at = f" at {where}" if where else ""
    seen = f"{worst.simulated:.4g} ± {worst.error:.1g} against {worst.theory:.4g}{at}"
    marked = sum(r.verdict == verdict for r in rows)
    if verdict == "agree":
        return (
            f"agrees at {'the point' if number == 1 else f'all {points}'}; the largest difference, {seen}, is what chance "
            f"gives in {number} {'comparison' if number == 1 else 'comparisons'}."
        )
    if verdict == "finite-size":
        return (
            f"differs by more than its error at {marked} of {points}, most with {seen}, but decreases with the size N as "
            f"declared: {worst.amplitude:.2g}{per_power(worst.power)} fits at all sizes, a finite-size effect."
        )
    if verdict == "inconclusive":
        if seeds < FEWEST_SEEDS:
            return f"shows no difference, but {seeds} seeds are too few to tell; use at least {FEWEST_SEEDS}."
        return f"shows no significant difference at {points}, but the errors are too large to tell; use more seeds."
    if verdict == "disagree":
        sentence = f"differs at {marked} of {points} by more than errors explain, most with {seen}"
        if len(sizes) < 2 and worst.status != "exact":
            return f"{sentence}; with a single size this may be a finite-size effect: simulate a second, larger one."
        return f"{sentence}, and not as a finite-size effect would."
    return f"cannot be compared at {marked} of {points}, where theory or simulation did not converge."


def tidy_up() -> None:
    """Return what compilations have freed, and forget programs if they still occupy too much: they are kept on disk."""
    from .room import forget_programs, give_back, is_full
    from .turns import MADE

    give_back()
    if is_full(2, MOST):
        MADE.clear()
        forget_programs()


def warm_up(request: dict[str, Any], warming: Any) -> None:
    """Compile what a simulation of this view needs; what takes long is not computed before it is asked for."""
    from ..lab.compute import needed_memory
    from .drafts import draft_of
    from .turns import MADE, name_of, taking_turns
    from .views import View
    from .waves import cost_of

    view = View.checked(request)
    kind = type(view.model)
    if not view.sizes or kind.runs == "host":
        return
    tidy_up()
    study = view.study()
    (model,), cost, run = study.variants().values(), cost_of(study), taking_turns(study)

    def compute(block: dict[str, Any]) -> Any:
        if block["lanes"] * cost.of(block["kind"], block["size"], block["padded"]) <= QUICK:
            return run(block)
        needed_memory(model, block)  # compiles only
        MADE.add(name_of(block))
        return None

    warming.begin(ordered(study), compute, lambda block: draft_of(study, block))


def ordered(study: Any) -> list[dict[str, Any]]:
    """The blocks of a study in the order in which the page computes them."""
    from .waves import cost_of, in_waves

    kind: Any = type(next(iter(study.models.values())))
    return in_waves(study.plan(), kind.runs, cost_of(study), kind.theory_lanes)


def main() -> None:
    os.nice(5)  # the curves have priority
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output printed by a model must not mix with the messages
    asked: queue.Queue[dict[str, Any]] = queue.Queue()
    flags: dict[str, threading.Event] = {}

    def listen() -> None:
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            message = frame[0]
            if "cancel" in message:
                if message["cancel"] in flags:
                    flags[message["cancel"]].set()
                continue
            if "run" in message:
                flags[message["run"]] = threading.Event()
            asked.put(message)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    from ..lab.jax_environment import configure

    configure()
    lock = threading.Lock()

    def send(message: dict[str, Any], data: bytes = b"") -> None:
        with lock:
            write_frame(pipe, message, data)

    from ..errors import SolvableError
    from ..lab import compute  # noqa: F401  (slow imports, done before the first job)
    from . import views  # noqa: F401
    from .ahead import Warming
    from .describe import claims
    from .turns import RUNNING

    warming, imports = Warming(), imports_of_a_verdict()
    send({"ready": True})
    later: list[dict[str, Any]] = []
    while True:
        message = next_of(asked, later)
        job = message.get("run", "")
        try:
            if "warm" in message:
                if asked.empty():  # nothing else is asked for
                    warm_up(message["warm"], warming)
                while asked.empty() and next(imports, None):
                    pass
            elif "claims" in message:
                with RUNNING:  # some evaluate a theory
                    found = claims(message["claims"])
                send({"claims": message["claims"], "found": found})
            else:
                warming.stop()
                Simulation(job, message["view"], send, flags[job]).run()
        except SolvableError as problem:
            if job:
                send({"job": job, "event": "failed", "data": {"error": str(problem)}})
            elif "claims" in message:
                send({"claims": message["claims"], "found": None})
        except BrokenPipeError:
            os._exit(0)
        except Exception as problem:
            import traceback

            traceback.print_exc()
            if job:
                sentence = f"the simulation failed: {type(problem).__name__}."
                send({"job": job, "event": "failed", "data": {"error": sentence}})
            elif "claims" in message:
                send({"claims": message["claims"], "found": None})
        finally:
            flags.pop(job, None)
            if job or "claims" in message:
                tidy_up()


def next_of(asked: queue.Queue[dict[str, Any]], later: list[dict[str, Any]]) -> dict[str, Any]:
    """The next message, claims only when nothing else is asked for.

    >>> asked: queue.Queue[dict[str, Any]] = queue.Queue()
    >>> later: list[dict[str, Any]] = []
    >>> for message in ({"claims": "ica"}, {"run": "job"}):
    ...     asked.put(message)
    >>> next_of(asked, later), next_of(asked, later)
    ({'run': 'job'}, {'claims': 'ica'})
    """
    while True:
        try:
            message = asked.get(block=not later)
        except queue.Empty:
            return later.pop(0)
        if "claims" not in message:
            return message
        later.append(message)


if __name__ == "__main__":
    main()
