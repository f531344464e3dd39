"""What the views of a loop, its parts and other generics are to checkers: checked by pyright and mypy, never run."""

from collections.abc import AsyncIterator
from typing import Any, Literal, assert_type

from tests.typing.contexts import Admin, App, for_app, plain
from toolkit import (
    AnswerFormat,
    Completed,
    Failed,
    FunctionTool,
    Tool,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    UserMessage,
    Yielded,
    tool_from_schema,
    tool_from_schema_with_ctx,
    tool_loop_channel,
    tool_loop_stream,
)
from toolkit.agents import sub_agent_tool
from toolkit.conversations import Conversations, ConversationTurn
from toolkit.durable import DurableRun, DurableRuns, durable_loop
from toolkit.events import EventListener, LoopEvent, ToolExecutionEnd, ToolExecutionStart, listener
from toolkit.parsing import ToolUsage
from toolkit.testing import ScriptedProvider

simple = ToolRegistry([plain])
registry = ToolRegistry[App]([plain, for_app])
typed = ToolLoopConfig(answer=AnswerFormat(int))


assert_type(ToolLoopConfig(), ToolLoopConfig[None])
assert_type(ToolLoopConfig(answer=AnswerFormat(App | Admin)), ToolLoopConfig[App | Admin])
assert_type(ToolLoopConfig(answer=AnswerFormat(Literal["yes", "no"])), ToolLoopConfig[Literal["yes", "no"]])
assert_type(ToolLoopConfig(answer=AnswerFormat(list[App] | None)), ToolLoopConfig[list[App] | None])


def take_end(event: ToolExecutionEnd) -> None: ...


async def take_call(event: ToolExecutionStart | ToolExecutionEnd) -> None: ...


def take_all(event: LoopEvent) -> None: ...


assert_type(listener(ToolExecutionEnd, take_end), EventListener[ToolExecutionEnd])
ToolLoopConfig(on_event=listener(ToolExecutionEnd, take_end))
ToolLoopConfig(on_event=listener(ToolExecutionStart | ToolExecutionEnd, take_call))
ToolLoopConfig(on_event=listener(ToolExecutionEnd, take_all))
listener(ToolExecutionEnd, lambda event: print(event.duration))
listener(ToolExecutionStart, take_end)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def check(answer: App) -> Admin:
    raise NotImplementedError


async def check_with_ctx(ctx: App, answer: App) -> Admin:
    raise NotImplementedError


def end_as_app(name: str) -> App:
    raise NotImplementedError


async def end_as_admin(name: str) -> Admin:
    raise NotImplementedError


assert_type(AnswerFormat(), AnswerFormat[None])
assert_type(AnswerFormat(App, check=check), AnswerFormat[Admin])
assert_type(AnswerFormat(App, check=check_with_ctx, mode="native"), AnswerFormat[Admin])
assert_type(AnswerFormat(list[App], keep_valid=True), AnswerFormat[list[App]])
assert_type(AnswerFormat([end_as_app]), AnswerFormat[App])
assert_type(AnswerFormat([end_as_admin]), AnswerFormat[Admin])
# Pyright infers the union by itself; mypy needs it to be written.
endings = AnswerFormat[App | Admin]([end_as_app, end_as_admin])
assert_type(ToolLoopConfig(answer=endings), ToolLoopConfig[App | Admin])
AnswerFormat([end_as_app], mode="native")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
AnswerFormat(int, check=check)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def durable(runs: DurableRuns, run_id: str) -> None:
    loop = durable_loop("typed", provider=ScriptedProvider([]), registry=simple, config=typed)
    assert_type(await runs.start(loop, "go"), DurableRun[int])
    assert_type(await (await runs.get(run_id, loop)).result(), ToolLoopResult[int])
    assert_type(await runs.get(run_id), DurableRun[Any])


