"""Calls of a served registry that become tasks, for clients of both revisions that know tasks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import httpx2
import mcp.types as wire
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim, advertise
from mcp.client.streamable_http import streamable_http_client
from mcp.types import jsonrpc

from tests.serving.test_mcp import ERAS, Era, InMemory
from tests.serving.test_resumed_streams import Raw
from tests.serving.test_users import reached
from tests.sources.mcp.threaded import serving_in_thread
from toolkit import ToolCall, ToolContext, ToolRegistry, tool, tool_with_ctx
from toolkit.agents import sub_agent_tool
from toolkit.errors import McpError
from toolkit.serving.mcp import McpRequest, mcp_app, mcp_server
from toolkit.sources import ServerLimits
from toolkit.sources.mcp import Elicitation, McpNotFoundError, mcp_tools
from toolkit.sources.mcp.session import watch_transport
from toolkit.sources.mcp.tasks import Task, TaskFollower, call_as_task, find_task, read_task_page
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/tasks"
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.fixture(autouse=True)
def polled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.serving.mcp.tasks._POLL_MILLISECONDS", 10)


class Desk:
    """Tools that wait for the test."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.cancelled = anyio.Event(), anyio.Event(), anyio.Event()

    def registry(self) -> ToolRegistry[McpRequest]:
        @tool_with_ctx
        async def wait(context: ToolContext[McpRequest]) -> str:
            """Wait."""
            context.report_progress("waiting")
            self.begun.set()
            try:
                await self.may_end.wait()
            except anyio.get_cancelled_exc_class():
                self.cancelled.set()
                raise
            return "waited"

        @tool_with_ctx
        async def ask(request: McpRequest) -> str:
            """Ask the user."""
            return str(await request.elicit("Whose?", FORM))

        @tool(requires_approval=True)
        async def wipe() -> str:
            """Wipe."""
            await self.may_end.wait()
            return "wiped"

        @tool
        async def fail() -> str:
            """Fail."""
            await self.may_end.wait()
            raise ValueError("a secret")

        return ToolRegistry[McpRequest]([wait, ask, wipe, fail])

    def served(self, era: Era, *, task_after: float | None = 0) -> InMemory:
        server = mcp_server(self.registry(), context_for=lambda request: request, task_after=task_after)
        return InMemory(server, era)


async def answer(context: ClientRequestContext, params: wire.ElicitRequestParams) -> wire.ElicitResult:
    content: dict[str, Any] = {"name": "Ada"} if params.message == "Whose?" else {"approve": True}
    return wire.ElicitResult(action="accept", content=content)


@asynccontextmanager
async def connected(server: InMemory) -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        transport = watch_transport(server.open(), lambda: None)
        async with Client(transport, extensions=[advertise(EXTENSION)], elicitation_callback=answer) as client:
            yield client


async def begin(client: Client, name: str, era: Era) -> Task:
    result = await (client.call_tool(name, {}) if era == "modern" else call_as_task(client, name, {}))
    task = find_task(result)
    assert isinstance(task, Task)
    return task


