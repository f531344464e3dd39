"""The page of a run log: what it serves, and the server, which listens on the loopback alone."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from importlib.resources import files
from json import JSONDecodeError, dumps, loads
from typing import Any, cast

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from toolkit.errors import ConfigurationError
from toolkit.run_log import RunLog, answer_question, export_lines, export_markdown, export_test
from toolkit.runtime.backend import cancellation_mark
from toolkit.ui.access import TokenGate
from toolkit.ui.live_runs import LiveRuns, dump_section
from toolkit.web_server import serve_app

__all__ = ["serve_viewer", "viewer_app"]

_LOOPBACK = "127.0.0.1"
_LAST_PORT = 65_535
_PAGE_SECONDS = 0.25
_KEEP_ALIVE_SECONDS = 15.0
_MOST_LISTED = 500
_LARGEST_BODY = 64 * 1024
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


async def serve_viewer(log: RunLog, port: int = 0, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve the page of a run log on this machine until cancelled.

    ::

        anyio.run(partial(serve_viewer, RunLog("runs/"), on_ready=print))

    Several may serve the same log. It runs on uvicorn, and so on asyncio; on trio, give `viewer_app` to a server that
    runs there.

    Args:
        log: The log to show; runs that are written meanwhile are followed.
        port: Where to listen on 127.0.0.1; 0 takes one that is free.
        on_ready: Called with the link once it can be opened. The link has a token: who has it sees all runs, and can
            answer what they ask.

    Raises:
        ConfigurationError: The port is in use or can't be had, or this runs on trio.
    """
    if cancellation_mark() is None:
        raise ConfigurationError("uvicorn runs on asyncio: on trio, give viewer_app(...) to a server such as hypercorn")
    if not 0 <= port <= _LAST_PORT:
        raise ConfigurationError(f"a port is a number from 0 to {_LAST_PORT}, and {port} is none")
    token = secrets.token_urlsafe(24)

    def tell_link(port: int) -> None:
        if on_ready is not None:
            on_ready(f"http://{_LOOPBACK}:{port}/?token={token}")

    viewer = _Viewer(log)
    try:
        await serve_app(_make_app(viewer, token), _LOOPBACK, port, tell_link, viewer.end_streams)
    except OSError as error:
        raise ConfigurationError(
            f"port {port} of {_LOOPBACK} can't be had ({error}): another viewer may run there; give another port, or 0 "
            "for one that is free"
        ) from error


def viewer_app(log: RunLog, token: str) -> Starlette:
    """Return the page of a run log as an ASGI application.

    ::

        app = viewer_app(RunLog("runs/"), token=os.environ["VIEWER_TOKEN"])

    Args:
        log: The log to show.
        token: The value that a first request must have as its query ``token``; a cookie has it from then on.
    """
    return _make_app(_Viewer(log), token)


def _make_app(viewer: _Viewer, token: str) -> Starlette:
    app = Starlette(
        routes=[
            Route("/", viewer.show_page),
            Route("/runs", viewer.list_runs),
            Route("/runs/{run_id}/live", viewer.follow_run),
            Route("/runs/{run_id}/steps/{number:int}", viewer.show_step),
            Route("/runs/{run_id}/search", viewer.search_run),
            Route("/runs/{run_id}/export/{form}", viewer.export_run),
            Route("/runs/{run_id}/answers", viewer.take_answer, methods=["POST"]),
        ],
        exception_handlers={ConfigurationError: _tell_problem},
    )
    app.add_middleware(cast("Any", TokenGate), token=token)
    return app


