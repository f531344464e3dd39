"""What was cut can be read, by its run and those that go on with it; and how often a tool may be used in a run."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from toolkit import (
    AnswerFormat,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Defer,
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
BOOK_ID = ResultStore().put(BOOK)
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


def read(name: str = "read_result", result: str | None = BOOK_ID, call_id: str = "r") -> ToolCall:
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
    assert f"call read_result with id '{BOOK_ID}' to read them" in cut
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
    assert f"call {name} with id '{BOOK_ID}'" in cut
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
    assert f"call read_more with id '{BOOK_ID}'" in cut
    assert page == PAGE.format(name="read_more")
    assert offered(provider) == [["read_book", "read_more"]] * 3


@pytest.mark.parametrize("registers", [False, True])
async def test_it_reads_only_what_its_own_run_has_cut(registers: bool) -> None:
    @tool
    def read_diary() -> str:
        """Read a diary."""
        return "Dear diary, " + BOOK

    store = ResultStore()
    tools: list[Any] = [read_diary, read_book, *([read_result_tool(store)] if registers else [])]
    config = ToolLoopConfig(output=OutputLimits(max_chars=100, store=store))
    await tool_loop(ScriptedProvider([call("read_diary"), "ok"]), ToolRegistry(tools), "go", config=config)
    others = store.put("Dear diary, " + BOOK)
    script: list[ScriptedReply] = [call("read_book"), read(result=others), read(call_id="s"), "ok"]
    result = await tool_loop(ScriptedProvider(script), ToolRegistry(tools), "go", config=config)
    _, other, own = texts(result.messages)
    assert other == f"There is no result with the id '{others}'. Stored are: {BOOK_ID}."
    assert own == PAGE.format(name="read_result")


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


async def test_a_stream_reads_back_too() -> None:
    provider = ScriptedProvider([call("read_book"), read(), "ok"])
    async with tool_loop_stream(provider, ToolRegistry([read_book]), "go", config=CUT) as events:
        async for _ in events:
            pass
    assert texts(events.messages)[1] == PAGE.format(name="read_result")


# over runs

GONE = "900 of 1000 characters are left out here; they are not stored anymore, ask for a smaller part to see them"


def cut_with(store: ResultStore | Literal[False] | None = None, saved_chars: int = 10_000) -> ToolLoopConfig:
    return ToolLoopConfig(output=OutputLimits(max_chars=100, store=store, saved_chars=saved_chars))


def cut_in_memory(_: Path) -> ToolLoopConfig:
    return cut_with(ResultStore())


def cut_in_folder(folder: Path) -> ToolLoopConfig:
    return cut_with(ResultStore.in_folder(folder / "texts"))


@dataclass
class Texts:
    """The settings of a run that cuts a text and of one that goes on, and whether that can read it.

    Args:
        first: Those of the first run, given a folder.
        then: Those of the second, given the folder and those of the first.
        by_messages: True where it can, given the transcript of the first.
        by_snapshot: True where it can, restored from a snapshot of the first.
    """

    first: Callable[[Path], ToolLoopConfig]
    then: Callable[[Path, ToolLoopConfig], ToolLoopConfig]
    by_messages: bool
    by_snapshot: bool


OVER_RUNS = {
    "each run stores its own": Texts(lambda _: CUT, lambda _, first: CUT, by_messages=False, by_snapshot=True),
    "no snapshot has them": Texts(lambda _: cut_with(saved_chars=999), lambda _, first: CUT, False, False),
    "one store": Texts(cut_in_memory, lambda _, first: first, by_messages=True, by_snapshot=True),
    "another store": Texts(cut_in_memory, lambda folder, _: cut_in_memory(folder), False, by_snapshot=True),
    "one folder": Texts(cut_in_folder, lambda folder, _: cut_in_folder(folder), True, by_snapshot=True),
    "another folder": Texts(cut_in_folder, lambda folder, _: cut_in_folder(folder / "other"), False, False),
    "nothing is stored anymore": Texts(lambda _: CUT, lambda _, first: cut_with(False), False, by_snapshot=False),
}


@pytest.mark.parametrize("case", OVER_RUNS.values(), ids=list(OVER_RUNS))
@pytest.mark.parametrize("is_restored", [False, True], ids=["given the transcript", "restored"])
async def test_a_second_run_reads_what_was_cut_or_its_transcript_says_that_it_is_gone(
    case: Texts, is_restored: bool, tmp_path: Path
) -> None:
    tools, config = ToolRegistry([read_book, short]), case.first(tmp_path)
    first = ToolLoopHandle(ScriptedProvider([call("read_book"), "ok"]), tools, "go", config=config)
    await first.run()
    provider = ScriptedProvider([read(), "done"])
    then, more = case.then(tmp_path, config), UserMessage("and then?")
    if is_restored:
        snapshot = json.loads(json.dumps(first.snapshot()))
        second = ToolLoopHandle.restore(snapshot, provider, tools, ctx=None, config=then, messages=[more])
    else:
        second = ToolLoopHandle(provider, tools, [*first.messages, more], config=then)
    await second.run()
    old, answer = texts(second.messages)
    if case.by_snapshot if is_restored else case.by_messages:
        assert offered(provider) == [["read_book", "short", "read_result"]] * 2
        assert f"with id '{BOOK_ID}'" in old
        assert answer == PAGE.format(name="read_result")
    else:
        assert offered(provider) == [["read_book", "short"]] * 2
        assert GONE in old
        assert answer.startswith("Unknown tool: read_result.")
    assert f"with id '{BOOK_ID}'" in texts(first.messages)[0]


async def test_a_loop_that_was_restored_between_two_turns_reads_on() -> None:
    tools = ToolRegistry([read_book])
    handle = ToolLoopHandle(ScriptedProvider([call("read_book")]), tools, "go", config=CUT)
    assert isinstance(await handle.next_turn(), Yielded)
    restored = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([read(), "ok"]), tools, ctx=None, config=CUT)
    assert texts((await restored.run()).messages)[1] == PAGE.format(name="read_result")


@pytest.mark.parametrize("saved_chars", [10_000, 0], ids=["saved", "gone"])
async def test_the_result_beside_a_call_that_awaits_approval_is_read_on_too(saved_chars: int) -> None:
    tools = ToolRegistry([read_book, short]).configured("short", requires_approval=True)

    def decide(asked: ApprovalRequest) -> Defer | bool:
        return Defer() if asked.tool_name == "short" else True

    config = replace(cut_with(saved_chars=saved_chars), on_tool_call=decide)
    both = AssistantMessage([call("read_book"), call("short")])
    first = await tool_loop(ScriptedProvider([both]), tools, "go", config=config)
    assert first.snapshot is not None
    script = ScriptedProvider([read(), "ok"])
    second = await tool_loop(script, tools, first.snapshot, decisions={"short": Approve()}, config=CUT)
    cut, page = texts(second.messages)[0], texts(second.messages)[2]
    assert (GONE in cut, page == PAGE.format(name="read_result")) == (not saved_chars, bool(saved_chars))


async def test_two_runs_of_one_conversation_give_two_texts_two_ids() -> None:
    seen: list[str] = []
    tools = ToolRegistry([read_book, tool(name="read_diary")(lambda: "Dear diary, " + BOOK)])
    messages: list[Message] = [UserMessage("go")]
    for name in ("read_book", "read_diary"):
        provider = ScriptedProvider([call(name), "ok"])
        messages = (await tool_loop(provider, tools, messages, config=CUT)).messages
        seen += re.findall("with id '(.*?)'", messages[-2].text)
    assert len(set(seen)) == 2


async def test_a_folder_of_texts_has_a_bound_and_reads_nothing_else(tmp_path: Path) -> None:
    store = ResultStore.in_folder(tmp_path / "texts", max_bytes=2500)
    (tmp_path / "secret").write_text("secret")
    names = [store.put(letter * 1000) for letter in "abc"]
    assert [store.get(name or "") for name in names] == [None, "b" * 1000, "c" * 1000]
    assert store.put("x" * 2501) is None
    assert store.get("../secret") is None
    assert "../secret" not in store
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "texts", *(tmp_path / "texts").iterdir()))
    with pytest.raises(ConfigurationError, match="a result store can't be made in"):
        ResultStore.in_folder(tmp_path / "secret")


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
