"""A sub-agent may never do what its caller may not: who is asked about its calls, and what they are told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from toolkit import (
    Abort,
    ApprovalRequest,
    Approve,
    ChatRequest,
    ConfigurationError,
    Defer,
    Modify,
    Permissions,
    ProviderError,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    allow,
    ask,
    deny,
    tool,
    tool_loop,
    tools_of,
)
from toolkit.agents import SubAgent, SubAgentEvent, coworker_tools, sub_agent_tool
from toolkit.chat import validate_transcript
from toolkit.endings import Aborted
from toolkit.events import ApprovalRequested, LoopEvent, ToolExecutionUpdate
from toolkit.policies import ToolExecutionHooks
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@tool
async def bash(command: str = "ls") -> str:
    """Run a command."""
    RAN.append(command)
    return "ran"


class Shell:
    @tool
    async def bash(self, command: str = "ls") -> str:
        """Run a command."""
        RAN.append(command)
        return "ran"


SHELL = Shell()


def _read_last(request: ChatRequest) -> str:
    return request.messages[-1].text


def child(registry: ToolRegistry, name: str = "bash", arguments: str = "{}", **options: Any) -> Any:
    """Return a sub-agent that makes one call and answers with what came of it."""
    provider = ScriptedProvider(
        [ToolCall("c", name, arguments), lambda request: request.messages[-1].text], repeats=True
    )
    return sub_agent_tool("worker", "Works.", provider, registry, **options)


def around(inner: Any, **options: Any) -> Any:
    """Return a sub-agent that hands its task on to another one."""
    task = ToolCall("m", inner.definition.name, '{"task": "t"}')
    provider = ScriptedProvider([task, _read_last], repeats=True)
    return sub_agent_tool("manager", "Manages.", provider, ToolRegistry([inner]), allow_sub_agents=True, **options)


async def run_agent(
    agent: Any, permissions: Permissions | None = None, *, more: ToolRegistry | None = None, **settings: Any
) -> str:
    """Run a loop that hands a task to the agent, and return what its model reads."""
    RAN.clear()
    registry = ToolRegistry([agent]) if more is None else ToolRegistry([agent]) | more
    registry.permissions = permissions
    task = ToolCall("p", agent.definition.name, '{"task": "t"}')
    result = await tool_loop(
        ScriptedProvider([task, "done"]), registry, "go", config=ToolLoopConfig(**settings) if settings else None
    )
    validate_transcript(result.messages)
    return next(message.text for message in result.messages if isinstance(message, ToolResult))


def plain() -> ToolRegistry:
    return ToolRegistry([bash])


@dataclass(frozen=True)
class Attack:
    """A way in which a sub-agent does what its caller may not.

    Args:
        way: What is tried.
        agent: Gives the sub-agent.
        permissions: The caller's rules.
        settings: The caller's settings.
        more: What else the caller has.
    """

    way: str
    agent: Callable[[], Any]
    permissions: Permissions | None = None
    settings: dict[str, Any] | None = None
    more: Callable[[], ToolRegistry] | None = None


def no_bash(request: ApprovalRequest) -> bool:
    return request.tool_name in ("worker", "manager")


async def no_bash_later(request: ApprovalRequest) -> bool:
    await anyio.lowlevel.checkpoint()
    return no_bash(request)


def before(name: str, call_id: str, arguments: object) -> bool:
    return name in ("worker", "manager")


HOOKED = {"middleware": [ToolExecutionHooks(before=before)]}


def after_all(name: str, call_id: str, arguments: object) -> bool:
    return True


def for_agent(answer: Any) -> Callable[[ApprovalRequest], Any]:
    """Return an approver that answers so on a sub-agent's calls, and allows the others."""

    def approve(request: ApprovalRequest) -> Any:
        return answer if request.agent else True

    return approve


def broken(request: ApprovalRequest) -> bool:
    if no_bash(request):
        return True
    raise RuntimeError("broken")


NO_BASH = Permissions([deny("bash")])
ALL = Permissions([allow("*")])


def own_yes(**options: Any) -> ToolLoopConfig:
    return ToolLoopConfig(on_tool_call=lambda request: Approve(), **options)


