"""OpenAI's responses: what the model thought goes back with its calls, sealed, and is streamed as it comes.

OpenAI itself where OPENAI_API_KEY is set, else a stand-in on this machine.

Prints:

    (Two numbers: add them.) [add] (That is it.) 17 plus 25 is 42.
    sealed thoughts in the transcript: 2
"""

import json
import os
from typing import Any

import anyio

from toolkit import AssistantMessage, ChatRequest, Done, TextDelta, ToolRegistry, UserMessage, tool, tool_loop_stream
from toolkit.chat import ReasoningBlock
from toolkit.events import ReasoningDelta, ToolExecutionStart
from toolkit.providers.openai import OpenAIResponsesProvider, ResponsesOptions
from toolkit.testing.loopback import Answer, serving


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main(**settings: Any) -> None:
    """Print the stream, and what of it the transcript keeps."""
    options = ResponsesOptions(reasoning={"summary": "auto"}, prompt_cache_key="examples")
    request = ChatRequest(messages=[UserMessage("What is 17 plus 25?")], reasoning_effort="low", options=options)
    async with (
        OpenAIResponsesProvider("gpt-5-mini", **settings) as provider,
        tool_loop_stream(provider, ToolRegistry([add]), request) as events,
    ):
        async for event in events:
            match event:
                case ReasoningDelta(text):
                    print(f"({text})", end=" ")
                case ToolExecutionStart(tool_name=name):
                    print(f"[{name}]", end=" ")
                case TextDelta(text):
                    print(text, end="")
                case Done(result):
                    replies = [message for message in result.messages if isinstance(message, AssistantMessage)]
                    thoughts = [block for reply in replies for block in reply.content]
                    sealed = [block for block in thoughts if isinstance(block, ReasoningBlock) and block.encrypted]
                    print(f"\nsealed thoughts in the transcript: {len(sealed)}")
                case _:
                    pass


def answer(thought: str, item: dict[str, Any]) -> Answer:
    """Word the events of a response as a server does."""
    summary = [{"type": "summary_text", "text": thought}]
    sealed = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"}
    told: list[dict[str, Any]] = [
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": thought}
    ]
    if item["type"] == "message":
        text = item["content"][0]["text"]
        told.append({"type": "response.output_text.delta", "delta": text})
    told.append({"type": "response.completed", "response": {"status": "completed", "output": [sealed, item]}})
    return Answer(pieces=[f"data: {json.dumps(event)}\n\n".encode() for event in told])


if __name__ == "__main__":
    if "OPENAI_API_KEY" in os.environ:
        anyio.run(main)
    else:
        call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 17, "b": 25}'}
        text = {"type": "output_text", "text": "17 plus 25 is 42."}
        message = {"type": "message", "role": "assistant", "content": [text]}
        with serving(answer("Two numbers: add them.", call), answer("That is it.", message)) as server:
            anyio.run(lambda: main(base_url=server.url))
