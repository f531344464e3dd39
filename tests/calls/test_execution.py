"""One call, whatever comes of it: the registry's `execute` shows every outcome."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from toolkit import (
    Abort,
    AssistantMessage,
    ConfigurationError,
    Defer,
    Deny,
    MemoryCache,
    Modify,
    Timeouts,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolLoopConfig,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.errors import ToolCancelledError, ToolDeniedError, ToolUsageLimitExceededError
from toolkit.events import ToolCallRefused, ToolCallRepaired, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import Cache, ToolExecutionHooks
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

NO_PAUSE = ToolRetryConfig(max_retries=3, initial_backoff=0, jitter=0)


def call(name: str, arguments: str = "{}", call_id: str = "1") -> ToolCall:
    return ToolCall(call_id, name, arguments)


@dataclass
class Case:
    name: str
    raised: BaseException
    text: str


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


CASES = [
    Case("a tool error is told as written", ToolError("no luck"), "no luck"),
    Case("one without a message tells its name", ToolError(), "ToolError"),
    Case("its subclasses too", ToolFailedError("broken"), "broken"),
    Case("a denial from inside", ToolDeniedError(), "Tool call denied."),
    Case("a cancellation from inside", ToolCancelledError(), "Cancelled"),
    Case("another error with its type", ValueError("bad"), "ValueError: bad"),
    Case("an error without a message is not empty", ValueError(), "ValueError (it gave no message)"),
    Case("a key error", KeyError("k"), "KeyError: 'k'"),
    Case(
        "a group tells of each",
        ExceptionGroup("many", [ValueError("a"), ToolError("b"), ExceptionGroup("in", [KeyError("c")])]),
        "ExceptionGroup: ValueError: a; b; ExceptionGroup: KeyError: 'c'",
    ),
    Case("an error that can't be told", UnspeakableError(), "UnspeakableError (it gave no message)"),
    Case("what no wire can carry", ValueError("a\ud83d"), "ValueError: a?"),
    Case("that in a tool error", ToolError("a\ud83d"), "a?"),
    Case("a timeout of its own", TimeoutError(), "TimeoutError (it gave no message)"),
    Case("the end of the program", SystemExit(3), "SystemExit: 3"),
    Case("that without a word", SystemExit(), "SystemExit (it gave no message)"),
    Case(
        "that in a group, as a task group gives it",
        BaseExceptionGroup("many", [SystemExit(3), ValueError("a")]),
        "BaseExceptionGroup: SystemExit: 3; ValueError: a",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_tool_raises_is_told_to_the_model(case: Case, is_async: bool) -> None:
    @tool
    async def later() -> str:
        raise case.raised

    @tool
    def now() -> str:
        raise case.raised

    result = await ToolRegistry([later, now]).execute(call("later" if is_async else "now"))
    assert (result.is_error, result.text) == (True, case.text)


async def test_what_is_no_exception_passes_out() -> None:
    @tool
    async def interrupt() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ToolRegistry([interrupt]).execute(call("interrupt"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_error_that_nobody_asked_for_is_the_tools_own() -> None:
    @tool
    async def gives_up() -> str:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return ""

    result = await ToolRegistry([gives_up]).execute(call("gives_up"))
    assert (result.is_error, result.text) == (True, "CancelledError (it gave no message)")


async def test_an_error_output_is_an_error_and_never_without_words() -> None:
    @tool
    async def fails(text: str) -> ToolOutput:
        return ToolOutput(text, is_error=True, result_as_answer=True)

    registry = ToolRegistry([fails])
    told = await registry.execute(call("fails", '{"text": "so"}'))
    assert (told.is_error, told.text, told.result_as_answer) == (True, "so", False)
    silent = await registry.execute(call("fails", '{"text": " "}'))
    assert (silent.is_error, silent.text) == (True, "The tool failed and gave no reason.")


async def test_an_unknown_tool_is_told_with_what_there_is() -> None:
    @tool
    async def search() -> str:
        return ""

    result = await ToolRegistry([search]).execute(call("research_all"))
    assert result.text == "Unknown tool: research_all. Did you mean search? Available tools: search."
    assert (await ToolRegistry().execute(call("x"))).text == "Unknown tool: x. No tools are available."
    (await ToolRegistry([search]).execute(call("a\ud83d"))).text.encode()


async def test_a_near_miss_of_a_name_is_taken_unless_that_is_off_and_never_outside_the_scope() -> None:
    @tool
    async def get_weather() -> str:
        return "sunny"

    @tool
    async def other() -> str:
        return ""

    registry = ToolRegistry([get_weather, other])
    assert (await registry.execute(call("getWeather"))).text == "sunny"
    assert (await registry.execute(call("getWeather"), name_repair=False)).is_error
    (refused,) = await registry.execute_all([call("getWeather")], name_repair=False)
    assert refused.is_error
    wrong = await registry.execute(call("get_wether"))
    assert wrong.text.startswith("Unknown tool: get_wether. Did you mean get_weather")
    assert (await registry.execute(call("get_wether"), name_repair="similar")).text == "sunny"
    assert (await registry.without(["get_weather"]).execute(call("get_wether"), name_repair="similar")).is_error
    with pytest.raises(ConfigurationError, match="name_repair must be True or False or 'similar'"):
        await registry.execute(call("getWeather"), name_repair=cast("Any", "always"))
    result = await tool_loop(
        ScriptedProvider([call("getWeather"), "ok"]), registry, "go", config=ToolLoopConfig(name_repair=False)
    )
    assert result.messages[2].text.startswith("Unknown tool: getWeather.")


async def test_arguments_are_repaired_where_that_is_no_guess() -> None:
    events: list[Any] = []

    @tool
    async def add(numbers: list[int], note: str = "") -> str:
        return f"{sum(numbers)}{note}"

    @tool(argument_repair=False)
    async def exact(numbers: list[int]) -> str:
        return f"{sum(numbers)}"

    script: list[ScriptedReply] = [
        AssistantMessage(
            [
                call("add", "{'numbers': [1, 2,],}", "a"),
                call("add", '{"numbers": "[1, 2]", "note": "[3]"}', "b"),
                call("add", '{"numbers": [1, 2', "c"),
                call("exact", "{'numbers': [1]}", "d"),
            ]
        ),
        "ok",
    ]
    result = await tool_loop(
        ScriptedProvider(script), ToolRegistry([add, exact]), "go", config=ToolLoopConfig(on_event=events.append)
    )
    texts = [message.text for message in result.messages if isinstance(message, ToolResult)]
    assert texts[:2] == ["3", "3[3]"]
    assert all("JSON" in text for text in texts[2:])
    repairs = [(event.call_id, event.kind) for event in events if isinstance(event, ToolCallRepaired)]
    assert repairs == [("a", "text"), ("b", "values")]
    refused = [event.call_id for event in events if isinstance(event, ToolCallRefused)]
    assert refused == ["c", "d"]
    assert {event.call_id for event in events if isinstance(event, ToolExecutionStart)} == {"a", "b"}
    # The transcript keeps what the model wrote.
    assert isinstance(result.messages[1], AssistantMessage)
    assert result.messages[1].tool_calls[0].arguments == "{'numbers': [1, 2,],}"


# retry and timeout


async def test_a_failed_run_is_tried_again_as_often_as_allowed() -> None:
    attempts: list[int] = []

    @tool_with_ctx(retry=NO_PAUSE)
    async def flaky(context: ToolContext[object], fails: int) -> str:
        attempts.append(context.attempt)
        if len(attempts) <= fails:
            raise ValueError(len(attempts))
        return "at last"

    registry = ToolRegistry([flaky])
    assert (await registry.execute(call("flaky", '{"fails": 3}'))).text == "at last"
    assert attempts == [1, 2, 3, 4]
    attempts.clear()
    result = await registry.execute(call("flaky", '{"fails": 9}'))
    assert (result.is_error, result.text) == (True, "ValueError: 4")
    assert attempts == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "error",
    [ToolDeniedError("no"), ToolCancelledError(), ToolUsageLimitExceededError("x", 1)],
    ids=lambda e: type(e).__name__,
)
async def test_some_errors_stand(error: ToolError) -> None:
    runs = 0

    @tool(retry=NO_PAUSE)
    async def final() -> str:
        nonlocal runs
        runs += 1
        raise error

    assert (await ToolRegistry([final]).execute(call("final"))).text == error.message
    assert runs == 1


async def test_a_predicate_says_what_is_worth_another_try() -> None:
    runs = 0

    @tool(retry=ToolRetryConfig(initial_backoff=0, retry_if=lambda error: "again" in str(error)))
    async def picky() -> str:
        nonlocal runs
        runs += 1
        raise ValueError("again" if runs < 3 else "stop")

    assert (await ToolRegistry([picky]).execute(call("picky"))).text == "ValueError: stop"
    assert runs == 3


async def test_a_returned_error_is_tried_again_where_that_is_wanted_and_kept_as_it_is() -> None:
    runs = 0

    @tool(retry=ToolRetryConfig(max_retries=3, initial_backoff=0, retry_if=lambda error: str(error) == "no"))
    async def returns() -> ToolOutput:
        nonlocal runs
        runs += 1
        return ToolOutput.error("no", details=runs)

    result = await ToolRegistry([returns]).execute(call("returns"))
    assert (result.text, result.details, runs) == ("no", 4, 4)


async def test_a_call_whose_second_attempt_waits_in_vain_has_run() -> None:
    runs: list[int] = []

    @tool_with_ctx(retry=NO_PAUSE)
    async def pay(context: ToolContext[object]) -> str:
        runs.append(context.attempt)
        if len(runs) > 1:
            with context.waiting_for("the till"):
                await anyio.sleep_forever()
        raise ValueError("no answer")

    ends: list[Any] = []
    config: ToolLoopConfig = ToolLoopConfig(timeouts=Timeouts(wait=0.01), on_event=ends.append)
    result = await tool_loop(ScriptedProvider([call("pay"), "ok"]), ToolRegistry([pay]), "go", config=config)
    assert result.messages[2].text == (
        "ValueError: no answer\n\n"
        "It has run and may have taken effect. It was to be run again, and waited for the till in vain."
    )
    assert runs == [1, 2]
    [end] = [event for event in ends if isinstance(event, ToolExecutionEnd)]
    assert isinstance(end.error, ValueError)


async def test_a_call_whose_second_attempt_finds_all_threads_abandoned_has_run() -> None:
    release = threading.Event()

    @tool(retry=NO_PAUSE)
    def pay() -> str:
        raise ValueError("no answer")

    @tool(timeout=0.01)
    def hold() -> str:
        release.wait()
        return "held"

    config: ToolLoopConfig = ToolLoopConfig(sync_workers=1)
    turn = AssistantMessage([call("pay", call_id="1"), call("hold", call_id="2")])
    result = await tool_loop(ScriptedProvider([turn, "ok"]), ToolRegistry([pay, hold]), "go", config=config)
    release.set()
    text = result.messages[2].text
    assert text.startswith("ValueError: no answer\n\nIt has run and may have taken effect.")
    assert "Not started" not in text


async def test_a_call_whose_attempts_all_wait_in_vain_was_not_started() -> None:
    @tool_with_ctx(retry=ToolRetryConfig(max_retries=1, initial_backoff=0, retry_if=lambda error: True))
    async def pay(context: ToolContext[object]) -> str:
        with context.waiting_for("the till"):
            await anyio.sleep_forever()
        return "paid"

    config: ToolLoopConfig = ToolLoopConfig(timeouts=Timeouts(wait=0.01))
    result = await tool_loop(ScriptedProvider([call("pay"), "ok"]), ToolRegistry([pay]), "go", config=config)
    assert result.messages[2].text == "Not started: tool 'pay' waited 0.01 s for the till in vain. Try again later."


async def test_one_start_and_one_end_whatever_the_attempts() -> None:
    events: list[Any] = []

    @tool(retry=NO_PAUSE)
    async def fails() -> str:
        raise ValueError

    await tool_loop(
        ScriptedProvider([call("fails"), "ok"]),
        ToolRegistry([fails]),
        "go",
        config=ToolLoopConfig(on_event=events.append),
    )
    assert len([event for event in events if isinstance(event, ToolExecutionStart)]) == 1
    assert len([event for event in events if isinstance(event, ToolExecutionEnd)]) == 1


def test_the_pauses_follow_the_formula() -> None:
    retry = ToolRetryConfig()
    assert [retry.pause(n, 0) for n in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert [retry.pause(n, 1) for n in range(2)] == [0.05, 0.1]
    assert retry.pause(10_000, 0) == 5.0


async def test_a_timeout_is_an_error_and_tells_whether_a_thread_still_runs() -> None:
    @tool(timeout=0.02)
    async def slow() -> str:
        await anyio.sleep_forever()
        return ""

    @tool_with_ctx(timeout=0.02)
    def stubborn(context: ToolContext[object]) -> str:
        while not context.cancelled:
            pass
        return ""

    registry = ToolRegistry([slow, stubborn])
    with anyio.fail_after(120):
        assert (
            await registry.execute(call("slow"))
        ).text == "Tool 'slow' timed out after 0.02 s. It may have taken effect."
        assert (
            await registry.execute(call("stubborn"))
        ).text == "Tool 'stubborn' timed out after 0.02 s. It may have taken effect and may still be running."


# what must not run together


def crowded(concurrency: int) -> tuple[Tool[object], list[int]]:
    """Return a tool that so many may run at once, and where it notes at each start how many do."""
    running = 0
    seen: list[int] = []

    @tool(concurrency=concurrency)
    async def work(n: int) -> str:
        nonlocal running
        running += 1
        seen.append(running)
        await anyio.wait_all_tasks_blocked()
        running -= 1
        return ""

    return work, seen


async def test_a_tool_runs_no_more_often_at_once_than_it_allows() -> None:
    work, seen = crowded(2)
    calls = [call("work", f'{{"n": {n}}}', str(n)) for n in range(10)]
    await ToolRegistry([work]).execute_all(calls)
    assert max(seen) == 2


async def test_a_registry_may_allow_more_runs_at_once_than_the_tool_does() -> None:
    work, seen = crowded(1)
    calls = [call("work", f'{{"n": {n}}}', str(n)) for n in range(6)]
    tools = ToolRegistry([work])
    for scope, allowed in ((tools, 1), (tools.configured("work", concurrency=3), 3)):
        await scope.execute_all(calls)
        assert max(seen) == allowed


async def test_calls_that_need_the_same_never_overlap() -> None:
    running: dict[str, int] = {}
    overlaps: list[str] = []
    most = 0

    @tool(lock=lambda arguments: arguments["path"])
    async def edit(path: str, n: int) -> str:
        nonlocal most
        running[path] = running.get(path, 0) + 1
        if running[path] > 1:
            overlaps.append(path)
        most = max(most, sum(running.values()))
        await anyio.wait_all_tasks_blocked()
        running[path] -= 1
        return ""

    calls = [call("edit", f'{{"path": "{"ab"[n % 2]}", "n": {n}}}', str(n)) for n in range(10)]
    await ToolRegistry([edit]).execute_all(calls)
    assert overlaps == []
    assert most == 2


async def test_what_a_lock_gives_need_not_be_hashable() -> None:
    running: list[list[str]] = []
    overlaps: list[list[str]] = []

    @tool(lock=lambda arguments: arguments["paths"])
    async def edit(paths: list[str], n: int) -> str:
        overlaps.extend(other for other in running if other == paths)
        running.append(paths)
        await anyio.wait_all_tasks_blocked()
        running.remove(paths)
        return f"edited {n}"

    calls = [call("edit", f'{{"paths": ["{"ab"[n % 2]}"], "n": {n}}}', str(n)) for n in range(4)]
    results = await ToolRegistry([edit]).execute_all(calls)
    assert [result.text for result in results] == ["edited 0", "edited 1", "edited 2", "edited 3"]
    assert overlaps == []


async def test_a_usage_limit_holds_under_fifty_calls_at_once() -> None:
    runs = 0

    @tool(max_usage_count=7)
    def limited(n: int) -> str:
        nonlocal runs
        runs += 1
        return ""

    calls = [call("limited", f'{{"n": {n}}}', str(n)) for n in range(50)]
    results = await ToolRegistry([limited]).execute_all(calls)
    assert runs == limited.current_usage_count == 7
    assert limited.has_reached_max_usage_count
    refused = {result.text for result in results if result.is_error}
    assert refused == {"Tool 'limited' has reached its usage limit of 7 and cannot be used anymore."}
    with pytest.raises(ToolUsageLimitExceededError):
        limited.invoke({"n": 1})
    limited.reset_usage_count()
    assert limited.invoke({"n": 1}) == ""


async def test_a_cache_gives_equal_calls_once_and_keeps_no_error_and_no_nothing() -> None:
    runs: list[str] = []

    @tool(cache=True)
    async def get(key: str) -> Any:
        runs.append(key)
        if key == "bad":
            raise ValueError
        return None if key == "none" else [key]

    @tool(should_cache=lambda arguments, output: "keep" in output.text, max_usage_count=3, usage_scope="process")
    async def picky(key: str) -> str:
        runs.append(key)
        return key

    def script() -> ScriptedProvider:
        wanted = [("get", "a"), ("get", "bad"), ("get", "none"), ("picky", "keep"), ("picky", "drop")]
        return ScriptedProvider(
            [
                AssistantMessage([call(name, f'{{"key": "{key}"}}', f"{turn}{key}") for name, key in wanted])
                for turn in range(2)
            ]
            + ["ok"]
        )

    config: ToolLoopConfig = ToolLoopConfig(cache=MemoryCache())
    result = await tool_loop(script(), ToolRegistry([get, picky]), "go", config=config)
    assert sorted(runs) == sorted(["a", "bad", "none", "keep", "drop", "bad", "none", "drop"])
    texts = [message.text for message in result.messages if isinstance(message, ToolResult)]
    assert texts[:5] == texts[5:]
    # A hit is no use: the limit of three was reached by keep, drop, drop.
    again = await tool_loop(script(), ToolRegistry([get, picky]), "go", config=config)
    told = {message.call_id: message for message in again.messages if isinstance(message, ToolResult)}
    assert told["0keep"].text == "keep"
    assert told["0drop"].is_error


class RaisingCache:
    async def get(self, key: str) -> str | None:
        raise RuntimeError(f"cannot read {key}")

    async def set(self, key: str, value: str) -> None:
        raise RuntimeError(f"cannot write {key}: {value}")


class GarbledCache(MemoryCache):
    async def get(self, key: str) -> str | None:
        return await super().get(key) and "{garbled"


def never_sure(arguments: Mapping[str, Any], output: ToolOutput) -> bool:
    raise KeyError(f"{arguments}: {output.text}")


@pytest.mark.parametrize(
    ("cache", "should_cache"),
    [(RaisingCache(), True), (GarbledCache(), True), (MemoryCache(), never_sure)],
    ids=["a cache that raises", "a cache that gives nonsense", "a predicate that raises"],
)
async def test_what_goes_wrong_with_a_cache_is_a_miss_and_loses_no_output(
    cache: Cache,
    should_cache: Callable[[Mapping[str, Any], ToolOutput], bool] | bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = 0

    @tool(should_cache=should_cache)
    async def charge(amount: int) -> str:
        nonlocal runs
        runs += 1
        return f"charged {amount}"

    provider = ScriptedProvider([call("charge", '{"amount": 5}', "a"), call("charge", '{"amount": 5}', "b"), "ok"])
    result = await tool_loop(provider, ToolRegistry([charge]), "go", config=ToolLoopConfig(cache=cache))
    told = [message for message in result.messages if isinstance(message, ToolResult)]
    assert [(message.text, message.is_error) for message in told] == [("charged 5", False)] * 2
    assert runs == 2
    assert {record.name for record in caplog.records} == {"toolkit.calls"}


# guards


@dataclass
class Guarded:
    name: str
    answer: Any
    text: str
    runs: bool = False


GUARDED = [
    Guarded("approve", True, "ran a", runs=True),
    Guarded("deny", False, "Tool call denied."),
    Guarded("deny with a reason, word for word", Deny("Not on Sundays"), "Not on Sundays"),
    Guarded("a text denies", "no!", "no!"),
    Guarded("an empty text denies too", "", "Tool call denied."),
    Guarded(
        "modify",
        Modify({"key": "b"}),
        'ran b\n\n[The approver changed the arguments of this call: it ran with {"key":"b"}.]',
        runs=True,
    ),
    Guarded("abort", Abort("stop it"), "stop it"),
    Guarded("nonsense denies", 7, "Tool call denied: the approval hook answered int, which is no answer."),
    Guarded("none denies", None, "Tool call denied: the approval hook answered NoneType, which is no answer."),
    Guarded("put off", Defer(), "The decision on this call was put off, so it was not run."),
]


@pytest.mark.parametrize("case", GUARDED, ids=lambda case: case.name)
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_approver_decides(case: Guarded, is_async: bool) -> None:
    runs: list[str] = []

    @tool
    async def act(key: str) -> str:
        runs.append(key)
        return f"ran {key}"

    async def later(request: object) -> Any:
        await anyio.lowlevel.checkpoint()
        return case.answer

    result = await ToolRegistry([act]).execute(
        call("act", '{"key": "a"}'), approve=later if is_async else lambda request: case.answer
    )
    assert (result.text, bool(runs)) == (case.text, case.runs)
    assert result.is_error is not case.runs


async def test_what_an_approver_changes_is_checked_and_never_repaired() -> None:
    @tool
    async def act(keys: list[str]) -> str:
        return "ran"

    answers = [Modify({"keys": "['a']"}), Modify({"other": 1}), Modify({})]
    while answers:
        result = await ToolRegistry([act]).execute(call("act", '{"keys": []}'), approve=lambda _: answers.pop())
        assert result.is_error
        assert result.text.startswith("The approver changed the arguments wrongly.")


async def test_what_asks_for_approval_is_denied_where_nobody_is_there() -> None:
    @tool(requires_approval=True)
    async def launch() -> str:
        return "launched"

    registry = ToolRegistry([launch])
    assert (await registry.execute(call("launch"))).text == (
        "Tool 'launch' needs approval. Nobody is there to approve it, so it was not run."
    )
    assert (await registry.execute(call("launch"), approve=lambda request: True)).text == "launched"


Hook = Callable[[str, str, Mapping[str, Any]], bool | Awaitable[bool]]


def raises(name: str, call_id: str, arguments: Mapping[str, Any]) -> bool:
    raise RuntimeError("boom")


async def hangs(name: str, call_id: str, arguments: Mapping[str, Any]) -> bool:
    await anyio.sleep_forever()
    return True


def says_no(name: str, call_id: str, arguments: Mapping[str, Any]) -> bool:
    return False


def gives_a_reason(name: str, call_id: str, arguments: Mapping[str, Any]) -> Any:
    return "not this one"


@pytest.mark.parametrize("hook", [says_no, raises, hangs, gives_a_reason])
async def test_a_guard_that_does_not_say_yes_skips_the_call(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "toolkit.calls")
    events: list[Any] = []

    @tool
    async def act() -> str:
        return "ran"

    config: ToolLoopConfig = ToolLoopConfig(
        middleware=[ToolExecutionHooks(before=hook)], timeouts=Timeouts(hook=0.02), on_event=events.append
    )
    with anyio.fail_after(120):
        result = await tool_loop(ScriptedProvider([call("act"), "ok"]), ToolRegistry([act]), "go", config=config)
    told = result.messages[2].text
    assert told in ("Tool execution skipped by before_tool_execution hook.", "Tool call denied: a guard failed.")
    assert not [event for event in events if isinstance(event, ToolExecutionStart | ToolExecutionEnd)]


async def test_an_observer_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "toolkit")

    @tool
    async def act() -> str:
        return "ran"

    def boom(*_: object) -> None:
        raise RuntimeError("boom")

    config: ToolLoopConfig = ToolLoopConfig(middleware=[ToolExecutionHooks(after=boom)], on_event=boom)
    result = await tool_loop(ScriptedProvider([call("act"), "ok"]), ToolRegistry([act]), "go", config=config)
    assert [message.text for message in result.messages] == ["go", "", "ran", "ok"]


async def test_a_long_output_is_cut_and_says_so() -> None:
    @tool(max_output_chars=10)
    async def long() -> str:
        return "0123456789" * 10

    text = (await ToolRegistry([long]).execute(call("long"))).text
    assert text.startswith("01234\n[... 90 of 100 characters are left out here")
    assert text.endswith("\n56789")
