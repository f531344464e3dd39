"""Turns of conversations: whatever happens, what was said and done is stored once, in a valid transcript."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from toolkit import (
    AnswerFormat,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    Defer,
    Done,
    Message,
    Middleware,
    ProviderError,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    Usage,
    UserMessage,
    tool,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import validate_transcript
from toolkit.conversations import Conversations, ConversationStore, MemoryStore, SqlStore
from toolkit.durable import Encryption
from toolkit.endings import AwaitingApproval
from toolkit.errors import (
    ConfigurationError,
    ConversationBusyError,
    ConversationChangedError,
    ConversationStoreError,
    LoopUsageError,
    ProviderAuthError,
    TranscriptError,
)
from toolkit.events import LoopEvent, ToolExecutionUpdate
from toolkit.loop.feeds import LOST
from toolkit.policies import keep_last
from toolkit.stored_text import StoredText
from toolkit.testing import FunctionProvider, ScriptedProvider

pytestmark = pytest.mark.anyio
NOTHING = ToolRegistry[object]([])


def texts(messages: Sequence[Message]) -> list[str]:
    return [f"{each.role[0]}:{each.text}" for each in messages]


@dataclass
class Shop:
    """A shop whose refunds need a person, which notes what ran."""

    refunded: list[int] = field(default_factory=list[int])
    config: ToolLoopConfig[None] = field(default_factory=lambda: ToolLoopConfig(on_tool_call=defer_refunds))

    @property
    def tools(self) -> ToolRegistry[object]:
        @tool(requires_approval=True)
        def refund(number: int) -> str:
            """Refund an order."""
            self.refunded.append(number)
            return f"refunded {number}"

        @tool
        def find(number: int) -> str:
            """Find an order."""
            return f"order {number}"

        return ToolRegistry([refund, find])

    async def ask(self, conversations: Conversations, question: str, *script: Any, **options: Any) -> Any:
        async with conversations.turn("ada") as turn:
            provider = ScriptedProvider(list(script))
            return await turn.run(provider, self.tools, question, config=self.config, **options)

    async def decide(self, conversations: Conversations, decisions: Mapping[str, Any], *script: Any) -> Any:
        async with conversations.turn("ada") as turn:
            provider = ScriptedProvider(list(script))
            return await turn.run(provider, self.tools, decisions=decisions, config=self.config)


def defer_refunds(request: ApprovalRequest) -> Approve | Defer:
    return Defer() if request.tool_name == "refund" else Approve()


def refund_call(call_id: str, number: int) -> ToolCall:
    return ToolCall(call_id, "refund", json.dumps({"number": number}))


# what is written, and when


async def test_a_conversation_goes_on_with_all_that_was_said(store: ConversationStore) -> None:
    conversations, seen = Conversations(store), list[list[str]]()

    def answer(request: ChatRequest) -> str:
        seen.append(texts(request.messages))
        return f"answer {len(seen)}"

    for question in ("one", "two"):
        async with conversations.turn("ada") as turn:
            events = [each async for each in turn.stream(FunctionProvider(answer), NOTHING, question)]
        assert isinstance(events[-1], Done)
        assert texts(turn.messages)[-2:] == texts(events[-1].result.messages)[-2:]
    assert seen[1] == ["u:one", "a:answer 1", "u:two"]
    stored = await conversations.get("ada")
    assert texts(stored.messages) == ["u:one", "a:answer 1", "u:two", "a:answer 2"]
    assert not stored.is_busy
    assert (await conversations.get("nobody")).version == 0


async def test_a_question_is_written_before_the_model_is_asked_and_a_call_before_it_runs() -> None:
    store, seen = MemoryStore(), list[tuple[str, list[str], bool]]()
    conversations = Conversations(store)

    async def note(place: str) -> None:
        stored = await Conversations(store).get("ada")
        seen.append((place, texts(stored.messages), stored.is_busy))

    @tool
    async def look() -> str:
        """Look."""
        await note("tool")
        return "found"

    class Asks(Middleware[Any]):
        async def around_request(self, request: Any, proceed: Any) -> Any:
            await note("model")
            return await proceed()

    async with conversations.turn("ada") as turn:
        provider = ScriptedProvider([ToolCall("c1", "look", "{}"), "It is there."])
        await turn.run(provider, ToolRegistry([look]), "Where?", config=ToolLoopConfig(middleware=(Asks(),)))
    (asked, called, again) = seen
    assert asked == ("model", ["u:Where?"], True)
    assert called[1][:2] == ["u:Where?", "a:"]
    assert "not known whether it ran" in called[1][2]  # as another process finds it, once this one is dead
    assert again == ("model", ["u:Where?", "a:", "t:found"], True)


class LeavingError(Exception):
    """What a handler raises that reads a stream."""


async def leave_by_break(conversations: Conversations, provider: Any) -> None:
    async with conversations.turn("ada") as turn:
        async for event in turn.stream(provider, NOTHING, "question"):
            if isinstance(event, TextDelta):
                break


async def leave_by_error(conversations: Conversations, provider: Any) -> None:
    with pytest.raises(LeavingError):
        async with conversations.turn("ada") as turn:
            async for event in turn.stream(provider, NOTHING, "question"):
                if isinstance(event, TextDelta):
                    raise LeavingError


async def leave_by_cancel(conversations: Conversations, provider: Any) -> None:
    with anyio.CancelScope() as scope:
        async with conversations.turn("ada") as turn:
            async for event in turn.stream(provider, NOTHING, "question"):
                if isinstance(event, TextDelta):
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()


async def leave_by_closing(conversations: Conversations, provider: Any) -> None:
    async def generate() -> AsyncIterator[LoopEvent]:
        async with conversations.turn("ada") as turn:
            async for event in turn.stream(provider, NOTHING, "question"):
                yield event

    events: Any = generate()
    async for event in events:
        if isinstance(event, TextDelta):
            break
    await events.aclose()


async def leave_by_failure(conversations: Conversations, _: Any) -> None:
    async with conversations.turn("ada") as turn:
        with pytest.raises(ProviderError):
            await turn.run(ScriptedProvider([ProviderAuthError("it", "no key")]), NOTHING, "question")


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_error, leave_by_cancel, leave_by_closing, leave_by_failure])
async def test_whatever_way_a_turn_is_left_its_question_is_stored_once_and_is_answered_later(
    leave: Callable[[Conversations, Any], Any],
) -> None:
    conversations = Conversations(MemoryStore())
    await leave(conversations, ScriptedProvider(["a long answer of many words"]))
    stored = await conversations.get("ada")
    assert texts(stored.messages) == ["u:question"]
    assert not stored.is_busy
    async with conversations.turn("ada") as turn:
        assert (await turn.run(ScriptedProvider(["answer"]), NOTHING)).text == "answer"
    assert texts((await conversations.get("ada")).messages) == ["u:question", "a:answer"]
    async with conversations.turn("ada") as turn:
        with pytest.raises(LoopUsageError, match="unanswered"):
            await turn.run(ScriptedProvider([]), NOTHING)


async def test_a_turn_that_does_nothing_leaves_nothing() -> None:
    conversations = Conversations(MemoryStore())
    async with conversations.turn("ada"):
        pass
    async with conversations.turn("ada") as turn:
        turn.stream(ScriptedProvider([]), NOTHING, "never read")
    assert await conversations.list() == []


# two questions at once


async def test_a_second_question_waits_or_is_refused() -> None:
    conversations, order = Conversations(MemoryStore()), list[str]()

    async def ask(question: str, began: anyio.Event, go_on: anyio.Event) -> None:
        async def answer(_: ChatRequest) -> str:
            order.append(question)
            began.set()
            await go_on.wait()
            return f"re {question}"

        async with conversations.turn("ada") as turn:
            await turn.run(FunctionProvider(answer), NOTHING, question)

    first, second, go_on = anyio.Event(), anyio.Event(), anyio.Event()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "one", first, go_on)
            await first.wait()
            tasks.start_soon(ask, "two", second, go_on)
            with pytest.raises(ConversationBusyError):
                async with conversations.turn("ada", when_busy="refuse"):
                    pass
            with pytest.raises(ConversationBusyError):
                await conversations.truncate("ada", 0)
            async with Conversations(conversations.store, wait=0).turn("bob"):
                pass  # another one is free
            with pytest.raises(ConversationBusyError):
                async with Conversations(conversations.store, wait=0).turn("ada"):
                    pass
            go_on.set()
    assert order == ["one", "two"]
    assert texts((await conversations.get("ada")).messages) == ["u:one", "a:re one", "u:two", "a:re two"]


async def test_a_question_in_line_is_answered_by_the_turn_that_is_under_way(store: ConversationStore) -> None:
    conversations = Conversations(store)
    began, go_on = anyio.Event(), anyio.Event()

    async def answer(request: ChatRequest) -> str:
        began.set()
        await go_on.wait()
        return f"re {request.messages[-1].text}"

    async def ask() -> None:
        async with conversations.turn("ada") as turn:
            events = [each async for each in turn.stream(FunctionProvider(answer), NOTHING, "one")]
        assert [each.result.text for each in events if isinstance(each, Done)] == ["re one", "re three"]

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await began.wait()
            async with Conversations(store).turn("ada", when_busy="queue") as turn:
                stream = turn.stream(ScriptedProvider([]), NOTHING, "two")
                assert [each async for each in stream] == []
                assert turn.is_queued
                with pytest.raises(LoopUsageError, match="was queued"):
                    _ = stream.result
            async with Conversations(store).turn("ada", when_busy="queue") as turn:
                async for _ in turn.stream(ScriptedProvider([]), NOTHING, "three"):
                    pass
            assert texts((await conversations.get("ada")).queued) == ["u:two", "u:three"]
            go_on.set()
    assert texts((await conversations.get("ada")).messages) == [
        "u:one", "a:re one", "u:two", "u:three", "a:re three",
    ]  # fmt: skip
    async with conversations.turn("ada", when_busy="queue") as turn:  # nobody is there: it is answered here
        await turn.run(ScriptedProvider(["free"]), NOTHING, "four")
    assert not turn.is_queued


async def test_a_question_in_line_of_a_turn_that_is_left_stays_in_the_transcript() -> None:
    conversations = Conversations(MemoryStore())
    async with conversations.turn("ada") as turn:
        async for event in turn.stream(ScriptedProvider(["a long answer"]), NOTHING, "one"):
            if isinstance(event, TextDelta):
                async with conversations.turn("ada", when_busy="queue") as other:
                    async for _ in other.stream(ScriptedProvider([]), NOTHING, "two"):
                        pass
                break
    stored = await conversations.get("ada")
    assert (texts(stored.messages), stored.queued) == (["u:one", "u:two"], ())


# a question that is asked again


@tool(result_as_answer=True)
def book(number: int) -> dict[str, int]:
    """Book."""
    return {"booked": number}


@pytest.mark.parametrize(
    ("script", "config", "text", "output"),
    [
        (["answer"], ToolLoopConfig(), "answer", None),
        ([ToolCall("c1", "book", '{"number": 3}')], ToolLoopConfig(), '{"booked":3}', {"booked": 3}),
        ([ToolCall("c1", "final_answer", '{"answer": 5}')], ToolLoopConfig(answer=AnswerFormat(int)), "5", 5),
        (['{"answer": 5}'], ToolLoopConfig(answer=AnswerFormat(int, mode="native")), '{"answer": 5}', 5),
        ([refund_call("c1", 7)], ToolLoopConfig(on_tool_call=defer_refunds), "", None),
    ],
    ids=["text", "result_as_answer", "typed", "native", "awaiting"],
)
async def test_a_question_that_is_asked_again_by_its_id_gets_the_answer_it_had_and_stands_once(
    script: list[Any], config: ToolLoopConfig[Any], text: str, output: object, store: ConversationStore
) -> None:
    tools, results = ToolRegistry([*[each.tool for each in Shop().tools.registrations.values()], book]), list[Any]()
    for script_left in (script, []):
        async with Conversations(store).turn("ada") as turn:
            stream = turn.stream(ScriptedProvider(script_left), tools, "Go.", question_id="k" * 200, config=config)
            events = [each async for each in stream]
        results.append(stream.result)
        assert isinstance(events[-1], Done)
        assert "".join(each.text for each in events if isinstance(each, TextDelta)) in (text, "")
        assert [each.call_id for each in turn.pending] == (["c1"] if results[0].snapshot else [])
    first, again = results
    assert (first.text, first.output) == (text, output)
    assert again == replace(first, response=None, usage=Usage())
    assert texts((await Conversations(store).get("ada")).messages) == texts(first.messages)


async def test_a_question_whose_run_was_cut_off_goes_on_when_it_is_asked_again() -> None:
    conversations = Conversations(MemoryStore())
    for script in (["a long answer of many words"], [ProviderAuthError("it", "no key")], ["answer"], []):
        with suppress(ProviderError):
            async with conversations.turn("ada") as turn:
                async for event in turn.stream(ScriptedProvider(script), NOTHING, "one", question_id="1"):
                    if isinstance(event, TextDelta) and len(script[:1]) and "long" in str(script[0]):
                        break
        stored = texts((await conversations.get("ada")).messages)
        assert stored == (["u:one"] if script != ["answer"] and script else ["u:one", "a:answer"])
    async with conversations.turn("ada") as turn:
        with pytest.raises(ConversationChangedError, match="another question"):
            await turn.run(ScriptedProvider([]), NOTHING, "two", question_id="1")
    async with conversations.turn("ada") as turn:
        for question, question_id in ((None, "1"), ("x", "")):
            with pytest.raises(ConfigurationError, match="question_id"):
                turn.stream(ScriptedProvider([]), NOTHING, question, question_id=question_id)


async def test_a_question_that_is_asked_again_while_it_is_answered_or_in_line_is_answered_once() -> None:
    conversations, asked = Conversations(MemoryStore()), list[str]()
    began, go_on = anyio.Event(), anyio.Event()

    async def answer(request: ChatRequest) -> str:
        asked.append(request.messages[-1].text)
        began.set()
        await go_on.wait()
        return f"re {asked[-1]}"

    async def ask(question: str, when_busy: Any) -> str | None:
        async with conversations.turn("ada", when_busy=when_busy) as turn:
            stream = turn.stream(FunctionProvider(answer), NOTHING, question, question_id=question)
            async for _ in stream:
                pass
        return None if turn.is_queued else stream.result.text

    async def ask_and_check(question: str) -> None:
        assert await ask(question, "wait") == f"re {question}"

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "one", "wait")
            await began.wait()
            tasks.start_soon(ask_and_check, "one")
            for question in ("one", "two", "two", "one"):
                assert await ask(question, "queue") is None
            go_on.set()
    assert await ask("two", "refuse") == "re two"
    assert asked == ["one", "two"]
    assert texts((await conversations.get("ada")).messages) == ["u:one", "a:re one", "u:two", "a:re two"]


async def test_a_question_whose_call_was_decided_on_meanwhile_is_answered_by_what_followed() -> None:
    conversations, shop = Conversations(MemoryStore()), Shop()
    await shop.ask(conversations, "Refund 7.", refund_call("c1", 7), question_id="1")
    await shop.ask(conversations, "Is it sunny?", "Yes.", question_id="2")
    await shop.decide(conversations, {"c1": True}, "Your money is back.")
    assert (await shop.ask(conversations, "Refund 7.", question_id="1")).text == "Your money is back."
    assert (await shop.ask(conversations, "Is it sunny?", question_id="2")).text == "Yes."
    assert shop.refunded == [7]


async def test_ids_of_questions_are_remembered_within_bounds_and_not_those_that_were_cut() -> None:
    conversations = Conversations(MemoryStore())

    async def ask(number: int, *script: str) -> str:
        async with conversations.turn("ada") as turn:
            config = ToolLoopConfig[None](compaction=keep_last(2) if number == 2 else None)
            model, prompt = ScriptedProvider(list(script)), "Be brief."
            result = await turn.run(
                model, NOTHING, f"q{number}", question_id=f"{number}", config=config, system_prompt=prompt
            )
        return result.text

    for number in range(3):
        await ask(number, f"a{number}")
    assert await ask(2) == "a2"
    with pytest.raises(ConversationChangedError, match="not in the transcript anymore"):
        await ask(0)
    length = len((await conversations.get("ada")).messages)
    await conversations.truncate("ada", length - 2)
    assert await ask(2, "anew") == "anew"
    for number in range(3, 53):
        await ask(number, f"a{number}")
    assert await ask(3) == "a3"
    assert await ask(2, "forgotten") == "forgotten"


# decisions


async def test_a_question_while_a_decision_is_awaited_is_answered_and_the_decision_applies_afterwards(
    store: ConversationStore,
) -> None:
    config = ToolLoopConfig[None](on_tool_call=defer_refunds, compaction=keep_last(2))
    conversations, shop = Conversations(store), Shop(config=config)
    result = await shop.ask(conversations, "Refund 7.", refund_call("c1", 7), system_prompt="You help.")
    assert isinstance(result.reason, AwaitingApproval)
    [pending] = (await conversations.get("ada")).pending
    assert (pending.call_id, pending.tool_name, pending.arguments) == ("c1", "refund", {"number": 7})
    await shop.ask(conversations, "Is it sunny?", "Yes.", system_prompt="You help.")
    assert [each.call_id for each in (await conversations.get("ada")).pending] == ["c1"]
    assert shop.refunded == []
    await shop.decide(conversations, {"c1": True}, "Your money is back.")
    stored = await conversations.get("ada")
    validate_transcript(stored.messages)
    assert shop.refunded == [7]
    assert stored.pending == ()
    assert texts(stored.messages)[-1] == "a:Your money is back."
    assert "t:refunded 7" in texts(stored.messages)  # nothing was compacted meanwhile
    await shop.ask(conversations, "Thanks.", "Bye.", system_prompt="You help.")
    assert len((await conversations.get("ada")).messages) < len(stored.messages)


async def test_results_take_the_places_of_what_was_awaited_and_the_model_reads_all_that_was_said_since() -> None:
    conversations, shop = Conversations(MemoryStore()), Shop()
    await shop.ask(conversations, "Refund 7.", refund_call("c1", 7))
    await shop.ask(conversations, "Is it sunny?", "Yes.")
    seen: list[list[str]] = []

    def answer(request: ChatRequest) -> str:
        seen.append(texts(request.messages))
        return "Done."

    async with conversations.turn("ada") as turn:
        await turn.run(FunctionProvider(answer), shop.tools, decisions={"c1": True}, config=shop.config)
    assert seen[0][:5] == ["u:Refund 7.", "a:", "t:refunded 7", "u:Is it sunny?", "a:Yes."]
    assert seen[0][5].startswith("u:The decision that was awaited")
    assert texts((await conversations.get("ada")).messages) == [*seen[0], "a:Done."]


@pytest.mark.parametrize("order", [("c1", "c2"), ("c2", "c1")])
async def test_two_refunds_are_decided_on_in_any_order_and_each_result_stays(order: tuple[str, str]) -> None:
    conversations, shop = Conversations(MemoryStore()), Shop()
    await shop.ask(conversations, "Refund 1.", refund_call("c1", 1))
    await shop.ask(conversations, "Refund 2.", refund_call("c2", 2))
    await shop.decide(conversations, {order[0]: True}, "One is done.")
    [left] = (await conversations.get("ada")).pending
    assert left.call_id == order[1]
    await shop.decide(conversations, {order[1]: "The shop does not."}, "Sorry.")
    stored = await conversations.get("ada")
    validate_transcript(stored.messages)
    results = {each.call_id: each.text for each in stored.messages if isinstance(each, ToolResult)}
    number = {"c1": 1, "c2": 2}[order[0]]
    assert results == {order[0]: f"refunded {number}", order[1]: "The shop does not."}
    assert shop.refunded == [number]


async def test_two_calls_of_one_reply_are_decided_on_one_by_one_or_together() -> None:
    for together in (False, True):
        conversations, shop = Conversations(MemoryStore()), Shop()
        reply = AssistantMessage([refund_call("c1", 1), refund_call("c2", 2), ToolCall("c3", "find", '{"number": 3}')])
        await shop.ask(conversations, "Refund both.", reply)
        assert texts((await conversations.get("ada")).messages)[-1] == "t:order 3"
        if together:
            await shop.decide(conversations, {"c1": True, "c2": True}, "Both.")
        else:
            first = await shop.decide(conversations, {"c2": True})
            assert isinstance(first.reason, AwaitingApproval)
            stored = await conversations.get("ada")
            assert [each.call_id for each in stored.pending] == ["c1"]
            assert texts(stored.messages)[3] == "t:refunded 2"
            await shop.decide(conversations, {"c1": True}, "Both.")
        stored = await conversations.get("ada")
        assert sorted(shop.refunded) == [1, 2]
        assert texts(stored.messages)[2:] == ["t:refunded 1", "t:refunded 2", "t:order 3", "a:Both."]


async def test_of_two_that_decide_at_once_one_decides_and_the_call_runs_once(store: ConversationStore) -> None:
    shop, refused = Shop(), list[str]()
    await shop.ask(Conversations(store), "Refund 7.", refund_call("c1", 7))

    async def decide() -> None:
        try:
            await shop.decide(Conversations(store), {"c1": True}, "Done.")
        except ConversationChangedError as error:
            refused.append(str(error))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(decide)
    assert shop.refunded == [7]
    assert len(refused) == 2
    assert "somebody has decided" in refused[0]
    assert texts((await Conversations(store).get("ada")).messages)[-1] == "a:Done."


async def test_a_call_that_was_approved_when_its_process_died_is_not_decided_on_again() -> None:
    store, conversations = MemoryStore(), Conversations(MemoryStore())
    conversations, found = Conversations(store), list[Any]()

    @tool(requires_approval=True)
    async def refund(number: int) -> str:
        """Refund an order."""
        found.append(await Conversations(store).get("ada"))  # as it is found after a crash here
        return f"refunded {number}"

    config = ToolLoopConfig[None](on_tool_call=defer_refunds)
    reply = AssistantMessage([refund_call("c1", 1), refund_call("c2", 2)])
    for options in ({"question": "Refund both."}, {"decisions": {"c1": True}}):
        async with conversations.turn("ada") as turn:
            given: Any = options
            await turn.run(ScriptedProvider([reply]), ToolRegistry([refund]), config=config, **given)
    [crashed] = found
    assert [each.call_id for each in crashed.pending] == ["c2"]
    assert "may have taken effect" in texts(crashed.messages)[2]
    assert "approval is awaited" in texts(crashed.messages)[3]
    assert [each.call_id for each in (await conversations.get("ada")).pending] == ["c2"]


async def test_a_sub_agents_call_that_was_approved_when_its_process_died_may_have_taken_effect() -> None:
    store, found = MemoryStore(), list[Any]()
    conversations = Conversations(store)

    @tool(requires_approval=True)
    async def refund(number: int) -> str:
        """Refund an order."""
        found.append(await Conversations(store).get("ada"))  # as it is found after a crash here
        return f"refunded {number}"

    reply = AssistantMessage([refund_call("i1", 1), refund_call("i2", 2)])
    clerk = sub_agent_tool("clerk", "Gives back.", ScriptedProvider([reply, "gave back"]), ToolRegistry([refund]))
    config, tools = ToolLoopConfig[None](on_tool_call=defer_refunds), ToolRegistry([clerk])
    script: list[Any] = [ToolCall("o1", "clerk", '{"task": "Refund both."}')]
    for options in ({"question": "Refund both."}, {"decisions": {"i1": True}}, {"decisions": {"i2": True}}):
        async with conversations.turn("ada") as turn:
            given: Any = options
            await turn.run(ScriptedProvider(script), tools, config=config, **given)
        script = ["Done."]
    first, second = found
    assert ([each.call_id for each in first.pending], texts(first.messages)[2][:15]) == (["i2"], "t:Not finished:")
    assert (second.pending, texts(second.messages)[2]) == ((), "t:" + LOST)
    assert texts((await conversations.get("ada")).messages)[2:] == ["t:gave back", "a:Done."]


async def test_a_client_that_leaves_while_a_decided_call_runs_leaves_a_true_transcript() -> None:
    conversations = Conversations(MemoryStore())

    @tool(requires_approval=True)
    async def refund(number: int) -> AsyncIterator[str]:
        """Refund an order."""
        yield f"refunding {number}"
        await anyio.sleep_forever()

    config, tools = ToolLoopConfig[None](on_tool_call=defer_refunds), ToolRegistry([refund])
    async with conversations.turn("ada") as turn:
        await turn.run(ScriptedProvider([refund_call("c1", 1)]), tools, "Refund.", config=config)
    async with conversations.turn("ada") as turn:
        async for event in turn.stream(ScriptedProvider([]), tools, decisions={"c1": True}, config=config):
            if isinstance(event, ToolExecutionUpdate):
                break
    stored = await conversations.get("ada")
    assert stored.pending == ()
    assert "may have taken effect" in texts(stored.messages)[-1]


# somebody else's process


class Frail:
    """A store that one process reaches by a line which can be cut."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self.is_away = False
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._store, name)

        async def reach(*arguments: Any) -> Any:
            if self.is_away or self.failures > 0:
                self.failures -= 1
                raise ConversationStoreError("the line is cut")
            return await step(*arguments)

        return reach


