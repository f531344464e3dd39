"""Amazon Bedrock's Converse API, for every model that Bedrock serves: the provider, its requests and its answers.

botocore signs the requests and reads the frames of streams; they are sent here, so that they work on asyncio and trio
and end where their caller does. Of what differs between formats (`toolkit.providers.encoding`) this one has:

- The system messages at the beginning are a field of their own; a later one is marked text of the user.
- Roles alternate and the user begins. Blank texts are left out.
- There is no choice of no tool and no switch for parallel calls: the system text says both.
- Reasoning goes back as it came, with its signature. Blocks without a counterpart here are sealed at their place.
- There is no seed. Images and files are bytes; a URL is refused, but for one of S3.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, assert_never, cast
from urllib.parse import quote

import anyio.to_thread
from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    AudioBlock,
    ChatRequest,
    ChatResponse,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UnansweredItem,
    Usage,
)
from toolkit.chat.request import Capabilities, describe_with_hints
from toolkit.dataclass import dataclass
from toolkit.errors import BadResponseError, ConfigurationError, ProviderAuthError, naming_extra
from toolkit.http_client import BoundedClient
from toolkit.json_text import write_json
from toolkit.providers.adapter import (
    MOST_CONNECTIONS,
    Adapter,
    Decoder,
    Exchange,
    checked_key,
    is_home,
    is_loopback,
    post_plainly,
)
from toolkit.providers.encoding import (
    BEGINNING_LEFT_OUT,
    ONE_AT_A_TIME,
    USER,
    BlockFormat,
    Dialect,
    EncodedOnce,
    JsonObject,
    arguments_object,
    as_count,
    as_items,
    as_key,
    as_mapping,
    as_text,
    assemble_body,
    checked_choice,
    checked_message,
    file_text,
    join_by_role,
    join_list,
    sealed,
    source_of,
    split_system,
    stop_of_calls,
    stop_texts,
    strict_format,
    to_bytes,
    unsealed,
)
from toolkit.redaction import without_credentials
from toolkit.runtime.backend import LoopLocal
from toolkit.settings import Duration

with naming_extra("bedrock"):
    import httpx2
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from botocore.eventstream import EventStreamBuffer, ParserError
    from botocore.session import Session

__all__ = ["BedrockProvider"]

BEDROCK_DIALECT = Dialect(call_id=re.compile(r"[A-Za-z0-9_-]+"))
BEDROCK_SEAL = "bedrock"
_HOSTS = ("amazonaws.com", "amazonaws.com.cn", "api.aws")
_OPENING = to_bytes({"text": BEGINNING_LEFT_OUT}, "text")
_MARK = b'{"cachePoint":{"type":"default"}}'
_NO_CALLS = "Call no tool now."
_IMAGES = ("png", "jpeg", "gif", "webp")
_DOCUMENTS = {
    "application/pdf": "pdf",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_STOP_REASONS: Mapping[str, StopReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
_COMPLETE = ("tool_use", "end_turn")
_UNUSABLE = ("malformed_model_output", "malformed_tool_use")
_METADATA = ("trace", "additionalModelResponseFields", "serviceTier", "performanceConfig")
_REPORTED = {"throttlingException": "rate_limit_error", "validationException": "invalid_request_error"}


class BedrockProvider(Adapter):
    """Connects to a model on Amazon Bedrock through its Converse API.

    ::

        async with BedrockProvider("amazon.nova-lite-v1:0", region="us-east-1") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    Credentials are those that AWS's own tools take: of the environment, a profile, or the machine's role. Sharing,
    closing and retries are as for the other providers: the loop retries, this does not.

    Args:
        model: The id of a model, an inference profile or an ARN.
        region: None takes ``AWS_REGION``, ``AWS_DEFAULT_REGION``, or the profile's.
        api_key: A key of Bedrock in place of credentials; None takes ``AWS_BEARER_TOKEN_BEDROCK`` if there is one.
        profile: Of the credentials on this machine; None takes the default ones.
        credentials: Of botocore, in place of a profile.
        base_url: None takes the region's. This machine's credentials go to AWS alone.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None waits forever.
        headers: Sent with each request.
        options: Fields for each request, such as ``guardrailConfig`` and ``additionalModelRequestFields``;
            `ChatRequest.options` go over them.
        caches: True to let the server cache the tools, the system text and the messages so far.
        max_connections: The most connections of one event loop; more requests wait for one.
        name: The name in errors.

    Raises:
        ConfigurationError: There is no region.
        ProviderAuthError: There are no credentials, or they would go to another host than AWS.
    """

    _key_advice = "check the credentials of AWS, or api_key"
    _protocol = "an answer of Converse"

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        api_key: str | None = None,
        profile: str | None = None,
        credentials: Credentials | None = None,
        base_url: str | None = None,
        timeout: Duration | None = 600,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        caches: bool = False,
        max_connections: int = MOST_CONNECTIONS,
        name: str = "bedrock",
    ) -> None:
        self._region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
        session = Session(profile=profile)
        self._region = self._region or session.get_config_variable("region") or ""
        if not self._region and base_url is None:
            raise ConfigurationError("Bedrock has an address for each region: pass region, or set AWS_REGION")
        super().__init__(
            model,
            name=name,
            base_url=base_url or f"https://bedrock-runtime.{self._region}.amazonaws.com",
            timeout=timeout,
            headers=headers,
            max_connections=max_connections,
        )
        is_home_url = is_home(self._base_url, _HOSTS)
        if api_key is None and is_home_url and credentials is None and profile is None:
            api_key = os.environ.get("AWS_BEARER_TOKEN_BEDROCK") or None
        if not (is_home_url or is_loopback(self._base_url) or api_key or credentials):
            raise ProviderAuthError(
                name,
                f"no credentials for {without_credentials(self._base_url)}: those of this machine go to AWS alone; "
                "pass credentials or api_key",
            )
        self._api_key = None if api_key is None else checked_key(api_key, name)
        self._credentials = credentials
        self._session = session if is_home_url else None
        self._clients = LoopLocal(partial(BoundedClient, limits=self._limits, timeout=None), BoundedClient.aclose)
        self._encoder = ConverseEncoder(defaults=options or {}, caches=caches)

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:  # noqa: ARG002 - the URL says it
        exchange = Exchange(
            send=self._post_body, failures=self._make_failures, raised=httpx2.HTTPError, make_reader=FrameReader
        )
        return exchange, self._encoder.encode(request)

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> ConverseDecoder:
        return ConverseDecoder(self._make_failures, BEDROCK_DIALECT.names_back(request.tools), request_id=request_id)

    def _list_capabilities(self, model: str) -> Capabilities:  # noqa: ARG002 - all models alike
        return Capabilities(
            no_calls="emulated",
            one_call_at_a_time="emulated",
            sound="refused",
            media_in_results="native",
            files="native",
            cache_marks="native",
            source="https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference.html",
        )

    async def _post_body(self, body: bytes, *, streams: bool, timeout: float | None) -> httpx2.Response:
        verb = "converse-stream" if streams else "converse"
        url = f"{self._base_url.rstrip('/')}/model/{quote(self.model, safe='')}/{verb}"
        headers = {"content-type": "application/json", **self._headers}
        if self._api_key is not None:
            headers["authorization"] = f"Bearer {self._api_key}"
        else:
            headers = await anyio.to_thread.run_sync(self._sign_headers, url, body, headers)
        client = self._clients.get()
        return await post_plainly(client, url, body, headers, timeout=timeout, failures=self._make_failures)

    def _sign_headers(self, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers with a signature; new credentials may have to be fetched."""
        found = self._credentials
        if found is None and self._session is not None:
            found = self._credentials = self._session.get_credentials()
        if found is None:
            if self._session is None:  # a server on this machine
                return dict(headers)
            raise ProviderAuthError(
                self.name, "no credentials of AWS: pass api_key, credentials or profile, or set AWS_ACCESS_KEY_ID"
            )
        frozen = found.get_frozen_credentials()
        self._secrets = (*self._secrets[:8], str(frozen.secret_key), str(frozen.token or ""))
        request = AWSRequest("POST", url, data=body, headers=dict(headers))
        SigV4Auth(frozen, "bedrock", self._region or "us-east-1").add_auth(request)
        return dict(request.headers.items())


