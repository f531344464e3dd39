"""The result of a call: the output of a tool with the call's id, limited to what the model may read.

The whole text of a truncated output is stored under an id; the tool that reads it is in `toolkit.tools.stored_results`.
"""

from __future__ import annotations

import os
import re
import time
import traceback
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from anyio import to_thread

from toolkit.calls.events import (
    Observer,
    ToolCallRefused,
    ToolEvent,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolProgress,
    emit_and_wait,
)
from toolkit.calls.prepare import find_secrets
from toolkit.calls.provenance import label_output
from toolkit.chat import ContentBlock, Message, TextBlock, ToolCall, ToolResult, Trust
from toolkit.chat.output import ToolOutput, to_output
from toolkit.dataclass import maker_of
from toolkit.errors import ConfigurationError, RecordedError
from toolkit.logs import get_logger
from toolkit.redaction import Redact, without_secrets
from toolkit.schema.nodes import is_array, is_object
from toolkit.settings import check_setting

if TYPE_CHECKING:
    from toolkit.calls.approval import WaitingChild
    from toolkit.calls.policy import ExecutionPolicy, OutputLimits
    from toolkit.calls.prepare import Ready, Refused
    from toolkit.calls.registration import Registration
    from toolkit.runtime.backend import CallClock

_logger = get_logger("toolkit.calls")

_make_result = maker_of(ToolResult)

_LONG_OUTPUT = 30_000
_LENGTH_OF_PART = 20

READER = "read_result"
"""The tool that reads truncated outputs."""
_TEXT_NAME = re.compile("result_[0-9a-f]{16}")
_LEFT_OUT = " characters are left out here"
_SMALLER = "ask for a smaller part to see them"
_NOTICE = re.compile(rf"{_LEFT_OUT}; call [\w-]{{1,64}} with id '([^'\s]+)' to read them \.\.\.]")
# A sequence of combining marks has any length: after this many steps, a cut splits it.
_FURTHEST = 64
_JOINER = "\u200d"

_Texted = TypeVar("_Texted", ToolOutput, ToolResult)
_Event = TypeVar("_Event", bound=ToolEvent)
_Part: TypeAlias = Literal["head", "tail", "both"]


def shape_result(
    ready: Ready[Any], output: ToolOutput, policy: ExecutionPolicy, memory: RunMemory | None
) -> tuple[tuple[str, ...], ToolResult, ToolResult]:
    """Return the unserializable paths, the whole result, and the result for the model."""
    call, registration = ready.call, ready.registration
    if type(output) is not ToolOutput or output.is_error or output.unserializable:
        output = _ensure_output(call, output)
    trust = output.trust or registration.options.trust
    if policy.trust is not None or memory is None:
        trust = label_output(ready, output, trust, is_inner=policy.trust is None)
    content, is_answer = output.content, output.result_as_answer or registration.options.result_as_answer
    is_answer = is_answer and not output.is_error
    result = _make_result(
        call.id,
        content,
        tool_name=call.name,
        is_error=output.is_error,
        result_as_answer=is_answer,
        child_loop_id=output.child_loop_id,
        details=output.details,
        time=time.time(),
        trust=trust,
    )
    limited = _limit_result(result, registration, policy.config.output, memory)
    if ready.is_changed and not is_answer:
        note = f"[The approver changed the arguments of this call: it ran with {ready.arguments_json}.]"
        return output.unserializable, append_note(result, note), append_note(limited, note)
    return output.unserializable, result, limited


def _ensure_output(call: ToolCall, value: object) -> ToolOutput:
    """Return the value of a tool as an output with a text, and log the parts that JSON can't carry."""
    output = to_output(value)
    if output.is_error and not output.text.strip():
        reason = "The tool failed and gave no reason."
        blocks = () if isinstance(output.content, str) else output.content
        output = replace(output, content=(TextBlock(reason), *blocks) if blocks else reason)
    if output.unserializable:
        _logger.warning(
            "tool %s gave what JSON can't carry; its text stands for %s", call.name, ", ".join(output.unserializable)
        )
    return output