async def test_a_holder_that_was_frozen_can_write_nothing_late(anyio_backend: str) -> None:
    store, ran = MemoryStore(), list[str]()
    frozen, other = Conversations(store, lease=0.3), Conversations(store)

    @tool
    def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    async def take_over() -> None:
        async with other.turn("ada") as turn:
            await turn.run(ScriptedProvider(["I am here."]), NOTHING, "Anybody?")

    def answer(_: ChatRequest) -> ToolCall:
        thread = Thread(target=anyio.run, args=(take_over,), kwargs={"backend": anyio_backend})
        thread.start()
        thread.join()  # nothing of this event loop moves meanwhile, its heartbeats neither
        return ToolCall("c1", "act", "{}")

    async with frozen.turn("ada") as turn:
        with pytest.raises(ConversationChangedError, match="lease expired") as raised:
            await turn.run(FunctionProvider(answer), ToolRegistry([act]), "question")
    assert ran == []
    assert raised.value.messages[0].text == "question"
    assert texts((await other.get("ada")).messages) == ["u:question", "u:Anybody?", "a:I am here."]


async def test_a_store_that_comes_back_in_time_loses_nothing() -> None:
    store = MemoryStore()
    line: Any = Frail(store)

    def answer(_: ChatRequest) -> str:
        line.failures = 3
        return "answer"

    async with Conversations(line).turn("ada") as turn:
        await turn.run(FunctionProvider(answer), NOTHING, "question")
    assert texts((await Conversations(store).get("ada")).messages) == ["u:question", "a:answer"]


