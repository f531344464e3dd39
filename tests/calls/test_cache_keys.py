"""A cache never lies: an output is given again only where the tool would give the same, to whoever asks."""

import gc
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import AfterValidator

from tests.case_names import name_case
from toolkit import (
    ApprovalRequest,
    MemoryCache,
    Permissions,
    Tool,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    ask,
    deny,
    tool,
    tool_from_function,
    tool_from_schema,
    tool_loop,
    tool_with_ctx,
    tools_of,
)
from toolkit.builtin import CacheTools, coding_tools
from toolkit.chat import ToolDefinition
from toolkit.parsing import ToolUsage
from toolkit.policies import Cache, SqliteCache, ToolExecutionHooks
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

RUNS: list[Any] = []


@dataclass
class App:
    user: str | None
    money: int = 0


@pytest.fixture(params=["memory", "sqlite"])
async def cache(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cache]:
    if request.param == "memory":
        yield MemoryCache()
        return
    async with SqliteCache(tmp_path / "cache.db") as kept:
        yield kept


@pytest.fixture(autouse=True)
def forget_runs() -> None:
    RUNS.clear()


async def run(cache: Cache, registry: Any, name: str, arguments: str = "{}", ctx: Any = None) -> str:
    provider = ScriptedProvider([ToolCall("1", name, arguments), "ok"])
    result = await tool_loop(provider, registry, "go", ctx=ctx, config=ToolLoopConfig(cache=cache))
    return next(message.text for message in result.messages if isinstance(message, ToolResult))


def counting(name: str = "count") -> Callable[..., str]:
    def count(start: int = 0) -> str:
        """Count."""
        RUNS.append(name)
        return f"{len(RUNS)}"

    return count


@tool(cache=True)
def module_level(start: int = 0) -> str:
    """Count."""
    RUNS.append("module_level")
    return f"{len(RUNS)}"


# asked for


def _true(arguments: Mapping[str, Any], output: ToolOutput) -> bool:
    return True


def _false(arguments: Mapping[str, Any], output: ToolOutput) -> bool:
    return False


@pytest.mark.parametrize(
    ("options", "is_kept"),
    [
        ({}, False),
        ({"cache": True}, True),
        ({"cache": False}, False),
        ({"should_cache": True}, True),
        ({"should_cache": False}, False),
        ({"should_cache": _true}, True),
        ({"should_cache": _false}, False),
        ({"cache": True, "should_cache": _false}, False),
        ({"cache": False, "should_cache": _true}, False),
        ({"cache": True, "should_cache": False}, False),
    ],
    ids=name_case,
)
async def test_outputs_are_kept_only_of_tools_that_ask_for_it(
    cache: Cache, options: dict[str, Any], is_kept: bool
) -> None:
    registry = ToolRegistry([tool_from_function(counting(), **options)])
    assert [await run(cache, registry, "count"), await run(cache, registry, "count")] == ["1", "1" if is_kept else "2"]
    configured = ToolRegistry([tool_from_function(counting())]).configured(**options)
    RUNS.clear()
    assert [await run(cache, configured, "count") for _ in range(2)] == ["1", "1" if is_kept else "2"]


async def test_what_an_author_looks_at_before_it_is_kept_is_a_copy(cache: Cache) -> None:
    def spoil(arguments: Mapping[str, Any], output: ToolOutput) -> bool:
        output.content = "spoilt"
        return True

    registry = ToolRegistry([tool_from_function(counting(), should_cache=spoil)])
    assert [await run(cache, registry, "count") for _ in range(2)] == ["1", "1"]


# contexts


@tool_with_ctx(cache=True)
async def my_balance(app: App) -> int:
    """Say how much money there is."""
    RUNS.append(app.user)
    return app.money


@tool_with_ctx(cache=True, cache_key=lambda app: app.user)
async def balance_by_user(app: App) -> int:
    """Say how much money there is."""
    RUNS.append(app.user)
    return app.money


@tool_with_ctx(cache=True, cache_key=lambda app: app.user)
async def balance_in_envelope(context: ToolContext[App]) -> int:
    """Say how much money there is."""
    RUNS.append(context.state.user)
    return context.state.money


