"""Access control: checks that every request must pass before it is processed, and headers of every response.

The server listens on the loopback address, but any page in the user's browser can send requests there. Therefore the
Host must be ours (which excludes DNS rebinding), a request that changes anything must carry our own Origin and JSON, and
every request except the exchange of a token needs the cookie that the exchange sets. A token is spent by its first use.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGEST_BODY = 256 * 1024
LONGEST_QUERY = 32 * 1024
DEEPEST = 10  # levels of a JSON value
MOST_SESSIONS = 64
MOST_TOKENS = 8  # unspent; the oldest is forgotten
RATE, BURST = 50.0, 200.0
ANOTHER = "press Enter in its terminal for a new one."
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(Exception):
    """A refused request, with its status and one sentence with the reason."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Bucket:
    """A token bucket: a number of requests per second, and a number at once."""

    def __init__(self, rate: float, burst: float):
        self._rate, self._burst, self._left, self._then = rate, burst, burst, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Doorkeeper:
    """Holds the unspent tokens and the sessions."""

    def __init__(self, port: int, *, rate: float = RATE, burst: float = BURST):
        self.port = port
        self._rate, self._burst = rate, burst
        self.cookie = f"solvable_{port}"  # cookies ignore ports: two explorers must not overwrite each other's
        names = ("127.0.0.1", "localhost", "[::1]")
        self.hosts = {f"{n}:{port}" for n in names}
        self.origins = {f"http://{h}" for h in self.hosts}
        self._tokens: OrderedDict[bytes, None] = OrderedDict()  # by hash, as the sessions
        self._sessions: OrderedDict[bytes, str] = OrderedDict()  # by hash of the secret, which names the session
        self._anonymous = Bucket(rate, burst)
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def session_of(self, headers: dict[str, str]) -> str | None:
        """The session of a request's cookie, looked up by hash to avoid a byte-by-byte comparison."""
        found = (self._sessions.get(_hash(secret)) for secret in _cookies(headers.get("cookie", ""), self.cookie))
        return next((session for session in found if session is not None), None)

    def issue(self) -> str:
        """A new token, to be spent once."""
        token = secrets.token_urlsafe(32)
        self._tokens[_hash(token)] = None
        while len(self._tokens) > MOST_TOKENS:
            self._tokens.popitem(last=False)
        return token

    def accepts(self, token: str) -> bool:
        """Whether a token is unspent; looked up by hash to avoid a byte-by-byte comparison."""
        return _hash(token) in self._tokens

    def exchange(self, token: str) -> str | None:
        """Spend a token: a new secret in exchange for it, or None if it is wrong or spent."""
        if not self.accepts(token):
            return None
        del self._tokens[_hash(token)]
        secret = secrets.token_urlsafe(32)
        self._sessions[_hash(secret)] = secrets.token_urlsafe(12)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return secret

    def admit(self, session: str | None) -> bool:
        """Whether the rate allows one more request; requests without a session share one separate bucket."""
        if session is None:
            return self._anonymous.take()
        bucket = self._buckets.setdefault(session, Bucket(self._rate, self._burst))
        while len(self._buckets) > MOST_SESSIONS:
            self._buckets.popitem(last=False)
        return bucket.take()


class Gate:
    """The ASGI middleware: checks first, then the application, with our headers on every response."""

    def __init__(self, app: Any, doorkeeper: Doorkeeper):
        self.app, self.doorkeeper = app, doorkeeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # no WebSocket
            return await send({"type": "websocket.close", "code": 1008})
        begun = False

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = _with_ours(message.get("headers", []))
            await send(message)

        try:
            headers = _headers(scope)
            door = self.doorkeeper
            if headers.get("host", "").lower() not in door.hosts:
                raise Refusal(421, "this server accepts requests to its own address only.")
            session = door.session_of(headers)
            if session is not None and "connection" in scope:
                scope["connection"].belongs_to(session)
            if not door.admit(session) and not self._has_token(scope):
                raise Refusal(429, "too many requests; wait a second.")
            self._method(scope, headers)
            if await self._exchanged(scope, headers, session, answer):
                return None
            if session is None:
                raise Refusal(401, f"open the address with the token that `solvable explore` printed; {ANOTHER}")
            scope["session"] = session
            return await self.app(scope, _limited(receive, headers), answer)
        except Refusal as no:
            if begun:
                raise
            return await _refuse(scope, no, answer)

    def _method(self, scope: Scope, headers: dict[str, str]) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, "only GET and POST are allowed.")
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            raise Refusal(414, "the address is too long.")
        origin = headers.get("origin")
        if origin is not None and origin not in self.doorkeeper.origins:
            raise Refusal(403, "this request comes from another page.")
        # Another port of this machine counts as the same site, which a strict cookie does not exclude.
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and scope["path"] != "/":
            raise Refusal(403, "this request comes from another page.")
        if method != "POST":
            return
        if origin is None:
            raise Refusal(403, "a POST needs the Origin of this page.")
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "a POST must be application/json.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:12]) > LARGEST_BODY:
            raise Refusal(413, f"a request has at most {LARGEST_BODY} bytes.")

    def _has_token(self, scope: Scope) -> bool:
        """Whether a request carries an unspent token: strangers cannot use up the requests of those who have one."""
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return False
        return any(name == "token" and self.doorkeeper.accepts(value) for name, value in _query(scope))

    async def _exchanged(self, scope: Scope, headers: dict[str, str], session: str | None, send: Send) -> bool:
        """Exchange the token for a cookie, if this request asks for it."""
        if scope["path"] != "/" or scope["method"] != "GET":
            return False
        query = _query(scope)
        tokens = [v for n, v in query if n == "token"]
        if not tokens:
            return False
        rest = urlencode([(n, v) for n, v in query if n != "token"])
        target = "/?" + rest if rest else "/"
        secret = self.doorkeeper.exchange(tokens[0]) if len(tokens) == 1 else None
        if secret is None and session is None:
            raise Refusal(401, f"this token is wrong or has been used; {ANOTHER}")
        fields = [(b"location", target.encode("ascii"))]
        if session is None:
            fields.append(
                (b"set-cookie", f"{self.doorkeeper.cookie}={secret}; HttpOnly; SameSite=Strict; Path=/".encode())
            )
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            # A browser sent here by another page would not send a strict cookie after a redirect: make it load the page
            # again by itself.
            fields[0] = (b"refresh", b"0; url=" + target.encode("ascii"))
            fields.append((b"content-type", b"text/html; charset=utf-8"))
            await _respond(send, 200, fields, b"<!doctype html><title>solvable</title>")
            return True
        await _respond(send, 303, fields, b"")
        return True


