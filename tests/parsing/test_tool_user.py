"""One call from the model's text to its result, with all that happens on the way."""

from datetime import date
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from toolkit import Deny, MemoryCache, ToolCall, ToolContext, ToolError, ToolRegistry, ToolResult, tool, tool_with_ctx
from toolkit.builtin import CacheTools
from toolkit.calls.events import ToolCallRefused, ToolCallRepaired, ToolExecutionEnd, ToolExecutionStart, ToolProgress
from toolkit.chat import ToolDefinition
from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, InvalidArgumentsError, ToolUsageError, ToolUsageLimitExceededError
from toolkit.parsing import ToolCalling, ToolUsage, ToolUsageEvent, to_structured_tools

runs: list[str] = []


@pytest.fixture(autouse=True)
def no_runs_yet() -> None:
    runs.clear()


@tool
def web_search(query: str, limit: int = 5) -> str:
    """Search the web."""
    runs.append(query)
    if query == "fail":
        raise ToolError("The network is down.")
    return f"{limit} pages on {query}"


@tool
async def now() -> str:
    """Tell the time."""
    return "12:00"


def used(usage: ToolUsage[Any], calling: ToolCalling | ToolCall | str, *, is_async: bool) -> ToolResult:
    return anyio.run(usage.ause_tool, calling) if is_async else usage.use_tool(calling)


both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
SEARCH = '{"tool_name": "web_search", "arguments": {"query": "rust"}}'


def test_a_reply_is_parsed_into_a_calling() -> None:
    usage = ToolUsage([web_search])
    assert usage.parse_tool_calling(SEARCH) == ToolCalling("web_search", {"query": "rust"})
    assert usage.parse_tool_calling("Action: now\nAction Input: {}") == ToolCalling("now", {})
    assert usage.parse_tool_calling(f"<tool_call>{SEARCH}</tool_call>") == ToolCalling("web_search", {"query": "rust"})


def test_a_reply_that_can_not_be_parsed_says_why_and_gives_up_in_the_end() -> None:
    usage = ToolUsage([web_search], max_parsing_attempts=3)
    reminder = (
        "To call a tool, reply with a JSON object on lines of its own, and nothing after it. For example:\n"
        '{"tool_name": "web_search", "arguments": {"query": "..."}}'
    )
    with pytest.raises(ToolUsageError) as broken:
        usage.parse_tool_calling('{"tool_name": "web_search", "arguments": {"query": "ru')
    assert broken.value.message == (
        f"The tool call could not be read. The call is cut off, or its brackets don't match. {reminder}"
    )
    with pytest.raises(ToolUsageError) as none:
        usage.parse_tool_calling("I don't know.")
    assert none.value.message == f"There is no tool call in it. {reminder}"
    with pytest.raises(ToolUsageError) as several:
        usage.parse_tool_calling(f"{SEARCH}\n{SEARCH}")
    assert several.value.message == (
        "There are 2 tool calls; write one at a time. That was attempt 3: continue without a tool."
    )
    assert usage.parsing_failures == 3
    usage.parse_tool_calling(SEARCH)
    assert usage.parsing_failures == 0


@both_ways
def test_a_call_is_carried_out_from_a_calling_a_call_or_the_text(is_async: bool) -> None:
    usage = ToolUsage([web_search, now])
    for calling in (
        ToolCalling("web_search", {"query": "rust"}),
        ToolCall("mine", "web_search", '{"query": "go"}'),
        '{"tool_name": "web_search", "arguments": {"query": "zig"}}',
    ):
        result = used(usage, calling, is_async=is_async)
        assert not result.is_error
        assert result.call_id in {"call_1", "mine", "call_3"}
    assert runs == ["rust", "go", "zig"]
    assert used(usage, ToolCalling("now"), is_async=is_async).text.startswith("12:00")


