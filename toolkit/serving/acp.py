"""A registry and a loop as the agent that an editor talks to, over the Agent Client Protocol.

The official SDK speaks the protocol. A session is a conversation, whose events become the editor's updates; calls that
need approval ask the editor's user, and each session has a tool with which the model shows its plan.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field, replace
from importlib.metadata import version
from inspect import isawaitable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from toolkit import chat, events
from toolkit.builtin.commands import reads_only
from toolkit.calls.approval import ApprovalRequest, Approve, Deny
from toolkit.calls.context import ToolContext
from toolkit.calls.registration import Ctx
from toolkit.conversation_stores import MemoryStore
from toolkit.conversations import Conversations, TurnStream
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolkitError, naming_extra
from toolkit.logs import get_logger
from toolkit.loop.config import DEFAULT_CONFIG, ToolLoopConfig
from toolkit.loop.outcome import Cancelled, MaxIterations, ToolLoopResult
from toolkit.runtime.backend import cancellation_mark
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.mcp import http, mcp_tools, sse, stdio
from toolkit.tools.decorators import tool_from_function, tool_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry

with naming_extra("acp"):
    import acp
    from acp import schema
    from acp.interfaces import Client

__all__ = ["AcpEditor", "serve_acp"]

_logger = get_logger("toolkit.serving")
_INTERNAL_ERROR = -32603
_LONGEST_OUTPUT = 100_000
_MOST_DIFFS = 100
_MOST_MESSAGE_BYTES = 16 * 1024 * 1024
_MOST_SECONDS = 60  # that an editor may take to open, kill or release a terminal, whatever is cancelled
_OPTIONS = [
    schema.PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id="allow_always", name="Allow this tool in this session", kind="allow_always"),
    schema.PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
]
_KINDS: Mapping[str, Any] = {"execute": "execute", "write": "edit", "read": "read"}  # by tags; the first one counts
_Update: TypeAlias = Any  # one of the SDK's classes of updates


class PlanStep(BaseModel):
    """A step of a plan."""

    content: str = Field(description="The step, in a few words.")
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


@dataclass(eq=False, kw_only=True)
class AcpEditor:
    """An editor in one session, for a function that returns the tools of that.

    Attributes:
        id: The id of the session, and of its conversation.
        folder: The folder that is open in the editor.
        has_terminal: True where the editor runs commands in terminals of its own, which `terminal_tool` uses.
    """

    id: str
    folder: Path
    has_terminal: bool
    _client: Client = field(repr=False)

    def terminal_tool(self) -> FunctionTool[object, ..., Any]:
        """Return the tool ``bash``: a command in a terminal of the editor, where the user sees it.

        A command that may do more than read needs approval. One that is cancelled is killed.
        """

        @tool_with_ctx(
            name="bash",
            tags={"execute"},
            requires_approval=lambda given: "" if reads_only(given["command"]) else "The command may change something.",
            preview=lambda given: str(given["command"]),
        )
        async def run_command(context: ToolContext[object], command: str) -> str:
            """Run a command in the shell of the user's terminal, in the project's folder."""
            return await self._run_in_terminal(context.call_id, command)

        return run_command

    async def _run_in_terminal(self, call_id: str, command: str) -> str:
        client, cwd = self._client, str(self.folder)
        with anyio.fail_after(_MOST_SECONDS, shield=True):  # its id is needed to kill and release it
            made = await client.create_terminal(
                self.id, "/bin/sh", ["-c", command], cwd=cwd, output_byte_limit=_LONGEST_OUTPUT
            )
        terminal = made.terminal_id
        try:
            await self.show(acp.update_tool_call(call_id, content=[acp.tool_terminal_ref(terminal)]))
            ended = await client.wait_for_terminal_exit(self.id, terminal)
            output = await client.terminal_output(self.id, terminal)
        except BaseException:
            with anyio.move_on_after(_MOST_SECONDS, shield=True), suppress(Exception):
                await client.kill_terminal(self.id, terminal)
            raise
        finally:
            with anyio.move_on_after(_MOST_SECONDS, shield=True), suppress(Exception):
                await client.release_terminal(self.id, terminal)
        end = f"signal {ended.signal}" if ended.signal else f"status {ended.exit_code}"
        return f"{output.output[-_LONGEST_OUTPUT:]}\n(ended with {end})"

    async def show(self, update: _Update) -> None:
        """Send an update to the editor."""
        await self._client.session_update(self.id, update)

    async def show_plan(self, steps: Annotated[list[PlanStep], Field(max_length=100)]) -> str:
        """Show the user the plan of your work, and later how far it is: all steps each time."""
        await self.show(
            acp.update_plan(acp.plan_entry(each.content, priority=each.priority, status=each.status) for each in steps)
        )
        return "shown"


@dataclass(eq=False, slots=True)
class _OpenSession:
    """A session as the agent serves it.

    Args:
        editor: The editor, in this session.
        client: The editor.
        registry: The tools.
        given: The application's own approver, which is asked about calls that need no approval.
        allowed: The tools that the user has allowed for the rest of the session.
        is_busy: True while a prompt is answered.
        is_cancelled: True where that is to end.
        stream: The run that answers it.
    """

    editor: AcpEditor
    client: Client
    registry: ToolRegistry[Any]
    given: Callable[[ApprovalRequest], Any] | None
    allowed: set[str] = field(default_factory=set[str])
    is_busy: bool = False
    is_cancelled: bool = False
    stream: TurnStream[Any] | None = None

    async def decide(self, request: ApprovalRequest) -> Any:
        """Ask the editor's user about a call that needs approval."""
        if not request.reason and self.given is not None:
            answer = self.given(request)
            return await answer if isawaitable(answer) else answer
        if not request.reason or request.tool_name in self.allowed:
            return Approve()
        call = schema.ToolCallUpdate(
            tool_call_id=request.call_id,
            title=f"{request.tool_name}: {request.reason}",
            status="pending",
            content=_show_diffs(request.arguments, self.editor.folder) or _show_text(request.preview),
            locations=_find_locations(request.arguments, self.editor.folder),
        )
        answer = await self.client.request_permission(self.editor.id, call, _OPTIONS)
        chosen = answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else ""
        if chosen == "allow_always":
            self.allowed.add(request.tool_name)
        if chosen in ("allow_once", "allow_always"):
            return Approve()
        return Deny("The user did not approve this call.")


