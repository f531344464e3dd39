"""Agents as tools: loops inside tools, delegation to coworkers, and tools for images and input files.

A sub-agent works on a task with its own model, prompt and tools, and returns its answer. It never has more rights than
its caller: its requests, calls and tokens count towards the limits of the enclosing loops, its depth is theirs plus
one, and it is cancelled with them. A failure becomes an error result, and an answer that a limit cut short says so.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, cast

import anyio
from pydantic import AliasChoices, Field
from typing_extensions import Unpack

from toolkit.calls.approval import ChildWaitsError, WaitingChild
from toolkit.calls.context import ToolContext
from toolkit.calls.events import ToolExecutionStart, ToolExecutionUpdate, ToolProgress
from toolkit.calls.policy import Caller
from toolkit.calls.registration import Ctx, ToolOptionKeywords
from toolkit.chat import (
    AudioBlock,
    ChatRequest,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    Provider,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    UserMessage,
    is_untrusted,
)
from toolkit.chat.output import ToolOutput, to_output, words_of
from toolkit.dataclass import dataclass
from toolkit.errors import (
    ConfigurationError,
    InvalidArgumentsError,
    LoopUsageError,
    ToolCancelledError,
    ToolError,
    ToolkitError,
)
from toolkit.logs import get_logger
from toolkit.loop.config import DEFAULT_CONFIG, SystemPrompt, ToolLoopConfig, check_parts
from toolkit.loop.events import Done, Failed, LoopEvent, SubAgentEvent
from toolkit.loop.handle import EventStream, ToolLoopHandle
from toolkit.loop.limits import SubAgentSeat, find_frame, sub_agent_seat
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
    LoopDetected,
    MaxIterations,
    MissingSteps,
    NoValidAnswer,
    ResultAsAnswer,
    StopCondition,
    Timeout,
    ToolLoopResult,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)
from toolkit.settings import check_fields, check_setting
from toolkit.tools.decorators import tool_from_function, tool_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.registry import ToolRegistry

__all__ = [
    "SubAgent",
    "SubAgentEvent",
    "SubAgentRun",
    "add_image",
    "coworker_tools",
    "read_input_file",
    "sub_agent_tool",
]

_logger = get_logger("toolkit.agents")

SUB_AGENT_TAG = "sub_agent"
"""Every tool that runs a loop has this tag."""


@dataclass(frozen=True, slots=True)
class SubAgentRun:
    """The outcome of a sub-agent, in the `details` of its output, which no model reads.

    Args:
        sub_agent: The sub-agent's name.
        loop_id: The id of its run.
        result: Its transcript, usage and reason for ending; None if it failed or was abandoned.
        error: The exception that ended it.
        messages: Its transcript, even if it failed.
    """

    sub_agent: str
    loop_id: str
    result: ToolLoopResult[Any] | None
    error: Exception | None = None
    messages: tuple[Message, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgent(Generic[Ctx]):
    """A model with its own prompt, tools and limits; each run starts with a fresh transcript.

    Args:
        name: Its name in events and errors.
        provider: Its model.
        registry: The tools that it may call.
        system_prompt: Its system prompt, or a function of the context that returns it; empty for none.
        config: Its limits and hooks; None takes the defaults, which deny calls that need approval.
        request: Settings of its requests, such as ``reasoning_effort``; messages in it come after the system prompt.
        allow_sub_agents: True if it may run sub-agents itself.
        approvals: The guards that decide on its calls. ``caller`` asks its own guards and then those of the calling
            loop: permissions, `Middleware.guard_call` and `on_tool_call`, which receives its name and ``loop_id``; so
            it has no more rights than its caller. ``own`` asks only its own guards.
    """

    name: str
    provider: Provider
    registry: ToolRegistry[Ctx]
    system_prompt: SystemPrompt[Ctx] = ""
    config: ToolLoopConfig[Any] | None = None
    request: ChatRequest | None = None
    allow_sub_agents: bool = False
    approvals: Literal["caller", "own"] = "caller"

    def __post_init__(self) -> None:
        check_parts(self.provider, self.registry, "", self.config)
        check_fields(self)
        inner = self.registry.tagged(SUB_AGENT_TAG).names
        if inner and not self.allow_sub_agents:
            raise ConfigurationError(
                f"sub-agent '{self.name}' has sub-agents among its tools ({', '.join(inner)}): take them out with "
                "registry.without(...), or pass allow_sub_agents=True"
            )

    async def run(self, context: ToolContext[Ctx], task: str) -> ToolOutput:
        """Work on a task, and return the answer or an error with the reason why there is none.

        The usage counts towards the enclosing loop, and each event is emitted as an update of the call.
        """
        if not task.strip():
            return ToolOutput.error("The task is empty: say what is to be done, with all that has to be known for it.")
        can_wait = _can_wait(context)
        try:
            handle = await self._make_handle(context, task, can_wait=can_wait)
        except LoopUsageError as error:
            _logger.exception("sub-agent %s can't go on", self.name)
            return ToolOutput.error(f"Sub-agent '{self.name}' can't go on: {_describe_for_model(error)}")
        try:
            if context.is_observed:
                await self._relay_events(context, handle)
            return self._make_output(await handle.run(), handle.loop_id, can_wait=can_wait)
        except Exception as error:
            _logger.exception("sub-agent %s failed", self.name)
            return ToolOutput(
                f"Sub-agent '{self.name}' failed: {_describe_for_model(error)}",
                is_error=True,
                details=SubAgentRun(self.name, handle.loop_id, None, error=error, messages=tuple(handle.messages)),
                child_loop_id=handle.loop_id,
            )
        finally:
            # Emitted here because a cancelled call returns no output.
            left = SubAgentRun(self.name, handle.loop_id, None, messages=tuple(handle.messages))
            context.left_by_child = (handle.loop_id, left)

    async def _make_handle(self, context: ToolContext[Ctx], task: str, *, can_wait: bool) -> ToolLoopHandle[Ctx, Any]:
        """Return a new loop, or the restored loop that awaited decisions in this call, with the decisions.

        Raises:
            LoopUsageError: The loop can't be restored.
        """
        config, scope, handle = self.config or DEFAULT_CONFIG, self._make_scope(), None
        children = None if context.memory is None else context.memory.children
        child = children.pop(context.call_id, None) if children else None
        seat = sub_agent_seat.set(SubAgentSeat(self.name, self._find_caller(context, can_wait=can_wait), can_wait))
        try:
            if child is None or child.agent != self.name:
                request = self._make_request(task)
                prompt = "" if isinstance(self.system_prompt, str) else self.system_prompt
                return ToolLoopHandle(
                    self.provider, scope, request, ctx=context.state, config=config, system_prompt=prompt
                )
            handle = ToolLoopHandle.restore(child.snapshot, self.provider, scope, ctx=context.state, config=config)
        finally:
            sub_agent_seat.reset(seat)
        for each in child.decisions:
            try:
                await handle.decide(each.call_id, each.read(), binding=each.binding)
            except LoopUsageError as error:
                _logger.warning("a decision for sub-agent %s is not taken: %s", self.name, error)
        return handle

    async def _relay_events(self, context: ToolContext[Ctx], handle: ToolLoopHandle[Ctx, Any]) -> None:
        """Run the loop, forwarding each event before the next."""
        has_ended = False
        async with handle.stream() as events:
            try:
                async for event in events:
                    details = SubAgentEvent(self.name, handle.loop_id, event)
                    if isinstance(event, ToolProgress):
                        await context.deliver_progress(f"{self.name}: {event.text}", details=details)
                    else:
                        await context.deliver_update(ToolOutput(_show_event(self.name, event), details=details))
                    has_ended = isinstance(event, (Done, Failed))
            finally:
                if not has_ended:
                    await self._emit_end(context, handle, events)

    async def _emit_end(
        self, context: ToolContext[Ctx], handle: ToolLoopHandle[Ctx, Any], events: EventStream[Any]
    ) -> None:
        """End a run whose caller was cancelled, and emit its last event without waiting for the reader."""
        handle.cancel()
        with anyio.CancelScope(shield=True):
            try:
                async for event in events:
                    details = SubAgentEvent(self.name, handle.loop_id, event)
                    context.report_update(ToolOutput(_show_event(self.name, event), details=details))
            except Exception:
                _logger.exception("sub-agent %s failed while it was cancelled", self.name)

    def _find_caller(self, context: ToolContext[Ctx], *, can_wait: bool) -> Caller | None:
        if self.approvals == "own" or context.policy is None or context.scope is None:
            return None
        frame = find_frame()
        abort = None if frame is None else frame.stop
        return Caller(policy=context.policy, scope=context.scope, abort=abort, can_wait=can_wait)

    def _make_scope(self) -> ToolRegistry[Ctx]:
        if self.allow_sub_agents or not self.registry.tagged(SUB_AGENT_TAG):
            return self.registry
        return self.registry.where(lambda registration: SUB_AGENT_TAG not in registration.options.tags)

    def _make_request(self, task: str) -> ChatRequest:
        request = self.request or ChatRequest(messages=())
        text = self.system_prompt if isinstance(self.system_prompt, str) else ""
        prompt: list[Message] = [SystemMessage(text)] if text else []
        return replace(request, messages=[*prompt, *request.messages, UserMessage(task)])

    def _make_output(self, result: ToolLoopResult[Any], loop_id: str, *, can_wait: bool) -> ToolOutput:
        """Return the output of a finished run.

        Raises:
            ChildWaitsError: The run awaits decisions, and `can_wait` is True.
        """
        if can_wait and isinstance(result.reason, AwaitingApproval) and result.snapshot is not None:
            raise ChildWaitsError(
                WaitingChild(agent=self.name, loop_id=loop_id, calls=result.reason.calls, snapshot=result.snapshot)
            )
        output = ToolOutput(result.text) if result.output is None else to_output(result.output)
        has_text = bool(output.text.strip())
        notice, is_error = _judge_result(self.name, result)
        parts = [output.text if has_text else "", f"[{notice}]" if notice else ""]
        text = "\n\n".join([part for part in parts if part])
        return ToolOutput(
            text or f"(sub-agent '{self.name}' said nothing)",
            is_error=is_error or (bool(notice) and not has_text),
            details=SubAgentRun(self.name, loop_id, result, messages=tuple(result.messages)),
            child_loop_id=loop_id,
            trust="untrusted" if any(map(is_untrusted, result.messages)) else None,
        )


def sub_agent_tool(
    name: str,
    description: str,
    provider: Provider,
    registry: ToolRegistry[Ctx],
    system_prompt: SystemPrompt[Ctx] = "",
    config: ToolLoopConfig[Any] | None = None,
    *,
    request: ChatRequest | None = None,
    allow_sub_agents: bool = False,
    approvals: Literal["caller", "own"] = "caller",
    **options: Unpack[ToolOptionKeywords],
) -> FunctionTool[Ctx, [ToolContext[Ctx], str], Any]:
    """Return a tool that passes a task to a separate model and returns the answer.

    ::

        research = sub_agent_tool("research", "Find facts.", provider, tools.only(["search"]), "You find facts.")

    Each call starts with a fresh transcript, so the task must contain all necessary information. Events are emitted as
    updates of the call (`SubAgentEvent`), and the output has the final state (`SubAgentRun`) in its `details`.

    Args:
        name: The name that the caller's model sees.
        description: The description that the caller's model sees; empty for a sentence with the name.
        provider: The provider of the sub-agent's model.
        registry: The tools that it may call.
        system_prompt: Its system prompt, or a function of the context that returns it.
        config: Its limits and hooks; see `ToolLoopConfig`.
        request: Settings of its requests, such as ``reasoning_effort``.
        allow_sub_agents: True if it may run sub-agents itself, within the limit of the depth of all loops.
        approvals: The guards that decide on its calls; see `SubAgent`.
        options: The options of the tool itself; see `ToolOptions`.

    Raises:
        ConfigurationError: The registry has sub-agents, and `allow_sub_agents` is False.
    """
    agent = SubAgent(
        name=name,
        provider=provider,
        registry=registry,
        system_prompt=system_prompt,
        config=config,
        request=request,
        allow_sub_agents=allow_sub_agents,
        approvals=approvals,
    )
    return _make_agent_tool(agent, description, options)


def _make_agent_tool(
    agent: SubAgent[Ctx], description: str, options: ToolOptionKeywords
) -> FunctionTool[Ctx, [ToolContext[Ctx], str], Any]:
    async def run(
        context: ToolContext[Ctx], task: Annotated[str, Field(validation_alias=AliasChoices("task", "prompt"))]
    ) -> ToolOutput:
        """Hand over a task.

        Args:
            context: Of the call.
            task: The work to do, with everything that is needed for it: nothing else of the conversation is visible.
        """
        return await agent.run(context, task)

    options["tags"] = frozenset({SUB_AGENT_TAG, *options.get("tags", ())})
    options.setdefault("on_crash", "resume")
    words = description or f"Delegate a task to the '{agent.name}' sub-agent."
    made = tool_with_ctx(name=agent.name, description=words, **options)
    agent_tool = cast("FunctionTool[Ctx, [ToolContext[Ctx], str], Any]", made(run))
    agent_tool.inner_registries = (agent.registry,)
    return agent_tool


def _show_event(name: str, event: LoopEvent) -> str:
    match event:
        case TextDelta():
            return event.text
        case ToolExecutionStart():
            return f"[{name} calls {event.tool_name}]"
        case ToolExecutionUpdate():
            return event.output.text
        case _:
            return ""


def _describe_for_model(error: Exception) -> str:
    words = error.model_text if isinstance(error, ToolkitError) else words_of(error)
    return words or type(error).__name__


def _can_wait(context: ToolContext[Any]) -> bool:
    """Return True if a sub-agent may await decisions in a call, which is repeated once they are made.

    So the call must only run this sub-agent, or do nothing that must not happen twice, in a loop that can be saved.
    """
    memory, scope = context.memory, context.scope
    if memory is None or memory.children is None or scope is None or context.left_by_child[0] is not None:
        return False
    registration = scope.registrations.get(context.tool_name)
    if registration is None:
        return False
    return bool(getattr(registration.tool, "inner_registries", ())) or registration.options.after_crash != "tell"


def _judge_result(name: str, result: ToolLoopResult[Any]) -> tuple[str, bool]:
    """Return a note on the ending for the caller's model, and True if the task failed."""
    match result.reason:
        case Complete() | ResultAsAnswer() | TypedAnswer():
            return (f"Sub-agent '{name}': {result.cut_notice}" if result.cut_notice else ""), False
        case Cancelled():
            raise ToolCancelledError
        case StopCondition() | MaxIterations() | Timeout() | UsageLimit() as stop:
            words = _describe_stop(stop)
            return (f"Sub-agent '{name}' was stopped{words}" if words else ""), False
        case failure:
            return f"Sub-agent '{name}' {_describe_failure(failure)}", True


