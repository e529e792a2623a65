"""The default simulation of every model as the page runs it, but without a server: its first points and its verdicts.

`python -m benchmarks.first_simulations [MODEL[=JSON] ...]` runs each model in a process of its own, on a few cores, without
any compiled programs to begin with, and prints one JSON object per line. With `--first` it ends at the first points; CPU
seconds until then hardly depend on other load, because no other program is begun before them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

COMPILING = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
ROOT = Path(__file__).resolve().parents[1]


def one(model: str, changes: dict[str, Any], first: bool = False) -> None:
    """Run the default simulation of a model, or only until its `first` points, and print what happened."""
    _without_formulas()
    import jax.monitoring

    from solvable.explorer import ahead, views, worker
    from solvable.explorer.defaults import default_view
    from solvable.lab import compute  # noqa: F401  (a worker has imported it before its first job)
    from solvable.registry import model_class

    kind = model_class(model)
    view = views.View.checked(default_view(kind).json() | changes)
    found: dict[str, Any] = {
        "model": model,
        "changes": changes,
        "sizes": view.sizes,
        "seeds": view.seeds,
        "points": view.simulated,
    }
    spans: dict[str, float] = {}

    def heard(event: str, seconds: float, **_: Any) -> None:
        name = COMPILING.get(event)
        if name:
            spans[name] = spans.get(name, 0.0) + seconds

    jax.monitoring.register_event_duration_secs_listener(heard)
    begun, spent = time.monotonic(), time.process_time()

    def send(message: dict[str, Any], data: bytes = b"") -> None:
        event: str | None = message.get("event")
        content: Any = message.get("data")
        if event == "points" and content["observable"] in view.observables and "first_points" not in found:
            found.update(first_points=time.monotonic() - begun, first_points_cpu=time.process_time() - spent)
            found.update({f"first_{name}": seconds for name, seconds in spans.items()})
            found["draft"] = content.get("draft", False)
            if first:
                print(json.dumps(found), flush=True)
                os._exit(0)
        elif event == "agreement":
            found["verdicts"] = {r["observable"]: r["verdict"] for r in content["rows"]}

    if first:
        ahead.LEAD = 600.0
    simulation = worker.Simulation("job", view.json(), send, threading.Event())
    simulation.run()
    found |= spans
    found |= {"shown": list(view.observables), "seconds": time.monotonic() - begun, "cpu": time.process_time() - spent}
    found["costs"] = _costs(simulation.study)
    if view.model.has_theory:
        found["rows"] = _rows(simulation.study.agreement(), view.observables)
    print(json.dumps(found), flush=True)


def _rows(table: Any, shown: tuple[str, ...]) -> dict[str, Any]:
    """For each shown observable its largest error and deviation, as parts of its scale."""
    out = {}
    for name in shown:
        mine = [r for r in table if r.observable == name]
        scale = max((abs(r.theory) for r in mine if abs(r.theory) < 1e300), default=0.0)
        worst = max(mine, key=lambda r: abs(r.z) if abs(r.z) < 1e300 else 0.0, default=None)
        if worst is None:
            continue
        count = {v: sum(r.verdict == v for r in mine) for v in {r.verdict for r in mine}}
        out[name] = {"error": max(r.error for r in mine) / (scale or 1), "z": worst.z, "counts": count,
                     "deviation": abs(worst.simulated - worst.theory) / (scale or 1), "scale": scale}  # fmt: skip
    return out


def _costs(study: Any) -> list[dict[str, Any]]:
    """For the first block of every program, core-seconds of a cell as measured and as declared."""
    from solvable.explorer.ahead import firsts
    from solvable.explorer.waves import cost_of
    from solvable.explorer.worker import ordered

    out = []
    for block in firsts(ordered(study)):
        begun = time.process_time()
        study.compute(block)
        batches = -(-block["cells"] // block["lanes"])
        measured = (time.process_time() - begun) / (batches * block["lanes"])
        declared = cost_of(study).of(block["kind"], block["size"], block["padded"])
        out.append({"kind": block["kind"], "size": block["size"], "padded": block["padded"], "lanes": block["lanes"],
                    "cells": block["cells"], "measured": measured, "declared": declared})  # fmt: skip
    return out


def _without_formulas() -> None:
    """Formulas are not typeset here: the library for it need not be installed."""
    try:
        import latex2mathml.converter  # noqa: F401
    except ImportError:
        import types

        inner: Any = types.ModuleType("latex2mathml.converter")
        inner.convert = lambda latex, **_: latex
        sys.modules |= {"latex2mathml": types.ModuleType("latex2mathml"), "latex2mathml.converter": inner}


def main() -> int:
    from solvable.registry import listings

    about = argparse.ArgumentParser(prog="python -m benchmarks.first_simulations", description=__doc__)
    about.add_argument(
        "models", nargs="*", metavar="MODEL[=JSON]", help="with parts of the view that are to be different"
    )
    about.add_argument("--out", type=Path, help="also write the lines to this file")
    about.add_argument("--jobs", type=int, default=1, help="models at a time")
    about.add_argument("--cores", type=int, default=2, help="cores of each")
    about.add_argument("--limit", type=float, default=90, help="seconds after which a model is given up")
    about.add_argument("--first", action="store_true", help="until the first points only")
    about.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = about.parse_args()
    if chosen.one:
        model, _, changes = chosen.models[0].partition("=")
        one(model, json.loads(changes or "{}"), chosen.first)
        return 0
    free: Queue[list[int]] = Queue()
    known = sorted(os.sched_getaffinity(0))
    for k in range(chosen.jobs):
        free.put([known[(k * chosen.cores + i) % len(known)] for i in range(chosen.cores)])
    lock = threading.Lock()

    def work(model: str) -> None:
        cores = free.get()
        words = [
            sys.executable,
            "-m",
            "benchmarks.first_simulations",
            model,
            "--one",
            *(["--first"] if chosen.first else []),
        ]
        try:
            environment = os.environ | {"JAX_PLATFORMS": "cpu"}
            done = subprocess.run(
                words, cwd=ROOT, capture_output=True, text=True, timeout=chosen.limit, env=environment,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )  # fmt: skip
            failed = json.dumps({"model": model, "failed": done.stderr[-600:]})
            line = done.stdout.strip().splitlines()[-1] if done.returncode == 0 else failed
        except subprocess.TimeoutExpired:
            line = json.dumps({"model": model, "failed": f"longer than {chosen.limit} s"})
        finally:
            free.put(cores)
        with lock:
            print(line, flush=True)
            if chosen.out:
                with chosen.out.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")

    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(work, chosen.models or listings()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