def test_values_of_python_are_told_as_json_and_what_is_none_is_an_error_of_the_caller() -> None:
    @tool
    def book(day: date, seats: list[int]) -> str:
        """Book seats."""
        return f"{seats} on {day}"

    usage = ToolUsage([book])
    assert usage.use_tool(ToolCalling("book", {"day": date(2026, 1, 31), "seats": {4}})).text == "[4] on 2026-01-31"
    with pytest.raises(ConfigurationError, match="the arguments for 'book' are no JSON: Unable to serialize"):
        usage.use_tool(ToolCalling("book", {"day": object()}))
    with pytest.raises(ConfigurationError, match="the text of a reply is used, not: int"):
        usage.use_tool(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@both_ways
def test_a_text_without_a_call_is_an_error_for_the_model(is_async: bool) -> None:
    result = used(ToolUsage([web_search]), "Hello.", is_async=is_async)
    assert result.is_error
    assert result.text.startswith("There is no tool call in it.")


def test_a_tool_is_selected_by_what_its_name_must_mean() -> None:
    usage = ToolUsage([web_search, now])
    for name in ("web_search", "WebSearch", "web-search", "web_serch"):
        assert usage.select_tool(name) is web_search
    for name in ("search", "", "web"):
        with pytest.raises(ToolUsageError, match="Available tools: web_search, now"):
            usage.select_tool(name)


@both_ways
def test_a_near_miss_is_carried_out_and_told(is_async: bool) -> None:
    events: list[ToolUsageEvent] = []
    usage = ToolUsage([web_search], on_event=events.append)
    assert used(usage, ToolCalling("WebSearch", {"query": "rust"}), is_async=is_async).text == "5 pages on rust"
    repaired = events[0].event
    assert isinstance(repaired, ToolCallRepaired)
    assert (repaired.before, repaired.after) == ("WebSearch", "web_search")
    result = used(usage, ToolCalling("browse", {}), is_async=is_async)
    assert result.is_error
    assert isinstance(events[-1].event, ToolCallRefused)


@both_ways
def test_the_same_call_is_not_run_twice_in_a_row(is_async: bool) -> None:
    events: list[ToolUsageEvent] = []
    usage = ToolUsage([web_search, now], on_event=events.append, remember_format_after_usages=100)
    calls = [
        ToolCalling("web_search", {"query": "rust"}),
        ToolCalling("web_search", {"limit": 5, "query": "rust"}),  # the same, with the default
        ToolCalling("web_search", {"query": "fail"}),
        ToolCalling("web_search", {"query": "fail"}),  # what failed may be tried again
        ToolCalling("web_search", {"query": "rust"}),  # still the last that succeeded
        ToolCalling("now"),
        ToolCalling("web_search", {"query": "rust"}),
    ]
    results = [used(usage, calling, is_async=is_async) for calling in calls]
    assert [result.is_error for result in results] == [False, True, True, True, True, False, False]
    assert runs == ["rust", "fail", "fail", "rust"]
    assert results[1].text == (
        "You have just called web_search with the same arguments, and it was not run again. "
        "Use the result that you have, or try something else."
    )


@both_ways
def test_outputs_are_cached_and_a_hit_costs_no_use(is_async: bool) -> None:
    events: list[ToolUsageEvent] = []
    limited = ToolRegistry([web_search, now]).configured("web_search", max_usage_count=1)
    usage = ToolUsage(limited, cache=MemoryCache(), on_event=events.append)
    rust, go = (ToolCalling("web_search", {"query": query}) for query in ("rust", "go"))
    for calling in (rust, ToolCalling("now"), rust):
        assert not used(usage, calling, is_async=is_async).is_error
    assert runs == ["rust"]
    ends = [told.event for told in events if isinstance(told.event, ToolExecutionEnd)]
    assert [end.is_cached for end in ends] == [False, False, True]
    result = used(usage, go, is_async=is_async)
    assert result.is_error
    assert result.text == "Tool 'web_search' has reached its usage limit of 1 and cannot be used anymore."


@both_ways
def test_arguments_are_validated_and_repaired(is_async: bool) -> None:
    usage = ToolUsage([web_search])
    assert (
        used(usage, ToolCalling("web_search", {"query": "a", "limit": "3"}), is_async=is_async).text == "3 pages on a"
    )
    result = used(usage, ToolCalling("web_search", {"limit": 1}), is_async=is_async)
    assert result.is_error
    assert "query" in result.text


@pytest.mark.anyio
async def test_the_fingerprint_is_in_events_and_metadata_and_never_in_arguments() -> None:
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []

    @tool_with_ctx
    async def inspect(context: ToolContext[str], /, **values: int) -> str:
        """Look at the call."""
        context.report_progress("looking")
        seen.append((dict(context.metadata), dict(values)))
        return context.state

    events: list[ToolUsageEvent] = []
    usage = ToolUsage(
        ToolRegistry[str]([inspect]),
        ctx="state",
        agent_role="Researcher",
        fingerprint_context={"user": "ada"},
        on_event=events.append,
    )
    assert (await usage.ause_tool(ToolCalling("inspect", {"a": 1}))).text == "state"
    assert seen == [({"agent_role": "Researcher", "fingerprint_context": {"user": "ada"}}, {"a": 1})]
    assert [type(told.event) for told in events] == [ToolExecutionStart, ToolProgress, ToolExecutionEnd]
    assert {told.agent_role for told in events} == {"Researcher"}
    assert all(told.fingerprint_context == {"user": "ada"} for told in events)
    start = events[0].event
    assert isinstance(start, ToolExecutionStart)
    assert start.arguments == {"a": 1}


def test_verbose_prints_what_happens_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def log_in(user: str, password: SecretStr) -> str:
        """Log in."""
        return f"{user} is in"

    usage = ToolUsage([log_in], agent_role="Clerk", verbose=True)
    usage.use_tool(ToolCalling("log_in", {"user": "ada", "password": "hunter2"}))
    usage.use_tool(ToolCalling("log_in", {"user": "ada", "password": "hunter2"}))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith('[Clerk] log_in {"password":')
    assert printed[1].startswith("[Clerk] log_in gave in 0.")
    assert printed[1].endswith(": ada is in")
    assert printed[2].startswith("[Clerk] log_in was not run: You have just called")
    assert not any("hunter2" in line for line in printed)


@both_ways
def test_the_format_is_told_again_after_so_many_calls(is_async: bool) -> None:
    usage = ToolUsage([web_search], remember_format_after_usages=2)
    calls = [ToolCalling("web_search", {"query": query}) for query in ("a", "fail", "c", "d")]
    texts = [used(usage, calling, is_async=is_async).text for calling in calls]
    assert ["To call a tool" in text for text in texts] == [False, True, False, True]
    assert usage.usages == 4


@pytest.mark.parametrize(
    ("model", "attempts", "usages"), [("", 3, 3), ("gpt-4", 2, 4), ("o1", 2, 4), ("mistral", 3, 3)]
)
def test_defaults_suit_the_model(model: str, attempts: int, usages: int) -> None:
    usage = ToolUsage([now], model=model)
    assert (usage.max_parsing_attempts, usage.remember_format_after_usages) == (attempts, usages)


@pytest.mark.anyio
async def test_approval_is_asked_and_an_observer_that_raises_changes_nothing() -> None:
    def broken(event: ToolUsageEvent) -> None:
        raise RuntimeError("broken")

    usage = ToolUsage([web_search], approve=lambda request: Deny("Not here."), on_event=broken)
    result = await usage.ause_tool(ToolCalling("web_search", {"query": "rust"}))
    assert (result.is_error, result.text) == (True, "Not here.")
    assert runs == []


@pytest.mark.anyio
async def test_the_sync_way_is_refused_in_async_code() -> None:
    with pytest.raises(ConfigurationError, match=r"use 'await ause_tool\(...\)'"):
        ToolUsage([now]).use_tool(ToolCalling("now"))


def test_structured_tools_are_used_directly() -> None:
    class Doubler:
        definition = ToolDefinition(
            name="double",
            description="Double a number.",
            parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        )

        async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
            return ToolOutput(str(arguments["n"] * 2))

    def greet(name: str) -> str:
        """Greet."""
        return f"Hello, {name}!"

    double, greeting, search = to_structured_tools([Doubler(), greet, web_search])
    assert double.invoke('{"n": 4}').text == "8"
    assert greeting.invoke({"name": "Ada"}) == "Hello, Ada!"
    assert anyio.run(greeting.ainvoke, {"name": "Ada"}) == "Hello, Ada!"
    assert search is web_search
    assert greeting.parse_args('{"name": "Ada"}') == {"name": "Ada"}
    with pytest.raises(InvalidArgumentsError):
        double.parse_args({})
    (limited,) = to_structured_tools([tool(max_usage_count=1)(greet)])
    limited.invoke({"name": "Ada"})
    with pytest.raises(ToolUsageLimitExceededError):
        limited.invoke({"name": "Ada"})


def test_a_role_and_a_fingerprint_that_are_set_later_reach_the_tool_and_the_events() -> None:
    seen: list[Any] = []
    events: list[ToolUsageEvent] = []

    @tool_with_ctx
    def look(context: ToolContext[None], number: int) -> str:
        """Look."""
        seen.append(dict(context.metadata))
        return "seen"

    usage = ToolUsage([look], agent_role="Clerk", on_event=events.append)
    usage.use_tool(ToolCalling("look", {"number": 1}))
    usage.agent_role = "Chief"
    usage.fingerprint_context = {"user": "ada"}
    usage.use_tool(ToolCalling("look", {"number": 2}))
    assert seen == [
        {"agent_role": "Clerk", "fingerprint_context": {}},
        {"agent_role": "Chief", "fingerprint_context": {"user": "ada"}},
    ]
    assert (events[-1].agent_role, events[-1].fingerprint_context) == ("Chief", {"user": "ada"})


@pytest.mark.parametrize("wrong", ["ada", ["ada"], 5, [("user", "ada")]])
def test_a_fingerprint_of_a_wrong_type_is_named(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="the fingerprint_context of a ToolUsage must be a mapping"):
        ToolUsage([web_search], fingerprint_context=wrong)
    with pytest.raises(ConfigurationError, match="the agent_role of a ToolUsage must be text"):
        ToolUsage([web_search], agent_role=[wrong])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_poller_may_repeat_its_call() -> None:
    answers = iter(["pending", "pending", "done"])

    @tool
    def status() -> str:
        """Ask how far it is."""
        return next(answers)

    usage = ToolUsage([status], refuse_repeated_calls=False, remember_format_after_usages=9)
    assert [usage.use_tool(ToolCalling("status")).text for _ in range(3)] == ["pending", "pending", "done"]


def test_the_cache_is_read_under_a_key_without_the_defaults_of_the_call() -> None:
    cache = MemoryCache()

    @tool
    def find(query: str, limit: int = 10) -> str:
        """Find."""
        return f"{limit} of {query}"

    usage = ToolUsage([find, CacheTools(cache).tool()], cache=cache, remember_format_after_usages=9)
    assert usage.use_tool(ToolCalling("find", {"query": "llamas"})).text == "10 of llamas"
    for arguments in ('{"query":"llamas"}', '{"limit": 10, "query": "llamas"}'):
        result = usage.use_tool(ToolCalling("hit_cache", {"key": f"tool:find|input:{arguments}"}))
        assert (result.text, result.is_error) == ("10 of llamas", False)
    assert usage.use_tool(ToolCalling("hit_cache", {"key": 'tool:find|input:{"query":"alpacas"}'})).is_error


def test_similar_names_are_selected_above_the_ratio_of_the_document_alone() -> None:
    usage = ToolUsage([web_search])
    assert usage.select_tool("web_serch") is web_search
    with pytest.raises(ToolUsageError, match="web_search"):
        usage.select_tool("search_the_net")


def test_uses_are_counted_for_each_object() -> None:
    @tool(max_usage_count=1)
    def once() -> str:
        """Do it."""
        return "done"

    first, second = ToolUsage([once]), ToolUsage([once])
    assert first.use_tool(ToolCalling("once")).text == "done"
    assert second.use_tool(ToolCalling("once")).text == "done"
    second.refuses_repeated_calls = False
    assert "limit" in second.use_tool(ToolCalling("once")).text
