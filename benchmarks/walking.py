"""A walk over every model by HTTP: its first curve, its default simulation, and the memory of the server.

`python -m benchmarks.walking [MODEL ...] [--file FILE]` prints one line per model, and at last how many keep the limits.
One server visits them all, without any compiled programs to begin with; Simulate is pressed as soon as the curve is there
(`--look SECONDS`: later, as a reader would). Waiting times are wall seconds with the CPU seconds of the processes beside
them, because the second hardly depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .browsing import Server, served
from .rows import Row

CONCLUSIVE = ("agree", "finite-size")
FIRST_POINTS, DECIDED, MEMORY = 3.0, 20.0, 600.0  # seconds from Simulate to the points and the verdict; megabytes


class Client:
    """A session of the explorer that is not a browser."""

    def __init__(self, server: Server):
        self.server, self.origin = server, server.base
        self._host = urlsplit(server.base).netloc
        answer = self._asked("GET", "/?" + urlsplit(server.address()).query, None, {})
        self._cookie = answer.getheader("set-cookie", "").split(";")[0]

    def _asked(self, method: str, path: str, body: Any, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, timeout=900)
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        return connection.getresponse()

    def get(self, path: str) -> http.client.HTTPResponse:
        return self._asked("GET", path, None, {"Cookie": self._cookie})

    def post(self, path: str, body: Any) -> http.client.HTTPResponse:
        headers = {"Cookie": self._cookie, "Content-Type": "application/json", "Origin": self.origin}
        return self._asked("POST", path, body, headers)

    def json(self, path: str, body: Any = None) -> Any:
        answer = self.get(path) if body is None else self.post(path, body)
        return json.loads(answer.read())

    def events(self, job: str) -> Iterator[tuple[str, Any]]:
        """The events of a job as they come."""
        answer, kind = self.get(f"/api/jobs/{job}/events"), ""
        while line := answer.readline():
            name, _, text = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = text
            elif name == "data":
                yield kind, json.loads(text)


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def cpu(process: int) -> float:
    """CPU seconds of a process so far; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Resident memory of a process in megabytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def visit(client: Client, model: str, simulate: bool = True, look: float = 0.0, limit: float = 120.0) -> dict[str, Any]:
    """Open one model, as the page does: its description, its curve, then its default simulation."""
    server = client.server.process
    begun, spent = time.monotonic(), cpu(server)
    about = client.json(f"/api/models/{model}")
    if "error" in about:
        raise SystemExit(about["error"])
    view = about["default_view"]
    asked = client.post("/api/theory", {"view": view, "stream": "walk", "sequence": 0, "draft": True})
    found: dict[str, Any] = {"model": model, "status": asked.status, "view": view, "has_theory": about["has_theory"]}
    asked.read()
    found |= {"curve": time.monotonic() - begun, "curve_cpu": cpu(server) - spent}
    time.sleep(look)
    if simulate:
        found |= simulated(client, view, limit)
    worker = children(server)
    return found | {"server_mb": resident(server), "worker_mb": sum(map(resident, worker))}


def simulated(client: Client, view: dict[str, Any], limit: float = 120.0) -> dict[str, Any]:
    """The default simulation: seconds until its first points and its end, and the verdicts of what is shown.

    It is cancelled after `limit` seconds.
    """
    begun = time.monotonic()
    started = {process: cpu(process) for process in children(client.server.process)}
    answer = client.json("/api/simulate", {"view": view})
    if "job" not in answer:
        return {"refused": answer.get("error")}
    first, rows, last, waves = None, [], "", 0
    late = threading.Timer(limit, lambda: client.post(f"/api/jobs/{answer['job']}/cancel", {}).read())
    late.start()
    for kind, data in client.events(answer["job"]):
        last = kind
        if kind == "points" and data["observable"] in view["observables"]:
            first = first or time.monotonic() - begun
            waves = max(waves, data["seeds"])
        elif kind == "agreement":
            rows = data["rows"]
    took = time.monotonic() - begun
    late.cancel()
    now = children(client.server.process)
    shown = [r for r in rows if r["observable"] in view["observables"]]
    return {
        "first_points": first, "simulated": took, "ended": last, "cells": answer["cells"],
        "simulated_cpu": sum(cpu(p) - started.get(p, 0.0) for p in now),
        "verdicts": {r["observable"]: r["verdict"] for r in shown}, "z": {r["observable"]: r["z"] for r in shown},
        "all_verdicts": {r["observable"]: r["verdict"] for r in rows},
        "sentences": {r["observable"]: r["sentence"] for r in shown},
    }  # fmt: skip


