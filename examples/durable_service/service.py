"""A small service of two processes: a worker moves runs, a web process starts them, shows them and takes decisions.

    toolkit worker service:support --database sqlite:///service.db
    python service.py sqlite:///service.db 8000

Each of the two may be killed and started again at any time. The model is a function here, so that the example needs no
key; `provider_for("openai:gpt-5")` takes its place.
"""

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from toolkit import Approve, Deny, ToolCall, ToolContext, ToolRegistry, ToolResult, tool_with_ctx
from toolkit.chat import ChatRequest
from toolkit.durable import (
    DecisionRefusedError,
    DurableRun,
    DurableRunNotFoundError,
    DurableRuns,
    RunPlace,
    durable_loop,
)
from toolkit.events import dump_event
from toolkit.policies import PendingApproval
from toolkit.testing import FunctionProvider


@dataclass(frozen=True)
class Shop:
    """What the tools work on."""

    customer: str


@tool_with_ctx(tags={"read"})
async def find_order(shop: ToolContext[Shop], number: int) -> str:
    """Find an order of the customer."""
    await anyio.sleep(0.2)
    return f"Order {number} of {shop.state.customer}: a lamp, 20 EUR, it came broken."


@tool_with_ctx(requires_approval=True)
async def refund(shop: ToolContext[Shop], number: int) -> str:
    """Give the money of an order back."""
    # A bank takes `shop.idempotency_key`, which is the same in each process that takes the run up.
    return f"Refunded order {number} to {shop.state.customer}."


def answer(request: ChatRequest) -> str | ToolCall:
    """Look at the order, give the money back, and tell of it."""
    results = [message.text for message in request.messages if isinstance(message, ToolResult)]
    if not results:
        return ToolCall("c1", "find_order", '{"number": 17}')
    if len(results) == 1:
        return ToolCall("c2", "refund", '{"number": 17}')
    return f"I looked at it. {results[-1]}"


def make_context(run: RunPlace) -> Shop:
    """Return the context of a run, from what the web process gave with it."""
    return Shop(customer=run.metadata["customer"])


support = durable_loop(
    "support",
    provider=FunctionProvider(answer),
    registry=ToolRegistry([find_order, refund]),
    ctx=make_context,
)


class Pages:
    """The pages over the runs of a database."""

    def __init__(self, url: str) -> None:
        self._runs = DurableRuns(url)

    @asynccontextmanager
    async def open(self, app: Starlette) -> AsyncGenerator[None]:  # noqa: ARG002 - as Starlette calls it
        """Have the database open while the server runs."""
        async with self._runs:
            yield

    async def list_runs(self, request: Request) -> Response:  # noqa: ARG002 - as Starlette calls it
        """Show the newest runs."""
        found = await self._runs.list(loop=support, limit=50)
        rows = "".join(f'<li><a href="/runs/{each.run_id}">{each.run_id}</a> {each.state}</li>' for each in found)
        form = '<form method="post" action="/runs"><input name="ticket"><input name="text"><button>Ask</button></form>'
        return HTMLResponse(f"<h1>Runs</h1><ul>{rows}</ul>{form}")

    async def start_run(self, request: Request) -> Response:
        """Start a run; a form that is sent twice starts one, since the id is that of the ticket."""
        form = await request.form()
        ticket, text = str(form["ticket"]), str(form["text"])
        run = await self._runs.start(support, text, run_id=ticket, metadata={"customer": "Ada"})
        return RedirectResponse(f"/runs/{run.id}", status_code=303)

    async def show_run(self, request: Request) -> Response:
        """Show how a run stands, and what it asks."""
        run = await self._find_run(request)
        status = await run.status()
        questions = "".join(write_question(run.id, each) for each in status.pending if not each.decided)
        answer = f"<p>{escape((await run.result()).text)}</p>" if status.state == "done" else ""
        return HTMLResponse(f"<h1>{escape(run.id)}: {status.state}</h1>{questions}{answer}")

    async def decide(self, request: Request) -> Response:
        """Decide on a call; the second who does so is told."""
        run, form = await self._find_run(request), await request.form()
        decision = Approve() if form["answer"] == "approve" else Deny("Not this one.")
        try:
            await run.decide(str(form["call"]), decision, binding=str(form["binding"]))
        except DecisionRefusedError as error:
            return HTMLResponse(f"<p>{escape(str(error))}</p>", status_code=409)
        return RedirectResponse(f"/runs/{run.id}", status_code=303)

    async def stream_events(self, request: Request) -> Response:
        """Stream what a run tells; a browser that connects again says what it has seen."""
        run = await self._find_run(request)
        after = int(request.headers.get("last-event-id", 0))

        async def write_events() -> AsyncIterator[str]:
            async for told in run.events(after=after, until="end"):
                yield f"id: {told.seq}\ndata: {json.dumps(dump_event(told.event))}\n\n"

        return StreamingResponse(write_events(), media_type="text/event-stream")

    async def _find_run(self, request: Request) -> DurableRun:
        return await self._runs.get(request.path_params["run_id"])


def write_question(run_id: str, pending: PendingApproval) -> str:
    """Return the form for a decision."""
    return (
        f"<p>{escape(pending.tool_name)} {escape(pending.preview)}: {escape(pending.reason)}</p>"
        f'<form method="post" action="/runs/{run_id}/decisions">'
        f'<input type="hidden" name="call" value="{escape(pending.call_id)}">'
        f'<input type="hidden" name="binding" value="{pending.binding}">'
        '<button name="answer" value="approve">Approve</button>'
        '<button name="answer" value="deny">Deny</button></form>'
    )


async def tell_missing(request: Request, error: Exception) -> Response:  # noqa: ARG001 - as Starlette calls it
    """Say that there is no such run."""
    return HTMLResponse(f"<p>{escape(str(error))}</p>", status_code=404)


def make_app(url: str) -> Starlette:
    """Return the application."""
    pages = Pages(url)
    routes = [
        Route("/", pages.list_runs),
        Route("/runs", pages.start_run, methods=["POST"]),
        Route("/runs/{run_id}", pages.show_run),
        Route("/runs/{run_id}/decisions", pages.decide, methods=["POST"]),
        Route("/runs/{run_id}/events", pages.stream_events),
    ]
    return Starlette(routes=routes, lifespan=pages.open, exception_handlers={DurableRunNotFoundError: tell_missing})


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