def text_of(result: wire.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_long_call_is_a_task_whose_reports_are_its_state(era: Era) -> None:
    desk, reports = Desk(), list[str]()
    async with connected(desk.served(era)) as client:
        task = await begin(client, "wait", era)
        await desk.begun.wait()

        def end(text: str) -> None:
            reports.append(text)
            desk.may_end.set()

        result = await TaskFollower(task, end).follow(client)
    assert (text_of(result), result.is_error) == ("waited", False)
    assert reports == ["waiting"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_asks_its_user_in_the_middle_of_the_call(era: Era) -> None:
    desk = Desk()
    async with connected(desk.served(era, task_after=60)) as client:
        task = await begin(client, "ask", era)
        result = await TaskFollower(task, lambda text: None).follow(client)
    assert text_of(result) == "{'name': 'Ada'}"


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_needs_approval_asks_before_it_becomes_a_task_or_in_it(era: Era) -> None:
    desk = Desk()
    async with connected(desk.served(era)) as client:
        task = await begin(client, "wipe", era)
        desk.may_end.set()
        result = await TaskFollower(task, lambda text: None).follow(client)
    assert text_of(result) == "wiped"


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_of_a_tool_that_fails_ends_with_its_error(era: Era) -> None:
    desk = Desk()
    async with connected(desk.served(era)) as client:
        task = await begin(client, "fail", era)
        desk.may_end.set()
        result = await TaskFollower(task, lambda text: None).follow(client)
    assert result.is_error
    assert text_of(result).startswith("ValueError: the tool failed.")


@pytest.mark.parametrize("knows_tasks", [True, False])
async def test_a_sub_agent_asks_in_its_run_which_is_never_repeated(*, knows_tasks: bool) -> None:
    notes: list[str] = []

    @tool
    def note(text: str) -> str:
        """Write a note."""
        notes.append(text)
        return "noted"

    @tool(requires_approval=True)
    def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    calls = [ToolCall("1", "note", '{"text": "a"}'), ToolCall("2", "wipe", '{"path": "a"}')]
    clerk = ScriptedProvider([*calls, "Done."] * 2)
    server = mcp_server(ToolRegistry([sub_agent_tool("clerk", "Tidies.", clerk, ToolRegistry([note, wipe]))]))
    extensions = [advertise(EXTENSION)] if knows_tasks else []
    with anyio.fail_after(240):
        transport = watch_transport(InMemory(server).open(), lambda: None)
        async with Client(transport, extensions=extensions, elicitation_callback=answer) as client:
            result = await client.call_tool("clerk", {"task": "Tidy."})
            task = find_task(result)
            if isinstance(task, Task):
                await TaskFollower(task, lambda text: None).follow(client)
    assert isinstance(task, Task) == knows_tasks
    assert notes == ["a"]
    results = [each.text for each in clerk.requests[2].messages if each.role == "tool"]
    refused = "Tool 'wipe' needs approval. This client can't ask its user, so it was not run."
    assert results[1] == ("wiped a" if knows_tasks else refused)


async def test_a_call_that_our_client_gives_up_is_cancelled_on_the_server() -> None:
    desk = Desk()
    with anyio.fail_after(240):
        async with mcp_tools(desk.served("modern"), limits=ServerLimits(timeout=1)) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "wait", "{}"))
            await desk.cancelled.wait()
    assert "timed out" in result.text


async def test_our_client_answers_the_questions_of_a_task() -> None:
    def ask_user(question: Elicitation) -> dict[str, str]:
        return {"name": "Bob"}

    with anyio.fail_after(240):
        async with mcp_tools(Desk().served("modern", task_after=60), elicitation=ask_user) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "ask", "{}"))
    assert result.text == "{'name': 'Bob'}"


@pytest.mark.parametrize("era", ERAS)
async def test_the_end_of_the_server_cancels_its_tasks(era: Era) -> None:
    desk = Desk()
    async with connected(desk.served(era)) as client:
        await begin(client, "wait", era)
        await desk.begun.wait()
    with anyio.fail_after(60):
        await desk.cancelled.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_cancels_a_task(era: Era) -> None:
    desk = Desk()
    async with connected(desk.served(era)) as client:
        task = await begin(client, "wait", era)
        await desk.begun.wait()
        await ask_about(client, "cancel", task.task_id)
        await desk.cancelled.wait()
        result = await TaskFollower(task, lambda text: None).follow(client)
    assert text_of(result) == "The server has cancelled the task of this call."


