"""What was cut can be read, by the run that cut it; and how often a tool may be used in a run."""

from typing import Any

import pytest

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Message,
    OutputLimits,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    ToolResult,
    UserMessage,
    Yielded,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.builtin import read_result_tool
from toolkit.policies import ResultStore
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

BOOK = "0123456789" * 100
CUT = ToolLoopConfig(output=OutputLimits(max_chars=100))


@tool
def read_book() -> str:
    """Read the book."""
    return BOOK


@tool
def short() -> str:
    """Say little."""
    return "short"


def call(name: str, arguments: str = "{}", call_id: str = "") -> ToolCall:
    return ToolCall(call_id or name, name, arguments)


def read(name: str = "read_result", result: str = "result_1", call_id: str = "r") -> ToolCall:
    return ToolCall(call_id, name, f'{{"id": "{result}", "start": 500, "length": 10}}')


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolResult)]


def offered(provider: ScriptedProvider) -> list[list[str]]:
    return [[definition.name for definition in request.tools or ()] for request in provider.requests]


PAGE = "[characters 500 to 510 of 1000; call {name} with start=510 for more]\n0123456789"


async def test_the_tool_that_reads_on_is_offered_last_from_the_first_cut_on() -> None:
    provider = ScriptedProvider([call("short"), call("read_book"), read(), "ok"])
    result = await tool_loop(provider, ToolRegistry([read_book, short]), "go", config=CUT)
    plain = ["read_book", "short"]
    assert offered(provider) == [plain, plain, [*plain, "read_result"], [*plain, "read_result"]]
    _, cut, page = texts(result.messages)
    assert "call read_result with id 'result_1' to read them" in cut
    assert page == PAGE.format(name="read_result")


async def test_it_stands_behind_the_tool_for_a_typed_answer() -> None:
    provider = ScriptedProvider([call("read_book"), read(), call("final_answer", '{"answer": 3}')])
    config = ToolLoopConfig(output=OutputLimits(max_chars=100), answer=AnswerFormat(int))
    result = await tool_loop(provider, ToolRegistry([read_book]), "go", config=config)
    assert result.output == 3
    assert offered(provider)[1:] == [["read_book", "final_answer", "read_result"]] * 2
    assert PAGE.format(name="read_result") in texts(result.messages)


@pytest.mark.parametrize(
    ("prefixes", "name"),
    [(("lib",), "lib__read_result"), (("lib", "v2"), "v2__lib__read_result"), (("x" * 52,), "read_result")],
    ids=["one", "two", "too long"],
)
async def test_it_has_the_name_that_the_scopes_prefix_gives_it(prefixes: tuple[str, ...], name: str) -> None:
    scope = ToolRegistry([tool(name="book")(read_book.function), short])
    for prefix in prefixes:
        scope = scope.prefixed(prefix)
    scope = scope.where(lambda registration: registration.name.endswith("book"))
    provider = ScriptedProvider([call(scope.names[0]), read(name), "ok"])
    result = await tool_loop(provider, scope, "go", config=CUT)
    cut, page = texts(result.messages)
    assert f"call {name} with id 'result_1'" in cut
    assert page == PAGE.format(name=name)
    assert offered(provider)[1][-1] == name


async def test_a_name_that_is_taken_is_left_to_its_tool() -> None:
    @tool
    def read_result() -> str:
        """Be another tool."""
        return "another"

    provider = ScriptedProvider([call("read_book"), read("read_result_of_run"), call("read_result"), "ok"])
    result = await tool_loop(provider, ToolRegistry([read_book, read_result]), "go", config=CUT)
    cut, page, other = texts(result.messages)
    assert "call read_result_of_run with id" in cut
    assert page == PAGE.format(name="read_result_of_run")
    assert other == "another"


async def test_one_that_is_registered_is_not_offered_twice_and_is_named_as_it_is() -> None:
    store = ResultStore()
    scope = ToolRegistry([read_book, read_result_tool(store)]).renamed({"read_result": "read_more"})
    provider = ScriptedProvider([call("read_book"), read("read_more"), "ok"])
    config = ToolLoopConfig(
        output=OutputLimits(max_chars=100, store=store),
    )
    result = await tool_loop(provider, scope, "go", config=config)
    cut, page = texts(result.messages)
    assert "call read_more with id 'result_1'" in cut
    assert page == PAGE.format(name="read_more")
    assert offered(provider) == [["read_book", "read_more"]] * 3


