"""Attacks on rules: a tool under another name, an argument under another name, another way to the same effect.

Each row is a way to run what a rule forbids, or has somebody asked about. Nothing of that may run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    Secret,
    SecretBytes,
    SecretStr,
)
from pydantic.alias_generators import to_camel

from tests.case_names import name_case
from toolkit import (
    ApprovalRequest,
    ChatRequest,
    Message,
    Middleware,
    Modify,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    UserMessage,
    allow,
    ask,
    deny,
    tool,
    tool_from_function,
    tool_from_schema,
    tool_loop,
    tools_of,
)
from toolkit.chat import ChatResponse, ToolDefinition
from toolkit.policies import RequestInfo, RequestProceed, Rule, SteeredRetries, ToolOrder
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

RAN: list[Any] = []


@tool
async def bash(command: str = "ls") -> str:
    """Run a command."""
    RAN.append(command)
    return "ran"


@tool
async def look() -> str:
    """Look."""
    return "looked"


@tool
async def read_evil() -> str:
    """Do what its name does not say."""
    RAN.append("evil")
    return "ran"


NO_BASH = Permissions([deny("bash")])
ASK_BASH = Permissions([ask("bash")])
ONLY_READ = Permissions([allow("read_*")], default="deny")


def tools(permissions: Permissions = NO_BASH) -> ToolRegistry:
    return ToolRegistry([bash, look], permissions=permissions)


class Shell:
    @tool
    async def bash(self, command: str = "ls") -> str:
        """Run a command."""
        RAN.append(command)
        return "ran"


SHELL = Shell()


@dataclass(frozen=True)
class Attack:
    """A way to a tool that the rules deny.

    Args:
        way: What is tried.
        scope: Gives the registry that the model is offered.
        name: What it calls.
        arguments: With what.
    """

    way: str
    scope: Callable[[], ToolRegistry]
    name: str
    arguments: str = "{}"


def swapped() -> ToolRegistry:
    return tools().renamed({"bash": "look", "look": "bash"})


def added_later() -> ToolRegistry:
    registry = tools().prefixed("sys")
    registry.register(look)
    return registry


def ruled_later() -> ToolRegistry:
    registry = ToolRegistry([bash, look]).prefixed("sys")
    registry.permissions = NO_BASH
    return registry


NAMES = [
    Attack("prefixed", lambda: tools().prefixed("sys"), "sys__bash"),
    Attack("prefixed twice", lambda: tools().prefixed("a").prefixed("b"), "b__a__bash"),
    Attack("prefixed with nothing", lambda: tools().prefixed("", separator="_"), "_bash"),
    Attack("prefixed, and written with a namespace", lambda: tools().prefixed("sys"), "functions.sys__bash"),
    Attack("prefixed, and written in another case", lambda: tools().prefixed("sys"), "SysBash"),
    Attack("renamed", lambda: tools().renamed({"bash": "shell"}), "shell"),
    Attack("renamed and back", lambda: tools().renamed({"bash": "x"}).renamed({"x": "bash"}), "bash"),
    Attack("renamed to what is allowed", lambda: tools().renamed({"bash": "look", "look": "see"}), "look"),
    Attack("swapped with another", swapped, "look"),
    Attack("renamed, then prefixed", lambda: tools().renamed({"bash": "shell"}).prefixed("sys"), "sys__shell"),
    Attack("only", lambda: tools().renamed({"bash": "shell"}).only(["shell"]), "shell"),
    Attack("where", lambda: tools().prefixed("a").where(lambda each: True), "a__bash"),
    Attack("without another", lambda: tools().prefixed("a").without(["a__look"]), "a__bash"),
    Attack("configured", lambda: tools().configured(requires_approval=False).prefixed("a"), "a__bash"),
    Attack("configured after", lambda: tools().prefixed("a").configured("a__bash", timeout=9), "a__bash"),
    Attack("widened", lambda: tools().prefixed("a").widened(object), "a__bash"),
    Attack("joined", lambda: tools().prefixed("a") | ToolRegistry([look]), "a__bash"),
    Attack("joined to", lambda: ToolRegistry([look]).prefixed("b") | tools().prefixed("a"), "a__bash"),
    Attack("a joined one without rules", lambda: tools() | ToolRegistry([bash]).prefixed("x"), "x__bash"),
    Attack("registered after", added_later, "sys__bash"),
    Attack("ruled after it was renamed", ruled_later, "sys__bash"),
    Attack("a repaired name", tools, "Bash"),
    Attack("a doubled name", tools, "bashbash"),
    Attack("a quoted name", tools, "`bash`"),
    Attack("a method", lambda: ToolRegistry(tools_of(SHELL), permissions=NO_BASH).prefixed("s"), "s__bash"),
    Attack("a method bound anew", lambda: ToolRegistry([SHELL.bash], permissions=NO_BASH).prefixed("s"), "s__bash"),
    Attack("a pattern", lambda: tools(Permissions([deny("ba*")])).renamed({"bash": "sh"}), "sh"),
    Attack("all but one", lambda: tools(Permissions([deny("[!l]*")])).renamed({"bash": "listing"}), "listing"),
    Attack("a question", lambda: tools(ASK_BASH).prefixed("a"), "a__bash"),
    Attack("a question, renamed", lambda: tools(ASK_BASH).renamed({"bash": "look", "look": "l"}), "look"),
    Attack(
        "a question before an allowance", lambda: tools(Permissions([ask("bash"), allow("*")])).prefixed("a"), "a__bash"
    ),
    Attack("a default", lambda: tools(Permissions([allow("look")], default="deny")).prefixed("a"), "a__bash"),
    Attack("a default of asking", lambda: tools(Permissions([allow("look")], default="ask")).prefixed("a"), "a__bash"),
    Attack(
        "the name of an allowed one before a prefix, from elsewhere",
        lambda: ToolRegistry([look], permissions=ONLY_READ) | ToolRegistry([read_evil]).prefixed("server"),
        "server__read_evil",
    ),
    Attack(
        "an argument",
        lambda: tools(Permissions([deny("bash", args={"command": "rm *"})])).prefixed("a"),
        "a__bash",
        '{"command": "rm -r x"}',
    ),
    Attack(
        "a default of an argument",
        lambda: tools(Permissions([deny("bash", args={"command": "ls"})])).prefixed("a"),
        "a__bash",
    ),
    Attack(
        "null for a default",
        lambda: tools(Permissions([deny("bash", args={"command": "ls"})])),
        "bash",
        '{"command": null}',
    ),
]


@pytest.mark.parametrize("attack", NAMES, ids=lambda attack: attack.way)
async def test_a_rule_on_a_tool_follows_it_under_every_name(attack: Attack) -> None:
    RAN.clear()
    call = ToolCall("1", attack.name, attack.arguments)
    registry = attack.scope()
    results = [
        await registry.execute(call),
        *await registry.execute_all([call, ToolCall("2", attack.name, attack.arguments)]),
        (await tool_loop(ScriptedProvider([call, "ok"]), registry, "go")).messages[2],
    ]
    assert RAN == []
    assert all(getattr(result, "is_error", False) for result in results)


async def test_an_allowance_follows_its_tool_too() -> None:
    rules = Permissions([allow("bash", args={"command": "git *"})], default="deny")
    registry = tools(rules).prefixed("a").renamed({"a__bash": "shell"})
    assert (await registry.execute(ToolCall("1", "shell", '{"command": "git status"}'))).text == "ran"
    assert (await registry.execute(ToolCall("1", "shell", '{"command": "rm"}'))).is_error
    assert (await registry.execute(ToolCall("1", "a__look", "{}"))).is_error
    named = ToolRegistry([bash, look]).prefixed("a")
    named.permissions = Permissions([allow("a__bash")], default="deny")
    assert (await named.execute(ToolCall("1", "a__bash", "{}"))).text == "ran"


async def test_a_rule_holds_for_its_own_tool_alone() -> None:
    other = tool_from_function(bash.function, name="other")
    registry = ToolRegistry([bash, other, look], permissions=NO_BASH).prefixed("a")
    assert (await registry.execute(ToolCall("1", "a__other", "{}"))).text == "ran"
    assert (await registry.execute(ToolCall("1", "a__look", "{}"))).text == "looked"


# the request


class Narrowing(Middleware[object]):
    """Takes the tool out of the request, as it is sent."""

    def __init__(self, tools: Sequence[str] = ("look",), choice: str | None = None) -> None:
        self.tools, self.choice = tools, choice

    async def around_request(self, request: RequestInfo[object], proceed: RequestProceed) -> ChatResponse:
        chat = request.chat
        tools = tuple([each for each in chat.tools or () if each.name in self.tools])
        return await proceed(replace(chat, tools=tools, tool_choice=self.choice or chat.tool_choice))


class Offering(Middleware[object]):
    async def offer(self, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> Sequence[str]:
        return ["look"]


def ask_for(**settings: Any) -> ChatRequest:
    return ChatRequest(messages=(UserMessage("go"),), **settings)


NARROWED: dict[str, tuple[ChatRequest, Sequence[Middleware[object]]]] = {
    "the caller's request has other tools": (ask_for(tools=(look.definition,)), ()),
    "the caller's request has no tools": (ask_for(tools=()), ()),
    "the caller's request forbids calls": (ask_for(tool_choice="none"), ()),
    "the caller's request names another tool": (ask_for(tool_choice="look"), ()),
    "a middleware offers another tool": (ask_for(), [Offering()]),
    "a middleware sends another tool": (ask_for(), [Narrowing()]),
    "a middleware sends no tools": (ask_for(), [Narrowing(())]),
    "a middleware forbids calls": (ask_for(), [Narrowing(("look", "bash"), "none")]),
    "a middleware names another tool": (ask_for(), [Narrowing(("look", "bash"), "look")]),
    "the innermost middleware sends another tool": (ask_for(), [Middleware(), Narrowing()]),
    "the reply is held to another tool": (ask_for(), [ToolOrder(required_steps=("look",)), SteeredRetries()]),
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["bash", "functions.Bash"])
@pytest.mark.parametrize("way", NARROWED)
async def test_a_tool_that_is_not_in_the_request_does_not_run(way: str, name: str, is_streamed: bool) -> None:
    RAN.clear()
    request, middleware = NARROWED[way]
    # The first reply ends nothing where a step is missing: only the second request is held to it.
    replies = ["done", ToolCall("1", name, "{}")] if "held" in way else [ToolCall("1", name, "{}")]
    config = ToolLoopConfig(middleware=tuple(middleware), stream=is_streamed, max_iterations=1)
    result = await tool_loop(ScriptedProvider([*replies, "ok"]), ToolRegistry([bash, look]), request, config=config)
    assert RAN == []
    assert any(message.role == "tool" and message.is_error for message in result.messages)


async def test_a_request_that_translates_names_keeps_its_tools() -> None:
    class Translating(Middleware[object]):
        async def around_request(self, request: RequestInfo[object], proceed: RequestProceed) -> ChatResponse:
            tools = [replace(each, name=f"x_{each.name}") for each in request.chat.tools or ()]
            return await proceed(replace(request.chat, tools=tuple(tools)))

    config = ToolLoopConfig(middleware=(Translating(),))
    provider = ScriptedProvider([ToolCall("1", "look", "{}"), "ok"])
    assert (await tool_loop(provider, ToolRegistry([look]), "go", config=config)).messages[2].text == "looked"


# arguments


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    user_id: str = "nobody"
    secret_code: SecretStr = SecretStr("none")


class Other(BaseModel):
    to: Annotated[str, Field(validation_alias=AliasChoices("to", "recipient"), serialization_alias="target")] = ""


class Account:
    """An object that JSON can't say."""

    def __init__(self, owner: str) -> None:
        self.owner = owner


