"""Conversations: stored transcripts that many questions, users and processes share, one turn at a time.

A turn acquires the lease of its conversation, and only the holder of the lease can write. The transcript is written
before each request, before the calls of a reply run, and at the end of the turn; a process that dies leaves what was
written last. A lease is renewed during its turn and expires after the end of its process.

A call that awaits a decision is stored beside the transcript, with the snapshot of its run. Until then the transcript
has a result that says so, and further questions are answered. After the decision the run resumes: its results replace
those, and the model reads the messages that were added since.

A question may have an id, such as an ``Idempotency-Key``. The conversation stores the last ids and the results of their
runs: a client that repeats a question gets the stored result, and the question is in the transcript once.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, cast, overload

import anyio

from toolkit.calls.approval import Approval, Approve, Deny, Modify
from toolkit.calls.registration import Ctx
from toolkit.chat import (
    AssistantMessage,
    ChatResponse,
    Message,
    Provider,
    TextDelta,
    ToolResult,
    Usage,
    UserMessage,
    load_messages,
    repair_transcript,
    validate_transcript,
)
from toolkit.chat.messages import messages_to_plain
from toolkit.chat.output import ToolOutput
from toolkit.conversation_stores import (
    ConversationEntry,
    ConversationStore,
    MemoryStore,
    RedisStore,
    SqlStore,
    StoredChange,
    StoredConversation,
    check_conversation_id,
)
from toolkit.dataclass import dataclass
from toolkit.errors import (
    ConfigurationError,
    ConversationBusyError,
    ConversationChangedError,
    ConversationError,
    ConversationStoreError,
    LoopUsageError,
    TranscriptError,
)
from toolkit.events import Done, LoopEvent, dump_result, load_result
from toolkit.logs import get_logger
from toolkit.loop.answers import ExpectedAnswer, PartialAnswers, read_partials
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.config import DEFAULT_CONFIG, Decisions, ToolLoopConfig
from toolkit.loop.feeds import LOST
from toolkit.loop.handle import EventStream, ToolLoopHandle
from toolkit.loop.listener import EventFeed, Listener
from toolkit.loop.middleware import CallInfo, CallProceed, Middleware, RequestInfo, RequestProceed
from toolkit.loop.outcome import AwaitingApproval, Cancelled, Out, Snapshot, ToolLoopResult, TypedAnswer
from toolkit.runtime.backend import start_carried
from toolkit.settings import check_setting
from toolkit.stored_text import Cipher, StoredText
from toolkit.tools.registry import ToolRegistry

__all__ = [
    "Conversation", "ConversationEntry", "ConversationStore", "Conversations", "ConversationTurn", "Cipher",
    "MemoryStore", "RedisStore", "SqlStore", "TurnStream",
]  # fmt: skip

_logger = get_logger("toolkit.conversations")
_FORMAT = 1
_CHANGED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of reading a stored value that was changed."""
_FIRST_PAUSE, _LONGEST_PAUSE, _SLOWER = 0.02, 0.5, 1.5
_BEATS = 3
_LONGEST_ID, _IDS = 200, 50
_DECIDED = "The decision that was awaited above has been made: the result of the call is there now. Continue from it."
_Returned = TypeVar("_Returned")

WhenBusy: TypeAlias = Literal["wait", "queue", "refuse"]
"""How a question is treated during another turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A stored conversation.

    Args:
        id: Its id.
        version: The number of writes; 0 where no conversation has this id.
        messages: The transcript, which is valid: a call without a result has one that says so.
        pending: The calls that await decisions.
        queued: The queued questions, which the current turn answers.
        created: The time of the first write, in seconds since 1970.
        updated: The time of the last write.
        is_busy: True during a turn.
        is_interrupted: True if the process of the last turn ended while calls ran.
    """

    id: str
    version: int = 0
    messages: Sequence[Message] = ()
    pending: Sequence[PendingApproval] = ()
    queued: Sequence[Message] = ()
    created: float = 0.0
    updated: float = 0.0
    is_busy: bool = False
    is_interrupted: bool = False


@dataclass(slots=True)
class _OpenRun:
    """A run whose calls await decisions."""

    snapshot: Snapshot
    calls: list[str]  # of its last reply
    taken: list[str] = field(default_factory=list[str])  # approved, without a stored result: may have taken effect

    @property
    def pending(self) -> list[PendingApproval]:
        saved: list[dict[str, Any]] = self.snapshot["pending_approvals"]
        return [PendingApproval(**each) for each in saved if each["call_id"] not in self.taken]

    @property
    def interrupted(self) -> set[str]:
        """The calls of the transcript that are decided, and whose results are not stored."""
        waiting, interrupted = {each.call_id for each in self.pending}, set[str]()
        for each in self.snapshot["loop"]["state"]["open_calls"]:
            child = each.get("child")  # the sub-agent whose calls are decided on
            decided = {each["call_id"]} if child is None else {call["id"] for call in child["calls"]}
            if not decided.isdisjoint(self.taken) and decided.isdisjoint(waiting):
                interrupted.add(each["call_id"])
        return interrupted


@dataclass(slots=True)
class _Asked:
    """A question that has an id."""

    key: str  # the digest of the id
    question: Message | None  # None once it was removed from the transcript, as by a compaction
    answer: Message | None = None  # the last message of the model in the run that answered it
    result: dict[str, Any] | None = None  # of that run, as JSON values


