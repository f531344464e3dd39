"""The runs that every crash has to leave right, and the world that sees what they do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import anyio.lowlevel

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    Message,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    UsageLimits,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatRequest, ToolResult, Usage
from toolkit.durable import Journal
from toolkit.errors import ProviderError, ToolFailedError
from toolkit.policies import (
    Approval,
    ApprovalRequest,
    Approve,
    Batched,
    CallInfo,
    Continue,
    Defer,
    Deny,
    LoopDetectionConfig,
    LoopLimits,
    Middleware,
    Modify,
    Parallel,
    Sequential,
    Steering,
    Stop,
    StopContext,
    keep_last,
)
from toolkit.testing import FunctionProvider

Plan: TypeAlias = Sequence[Sequence[ToolCall] | str]


@dataclass
class World:
    """What happened outside of all processes, and no crash undoes."""

    starts: Counter[str] = field(default_factory=Counter[str])
    ends: set[str] = field(default_factory=set[str])
    reads: set[str] = field(default_factory=set[str])
    asked: Counter[str] = field(default_factory=Counter[str])


App: TypeAlias = World


@tool_with_ctx
async def append(context: ToolContext[App], n: int) -> str:
    """Append a line; must not be done twice."""
    return await _do_work(context, n)


@tool_with_ctx(tags={"read"})
async def look(context: ToolContext[App], n: int) -> str:
    """Look something up; harmless."""
    context.state.reads.add(context.idempotency_key)
    return await _do_work(context, n)


@tool_with_ctx(requires_approval=True)
async def pay(context: ToolContext[App], n: int) -> str:
    """Pay an amount, if somebody agrees; must not be done twice."""
    return await _do_work(context, n)


@tool_with_ctx
async def crash(context: ToolContext[App], n: int) -> str:
    """Fail in a way that nobody meant."""
    await _do_work(context, n)
    raise RuntimeError("out of order")


async def _do_work(context: ToolContext[App], n: int) -> str:
    world, key = context.state, context.idempotency_key
    world.starts[key] += 1
    await anyio.lowlevel.checkpoint()
    world.ends.add(key)
    return f"did {key} with {n}"


def plan_provider(plan: Plan) -> FunctionProvider:
    """Return a model that says what the plan has for the turn, by what is in the transcript."""

    def model(request: ChatRequest) -> str | AssistantMessage:
        said = [message for message in request.messages if isinstance(message, AssistantMessage)]
        turn = 1 + next((n for n, each in enumerate(plan) if said and _is_said(each, said[-1])), -1)
        planned = plan[min(turn, len(plan) - 1)]
        return planned if isinstance(planned, str) else AssistantMessage(list(planned))

    return FunctionProvider(model)


def _is_said(planned: Sequence[ToolCall] | str, message: AssistantMessage) -> bool:
    if isinstance(planned, str):
        return message.text == planned
    return [each.id for each in planned] == [each.id for each in message.tool_calls]


def call(call_id: str, name: str = "append", **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments or {"n": 1}))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run: everything of it is made anew in each process.

    Args:
        plan: What the model says.
        config: The settings.
        registry: The tools.
        decide: Decides on a call that awaits it.
        is_final: Whether the run ends with the last reply of the plan.
    """

    name: str
    plan: Plan
    config: Callable[[], ToolLoopConfig[Any]] = ToolLoopConfig
    registry: Callable[[], ToolRegistry[App]] = lambda: ToolRegistry[App]([append, look, pay, crash])
    provider: Callable[[], Any] | None = None
    decide: Callable[[str], Approval] | None = None

    async def run(
        self,
        journal: Journal,
        world: World,
        *,
        provider: Any = None,
        registry: ToolRegistry[App] | None = None,
        on_event: Callable[[Any], Awaitable[None] | None] | None = None,
    ) -> tuple[ToolLoopResult[Any] | Exception, list[Message]]:
        """Run it in one process; return how it ended, and the transcript."""
        made = (self.provider or (lambda: plan_provider(self.plan)))()
        tools = self.registry() if registry is None else registry
        config = replace(self.config(), journal=journal, on_event=on_event)
        handle = ToolLoopHandle(provider or made, tools, self.name, ctx=world, config=config)
        try:
            result = await handle.run()
            while self.decide is not None and handle.pending_approvals:
                pending = handle.pending_approvals[0]
                world.asked[pending.call_id] += 1
                await handle.decide(pending.call_id, self.decide(pending.call_id), binding=pending.binding)
                result = await handle.run()
        except Exception as error:  # noqa: BLE001 - that the run failed is its outcome
            return error, handle.messages
        return result, list(result.messages)


