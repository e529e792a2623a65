"""Simulations of the page: one worker process, a short queue, and events that are replayed to late listeners."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ..errors import SolvableError
from ..lab._files import unpack
from .views import View
from .worker import FRAME

MOST_WAITING = 4
MOST_KEPT = 16
UNATTENDED = 60.0  # seconds after which a job without a listener makes room for another session
TRIES = 3  # workers that are asked for the claims of a model, should one end
GRACE = 1.0  # seconds that a cancelled job has to finish its block
ENDS = ("done", "failed", "cancelled")
OUTDATED = (
    "outdated",
    {},
)  # in the place of a point that was sent again with more seeds; listeners index events by position


class Busy(Exception):
    """Too many simulations are already waiting."""


class Job:
    """A simulation: its view, its events so far, and the study that holds its results."""

    def __init__(self, session: str, view: View):
        self.id = secrets.token_urlsafe(12)
        self.session, self.view = session, view
        self.study = view.study()
        self.cells = len(self.study.cells())
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._places: dict[tuple[Any, ...], int] = {}  # of the newest event of each point
        self._changed = asyncio.Event()
        self._listeners, self._left = 0, time.monotonic()

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1][0] in ENDS

    @property
    def complete(self) -> bool:
        return bool(self.events) and self.events[-1][0] == "done"

    @property
    def unattended(self) -> float:
        """Seconds for which nobody has listened."""
        return 0.0 if self._listeners else time.monotonic() - self._left

    def about(self) -> dict[str, Any]:
        """The job as it is listed."""
        progress = next((data for event, data in reversed(self.events) if event == "progress"), {})
        state = self.events[-1][0] if self.ended else "running" if self.events else "waiting"
        return {"job": self.id, "title": self.view.model.title, "view": self.view.json(), "state": state,
                "cells": progress.get("cells", self.cells), "done": progress.get("done", 0)}  # fmt: skip

    def emit(self, event: str, data: dict[str, Any]) -> None:
        if self.ended:
            return
        if event == "progress" and self.events and self.events[-1][0] == "progress":
            self.events[-1] = (event, data)  # replace the previous progress, because listeners index events by position
        else:
            if event == "points":
                point = tuple(data.get(name) for name in ("observable", "size", "x", "y"))
                if point in self._places:
                    self.events[self._places[point]] = OUTDATED
                self._places[point] = len(self.events)
            elif event in ENDS:  # drafts that nothing has replaced
                self.events = [OUTDATED if said[1].get("draft") else said for said in self.events]
            self.events.append((event, data))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events: all events so far, then new ones."""
        self._listeners += 1
        try:
            async for event in self._stream():
                yield event
        finally:
            self._listeners -= 1
            self._left = time.monotonic()

    async def _stream(self) -> AsyncIterator[bytes]:
        place, latest = 0, None
        while True:
            changed = self._changed
            while place < len(self.events):
                latest = self.events[place]
                if latest is not OUTDATED:
                    yield sse(*latest)
                place += 1
            if place and self.events[place - 1] not in (latest, OUTDATED):  # a newer progress has replaced the last one
                latest = self.events[place - 1]
                yield sse(*latest)
            if self.ended:
                return
            if changed is self._changed:
                try:
                    await asyncio.wait_for(changed.wait(), 15)
                except TimeoutError:
                    yield b": still here\n\n"