async def test_a_store_that_stays_away_ends_the_turn_with_an_error_that_has_the_transcript() -> None:
    store = MemoryStore()
    line: Any = Frail(store)

    def answer(_: ChatRequest) -> str:
        line.is_away = True
        return "answer"

    with pytest.raises(ConversationStoreError, match="the line is cut") as raised:
        async with Conversations(line, lease=0.3).turn("ada") as turn:
            await turn.run(FunctionProvider(answer), NOTHING, "question")
    assert raised.value.messages[0].text == "question"
    assert texts((await Conversations(store).get("ada")).messages) == ["u:question"]
    with pytest.raises(ConversationStoreError, match="the line is cut"):
        async with Conversations(line).turn("ada"):
            pass


# lists and edits


async def test_conversations_are_listed_cut_forked_replaced_and_deleted_by_their_versions(
    store: ConversationStore,
) -> None:
    conversations, shop = Conversations(store), Shop()
    await shop.ask(conversations, "one", "first")
    await shop.ask(conversations, "Refund 7.", refund_call("c1", 7))
    found = await conversations.get("ada")
    await conversations.fork("ada", "ada/2")
    await conversations.fork("ada", "ada/3", keep=2)
    assert [len((await conversations.get(name)).messages) for name in ("ada/2", "ada/3")] == [5, 2]
    assert (await conversations.get("ada/2")).pending == ()
    with pytest.raises(ConversationChangedError, match="is there already"):
        await conversations.fork("ada", "ada/2")
    with pytest.raises(TranscriptError):
        await conversations.truncate("ada", 4)
    assert (await conversations.get("ada")).pending == found.pending
    await conversations.truncate("ada", 3, version=found.version)
    cut = await conversations.get("ada")
    assert (texts(cut.messages), cut.pending) == (["u:one", "a:first", "u:Refund 7."], ())
    for change in (
        conversations.truncate("ada", 1, version=found.version),
        conversations.replace("ada", [UserMessage("x")], version=found.version),
        conversations.delete("ada", version=found.version),
        conversations.truncate("nobody", 1),
        conversations.fork("nobody", "x"),
    ):
        with pytest.raises(ConversationChangedError):
            await change
    await conversations.replace("ada", [UserMessage("struck"), *cut.messages[1:]], version=cut.version)
    assert texts((await conversations.get("ada")).messages)[0] == "u:struck"
    assert [each.id for each in await conversations.list("ada/")] == ["ada/3", "ada/2"]
    await conversations.delete("ada/2")
    await conversations.delete("ada/2")
    assert [each.id for each in await conversations.list()] == ["ada", "ada/3"]


