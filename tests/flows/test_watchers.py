"""Those who watch a run and those who decide on its calls: what they can do to it, and how long they may take."""

import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, SecretStr

from toolkit import (
    ApprovalRequest,
    Approve,
    AssistantMessage,
    Defer,
    Deny,
    Done,
    Modify,
    Permissions,
    Timeouts,
    ToolCall,
    ToolContext,
    ToolError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    ask,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import validate_transcript
from toolkit.errors import ToolCrashedError
from toolkit.events import (
    ApprovalRequested,
    LoopEvent,
    ToolCallRefused,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from toolkit.loop.events import Failed
from toolkit.policies import Continue, StopContext, ToolExecutionHooks
from toolkit.testing import EventCollector, ScriptedProvider

pytestmark = pytest.mark.anyio


class Payee(BaseModel):
    name: str
    tags: list[str] = []


PAID: list[Any] = []
NO_CODE = SecretStr("")


@tool
async def pay(to: Payee, amount: int = 1, notes: list[str] | None = None, code: SecretStr = NO_CODE) -> str:
    """Pay somebody."""
    PAID.append((to.name, to.tags, amount, notes, code.get_secret_value()))
    return "paid"


PAY = ToolCall("1", "pay", '{"to": {"name": "ada", "tags": ["x"]}, "amount": 5, "notes": ["rent"], "code": "123"}')
AS_ASKED = ("ada", ["x"], 5, ["rent"], "123")


def results(messages: Any) -> list[ToolResult]:
    return [message for message in messages if isinstance(message, ToolResult)]


def spoil(value: Any) -> None:
    """Change whatever can be changed in a value."""
    match value:
        case dict():
            members = cast("dict[str, Any]", value)
            for item in list(members.values()):
                spoil(item)
            members.clear()
            members["amount"] = 1_000_000
        case list():
            _spoil_list(cast("Any", value))
        case Payee():
            spoil(value.tags)
            value.name = "mallory"
        case _:
            pass


def _spoil_list(items: list[Any]) -> None:
    for item in items:
        spoil(item)
    items[:] = ["mallory"]


def spoil_request(request: ApprovalRequest) -> bool:
    spoil(request.arguments)
    spoil(request.definition.parameters)
    return True


async def spoil_request_later(request: ApprovalRequest) -> bool:
    return spoil_request(request)


def spoil_before(name: str, call_id: str, arguments: Mapping[str, Any]) -> None:
    spoil(arguments)


def spoil_event(event: LoopEvent) -> None:
    if isinstance(event, (ToolExecutionStart, ApprovalRequested)):
        spoil(event.arguments)
    if isinstance(event, ToolExecutionUpdate):
        event.output.content = "spoilt"


SPOILERS: dict[str, dict[str, Any]] = {
    "an approver": {"on_tool_call": spoil_request},
    "an async approver": {"on_tool_call": spoil_request_later},
    "the hook before": {"middleware": [ToolExecutionHooks(before=spoil_before)]},
    "an observer": {"on_event": spoil_event},
    "all": {
        "on_tool_call": spoil_request,
        "middleware": [ToolExecutionHooks(before=spoil_before)],
        "on_event": spoil_event,
    },
}


@pytest.mark.parametrize("spoiler", SPOILERS)
async def test_who_looks_at_arguments_can_not_change_them(spoiler: str) -> None:
    PAID.clear()
    definition = repr(pay.definition)
    config = ToolLoopConfig(**SPOILERS[spoiler])
    again = ToolCall("2", PAY.name, PAY.arguments)
    result = await tool_loop(ScriptedProvider([PAY, again, "ok"]), ToolRegistry([pay]), "go", config=config)
    assert PAID == [AS_ASKED, AS_ASKED]
    assert [each.text for each in results(result.messages)] == ["paid", "paid"]
    assert repr(pay.definition) == definition


async def test_each_who_looks_sees_what_was_asked_for_whatever_others_did_to_theirs() -> None:
    seen: list[Any] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append((request.arguments["amount"], request.arguments["to"].name))
        assert "to" in request.definition.parameters["properties"]
        return spoil_request(request)

    registry = ToolRegistry([pay])
    for number in range(2):
        call = ToolCall(str(number), PAY.name, PAY.arguments)
        await registry.execute(call, approve=approve)
    assert seen == [(5, "ada")] * 2


async def test_a_value_that_can_not_be_copied_is_shown_as_json_says_it() -> None:
    class Sealed(BaseModel):
        size: int

        def __deepcopy__(self, memo: Any = None) -> Any:
            raise TypeError("sealed")

    @tool
    async def ship(box: Sealed) -> str:
        return f"{type(box).__name__} {box.size}"

    seen: list[Any] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append(request.arguments)
        return True

    result = await ToolRegistry([ship]).execute(ToolCall("1", "ship", '{"box": {"size": 3}}'), approve=approve)
    assert (result.text, seen) == ("Sealed 3", [{"box": {"size": 3}}])


async def test_what_an_approver_gives_is_fixed_when_it_gives_it() -> None:
    given: dict[str, Any] = {"to": {"name": "bob"}, "amount": 2, "notes": ["a"]}

    def approve(request: ApprovalRequest) -> Modify:
        return Modify(given)

    def before(name: str, call_id: str, arguments: Mapping[str, Any]) -> None: ...

    def on_event(event: LoopEvent) -> None:
        if isinstance(event, ToolExecutionStart):
            given["notes"].append("b")
            given["amount"] = 9

    PAID.clear()
    config = ToolLoopConfig(on_tool_call=approve, on_event=on_event, middleware=[ToolExecutionHooks(before=before)])
    await tool_loop(ScriptedProvider([PAY, "ok"]), ToolRegistry([pay]), "go", config=config)
    assert PAID == [("bob", [], 2, ["a"], "")]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"to": {"name": "ada"}, "amount": None}, "amount"),
        ({"to": {"name": "ada"}, "code": None}, "code"),
        ({"to": {"name": "ada", "tags": None}}, "tags"),
        ({"to": None}, "to"),
    ],
    ids=str,
)
async def test_null_from_an_approver_is_no_way_to_take_a_default(given: dict[str, Any], problem: str) -> None:
    PAID.clear()
    result = await ToolRegistry([pay]).execute(PAY, approve=lambda request: Modify(given))
    assert result.is_error
    assert result.text.startswith("The approver changed the arguments wrongly.")
    assert problem in result.text
    assert PAID == []


