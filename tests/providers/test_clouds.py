"""The same models at the clouds: Anthropic's on Bedrock and Vertex AI, all of Bedrock's by Converse, Gemini by name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.credentials import Credentials

from tests.providers.loopback import Answer, Server, serving
from tests.providers.vendor_answers import anthropic_message, anthropic_text_stream
from tests.providers.vendor_cases import generate, hear, response_of
from tests.testing.wires.bedrock import check_shape, frame
from toolkit import AssistantMessage, ChatRequest, SystemMessage, ToolCall, ToolResult, UserMessage
from toolkit.chat import FileBlock, ImageBlock, ReasoningBlock, TextBlock, ToolDefinition
from toolkit.errors import ConfigurationError, ProviderAuthError, RateLimitedError
from toolkit.providers import provider_for
from toolkit.providers.bedrock import BedrockProvider, ConverseEncoder

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(messages=[UserMessage("Hi")])
SECRET = "very/secret/0123456789abcdefghij"
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
PDF = FileBlock(b"%PDF", name="a_b.pdf", media_type="application/pdf")
ADD = ToolDefinition(name="add", description="Add.", parameters=PARAMETERS)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "PROFILE", "BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    for name in ("ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Answer(anthropic_message({"type": "text", "text": "Hello."}))) as running:
        yield running


async def test_anthropic_on_bedrock_is_asked_through_the_clients_of_its_sdk(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    name = "anthropic-bedrock:anthropic.claude-sonnet-4-5"
    assert (
        await generate(provider_for(name, region="eu-west-1", base_url=f"{server.root}/anthropic"), REQUEST)
    ).text == "Hello."
    server.answers[:] = [Answer(pieces=anthropic_text_stream("Hel", "lo."))]
    keyed = provider_for(name, region="eu-west-1", base_url=f"{server.root}/anthropic", api_key="k")
    assert response_of(await hear(keyed, REQUEST)).text == "Hello."
    assert {path.partition("?")[0] for path in server.paths} == {"/anthropic/v1/messages"}
    assert server.requests[0] == {
        "max_tokens": 16_384,
        "model": "anthropic.claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    signed, bearer = (headers["authorization"] for headers in server.headers)
    assert "Credential=AKID/" in signed
    assert "/eu-west-1/bedrock-mantle/aws4_request" in signed
    assert bearer == "Bearer k"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_anthropic_on_vertex_has_the_model_in_the_address(server: Server, streams: bool) -> None:
    provider = provider_for(
        "anthropic-vertex:claude-sonnet-4-5@20250929",
        project="mine",
        location="global",
        access_token="token-1",
        base_url=f"{server.root}/v1",
    )
    if streams:
        server.answers[:] = [Answer(pieces=anthropic_text_stream("Hel", "lo."))]
        assert response_of(await hear(provider, REQUEST)).text == "Hello."
    else:
        assert (await generate(provider, REQUEST)).text == "Hello."
    verb = "streamRawPredict" if streams else "rawPredict"
    place = "/v1/projects/mine/locations/global/publishers/anthropic/models"
    assert server.paths == [f"{place}/claude-sonnet-4-5@20250929:{verb}"]
    assert server.requests == [
        {
            "anthropic_version": "2026-10-21",
            "max_tokens": 16_384,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            **({"stream": True} if streams else {}),
        }
    ]
    assert server.headers[0]["authorization"] == "Bearer token-1"


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("anthropic-vertex:m", {"location": "global"}, "pass project, or set ANTHROPIC_VERTEX_PROJECT_ID"),
        ("anthropic-vertex:m", {"project": "p"}, "No region was given"),
        ("anthropic-bedrock:m", {}, "No AWS region"),
        ("bedrock:m", {}, "pass region, or set AWS_REGION"),
    ],
)
def test_what_a_cloud_misses_is_named(name: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        provider_for(name, **settings)


def test_gemini_on_vertex_has_a_name() -> None:
    assert "aiplatform.googleapis.com" in repr(provider_for("vertex:gemini-2.5-flash", api_key="k"))


async def test_converse_is_signed_for_its_region_and_shows_no_secret(server: Server) -> None:
    own = Credentials("AKID", SECRET, "session-token-0123456789")
    provider = BedrockProvider("amazon.nova:0", region="eu-west-1", base_url=server.root, credentials=own)
    server.answers[:] = [Answer({"message": f"Slow down, {SECRET}"}, status=429)]
    with pytest.raises(RateLimitedError) as caught:
        await generate(provider, REQUEST)
    assert SECRET not in str(caught.value)
    assert server.paths == ["/model/amazon.nova%3A0/converse"]
    assert "/eu-west-1/bedrock/aws4_request" in server.headers[0]["authorization"]
    assert server.headers[0]["x-amz-security-token"] == "session-token-0123456789"


async def test_credentials_of_this_machine_go_to_aws_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", SECRET)
    with pytest.raises(ProviderAuthError, match="go to AWS alone"):
        BedrockProvider("m", base_url="https://example.com")


def test_a_conversation_as_converse_has_it() -> None:
    thought = ReasoningBlock(text="Hm.", signature="s")
    request = ChatRequest(
        messages=[
            SystemMessage("Be brief."),
            UserMessage(
                (TextBlock("See."), ImageBlock(b"i"), FileBlock(b"%PDF", name="a_b.pdf", media_type="application/pdf"))
            ),
            AssistantMessage([thought, ToolCall("call:1", "add", '{"a": 1}')]),
            ToolResult("call:1", "no", is_error=True, tool_name="add"),
        ],
        tools=[ADD],
        tool_choice="add",
        parallel_tool_calls=False,
        temperature=0.5,
        max_tokens=9,
        stop=("END",),
        reasoning_effort="low",
    )
    body = json.loads(ConverseEncoder(defaults={"inferenceConfig": {"topP": 0.1}}, caches=True).encode(request))
    check_shape("Converse", {"modelId": "m", **body})
    mark = {"cachePoint": {"type": "default"}}
    call_id = body["messages"][1]["content"][1]["toolUse"]["toolUseId"]
    assert body == {
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["END"], "topP": 0.1},
        "outputConfig": {"effort": "low"},
        "system": [{"text": "Be brief."}, {"text": "Call one function at a time."}, mark],
        "toolConfig": {
            "tools": [
                {"toolSpec": {"name": "add", "description": "Add.", "inputSchema": {"json": PARAMETERS}}},
                mark,
            ],
            "toolChoice": {"tool": {"name": "add"}},
        },
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": "See."},
                    {"image": {"format": "png", "source": {"bytes": "aQ=="}}},
                    {"document": {"format": "pdf", "name": "a-b-pdf", "source": {"bytes": "JVBERg=="}}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
                    {"toolUse": {"toolUseId": call_id, "name": "add", "input": {"a": 1}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": call_id, "content": [{"text": "no"}], "status": "error"}},
                    mark,
                ],
            },
        ],
    }


def test_what_converse_does_not_take_is_refused_with_who_does() -> None:
    image = ImageBlock(url="https://example.com/a.png")
    with pytest.raises(ConfigurationError, match="Anthropic, Google and OpenAI take URLs"):
        ConverseEncoder(defaults={}).encode(ChatRequest(messages=[UserMessage((image,))]))


SEARCH = {"toolUseId": "s1", "name": "web", "type": "server_tool_use"}
FOUND = {"toolUseId": "s1", "type": "web_result"}
UNKNOWN: list[list[dict[str, Any]]] = [
    [{"start": {"toolUse": SEARCH}}, {"delta": {"toolUse": {"input": '{"q": 1}'}}}],
    [{"start": {"toolResult": FOUND}}, {"delta": {"toolResult": [{"text": "x"}]}}],
    [{"delta": {"reasoningContent": {"redactedContent": "c2Vj"}}}],
    [{"start": {"hologram": {"id": "h1"}}}, {"delta": {"hologram": {"shape": "cube"}}}],
]
BACK = [
    {"toolUse": {**SEARCH, "input": {"q": 1}}},
    {"toolResult": {**FOUND, "content": [{"text": "x"}]}},
    {"reasoningContent": {"redactedContent": "c2Vj"}},
    {"hologram": {"id": "h1", "shape": "cube"}},
]


async def test_blocks_without_a_counterpart_go_back_as_they_came(server: Server) -> None:
    frames = [frame("messageStart", {"role": "assistant"})]
    for index, events in enumerate(UNKNOWN):
        for event in events:
            kind = "contentBlockStart" if "start" in event else "contentBlockDelta"
            frames.append(frame(kind, {**event, "contentBlockIndex": index}))
    frames.append(frame("messageStop", {"stopReason": "end_turn"}))
    whole = {"output": {"message": {"role": "assistant", "content": BACK}}, "stopReason": "end_turn"}
    for streams in (False, True):
        server.answers[:] = [Answer(pieces=frames)] if streams else [Answer(whole)]
        provider = BedrockProvider("m", base_url=server.root)
        answer = response_of(await hear(provider, REQUEST)) if streams else await generate(provider, REQUEST)
        request = ChatRequest(messages=[*REQUEST.messages, answer.message, UserMessage("And?")])
        assert json.loads(ConverseEncoder(defaults={}).encode(request))["messages"][1]["content"] == BACK


async def test_a_failure_within_a_stream_is_its_error(server: Server) -> None:
    server.answers[:] = [
        Answer(pieces=[frame("throttlingException", {"message": "Too many"}, message_type="exception")])
    ]
    with pytest.raises(RateLimitedError, match="Too many"):
        await hear(BedrockProvider("m", base_url=server.root), REQUEST)
