"""Deferred tools: what a model sees at once, what it has to search for, and that what it saw stays where it was."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from openai.types.responses import ToolParam
from pydantic import TypeAdapter

from tests.counted_work import count_calls
from toolkit import ChatRequest, ToolCall, ToolLoopConfig, ToolRegistry, tool_from_schema, tool_loop
from toolkit.chat import AssistantMessage, Capabilities, Message, ToolDefinition, ToolHints, UserMessage
from toolkit.endings import Complete
from toolkit.loop.tool_search import SEARCH_NAME, ToolIndex
from toolkit.policies import ToolSearch
from toolkit.providers.anthropic.encode import MessagesEncoder
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.providers.openai.responses import ResponsesEncoder
from toolkit.providers.servers import SERVERS
from toolkit.testing import ScriptedProvider
from toolkit.testing.loopback import Answer, Server, serving

pytestmark = pytest.mark.anyio

KINDS = ("invoice", "refund", "shipment", "contract", "ticket", "meeting", "report", "backup", "password", "salary")
VERBS = ("create", "delete", "find", "update", "export", "archive", "approve", "rename", "share", "print")


def make_registry(count: int = 60) -> ToolRegistry:
    names = [f"{VERBS[n // 10 % 10]}_{KINDS[n % 10]}" + (f"_{n // 100}" if n >= 100 else "") for n in range(count)]
    parameters = {"type": "object", "properties": {"id": {"type": "string", "description": "Which one."}}}
    tools = [
        tool_from_schema(name, name.replace("_", " ").capitalize() + ".", parameters, lambda _: "done", tags={"office"})
        for name in names
    ]
    plain = tool_from_schema("ask_user", "Ask the user.", parameters, lambda _: "yes")
    registry = ToolRegistry[object](tools).configured(defer=True)
    return registry | ToolRegistry[object]([plain])


def search(query: str, call_id: str = "s1") -> ToolCall:
    return ToolCall(call_id, SEARCH_NAME, json.dumps({"query": query}))


def names_of(request: ChatRequest) -> list[str]:
    return [each.name for each in request.tools or ()]


async def test_a_model_sees_what_it_found_and_what_it_saw_stays_in_its_place() -> None:
    model = ScriptedProvider(
        [
            search("refund a customer"),
            AssistantMessage([search("weekly reports", "s2"), ToolCall("c1", "create_refund", '{"id": "7"}')]),
            ToolCall("c2", "create_report", "{}"),
            "Done.",
        ]
    )
    config = ToolLoopConfig(tool_search=ToolSearch(most=2))
    result = await tool_loop(model, make_registry(), "Hi", config=config)
    assert isinstance(result.reason, Complete)
    assert [m.text for m in result.messages if m.role == "tool"][2:] == ["done", "done"]
    asked = [names_of(request) for request in model.requests]
    assert asked[0] == ["ask_user", SEARCH_NAME]
    assert asked[1] == [*asked[0], "create_refund", "delete_refund"]
    assert asked[2] == [*asked[1], "create_report", "delete_report"]
    assert asked[3] == asked[2]
    assert model.requests[3].tools is model.requests[2].tools
    for before, after in zip(model.requests[1:], model.requests[2:], strict=False):
        shared = zip(before.tools or (), after.tools or (), strict=False)
        assert all(one is other for one, other in shared), "an encoded definition is sent again"


async def test_what_was_not_found_does_not_run() -> None:
    model = ScriptedProvider([ToolCall("c1", "create_refund", "{}"), "Done."])
    result = await tool_loop(model, make_registry(), "Hi")
    (refused,) = [m for m in result.messages if m.role == "tool"]
    assert getattr(refused, "is_error", False)
    assert refused.text != "done"


async def test_a_scope_bounds_what_can_be_found() -> None:
    registry = make_registry()
    scope = registry.without([name for name in registry.names if "refund" in name])
    model = ScriptedProvider([search("refund"), "Done."])
    result = await tool_loop(model, scope, "Hi")
    (found,) = [m for m in result.messages if m.role == "tool"]
    assert found.text == "No tool fits. There are 54 more tools: try other words."


async def test_what_a_transcript_found_is_there_in_the_next_run() -> None:
    registry = make_registry()
    first = await tool_loop(ScriptedProvider([search("refund"), "Done."]), registry, "Hi")
    messages: list[Message] = [*first.messages, UserMessage("And now?")]
    second = ScriptedProvider([ToolCall("c1", "create_refund", "{}"), "Done."])
    result = await tool_loop(second, registry, messages)
    assert "create_refund" in names_of(second.requests[0])
    assert [m.text for m in result.messages if m.role == "tool"][-1] == "done"


class NativeProvider(ScriptedProvider):
    def capabilities(self, model: str | None = None) -> Capabilities:
        return Capabilities(deferred_tools="native")


async def test_a_vendor_with_a_search_of_its_own_gets_all_tools() -> None:
    registry = make_registry()
    model = NativeProvider([ToolCall("c1", "create_refund", "{}"), "Done."])
    result = await tool_loop(model, registry, "Hi")
    assert list(model.requests[0].tools or ()) == list(registry.definitions())
    assert [m.text for m in result.messages if m.role == "tool"] == ["done"]


async def test_an_embedding_searches_for_a_vendor_with_a_search_of_its_own_too() -> None:
    model = NativeProvider([search("money back"), "Done."])
    await tool_loop(model, make_registry(), "Hi", config=ToolLoopConfig(tool_search=ToolSearch(most=3, embed=embed)))
    assert names_of(model.requests[0]) == ["ask_user", SEARCH_NAME]
    assert len(names_of(model.requests[1])) == 5


DEFERRED = ToolDefinition(name="f", description="F.", parameters={"type": "object"}, hints=ToolHints(deferred=True))
REQUEST = ChatRequest(messages=[UserMessage("Hi")], tools=[DEFERRED])


def test_vendors_are_told_which_tools_are_deferred_and_given_their_search() -> None:
    anthropic = json.loads(MessagesEncoder(model="m", defaults={}).encode(REQUEST, streams=False))["tools"]
    assert anthropic[0] == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert anthropic[1]["defer_loading"]
    responses = json.loads(ResponsesEncoder(model="gpt-5", defaults={}).encode(REQUEST, streams=False))["tools"]
    assert responses[0]["defer_loading"]
    assert responses[1] == {"type": "tool_search"}


def test_a_group_of_deferred_tools_is_one_namespace_of_responses() -> None:
    registry = make_registry(30).configured("create_invoice", "delete_invoice", group="billing")
    request = ChatRequest(messages=[UserMessage("Hi")], tools=registry.definitions())
    body = json.loads(ResponsesEncoder(model="gpt-5", defaults={}).encode(request, streams=False))
    first = body["tools"][0]
    assert (first["type"], first["name"]) == ("namespace", "billing")
    assert first["description"] == "Tools of billing: create_invoice, delete_invoice."
    assert [each["name"] for each in first["tools"]] == ["create_invoice", "delete_invoice"]
    assert all(each["defer_loading"] for each in first["tools"])
    assert len(body["tools"]) == 30 + 1 - 2 + 1 + 1
    for each in body["tools"]:
        TypeAdapter[Any](ToolParam).validate_python(each)
    old = json.loads(ResponsesEncoder(model="gpt-4.1", defaults={}).encode(request, streams=False))["tools"]
    assert {each["type"] for each in old} == {"function"}


async def test_a_call_in_a_namespace_runs_and_goes_back_with_it(server: Server) -> None:
    registry = make_registry(30).configured(group="billing")
    found: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "create_invoice", "arguments": "{}"}
    called = {**found, "namespace": "billing"}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    server.answers[:] = [Answer({"status": "completed", "output": [item]}) for item in (called, text)]
    async with OpenAIResponsesProvider("gpt-5", base_url=server.url, server=SERVERS["openai"], api_key="k") as provider:
        result = await tool_loop(provider, registry, "Hi")
    assert (result.text, result.messages[2].text) == ("Done.", "done")
    output = {"type": "function_call_output", "call_id": "c1", "output": "done", "namespace": "billing"}
    assert server.requests[1]["input"][1:] == [called, output]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


async def test_what_anthropic_found_goes_back_as_it_came(server: Server) -> None:
    from toolkit.providers.anthropic import AnthropicProvider

    found: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "srv_1", "name": "tool_search_tool_bm25", "input": {"query": "refund"}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srv_1",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "create_refund"}],
            },
        },
    ]
    call: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "create_refund", "input": {}}
    replies: list[dict[str, Any]] = [
        {"content": [*found, call], "stop_reason": "tool_use"},
        {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"},
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    server.answers[:] = [
        Answer({"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage, **reply})
        for reply in replies
    ]
    async with AnthropicProvider("m", base_url=server.root) as provider:
        result = await tool_loop(provider, make_registry(), "Hi")
    assert result.text == "Done."
    assert server.requests[1]["messages"][1]["content"] == [*found, call]
    assert server.requests[1]["tools"] == server.requests[0]["tools"]


def test_two_thousand_tools_are_searched_by_their_words_alone() -> None:
    registry = make_registry(2_000)
    index = ToolIndex([(each, ("office",)) for each in registry.definitions() if each.is_deferred])
    assert index.search("approve the salaries", 3)[0].name.startswith("approve_salary")
    assert index.search("approveSalary", 1)[0].name.startswith("approve_salary")
    assert index.search("zebra", 5) == []
    assert len(index.search("office", 5)) == 5
    few, all_of_them = (count_calls(partial(index.search, query, 5)) for query in ("approve salaries", "office"))
    assert few < 1_000, "a search looks only at the tools that have a word of the query"
    assert all_of_them < 3 * 2_000


async def test_two_thousand_deferred_tools_are_defined_once_and_sent_never() -> None:
    registry = make_registry(2_000)
    model = ScriptedProvider([search("refund a customer"), ToolCall("c1", "create_refund", "{}"), "Done."])
    await tool_loop(model, registry, "Hi")
    assert [len(names_of(request)) for request in model.requests] == [2, 7, 7]
    assert count_calls(registry.definitions) < 20


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, 0.0] if "money" in text or "salary" in text else [0.0, 1.0] for text in texts]


async def test_an_embedding_finds_what_no_word_does() -> None:
    model = ScriptedProvider([search("money back"), "Done."])
    config = ToolLoopConfig(tool_search=ToolSearch(most=3, embed=embed))
    await tool_loop(model, make_registry(), "Hi", config=config)
    assert all("salary" in name for name in names_of(model.requests[1])[2:])


async def test_a_reply_of_a_request_with_tools_of_its_own_is_searched_too() -> None:
    registry = make_registry()
    request = ChatRequest(messages=[UserMessage("Hi")], tools=registry.definitions()[:20])
    model = ScriptedProvider([search("refund"), "Done."])
    await tool_loop(model, registry, request)
    assert names_of(model.requests[0]) == [SEARCH_NAME]
    assert names_of(model.requests[1]) == [SEARCH_NAME, "create_refund", "delete_refund"]
