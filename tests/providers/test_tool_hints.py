"""What each vendor is told of a tool beyond its schema, and tools that take a text as it is."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import ToolUnionParam
from openai.types.responses import ToolParam as ResponsesToolParam
from pydantic import TypeAdapter

from tests.providers.loopback import Answer, serving
from tests.testing.wires.bedrock import check_shape
from toolkit import ChatRequest, ConfigurationError, ToolRegistry, UserMessage, tool, tool_loop
from toolkit.chat import AssistantMessage, Capabilities, Freeform, ToolCall, ToolHints, ToolResult
from toolkit.chat.provider import find_capabilities
from toolkit.errors import SchemaError
from toolkit.providers import FallbackProvider, provider_for
from toolkit.providers.anthropic.encode import MessagesEncoder
from toolkit.providers.bedrock import ConverseEncoder
from toolkit.providers.google import GenerateEncoder
from toolkit.providers.openai.chat import ChatEncoder
from toolkit.providers.openai.responses import ResponsesEncoder
from toolkit.testing.loopback import Server

Body = dict[str, Any]


@tool(
    examples=[{"city": "Oslo"}],
    callers=["model", "code"],
    eager_arguments=True,
    cache_breakpoint=True,
    shows_output_schema=True,
)
def find_weather(city: str) -> dict[str, int]:
    """Find the weather."""
    return {city: 1}


@tool(freeform=Freeform(syntax="regex", grammar="[0-9]+"))
def run_code(code: str) -> str:
    """Run code."""
    return code.upper()


TOOLS = [find_weather.definition, run_code.definition]
CALL = ToolCall("call_1", "run_code", '{"code": "1\\n"}', extra={"openai-responses": {"freeform": True}})
REQUEST = ChatRequest(
    messages=[UserMessage("Hi"), AssistantMessage([CALL]), ToolResult("call_1", "1", tool_name="run_code")],
    tools=TOOLS,
)
WEATHER, CODE = TOOLS
EXAMPLES = "Find the weather.\n\nExamples of arguments:\n" + '{"city":"Oslo"}'
GRAMMAR = "Run code.\n\ncode must follow this regular expression:\n[0-9]+"


def ask_responses(request: ChatRequest, model: str = "gpt-5", **settings: Any) -> Body:
    body: Body = json.loads(ResponsesEncoder(model=model, defaults={}, **settings).encode(request, streams=False))
    return body


def ask_anthropic(request: ChatRequest, **defaults: Any) -> Body:
    body: Body = json.loads(MessagesEncoder(model="m", defaults=defaults).encode(request, streams=False))
    return body


def test_anthropic_has_a_field_for_each_hint() -> None:
    body = ask_anthropic(REQUEST)
    assert body["tools"] == [
        {"type": "code_execution_20260120", "name": "code_execution"},
        {
            "name": "find_weather",
            "description": "Find the weather.",
            "input_schema": WEATHER.parameters,
            "input_examples": [{"city": "Oslo"}],
            "allowed_callers": ["direct", "code_execution_20260120"],
            "eager_input_streaming": True,
            "cache_control": {"type": "ephemeral"},
        },
        {"name": "run_code", "description": GRAMMAR, "input_schema": CODE.parameters},
    ]
    for wire in body["tools"]:
        TypeAdapter[Any](ToolUnionParam).validate_python(wire)


def test_a_tool_that_is_given_is_not_added_again() -> None:
    own = {"type": "code_execution_20260521", "name": "code_execution"}
    assert ask_anthropic(REQUEST, tools=[own])["tools"][:2] == [own, ask_anthropic(REQUEST)["tools"][1]]


def test_responses_show_outputs_and_take_texts_as_they_are() -> None:
    body = ask_responses(REQUEST)
    assert body["tools"] == [
        {
            "type": "function",
            "name": "find_weather",
            "description": EXAMPLES,
            "parameters": WEATHER.parameters,
            "strict": False,
            "allowed_callers": ["direct", "programmatic"],
            "output_schema": WEATHER.output_schema,
        },
        {
            "type": "custom",
            "name": "run_code",
            "description": "Run code.",
            "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"},
        },
        {"type": "programmatic_tool_calling"},
    ]
    for wire in body["tools"]:
        TypeAdapter[Any](ResponsesToolParam).validate_python(wire)
    assert body["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "call_1", "name": "run_code", "input": "1\n"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"},
    ]


@pytest.mark.parametrize("settings", [{"model": "gpt-4.1"}, {"is_openai": False}], ids=["old model", "other server"])
def test_where_responses_know_functions_alone_they_get_functions(settings: dict[str, Any]) -> None:
    assert ask_responses(ChatRequest(messages=[UserMessage("Hi")], tools=TOOLS), **settings)["tools"] == [
        {
            "type": "function",
            "name": each.name,
            "description": description,
            "parameters": each.parameters,
            "strict": False,
        }
        for each, description in zip(TOOLS, (EXAMPLES, GRAMMAR), strict=True)
    ]


def test_others_read_examples_and_grammars_in_the_description() -> None:
    chat = json.loads(ChatEncoder(model="m", defaults={}).encode(REQUEST, streams=False))
    assert [each["function"]["description"] for each in chat["tools"]] == [EXAMPLES, GRAMMAR]
    gemini = json.loads(GenerateEncoder(model="m", defaults={}).body(REQUEST, {}))["tools"][0]["functionDeclarations"]
    assert [each["description"] for each in gemini] == [EXAMPLES, GRAMMAR]
    assert gemini[0]["responseJsonSchema"] == WEATHER.output_schema
    converse = json.loads(ConverseEncoder(defaults={}).encode(REQUEST))
    check_shape("Converse", {"modelId": "m", **converse})
    specs = converse["toolConfig"]["tools"]
    assert [each["toolSpec"]["description"] for each in specs if "toolSpec" in each] == [EXAMPLES, GRAMMAR]
    assert specs[1] == {"cachePoint": {"type": "default"}}


def test_strict_none_is_each_vendors_silence() -> None:
    @tool(strict=None)
    def add(a: int) -> int:
        return a

    assert add.invoke({"a": "5"}) == 5
    request = ChatRequest(messages=[UserMessage("Hi")], tools=[add.definition])
    assert "strict" not in ask_responses(request)["tools"][0]
    assert "strict" not in ask_anthropic(request)["tools"][0]


def test_an_example_that_does_not_fit_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(SchemaError, match=r"the example {'a': 'x'} doesn't fit"):

        @tool(examples=[{"a": 1}, {"a": "x"}])
        def add(a: int) -> int:
            return a


def test_a_freeform_tool_takes_one_text() -> None:
    with pytest.raises(SchemaError, match="takes one parameter, of type str"):

        @tool(freeform=True)
        def add(a: int) -> int:
            return a


def test_hints_can_be_given_in_a_registry_and_taken_back() -> None:
    registry = ToolRegistry([find_weather, run_code])
    deferred = registry.configured("run_code", defer=True)
    assert [each.hints for each in deferred.definitions()] == [WEATHER.hints, ToolHints(deferred=True)]
    assert [each.hints for each in deferred.configured(defer=False).definitions()] == [WEATHER.hints, None]
    with pytest.raises(ConfigurationError, match="freeform can't be changed in a registry"):
        registry.configured(freeform=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def respond(*items: Body) -> Body:
    return {"id": "resp_1", "status": "completed", "model": "m", "output": list(items)}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.mark.anyio
@pytest.mark.parametrize("caller", [None, {"type": "program", "caller_id": "prog_1"}], ids=["model", "program"])
async def test_a_loop_answers_texts_and_calls_of_programs_as_what_they_are(server: Server, caller: Body | None) -> None:
    text: Body = {"type": "custom_tool_call", "call_id": "call_1", "name": "run_code", "input": "a\nb", "id": "ctc_1"}
    program: Body = {"type": "program", "id": "p_1", "call_id": "prog_1", "code": "run_code()"}
    answer: Body = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    items = [text] if caller is None else [program, {**text, "caller": caller}]
    server.answers[:] = [Answer(respond(*items)), Answer(respond(answer))]
    async with provider_for("openai-responses:m", base_url=server.url) as provider:
        result = await tool_loop(provider, ToolRegistry([run_code]), "Hi")
    assert result.text == "Done."
    back = {name: value for name, value in text.items() if name != "id"} | ({"caller": caller} if caller else {})
    output: dict[str, Any] = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "A\nB"}
    output |= {"caller": caller} if caller else {}
    assert server.requests[1]["input"][-2:] == [back, output]


def test_a_provider_says_what_its_model_can_do_and_can_be_corrected() -> None:
    provider: Any = provider_for("openai-responses:gpt-5", api_key="k")
    assert provider.capabilities().freeform_tools == "native"
    assert provider.capabilities("gpt-4.1").freeform_tools == "emulated"
    ollama = provider_for("ollama:qwen3")
    assert find_capabilities(FallbackProvider(provider, provider)).freeform_tools == "native"
    assert find_capabilities(FallbackProvider(provider, ollama)).strict_tools == "unused"
    older: Any = provider_for("anthropic:claude-3-5-haiku", api_key="k")
    assert (older.capabilities().deferred_tools, older.capabilities().examples) == ("emulated", "emulated")
    older.known_capabilities = Capabilities(deferred_tools="native")
    assert older.capabilities().deferred_tools == "native"
