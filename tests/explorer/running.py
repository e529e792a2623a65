"""The explorer's server in a thread of this process, and a client that sends exactly the given bytes."""

import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import uvicorn

from solvable.explorer.app import Explorer, make_app
from solvable.explorer.connections import settings
from solvable.explorer.security import Doorkeeper
from waiting import LONG


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


class Running:
    """A server on a free port; `session` is the cookie of a logged-in browser."""

    def __init__(self, study=None, run=None, *, rate=1e6, burst=1e6, warm=False, early=None):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.door = Doorkeeper(self.port, rate=rate, burst=burst)
        self.explorer = Explorer(self.door, study, run, warm=warm, early=early)
        self.server = uvicorn.Server(settings(make_app(self.explorer)))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.origin = f"http://127.0.0.1:{self.port}"
        self.session = self.enter()

    def enter(self) -> str:
        """Exchange the token for the cookie that a browser would keep."""
        answer = self.ask("GET", f"/?token={self.door.issue()}", cookie=None)
        assert answer.status == 303, answer
        return answer.headers["set-cookie"].split(";")[0]

    def ask(self, method, path, body: bytes | None = None, headers=None, cookie: str | None = "ours") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        cookies = {"Cookie": self.session if cookie == "ours" else cookie} if cookie else {}
        try:
            connection.request(method, path, body, cookies | (headers or {}))
            response = connection.getresponse()
            return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path, **more) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path, value: Any, cookie: str | None = "ours", **headers) -> Answer:
        cookies = {"Content-Type": "application/json", "Origin": self.origin} | headers
        return self.ask("POST", path, json.dumps(value).encode(), cookies, cookie)

    def raw(self, text: bytes) -> bytes:
        """Send raw bytes; return the reply until the server closes the connection or is silent for some seconds."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONG) as connection:
            connection.sendall(text)
            got = b""
            try:
                while part := connection.recv(65536):
                    got += part
                    connection.settimeout(3)
            except TimeoutError:
                pass
            return got

    def events(self, job, cookie: str | None = "ours") -> list[tuple[str, dict]]:
        """All events of a job until its end."""
        answer = self.get(f"/api/jobs/{job}/events", cookie=cookie)
        assert answer.status == 200, answer
        found = []
        for part in answer.body.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
            if lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    def simulated(self, view) -> SimpleNamespace:
        """Run a simulation to its end: the job, its events, and its points by observable, size and place."""
        answer = self.post("/api/simulate", {"view": view})
        assert answer.status == 202, answer
        events = self.events(answer.json["job"])
        points = {(p["observable"], p["size"], p["x"], p.get("y")): p for kind, p in events if kind == "points"}
        return SimpleNamespace(job=answer.json["job"], events=events, points=points, last=events[-1])

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join(10)
