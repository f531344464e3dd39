"""The page of a run log: its requests, the token that they need, and the server, which listens on loopback alone.

The page itself holds nothing of a run, and anyone may have it. It exchanges the code in its link's fragment, which no
request carries, for a token of its own, keeps that for its tab and its origin, and sends it in a header with each
request. A cookie would reach any server on this machine, since cookies have no ports.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import cache, lru_cache, partial
from importlib.resources import files
from json import dumps
from typing import Any, NamedTuple, TypeAlias, cast

import anyio
from anyio import to_thread
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkit.asgi_server import serve_app
from toolkit.errors import ConfigurationError
from toolkit.json_text import sign_json
from toolkit.run_log import (
    LogEntry,
    RunLog,
    RunStep,
    Section,
    Timeline,
    answer_question,
    describe_step,
    export_run,
)
from toolkit.runtime.backend import cancellation_mark
from toolkit.schema.nodes import is_object

_LOOPBACK = "127.0.0.1"
_ENTRANCE = "/page"
_LAST_PORT = 65_535
_PAGE_SECONDS = 0.25
_KEEP_ALIVE_SECONDS = 15.0
_MOST_LISTED = 500
_MOST_OPEN = 20
_LARGEST_BODY = 64 * 1024
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_FILE_ENDINGS = {"lines": "jsonl", "markdown": "md", "test": "py"}
_StepRow: TypeAlias = list[Any]
"""A step as the page has it: id, parent, kind, title, status, start, end, note, tokens, cost, question."""
_CHUNK = 5_000
_LONGEST_TITLE = 200
_NUMBER = re.compile("[0-9]{1,9}")
_OWN_SITES = ("same-origin", "none", "")


async def serve_viewer(log: RunLog, port: int = 0, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve the page of a run log on this machine until cancelled.

    ::

        anyio.run(partial(serve_viewer, RunLog("runs/"), on_ready=print))

    Several may serve the same log. It runs on uvicorn, and so on asyncio; on trio, give `viewer_app` to a server that
    runs there.

    Args:
        log: The log to show; runs that are written meanwhile are followed.
        port: The port to listen on at 127.0.0.1; 0 takes a free one.
        on_ready: Called with the link when it can be opened, and with a new one when that was opened: each opens one
            page, which sees all runs, and can answer their questions.

    Raises:
        ConfigurationError: The port is in use or can't be had, or this runs on trio.
    """
    if cancellation_mark() is None:
        raise ConfigurationError("uvicorn runs on asyncio: on trio, give viewer_app(...) to a server such as hypercorn")

    def open_app(pages: Pages) -> tuple[Starlette, Callable[[], None]]:
        viewer = _Viewer(log, pages)
        return _make_app(viewer, pages), viewer.end_streams

    await serve_pages(open_app, port, on_ready=on_ready)


async def serve_pages(
    open_app: Callable[[Pages], tuple[Starlette, Callable[[], None] | None]],
    port: int,
    *,
    on_ready: Callable[[str], None] | None,
) -> None:
    """Serve an application on loopback to the pages that its links let in.

    Args:
        open_app: Returns the application behind `gate_app`, and how its streams are ended.
        port: The port; 0 takes a free one.
        on_ready: Called with each link.

    Raises:
        ConfigurationError: The port can't be had.
    """
    if not 0 <= port <= _LAST_PORT:
        raise ConfigurationError(f"a port is a number from 0 to {_LAST_PORT}, and {port} is none")
    reached: list[int] = []
    codes = _OneTimeCodes(lambda code: on_ready and on_ready(f"http://{_LOOPBACK}:{reached[0]}/#code={code}"))

    def report_link(port: int) -> None:
        reached.append(port)
        codes.make_next()

    app, end_streams = open_app(Pages(secrets.token_bytes(32), codes.take))
    try:
        await serve_app(app, _LOOPBACK, port, report_link, end_streams)
    except OSError as error:
        raise ConfigurationError(
            f"port {port} of {_LOOPBACK} can't be had ({error}): another one may run there; give another port, or 0 "
            "for one that is free"
        ) from error