class Conversations:
    """The stored conversations of an application.

    ::

        conversations = Conversations(SqlStore("postgresql://user:password@host/database"))

        async with conversations.turn("ada/7", ctx=customer) as turn:
            async for event in turn.stream(provider, registry, question, config=config):
                ...

    Any number of processes may share a store. The application chooses the ids, such as the user's name and a number.

    Args:
        store: The store.
        encryption: Encrypts messages, questions and snapshots, such as a `Fernet`; None stores plain JSON with check
            sums.
        lease: Seconds after which the conversation of a dead process is free; it is renewed three times in this time.
        wait: Seconds that a turn waits for the end of another one before it raises `ConversationBusyError`.
    """

    def __init__(
        self, store: ConversationStore, *, encryption: Cipher | None = None, lease: float = 15.0, wait: float = 60.0
    ) -> None:
        check_setting("lease", lease, float, least=0.1)
        check_setting("wait", wait, float, least=0)
        self.store: ConversationStore = store
        self._text = StoredText(encryption, ConversationStoreError)
        self._lease = lease
        self._wait = wait
        self._turns: weakref.WeakSet[_Draft] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the runs of all turns of this process, wait until their transcripts are written, and close the store.

        Call it at the end of a service, since servers do not wait for what they cancel. It waits one lease at most.
        """
        with anyio.move_on_after(self._lease, shield=True):
            for draft in [each for each in self._turns if each.has_lease]:
                draft.on_lost()
                await draft.wait_for_end()
        await self.store.aclose()

    @overload
    def turn(
        self, conversation_id: str, *, ctx: None = None, when_busy: WhenBusy = "wait"
    ) -> ConversationTurn[object]: ...
    @overload
    def turn(self, conversation_id: str, *, ctx: Ctx, when_busy: WhenBusy = "wait") -> ConversationTurn[Ctx]: ...
    def turn(self, conversation_id: str, *, ctx: Any = None, when_busy: WhenBusy = "wait") -> ConversationTurn[Any]:
        """Return a turn of a conversation, to be entered with ``async with``; a new id begins a conversation.

        Args:
            conversation_id: The id: 1 to 200 printable characters.
            ctx: The context of the tools; it is never stored.
            when_busy: During another turn, ``wait`` waits for its end, ``refuse`` raises `ConversationBusyError`, and
                ``queue`` queues the question: the other turn answers it after its own, in its own stream. A question
                that it can no longer answer is added to the transcript.
        """
        check_conversation_id(conversation_id)
        check_setting("when_busy", when_busy, "wait", "queue", "refuse")
        draft = self._make_draft(conversation_id)
        self._turns.add(draft)
        return ConversationTurn(draft, ctx, when_busy, self._wait)

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation; one of version 0, without messages, where the id is new.

        Raises:
            ConversationStoreError: The store is unavailable, or the conversation can't be read.
        """
        check_conversation_id(conversation_id)
        stored = await self.store.read(conversation_id)
        if stored is None:
            return Conversation(id=conversation_id)
        draft = self._make_draft(conversation_id)
        draft.load(stored)
        return Conversation(
            id=conversation_id,
            version=stored.version,
            messages=tuple(draft.messages),
            pending=tuple(draft.pending),
            queued=tuple([question for question, _ in draft.load_queue(stored.queue)]),
            created=stored.created,
            updated=stored.updated,
            is_busy=stored.is_busy,
            is_interrupted=draft.is_repaired and not stored.is_busy,
        )

    async def list(
        self, prefix: str = "", *, limit: int = 50, before: ConversationEntry | None = None
    ) -> Sequence[ConversationEntry]:
        """Return conversations, the last written first.

        Args:
            prefix: The beginning of their ids, such as ``ada/``.
            limit: The maximum number.
            before: The last entry of the previous page; None begins with the newest.
        """
        check_setting("limit", limit, int, least=1)
        return await self.store.list_entries(prefix, limit, before)

    async def truncate(self, conversation_id: str, keep: int, *, version: int | None = None) -> None:
        """Remove all but the first messages of a conversation, and the removed calls that await decisions.

        Args:
            conversation_id: The conversation.
            keep: The number of messages that remain.
            version: The expected `Conversation.version`; None accepts any.

        Raises:
            ConversationBusyError: There is a turn.
            ConversationChangedError: It has another version, or does not exist.
            TranscriptError: The cut would separate a call from its result.
        """
        check_setting("keep", keep, int, least=0)
        await self._edit_messages(conversation_id, version, lambda messages: messages[:keep])

    async def replace(self, conversation_id: str, messages: Sequence[Message], *, version: int) -> None:
        """Replace the transcript of a conversation, as by one without an address, and remove the ids of its questions.

        Raises:
            ConversationBusyError: There is a turn.
            ConversationChangedError: It has another version, or does not exist.
            TranscriptError: The messages are no valid transcript.
        """
        await self._edit_messages(conversation_id, version, lambda _: messages)

    async def fork(self, conversation_id: str, new_id: str, *, keep: int | None = None) -> None:
        """Begin a conversation with the messages of another one, without its calls that await decisions.

        Args:
            conversation_id: The conversation to copy.
            new_id: The id of the copy.
            keep: The number of messages to copy; None copies all.

        Raises:
            ConversationChangedError: The conversation does not exist, or the copy does already.
            TranscriptError: The cut would separate a call from its result.
        """
        found = await self.get(conversation_id)
        if not found.version:
            raise ConversationChangedError(conversation_id, "it is not there")
        messages = found.messages[:keep]
        validate_transcript(messages)
        async with self._hold_lease(new_id) as draft:
            if draft.version:
                raise ConversationChangedError(new_id, "it is there already, and a fork would write over it")
            draft.messages[:] = messages
            await draft.write(ends=True)

    async def delete(self, conversation_id: str, *, version: int | None = None) -> None:
        """Delete a conversation, if it exists, with its calls that await decisions.

        Raises:
            ConversationBusyError: There is a turn.
            ConversationChangedError: It has another version.
        """
        async with self._hold_lease(conversation_id, loads=False) as draft:
            draft.check_version(version)
            await draft.delete()

    async def _edit_messages(
        self, conversation_id: str, version: int | None, change: Callable[[Sequence[Message]], Sequence[Message]]
    ) -> None:
        async with self._hold_lease(conversation_id) as draft:
            if not draft.version:
                raise ConversationChangedError(conversation_id, "it is not there")
            draft.check_version(version)
            messages = change(draft.messages)
            validate_transcript(messages)
            draft.messages[:] = messages
            draft.drop_cut_runs()
            there = set(map(id, draft.messages))
            draft.asked = [each for each in draft.asked if id(each.question) in there]
            await draft.write(ends=True)

    @asynccontextmanager
    async def _hold_lease(self, conversation_id: str, *, loads: bool = True) -> AsyncGenerator[_Draft]:
        """Hold the lease of a conversation in a block that runs no model."""
        check_conversation_id(conversation_id)
        draft = self._make_draft(conversation_id)
        if not await draft.acquire(loads=loads):
            raise ConversationBusyError(conversation_id)
        try:
            yield draft
        finally:
            await draft.release()

    def _make_draft(self, conversation_id: str) -> _Draft:
        return _Draft(self.store, self._text, conversation_id, self._lease)


