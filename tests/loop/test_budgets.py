"""Budgets, rates and guards of many runs: reserved before a request, settled after it, and named when used up."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    LoopLimits,
    Steering,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    Usage,
    UsageLimits,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatResponse
from toolkit.endings import Aborted, Complete, UsageLimit
from toolkit.errors import BudgetStoreError, ProviderError
from toolkit.events import ResponseReceived
from toolkit.policies import (
    Budget,
    MemoryBudgets,
    Middleware,
    RateLimit,
    RequestInfo,
    Reservation,
    Spending,
    guard_input,
    guard_output,
)
from toolkit.testing import FunctionProvider, ScriptedProvider

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class App:
    user: str


def reply(text: str = "Yes.", cost: float | None = None) -> ChatResponse:
    usage = Usage(input_tokens=10, output_tokens=5, cost=cost)
    return ChatResponse(message=AssistantMessage(text), usage=usage)


async def ask(*middleware: Middleware[Any], provider: Any = None, **settings: Any) -> ToolLoopResult[None]:
    provider = provider or ScriptedProvider([reply()], repeats=True)
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=middleware, **settings)
    with anyio.fail_after(120):
        return await tool_loop(provider, ToolRegistry(), "Hello?", config=config)


async def ask_as(user: str, *middleware: Middleware[Any], **settings: Any) -> ToolLoopResult[None]:
    return await ask(*middleware, metadata={"user": user}, **settings)


# budgets


async def test_a_run_that_finds_nothing_left_ends_and_says_whose_budget_it_was() -> None:
    budget = Budget(UsageLimits(requests=2), per="user", window="day", read_time=lambda: 1_000_000_000.0)
    endings = [(await ask_as("ada", budget)).reason for _ in range(3)]
    assert endings[:2] == [Complete(), Complete()]
    assert endings[2] == UsageLimit("requests", 2, 2, budget="user ada, 2001-09-09")
    assert (await ask_as("bob", budget)).reason == Complete()
    assert await budget.read_spent("ada") == Spending(requests=2, input_tokens=20, output_tokens=10)


async def test_the_run_that_is_refused_has_made_no_request_and_its_transcript_goes_on() -> None:
    budget, provider = Budget(UsageLimits(requests=1)), ScriptedProvider([reply()], repeats=True)
    await ask(budget, provider=provider)
    refused = await ask(budget, provider=provider)
    assert len(provider.requests) == 1
    assert (refused.iterations, refused.usage, refused.text) == (0, Usage(), "")
    assert [message.text for message in refused.messages] == ["Hello?"]


async def test_the_owner_is_read_from_the_metadata_the_context_or_a_function() -> None:
    budget = Budget(UsageLimits(requests=9), per="user")
    registry = ToolRegistry[App]()
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(budget,))
    await tool_loop(ScriptedProvider([reply()]), registry, "Hello?", ctx=App("ada"), config=config)
    await ask_as("ada", budget)
    assert (await budget.read_spent("ada")).requests == 2
    by_function = Budget(UsageLimits(requests=9), per=lambda run: f"agent {run.agent or 'none'}")
    await ask(by_function)
    assert (await by_function.read_spent("agent none")).requests == 1


async def test_a_run_without_the_owner_is_refused_before_it_began() -> None:
    provider = ScriptedProvider([reply()])
    with pytest.raises(ConfigurationError, match=r"by the owner 'user', and this run has none: give ToolLoopConfig"):
        await ask(Budget(UsageLimits(requests=2), per="user"), provider=provider)
    assert provider.requests == []


@pytest.mark.parametrize(
    ("window", "names"),
    [
        ("day", ["2001-09-09", "2001-09-10"]),
        ("month", ["2001-09", "2001-09"]),
        (86_400, ["2001-09-09T00:00:00+00:00", "2001-09-10T00:00:00+00:00"]),
        (None, ["all", "all"]),
    ],
)
async def test_a_window_begins_anew(window: Any, names: list[str]) -> None:
    times = iter([1_000_000_000.0, 1_000_000_000.0, 1_000_000_000.0 + 86_400])
    budget = Budget(UsageLimits(requests=1), window=window, read_time=lambda: next(times))
    await ask(budget)
    assert (await ask(budget)).reason == UsageLimit("requests", 1, 1, budget=names[0])
    again = (await ask(budget)).reason
    assert again == (Complete() if names[0] != names[1] else UsageLimit("requests", 1, 1, budget=names[1]))


async def test_requests_at_once_share_what_is_left_and_none_goes_over_what_was_reserved() -> None:
    budget = Budget(UsageLimits(total_tokens=100), reserve=Usage(input_tokens=10, output_tokens=10))
    waiting, let = 0, anyio.Event()

    async def answer(request: ChatRequest) -> ChatResponse:
        nonlocal waiting
        waiting += 1
        await let.wait()
        return reply()

    results: list[ToolLoopResult[None]] = []

    async def run() -> None:
        results.append(await ask(budget, provider=FunctionProvider(answer)))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            assert waiting == 5  # five times 20 of 100
            let.set()
    assert (await budget.read_spent()).total_tokens == 5 * 15
    assert len([each for each in results if each.reason == Complete()]) == 5


async def test_a_sub_agent_spends_from_the_budget_of_its_caller() -> None:
    budget = Budget(UsageLimits(requests=9), per="user")
    helper = sub_agent_tool("helper", "Helps.", ScriptedProvider([reply("Done.")]), ToolRegistry())
    provider = ScriptedProvider([ToolCall("1", "helper", '{"task": "Help."}'), "Yes."])
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(budget,), metadata={"user": "ada"})
    await tool_loop(provider, ToolRegistry([helper]), "Hello?", config=config)
    assert (await budget.read_spent("ada")).requests == 3


async def test_two_budgets_hold_together_and_the_one_with_something_left_gets_it_back() -> None:
    company, user = Budget(UsageLimits(requests=5), name="company"), Budget(UsageLimits(requests=1), per="user")
    await ask_as("ada", company, user)
    assert (await ask_as("ada", company, user)).reason == UsageLimit("requests", 1, 1, budget="user ada")
    assert (await company.read_spent()).requests == 1


async def test_a_request_that_fails_is_settled_by_what_it_reports() -> None:
    budget = Budget(UsageLimits(total_tokens=1000, requests=9), reserve=Usage(output_tokens=100))
    failure = ProviderError("model", "down", status=500)
    failure.usage = Usage(input_tokens=7)
    with pytest.raises(ProviderError):
        await ask(budget, provider=ScriptedProvider([failure]))
    with pytest.raises(ZeroDivisionError):
        await ask(budget, provider=FunctionProvider(lambda request: ZeroDivisionError()))
    assert await budget.read_spent() == Spending(requests=2, input_tokens=7)


async def test_a_request_that_is_cancelled_has_spent_what_was_reserved() -> None:
    budget = Budget(UsageLimits(output_tokens=100), reserve=Usage(output_tokens=30))

    async def answer(request: ChatRequest) -> ChatResponse:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.move_on_after(20) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ask(budget, provider=FunctionProvider(answer)))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert await budget.read_spent() == Spending(requests=1, output_tokens=30)


async def test_a_reservation_whose_process_has_ended_lapses() -> None:
    store, now = MemoryBudgets(), 0.0
    limits = UsageLimits(output_tokens=100)
    lost = Reservation(budget="all", amount=Spending(output_tokens=90), begun=0.0, lapses=60.0)
    assert await store.reserve(lost, limits) is None
    budget = Budget(limits, store=store, reserve=Usage(output_tokens=20), read_time=lambda: now)
    assert isinstance((await ask(budget)).reason, UsageLimit)
    now = 61.0
    assert (await ask(budget)).reason == Complete()


async def test_a_cost_that_is_unknown_uses_up_the_budget_unless_one_is_reserved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = Budget(UsageLimits(cost=1.0))
    await ask(budget, provider=ScriptedProvider([reply(cost=0.25)]))
    assert (await budget.read_spent()).cost == 0.25
    await ask(budget, provider=ScriptedProvider([reply()]))
    assert "the cost of a request is unknown, and is taken for 1: wrap the provider in PricedProvider" in caplog.text
    assert (await ask(budget)).reason == UsageLimit("cost", 1.0, 1.25, budget="all")
    reserving = Budget(UsageLimits(cost=1.0), reserve=Usage(cost=0.1))
    await ask(reserving, provider=ScriptedProvider([reply()]))
    assert (await reserving.read_spent()).cost == 0.1


class BrokenStore(MemoryBudgets):
    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    async def reserve(self, reservation: Reservation, limits: UsageLimits) -> UsageLimit | None:
        if self._method == "reserve":
            raise BudgetStoreError("nowhere", "it is down")
        return await super().reserve(reservation, limits)

    async def settle(self, reservation: Reservation, spent: Spending) -> None:
        raise BudgetStoreError("nowhere", "it is full")


async def test_a_store_that_is_down_fails_the_run_before_the_request_is_made() -> None:
    provider = ScriptedProvider([reply()])
    with pytest.raises(BudgetStoreError, match="the budgets in nowhere can't be used: it is down") as failure:
        await ask(Budget(UsageLimits(requests=2), store=BrokenStore("reserve")), provider=provider)
    assert [message.text for message in failure.value.messages] == ["Hello?"]
    assert provider.requests == []


async def test_an_answer_is_taken_where_it_can_not_be_settled(caplog: pytest.LogCaptureFixture) -> None:
    result = await ask(Budget(UsageLimits(requests=2), store=BrokenStore("settle")))
    assert result.text == "Yes."
    assert "it is full; the usage of a request is not settled (budget all, 15 tokens)" in caplog.text


WRONG: Any = {"window": "week", "store": "sqlite:///x.db", "check": "no"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(UsageLimits()), "without a limit would limit nothing"),
        (lambda: Budget(UsageLimits(tool_calls=3)), "tool_calls are none: LoopLimits"),
        (
            lambda: Budget(UsageLimits(requests=3), window=WRONG["window"]),
            "the window of a Budget must be 'day' or 'month'",
        ),
        (lambda: Budget(UsageLimits(requests=3), window=0), "must be more than 0 seconds"),
        (lambda: Budget(UsageLimits(requests=3), store=WRONG["store"]), r"must be one of SqlBudgets\("),
        (lambda: RateLimit(per="user"), "would limit nothing"),
        (lambda: RateLimit(requests=0), "requests must be 1 or more"),
        (lambda: guard_input(WRONG["check"]), r"what guard_input\(\) is given must be a function"),
    ],
)
def test_what_a_budget_a_rate_or_a_guard_can_not_be_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


# rates


async def test_a_rate_is_refused_for_one_user_and_not_for_another() -> None:
    limit = RateLimit(per="user", requests=2, window=3600, waits=False)
    endings = [(await ask_as(user, limit)).reason for user in ("ada", "ada", "ada", "bob")]
    assert endings == [Complete(), Complete(), UsageLimit("requests", 2, 2, budget="user ada, in 3600 s"), Complete()]


async def test_a_rate_of_tokens_counts_what_an_answer_reports() -> None:
    limit = RateLimit(tokens=16, window=3600, waits=False, estimate=lambda request: 1)
    endings = [(await ask(limit)).reason for _ in range(3)]
    assert endings == [Complete(), Complete(), UsageLimit("total_tokens", 16, 30, budget="in 3600 s")]


async def test_a_request_waits_until_its_user_may_ask_again() -> None:
    limit = RateLimit(per="user", requests=1, window=0.2)
    begun = anyio.current_time()
    with anyio.fail_after(120):
        for _ in range(3):
            await ask_as("ada", limit)
        waited = anyio.current_time() - begun
        await ask_as("bob", limit)
    assert waited >= 0.4 * 0.99


async def test_a_wait_counts_for_the_time_of_the_run() -> None:
    limit = RateLimit(requests=1, window=3600)
    await ask(limit)
    assert (await ask(limit, timeout=0.05)).reason.kind == "timeout"


# guards


async def test_a_guard_of_the_input_ends_the_run_before_the_model_is_asked() -> None:
    provider = ScriptedProvider([reply()])
    result = await ask(guard_input(lambda request: "not here"), provider=provider)
    assert (result.reason, result.iterations, provider.requests) == (Aborted("not here"), 0, [])


async def test_a_guard_of_the_input_is_asked_about_messages_of_the_user_alone() -> None:
    @tool
    def look() -> str:
        """Look."""
        steering.follow_up("And now?")
        return "Seen."

    seen: list[str] = []

    async def check(request: RequestInfo[Any]) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(request.chat.messages[-1].text)

    steering = Steering()
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(guard_input(check),), steering=steering)
    provider = ScriptedProvider([ToolCall("1", "look", "{}"), "Yes.", "Well."])
    await tool_loop(provider, ToolRegistry([look]), "Hello?", config=config)
    assert seen == ["Hello?", "And now?"]


@pytest.mark.parametrize("beside", [False, True])
async def test_a_guard_that_raises_fails_the_run_as_it_is(beside: bool) -> None:
    def check(request: RequestInfo[Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask(guard_input(check, beside=beside))


async def test_a_guard_that_runs_beside_the_request_cancels_it() -> None:
    let, order = anyio.Event(), list[str]()

    async def answer(request: ChatRequest) -> ChatResponse:
        order.append("asked")
        let.set()
        try:
            await anyio.sleep_forever()
        finally:
            order.append("cancelled")
        raise AssertionError

    async def check(request: RequestInfo[Any]) -> str:
        await let.wait()
        order.append("checked")
        return "not here"

    result = await ask(guard_input(check, beside=True), provider=FunctionProvider(answer))
    assert (result.reason, order) == (Aborted("not here"), ["asked", "checked", "cancelled"])


async def test_an_answer_waits_for_the_guard_beside_it() -> None:
    answered = anyio.Event()

    def answer(request: ChatRequest) -> ChatResponse:
        answered.set()
        return reply()

    async def check(request: RequestInfo[Any]) -> str:
        await answered.wait()
        await anyio.lowlevel.checkpoint()
        return "not here"

    result = await ask(guard_input(check, beside=True), provider=FunctionProvider(answer))
    assert (result.reason, result.text) == (Aborted("not here"), "")


async def test_a_failure_of_the_request_leaves_a_guard_beside_it_as_itself_and_is_retried() -> None:
    provider = ScriptedProvider([ProviderError("model", "busy", status=503, is_retryable=True), reply()])
    retry = replace(ToolLoopConfig().provider_retry, initial_backoff=0)
    result = await ask(guard_input(lambda request: None, beside=True), provider=provider, provider_retry=retry)
    assert result.text == "Yes."


async def test_a_guard_of_the_output_keeps_the_reply_and_its_calls_from_everybody_and_counts_what_it_cost() -> None:
    ran: list[str] = []

    @tool
    def wipe() -> str:
        """Wipe."""
        ran.append("wiped")
        return ""

    def check(request: RequestInfo[Any], response: ChatResponse) -> Awaitable[str | None] | str | None:
        return "no wiping" if any(call.name == "wipe" for call in response.tool_calls) else None

    message = AssistantMessage([ToolCall("1", "wipe", "{}")])
    provider = ScriptedProvider([ChatResponse(message=message, usage=Usage(input_tokens=3), stop_reason="tool_use")])
    limits = LoopLimits(usage=UsageLimits(total_tokens=100))
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(guard_output(check),), limits=limits)
    result = await tool_loop(provider, ToolRegistry([wipe]), "Hello?", config=config)
    assert (result.reason, result.iterations, result.usage.input_tokens, ran) == (Aborted("no wiping"), 1, 3, [])
    assert [message.text for message in result.messages] == ["Hello?"]


@pytest.mark.parametrize(("shows_deltas", "pieces"), [(False, 0), (True, 1)])
async def test_the_pieces_of_a_reply_are_withheld_until_it_is_checked(shows_deltas: bool, pieces: int) -> None:
    guard = guard_output(lambda request, response: None, shows_deltas=shows_deltas)
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(guard,))
    async with tool_loop_stream(ScriptedProvider([reply()]), ToolRegistry(), "Hello?", config=config) as events:
        seen = [event async for event in events]
    assert len([event for event in seen if isinstance(event, TextDelta)]) == pieces
    assert [event.response.text for event in seen if isinstance(event, ResponseReceived)] == ["Yes."]


@pytest.mark.parametrize("returned", [False, ""])
async def test_a_check_that_returns_neither_a_reason_nor_none_fails_the_run(returned: object) -> None:
    def check(request: RequestInfo[Any]) -> Any:
        return returned

    with pytest.raises(ConfigurationError, match=r"the function of guard_input\(\) must return the reason .* or None"):
        await ask(guard_input(check))