def _limit_result(
    result: ToolResult, registration: Registration[Any], limits: OutputLimits, memory: RunMemory | None
) -> ToolResult:
    """Return the result with its text truncated to the limit."""
    # An answer is for the application and needs no limit, unless the author of the tool sets one.
    most = registration.max_output_chars or (None if result.result_as_answer else limits.max_chars)
    part = registration.options.keep_output or limits.keep
    if most is None or len(result.content if isinstance(result.content, str) else result.text) <= most:
        return result
    if isinstance(result.content, str):
        return replace(result, content=_cut_text(result.content, most, part, memory, result.trust))
    blocks: list[ContentBlock] = []
    for block in result.content:
        if isinstance(block, TextBlock):
            # The texts share the limit in order; the last ones may be truncated to one character.
            left = max(1, most)
            most -= len(block.text)
            is_long = len(block.text) > left
            blocks.append(TextBlock(_cut_text(block.text, left, part, memory, result.trust)) if is_long else block)
        else:
            blocks.append(block)
    return replace(result, content=tuple(blocks))


def _cut_text(text: str, most: int, part: _Part, memory: RunMemory | None, trust: Trust) -> str:
    reference = None if memory is None else memory.put(text, trust)
    if memory is None or reference is None:
        return limit_text(text, most, part)
    return limit_text(text, most, part, reference=reference, reader=memory.find_reader())


def append_note(output: _Texted, note: str) -> _Texted:
    """Return an output or a result with a paragraph after its text."""
    if isinstance(output.content, str):
        return replace(output, content=f"{output.content}\n\n{note}" if output.content.strip() else note)
    return replace(output, content=(*output.content, TextBlock(note)))


async def redact_output(output: ToolOutput, redact: Redact) -> ToolOutput:
    """Mask the secrets in an output's text and details, in a thread if they are long, and return it."""
    if _is_long([output.content, output.details]):
        return await to_thread.run_sync(redacted, output, redact, abandon_on_cancel=True)
    return redacted(output, redact)


def _is_long(value: Any) -> bool:
    """Return whether a search for secrets in a value would block the event loop."""
    waiting, length = [value], 0
    for part in waiting:  # which grows
        if isinstance(part, TextBlock):
            length += len(part.text)
        elif isinstance(part, str):
            length += len(part)
        elif is_object(part):
            waiting += part.values()
        elif isinstance(part, (list, tuple)):
            waiting += cast("Sequence[Any]", part)
        if length + _LENGTH_OF_PART * len(waiting) > _LONG_OUTPUT:
            return True
    return False


def redacted(output: ToolOutput, redact: Redact) -> ToolOutput:
    """Mask the secrets in an output's text and details, and return it."""
    if isinstance(output.content, str):
        output.content = redact(output.content)
    else:
        output.content = tuple(
            TextBlock(redact(block.text)) if isinstance(block, TextBlock) else block for block in output.content
        )
    output.details = _redact_value(output.details, redact)
    return output