class _Viewer:
    """Answers the requests of the page."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._live = LiveRuns(log)
        self._is_ending = False

    def end_streams(self) -> None:
        """Let each page that follows a run go."""
        self._is_ending = True

    async def show_page(self, request: Request) -> Response:
        """Return the page; its script and style are in it, under a word that nobody can guess."""
        del request
        nonce = secrets.token_urlsafe(18)
        html = _read_page().replace("{{nonce}}", nonce)
        return HTMLResponse(html, headers={**_SAFE, "Content-Security-Policy": _POLICY.format(nonce=nonce)})

    async def list_runs(self, request: Request) -> Response:
        """Return the runs in short."""
        del request
        runs = await to_thread.run_sync(self._log.runs, _MOST_LISTED)
        return _as_json({"runs": [asdict(run) for run in runs], "path": self._log.place, "most": _MOST_LISTED})

    async def follow_run(self, request: Request) -> Response:
        """Return the steps of a run as they come."""
        run_id = await self._find_run(request)
        known = request.headers.get("last-event-id", "")
        events = self._tell_changes(run_id, known)
        return StreamingResponse(events, media_type="text/event-stream", headers=_SAFE)

    async def show_step(self, request: Request) -> Response:
        """Return what a step was about."""
        run = self._live.get(await self._find_run(request))
        sections = await to_thread.run_sync(run.describe, request.path_params["number"])
        return _as_json({"sections": [dump_section(section) for section in sections]})

    async def search_run(self, request: Request) -> Response:
        """Return the steps in which a text stands."""
        run, text = self._live.get(await self._find_run(request)), request.query_params.get("text", "")
        found = await to_thread.run_sync(run.find_steps, text) if text else []
        return _as_json({"steps": found})

    async def export_run(self, request: Request) -> Response:
        """Return a run as lines, Markdown or a test."""
        run_id, form = await self._find_run(request), request.path_params["form"]
        export = _EXPORTS.get(form)
        if export is None:
            raise ConfigurationError(f"a run can be exported as {', '.join(_EXPORTS)}, not as {form!r}")
        name = f'attachment; filename="run-{run_id[:12]}.{_FILE_ENDINGS[form]}"'
        text = await to_thread.run_sync(export, self._log, run_id)
        return PlainTextResponse(text, headers={**_SAFE, "Content-Disposition": name})

    async def take_answer(self, request: Request) -> Response:
        """Take the answer to a question of a run."""
        run_id = await self._find_run(request)
        given = await _read_body(request)
        question, answer, reason = given.get("question"), given.get("answer"), given.get("reason") or ""
        if not (isinstance(question, str) and isinstance(reason, str) and answer in ("approve", "deny")):
            raise ConfigurationError("an answer has a question, 'approve' or 'deny', and perhaps a reason")
        await to_thread.run_sync(partial(answer_question, self._log, run_id, question, answer, reason))
        return _as_json({"answer": answer})

    async def _find_run(self, request: Request) -> str:
        return await to_thread.run_sync(self._log.find, request.path_params["run_id"])

    async def _tell_changes(self, run_id: str, known: str) -> AsyncIterator[str]:
        """Yield what changes in a run, as server-sent events, until it has ended."""
        run = self._live.get(run_id)
        mark, _, count = known.partition("-")
        told = int(count) if mark == run.mark and count.isdigit() else 0
        yield _as_event("begin", {"is_new": told == 0})
        shown: dict[str, Any] | None = None
        quiet = 0.0
        while not self._is_ending:
            changes = await to_thread.run_sync(run.read_on, told)
            if changes.rows:
                yield _as_event("steps", {"steps": changes.rows}, event_id=f"{run.mark}-{changes.count}")
                told, quiet = changes.count, 0.0
            if changes.has_more:
                continue
            summary = asdict(await to_thread.run_sync(self._log.summary, run_id))
            if summary != shown:
                shown = summary
                yield _as_event("summary", summary)
            if summary["state"] != "running":
                yield _as_event("end", {})
                return
            await anyio.sleep(_PAGE_SECONDS)
            quiet += _PAGE_SECONDS
            if quiet >= _KEEP_ALIVE_SECONDS:
                yield ": nothing new\n\n"
                quiet = 0.0


def _join_lines(log: RunLog, run_id: str) -> str:
    lines: Iterator[str] = export_lines(log, run_id)
    return "".join(lines)


_EXPORTS: dict[str, Callable[[RunLog, str], str]] = {
    "lines": _join_lines,
    "markdown": export_markdown,
    "test": export_test,
}
_FILE_ENDINGS = {"lines": "jsonl", "markdown": "md", "test": "py"}


@cache
def _read_page() -> str:
    folder = files("toolkit.ui") / "static"
    html, style, script = ((folder / name).read_text("utf-8") for name in ("page.html", "page.css", "page.js"))
    return html.replace("{{style}}", style).replace("{{script}}", script)


async def _read_body(request: Request) -> dict[str, Any]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise ConfigurationError("an answer is short")
    try:
        found: object = loads(body)
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"an answer is JSON: {error}") from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


async def _tell_problem(request: Request, error: Exception) -> Response:
    del request
    return _as_json({"problem": str(error)}, 400)


def _as_json(content: object, status: int = 200) -> Response:
    return JSONResponse(content, status, headers=_SAFE)


def _as_event(kind: str, content: object, event_id: str = "") -> str:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {dumps(content, separators=(',', ':'))}\n\n"