def _describe_stop(stop: StopCondition | MaxIterations | Timeout | UsageLimit) -> str:
    match stop:
        case StopCondition(reason):
            return f": {reason}" if reason else ""
        case MaxIterations(limit):
            return f" after {limit} turns: this may be incomplete"
        case Timeout(limit):
            return f" after {limit:g} s: this may be incomplete"
        case UsageLimit(limit, maximum):
            return f" by the limit of {maximum:g} {limit.replace('_', ' ')}: this may be incomplete"


def _describe_failure(
    failure: NoValidAnswer | MissingSteps | LoopDetected | Aborted | AwaitingApproval | UnansweredItems,
) -> str:
    match failure:
        case NoValidAnswer():
            return "failed: its answer is not of the type that was asked for"
        case MissingSteps(names):
            return f"failed: it answered without calling {', then '.join(names)}"
        case LoopDetected():
            return f"failed: it repeated {failure.tool_name} without getting further"
        case Aborted(reason):
            return f"was aborted: {reason}"
        case AwaitingApproval(calls):
            return f"can't go on: {_join_tool_names(calls)} needs an approval that nobody can give here"
        case UnansweredItems(items):
            kinds = ", ".join(dict.fromkeys(item.kind for item in items))
            return f"can't go on: its model asks for what nobody here can give ({kinds})"


