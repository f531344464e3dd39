"""Responses that OpenAI makes in the background: polled, and found again by a program that starts anew.

OpenAI itself where OPENAI_API_KEY is set, else a stand-in on this machine.

Prints:

    the first program was stopped: the server is busy
    The report is ready.
    responses started: 1
"""

import os
import shelve
import tempfile
from pathlib import Path
from typing import Any

import anyio

from toolkit import ProviderError, ProviderRetryConfig, ToolLoopConfig, ToolRegistry, tool_loop
from toolkit.providers.openai import OpenAIResponsesProvider
from toolkit.testing.loopback import Answer, serving


async def run(started: Path, **settings: Any) -> None:
    """Ask for a report, as a program does that may have been stopped before."""
    with shelve.open(str(started)) as ids:
        async with OpenAIResponsesProvider("gpt-5", background=ids, **settings) as provider:
            config = ToolLoopConfig[Any](provider_retry=ProviderRetryConfig(max_retries=0))
            try:
                print((await tool_loop(provider, ToolRegistry(), "Write the report.", config=config)).text)
            except ProviderError as error:
                print("the first program was stopped:", error.message)


def respond(status: str, *items: dict[str, Any]) -> Answer:
    """Word a response as a server does."""
    return Answer({"id": "resp_1", "status": status, "output": list(items)})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "responses"
        if "OPENAI_API_KEY" in os.environ:
            anyio.run(run, place)
        else:
            text = {"type": "output_text", "text": "The report is ready."}
            done = respond("completed", {"type": "message", "role": "assistant", "content": [text]})
            busy = Answer({"error": {"message": "the server is busy"}}, status=503)
            with serving(respond("queued"), busy, respond("in_progress"), done) as server:
                for _ in range(2):
                    anyio.run(lambda: run(place, base_url=server.url))
                print("responses started:", server.paths.count("/v1/responses"))