class Color(Enum):
    RED = "red"


NOBODY = Camel()
NOWHERE = Other()
NOTHING = SecretStr("")


@tool
async def act(
    code: SecretStr = NOTHING,
    raw: SecretBytes = SecretBytes(b""),  # noqa: B008 - a default of its own kind
    number: Secret[int] = Secret(0),  # noqa: B008 - likewise
    user_id: Annotated[str, Field(validation_alias="userId")] = "",
    who: Annotated[str, Field(validation_alias=AliasChoices("person", "human"))] = "",
    zed: Annotated[str, Field(alias="Z")] = "",
    out: Annotated[str, Field(serialization_alias="written")] = "",
    camel: Camel = NOBODY,
    camels: list[Camel] | None = None,
    by_name: dict[str, Camel] | None = None,
    other: Other = NOWHERE,
    codes: list[SecretStr] | None = None,
    account: Annotated[str | None, AfterValidator(Account)] = None,
    accounts: list[Annotated[str, AfterValidator(Account)]] | None = None,
    color: Color = Color.RED,
    folder: Path = Path("/etc/secret"),
    day: date = date(2026, 1, 2),
    *names: str,
    **more: Any,
) -> str:
    """Do something."""
    RAN.append("act")
    return "ran"


async def _raw(arguments: dict[str, Any]) -> str:
    RAN.append("raw")
    return "ran"