async def test_a_transcript_that_something_else_made_is_saved_in_a_turn() -> None:
    conversations = Conversations(MemoryStore())
    async with conversations.turn("ada") as turn:
        with pytest.raises(TranscriptError):
            await turn.save([ToolResult("c1", "of no call")])
        await turn.save([*turn.messages, UserMessage("question"), AssistantMessage("answer")])
        assert (await conversations.get("ada")).is_busy
    stored = await conversations.get("ada")
    assert (texts(stored.messages), stored.is_busy) == (["u:question", "a:answer"], False)


EDITED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a run twice": lambda state: {**state, "open": [*state["open"], *state["open"]]},
    "no snapshot": lambda state: {**state, "open": [{**state["open"][0], "snapshot": None}]},
    "no calls": lambda state: {**state, "open": [{**state["open"][0], "calls": None}]},
    "taken by number": lambda state: {**state, "open": [{**state["open"][0], "taken": 7}]},
    "a list": lambda state: {**state, "asked": [["k", 0, 0, [1]]]},
    "an object": lambda state: {**state, "asked": [dict.fromkeys("abcd", 1)]},
    "deep": lambda state: {**state, "asked": json.loads("[" * 900 + "]" * 900)},
}


@pytest.mark.parametrize("name", EDITED)
async def test_an_edited_state_is_refused_and_nothing_runs(name: str, anyio_backend: str, tmp_path: Path) -> None:
    path, stored, paid = tmp_path / "chats.db", StoredText(None, ConversationStoreError), list[int]()

    @tool(run_in_thread=False)
    def refund(n: int) -> str:
        """Give money back."""
        paid.append(n)
        return "refunded"

    config: ToolLoopConfig[None] = ToolLoopConfig(on_tool_call=lambda _: Defer(), signing_key=b"a key of our own")
    tools = ToolRegistry([refund])
    conversations = Conversations(SqlStore(f"sqlite:///{path}"), lease=0.2)
    async with conversations.turn("ada") as turn:
        await turn.run(ScriptedProvider([ToolCall("c1", "refund", '{"n": 7}')]), tools, "Refund.", config=config)
    with sqlite3.connect(path) as database:
        [text] = database.execute("SELECT state FROM toolkit_conversations").fetchone()
        changed = stored.write(EDITED[name](stored.read(text)))
        database.execute("UPDATE toolkit_conversations SET state = ?", (changed,))
    database.close()
    with pytest.raises(ConversationStoreError, match="'ada' can't be read"):
        await conversations.get("ada")
    with pytest.raises(ConversationStoreError, match="'ada' can't be read"):
        async with conversations.turn("ada") as turn:
            await turn.run(ScriptedProvider(["Done."]), tools, decisions={"c1": True}, config=config)
    await conversations.aclose()
    assert paid == []


