"""What is told to have ended has ended, what has ended is told, and what is held is held until the work is over."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.busy_machine import with_time_enough
from toolkit import (
    AssistantMessage,
    ConfigurationError,
    FunctionTool,
    Timeouts,
    ToolCall,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolLoopConfig,
    ToolLoopResult,
    ToolOptions,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    tool,
    tool_loop,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.errors import ToolTimeoutError
from toolkit.loop.config import ProviderRetryConfig
from toolkit.runtime.backend import keep_cancelling
from toolkit.runtime.workers import abandoned_count
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

RETRY = ToolRetryConfig(max_retries=2, initial_backoff=0)


def call(name: str, arguments: str = "{}", call_id: str = "1") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def results(result: ToolLoopResult) -> dict[str, ToolResult]:
    return {message.call_id: message for message in result.messages if isinstance(message, ToolResult)}


async def none_abandoned() -> None:
    with anyio.fail_after(120):
        while abandoned_count():  # noqa: ASYNC110 - nothing announces the end of a thread
            await anyio.sleep(0.001)


class Held:
    """A thread that is held until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.ended = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.let_go.wait(300)
        self.ended.set()
        return "let go"

    async def has_begun(self) -> None:
        await anyio.to_thread.run_sync(self.begun.wait, 30)


# a thread that has ended in time


async def test_a_function_that_ended_while_the_loop_stood_still_is_not_told_as_timed_out() -> None:
    runs: list[int] = []
    let_go, never = threading.Event(), threading.Event()

    @tool(timeout=0.5, retry=RETRY)
    def work() -> str:
        runs.append(1)
        let_go.wait(300)
        return "done"

    @tool(run_in_thread=False)
    def block() -> str:
        """Hold the event loop until the other's time is long up and the other has ended."""
        let_go.set()
        never.wait(0.7)
        return "blocked"

    told = await ToolRegistry([work, block]).execute_all([call("work", call_id="a"), call("block", call_id="b")])
    assert [result.text for result in told] == ["done", "blocked"]
    assert runs == [1]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_by_asyncio_itself_still_comes_after_a_result_was_kept() -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.append("kept")
            keep_cancelling()
        await asyncio.sleep(0)
        seen.append("never")

    task = asyncio.ensure_future(main())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["kept"]


# the clock and the waiting


async def test_the_time_of_a_tool_does_not_run_while_it_waits_for_a_thread() -> None:
    async def run(seconds: float) -> list[str]:
        first = Held()

        @tool
        def hold() -> str:
            return first()

        @tool(timeout=seconds)
        def quick() -> str:
            return "quick"

        async def let_go() -> None:
            await first.has_begun()
            await anyio.sleep(3 * seconds)
            first.let_go.set()

        provider = ScriptedProvider([AssistantMessage([call("hold", call_id="a"), call("quick", call_id="b")]), "ok"])
        told: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(let_go)
            config = ToolLoopConfig(sync_workers=1)
            result = await tool_loop(provider, ToolRegistry([hold, quick]), "go", config=config)
            told.extend(each.text for each in results(result).values())
        return told

    assert await with_time_enough(run, lambda texts: texts == ["let go", "quick"]) == ["let go", "quick"]


@dataclass
class Waiting:
    name: str
    options: dict[str, Any]
    waits_for: str
    is_threaded: bool = False


def seven(arguments: Mapping[str, Any]) -> int:
    return 7


WAITING = [
    Waiting("a lock by name", {"lock": "accounts"}, "the lock 'accounts'"),
    Waiting("a lock by arguments", {"lock": seven}, "the lock 7"),
    Waiting("a place", {"concurrency": 1}, "one of its 1 places"),
    Waiting("a thread", {}, "a worker thread", is_threaded=True),
]


def crowd(case: Waiting, **options: Any) -> tuple[ToolRegistry, list[int], Held]:
    """Return a tool that must run alone, of which each call is held; where it notes its runs; and what lets go."""
    runs: list[int] = []
    held = Held()

    async def alone(n: int) -> str:
        runs.append(n)
        await anyio.to_thread.run_sync(held, abandon_on_cancel=True)
        return "done"

    def in_thread(n: int) -> str:
        runs.append(n)
        return held()

    function: Callable[[int], Any] = in_thread if case.is_threaded else alone
    made: FunctionTool[object, [int], Any] = tool(name="alone", **case.options, **options)(function)
    return ToolRegistry([made]), runs, held