@tool_with_ctx(cache=True, cache_key=lambda app: 1 / 0)
async def balance_by_nonsense(app: App) -> int:
    """Say how much money there is."""
    RUNS.append(app.user)
    return app.money


ADA, BOB, NOBODY = App("ada", 100), App("bob", 3), App(None, 7)


@pytest.mark.parametrize("each", [my_balance, balance_by_user, balance_in_envelope, balance_by_nonsense])
async def test_nobody_is_given_what_was_anothers(cache: Cache, each: Any) -> None:
    registry = ToolRegistry[App]([each])
    name = each.definition.name
    assert [await run(cache, registry, name, ctx=app) for app in (ADA, BOB, ADA, BOB)] == ["100", "3", "100", "3"]
    is_kept = each in (balance_by_user, balance_in_envelope)
    assert ["ada", "bob"] * (1 if is_kept else 2) == RUNS


class Holder:
    """An object that JSON can't say, as most are."""

    def __init__(self, owner: str) -> None:
        self.owner = owner


def _give_itself(holder: Holder) -> object:
    return holder


def _give_it_in_a_list(holder: Holder) -> object:
    return {"of": [holder]}


def _give_a_view(holder: Holder) -> object:
    return memoryview(holder.owner.encode())


@pytest.mark.parametrize("key", [_give_itself, _give_it_in_a_list, _give_a_view])
async def test_a_key_that_is_the_same_for_all_keeps_nothing(cache: Cache, key: Callable[[Any], object]) -> None:
    @tool_with_ctx(cache=True, cache_key=key)
    async def balance(account: Holder) -> str:
        return f"money of {account.owner}"

    registry, config = ToolRegistry[Holder]([balance]), ToolLoopConfig(cache=cache)
    for owner in ("ann", "bob"):
        provider = ScriptedProvider([ToolCall("1", "balance", "{}"), "ok"])
        result = await tool_loop(provider, registry, "go", ctx=Holder(owner), config=config)
        assert result.messages[2].text == f"money of {owner}"


async def test_arguments_that_become_objects_are_told_apart(cache: Cache) -> None:
    @tool(cache=True)
    async def balance(account: Annotated[str, AfterValidator(Holder)], day: date = date(2026, 1, 2)) -> str:
        assert isinstance(account, Holder)
        return f"money of {account.owner}"

    config = ToolLoopConfig(cache=cache)
    for owner in ("ann", "bob"):
        provider = ScriptedProvider([ToolCall("1", "balance", json.dumps({"account": owner})), "ok"])
        result = await tool_loop(provider, ToolRegistry([balance]), "go", config=config)
        assert result.messages[2].text == f"money of {owner}"


async def test_a_context_without_a_key_keeps_nothing(cache: Cache) -> None:
    registry = ToolRegistry[App]([balance_by_user])
    assert [await run(cache, registry, "balance_by_user", ctx=NOBODY) for _ in range(2)] == ["7", "7"]
    assert RUNS == [None, None]


KEYS = st.one_of(st.none(), st.integers(0, 2), st.sampled_from(["0", "1", "", "null"]), st.booleans())


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["ada", "bob"]), st.integers(0, 1), KEYS), max_size=12))
def test_each_context_is_given_its_own_whatever_its_key_is_like(calls: list[tuple[str, int, Any]]) -> None:
    import anyio

    @tool_with_ctx(cache=True, cache_key=lambda ctx: ctx["key"])
    async def tell(ctx: dict[str, Any], number: int) -> str:
        return f"{ctx['key']!r} {number}"

    async def main() -> None:
        kept = MemoryCache()
        registry = ToolRegistry[dict[str, Any]]([tell])
        for _, number, key in calls:
            text = await run(kept, registry, "tell", json.dumps({"number": number}), {"key": key})
            assert text == f"{key!r} {number}"

    anyio.run(main)


# tools


class Account:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    @tool(cache=True)
    async def whose(self) -> str:
        """Say whose it is."""
        RUNS.append(self.owner)
        return self.owner

    @tool(cache=True)
    @staticmethod
    def fixed() -> str:
        """Say something fixed."""
        RUNS.append("fixed")
        return "fixed"