def _join_tool_names(calls: tuple[ToolCall, ...]) -> str:
    return ", ".join(dict.fromkeys(call.name for call in calls))


_Name = Annotated[
    str,
    Field(description="The coworker, by name.", validation_alias=AliasChoices("coworker", "co_worker")),
]
_KNOWS_NOTHING = "They know nothing of your work, so tell them everything: don't refer to things, explain them."


def coworker_tools(
    coworkers: Iterable[SubAgent[Ctx]], **options: Unpack[ToolOptionKeywords]
) -> list[FunctionTool[Ctx, ..., Any]]:
    """Return the tools ``delegate_work`` and ``ask_question`` over these coworkers.

    ::

        clerk = SubAgent(name="clerk", provider=provider, registry=files, system_prompt="You know the files.")
        team = ToolRegistry(coworker_tools([clerk]))

    Names are matched ignoring case, spaces and quotes, and of a list in brackets the first one counts. The error for
    an unknown name lists all coworkers.

    Args:
        coworkers: At least one coworker; its name is its role.
        options: The options of both tools; see `ToolOptions`.

    Raises:
        ConfigurationError: There is no coworker, or two have the same name.
    """
    team = list(coworkers)
    for coworker in team:
        check_setting("a coworker", coworker, SubAgent)
    names = ", ".join(coworker.name for coworker in team)
    by_name = {_normalize_name(coworker.name): coworker for coworker in team}
    if not team:
        raise ConfigurationError("coworker_tools needs at least one coworker")
    if len(by_name) < len(team):
        raise ConfigurationError(f"two coworkers have one name: {names}")

    async def delegate_work(
        ctx: ToolContext[Ctx],
        task: Annotated[str, Field(description="What is to be done.")],
        context: Annotated[str, Field(description="All that has to be known for it.")],
        coworker: _Name,
    ) -> ToolOutput:
        return await _ask_coworker(ctx, by_name, coworker, task, context)

    async def ask_question(
        ctx: ToolContext[Ctx],
        question: Annotated[str, Field(description="What you want to know.")],
        context: Annotated[str, Field(description="All that has to be known to answer.")],
        coworker: _Name,
    ) -> ToolOutput:
        return await _ask_coworker(ctx, by_name, coworker, question, context)

    options["tags"] = frozenset({SUB_AGENT_TAG, *options.get("tags", ())})
    options.setdefault("on_crash", "resume")
    descriptions: Sequence[tuple[Any, str]] = (
        (delegate_work, f"Hand a task to one of these coworkers: {names}. {_KNOWS_NOTHING}"),
        (ask_question, f"Ask one of these coworkers a question: {names}. {_KNOWS_NOTHING}"),
    )
    tools = [
        cast("FunctionTool[Ctx, ..., Any]", tool_with_ctx(description=description, **options)(function))
        for function, description in descriptions
    ]
    for made in tools:
        made.inner_registries = tuple(coworker.registry for coworker in team)
    return tools