@pytest.mark.parametrize("case", WAITING, ids=lambda case: case.name)
async def test_waiting_has_a_limit_and_a_text_of_its_own(case: Waiting) -> None:
    async def run(seconds: float) -> tuple[dict[str, ToolResult], list[int]]:
        tools, runs, held = crowd(case, timeout=30)
        calls = [call("alone", '{"n": 1}', "a"), call("alone", '{"n": 2}', "b")]

        async def let_go(event: object) -> None:
            if getattr(event, "call_id", None) == "b" and type(event).__name__ == "ToolExecutionEnd":
                held.let_go.set()

        config = ToolLoopConfig(timeouts=Timeouts(wait=seconds), sync_workers=1, on_event=let_go)
        with anyio.fail_after(120):
            result = await tool_loop(ScriptedProvider([AssistantMessage(calls), "ok"]), tools, "go", config=config)
        return results(result), runs

    told, runs = await run(0.05)
    assert told["b"].text == f"Not started: tool 'alone' waited 0.05 s for {case.waits_for} in vain. Try again later."
    assert told["b"].is_error
    assert not told["a"].is_error
    assert runs == [1]


@pytest.mark.parametrize("case", WAITING, ids=lambda case: case.name)
async def test_what_waits_when_the_loop_ends_is_not_started(case: Waiting) -> None:
    async def run(seconds: float) -> tuple[dict[str, ToolResult], list[int]]:
        tools, runs, held = crowd(case)
        calls = [call("alone", '{"n": 1}', "a"), call("alone", '{"n": 2}', "b")]
        config = ToolLoopConfig(timeout=seconds, sync_workers=1)
        with anyio.fail_after(120):
            result = await tool_loop(ScriptedProvider([AssistantMessage(calls)]), tools, "go", config=config)
        held.let_go.set()
        return results(result), runs

    told, runs = await with_time_enough(run, lambda outcome: outcome[1] and "waited" in outcome[0]["b"].text)
    assert told["b"].text == f"Not started: the run's time was up while the call waited for {case.waits_for}."
    assert "may have taken effect" in told["a"].text
    assert "may still be running" in told["a"].text
    assert runs == [1]
    await none_abandoned()


async def test_a_tool_of_ones_own_says_that_it_waits() -> None:
    @tool_with_ctx(timeout=0.05)
    async def print_it(context: ToolContext[None], wait: float) -> str:
        with context.waiting_for("the printer"):
            await anyio.sleep(wait)
        return "printed"

    tools = ToolRegistry[None]([print_it])
    assert (await tools.execute(call("print_it", '{"wait": 0.2}'), None)).text == "printed"
    provider = ScriptedProvider([call("print_it", '{"wait": 60}'), "ok"])
    with anyio.fail_after(120):
        result = await tool_loop(provider, tools, "go", ctx=None, config=ToolLoopConfig(timeouts=Timeouts(wait=0.02)))
    waited = "Not started: tool 'print_it' waited 0.02 s for the printer in vain. Try again later."
    assert results(result)["1"].text == waited


async def test_a_call_whose_start_is_still_being_told_is_not_started_when_the_loop_ends() -> None:
    runs: list[int] = []

    @tool
    async def work() -> str:
        runs.append(1)
        return "done"

    async def slow_listener(event: object) -> None:
        if type(event).__name__ == "ToolExecutionStart":
            await anyio.sleep_forever()

    config = ToolLoopConfig(timeout=0.1, on_event=slow_listener)
    with anyio.fail_after(120):
        result = await tool_loop(ScriptedProvider([call("work")]), ToolRegistry([work]), "go", config=config)
    assert results(result)["1"].text.startswith("Not started: the run's time was up")
    assert runs == []


# locks


def one_path(arguments: Mapping[str, Any]) -> list[str]:
    return ["x"]