class FrameReader:
    """Cuts the frames of AWS's event streams into JSON objects: the kind of each event, and its payload.

    Attributes:
        is_done: False; the format has no sign of its end.
    """

    def __init__(self) -> None:
        self.is_done: bool = False
        self._buffer = EventStreamBuffer()

    def feed(self, received: bytes) -> list[bytes]:
        """Return the events that are now complete, or raise a ValueError where these are no frames."""
        self._buffer.add_data(received)
        try:
            return [_read_frame(cast("Mapping[str, Any]", frame.headers), frame.payload) for frame in self._buffer]
        except ParserError as error:
            raise ValueError(f"no frames of an event stream: {error}") from error


def _read_frame(headers: Mapping[str, Any], payload: bytes) -> bytes:
    if headers.get(":message-type") == "event":
        return b'{"%s":%s}' % (as_text(headers.get(":event-type")).encode(), payload or b"{}")
    kind = as_text(headers.get(":exception-type")) or as_text(headers.get(":error-code"))
    message = as_text(headers.get(":error-message")) or as_text(as_mapping(from_json(payload or b"{}")).get("message"))
    return json.dumps({"error": {"type": _REPORTED.get(kind, kind), "message": message or kind}}).encode()


class ConverseEncoder:
    """Encodes the requests of one provider, each message and each tool once."""

    def __init__(self, *, defaults: Mapping[str, Any], caches: bool = False) -> None:
        self._defaults = dict(defaults)
        self._mark: bytes = _MARK if caches else b""
        self._messages = EncodedOnce(_encode_turn, size_of=lambda encoded: len(encoded[1]))
        self._tools = EncodedOnce(_encode_tool, size_of=len)

    def encode(self, request: ChatRequest) -> bytes:
        """Return the body of the request: its `options` over everything, one of None takes the field away."""
        system, messages = split_system(request.messages)
        choice, notes = self._encode_choice(request)
        inference = {
            "maxTokens": request.max_tokens,
            "temperature": request.temperature,
            "stopSequences": stop_texts(request.stop),
        }
        inference = {name: value for name, value in inference.items() if value is not None}
        output: JsonObject = {}
        if request.reasoning_effort is not None:
            output["effort"] = request.reasoning_effort
        if request.response_format is not None:
            wanted = request.response_format
            schema = {"schema": write_json(dict(wanted.schema)), "name": BEDROCK_DIALECT.tool_name_of(wanted.name)}
            output["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
        texts = [to_bytes({"text": text}, "the system text") for text in (system, *notes) if text.strip()]
        marks = [self._mark] if self._mark else []
        settings = {**self._defaults, **request.options}
        inference |= as_mapping(settings.pop("inferenceConfig", None))
        output |= as_mapping(settings.pop("outputConfig", None))
        body: JsonObject = {**settings, "inferenceConfig": inference or None, "outputConfig": output or None}
        members: dict[str, bytes | Sequence[bytes]] = {"messages": self._join_messages(messages)}
        if texts:
            members["system"] = [*texts, *marks]
        if request.tools:
            tools = join_list([*self._tools.all_of(request.tools), *marks])
            members["toolConfig"] = b'{"tools":' + tools + choice + b"}"
        return assemble_body(body, members)

    def _encode_choice(self, request: ChatRequest) -> tuple[bytes, list[str]]:
        """Return the choice of tools, and what has to be said in words."""
        notes: list[str] = []
        choice = checked_choice(request.tool_choice, request.tools or ())
        if request.tools and request.parallel_tool_calls is False:
            notes.append(ONE_AT_A_TIME)
        match choice:
            case "auto":
                return b"", notes
            case "none":
                return b"", [*notes, _NO_CALLS] if request.tools else notes
            case "required":
                return b',"toolChoice":{"any":{}}', notes
            case "one":
                name = BEDROCK_DIALECT.tool_name_of(request.tool_choice)
                return b',"toolChoice":{"tool":{"name":"%s"}}' % name.encode(), notes
            case _:
                assert_never(choice)

    def _join_messages(self, messages: Sequence[Message]) -> bytes:
        spoken = list(self._messages.all_of(messages))
        if self._mark:
            last = next((place for place in reversed(range(len(spoken))) if spoken[place][0] == USER), None)
            if last is not None:
                spoken[last] = (USER, b",".join([spoken[last][1], self._mark]))
        joined = join_by_role(spoken, field=b"content", opening=_OPENING)
        if joined == b"[]":
            raise ConfigurationError("there is nothing to answer: Converse wants a message of the user with text")
        return joined


def _encode_tool(definition: ToolDefinition) -> bytes:
    encoded = to_bytes(encode_bedrock_tool(definition), f"tool '{definition.name}'")
    is_marked = definition.hints is not None and definition.hints.cache_breakpoint
    return b",".join([encoded, _MARK]) if is_marked else encoded


def _encode_turn(message: Message) -> tuple[bytes, bytes]:
    role = b"assistant" if isinstance(checked_message(message), AssistantMessage) else USER
    return role, to_bytes(encode_bedrock_message(message), f"the {message.role} message")[1:-1]


def encode_bedrock_tool(definition: ToolDefinition) -> JsonObject:
    """Return a tool as the wire has it; strict where its schema keeps the rules of strict mode."""
    schema, can_be_strict = strict_format(definition.parameters, is_openai=False)
    spec = {
        "name": BEDROCK_DIALECT.tool_name_of(definition.name),
        "description": describe_with_hints(definition) or definition.name,
        "inputSchema": {"json": schema},
    }
    return {"toolSpec": {**spec, "strict": True} if definition.strict and can_be_strict else spec}


def _make_text(text: str) -> JsonObject:
    return {"text": text}


def _encode_media(block: ImageBlock | AudioBlock | FileBlock) -> JsonObject | None:
    match block:
        case AudioBlock():
            return None
        case ImageBlock():
            kind = block.media_type.partition("/")[2]
            source = _encode_source(block)
            return {"image": {"format": kind, "source": source}} if source and kind in _IMAGES else None
        case FileBlock():
            text = None if block.data is None else file_text(block)
            if text is not None:
                return _make_text(text)
            form, source = _DOCUMENTS.get(block.media_type), _encode_source(block)
            name = re.sub(r"[^A-Za-z0-9 ()\[\]-]+", "-", block.name)[:200]
            return {"document": {"format": form, "name": name, "source": source}} if source and form else None
        case _:
            assert_never(block)


def _encode_source(block: ImageBlock | FileBlock) -> JsonObject | None:
    source = source_of(block)
    if isinstance(source, bytes):
        return {"bytes": b64encode(source).decode()}
    return {"s3Location": {"uri": source}} if source.startswith("s3://") else None


def _encode_call(call: ToolCall) -> JsonObject:
    call_id, name = BEDROCK_DIALECT.call_id_of(call.id), BEDROCK_DIALECT.tool_name_of(call.name)
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments_object(call.arguments)}}