async def test_a_conversation_that_was_edited_by_hand_is_refused_in_words_and_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = SqlStore(f"sqlite:///{path}")
    conversations, shop = Conversations(store), Shop()
    messages = "toolkit_conversation_messages"
    edits = {
        "check sum": f"UPDATE {messages} SET value = replace(value, 'first', 'other') WHERE position = 1",
        "gap": f"DELETE FROM {messages} WHERE position = 0",
        "one of its numbers is none": "UPDATE toolkit_conversations SET length = 'two'",
        "numbers is none": "UPDATE toolkit_conversations SET version = 'one'",
        "its messages or its questions have a gap": "UPDATE toolkit_conversations SET queued = 1",
        "its messages or its": f"UPDATE toolkit_conversations SET length = {2**62}",
        "does not fit": "UPDATE toolkit_conversations SET state = '{'",
    }
    for words, edit in edits.items():
        await shop.ask(conversations, "one", "first")
        with sqlite3.connect(path) as database:
            database.execute(edit)
        database.close()
        with pytest.raises(ConversationStoreError, match=words) as raised:
            await conversations.get("ada")
        assert "'ada'" in str(raised.value)
        with pytest.raises(ConversationStoreError, match=words):
            await shop.ask(conversations, "two", "second")
        if not words.startswith(("check", "does")):
            with sqlite3.connect(path) as database:
                database.execute("DELETE FROM toolkit_conversations")
                database.execute("DELETE FROM toolkit_conversation_messages")
            database.close()
        await conversations.delete("ada")
    await store.aclose()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE toolkit_conversation_tables SET version = 9")
    database.close()
    store = SqlStore(f"sqlite:///{path}")
    with pytest.raises(ConversationStoreError, match="of version 9, and this library reads version 1"):
        await Conversations(store).get("ada")
    await store.aclose()


