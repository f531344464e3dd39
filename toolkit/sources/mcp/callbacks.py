"""The questions of a server to its client: for a model's words, or for the user's."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import anyio
import mcp.types as wire
from mcp.client import ClientRequestContext

from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    Message,
    Provider,
    SystemMessage,
    Usage,
    UserMessage,
    text_of,
)
from toolkit.errors import ProviderError
from toolkit.loop.limits import LoopFrame
from toolkit.settings import PositiveInt, check_fields
from toolkit.sources.mcp.native_tool import read_block

_logger = logging.getLogger("toolkit.sources.mcp")
_MOST_QUESTIONS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """A server's question to the user.

    Args:
        message: The question.
        schema: A flat JSON Schema of the answer; None where the user is to open `url`.
        url: A page to open, with the user's consent, in a browser; None where an answer is asked for.
    """

    message: str
    schema: Mapping[str, Any] | None = None
    url: str | None = None

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The values that the server proposes: fill them in only where the user has seen them."""
        properties: Mapping[str, Any] = (self.schema or {}).get("properties", {})
        return {
            name: part["default"]
            for name, part in properties.items()
            if isinstance(part, Mapping) and "default" in part
        }


ElicitationAnswer: TypeAlias = Mapping[str, Any] | bool | None
ElicitationCallback: TypeAlias = Callable[[Elicitation], ElicitationAnswer | Awaitable[ElicitationAnswer]]
"""Answers a question that a server asks the user.

A mapping is the answer, word for word; True consents to a page or to a form without fields, False declines, None puts
it off. No field is ever filled in that the mapping does not have.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """A server's request for a model's words, as a person should see it before it is made.

    Args:
        server: The server's name in errors and logs.
        messages: The messages for the model.
        system_prompt: The system prompt that the server asks for; handed on only where `Sampling` allows it.
        max_tokens: How long the answer may be.
    """

    server: str
    messages: Sequence[Message]
    system_prompt: str | None
    max_tokens: int


SamplingApproval: TypeAlias = Callable[[SamplingRequest], bool | Awaitable[bool]]
"""Shows a request to a person and returns whether it may be made; raising refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The requests that a server may make of a model on the application's account.

    A server writes the whole request, so that it can spend tokens and read the model's answers. Each request counts in
    the usage and the limits of the loop whose call is under way on the server.

    Args:
        provider: The model.
        approve: Shows each request to a person; ``"all"`` makes them unseen.
        max_requests: How many are made within one block of `mcp_tools`.
        max_tokens: The longest answer; a request that asks for more gets so much.
        max_input_chars: The longest request, all its texts together.
        concurrency: How many are made at once; more wait.
        allow_system_prompt: True if the server may write the model's instructions; otherwise they go into the first
            user message, marked as the server's.
    """

    provider: Provider
    approve: SamplingApproval | Literal["all"]
    max_requests: PositiveInt = 20
    max_tokens: PositiveInt = 4_096
    max_input_chars: PositiveInt = 100_000
    concurrency: PositiveInt = 1
    allow_system_prompt: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


# Of a script, a file, a login that passes for a host, or a name with characters that are not seen, none is shown.
_WEB_PAGE = re.compile(r"https?://[^\s/?#@\\]+(?:[/?#][!-~]*)?", re.IGNORECASE | re.ASCII)


class Questions:
    """Answers a server's questions to the user by a callback of the application's, one at a time.

    Args:
        answer: The callback; an exception is reported as a cancellation.
        server: The server's name in logs.
    """

    def __init__(self, answer: ElicitationCallback, server: str) -> None:
        self._answer = answer
        self._server = server
        self._asked = 0
        self._turn = anyio.Lock()

    async def elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - as the SDK calls it
        params: wire.ElicitRequestParams,
    ) -> wire.ElicitResult | wire.ErrorData:
        """Answer one question."""
        self._asked += 1
        if self._asked > _MOST_QUESTIONS:
            _logger.warning("MCP server '%s' has asked %s questions; no more are shown", self._server, _MOST_QUESTIONS)
            return wire.ErrorData(code=wire.INVALID_REQUEST, message="This client shows its user no more questions.")
        if isinstance(params, wire.ElicitRequestURLParams):
            if _WEB_PAGE.fullmatch(params.url) is None:
                _logger.warning("MCP server '%s' wants the user to open what is no page of the web", self._server)
                return wire.ElicitResult(action="decline")
            question = Elicitation(message=params.message, url=params.url)
        else:
            question = Elicitation(message=params.message, schema=params.requested_schema)
        async with self._turn:
            given = self._answer(question)
            value = await given if inspect.isawaitable(given) else given
        if value is None:
            return wire.ElicitResult(action="cancel")
        if value is False:
            return wire.ElicitResult(action="decline")
        if value is True and question.schema is not None and question.schema.get("properties"):
            example = json.dumps({next(iter(question.schema["properties"])): "..."})
            said = (
                "MCP server '%s': a form was answered with True, which fills in no field: return its fields, such as %s"
            )
            _logger.warning(said, self._server, example)
            return wire.ElicitResult(action="cancel")
        content = dict(value) if isinstance(value, Mapping) else {}
        return wire.ElicitResult(action="accept", content=content or None)


class Sampler:
    """Makes a server's requests for a model's words, within the bounds of `Sampling`.

    Args:
        sampling: The bounds.
        server: The server's name in errors and logs.
        find_frame: Returns the loop on whose account a request is made: that of the call which has run longest on the
            server; None where no loop's call is under way.
    """

    def __init__(self, sampling: Sampling, server: str, find_frame: Callable[[], LoopFrame | None]) -> None:
        self._sampling = sampling
        self._server = server
        self._find_frame = find_frame
        self._made = 0
        self._places = anyio.Semaphore(sampling.concurrency)

    async def sample(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - as the SDK calls it
        params: wire.CreateMessageRequestParams,
    ) -> wire.CreateMessageResult | wire.ErrorData:
        """Make one request; the provider's tools and the server's context are not handed on."""
        sampling = self._sampling
        if self._made >= sampling.max_requests:
            _logger.warning("MCP server '%s' wants more than %s samples", self._server, sampling.max_requests)
            return _refuse_sampling(f"this client makes at most {sampling.max_requests} requests for a server")
        self._made += 1
        try:
            request = self._read_request(params)
        except ValueError as error:
            return _refuse_sampling(str(error))
        async with self._places:
            if not await self._is_approved(request):
                return _refuse_sampling("the user did not approve the request")
            return await self._generate_answer(request, params)

    def _read_request(self, params: wire.CreateMessageRequestParams) -> SamplingRequest:
        messages = [_read_message(message) for message in params.messages]
        size = len(params.system_prompt or "") + sum(len(text_of(message.content)) for message in messages)
        if size > self._sampling.max_input_chars:
            raise ValueError(f"the request is longer than {self._sampling.max_input_chars} characters")
        return SamplingRequest(
            server=self._server,
            messages=tuple(messages),
            system_prompt=params.system_prompt,
            max_tokens=max(1, min(params.max_tokens, self._sampling.max_tokens)),
        )

    async def _is_approved(self, request: SamplingRequest) -> bool:
        approve = self._sampling.approve
        if approve == "all":
            return True
        try:
            answer = approve(request)
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Exception:
            _logger.exception("the approval of a sample raised for MCP server '%s'; it is refused", self._server)
            return False

    async def _generate_answer(
        self, request: SamplingRequest, params: wire.CreateMessageRequestParams
    ) -> wire.CreateMessageResult | wire.ErrorData:
        frame = self._find_frame()
        budget = None if frame is None else frame.budget
        if budget is not None and budget.reserve_request(request.max_tokens) is not None:
            return _refuse_sampling("the usage limit of the run is reached")
        used: Usage | None = None
        try:
            response = await self._sampling.provider.generate(
                ChatRequest(
                    messages=self._build_messages(request),
                    max_tokens=request.max_tokens,
                    temperature=params.temperature,
                    stop=tuple(params.stop_sequences or ()),
                )
            )
            used = response.usage
        except (ProviderError, ValueError) as error:
            return _refuse_sampling(f"the model gave no answer ({type(error).__name__})")
        finally:
            if budget is not None:
                budget.settle_request(request.max_tokens, used)
        if frame is not None and frame.spend is not None:
            frame.spend(response.usage)
        reason = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}.get(response.stop_reason, "endTurn")
        return wire.CreateMessageResult(
            role="assistant",
            content=wire.TextContent(type="text", text=response.text),
            model=response.model or "unknown",
            stop_reason=reason,
        )

    def _build_messages(self, request: SamplingRequest) -> Sequence[Message]:
        prompt = request.system_prompt
        if not prompt:
            return request.messages
        first = SystemMessage(prompt) if self._sampling.allow_system_prompt else UserMessage(prompt)
        return (first, *request.messages)


def _refuse_sampling(reason: str) -> wire.ErrorData:
    return wire.ErrorData(code=wire.INVALID_REQUEST, message=f"Not sampled: {reason}.")


def _read_message(message: wire.SamplingMessage) -> Message:
    blocks: list[Any] = []
    for item in message.content if isinstance(message.content, list) else [message.content]:
        if isinstance(item, (wire.ToolUseContent, wire.ToolResultContent)):
            raise ValueError("calls and results in a request for sampling are not taken")  # noqa: TRY004 - a value of it
        blocks += read_block(item)
    return UserMessage(tuple(blocks)) if message.role == "user" else AssistantMessage(blocks)