async def _ask_coworker(
    ctx: ToolContext[Ctx], by_name: dict[str, SubAgent[Ctx]], coworker: str, task: str, context: str
) -> ToolOutput:
    asked = by_name.get(_normalize_name(coworker))
    if asked is None:
        options = "\n".join(f"- {name}" for name in by_name)
        raise ToolError(f"There is no coworker '{coworker}'. It must be one of these:\n{options}")
    output = await asked.run(ctx, f"{task}\n\nWhat you have to know for it:\n{context}" if context.strip() else task)
    if isinstance(output.details, SubAgentRun) and output.details.error is not None:
        return replace(output, content=f"The coworker '{asked.name}' could not do it. {output.text}")
    return output


def _normalize_name(name: str) -> str:
    """Return a coworker's name without the decoration that models add: ``[Writer, "Editor"]`` becomes ``writer``."""
    name = name.strip()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1].split(",", maxsplit=1)[0]
    return " ".join(name.replace('"', "").split()).strip("' ").casefold()


_WHAT_TO_DO = "Describe what the image shows, with every detail that matters."


def add_image() -> FunctionTool[object, ..., Any]:
    """Return the tool ``add_image``, whose output is an image that the model sees in its next turn.

    The argument is an ``http`` or ``https`` URL, which the provider fetches and not this process, or a ``data:`` URL,
    which is decoded here.
    """

    def add_image(
        image_url: Annotated[str, Field(description="Where the image is: an http or https URL, or a data: URL.")],
        action: Annotated[str, Field(description="What is to be done with the image.")] = _WHAT_TO_DO,
    ) -> list[TextBlock | ImageBlock]:
        """Look at an image."""
        return [TextBlock(action), _read_image(image_url.strip())]

    return tool_from_function(add_image, tags={"read"}, run_in_thread=False)


