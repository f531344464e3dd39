"""Tools that vendors define and the application runs: offered as the vendor's, called and answered in its items."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage, ToolResultBlockParam, ToolUnionParam, ToolUseBlockParam
from openai.types.responses import ResponseInputItemParam, ResponseOutputItem, ToolParam
from pydantic import TypeAdapter

from tests.providers.loopback import Answer, serving
from tests.providers.vendor_answers import anthropic_message, anthropic_stream, block_events
from toolkit import (
    Approve,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Deny,
    Message,
    Provider,
    ProviderError,
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.builtin import BashOptions, apply_patch_tool, bash_tool, memory_tool, text_editor_tool
from toolkit.chat import ArgumentsDelta, ImageBlock, ResponseDone, VendorTool
from toolkit.chat.provider import closing
from toolkit.endings import Complete, UnansweredItems
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.anthropic.encode import MessagesEncoder
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.providers.openai.chat import ChatEncoder
from toolkit.providers.openai.responses import ResponsesEncoder
from toolkit.providers.servers import SERVERS
from toolkit.testing import check_transcript
from toolkit.testing.loopback import Server

pytestmark = pytest.mark.anyio
Body = dict[str, Any]
PICTURE = ImageBlock(b"\x89PNG", media_type="image/png")
DONE: list[Any] = []


@tool(native_as="computer")
def use_computer(
    actions: list[dict[str, Any]], pending_safety_checks: list[dict[str, Any]] | None = None
) -> ImageBlock:
    """Use the computer."""
    DONE.append((actions, pending_safety_checks))
    if actions[0].get("type") == "keypress":
        raise ValueError("the keyboard is locked")
    return PICTURE


@tool(native_as="browser")
def use_browser(actions: list[Body]) -> str:
    """Use the browser."""
    DONE.append(actions)
    return "The page is open."


@pytest.fixture
def server() -> Iterator[Server]:
    DONE.clear()
    with serving() as running:
        yield running


@pytest.fixture
def registry(tmp_path: Path) -> ToolRegistry[Any]:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    shell = ToolRegistry([bash_tool(tmp_path, BashOptions(confirm=lambda command: "rm" not in command))])
    files = [apply_patch_tool(tmp_path), text_editor_tool(tmp_path), memory_tool(tmp_path)]
    return shell.configured(native_as="shell") | ToolRegistry([*files, use_computer, use_browser])


def responses_stream(*items: Body) -> list[bytes]:
    """The stream of these items, one event a piece; of a call of OpenAI's own the whole stands at its end alone."""
    told: list[Body] = []
    for index, item in enumerate(items):
        began = {name: value for name, value in item.items() if name not in ("action", "operation", "actions")}
        told.append({"type": "response.output_item.added", "output_index": index, "item": began})
        if item["type"] == "shell_call":
            told.append({"type": "response.shell_call_command.added", "output_index": index, "command": "ls"})
        told.append({"type": "response.output_item.done", "output_index": index, "item": item})
    told.append({"type": "response.completed", "response": {"id": "r", "model": "m", "output": list(items)}})
    return [b"data: " + json.dumps(each).encode() + b"\n\n" for each in told]


def message_stream(*blocks: Body) -> list[bytes]:
    """The stream of these blocks; inputs come in two pieces."""
    told: list[list[Body]] = []
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            told.append(block_events(index, block))
            continue
        text = json.dumps(block["input"])
        halves = [{"type": "input_json_delta", "partial_json": part} for part in (text[:9], text[9:])]
        told.append(block_events(index, {**block, "input": {}}, *halves))
    return anthropic_stream(*told, stop_reason="end_turn" if blocks[0]["type"] == "text" else "tool_use")


class OpenAI:
    """How OpenAI words calls, and reads what answers them."""

    def provider(self, server: Server) -> Provider:
        return OpenAIResponsesProvider("gpt-5", base_url=server.url, server=SERVERS["openai"], api_key="k")

    def answer(self, *items: Body, streams: bool) -> Answer:
        for item in items:
            TypeAdapter[Any](ResponseOutputItem).validate_python({"id": "i", **item})
        body = {"id": "r", "status": "completed", "model": "m", "output": list(items)}
        return Answer(pieces=responses_stream(*items)) if streams else Answer(body)

    def end(self, *, streams: bool) -> Answer:
        part: Body = {"type": "output_text", "text": "Done.", "annotations": []}
        item: Body = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        return self.answer(item, streams=streams)

    def told(self, body: Body) -> list[Body]:
        for item in body["input"]:
            TypeAdapter[Any](ResponseInputItemParam).validate_python(item)
        outputs: list[Body] = body["input"][2:]
        return outputs