def sse(event: str, data: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Jobs:
    """All simulations of this server; one runs at a time."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._judged: dict[str, asyncio.Future[Any]] = {}  # claims of models; None where the worker ended

    # --- requests of the page ---------------------------------------------------------------------------------------

    def submit(self, session: str, view: View) -> Job:
        """Queue a simulation; raises `Busy` if the session already has one, or if too many wait.

        A running simulation of another session makes room if nobody listens to it: that browser was closed.
        """
        running = self._running
        if running is not None and running.session != session and running.unattended > UNATTENDED:
            self.cancel(running)
        open = [j for j in [*self._waiting, *([self._running] if self._running else [])] if not j.ended]
        if len(open) > MOST_WAITING or any(j.session == session for j in open):
            raise Busy
        job = Job(session, view)
        self.jobs[job.id] = job
        for old in [j for j in self.jobs.values() if j.ended][: max(0, len(self.jobs) - MOST_KEPT)]:
            del self.jobs[old.id]
        self._waiting.append(job)
        self._spawn(self._next())
        return job

    def listed(self, session: str) -> list[Job]:
        """The jobs of a session, the newest first."""
        return [j for j in reversed(self.jobs.values()) if secrets.compare_digest(j.session, session)]

    def of(self, session: str, id: str) -> Job | None:
        """The job with this id, if it belongs to the session."""
        job = self.jobs.get(id)
        return job if job is not None and secrets.compare_digest(job.session, session) else None

    def cancel(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
            job.emit("cancelled", {})
        elif job is self._running and not job.ended:
            self._spawn(self._stop(job))

    def begin(self) -> None:
        """Start a worker before it is needed: importing takes it seconds."""
        if not self._closed:
            self._spawn(self._worker())

    def warm(self, view: View) -> None:
        """Let the worker compile what the simulation of this view would begin with."""
        if not self._closed:
            self._spawn(self._warm(view))

    async def _warm(self, view: View) -> None:
        with suppress(OSError, ConnectionError):
            process = await self._worker()
            if self._running is None or self._running.ended:
                await _write(process, {"warm": view.json()})

    async def judged(self, model: str) -> list[dict[str, Any]]:
        """The claims behind a model, judged by the worker: reading their data sets would hold up the curves of the page."""
        for _ in range(TRIES):
            if self._closed:
                break
            found = self._judged.get(model)
            if found is None:
                found = self._judged[model] = asyncio.get_running_loop().create_future()
                try:
                    await _write(await self._worker(), {"claims": model})
                except (OSError, ConnectionError):
                    self._forget_unjudged()
            if (claims := await asyncio.shield(found)) is not None:
                return claims
        raise SolvableError("the claims of this model could not be judged: their process ended.")

    def _forget_unjudged(self) -> None:
        """Tell those who wait for a worker that has ended; they ask the next one."""
        for model in [m for m, found in self._judged.items() if not found.done()]:
            self._judged.pop(model).set_result(None)

    @property
    def process(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def close(self) -> None:
        self._closed = True
        for job in list(self.jobs.values()):
            job.emit("cancelled", {})
        await self._kill()
        for task in list(self._tasks):
            task.cancel()

    # --- the worker -------------------------------------------------------------------------------------------------

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _worker(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "solvable.explorer.worker",
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=_environment(),
                )  # fmt: skip
                self._reader = asyncio.get_running_loop().create_task(self._read(self._process))
            return self._process

    async def _next(self) -> None:
        if self._closed or not self._waiting or (self._running is not None and not self._running.ended):
            return
        job = self._running = self._waiting.pop(0)
        try:
            process = await self._worker()
            if not job.ended:  # it may have been cancelled in the meantime
                await _write(process, {"run": job.id, "view": job.view.json()})
        except (OSError, ConnectionError) as problem:
            job.emit("failed", {"error": f"the simulation could not be started: {problem}."})
            self._spawn(self._next())

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        pipe = process.stdout
        assert pipe is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head, data = FRAME.unpack(await pipe.readexactly(FRAME.size))
                message = json.loads(await pipe.readexactly(head))
                self._hear(message, await pipe.readexactly(data) if data else b"")
        await process.wait()
        if process is not self._process:
            return  # we ended it
        self._process = None
        self._forget_unjudged()
        if self._running is not None and not self._running.ended:
            self._running.emit("failed", {"error": "the simulation ended early because its process died."})
        if not self._closed:
            self._spawn(self._next())

    def _hear(self, message: dict[str, Any], data: bytes) -> None:
        if "claims" in message:
            found = self._judged.get(message["claims"])
            if found is not None and not found.done():
                if message["found"] is None:
                    del self._judged[message["claims"]]
                found.set_result(message["found"])
            return
        job = self.jobs.get(message.get("job", ""))
        if job is None or job.ended:
            return
        if "plan" in message:
            job.study.stored_plan(message["plan"])
        elif "block" in message:
            job.study.attach().commit(message["block"], unpack(data), {})
        else:
            job.emit(message["event"], message["data"])
            if job.ended:
                self._spawn(self._next())

    async def _stop(self, job: Job) -> None:
        if self._process is not None:
            with suppress(OSError, ConnectionError):
                await _write(self._process, {"cancel": job.id})
        for _ in range(int(GRACE / 0.05)):
            if job.ended:
                return
            await asyncio.sleep(0.05)
        if not job.ended:
            job.emit("cancelled", {})
            await self._kill()
        self._spawn(self._next())

    async def _kill(self) -> None:
        process, self._process = self._process, None
        self._forget_unjudged()
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _write(process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
    assert process.stdin is not None
    head = json.dumps(message).encode()
    process.stdin.write(FRAME.pack(len(head), 0) + head)
    await process.stdin.drain()


def _environment() -> dict[str, str]:
    """The environment in which the worker imports this same copy of the package."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