ATTACKS = [
    Attack("a tool that is denied", lambda: child(plain()), NO_BASH),
    Attack("under another name", lambda: child(plain().renamed({"bash": "sh"}), "sh"), NO_BASH),
    Attack("under a prefix", lambda: child(plain().prefixed("x"), "x__bash"), NO_BASH),
    Attack("with rules of its own", lambda: child(ToolRegistry([bash], permissions=ALL)), NO_BASH),
    Attack("by default", lambda: child(plain()), Permissions([allow("worker")], default="deny")),
    Attack("asked by default", lambda: child(plain()), Permissions([allow("worker")], default="ask")),
    Attack(
        "by an argument",
        lambda: child(plain(), arguments='{"command": "rm x"}'),
        Permissions([deny("bash", args={"command": "rm *"})]),
    ),
    Attack("with a question", lambda: child(plain()), Permissions([ask("bash")])),
    Attack(
        "with a question that its own approver answers",
        lambda: child(plain(), config=own_yes()),
        Permissions([ask("bash")]),
    ),
    Attack("that an approver denies", lambda: child(plain()), settings={"on_tool_call": no_bash}),
    Attack("that an async approver denies", lambda: child(plain()), settings={"on_tool_call": no_bash_later}),
    Attack("whose approver is broken", lambda: child(plain()), settings={"on_tool_call": broken}),
    Attack(
        "that the hook before skips",
        lambda: child(plain()),
        settings=HOOKED,
    ),
    Attack(
        "that its own approver allows",
        lambda: child(plain(), config=own_yes()),
        settings={"on_tool_call": no_bash},
    ),
    Attack(
        "that its own hook before allows",
        lambda: child(plain(), config=ToolLoopConfig(middleware=[ToolExecutionHooks(before=after_all)])),
        settings=HOOKED,
    ),
    Attack("two levels down", lambda: around(child(plain())), NO_BASH),
    Attack("two levels down, by an approver", lambda: around(child(plain())), settings={"on_tool_call": no_bash}),
    Attack(
        "two levels down, by a hook",
        lambda: around(child(plain())),
        settings=HOOKED,
    ),
    Attack("two levels down, with rules", lambda: around(child(ToolRegistry([bash], permissions=ALL))), NO_BASH),
    Attack(
        "two levels down, asked",
        lambda: around(child(plain(), config=own_yes()), config=own_yes()),
        Permissions([ask("bash")]),
    ),
    Attack(
        "that its caller has under another name",
        lambda: child(plain()),
        Permissions([deny("shell")]),
        more=lambda: plain().renamed({"bash": "shell"}),
    ),
    Attack(
        "that its caller has under a prefix",
        lambda: child(plain().renamed({"bash": "run"}), "run"),
        Permissions([deny("sys__bash")]),
        more=lambda: plain().prefixed("sys"),
    ),
    Attack(
        "a method that is bound anew",
        lambda: child(ToolRegistry([SHELL.bash]).renamed({"bash": "run"}), "run"),
        Permissions([deny("shell")]),
        more=lambda: ToolRegistry(tools_of(SHELL)).renamed({"bash": "shell"}),
    ),
    Attack(
        "that its caller has to ask about",
        lambda: child(plain(), config=own_yes()),
        more=lambda: plain().configured(requires_approval=True),
    ),
    Attack(
        "that its caller's approver makes worse for its own rules",
        lambda: child(ToolRegistry([bash], permissions=Permissions([deny("bash", args={"command": "rm *"})]))),
        settings={"on_tool_call": for_agent(Modify({"command": "rm x"}))},
    ),
    Attack(
        "that its own approver makes worse for its caller's rules",
        lambda: child(plain(), config=ToolLoopConfig(on_tool_call=lambda request: Modify({"command": "rm x"}))),
        Permissions([deny("bash", args={"command": "rm *"})]),
    ),
    Attack(
        "decided later",
        lambda: child(plain()),
        settings={"on_tool_call": for_agent(Defer())},
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.way)
async def test_a_sub_agent_may_not_do_what_its_caller_may_not(attack: Attack) -> None:
    more = None if attack.more is None else attack.more()
    with anyio.fail_after(120):
        text = await run_agent(attack.agent(), attack.permissions, more=more, **(attack.settings or {}))
    assert RAN == []
    assert text != "ran"


def only_delegation(request: ApprovalRequest) -> bool:
    return request.tool_name == "delegate_work"


def only_delegation_before(name: str, call_id: str, arguments: object) -> bool:
    return name == "delegate_work"


@pytest.mark.parametrize(
    ("permissions", "settings"),
    [
        (NO_BASH, {}),
        (None, {"on_tool_call": only_delegation}),
        (None, {"middleware": [ToolExecutionHooks(before=only_delegation_before)]}),
    ],
    ids=["a rule", "an approver", "a hook"],
)
async def test_and_neither_may_a_coworker(permissions: Permissions | None, settings: dict[str, Any]) -> None:
    RAN.clear()
    provider = ScriptedProvider([ToolCall("c", "bash", "{}"), "tried"])
    coworker = SubAgent(name="writer", provider=provider, registry=plain(), config=own_yes())
    registry = ToolRegistry(coworker_tools([coworker]), permissions=permissions)
    call = ToolCall("p", "delegate_work", '{"task": "t", "context": "", "coworker": "writer"}')
    await tool_loop(ScriptedProvider([call, "done"]), registry, "go", config=ToolLoopConfig(**settings))
    assert RAN == []
    assert len(provider.requests) == 2


async def test_what_its_caller_may_do_it_may_do_and_everybody_is_asked_once() -> None:
    asked: list[tuple[str, str, str, bool]] = []

    def note(whose: str) -> Callable[[ApprovalRequest], bool]:
        def approve(request: ApprovalRequest) -> bool:
            asked.append((whose, request.tool_name, request.agent, bool(request.loop_id)))
            return True

        return approve

    agent = around(
        child(plain(), config=ToolLoopConfig(on_tool_call=note("worker"))),
        config=ToolLoopConfig(on_tool_call=note("manager")),
    )
    text = await run_agent(agent, Permissions([ask("bash"), allow("*")]), on_tool_call=note("boss"))
    assert (text, RAN) == ("ran", ["ls"])
    assert asked == [
        ("manager", "worker", "manager", True),
        ("worker", "bash", "worker", True),
        ("manager", "bash", "worker", True),
        ("boss", "bash", "worker", True),
    ]


async def test_the_loop_id_in_the_request_is_that_of_the_events_and_of_the_result() -> None:
    ids: set[str] = set()
    events: list[LoopEvent] = []

    def approve(request: ApprovalRequest) -> bool:
        if request.agent:
            ids.add(request.loop_id)
        return True

    RAN.clear()
    registry = ToolRegistry([child(plain())])
    provider = ScriptedProvider([ToolCall("p", "worker", '{"task": "t"}'), "done"])
    config = ToolLoopConfig(on_tool_call=approve, on_event=events.append)
    result = await tool_loop(provider, registry, "go", config=config)
    inner = [event.output.details for event in events if isinstance(event, ToolExecutionUpdate)]
    assert all(isinstance(each, SubAgentEvent) for each in inner)
    assert ids == {each.loop_id for each in inner} == {each.event.loop_id for each in inner}
    assert ids == {message.child_loop_id for message in result.messages if isinstance(message, ToolResult)}
    (asked,) = [each.event for each in inner if isinstance(each.event, ApprovalRequested)]
    assert (asked.tool_name, asked.agent) == ("bash", "worker")


@pytest.mark.parametrize("levels", [1, 2])
async def test_approvals_of_its_own_ask_nobody_else(levels: int) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool_name)
        return True

    agent = child(plain(), approvals="own")
    text = await run_agent(agent if levels == 1 else around(agent), NO_BASH, on_tool_call=approve)
    assert (text, RAN) == ("ran", ["ls"])
    assert asked == ["worker"] if levels == 1 else ["manager", "worker"]


