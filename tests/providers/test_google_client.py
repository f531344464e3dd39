"""The provider for Gemini against a real server on loopback: what it hears and what it asks."""

import json
import random
from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest
from google.genai.types import GenerateContentConfigDict
from google.oauth2.credentials import Credentials

from tests.providers.loopback import Answer, Server, serving
from tests.providers.vendor_answers import gemini_answer, gemini_stream
from tests.providers.vendor_cases import Failure, Said, assert_refused, generate, hear, response_of
from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    ProviderError,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat import (
    AudioBlock,
    ChatResponse,
    FileBlock,
    ImageBlock,
    ReasoningBlock,
    ResponseFormat,
    StreamEvent,
    TextBlock,
    ToolDefinition,
)
from toolkit.errors import (
    BadResponseError,
    ContentFilteredError,
    ContextTooLongError,
    ProviderAuthError,
    RateLimitedError,
)
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.providers.encoding import sealed
from toolkit.providers.google import GoogleProvider, PartialArguments

pytestmark = pytest.mark.anyio

SECRET = "AIza-very-secret-0123456789"
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
HELLO = {"text": "Hello."}
ADD: dict[str, Any] = {"functionCall": {"id": "1", "name": "add", "args": {"a": 1, "b": "ö"}}}
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_GENAI_USE_ENTERPRISE",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_VERTEX_BASE_URL",
    ):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Answer(gemini_answer(HELLO))) as running:
        yield running


def made(server: Server, **options: Any) -> GoogleProvider:
    settings: dict[str, Any] = {"api_key": SECRET, "base_url": server.root, **options}
    return GoogleProvider("gemini-3.8-flash", **settings)


async def ask(server: Server, *answers: Answer, request: ChatRequest = REQUEST, **options: Any) -> ChatResponse:
    if answers:
        server.answers[:] = answers
    return await generate(made(server, **options), request)


async def listen(server: Server, *answers: Answer) -> list[StreamEvent]:
    server.answers[:] = answers
    return await hear(made(server), REQUEST)