class Anthropic:
    """How Anthropic words calls, and reads what answers them."""

    def provider(self, server: Server) -> Provider:
        return AnthropicProvider("claude-sonnet-5", base_url=server.root)

    def answer(self, *items: Body, streams: bool) -> Answer:
        if streams:
            return Answer(pieces=message_stream(*items))
        reason = "end_turn" if items[0]["type"] == "text" else "tool_use"
        body = anthropic_message(*items, stop_reason=reason)
        AnthropicMessage.model_validate(body)
        return Answer(body)

    def end(self, *, streams: bool) -> Answer:
        return self.answer({"type": "text", "text": "Done."}, streams=streams)

    def told(self, body: Body) -> list[Body]:
        results: list[Body] = body["messages"][2]["content"]
        for block in body["messages"][1]["content"]:
            TypeAdapter[Any](ToolUseBlockParam).validate_python(block)
        for block in results:
            TypeAdapter[Any](ToolResultBlockParam).validate_python(block)
        return results


def shell_call(*commands: str, **action: Any) -> Body:
    called = {"commands": list(commands), **action}
    return {"type": "shell_call", "id": "sh_1", "call_id": "c1", "status": "completed", "action": called}


def patch_call(**operation: str) -> Body:
    return {"type": "apply_patch_call", "id": "p", "call_id": "c1", "status": "completed", "operation": operation}


def computer_call(*actions: Body, checks: tuple[Body, ...] = ()) -> Body:
    call = {"type": "computer_call", "id": "cc", "call_id": "c1", "status": "completed", "actions": list(actions)}
    return {**call, "pending_safety_checks": list(checks)}


def use(name: str, /, toolset: str | None = None, **given: Any) -> Body:
    block = {"type": "tool_use", "id": "c1", "name": name, "input": given, "caller": {"type": "direct"}}
    return {**block, "toolset_name": toolset} if toolset else block


def exited(code: int, text: str) -> Body:
    return {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": code}}


SCREEN = {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw=="}
CHECK = {"id": "s1", "code": "malicious", "message": "Is this meant?"}
EDITOR = "str_replace_based_edit_tool"

# A call in the vendor's words; the name and the arguments that it is here; what the vendor is told of its result.
CALLS: dict[str, tuple[OpenAI | Anthropic, Body, str, Body, Body]] = {
    "shell": (
        OpenAI(),
        shell_call("echo a", "cat a.txt; exit 3", timeout_ms=9000, max_output_length=99),
        "bash",
        {"command": "echo a\ncat a.txt; exit 3", "timeout": 9.0},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [exited(3, "a\none\ntwo\nExit code: 3")],
            "max_output_length": 99,
        },
    ),
    "shell in a program": (
        OpenAI(),
        {**shell_call("echo a"), "caller": {"type": "program", "caller_id": "prog_1"}},
        "bash",
        {"command": "echo a"},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [exited(0, "a")],
            "caller": {"type": "program", "caller_id": "prog_1"},
        },
    ),
    "patch": (
        OpenAI(),
        patch_call(type="update_file", path="a.txt", diff="@@\n one\n-two\n+2\n"),
        "apply_patch",
        {"type": "update_file", "path": "a.txt", "diff": "@@\n one\n-two\n+2\n"},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "Changed a.txt"},
    ),
    "computer": (
        OpenAI(),
        computer_call({"type": "click", "button": "left", "x": 1, "y": 2}, checks=(CHECK,)),
        "use_computer",
        {"actions": [{"type": "click", "button": "left", "x": 1, "y": 2}], "pending_safety_checks": [CHECK]},
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": SCREEN,
            "acknowledged_safety_checks": [CHECK],
        },
    ),
    "anthropic's bash": (
        Anthropic(),
        use("bash", command="echo a"),
        "bash",
        {"command": "echo a"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "a"},
    ),
    "anthropic's editor": (
        Anthropic(),
        use(EDITOR, command="view", path="a.txt"),
        "text_editor",
        {"command": "view", "path": "a.txt"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "[2 lines]\n   1 | one\n   2 | two"},
    ),
    "anthropic's memory": (
        Anthropic(),
        use("memory", command="view", path="/memories"),
        "memory",
        {"command": "view", "path": "/memories"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "[The folder is empty.]"},
    ),
    "anthropic's computer": (
        Anthropic(),
        use("left_click", "computer", coordinate=[1, 2]),
        "use_computer",
        {"actions": [{"type": "left_click", "coordinate": [1, 2]}]},
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}],
            "toolset_name": "computer",
        },
    ),
    "anthropic's browser": (
        Anthropic(),
        use("navigate", "browser", url="https://example.com"),
        "use_browser",
        {"actions": [{"type": "navigate", "url": "https://example.com"}]},
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": "The page is open.",
            "toolset_name": "browser",
        },
    ),
}


