"""Reading what was cut, and what is cached."""

import pytest

from toolkit import (
    ConfigurationError,
    MemoryCache,
    Message,
    OutputLimits,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop,
)
from toolkit.builtin import CacheTools, read_result_tool
from toolkit.events import ToolExecutionEnd
from toolkit.policies import ResultStore
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

BOOK = "\n".join(f"line {number}: {'needle' if number == 700 else 'hay'}" for number in range(1000))
BOOK_ID = ResultStore().put(BOOK)


@tool
def read_book() -> str:
    """Read the book."""
    return BOOK


def results(messages: list[Message]) -> list[ToolResult]:
    return [message for message in messages if isinstance(message, ToolResult)]


async def test_a_model_reads_the_rest_of_a_cut_output() -> None:
    store = ResultStore()
    ends: list[ToolExecutionEnd] = []
    config = ToolLoopConfig(
        output=OutputLimits(max_chars=100, store=store),
        on_event=lambda event: ends.append(event) if isinstance(event, ToolExecutionEnd) else None,
    )
    provider = ScriptedProvider(
        [
            ToolCall("1", "read_book", "{}"),
            ToolCall("2", "read_result", f'{{"id": "{BOOK_ID}", "start": 40, "length": 20}}'),
            ToolCall("3", "read_result", f'{{"id": "{BOOK_ID}", "find": "needle"}}'),
            ToolCall("4", "read_result", '{"id": "result_9"}'),
            ToolCall("5", "read_result", f'{{"id": "{BOOK_ID}", "start": 99999999}}'),
            "Found.",
        ]
    )
    tools = ToolRegistry([read_book, read_result_tool(store)])
    result = await tool_loop(provider, tools, "Find the needle.", config=config)
    cut, page, found, unknown, beyond = results(result.messages)
    assert f"call read_result with id '{BOOK_ID}'" in cut.text
    assert len(cut.text) < 300
    assert page.text == f"[characters 40 to 60 of {len(BOOK)}; call read_result with start=60 for more]\n{BOOK[40:60]}"
    assert found.text == f"{BOOK.index('line 700')}: line 700: needle"
    assert unknown.is_error
    assert unknown.text == f"There is no result with the id 'result_9'. Stored are: {BOOK_ID}."
    assert (beyond.is_error, beyond.text) == (
        True,
        f"The result has {len(BOOK)} characters; start must be less than that.",
    )
    assert ends[0].result.text == BOOK


@pytest.mark.parametrize(("keep", "start", "end"), [("head", "line 0", "..."), ("tail", "[...", "999: hay")])
async def test_a_tool_says_which_part_of_its_output_matters(keep: str, start: str, end: str) -> None:
    @tool(max_output_chars=50, keep_output="head" if keep == "head" else "tail")
    def read() -> str:
        """Read."""
        return BOOK

    provider = ScriptedProvider([ToolCall("1", "read", "{}"), "ok"])
    text = results((await tool_loop(provider, ToolRegistry([read]), "go")).messages)[0].text
    assert text.startswith(start)
    assert end in text[-20:]


async def test_a_store_lets_go_of_the_oldest() -> None:
    store = ResultStore(max_chars=10)
    names = [store.put("12345"), store.put("67890"), store.put("67890"), store.put("x")]
    assert [name in store for name in names if name] == [False, True, True, True]
    assert store.put("too long for it") is None
    with pytest.raises(ConfigurationError, match="must be 1 or more, not 0"):
        ResultStore(max_chars=0)


async def test_a_model_reads_the_cache_by_key() -> None:
    runs: list[str] = []

    @tool(cache=True)
    def search(query: str, limit: int = 3) -> str:
        """Search."""
        runs.append(query)
        return f"found {query}"

    cache = MemoryCache()
    tools = ToolRegistry([search, CacheTools(cache).tool()])
    provider = ScriptedProvider(
        [
            ToolCall("1", "search", '{"query": "llamas"}'),
            ToolCall("2", "search", '{ "query":"llamas" }'),
            ToolCall("3", "hit_cache", '{"key": "tool:search|input:{\\"query\\":\\"llamas\\"}"}'),
            ToolCall("4", "hit_cache", '{"key": "tool:search|input:{\\"query\\":\\"x\\"}"}'),
            ToolCall("5", "hit_cache", '{"key": "search"}'),
            "ok",
        ]
    )
    result = await tool_loop(provider, tools, "go", config=ToolLoopConfig(cache=cache))
    texts = [message.text for message in results(result.messages)]
    assert texts == [
        "found llamas",
        "found llamas",
        "found llamas",
        "Nothing is kept under 'tool:search|input:{\"query\":\"x\"}'. Call the tool 'search' itself.",
        "'search' is no cache key. Write it as tool:NAME|input:ARGUMENTS.",
    ]
    assert runs == ["llamas"]


async def test_outside_of_runs_a_text_is_read_by_its_id() -> None:
    store = ResultStore()
    tools = ToolRegistry([read_result_tool(store)])
    assert (await tools.execute(ToolCall("1", "read_result", f'{{"id": "{store.put(BOOK)}"}}'))).text.endswith("hay")
    gone = await tools.execute(ToolCall("1", "read_result", '{"id": "result_1"}'))
    assert (gone.is_error, gone.text) == (True, "There is no result with the id 'result_1'.")