async def test_an_answer_has_text_usage_stop_reason_and_names(server: Server) -> None:
    usage = {
        "promptTokenCount": 7,
        "toolUsePromptTokenCount": 1,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 20,
        "cachedContentTokenCount": 4,
    }
    response = await ask(server, Answer({**gemini_answer(HELLO), "usageMetadata": usage}))
    assert response == ChatResponse(
        message=AssistantMessage("Hello."),
        usage=Usage(input_tokens=8, output_tokens=23, reasoning_tokens=20, cache_read_tokens=4),
        stop_reason="end_turn",
        model="test-1",
        request_id="resp_1",
    )
    assert server.paths[0].endswith("/models/gemini-3.8-flash:generateContent")
    assert server.requests == [{"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {}}]
    assert server.headers[0]["x-goog-api-key"] == SECRET
    assert server.headers[0]["user-agent"].startswith("google-genai-sdk/")


async def test_a_request_is_said_in_gemini_s_words(server: Server) -> None:
    options: GenerateContentConfigDict = {
        "thinking_config": {"include_thoughts": True},
        "tools": [{"google_search": {}}],
        "cached_content": "cachedContents/1",
    }
    request = ChatRequest(
        messages=[SystemMessage("Be brief."), UserMessage("Hi")],
        tools=[ToolDefinition(name="add", description="Add.", parameters=PARAMETERS)],
        tool_choice="add",
        temperature=0.2,
        max_tokens=5,
        seed=7,
        stop=("END",),
        response_format=ResponseFormat(PARAMETERS),
        timeout=9.5,
        options={"top_p": 0.5},
    )
    await ask(server, request=request, options=options, headers={"x-team": "a"})
    assert server.requests[0] == {
        "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "cachedContent": "cachedContents/1",
        "tools": [
            {"googleSearch": {}},
            {"functionDeclarations": [{"name": "add", "description": "Add.", "parameters": PARAMETERS}]},
        ],
        "toolConfig": {
            "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]},
            "includeServerSideToolInvocations": True,
        },
        "generationConfig": {
            "temperature": 0.2,
            "maxOutputTokens": 5,
            "seed": 7,
            "stopSequences": ["END"],
            "topP": 0.5,
            "responseMimeType": "application/json",
            "responseJsonSchema": PARAMETERS,
            "thinkingConfig": {"include_thoughts": True},
        },
    }
    assert server.headers[0]["x-team"] == "a"
    assert server.headers[0]["x-server-timeout"] == "10"


def kept(**value: Any) -> ReasoningBlock:
    return ReasoningBlock(encrypted=sealed("google", value))


CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
SAID = [
    Said("cut off", gemini_answer(HELLO, finish="MAX_TOKENS"), (TextBlock("Hello."),), "max_tokens"),
    Said(
        "filtered",
        gemini_answer(finish="SAFETY", finishMessage="No."),
        (),
        "content_filter",
        {"finishMessage": "No."},
    ),
    Said("blocked", gemini_answer(finish="MODEL_ARMOR"), (), "content_filter"),
    Said("paused", gemini_answer(HELLO, finish="CONTINUATION"), (TextBlock("Hello."),), "max_tokens"),
    Said("other", gemini_answer(HELLO, finish="OTHER"), (TextBlock("Hello."),), "end_turn", {"finishReason": "OTHER"}),
    Said(
        "thought and called",
        gemini_answer(
            {"text": "Hm", "thought": True},
            {"text": ".", "thought": True},
            {**ADD, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "now"}},
        ),
        (
            ReasoningBlock(text="Hm."),
            ToolCall("1", "add", '{"a": 1, "b": "ö"}', extra=SIGNED),
            ToolCall("", "now", "{}"),
        ),
        "tool_use",
    ),
    Said(
        "signed text",
        gemini_answer({"text": "Hel"}, {"text": "lo.", "thoughtSignature": "c2ln"}),
        (TextBlock("Hello."), kept(thoughtSignature="c2ln")),
        "end_turn",
    ),
    Said(
        "signed thought",
        gemini_answer({"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"}, HELLO),
        (ReasoningBlock(text="Hm.", encrypted=sealed("google", {"thoughtSignature": "c2ln"})), TextBlock("Hello.")),
        "end_turn",
    ),
    Said(
        "drew, spoke, wrote",
        gemini_answer(
            {"inlineData": {"mimeType": "image/png", "data": "cG5n"}, "thoughtSignature": "c2ln"},
            {"inlineData": {"mimeType": "audio/wav", "data": "d2F2"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/a"}},
        ),
        (
            ImageBlock(b"png"),
            kept(thoughtSignature="c2ln"),
            AudioBlock(b"wav"),
            FileBlock(b"pdf", media_type="application/pdf"),
            FileBlock(media_type="video/mp4", url="https://example.com/a"),
        ),
        "end_turn",
    ),
    Said("ran code", gemini_answer(CODE, HELLO), (kept(part=CODE), TextBlock("Hello.")), "end_turn"),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.name)
async def test_whatever_is_said_is_decoded(server: Server, said: Said) -> None:
    response = await ask(server, Answer(said.body))
    assert response.message.content == said.content
    assert response.stop_reason == said.stop_reason
    assert dict(response.metadata) == said.metadata


async def test_a_stream_gives_deltas_and_then_the_whole(server: Server) -> None:
    pieces = gemini_stream(
        gemini_answer({"text": "Hm", "thought": True}, finish=None),
        gemini_answer({"text": ".", "thought": True}, finish=None),
        gemini_answer({"text": "Let me "}, finish=None),
        gemini_answer({"text": "see.\u2028"}, finish=None),
        gemini_answer({**ADD, "thoughtSignature": "c2ln"}, {"functionCall": {"name": "now"}}, finish=None),
        gemini_answer({"text": "", "thoughtSignature": "ZW5k"}),
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5}},
    )
    heard = await listen(server, Answer(pieces=pieces, headers={"x-goog-request-id": "req_2"}))
    assert heard[:-1] == [
        ReasoningDelta("Hm"),
        ReasoningDelta("."),
        TextDelta("Let me "),
        TextDelta("see.\u2028"),
        ArgumentsDelta(0, "1", "add", '{"a": 1, "b": "ö"}'),
        ArgumentsDelta(1, "", "now", "{}"),
    ]
    response = response_of(heard)
    assert response.message.content == (
        ReasoningBlock(text="Hm."),
        TextBlock("Let me see.\u2028"),
        ToolCall("1", "add", '{"a": 1, "b": "ö"}', extra=SIGNED),
        ToolCall("", "now", "{}"),
        kept(thoughtSignature="ZW5k"),
    )
    assert response.usage == Usage(input_tokens=9, output_tokens=5)
    assert (response.stop_reason, response.request_id, response.model) == ("tool_use", "req_2", "test-1")
    assert server.paths[0].endswith("/models/gemini-3.8-flash:streamGenerateContent?alt=sse")


async def test_what_was_said_goes_back_as_it_came(server: Server) -> None:
    parts: list[dict[str, Any]] = [
        {"text": "Hm.", "thought": True, "thoughtSignature": "dGg="},
        CODE,
        HELLO,
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}, "thoughtSignature": "aW1n"},
        {**ADD, "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "2", "name": "now", "args": {}}},
    ]
    first = await ask(server, Answer(gemini_answer(*parts)))
    await ask(
        server,
        Answer(gemini_answer(HELLO)),
        request=ChatRequest(
            messages=[UserMessage("Hi"), first.message, ToolResult("1", "3"), ToolResult("2", "4")],
        ),
    )
    contents = server.requests[-1]["contents"]
    assert contents[1] == {"role": "model", "parts": parts}
    assert contents[2]["parts"][0] == {
        "functionResponse": {"id": "1", "name": "add", "response": {"output": "3"}},
    }


