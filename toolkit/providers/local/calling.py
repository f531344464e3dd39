"""Tool calls out of a model too small to make them: what it is asked, step by step, each reply held to a schema.

A model of a hundred million parameters does not follow a description of tools. Three small questions it can answer:

1. Which tool? The tools' own descriptions stand as examples of requests, each answered with its tool's name, and
   the reply may only be one of the names, or ``answer`` for none of them.
2. Which arguments? The parameters are listed for that one tool, and the reply must fit their schema.
3. After the results: the answer, in text. Where the result is a short line, the reply must end by quoting it; a small
   model would rather compute the sum itself, and wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    ResponseFormat,
    SystemMessage,
    ToolDefinition,
    ToolResult,
    UserMessage,
)
from toolkit.chat.request import callable_tools

__all__ = ["answer_request", "arguments_request", "choice_request", "chosen_tool", "offered_tools"]

_ANSWER = "answer"
_LONGEST_QUOTED_RESULT = 200
# What the grammar engine follows to the letter. Other keywords (patterns, formats, lengths) are left to the tool's
# own validation: the engine fails on some of them.
_SHAPE_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const", "anyOf"}
    | {"oneOf", "$ref", "$defs", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
_NAMED_SCHEMAS = frozenset({"properties", "$defs"})


def offered_tools(request: ChatRequest) -> tuple[ToolDefinition, ...]:
    """Return the tools to ask about now: none where results wait for their answer, and any tool may be called.

    Raises:
        ConfigurationError: `tool_choice` names a tool that is not there.
    """
    awaits_answer = request.messages and isinstance(request.messages[-1], ToolResult)
    return () if request.tool_choice == "auto" and awaits_answer else callable_tools(request)


def choice_request(request: ChatRequest, tools: Sequence[ToolDefinition]) -> ChatRequest:
    """Ask which of the tools the last user message needs."""
    examples = [(tool.description, tool.name) for tool in tools]
    if request.tool_choice == "auto":
        # The last examples weigh most; in this place it draws least from the tools.
        examples.insert(1, ("Hello!", _ANSWER))
    messages: list[Message] = []
    for description, name in examples:
        messages += [UserMessage(description), AssistantMessage(json.dumps({"tool": name}))]
    messages.append(UserMessage(_find_question(request.messages)))
    names = [name for _, name in examples]
    return _ask_for_object(request, messages, {"tool": {"enum": names}})


def chosen_tool(response: ChatResponse, tools: Sequence[ToolDefinition]) -> ToolDefinition | None:
    """Return the tool that the model chose; None where it wants to answer."""
    for tool in tools:
        if response.text.rstrip(' }\n"').endswith(f'"{tool.name}'):
            return tool
    return None


def arguments_request(request: ChatRequest, tool: ToolDefinition) -> ChatRequest:
    """Ask for the arguments of one tool, from the words of the last user message."""
    properties = cast("Mapping[str, Mapping[str, Any]]", tool.parameters.get("properties", {}))
    listed = "\n".join([_list_parameter(name, schema) for name, schema in properties.items()])
    before = "\n".join([message.text for message in request.messages[:-1] if message.text])
    said = f"\n\nBefore that:\n{before}" if before else ""
    prompt = (
        f"Fill in the arguments of {tool.name} from the words of the request. {tool.description} The arguments:\n"
        f"{listed}\nReply with JSON.{said}\n\nRequest: {_find_question(request.messages)}"
    )
    shape = cast("Mapping[str, Any]", _reduce_schema(tool.parameters))
    return replace(
        _strip_tools(request, [UserMessage(prompt)]), response_format=ResponseFormat(shape, name="arguments")
    )


def answer_request(request: ChatRequest) -> ChatRequest:
    """Ask for text: from the results where there are new ones, else from the conversation."""
    results: list[ToolResult] = []
    for message in reversed(request.messages):
        if not isinstance(message, ToolResult):
            break
        results.insert(0, message)
    if not results:
        return _strip_tools(request, [_flatten_message(message) for message in request.messages])
    told = "\n".join([result.text for result in results])
    if all(result.is_error for result in results):
        prompt = (
            f"{_find_question(request.messages)}\n\nThat failed: {told}\n\nSay in a sentence that it failed, and why."
        )
    else:
        prompt = f"{_find_question(request.messages)}\n\nThe answer is: {told}\n\nSay the answer in a sentence."
    asked = _strip_tools(request, [UserMessage(prompt)])
    is_quotable = told.strip() and "\n" not in told and len(told) <= _LONGEST_QUOTED_RESULT
    if is_quotable and request.response_format is None and "grammar" not in request.options:
        asked = replace(asked, options={**asked.options, "grammar": _make_quoting_grammar(told.strip())})
    return asked


def _ask_for_object(request: ChatRequest, messages: Sequence[Message], properties: Mapping[str, Any]) -> ChatRequest:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return replace(_strip_tools(request, messages), response_format=ResponseFormat(schema, name="reply"))


def _strip_tools(request: ChatRequest, messages: Sequence[Message]) -> ChatRequest:
    return replace(request, messages=messages, tools=None, tool_choice="auto", parallel_tool_calls=None)


def _find_question(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return message.text
    return ""


def _flatten_message(message: Message) -> Message:
    """Return a message without calls and results, which the templates of small models drop or fail on."""
    match message:
        case AssistantMessage():
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            return AssistantMessage("\n".join([text for text in (message.text, *calls) if text]))
        case ToolResult():
            return UserMessage(f"Result of {message.tool_name or 'the call'}: {message.text}")
        case SystemMessage() | UserMessage():
            return message


def _list_parameter(name: str, schema: Mapping[str, Any]) -> str:
    description = schema.get("description")
    return f"- {name} ({_describe_values(schema)})" + (f": {description}" if description else "")


def _describe_values(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join([str(value) for value in schema["enum"]])
    if "const" in schema:
        return str(schema["const"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " or ".join([_describe_values(option) for option in schema[keyword]])
    kind = schema.get("type", "object" if "$ref" in schema else "value")
    return kind if isinstance(kind, str) else " or ".join(kind)


def _reduce_schema(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        shape: dict[str, Any] = {}
        for keyword, value in cast("Mapping[str, Any]", schema).items():
            if keyword in _NAMED_SCHEMAS:
                shape[keyword] = {name: _reduce_schema(inner) for name, inner in value.items()}
            elif keyword in ("enum", "const", "required"):
                shape[keyword] = value
            elif keyword in _SHAPE_KEYWORDS:
                shape["anyOf" if keyword == "oneOf" else keyword] = _reduce_schema(value)
        return shape
    if isinstance(schema, (list, tuple)):
        return [_reduce_schema(item) for item in cast("Sequence[Any]", schema)]
    return schema


def _make_quoting_grammar(text: str) -> str:
    """Return a grammar: a few words without figures of their own, then the text, then the end."""
    quoted = text.rstrip(".").replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\t", "\\t")
    return f'root ::= ([^ \\t\\n0-9"{{\\[]{{1,16}} " "){{0,7}} "{quoted}" "."?'
