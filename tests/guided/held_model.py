"""A model that fills in whatever schema it is held to: by a script of choices, and by what was said."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolkit import AssistantMessage, ChatRequest, Usage
from toolkit.chat import ChatResponse
from toolkit.testing import FunctionProvider

__all__ = ["HeldModel"]


class HeldModel:
    """Plays the model of a server that holds replies to schemas.

    Args:
        choices: The tools that it chooses, one after the other; ``answer`` after the last.
        values: The arguments that it fills in, one after the other; an object, or a list for several calls.
        answer: Its text, where it is held to nothing.

    Attributes:
        provider: What speaks with it.
    """

    def __init__(
        self,
        choices: Iterable[str] = (),
        values: Iterable[Mapping[str, Any] | list[Mapping[str, Any]]] = (),
        answer: str = "Done.",
        *,
        schema_of: Callable[[ChatRequest], Mapping[str, Any] | None] | None = None,
    ) -> None:
        self._choices = list(choices)
        self._values = list(values)
        self._answer = answer
        self._schema_of = schema_of or _read_response_format
        self.provider = FunctionProvider(self._reply)

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [request.messages[-1].text for request in self.provider.requests]

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        """The schema of each request that had one."""
        found = [self._schema_of(request) for request in self.provider.requests]
        return [schema for schema in found if schema is not None]

    def offered(self, index: int) -> list[str]:
        """The tools of the choice of that number, from 0."""
        choices = [schema for schema in self.schemas if "tool" in schema["properties"]]
        return list(choices[index]["properties"]["tool"]["enum"])

    def _reply(self, request: ChatRequest) -> ChatResponse:
        schema = self._schema_of(request)
        if schema is None:
            return _respond(self._answer)
        if "tool" in schema["properties"]:
            return _respond(json.dumps({"tool": self._choices.pop(0) if self._choices else "answer"}))
        values = self._values.pop(0)
        if "calls" in schema["properties"]:
            values = {"calls": values if isinstance(values, list) else [values]}
        return _respond(json.dumps(values))


def _read_response_format(request: ChatRequest) -> Mapping[str, Any] | None:
    return None if request.response_format is None else request.response_format.schema


def _respond(text: str) -> ChatResponse:
    return ChatResponse(message=AssistantMessage(text), usage=Usage(input_tokens=10, output_tokens=2), model="small")