def refusal(code: int, status: str, message: str, *details: dict[str, Any], **headers: str) -> Answer:
    body = {"error": {"code": code, "message": message, "status": status, "details": list(details)}}
    return Answer(body, status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
FAILURES = [
    Failure(
        "wrong key",
        refusal(400, "INVALID_ARGUMENT", f"API key {SECRET} not valid", BAD_KEY),
        ProviderAuthError,
        "GEMINI_API_KEY",
        facts={"status": 400},
    ),
    Failure("no right", refusal(403, "PERMISSION_DENIED", "Not yours"), ProviderAuthError, "Not yours"),
    Failure("unknown model", refusal(404, "NOT_FOUND", "no such model"), ProviderError, "check the model 'gemini-3.8"),
    Failure("bad request", refusal(400, "INVALID_ARGUMENT", "Bad schema"), ProviderError, "Bad schema"),
    Failure(
        "too long",
        refusal(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)"),
        ContextTooLongError,
        "compaction",
    ),
    Failure(
        "too many, with a time in the body",
        refusal(429, "RESOURCE_EXHAUSTED", "Slow down", WAIT),
        RateLimitedError,
        "Slow down",
        is_retryable=True,
        facts={"retry_after": 34.5},
    ),
    Failure(
        "too many, with a time in a header",
        refusal(429, "RESOURCE_EXHAUSTED", "Slow down", WAIT, retry_after="7"),
        RateLimitedError,
        "Slow down",
        is_retryable=True,
        facts={"retry_after": 7.0},
    ),
    Failure("overloaded", refusal(503, "UNAVAILABLE", "Overloaded"), ProviderError, "Overloaded", True),
    Failure(
        "in a list",
        Answer([{"error": {"code": 500, "message": "Oops", "status": "INTERNAL"}}], status=500),
        ProviderError,
        "Oops",
        True,
    ),
    Failure("in a 200", Answer({"error": {"code": 503, "message": "Oops"}}), ProviderError, "Oops", True),
    Failure("no candidates", Answer({"candidates": []}), BadResponseError, "no candidates", True),
    Failure(
        "filtered",
        Answer({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
        ContentFilteredError,
        "PROHIBITED_CONTENT",
    ),
    Failure(
        "called out of order",
        Answer(gemini_answer({"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "f", "stringValue": "x"}]}})),
        BadResponseError,
        "'f' is no path of an argument",
    ),
    Failure(
        "called nonsense",
        Answer(gemini_answer(finish="MALFORMED_FUNCTION_CALL", finishMessage="print(")),
        BadResponseError,
        r"MALFORMED_FUNCTION_CALL: print\(",
        True,
    ),
    Failure(
        "answered nonsense", Answer(gemini_answer(finish="MALFORMED_RESPONSE")), BadResponseError, "try again", True
    ),
    Failure("no signature", Answer(gemini_answer(finish="MISSING_THOUGHT_SIGNATURE")), BadResponseError, "will end so"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
async def test_what_google_refuses_says_what_and_whether_to_retry(server: Server, failure: Failure) -> None:
    await assert_refused(made(server), server, failure, REQUEST, secret=SECRET)


async def test_an_error_in_a_stream_is_raised(server: Server) -> None:
    error = {"error": {"code": 503, "message": "Full", "status": "UNAVAILABLE"}}
    pieces = gemini_stream(gemini_answer(HELLO, finish=None), error)
    with pytest.raises(ProviderError, match="Full") as caught:
        await listen(server, Answer(pieces=pieces))
    assert caught.value.is_retryable


@pytest.mark.parametrize(
    ("options", "says"),
    [({"temprature": 1}, "temprature"), ({"top_p": "much"}, "top_p")],
    ids=["unknown", "of a wrong type"],
)
async def test_a_setting_that_the_sdk_does_not_know_is_named(
    server: Server, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await ask(server, options=options)
    assert server.requests == []


async def test_a_client_of_your_own_is_used_and_left_open(server: Server) -> None:
    async with httpx2.AsyncClient(headers={"x-proxy": "mine"}) as client:
        await ask(server, http_client=client)
        assert not client.is_closed
    assert server.headers[0]["x-proxy"] == "mine"


async def test_vertex_is_asked_with_a_token(server: Server, anyio_backend_name: str) -> None:
    settings: dict[str, Any] = {
        "api_key": None,
        "vertexai": True,
        "project": "p",
        "location": "l",
        "credentials": Credentials(token="token-1"),  # type: ignore[no-untyped-call]
    }
    if anyio_backend_name == "trio":
        with pytest.raises(ConfigurationError, match="on asyncio alone"):
            await ask(server, **settings)
        return
    assert (await ask(server, **settings)).text == "Hello."
    assert "/projects/p/locations/l/publishers/google/models/gemini-3.8-flash:generateContent" in server.paths[0]
    assert server.headers[0]["authorization"] == "Bearer token-1"


def test_no_key_names_the_variable_and_the_other_way() -> None:
    with pytest.raises(ProviderAuthError, match=r"GEMINI_API_KEY.*vertexai=True"):
        GoogleProvider("gemini-3.8-flash")


def test_settings_that_contradict_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="project/location"):
        GoogleProvider("gemini-3.8-flash", api_key=SECRET, project="p")


def test_the_key_is_not_in_the_repr() -> None:
    provider = GoogleProvider("gemini-3.8-flash", api_key=SECRET, base_url="https://user:pass@example.com/?key=1")
    assert repr(provider) == "GoogleProvider('gemini-3.8-flash', base_url='https://example.com/')"


# arguments in pieces


def piece(path: str, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value}


def partial_call(*pieces: dict[str, Any], goes_on: bool = True, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {**fields, "partialArgs": list(pieces), **({"willContinue": True} if goes_on else {})}}


PIECES = [
    partial_call(name="plan", id="1"),
    partial_call(piece("$.title", stringValue='A "tr', willContinue=True)),
    partial_call(piece("$.title", stringValue="ip\n", willContinue=True)),
    partial_call(piece("$.title", stringValue="")),
    partial_call(piece("$.stops[0].name", stringValue="Oslo"), piece("$.stops[0].days", numberValue=2)),
    partial_call(piece("$.stops[1]['best friend']", nullValue="NULL_VALUE"), piece("$.tags[0][0]", boolValue=True)),
    partial_call(goes_on=False),
]
PLAN = {"title": 'A "trip\n', "stops": [{"name": "Oslo", "days": 2}, {"best friend": None}], "tags": [[True]]}


async def test_arguments_in_pieces_are_streamed_as_they_come(server: Server) -> None:
    told = [*[gemini_answer(each, finish=None) for each in PIECES], gemini_answer(ADD)]
    server.answers[:] = [Answer(pieces=gemini_stream(*told))]
    heard = await hear(made(server), REQUEST)
    response = response_of(heard)
    plan, add = response.tool_calls
    assert (plan.id, plan.name, json.loads(plan.arguments)) == ("1", "plan", PLAN)
    assert (add.name, response.stop_reason) == ("add", "tool_use")
    deltas = [event for event in heard if isinstance(event, ArgumentsDelta)]
    for index, call in enumerate(response.tool_calls):
        assert "".join([each.text for each in deltas if each.index == index]) == call.arguments
    assert [each.text for each in deltas][:4] == ['{"title": "A \\"tr', "ip\\n", '"', ', "stops": [{"name": "Oslo"']


@pytest.mark.parametrize("count", range(1, len(PIECES)))
async def test_a_call_whose_pieces_end_early_is_cut_off(server: Server, count: int) -> None:
    told = [*[gemini_answer(each, finish=None) for each in PIECES[:count]], gemini_answer()]
    server.answers[:] = [Answer(pieces=gemini_stream(*told))]
    response = response_of(await hear(made(server), REQUEST))
    assert response.stop_reason == "max_tokens"
    assert response.unfinished_calls == response.tool_calls


@pytest.mark.parametrize(
    ("first", "second"),
    [("$.a", "$.a"), ("$.a.b", "$.a"), ("$.a", "$.a.b"), ("$.a[0]", "$.a[2]"), ("$.a[0]", "$.a.b"), ("$.a", "$.b[1]")],
)
async def test_pieces_that_go_back_are_refused(server: Server, first: str, second: str) -> None:
    called = partial_call(piece(first, numberValue=1), piece(second, numberValue=2), name="f", goes_on=False)
    server.answers[:] = [Answer(gemini_answer(called))]
    with pytest.raises(BadResponseError, match="out of order"):
        await generate(made(server), REQUEST)


def make_value(script: random.Random, depth: int) -> Any:
    kind = script.randrange(6 if depth else 4)
    if kind == 4:
        names = script.sample(["a", "b c", "d.e", "f[0]", "g'", "ö"], script.randint(1, 3))
        return {name: make_value(script, depth - 1) for name in names}
    if kind == 5:
        return [make_value(script, depth - 1) for _ in range(script.randint(1, 3))]
    return [script.choice(["", 'x "y"\n', "Grüße 🦉"]), script.randint(-5, 5) / 2, script.random() < 0.5, None][kind]


def cut_value(script: random.Random, value: Any, path: str = "$") -> Iterator[dict[str, Any]]:
    """The pieces of a value; a text may come in several."""
    if isinstance(value, dict):
        for name, member in cast("dict[str, Any]", value).items():
            step = json.dumps(name) if script.random() < 0.5 else "'{}'".format(name.replace("'", "\\'"))
            yield from cut_value(script, member, f"{path}[{step}]")
    elif isinstance(value, list):
        for index, member in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from cut_value(script, member, f"{path}[{index}]")
    elif isinstance(value, str):
        cut = script.randint(0, len(value))
        if script.random() < 0.5:
            yield piece(path, stringValue=value[:cut], willContinue=True)
            value = value[cut:]
        yield piece(path, stringValue=value)
    elif isinstance(value, bool):
        yield piece(path, boolValue=value)
    else:
        yield piece(path, nullValue="NULL_VALUE") if value is None else piece(path, numberValue=value)


def test_whatever_arguments_come_in_pieces_are_what_they_were() -> None:
    for seed in range(300):
        script = random.Random(seed)
        value = {name: make_value(script, 3) for name in script.sample(["a", "b", "c"], script.randint(1, 3))}
        arguments = PartialArguments()
        text = "".join([arguments.write(each) for each in cut_value(script, value)]) + arguments.finish()
        assert json.loads(text) == value, (seed, value, text)


async def test_googles_own_tools_stand_beside_functions(server: Server) -> None:
    tool = ToolDefinition(name="add", description="Add.", parameters=PARAMETERS)
    options: GenerateContentConfigDict = {"tools": [{"google_search": {}}]}
    used = {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1"}
    called = [{"toolCall": {**used, "args": {"queries": ["x"]}}}, {"toolResponse": {**used, "response": {"r": 1}}}]
    server.answers[:] = [Answer(gemini_answer(*called, ADD)), Answer(gemini_answer(HELLO))]
    async with made(server, options=options) as provider:
        request = ChatRequest(messages=[UserMessage("Hi")], tools=[tool])
        answer = await provider.generate(request)
        assert (answer.stop_reason, answer.unanswered) == ("tool_use", ())
        messages = [*request.messages, answer.message, ToolResult("1", "3", tool_name="add")]
        await provider.generate(ChatRequest(messages=messages, tools=[tool]))
    first, second = server.requests
    assert first["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert [next(iter(each)) for each in first["tools"]] == ["googleSearch", "functionDeclarations"]
    assert second["contents"][1]["parts"][:2] == called


async def test_an_older_model_is_not_sent_the_flag(server: Server) -> None:
    tool = ToolDefinition(name="add", description="Add.", parameters=PARAMETERS)
    options: GenerateContentConfigDict = {"tools": [{"google_search": {}}]}
    async with GoogleProvider("gemini-2.5-flash", api_key=SECRET, base_url=server.root, options=options) as provider:
        await provider.generate(ChatRequest(messages=[UserMessage("Hi")], tools=[tool]))
    assert "toolConfig" not in server.requests[0]