@pytest.mark.parametrize("era", ERAS)
async def test_a_user_has_a_bounded_number_of_tasks(era: Era, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.serving.mcp.tasks._MOST_TASKS", 2)
    desk = Desk()
    async with connected(desk.served(era, task_after=0.1)) as client:
        first, _ = [await begin(client, "wait", era) for _ in range(2)]
        with pytest.raises(MCPError, match="More than 2 tasks of this user are running"):
            await begin(client, "wait", era)
        await desk.cancelled.wait()
        desk.cancelled = anyio.Event()
        await ask_about(client, "cancel", first.task_id)
        await desk.cancelled.wait()
        await begin(client, "wait", era)
        with pytest.raises(MCPError, match="There is no such task"):  # an ended one makes room
            await ask_about(client, "get", first.task_id)


def serve_builder(desk: Desk, era: Era, *, task_after: float | None = 60) -> InMemory:
    @tool_with_ctx(tags={"task_only"})
    async def build(request: McpRequest) -> str:
        """Build."""
        answer = await request.elicit("Whose?", FORM) if request.client.startswith("toolkit") else None
        desk.begun.set()
        await desk.may_end.wait()
        return f"built {answer}"

    registry = ToolRegistry[McpRequest]([build])
    return InMemory(mcp_server(registry, context_for=lambda request: request, task_after=task_after), era)


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_runs_only_as_a_task_is_refused_to_a_client_that_does_not_ask_for_one(era: Era) -> None:
    desk = Desk()
    desk.may_end.set()
    with anyio.fail_after(240):
        async with Client(serve_builder(desk, era).open()) as client:
            (listed,) = (await client.list_tools()).tools
            with pytest.raises(MCPError, match="The tool build runs only as a task") as refused:
                await client.call_tool("build", {})
        async with connected(serve_builder(desk, era)) as client:
            task = await begin(client, "build", era)  # though it is short
            result = await TaskFollower(task, lambda text: None).follow(client)
        async with Client(serve_builder(desk, era, task_after=None).open()) as client:
            plain = await client.call_tool("build", {})
    required = wire.ToolExecution(task_support="required")
    assert listed.execution == (None if era == "modern" else required)  # later revisions don't say it
    assert refused.value.error.code == (
        jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY if era == "modern" else jsonrpc.METHOD_NOT_FOUND
    )
    assert text_of(result) == text_of(plain) == "built None"


@pytest.mark.parametrize("era", ERAS)
async def test_our_client_calls_a_tool_that_runs_only_as_a_task(era: Era) -> None:
    desk = Desk()
    desk.may_end.set()
    with anyio.fail_after(240):
        server = serve_builder(desk, era)
        async with mcp_tools(server, elicitation=lambda question: {"name": "Ada"}) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "build", "{}"))
    assert result.text == "built {'name': 'Ada'}"


async def test_our_client_lists_tasks_page_by_page_and_follows_one_of_another_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolkit.serving.mcp.tasks._PAGE", 2)
    desk = Desk()
    with anyio.fail_after(240):
        async with mcp_tools(desk.served("legacy")) as tools:

            async def begin_tasks(client: Client) -> list[str]:
                return [(await begin(client, "wait", "legacy")).task_id for _ in range(5)]

            ids = await tools._session.request("begin tasks", begin_tasks)  # pyright: ignore[reportPrivateUsage]
            await desk.begun.wait()
            listed = await tools.tasks()
            desk.may_end.set()
            done = await tools.follow_task(ids[3])
            with pytest.raises(McpError, match="could not follow the task 'guessed': There is no such task"):
                await tools.follow_task("guessed")
            after = {each.task_id: each.status for each in await tools.tasks()}
    assert [each.task_id for each in listed] == ids
    assert {each.status for each in listed} == {"working"}
    assert done.text == "waited"
    assert after[ids[3]] == "completed"


async def test_a_list_of_tasks_has_no_page_of_a_forged_cursor_and_none_in_later_revisions() -> None:
    async with connected(Desk().served("legacy")) as client:
        for cursor in ("-1", "first", "²"):
            with pytest.raises(MCPError, match="The cursor is none that this server gave"):
                await read_task_page(client, cursor)
        assert await read_task_page(client, "99") == ([], None)
    with anyio.fail_after(240):
        async with mcp_tools(Desk().served("modern")) as tools:
            with pytest.raises(McpNotFoundError, match="could not list the tasks"):
                await tools.tasks()


@pytest.mark.parametrize("auth", [{"token of ada": "ada", "token of bob": "bob"}, None], ids=["users", "sessions"])
async def test_a_list_of_tasks_has_only_those_of_the_user_or_else_of_the_session(auth: Any) -> None:
    desk = Desk()
    app = mcp_app(desk.registry(), context_for=lambda request: request, auth=auth)
    with anyio.fail_after(240):
        async with reached(app) as client:
            ada, bob = (Raw(client, token) for token in ("token of ada", "token of bob"))
            for each in (ada, bob):
                await each.greet()
            await ada.ask(1, "tools/call", name="wait", arguments={}, task={})
            await desk.begun.wait()
            texts = [await each.ask(2, "tasks/list") for each in (ada, bob)]
            desk.may_end.set()
    counts = [len(json.loads(text[text.index("{") :])["result"]["tasks"]) for text in texts]
    assert counts == [1, 0]


