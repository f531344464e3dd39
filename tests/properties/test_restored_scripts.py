"""Random scripts over two levels of sub-agents, saved at every boundary, are those that were never saved.

The servers start their ids anew in each reply, transcripts are compacted, decisions come later or at once, and a retry
waits in vain.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from toolkit import (
    ApprovalRequest,
    Approve,
    AssistantMessage,
    Defer,
    Deny,
    LoopLimits,
    Message,
    Modify,
    OutputLimits,
    ToolCall,
    ToolContext,
    ToolError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    Usage,
    UsageLimits,
    UserMessage,
    Yielded,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatRequest, ChatResponse, dump_messages, validate_transcript
from toolkit.endings import AwaitingApproval
from toolkit.events import (
    Done,
    LoopEvent,
    RunStart,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from toolkit.policies import ResultStore, Sequential, Timeouts
from toolkit.testing import EventCollector, FunctionProvider

LEVELS = ("boss", "clerk", "junior")
NAMES = ("pay", "pay", "look", "book", "read_result", "retry", "clerk", "clerk", "junior", "junior", "nothing")
BOOK = "0123456789" * 50
TURNS = " turns before]"


@dataclass
class Effects:
    """All that tools did, in whichever process."""

    done: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])

    def add(self, context: "ToolContext[Effects]", what: str) -> None:
        self.done.append((context.idempotency_key, what, context.attempt))

    @property
    def counted(self) -> Counter[tuple[str, int]]:
        return Counter([(what, attempt) for _, what, attempt in self.done])


@tool_with_ctx
async def pay(context: ToolContext[Effects], n: int = 1) -> str:
    """Pay."""
    context.state.add(context, f"pay {n}")
    return f"paid {n}"


@tool_with_ctx
async def look(context: ToolContext[Effects]) -> str:
    """Look."""
    context.state.add(context, "look")
    return "seen"


@tool_with_ctx
async def book(context: ToolContext[Effects]) -> str:
    """Read what is cut."""
    context.state.add(context, "book")
    return BOOK


@tool_with_ctx(retry=ToolRetryConfig(max_retries=1, initial_backoff=0, retry_if=lambda _: True), name="retry")
async def retry_in_vain(context: ToolContext[Effects]) -> str:
    """Run once, and wait in vain for the second time."""
    context.state.add(context, "retry")
    if context.attempt > 1:
        with context.waiting_for("the till"):
            await anyio.sleep_forever()
    raise ToolError("no answer")


@dataclass(frozen=True)
class Script:
    """The replies of each level's model, by the number of the turn; after the last it says that it is done."""

    levels: tuple[tuple[tuple[tuple[str, str], ...], ...], ...]
    keeps: int
    tool_calls: int | None

    def reply(self, level: int, request: ChatRequest) -> ChatResponse:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        for message in request.messages:
            if isinstance(message, UserMessage) and message.text.endswith(TURNS):
                turn += int(message.text[1:].partition(" ")[0])
        turns = self.levels[level]
        message = AssistantMessage("done")
        if turn < len(turns) and request.tools:
            message = AssistantMessage([make_call(call_id, name) for call_id, name in turns[turn]])
        return ChatResponse(message=message, usage=Usage(input_tokens=3, output_tokens=2))


ARGUMENTS = {
    "clerk": '{"task": "Go."}',
    "junior": '{"task": "Go."}',
    "pay": '{"n": 5}',
    "read_result": json.dumps({"id": ResultStore().put(BOOK), "start": 490}),
}


def make_call(call_id: str, name: str) -> ToolCall:
    return ToolCall(call_id, name, ARGUMENTS.get(name, "{}"))