SessionTools: TypeAlias = ToolRegistry[Ctx] | Callable[[AcpEditor], ToolRegistry[Ctx]]
"""The tools of all sessions, or a function that returns those of a session."""


async def serve_acp(
    provider: chat.Provider,
    tools: SessionTools[Ctx],
    ctx: Ctx,
    *,
    conversations: Conversations | None = None,
    config: ToolLoopConfig[Any] | None = None,
    system_prompt: str = "",
    name: str = "toolkit",
) -> None:
    """Serve an agent on standard input and output, until the editor closes them.

    ::

        asyncio.run(serve_acp(provider, lambda editor: ToolRegistry(coding_tools(editor.folder)), None))

    Calls whose tools need approval ask the editor's user, who may allow a tool for the rest of a session. Edits are
    shown as diffs, and the model has a tool to show its plan. Servers that the editor names for a session are opened,
    with their tools under the server's name. Meanwhile, printed text goes to standard error.

    Args:
        provider: Talks to the model.
        tools: The tools, or a function that returns those of a session, by its folder.
        ctx: The context of the tools.
        conversations: Where sessions are stored, so that the editor can load them again; None stores them in memory.
        config: The settings of the loop; calls that need no approval don't pass its `on_tool_call`.
        system_prompt: Stands first.
        name: The name of the agent.

    Raises:
        ConfigurationError: This runs on trio, which the SDK does not.
    """
    if cancellation_mark() is None:
        raise ConfigurationError("the SDK of the Agent Client Protocol runs on asyncio")
    saved = conversations or Conversations(MemoryStore())
    agent: Any = _Agent(provider, tools, ctx, saved, config or DEFAULT_CONFIG, system_prompt, name)
    async with agent.resources, _protocol_streams() as (reader, writer):
        await acp.run_agent(agent, writer, reader)