def _encode_reasoning(block: ReasoningBlock) -> JsonObject | None:
    if block.encrypted is not None:
        return cast("JsonObject | None", (unsealed(BEDROCK_SEAL, block.encrypted) or {}).get("block"))
    if block.signature is None:
        return None
    return {"reasoningContent": {"reasoningText": {"text": block.text, "signature": block.signature}}}


def _encode_result(result: ToolResult, blocks: list[JsonObject]) -> JsonObject:
    wire: JsonObject = {"toolUseId": BEDROCK_DIALECT.call_id_of(result.call_id), "content": blocks or [{"text": ""}]}
    return {"toolResult": {**wire, "status": "error"} if result.is_error else wire}


_BLOCKS = BlockFormat(
    takes=(
        "Converse",
        (
            "text, bytes of PNG, JPEG, GIF and WebP images, PDFs, files of Office and of text, and addresses of S3; "
            "Anthropic, Google and OpenAI take URLs"
        ),
    ),
    make_text=_make_text,
    encode_media=_encode_media,
    encode_call=_encode_call,
    encode_reasoning=_encode_reasoning,
    encode_result=_encode_result,
)
encode_bedrock_message = _BLOCKS.encode
"""Returns the blocks that a message is on the wire."""


def decode_bedrock_usage(usage: object) -> Usage:
    """Return the usage that an answer reports; zeros where the server reported none."""
    reported = as_mapping(usage)
    read, wrote = as_count(reported.get("cacheReadInputTokens")), as_count(reported.get("cacheWriteInputTokens"))
    return Usage(
        input_tokens=(as_count(reported.get("inputTokens")) or 0) + (read or 0) + (wrote or 0),
        output_tokens=as_count(reported.get("outputTokens")) or 0,
        cache_read_tokens=read,
        cache_write_tokens=wrote,
    )


