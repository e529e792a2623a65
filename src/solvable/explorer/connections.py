"""Connections: bounded in number and in time, so that nobody on this machine can shut the reader out.

A request must arrive completely within some seconds. Connections that have not carried our cookie are strangers; if there
are too many, the oldest stranger is closed, never a connection of the reader, and a new one is always accepted.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 20.0  # from the first to the last byte of a request, or from the connection to the first
KEEP_ALIVE = 30
MOST_STRANGERS = 192
MOST_OF_A_SESSION = 32
LARGEST_HEAD = 256 * 1024  # other programs on this host may have set many cookies
_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Bounded(H11Protocol):
    """A connection with a deadline for every request; `session` is None for a stranger."""

    session: str | None = None
    begun: float = 0.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.begun = time.monotonic()
        self._watch(True)
        self._make_room(MOST_STRANGERS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch(self.conn.their_state in (h11.IDLE, h11.SEND_BODY))  # the request is not complete

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None:
            scope: Any = self.cycle.scope
            scope["connection"] = self  # before its task starts

    def belongs_to(self, session: str) -> None:
        """Called for a request with our cookie: from now on this connection is not a stranger's."""
        if self.session != session:
            self.session = session
            self._make_room(MOST_OF_A_SESSION)

    def _make_room(self, most: int) -> None:
        """Close the oldest connection of the same session, or the oldest stranger, if there are too many of them."""
        others = (c for c in self.connections if isinstance(c, Bounded) and c is not self)
        alike = [c for c in others if c.session == self.session and not c.transport.is_closing()]
        if len(alike) >= most:
            min(alike, key=lambda c: (c._answers(), c.begun)).transport.abort()

    def _answers(self) -> bool:
        return self.session is not None and self.cycle is not None and not self.cycle.response_complete

    def _watch(self, incomplete: bool) -> None:
        if not incomplete and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif incomplete and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._late)

    def _late(self) -> None:
        if not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_LATE)
            self.transport.close()


def settings(app: Any) -> uvicorn.Config:
    """How the server runs."""
    return uvicorn.Config(
        app, http=Bounded, log_level="critical", access_log=False, server_header=False, timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE, lifespan="on", ws="none", h11_max_incomplete_event_size=LARGEST_HEAD,
    )  # fmt: skip
