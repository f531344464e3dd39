"""The words in which a small model is asked: short, and beginning alike, so that a server's cache serves them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolkit.chat import AssistantMessage, Message, SystemMessage, ToolDefinition, ToolResult, UserMessage
from toolkit.guided.spans import list_quotations
from toolkit.guided.turn import GuidedTurn, PastCall
from toolkit.schema.nodes import is_array, is_object

__all__ = [
    "flatten_message",
    "list_example_requests",
    "shorten_description",
    "strike_out",
    "write_choice",
    "write_filling",
    "write_known",
]

_MOST_LISTED_VALUES = 12
_LONGEST_HISTORY = 2000
_MOST_EXAMPLES = 2
_EXAMPLES = re.compile(r"\bfor example:? (?=[\"\u201c'])(.*)", re.IGNORECASE | re.DOTALL)
_STRUCK = "..."


def shorten_description(tool: ToolDefinition, words: int) -> str:
    """Return the first words of the first sentence of a tool's description; its name where it has none."""
    sentence = re.split(r"(?<=[.!?])\s|\n", tool.description.strip(), maxsplit=1)[0]
    short = " ".join(sentence.split()[:words])
    return short or tool.name.replace("_", " ")


def list_example_requests(tool: ToolDefinition) -> list[str]:
    """Return the requests that a tool's description gives as examples: `For example: "Is it warm in Oslo?"`."""
    found = _EXAMPLES.search(tool.description)
    return [] if found is None else [*list_quotations(found[1])[:_MOST_EXAMPLES]]


def write_choice(examples: Iterable[tuple[str, str]], question: str) -> list[Message]:
    """Return the question after examples of requests and what was chosen for them.

    The examples are the same for each request with these tools, so a server that keeps prefixes reads them once.
    """
    messages: list[Message] = []
    for said, chosen in examples:
        messages += [UserMessage(said), AssistantMessage(json.dumps({"tool": chosen}))]
    messages.append(UserMessage(question))
    return messages


def write_filling(turn: GuidedTurn, tool: ToolDefinition, properties: Mapping[str, Any], *, has_several: bool) -> str:
    """Return the prompt for the arguments of a tool, for one call or for several."""
    listed = "\n".join([_list_parameter(name, node) for name, node in properties.items()])
    history = _write_history(turn)
    before = f"\n\nBefore that:\n{history}" if history else ""
    known = f"\n\n{write_known(turn.past_calls)}" if turn.past_calls else ""
    times, reply = (", once for each time it is needed", "a JSON list") if has_several else ("", "JSON")
    return (
        f"Fill in the arguments of {tool.name} from the words of the request{times}. {shorten_description(tool, 24)} "
        f"The arguments:\n{listed}\nReply with {reply}.{before}\n\nRequest: {turn.question}{known}"
    )


def write_known(past_calls: Sequence[PastCall]) -> str:
    """Return what the calls for this request have brought, a line each."""
    lines = [
        f"Known: {_write_values(call.arguments)}{' failed' if call.is_error else ''}: {call.result}"
        for call in past_calls
    ]
    return "\n".join(lines)


def strike_out(question: str, values: Iterable[Any]) -> str:
    """Return a question without values that have been used, so that no model takes them a second time."""
    for text in sorted({str(value) for value in values if value not in ("", None)}, key=len, reverse=True):
        question = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", _STRUCK, question, flags=re.IGNORECASE)
    return question


def flatten_message(message: Message) -> Message:
    """Return a message without calls and results, which the templates of small models drop or fail on."""
    match message:
        case AssistantMessage():
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            return AssistantMessage("\n".join([text for text in (message.text, *calls) if text]))
        case ToolResult():
            return UserMessage(f"Result of {message.tool_name or 'the call'}: {message.text}")
        case SystemMessage() | UserMessage():
            return message


def _write_values(arguments: Mapping[str, Any]) -> str:
    return ", ".join([_write_short_value(value) for value in arguments.values()]) or "done"


def _write_short_value(value: Any) -> str:
    if is_object(value):
        return " ".join([_write_short_value(member) for member in value.values()])
    if is_array(value):
        return " and ".join([_write_short_value(item) for item in value])
    return str(value)


def _write_history(turn: GuidedTurn) -> str:
    """Return what was said before the question, its end where it is long."""
    said: list[str] = []
    for message in turn.request.messages:
        if isinstance(message, UserMessage) and message.text == turn.question:
            break
        if message.text:
            said.append(message.text)
    return "\n".join(said)[-_LONGEST_HISTORY:]


def _list_parameter(name: str, node: Mapping[str, Any]) -> str:
    description = node.get("description")
    return f"- {name} ({_describe_values(node)})" + (f": {description}" if description else "")


def _describe_values(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        values = [str(value) for value in node["enum"]]
        more = " or another" if len(values) > _MOST_LISTED_VALUES else ""
        return " or ".join(values[:_MOST_LISTED_VALUES]) + more
    if "anyOf" in node:
        return " or ".join([_describe_values(arm) for arm in node["anyOf"]])
    kind = node.get("type", "value")
    return kind if isinstance(kind, str) else " or ".join(kind)