def _query(scope: Scope) -> list[tuple[str, str]]:
    try:
        text = scope.get("query_string", b"").decode("latin-1")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=256)
    except ValueError:
        raise Refusal(400, "the address cannot be parsed.") from None


def _limited(receive: Receive, headers: dict[str, str]) -> Receive:
    """The body, rejected once it exceeds the limit, regardless of its header."""
    seen = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise Refusal(413, f"a request has at most {LARGEST_BODY} bytes.")
        return message

    return limited


def strict_json(body: bytes) -> Any:
    """Parse JSON without repeated names, NaN, infinity or deep nesting; raises `Refusal` otherwise."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name twice")
        return found

    def never(word: str) -> Any:
        raise ValueError(word)

    try:
        text = body.decode("utf-8")
        if _depth(text) > DEEPEST:
            raise Refusal(400, "the request is nested too deeply.")
        return json.loads(text, object_pairs_hook=once, parse_constant=never)
    except (ValueError, RecursionError):
        raise Refusal(400, "the request is not valid JSON.") from None


def _depth(text: str) -> int:
    """The nesting depth of a JSON text, found without recursion in a time proportional to its length."""
    depth = deepest = 0
    for found in _MARKS.finditer(text):
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in "]}":
            depth -= 1
    return deepest


# A string that does not end reaches to the end of the text: every quote matches, so that none is scanned again.
_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _cookies(header: str, name: str) -> list[str]:
    """The values of our cookie. Other programs on this host set cookies too, of any form; they are not parsed.

    >>> _cookies('prefs={"theme":"dark; x"}; solvable_1=a; é=; =', "solvable_1")
    ['a']
    """
    pairs = (part.partition("=") for part in header.split(";"))
    return [value.strip() for found, _, value in pairs if found.strip() == name and value.strip()]


def _headers(scope: Scope) -> dict[str, str]:
    """Headers by name; a security-relevant header that is sent twice is refused."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in found and key in ("host", "origin", "content-type", "content-length", "cookie"):
            raise Refusal(400, f"the header {key} is sent twice.")
        found[key] = value.decode("latin-1")
    return found


def _with_ours(headers: Any) -> list[tuple[bytes, bytes]]:
    given = [(bytes(n).lower(), bytes(v)) for n, v in headers]
    names = {n for n, _ in given}
    return given + [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in names]


async def _refuse(scope: Scope, no: Refusal, send: Send) -> None:
    if scope["path"].startswith(("/api/", "/static/", "/thumbnails/")) or scope["method"] != "GET":
        body, kind = json.dumps({"error": str(no)}).encode(), b"application/json"
    else:
        body, kind = _page(str(no)), b"text/html; charset=utf-8"
    headers = [(b"content-type", kind), *([(b"allow", b"GET, HEAD, POST")] if no.status == 405 else [])]
    headers += [(b"retry-after", b"1")] if no.status == 429 else []
    headers += [(b"connection", b"close")] if no.status in (413, 400) else []
    await _respond(send, no.status, headers, b"" if scope["method"] == "HEAD" else body)


def _page(sentence: str) -> bytes:
    import html

    fields = html.escape(sentence[:1].upper() + sentence[1:])
    return f'<!doctype html><meta charset="utf-8"><title>solvable</title><p>{fields}</p>'.encode()


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": _with_ours([*headers, length])})
    await send({"type": "http.response.body", "body": body})
