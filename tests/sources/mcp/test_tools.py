"""The client, against a server of the SDK's in this process: what a model is offered and what becomes of its calls."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp.types as wire
import pytest

from tests.busy_machine import with_time_enough
from tests.sources.mcp.memory_server import MemoryServer, listed, text
from toolkit import ConfigurationError, ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool, tool_loop
from toolkit.chat import AudioBlock, FileBlock, ImageBlock, TextBlock
from toolkit.errors import McpError, UnknownToolNameError
from toolkit.events import ToolProgress
from toolkit.sources import ServerLimits
from toolkit.sources.mcp import MCPToolWrapper, mcp_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

SUM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
PIXEL = base64.b64encode(b"image").decode()


async def add(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
    return text(str(arguments["a"] + arguments["b"]))


async def hello(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
    return text("hello")


def adder(name: str = "add", **fields: Any) -> MemoryServer:
    return MemoryServer([(listed(name, input_schema=SUM, **fields), add)])


async def test_a_tool_of_a_server_is_called_with_checked_arguments() -> None:
    server = adder()
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            registry = ToolRegistry(tools)
            right = await registry.execute(ToolCall("1", "add", '{"a": 17, "b": 25}'))
            wrong = await registry.execute(ToolCall("2", "add", '{"a": 17}'))
    assert (right.text, right.is_error) == ("42", False)
    assert wrong.is_error
    assert "b" in wrong.text
    assert server.calls == ["add"]


async def test_all_pages_of_the_list_are_read() -> None:
    server = MemoryServer([(listed(f"tool_{number}"), hello) for number in range(25)], page_size=4)
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            assert [tool.definition.name for tool in tools] == [f"tool_{number}" for number in range(25)]


async def test_a_hundred_calls_run_at_once_on_one_session() -> None:
    everyone_is_here = anyio.Event()
    arrived: list[int] = []

    async def wait(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        arrived.append(arguments["a"])
        if len(arrived) == 100:
            everyone_is_here.set()
        await everyone_is_here.wait()
        return text(str(arguments["a"]))

    server = MemoryServer([(listed("wait", input_schema={"type": "object", "properties": {"a": {}}}), wait)])
    calls = [ToolCall(str(number), "wait", f'{{"a": {number}}}') for number in range(100)]
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            results = await ToolRegistry(tools).execute_all(calls)
    assert [result.text for result in results] == [str(number) for number in range(100)]
    assert server.opened == 1


@dataclass
class Content:
    name: str
    sent: list[wire.ContentBlock]
    expected: Any
    structured: Any = None
    is_error: bool = False
    details: Any = field(default=None)


CONTENTS = [
    Content("text", [wire.TextContent(type="text", text="a"), wire.TextContent(type="text", text="b")], "a\nb"),
    Content(
        "image",
        [wire.ImageContent(type="image", data=PIXEL, mime_type="image/webp")],
        (ImageBlock(b"image", media_type="image/webp"),),
    ),
    Content(
        "sound",
        [wire.AudioContent(type="audio", data=PIXEL, mime_type="audio/mp3")],
        (AudioBlock(b"image", media_type="audio/mp3"),),
    ),
    Content(
        "link",
        [wire.ResourceLink(type="resource_link", name="notes", uri="file:///notes.md", description="What was said")],
        "[notes](file:///notes.md): What was said",
    ),
    Content(
        "text resource",
        [
            wire.EmbeddedResource(
                type="resource", resource=wire.TextResourceContents(uri="file:///a.txt", text="inside")
            )
        ],
        "inside",
    ),
    Content(
        "file resource",
        [
            wire.EmbeddedResource(
                type="resource",
                resource=wire.BlobResourceContents(uri="file:///a.pdf", blob=PIXEL, mime_type="application/pdf"),
            )
        ],
        (FileBlock(b"image", name="a.pdf", media_type="application/pdf"),),
    ),
    Content("structured", [], '{"degrees": 21}', structured={"degrees": 21}, details={"degrees": 21}),
    Content("nothing", [], "(no output)"),
    Content("error", [wire.TextContent(type="text", text="no such city")], "no such city", is_error=True),
    Content("silent error", [], "The server reports that the tool failed, without a reason.", is_error=True),
    Content(
        "broken image",
        [wire.ImageContent(type="image", data="%%%", mime_type="image/png")],
        "(An image that is no base64.)",
    ),
    Content("secret", [wire.TextContent(type="text", text="the key is s3cret")], "the key is ***"),
    Content("structured secret", [], '{"keys": ["***"]}', structured={"keys": ["s3cret"]}, details={"keys": ["***"]}),
]


@pytest.mark.parametrize("case", CONTENTS, ids=lambda case: case.name)
async def test_what_a_server_answers_becomes_blocks(case: Content) -> None:
    async def answer(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        return wire.CallToolResult(content=case.sent, structured_content=case.structured, is_error=case.is_error)

    with anyio.fail_after(240):
        async with mcp_tools(MemoryServer([(listed("answer"), answer)])) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "answer", "{}"))
    assert result == ToolResult("1", case.expected, tool_name="answer", is_error=case.is_error, details=case.details)


async def test_an_answer_that_does_not_fit_its_schema_is_an_error_and_the_tool_is_said_to_have_run() -> None:
    async def answer(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        return wire.CallToolResult(content=[], structured_content={"degrees": "warm"})

    schema = {"type": "object", "properties": {"degrees": {"type": "integer"}}}
    with anyio.fail_after(240):
        async with mcp_tools(MemoryServer([(listed("answer", output_schema=schema), answer)])) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "answer", "{}"))
    assert result.is_error
    assert "the tool ran, but its answer does not fit its output schema" in result.text
    assert result.text.endswith("degrees: It must be of type integer")


async def test_progress_of_the_server_is_an_event_of_the_loop() -> None:
    async def work(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        token = ctx.meta["progress_token"]
        for step in (1, 2):
            note = wire.ProgressNotification(
                params=wire.ProgressNotificationParams(
                    progress_token=token, progress=step, total=2, message="s3cret going"
                )
            )
            await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        return text("done")

    events: list[object] = []
    config = ToolLoopConfig(on_event=events.append)
    provider = ScriptedProvider([ToolCall("1", "work", "{}"), "It is done."])
    with anyio.fail_after(240):
        async with mcp_tools(MemoryServer([(listed("work"), work)])) as tools:
            result = await tool_loop(provider, ToolRegistry(tools), "Work.", config=config)
    assert result.text == "It is done."
    told = [event.text for event in events if isinstance(event, ToolProgress)]
    assert told == ["1 of 2: *** going", "2 of 2: *** going"]


async def test_a_cancelled_loop_cancels_the_call_on_the_server() -> None:
    has_begun, was_cancelled = anyio.Event(), anyio.Event()

    async def hang(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        has_begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()
        raise AssertionError

    provider = ScriptedProvider([ToolCall("1", "hang", "{}")])
    with anyio.fail_after(240):
        async with mcp_tools(MemoryServer([(listed("hang"), hang), (listed("hello"), hello)])) as tools:
            registry = ToolRegistry(tools)

            async def run() -> None:
                await tool_loop(provider, registry, "Hang.")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await has_begun.wait()
                tasks.cancel_scope.cancel()
            await was_cancelled.wait()
            assert (await registry.execute(ToolCall("2", "hello", "{}"))).text == "hello"


async def test_a_call_that_takes_too_long_is_an_error_and_cancelled_on_the_server() -> None:
    has_begun, was_cancelled = anyio.Event(), anyio.Event()

    async def hang(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        has_begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()
        raise AssertionError

    async def run(seconds: float) -> ToolResult:
        with anyio.fail_after(240):
            async with mcp_tools(MemoryServer([(listed("hang"), hang)]), limits=ServerLimits(timeout=seconds)) as tools:
                result = await ToolRegistry(tools).execute(ToolCall("1", "hang", "{}"))
                if has_begun.is_set():
                    await was_cancelled.wait()
        assert f"timed out after {seconds:g} s" in result.text
        return result

    result = await with_time_enough(run, lambda _: has_begun.is_set())
    assert result.is_error


@pytest.mark.parametrize("is_modern", [True, False], ids=["subscribed", "notified"])
async def test_tools_that_change_on_the_server_change_in_the_registry_that_keeps_them(is_modern: bool) -> None:
    server = MemoryServer([(listed("old"), hello), (listed("both"), hello)], is_modern=is_modern)
    is_listed_again = anyio.Event()

    def see(tool: wire.Tool) -> bool:
        if tool.name == "new":
            is_listed_again.set()
        return True

    async def change(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        server.tools = [(listed("both"), hello), (listed("new"), hello)]
        await server.tell_of_change(ctx)
        return text("changed")

    server.tools.append((listed("change"), change))

    @tool
    def mine() -> None:
        """Stay."""

    with anyio.fail_after(240):
        async with mcp_tools(server, prefix="s", filter=see) as tools:
            registry = ToolRegistry([mine])
            tools.keep_registered(registry)
            assert set(registry.names) == {"mine", "s__old", "s__both", "s__change"}
            await registry.execute(ToolCall("1", "s__change", "{}"))
            await is_listed_again.wait()
            assert set(registry.names) == {"mine", "s__both", "s__new"}
            assert (await registry.execute(ToolCall("2", "s__new", "{}"))).text == "hello"


@dataclass
class Loss:
    name: str
    hints: wire.ToolAnnotations | None
    runs: int
    words: tuple[str, ...]
    is_error: bool


@pytest.mark.parametrize(
    "case",
    [
        Loss(
            "a tool that says nothing", None, 1, ("may have taken effect", "was not repeated", "connected again"), True
        ),
        Loss("an idempotent tool", wire.ToolAnnotations(idempotent_hint=True), 2, ("second",), False),
    ],
    ids=lambda case: case.name,
)
async def test_a_server_that_dies_in_mid_call_is_connected_again(case: Loss) -> None:
    server = MemoryServer([])

    async def die(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        if server.opened == 1:
            server.tools.append((listed("born"), hello))
            server.kill()
            await anyio.sleep_forever()
        return text("second")

    server.tools = [(listed("die", annotations=case.hints), die)]
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            registry: ToolRegistry[object] = ToolRegistry()
            tools.keep_registered(registry)
            result = await registry.execute(ToolCall("1", "die", "{}"))
            assert result.is_error is case.is_error
            for words in case.words:
                assert words in result.text
            assert server.calls == ["die"] * case.runs
            assert server.opened == 2
            assert (await registry.execute(ToolCall("2", "born", "{}"))).text == "hello"


async def test_a_server_that_died_between_calls_is_connected_again_before_the_next() -> None:
    server = adder()
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            registry = ToolRegistry(tools)
            server.kill()
            await anyio.wait_all_tasks_blocked()
            assert (await registry.execute(ToolCall("1", "add", '{"a": 1, "b": 2}'))).text == "3"
    assert server.opened == 2
    assert server.calls == ["add"]


async def test_sessions_are_closed_in_any_order_and_by_any_task() -> None:
    one, other = adder("one"), adder("other")
    opened_one, opened_other = mcp_tools(one), mcp_tools(other)
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened_one.__aenter__)
            tasks.start_soon(opened_other.__aenter__)
        registry = ToolRegistry([*opened_one, *opened_other])
        assert (await registry.execute(ToolCall("1", "one", '{"a": 1, "b": 2}'))).text == "3"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened_one.__aexit__, None, None, None)
        assert (await registry.execute(ToolCall("2", "other", '{"a": 1, "b": 2}'))).text == "3"
        await opened_other.__aexit__(None, None, None)
        closed = await registry.execute(ToolCall("3", "one", '{"a": 1, "b": 2}'))
    assert closed.is_error
    assert "closed" in closed.text


async def test_an_exception_in_the_block_leaves_as_itself() -> None:
    with anyio.fail_after(240), pytest.raises(KeyError, match="mine"):
        async with mcp_tools(adder()):
            raise KeyError("mine")


def has_an_e(tool: wire.Tool) -> bool:
    return "e" in tool.name


@dataclass
class Choice:
    name: str
    settings: dict[str, Any]
    expected: list[str]


@pytest.mark.parametrize(
    "case",
    [
        Choice("all", {}, ["one", "two", "three"]),
        Choice("prefix", {"prefix": "s"}, ["s__one", "s__two", "s__three"]),
        Choice("allowed", {"allowed": ["two", "one"]}, ["one", "two"]),
        Choice("blocked wins", {"allowed": ["two", "one"], "blocked": ["two"]}, ["one"]),
        Choice("filter", {"filter": has_an_e}, ["one", "three"]),
    ],
    ids=lambda case: case.name,
)
async def test_tools_are_chosen_and_named(case: Choice) -> None:
    server = MemoryServer([(listed(name), hello) for name in ("one", "two", "three")])
    with anyio.fail_after(240):
        async with mcp_tools(server, **case.settings) as tools:
            assert [tool.definition.name for tool in tools] == case.expected
            result = await ToolRegistry(tools).execute(ToolCall("1", case.expected[0], "{}"))
    assert result.text == "hello"
    assert server.calls == ["one"]


async def test_a_filter_for_what_is_not_there_is_refused() -> None:
    with anyio.fail_after(240), pytest.raises(UnknownToolNameError, match="did you mean 'add'"):
        async with mcp_tools(adder(), blocked=["ad"]):
            raise AssertionError


async def test_names_that_collide_are_refused_with_what_to_do() -> None:
    with anyio.fail_after(240):
        with pytest.raises(McpError, match="several tools named 'same'"):
            async with mcp_tools(MemoryServer([(listed("same"), hello), (listed("same"), hello)])):
                raise AssertionError
        async with mcp_tools(adder()) as tools:
            registry = ToolRegistry(tools)
            with pytest.raises(McpError, match="prefix="):
                tools.keep_registered(registry)


async def test_names_that_no_provider_takes_are_mapped_and_the_right_ones_are_sent() -> None:
    server = MemoryServer([(listed("files/read.me"), hello)])
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            assert [tool.definition.name for tool in tools] == ["files_read_me"]
            await ToolRegistry(tools).execute(ToolCall("1", "files_read_me", "{}"))
    assert server.calls == ["files/read.me"]


async def test_a_tool_whose_schema_is_broken_is_left_out_and_said_to_be() -> None:
    broken = listed("broken", input_schema={"type": "object", "properties": {"a": {"type": "nonsense"}}})
    with anyio.fail_after(240):
        async with mcp_tools(MemoryServer([(broken, hello), (listed("right"), hello)])) as tools:
            assert [tool.definition.name for tool in tools] == ["right"]
            assert "nonsense" in tools.refused["broken"]


@dataclass
class Hints:
    name: str
    hints: wire.ToolAnnotations | None
    tags: set[str]
    is_idempotent: bool = False


@pytest.mark.parametrize(
    "case",
    [
        Hints("none", None, set()),
        Hints("read", wire.ToolAnnotations(read_only_hint=True), {"read"}, is_idempotent=True),
        Hints("destructive", wire.ToolAnnotations(destructive_hint=True), {"destructive"}),
        Hints(
            "a read destroys nothing", wire.ToolAnnotations(read_only_hint=True, destructive_hint=True), {"read"}, True
        ),
        Hints(
            "idempotent and open",
            wire.ToolAnnotations(idempotent_hint=True, open_world_hint=True),
            {"idempotent", "open_world"},
            is_idempotent=True,
        ),
    ],
    ids=lambda case: case.name,
)
async def test_annotations_become_tags_that_an_approver_sees(case: Hints) -> None:
    seen: list[frozenset[str]] = []

    def approve(request: Any) -> bool:
        seen.append(request.tags)
        return False

    server = adder(annotations=case.hints)
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            call = ToolCall("1", "add", '{"a": 1, "b": 2}')
            result = await ToolRegistry(tools).execute(call, approve=approve)
            assert tools[0].options.idempotent is case.is_idempotent
    assert result.is_error
    assert seen == [case.tags]
    assert server.calls == []


async def test_resources_are_read() -> None:
    server = adder()
    server.resources = {"memo://one": "first"}
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            assert [str(resource.uri) for resource in await tools.resources()] == ["memo://one"]
            assert await tools.read_resource("memo://one") == (TextBlock("first"),)


async def test_a_tool_on_demand_is_connected_for_each_call() -> None:
    server = adder()
    with anyio.fail_after(240):
        registry = ToolRegistry(await MCPToolWrapper.all_of(server, prefix="s"))
        for _ in range(2):
            assert (await registry.execute(ToolCall("1", "s__add", '{"a": 1, "b": 2}'))).text == "3"
    assert server.opened == 3


async def test_a_default_of_the_server_is_never_sent_for_it() -> None:
    received: list[dict[str, Any]] = []

    async def take(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        received.append(arguments)
        return text("done")

    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "private": {"type": "boolean", "default": False},
            "labels": {"type": "array", "items": {"type": "object", "properties": {"color": {"default": "red"}}}},
        },
    }
    server = MemoryServer([(listed("create", input_schema=schema), take)])
    sent: dict[str, Any] = {"title": "x", "labels": [{}]}
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            await ToolRegistry(tools).execute(ToolCall("1", "create", json.dumps(sent)))
            assert tools[0].definition.parameters["properties"]["private"]["default"] is False
        await ToolRegistry(await MCPToolWrapper.all_of(server)).execute(ToolCall("2", "create", json.dumps(sent)))
    assert received == [sent, sent]


class SilentServer(MemoryServer):
    """A server that can't be connected and says nothing."""

    def open(self, words: Any) -> Any:
        return self._silence()

    @asynccontextmanager
    async def _silence(self) -> AsyncGenerator[None]:
        await anyio.sleep_forever()
        yield