def viewer_app(log: RunLog, token: str) -> Starlette:
    """Return the page of a run log as an ASGI application.

    ::

        app = viewer_app(RunLog("runs/"), token=os.environ["VIEWER_TOKEN"])

    Args:
        log: The log to show.
        token: A secret of the application. ``/#code=TOKEN`` opens the page, as often as it is opened.
    """

    def is_token(code: str) -> bool:
        return hmac.compare_digest(code.encode("utf-8", "replace"), token.encode())

    pages = Pages(token.encode(), is_token)
    return _make_app(_Viewer(log, pages), pages)


def _make_app(viewer: _Viewer, pages: Pages) -> Starlette:
    return gate_app(
        pages,
        _read_page,
        Route("/runs", viewer.list_runs),
        Route("/runs/{run_id}/live", viewer.follow_run),
        Route("/runs/{run_id}/steps/{number}", viewer.show_step),
        Route("/runs/{run_id}/search", viewer.search_run),
        Route("/runs/{run_id}/export/{form}", viewer.export_run),
        Route("/runs/{run_id}/answers", viewer.take_answer, methods=["POST"]),
    )


def gate_app(pages: Pages, read_page: Callable[[], str], *routes: Route) -> Starlette:
    """Return an application of a page and of its requests, which only pages that were let in may send."""

    async def show_page(request: Request) -> Response:
        """Return the page; its script and style are in it, under a nonce."""
        del request
        nonce = secrets.token_urlsafe(18)
        html = read_page().replace("{{nonce}}", nonce)
        return HTMLResponse(html, headers={**_SAFE, "Content-Security-Policy": _POLICY.format(nonce=nonce)})

    async def let_in(request: Request) -> Response:
        """Return a token for the page that has the code of a link."""
        code = (await _read_body(request)).get("code")
        token = pages.let_in(code) if isinstance(code, str) else None
        if token is None:
            return _as_json({"problem": "This link was opened already, or is of another time: open the last one."}, 403)
        return _as_json({"token": token})

    app = Starlette(
        routes=[Route("/", show_page), Route(_ENTRANCE, let_in, methods=["POST"]), *routes],
        exception_handlers={ConfigurationError: _report_problem},
    )
    app.add_middleware(cast("Any", _PageGate), pages=pages)
    return app


class _OneTimeCodes:
    """The codes of links, of which each is taken once.

    Args:
        report: Called with each new code.
    """

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._code = ""

    def make_next(self) -> None:
        """Make a new code in the place of the last one."""
        self._code = secrets.token_urlsafe(24)
        self._report(self._code)

    def take(self, code: str) -> bool:
        """Return whether this is the code of the last link; it is none from then on."""
        if not self._code or not hmac.compare_digest(code.encode("utf-8", "replace"), self._code.encode()):
            return False
        self.make_next()
        return True


class Pages:
    """The tokens of open pages, and of the questions that each was shown.

    No list of them is held: what was made with the key is known by it, in each process that has the key.

    Args:
        key: The key.
        takes_code: Returns whether a code lets a page in.
    """

    def __init__(self, key: bytes, takes_code: Callable[[str], bool]) -> None:
        self._key = key
        self._takes_code = takes_code

    def let_in(self, code: str) -> str | None:
        """Return a token for a new page; None where the code is wrong, or was taken."""
        if not self._takes_code(code):
            return None
        page = secrets.token_urlsafe(12)
        return f"{page}.{self._sign_answer('page', page)}"

    def is_open(self, token: str) -> bool:
        """Return whether this is the token of a page."""
        page, _, seal = token.partition(".")
        return hmac.compare_digest(seal.encode("utf-8", "replace"), self._sign_answer("page", page).encode())

    def mark_shown(self, token: str, run_id: str, step: int, sections: list[Section]) -> str:
        """Return the mark of the question that a page was shown: its answer must have it."""
        return self._sign_answer(
            "shown", token, run_id, step, [each.text for each in sections if each.kind == "question"]
        )

    def _sign_answer(self, *parts: object) -> str:
        return sign_json(["toolkit viewer", *parts], self._key)