class _Draft:
    """A conversation whose lease this process has, or tries to acquire; all writes are made here.

    Attributes:
        messages: The transcript.
        open_runs: The runs whose calls await decisions.
        asked: The last questions with ids, the oldest first.
        version: The number of writes.
        has_lease: True while this has the lease, as far as is known.
        is_repaired: True if calls of the stored transcript had no results.
        on_lost: Called once when the lease is lost.
    """

    def __init__(self, store: ConversationStore, text: StoredText, conversation_id: str, lease: float) -> None:
        self._store, self._text, self.id, self._lease = store, text, conversation_id, lease
        self._token = uuid.uuid4().hex
        self.messages: list[Message] = []
        self.open_runs: list[_OpenRun] = []
        self.asked: list[_Asked] = []
        self.version = 0
        self.has_lease = self.is_repaired = False
        self.on_lost: Callable[[], None] = _do_nothing
        self._stored: list[Message] = []
        self._good_until = 0.0
        self._lock = anyio.Lock()
        self._stop = anyio.Event()

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that await decisions."""
        return [each for run in self.open_runs for each in run.pending]

    # reading

    def load(self, stored: StoredConversation) -> None:
        """Load a stored conversation."""
        try:
            self.messages = self._load_messages(stored.messages)
            self._load_state(stored.state)
            self.version, self._stored = stored.version, list(self.messages)
            self._answer_lost_calls()
        except (ConversationStoreError, *_CHANGED) as error:
            raise self._make_refusal(error) from error

    def _make_refusal(self, error: Exception) -> ConversationStoreError:
        is_ours = isinstance(error, ConversationStoreError)
        why = str(error) if is_ours else "a stored value was changed, or encrypted with another key"
        return ConversationStoreError(
            f"conversation {self.id!r} can't be read: {why} (edit one by `Conversations.replace`)"
        )

    def _answer_lost_calls(self) -> None:
        """Answer the calls that the process of the last turn has left open."""
        try:
            validate_transcript(self.messages)
        except TranscriptError:  # its process ended before the results of the last calls were in
            self.messages, self.is_repaired = repair_transcript(self.messages), True
        lost = {call_id for run in self.open_runs for call_id in run.interrupted}
        results = [each for each in self.messages if isinstance(each, ToolResult) and each.call_id in lost]
        self.put_results([ToolResult(each.call_id, LOST, tool_name=each.tool_name, is_error=True) for each in results])
        self.drop_cut_runs()
        for each in self.asked:
            reason = (each.result or {}).get("reason", {})
            if reason.get("kind") == "awaiting_approval" and self.find_run(each.answer) is None:
                each.result = None  # its process ended while the calls that were decided on ran

    def _load_messages(self, texts: Sequence[str]) -> list[Message]:
        return load_messages(f"[{','.join(map(self._text.read_text, texts))}]") if texts else []

    def _load_state(self, text: str) -> None:
        if not text:
            return
        state: dict[str, Any] = json.loads(self._text.read_text(text))
        if state["format"] != _FORMAT:
            raise ConversationStoreError(
                f"it is of version {state['format']}, and this library reads version {_FORMAT}"
            )
        self.open_runs = [_OpenRun(each["snapshot"], each["calls"], each["taken"]) for each in state["open"]]
        if len({run.snapshot["loop"]["loop_id"] for run in self.open_runs}) < len(self.open_runs):
            raise ConversationStoreError("it has a run twice, whose calls would run twice after a decision")
        messages: dict[int | None, Message] = dict(enumerate(self.messages))
        self.asked = [
            _Asked(key, messages.get(question), messages.get(answer), result)
            for key, question, answer, result in state["asked"]
        ]

    def _write_state(self, messages: Sequence[Message]) -> str:
        places = {id(message): place for place, message in enumerate(messages)} if self.asked else {}
        asked = [
            [each.key, places.get(id(each.question)), places.get(id(each.answer)), each.result] for each in self.asked
        ]
        open_runs = [{"snapshot": run.snapshot, "calls": run.calls, "taken": run.taken} for run in self.open_runs]
        return self._text.write({"format": _FORMAT, "open": open_runs, "asked": asked})

    def load_queue(self, texts: Sequence[str]) -> list[tuple[Message, str]]:
        """Return the queued questions, each with the digest of its id, which is empty without one."""
        queued: list[dict[str, Any]] = [json.loads(self._text.read_text(text)) for text in texts]
        questions = load_messages(json.dumps([each["question"] for each in queued]))
        return [(question, each["key"]) for question, each in zip(questions, queued, strict=True)]

    def check_version(self, version: int | None) -> None:
        """Raise `ConversationChangedError` if it has another version."""
        if version is not None and version != self.version:
            raise ConversationChangedError(self.id, f"it is of version {self.version}, and was of version {version}")

    # the transcript

    def put_results(self, results: Sequence[ToolResult]) -> None:
        """Replace the results of the same calls."""
        by_id = {each.call_id: each for each in results}
        for place, message in enumerate(self.messages if by_id else ()):
            if isinstance(message, ToolResult) and message.call_id in by_id:
                self.messages[place] = by_id[message.call_id]

    def drop_cut_runs(self) -> None:
        """Remove the runs that await no decision, or whose calls were removed from the transcript."""
        if self.open_runs:
            there = {each.call_id for each in self.messages if isinstance(each, ToolResult)}
            self.open_runs = [run for run in self.open_runs if run.pending and there.issuperset(run.calls)]

    # questions that have an id

    def add_question(self, question: Message, key: str) -> bool:
        """Append a question to the transcript; return False if it was asked before."""
        asked = self.find_asked(key)
        if asked is None:
            self.messages.append(question)
            if key:
                self.asked = [*self.asked, _Asked(key, question)][-_IDS:]
        elif asked.question not in (None, question):
            raise ConversationChangedError(self.id, "another question was asked by the id of this one: give it its own")
        return asked is None

    def find_asked(self, key: str) -> _Asked | None:
        """Return the question with an id, by its digest; None if there is none."""
        return next((each for each in self.asked if key and each.key == key), None)

    def find_run(self, answer: Message | None) -> _OpenRun | None:
        """Return the run that awaits decisions on the calls of a message."""
        calls = [call.id for call in answer.tool_calls] if isinstance(answer, AssistantMessage) else []
        return next((run for run in self.open_runs if run.calls == calls), None)

    def answer_questions(self, result: ToolLoopResult[Any]) -> None:
        """Store a result for the questions that have an id and no result yet."""
        open_questions = [each for each in self.asked if each.result is None]
        if open_questions:
            answer = next((each for each in reversed(self.messages) if isinstance(each, AssistantMessage)), None)
            text = "" if answer is not None and answer.text == result.text else result.text
            # The transcript has the messages, the snapshot is stored beside it, and the usage counts once.
            short = replace(result, text=text, response=None, messages=[], snapshot=None, usage=Usage())
            plain = dump_result(short)
            for each in open_questions:
                each.answer, each.result = answer, plain

    def load_answer(self, asked: _Asked) -> ToolLoopResult[Any] | None:
        """Return the result that answered a question; None if there is none."""
        place = next((place for place, each in enumerate(self.messages) if each is asked.answer), None)
        if asked.result is None or place is None:
            if asked.result is None and self.messages[-1].role != "assistant":
                return None
            raise ConversationChangedError(self.id, "the answer of this question is not in the transcript anymore")
        end = place + 1
        while end < len(self.messages) and isinstance(self.messages[end], ToolResult):
            end += 1
        try:
            result, run = load_result(asked.result), self.find_run(asked.answer)
        except _CHANGED as error:
            raise self._make_refusal(error) from error
        return replace(
            result,
            text=result.text or self.messages[place].text,
            messages=self.messages[:end],
            snapshot=None if run is None else run.snapshot,
        )

    # the lease

    async def acquire(self, *, loads: bool = True) -> bool:
        """Acquire the lease and read the conversation; return False if another turn has it."""
        try:
            self._good_until = time.monotonic() + self._lease
            stored = await self._store.acquire(self.id, self._token, self._lease)
            if stored is not None and loads:
                self.load(stored)
        except BaseException:  # the lease may have been granted, and the reply lost
            await _finish_step(self._give_back)
            raise
        if stored is None:
            return False
        self.version, self.has_lease = stored.version, True
        start_carried(partial(_renew_leases, weakref.ref(self), self._stop, self._lease / _BEATS), _ignore_end)
        return True

    async def _give_back(self) -> None:
        self.has_lease = False
        self._stop.set()
        try:
            await self._store.renew(self.id, self._token, 0)
        except ConversationError as error:
            _logger.warning("the lease of conversation %r will expire by itself: %s", self.id, error)

    async def renew(self) -> bool:
        """Renew the lease; return whether this still has it."""
        began = time.monotonic()
        try:
            if self.has_lease and await self._store.renew(self.id, self._token, self._lease):
                self._good_until = began + self._lease
                return True
            is_lost = self.has_lease
        except ConversationStoreError as error:
            _logger.warning("the lease of conversation %r was not renewed: %s", self.id, error)
            is_lost = time.monotonic() > self._good_until
        if is_lost:
            self.on_lost()
        return self.has_lease and not is_lost

    async def wait_for_end(self) -> None:
        """Wait until this has given back or lost the lease."""
        await self._stop.wait()

    async def release(self) -> None:
        """Give back the lease, if this has it, without writing."""
        if self.has_lease:
            is_empty = not self.version and not self.messages
            await _finish_step(self.delete if is_empty else self._give_back)

    async def delete(self) -> None:
        """Delete the conversation."""
        self.has_lease = False
        self._stop.set()
        if not await self._insist_on(lambda: self._store.delete(self.id, self._token)):
            raise ConversationChangedError(self.id, "somebody else has taken it over")

    # writing

    async def write(self, *, ends: bool = False) -> None:
        """Write all changes, even if this task is cancelled.

        Args:
            ends: True to give back the lease, after queued questions were added to the transcript.
        """
        async with self._lock:
            while not await self._write_once(ends=ends, taken=0):
                await self._take_queue()

    async def finish(self) -> bool:
        """Write, and give back the lease; or add the queued questions to the transcript, and return True."""
        async with self._lock:
            while not await self._write_once(ends=True, taken=0):
                if await self._take_queue():
                    return True
            return False

    async def _take_queue(self) -> bool:
        """Append the queued questions to the transcript; return False if all were asked before."""
        stored = await self._insist_on(lambda: self._store.read(self.id))
        queue, length = () if stored is None else stored.queue, len(self.messages)
        for question, key in self.load_queue(queue):
            if self.find_asked(key) is None:
                self.add_question(question, key)
        await self._write_once(ends=False, taken=len(queue))
        return len(self.messages) > length

    async def _write_once(self, *, ends: bool, taken: int) -> bool:
        """Write; return False if the lease can't end, since a question is queued."""
        if not self.has_lease:
            raise self._make_loss()
        messages = list(self.messages)
        before = self._stored
        changed = {
            place: message
            for place, message in enumerate(messages)
            if place >= len(before) or (message is not before[place] and message != before[place])
        }
        plain = messages_to_plain(list(changed.values()))
        change = StoredChange(
            version=self.version + 1,
            length=len(messages),
            messages={place: self._text.write(each) for place, each in zip(changed, plain, strict=True)},
            state=self._write_state(messages),
            taken=taken,
            ends=ends,
        )
        outcome = await self._insist_on(lambda: self._store.write(self.id, self._token, change, self._lease))
        if outcome == "lost":
            self.has_lease = False
            self._stop.set()
            raise self._make_loss()
        if outcome == "queued":
            return False
        self.version, self._stored, self.has_lease = change.version, messages, not ends
        if ends:
            self._stop.set()
        return True

    def enqueue(self, question: Message, key: str) -> Awaitable[bool]:
        """Queue a question for the current turn; return False if there is none."""
        [plain] = messages_to_plain([question])
        return self._store.enqueue(self.id, self._text.write({"question": plain, "key": key}))

    def _make_loss(self) -> ConversationChangedError:
        error = ConversationChangedError(
            self.id,
            "its lease expired, as after a pause of its process or of its store, and another turn has acquired it",
        )
        error.messages = tuple(self.messages)
        return error

    async def _insist_on(self, work: Callable[[], Awaitable[_Returned]]) -> _Returned:
        """Call the store, repeatedly while it is unavailable and the lease can still be renewed."""
        deadline, pause = time.monotonic() + self._lease, _FIRST_PAUSE
        while True:
            try:
                return await _finish_step(work)
            except ConversationStoreError as error:
                if time.monotonic() > deadline:
                    error.messages = tuple(self.messages)
                    raise
                _logger.warning("waiting for the store of conversation %r: %s", self.id, error)
            await _finish_step(partial(anyio.sleep, pause))
            pause = min(_LONGEST_PAUSE, pause * _SLOWER)