RAW = tool_from_schema("raw", "", {"type": "object", "properties": {"a.b": {"type": "string"}}}, _raw)


@dataclass(frozen=True)
class Seen:
    """Arguments, and a rule that denies them."""

    args: dict[str, Any]
    arguments: str
    tool: str = "act"


def is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > 3


ARGUMENTS = [
    Seen({"code": "1234"}, '{"code": "1234"}'),
    Seen({"code": "12*"}, '{"code": "1234"}'),
    Seen({"code": is_long}, '{"code": "1234"}'),
    Seen({"code": ""}, "{}"),
    Seen({"raw": "abc"}, '{"raw": "abc"}'),
    Seen({"number": 7}, '{"number": 7}'),
    Seen({"number": 7}, '{"number": "7"}'),
    Seen({"codes": "1234"}, '{"codes": ["1", "1234"]}'),
    Seen({"camel.secretCode": "1234"}, '{"camel": {"secretCode": "1234"}}'),
    Seen({"camel.secret_code": "1234"}, '{"camel": {"secretCode": "1234"}}'),
    Seen({"camel.secret_code": "1234"}, '{"camel": {"secret_code": "1234"}}'),
    Seen({"camel.secret_code": "none"}, "{}"),
    Seen({"userId": "root"}, '{"userId": "root"}'),
    Seen({"user_id": "root"}, '{"userId": "root"}'),
    Seen({"person": "root"}, '{"person": "root"}'),
    Seen({"person": "root"}, '{"human": "root"}'),
    Seen({"who": "root"}, '{"human": "root"}'),
    Seen({"Z": "root"}, '{"Z": "root"}'),
    Seen({"zed": "root"}, '{"Z": "root"}'),
    Seen({"out": "root"}, '{"out": "root"}'),
    Seen({"written": "root"}, '{"out": "root"}'),
    Seen({"camel.userId": "root"}, '{"camel": {"userId": "root"}}'),
    Seen({"camel.user_id": "root"}, '{"camel": {"userId": "root"}}'),
    Seen({"camel.userId": "root"}, '{"camel": {"user_id": "root"}}'),
    Seen({"camels.user_id": "root"}, '{"camels": [{"userId": "a"}, {"userId": "root"}]}'),
    Seen({"by_name.x.user_id": "root"}, '{"by_name": {"x": {"userId": "root"}}}'),
    Seen({"by_name.x.y.user_id": "root"}, '{"by_name": {"x.y": {"userId": "root"}}}'),
    Seen({"other.to": "root"}, '{"other": {"recipient": "root"}}'),
    Seen({"other.recipient": "root"}, '{"other": {"to": "root"}}'),
    Seen({"other.target": "root"}, '{"other": {"recipient": "root"}}'),
    Seen({"names": "root"}, '{"names": ["a", "root"]}'),
    Seen({"account": "root"}, '{"account": "root"}'),
    Seen({"accounts": "root"}, '{"accounts": ["ann", "root"]}'),
    Seen({"color": "red"}, '{"color": "red"}'),
    Seen({"color": "red"}, "{}"),
    Seen({"folder": "/etc/*"}, "{}"),
    Seen({"day": "2026-01-02"}, "{}"),
    Seen({"extra": "root"}, '{"extra": "root"}'),
    Seen({"extra": "root"}, '{"extra": [["root"]]}'),
    Seen({"extra.user": "root"}, '{"extra": [[{"user": ["a", ["root"]]}]]}'),
    Seen({"extra.deep": "root"}, '{"extra.deep": "root"}'),
    Seen({"extra.deep": "root"}, '{"extra": {"deep": "root"}}'),
    Seen({"extra.deep.er": "root"}, '{"extra.deep": {"er": "root"}}'),
    Seen({"extra": None}, '{"extra": null}'),
    Seen({"camel": {"userId": "root", "secretCode": "none"}}, '{"camel": {"userId": "root"}}'),
    # repaired
    Seen({"code": "1234"}, "{'code': '1234',}"),
    Seen({"codes": "1234"}, '{"codes": "[\\"1234\\"]"}'),
    Seen({"code": "12\u00e9"}, '{"code": "12\\u00e9"}'),
    Seen({"a.b": "root"}, '{"a.b": "root"}', "raw"),
    Seen({"c": "root"}, '{"c": "root"}', "raw"),
]