@pytest.mark.parametrize(
    "options",
    [{"lock": "teller"}, {"concurrency": 1}, {"lock": one_path}],
    ids=["lock", "concurrency", "lock by arguments"],
)
async def test_an_abandoned_thread_holds_its_lock_and_its_place_until_it_ends(options: dict[str, Any]) -> None:
    held, running = Held(), threading.Semaphore(1)
    overlaps: list[bool] = []
    told: list[str] = []

    @tool(timeout=0.1, **options)
    def pay(hold: bool) -> str:
        overlaps.append(not running.acquire(blocking=False))
        if hold:
            held()
        running.release()
        return "paid"

    tools = ToolRegistry([pay])

    async def pay_again() -> None:
        told.append((await tools.execute(call("pay", '{"hold": false}'))).text)

    with anyio.fail_after(120):
        first = await tools.execute(call("pay", '{"hold": true}'))
        assert "may still be running" in first.text
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pay_again)
            await anyio.sleep(0.2)  # more than its time: that does not count while it waits
            assert told == []
            held.let_go.set()
    assert told == ["paid"]
    assert overlaps == [False, False]
    await none_abandoned()


async def test_tools_that_name_the_same_lock_never_overlap() -> None:
    running: list[str] = []
    most = 0

    async def use(name: str) -> str:
        nonlocal most
        running.append(name)
        most = max(most, len(running))
        await anyio.wait_all_tasks_blocked()
        running.remove(name)
        return name

    @tool(lock="accounts")
    async def pay() -> str:
        return await use("pay")

    @tool(lock="accounts")
    async def refund() -> str:
        return await use("refund")

    @tool(lock=lambda arguments: arguments["account"])
    async def close(account: str) -> str:
        return await use("close")

    names = [("pay", "{}"), ("refund", "{}"), ("close", '{"account": "accounts"}')] * 3
    calls = [call(name, arguments, str(number)) for number, (name, arguments) in enumerate(names)]
    told = await ToolRegistry([pay, refund, close]).execute_all(calls)
    assert [result.text for result in told] == [name for name, _ in names]
    assert most == 1


async def test_a_lock_of_none_is_no_lock() -> None:
    both = anyio.Event()
    count = 0

    @tool(lock=lambda arguments: arguments.get("path"))
    async def work(path: str | None = None) -> str:
        nonlocal count
        count += 1
        if count == 2:
            both.set()
        await both.wait()
        return "done"

    with anyio.fail_after(120):
        told = await ToolRegistry([work]).execute_all([call("work", call_id=name) for name in "ab"])
    assert [result.text for result in told] == ["done", "done"]


@pytest.mark.parametrize("options", [{"lock": "ledger"}, {"concurrency": 1}], ids=["lock", "concurrency"])
def test_a_lock_holds_across_the_event_loops_of_a_process(options: dict[str, Any]) -> None:
    running, overlaps = threading.Semaphore(1), 0

    @tool(**options)
    def post(n: int) -> str:
        nonlocal overlaps
        is_alone = running.acquire(blocking=False)
        overlaps += not is_alone
        threading.Event().wait(0.005)
        if is_alone:
            running.release()
        return str(n)

    texts: list[str] = []

    def run_loop(backend: str) -> None:
        async def main() -> None:
            calls = [call("post", f'{{"n": {n}}}', str(n)) for n in range(5)]
            texts.extend(result.text for result in await ToolRegistry([post]).execute_all(calls))

        anyio.run(main, backend=backend)

    threads = [threading.Thread(target=run_loop, args=(backend,)) for backend in ("asyncio", "trio", "asyncio")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert overlaps == 0
    assert sorted(texts) == sorted([str(n) for n in range(5)] * 3)


async def test_a_lock_is_held_by_a_thread_of_a_loop_inside_the_tool() -> None:
    held = Held()
    overlaps: list[bool] = []

    @tool
    def inner() -> str:
        return held()

    @tool(lock="nested", timeout=0.1)
    async def outer(n: int) -> str:
        if n == 2:
            overlaps.append(held.begun.is_set() and not held.ended.is_set())
            return "alone"
        result = await tool_loop(ScriptedProvider([call("inner"), "ok"]), ToolRegistry([inner]), "go")
        return result.text

    tools = ToolRegistry([outer])
    with anyio.fail_after(120):
        first = await tools.execute(call("outer", '{"n": 1}'))
        assert "may still be running" in first.text
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tools.execute, call("outer", '{"n": 2}'))
            await anyio.wait_all_tasks_blocked()
            assert overlaps == []
            held.let_go.set()
    assert overlaps == [False]
    await none_abandoned()


