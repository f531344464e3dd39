"""A sub-agent whose call is to be decided on later: the outer run awaits that, and a decision goes on inside."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from toolkit import (
    Abort,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    Defer,
    Deny,
    LoopLimits,
    Middleware,
    Modify,
    Steering,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolOutput,
    ToolRegistry,
    Usage,
    UsageLimits,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.agents import SubAgent, coworker_tools, sub_agent_tool
from toolkit.chat import ChatRequest, ChatResponse, validate_transcript
from toolkit.endings import Aborted, AwaitingApproval, Cancelled, Complete, UsageLimit
from toolkit.events import Done, RunStart, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import CallInfo, Sequential
from toolkit.testing import EventCollector, FunctionProvider, ScriptedProvider

pytestmark = pytest.mark.anyio


def put_off_pay(request: ApprovalRequest) -> Approve | Defer:
    return Defer() if request.tool_name == "pay" else Approve()


CONFIG: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off_pay)


def through_json(snapshot: dict[str, Any] | None) -> dict[str, Any]:
    assert snapshot is not None
    plain: dict[str, Any] = json.loads(json.dumps(snapshot))
    return plain


def reply(*calls: ToolCall, text: str = "") -> ChatResponse:
    return ChatResponse(message=AssistantMessage([*calls] or text), usage=Usage(input_tokens=10, output_tokens=1))


@dataclass
class Office:
    """A boss over a clerk, over as many clerks as `depth` says; the last one pays. Each process has its own."""

    depth: int = 1
    runs: list[str] = field(default_factory=list[str])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    providers: list[ScriptedProvider] = field(default_factory=list[ScriptedProvider])
    calls: tuple[ToolCall, ...] = (ToolCall("p", "pay", '{"n": 5}'), ToolCall("l", "look", "{}"))
    pay_more: int = 0

    def registry(self, *, answers: int) -> ToolRegistry[object]:
        """Return the tools of the boss, with agents whose models have given so many replies already."""
        more = self.pay_more

        @tool(run_in_thread=False)
        def pay(n: int, more: int = more) -> str:
            """Pay."""
            self.runs.append(f"pay {n + more}")
            return f"paid {n + more}"

        @tool(run_in_thread=False)
        def look() -> str:
            """Look."""
            self.runs.append("look")
            return "seen"

        registry: ToolRegistry[object] = ToolRegistry([pay, look])
        script = [reply(*self.calls), reply(text="It is paid.")]
        for level in range(self.depth):
            model = ScriptedProvider(script[answers:])
            self.providers.append(model)
            config: ToolLoopConfig = ToolLoopConfig(**self.settings)
            name = f"clerk{level}"
            registry = ToolRegistry(
                [sub_agent_tool(name, "Pays.", model, registry, config=config, allow_sub_agents=True)]
            )
            script = [reply(ToolCall("c", name, '{"task": "Pay."}')), reply(text="Done.")]
        return registry

    def boss(self, *, answers: int) -> ScriptedProvider:
        name = f"clerk{self.depth - 1}"
        script = [reply(ToolCall("c", name, '{"task": "Pay."}')), reply(text="All done.")]
        return ScriptedProvider(script[answers:])

    async def begin(self, config: ToolLoopConfig[None] = CONFIG) -> ToolLoopResult[None]:
        return await tool_loop(self.boss(answers=0), self.registry(answers=0), "Pay.", config=config)

    async def go_on(
        self, snapshot: Any, decisions: dict[str, Any], config: ToolLoopConfig[None] = CONFIG
    ) -> ToolLoopResult[None]:
        registry, boss = self.registry(answers=1), self.boss(answers=1)
        return await tool_loop(boss, registry, through_json(snapshot), config=config, decisions=decisions)


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_deferred_call_of_a_sub_agent_ends_the_outer_run_and_a_decision_goes_on_inside(depth: int) -> None:
    office = Office(depth, settings={"max_depth": 5})
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off_pay, max_depth=5, signing_key=b"key")
    first = await office.begin(config)
    assert isinstance(first.reason, AwaitingApproval)
    assert first.reason.calls == (office.calls[0],)
    validate_transcript(first.messages)
    assert first.messages[-1].text == (
        f"Not finished: sub-agent 'clerk{depth - 1}' awaits approval of pay. What it has done before stands."
    )
    assert first.snapshot is not None
    [pending] = first.snapshot["pending_approvals"]
    assert (pending["call_id"], pending["tool_name"], pending["agent"]) == ("p", "pay", "clerk0")
    assert office.runs == ["look"]

    result = await office.go_on(first.snapshot, {"p": True}, config)
    assert result.reason == Complete()
    assert office.runs == ["look", "pay 5"]
    assert result.text == "All done."
    assert result.messages[-2].text == ("It is paid." if depth == 1 else "Done.")
    asked = office.providers[depth].requests[0].messages
    assert [message.text for message in asked[-2:]] == ["paid 5", "seen"]
    assert result.usage == Usage(input_tokens=20 * (depth + 1), output_tokens=2 * (depth + 1))


DECISIONS: list[tuple[Any, list[str], str]] = [
    (Deny("Too much."), ["look"], "Too much."),
    (Modify({"n": 3}), ["look", "pay 3"], "paid 3"),
    (False, ["look"], "Tool call denied."),
]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("decision", "runs", "text"), DECISIONS)
async def test_each_decision_reaches_the_sub_agent(depth: int, decision: Any, runs: list[str], text: str) -> None:
    office = Office(depth)
    first = await office.begin()
    result = await office.go_on(first.snapshot, {"p": decision})
    assert result.reason == Complete()
    assert office.runs == runs
    assert office.providers[depth].requests[0].messages[-2].text.startswith(text)


@pytest.mark.parametrize("depth", [1, 2])
async def test_an_abort_ends_the_outer_run(depth: int) -> None:
    office = Office(depth)
    events = EventCollector()
    first = await office.begin()
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off_pay, on_event=events)
    result = await office.go_on(first.snapshot, {"p": Abort("enough")}, config)
    assert result.reason == Aborted("enough")
    assert "may have taken effect" in result.messages[-1].text
    validate_transcript(result.messages)
    assert [type(event) for event in events.events if isinstance(event, (RunStart, Done))] == [RunStart, Done]


@pytest.mark.parametrize("depth", [1, 2])
async def test_decisions_come_one_by_one_through_json(depth: int) -> None:
    office = Office(depth, calls=(ToolCall("a", "pay", '{"n": 1}'), ToolCall("b", "pay", '{"n": 2}')))
    first = await office.begin()
    assert isinstance(first.reason, AwaitingApproval)
    second = await office.go_on(first.snapshot, {"b": True})
    assert isinstance(second.reason, AwaitingApproval)
    assert [call.id for call in second.reason.calls] == ["a"]
    assert office.runs == ["pay 2"]

    handle = ToolLoopHandle.restore(
        through_json(second.snapshot), office.boss(answers=1), office.registry(answers=1), ctx=None, config=CONFIG
    )
    [pending] = handle.pending_approvals
    await handle.decide("a", True, binding=pending.binding)
    assert handle.pending_approvals == []
    third = through_json(handle.snapshot())  # between the decision and the run
    result = await office.go_on(third, {})
    assert result.reason == Complete()
    assert office.runs == ["pay 2", "pay 1"]


async def test_calls_of_two_agents_with_one_id_are_told_apart() -> None:
    runs: list[str] = []

    @tool(run_in_thread=False)
    def pay(n: int) -> str:
        """Pay."""
        runs.append(f"pay {n}")
        return "paid"

    def team(answers: int) -> ToolRegistry[object]:
        agents = [
            SubAgent(
                name=name,
                provider=ScriptedProvider([reply(ToolCall("x", "pay", f'{{"n": {n}}}')), reply(text="ok")][answers:]),
                registry=ToolRegistry([pay]),
            )
            for n, name in enumerate(("ann", "bob"))
        ]
        return ToolRegistry(coworker_tools(agents))

    arguments = '{"task": "Pay.", "context": "", "coworker": "%s"}'
    turn = [ToolCall(name, "delegate_work", arguments % name) for name in ("ann", "bob")]
    first = await tool_loop(ScriptedProvider([reply(*turn)]), team(0), "Pay.", config=CONFIG)
    assert first.snapshot is not None
    ids = [pending["call_id"] for pending in first.snapshot["pending_approvals"]]
    assert ids == ["ann/x", "bob/x"]
    boss = ScriptedProvider([reply(text="ok")])
    result = await tool_loop(
        boss, team(1), through_json(first.snapshot), config=CONFIG, decisions={"bob/x": True, "ann/x": "No."}
    )
    assert result.reason == Complete()
    assert runs == ["pay 1"]


async def test_what_serves_all_agents_goes_on_with_its_one_state() -> None:
    class Tally(Middleware[object]):
        name = "tally"
        is_inherited = True
        count = 0

        async def guard_call(self, call: CallInfo[object]) -> None:
            self.count += 1

        def save(self) -> Any:
            return self.count

        def load(self, state: Any) -> None:
            self.count = state

    @tool(run_in_thread=False)
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def work(request: ChatRequest) -> ChatResponse:
        last = request.messages[-1]
        return reply(text="Done.") if last.role == "tool" else reply(ToolCall("p", "pay", '{"n": 1}'))

    team = ToolRegistry([sub_agent_tool("clerk", "Pays.", FunctionProvider(work), ToolRegistry([pay]))])
    boss = [reply(*[ToolCall(each, "clerk", '{"task": "Pay."}') for each in "ab"]), reply(text="Done.")]
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off_pay, middleware=(Tally(),), execution=Sequential())
    first = await tool_loop(ScriptedProvider(boss), team, "Pay.", config=config)
    tally = Tally()
    config = replace(config, middleware=(tally,))
    snapshot = through_json(first.snapshot)
    result = await tool_loop(ScriptedProvider([]), team, snapshot, config=config, decisions={"a/p": True})
    assert isinstance(result.reason, AwaitingApproval)
    assert tally.count == 4


async def test_a_decision_on_a_tool_of_the_sub_agent_that_has_changed_is_asked_again() -> None:
    office = Office()
    first = await office.begin()
    office.pay_more = 7
    second = await office.go_on(first.snapshot, {"p": True})
    assert isinstance(second.reason, AwaitingApproval)
    assert office.runs == ["look"]
    result = await office.go_on(second.snapshot, {"p": True})
    assert result.reason == Complete()
    assert office.runs == ["look", "pay 12"]


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_budget_counts_over_the_wait(depth: int) -> None:
    office = Office(depth)
    config: ToolLoopConfig = ToolLoopConfig(
        on_tool_call=put_off_pay, limits=LoopLimits(usage=UsageLimits(requests=depth + 1))
    )
    first = await office.begin(config)
    assert isinstance(first.reason, AwaitingApproval)
    assert first.usage == Usage(input_tokens=10 * (depth + 1), output_tokens=depth + 1)
    result = await office.go_on(first.snapshot, {"p": True}, config)
    assert result.reason == UsageLimit("requests", depth + 1, depth + 1)
    assert office.runs == ["look", "pay 5"]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("more", [0, 1])
async def test_a_budget_of_calls_counts_each_once_over_the_wait_at_every_level(depth: int, more: int) -> None:
    limit = depth + 1 + more  # the calls of the sub-agents, `look`, and then `pay`
    config: ToolLoopConfig = ToolLoopConfig(
        on_tool_call=put_off_pay, limits=LoopLimits(usage=UsageLimits(tool_calls=limit))
    )
    office = Office(depth)
    first = await office.begin(config)
    assert isinstance(first.reason, AwaitingApproval)
    result = await office.go_on(first.snapshot, {"p": True}, config)
    validate_transcript(result.messages)
    assert office.runs == ["look", "pay 5"][: more + 1]
    assert result.reason == Complete()
    if depth == 1 and not more:
        assert f"was stopped by the limit of {limit} tool calls: this may be incomplete" in result.messages[-2].text


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_budget_of_a_sub_agent_counts_over_the_wait(depth: int) -> None:
    office = Office(depth, settings={"limits": LoopLimits(usage=UsageLimits(requests=depth))})
    first = await office.begin()
    assert isinstance(first.reason, AwaitingApproval)
    result = await office.go_on(first.snapshot, {"p": True})
    assert result.reason == Complete()
    assert office.runs == ["look", "pay 5"]
    words = f"[Sub-agent 'clerk{depth - 1}' was stopped by the limit of {depth} requests: this may be incomplete]"
    assert words in result.messages[-2].text


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_message_that_comes_while_a_decision_is_awaited_is_read_first(depth: int) -> None:
    office, steering = Office(depth), Steering()
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off_pay, steering=steering)
    first = await office.begin(config)
    steering.steer("Don't pay!")
    result = await office.go_on(first.snapshot, {"p": True}, config)
    assert result.reason == Complete()
    assert office.runs == ["look"]
    skipped, message, _ = [each.text for each in result.messages[-3:]]
    assert skipped == ("Interrupted: skipped because of a new message. The tool was running and may have taken effect.")
    assert message == "Don't pay!"
    assert steering.is_empty


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("to", ["boss", "clerk0"])
async def test_a_message_reaches_the_level_that_it_is_for_once(depth: int, to: str) -> None:
    office, steering = Office(depth, calls=(ToolCall("l", "look", "{}"), ToolCall("p", "pay", '{"n": 5}'))), Steering()

    def speak(event: object) -> None:
        if isinstance(event, ToolExecutionEnd) and event.tool_name == "look":
            steering.steer("Don't pay!")

    office.settings = {"on_event": speak, "execution": Sequential()}
    if to == "clerk0":
        office.settings["steering"] = steering
    config: ToolLoopConfig = ToolLoopConfig(steering=steering if to == "boss" else None)
    result = await office.begin(config)
    assert result.reason == Complete()
    assert office.runs == (["look", "pay 5"] if to == "boss" else ["look"])
    texts = [[each.text for each in model.requests[-1].messages] for model in office.providers]
    assert ("Don't pay!" in texts[0]) == (to == "clerk0")
    assert [each.text for each in result.messages].count("Don't pay!") == (to == "boss")
    assert steering.is_empty


async def test_an_approver_of_the_sub_agent_itself_may_decide_later() -> None:
    office = Office(settings={"on_tool_call": put_off_pay})
    plain: ToolLoopConfig = ToolLoopConfig()
    first = await office.begin(plain)
    assert isinstance(first.reason, AwaitingApproval)
    result = await office.go_on(first.snapshot, {"p": True}, plain)
    assert result.reason == Complete()
    assert office.runs == ["look", "pay 5"]


async def test_closing_a_run_that_awaits_a_sub_agent_says_that_it_had_begun() -> None:
    office = Office()
    handle = ToolLoopHandle(office.boss(answers=0), office.registry(answers=0), "Pay.", config=CONFIG)
    await handle.run()
    await handle.close()
    assert handle.result.reason == Cancelled()
    assert handle.result.messages[-1].text.startswith("Interrupted: the run was cancelled.")
    validate_transcript(handle.result.messages)


async def test_each_run_of_a_waiting_call_has_one_start_and_one_end() -> None:
    office = Office()
    events = EventCollector()
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=put_off_pay, on_event=events)
    first = await office.begin(config)
    kinds = (RunStart, ToolExecutionStart, ToolExecutionEnd, Done)
    once = [RunStart, ToolExecutionStart, ToolExecutionEnd, Done]
    assert [type(event) for event in events.events if isinstance(event, kinds)] == once
    await office.go_on(first.snapshot, {"p": True}, config)
    assert [type(event) for event in events.events if isinstance(event, kinds)] == once * 2


@pytest.mark.parametrize(
    ("options", "waits"), [({}, False), ({"on_crash": "resume"}, True), ({"idempotent": True}, True)]
)
async def test_a_sub_agent_waits_in_a_tool_that_may_be_run_again(
    options: dict[str, Any], waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []

    @tool(run_in_thread=False)
    def pay(n: int) -> str:
        """Pay."""
        runs.append(f"pay {n}")
        return "paid"

    def team(answers: int) -> ToolRegistry[object]:
        model = ScriptedProvider([reply(ToolCall("p", "pay", '{"n": 5}')), reply(text="It is done.")][answers:])
        clerk = SubAgent(name="clerk", provider=model, registry=ToolRegistry([pay]))

        @tool_with_ctx(**options)
        async def ask(context: ToolContext[object]) -> ToolOutput:
            """Ask."""
            runs.append("ask")
            return await clerk.run(context, "Pay.")

        return ToolRegistry([ask])

    boss = [reply(ToolCall("1", "ask", "{}")), reply(text="Done.")]
    first = await tool_loop(ScriptedProvider(boss), team(0), "Go.", config=CONFIG)
    assert isinstance(first.reason, AwaitingApproval) == waits
    assert ("was put off where its run can't wait" in caplog.text) == (not waits)
    if waits:
        decisions = {"p": True}
        snapshot = through_json(first.snapshot)
        result = await tool_loop(ScriptedProvider(boss[1:]), team(1), snapshot, config=CONFIG, decisions=decisions)
        assert result.reason == Complete()
        assert result.messages[-2].text == "It is done."
        assert runs == ["ask", "ask", "pay 5"]


async def test_where_no_loop_can_wait_a_deferred_call_is_denied_in_words() -> None:
    office = Office()

    @tool(run_in_thread=False)
    async def ask() -> str:
        """Ask."""
        return (await office.registry(answers=0).execute(ToolCall("c", "clerk0", '{"task": "Pay."}'))).text

    office.settings = {"on_tool_call": put_off_pay}
    result = await tool_loop(ScriptedProvider([ToolCall("1", "ask", "{}"), "ok"]), ToolRegistry([ask]), "Go.")
    assert result.reason == Complete()
    assert "needs an approval that nobody can give here" in result.messages[2].text