PLAN: Plan = (
    [call("c1")],
    [call("c2"), call("c3"), call("c4", "look", n=4)],
    [call("c5")],
    [call("c6"), call("c7", "look", n=7)],
    "done",
)


async def _approve_some(request: ApprovalRequest) -> Approval:
    await anyio.lowlevel.checkpoint()
    match request.call_id:
        case "c3":
            return Modify({"n": 33})
        case "c5":
            return Deny("not this one")
        case _:
            return Approve()


def _defer_payments(request: ApprovalRequest) -> Approval:
    return Defer() if request.tool_name == "pay" else Approve()


def _decide_payment(call_id: str) -> Approval:
    decisions: dict[str, Approval] = {"p1": Approve(), "p2": Modify({"n": 22}), "p3": Deny("too much")}
    return decisions[call_id]


def _make_agents() -> ToolRegistry[App]:
    inner = ToolRegistry[App]([append, look])
    agents = [
        sub_agent_tool(
            name, "Helps.", plan_provider([[call("i1"), call("i2", "look", n=2)], [call("i3")], name]), inner
        )
        for name in ("first", "second")
    ]
    return ToolRegistry[App]([append, look, *agents])


def _make_slow_loop() -> ToolLoopConfig[Any]:
    return ToolLoopConfig(
        timeout=60,
        stop_when=lambda context: Stop("enough") if context.iteration == 4 else Continue(),
        loop_detection=LoopDetectionConfig(threshold=2, action="inject_warning"),
    )


class Counting(Middleware[object]):
    """Counts the calls that it has let pass, and lets four of them."""

    name = "counting"

    def __init__(self) -> None:
        self._count = 0

    async def guard_call(self, call: CallInfo[object]) -> Approval | None:
        self._count += 1
        return None if self._count <= 4 else Deny("four calls are enough")

    def save(self) -> Any:
        return self._count

    def load(self, state: Any) -> None:
        self._count = state


def _steer_at(turn: int) -> Callable[[], ToolLoopConfig[Any]]:
    def make() -> ToolLoopConfig[Any]:
        steering = Steering()

        def steer(context: StopContext) -> Continue:
            if context.iteration == turn:
                steering.steer("Do it otherwise.")
                steering.follow_up("And then?")
            return Continue()

        return ToolLoopConfig(steering=steering, stop_when=steer, execution=Sequential())

    return make


def _follow_up_at_the_answer() -> ToolLoopConfig[Any]:
    steering = Steering()

    def follow_up(context: StopContext) -> Continue:
        if context.iteration == 2:
            steering.follow_up("And then?")
        return Continue()

    return ToolLoopConfig(steering=steering, stop_when=follow_up, answer=AnswerFormat(int))


def _check_once(right: int) -> Callable[[int], str]:
    def check(answer: int) -> str:
        if answer != right:
            raise ToolFailedError(f"not {answer}")
        return f"sum {answer}"

    return check


def _fail_later() -> FunctionProvider:
    def model(request: ChatRequest) -> AssistantMessage:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if turn == 2:
            error = ProviderError("test", "the account has expired", status=402)
            error.usage = Usage(input_tokens=3)
            raise error
        return AssistantMessage([call(f"c{turn}")])

    return FunctionProvider(model)


