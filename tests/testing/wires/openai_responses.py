"""How a server words responses, and how it reads them."""

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from openai.types.responses import Response

from tests.testing.wires.openai_chat import words
from toolkit import AssistantMessage, ChatRequest, Message, Provider, SystemMessage, ToolCall, ToolResult, UserMessage
from toolkit.chat import (
    AssistantContent,
    ChatResponse,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    ResponseFormat,
    TextBlock,
    ToolDefinition,
    UnansweredItem,
)
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.testing.conformance import KEY, NOTE, Features
from toolkit.testing.loopback import Server

__all__ = ["ResponsesWire"]

_INCOMPLETE = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesWire:
    def __init__(self) -> None:
        self.features = Features(
            stop_reasons=frozenset({"end_turn", "tool_use", "max_tokens", "content_filter", "refusal"}),
            waiting=frozenset(_WAITING),
            settled=frozenset(_SETTLED),
        )

    def provider(self, server: Server) -> Provider:
        return OpenAIResponsesProvider("conformance-1", base_url=server.url, api_key=KEY)

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        output = [_item(index, block, response) for index, block in enumerate(response.message.content)]
        body = _body(response, output + list(map(_other_item, response.unanswered)))
        if not any(item.kind.startswith("hologram") for item in response.unanswered):  # no kind that the SDK knows
            Response.model_validate(body)
        return body

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        number = count()
        begun = {**_body(response, []), "status": "in_progress", "usage": None}
        told: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for index, block in enumerate(response.message.content):
            told.extend(_events(index, block, response))
        for index, item in enumerate(response.unanswered, len(response.message.content)):
            for event in ("added", "done"):
                told.append({"type": f"response.output_item.{event}", "output_index": index, "item": _other_item(item)})
        ending = "response.incomplete" if response.stop_reason in _INCOMPLETE else "response.completed"
        told.append({"type": ending, "response": self.whole(response)})
        return [
            f"event: {event['type']}\ndata: {json.dumps({'sequence_number': next(number), **event})}\n\n".encode()
            for event in told
        ]

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "code": None, "param": None}}

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        choice = body.get("tool_choice", "auto")
        wanted = body.get("text", {}).get("format")
        return ChatRequest(
            messages=_messages(body["input"]),
            tools=[
                ToolDefinition(name=tool["name"], description=tool["description"], parameters=tool["parameters"])
                for tool in body.get("tools", ())
            ],
            tool_choice=choice if isinstance(choice, str) else choice["name"],
            parallel_tool_calls=body.get("parallel_tool_calls"),
            max_tokens=body.get("max_output_tokens"),
            response_format=None if wanted is None else ResponseFormat(wanted["schema"], wanted["name"]),
        )


# What each kind of item has beside the ids.
_WAITING: dict[str, dict[str, Any]] = {
    "apply_patch_call": {"status": "completed", "operation": {"type": "delete_file", "path": "a"}},
    "computer_call": {"status": "completed", "pending_safety_checks": [], "action": {"type": "screenshot"}},
    "custom_tool_call": {"name": "click", "input": "left"},
    "local_shell_call": {"status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    "mcp_approval_request": {"name": "click", "arguments": "{}", "server_label": "mouse"},
    "program": {"code": "click()", "fingerprint": "f"},
    "shell_call": {"status": "completed", "action": {"commands": ["ls"]}, "environment": {"type": "local"}},
    "tool_search_call": {"status": "completed", "arguments": {}, "execution": "client"},
    "hologram_call": {"light": "green"},
}
_SETTLED: dict[str, dict[str, Any]] = {
    "code_interpreter_call": {"status": "completed", "code": "1", "container_id": "c", "outputs": []},
    "compaction": {"encrypted_content": "c2VhbA=="},
    "file_search_call": {"status": "completed", "queries": ["a"], "results": None},
    "hologram": {"light": "green"},
    "mcp_call": {"name": "click", "arguments": "{}", "server_label": "mouse", "output": "done"},
    "mcp_list_tools": {"server_label": "mouse", "tools": []},
    "web_search_call": {"status": "completed", "action": {"type": "search", "query": "a", "queries": ["a"]}},
}


def _other_item(item: UnansweredItem) -> dict[str, Any]:
    has_call_id = item.kind in _WAITING and item.kind != "mcp_approval_request"
    ids = {"id": item.id, "call_id": item.id} if has_call_id else {"id": item.id}
    return {"type": item.kind, **ids, **(_WAITING | _SETTLED)[item.kind]}


def _body(response: ChatResponse, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = response.usage
    reason = _INCOMPLETE.get(response.stop_reason)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": response.model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read_tokens or 0,
                "cache_write_tokens": usage.cache_write_tokens or 0,
            },
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        },
    }


