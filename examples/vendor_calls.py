"""Calls that only some vendors can make: a text without JSON, a call by code, and tools that the model searches for.

OpenAI itself where OPENAI_API_KEY is set, else a stand-in on this machine that speaks responses.

Prints:

    run_sql('SELECT 1') by the model
    find_price('tea') by code
    tool_search_call, run_sql, program, find_price
    Tea costs 3.
"""

import json
import os
from typing import Any

import anyio

from toolkit import AssistantMessage, ToolCall, ToolRegistry, tool, tool_loop
from toolkit.chat import Freeform, ReasoningBlock
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.providers.servers import SERVERS
from toolkit.testing.loopback import Answer, serving


@tool(freeform=Freeform(syntax="regex", grammar="SELECT .+"))
def run_sql(query: str) -> str:
    """Run a query."""
    print(f"run_sql({query!r}) by the model")
    return "1"


@tool(callers=["code"], shows_output_schema=True)
def find_price(item: str) -> dict[str, int]:
    """Find the price of an item."""
    print(f"find_price({item!r}) by code")
    return {"price": 3}


@tool(defer=True)
def send_invoice(customer: str) -> str:
    """Send an invoice."""
    return f"sent to {customer}"


async def main(**settings: Any) -> None:
    """Print what the model called, and the answer."""
    registry = ToolRegistry([run_sql, find_price, send_invoice])
    async with OpenAIResponsesProvider("gpt-5.1", server=SERVERS["openai"], **settings) as provider:
        result = await tool_loop(provider, registry, "What does tea cost? Ask the database, too.")
    names: list[str] = []
    for message in result.messages:
        for block in message.content if isinstance(message, AssistantMessage) else ():
            if isinstance(block, ReasoningBlock) and block.encrypted:
                names.append(json.loads(block.encrypted)["openai-responses"]["type"])
            elif isinstance(block, ToolCall):
                names.append(block.name)
    print(", ".join(names))
    print(result.text)


def respond(*items: dict[str, Any]) -> Answer:
    """Word a response as a server does."""
    return Answer({"id": "resp_1", "status": "completed", "output": list(items)})


if __name__ == "__main__":
    if "OPENAI_API_KEY" in os.environ:
        anyio.run(main)
    else:
        search = {"type": "tool_search_call", "id": "t1", "execution": "server", "status": "completed"}
        query = {"type": "custom_tool_call", "call_id": "c1", "name": "run_sql", "input": "SELECT 1"}
        program = {"type": "program", "id": "p1", "call_id": "p1", "code": "find_price('tea')"}
        called = {"type": "function_call", "call_id": "c2", "name": "find_price", "arguments": '{"item": "tea"}'}
        by_code = {**called, "caller": {"type": "program", "caller_id": "p1"}}
        text = {"type": "output_text", "text": "Tea costs 3."}
        message = {"type": "message", "role": "assistant", "content": [text]}
        with serving(respond(search, query), respond(program, by_code), respond(message)) as openai:
            anyio.run(lambda: main(base_url=openai.url, api_key="none"))