async def test_a_lock_whose_loop_has_ended_is_handed_on() -> None:
    held = Held()

    @tool(lock="handed on", timeout=0.05)
    def hold() -> str:
        return held()

    @tool(lock="handed on")
    def take() -> str:
        return "taken"

    def another_loop() -> str:
        result = tool_loop_sync(ScriptedProvider([call("hold"), "ok"]), ToolRegistry([hold]), "go")
        return results(result)["1"].text

    told: list[str] = []
    with anyio.fail_after(120):
        assert "may still be running" in await anyio.to_thread.run_sync(another_loop)
        async with anyio.create_task_group() as tasks:

            async def take_it() -> None:
                told.append((await ToolRegistry([take]).execute(call("take"))).text)

            tasks.start_soon(take_it)
            await anyio.wait_all_tasks_blocked()
            assert told == []
            held.let_go.set()
        assert told == ["taken"]


async def test_a_cancelled_waiter_leaves_the_row() -> None:
    held = Held()

    @tool(lock="row")
    async def use(n: int) -> str:
        if n == 0:
            await anyio.to_thread.run_sync(held)
        return str(n)

    tools = ToolRegistry([use])
    told: list[str] = []

    async def run(n: int, scope: anyio.CancelScope) -> None:
        with scope:
            told.append((await tools.execute(call("use", f'{{"n": {n}}}'))).text)

    scopes = [anyio.CancelScope() for _ in range(4)]
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for n, scope in enumerate(scopes):
                tasks.start_soon(run, n, scope)
                await anyio.wait_all_tasks_blocked()
            scopes[1].cancel()
            scopes[3].cancel()
            held.let_go.set()
    assert told == ["0", "2"]


def test_a_lock_is_a_text_or_a_function() -> None:
    with pytest.raises(ConfigurationError, match="lock must be text, a function or None, not 3"):
        ToolOptions(lock=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# the end of the program


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("names", [("leave",), ("leave", "stay")])
async def test_a_tool_that_exits_ends_itself_and_not_the_program(in_thread: bool, names: tuple[str, ...]) -> None:
    @tool(run_in_thread=in_thread)
    def leave() -> str:
        raise SystemExit("bye")

    @tool
    async def stay() -> str:
        await anyio.lowlevel.checkpoint()
        return "here"

    provider = ScriptedProvider([AssistantMessage([call(name, call_id=name) for name in names]), "done"])
    result = await tool_loop(provider, ToolRegistry([leave, stay]), "go")
    told = results(result)
    assert (told["leave"].text, told["leave"].is_error, result.text) == ("SystemExit: bye", True, "done")
    assert "stay" not in names or told["stay"].text == "here"


async def test_an_exit_in_a_task_group_of_the_tool_is_its_error_on_trio(anyio_backend_name: str) -> None:
    if anyio_backend_name != "trio":
        pytest.skip("on asyncio a task that exits ends the event loop, whoever awaits it")

    @tool
    async def leave() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(exit_now, 3))
        return "never"

    async def exit_now(code: int) -> None:
        raise SystemExit(code)

    told = await ToolRegistry([leave]).execute(call("leave"))
    assert told.is_error
    assert told.text.endswith("SystemExit: 3")


# retry


@dataclass
class Accident:
    name: str
    raised: BaseException | ToolOutput
    runs: int
    retry_if: Callable[[Exception], bool] | None = None
    text: str = ""


def boom(error: Exception) -> bool:
    raise RuntimeError("the predicate is broken")


ACCIDENTS = [
    Accident("an error", ValueError("v"), 3, text="ValueError: v"),
    Accident("the system's timeout", TimeoutError("t"), 3, text="TimeoutError: t"),
    Accident("an exit", SystemExit("x"), 3, text="SystemExit: x"),
    Accident("a tool error", ToolError("said"), 1, text="said"),
    Accident("what derives from it", ToolFailedError("failed"), 1, text="failed"),
    Accident("a timeout that the tool tells", ToolTimeoutError("x", 1), 1),
    Accident("an error output", ToolOutput.error("told"), 1, text="told"),
    Accident("a tool error that is wanted", ToolError("said"), 3, lambda error: isinstance(error, ToolError), "said"),
    Accident("an error output that is wanted", ToolOutput.error("told"), 3, lambda error: str(error) == "told", "told"),
    Accident("an error that is not wanted", ValueError("v"), 1, lambda error: False, "ValueError: v"),
    Accident("a predicate that raises", ValueError("v"), 1, boom, "ValueError: v"),
    Accident("a predicate that raises at a tool error", ToolError("said"), 1, boom, "said"),
]


