"""The tools of an MCP server as values, for the length of a block or on demand; and its questions to its client.

A server asks for a model's words, or for the user's.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, overload

import anyio
import anyio.to_thread
import mcp.types as wire
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.shared.uri_template import UriTemplate
from pydantic_core import to_json

from toolkit.backoff import backoff_pause, run_again
from toolkit.calls.context import ToolContext
from toolkit.calls.output import redact_output
from toolkit.calls.registration import ToolOptions
from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ContentBlock,
    Message,
    Provider,
    SystemMessage,
    Trust,
    Usage,
    UserMessage,
    text_of,
)
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import (
    ConfigurationError,
    McpError,
    ProviderError,
    SchemaError,
    ToolFailedError,
    UnknownToolNameError,
)
from toolkit.logs import get_logger
from toolkit.loop.limits import LoopFrame
from toolkit.settings import Duration, PositiveInt, Seconds, check_fields, to_seconds
from toolkit.sources import ServerLimits
from toolkit.sources.mcp.messages import MOST_MESSAGES, MOST_TOOLS, restore_result
from toolkit.sources.mcp.native_tool import (
    MCPNativeTool,
    find_title,
    read_block,
    read_prompt,
    read_resource_contents,
    read_result,
)
from toolkit.sources.mcp.servers import WEB_PAGE, HttpServer, McpServer
from toolkit.sources.mcp.session import (
    CallUnderWay,
    McpConnectionError,
    McpSession,
    SessionSettings,
    ignore_list,
    read_all_pages,
)
from toolkit.sources.mcp.tasks import Task, TaskFollower, read_task_page
from toolkit.sources.pins import ToolPins
from toolkit.tool_names import legal_names
from toolkit.tools.registry import ToolRegistry

_logger = get_logger("toolkit.sources.mcp")
_LIMITS = ServerLimits()
_MOST_QUESTIONS = 50
_MOST_COMPLETIONS = 100  # as the protocol has it
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """A server's question to the user.

    Args:
        message: The question.
        schema: A flat JSON Schema of the answer; None where the user is to open `url`.
        url: A page to open, with the user's consent, in a browser; None where an answer is asked for.
        ctx: The context of the run whose calls are under way; None where there are calls of several.
    """

    message: str
    schema: Mapping[str, Any] | None = None
    url: str | None = None
    ctx: object = field(default=None, repr=False)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The values that the server proposes: fill them in only where the user has seen them."""
        properties: Mapping[str, Any] = (self.schema or {}).get("properties", {})
        return {
            name: part["default"]
            for name, part in properties.items()
            if isinstance(part, Mapping) and "default" in part
        }