class Handmade:
    def __init__(self, text: str) -> None:
        from toolkit import ToolOptions

        self.text = text
        self.options = ToolOptions(cache=True, cache_key=lambda ctx: "all")
        self.definition = ToolDefinition(
            name="handmade", description="", parameters={"type": "object", "properties": {}}
        )

    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        return ToolOutput(self.text)


def told_apart() -> dict[str, Callable[[], list[Tool[object]]]]:
    def closure(text: str) -> Tool[object]:
        @tool(cache=True)
        def say() -> str:
            """Say something."""
            return text

        return say

    def from_lambda(text: str) -> Tool[object]:
        return tool_from_function(lambda: text, name="say", cache=True)

    def from_schema(text: str) -> Tool[object]:
        return tool_from_schema("say", "", {"type": "object", "properties": {}}, lambda _: text, cache=True)

    def callable_object(text: str) -> Tool[object]:
        class Speaker:
            def __call__(self) -> str:
                """Say something."""
                return text

        return tool_from_function(Speaker(), name="say", cache=True)

    makers: dict[str, Callable[[str], Tool[object]]] = {
        "closures": closure,
        "lambdas": from_lambda,
        "schemas": from_schema,
        "objects": callable_object,
        "methods": lambda text: Account(text).whose,
        "methods of tools_of": lambda text: tools_of(Account(text))[0],
        "by hand": Handmade,
    }
    return {name: partial(_make_two, make) for name, make in makers.items()}


def _make_two(make: Callable[[str], Tool[object]]) -> list[Tool[object]]:
    return [make("ada"), make("bob")]


@pytest.mark.parametrize("kind", told_apart())
async def test_two_tools_of_one_name_are_told_apart(cache: Cache, kind: str) -> None:
    for _ in range(2):
        for each, text in zip(told_apart()[kind](), ("ada", "bob"), strict=True):
            registry = ToolRegistry([each])
            assert [await run(cache, registry, each.definition.name) for _ in range(2)] == [text, text]


async def test_an_object_in_the_place_of_one_that_is_gone_is_another(cache: Cache) -> None:
    for owner in ("ada", "bob") * 20:
        account = Account(owner)
        assert await run(cache, ToolRegistry([account.whose]), "whose") == owner
        del account
        gc.collect(0)


async def test_one_object_shares_what_was_kept_of_its_method(cache: Cache) -> None:
    ada = Account("ada")
    assert [await run(cache, ToolRegistry([ada.whose]), "whose") for _ in range(3)] == ["ada"] * 3
    assert [await run(cache, ToolRegistry([Account.fixed]), "fixed") for _ in range(3)] == ["fixed"] * 3
    assert RUNS == ["ada", "fixed"]


async def test_a_tool_keeps_its_outputs_under_every_name_of_a_scope(cache: Cache) -> None:
    registry = ToolRegistry([module_level])
    texts = [await run(cache, registry, "module_level")]
    texts.append(await run(cache, registry.prefixed("x"), "x__module_level"))
    texts.append(await run(cache, registry.renamed({"module_level": "y"}), "y", '{"start": 0}'))
    assert texts == ["1", "1", "1"]
    assert await run(cache, registry, "module_level", '{"start": 1}') == "2"


async def test_a_tool_whose_definition_changed_starts_anew(cache: Cache) -> None:
    first, second = (tool_from_function(module_level.function, description=text, cache=True) for text in ("a", "b"))
    assert await run(cache, ToolRegistry([first]), "module_level") == "1"
    assert await run(cache, ToolRegistry([second]), "module_level") == "2"
    assert await run(cache, ToolRegistry([first]), "module_level") == "1"