async def _renew_leases(draft: weakref.ref[_Draft], stop: anyio.Event, seconds: float) -> None:
    """Renew the lease of a draft as long as the draft is referenced."""
    while not stop.is_set():
        with anyio.move_on_after(seconds):
            await stop.wait()
        found = draft()
        if found is None or stop.is_set() or not await found.renew():
            return
        del found


async def _finish_step(work: Callable[[], Awaitable[_Returned]]) -> _Returned:
    """Complete a step of a store even if this task is cancelled, then raise the cancellation."""
    # A cancellation by asyncio itself, as at the end of a server, ignores the shields of anyio: the step is repeated.
    cancelled: BaseException | None = None
    found: list[_Returned] = []
    while not found:
        try:
            with anyio.CancelScope(shield=True):
                found.append(await work())
        except anyio.get_cancelled_exc_class() as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return found[0]


def _do_nothing() -> None: ...


def _ignore_end(error: BaseException | None) -> None:
    if error is not None:
        _logger.error("the lease of a conversation is no longer renewed", exc_info=error)


class ConversationTurn(Generic[Ctx]):
    """A turn of a conversation, from `Conversations.turn`: enter it, and read its stream.

    It runs one question, or one set of decisions. The conversation is free for other turns after that, even before the
    block ends.
    """

    def __init__(self, draft: _Draft, ctx: Ctx, when_busy: WhenBusy, wait: float) -> None:
        self._draft = draft
        self._ctx = ctx
        self._when_busy: WhenBusy = when_busy
        self._wait = wait
        self._stream: TurnStream[Any] | None = None
        self._is_entered = False

    async def __aenter__(self) -> Self:
        """Acquire the conversation.

        Raises:
            ConversationBusyError: Another turn has it, and `when_busy` is ``refuse`` or the wait is over.
            ConversationStoreError: The store is unavailable, or the conversation can't be read.
        """
        if self._is_entered:
            raise LoopUsageError("a turn can be entered once: take another one for another question")
        self._is_entered = True
        deadline, pause = anyio.current_time() + self._wait, _FIRST_PAUSE
        while not await self._draft.acquire():
            if self._when_busy == "queue":
                return self
            if self._when_busy == "refuse" or anyio.current_time() > deadline:
                raise ConversationBusyError(self._draft.id)
            await anyio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * _SLOWER)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancel the run if it has not ended, write the transcript, and free the conversation."""
        try:
            if self._stream is not None:
                await self._stream.__aexit__(kind, error, traceback)
        finally:
            await self._draft.release()

    @property
    def messages(self) -> list[Message]:
        """The transcript so far."""
        return list(self._draft.messages)

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that await decisions."""
        return self._draft.pending

    @property
    def is_queued(self) -> bool:
        """True if the question was queued, known once the stream was read: another turn answers it."""
        return self._stream is not None and self._stream.is_queued

    def stream(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        question: str | Message | None = None,
        *,
        question_id: str | None = None,
        decisions: Decisions | None = None,
        config: ToolLoopConfig[Out] | None = None,
        system_prompt: str = "",
    ) -> TurnStream[Out]:
        """Ask a question, or decide on calls; return the events of the run, to be read with ``async for``.

        Nothing runs before they are read. The last event is `Done`, or `Failed` followed by the exception. Each run has
        its own, where queued questions are answered, or calls of several runs are decided on.

        Args:
            provider: The model.
            registry: The tools.
            question: The question, which is written before the model is asked. It may be asked while calls await
                decisions; nothing is compacted meanwhile. None continues with a question that has no answer, since its
                run or its process ended early.
            question_id: The client's id of the question, such as an ``Idempotency-Key``, by which a client can repeat a
                question whose answer it lost. The question is in the transcript once: an answered one emits the stored
                answer and result, with no usage, and an interrupted run is resumed. The last 50 ids are stored.
            decisions: By `PendingApproval.call_id`, as an approver would answer. Each is valid for the call as it is
                pending; if its tool has changed since, the call stays pending.
            config: The settings; for decisions, with the `signing_key` of the run.
            system_prompt: The first message; it replaces a system prompt that the transcript begins with.

        Raises:
            LoopUsageError: The turn is not entered, or has a stream already.
        """
        if not self._is_entered:
            raise LoopUsageError("enter a turn before it is used: 'async with conversations.turn(id) as turn:'")
        if self._stream is not None:
            raise LoopUsageError("a turn runs one question: take another one for the next")
        if question is not None and decisions:
            raise ConfigurationError("give a question or decisions: each has a turn of its own")
        work = _TurnRun(self, self._draft, provider, registry, config or DEFAULT_CONFIG, system_prompt, self._ctx)
        work.question, work.decisions = _read_question(question), dict(decisions or {})
        work.key = _digest_id(question_id, work.question)
        self._stream = stream = TurnStream[Out](work)
        return stream

    async def run(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        question: str | Message | None = None,
        *,
        question_id: str | None = None,
        decisions: Decisions | None = None,
        config: ToolLoopConfig[Out] | None = None,
        system_prompt: str = "",
    ) -> ToolLoopResult[Out]:
        """Read a `stream`, and return its result."""
        stream = self.stream(
            provider,
            registry,
            question,
            question_id=question_id,
            decisions=decisions,
            config=config,
            system_prompt=system_prompt,
        )
        async for _ in stream:
            pass
        return stream.result

    async def save(self, messages: Sequence[Message]) -> None:
        """Write a transcript that was made elsewhere from `messages`, as by a durable run.

        Raises:
            ConversationChangedError: Another turn has acquired the conversation.
            TranscriptError: The messages are no valid transcript.
        """
        validate_transcript(messages)
        self._draft.messages = list(messages)
        self._draft.drop_cut_runs()
        await self._draft.write()

    async def take_place(self, question: Message | None, key: str) -> bool:
        """Acquire the conversation if this turn has it not yet; or queue the question, and return False."""
        if self._draft.has_lease:
            return True
        if self._when_busy != "queue" or question is None:
            raise ConversationBusyError(self._draft.id)
        while not await self._draft.enqueue(question, key):
            if await self._draft.acquire():
                return True
        return False