def compact(keeps: int, messages: Sequence[Message]) -> list[Message]:
    """Return a transcript of the newest turns, with a word on how many are left out."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if len(starts) <= keeps:
        return list(messages)
    first = starts[-keeps]
    before = sum(
        int(message.text[1:].partition(" ")[0])
        for message in messages
        if isinstance(message, UserMessage) and message.text.endswith(TURNS)
    )
    left_out = before + sum(index < first for index in starts)
    return [messages[0], UserMessage(f"[{left_out}{TURNS}"), *messages[first:]]


REPLIES = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(NAMES)), min_size=1, max_size=3)
SCRIPTS = st.builds(
    Script,
    st.tuples(*[st.lists(REPLIES.map(tuple), max_size=4).map(tuple) for _ in LEVELS]),
    st.sampled_from([1, 2, 9]),
    st.sampled_from([None, None, 4]),
)
ANSWERS: list[Any] = [Approve(), Approve(), Deny("no"), Modify({"n": 7})]


SCRIPT: list[Script] = []
"""The script that is run."""


def find_provider(level: int) -> FunctionProvider:
    return FunctionProvider(lambda request: SCRIPT[-1].reply(level, request))


def make_config(**settings: Any) -> ToolLoopConfig:
    return ToolLoopConfig(
        execution=Sequential(),
        compaction=lambda messages: compact(SCRIPT[-1].keeps, messages),
        output=OutputLimits(max_chars=100),
        timeouts=Timeouts(wait=0.001),
        max_depth=4,
        **settings,
    )


OWN = ToolRegistry[Effects]([pay, look, book, retry_in_vain])
JUNIOR = sub_agent_tool("junior", "Works.", find_provider(2), OWN, config=make_config())
CLERKS = OWN | ToolRegistry[Effects]([JUNIOR])
CLERK = sub_agent_tool("clerk", "Works.", find_provider(1), CLERKS, config=make_config(), allow_sub_agents=True)
TOOLS = OWN | ToolRegistry[Effects]([CLERK])


class World:
    """A script that is run in one go or in pieces."""

    def __init__(self, script: Script, answer: Any, *, defers: bool) -> None:
        self.effects = Effects()
        self.script = script
        self.answer = answer
        self.defers = defers
        self.provider = find_provider(0)

    def decide(self, request: ApprovalRequest) -> Any:
        if request.tool_name != "pay":
            return Approve()
        return Defer() if self.defers else self.answer

    def config(self, on_event: Any = None) -> ToolLoopConfig:
        usage = None if self.script.tool_calls is None else UsageLimits(tool_calls=self.script.tool_calls)
        return make_config(on_tool_call=self.decide, on_event=on_event, limits=LoopLimits(usage=usage))

    async def run_at_once(self) -> ToolLoopResult[Any]:
        return await ToolLoopHandle(self.provider, TOOLS, "Go.", ctx=self.effects, config=self.config()).run()

    async def run_in_pieces(self, *, last_first: bool) -> ToolLoopResult[Any]:
        """Run through JSON at every boundary and after each decision; each piece is as if in another process."""
        events = EventCollector()
        handle = ToolLoopHandle(self.provider, TOOLS, "Go.", ctx=self.effects, config=self.config(events))

        def restore() -> ToolLoopHandle[Effects, Any]:
            nonlocal events
            snapshot = json.loads(json.dumps(handle.snapshot()))
            events = EventCollector()
            config = self.config(events)
            return ToolLoopHandle.restore(snapshot, self.provider, TOOLS, ctx=self.effects, config=config)

        while True:
            turn = await handle.next_turn()
            self.check(handle, events.events)
            is_over = not isinstance(turn, Yielded) and not handle.pending_approvals
            if is_over:
                return handle.result
            handle = restore()
            while handle.pending_approvals:
                pending = handle.pending_approvals[-1 if last_first else 0]
                assert pending.tool_name == "pay"
                await handle.decide(pending.call_id, self.answer, binding=pending.binding)
                handle = restore()

    def check(self, handle: ToolLoopHandle[Effects, Any], events: Sequence[LoopEvent]) -> None:
        """Check what holds at each boundary: of the transcript, of what ran, and of what observers were notified of."""
        validate_transcript(handle.messages)
        ran = Counter([(key, attempt) for key, _, attempt in self.effects.done])
        assert not ran or max(ran.values()) == 1, f"one key stands for two runs: {ran}"
        keys = {key for key, _, _ in self.effects.done}
        for message in handle.messages:
            if isinstance(message, ToolResult) and message.text.startswith("Not started"):
                assert f"{handle.loop_id}/{message.call_id}" not in keys
        own = [event for event in events if event.loop_id == handle.loop_id]
        kinds = [type(event) for event in own]
        assert kinds[:1] == [RunStart]
        assert kinds.count(RunStart) == 1
        assert kinds.count(Done) == (kinds[-1] is Done) >= handle.is_finished
        starts = Counter([event.call_id for event in own if isinstance(event, ToolExecutionStart)])
        assert starts == Counter([event.call_id for event in own if isinstance(event, ToolExecutionEnd)])
        assert not starts or max(starts.values()) == 1


def read(result: ToolLoopResult[Any]) -> Any:
    """Return the transcript without the ids of loops, which are random."""
    return dump_messages(
        [replace(each, child_loop_id=None) if isinstance(each, ToolResult) else each for each in result.messages]
    )


def compare(script: Script, answer: Any, backend: str, *, defers: bool, last_first: bool) -> None:
    SCRIPT[:] = [script]

    async def run() -> None:
        whole, pieces = World(script, answer, defers=False), World(script, answer, defers=defers)
        expected, result = await whole.run_at_once(), await pieces.run_in_pieces(last_first=last_first)
        assert not isinstance(result.reason, AwaitingApproval)
        if script.tool_calls is not None and defers:
            return  # what is put off is not what the limit was used up by
        assert read(result) == read(expected)
        assert (result.text, result.usage, result.reason) == (expected.text, expected.usage, expected.reason)
        assert pieces.effects.counted == whole.effects.counted

    anyio.run(run, backend=backend)


PAYS = (("", "pay"), ("", "pay"), ("", "clerk"))
ASKS = (("", "pay"), ("", "pay"), ("", "junior"))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_calls_of_two_levels_that_have_one_id_are_decided_on_one_by_one(backend: str) -> None:
    one = (("", "pay"),)
    script = Script(((one, PAYS), (one, ASKS), ((("", "look"),), one)), 1, None)
    compare(script, Approve(), backend, defers=True, last_first=True)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCRIPTS, st.sampled_from(ANSWERS), st.booleans(), st.booleans())
def test_a_script_over_two_levels_that_is_restored_at_every_boundary_is_the_one_that_was_not(
    backend: str, script: Script, answer: Any, defers: bool, last_first: bool
) -> None:
    compare(script, answer, backend, defers=defers, last_first=last_first)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCRIPTS, st.sampled_from(ANSWERS), st.booleans(), st.booleans())
def test_ten_thousand_scripts_over_two_levels_that_are_restored_at_every_boundary_are_those_that_were_not(
    backend: str, script: Script, answer: Any, defers: bool, last_first: bool
) -> None:
    compare(script, answer, backend, defers=defers, last_first=last_first)