class _Params(wire.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _Answer(Task):
    task_id: str = ""
    status: wire.TaskStatus = "working"


async def ask_about(client: Client, method: str, task_id: str, **more: Any) -> Task:
    request = wire.Request[_Params, str](method=f"tasks/{method}", params=_Params(task_id=task_id, **more))
    return await client.session.send_request(request, _Answer)


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_that_there_is_not_is_an_error_that_says_so(era: Era) -> None:
    async with connected(Desk().served(era)) as client:
        for method in ("get", "cancel", "update" if era == "modern" else "result"):
            with pytest.raises(MCPError, match="There is no such task"):
                await ask_about(client, method, "guessed")


async def test_an_answer_that_nobody_asked_for_is_ignored_and_the_first_one_counts() -> None:
    async with connected(Desk().served("modern", task_after=60)) as client:
        task = await begin(client, "ask", "modern")
        state = await ask_about(client, "get", task.task_id)
        assert state.input_requests is not None  # for a question alone the call became a task before its time
        (key,) = state.input_requests
        for name in ("nobody", key, key):
            content = {"action": "accept", "content": {"name": f"answer to {name}"}}
            await ask_about(client, "update", task.task_id, input_responses={name: content})
        result = await TaskFollower(task, lambda text: None).follow(client)
    assert text_of(result) == str({"name": f"answer to {key}"})


async def test_a_client_that_knows_no_tasks_gets_none_and_may_not_ask_about_any() -> None:
    desk = Desk()
    desk.may_end.set()
    with anyio.fail_after(240):
        async with Client(desk.served("modern").open()) as client:
            assert text_of(await client.call_tool("wait", {})) == "waited"
            with pytest.raises(MCPError, match="did not declare") as caught:
                await ask_about(client, "get", "guessed")
    assert caught.value.error.code == jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY


@pytest.mark.parametrize("era", ERAS)
async def test_tasks_can_be_switched_off(era: Era) -> None:
    desk = Desk()
    desk.may_end.set()
    async with connected(desk.served(era, task_after=None)) as client:
        assert text_of(await client.call_tool("wait", {})) == "waited"
        assert client.server_capabilities.tasks is None
        assert EXTENSION not in (client.server_capabilities.extensions or {})
        assert [tool.execution for tool in (await client.list_tools()).tools] == [None] * 4
        with pytest.raises(MCPError, match="not found"):
            await ask_about(client, "get", "guessed")


class Claims(ClientExtension):
    """The SDK's own seam for tasks, which only collects them."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.created: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=_ClaimedTask, resolve=self._collect)]

    async def _collect(self, claimed: _ClaimedTask, context: ClaimContext) -> wire.CallToolResult:
        self.created.append(claimed.task_id)
        return wire.CallToolResult(content=[], is_error=True)  # else the SDK wants structured content


class _ClaimedTask(wire.Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: wire.TaskStatus


@pytest.mark.real
async def test_a_task_is_out_of_reach_for_other_users() -> None:
    tokens = {"token of ada": "ada", "token of bob": "bob"}

    def make_app(_: int) -> Any:
        return mcp_app(Desk().registry(), context_for=lambda request: request, auth=tokens, task_after=0)

    with serving_in_thread(make_app) as port, anyio.fail_after(240):

        @asynccontextmanager
        async def connect(user: str, claims: Claims) -> AsyncGenerator[Client]:
            headers = {"authorization": f"Bearer token of {user}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as own:
                transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=own)
                async with Client(transport, extensions=[claims], elicitation_callback=answer) as client:
                    yield client

        claims = Claims()
        async with connect("ada", claims) as ada, connect("bob", Claims()) as bob:
            await ada.call_tool("ask", {})
            (task_id,) = claims.created
            assert (await ask_about(ada, "get", task_id)).task_id == task_id
            for method in ("get", "update", "cancel"):
                with pytest.raises(MCPError, match="There is no such task"):
                    await ask_about(bob, method, task_id)
        async with connect("ada", Claims()) as again:  # another connection, the same user
            state = await ask_about(again, "get", task_id)
            assert state.input_requests is not None
            replies = {key: {"action": "accept", "content": {"name": "Ada"}} for key in state.input_requests}
            await ask_about(again, "update", task_id, input_responses=replies)
            result = await TaskFollower(state, lambda text: None).follow(again)
    assert text_of(result) == "{'name': 'Ada'}"