ElicitationAnswer: TypeAlias = Mapping[str, Any] | bool | None
ElicitationCallback: TypeAlias = Callable[[Elicitation], ElicitationAnswer | Awaitable[ElicitationAnswer]]
"""Answers a question that a server asks the user.

A mapping is the answer, word for word; True consents to a page or to a form without fields, False declines, None puts
it off. No field is ever filled in that the mapping does not have.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """A server's request for a model's words, as a person should see it before it is made.

    Args:
        server: The server's name in errors and logs.
        messages: The messages for the model.
        system_prompt: The system prompt that the server asks for; handed on only where `Sampling` allows it.
        max_tokens: How long the answer may be.
        ctx: The context of the run whose calls are under way; None where there are calls of several.
    """

    server: str
    messages: Sequence[Message]
    system_prompt: str | None
    max_tokens: int
    ctx: object = field(default=None, repr=False)


SamplingApproval: TypeAlias = Callable[[SamplingRequest], bool | Awaitable[bool]]
"""Shows a request to a person and returns whether it may be made; raising refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The requests that a server may make of a model on the application's account.

    A server writes the whole request, so that it can spend tokens and read the model's answers. Each request counts in
    the usage and the limits of the loop whose call is under way on the server.

    Args:
        provider: The model.
        approve: Shows each request to a person; ``"all"`` makes them unseen.
        max_requests: How many are made within one block of `mcp_tools`.
        max_tokens: The longest answer; a request that asks for more gets so much.
        max_input_chars: The longest request, all its texts together.
        concurrency: How many are made at once; more wait.
        allow_system_prompt: True if the server may write the model's instructions; otherwise they go into the first
            user message, marked as the server's.
    """

    provider: Provider
    approve: SamplingApproval | Literal["all"]
    max_requests: PositiveInt = 20
    max_tokens: PositiveInt = 4_096
    max_input_chars: PositiveInt = 100_000
    concurrency: PositiveInt = 1
    allow_system_prompt: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


class Questions:
    """Answers a server's questions to the user by a callback of the application's, one at a time.

    Args:
        answer: The callback; an exception is reported as a cancellation.
        server: The server's name in logs.
    """

    def __init__(self, answer: ElicitationCallback, server: str) -> None:
        self._answer = answer
        self._server = server
        self._asked = 0
        self._turn = anyio.Lock()

    async def elicit(
        self,
        calls: Sequence[CallUnderWay],
        context: ClientRequestContext,  # noqa: ARG002 - as the SDK calls it
        params: wire.ElicitRequestParams,
    ) -> wire.ElicitResult | wire.ErrorData:
        """Answer one question."""
        self._asked += 1
        if self._asked > _MOST_QUESTIONS:
            _logger.warning("MCP server '%s' has asked %s questions; no more are shown", self._server, _MOST_QUESTIONS)
            return wire.ErrorData(code=wire.INVALID_REQUEST, message="This client shows its user no more questions.")
        if isinstance(params, wire.ElicitRequestURLParams):
            if WEB_PAGE.fullmatch(params.url) is None:
                _logger.warning("MCP server '%s' wants the user to open what is no page of the web", self._server)
                return wire.ElicitResult(action="decline")
            question = Elicitation(message=params.message, url=params.url, ctx=_find_context(calls))
        else:
            schema = params.requested_schema
            question = Elicitation(message=params.message, schema=schema, ctx=_find_context(calls))
        async with self._turn:
            given = self._answer(question)
            value = await given if inspect.isawaitable(given) else given
        if value is None:
            return wire.ElicitResult(action="cancel")
        if value is False:
            return wire.ElicitResult(action="decline")
        if value is True and question.schema is not None and question.schema.get("properties"):
            example = json.dumps({next(iter(question.schema["properties"])): "..."})
            text = (
                "MCP server '%s': a form was answered with True, which fills in no field: return its fields, such as %s"
            )
            _logger.warning(text, self._server, example)
            return wire.ElicitResult(action="cancel")
        content = dict(value) if isinstance(value, Mapping) else {}
        return wire.ElicitResult(action="accept", content=content or None)


def _find_context(calls: Sequence[CallUnderWay]) -> object:
    """Return the context of all calls: a server need not say for which one it asks."""
    first = calls[0].ctx if calls else None
    return first if all(call.ctx is first for call in list(calls)) else None


class Sampler:
    """Makes a server's requests for a model's words, within the bounds of `Sampling`.

    Args:
        sampling: The bounds.
        server: The server's name in errors and logs.
    """

    def __init__(self, sampling: Sampling, server: str) -> None:
        self._sampling = sampling
        self._server = server
        self._made = 0
        self._places = anyio.Semaphore(sampling.concurrency)

    async def sample(
        self,
        calls: Sequence[CallUnderWay],
        context: ClientRequestContext,  # noqa: ARG002 - as the SDK calls it
        params: wire.CreateMessageRequestParams,
    ) -> wire.CreateMessageResult | wire.ErrorData:
        """Make one request on the account of the oldest call; no tools and no context of the server are passed on."""
        sampling = self._sampling
        if self._made >= sampling.max_requests:
            _logger.warning("MCP server '%s' wants more than %s samples", self._server, sampling.max_requests)
            return _refuse_sampling(f"this client makes at most {sampling.max_requests} requests for a server")
        self._made += 1
        try:
            request = self._read_request(params, _find_context(calls))
        except ValueError as error:
            return _refuse_sampling(str(error))
        async with self._places:
            if not await self._is_approved(request):
                return _refuse_sampling("the user did not approve the request")
            frame = next((call.frame for call in list(calls) if call.frame is not None), None)
            return await self._generate_answer(request, params, frame)

    def _read_request(self, params: wire.CreateMessageRequestParams, ctx: object) -> SamplingRequest:
        if len(params.messages) > MOST_MESSAGES:
            raise ValueError(f"the request has more than {MOST_MESSAGES:,} messages")
        messages = [_read_message(message) for message in params.messages]
        size = len(params.system_prompt or "") + sum(len(text_of(message.content)) for message in messages)
        if size > self._sampling.max_input_chars:
            raise ValueError(f"the request is longer than {self._sampling.max_input_chars} characters")
        return SamplingRequest(
            server=self._server,
            messages=tuple(messages),
            system_prompt=params.system_prompt,
            max_tokens=max(1, min(params.max_tokens, self._sampling.max_tokens)),
            ctx=ctx,
        )

    async def _is_approved(self, request: SamplingRequest) -> bool:
        approve = self._sampling.approve
        if approve == "all":
            return True
        try:
            answer = approve(request)
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Exception:
            _logger.exception("the approval of a sample raised for MCP server '%s'; it is refused", self._server)
            return False

    async def _generate_answer(
        self, request: SamplingRequest, params: wire.CreateMessageRequestParams, frame: LoopFrame | None
    ) -> wire.CreateMessageResult | wire.ErrorData:
        budget = None if frame is None else frame.budget
        if budget is not None and budget.reserve_request(request.max_tokens) is not None:
            return _refuse_sampling("the usage limit of the run is reached")
        used: Usage | None = None
        try:
            response = await self._sampling.provider.generate(
                ChatRequest(
                    messages=self._build_messages(request),
                    max_tokens=request.max_tokens,
                    temperature=params.temperature,
                    stop=tuple(params.stop_sequences or ()),
                )
            )
            used = response.usage
        except (ProviderError, ValueError) as error:
            return _refuse_sampling(f"the model gave no answer ({type(error).__name__})")
        finally:
            if budget is not None:
                budget.settle_request(request.max_tokens, used)
        if frame is not None and frame.spend is not None:
            frame.spend(response.usage)
        reason = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}.get(response.stop_reason, "endTurn")
        return wire.CreateMessageResult(
            role="assistant",
            content=wire.TextContent(type="text", text=response.text),
            model=response.model or "unknown",
            stop_reason=reason,
        )

    def _build_messages(self, request: SamplingRequest) -> Sequence[Message]:
        prompt = request.system_prompt
        if not prompt:
            return request.messages
        first = SystemMessage(prompt) if self._sampling.allow_system_prompt else UserMessage(prompt)
        return (first, *request.messages)


def _refuse_sampling(reason: str) -> wire.ErrorData:
    return wire.ErrorData(code=wire.INVALID_REQUEST, message=f"Not sampled: {reason}.")


def _read_message(message: wire.SamplingMessage) -> Message:
    blocks: list[Any] = []
    for item in message.content if isinstance(message.content, list) else [message.content]:
        if isinstance(item, (wire.ToolUseContent, wire.ToolResultContent)):
            raise ValueError("calls and results in a request for sampling are not taken")  # noqa: TRY004 - a value of it
        blocks += read_block(item)
    return UserMessage(tuple(blocks)) if message.role == "user" else AssistantMessage(blocks)


T = TypeVar("T")


class McpTools(Sequence[MCPNativeTool]):
    """The tools of a server as they are now, in its order; made by `mcp_tools`, and open inside its block.

    The server may change them, at any time or when it is started again: then this sequence changes, too, and with it
    every registry that `keep_registered` was given. A registry that was created from them is not changed.

    Attributes:
        refused: Why a tool that the server lists is none of these, by its name: its schema can't be used.
    """

    def __init__(self, server: McpServer, settings: McpToolSettings) -> None:
        self._settings = settings
        self._tools: tuple[MCPNativeTool, ...] = ()
        self._listed: list[wire.Tool] = []
        self._followers: list[tuple[ToolRegistry[Any], dict[str, MCPNativeTool]]] = []
        self._renewing = anyio.Lock()
        self._is_entered = False
        self._counter = settings.limits.make_counter()
        self.refused: Mapping[str, str] = {}
        sampling, elicitation = settings.sampling, settings.elicitation
        self._session = McpSession(
            server,
            SessionSettings(
                connect_timeout=settings.connect_timeout,
                limits=settings.limits,
                sampling=None if sampling is None else Sampler(sampling, server.name).sample,
                elicitation=None if elicitation is None else Questions(elicitation, server.name).elicit,
                on_listed=self._on_listed,
            ),
        )

    async def __aenter__(self) -> McpTools:
        if self._is_entered:
            raise ConfigurationError("these tools can be opened once; call mcp_tools again")
        self._is_entered = True
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    @overload
    def __getitem__(self, index: int) -> MCPNativeTool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MCPNativeTool]: ...
    def __getitem__(self, index: int | slice) -> MCPNativeTool | Sequence[MCPNativeTool]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[MCPNativeTool]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"<McpTools of {self._session.server.name}: {', '.join(tool.definition.name for tool in self._tools)}>"

    def keep_registered(self, registry: ToolRegistry[Any]) -> None:
        """Add the tools to a registry, and update them as the server changes while the block lasts.

        Raises:
            McpError: A name is taken by another tool; nothing is registered then.
        """
        registered = {tool.definition.name: tool for tool in self._tools}
        for name in registered:
            if name in registry:
                raise McpError(
                    f"a tool named '{name}' is there already: give mcp_tools(...) a prefix=, or rename the other"
                )
        for tool in registered.values():
            registry.register(tool)
        self._followers.append((registry, registered))

    async def _on_listed(self, listed: list[wire.Tool]) -> None:
        async with self._renewing:
            if self._tools and listed == self._listed:
                return
            server_name = self._session.server.name
            chosen = choose_tools(server_name, listed, self._settings, is_first=not self._listed)
            unpinned = await self._find_unpinned(chosen)
            make = partial(make_tools, self._session, chosen, self._settings, unpinned)
            schemas = [(tool.input_schema, tool.output_schema) for tool in chosen]
            if len(to_json(schemas)) <= _LONG_SCHEMAS:
                self._tools, self.refused = make()
            else:
                self._tools, self.refused = await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
            for tool in self._tools:
                tool.counter = self._counter
            self._listed = listed
            for registry, registered in self._followers:
                _update_registry(registry, registered, self._tools)

    async def _find_unpinned(self, chosen: Sequence[wire.Tool]) -> Mapping[str, str]:
        pins, server = self._settings.pins, self._session.server
        if pins is None:
            return {}
        address = str(getattr(server, "address", server.name))
        return await pins.find_refusals(server.name, address, {tool.name: _describe_tool(tool) for tool in chosen})

    async def resources(self, *, ctx: object = None) -> list[wire.Resource]:
        """Return the resources of the server, of all pages.

        Raises:
            McpError: It offers no resources, or can't be reached.
        """

        async def read_page(client: Client, cursor: str | None) -> tuple[list[wire.Resource], str | None]:
            answer = await client.list_resources(cursor=cursor)
            return answer.resources, answer.next_cursor

        return await self._list_all(ctx, "list the resources", read_page)

    async def resource_templates(self, *, ctx: object = None) -> list[wire.ResourceTemplate]:
        """Return the templates of the server's resources, of all pages: `read_resource` fills one in.

        Raises:
            McpError: It offers no resources, or can't be reached.
        """

        async def read_page(client: Client, cursor: str | None) -> tuple[list[wire.ResourceTemplate], str | None]:
            answer = await client.list_resource_templates(cursor=cursor)
            return answer.resource_templates, answer.next_cursor

        return await self._list_all(ctx, "list the resource templates", read_page)

    async def read_resource(
        self, uri: str, parameters: Mapping[str, str | Sequence[str]] | None = None, *, ctx: object = None
    ) -> tuple[ContentBlock, ...]:
        """Return the content of a resource.

        Args:
            uri: The URI, or with `parameters` the template of one (RFC 6570).
            parameters: The values for the template; those of a query may be left out.
            ctx: The context of the user as whom it is read.

        Raises:
            McpError: There is none of that URI, a parameter is missing or unknown, the content is larger than
                `ServerLimits.output_size`, or the server can't be reached.
        """
        what = f"read '{uri}'"
        if parameters is not None:
            uri = self._fill_template(uri, parameters, what)

        async def read(client: Client) -> tuple[ContentBlock, ...]:
            return tuple(read_resource_contents(content) for content in (await client.read_resource(uri)).contents)

        blocks = await self._send_request(ctx, what, read)
        try:
            self._settings.limits.check_output(ToolOutput(blocks))
        except ToolFailedError as error:
            raise self._make_error(what, f"it is too large: {error.message}") from None
        return blocks

    def _fill_template(self, template: str, parameters: Mapping[str, str | Sequence[str]], what: str) -> str:
        try:
            parsed = UriTemplate.parse(template)
            optional = {variable.name for variable in parsed.variables if variable.operator in ("?", "&")}
            required = {*parsed.variable_names} - optional
            if problem := _describe_names(parameters, required, optional, "parameter"):
                raise self._make_error(what, problem)
            return parsed.expand(parameters)
        except (TypeError, ValueError) as error:  # a bad template, or a value that is no text
            raise self._make_error(what, str(error)) from None

    async def prompts(self, *, ctx: object = None) -> list[wire.Prompt]:
        """Return the prompts that the server offers, of all pages.

        Raises:
            McpError: It offers none, or can't be reached.
        """

        async def read_page(client: Client, cursor: str | None) -> tuple[list[wire.Prompt], str | None]:
            answer = await client.list_prompts(cursor=cursor)
            return answer.prompts, answer.next_cursor

        return await self._list_all(ctx, "list the prompts", read_page)

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, ctx: object = None
    ) -> list[Message]:
        """Return the messages of a prompt, for the beginning of a loop.

        Raises:
            McpError: There is none of that name, its arguments are wrong, or the server can't be reached.
        """
        given = dict(arguments or {})

        async def get(client: Client) -> list[Message]:
            return read_prompt(await client.get_prompt(name, given))

        what = f"get the prompt '{name}'"
        try:
            return await self._send_request(ctx, what, get)
        except McpError as error:
            if type(error) is not McpError:  # not the server's own refusal
                raise
            known = {each.name: each for each in await self.prompts(ctx=ctx)}
            if name not in known:
                raise self._make_error(what, f"there is none of that name; there are: {_join_names(known)}") from error
            listed = known[name].arguments or ()
            required = {each.name for each in listed if each.required}
            problem = _describe_names(given, required, {each.name for each in listed} - required, "argument")
            raise (self._make_error(what, problem) if problem else error) from error

    async def complete(
        self,
        of: wire.Prompt | wire.ResourceTemplate,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
        ctx: object = None,
    ) -> list[str]:
        """Return the server's suggestions for an argument of a prompt, or for a parameter of a template.

        Args:
            of: The prompt or template, as the server lists it.
            argument: The name of the argument.
            value: The beginning of the value.
            known: The other arguments that are filled in.
            ctx: The context of the user who is asked.

        Raises:
            McpError: There is no such argument, the server completes nothing, or can't be reached.
        """
        ref: wire.PromptReference | wire.ResourceTemplateReference
        if isinstance(of, wire.Prompt):
            ref, names = wire.PromptReference(name=of.name), [each.name for each in of.arguments or ()]
            what = f"complete '{argument}' of the prompt '{of.name}'"
        else:
            ref = wire.ResourceTemplateReference(uri=of.uri_template)
            what = f"complete '{argument}' of '{of.uri_template}'"
            try:
                names = UriTemplate.parse(of.uri_template).variable_names
            except ValueError as error:
                raise self._make_error(what, str(error)) from None
        if problem := _describe_names((argument, *(known or {})), set(), set(names), "argument"):
            raise self._make_error(what, problem)

        async def ask(client: Client) -> list[str]:
            answer = await client.complete(ref, {"name": argument, "value": value}, dict(known) if known else None)
            return answer.completion.values[:_MOST_COMPLETIONS]

        return await self._send_request(ctx, what, ask)

    async def tasks(self, *, ctx: object = None) -> list[Task]:
        """Return the user's tasks on a server of the revision of 2025-11-25, of all pages, also those of other runs.

        Raises:
            McpError: The server lists no tasks, as none does in later revisions, or can't be reached.
        """
        return await self._list_all(ctx, "list the tasks", read_task_page)

    async def follow_task(self, task_id: str, *, ctx: object = None) -> ToolOutput:
        """Wait for a task, such as one of a process that was killed, and return its result; cancelling cancels it.

        Raises:
            McpError: There is no such task of this user, it can't be followed, or the server can't be reached.
            ToolFailedError: Its result is too large.
        """
        follower = TaskFollower(Task(task_id=task_id, status="working", pause=0), lambda _: None)
        result = await self._send_request(ctx, f"follow the task '{task_id}'", follower.follow)
        output = self._settings.limits.check_output(read_result(restore_result(result)))
        return await redact_output(output, self._session.server.redact)

    def _make_error(self, what: str, reason: str) -> McpError:
        return McpError(f"MCP server '{self._session.server.name}': could not {what}: {reason}")

    async def _list_all(
        self,
        ctx: object,
        what: str,
        read_page: Callable[[Client, str | None], Awaitable[tuple[list[T], str | None]]],
    ) -> list[T]:
        async def list_all(client: Client) -> list[T]:
            page = partial(read_page, client)
            return await read_all_pages(page, self._session.server, self._settings.limits.pages)

        return await self._send_request(ctx, what, list_all)

    async def _send_request(self, ctx: object, what: str, make: Callable[[Client], Awaitable[T]]) -> T:
        async with self._session.serving(ctx) as session:
            return await session.request(what, make)


def _describe_names(given: Collection[str], required: set[str], optional: set[str], kind: str) -> str:
    """Return which names are missing and which are unknown; nothing where all are right."""
    missing, unknown = required.difference(given), set(given) - required - optional
    problems = [f"it needs {_join_names(missing)}"] if missing else []
    if unknown:
        problems.append(f"it has no {kind} {_join_names(unknown)}, only {_join_names(required | optional) or 'none'}")
    return "; ".join(problems)


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)[:_MOST_NAMES])


def mcp_tools(
    server: McpServer,
    *,
    prefix: str | None = None,
    allowed: Collection[str] | None = None,
    blocked: Collection[str] = (),
    filter: ToolFilter | None = None,  # noqa: A002 - what it is
    limits: ServerLimits = _LIMITS,
    connect_timeout: Duration = 30.0,
    sampling: Sampling | None = None,
    elicitation: ElicitationCallback | None = None,
    pins: ToolPins | None = None,
    trust: Trust = "untrusted",
    hints: Trust = "untrusted",
) -> McpTools:
    """Yield the tools of an MCP server, for the duration of an ``async with``.

    ::

        async with mcp_tools(stdio("npx", "-y", "@modelcontextprotocol/server-everything")) as tools:
            registry = ToolRegistry(tools)

    One connection serves all calls, several at once. A call that is cancelled or takes too long is cancelled on the
    server, too. A connection or session that is lost is made again, and the tools are listed again; a call that fails
    of it is repeated only where the server says that the tool reads or is idempotent, or has refused it unread.

    The server's annotations of a tool become tags: ``read``, ``destructive``, ``idempotent``, ``open_world``.

    Args:
        server: A server from `stdio`, `http` or `sse`.
        prefix: Put before each name, as ``{prefix}__{name}``; None puts nothing.
        allowed: The names, as the server has them, of the tools to take; None takes all.
        blocked: The names of those to leave out, also of those that are allowed.
        filter: Decides for each other tool whether it is included.
        limits: The limits of calls, outputs and lists.
        connect_timeout: Seconds to start, connect, greet and list the tools.
        sampling: The rules for the server's requests to a model; None offers no model.
        elicitation: Answers where the server asks the user something; None offers no such thing.
        pins: Leaves out tools that have changed since they were first seen; None takes them as they are.
        trust: The label of its results, for rules such as `ask_when_tainted`.
        hints: ``trusted`` where its descriptions and annotations are believed; else each tool may write and send.

    Raises:
        McpError: On entering: the server can't be reached, or is none.
        UnknownToolNameError: On entering: the server has no tool of a name in `allowed` or `blocked`.
        ConfigurationError: A setting that can't be.
    """
    settings = McpToolSettings(
        prefix=prefix,
        allowed=allowed,
        blocked=blocked,
        filter=filter,
        limits=limits,
        connect_timeout=to_seconds(connect_timeout, "connect_timeout"),
        sampling=sampling,
        elicitation=elicitation,
        pins=pins,
        trust=trust,
        hints=hints,
    )
    return McpTools(server, settings)


def _update_registry(
    registry: ToolRegistry[Any], registered: dict[str, MCPNativeTool], tools: tuple[MCPNativeTool, ...]
) -> None:
    """Update a registry's tools of a server to the server's current ones; other tools of the same names stay."""
    wanted = {tool.definition.name: tool for tool in tools}
    there = {name: each.tool for name, each in registry.registrations.items()}
    for name in [name for name in registered if name not in wanted]:
        old = registered.pop(name)
        if there.get(name) is old:
            registry.unregister(name)
    for name, tool in wanted.items():
        if name in registry and there[name] is not registered.get(name):
            _logger.warning("a tool named '%s' is there already: that of the MCP server is left out", name)
            continue
        registry.register_or_replace(tool)
        registered[name] = tool


_LONGEST_TOOL_DESCRIPTION = 20_000
_LONG_SCHEMAS = 20_000  # characters that take some 20 ms to compile at most

ToolFilter: TypeAlias = Callable[[wire.Tool], bool]
"""Takes a tool that the server lists, and returns whether it is included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolSettings:
    """The settings of `mcp_tools`, which documents them."""

    prefix: str | None
    allowed: Collection[str] | None
    blocked: Collection[str]
    filter: ToolFilter | None
    limits: ServerLimits
    connect_timeout: Seconds
    sampling: Sampling | None
    elicitation: ElicitationCallback | None
    pins: ToolPins | None
    trust: Trust
    hints: Trust

    def __post_init__(self) -> None:
        check_fields(self)


