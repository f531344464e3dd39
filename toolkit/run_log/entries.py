"""The lines of a run log: redaction, writing, reading, and the summary of a run.

Each run is a sequence of lines, each a JSON object with an ``event`` and a ``time``. The first is the header with the
version and the run id. Most are events as `dump_event` returns them; the others are records that only a log has, named
in the past tense: requests to a model, the owner of a loop, questions to a person and their answers, and the final
summary. No line has secrets, media or unbounded text, nor any contents if those are not logged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast

from toolkit.calls.argument_repair import list_readings
from toolkit.chat import ToolDefinition
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.events import EVENT_VERSION, load_event, write_event
from toolkit.json_text import canonical_json, write_json
from toolkit.loop.events import Done, Failed, LoopEvent
from toolkit.loop.outcome import name_ending
from toolkit.redaction import Scrubber, digest_of
from toolkit.schema.nodes import Nodes, is_array, is_object

ContentPolicy: TypeAlias = Literal["all", "none"]
"""``all`` logs the texts of people, models and tools; ``none`` logs only that they exist."""

_LONGEST_TEXT = 100_000
_OPENS_JSON = ("{", "[")
_MEMO_FROM = 200  # shorter texts are cleaned faster than looked up
_MEMO_SIZE = 64
_MEDIA = frozenset({"image", "audio", "file"})
_SEALS = frozenset({"signature", "encrypted"})
_FREE_FIELDS = frozenset({"arguments", "metadata", "extra", "output", "parameters"})
_OWN_FIELDS = frozenset({"v", "event", "run_id", "loop_id", "time", "parent_loop_id", "question"})

# The names of fields with texts of people, models or tools; emptied if contents are not logged.
_EMPTY: dict[str, Callable[[Any], Any]] = {
    "text": lambda _: "",
    "content": lambda value: "" if isinstance(value, str) else value,
    "arguments": lambda value: "" if isinstance(value, str) else {},
    "before": lambda value: "" if isinstance(value, str) else value,
    "after": lambda value: "" if isinstance(value, str) else value,
    "assumed": lambda _: [],
    "metadata": lambda _: {},
    "problem": lambda _: "",
    "reason": lambda value: "" if isinstance(value, str) else value,
    "extra": lambda _: None,
    "prompt": lambda _: "",
    "unserializable": lambda _: [],
}
_LAST_WORDS = re.compile(r"\S{0,400}[ \t]?\S{0,100}$")  # a name such as "password:" and the text after it
_OPEN_KEY = re.compile(r"PRIVATE KEY-----(?!.*-----END)", re.DOTALL)
RUN_LOG_VERSION = 1
"""The version of the lines; the first line of each run states it."""
RECORDS = frozenset(
    {"run_opened", "loop_opened", "request_made", "question_asked", "question_answered", "entries_dropped", "run_ended"}
)
"""The tags of entries that are not events of a loop."""
RunState: TypeAlias = Literal["running", "ended", "failed", "cut off", "unreadable"]
"""``cut off`` is a run whose process was killed before it wrote an end."""
_LONGEST_PROMPT = 200


class EntryCleaner:
    """Redacts and truncates the entries of one run.

    Args:
        content: The contents to log.
        secrets: Texts to redact wherever they occur.
    """

    def __init__(self, content: ContentPolicy, secrets: Iterable[str] = ()) -> None:
        self._content = content
        self._scrubber = Scrubber(
            secrets,
            replace=lambda value: digest_of(canonical_json(value)),
            is_learning=True,
            list_readings=list_readings,
        )
        self._memo: dict[str, str] = {}
        self._memo_secrets = self._scrubber.secrets
        self._short_texts: list[str] = []

    def learn_tools(self, definitions: Iterable[ToolDefinition]) -> None:
        """Record which arguments of tools are secret."""
        for definition in definitions:
            self._scrubber.learn_tool(definition.name, partial(Nodes, definition.parameters))

    def clean(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """Return a clean copy of an entry, for storing."""
        self._short_texts.clear()
        shortened: dict[str, Any] = self._shorten_value(plain)
        # One search over the whole entry takes a quarter of the time, and most entries have no secret.
        joined = "\n".join(self._short_texts)
        if self._scrubber.clean_text(joined) == joined:
            return shortened
        return {name: value if name in _OWN_FIELDS else self._scrub_value(value) for name, value in shortened.items()}

    def clean_text(self, text: str) -> str:
        """Return a text without secrets, truncated if it is very long."""
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}\n[{len(text) - _LONGEST_TEXT:,} more characters are not in this log]"
        known = self._memo.get(text)
        if known is None or self._memo_secrets is not self._scrubber.secrets:
            if len(self._memo) >= _MEMO_SIZE or self._memo_secrets is not self._scrubber.secrets:
                self._memo.clear()
                self._memo_secrets = self._scrubber.secrets
            known = self._memo[text] = self._scrubber.clean_text(text)
        return known

    @property
    def longest_secret(self) -> int:
        """The length of the longest known secret."""
        return max(map(len, self._scrubber.secrets), default=0)

    def _shorten_value(self, value: Any) -> Any:
        """Return JSON values without media, signatures and secret fields, and without contents if those are not logged.

        Long texts are cleaned here, since they repeat; short ones are collected and searched together.
        """
        if type(value) is str:
            if len(value) >= _MEMO_FROM or value.startswith(_OPENS_JSON):
                return self.clean_text(value)
            self._short_texts.append(value)
            return value
        if is_object(value):
            fields = self._scrubber.mask_fields(value)
            if fields.get("type") in _MEDIA and "media_type" in fields:
                return {"text": self.clean_text(_describe_media(fields)), "type": "text"}
            return {name: self._shorten_field(name, each) for name, each in fields.items()}
        if isinstance(value, (list, tuple)):
            return [self._shorten_value(each) for each in cast("Sequence[Any]", value)]
        return value

    def _shorten_field(self, name: str, value: Any) -> Any:
        if name in _OWN_FIELDS:
            return value
        if name in _SEALS:
            return None
        if self._content == "none":
            if name in _EMPTY:
                value = _EMPTY[name](value)
            elif name == "error" and is_object(value):
                value = {**value, "message": ""}
        if name in _FREE_FIELDS and isinstance(value, dict):
            self._short_texts += _list_field_names(value)
        return self._shorten_value(value)

    def _scrub_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._scrubber.clean_text(value)
        if is_object(value):
            return {self._scrubber.clean_text(name): self._scrub_value(each) for name, each in value.items()}
        if is_array(value):
            return [self._scrub_value(each) for each in value]
        return value


def _list_field_names(value: Any) -> list[str]:
    """Return the names of all fields in JSON values, since a name may contain a secret, too."""
    if is_object(value):
        return [*value, *(name for each in value.values() for name in _list_field_names(each))]
    return [name for each in value for name in _list_field_names(each)] if is_array(value) else []


def _describe_media(block: Mapping[str, Any]) -> str:
    data, url = block.get("data"), block.get("url")
    name = f" '{block['name']}'" if block.get("name") else ""
    size = f", {len(data) * 3 // 4:,} bytes" if isinstance(data, str) else ""
    where = f" at {url}" if url else ""
    return f"[{block['type']}{name} of type {block['media_type']}{size}{where}: not in this log]"


class ReplyText:
    """Collects the deltas of a reply, and returns the redacted text that can be shown so far.

    Args:
        clean: Redacts a text.
    """

    __slots__ = ("_clean", "_pieces", "_shown", "_text", "since")

    def __init__(self, clean: Callable[[str], str], since: float) -> None:
        self._clean = clean
        self._text = ""
        self._pieces: list[str] = []
        self._shown = ""
        self.since = since

    def add(self, text: str) -> None:
        """Append text."""
        self._pieces.append(text)

    @property
    def has_more(self) -> bool:
        """True if text was added since the last `take`."""
        return bool(self._pieces)

    def take(self, now: float, withheld: int) -> str:
        """Return the text that can be shown and was not returned yet.

        Args:
            now: The current time.
            withheld: The number of characters at the end to withhold, since a secret may have begun in them.
        """
        self.since = now
        self._text += "".join(self._pieces)
        self._pieces.clear()
        if self._text.lstrip().startswith(_OPENS_JSON):  # secret fields are known only when the JSON is complete
            return ""
        text = _LAST_WORDS.sub("", self._text[: len(self._text) - withheld])
        open_key = _OPEN_KEY.search(text)
        clean = self._clean(text if open_key is None else text[: open_key.start()])
        return self._take_beyond(clean)

    def take_rest(self) -> str:
        """Return the rest of a complete reply."""
        self._text += "".join(self._pieces)
        self._pieces.clear()
        return self._take_beyond(self._clean(self._text))

    def _take_beyond(self, clean: str) -> str:
        # If later text turned a shown part into a secret, the rest waits for the complete reply.
        if len(clean) <= len(self._shown) or not clean.startswith(self._shown):
            return ""
        piece, self._shown = clean[len(self._shown) :], clean
        return piece


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One line of a run log.

    Attributes:
        position: Its position in the run.
        next_position: The position at which reading continues after it.
        plain: Its content as JSON values.
    """

    position: int
    next_position: int
    plain: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The tag of the event, such as ``tool_execution_end``, or one of `RECORDS`."""
        return str(self.plain["event"])

    @property
    def time(self) -> float:
        """Seconds since 1970."""
        time: float = self.plain.get("time") or 0.0
        return time

    @property
    def loop_id(self) -> str:
        """The loop that emitted it; empty if it belongs to no single loop."""
        return str(self.plain.get("loop_id") or "")

    @property
    def event(self) -> LoopEvent | None:
        """The event of the loop; None for a record that only the log has.

        Raises:
            ValueError: This library did not write the line.
        """
        return None if self.kind in RECORDS else load_event(self.plain)


def make_header(run_id: str, time: float, content: str) -> dict[str, Any]:
    """Return the first line of a run."""
    return {"toolkit_run": RUN_LOG_VERSION, "event": "run_opened", "run_id": run_id, "time": time, "content": content}


def write_line(plain: Mapping[str, Any]) -> bytes:
    """Return an entry as a line."""
    return write_json(plain).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None if it is cut off or was not written by a run log."""
    try:
        plain: object = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", plain) if isinstance(plain, dict) and "event" in plain else None