def _item(index: int, block: AssistantContent, response: ChatResponse) -> dict[str, Any]:
    match block:
        case ToolCall(name=NOTE.name):
            text = json.loads(block.arguments)["text"]
            return {
                "type": "custom_tool_call",
                "id": f"ctc_{index}",
                "call_id": block.id,
                "name": block.name,
                "input": text,
            }
        case ToolCall():
            call = {"call_id": block.id, "name": block.name, "arguments": block.arguments}
            return {"type": "function_call", "id": f"fc_{index}", "status": "completed", **call}
        case ReasoningBlock():
            summary = [{"type": "summary_text", "text": block.text}]
            return {"type": "reasoning", "id": f"rs_{index}", "summary": summary, "encrypted_content": block.signature}
        case TextBlock():
            if response.stop_reason == "refusal":
                part: dict[str, Any] = {"type": "refusal", "refusal": block.text}
            else:
                part = {"type": "output_text", "text": block.text, "annotations": []}
            said = {"role": "assistant", "status": "completed", "content": [part]}
            return {"type": "message", "id": f"msg_{index}", **said}
        case _:
            raise AssertionError(f"the suite says no {block.type}")


def _events(index: int, block: AssistantContent, response: ChatResponse) -> Iterator[dict[str, Any]]:
    item = _item(index, block, response)
    place = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"}
    begun |= {
        name: [] if isinstance(item[name], list) else "" for name in ("content", "arguments", "input") if name in item
    }
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    match block:
        case ToolCall(name=NOTE.name):
            for text in (item["input"][:7], item["input"][7:]):
                yield {"type": "response.custom_tool_call_input.delta", **place, "delta": text}
        case ToolCall():
            middle = len(block.arguments) // 2
            for text in (block.arguments[:middle], block.arguments[middle:]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": text}
        case ReasoningBlock():
            yield {
                "type": "response.reasoning_summary_text.delta",
                **place,
                "summary_index": 0,
                "delta": block.text,
            }
        case TextBlock():
            kind = "refusal" if response.stop_reason == "refusal" else "output_text"
            for word in words(block.text):
                yield {"type": f"response.{kind}.delta", **place, "content_index": 0, "delta": word}
        case _:
            raise AssertionError(f"the suite says no {block.type}")
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _messages(items: Sequence[dict[str, Any]]) -> list[Message]:
    messages: list[Message] = []
    said: list[AssistantContent] = []
    for item in items:
        other: Message | None = None
        match item:
            case {"type": "message", "role": "assistant", "content": text}:
                said.append(TextBlock(text))
            case {"type": "function_call"}:
                said.append(ToolCall(item["call_id"], item["name"], item["arguments"]))
            case {"type": "reasoning"}:
                said.append(ReasoningBlock(text="".join(part["text"] for part in item["summary"])))
            case {"type": "custom_tool_call"}:
                said.append(ToolCall(item["call_id"], item["name"], json.dumps({"text": item["input"]})))
            case {"type": "function_call_output" | "custom_tool_call_output"}:
                other = ToolResult(item["call_id"], item["output"])
            case {"role": "system"}:
                other = SystemMessage(item["content"])
            case _:
                content = item["content"]
                other = UserMessage(content if isinstance(content, str) else tuple(map(_part, content)))
        if other is not None:
            if said:
                messages.append(AssistantMessage(said))
                said = []
            messages.append(other)
    return messages + ([AssistantMessage(said)] if said else [])


def _part(part: dict[str, Any]) -> ContentBlock:
    if part["type"] == "input_text":
        return TextBlock(part["text"])
    head, _, data = part["image_url"].partition(";base64,")
    return ImageBlock(b64decode(data), media_type=head.removeprefix("data:"))