def choose_tools(
    server_name: str, listed: list[wire.Tool], settings: McpToolSettings, *, is_first: bool
) -> list[wire.Tool]:
    """Return the tools that are wanted of those that a server lists.

    Raises:
        McpError: The list can't be used.
        UnknownToolNameError: It is the first one, and lacks a tool named in the settings.
    """
    names = [tool.name for tool in listed]
    _check_listed_names(server_name, names)
    if is_first:  # later the server may have changed its tools
        for name in sorted({*(settings.allowed or ()), *settings.blocked}):
            if name not in names:
                raise UnknownToolNameError(name, names)
    return [tool for tool in listed if _is_wanted(tool, settings)]


def make_tools(
    session: McpSession,
    chosen: list[wire.Tool],
    settings: McpToolSettings,
    unpinned: Mapping[str, str],
) -> tuple[tuple[MCPNativeTool, ...], dict[str, str]]:
    """Return the tools that can be used of those that were chosen, and why others can't be, by their names."""
    shown = legal_names([f"{settings.prefix}__{tool.name}" if settings.prefix else tool.name for tool in chosen])
    tools: list[MCPNativeTool] = []
    refused: dict[str, str] = {}
    for tool, name in zip(chosen, shown, strict=True):
        reason = unpinned.get(tool.name)
        if reason is None and len(tool.description or "") + len(find_title(tool)) > _LONGEST_TOOL_DESCRIPTION:
            reason = f"its description has more than {_LONGEST_TOOL_DESCRIPTION} characters"
        if reason is None:
            try:
                trust, hints = settings.trust, settings.hints
                made = MCPNativeTool(session, tool, name=name, limits=settings.limits, trust=trust, hints=hints)
                tools.append(made)
            except SchemaError as error:
                reason = error.reason
        if reason is not None:
            refused[tool.name] = reason
            _logger.warning("MCP server '%s': left out '%s': %s", session.server.name, tool.name, reason)
    return tuple(tools), refused


