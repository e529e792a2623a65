"""Routes and handlers of the server. All of them are behind the checks of `security`."""

from __future__ import annotations

import asyncio
import importlib.util
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..errors import InvalidValue, nearest
from ..registry import listings
from .answers import answer, body_of, guarded, http_error, refusal
from .early import Early
from .importing import are_done, heavy_imports
from .security import Doorkeeper, Gate

STATIC = Path(__file__).parent / "static"


class Explorer:
    """One running server: the state that its requests share."""

    def __init__(
        self, doorkeeper: Doorkeeper, study: Any = None, run: Path | None = None, *, warm: bool = True,
        stories: list[dict[str, Any]] | None = None, early: Early | None = None,
    ):  # fmt: skip
        self.doorkeeper, self._study, self._run, self.warms = doorkeeper, study, run, warm
        self._stories, self._early = stories, early or Early(None)
        self._behind: set[asyncio.Task[Any]] = set()
        self.address = f"http://127.0.0.1:{doorkeeper.port}"
        self.files = {f.name: f for f in sorted(STATIC.iterdir()) if f.is_file()} if STATIC.is_dir() else {}
        self.plotly = plotly()
        self._theories: Any = None
        self._jobs: Any = None
        self._stored: Any = None

    @property
    def theories(self) -> Any:
        if self._theories is None:
            from .theory import Theories

            self._theories = Theories()
        return self._theories

    @property
    def jobs(self) -> Any:
        if self._jobs is None:
            from .jobs import Jobs

            self._jobs = Jobs()
        return self._jobs

    @property
    def stored(self) -> Any:
        if self._study is None:
            return None
        if self._stored is None:
            from .stored_study import StoredStudy

            self._stored = StoredStudy(self._study, self._run or Path("study"))
        return self._stored

    async def begin(self) -> None:
        """Import everything and start the worker, while the reader chooses a model."""
        with suppress(Exception):  # whoever needs them is told why they cannot be imported
            await run_in_threadpool(heavy_imports)
            self.jobs.begin()

    async def close(self) -> None:
        if self._jobs is not None:
            await self._jobs.close()
        if self._theories is not None:
            self._theories.close()

    # --- pages and files --------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        return self._static("index.html", "no-cache")

    async def static(self, request: Request) -> Response:
        return self._static(request.path_params["name"], "no-cache")

    def _static(self, name: str, cache: str) -> Response:
        if name not in self.files:
            return refusal(404, "there is no such file.")
        kind = {".js": "text/javascript", ".mjs": "text/javascript"}.get(Path(name).suffix) or mimetypes.guess_type(
            name
        )[0]
        return Response(self.files[name].read_bytes(), media_type=kind or "application/octet-stream",
                        headers={"cache-control": cache})  # fmt: skip

    async def plotly_js(self, request: Request) -> Response:
        if self.plotly is None:
            return refusal(404, "plotly is not installed; run pip install 'solvable[explore]'.")
        # Cached by the browser, and requested again only if the installed version changes.
        headers = {"cache-control": "private, no-cache", "etag": f'"{self.plotly[1]}"'}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        body = await run_in_threadpool(self.plotly[0].read_bytes)
        return Response(body, media_type="text/javascript", headers=headers)

    async def thumbnail(self, request: Request) -> Response:
        from .gallery import thumbnail

        if request.path_params["model"] not in listings():
            return refusal(404, "there is no such model.")
        body = await run_in_threadpool(thumbnail, request.path_params["model"])
        return Response(body, media_type="image/svg+xml", headers={"cache-control": "private, max-age=3600"})

    # --- models -----------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        from .gallery import models

        study = await run_in_threadpool(lambda: self.stored.about()) if self._study is not None else None
        version = self.plotly[1] if self.plotly else None
        return answer(models() | {"study": study, "plotly": version})

    async def words(self, request: Request) -> Response:
        from .search_words import words_of_models

        return answer({"words": await run_in_threadpool(words_of_models)})

    async def stories(self, request: Request) -> Response:
        from .stories import OURS, parsed

        return answer({"stories": [*(self._stories or []), *await run_in_threadpool(parsed, OURS)]})

    async def model(self, request: Request) -> Response:
        id = request.path_params["id"]
        if id not in listings():
            return refusal(404, f"there is no model {id[:60]!r}; {nearest(id[:60], list(listings()))}")
        session, kept = request.scope["session"], None
        if not are_done():
            kept = await run_in_threadpool(self._early.read, "model", id)
        if kept is None:
            return answer(await self._described(session, id))
        self._spawn(self._described(session, id))
        return answer(kept)

    async def _described(self, session: str, id: str) -> dict[str, Any]:
        """The description of a model, which is looked at from now on."""
        await run_in_threadpool(heavy_imports)
        from .describe import describe_model
        from .views import View

        self.theories.look_at(session, id)
        about = await run_in_threadpool(describe_model, id)
        if self.warms:
            await run_in_threadpool(self._warm, about)
            self.jobs.warm(View.checked(about["default_view"]))
        await run_in_threadpool(self._early.write, "model", id, about, id)
        return about

    def _spawn(self, work: Any) -> None:
        """Do something behind an answer that was given already; a failure is reported to whoever asks for it next."""

        async def quietly() -> None:
            with suppress(Exception):
                await work

        task = asyncio.create_task(quietly())
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def claims(self, request: Request) -> Response:
        id = request.path_params["id"]
        if id not in listings():
            return refusal(404, f"there is no model {id[:60]!r}; {nearest(id[:60], list(listings()))}")
        found = await run_in_threadpool(self._early.read, "claims", id)
        if found is None:
            found = {"claims": await self.jobs.judged(id)}
            await run_in_threadpool(self._early.write, "claims", id, found, id)
        return answer(found)

    async def kept(self, request: Request) -> Response:
        from .kept import figures

        return answer({"figures": figures(request.path_params["id"])})

    async def figure(self, request: Request) -> Response:
        from .kept import picture

        body = await run_in_threadpool(picture, request.path_params["name"])
        return Response(body, media_type="image/svg+xml", headers={"cache-control": "private, max-age=3600"})

    def _warm(self, about: dict[str, Any]) -> None:
        """Compile the program that will be needed next, unless another compilation is running."""
        from .theory import theory_of
        from .views import View

        view = View.checked(about["default_view"])
        if theory_of(view.model) is None:
            self.theories.warm(view, draft=True)

    async def status(self, request: Request) -> Response:
        compiling = self._theories.compiling() if self._theories is not None else {}
        return answer({"compiling": [{"model": m, "seconds": s} for m, s in compiling.items()]})

    # --- theory -----------------------------------------------------------------------------------------------------

    async def theory(self, request: Request) -> Response:
        body = await body_of(request, ("view", "stream", "sequence", "draft"))
        sequence, stream, draft = body.get("sequence", 0), body.get("stream", ""), body.get("draft", False)
        if (
            isinstance(sequence, bool)
            or not isinstance(sequence, int)
            or not isinstance(stream, str)
            or len(stream) > 64
            or not isinstance(draft, bool)
        ):
            raise InvalidValue("sequence must be an integer, stream a short name, and draft true or false.")
        if not are_done() and (early := await run_in_threadpool(self._early.read, "theory", body.get("view"))):
            self._spawn(self._compiled(body["view"]))
            return answer(early | {"sequence": sequence, "cached": True})
        await run_in_threadpool(heavy_imports)
        from .theory import Busy, Stale, theory_of, without_theory
        from .theory import answer as drawn
        from .views import View

        newest = self.theories.note(request.scope["session"], stream, sequence)
        view = await run_in_threadpool(View.checked, body.get("view"))
        self.theories.look_at(request.scope["session"], view.model.id)
        why = theory_of(view.model)
        if why is not None:
            return answer(without_theory(view, why) | {"sequence": sequence, "cached": True})
        cached = self.theories.kept(view)
        left = asyncio.create_task(_left(request))  # the page was closed, or shows another model
        try:
            wanted = lambda: newest() and not left.done()  # noqa: E731
            curves = cached or await asyncio.wrap_future(self.theories.submit(view, wanted, draft))
        except Stale:
            return answer({"error": "stale", "stale": True, "sequence": sequence}, 409)
        except Busy:
            return refusal(429, "too many curves are requested at once; wait a second.")
        finally:
            left.cancel()
        coarse = self.theories.coarse(view, curves)
        more = {"sequence": sequence, "cached": cached is not None, "coarse": coarse}
        found = await run_in_threadpool(drawn, view, curves)
        if curves.compiled and not curves.draft:  # it took longest
            await run_in_threadpool(self._early.write, "theory", body.get("view"), found | more, view.model.id)
        return answer(found | more)

    async def _compiled(self, request: Any) -> None:
        """Compute a curve that is shown already, so that its program is there when a slider moves."""
        await run_in_threadpool(heavy_imports)
        from .views import View

        view = await run_in_threadpool(View.checked, request)
        await asyncio.wrap_future(self.theories.submit(view, lambda: True))

    # --- simulations ------------------------------------------------------------------------------------------------

    async def simulate(self, request: Request) -> Response:
        from .jobs import Busy
        from .views import View

        body = await body_of(request, ("view",))
        view = await run_in_threadpool(View.checked, body.get("view"))
        view.check_simulation()
        try:
            job = self.jobs.submit(request.scope["session"], view)
        except Busy:
            return refusal(429, "a simulation is already running; cancel it or wait until it ends.")
        return answer({"job": job.id, "cells": job.cells}, 202)

    async def listed(self, request: Request) -> Response:
        found = self._jobs.listed(request.scope["session"]) if self._jobs is not None else []
        return answer({"jobs": [job.about() for job in found]})

    def _job(self, request: Request) -> Any:
        job = self.jobs.of(request.scope["session"], request.path_params["id"])
        if job is None:
            raise HTTPException(404, "there is no such simulation.")
        return job

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._job(request).stream(), media_type="text/event-stream")

    async def cancel(self, request: Request) -> Response:
        await body_of(request, ())
        self.jobs.cancel(self._job(request))
        return answer({"cancelled": True}, 202)

    # --- export -----------------------------------------------------------------------------------------------------

    async def reproduce(self, request: Request) -> Response:
        from .pictures import Shown
        from .reproduce import reproduce

        body = await body_of(request, ("view", "pins", "logarithmic"))
        if (study := self._study_view(body.get("view"))) is not None:
            return answer(await run_in_threadpool(self.stored.reproduce, study, self.address))
        shown = await run_in_threadpool(Shown.checked, body)
        return answer(await run_in_threadpool(reproduce, shown, self.address))

    def _study_view(self, view: Any) -> dict[str, Any] | None:
        """The view, if it belongs to the stored study."""
        from .views import Refused

        if not isinstance(view, dict) or view.get("study") is not True:
            return None
        if self._study is None:
            raise Refused("no stored study is open: start with `solvable explore RUN`.", "study")
        return view

    async def export(self, request: Request) -> Response:
        from .files import FORMATS
        from .views import Refused

        body = await body_of(request, ("view", "format", "job", "pins", "logarithmic"))
        to = body.get("format")
        if not isinstance(to, str) or to not in FORMATS:
            raise Refused(f"there is no export to {str(to)[:40]!r}: {', '.join(FORMATS)}.", "format")
        name, content = await run_in_threadpool(self._exported, request.scope["session"], body, to)
        headers = {"content-disposition": f'attachment; filename="{name}.{to}"'}
        return Response(content, media_type=FORMATS[to], headers=headers)

    def _exported(self, session: str, body: dict[str, Any], to: str) -> tuple[str, bytes]:
        from .files import export
        from .pictures import Shown
        from .reproduce import drawable
        from .theory import theory_of
        from .views import Refused

        if (study := self._study_view(body.get("view"))) is not None:
            names = self.stored.checked(study.get("observables") or [])
            if to == "html":
                from .snapshot import of_study

                return "study", of_study(self.stored, names)
            return "study", export(self.stored.study, names, to, **self.stored.steered(study))
        shown, job = Shown.checked(body), None
        view, picture = shown.view, to not in ("csv", "nc")
        if body.get("job") is not None:
            job = self.jobs.of(session, body["job"]) if isinstance(body["job"], str) else None
            if job is None:
                raise Refused("there is no such simulation.", "job")
            if not job.complete:
                raise Refused("this simulation has not ended; wait for it, or export only the theory.", "job")
        elif view.branches and not picture:
            raise Refused("branches are not exported as data; use a figure or the Python program instead.", "branches")
        elif (why := theory_of(view.model)) is not None and to != "html":
            raise Refused(why, "job")
        if to == "html":
            from .snapshot import page_of_view, picture_of

            study = job.study if job else self._curve(view) if theory_of(view.model) is None else None
            agreement = next((data for kind, data in job.events if kind == "agreement"), None) if job else None
            return view.model.id, page_of_view(shown, picture_of(shown, study, self._curve), study, agreement)
        names = drawable(view.model, list(view.observables), bool(view.axes))
        if not picture:
            return view.model.id, export(job.study if job else self._curve(view), names, to)
        if not names:
            raise Refused("there is no axis to draw along; put a control on the x axis.", "x")
        study = job.study if job else self._curve(view)
        return view.model.id, export(study, names, to, **shown.drawn_with(self._curve))

    def _curve(self, view: Any) -> Any:
        """The theory of a view as a study, from the cache or computed now."""
        from dataclasses import replace

        from .theory import as_study

        view = replace(view, branches=False)  # a figure computes them itself
        return as_study(view, self.theories.kept(view) or self.theories.submit(view, lambda: True).result())

    # --- a stored study ---------------------------------------------------------------------------------------------

    async def study(self, request: Request) -> Response:
        if self._study is None:
            return refusal(404, "no stored study is open: start with `solvable explore RUN`.")
        about = await run_in_threadpool(lambda: self.stored.about() | {"agreement": self.stored.agreement()})
        return answer(about)

    async def study_series(self, request: Request) -> Response:
        if self._study is None:
            return refusal(404, "no stored study is open: start with `solvable explore RUN`.")
        body = await body_of(request, ("x", "y", "observables", "at"))
        return answer(await run_in_threadpool(self.stored.series, body))