async def test_a_callers_approver_may_change_a_call_and_abort_all() -> None:
    text = await run_agent(child(plain()), on_tool_call=for_agent(Modify({"command": "pwd"})))
    note = '[The approver changed the arguments of this call: it ran with {"command":"pwd"}.]'
    assert (text, RAN) == (f"ran\n\n{note}", ["pwd"])
    RAN.clear()
    registry = ToolRegistry([around(child(plain()))])
    provider = ScriptedProvider([ToolCall("p", "manager", '{"task": "t"}'), "never asked"])
    config = ToolLoopConfig(on_tool_call=lambda request: Abort("enough") if request.tool_name == "bash" else True)
    result = await tool_loop(provider, registry, "go", config=config)
    assert RAN == []
    assert len(provider.requests) == 1
    assert result.reason == Aborted("enough")
    validate_transcript(result.messages)


async def test_another_attempt_is_guarded_as_the_first_was() -> None:
    attempts: list[str] = []

    def fail_once(request: ChatRequest) -> str | ToolCall:
        attempts.append("asked")
        if len(attempts) == 1:
            raise ProviderError("model", "is gone")
        return ToolCall("c", "bash", "{}") if len(attempts) == 2 else "tried"

    retry = ToolRetryConfig(max_retries=1, initial_backoff=0, retry_if=lambda error: True)
    provider = ScriptedProvider([fail_once], repeats=True)
    agent = sub_agent_tool("worker", "Works.", provider, plain(), retry=retry)
    assert await run_agent(agent, NO_BASH) == "tried"
    assert (len(attempts), RAN) == (3, [])


async def test_outside_of_a_loop_the_registrys_rules_and_approver_are_asked() -> None:
    RAN.clear()
    call = ToolCall("p", "worker", '{"task": "t"}')
    registry = ToolRegistry([child(plain())], permissions=NO_BASH)
    assert (await registry.execute(call)).text == "Tool 'bash' may not be called here."
    registry.permissions = None
    assert (await registry.execute(call, approve=no_bash)).text == "Tool call denied."
    assert RAN == []
    assert (await registry.execute(call, approve=lambda request: True)).text == "ran"


async def test_the_hook_after_of_a_caller_is_told_of_its_calls() -> None:
    told: list[str] = []

    def after(name: str, call_id: str, is_error: bool) -> None:
        told.append(name)

    await run_agent(child(plain()), middleware=[ToolExecutionHooks(after=after)])
    assert told == ["bash", "worker"]


async def test_a_loop_that_a_tool_runs_by_itself_is_the_tools_own() -> None:
    @tool
    async def search() -> str:
        inner = ScriptedProvider([ToolCall("i", "bash", "{}"), "found"])
        return (await tool_loop(inner, plain(), "go")).text

    assert await run_agent(child(ToolRegistry([search]), "search"), NO_BASH) == "found"
    assert RAN == ["ls"]


def test_who_decides_is_one_of_two() -> None:
    with pytest.raises(ConfigurationError, match="approvals must be 'caller' or 'own', not 'nobody'"):
        child(plain(), approvals="nobody")