@pytest.mark.parametrize("seen", ARGUMENTS, ids=lambda seen: name_case(f"{seen.args} {seen.arguments}"))
@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_a_rule_sees_each_argument_under_each_of_its_names(action: Any, seen: Seen) -> None:
    RAN.clear()
    rules = Permissions([Rule(seen.tool, args=seen.args, action=action), allow("*")])
    registry = ToolRegistry([act, RAW], permissions=rules)
    result = await registry.execute(ToolCall("1", seen.tool, seen.arguments))
    assert result.text.startswith(f"Tool '{seen.tool}' "), result.text
    assert (RAN, result.is_error) == ([], True)
    assert "1234" not in result.text


async def test_a_rule_on_what_is_not_there_lets_other_calls_run() -> None:
    rules = Permissions([deny("act", args={"userId": "root", "code": "1234"})])
    registry = ToolRegistry([act], permissions=rules)
    for arguments in ('{"userId": "root"}', '{"code": "1234"}', '{"userId": "a", "code": "1234"}'):
        assert (await registry.execute(ToolCall("1", "act", arguments))).text == "ran"


async def test_a_rule_that_spoils_what_it_looks_at_hides_nothing_from_the_next() -> None:
    def spoil(value: Any) -> bool:
        value.clear()
        return False

    RAN.clear()
    rules = Permissions([deny("act", args={"camels": spoil}), deny("act", args={"camels.user_id": "root"})])
    result = await ToolRegistry([act], permissions=rules).execute(
        ToolCall("1", "act", '{"camels": [{"userId": "root"}]}')
    )
    assert (RAN, result.is_error) == ([], True)


