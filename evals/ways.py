"""The ways in which a model is asked for calls, each with our help and without."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from toolkit import AssistantMessage, ChatRequest, Provider, ToolCall, ToolResult
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent, TextBlock
from toolkit.parsing import TextToolProvider
from toolkit.providers.local import LocalProvider
from toolkit.schema.nodes import is_object

__all__ = ["WAYS", "PlainReader", "Untaught", "Way", "opened"]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One row of the table.

    Args:
        name: What the command line calls it.
        title: What the table calls it.
        calling: How the local provider makes native calls.
        is_text: Whether calls are written as text instead.
    """

    name: str
    title: str
    calling: Literal["guided", "native"]
    is_text: bool = False


WAYS = (
    Way(name="text", title="text calls, written freely", calling="native", is_text=True),
    Way(name="native", title="native tools, written freely", calling="native"),
    Way(name="guided", title="small steps, held to schemas", calling="guided"),
)


@asynccontextmanager
async def opened(way: Way, model: str | None, *, helps: bool) -> AsyncGenerator[Provider]:
    """Give the provider for a way; without help calls are read to the letter, and errors don't say what is wrong."""
    async with LocalProvider(model, calling=way.calling, max_tokens=_LONGEST_REPLY) as local:
        if not way.is_text:
            yield local if helps else Untaught(local)
        elif helps:
            yield TextToolProvider(local)
        else:
            yield Untaught(TextToolProvider(PlainReader(local), max_parsing_attempts=1))


class Untaught:
    """A provider whose model reads of every failure only that there was one."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Ask without the words of the errors."""
        messages = [
            replace(message, content="Error") if isinstance(message, ToolResult) and message.is_error else message
            for message in request.messages
        ]
        return await self._provider.generate(replace(request, messages=messages))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Give the whole answer at once."""
        yield ResponseDone(await self.generate(request))


class PlainReader:
    """A provider whose calls in text are read as plainly as can be: strict JSON between the two tags, or nothing."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._ids = count(1)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the answer with the calls that are right to the letter; what only resembles one is lost."""
        response = await self._provider.generate(request)
        calls = [ToolCall(f"plain_{next(self._ids)}", name, text) for name, text in _strict_calls(response.text)]
        said = response.text.partition("<tool_call>")[0].partition("{")[0]
        return replace(response, message=AssistantMessage([*([TextBlock(said)] if said else []), *calls]))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Give the whole answer at once."""
        yield ResponseDone(await self.generate(request))


def _strict_calls(text: str) -> Iterator[tuple[str, str]]:
    for found in _CALL.finditer(text):
        try:
            call: object = json.loads(found[1])
        except ValueError:
            continue
        if not is_object(call):
            continue
        name, arguments = call.get("name"), call.get("arguments")
        if isinstance(name, str) and is_object(arguments):
            yield name, json.dumps(arguments)


_LONGEST_REPLY = 90
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