@pytest.mark.parametrize("registers", [False, True])
async def test_it_reads_only_what_its_own_run_has_cut(registers: bool) -> None:
    store = ResultStore()
    tools: list[Any] = [read_book, read_result_tool(store)] if registers else [read_book]
    config = ToolLoopConfig(
        output=OutputLimits(max_chars=100, store=store),
    )
    await tool_loop(ScriptedProvider([call("read_book"), "ok"]), ToolRegistry(tools), "go", config=config)
    assert len(store) == 1
    script: list[ScriptedReply] = [call("read_book"), read(), read(result="result_2", call_id="s"), "ok"]
    result = await tool_loop(ScriptedProvider(script), ToolRegistry(tools), "go", config=config)
    cut, other, own = texts(result.messages)
    assert "result_2" in cut
    assert other == "There is no result with the id 'result_1'. Kept are: result_2."
    assert own == PAGE.format(name="read_result")
    assert len(store) == 2


async def test_it_can_be_switched_off() -> None:
    provider = ScriptedProvider([call("read_book"), read(), "ok"])
    config = ToolLoopConfig(
        output=OutputLimits(max_chars=100, store=False),
    )
    result = await tool_loop(provider, ToolRegistry([read_book]), "go", config=config)
    cut, page = texts(result.messages)
    assert "ask for a smaller part to see them" in cut
    assert page.startswith("Unknown tool: read_result.")
    assert offered(provider) == [["read_book"]] * 3
    with pytest.raises(ConfigurationError, match="must be a ResultStore, False or None, not True"):
        ToolLoopConfig(output=OutputLimits(store=True))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_tools_that_the_caller_has_fixed_are_read_on_too() -> None:
    tools = ToolRegistry([read_book, short])
    request = ChatRequest(messages=[UserMessage("go")], tools=tools.only(["read_book"]).definitions())
    provider = ScriptedProvider([call("read_book"), read(), "ok"])
    result = await tool_loop(provider, tools, request, config=CUT)
    assert texts(result.messages)[1] == PAGE.format(name="read_result")
    assert offered(provider) == [["read_book"], ["read_book", "read_result"], ["read_book", "read_result"]]


async def test_views_read_back_too_and_a_restored_run_says_what_is_gone() -> None:
    tools = ToolRegistry([read_book])
    async with tool_loop_stream(ScriptedProvider([call("read_book"), read(), "ok"]), tools, "go", config=CUT) as events:
        async for _ in events:
            pass
    handle = ToolLoopHandle(ScriptedProvider([call("read_book")]), tools, "go", config=CUT)
    assert isinstance(await handle.next_turn(), Yielded)
    script = ScriptedProvider([read(), call("read_book", call_id="again"), read(result="result_2", call_id="s"), "ok"])
    restored = ToolLoopHandle.restore(handle.snapshot(), script, tools, ctx=None, config=CUT)
    while isinstance(await restored.next_turn(), Yielded):
        pass
    told = texts(list(restored.messages))
    assert told[1] == "There is no result with the id 'result_1'. Kept are: none."
    assert "with id 'result_2'" in told[2]
    assert told[3] == PAGE.format(name="read_result")


# how often


@tool(max_usage_count=2)
def limited() -> str:
    """Be used twice."""
    return "used"


LIMIT = "Tool 'limited' has reached its usage limit of 2 and cannot be used anymore."


def thrice(*more: str) -> ScriptedProvider:
    return ScriptedProvider([AssistantMessage([call("limited", call_id=name) for name in "abc"]), "ok"])


async def use(tools: ToolRegistry[Any]) -> list[str]:
    result: ToolLoopResult = await tool_loop(thrice(), tools, "go")
    return sorted(texts(result.messages))


async def test_a_usage_limit_counts_per_run() -> None:
    limited.reset_usage_count()
    tools = ToolRegistry([limited])
    for _ in range(3):
        assert await use(tools) == sorted(["used", "used", LIMIT])
    assert limited.current_usage_count == 6
    assert limited.invoke({}) == limited.invoke({}) == "used"
    assert limited.has_reached_max_usage_count


async def test_a_usage_limit_of_the_process_counts_all_runs() -> None:
    tools = ToolRegistry([limited]).configured("limited", usage_scope="process")
    assert await use(tools) == sorted(["used", "used", LIMIT])
    assert await use(tools) == [LIMIT] * 3
    with pytest.raises(ConfigurationError, match="usage_scope must be 'run' or 'process', not 'day'"):
        tools.configured("limited", usage_scope="day")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_scopes_of_one_run_share_the_count_and_a_restored_run_goes_on_with_it() -> None:
    tools = ToolRegistry([limited])
    handle = ToolLoopHandle(ScriptedProvider([call("limited")]), tools, "go")
    assert isinstance(await handle.next_turn(), Yielded)
    script = ScriptedProvider([call("limited", call_id="b"), call("limited", call_id="c"), "ok"])
    restored = ToolLoopHandle.restore(handle.snapshot(), script, tools, ctx=None)
    while isinstance(await restored.next_turn(), Yielded):
        pass
    assert texts(list(restored.messages)) == ["used", "used", LIMIT]