class _Viewer:
    """Answers the requests of the page."""

    def __init__(self, log: RunLog, pages: Pages) -> None:
        self._log = log
        self._pages = pages
        self._open_run = lru_cache(_MOST_OPEN)(partial(_LiveRun, log))
        self._is_ending = False

    def end_streams(self) -> None:
        """End the streams of all pages that follow a run."""
        self._is_ending = True

    async def list_runs(self, request: Request) -> Response:
        """Return the runs in short."""
        del request
        runs = await to_thread.run_sync(self._log.runs, _MOST_LISTED)
        return _as_json({"runs": [asdict(run) for run in runs], "path": self._log.place, "most": _MOST_LISTED})

    async def follow_run(self, request: Request) -> Response:
        """Return the steps of a run as they are added."""
        run_id = await self._find_run(request)
        known = request.headers.get("last-event-id", "")
        events = self._stream_changes(run_id, known)
        return StreamingResponse(events, media_type="text/event-stream", headers=_SAFE)

    async def show_step(self, request: Request) -> Response:
        """Return the details of a step."""
        run_id, number = await self._find_run(request), read_number(request.path_params["number"])
        run = self._open_run(run_id)
        await to_thread.run_sync(run.read_all)
        sections = await to_thread.run_sync(run.describe, number)
        shown = self._pages.mark_shown(_read_token(request.headers), run_id, number, sections)
        return _as_json({"sections": [asdict(section) for section in sections], "shown": shown})

    async def search_run(self, request: Request) -> Response:
        """Return the steps that contain a text."""
        run, text = self._open_run(await self._find_run(request)), request.query_params.get("text", "")
        found = await to_thread.run_sync(run.find_steps, text) if text else []
        return _as_json({"steps": found})

    async def export_run(self, request: Request) -> Response:
        """Return a run as lines, Markdown or a test."""
        run_id, form = await self._find_run(request), request.path_params["form"]
        text = await to_thread.run_sync(lambda: "".join(export_run(self._log, run_id, form)))
        name = f'attachment; filename="run-{run_id[:12]}.{_FILE_ENDINGS[form]}"'
        return PlainTextResponse(text, headers={**_SAFE, "Content-Disposition": name})

    async def take_answer(self, request: Request) -> Response:
        """Store the answer to a question of a run, from the page that was shown it as it is."""
        run_id = await self._find_run(request)
        given = await _read_body(request)
        question, answer, reason = given.get("question"), given.get("answer"), given.get("reason") or ""
        if not (isinstance(question, str) and isinstance(reason, str) and answer in ("approve", "deny")):
            raise ConfigurationError("an answer has a question, 'approve' or 'deny', and perhaps a reason")
        number, shown = given.get("step"), given.get("shown")
        if not (isinstance(number, int) and isinstance(shown, str)):
            raise ConfigurationError("an answer names the step that was shown, and the mark that came with it")
        run = self._open_run(run_id)
        await to_thread.run_sync(run.read_all)
        sections = await to_thread.run_sync(run.describe, number)
        right = self._pages.mark_shown(_read_token(request.headers), run_id, number, sections)
        is_shown = hmac.compare_digest(shown.encode("utf-8", "replace"), right.encode())
        if not is_shown or run.find_question(number) != question:
            raise ConfigurationError(
                "this page was not shown the question as it is now: open its step and answer there"
            )
        await to_thread.run_sync(partial(answer_question, self._log, run_id, question, answer, reason))
        return _as_json({"answer": answer})

    async def _find_run(self, request: Request) -> str:
        return await to_thread.run_sync(self._log.find, request.path_params["run_id"])

    async def _stream_changes(self, run_id: str, known: str) -> AsyncIterator[str]:
        """Yield the changes of a run, as server-sent events, until it has ended."""
        run = self._open_run(run_id)
        mark, _, count = known.partition("-")
        sent = max(0, read_number(count)) if mark == run.mark else 0
        yield _as_event("begin", {"is_new": sent == 0})
        shown: dict[str, Any] | None = None
        quiet = 0.0
        while not self._is_ending:
            changes = await to_thread.run_sync(run.read_on, sent)
            if changes.rows:
                yield _as_event("steps", {"steps": changes.rows}, event_id=f"{run.mark}-{changes.upto}")
                sent, quiet = changes.upto, 0.0
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
        found: object = from_json(body)
    except ValueError as error:
        raise ConfigurationError(f"an answer is JSON: {error}") from error
    return found if is_object(found) else {}


async def _report_problem(request: Request, error: Exception) -> Response:
    del request
    return _as_json({"problem": str(error)}, 400)


def read_number(text: str) -> int:
    """Return a number as this server writes them; -1 where the text is none."""
    return int(text) if _NUMBER.fullmatch(text) else -1