async def _left(request: Request) -> None:
    """Returns when the connection of a request is closed."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def plotly() -> tuple[Path, str] | None:
    """The path of the installed plotly script and its version, without importing plotly."""
    found = importlib.util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        return None
    from importlib.metadata import version

    file = Path(next(iter(found.submodule_search_locations))) / "package_data" / "plotly.min.js"
    return (file, version("plotly")) if file.is_file() else None


def make_app(explorer: Explorer) -> Any:
    """The application, behind its access checks."""
    get, post = ["GET"], ["POST"]
    table: list[tuple[str, Any, list[str]]] = [
        ("/", explorer.index, get),
        ("/static/{name}", explorer.static, get),
        ("/plotly.js", explorer.plotly_js, get),
        ("/thumbnails/{model}.svg", explorer.thumbnail, get),
        ("/api/models", explorer.models, get),
        ("/api/words", explorer.words, get),
        ("/api/stories", explorer.stories, get),
        ("/api/models/{id}", explorer.model, get),
        ("/api/models/{id}/claims", explorer.claims, get),
        ("/api/models/{id}/kept", explorer.kept, get),
        ("/figures/{name}.svg", explorer.figure, get),
        ("/api/status", explorer.status, get),
        ("/api/theory", explorer.theory, post),
        ("/api/simulate", explorer.simulate, post),
        ("/api/jobs", explorer.listed, get),
        ("/api/jobs/{id}/events", explorer.events, get),
        ("/api/jobs/{id}/cancel", explorer.cancel, post),
        ("/api/reproduce", explorer.reproduce, post),
        ("/api/export", explorer.export, post),
        ("/api/study", explorer.study, get),
        ("/api/study/series", explorer.study_series, post),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        early = asyncio.create_task(explorer.begin()) if explorer.warms else None
        yield
        if early is not None:
            early.cancel()
        await explorer.close()

    light = {"/", "/static/{name}", "/plotly.js", "/thumbnails/{model}.svg", "/api/models", "/api/words", "/api/status",
             "/api/models/{id}", "/api/theory"}  # fmt: skip
    routes = [Route(path, guarded(handler, light=path in light), methods=methods) for path, handler, methods in table]
    handlers: Any = {404: http_error, 405: http_error}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Gate(app, explorer.doorkeeper)