def walk(models: list[str], simulate: bool = True, look: float = 0.0, kept: bool = False) -> Iterator[dict[str, Any]]:
    """Visit models one after the other with one server; it begins with the programs in its cache if they are `kept`."""
    with tempfile.TemporaryDirectory() as cache, served(**({} if kept else {"SOLVABLE_CACHE": cache})) as server:
        client = Client(server)
        client.json("/api/stories")  # answered once everything is imported
        for model in models:
            yield visit(client, model, simulate, look)


def decided(found: dict[str, Any]) -> bool:
    """Whether everything shown has a verdict; an experiment is compared with nothing."""
    return found.get("ended") == "done" and all(v in CONCLUSIVE for v in found["verdicts"].values())


def line(found: dict[str, Any]) -> str:
    """What was found for one model, with a mark behind each number that is over its limit."""

    def shown(name: str, most: float = 1e9, width: int = 6) -> str:
        value = found.get(name)
        return f"{'-':>{width}} " if value is None else f"{value:{width}.1f}{'!' if value > most else ' '}"

    view = found["view"]
    run = (
        f"d {','.join(map(str, view['sizes']))}; {view['seeds']} seeds; {view['simulated'] if view['x'] else 1} points"
    )
    verdicts = ", ".join(
        f"{name} {verdict} (z {found['z'][name]:.1f})" for name, verdict in found.get("verdicts", {}).items()
    )
    said = verdicts or ("an experiment" if not found["has_theory"] else "no verdict")
    said += "" if decided(found) else f"  <-- {found.get('refused') or found.get('ended', '')}"
    return (
        f"{found['model']:<24}{shown('curve')}{shown('curve_cpu')} {shown('first_points', FIRST_POINTS)} "
        f"{shown('simulated', DECIDED)}{shown('simulated_cpu')} {shown('server_mb', MEMORY)}{shown('worker_mb')} {run}: {said}"
    )


HEAD = f"{'model':<24} curve    cpu  first points  verdict    cpu   server MB  worker MB"


def walking() -> Iterator[Row]:
    """Every model is opened and simulated as the page does it, with one server (twenty minutes on an idle machine)."""
    from solvable.registry import listings

    largest = 0.0
    for found in walk(list(listings())):
        largest = max(largest, found["server_mb"])
        note = f"curve after {found['curve']:.1f} s; {found['view']['seeds']} seeds; " + ", ".join(
            f"{name} {verdict}" for name, verdict in found.get("verdicts", {}).items()
        )
        yield Row("walking", f"{found['model']}: Simulate to the first points", found.get("first_points") or 1e9,
                  most=FIRST_POINTS, unit="s", note=note)  # fmt: skip
        wait = found.get("simulated", 1e9) if decided(found) else 1e9
        yield Row("walking", f"{found['model']}: Simulate to the verdict{'' if decided(found) else ', which decides nothing'}",
                  wait, most=DECIDED, unit="s")  # fmt: skip
    yield Row("walking", "memory of the server at its largest", largest, most=MEMORY, unit="MB")


def main() -> int:
    from solvable.registry import listings

    about = argparse.ArgumentParser(prog="python -m benchmarks.walking", description=__doc__)
    about.add_argument("models", nargs="*", metavar="MODEL")
    about.add_argument("--file", type=Path, help="also write everything to this file, one JSON object per line")
    about.add_argument("--curves", action="store_true", help="curves only")
    about.add_argument("--look", type=float, default=0.0, help="seconds between the curve and Simulate")
    about.add_argument("--kept", action="store_true", help="begin with the programs in the cache")
    chosen = about.parse_args()
    print(HEAD, flush=True)
    every = []
    for found in walk(chosen.models or list(listings()), not chosen.curves, chosen.look, chosen.kept):
        every.append(found)
        print(line(found), flush=True)
        if chosen.file:
            with chosen.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
    soon = sum((found.get("first_points") or 1e9) <= FIRST_POINTS for found in every)
    done = sum(decided(found) and found["simulated"] <= DECIDED for found in every)
    print(f"{len(every)} models: first points within {FIRST_POINTS:g} s {soon}, decided within {DECIDED:g} s {done}, "
          f"largest server {max(found['server_mb'] for found in every):.0f} MB")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
