"""Servers that speak chat completions, by name: what each is asked, whose key goes where, and what each answers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.providers.loopback import Answer, Server, chunk, completion, events, serving
from tests.providers.vendor_cases import generate, hear, response_of
from toolkit import AssistantMessage, ChatRequest, ToolCall, ToolResult, UserMessage
from toolkit.chat import ReasoningBlock, ResponseFormat, TextBlock, ToolDefinition, Usage
from toolkit.errors import ConfigurationError, ProviderAuthError
from toolkit.json_text import write_json
from toolkit.providers import provider_for
from toolkit.providers.encoding import ChatDialect
from toolkit.providers.openai import OpenAIProvider
from toolkit.providers.servers import SERVERS, CompatibleServer, find_dialect

pytestmark = pytest.mark.anyio

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOLS = (
    ToolDefinition(name="add", description="Add.", parameters=PARAMETERS, strict=True),
    ToolDefinition(name="look", description="Look.", parameters=PARAMETERS),
)
REQUEST = ChatRequest(
    messages=[
        UserMessage("Hi"),
        AssistantMessage([ReasoningBlock(text="Hm."), ToolCall("call_1", "add", '{"a": 1}', extra={"x": 1})]),
        ToolResult("call_1", "1", tool_name="add"),
    ],
    tools=TOOLS,
    tool_choice="look",
    parallel_tool_calls=False,
    max_tokens=9,
    seed=5,
    response_format=ResponseFormat(PARAMETERS, name="pair"),
)
FUNCTIONS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": PARAMETERS}}
    for tool in TOOLS
]
STRICT = [{"type": "function", "function": {**FUNCTIONS[0]["function"], "strict": True}}, FUNCTIONS[1]]
ONE_AT_A_TIME = {"role": "system", "content": "Call one function at a time."}
IN_WORDS = "Answer with JSON alone, which must follow this JSON Schema: "
HEX_ID = "74196fe72"


def asked(
    *, call_id: str = "call_1", reasoning: str | None = "reasoning_content", extra: bool = True, note: Any = None
) -> list[dict[str, Any]]:
    call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [{**call, "x": 1} if extra else call]}
    return [
        {"role": "user", "content": "Hi"},
        said | ({reasoning: "Hm."} if reasoning else {}),
        {"role": "tool", "tool_call_id": call_id, "content": "1"},
        *([note] if note else []),
    ]


BODY: dict[str, Any] = {
    "model": "m",
    "messages": asked(),
    "tools": STRICT,
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "parallel_tool_calls": False,
    "max_tokens": 9,
    "seed": 5,
    "stream": True,
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_schema", "json_schema": {"name": "pair", "schema": PARAMETERS, "strict": True}},
}
OPENAI = {"messages": asked(reasoning=None, extra=False), "max_tokens": None, "max_completion_tokens": 9}
REASONING = {"messages": asked(reasoning="reasoning")}
GOLDEN: dict[str, dict[str, Any]] = {
    "openai": OPENAI,
    "azure": OPENAI,
    "groq": REASONING,
    "mistral": {
        "messages": asked(call_id=HEX_ID, reasoning=None, extra=False),
        "seed": None,
        "random_seed": 5,
        "stream_options": None,
    },
    "xai": {},
    "deepseek": {
        "messages": asked(
            note={"role": "system", "content": f"{ONE_AT_A_TIME['content']}\n\n{IN_WORDS}{write_json(PARAMETERS)}"}
        ),
        "tools": FUNCTIONS,
        "parallel_tool_calls": None,
        "response_format": {"type": "json_object"},
    },
    "openrouter": REASONING,
    "together": {"messages": asked(reasoning="reasoning", note=ONE_AT_A_TIME), "parallel_tool_calls": None},
    "fireworks": {},
    "cerebras": {**REASONING, "max_tokens": None, "max_completion_tokens": 9},
    "cohere": {
        "messages": asked(reasoning=None, extra=False, note=ONE_AT_A_TIME),
        "tools": STRICT[1:],
        "tool_choice": "required",
        "parallel_tool_calls": None,
        "stream_options": None,
    },
    "ollama": {
        "messages": asked(reasoning="reasoning", note=ONE_AT_A_TIME),
        "tools": FUNCTIONS,
        "parallel_tool_calls": None,
    },
    "vllm": REASONING,
    "lmstudio": {
        "messages": asked(note=ONE_AT_A_TIME),
        "tools": STRICT[1:],
        "tool_choice": "required",
        "parallel_tool_calls": None,
    },
    "llamacpp": {"tools": FUNCTIONS[1:], "tool_choice": "required"},
    "litellm": {},
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in SERVERS.values():
        for variable in (row.url_variable, *row.key_variables):
            if variable:
                monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Answer(completion())) as running:
        yield running


@pytest.mark.parametrize("name", SERVERS)
async def test_each_server_is_asked_in_its_dialect(server: Server, name: str) -> None:
    server.answers[:] = [Answer(pieces=events(chunk({"content": "Hi."}, finish_reason="stop")))]
    await hear(provider_for(f"{name}:m", base_url=server.url, api_key="k", server=SERVERS[name]), REQUEST)
    wanted = {name: value for name, value in {**BODY, **GOLDEN[name]}.items() if value is not None}
    assert server.requests == [wanted]
    assert server.headers[0]["authorization"] == "Bearer k"


async def test_a_choice_that_a_server_lacks_is_emulated_or_refused(server: Server) -> None:
    def ask(choice: str, *choices: str, required: str = "required") -> Any:
        dialect = ChatDialect(choices=frozenset(choices), required_choice=required)
        row = CompatibleServer(name="own", title="Own", dialect=dialect)
        provider = OpenAIProvider("m", base_url=server.url, server=row)
        return generate(provider, ChatRequest(messages=[UserMessage("Hi")], tools=TOOLS, tool_choice=choice))

    await ask("none")
    await ask("required", "required", required="any")
    assert "tools" not in server.requests[0]
    assert "tool_choice" not in server.requests[0]
    assert (server.requests[1]["tool_choice"], len(server.requests[1]["tools"])) == ("any", 2)
    for choice in ("required", "look"):
        with pytest.raises(ConfigurationError, match="can't be made to call a tool: leave tool_choice"):
            await ask(choice, "none")


@dataclass(frozen=True)
class Reply:
    """A reply as a server words it, and what it is."""

    server: str
    bends: str
    chunks: list[dict[str, Any]]
    content: list[Any]
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=7, output_tokens=3))


def call(arguments: str, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"type": "function", "function": {"name": "add", "arguments": arguments}, **fields}]}


COUNTS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
END = chunk({}, finish_reason="tool_calls", usage=COUNTS)
REPLIES = [
    Reply(
        "mistral",
        "calls whole, without an index; usage with the last piece; content as parts",
        [chunk({"content": [{"type": "text", "text": "See."}]}), chunk(call('{"a": 1}', id="D681PevKs")), END],
        [TextBlock("See."), ToolCall("D681PevKs", "add", '{"a": 1}')],
    ),
    Reply(
        "deepseek",
        "reasoning_content, usage in the last piece",
        [chunk({"reasoning_content": "Hm."}), chunk(call('{"a": 1}', id="call_0", index=0)), END],
        [ReasoningBlock(text="Hm."), ToolCall("call_0", "add", '{"a": 1}')],
    ),
    Reply(
        "groq",
        "reasoning, and usage in x_groq beside the usual one",
        [chunk({"reasoning": "Hm."}), chunk(call('{"a": 1}', id="call_0", index=0)), {**END, "x_groq": {"id": "r"}}],
        [ReasoningBlock(text="Hm."), ToolCall("call_0", "add", '{"a": 1}')],
    ),
    Reply(
        "ollama",
        "each call with index 0 and an id of its own; the reason is stop",
        [
            chunk(call('{"a": 1}', id="call_x", index=0)),
            chunk(call('{"a": 2}', id="call_y", index=0)),
            chunk({}, finish_reason="stop"),
            {**chunk(), "usage": COUNTS},
        ],
        [ToolCall("call_x", "add", '{"a": 1}'), ToolCall("call_y", "add", '{"a": 2}')],
    ),
    Reply(
        "xai",
        "reasoning tokens counted apart",
        [
            chunk(call('{"a": 1}', id="call_0", index=0)),
            chunk(
                {},
                finish_reason="tool_calls",
                usage={
                    "prompt_tokens": 7,
                    "completion_tokens": 3,
                    "total_tokens": 15,
                    "completion_tokens_details": {"reasoning_tokens": 5},
                },
            ),
        ],
        [ToolCall("call_0", "add", '{"a": 1}')],
        Usage(input_tokens=7, output_tokens=8, reasoning_tokens=5),
    ),
    Reply(
        "openrouter",
        "comments of the server between the pieces; the cost in the usage",
        [chunk(call('{"a": 1}', id="call_0", index=0)), {**END, "usage": {**COUNTS, "cost": 0.5}}],
        [ToolCall("call_0", "add", '{"a": 1}')],
        Usage(input_tokens=7, output_tokens=3, cost=0.5),
    ),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply.server)
async def test_each_server_is_understood_in_its_words(server: Server, reply: Reply) -> None:
    pieces = [b": OPENROUTER PROCESSING\n\n" + piece for piece in events(*reply.chunks)]
    server.answers[:] = [Answer(pieces=pieces)]
    answer = response_of(await hear(provider_for(f"{reply.server}:m", base_url=server.url), REQUEST))
    assert list(answer.message.content) == reply.content
    assert answer.usage == reply.usage
    assert answer.stop_reason == "tool_use"


@pytest.mark.parametrize("name", [name for name, row in SERVERS.items() if row.hosts and row.key_variables])
def test_a_key_of_the_environment_goes_to_its_own_server_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = SERVERS[name]
    home = f"https://api.{row.hosts[0]}/v1"
    with pytest.raises(ProviderAuthError, match=row.key_variables[-1]):
        provider_for(f"{name}:m", base_url=home)
    monkeypatch.setenv(row.key_variables[0], "sk-own")
    provider_for(f"{name}:m", base_url=home)
    with pytest.raises(ProviderAuthError, match="pass api_key"):
        provider_for(f"{name}:m", base_url="https://example.com/v1")


async def test_a_server_on_this_machine_gets_its_own_key_and_no_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("VLLM_API_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(variable, f"sk-{variable}")
    for name in ("vllm", "groq"):
        await generate(provider_for(f"{name}:m", base_url=server.url), ChatRequest(messages=[UserMessage("Hi")]))
    assert [headers["authorization"] for headers in server.headers] == ["Bearer sk-VLLM_API_KEY", "Bearer none"]


async def test_azure_takes_keys_and_tokens_and_finds_its_resource(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="pass base_url, or set AZURE_OPENAI_ENDPOINT"):
        provider_for("azure:m", api_key="k")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/")
    for name in ("azure", "azure-responses"):
        assert "https://mine.openai.azure.com/openai/v1'" in repr(provider_for(f"{name}:m", api_key="k"))
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url.removesuffix("/v1"))
    tokens = iter(["entra-1", "entra-2"])

    async def find_token() -> str:
        return next(tokens)

    for key in ("k", find_token, find_token):
        await generate(provider_for("azure:m", api_key=key), ChatRequest(messages=[UserMessage("Hi")]))
    assert [headers["authorization"] for headers in server.headers] == ["Bearer k", "Bearer entra-1", "Bearer entra-2"]
    assert {path.partition("?")[0] for path in server.paths} == {"/openai/v1/chat/completions"}


def test_the_dialect_of_a_known_host_is_found() -> None:
    assert find_dialect("https://eu.api.mistral.ai/v1") is SERVERS["mistral"].dialect
    assert find_dialect("https://example.com/v1") == ChatDialect()


def test_each_row_names_its_source_and_an_example() -> None:
    assert [name for name, row in SERVERS.items() if not (row.source.startswith("https://") and row.example)] == []
    assert GOLDEN.keys() == SERVERS.keys()