def _redact_value(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if is_object(value):
        return {name: _redact_value(inner, redact) for name, inner in value.items()}
    if is_array(value):
        return [_redact_value(inner, redact) for inner in value]
    return value


class RedactingObserver:
    """Strikes the secret arguments of a call out of its events, and passes them on.

    Args:
        observer: Receives the events.
        secrets: The texts of the arguments.
    """

    def __init__(self, observer: Observer, secrets: frozenset[str]) -> None:
        self._observer = observer
        self._redact = partial(without_secrets, secrets=secrets)

    def emit(self, event: ToolEvent) -> Awaitable[None] | None:
        """Deliver an event; a long one is redacted in a thread."""
        if isinstance(event, ToolExecutionEnd) and _is_long([event.result.content, event.result.details]):
            return self._emit_long(event)
        return self._observer.emit(self._clean_event(event))

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Deliver an event without waiting."""
        self._observer.offer(self._clean_event(event))

    async def _emit_long(self, event: ToolEvent) -> None:
        await emit_and_wait(self._observer, await to_thread.run_sync(self._clean_event, event))

    def _clean_event(self, event: _Event) -> _Event:
        return redact_event(event, self._redact)


def redact_refusal(
    event: ToolCallRefused, prepared: Ready[Any] | Refused, registrations: Mapping[str, Registration[Any]]
) -> ToolCallRefused:
    """Return the event of a refused call without the call's secret arguments."""
    secrets = prepared.given_secrets
    if secrets is None:
        secrets = find_secrets(registrations.get(event.tool_name), prepared.call.arguments)
    return redact_event(event, partial(without_secrets, secrets=secrets)) if secrets else event


def redact_event(event: _Event, redact: Redact) -> _Event:
    """Return an event of a call without secrets, wherever a tool, a guard or a person repeats them."""
    match event:
        case ToolExecutionEnd(result=result, error=error) | ToolCallRefused(result=result, error=error):
            clean = redacted(ToolOutput(result.content, details=result.details), redact)
            shown = replace(result, content=clean.content, details=clean.details)
            return replace(event, result=shown, error=None if error is None else redact_error(error, redact))
        case ToolExecutionUpdate(output=output):
            return replace(event, output=redacted(replace(output), redact))
        case ToolProgress(text=text):
            return replace(event, text=redact(text))
        case _:
            return event


def redact_error(error: BaseException, redact: Redact) -> BaseException:
    """Return an error with its traceback, as a `RecordedError` without secrets where it or its causes show any."""
    shown = "".join(traceback.format_exception(error))
    if redact(shown) == shown:
        return error
    return RecordedError(type(error).__name__, redact(str(error))).with_traceback(error.__traceback__)


class ResultStore:
    """Stores the texts that were too long for a model, in this process; thread-safe.

    Each run of a loop creates its own store when needed. Set `OutputLimits.store` to choose its size, or to share it
    between the runs of a conversation; `in_folder` creates one that outlives the process. A run reads only the texts
    that it has truncated, and those that its initial transcript names. The oldest texts are dropped at the limit.

    A subclass may store texts elsewhere, by its own `put` and `get`.

    Args:
        max_chars: The most characters in all; a longer text is not stored.

    Attributes:
        outlives_process: True if other processes can read the texts, so that snapshots need not contain them.
    """

    __slots__ = ("_chars", "_lock", "_texts", "max_chars")
    outlives_process: ClassVar[bool] = False

    def __init__(self, max_chars: int = 50_000_000) -> None:
        check_setting("the max_chars of a result store", max_chars, int, least=1)
        self.max_chars: int = max_chars
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._chars = 0
        self._lock = Lock()

    @staticmethod
    def in_folder(path: str | os.PathLike[str], max_bytes: int = 200_000_000) -> ResultStore:
        """Return a store of files in a folder, which processes on this machine may share.

        The folder is created if it is missing, and only its owner can read it. Texts are only removed at the limit.

        Args:
            path: The folder, for these texts only.
            max_bytes: The most bytes in all, in UTF-8; a longer text is not stored.

        Raises:
            ConfigurationError: The path is not a folder, or can't be created.
        """
        return _FolderStore(path, max_bytes)

    def put(self, text: str) -> str | None:
        """Store a text and return its id; None if it is too long.

        The id is a digest of the text, equal in all processes.
        """
        if len(text) > self.max_chars:
            return None
        name = _name_text(text.encode("utf-8", "surrogatepass"))
        with self._lock:
            self._chars += len(text) - len(self._texts.pop(name, ""))
            self._texts[name] = text
            while self._chars > self.max_chars:
                self._chars -= len(self._texts.popitem(last=False)[1])
        return name

    def get(self, name: str) -> str | None:
        """Return the text under an id, or None."""
        with self._lock:
            return self._texts.get(name)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


def _name_text(content: bytes) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - slow to import, and few programs cut results

    return f"result_{blake2b(content, digest_size=8).hexdigest()}"


class _FolderStore(ResultStore):
    """Stores each text in a file; the last one written is the newest."""

    __slots__ = ("_folder", "_max_bytes")
    outlives_process: ClassVar[bool] = True

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        check_setting("the path of a result store", path, str, os.PathLike)
        check_setting("the max_bytes of a result store", max_bytes, int, least=1)
        super().__init__(max_bytes)  # no text has more characters than bytes
        self._max_bytes = max_bytes
        self._folder = Path(path).absolute()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"a result store can't be made in {self._folder}: {error}") from error

    def put(self, text: str) -> str | None:
        content = text.encode("utf-8", "surrogatepass")
        if len(content) > self._max_bytes:
            return None
        name = _name_text(content)
        try:
            part = self._folder / f".{os.urandom(8).hex()}"  # not read before it is complete
            part.touch(0o600, exist_ok=False)
            part.write_bytes(content)
            part.replace(self._folder / name)
            with self._lock:
                self._drop_oldest()
        except OSError as error:
            _logger.warning("a long result can't be stored in %s: %s", self._folder, error)
            return None
        return name

    def get(self, name: str) -> str | None:
        if not _TEXT_NAME.fullmatch(name):
            return None
        try:
            return (self._folder / name).read_bytes().decode("utf-8", "surrogatepass")
        except OSError:
            return None

    def __contains__(self, name: str) -> bool:
        return _TEXT_NAME.fullmatch(name) is not None and (self._folder / name).is_file()

    def _drop_oldest(self) -> None:
        with os.scandir(self._folder) as entries:
            files = [(each.stat().st_mtime_ns, each.stat().st_size, each.path) for each in entries if each.is_file()]
        size = sum(length for _, length, _ in files)
        for _, length, path in sorted(files):
            if size <= self._max_bytes:
                return
            Path(path).unlink(missing_ok=True)
            size -= length