def _describe_tool(tool: wire.Tool) -> dict[str, Any]:
    """Return what a model or a rule sees of a tool."""
    seen = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
    return tool.model_dump(mode="json", include=seen, exclude_none=True)


def _is_wanted(tool: wire.Tool, settings: McpToolSettings) -> bool:
    if tool.name in settings.blocked or (settings.allowed is not None and tool.name not in settings.allowed):
        return False
    return settings.filter is None or settings.filter(tool)


def _check_listed_names(server_name: str, names: list[str]) -> None:
    if len(names) > MOST_TOOLS:
        raise McpError(f"MCP server '{server_name}' lists more than {MOST_TOOLS} tools; no model chooses well")
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise McpError(
            f"MCP server '{server_name}' lists several tools named {', '.join(map(repr, repeated))}: which of "
            "them a call means can't be known; leave them out there"
        )


_TRIES = 3
_LONGEST_TRY_PAUSE = 60.0


class _PassingError(Exception):
    """A try failed in a way that another one may not."""


class MCPToolWrapper(MCPNativeTool):
    """A tool of a server that is connected for each call, and closed after it.

    A call is tried three times in all, after one second and after two, where the server can't be reached in time; not
    where it refuses who calls, or has no such tool. A call that failed after it was sent is retried only if the
    server says that the tool reads or is idempotent.

    Args:
        server: A server from `stdio`, `http` or `sse`.
        tool: The tool, as the server lists it.
        name: The name that a model sees; None takes the server's name.
        connect_timeout: Seconds for one try to start, connect and greet.
        timeout: Seconds for one run.
        first_pause: Seconds before the second try; twice as many before the third.
    """

    def __init__(
        self,
        server: McpServer,
        tool: wire.Tool,
        *,
        name: str | None = None,
        connect_timeout: Duration = 15.0,
        timeout: Duration = 60.0,
        first_pause: float = 1.0,
    ) -> None:
        self._settings = SessionSettings(
            connect_timeout=to_seconds(connect_timeout, "connect_timeout"), on_listed=ignore_list
        )
        super().__init__(McpSession(server, self._settings), tool, name=name or tool.name, limits=_LIMITS)
        # No timeout: it is that of one run, and there may be several.
        self.options: ToolOptions = replace(self.options, timeout=None)
        self._server = server
        self._timeout = to_seconds(timeout, "timeout")
        self._first_pause = first_pause

    @classmethod
    async def all_of(
        cls, server: McpServer, *, prefix: str | None = None, connect_timeout: Duration = 15.0
    ) -> list[Self]:
        """Connect once to ask which tools there are, and return them all.

        Raises:
            McpError: The server can't be reached, or is none.
        """
        async with mcp_tools(server, prefix=prefix, connect_timeout=connect_timeout) as tools:
            return [
                cls(server, tool.listed, name=tool.definition.name, connect_timeout=connect_timeout) for tool in tools
            ]

    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Connect, call and close, as often as it takes."""
        try:
            return await self._try_call(arguments, context)
        except _PassingError as error:
            failure = error
        try:
            return await run_again(
                lambda _: self._try_call(arguments, context),
                failure,
                retries=_TRIES - 1,
                is_worth_it=lambda error: isinstance(error, _PassingError),
                pause=lambda retry, _: backoff_pause(retry, initial=self._first_pause, longest=_LONGEST_TRY_PAUSE),
            )
        except _PassingError as error:
            raise ToolFailedError(f"The call of the MCP server failed after {_TRIES} attempts: {error}") from None

    async def _try_call(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Connect, call and close.

        Raises:
            ToolFailedError: It failed for good.
            _PassingError: Another try may help, and does no harm.
        """
        is_under_way = False
        try:
            server = self._server
            if isinstance(server, HttpServer):
                server = await server.for_context(context.state)
            async with McpSession(server, self._settings) as session:
                is_under_way = True
                with anyio.fail_after(self._timeout):
                    return await self.call_in(session, arguments, context)
        except TimeoutError:
            failure = f"MCP tool '{self.definition.name}' timed out after {self._timeout:g} seconds."
            may_repeat = self.options.idempotent
        except ToolFailedError as error:
            failure = error.message
            may_repeat = self.options.idempotent and isinstance(error.__cause__, McpConnectionError)
        except McpError as error:
            failure = str(error)
            may_repeat = isinstance(error, McpConnectionError)
        if may_repeat:
            raise _PassingError(failure)
        after = " It may have taken effect." if is_under_way and "taken effect" not in failure else ""
        raise ToolFailedError(f"{failure}{after}")