SCENARIOS: Mapping[str, Scenario] = {
    each.name: each
    for each in [
        Scenario(name="parallel", plan=PLAN),
        Scenario(name="two at once", plan=PLAN, config=lambda: ToolLoopConfig(execution=Parallel(limit=2))),
        Scenario(name="sequential", plan=PLAN, config=lambda: ToolLoopConfig(execution=Sequential())),
        Scenario(name="batched", plan=PLAN, config=lambda: ToolLoopConfig(execution=Batched(2))),
        Scenario(name="approvals", plan=PLAN, config=lambda: ToolLoopConfig(on_tool_call=_approve_some)),
        Scenario(
            name="late approvals",
            plan=(
                [call("c1"), call("p1", "pay", n=1), call("p2", "pay", n=2)],
                [call("p3", "pay", n=3), call("c2")],
                "done",
            ),
            config=lambda: ToolLoopConfig(on_tool_call=_defer_payments),
            decide=_decide_payment,
        ),
        Scenario(
            name="sub-agents",
            plan=(
                [call("a1", "first", task="x"), call("a2", "second", task="y"), call("c1")],
                [call("a3", "first", task="z")],
                "done",
            ),
            registry=_make_agents,
            config=lambda: ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=40, total_tokens=100_000))),
        ),
        Scenario(
            name="calls run out",
            plan=PLAN,
            config=lambda: ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(tool_calls=3))),
        ),
        Scenario(
            name="requests run out",
            plan=([call("a1", "first", task="x"), call("a2", "second", task="y")], [call("c1")], "done"),
            registry=_make_agents,
            config=lambda: ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=8))),
        ),
        Scenario(name="steering", plan=(*PLAN, "more", "and more"), config=_steer_at(2)),
        Scenario(
            name="typed answer",
            plan=(
                [call("c1")],
                [call("f1", "final_answer", answer="many")],
                "seven",
                [call("f2", "final_answer", answer=7)],
            ),
            config=lambda: ToolLoopConfig(answer=AnswerFormat(int)),
        ),
        Scenario(
            name="checked answer",
            plan=(
                [call("f1", "final_answer", answer=6)],
                [call("c1"), call("f2", "final_answer", answer=8)],
                [call("f3", "final_answer", answer=7)],
            ),
            config=lambda: ToolLoopConfig(answer=AnswerFormat(int, check=_check_once(7))),
        ),
        Scenario(
            name="checked answer in words",
            plan=([call("c1")], '{"answer": 6}', '{"answer": 7}'),
            config=lambda: ToolLoopConfig(answer=AnswerFormat(int, check=_check_once(7), mode="native")),
        ),
        Scenario(
            name="too many checked answers",
            plan=([call("f1", "final_answer", answer=6), call("c1")], [call("f2", "final_answer", answer=8)], "x"),
            config=lambda: ToolLoopConfig(answer=AnswerFormat(int, check=_check_once(7), max_retries=1)),
        ),
        Scenario(
            name="said during the answer",
            plan=([call("c1")], [call("f1", "final_answer", answer=6)], [call("f2", "final_answer", answer=7)]),
            config=_follow_up_at_the_answer,
        ),
        Scenario(name="compaction", plan=PLAN, config=lambda: ToolLoopConfig(compaction=keep_last(3))),
        Scenario(name="stopped", plan=([call("c1")], [call("c2")], [call("c3")], "x", "y"), config=_make_slow_loop),
        Scenario(name="guarded", plan=PLAN, config=lambda: ToolLoopConfig(middleware=[Counting()])),
        Scenario(name="provider fails", plan=(), provider=_fail_later),
        Scenario(
            name="tool fails",
            plan=([call("c1"), call("c2", "crash"), call("c3")], "done"),
            config=lambda: ToolLoopConfig(on_tool_exception="raise"),
        ),
    ]
}


def find_faults(world: World, messages: Sequence[Message]) -> list[str]:
    """Return what is wrong with a run that has ended: calls that ran twice, and results that are not true."""
    faults = [f"{key} ran {count} times" for key, count in world.starts.items() if count > 1 and key not in world.reads]
    for message in messages:
        if isinstance(message, ToolResult) and message.text.startswith("did "):
            key = message.text.split()[1]
            if key not in world.ends:
                faults.append(f"{key} has a result and never ended")
    return faults
