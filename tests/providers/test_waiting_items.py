"""What vendors' replies hold beside words and calls: known by kind, named where it waits, sent back as it came."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from anthropic.types import ContentBlock, StopReason
from anthropic.types.beta import BetaContentBlock, BetaStopReason
from google.genai.types import FinishReason, Part
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseOutputItem
from openai.types.responses.response import IncompleteDetails

from tests.providers.loopback import chunk, completion, events
from tests.providers.vendor_answers import anthropic_message, anthropic_stream, block_events, gemini_answer
from toolkit import (
    Abort,
    ApprovalRequest,
    Approve,
    Deny,
    Provider,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    tool,
    tool_loop,
)
from toolkit.calls.events import TOOL_EVENTS
from toolkit.endings import Complete
from toolkit.events import (
    ApprovalRequested,
    LoopEvent,
    ToolCallRefused,
    ToolCallRepaired,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.providers.openai.responses import MESSAGE_ITEMS, SETTLED, WAITING, find_unanswered
from toolkit.testing import check_transcript
from toolkit.testing.loopback import Answer, Server, serving

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@pytest.fixture
def server() -> Iterator[Server]:
    RAN.clear()
    with serving() as running:
        yield running


@tool
def delete_files(pattern: str = "*") -> str:
    """Delete files."""
    RAN.append(pattern)
    return "done"


def kinds_in(union: Any) -> set[str]:
    """The literals of ``type`` of all models in a union, or the literals themselves."""
    if get_origin(union) is Annotated:
        return kinds_in(get_args(union)[0])
    if get_origin(union) is Literal:
        return {word for word in get_args(union) if word is not None}
    if get_origin(union) in (Union, UnionType):
        return {kind for member in get_args(union) for kind in kinds_in(member)}
    if hasattr(union, "model_fields"):
        return kinds_in(union.model_fields["type"].annotation)
    return set()


def test_each_item_of_a_response_that_the_sdk_knows_is_of_one_kind() -> None:
    assert kinds_in(ResponseOutputItem) == MESSAGE_ITEMS | SETTLED | WAITING
    assert len(MESSAGE_ITEMS) + len(SETTLED) + len(WAITING) == len(MESSAGE_ITEMS | SETTLED | WAITING)


def test_each_reason_of_openai_to_stop_early_is_known() -> None:
    assert kinds_in(IncompleteDetails.model_fields["reason"].annotation) == {
        *("max_output_tokens", "content_filter"),  # words of ours
        *("max_messages", "steered"),  # whole, but for a call
    }
    assert set(ChatCompletionMessage.model_fields) == {
        *("role", "content", "refusal", "audio", "tool_calls", "function_call"),  # read
        "annotations",  # what web search found, in the text already
    }


def test_each_block_of_anthropic_that_the_sdk_knows_is_of_one_kind() -> None:
    assert kinds_in(BetaContentBlock) | kinds_in(ContentBlock) == {
        *("text", "thinking", "tool_use"),  # words of ours
        *("redacted_thinking", "compaction", "container_upload", "fallback", "mcp_tool_listing"),  # sealed
        *("server_tool_use", "mcp_tool_use"),  # calls of tools at Anthropic's
        *("web_search_tool_result", "web_fetch_tool_result", "advisor_tool_result", "code_execution_tool_result"),
        *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result"),
        "mcp_tool_result",
    }
    assert kinds_in(BetaStopReason) | kinds_in(StopReason) == {
        *("end_turn", "tool_use", "stop_sequence", "refusal"),
        *("max_tokens", "model_context_window_exceeded", "pause_turn", "compaction"),  # cut off
    }


def test_each_part_of_gemini_that_the_sdk_knows_is_of_one_kind() -> None:
    assert {name for name in Part.model_fields if name.endswith("_call")} == {
        "function_call",  # waits for us
        "tool_call",  # of a tool at Google's
    }
    assert {reason.value for reason in FinishReason} == {
        *("STOP", "MAX_TOKENS", "CONTINUATION"),
        *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"),
        *("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION", "MODEL_ARMOR"),  # a filter
        *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"),
        *("MISSING_THOUGHT_SIGNATURE", "PUP_LIMITED_DISABLED"),  # errors
        *("OTHER", "FINISH_REASON_UNSPECIFIED", "IMAGE_OTHER", "NO_IMAGE"),  # whole, but for a call
    }


@pytest.mark.parametrize(
    ("items", "waiting"),
    [
        ([{"type": "shell_call", "call_id": "c"}, {"type": "shell_call_output", "call_id": "c"}], []),
        ([{"type": "shell_call", "call_id": "c", "environment": {"type": "container_reference"}}], []),
        ([{"type": "shell_call", "call_id": "c", "environment": {"type": "local"}}], ["c"]),
        ([{"type": "tool_search_call", "execution": "server", "call_id": None, "id": "t"}], []),
        ([{"type": "tool_search_call", "call_id": "c"}], ["c"]),
        ([{"type": "tool_search_call", "id": "t"}], []),
        ([{"type": "program", "call_id": "p"}], ["p"]),
        ([{"type": "program", "call_id": "p"}, {"type": "program_output", "call_id": "p"}], []),
        ([{"type": "program", "call_id": "p"}, {"type": "function_call", "caller": {"caller_id": "p"}}], []),
        ([{"type": "program", "call_id": "p"}, {"type": "function_call", "caller": {"caller_id": "q"}}], ["p"]),
        ([{"type": "mcp_approval_request", "id": "r"}, {"type": "mcp_call", "approval_request_id": "r"}], []),
        ([{"type": "web_search_call", "id": "w"}, {"type": "mcp_call", "id": "m"}], []),
        ([{"type": "hologram_call", "call_id": "c"}], ["c"]),
        ([{"type": "hologram_call", "call_id": "c"}, {"type": "hologram_call_output", "call_id": "c"}], []),
        ([{"type": "hologram_call", "id": "h", "status": "completed"}], []),
        ([{"type": "consent_request", "id": "r"}], ["r"]),
        ([{"type": ["no", "text"], "call_id": {"no": "text"}}, {}], [""]),
    ],
)
def test_an_item_waits_unless_its_answer_stands_beside_it(items: list[dict[str, Any]], waiting: list[str]) -> None:
    assert [item.id for item in find_unanswered(items)] == waiting


# replies that were cut off


def responses_body(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": list(output), **fields}


def function_call(arguments: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": "delete_files", "arguments": arguments, **fields}


def chat_call(arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "c", "type": "function", "function": {"name": "delete_files", "arguments": arguments}}


def use(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": "c", "name": "delete_files", "input": value}


def gemini_call(value: dict[str, Any] | None) -> dict[str, Any]:
    arguments = {} if value is None else {"args": value}
    return {"functionCall": {"id": "c", "name": "delete_files", **arguments}}


def anthropic_pieces(reason: str, *pieces: str) -> list[bytes]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return anthropic_stream(block_events(0, use({}), *deltas), stop_reason=reason)


def told(*stream: dict[str, Any]) -> list[bytes]:
    return events(*stream, is_done=False)


HALF = '{"pattern": "a'
CUT_CHAT = [
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "model_length",
    "error",
    "network_error",
    "insufficient_system_resource",
]
NO_ARGUMENTS: tuple[dict[str, Any] | None, ...] = (None, {})
INCOMPLETE: dict[str, dict[str, Any]] = {
    "max_output_tokens": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    "steered": {"status": "incomplete", "incomplete_details": {"reason": "steered"}},
    "a new word": {"status": "incomplete", "incomplete_details": {"reason": "hologram"}},
    "no details": {"status": "incomplete"},
    "details alone": {"incomplete_details": {"reason": "max_output_tokens"}},
}

CUT: dict[str, tuple[str, Answer]] = {
    **{
        f"chat, {reason}, {arguments!r}": (
            "chat",
            Answer(completion(None, finish_reason=reason, tool_calls=[chat_call(arguments)])),
        )
        for reason in CUT_CHAT
        for arguments in ("", "{}", HALF)
    },
    **{
        f"chat in pieces, {arguments!r}": (
            "chat",
            Answer(pieces=events(chunk({"tool_calls": [chat_call(arguments)]}), chunk({}, finish_reason="length"))),
        )
        for arguments in ("", "{}", HALF)
    },
    "chat, the old field": (
        "chat",
        Answer(completion(None, finish_reason="length", function_call={"name": "delete_files", "arguments": ""})),
    ),
    **{
        f"responses, {name}, {arguments!r}": ("responses", Answer(responses_body(function_call(arguments), **fields)))
        for arguments in ("", "{}", HALF)
        for name, fields in INCOMPLETE.items()
    },
    "responses, an incomplete item": ("responses", Answer(responses_body(function_call("{}", status="incomplete")))),
    **{
        f"responses in pieces, {arguments!r}": (
            "responses",
            Answer(
                pieces=told(
                    {"type": "response.output_item.done", "output_index": 0, "item": function_call(arguments)},
                    {"type": "response.incomplete", "response": {"id": "r", "model": "m"}},
                )
            ),
        )
        for arguments in ("", "{}", HALF)
    },
    **{
        f"anthropic, {reason}": ("anthropic", Answer(anthropic_message(use({}), stop_reason=reason)))
        for reason in ("max_tokens", "model_context_window_exceeded", "pause_turn")
    },
    **{
        f"anthropic in pieces, {reason}, {pieces}": ("anthropic", Answer(pieces=anthropic_pieces(reason, *pieces)))
        for reason in ("max_tokens", "model_context_window_exceeded", "pause_turn")
        for pieces in ((), ("",), ("{}",), ('{"patt', 'ern": "a'))
    },
    **{
        f"google, {reason}, {value}": ("google", Answer(gemini_answer(gemini_call(value), finish=reason)))
        for reason in ("MAX_TOKENS", "CONTINUATION", "OTHER", "MALFORMED_FUNCTION_CALL")
        for value in NO_ARGUMENTS
    },
    "google in pieces": (
        "google",
        Answer(pieces=told(gemini_answer(gemini_call(None), finish=None), gemini_answer(finish="MAX_TOKENS"))),
    ),
}
END = {
    "chat": Answer(completion("Done.")),
    "responses": Answer(
        responses_body({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]})
    ),
    "anthropic": Answer(anthropic_message({"type": "text", "text": "Done."})),
    "google": Answer(gemini_answer({"text": "Done."})),
}
END_IN_PIECES = {
    "chat": Answer(pieces=events(chunk({"content": "Done."}), chunk({}, finish_reason="stop"))),
    "responses": Answer(pieces=told({"type": "response.completed", "response": END["responses"].body})),
    "anthropic": Answer(pieces=anthropic_stream(block_events(0, {"type": "text", "text": "Done."}))),
    "google": Answer(pieces=told(gemini_answer({"text": "Done."}))),
}


def provider_of(format_: str, server: Server) -> Provider:
    match format_:
        case "chat":
            return OpenAIProvider("m", base_url=server.url)
        case "responses":
            return OpenAIResponsesProvider("m", base_url=server.url)
        case "anthropic":
            return AnthropicProvider("m", base_url=server.root)
        case _:
            return GoogleProvider("gemini-2.5-m", base_url=server.root)


async def run(format_: str, server: Server, *answers: Answer) -> ToolLoopResult:
    streams = answers[0].pieces is not None
    server.answers[:] = [*answers, (END_IN_PIECES if streams else END)[format_]]
    provider: Any = provider_of(format_, server)
    async with provider:
        result = await tool_loop(provider, ToolRegistry([delete_files]), "Go", config=ToolLoopConfig(stream=streams))
    check_transcript(result.messages)
    return result


@pytest.mark.parametrize("name", CUT)
async def test_no_adapter_lets_a_call_run_that_was_cut_off(server: Server, name: str) -> None:
    format_, answer = CUT[name]
    result = await run(format_, server, answer)
    assert RAN == []
    assert ["cut off before its arguments were complete" in m.text for m in result.messages if m.role == "tool"] == [
        True
    ]
    assert (result.text, result.reason) == ("Done.", Complete())


WHOLE: dict[str, tuple[str, Answer]] = {
    "chat": ("chat", Answer(completion(None, finish_reason="length", tool_calls=[chat_call('{"pattern": "a"}')]))),
    "responses": ("responses", Answer(responses_body(function_call('{"pattern": "a"}'), status="incomplete"))),
    "anthropic": ("anthropic", Answer(anthropic_message(use({"pattern": "a"}), stop_reason="max_tokens"))),
    "anthropic in pieces": ("anthropic", Answer(pieces=anthropic_pieces("max_tokens", '{"patt', 'ern": "a"}'))),
    "google": ("google", Answer(gemini_answer(gemini_call({"pattern": "a"}), finish="MAX_TOKENS"))),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_call_that_a_cut_reply_said_whole_runs(server: Server, name: str) -> None:
    await run(WHOLE[name][0], server, WHOLE[name][1])
    assert RAN == ["a"]


async def test_what_a_tool_at_anthropic_was_not_told_whole_is_left_out(server: Server) -> None:
    began: dict[str, Any] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    half = block_events(0, began, {"type": "input_json_delta", "partial_json": '{"query": "o'})
    result = await run("anthropic", server, Answer(pieces=anthropic_stream(half, stop_reason="max_tokens")))
    assert result.response is not None
    assert result.response.message.content == ()


# what goes back

BOX = {"id": "box_1", "expires_at": "2026-11-21T12:00:00Z"}
CODE = {"type": "code_execution_20250825", "tool_id": "s"}


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_the_container_is_sent_back_after_every_reply(server: Server, streams: bool) -> None:
    call = use({"pattern": "a"})
    if streams:
        first = Answer(pieces=anthropic_stream(block_events(0, call), stop_reason="tool_use", container=BOX))
    else:
        first = Answer(anthropic_message(call, stop_reason="tool_use", container=BOX))
    second = Answer(anthropic_message({**call, "id": "d"}, stop_reason="tool_use"))
    if streams:
        second = Answer(pieces=anthropic_stream(block_events(0, {**call, "id": "d"}), stop_reason="tool_use"))
    await run("anthropic", server, first, second)
    assert [request.get("container") for request in server.requests] == [None, "box_1", "box_1"]
    for request in server.requests:
        assert all(block.get("type") for turn in request["messages"] for block in turn["content"])


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, "box_1"),
        ({"container": "mine"}, "mine"),
        ({"container": None}, None),
        ({"container": {"skills": []}}, {"id": "box_1", "skills": []}),
        ({"container": {"id": "mine", "skills": []}}, {"id": "mine", "skills": []}),
    ],
)
async def test_options_go_before_the_container_of_the_transcript(
    server: Server, options: dict[str, Any], sent: object
) -> None:
    server.answers[:] = [Answer(anthropic_message(use({"pattern": "a"}), stop_reason="tool_use", container=BOX))]
    server.answers.append(END["anthropic"])
    async with AnthropicProvider("m", base_url=server.root, options=options) as provider:
        await tool_loop(provider, ToolRegistry([delete_files]), "Go")
    assert server.requests[1].get("container") == sent


@pytest.mark.parametrize("caller", [{"type": "program", "caller_id": "p"}, {"type": "direct"}])
async def test_the_result_of_a_call_names_its_caller(server: Server, caller: dict[str, Any]) -> None:
    program = {"type": "program", "id": "i", "call_id": "p", "code": "", "fingerprint": "f"}
    call = function_call('{"pattern": "a"}', caller=caller)
    other = function_call('{"pattern": "b"}', call_id="d")
    items = [program, call, other] if caller["type"] == "program" else [call, other]
    result = await run("responses", server, Answer(responses_body(*items)))
    assert result.reason == Complete()
    outputs = [item for item in server.requests[1]["input"] if item["type"] == "function_call_output"]
    assert [output.get("caller") for output in outputs] == [caller, None]
    sent = [item for item in server.requests[1]["input"] if item["type"] in ("program", "function_call")]
    assert [item["type"] for item in sent] == [item["type"] for item in items]


async def test_a_call_in_the_old_field_of_completions_is_answered(server: Server) -> None:
    old = {"name": "delete_files", "arguments": '{"pattern": "a"}'}
    whole = Answer(completion(None, finish_reason="function_call", function_call=old))
    assert (await run("chat", server, whole)).reason == Complete()
    pieces = [chunk({"function_call": {"name": "delete_files", "arguments": ""}})]
    pieces += [chunk({"function_call": {"arguments": text}}) for text in ('{"pattern"', ': "a"}')]
    await run("chat", server, Answer(pieces=events(*pieces, chunk({}, finish_reason="function_call"))))
    assert RAN == ["a", "a"]


async def test_a_call_of_gemini_without_a_name_is_answered_too(server: Server) -> None:
    result = await run("google", server, Answer(gemini_answer({"functionCall": {}})))
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_servers_that_anthropic_calls_are_options_with_their_beta(server: Server) -> None:
    servers = [{"type": "url", "name": "notes", "url": "https://mcp.example.com"}]
    used: dict[str, Any] = {
        "type": "mcp_tool_use",
        "id": "m",
        "name": "find",
        "server_name": "notes",
        "input": {},
    }
    found = {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "x"}]}
    first = anthropic_message(use({"pattern": "a"}), stop_reason="tool_use")
    server.answers[:] = [Answer({**first, "content": [used, found, *first["content"]]}), END["anthropic"]]
    options: Any = {"mcp_servers": servers, "tools": [{"type": "mcp_toolset", "mcp_server_name": "notes"}]}
    async with AnthropicProvider("m", base_url=server.root, options=options) as provider:
        result = await tool_loop(provider, ToolRegistry([delete_files]), "Go")
    assert result.reason == Complete()
    assert server.headers[0]["anthropic-beta"] == "mcp-client-2025-11-20"
    assert server.requests[0]["mcp_servers"] == servers
    assert server.requests[1]["messages"][1]["content"][:2] == [used, found]


@pytest.mark.parametrize("format_", ["responses", "anthropic"])
@pytest.mark.parametrize("decision", [Approve(), Deny("no"), Abort("no more")], ids=lambda each: type(each).__name__)
async def test_a_call_by_code_names_its_program_in_each_event(
    server: Server, format_: str, decision: Approve | Deny | Abort
) -> None:
    misspelt = {"name": "deleteFiles"}
    if format_ == "responses":
        program = {"type": "program", "id": "i", "call_id": "p", "code": "", "fingerprint": "f"}
        call = function_call('{"pattern": "a"}', caller={"type": "program", "caller_id": "p"})
        server.answers[:] = [Answer(responses_body(program, {**call, **misspelt})), END[format_]]
    else:
        call = {**use({"pattern": "a"}), "caller": {**CODE, "tool_id": "p"}}
        server.answers[:] = [Answer(anthropic_message({**call, **misspelt})), END[format_]]
    heard: list[LoopEvent] = []
    asked: list[str] = []

    async def decide(request: ApprovalRequest) -> Approve | Deny | Abort:
        asked.append(request.original.program)
        return decision

    provider: Any = provider_of(format_, server)
    async with provider:
        config = ToolLoopConfig(on_tool_call=decide, on_event=heard.append, stream=False)
        result = await tool_loop(provider, ToolRegistry([delete_files]), "Go", config=config)
    calls = [call for message in result.messages if message.role == "assistant" for call in message.tool_calls]
    assert ([call.program for call in calls], asked) == (["p"], ["p"])
    of_calls: list[Any] = [event for event in heard if type(event) in TOOL_EVENTS]
    ends = [ToolExecutionStart, ToolExecutionEnd] if isinstance(decision, Approve) else [ToolCallRefused]
    assert [type(event) for event in of_calls] == [ToolCallRepaired, ApprovalRequested, *ends]
    assert [event.program for event in of_calls] == ["p"] * len(of_calls)
    assert ["a"] * isinstance(decision, Approve) == RAN