@pytest.mark.parametrize("case", ACCIDENTS, ids=lambda case: case.name)
async def test_accidents_are_repeated_and_what_a_tool_says_is_told_at_once(
    case: Accident, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    @tool(retry=ToolRetryConfig(max_retries=2, initial_backoff=0, retry_if=case.retry_if))
    async def work() -> ToolOutput:
        nonlocal runs
        runs += 1
        if isinstance(case.raised, BaseException):
            raise case.raised
        return case.raised

    told = await ToolRegistry([work]).execute(call("work"))
    assert (told.is_error, runs) == (True, case.runs)
    assert not case.text or told.text == case.text
    if case.retry_if is boom:
        broken = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
        assert "retry_if of work raised" in broken[0].getMessage()


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_timeout_is_an_accident_unless_its_thread_still_runs(is_stuck: bool) -> None:
    runs = 0
    held = Held()

    @tool_with_ctx(timeout=0.05, retry=RETRY)
    async def wait(context: ToolContext[object]) -> str:
        nonlocal runs
        runs += 1
        assert not context.cancelled
        await anyio.sleep_forever()
        return ""

    @tool(timeout=0.05, retry=RETRY)
    def hold() -> str:
        nonlocal runs
        runs += 1
        return held()

    with anyio.fail_after(120):
        told = await ToolRegistry([wait, hold]).execute(call("hold" if is_stuck else "wait"))
    held.let_go.set()
    assert "may have taken effect" in told.text
    assert ("may still be running" in told.text) == is_stuck
    assert runs == (1 if is_stuck else 3)
    await none_abandoned()


@pytest.mark.parametrize("retry", [0, 1, 50, 1023, 1024, 10_000, 10**9])
@pytest.mark.parametrize("multiplier", [2, 2.0, 1e300, 0, 1])
def test_a_pause_never_overflows(retry: int, multiplier: float) -> None:
    of_tool = ToolRetryConfig(backoff_multiplier=multiplier, max_backoff=5, jitter=0)
    of_provider = ProviderRetryConfig(backoff_multiplier=multiplier, max_backoff=5, jitter=0)
    for config in (of_tool, of_provider):
        assert 0 <= config.pause(retry, 1) <= 5
    assert ToolRetryConfig(initial_backoff=0, backoff_multiplier=multiplier).pause(retry, 0) == 0


# what a tool is told of its own end


async def test_an_async_tool_that_timed_out_is_told_so_and_what_it_started_too() -> None:
    contexts: list[ToolContext[object]] = []
    has_seen = threading.Event()

    def look(context: ToolContext[object]) -> None:
        while not context.cancelled:
            time.sleep(0.001)
        has_seen.set()

    @tool_with_ctx(timeout=0.5)
    async def wait(context: ToolContext[object]) -> str:
        contexts.append(context)
        await anyio.to_thread.run_sync(look, context, abandon_on_cancel=True)
        return ""

    with anyio.fail_after(120):
        told = await ToolRegistry([wait]).execute(call("wait"))
        assert contexts[0].cancelled
        assert "It may have taken effect and may still be running." in told.text
        await anyio.to_thread.run_sync(has_seen.wait, 30)
    assert has_seen.is_set()


@pytest.mark.parametrize("has_sibling", [False, True])
async def test_a_cancelled_tool_is_told_so_on_every_backend(has_sibling: bool) -> None:
    contexts: list[ToolContext[object]] = []
    begun = anyio.Event()

    @tool_with_ctx
    async def wait(context: ToolContext[object]) -> str:
        contexts.append(context)
        if len(contexts) == 1 + has_sibling:
            begun.set()
        await anyio.sleep_forever()
        return ""

    calls = [call("wait", call_id=name) for name in ("ab" if has_sibling else "a")]
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                partial(tool_loop, ScriptedProvider([AssistantMessage(calls)]), ToolRegistry([wait]), "go")
            )
            await begun.wait()
            assert not any(context.cancelled for context in contexts)
            tasks.cancel_scope.cancel()
    assert all(context.cancelled for context in contexts)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_thread_of_asyncios_own_may_still_be_running() -> None:
    held = Held()

    @tool(timeout=0.05)
    async def wait() -> str:
        return await asyncio.to_thread(held)

    told = await ToolRegistry([wait]).execute(call("wait"))
    held.let_go.set()
    assert "may still be running" in told.text