@pytest.mark.parametrize("given", [{"code": "1234"}, {"userId": "root"}, {"camel": {"user_id": "root"}}], ids=str)
async def test_what_an_approver_changes_is_under_the_rules_too(given: dict[str, Any]) -> None:
    RAN.clear()
    rules = Permissions(
        [
            deny("act", args={"code": "1234"}),
            deny("act", args={"userId": "root"}),
            deny("act", args={"camel.userId": "root"}),
        ]
    )

    def approve(request: ApprovalRequest) -> Modify:
        return Modify(given)

    registry = ToolRegistry([act], permissions=rules).prefixed("a")
    result = await registry.execute(ToolCall("1", "a__act", "{}"), approve=approve)
    assert (RAN, result.is_error) == ([], True)
    config = ToolLoopConfig(on_tool_call=approve)
    await tool_loop(ScriptedProvider([ToolCall("1", "a__act", "{}"), "ok"]), registry, "go", config=config)
    assert RAN == []


async def test_an_approver_sees_what_was_given_for_an_object() -> None:
    shown: list[str] = []

    def decide(request: ApprovalRequest) -> bool:
        shown.append(request.preview)
        return False

    await ToolRegistry([act]).execute(ToolCall("1", "act", '{"account": "ann"}'), approve=decide)
    assert shown == ['{"account":"ann"}']