def approve(_: object) -> Approve:
    return Approve()


def deny(_: object) -> Deny:
    return Deny("no")


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    assert isinstance(message, AssistantMessage)
    return message.tool_calls


def list_below(folder: Path) -> list[Path]:
    return [*folder.rglob("*")]


async def run(
    vendor: OpenAI | Anthropic, server: Server, tools: ToolRegistry[Any], item: Body, *, streams: bool, **settings: Any
) -> ToolLoopResult:
    server.answers[:] = [vendor.answer(item, streams=streams), vendor.end(streams=streams)]
    provider: Any = vendor.provider(server)
    async with provider:
        config = ToolLoopConfig[Any](stream=streams, **settings)
        result = await tool_loop(provider, tools, "Go", config=config)
    check_transcript(result.messages)
    return result


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_of_a_vendors_tool_runs_ours_and_is_answered_in_its_words(
    server: Server, registry: ToolRegistry[Any], name: str, streams: bool
) -> None:
    vendor, item, tool_name, arguments, told = CALLS[name]
    result = await run(vendor, server, registry, item, streams=streams, on_tool_call=approve)
    (call,) = calls_of(result.messages[1])
    assert (call.name, json.loads(call.arguments)) == (tool_name, arguments)
    assert (result.text, result.reason) == ("Done.", Complete())
    (answer,) = vendor.told(server.requests[1])
    assert answer == told
    sent = server.requests[1]
    back = sent["input"][1] if "input" in sent else sent["messages"][1]["content"][0]
    assert back == {key: value for key, value in item.items() if value != {"type": "direct"}}


@pytest.mark.parametrize("name", CALLS)
async def test_a_stream_that_breaks_off_at_any_event_runs_nothing(
    server: Server, registry: ToolRegistry[Any], name: str
) -> None:
    vendor, item, *_ = CALLS[name]
    whole = vendor.answer(item, streams=True).pieces
    assert whole is not None
    request = ChatRequest(messages=[UserMessage("Go")], tools=registry.definitions())
    server.answers[:] = [Answer(pieces=whole[:end]) for end in range(len(whole) - 2)] + [Answer(pieces=whole)]
    provider: Any = vendor.provider(server)
    async with provider:
        for _ in range(len(whole) - 2):
            with pytest.raises(ProviderError):
                async with closing(provider.stream(request)) as events:
                    assert not [event async for event in events if isinstance(event, ResponseDone)]
        async with closing(provider.stream(request)) as events:
            heard = [event async for event in events]
    assert isinstance(heard[-1], ResponseDone)
    (call,) = heard[-1].response.tool_calls
    deltas = [event for event in heard if isinstance(event, ArgumentsDelta)]
    assert "".join([event.text for event in deltas]) == call.arguments
    assert {(event.call_id, event.tool_name) for event in deltas} == {(call.id, call.name)}


async def test_each_vendor_is_offered_its_own_tools_and_the_others_as_functions(registry: ToolRegistry[Any]) -> None:
    request = ChatRequest(messages=[UserMessage("Hi")], tools=registry.definitions())
    responses = json.loads(ResponsesEncoder(model="gpt-5", defaults={}).encode(request, streams=False))["tools"]
    assert [each.get("name") or each["type"] for each in responses] == [
        *("shell", "apply_patch", "text_editor", "memory", "computer", "use_browser")
    ]
    assert responses[0] == {"type": "shell", "environment": {"type": "local"}}
    for each in responses:
        TypeAdapter[Any](ToolParam).validate_python(each)
    messages = json.loads(MessagesEncoder(model="m", defaults={}).encode(request, streams=False))["tools"]
    assert [each["type"] for each in messages if "type" in each] == [
        *("bash_20250124", "text_editor_20250728", "memory_20250818"),
        *("computer_toolset_20260801", "browser_toolset_20260801"),
    ]
    assert [each.get("name") for each in messages] == ["bash", "apply_patch", EDITOR, "memory", None, None]
    for each in messages:
        TypeAdapter[Any](ToolUnionParam).validate_python(each)
    for encoder in (ChatEncoder(model="m", defaults={}), ResponsesEncoder(model="gpt-4.1", defaults={})):
        offered = json.loads(encoder.encode(request, streams=False))["tools"]
        assert [(each.get("function") or each)["name"] for each in offered] == [*registry.names]


