"""Middleware stands around requests and calls: it shows less to the model, offers tools by need, and answers instead.

Prints:

    offered: lookup
    the model reads: What does <number> owe?
    lookup ran
    offered: lookup, remind
    the model reads: What does <number> owe?
    remind ran as a trial
    offered: lookup, remind
    the model reads: What does <number> owe?
    They owe 12, and would have been reminded.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit import (
    Message,
    Middleware,
    ToolCall,
    ToolLoopConfig,
    ToolOutput,
    ToolRegistry,
    UserMessage,
    tool,
    tool_loop_sync,
)
from toolkit.chat import ChatResponse, ToolDefinition
from toolkit.policies import CallInfo, CallProceed, RequestInfo, RequestProceed
from toolkit.testing import ScriptedProvider


@tool
def lookup() -> int:
    """Look up what a customer owes."""
    return 12


@tool
def remind() -> str:
    """Send a reminder."""
    raise AssertionError("a letter was sent")


class HideNumbers(Middleware[Any]):
    """Has the model read no long numbers; the transcript keeps them."""

    async def around_request(self, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        """Ask with numbers hidden."""
        messages = [_hide_numbers(message) for message in request.chat.messages]
        print("the model reads:", messages[0].text)
        return await proceed(replace(request.chat, messages=messages))


class RemindLast(Middleware[Any]):
    """Offers reminders only once something was looked up."""

    async def offer(self, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> Sequence[str]:
        """Leave `remind` out of the first turn."""
        names = [tool.name for tool in tools if tool.name != "remind" or len(messages) > 1]
        print("offered:", ", ".join(names))
        return names


class Trial(Middleware[Any]):
    """Answers instead of tools that send something."""

    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        """Run what only reads."""
        if call.tool_name == "remind":
            print("remind ran as a trial")
            return ToolOutput("Sent (not really: this is a trial).")
        output = await proceed()
        print(call.tool_name, "ran")
        return output


def _hide_numbers(message: Message) -> Message:
    if isinstance(message, UserMessage):
        return UserMessage(re.sub(r"\d{6,}", "<number>", message.text))
    return message


provider = ScriptedProvider(
    [
        ToolCall("1", "lookup", "{}"),
        ToolCall("2", "remind", "{}"),
        "They owe 12, and would have been reminded.",
    ]
)
config = ToolLoopConfig(middleware=(RemindLast(), HideNumbers(), Trial()))
result = tool_loop_sync(provider, ToolRegistry([lookup, remind]), "What does 10024711 owe?", config=config)
print(result.text)
