"""The context of a trace goes with the calls that leave this process, and comes with those that reach it."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import httpx2
import pytest
from opentelemetry import trace

from tests.serving.test_mcp import ERAS, Era, InMemory
from tests.sources.openapi.pets import document, operation
from toolkit import ToolCall, ToolRegistry, tool
from toolkit.serving.mcp import mcp_server
from toolkit.sources.mcp import mcp_tools
from toolkit.sources.openapi import openapi_tools

pytestmark = pytest.mark.anyio

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


@contextmanager
def current_span() -> Generator[None]:
    """Make a span the current one, as an application with a tracer has it."""
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=False, trace_flags=sampled)
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


def find_trace_id() -> str:
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


@tool
async def waiting() -> str:
    """Tell the id of the trace."""
    return find_trace_id()


@tool
def blocking() -> str:
    """Tell the id of the trace, in a thread."""
    return find_trace_id()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["waiting", "blocking"])
async def test_a_tool_behind_our_client_and_our_server_is_in_the_trace_of_its_caller(name: str, era: Era) -> None:
    server = InMemory(mcp_server(ToolRegistry([waiting, blocking])), era=era)
    with anyio.fail_after(120):
        async with mcp_tools(server) as tools:
            registry = ToolRegistry(tools)
            with current_span():
                inside = await registry.execute(ToolCall("1", name, "{}"))
            outside = await registry.execute(ToolCall("2", name, "{}"))
    assert (inside.text, outside.text) == (TRACE_ID, "0" * 32)


async def called(source: dict[str, Any], redirect: str = "", **options: Any) -> list[tuple[str, str | None]]:
    """Call a document's operation within a span; return the host and the header of each request."""
    seen: list[tuple[str, str | None]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.host, request.headers.get("traceparent")))
        moves = redirect and len(seen) == 1
        return httpx2.Response(302, headers={"location": redirect}) if moves else httpx2.Response(200, text="ok")

    with anyio.fail_after(120):
        async with openapi_tools(source, transport=httpx2.MockTransport(answer), **options) as tools:
            with current_span():
                await ToolRegistry(tools).execute(ToolCall("1", tools[0].definition.name, "{}"))
            await ToolRegistry(tools).execute(ToolCall("2", tools[0].definition.name, "{}"))
    return seen


SOURCE = document({"/": {"get": operation()}}) | {"servers": [{"url": "https://api.mine.test"}]}


async def test_a_call_of_openapi_tells_its_trace_to_a_host_that_the_application_has_named() -> None:
    told = [("api.mine.test", TRACEPARENT), ("api.mine.test", None)]
    assert await called(SOURCE, allow_hosts=["api.mine.test"]) == told
    assert await called(SOURCE, base_url="https://api.mine.test") == told


async def test_a_host_that_only_the_document_names_is_told_of_no_trace() -> None:
    assert await called(SOURCE) == [("api.mine.test", None), ("api.mine.test", None)]


async def test_a_trace_does_not_follow_a_redirect_to_another_host() -> None:
    seen = await called(SOURCE, redirect="https://evil.test/", allow_hosts=["api.mine.test"])
    assert seen[:2] == [("api.mine.test", TRACEPARENT), ("evil.test", None)]


SCRIPT = """
import anyio, httpx2, sys
sys.modules["opentelemetry"] = None
from toolkit import ToolCall, ToolRegistry
from toolkit.sources.openapi import openapi_tools

async def main():
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, text="ok"))
    source = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/": {"get": {"operationId": "a"}}}}
    async with openapi_tools(source, base_url="https://api.mine.test", transport=transport) as tools:
        print((await ToolRegistry(tools).execute(ToolCall("1", "a", "{}"))).text.splitlines()[0])
    print([name for name in sys.modules if name.startswith("opentelemetry") and sys.modules[name]])

anyio.run(main)
"""


def test_nothing_of_opentelemetry_is_needed_or_imported() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["GET https://api.mine.test/ -> 200 OK", "[]"]