async def test_an_update_that_is_changed_leaves_the_output_as_it_is() -> None:
    @tool_with_ctx
    async def report(context: ToolContext[object]) -> ToolOutput:
        output = ToolOutput("half")
        context.report_update(output)
        await anyio.lowlevel.checkpoint()
        return output

    config = ToolLoopConfig(on_event=spoil_event)
    result = await tool_loop(
        ScriptedProvider([ToolCall("1", "report", "{}"), "ok"]), ToolRegistry([report]), "go", config=config
    )
    assert results(result.messages)[0].text == "half"


async def test_the_end_and_the_details_that_are_told_are_copies() -> None:
    @tool
    async def give() -> ToolOutput:
        return ToolOutput("given", details={"kept": [1]})

    def spoil_end(event: LoopEvent) -> None:
        if isinstance(event, Done):
            event.result.messages.clear()
        if isinstance(event, ToolExecutionEnd):
            spoil(event.result.details)

    def spoil_results(context: StopContext) -> Continue:
        for each in context.last_tool_results:
            spoil(each.details)
        return Continue()

    config = ToolLoopConfig(on_event=spoil_end, stop_when=spoil_results)
    result = await tool_loop(
        ScriptedProvider([ToolCall("1", "give", "{}"), "ok"]), ToolRegistry([give]), "go", config=config
    )
    assert len(result.messages) == 4
    assert results(result.messages)[0].details == {"kept": [1]}


# people


async def test_an_approver_that_is_not_async_keeps_nobody_waiting_but_its_call() -> None:
    asked, may_answer = anyio.Event(), threading.Event()
    tasks_ran: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        assert may_answer.wait(300)
        return True

    async def answer_when_asked() -> None:
        await asked.wait()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        tasks_ran.append("meanwhile")
        may_answer.set()

    def on_event(event: LoopEvent) -> None:
        if isinstance(event, ApprovalRequested):
            asked.set()

    PAID.clear()
    config = ToolLoopConfig(on_tool_call=approve, on_event=on_event, timeouts=Timeouts(hook=0.001), sync_workers=1)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_when_asked)
            result = await tool_loop(ScriptedProvider([PAY, "ok"]), ToolRegistry([pay]), "go", config=config)
            assert results(result.messages)[0].text == "paid"
    assert tasks_ran == ["meanwhile"]