@asynccontextmanager
async def _protocol_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams of the protocol; other text for standard output goes to standard error."""
    sys.stdout.flush()
    usual, sys.stdout = sys.stdout, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        reader, writer = await acp.stdio_streams(limit=_MOST_MESSAGE_BYTES)
    finally:
        sys.stdout = usual
    yield reader, writer


@dataclass(eq=False)
class _Agent:
    """The methods that the SDK calls for an editor's requests."""

    provider: chat.Provider
    tools: SessionTools[Any]
    ctx: Any
    conversations: Conversations
    config: ToolLoopConfig[Any]
    system_prompt: str
    name: str
    has_terminal: bool = False
    client: Any = None
    sessions: dict[str, _OpenSession] = field(default_factory=dict[str, _OpenSession])
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: schema.ClientCapabilities | None = None, **_: Any
    ) -> schema.InitializeResponse:
        self.has_terminal = bool(client_capabilities and client_capabilities.terminal)
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_info=schema.Implementation(name=self.name, version=version("toolkit-sdk")),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=True, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True),
            ),
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.NewSessionResponse:
        opened = await self._open_session(uuid.uuid4().hex, cwd, mcp_servers or ())
        return schema.NewSessionResponse(session_id=opened.editor.id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        try:
            saved = await self.conversations.get(session_id)
        except ToolkitError as error:
            raise acp.RequestError.invalid_params({"session": str(error)}) from error
        if not saved.version:
            raise acp.RequestError.resource_not_found(session_id)
        opened = await self._open_session(session_id, cwd, mcp_servers or ())
        for update in (
            update for message in events.show_messages(saved.messages) for update in _replay_message(message)
        ):
            await opened.editor.show(update)
        return schema.LoadSessionResponse()

    async def _open_session(self, session_id: str, cwd: str, servers: Sequence[Any]) -> _OpenSession:
        folder, is_folder = Path(cwd), False
        with suppress(OSError, ValueError):  # as of a name that is too long
            is_folder = await anyio.Path(folder).is_dir()
        if not (is_folder and folder.is_absolute()):
            raise acp.RequestError.invalid_params({"cwd": "it is no absolute path of a folder"})
        editor = AcpEditor(id=session_id, folder=folder, has_terminal=self.has_terminal, _client=self.client)
        try:
            async with AsyncExitStack() as stack:
                tools: ToolRegistry[Any] = self.tools(editor) if callable(self.tools) else self.tools
                registry = tools.without(())  # of its own, as more tools are added
                for server in servers:
                    for each in await stack.enter_async_context(_open_server(server)):
                        registry.register(each)
                registry.register_or_replace(tool_from_function(editor.show_plan, tags={"read"}))
                self.resources.push_async_exit(stack.pop_all())
        except ToolkitError as error:
            raise acp.RequestError.invalid_params({"session": str(error)}) from error
        opened = _OpenSession(editor, self.client, registry, self.config.on_tool_call)
        self.sessions[session_id] = opened
        return opened

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        opened = self.sessions.get(session_id)
        if opened is None:
            raise acp.RequestError.resource_not_found(session_id)
        if opened.is_busy:
            raise acp.RequestError.invalid_request({"prompt": "another one of this session is under way"})
        question = chat.UserMessage(tuple(_read_block(block) for block in prompt))
        config = replace(self.config, on_tool_call=opened.decide)
        opened.is_busy, opened.is_cancelled = True, False
        try:
            async with self.conversations.turn(session_id, ctx=self.ctx) as turn:
                opened.stream = stream = turn.stream(
                    self.provider, opened.registry, question, config=config, system_prompt=self.system_prompt
                )
                if opened.is_cancelled:
                    stream.cancel()
                async for event in stream:
                    for update in _show_event(event, opened.editor.folder):
                        await opened.editor.show(update)
                return schema.PromptResponse(stop_reason=_find_stop_reason(stream.result))
        except ToolkitError as error:
            _logger.exception("a prompt of an editor failed")
            raise acp.RequestError(_INTERNAL_ERROR, str(error)) from error
        finally:
            opened.is_busy, opened.stream = False, None

    async def cancel(self, session_id: str, **_: Any) -> None:
        opened = self.sessions.get(session_id)
        if opened is not None:
            opened.is_cancelled = True
            if opened.stream is not None:
                opened.stream.cancel()


def _open_server(server: Any) -> Any:
    """Return the tools of a server that the editor names, to be entered."""
    if isinstance(server, schema.McpServerStdio):
        env = {each.name: each.value for each in server.env}
        return mcp_tools(stdio(server.command, *server.args, env=env, name=server.name), prefix=server.name)
    headers = {each.name: each.value for each in server.headers}
    connect = sse if isinstance(server, schema.SseMcpServer) else http
    return mcp_tools(connect(server.url, headers=headers, name=server.name), prefix=server.name)


def _find_stop_reason(result: ToolLoopResult[Any]) -> schema.StopReason:
    if isinstance(result.reason, Cancelled):
        return "cancelled"
    if isinstance(result.reason, MaxIterations):
        return "max_turn_requests"
    response = result.response
    return "max_tokens" if response is not None and response.stop_reason == "max_tokens" else "end_turn"


def _read_block(block: Any) -> chat.ContentBlock:
    """Return a part of an editor's prompt as a block."""
    match block:
        case schema.TextContentBlock():
            return chat.TextBlock(block.text)
        case schema.ImageContentBlock():
            return chat.ImageBlock(_decode_data(block.data), media_type=block.mime_type)
        case schema.AudioContentBlock():
            return chat.AudioBlock(_decode_data(block.data), media_type=block.mime_type)
        case schema.ResourceContentBlock():
            return chat.TextBlock(f"[{block.title or block.name}]({block.uri})")
        case _:
            resource = block.resource
            if isinstance(resource, schema.TextResourceContents):
                return chat.TextBlock(f"{resource.uri}:\n\n{resource.text}")
            name = resource.uri.rstrip("/").rpartition("/")[2] or "file"
            kind = resource.mime_type or "application/octet-stream"
            return chat.FileBlock(_decode_data(resource.blob), name=name, media_type=kind)


def _decode_data(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise acp.RequestError.invalid_params({"data": "it is no base64"}) from error


def _show_event(event: events.LoopEvent, folder: Path) -> list[_Update]:
    """Return the updates that show an event of a run."""
    match event:
        case chat.TextDelta(text=text):
            return [acp.update_agent_message_text(text)]
        case chat.ReasoningDelta(text=text):
            return [acp.update_agent_thought_text(text)]
        case events.ToolExecutionStart():
            return [
                acp.start_tool_call(
                    event.call_id,
                    event.label or event.tool_name,
                    kind=next((kind for tag, kind in _KINDS.items() if tag in event.tags), "other"),
                    status="in_progress",
                    content=_show_diffs(event.arguments, folder) or None,
                    locations=_find_locations(event.arguments, folder),
                    raw_input=json.loads(event.arguments_json or "{}"),
                )
            ]
        case events.ToolProgress(text=text):
            return [acp.update_tool_call(event.call_id, content=_show_text(text))]
        case events.ToolExecutionUpdate(output=output):
            return [acp.update_tool_call(event.call_id, content=_show_text(output.text))]
        case events.ToolCallRefused(result=result):
            start = acp.start_tool_call(event.call_id, event.label or event.tool_name, status="failed")
            return [start, _show_result(result)]
        case events.ToolExecutionEnd(result=result):
            return [_show_result(result)]
        case _:
            return []


def _show_text(text: str) -> list[Any]:
    return [acp.tool_content(acp.text_block(text))]


def _show_result(result: chat.ToolResult) -> _Update:
    """Return the end of a call; the diffs or the terminal that a call has stay, as the text says nothing more."""
    is_shown = not result.is_error and is_object(result.details) and "diff" in result.details
    status: schema.ToolCallStatus = "failed" if result.is_error else "completed"
    content = None if is_shown or result.tool_name == "bash" else _show_text(result.text)
    return acp.update_tool_call(result.call_id, status=status, content=content, raw_output=result.text)


def _show_diffs(arguments: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return the diffs of a call that writes a file: its passages, or its whole content."""
    plain: dict[str, Any] = to_jsonable_python(arguments, fallback=str)
    path, edits, content = plain.get("path"), plain.get("edits"), plain.get("content")
    if not (isinstance(path, str) and path):
        return []
    passages = [plain, *(edits[:_MOST_DIFFS] if is_array(edits) else ())]
    found = [(each.get("old_text"), each.get("new_text") or "") for each in filter(is_object, passages)]
    diffs: list[tuple[str | None, str]] = [
        (old, new) for old, new in found if isinstance(old, str) and old and isinstance(new, str)
    ]
    if isinstance(content, str):
        diffs.append((None, content))
    return [acp.tool_diff_content(str(folder / path), new, old) for old, new in diffs]


def _find_locations(arguments: Mapping[str, Any], folder: Path) -> list[schema.ToolCallLocation] | None:
    path = arguments.get("path")
    return [schema.ToolCallLocation(path=str(folder / path))] if isinstance(path, str) else None


def _replay_message(message: chat.Message) -> list[_Update]:
    """Return the updates that show a message of a saved transcript."""
    match message:
        case chat.UserMessage():
            return [acp.update_user_message_text(message.text)] if message.text else []
        case chat.AssistantMessage():
            texts = [acp.update_agent_message_text(message.text)] if message.text else []
            return [*texts, *(acp.start_tool_call(call.id, call.name, status="pending") for call in message.tool_calls)]
        case chat.ToolResult():
            return [_show_result(message)]
        case _:
            return []
