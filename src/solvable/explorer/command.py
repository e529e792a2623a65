"""What `solvable explore` does: find a port, say the address, open the browser, serve until Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from ..errors import InvalidValue, SolvableError

NEEDED = ("starlette", "uvicorn", "latex2mathml", "plotly")


def explore(run: Path | None, port: int, browser: bool, as_json: bool) -> int:
    """Serve the page; returns the exit code."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SolvableError(f"the explorer needs {missing[0]}: pip install 'solvable[explore]'")
    if not 0 <= port <= 65535:
        raise InvalidValue(f"port = {port} is not a whole number in [0, 65535]: 0 takes a free one.")
    from .._process import configure

    configure()
    study = None
    if run is not None:
        from ..study import open as open_study

        study = open_study(run)
    import uvicorn

    from .app import Explorer, make_app
    from .security import Doorkeeper

    listener = _listener(port)
    door = Doorkeeper(listener.getsockname()[1])
    explorer = Explorer(door, study, run.name if run is not None else "")
    settings = uvicorn.Config(
        make_app(explorer), log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=1,
        timeout_keep_alive=30, lifespan="on", ws="none", h11_max_incomplete_event_size=65536, limit_concurrency=256,
    )  # fmt: skip
    server = Server(settings)
    address = f"{explorer.address}/?token={door.token}"
    if as_json:
        print(json.dumps({"address": address, "port": door.port, "run": str(run) if run else None}), flush=True)
    else:
        print(f"solvable explorer: {address}\nCtrl-C ends it.", flush=True)
    if browser:
        server.when_ready = lambda: threading.Thread(target=_open, args=(address,), daemon=True).start()
    _import_early()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    sys.stdout.flush()
    # Threads that still compile cannot be interrupted, and nothing is left to be saved.
    os._exit(0)


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as problem:
        listener.close()
        raise SolvableError(f"port {port} of this machine cannot be used: {problem.strerror}.") from None
    return listener


def _open(address: str) -> None:
    with contextlib.suppress(Exception):  # no browser: the address is printed anyway
        webbrowser.open(address)


def _import_early() -> None:
    """Have JAX imported by the time the reader has chosen a model."""

    def work() -> None:
        with contextlib.suppress(Exception):
            importlib.import_module("solvable.explorer.theory")

    threading.Thread(target=work, daemon=True).start()


def _server_class():
    import uvicorn

    class Server(uvicorn.Server):
        when_ready = staticmethod(lambda: None)

        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            self.when_ready()

    return Server


def Server(settings):  # a class made late: uvicorn is not imported with this file
    return _server_class()(settings)