async def test_files_are_read_again_after_an_edit(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    registry = ToolRegistry(coding_tools(tmp_path, "coding"))
    first = await run(cache, registry, "read_file", '{"path": "a.txt"}')
    (tmp_path / "a.txt").write_text("new")
    second = await run(cache, registry, "read_file", '{"path": "a.txt"}')
    assert ("old" in first, "new" in second) == (True, True)


# reading it as a tool


def with_reader(cache: Cache, *tools: Any, permissions: Permissions | None = None) -> Any:
    return ToolRegistry[Any]([*tools, CacheTools(cache).tool()], permissions=permissions)


async def hit(cache: Cache, registry: Any, key: str, ctx: Any = None) -> str:
    return await run(cache, registry, "hit_cache", json.dumps({"key": key}), ctx)


async def test_the_key_needs_no_defaults_and_goes_by_the_names_of_the_scope(cache: Cache) -> None:
    registry = with_reader(cache, module_level)
    await run(cache, registry, "module_level")
    assert await hit(cache, registry, "tool:module_level|input:{}") == "1"
    assert await hit(cache, registry, 'tool:module_level|input:{ "start": 0 }') == "1"
    scope = ToolRegistry[Any]([module_level]).prefixed("x") | ToolRegistry[Any]([CacheTools(cache).tool()])
    assert await hit(cache, scope, "tool:x__module_level|input:{}") == "1"


def _allow_reading(request: ApprovalRequest) -> bool:
    return request.tool_name == "hit_cache"


def _go_on_reading(name: str, call_id: str, arguments: Mapping[str, Any]) -> bool:
    return name == "hit_cache"


HIDDEN: dict[str, tuple[Callable[[Cache], Any], dict[str, Any]]] = {
    "not in the scope": (lambda cache: with_reader(cache, module_level).without(["module_level"]), {}),
    "another name": (lambda cache: with_reader(cache, module_level).renamed({"module_level": "other"}), {}),
    "denied": (lambda cache: with_reader(cache, module_level, permissions=Permissions([deny("module_level")])), {}),
    "denied by its arguments": (
        lambda cache: with_reader(cache, module_level, permissions=Permissions([deny("*", args={"start": 0})])),
        {},
    ),
    "asked about": (lambda cache: with_reader(cache, module_level, permissions=Permissions([ask("module_*")])), {}),
    "denied by an approver": (
        lambda cache: with_reader(cache, module_level),
        {"on_tool_call": _allow_reading},
    ),
    "skipped by a hook": (
        lambda cache: with_reader(cache, module_level),
        {"middleware": [ToolExecutionHooks(before=_go_on_reading)]},
    ),
    "not cached anymore": (lambda cache: with_reader(cache, module_level).configured("module_level", cache=False), {}),
}


@pytest.mark.parametrize("way", HIDDEN)
async def test_the_cache_gives_only_what_the_tool_itself_would(cache: Cache, way: str) -> None:
    await run(cache, ToolRegistry([module_level]), "module_level")
    make, settings_ = HIDDEN[way]
    call = ToolCall("1", "hit_cache", '{"key": "tool:module_level|input:{}"}')
    config = ToolLoopConfig(cache=cache, **settings_)
    result = await tool_loop(ScriptedProvider([call, "ok"]), make(cache), "go", config=config)
    (told,) = [message for message in result.messages if isinstance(message, ToolResult)]
    assert told.is_error
    assert told.text != "1"


async def test_the_cache_gives_nobody_what_was_anothers(cache: Cache) -> None:
    registry = with_reader(cache, balance_by_user, my_balance)
    assert await run(cache, registry, "balance_by_user", ctx=ADA) == "100"
    assert await hit(cache, registry, "tool:balance_by_user|input:{}", ADA) == "100"
    for app in (BOB, NOBODY):
        assert (await hit(cache, registry, "tool:balance_by_user|input:{}", app)).startswith("Nothing is kept")
    await run(cache, registry, "my_balance", ctx=ADA)
    assert (await hit(cache, registry, "tool:my_balance|input:{}", ADA)).startswith("Nothing is kept")


# agents that drive themselves


async def test_tool_usage_keeps_outputs_by_default_with_the_same_keys(cache: Cache) -> None:
    usage = ToolUsage([tool_from_function(counting())], cache=cache)
    other = ToolUsage([tool_from_function(counting())], cache=cache)
    reply = '{"tool_name": "count", "arguments": {"start": %d}}'
    texts = [(await usage.ause_tool(reply % number)).text.splitlines()[0] for number in (0, 1, 0)]
    assert texts == ["1", "2", "1"]
    assert (await other.ause_tool(reply % 0)).text == "3"
    for app in (ADA, BOB):
        one = ToolUsage[App]([my_balance, balance_by_user], ctx=app, cache=cache)
        for name in ("my_balance", "balance_by_user"):
            assert (await one.ause_tool(f'{{"tool_name": "{name}", "arguments": {{}}}}')).text == f"{app.money}"