@pytest.mark.parametrize(
    ("name", "responses", "anthropic"),
    [
        ("bash", {"type": "shell"}, {"type": "tool", "name": "bash"}),
        ("apply_patch", {"type": "apply_patch"}, {"type": "tool", "name": "apply_patch"}),
        ("text_editor", {"type": "function", "name": "text_editor"}, {"type": "tool", "name": EDITOR}),
    ],
)
async def test_a_forced_call_names_the_vendors_tool(
    registry: ToolRegistry[Any], name: str, responses: Body, anthropic: Body
) -> None:
    request = ChatRequest(messages=[UserMessage("Hi")], tools=registry.definitions(), tool_choice=name)
    body = json.loads(ResponsesEncoder(model="gpt-5", defaults={}).encode(request, streams=False))
    assert body["tool_choice"] == responses
    body = json.loads(MessagesEncoder(model="m", defaults={}).encode(request, streams=False))
    assert body["tool_choice"] == anthropic


async def test_permissions_and_approvals_hold_for_the_calls_of_vendors_tools(
    server: Server, registry: ToolRegistry[Any], tmp_path: Path
) -> None:
    await run(OpenAI(), server, registry, shell_call("rm a.txt"), streams=False)
    (told,) = OpenAI().told(server.requests[1])
    assert told["output"][0]["outcome"] == {"type": "exit", "exit_code": 1}
    assert told["output"][0]["stderr"] == "Command was not confirmed by the user."
    server.requests.clear()
    patch = patch_call(type="create_file", path=".git/hooks/post-commit", diff="+x\n")
    await run(OpenAI(), server, registry, patch, streams=False, on_tool_call=deny)
    (told,) = OpenAI().told(server.requests[1])
    assert (told["status"], "no" in told["output"]) == ("failed", True)
    outside = use(EDITOR, command="create", path="../b.txt", file_text="x")
    server.requests.clear()
    await run(Anthropic(), server, registry, outside, streams=False)
    assert "outside of the folder" in Anthropic().told(server.requests[1])[0]["content"]
    assert {path.name for path in list_below(tmp_path)} == {"a.txt", "memories"}
    assert not list_below(tmp_path.parent / "b.txt")


async def test_a_failed_action_acknowledges_nothing_and_says_why(server: Server, registry: ToolRegistry[Any]) -> None:
    item = computer_call({"type": "keypress", "keys": ["a"]}, checks=(CHECK,))
    await run(OpenAI(), server, registry, item, streams=False)
    output, message = OpenAI().told(server.requests[1])
    assert "acknowledged_safety_checks" not in output
    assert output["output"]["image_url"].startswith("data:image/png;base64,")
    assert "the keyboard is locked" in message["content"]


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize(
    ("vendor", "item", "kind"),
    [
        (OpenAI(), computer_call({"type": "screenshot"}), "computer_call"),
        (Anthropic(), use("left_click", "computer", coordinate=[1, 2]), "computer_tool_use"),
    ],
    ids=["responses", "anthropic"],
)
async def test_without_a_handler_the_item_waits_for_the_application(
    server: Server, vendor: OpenAI | Anthropic, item: Body, kind: str, streams: bool
) -> None:
    result = await run(vendor, server, ToolRegistry(), item, streams=streams)
    assert isinstance(result.reason, UnansweredItems)
    assert [(each.kind, each.id) for each in result.reason.items] == [(kind, "c1")]
    assert len(server.requests) == 1


def test_two_tools_of_one_kind_are_refused() -> None:
    @tool(native_as="shell")
    def one(command: str) -> str:
        return command

    @tool(native_as="shell")
    def two(command: str) -> str:
        return command

    request = ChatRequest(messages=[UserMessage("Hi")], tools=[one.definition, two.definition])
    for encoder in (ResponsesEncoder(model="gpt-5", defaults={}), MessagesEncoder(model="m", defaults={})):
        with pytest.raises(ConfigurationError, match="'one' and 'two' are both native_as='shell'"):
            encoder.reading_of(request)


def test_the_table_says_which_kinds_a_vendor_has(server: Server) -> None:
    kinds: tuple[VendorTool, ...] = ("shell", "patch", "editor", "memory", "computer", "browser")
    native: list[list[VendorTool]] = []
    for vendor in (OpenAI(), Anthropic()):
        provider: Any = vendor.provider(server)
        found = provider.capabilities()
        native.append([kind for kind in kinds if getattr(found, f"{kind}_tool") == "native"])
    assert native == [["shell", "patch", "computer"], ["shell", "editor", "memory", "computer", "browser"]]