async def test_a_connection_that_is_not_waited_for_any_longer_is_given_up_at_once() -> None:
    with anyio.fail_after(240):
        with anyio.move_on_after(0.05) as scope:
            async with mcp_tools(SilentServer([])):
                raise AssertionError
    assert scope.cancelled_caught


async def test_tools_are_opened_once_and_used_inside_of_their_block() -> None:
    tools = mcp_tools(adder())
    with anyio.fail_after(240):
        with pytest.raises(McpError, match="use them inside of `async with`"):
            await tools.resources()
        async with tools:
            with pytest.raises(ConfigurationError, match="opened once"):
                await tools.__aenter__()


class UnreachableServer(MemoryServer):
    """A server that can't be connected for a while."""

    failing: list[Exception]

    def open(self, words: Any) -> Any:
        self.opened += 1
        if self.failing:
            raise self.failing.pop(0)
        return self._open()


@dataclass
class Trouble:
    name: str
    errors: list[Exception]
    opened: int
    text: str


@pytest.mark.parametrize(
    "case",
    [
        Trouble("reached at the third try", [ConnectionRefusedError("no"), TimeoutError()], 4, "3"),
        Trouble("never reached", [ConnectionRefusedError("no")] * 3, 3, "failed after 3 attempts"),
        Trouble("no such command", [FileNotFoundError(2, "no", "a-server")], 1, "'a-server' was not found"),
    ],
    ids=lambda case: case.name,
)
async def test_a_tool_on_demand_is_tried_again_where_that_may_help(case: Trouble) -> None:
    server = UnreachableServer(adder().tools)
    server.failing = list(case.errors)
    wrapper = MCPToolWrapper(server, server.tools[0][0], first_pause=0.001)
    with anyio.fail_after(240):
        result = await ToolRegistry([wrapper]).execute(ToolCall("1", "add", '{"a": 1, "b": 2}'))
    assert case.text in result.text
    # One that is reached is counted by the fixture once more.
    assert server.opened == case.opened