def _as_json(content: object, status: int = 200) -> Response:
    return JSONResponse(content, status, headers=_SAFE)


def _as_event(kind: str, content: object, event_id: str = "") -> str:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {dumps(content, separators=(',', ':'))}\n\n"


class _Changes(NamedTuple):
    """The steps of a run that have changed; the number of changes that a page has with them; whether more wait."""

    rows: list[_StepRow]
    upto: int
    has_more: bool


class _LiveRun:
    """One run, read up to its last entry.

    Attributes:
        mark: Distinguishes this object's change numbers from those of another.
    """

    def __init__(self, log: RunLog, run_id: str) -> None:
        self._log = log
        self._run_id = run_id
        self._timeline = Timeline()
        self._lock = threading.Lock()
        self.mark: str = os.urandom(4).hex()

    def read_on(self, known: int) -> _Changes:
        """Read the next entries, some thousands at most, and return the steps that have changed.

        Args:
            known: The number of changes that the page has.
        """
        with self._lock:
            entries = self._log.read_chunk(self._run_id, self._timeline.next_position, _CHUNK)
            for entry in entries:
                self._timeline.add(entry)
            changes, steps = self._timeline.changes, self._timeline.steps
            # Not all at once: a page that comes to a run that was read already gets it in parts, too.
            upto = min(len(changes), known + _CHUNK)
            rows = [_to_row(steps[number]) for number in sorted(set(changes[known:upto]))]
            return _Changes(rows=rows, upto=upto, has_more=bool(entries) or upto < len(changes))

    def read_all(self) -> None:
        """Read up to the last entry."""
        while self.read_on(len(self._timeline.changes)).has_more:
            pass

    def describe(self, number: int) -> list[Section]:
        """Return the details of a step; none if there is no such step."""
        with self._lock:
            known = 0 <= number < len(self._timeline.steps)
            positions = list(self._timeline.steps[number].positions) if known else []
        return describe_step(self._read_at(positions))

    def find_question(self, number: int) -> str | None:
        """Return the question that a step asks; None where it asks none."""
        with self._lock:
            return self._timeline.steps[number].question if 0 <= number < len(self._timeline.steps) else None

    def find_steps(self, text: str) -> list[int]:
        """Return the steps whose entries contain a text."""
        positions = self._log.find_lines(self._run_id, text)
        with self._lock:
            found = {self._timeline.step_at[each] for each in positions if each in self._timeline.step_at}
        return sorted(found)

    def _read_at(self, positions: list[int]) -> list[LogEntry]:
        return [entry for position in positions for entry in self._log.read_chunk(self._run_id, position, 1)]


def _to_row(step: RunStep) -> _StepRow:
    title = step.title if len(step.title) <= _LONGEST_TITLE else f"{step.title[:_LONGEST_TITLE]}..."
    facts = [step.id, step.parent, step.kind, title, step.status, round(step.start, 4)]
    end = None if step.end is None else round(step.end, 4)
    return [*facts, end, step.note, step.tokens, step.cost, step.question]


class _PageGate:
    """Lets pass only requests of pages that were let in, by the token in their header, and what lets a page in.

    A page of another site, or of another server on this machine, that the browser has open must reach nothing: the host
    has to be this server under a name of the loopback, and the origin, if there is one, this very page.

    Args:
        app: The application behind it.
        pages: The pages that were let in.
    """

    def __init__(self, app: ASGIApp, pages: Pages) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        answer = self._find_refusal(scope) if scope["type"] == "http" else None
        await (self._app if answer is None else answer)(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> Response | None:
        """Return the refusal of a request; None if it is allowed."""
        headers = Headers(scope=scope)
        port = scope["server"][1]
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return PlainTextResponse("This server answers for 127.0.0.1 and localhost alone.", 421)
        if origins and origins != [f"http://{hosts[0].lower()}"]:
            return PlainTextResponse("Other pages may not ask this server.", 403)
        if scope["path"] == "/":  # without anything of a run; a link to it may stand on any page
            return None
        if headers.get("sec-fetch-site", "") not in _OWN_SITES:
            return PlainTextResponse("Other pages may not ask this server.", 403)
        if scope["path"] != _ENTRANCE and not self._pages.is_open(_read_token(headers)):
            return _as_json({"problem": "Open the link that the command printed last: it has a code for a page."}, 403)
        return None


def _read_token(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""