def _read_question(question: str | Message | None) -> Message | None:
    if question is None:
        return None
    if isinstance(question, str) and not question.strip():
        raise ConfigurationError("the question is empty, and the model would be asked nothing")
    message: Message = UserMessage(question) if isinstance(question, str) else question
    validate_transcript([message])
    return message


def _digest_id(question_id: str | None, question: Message | None) -> str:
    """Return the digest of the id of a question; empty without one."""
    if question_id is None:
        return ""
    check_setting("question_id", question_id, str)
    if question is None or not 0 < len(question_id) <= _LONGEST_ID:
        raise ConfigurationError(f"question_id is the id of a question that is given: 1 to {_LONGEST_ID} characters")
    return hashlib.blake2b(question_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class TurnStream(EventStream[Out]):
    """The events of a turn: read them with ``async for``, in the block of the turn; you may stop at any event.

    Reading raises the exception of a failed run, whose transcript is written before; `ConversationChangedError` if
    another turn has acquired the conversation, or no decision is awaited; and `ConversationStoreError` if it can't be
    written.
    """

    __slots__ = ("_work",)

    def __init__(self, work: _TurnRun) -> None:
        super().__init__(work)
        self._work = work

    @property
    def is_queued(self) -> bool:
        """True if the question was queued."""
        return self._work.is_queued

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_started:
            await super().__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LoopEvent:
        if not self._is_started:
            await self.__aenter__()
        return await super().__anext__()

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the run, or of the last one where queued questions were answered.

        Raises:
            LoopUsageError: It has not ended, or the question was queued.
            Exception: The exception of a failed run.
        """
        if self._work.is_queued:
            raise LoopUsageError("the question was queued: the current turn answers it in its stream")
        return super().result


class _TurnRun:
    """Runs a turn for its stream: the question or the decisions, then the queued questions.

    Without a question it continues with one that has no answer; `is_queued` if another turn answers it.
    """

    def __init__(
        self,
        turn: ConversationTurn[Any],
        draft: _Draft,
        provider: Provider,
        registry: ToolRegistry[Any],
        config: ToolLoopConfig[Any],
        system_prompt: str,
        ctx: Any,
    ) -> None:
        if config.journal is not None:
            raise ConfigurationError("a run with a journal has a log of its own: save its messages by `turn.save`")
        self._turn, self._draft = turn, draft
        self._parts: tuple[Provider, ToolRegistry[Any]] = (provider, registry)
        self._config = replace(config, middleware=(_Saving(self), *config.middleware))
        self._system_prompt = system_prompt
        self._ctx = ctx
        self.question: Message | None = None
        self.key = ""
        self.decisions: dict[str, Approval | bool | str] = {}
        self.is_queued = False
        self._handle: ToolLoopHandle[Any, Any] | None = None
        self._stored: ToolLoopResult[Any] | None = None
        self._is_followed = False  # True while the handle's messages are those of the conversation
        self._wish: tuple[str | None] | None = None
        self._failure: ConversationError | None = None

    @property
    def result(self) -> ToolLoopResult[Any]:
        """The result of the last run, or the stored one; nothing if the question was queued."""
        if self._handle is None and self._stored is None and not self.is_queued:
            raise LoopUsageError("the turn has not run: read its stream first")
        return cast("ToolLoopResult[Any]", self._stored) if self._handle is None else self._handle.result

    @property
    def messages(self) -> list[Message]:
        """The transcript so far."""
        return list(self._draft.messages)

    @property
    def usage(self) -> Usage:
        """The usage of the last run."""
        return Usage() if self._handle is None else self._handle.usage

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the run."""
        self._wish = self._wish or (reason,)
        if self._handle is not None:
            self._handle.cancel(reason)

    def read_partials(self) -> PartialAnswers:
        """Return a reader of the partial typed answer."""
        return read_partials(self._config)

    async def run_into(self, feed: EventFeed) -> None:
        """Run to the end, emit events to `feed`, and write the transcript in any case."""
        draft = self._draft
        self.is_queued = not await self._turn.take_place(self.question, self.key)
        if self.is_queued:
            return
        draft.on_lost = self.cancel
        try:
            if self.decisions:
                await self._take_decisions(feed)
            elif self.question is None or draft.add_question(self.question, self.key):
                await self._ask_model(feed)
            else:
                await self._answer_again(feed)
            while self._ended_well() and await draft.finish():
                await self._ask_model(feed)
        finally:
            if draft.has_lease:
                await _finish_step(partial(draft.write, ends=True))
        if self._failure is not None:
            raise self._failure

    def _ended_well(self) -> bool:
        result = self._stored if self._handle is None else _find_result(self._handle)
        return self._failure is None and result is not None and not isinstance(result.reason, Cancelled)

    # a question

    async def _answer_again(self, feed: EventFeed) -> None:
        """Emit the stored answer of a repeated question, or ask the model where there is none."""
        asked = self._draft.find_asked(self.key)
        assert asked is not None
        stored = self._draft.load_answer(asked)
        if stored is None:
            await self._ask_model(feed)
            return
        if self._config.answer is not None and isinstance(stored.reason, TypedAnswer):
            try:
                stored = replace(stored, output=ExpectedAnswer(self._config.answer).load(stored))
            except ValueError as error:
                raise ConversationChangedError(
                    self._draft.id, f"the answer of this question is not of the type that is asked for now: {error}"
                ) from error
        self._stored = stored
        pieces = [TextDelta(stored.text)] if stored.text else []
        await Listener(None, timeout=1, feed=feed).emit_all([*pieces, Done(stored)])

    async def _ask_model(self, feed: EventFeed) -> None:
        draft = self._draft
        if not draft.messages or (draft.messages[-1].role == "assistant"):
            raise LoopUsageError("nothing is unanswered in this conversation: give a question")
        config = replace(self._config, compaction=None) if draft.open_runs else self._config
        self._handle = ToolLoopHandle(
            *self._parts, draft.messages, ctx=self._ctx, config=config, system_prompt=self._system_prompt
        )
        await self._run_handle(self._handle, feed)

    async def _run_handle(self, handle: ToolLoopHandle[Any, Any], feed: EventFeed, *, to_end: bool = True) -> None:
        """Run, then store the transcript of the run and its calls that await decisions."""
        if self._wish is not None:
            handle.cancel(*self._wish)
        self._is_followed = to_end
        try:
            await handle.run_into(feed, to_end=to_end)
        finally:
            if to_end:
                self._draft.messages = list(handle.messages)
                self._is_followed = False
                self._take_ending(handle)

    def _take_ending(self, handle: ToolLoopHandle[Any, Any]) -> None:
        """Store the calls that await decisions, and the result for repeated questions."""
        result = _find_result(handle)
        if result is not None and isinstance(result.reason, AwaitingApproval):
            assert result.snapshot is not None
            self._draft.open_runs.append(_OpenRun(result.snapshot, _find_last_calls(result.messages)))
        if result is not None and not isinstance(result.reason, Cancelled):
            self._draft.answer_questions(result)

    # decisions

    async def _take_decisions(self, feed: EventFeed) -> None:
        """Resume each run that a decision is about."""
        known = {each.call_id for each in self._draft.pending}
        unknown = [call_id for call_id in self.decisions if call_id not in known]
        if unknown:
            raise ConversationChangedError(
                self._draft.id,
                f"no decision is awaited on call '{unknown[0]}': somebody has decided on it, or it was removed",
            )
        for run in list(self._draft.open_runs):
            decisions = {
                each.call_id: self.decisions[each.call_id] for each in run.pending if each.call_id in self.decisions
            }
            if decisions and (self._handle is None or self._ended_well()):
                await self._resume_run(run, decisions, feed)

    async def _resume_run(self, run: _OpenRun, decisions: Mapping[str, Approval | bool | str], feed: EventFeed) -> None:
        """Run the calls that were decided on, replace their results, and continue with the model."""
        draft = self._draft
        lost = {call_id: Deny(LOST) for call_id in run.taken}
        for each in draft.asked:
            if draft.find_run(each.answer) is run:
                each.result = None
        # Later messages follow the results: a compaction could remove these before the model has read them.
        keeps_all = len(draft.open_runs) > 1 or not isinstance(draft.messages[-1], ToolResult)
        config = replace(self._config, compaction=None) if keeps_all else self._config
        handle = self._handle = ToolLoopHandle(
            *self._parts, run.snapshot, ctx=self._ctx, config=config, decisions={**decisions, **lost}
        )
        run.taken += [
            call_id for call_id, each in decisions.items() if each is True or isinstance(each, (Approve, Modify))
        ]
        await draft.write()  # before a call runs, so that it can't be decided on twice
        try:
            await self._run_handle(handle, feed, to_end=False)
        finally:
            draft.open_runs.remove(run)
            self._put_tail(run.calls, list(handle.messages))
            self._take_ending(handle)
        if handle.is_finished:
            return
        if not isinstance(draft.messages[-1], (ToolResult, UserMessage)):
            draft.messages.append(UserMessage(_DECIDED))
        handle.messages[:] = draft.messages
        await self._run_handle(handle, feed)

    def _put_tail(self, calls: Sequence[str], messages: Sequence[Message]) -> None:
        """Replace the results of calls, and append the messages that follow them in their own run."""
        places = [
            place for place, each in enumerate(messages) if isinstance(each, ToolResult) and each.call_id in calls
        ]
        self._draft.put_results([cast("ToolResult", messages[place]) for place in places])
        self._draft.messages += messages[places[-1] + 1 :]

    # the boundaries

    async def save_boundary(self) -> None:
        """Write the current transcript."""
        if self._is_followed and self._handle is not None:
            self._draft.messages = list(self._handle.messages)
            await self._draft.write()

    def fail(self, error: ConversationError) -> None:
        """Cancel the run, since it can't be written."""
        self._failure = error
        self.cancel()


class _Saving(Middleware[Any]):
    """Writes the transcript before each request, and before a call runs."""

    def __init__(self, work: _TurnRun) -> None:
        self._work = work

    async def around_request(self, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        """Write the transcript that the model reads."""
        del request
        await self._work.save_boundary()
        return await proceed()

    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        """Write the transcript before the call runs."""
        del call
        try:
            await self._work.save_boundary()
        except ConversationError as error:
            self._work.fail(error)
            raise
        return await proceed()


def _find_result(handle: ToolLoopHandle[Any, Any]) -> ToolLoopResult[Any] | None:
    """Return the result of a run; None if it has not ended, or has failed."""
    try:
        return handle.result if handle.is_finished else None
    except Exception:  # noqa: BLE001 - the stream raises it
        return None


def _find_last_calls(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the calls whose results a transcript ends with."""
    calls: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ToolResult):
            break
        calls.insert(0, message.call_id)
    return calls
