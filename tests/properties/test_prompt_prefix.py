"""Between two turns the request of each vendor begins with the bytes of the one before, so that its cache holds."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types.beta import BetaMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from tests.providers.loopback import Answer, serving
from tests.providers.vendor_answers import anthropic_message
from toolkit import (
    AssistantMessage,
    ChatRequest,
    Message,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import ImageBlock, ReasoningBlock, TextBlock, ToolDefinition
from toolkit.chat.request import EarlierTools
from toolkit.policies import keep_last
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.anthropic.encode import MessagesEncoder
from toolkit.providers.bedrock import ConverseEncoder
from toolkit.providers.google import GenerateEncoder
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.providers.openai.chat import ChatEncoder
from toolkit.providers.openai.responses import ResponsesEncoder
from toolkit.providers.servers import SERVERS

Encode = Callable[[ChatRequest], bytes]
PARAMETERS = {"type": "object", "properties": {"z": {"type": "string"}, "a": {}}}
TOOLS = [
    ToolDefinition(name=name, description=f"Do {name}.", parameters=PARAMETERS)
    for name in ("look", "find.it", "send", "count")
]
WORDS = ["", " ", "Hi", "æ \U0001f600", "]}]", '"', "\n"]


def make_encoders() -> dict[str, tuple[Encode, tuple[str, ...], bool]]:
    """Return how each format encodes a request, the fields of the prompt, and whether tools may change in it."""
    chat = ChatEncoder(model="m", defaults={})
    responses = ResponsesEncoder(model="gpt-5", defaults={})
    messages = MessagesEncoder(model="m", defaults={})
    newer = MessagesEncoder(model="m", defaults={}, takes_system_messages=True)
    gemini = GenerateEncoder(model="gemini-3", defaults={})
    converse = ConverseEncoder(defaults={})
    return {
        "chat": (lambda request: chat.encode(request, streams=False), ("tools", "messages"), False),
        "responses": (lambda request: responses.encode(request, streams=False), ("tools", "input"), True),
        "messages": (lambda request: messages.encode(request, streams=False), ("tools", "system", "messages"), False),
        "newer": (lambda request: newer.encode(request, streams=False), ("tools", "system", "messages"), True),
        "gemini": (
            lambda request: gemini.body(request, {"systemInstruction": gemini.settings(request)["system_instruction"]}),
            ("tools", "systemInstruction", "contents"),
            False,
        ),
        "converse": (converse.encode, ("toolConfig", "system", "messages"), False),
    }


def read_prompt(body: bytes, fields: tuple[str, ...]) -> bytes:
    """Return the prompt in the order in which it is cached, without the ends of what the next turn goes on with."""
    read = json.loads(body)
    pieces = [json.dumps(read.get(field), ensure_ascii=False).encode() for field in fields]
    return b"".join([*pieces[:-1], pieces[-1].rstrip(b"]}")])


def make_turns(script: random.Random, *, changes_tools: bool) -> Iterator[ChatRequest]:
    """Yield the requests of a conversation, each with a transcript of its own."""
    messages: list[Message] = [SystemMessage("Be kind."), UserMessage("Hello?")]
    tools, earlier = TOOLS[:2], list[EarlierTools]()
    for turn in range(6):
        yield ChatRequest(messages=tuple(messages), tools=tools, earlier_tools=tuple(earlier))
        thoughts = [ReasoningBlock(text="Hm.", signature="s", id=f"rs_{turn}")] if script.random() < 0.3 else []
        names = script.sample([each.name for each in tools], script.randint(0, len(tools)))
        calls = [ToolCall(f"call {turn}.{name}", name, '{"z": "1", "a": 2}') for name in names]
        said = [TextBlock(script.choice(WORDS[2:4]))] if script.random() < 0.5 or not calls else []
        messages.append(AssistantMessage([*thoughts, *said, *calls]))
        for call in calls:
            picture = (TextBlock("Seen."), ImageBlock(b"\x01"))
            content: Any = picture if script.random() < 0.3 else script.choice(WORDS)
            messages.append(ToolResult(call.id, content, tool_name=call.name, is_error=script.random() < 0.2))
        if not calls or script.random() < 0.2:
            messages.append(UserMessage("Go on."))
        if script.random() < 0.3:
            messages.append(SystemMessage(script.choice(WORDS)))
        if changes_tools and script.random() < 0.6:
            before, tools = tools, script.sample(TOOLS, script.randint(1, len(TOOLS)))
            earlier.append(EarlierTools(before, len(messages)))


@pytest.mark.parametrize("name", make_encoders())
def test_a_request_begins_with_the_bytes_of_the_one_before(name: str) -> None:
    for seed in range(40):
        encode, fields, takes_changes = make_encoders()[name]
        turns = make_turns(random.Random(seed), changes_tools=takes_changes)
        prompts = [read_prompt(encode(turn), fields) for turn in turns]
        for before, after in pairwise(prompts):
            assert after.startswith(before), (name, seed, before, after)


def test_other_processes_write_the_same_bytes() -> None:
    for name, (encode, _, _) in make_encoders().items():
        turns = [*make_turns(random.Random(1), changes_tools=False)]
        others = [*make_turns(random.Random(1), changes_tools=False)]
        again = make_encoders()[name][0]
        assert [encode(turn) for turn in turns] == [again(turn) for turn in others]


LOOK, FIND, SEND, COUNT = TOOLS
CHANGED = ChatRequest(
    messages=[
        SystemMessage("Be kind."),
        UserMessage("Hi"),
        AssistantMessage([ToolCall("c1", "look", "{}")]),
        ToolResult("c1", "x", tool_name="look"),
        AssistantMessage([ToolCall("c2", "send", "{}")]),
        ToolResult("c2", "x", tool_name="send"),
    ],
    tools=[SEND, LOOK],
    earlier_tools=(EarlierTools([LOOK, FIND], 4), EarlierTools([SEND], 6)),
)


def test_anthropic_is_sent_changes_of_tools_where_they_came() -> None:
    body = json.loads(make_encoders()["newer"][0](CHANGED))
    assert [each["name"][:4] for each in body["tools"]] == ["look", "find"]
    roles = "user assistant user system assistant user system"
    assert " ".join([each["role"] for each in body["messages"]]) == roles
    first, second = body["messages"][3]["content"], body["messages"][6]["content"]
    define = {"name": "send", "description": "Do send.", "input_schema": SEND.parameters}
    assert first == [
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look"}},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": body["tools"][1]["name"]}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": define}},
    ]
    assert second == [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look"}}]
    for message in body["messages"]:
        TypeAdapter[Any](BetaMessageParam).validate_python(message)


def test_responses_are_sent_additional_tools_and_what_is_allowed_now() -> None:
    body = json.loads(make_encoders()["responses"][0](CHANGED))
    assert [each["name"][:4] for each in body["tools"]] == ["look", "find"]
    assert [place for place, each in enumerate(body["input"]) if each["type"] == "additional_tools"] == [4]
    item = body["input"][4]
    assert (item["role"], [each["name"] for each in item["tools"]]) == ("developer", ["send"])
    TypeAdapter[Any](ResponseInputItemParam).validate_python(item)
    names = [{"type": "function", "name": name} for name in ("send", "look")]
    assert body["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": names}


def test_a_tool_that_is_defined_anew_begins_the_cache_anew() -> None:
    other = ToolDefinition(name="look", description="Look closely.", parameters=PARAMETERS)
    request = ChatRequest(messages=CHANGED.messages, tools=[other], earlier_tools=(EarlierTools([LOOK], 4),))
    for name in ("newer", "responses"):
        body = json.loads(make_encoders()[name][0](request))
        assert [each["description"] for each in body["tools"]] == ["Look closely."]
        assert "additional_tools" not in str(body)
        assert "tool_addition" not in str(body)


def answer_responses(*items: dict[str, Any]) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": list(items)}


@pytest.mark.anyio
@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("vendor", ["anthropic", "responses"])
async def test_a_tool_that_is_registered_in_a_run_is_sent_as_a_change(vendor: str, compacts: bool) -> None:
    registry = ToolRegistry()

    @tool
    def learn() -> str:
        """Learn to count."""
        registry.register(tool(count_all))
        return "Learned."

    registry.register(learn)

    def count_all() -> int:
        """Count."""
        return 3

    def call(name: str) -> Answer:
        if vendor == "anthropic":
            used: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": {}}
            return Answer(anthropic_message(used, stop_reason="tool_use"))
        item = {"type": "function_call", "id": "fc_1", "call_id": f"call_{name}", "name": name, "arguments": "{}"}
        return Answer(answer_responses({**item, "status": "completed"}))

    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3"}]}
    end = Answer(anthropic_message({"type": "text", "text": "3"}) if vendor == "anthropic" else answer_responses(text))
    config = ToolLoopConfig(compaction=keep_last(2) if compacts else None)
    with serving(call("learn"), call("count_all"), end) as server:
        provider = (
            AnthropicProvider("m", base_url=server.root, takes_system_messages=True, headers={"anthropic-beta": "own"})
            if vendor == "anthropic"
            else OpenAIResponsesProvider("gpt-5", base_url=server.url, server=SERVERS["openai"], api_key="k")
        )
        async with provider:
            result = await tool_loop(provider, registry, "Count.", config=config)
    assert result.text == "3"
    offered = [[each["name"] for each in body["tools"]] for body in server.requests]
    assert offered == [["learn"], ["learn"], ["learn", "count_all"] if compacts else ["learn"]]
    said = [str(body.get("input") or body["messages"]).count("'count_all', 'description'") for body in server.requests]
    assert said == [0, 1, 0 if compacts else 1]
    if vendor == "anthropic":
        betas = [headers["anthropic-beta"] for headers in server.headers]
        changed = "own,inline-tools-2026-09-15"
        assert betas == ["own", changed, "own" if compacts else changed]