def read_object(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is an object; an empty one if it is missing or null."""
    found: Mapping[str, Any] = plain.get(name) or {}
    return found


def read_header(line: bytes, where: str) -> dict[str, Any]:
    """Return the content of the first line of a run."""
    plain = read_line(line)
    version = None if plain is None else plain.get("toolkit_run")
    if plain is None or version is None:
        raise ConfigurationError(f"{where} is no run of a run log: its first line is not that of RunLog")
    if version != RUN_LOG_VERSION:
        raise ConfigurationError(
            f"{where} is of version {version!r}, and this library reads version {RUN_LOG_VERSION}: "
            "read it with the library that wrote it"
        )
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """An entry of a log that is not an event of a run; see the module."""

    kind: str
    run_id: str
    loop_id: str
    time: float
    fields: Mapping[str, Any]


LogItem: TypeAlias = LoopEvent | LogRecord
"""An event or a record to log."""


def dump_item(item: LogItem, cleaner: EntryCleaner) -> dict[str, Any]:
    """Return an item as JSON values, not yet cleaned; the end of a run has no transcript."""
    match item:
        case LogRecord():
            fields = dict(item.fields)
            if item.kind == "request_made":
                fields["messages"] = messages_to_plain(fields["messages"])
                if "definitions" in fields:
                    cleaner.learn_tools(fields["definitions"])
                    fields["definitions"] = [
                        {"name": each.name, "description": each.description, "parameters": dict(each.parameters)}
                        for each in fields["definitions"]
                    ]
            stamps = {"run_id": item.run_id, "loop_id": item.loop_id, "time": item.time}
            return {"v": EVENT_VERSION, "event": item.kind, **stamps, **fields}
        case Done(result):
            # Earlier requests and replies contain all of it.
            return write_event(replace(item, result=replace(result, messages=[], snapshot=None)))
        case Failed():
            return write_event(replace(item, messages=()))
        case _:
            return write_event(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The summary of a run; all counts include its sub-agents.

    Args:
        id: The id of the run.
        state: The state of the run.
        started: The time of its start, in seconds since 1970.
        ended: The time of its end, or of its last entry; None if there is none.
        agent: The name of the agent, if it has one.
        model: The first model that answered.
        prompt: The start of the user's message; empty if contents are not logged.
        ending: The `ending` of its result, or the class of the error that it failed with.
        error: The message of that error.
        requests: The number of answered requests.
        tool_calls: The number of calls that ran or were refused.
        tool_errors: The number of calls that failed or were refused.
        sub_agents: The number of loops inside tools.
        input_tokens: The input tokens of all requests.
        output_tokens: The output tokens of all requests.
        cost: The cost of all requests, reported or computed from prices; None if unknown for all of them.
        problem: A problem of the log itself, in words; empty if there is none.
        where: The file, or the place in the database.
    """

    id: str
    state: RunState = "running"
    started: float = 0.0
    ended: float | None = None
    agent: str = ""
    model: str = ""
    prompt: str = ""
    ending: str = ""
    error: str = ""
    requests: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    sub_agents: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    problem: str = ""
    where: str = ""

    @property
    def seconds(self) -> float:
        """The duration in seconds, so far if it has not ended."""
        return 0.0 if self.ended is None else max(0.0, self.ended - self.started)


class RunTally:
    """Counts the entries of one run."""

    def __init__(self, run_id: str) -> None:
        self._facts = RunSummary(id=run_id)
        self._counts: dict[str, Any] = {field.name: getattr(self._facts, field.name) for field in fields(self._facts)}
        self.position = 0
        """The position of the next entry to count, set by the reader."""

    def add(self, plain: Mapping[str, Any]) -> None:
        """Count an entry."""
        counts = self._counts
        counts["ended"] = max(plain.get("time") or 0.0, counts["ended"] or 0.0)
        is_outermost = plain.get("loop_id") == counts["id"]
        if is_outermost:
            _note_state(counts, plain)
        match plain["event"]:
            case "run_opened":
                counts.update(state="running", started=counts["started"] or plain.get("time") or 0.0)
            case "run_start":
                counts["sub_agents"] += not is_outermost
            case "request_made":
                counts["prompt"] = counts["prompt"] or _find_prompt(plain)
            case "response_received":
                _count_response(counts, read_object(plain, "response"))
            case "tool_execution_end" | "tool_call_refused":
                counts["tool_calls"] += 1
                counts["tool_errors"] += bool(read_object(plain, "result").get("is_error"))
            case _:
                pass

    def summarize(self) -> RunSummary:
        """Return the counts so far."""
        return RunSummary(**self._counts)

    def dump_summary(self) -> dict[str, Any]:
        """Return the counts so far as JSON values."""
        return asdict(self.summarize())


def _note_state(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    """Update the state of the run from an entry of its outermost loop."""
    match plain["event"]:
        case "loop_opened":
            counts["agent"] = counts["agent"] or plain.get("agent") or ""
        case "run_start":
            counts.update(state="running", ending="", error="")  # a run that awaited a decision continues
        case "done":
            reason = read_object(read_object(plain, "result"), "reason")
            counts.update(state="ended", ending=name_ending(reason.get("kind") or "", reason.get("stop")))
        case "failed":
            error = read_object(plain, "error")
            counts.update(state="failed", ending=error.get("type") or "", error=error.get("message") or "")
        case _:
            pass


def _find_prompt(plain: Mapping[str, Any]) -> str:
    """Return the start of the first message of the user in a request."""
    texts = (join_texts(each.get("content")) for each in plain.get("messages") or () if each.get("role") == "user")
    return next(texts, "")[:_LONGEST_PROMPT]


def _count_response(counts: dict[str, Any], response: Mapping[str, Any]) -> None:
    usage = read_object(response, "usage")
    counts["requests"] += 1
    counts["model"] = counts["model"] or response.get("model") or ""
    counts["input_tokens"] += usage.get("input_tokens") or 0
    counts["output_tokens"] += usage.get("output_tokens") or 0
    if usage.get("cost") is not None:
        counts["cost"] = (counts["cost"] or 0.0) + usage["cost"]


def join_texts(content: object) -> str:
    """Return the text of a message's content, given as JSON values."""
    if isinstance(content, str):
        return content
    blocks: Any = content or ()
    return "\n".join([block["text"] for block in blocks if block.get("type") == "text"])
