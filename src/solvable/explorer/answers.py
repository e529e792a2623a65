"""Requests and responses: JSON in, JSON out, and one sentence for every failure."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ..errors import SolvableError
from .importing import are_done, heavy_imports
from .security import Refusal, strict_json

LONGEST_SENTENCE = 600


async def body_of(request: Request, keys: tuple[str, ...]) -> dict[str, Any]:
    """The JSON object of a request, with no other keys than `keys`."""
    body = await run_in_threadpool(strict_json, await request.body() or b"{}")
    if not isinstance(body, dict):
        raise Refusal(400, "a request must be a JSON object.")
    for key in body:
        if key not in keys:
            raise Refusal(400, f"a request to this address takes no {key[:60]!r}.")
    return body


def answer(value: Any, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def refusal(status: int, sentence: str, **more: Any) -> Response:
    short = sentence if len(sentence) <= LONGEST_SENTENCE else sentence[: LONGEST_SENTENCE - 1] + "…"
    return answer({"error": short, **more}, status)


def guarded(
    handler: Callable[[Request], Awaitable[Response]], *, light: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler so that failures become messages; unless it is `light`, it waits for the heavy imports."""

    async def wrapped(request: Request) -> Response:
        try:
            if not light and not are_done():
                await run_in_threadpool(heavy_imports)
            return await handler(request)
        except Refusal as no:
            return refusal(no.status, str(no))
        except HTTPException as problem:
            return refusal(problem.status_code, str(problem.detail))
        except SolvableError as problem:
            return refusal(422, str(problem), field=getattr(problem, "field", None))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            return refusal(500, "internal error; see the terminal in which `solvable explore` runs.")

    return wrapped


async def http_error(request: Request, problem: Exception) -> Response:
    status = getattr(problem, "status_code", 500)
    sentences = {404: "there is nothing at this address.", 405: "this address does not accept that method."}
    response = refusal(status, sentences.get(status, "this request cannot be handled."))
    response.headers.update(getattr(problem, "headers", None) or {})
    return response