class Flip:
    """A cipher that anybody can break, with a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, data: bytes) -> bytes:
        return self._key + data[::-1]

    def decrypt(self, token: bytes) -> bytes:
        if not token.startswith(self._key):
            raise ValueError("wrong key")
        return token.removeprefix(self._key)[::-1]


async def test_an_encrypted_conversation_is_read_with_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store, shop = SqlStore(f"sqlite:///{path}"), Shop()
    conversations = Conversations(store, encryption=Flip(b"1"))
    await shop.ask(conversations, "a secret question", refund_call("c1", 7))
    assert texts((await conversations.get("ada")).messages)[0] == "u:a secret question"
    assert b"secret" not in path.read_bytes()
    with pytest.raises(ConversationStoreError, match="give the encryption that wrote it"):
        await Conversations(store).get("ada")
    with pytest.raises(ConversationStoreError, match="right key"):
        await Conversations(store, encryption=Flip(b"2")).get("ada")
    await store.aclose()


async def test_a_conversation_goes_on_with_another_key_where_the_old_one_is_given_too() -> None:
    store, shop = MemoryStore(), Shop()
    first, second = (
        Encryption(encrypt=flip.encrypt, decrypt=flip.decrypt, key_id=name)
        for name, flip in (("first", Flip(b"1")), ("second", Flip(b"2")))
    )
    await shop.ask(Conversations(store, encryption=first), "one", "re one")
    both = Conversations(store, encryption=replace(second, older=[first]))
    assert texts((await both.get("ada")).messages) == ["u:one", "a:re one"]
    await shop.ask(both, "two", "re two")
    with pytest.raises(ConversationStoreError, match="the key 'second': give that encryption in `older`"):
        await Conversations(store, encryption=first).get("ada")


async def test_a_database_that_is_not_there_is_an_error_of_the_store() -> None:
    store = SqlStore("postgresql://postgres@127.0.0.1:1/none")
    with pytest.raises(ConversationStoreError, match="can't be used"):
        await Conversations(store).get("ada")
    await store.aclose()


@pytest.mark.parametrize("url", ["nonsense", "sqlite://", "strange://host/database", "sqlite:////proc/none/chats.db"])
async def test_a_wrong_url_is_refused_where_it_is_given(url: str) -> None:
    with pytest.raises(ConfigurationError):
        SqlStore(url)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\ud800"])
async def test_an_id_that_no_store_takes_is_refused(name: str) -> None:
    conversations = Conversations(MemoryStore())
    with pytest.raises(ConfigurationError, match="id of a conversation"):
        conversations.turn(name)


async def test_a_turn_is_used_rightly_or_says_how() -> None:
    conversations = Conversations(MemoryStore())
    turn = conversations.turn("ada")
    with pytest.raises(LoopUsageError, match="async with"):
        turn.stream(ScriptedProvider([]), NOTHING, "question")
    async with turn:
        with pytest.raises(ConfigurationError, match="empty"):
            turn.stream(ScriptedProvider([]), NOTHING, " ")
        with pytest.raises(ConfigurationError, match="a turn of its own"):
            turn.stream(ScriptedProvider([]), NOTHING, "question", decisions={"c": True})
        with pytest.raises(ConversationChangedError, match="no decision is awaited"):
            await turn.run(ScriptedProvider([]), NOTHING, decisions={"c": True})
        with pytest.raises(LoopUsageError, match="one question"):
            turn.stream(ScriptedProvider([]), NOTHING, "question")
    with pytest.raises(LoopUsageError, match="once"):
        async with turn:
            pass


async def test_tools_get_the_context_of_the_turn() -> None:
    @tool_with_ctx
    def whoami(customer: dict[str, str]) -> str:
        """Return the name."""
        return customer["name"]

    conversations = Conversations(MemoryStore())
    async with conversations.turn("ada", ctx={"name": "Ada"}) as turn:
        tools = ToolRegistry[dict[str, str]]([whoami])
        result = await turn.run(ScriptedProvider([ToolCall("c1", "whoami", "{}"), "Ada."]), tools, "Who?")
    assert texts(result.messages)[2] == "t:Ada"


async def test_closing_ends_the_turns_of_this_process_and_waits_until_they_are_written() -> None:
    store, began = MemoryStore(), anyio.Event()
    conversations = Conversations(store)

    async def answer(_: ChatRequest) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    async def ask() -> None:
        async with conversations.turn("ada") as turn:
            await turn.run(FunctionProvider(answer), NOTHING, "question")

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            async with conversations:
                await began.wait()
            stored = await Conversations(store).get("ada")
            assert (texts(stored.messages), stored.is_busy) == (["u:question"], False)