@dataclass(slots=True)
class _Block:
    """A block as far as it has come: of which kind, how it began, and the pieces since."""

    kind: str
    began: Mapping[str, Any]
    number: int
    pieces: list[Any] = field(default_factory=list[Any])
    signature: str = ""


class ConverseDecoder(Decoder[Mapping[str, str]]):
    """Puts an answer together from its events; a whole one is read as blocks that are complete when they begin.

    It is read by the tools' own names by those on the wire, where they differ.
    """

    def _begin_answer(self) -> None:
        self._blocks: dict[int | str | None, _Block] = {}
        self._calls = 0
        self._fields: dict[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """The usage that the answer has reported so far."""
        return decode_bedrock_usage(self._fields.get("usage"))

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the deltas of an event."""
        event = as_mapping(from_json(data))
        if error := event.get("error"):
            raise self._failures().reported(error, request_id=self._request_id)
        for kind, value in event.items():
            fields = as_mapping(value)
            index = as_key(fields.get("contentBlockIndex"))
            if kind == "contentBlockStart":
                yield from self._begin_block(index, as_mapping(fields.get("start")))
            elif kind == "contentBlockDelta":
                yield from self._continue_block(index, as_mapping(fields.get("delta")))
            elif kind == "contentBlockStop":
                yield from self._end_block(index)
            else:
                self._store_fields(fields)

    def read_whole(self, answer: Mapping[str, Any]) -> ChatResponse:
        """Return an answer of Converse."""
        self._store_fields(answer)
        message = as_mapping(as_mapping(answer.get("output")).get("message"))
        if not message:
            raise self._failures().empty("output", request_id=self._request_id)
        for index, block in enumerate(as_items(message.get("content"))):
            for _ in self._read_block(index, block):
                pass
        return self._make_response()

    def _store_fields(self, fields: Mapping[str, Any]) -> None:
        self._fields |= {name: value for name, value in fields.items() if value is not None}
        self._is_complete = bool(self._fields.get("stopReason"))

    def _read_block(self, index: int, block: Mapping[str, Any]) -> Iterator[StreamEvent]:
        call = as_mapping(block.get("toolUse"))
        reasoning = as_mapping(as_mapping(block.get("reasoningContent")).get("reasoningText"))
        if "text" in block:
            yield from self._continue_block(index, block)
        elif call and "type" not in call:
            yield from self._begin_block(index, {"toolUse": call})
            arguments = call.get("input")
            yield from self._continue_block(index, {"toolUse": {"input": write_json(arguments) if arguments else "{}"}})
        elif reasoning:
            yield from self._continue_block(index, {"reasoningContent": reasoning})
        else:
            self._blocks[index] = _Block("other", block, self._calls)

    def _begin_block(self, index: int | str | None, start: Mapping[str, Any]) -> Iterator[StreamEvent]:
        for kind, value in start.items():
            began = as_mapping(value)
            is_call = kind == "toolUse" and "type" not in began
            block = self._blocks[index] = _Block("toolUse" if is_call else "other", start, self._calls)
            if is_call:
                self._calls += 1
                yield self._make_delta(block, "")

    def _continue_block(self, index: int | str | None, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        reasoning = as_mapping(delta.get("reasoningContent"))
        kind = "text" if "text" in delta else "reasoning" if reasoning else "other"
        block = self._blocks.setdefault(index, _Block(kind, {}, self._calls))
        if block.kind == "other" or reasoning.get("redactedContent"):
            block.kind = "other"
            block.pieces.append(dict(delta))
        elif block.kind == "toolUse":
            text = as_text(as_mapping(delta.get("toolUse")).get("input"))
            block.pieces.append(text)
            yield self._make_delta(block, text)
        elif "text" in delta or "text" in reasoning:
            text = as_text(delta.get("text")) or as_text(reasoning.get("text"))
            block.pieces.append(text)
            yield TextDelta(text) if block.kind == "text" else ReasoningDelta(text)
        block.signature += as_text(reasoning.get("signature"))
        if citation := delta.get("citation"):
            self._fields.setdefault("citations", []).append(citation)

    def _end_block(self, index: int | str | None) -> Iterator[StreamEvent]:
        """Complete a call for which the server sent no arguments with empty ones."""
        block = self._blocks.get(index)
        if block is not None and block.kind == "toolUse" and not any(block.pieces):
            block.pieces.append("{}")
            yield self._make_delta(block, "{}")

    def _make_response(self) -> ChatResponse:
        reason = as_text(self._fields.get("stopReason"))
        if reason in _UNUSABLE and not self._calls:
            raise BadResponseError(
                self._failures().provider,
                f"the model's answer can't be used ({reason}): try again",
                is_retryable=True,
                request_id=self._request_id,
            )
        metadata = {name: self._fields[name] for name in (*_METADATA, "citations") if self._fields.get(name)}
        blocks = list(self._blocks.values())
        return ChatResponse(
            message=AssistantMessage(
                [self._build_block(block) for block in blocks if block.kind != "text" or block.pieces]
            ),
            usage=self.usage,
            stop_reason=_STOP_REASONS.get(reason) or (stop_of_calls(reason, _COMPLETE) if self._calls else "end_turn"),
            request_id=self._request_id,
            metadata=metadata,
            unanswered=_find_unanswered(blocks),
        )

    def _make_delta(self, block: _Block, text: str) -> ArgumentsDelta:
        call = as_mapping(block.began.get("toolUse"))
        name = as_text(call.get("name"))
        return ArgumentsDelta(block.number, as_text(call.get("toolUseId")), self._reading.get(name, name), text)

    def _build_block(self, block: _Block) -> AssistantContent:
        if block.kind == "other":
            return ReasoningBlock(encrypted=sealed(BEDROCK_SEAL, {"block": _join_other(block)}))
        text = "".join(block.pieces)
        if block.kind == "toolUse":
            delta = self._make_delta(block, text)
            return ToolCall(delta.call_id, delta.tool_name, text or "{}")
        return TextBlock(text) if block.kind == "text" else ReasoningBlock(text=text, signature=block.signature or None)


def _join_other(block: _Block) -> JsonObject:
    """Return a block without a counterpart here as it is sent back."""
    joined: JsonObject = {name: dict(as_mapping(value)) for name, value in block.began.items()}
    for piece in block.pieces:
        for name, value in piece.items():
            known = joined.setdefault(name, {})
            if name == "toolUse":
                known["input"] = as_text(known.get("input")) + as_text(as_mapping(value).get("input"))
            elif isinstance(value, list):
                known.setdefault("content", []).extend(value)
            elif isinstance(value, Mapping):
                known |= cast("Mapping[str, Any]", value)
    call = joined.get("toolUse")
    if call is not None and isinstance(call.get("input"), str):
        call["input"] = arguments_object(call["input"])
    return joined


def _find_unanswered(blocks: Sequence[_Block]) -> tuple[UnansweredItem, ...]:
    """Return the calls of kinds that are not known yet, that have no result in this answer."""
    others = [as_mapping(value) for block in blocks if block.kind == "other" for value in block.began.values()]
    answered = {as_text(other.get("toolUseId")) for other in others if "input" not in other and "name" not in other}
    return tuple(
        [
            UnansweredItem(as_text(other.get("type")), as_text(other.get("toolUseId")), as_text(other.get("name")))
            for other in others
            if as_text(other.get("type")).endswith("_use")
            and other.get("type") != "server_tool_use"
            and as_text(other.get("toolUseId")) not in answered
        ]
    )