class RunMemory:
    """The memory of one run: its truncated texts, and the identity by which tools count their uses.

    Args:
        store: The store; None creates one with the first text, False stores nothing.

    Attributes:
        names: The ids of the texts that this run may read, the oldest first, with their labels.
        find_reader: Returns the name of the tool that reads them.
        run_clock: Ends the run; None before it starts, or if nothing can end it.
        loop_id: The id of the loop; empty before it starts.
        children: The waiting sub-agents by the ids of their calls; None if none can wait.
        answers: The objects that tools returned as the answer of the run, by the ids of their calls.
    """

    __slots__ = ("__weakref__", "_store", "answers", "children", "find_reader", "loop_id", "names", "run_clock")

    def __init__(self, store: ResultStore | Literal[False] | None) -> None:
        self._store: ResultStore | Literal[False] | None = store
        self.names: dict[str, Trust] = {}
        self.find_reader: Callable[[], str] = lambda: READER
        self.run_clock: CallClock | None = None
        self.loop_id: str = ""
        self.children: dict[str, WaitingChild] | None = None
        self.answers: dict[str, Any] = {}

    def put(self, text: str, trust: Trust = "untrusted") -> str | None:
        """Store a text and return its id; None if it is not stored."""
        if self._store is False:
            return None
        if self._store is None:
            self._store = ResultStore()
        name = self._store.put(text)
        if name is not None:
            self.names.pop(name, None)  # it is the newest now
            self.names[name] = trust
        return name

    def get(self, name: str) -> str | None:
        """Return a text of this run, or None: texts of other runs are not read."""
        return self._store.get(name) if isinstance(self._store, ResultStore) and name in self.names else None

    def save_texts(self, max_chars: int, known: Container[str] = ()) -> dict[str, str]:
        """Return the newest texts up to a number of characters by their ids, except known ones.

        There are none if the store outlives this process.
        """
        saved: dict[str, str] = {}
        if not isinstance(self._store, ResultStore) or self._store.outlives_process:
            return saved
        for name in reversed(self.names):
            text = None if name in known else self._store.get(name)
            if text is not None:
                max_chars -= len(text)
                if max_chars < 0:
                    break
                saved[name] = text
        return dict(reversed(saved.items()))

    def list_trusted(self, texts: Iterable[str]) -> list[str]:
        """Return the ids of the trusted texts."""
        return [name for name in texts if self.names[name] == "trusted"]

    def restore_texts(self, texts: Mapping[str, str], trusted: Container[str] = ()) -> None:
        """Store the texts that another process has saved."""
        for name, text in texts.items():
            self.put(text, "trusted" if name in trusted else "untrusted")

    def adopt_notices(self, messages: list[Message]) -> None:
        """Let a run read the texts that its initial results name, if they are stored.

        The notices of other texts are replaced by one that says that they are lost.
        """
        for index, message in enumerate(messages):
            if isinstance(message, ToolResult):
                adopted = self.adopt_result(message)
                if adopted is not message:
                    messages[index] = adopted

    def adopt_result(self, result: ToolResult) -> ToolResult:
        """Do the same for one result, and return it."""
        content = result.content
        if isinstance(content, str):
            adopted: str | tuple[ContentBlock, ...] = self._adopt_text(content, result.trust)
        else:
            blocks = [self._adopt_block(block, result) if isinstance(block, TextBlock) else block for block in content]
            adopted = tuple(blocks)
        return result if adopted == content else replace(result, content=adopted)

    def _adopt_block(self, block: TextBlock, result: ToolResult) -> TextBlock:
        text = self._adopt_text(block.text, result.trust)
        return block if text is block.text else replace(block, text=text)

    def _adopt_text(self, text: str, trust: Trust) -> str:
        return _NOTICE.sub(partial(self._adopt_notice, trust), text) if _LEFT_OUT in text else text

    def _adopt_notice(self, trust: Trust, notice: re.Match[str]) -> str:
        if not isinstance(self._store, ResultStore) or notice[1] not in self._store:
            return f"{_LEFT_OUT}; they are not stored anymore, {_SMALLER} ...]"
        self.names[notice[1]] = trust
        return notice[0]


