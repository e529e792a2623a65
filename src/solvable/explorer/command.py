"""The command `solvable explore`: find a port, print the address, open the browser, serve until Ctrl-C."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import InvalidValue, SolvableError
from .links import is_link, query_of

NEEDED = ("starlette", "uvicorn", "latex2mathml", "plotly")


def explore(what: str | None, port: int, browser: bool, as_json: bool, story: Path | None = None) -> int:
    """Serve the page, opened at a link or with a stored study, and return the exit code."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SolvableError(f"the explorer needs {missing[0]}: pip install 'solvable[explore]'")
    if not 0 <= port <= 65535:
        raise InvalidValue(f"port = {port} is not an integer in [0, 65535]; 0 picks a free one.")
    from ..lab.jax_environment import configure

    configure()
    run = Path(what) if what is not None and not is_link(what) else None
    query = query_of(what) if what is not None and run is None else "study=1" if run is not None else ""
    study = open_study(run) if run is not None else None
    stories = _stories(story) if story is not None else []
    if stories and not query:
        query = f"{stories[0]['steps'][0]['query']}&lecture={stories[0]['id']}&step=0"
    import uvicorn

    from .app import Explorer, make_app
    from .connections import settings
    from .early import Early, folder
    from .security import Doorkeeper

    listener = _listener(port)
    door = Doorkeeper(listener.getsockname()[1])
    explorer = Explorer(door, study, run, stories=stories, early=Early(folder()))

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            await explorer.close()  # ends the event streams, which would block the shutdown
            await super().shutdown(sockets)

    server = Server(settings(make_app(explorer)))

    def address() -> str:
        return f"{explorer.address}/?token={door.issue()}" + (f"&{query}" if query else "")

    def tell() -> None:
        if as_json:
            print(json.dumps({"address": address(), "port": door.port, "run": str(run) if run else None}), flush=True)
        else:
            print(f"solvable explorer: {address()}", flush=True)

    tell()
    if not as_json:
        print("The address can be used once; press Enter for a new one, Ctrl-C to stop.", flush=True)
    _on_enter(tell)
    page = _redirect(address()) if browser else None
    if page is not None:
        threading.Thread(target=_open, args=(server, page), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if page is not None:
        page.unlink(missing_ok=True)
    sys.stdout.flush()
    # Threads that are still compiling cannot be interrupted, and there is nothing left to save.
    os._exit(0)


def _stories(file: Path) -> list[dict[str, Any]]:
    """The stories of a lecturer, checked before the server starts; their names in links do not clash with ours."""
    from .stories import OURS, parsed, read

    taken = {story["id"] for story in parsed(OURS)}
    return [s | {"id": f"my-{s['id']}" if s["id"] in taken else s["id"]} for s in read(file)]


def open_study(run: Path) -> Any:
    """The stored study, read once before the server starts, so that errors in it are reported at once."""
    from ..study import open as open_study

    try:
        study = open_study(run)
        study.dataset()
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        if isinstance(problem, SolvableError):
            raise
        raise SolvableError(f"the run at {run} contains a study that cannot be read.") from None
    return study


def _listener(port: int) -> socket.socket:
    # With the protocol given as TCP, asyncio sets TCP_NODELAY: headers and body are two packets, and the second would
    # otherwise wait 40 ms for the acknowledgement of the first.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)  # listen before the address is printed: early requests wait instead of being refused
    except OSError as problem:
        listener.close()
        raise SolvableError(f"port {port} of this machine cannot be used: {problem.strerror}.") from None
    return listener


def _redirect(address: str) -> Path | None:
    """A page, readable by its owner only, that leads to the address: arguments of processes are read by every user."""
    address = html.escape(address)
    try:
        handle, name = tempfile.mkstemp(prefix="solvable-", suffix=".html")
        with os.fdopen(handle, "w") as file:
            file.write(
                f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>solvable</title>'
                f'<meta http-equiv="refresh" content="0; url={address}"><p><a href="{address}">Open the explorer</a></p>'
            )
    except OSError:
        return None
    return Path(name)


def _open(server: Any, page: Path) -> None:
    while not server.started:
        time.sleep(0.02)
    with contextlib.suppress(Exception):  # no browser: the address is printed anyway
        webbrowser.open(page.as_uri())


def _on_enter(action: Callable[[], None]) -> None:
    """Do something at every Enter in the terminal, if there is one."""
    if sys.stdin is None or not sys.stdin.isatty():
        return
    if hasattr(signal, "SIGTTIN"):
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # in the background, reading fails instead of stopping the server

    def work() -> None:
        with contextlib.suppress(OSError, ValueError):
            while sys.stdin.readline():
                action()

    threading.Thread(target=work, daemon=True).start()