async def _think_for_ever(request: ApprovalRequest) -> bool:
    await anyio.sleep_forever()
    return True


def test_people_may_think_for_longer_than_any_hook() -> None:
    async def main() -> ToolResult:
        async def approve(request: ApprovalRequest) -> bool:
            await anyio.sleep(10_000)
            return True

        config = ToolLoopConfig(on_tool_call=approve)
        result = await tool_loop(ScriptedProvider([PAY, "ok"]), ToolRegistry([pay]), "go", config=config)
        return results(result.messages)[0]

    import trio.testing

    clock = trio.testing.MockClock(autojump_threshold=0)
    assert anyio.run(main, backend="trio", backend_options={"clock": clock}).text == "paid"


@pytest.mark.parametrize("is_async", [True, False])
async def test_who_sets_a_time_for_approval_reads_in_the_denial_that_it_passed(is_async: bool) -> None:
    stop = threading.Event()

    def think_in_thread(request: ApprovalRequest) -> bool:
        return stop.wait(300)

    PAID.clear()
    approve: Callable[[ApprovalRequest], bool | Awaitable[bool]] = _think_for_ever if is_async else think_in_thread
    config = ToolLoopConfig(on_tool_call=approve, timeouts=Timeouts(approval=0.02))
    with anyio.fail_after(120):
        result = await tool_loop(ScriptedProvider([PAY, "ok"]), ToolRegistry([pay]), "go", config=config)
    stop.set()
    (denied,) = results(result.messages)
    assert (denied.text, denied.is_error) == ("Tool call denied: nobody decided on it within 0.02 s.", True)
    assert PAID == []


class ApprovingObject:
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    async def __call__(self, request: ApprovalRequest) -> bool:
        self.threads.append(threading.current_thread())
        return True


def _call(approver: ApprovingObject, request: ApprovalRequest) -> Awaitable[bool]:
    return approver(request)


async def test_an_async_approver_of_any_kind_is_awaited_where_the_loop_is() -> None:
    approver = ApprovingObject()
    await ToolRegistry([pay]).execute(PAY, approve=approver)
    assert approver.threads == [threading.current_thread()]
    assert (await ToolRegistry([pay]).execute(PAY, approve=partial(_call, approver))).text == "paid"
    assert approver.threads == [threading.current_thread()] * 2


@pytest.mark.parametrize("answer", [Approve(), Deny("no"), Defer()], ids=lambda answer: type(answer).__name__)
async def test_an_event_tells_that_approval_is_asked_for(answer: Any) -> None:
    events = EventCollector()
    rules = Permissions([ask("pay", reason="Money leaves the house.")])
    config = ToolLoopConfig(on_tool_call=lambda request: answer, on_event=events)
    await tool_loop(ScriptedProvider([PAY, "ok"]), ToolRegistry([pay], permissions=rules), "go", config=config)
    (asked,) = [event for event in events.events if isinstance(event, ApprovalRequested)]
    assert (asked.call_id, asked.tool_name, asked.reason) == ("1", "pay", "Money leaves the house.")
    assert asked.arguments["amount"] == 5
    kinds = [type(event) for event in events.events]
    for later in (ToolExecutionStart, ToolCallRefused):
        assert later not in kinds or kinds.index(later) > kinds.index(ApprovalRequested)


def _answer(answer: object) -> Callable[..., Any]:
    def hook(name: str, call_id: str, arguments: Mapping[str, Any]) -> object:
        return answer

    return hook


async def test_nobody_is_said_to_be_asked_where_nobody_is_or_the_call_was_refused_before() -> None:
    events = EventCollector()
    for config in (
        ToolLoopConfig(on_event=events),
        ToolLoopConfig(
            on_event=events, on_tool_call=lambda request: True, middleware=[ToolExecutionHooks(before=_answer(False))]
        ),
    ):
        await tool_loop(
            ScriptedProvider([PAY, "ok"]), ToolRegistry([pay], permissions=Permissions([ask("*")])), "go", config=config
        )
    assert not [event for event in events.events if isinstance(event, ApprovalRequested)]