async def conversations(kept: Conversations, provider: ScriptedProvider) -> None:
    async with kept.turn("ada", ctx=App()) as turn:
        assert_type(turn, ConversationTurn[App])
        assert_type(await turn.run(provider, registry, "go", config=typed), ToolLoopResult[int])
        stream = turn.stream(provider, registry, decisions={"call": True}, config=typed)
        assert_type(stream.result, ToolLoopResult[int])
        async for event in stream:
            assert_type(event, LoopEvent)
    async with kept.turn("ada") as plain_turn:
        assert_type(plain_turn, ConversationTurn[object])
        assert_type(await plain_turn.run(provider, simple, "go"), ToolLoopResult[None])
        plain_turn.stream(provider, registry, "go")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def outputs(result: ToolLoopResult[App | Admin], plain_result: ToolLoopResult) -> None:
    assert_type(result.output, App | Admin | None)
    assert_type(result.require_output(), App | Admin)
    assert_type(plain_result.output, None)


async def handles(provider: ScriptedProvider) -> None:
    handle = ToolLoopHandle(provider, registry, "go", ctx=App(), config=typed)
    assert_type(handle, ToolLoopHandle[App, int])
    assert_type(handle.into_result(), ToolLoopResult[int])
    turn = await handle.next_turn()
    match turn:
        case Yielded():
            assert_type(turn.assistant_text, str | None)
            # A message is edited by putting another in its place.
            turn.messages[0] = UserMessage("hidden")
            turn.messages[0].content = "hidden"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
            turn.tool_calls[0].arguments = "{}"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
            turn.results[0].is_error = False  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        case Completed():
            assert_type(turn.result.output, int | None)
        case Failed():
            assert_type(turn.error, Exception)
    assert_type(ToolLoopHandle(provider, simple, "go"), ToolLoopHandle[object, None])
    assert_type(
        ToolLoopHandle.restore(handle.snapshot(), provider, registry, ctx=App(), config=typed),
        ToolLoopHandle[App, int],
    )


async def streams(provider: ScriptedProvider) -> None:
    async with tool_loop_stream(provider, registry, "go", ctx=App()) as events:
        iterator: AsyncIterator[LoopEvent] = aiter(events)
        assert_type(await anext(iterator), LoopEvent)
        assert_type(events.result, ToolLoopResult[None])
    # A partial answer is of the type of the answer, and lacks what has not come.
    parts = tool_loop_stream(provider, simple, "go", config=ToolLoopConfig(answer=AnswerFormat(App)))
    assert_type([each async for each in parts.partial_answers()], list[App])
    # Of a tool whose result is the answer, the config has the type.
    by_tool = await ToolLoopHandle(provider, simple, "go", config=ToolLoopConfig[App](max_iterations=3)).run()
    assert_type(by_tool.output, App | None)
    async with tool_loop_channel(provider, registry, "go", ctx=App(), config=typed) as (events, task):
        assert_type(await task.result(), ToolLoopResult[int])
    tool_loop_stream(provider, registry, "go")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tool_loop_channel(provider, registry, "go")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# The envelope of a narrower context is one of the wider.
def narrowed(context: ToolContext[Admin]) -> ToolContext[App]:
    return context


def widened(context: ToolContext[App]) -> ToolContext[Admin]:
    return context  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def greet(context: ToolContext[App], arguments: dict[str, Any]) -> str:
    return context.state.user + str(arguments)


raw = tool_from_schema("raw", "Count.", {"type": "object"}, len)
assert_type(raw, FunctionTool[object, [dict[str, Any]], int])
raw_for_app = tool_from_schema_with_ctx("greet", "Greet.", {"type": "object"}, greet)
fits_app: Tool[App] = raw_for_app
needs_app: Tool[object] = raw_for_app  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

# An agent needs what its tools need.
agent = sub_agent_tool("clerk", "Works.", ScriptedProvider([]), registry, "Be brief.")
ToolRegistry[App]([agent])
ToolRegistry[Admin]([agent])
ToolRegistry[object]([agent])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

assert_type(ToolUsage(registry, ctx=App()), ToolUsage[App])
assert_type(ToolUsage([plain]), ToolUsage[object])
