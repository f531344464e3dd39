"""The provider for Anthropic's messages, its options, the SDK's client for each event loop, and answers as our words.

Compatible servers leave fields out, so nothing of an answer is taken for granted. Blocks without a counterpart here
(calls of tools that run at Anthropic, and their results) are sealed in a `ReasoningBlock` and sent back as they
came. A turn that the server pauses is continued, and its parts are joined to one answer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, cast, get_args
from urllib.parse import quote

import httpx2
from anthropic import (
    AnthropicError,
    AsyncAnthropic,
    AsyncAnthropicAWS,
    AsyncAnthropicFoundry,
    AsyncStream,
    DefaultAsyncHttpxClient,
    omit,
)
from anthropic.lib.bedrock import AsyncAnthropicBedrockMantle
from anthropic.lib.vertex import AsyncAnthropicVertex
from anthropic.types import (
    CacheControlEphemeralParam,
    MetadataParam,
    OutputConfigParam,
    ThinkingConfigParam,
    ToolUnionParam,
)
from anthropic.types.beta import BetaContextManagementConfigParam, BetaRequestMCPServerURLDefinitionParam
from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    ResponseDone,
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    UnansweredItem,
    Usage,
)
from toolkit.chat.provider import closing
from toolkit.chat.request import Capabilities, Support
from toolkit.errors import ConfigurationError
from toolkit.http_client import BoundedClient
from toolkit.providers.adapter import (
    JSON_HEADERS,
    MOST_CONNECTIONS,
    Adapter,
    Decoder,
    Exchange,
    checked_key,
    is_of,
    key_for,
    post_by_sdk,
    split_compacted,
    withheld_headers,
)
from toolkit.providers.anthropic.encode import (
    ANTHROPIC_SEAL,
    ANTHROPIC_TOOLS,
    AnthropicReading,
    CacheTime,
    MessagesEncoder,
)
from toolkit.providers.encoding import (
    as_count,
    as_items,
    as_key,
    as_mapping,
    as_text,
    sealed,
    stop_of_calls,
    unsealed,
    usage_details,
)
from toolkit.providers.failures import NO_KEY
from toolkit.runtime.backend import LoopLocal
from toolkit.settings import Duration, check_setting

PAUSED = ("pause_turn", "compaction")
"""The reason for which the server pauses a turn; another request continues it."""
_ANTHROPIC_STOP_REASONS: Mapping[str, StopReason] = {
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded", *PAUSED), "max_tokens"),
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
}
_ANTHROPIC_COMPLETE = ("tool_use", "end_turn")
_ANTHROPIC_SERVER_BLOCKS = frozenset({"server_tool_use", "mcp_tool_use"})
_SAID = frozenset({"text", "thinking", "tool_use"})
OWN_NAMES = frozenset(own["name"] for own in ANTHROPIC_TOOLS.values() if "name" in own)
_ANTHROPIC_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_ANTHROPIC_METADATA = ("id", "stop_sequence", "stop_details", "container", "diagnostics", "context_management")
_USAGE_METADATA = ("service_tier", "server_tool_use", "speed", "inference_geo")


def continue_request(request: ChatRequest, response: ChatResponse) -> ChatRequest | None:
    """Return the request that continues a paused turn; None if the turn is over, or waits for results."""
    is_paused = response.metadata.get("stop_reason") in PAUSED and not request.options.get("compaction")
    if not is_paused or response.tool_calls or response.unanswered:
        return None
    options = dict(request.options)
    if container := as_mapping(response.metadata.get("container")).get("id"):
        options.setdefault("container", container)  # what its tools have made is in there
    return replace(request, messages=[*request.messages, response.message], options=options)


def join_replies(earlier: ChatResponse, later: ChatResponse) -> ChatResponse:
    """Return the parts of a turn as one: all content and usage, and other fields from the later part."""
    metadata: dict[str, Any] = {**earlier.metadata, **later.metadata}
    if later.metadata.get("stop_reason") is None:
        metadata.pop("stop_reason", None)
    if citations := [*earlier.metadata.get("citations", ()), *later.metadata.get("citations", ())]:
        metadata["citations"] = citations
    if used := _add_counts(earlier.metadata.get("server_tool_use"), later.metadata.get("server_tool_use")):
        metadata["server_tool_use"] = used
    metadata["requests"] = earlier.metadata.get("requests", 1) + 1
    message = AssistantMessage([*earlier.message.content, *later.message.content])
    unanswered = (*earlier.unanswered, *later.unanswered)
    return replace(later, message=message, usage=earlier.usage + later.usage, metadata=metadata, unanswered=unanswered)


def _add_counts(earlier: object, later: object) -> Mapping[str, int]:
    both = [as_mapping(earlier), as_mapping(later)]
    return {name: sum([as_count(each.get(name)) or 0 for each in both]) for name in {**both[0], **both[1]}}


def decode_anthropic_usage(usage: object) -> Usage:
    """Return the usage that an answer reports; zeros where the server reported none."""
    reported = as_mapping(usage)
    read = as_count(reported.get("cache_read_input_tokens"))
    wrote = as_count(reported.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=(as_count(reported.get("input_tokens")) or 0) + (read or 0) + (wrote or 0),
        output_tokens=as_count(reported.get("output_tokens")) or 0,
        reasoning_tokens=as_count(as_mapping(reported.get("output_tokens_details")).get("thinking_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=wrote,
        details=usage_details(
            cache_write_1h_tokens=as_count(as_mapping(reported.get("cache_creation")).get("ephemeral_1h_input_tokens")),
            web_searches=as_count(as_mapping(reported.get("server_tool_use")).get("web_search_requests")),
        ),
    )


class _Block:
    """A block as far as it has come: how it began, and the pieces since."""

    __slots__ = ("began", "citations", "kind", "number", "pieces", "signature", "toolset")

    def __init__(self, began: Mapping[str, Any], number: int) -> None:
        self.began = began
        self.kind = as_text(began.get("type"))
        self.toolset = as_text(began.get("toolset_name")) if self.kind == "tool_use" else ""
        self.number = number
        self.pieces: list[str] = []
        self.signature = [as_text(began.get("signature"))]
        self.citations: list[Any] = list(as_items(began.get("citations")))

    @property
    def input(self) -> object:
        """The input of a call of a set of tools; the text itself where that is no JSON."""
        text = "".join(self.pieces) or "{}"
        try:
            return from_json(text)
        except ValueError:
            return text

    @property
    def arguments(self) -> str:
        """The arguments of a call: of a set of tools the action, by its name, in a list."""
        if not self.toolset:
            return "".join(self.pieces) or "{}"
        action = {"type": as_text(self.began.get("name")), **as_mapping(self.input)}
        return json.dumps({"actions": [action]}, ensure_ascii=False)

    @property
    def is_incomplete(self) -> bool:
        """True where it is something of a tool at Anthropic's whose input was cut off: it can't be sent back."""
        if self.kind in _SAID or not self.pieces:
            return False
        try:
            from_json("".join(self.pieces))
        except ValueError:
            return True
        return False


class AnthropicDecoder(Decoder[AnthropicReading]):
    """Puts a message together from its events; a whole one is read as blocks that are complete when they begin."""

    def _begin_answer(self) -> None:
        self._blocks: dict[int | str | None, _Block] = {}
        self._calls = 0
        self._has_text = False
        self._metadata: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """The usage that the answer has reported so far."""
        return decode_anthropic_usage(self._usage)

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the deltas of an event."""
        event = as_mapping(from_json(data))
        match event.get("type"):
            case "content_block_delta":
                yield from self._continue_block(as_key(event.get("index")), as_mapping(event.get("delta")))
            case "content_block_start":
                yield from self._begin_block(as_key(event.get("index")), as_mapping(event.get("content_block")))
            case "content_block_stop":
                yield from self._end_block(as_key(event.get("index")))
            case "message_start":
                self._store_fields(as_mapping(event.get("message")))
            case "message_delta":
                delta = as_mapping(event.get("delta"))
                self._is_complete = self._is_complete or bool(delta.get("stop_reason"))
                self._store_fields({**delta, "usage": event.get("usage")})
                if text := self._find_explanation():
                    yield TextDelta(text)
            case "message_stop":
                self._is_complete = True
            case kind if kind == "error" or event.get("error"):
                raise self._failures().reported(event.get("error") or event, request_id=self._request_id)
            case _:
                pass  # a ping, or an unknown event

    def read_whole(self, answer: Mapping[str, Any]) -> ChatResponse:
        """Return a message as an answer."""
        self._store_fields(answer)
        if error := answer.get("error"):
            raise self._failures().reported(error, request_id=self._request_id)
        if not isinstance(answer.get("content"), list):
            raise self._failures().empty("content", request_id=self._request_id)
        for index, block in enumerate(as_items(answer.get("content"))):
            for _ in self._begin_block(index, block):
                pass
        return self._make_response()

    def _store_fields(self, fields: Mapping[str, Any]) -> None:
        """Store the fields outside the blocks; later values replace earlier ones."""
        self._metadata |= {name: value for name, value in fields.items() if value is not None}
        self._usage |= {name: value for name, value in as_mapping(fields.get("usage")).items() if value is not None}

    def _begin_block(self, index: int | str | None, began: Mapping[str, Any]) -> Iterator[StreamEvent]:
        block = self._blocks[index] = _Block(began, self._calls)
        if block.toolset and block.toolset not in self._reading.sets:
            block.kind = f"{block.toolset}_tool_use"  # no tool of the application's
        match block.kind:
            case "text":
                yield from self._add_text(block, TextDelta, began.get("text"))
            case "thinking":
                yield from self._add_text(block, ReasoningDelta, began.get("thinking"))
            case "tool_use":
                self._calls += 1
                arguments = began.get("input")
                block.pieces.append(json.dumps(arguments, ensure_ascii=False) if arguments else "")
                yield self._make_delta(block, "" if block.toolset else block.pieces[-1])
            case _:
                pass

    def _continue_block(self, index: int | str | None, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        block = self._blocks.get(index)
        if block is None:
            return
        match delta.get("type"):
            case "text_delta":
                yield from self._add_text(block, TextDelta, delta.get("text"))
            case "input_json_delta" if block.kind == "tool_use":
                block.pieces.append(as_text(delta.get("partial_json")))
                if not block.toolset:
                    yield self._make_delta(block, block.pieces[-1])
            case "input_json_delta":
                block.pieces.append(as_text(delta.get("partial_json")))
            case "thinking_delta":
                yield from self._add_text(block, ReasoningDelta, delta.get("thinking"))
            case "signature_delta":
                block.signature.append(as_text(delta.get("signature")))
            case "compaction_delta":
                block.began = {**block.began, **{name: value for name, value in delta.items() if name != "type"}}
            case "citations_delta":
                block.citations.append(delta.get("citation"))
            case _:
                pass

    def _end_block(self, index: int | str | None) -> Iterator[StreamEvent]:
        """Complete a call: of a set of tools, or one for which the server sent no arguments, with empty ones."""
        block = self._blocks.get(index)
        if block is not None and block.kind == "tool_use" and (block.toolset or not any(block.pieces)):
            yield self._make_delta(block, block.arguments)

    def _make_response(self) -> ChatResponse:
        reason = as_text(self._metadata.get("stop_reason"))
        stop_reason = _ANTHROPIC_STOP_REASONS.get(reason) or (
            stop_of_calls(reason, _ANTHROPIC_COMPLETE) if self._calls else "end_turn"
        )
        blocks = [block for block in self._blocks.values() if stop_reason != "max_tokens" or not block.is_incomplete]
        content = self._build_content(blocks)
        metadata = {name: self._metadata[name] for name in _ANTHROPIC_METADATA if self._metadata.get(name)}
        metadata |= {name: self._usage[name] for name in _USAGE_METADATA if self._usage.get(name)}
        if citations := [citation for block in self._blocks.values() for citation in block.citations]:
            metadata["citations"] = citations
        if reason in ("model_context_window_exceeded", *PAUSED):
            metadata["stop_reason"] = reason
        container = as_text(as_mapping(self._metadata.get("container")).get("id"))
        if container and reason not in PAUSED:
            content.append(ReasoningBlock(encrypted=sealed(ANTHROPIC_SEAL, {"container": container})))
        return ChatResponse(
            message=AssistantMessage(content),
            usage=self.usage,
            stop_reason=stop_reason,
            model=as_text(self._metadata.get("model")),
            request_id=self._request_id or as_text(self._metadata.get("id")) or None,
            metadata=metadata,
            unanswered=_find_unanswered(blocks),
        )

    def _build_content(self, blocks: Sequence[_Block]) -> list[AssistantContent]:
        content: list[AssistantContent] = []
        spoken: list[str] = []  # a text with citations comes in blocks that are cut in the middle of sentences
        for block in blocks:
            if block.kind == "text":
                spoken += block.pieces
                continue
            if spoken:
                content.append(TextBlock("".join(spoken)))
                spoken = []
            content.append(self._build_block(block))
        if spoken := spoken or [text for text in [self._find_explanation()] if text]:
            content.append(TextBlock("".join(spoken)))
        return content

    def _add_text(
        self, block: _Block, event: type[TextDelta] | type[ReasoningDelta], value: object
    ) -> Iterator[StreamEvent]:
        if text := as_text(value):
            block.pieces.append(text)
            self._has_text = self._has_text or block.kind == "text"
            yield event(text)

    def _make_delta(self, block: _Block, text: str) -> ArgumentsDelta:
        return ArgumentsDelta(block.number, as_text(block.began.get("id")), self._find_own_name(block), text)

    def _find_own_name(self, block: _Block) -> str:
        name = as_text(block.began.get("name"))
        return self._reading.sets[block.toolset] if block.toolset else self._reading.names.get(name, name)

    def _find_explanation(self) -> str:
        return "" if self._has_text else as_text(as_mapping(self._metadata.get("stop_details")).get("explanation"))

    def _build_block(self, block: _Block) -> AssistantContent:
        text = "".join(block.pieces)
        match block.kind:
            case "thinking":
                return ReasoningBlock(text=text, signature="".join(block.signature) or None)
            case "tool_use":
                data = {name: value for name, value in block.began.items() if name not in _ANTHROPIC_CALL_FIELDS}
                data = {name: value for name, value in data.items() if value not in (None, {"type": "direct"})}
                if block.toolset:
                    data |= {"name": block.began.get("name"), "input": block.input}
                elif (name := as_text(block.began.get("name"))) in OWN_NAMES and name in self._reading.names:
                    data["name"] = name
                extra = {ANTHROPIC_SEAL: data} if data else None
                return ToolCall(
                    as_text(block.began.get("id")), self._find_own_name(block), block.arguments, extra=extra
                )
            case _:
                data = dict(block.began)
                if text:
                    data["input"] = from_json(text)
                return ReasoningBlock(encrypted=sealed(ANTHROPIC_SEAL, data))


def _find_unanswered(blocks: Sequence[_Block]) -> tuple[UnansweredItem, ...]:
    """Return the calls that are neither ours nor those of tools at Anthropic's, and have no result beside them."""
    answered = {as_text(block.began.get("tool_use_id")) for block in blocks}
    return tuple(
        [
            UnansweredItem(block.kind, as_text(block.began.get("id")), as_text(block.began.get("name")))
            for block in blocks
            if block.kind.endswith("_tool_use")
            and block.kind not in _ANTHROPIC_SERVER_BLOCKS
            and as_text(block.began.get("id")) not in answered
        ]
    )


_BETA_HEADER = "anthropic-beta"
_TAKES_SYSTEM_MESSAGES = re.compile(r"claude-(opus-(4-8|5)|fable-5|mythos-5)")
_OLD_MODELS = re.compile("claude-(instant|2|3)")
_ANTHROPIC_URL = "https://api.anthropic.com"
_VERSION_WITH_TEMPERATURE = "2023-06-01"
_VERTEX_VERSION = "2026-10-21"
_MOST_PAUSES = 10
_ANTHROPIC_HOSTS = ("anthropic.com",)


class AnthropicOptions(TypedDict, total=False):
    """Fields of a request for messages, for `AnthropicProvider` and the `options` of a request to it.

    ``thinking`` asks for reasoning, as in ``{"thinking": {"type": "adaptive", "display": "summarized"}}``.
    ``output_config`` overrides the request's own fields. ``tools`` are those that run at Anthropic's, such as
    ``{"type": "web_search_20260209", "name": "web_search"}``; they stand before the request's own.
    ``context_management`` has Anthropic clear old results or thoughts, or compact the beginning, as in ``{"edits":
    [{"type": "clear_tool_uses_20250919"}]}``; what it did is in the metadata of the answer. ``mcp_servers`` are called
    by Anthropic, with ``{"type": "mcp_toolset", "mcp_server_name": ...}`` among the tools.
    """

    cache_control: CacheControlEphemeralParam
    container: str | dict[str, Any]
    inference_geo: str
    context_management: BetaContextManagementConfigParam
    mcp_servers: list[BetaRequestMCPServerURLDefinitionParam]
    metadata: MetadataParam
    output_config: OutputConfigParam
    service_tier: Literal["auto", "standard_only"]
    speed: Literal["standard", "fast"]
    thinking: ThinkingConfigParam
    tools: list[ToolUnionParam]


PlatformClient: TypeAlias = (
    AsyncAnthropic | AsyncAnthropicAWS | AsyncAnthropicBedrockMantle | AsyncAnthropicFoundry | AsyncAnthropicVertex
)
"""A client of the SDK that posts messages to an address of its own."""
MakeClient: TypeAlias = Callable[[httpx2.AsyncClient], PlatformClient]


class _AnthropicHttpClient(BoundedClient, DefaultAsyncHttpxClient):
    """The SDK's, with bounds."""


def _read_client(client: PlatformClient) -> Mapping[str, Any]:
    """Return the address, the key and the headers of a client that was given, which go before those passed."""
    key = getattr(client, "api_key", None) or getattr(client, "auth_token", None) or NO_KEY
    headers = {name: value for name, value in client.default_headers.items() if isinstance(value, str)}
    return {"base_url": str(client.base_url), "api_key": key, "headers": headers}


def _list_cloud_secrets(client: PlatformClient | None) -> list[str]:
    return [str(getattr(client, name, None) or "") for name in ("aws_secret_key", "aws_session_token", "access_token")]


def _list_cloud_fields(client: PlatformClient | None) -> Mapping[str, str]:
    return {"anthropic_version": _VERTEX_VERSION} if isinstance(client, AsyncAnthropicVertex) else {}


class AnthropicProvider(Adapter):
    """Talks to a model through Anthropic's messages: Anthropic's own, or any server that speaks them.

    ::

        async with AnthropicProvider("claude-sonnet-5-5", cache="5m") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``AnthropicProvider("claude-sonnet-5-5")`` needs ``ANTHROPIC_API_KEY``. It works on asyncio and on trio, may be
    shared by tasks, and used in one event loop after another; connections are made at the first request and closed by
    `aclose` or by leaving ``async with``. It never retries by itself: the loop does.

    Each message is encoded once, however often it is sent. Reasoning comes with its signature and goes back as it
    came; so does what tools that run at Anthropic's said. Where the server pauses a long turn of those, it is asked to
    go on, with the same timeout again, and the answer is one; after ten pauses it is what has come, and
    `ChatResponse.metadata` has ``{"stop_reason": "pause_turn"}``.

    Args:
        model: The model's name as the server knows it.
        api_key: None takes ``ANTHROPIC_API_KEY``. A server on this machine needs none, and the variable is not sent
            there.
        base_url: Where the server is, without ``/v1``. None takes ``ANTHROPIC_BASE_URL``, else Anthropic's own.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None leaves it to the SDK,
            which waits ten minutes for each piece.
        headers: Sent with each request, such as ``anthropic-beta``.
        options: Fields for each request, such as `AnthropicOptions`; `ChatRequest.options` go over them.
        max_tokens: The limit for requests that set none: Anthropic wants one. What today's models all can give.
        cache: Lets the server cache the request for five minutes or an hour, so that the next request of the same
            conversation costs a tenth for it: marks the end of the tools, of the system text, and of the messages.
            None marks nothing, which is right where no second request follows.
        takes_system_messages: True where the model takes system messages after the user's, and changes of its tools in
            them, so that neither loses the cache; else they are text of the user's, marked as the system's. None means
            to decide by the model's name, for Anthropic's own server.
        max_connections: The most connections of one event loop; more requests wait for one.
        name: The name in errors.
        client: A client of your own, for a proxy or other credentials, such as ``AsyncAnthropicFoundry``; it is not
            closed, and `api_key`, `base_url` and `headers` are ignored. A function of the HTTP client makes one
            for each event loop, and those are closed.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    _key_advice = "check the key: api_key or the environment variable ANTHROPIC_API_KEY"
    _protocol = "a message of Anthropic's format"
    _url_advice = "check base_url, which must not end in /v1"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        max_tokens: int = 16_384,
        cache: CacheTime | None = None,
        takes_system_messages: bool | None = None,
        max_connections: int = MOST_CONNECTIONS,
        name: str = "anthropic",
        client: PlatformClient | MakeClient | None = None,
    ) -> None:
        make_client = client if callable(client) else None
        given = cast("PlatformClient | None", client) if make_client is None else make_client(_AnthropicHttpClient())
        self._given_client = given if make_client is None else None
        self._vertex = given if isinstance(given, AsyncAnthropicVertex) else None
        passed: Mapping[str, Any] = {"base_url": base_url, "api_key": api_key, "headers": headers}
        found = passed if given is None else _read_client(given)
        super().__init__(
            model,
            name=name,
            base_url=found["base_url"] or os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC_URL,
            timeout=timeout,
            headers=found["headers"],
            max_connections=max_connections,
        )
        check_setting("max_tokens", max_tokens, int, least=1)
        check_setting("cache", cache, *get_args(CacheTime), None)
        key = found["api_key"] or key_for(
            self._base_url,
            name=name,
            variables=["ANTHROPIC_API_KEY"],
            hosts=_ANTHROPIC_HOSTS,
            advice="; for other credentials pass a client of your own",
        )
        self._api_key = checked_key(key, name)
        self._secrets = (*self._secrets, *_list_cloud_secrets(given))
        self._set_up_clients(make_client, is_given=given is not None)
        is_own = make_client is None and is_of(self._base_url, *_ANTHROPIC_HOSTS)
        if takes_system_messages is None:
            takes_system_messages = is_own and _TAKES_SYSTEM_MESSAGES.match(model) is not None
        self._takes_system_messages = takes_system_messages
        self._encoder = MessagesEncoder(
            model=None if self._vertex else model,
            defaults={**_list_cloud_fields(given), **(options or {})},
            max_tokens=max_tokens,
            cache=cache,
            takes_temperature=_takes_temperature(self._headers, is_own=is_own, is_on_cloud=make_client is not None),
            takes_system_messages=takes_system_messages,
            has_own_tools=_OLD_MODELS.search(model) is None,
        )

    def _set_up_clients(self, make_client: MakeClient | None, *, is_given: bool) -> None:
        self._request_headers = dict[str, Any](JSON_HEADERS)
        variable, given = "ANTHROPIC_CUSTOM_HEADERS", self._headers
        if not is_given:
            withheld = withheld_headers(self._base_url, variable, _ANTHROPIC_HOSTS, given=given)
            self._request_headers |= dict.fromkeys(withheld, omit)
        own: dict[str, Any] = {"api_key": self._api_key, "base_url": self._base_url, "default_headers": given}
        make: MakeClient = make_client or (lambda http_client: AsyncAnthropic(http_client=http_client, **own))
        limits = self._limits
        self._clients = LoopLocal[PlatformClient](
            lambda: make(_AnthropicHttpClient(limits=limits)), lambda made: made.close()
        )

    def _list_capabilities(self, model: str) -> Capabilities:
        is_old = _OLD_MODELS.search(model) is not None
        new: Support = "unused" if is_old else "native"
        own: Support = "emulated" if is_old else "native"
        return Capabilities(
            sound="refused",
            media_in_results="native",
            files="native",
            cache_marks="native",
            examples=own,
            eager_arguments=new,
            code_callers=new,
            deferred_tools=own,
            shell_tool=own,
            editor_tool=own,
            memory_tool=own,
            computer_tool=own,
            browser_tool=own,
            compaction="native",
            tool_changes="native" if self._takes_system_messages else "unused",
            source="https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview",
        )

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for something that the format can't express.
        """
        response = await super().generate(request)
        for _ in range(_MOST_PAUSES):
            rest = continue_request(request, response)
            if rest is None:
                break
            response = join_replies(response, await super().generate(rest))
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; leaving early closes the connection.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for something that the format can't express.
        """
        asked = request
        answer: ChatResponse | None = None
        for _ in range(_MOST_PAUSES + 1):
            async with closing(super().stream(asked)) as events:
                async for event in events:
                    if isinstance(event, ResponseDone):
                        answer = event.response if answer is None else join_replies(answer, event.response)
                    else:
                        yield event
            rest = None if answer is None else continue_request(request, answer)
            if rest is None:
                break
            asked = rest
        if answer is not None:
            yield ResponseDone(answer)

    async def compact(self, messages: Sequence[Message]) -> list[Message]:
        """Return a transcript that begins with Anthropic's summary of another; see `compact_on_server`.

        Raises:
            ProviderError: Or a subclass.
        """
        head, rest, newest = split_compacted(messages)
        if not rest:
            return list(messages)
        request = ChatRequest(messages=[*head, *rest], options={"compaction": {"type": "summarize"}})
        response = await super().generate(request)
        sealed_blocks = [block for block in response.message.content if isinstance(block, ReasoningBlock)]
        summaries = [unsealed(ANTHROPIC_SEAL, block.encrypted or "") for block in sealed_blocks]
        if not any(data and data.get("content") for data in summaries):
            return list(messages)  # the block says so where no summary could be made
        return [*head, response.message, *newest]

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        send = partial(self._post_body, betas=self._encoder.list_betas(request))
        exchange = Exchange(send=send, failures=self._make_failures, raised=AnthropicError)
        return exchange, self._encoder.encode(request, streams=streams)

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> AnthropicDecoder:
        return AnthropicDecoder(self._make_failures, self._encoder.reading_of(request), request_id=request_id)

    async def _post_body(
        self, body: bytes, *, streams: bool, timeout: float | None, betas: Sequence[str] = ()
    ) -> httpx2.Response:
        client = self._given_client or self._clients.get()
        headers = self._request_headers
        if betas:
            own = [value for name, value in self._headers.items() if name.lower() == _BETA_HEADER]
            headers = {**headers, _BETA_HEADER: ",".join([*own, *betas])}
        path, vertex = "/v1/messages", self._vertex
        if vertex is not None:  # where the SDK makes the body itself, it reads model and stream out of it
            verb = "streamRawPredict" if streams else "rawPredict"
            place = f"/projects/{vertex.project_id}/locations/{vertex.region}"
            path = f"{place}/publishers/anthropic/models/{quote(self.model, safe='@')}:{verb}"
        return await post_by_sdk(client, path, body, headers, timeout=timeout, stream_type=AsyncStream[object])


def anthropic_on_bedrock(
    model: str,
    *,
    region: str | None = None,
    profile: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    **settings: Any,
) -> AnthropicProvider:
    """Return the provider of a Claude model on Amazon Bedrock, through the SDK's own client (extra ``bedrock``).

    Args:
        model: As Bedrock names it: ``anthropic.claude-sonnet-4-5``.
        region: None takes ``AWS_REGION``.
        profile: Of the credentials on this machine; None takes the default ones.
        api_key: A key of Bedrock in place of credentials; None takes ``AWS_BEARER_TOKEN_BEDROCK`` if there is one.
        base_url: None takes the region's.
        **settings: As for `AnthropicProvider`.

    Raises:
        ConfigurationError: There is no region.
    """

    def make(client: httpx2.AsyncClient) -> AsyncAnthropicBedrockMantle:
        return AsyncAnthropicBedrockMantle(
            aws_region=region, aws_profile=profile, api_key=api_key, base_url=base_url, http_client=client
        )

    return _make_provider(model, make, {"name": "anthropic-bedrock", **settings})


def anthropic_on_vertex(
    model: str,
    *,
    project: str | None = None,
    location: str | None = None,
    credentials: Any = None,
    access_token: str | None = None,
    base_url: str | None = None,
    **settings: Any,
) -> AnthropicProvider:
    """Return the provider of a Claude model on Vertex AI, through the SDK's own client (extra ``google``).

    Args:
        model: As Vertex names it: ``claude-sonnet-4-5@20250929``.
        project: At Google Cloud; None takes ``ANTHROPIC_VERTEX_PROJECT_ID``.
        location: Such as ``global``; None takes ``CLOUD_ML_REGION``.
        credentials: Of `google.auth`; None takes the default ones of this machine.
        access_token: A token in place of credentials.
        base_url: None takes the location's.
        **settings: As for `AnthropicProvider`.

    Raises:
        ConfigurationError: There is no project or no location.
    """
    given: dict[str, Any] = {
        "project_id": project,
        "region": location,
        "credentials": credentials,
        "access_token": access_token,
        "base_url": base_url,
    }
    given = {name: value for name, value in given.items() if value is not None}

    def make(client: httpx2.AsyncClient) -> AsyncAnthropicVertex:
        made = AsyncAnthropicVertex(http_client=client, **given)
        if not made.project_id:
            raise ConfigurationError("Vertex AI wants a project: pass project, or set ANTHROPIC_VERTEX_PROJECT_ID")
        return made

    return _make_provider(model, make, {"name": "anthropic-vertex", **settings})


def _make_provider(model: str, make: MakeClient, settings: Mapping[str, Any]) -> AnthropicProvider:
    try:
        return AnthropicProvider(model, client=make, **settings)
    except (AnthropicError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"Anthropic's SDK refuses these settings: {error}") from error


def _takes_temperature(headers: Mapping[str, str], *, is_own: bool, is_on_cloud: bool) -> bool:
    versions = {value for name, value in headers.items() if name.lower() == "anthropic-version"}
    return not (is_on_cloud or is_own) or versions == {_VERSION_WITH_TEMPERATURE}
