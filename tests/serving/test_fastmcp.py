"""Registries in a FastMCP server, beside what it offers itself, and our server as FastMCP's client sees it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import date
from enum import Enum
from typing import Any, Literal

import anyio
import httpx2
import mcp.types as wire
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import NotFoundError
from fastmcp.server.auth import StaticTokenVerifier
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms import Namespace
from mcp.client.subscriptions import listen
from pydantic import BaseModel, Field
from starlette.applications import Starlette

from tests.serving.test_users import ORDERS, TOKENS, find_user, made, shop
from tests.sources.mcp.threaded import serving_in_thread
from toolkit import Permissions, ToolRegistry, deny, tool
from toolkit.serving.fastmcp import RegistryProvider
from toolkit.serving.mcp import mcp_app

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # what FastMCP runs on


@tool(requires_approval=True)
def wipe(path: str) -> str:
    """Wipe a file."""
    return f"wiped {path}"


@tool(tags={"read"})
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: One.
        b: Another.
    """
    return a + b


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def reach(app: Starlette, token: str) -> StreamableHttpTransport:
    def make_http_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
        **_: Any,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), headers=headers, timeout=timeout or httpx2.Timeout(30), auth=auth
        )

    return StreamableHttpTransport("http://127.0.0.1:8000/mcp", auth=token, httpx_client_factory=make_http_client)


@asynccontextmanager
async def connected(server: FastMCP[Any], **options: Any) -> AsyncGenerator[Client[Any]]:
    with anyio.fail_after(240):
        async with Client(server, **options) as client:
            yield client