async def _look(*_: object) -> None: ...


@pytest.mark.parametrize(
    ("hook", "runs"),
    [
        (_answer(None), True),
        (_look, True),
        (_answer(True), True),
        (_answer(0), False),
        (_answer(False), False),
    ],
    ids=["looks", "looks later", "says yes", "says nothing clear", "says no"],
)
async def test_a_hook_before_that_only_looks_lets_the_call_go_on(
    hook: Any, runs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    PAID.clear()
    config = ToolLoopConfig(middleware=[ToolExecutionHooks(before=hook)])
    await tool_loop(ScriptedProvider([PAY, "ok"]), ToolRegistry([pay]), "go", config=config)
    assert bool(PAID) is runs
    told = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert told == ([] if runs else ["before_tool_execution skipped pay in call 1"])


# crashes


@tool
async def divide(by: int) -> float:
    """Divide one by a number."""
    return 1 / by


@tool
async def refuse() -> str:
    """Refuse in words."""
    raise ToolError("not today")


CRASH = ToolCall("crash", "divide", '{"by": 0}')


async def test_a_crash_is_logged_with_its_traceback_and_told_to_observers(caplog: pytest.LogCaptureFixture) -> None:
    events = EventCollector()
    calls = AssistantMessage([CRASH, ToolCall("fine", "divide", '{"by": 1}'), ToolCall("no", "refuse", "{}")])
    result = await tool_loop(
        ScriptedProvider([calls, "ok"]), ToolRegistry([divide, refuse]), "go", config=ToolLoopConfig(on_event=events)
    )
    assert results(result.messages)[0].text == "ZeroDivisionError: division by zero"
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.name.startswith("toolkit")
    assert record.getMessage() == "tool divide crashed in call crash"
    assert record.exc_info is not None
    assert record.exc_info[1] is not None
    assert traceback.extract_tb(record.exc_info[1].__traceback__)[-1].name == "divide"
    ends = {event.call_id: event.error for event in events.events if isinstance(event, ToolExecutionEnd)}
    error = ends.pop("crash")
    assert isinstance(error, ZeroDivisionError)
    assert error.__traceback__ is not None
    assert ends == {"fine": None, "no": None}


async def test_a_crash_can_end_the_run_with_the_transcript() -> None:
    calls = AssistantMessage([ToolCall("fine", "divide", '{"by": 1}'), CRASH])
    config = ToolLoopConfig(on_tool_exception="raise")
    with pytest.raises(ToolCrashedError) as caught:
        await tool_loop(ScriptedProvider([calls, "ok"]), ToolRegistry([divide]), "go", config=config)
    error = caught.value
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (error.tool, error.call_id) == ("divide", "crash")
    assert str(error) == "tool 'divide' raised in call 'crash': ZeroDivisionError: division by zero"
    validate_transcript(error.messages)
    fine, crashed = results(error.messages)
    assert (fine.text, crashed.text) == ("1.0", "ZeroDivisionError: division by zero")


async def test_a_crash_ends_a_stepped_run_too_and_what_runs_beside_it_is_told_truly() -> None:
    began = anyio.Event()

    @tool
    async def hang() -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    @tool
    async def crash() -> str:
        await began.wait()
        raise ValueError("oh")

    events = EventCollector()
    calls = AssistantMessage([ToolCall("a", "hang", "{}"), ToolCall("b", "crash", "{}")])
    handle = ToolLoopHandle(
        ScriptedProvider([calls]),
        ToolRegistry([hang, crash]),
        "go",
        config=ToolLoopConfig(on_tool_exception="raise", on_event=events),
    )
    with anyio.fail_after(120):
        outcome = await handle.next_turn()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolCrashedError)
    hung, crashed = results(outcome.error.messages)
    assert "may have taken effect" in hung.text
    assert crashed.text == "ValueError: oh"


async def test_what_a_tool_means_to_raise_ends_nothing() -> None:
    config = ToolLoopConfig(on_tool_exception="raise")
    result = await tool_loop(
        ScriptedProvider([ToolCall("no", "refuse", "{}"), "ok"]), ToolRegistry([refuse]), "go", config=config
    )
    assert (results(result.messages)[0].text, result.text) == ("not today", "ok")