def limit_text(
    text: str, max_chars: int, keep: _Part = "both", *, reference: str | None = None, reader: str = READER
) -> str:
    """Return `text` truncated to a limit, with a notice in place of the omitted part.

    At most `max_chars` characters of the text remain, a few fewer if a cut would split a visible character. The notice
    is additional: the result is never longer than ``max_chars + 160 + len(reference) + len(reader)``. A text within the
    limit is returned as the same object.

    Args:
        text: The whole text.
        max_chars: The limit in Unicode code points, at least 1.
        keep: The part that remains: the start, the end, or both in equal parts.
        reference: The id under which `reader` returns the whole text; None if it is not stored.
        reader: The name of the tool that reads it.

    Raises:
        ConfigurationError: `max_chars` is below 1.
    """
    if max_chars < 1:
        raise ConfigurationError(f"an output can't be limited to {max_chars} characters: give at least 1")
    if len(text) <= max_chars:
        return text
    head_chars = {"head": max_chars, "tail": 0, "both": (max_chars + 1) // 2}[keep]
    start = _boundary_before(text, head_chars)
    end = _boundary_after(text, len(text) - max_chars + head_chars)
    way = f"call {reader} with id '{reference}' to read them" if reference else _SMALLER
    notice = f"[... {end - start} of {len(text)}{_LEFT_OUT}; {way} ...]"
    return "\n".join(part for part in (text[:start], notice, text[end:]) if part)


def _boundary_before(text: str, index: int) -> int:
    for candidate in range(index, max(index - _FURTHEST, 0), -1):
        if not _is_inside_character(text, candidate):
            return candidate
    return index if index > _FURTHEST else 0


def _boundary_after(text: str, index: int) -> int:
    for candidate in range(index, min(index + _FURTHEST, len(text))):
        if not _is_inside_character(text, candidate):
            return candidate
    return index if len(text) - index > _FURTHEST else len(text)


def _is_inside_character(text: str, index: int) -> bool:
    """Return whether a cut before `index` splits a visible character, in all common scripts."""
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if after < "\u0300":
        return (before, after) == ("\r", "\n") or before == _JOINER
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in {"Mn", "Mc", "Me"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # a skin tone
        or "\U000e0020" <= after <= "\U000e007f"  # the letters of a flag
        or "\u1160" <= after <= "\u11ff"  # the later parts of a Korean syllable
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (_is_flag_letter(before) and _is_flag_letter(after) and _flag_letters_before(text, index) % 2 == 1)
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, index: int) -> int:
    start = index
    while start > 0 and _is_flag_letter(text[start - 1]):
        start -= 1
    return index - start