def _read_image(url: str) -> ImageBlock:
    scheme, _, rest = url.partition(":")
    if scheme.lower() in ("http", "https") and re.fullmatch(r"//([^][/\s]|\[[\da-fA-F:.]+\])\S*", rest):
        return ImageBlock(url=url)
    if scheme.lower() != "data":
        raise InvalidArgumentsError(
            f"image_url: '{url[:80]}' is no URL of an image. Give one that begins with https://, http:// or data:image."
        )
    head, _, body = rest.partition(",")
    media_type, *parameters = head.lower().split(";")
    if not media_type.startswith("image/") or parameters[-1:] != ["base64"] or not body:
        raise InvalidArgumentsError("image_url: a data: URL of an image begins with data:image/png;base64, or alike.")
    try:
        return ImageBlock(base64.b64decode(body, validate=True), media_type=media_type)
    except binascii.Error as error:
        raise InvalidArgumentsError(f"image_url: what follows the comma is not base64 ({error}).") from error


_TEXT_TYPES = frozenset({
    "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
    "application/javascript", "application/x-sh", "application/sql",
})  # fmt: skip
_MOST_FILE_BYTES = 20 * 1024 * 1024


def read_input_file(files: Mapping[str, bytes | str | Path | FileBlock]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_input_file``, which reads only these files.

    Text becomes text, images and audio become blocks of their kind, and anything else a file block.

    Args:
        files: Bytes, text, a path or a block for each name that the model may use. The mapping is read in each call, so
            files can be added later. The limit is 20 MB per file.
    """

    def read_input_file(
        file_name: Annotated[str, Field(description="The name of the file.")],
    ) -> str | list[ContentBlock]:
        """Read one of the user's files."""
        if not files:
            raise ToolError("No input files are there.")
        if file_name not in files:
            raise ToolError(f"There is no file '{file_name}'. These are there: {', '.join(files)}.")
        return _make_blocks(file_name, _read_content(file_name, files[file_name]))

    return tool_from_function(read_input_file, tags={"read"}, cache=False)


def _read_content(name: str, file: bytes | str | Path | FileBlock) -> bytes | str | FileBlock:
    if not isinstance(file, Path):
        return file
    try:
        size = file.stat().st_size
        if size > _MOST_FILE_BYTES:
            raise ToolError(f"The file has {size:,} bytes, and at most {_MOST_FILE_BYTES:,} can be read.")
        return file.read_bytes()
    except OSError as error:
        raise ToolError(f"The file '{name}' can't be read: {error.strerror or type(error).__name__}.") from error


def _make_blocks(name: str, file: bytes | str | FileBlock) -> str | list[ContentBlock]:
    if isinstance(file, str):
        return file
    if isinstance(file, FileBlock):
        if file.data is None:
            return [file]
        media_type, data = file.media_type, file.data
    else:
        media_type, data = mimetypes.guess_type(name)[0] or "", file
    if not media_type or media_type.startswith("text/") or media_type in _TEXT_TYPES:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass  # not text, in spite of its name: passed on as a file
    if media_type.startswith("image/"):
        return [ImageBlock(data, media_type=media_type)]
    if media_type.startswith("audio/"):
        return [AudioBlock(data, media_type=media_type)]
    return [FileBlock(data, name=name, media_type=media_type or "application/octet-stream")]