async def test_two_registries_stand_under_prefixes_beside_a_resource_and_a_prompt() -> None:
    seen: list[str] = []

    class Watch(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            seen.append(context.message.name)
            return await call_next(context)

    server: FastMCP[Any] = FastMCP("shop", middleware=[Watch()])
    for prefix, registry in (("math", ToolRegistry([add])), ("files", ToolRegistry([wipe]))):
        provider = RegistryProvider(registry)
        provider.add_transform(Namespace(prefix))
        server.add_provider(provider)

    @server.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    async with connected(server) as client:
        tools = {each.name: each for each in await client.list_tools()}
        added = await client.call_tool("math_add", {"a": 17, "b": 25})
        opening = await client.read_resource("shop://hours")
        prompt = await client.get_prompt("greet", {"name": "Ada"})
    assert list(tools) == ["math_add", "files_wipe"]
    assert tools["math_add"].annotations is not None
    assert tools["math_add"].annotations.read_only_hint is True
    assert "description" in tools["math_add"].input_schema["properties"]["a"]
    assert text_of(added) == "42"
    assert seen == ["math_add"]
    assert getattr(opening[0], "text", None) == "9 to 5"
    assert "Greet Ada." in str(prompt)


async def test_a_call_passes_the_registrys_validation_and_permissions() -> None:
    registry = ToolRegistry([add, wipe], permissions=Permissions([deny("wipe")]))
    async with connected(FastMCP("x", providers=[RegistryProvider(registry)])) as client:
        wrong = await client.call_tool("add", {"a": "seventeen", "b": 25}, raise_on_error=False)
        denied = await client.call_tool("wipe", {"path": "a"}, raise_on_error=False)
        repaired = await client.call_tool("add", {"a": "17", "b": 25})
    assert wrong.is_error
    assert "a" in text_of(wrong)
    assert denied.is_error
    assert text_of(repaired) == "42"


@pytest.mark.parametrize(("answer", "text"), [(True, "wiped a"), (False, "did not approve")])
async def test_an_approval_is_asked_for_through_fastmcp(*, answer: bool, text: str) -> None:
    asked: list[str] = []

    async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return {"approve": answer}

    server: FastMCP[Any] = FastMCP("x", providers=[RegistryProvider(ToolRegistry([wipe]))])
    async with connected(server, elicitation_handler=elicit) as client:
        result = await client.call_tool("wipe", {"path": "a"}, raise_on_error=False)
    assert text in text_of(result)
    assert asked == ['Tool \'wipe\' needs approval. Run it with {"path":"a"}?']


async def test_reports_become_progress() -> None:
    @tool
    async def work(steps: int) -> AsyncGenerator[str]:
        """Work."""
        for step in range(steps):
            yield f"step {step + 1}"

    seen: list[str | None] = []

    async def see(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with connected(FastMCP("x", providers=[RegistryProvider(ToolRegistry([work]))])) as client:
        await client.call_tool("work", {"steps": 2}, progress_handler=see)
    assert seen == ["step 1", "step 2"]


async def test_users_of_a_fastmcp_login_have_their_own_context() -> None:
    tokens: dict[str, dict[str, Any]] = {t: {"client_id": name, "scopes": ["orders"]} for t, name in TOKENS.items()}
    registry = made()
    provider = RegistryProvider(registry, context_for=find_user, tools_for=lambda user: registry.only(user.scopes))
    server: FastMCP[Any] = FastMCP("shop", auth=StaticTokenVerifier(tokens), providers=[provider])
    app = server.http_app(path="/mcp")

    seen: dict[str, Any] = {}
    with anyio.fail_after(240):
        async with app.router.lifespan_context(app):
            for token, name in TOKENS.items():
                async with Client(reach(app, token)) as client:
                    assert [each.name for each in await client.list_tools()] == ["orders"]
                    seen[name] = text_of(await client.call_tool("orders"))
    assert seen == {name: str(things).replace("'", '"').replace(", ", ",") for name, things in ORDERS.items()}


async def test_outside_of_a_request_the_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server: FastMCP[Any] = FastMCP("x", providers=[RegistryProvider(ToolRegistry([add]))])
    with pytest.raises(NotFoundError):
        await server.call_tool("add", {"a": 1, "b": 2})
    logging.getLogger("fastmcp").addHandler(caplog.handler)
    try:
        assert await server.list_tools() == []
    finally:
        logging.getLogger("fastmcp").removeHandler(caplog.handler)
    assert "in the request of a client; in a test, use fastmcp.Client" in caplog.text


async def test_fastmcps_client_sees_each_users_tools_on_our_server() -> None:
    app = shop(TOKENS)

    with anyio.fail_after(240):
        async with app.router.lifespan_context(app), Client(reach(app, "s3cret-of-ada")) as client:
            result = await client.call_tool("orders")
    assert result.structured_content == {"result": ["a lamp"]}


async def test_clients_are_notified_of_a_change_of_the_registry() -> None:
    registry: ToolRegistry[object] = ToolRegistry([add])
    server = FastMCP("ours", providers=[RegistryProvider(registry)])
    changed = anyio.Event()

    async def note(message: Any) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            changed.set()

    async with connected(server, message_handler=note, mode="legacy") as client:
        assert [each.name for each in await client.list_tools()] == ["add"]
        registry.register(wipe)
        await changed.wait()
        assert [each.name for each in await client.list_tools()] == ["add", "wipe"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_fastmcps_client_is_notified_by_our_server(mode: Literal["legacy", "auto"]) -> None:
    registry: ToolRegistry[object] = ToolRegistry([add])
    changed = anyio.Event()

    async def note(message: Any) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            changed.set()

    with serving_in_thread(lambda _: mcp_app(registry)) as port, anyio.fail_after(240):
        async with Client(f"http://127.0.0.1:{port}/mcp", message_handler=note, mode=mode) as client:
            assert [each.name for each in await client.list_tools()] == ["add"]
            if mode == "auto":  # this revision notifies those who subscribe, which FastMCP's client does not
                async with listen(client.session, tools_list_changed=True) as changes:
                    registry.register(wipe)
                    await anext(aiter(changes))
            while mode == "legacy" and not changed.is_set():  # what comes before its stream is open is lost
                registry.register_or_replace(wipe)
                with anyio.move_on_after(1):
                    await changed.wait()
            assert [each.name for each in await client.list_tools()] == ["add", "wipe"]


class Size(Enum):
    SMALL = "s"


class Person(BaseModel):
    name: str = Field(alias="fullName")
    born: date | None = None


OUTPUTS: list[tuple[Any, Any, Any]] = [
    (int, 5, 5),
    (float, 1.5, 1.5),
    (float, float("nan"), None),
    (bool, True, True),
    (str, "5", "5"),
    (str, '"Yes", she said', '"Yes", she said'),
    (str | None, None, None),
    (int | None, None, None),
    (int | None, 3, 3),
    (date, date(2026, 1, 31), date(2026, 1, 31)),
    (Size, Size.SMALL, "s"),
    (Literal["1", "a"], "1", "1"),
    (list[int], [1, 2], [1, 2]),
    (set[int], {2, 1}, [1, 2]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (list[Person] | None, [Person(fullName="Ada")], [{"fullName": "Ada", "born": None}]),
    (int, "five", None),
]


def make_giver(number: int, hint: Any, value: Any) -> Any:
    def give() -> Any:
        """Give it."""
        return value

    give.__name__, give.__annotations__["return"] = f"give_{number}", hint
    return tool(give)


def read_people(data: list[Any]) -> list[Any]:
    return [each if isinstance(each, int) else vars(each) for each in data]


async def test_fastmcps_client_reads_the_plain_values_of_tools_on_our_server_and_in_its_own() -> None:
    registry = ToolRegistry[object]([make_giver(number, *each[:2]) for number, each in enumerate(OUTPUTS)])
    app = mcp_app(registry)
    with anyio.fail_after(240):
        async with app.router.lifespan_context(app):
            for target in (reach(app, ""), FastMCP("shop", providers=[RegistryProvider(registry)])):
                async with Client(target) as client:
                    for number, (_, given, read) in enumerate(OUTPUTS):
                        result = await client.call_tool(f"give_{number}", raise_on_error=False)
                        assert result.is_error is (read is None and given is not None)
                        if result.is_error:
                            assert "output does not fit its output schema" in str(result.content)
                        data: Any = result.data
                        assert (read_people(data) if isinstance(read, list) else data) == read


@pytest.mark.parametrize("hint", [str | int, object, Any, None, bytes, Literal[1, "a"]], ids=str)
async def test_an_output_whose_text_does_not_tell_its_value_has_no_schema(hint: Any) -> None:
    def give() -> Any:
        """Give it."""

    give.__annotations__["return"] = hint
    assert tool(give).definition.output_schema is None
