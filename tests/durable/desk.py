"""The loop that the tests of durable runs use: what its model says is a function of the transcript alone.

A prompt is a list of words, one for each turn: ``add`` calls a tool, ``refund`` one that asks for approval, ``wait``
one that ends when the test says so, ``slow`` one that takes a moment, ``pair`` two of those at once, ``both`` two
refunds at once, ``fail`` is a server that is broken; then it answers. ``helper`` is a sub-agent that takes two
moments, ``clerk`` one that takes a moment and gives a refund, ``think`` a reply that comes when the test says so.
"""

import json
import os
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from toolkit import (
    AssistantMessage,
    LoopLimits,
    Middleware,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    UsageLimits,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatRequest, ChatResponse, Message, Usage
from toolkit.durable import DurableLoop, LoopQueue, RunPlace, durable_loop
from toolkit.errors import ProviderError
from toolkit.policies import CallInfo, RunInfo
from toolkit.testing import FunctionProvider


class Desk:
    """What the tools work on: a file with a line for each thing that they did, and files that say what may go on."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id

    def note(self, text: str) -> None:
        file = os.open(self.folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, f"{self.run_id} {text}\n".encode())
        finally:
            os.close(file)


def read_notes(folder: Path, run_id: str) -> list[str]:
    """Return what the tools of a run did."""
    notes = folder / "notes"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == run_id]


@tool_with_ctx
async def add(context: ToolContext[Desk], n: int) -> str:
    """Add something."""
    context.state.note(f"add {context.call_id}")
    return f"added {n}"


@tool_with_ctx
async def slow(context: ToolContext[Desk]) -> str:
    """Take a moment."""
    context.state.note(f"slow {context.call_id}")
    await anyio.sleep(0.03)
    context.state.note(f"ended {context.call_id}")
    return f"slept {context.state.run_id}/{context.call_id}"


@tool_with_ctx(requires_approval=True)
async def refund(context: ToolContext[Desk], n: int) -> str:
    """Give money back."""
    context.state.note(f"refund {context.call_id} {n}")
    return f"refunded {n}"


@tool_with_ctx
async def wait(context: ToolContext[Desk]) -> str:
    """Wait until there is a file."""
    desk = context.state
    desk.note(f"wait {context.call_id}")
    try:
        while not (desk.folder / f"go-{desk.run_id}").exists():  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.01)
    except BaseException as error:
        desk.note(f"told {context.call_id} {type(error).__name__}")
        raise
    return "waited"


def find_words(messages: Sequence[Message]) -> list[str]:
    """Return what the user has said, word by word."""
    return " ".join(message.text for message in messages if message.role == "user").split()


def say_number(n: int) -> str:
    return json.dumps({"n": n})


async def think(folder: Path | None) -> str:
    """Think until there is a file."""
    assert folder is not None
    (folder / "thinking").touch()
    while not (folder / "thought").exists():  # noqa: ASYNC110 - of another process
        await anyio.sleep(0.01)
    return "I have thought."


def reply(request: ChatRequest, folder: Path | None = None) -> str | ToolCall | AssistantMessage | Awaitable[str]:
    """Return what the model says to a transcript."""
    turn = sum(message.role == "assistant" for message in request.messages)
    words = find_words(request.messages)
    word = words[turn] if turn < len(words) else "end"
    match word:
        case "pair":
            return AssistantMessage([ToolCall(f"c{turn}.{each}", "slow", "{}") for each in range(2)])
        case "think":
            return think(folder)
        case "helper":
            return ToolCall(f"c{turn}", "helper", '{"task": "help"}')
        case "clerk":
            return ToolCall(f"c{turn}", "clerk", f'{{"task": "c{turn}"}}')
        case "add" | "wait" | "slow":
            return ToolCall(f"c{turn}", word, say_number(turn) if word == "add" else "{}")
        case "refund":
            return ToolCall(f"c{turn}", "refund", say_number(turn))
        case "both":
            calls = [ToolCall(f"c{turn}.{each}", "refund", say_number(each)) for each in range(2)]
            return AssistantMessage(calls)
        case "fail":
            if folder is not None and (folder / "mended").exists():
                return ToolCall(f"c{turn}", "add", say_number(turn))
            raise ProviderError("desk", "the server is broken")
        case _:
            return f"Done after {turn} turns: {' '.join(words)}."


def help_out(request: ChatRequest) -> str | ToolCall:
    """Return what the model of the sub-agent says: it takes two moments."""
    turn = sum(message.role == "assistant" for message in request.messages)
    return ToolCall(f"h{turn}", "slow", "{}") if turn < 2 else "helped"


def give_back(request: ChatRequest) -> str | AssistantMessage:
    """Return what the model of the sub-agent says that gives money back; the ids of its calls are its task's."""
    task = find_words(request.messages)[0]
    if request.messages[-1].role != "user":
        return "gave back"
    return AssistantMessage([ToolCall(f"{task}.r", "refund", say_number(5)), ToolCall(f"{task}.s", "slow", "{}")])


clerk = sub_agent_tool("clerk", "Give back.", FunctionProvider(give_back), ToolRegistry[Desk]([refund, slow]))
helper = sub_agent_tool("helper", "Help out.", FunctionProvider(help_out), ToolRegistry[Desk]([slow]))


def make_desk(folder: Path, *, name: str = "desk", queue: LoopQueue | None = None) -> DurableLoop[Desk, None]:
    """Return the loop."""

    def make_context(place: RunPlace) -> Desk:
        return Desk(folder, place.run_id)

    return durable_loop(
        name,
        provider=FunctionProvider(lambda request: reply(request, folder)),
        registry=ToolRegistry[Desk]([add, clerk, helper, refund, slow, wait]),
        ctx=make_context,
        queue=queue,
    )


class Tally(Middleware[Desk]):
    """Counts the requests and the calls of a run, also over its rests."""

    name = "tally"

    def __init__(self) -> None:
        self._requests = self._calls = 0

    async def around_request(self, request: Any, proceed: Any) -> Any:
        response = await proceed()
        self._requests += 1
        return response

    async def guard_call(self, call: CallInfo[Desk]) -> None:
        self._calls += 1

    def for_run(self, run: RunInfo[Desk]) -> Middleware[Desk]:
        return Tally()

    def save(self) -> Any:
        return [self._requests, self._calls]

    def load(self, state: Any) -> None:
        self._requests, self._calls = state


def answer(request: ChatRequest) -> ChatResponse:
    """Return what the model of the desk says, with a token for each reply."""
    said = reply(request)
    message = (
        said
        if isinstance(said, AssistantMessage)
        else AssistantMessage([said] if isinstance(said, ToolCall) else str(said))
    )
    return ChatResponse(message=message, usage=Usage(input_tokens=1, output_tokens=1))


def make_tallied(folder: Path, *, name: str = "desk") -> DurableLoop[Desk, None]:
    """Return the loop with a middleware that counts, a token for each reply, and budgets.

    Its workers are killed faster than its calls end on a busy machine: that is no fault of the run.
    """
    config = ToolLoopConfig[None](
        middleware=(Tally(),), limits=LoopLimits(usage=UsageLimits(requests=10_000, tool_calls=10_000))
    )
    return replace(make_desk(folder, name=name), config=config, provider=FunctionProvider(answer), max_lost=None)
