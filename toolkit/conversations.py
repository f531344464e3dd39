"""Conversations: transcripts that many questions, users and processes share, each with a lock, and saved as it goes.

A turn takes the lease of its conversation, which only it may write then. What it has is written before each request,
before the calls of a reply run, and however it ends; so a process that dies leaves what was there at the last of these.
A lease is renewed while its turn goes on, and ends by itself where the process does. Whoever lost it can write nothing.

A call that awaits a decision stays beside the transcript, with the snapshot of its run. Meanwhile the transcript says
that it is not started, and questions are answered. Once the decision is there the run goes on: its results take their
places in the transcript, and the model reads all that was said since.

A question may have an id, such as an ``Idempotency-Key``. The conversation remembers the last ids with how their runs
ended, so that a client that asks again after it lost the answer is given it, and the question stands once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

_logger = logging.getLogger("toolkit.conversations")
_FORMAT = 1
_FIRST_PAUSE, _LONGEST_PAUSE, _SLOWER = 0.02, 0.5, 1.5
_BEATS = 3
_LONGEST_ID, _IDS = 200, 50
_DECIDED = "What was to be decided on above is decided: its result has taken its place there. Go on with it."
_Returned = TypeVar("_Returned")

WhenBusy: TypeAlias = Literal["wait", "queue", "refuse"]
"""How a question comes in while another turn is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation as it was read.

    Args:
        id: Its id.
        version: How often it was written; 0 where there is none of this id.
        messages: The transcript, valid: a call whose result is not there yet is answered so.
        pending: The calls that await decisions.
        queued: The questions in line, which the turn that is under way answers.
        created: When it was begun, in seconds since 1970.
        updated: When it was written last.
        is_busy: True where a turn is under way.
    """

    id: str
    version: int = 0
    messages: Sequence[Message] = ()
    pending: Sequence[PendingApproval] = ()
    queued: Sequence[Message] = ()
    created: float = 0.0
    updated: float = 0.0
    is_busy: bool = False


@dataclass(slots=True)
class _OpenRun:
    """A run whose calls await decisions.

    Args:
        snapshot: The run.
        calls: The ids of the calls of its last reply.
        taken: The calls that were approved and whose results are not stored: they may have taken effect.
    """

    snapshot: Snapshot
    calls: list[str]
    taken: list[str] = field(default_factory=list[str])

    @property
    def pending(self) -> list[PendingApproval]:
        saved: list[dict[str, Any]] = self.snapshot["pending_approvals"]
        return [PendingApproval(**each) for each in saved if each["call_id"] not in self.taken]

    @property
    def interrupted(self) -> set[str]:
        """The calls that nothing more is to be decided on, and whose results are not stored."""
        waiting, interrupted = {each.call_id for each in self.pending}, set[str]()
        for each in self.snapshot["loop"]["state"]["open_calls"]:
            child = each["child"]  # the sub-agent whose calls are decided on
            decided = {each["call_id"]} if child is None else {call["id"] for call in child["calls"]}
            if not decided.isdisjoint(self.taken) and decided.isdisjoint(waiting):
                interrupted.add(each["call_id"])
        return interrupted


@dataclass(slots=True)
class _Asked:
    """A question that has an id.

    Args:
        key: The digest of the id.
        question: The question; None where it is not in the transcript anymore, as after a compaction.
        answer: The last message of the model in the run that answered it.
        result: The result of that run as JSON values; None where it is not answered.
    """

    key: str
    question: Message | None
    answer: Message | None = None
    result: dict[str, Any] | None = None


class Conversations:
    """The conversations of an application, in a store.

    ::

        conversations = Conversations(SqlStore("postgresql://user:password@host/database"))

        async with conversations.turn("ada/7", ctx=customer) as turn:
            async for event in turn.stream(provider, registry, question, config=config):
                ...

    Any number of processes may share a store. An id is the application's, such as the user's name and a number.

    Args:
        store: Where they are stored.
        encryption: Encrypts messages, questions and snapshots, such as a `Fernet`; None stores plain JSON with check
            sums.
        lease: Seconds after which the conversation of a process that died is free. It is renewed three times as often.
        wait: Seconds that a turn waits for the end of another one before it fails as busy.
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
        """End the runs of all turns of this process, wait until their transcripts are written, and close the store.

        For the end of a service: servers do not wait for what they cancel. It waits as long as a lease at most.
        """
        with anyio.move_on_after(self._lease, shield=True):
            for draft in [each for each in self._turns if each.is_held]:
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
            conversation_id: The conversation: 1 to 200 printable characters.
            ctx: The context of its tools, which is never stored.
            when_busy: While another turn is under way, ``wait`` waits for its end, ``refuse`` raises
                `ConversationBusyError`, and ``queue`` puts the question in line: the turn that is under way answers it
                after its own, in its own stream. What it can't answer anymore stays in the transcript.
        """
        check_conversation_id(conversation_id)
        check_setting("when_busy", when_busy, "wait", "queue", "refuse")
        draft = self._open_draft(conversation_id)
        self._turns.add(draft)
        return ConversationTurn(draft, ctx, when_busy, self._wait)

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation as it is now; one of version 0, without messages, where there is none.

        Raises:
            ConversationStoreError: The store is away, or the conversation can't be read.
        """
        check_conversation_id(conversation_id)
        stored = await self.store.read(conversation_id)
        if stored is None:
            return Conversation(id=conversation_id)
        draft = self._open_draft(conversation_id)
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
        )

    async def list(
        self, prefix: str = "", *, limit: int = 50, before: ConversationEntry | None = None
    ) -> Sequence[ConversationEntry]:
        """Return conversations, the last written first.

        Args:
            prefix: The begin of their ids, such as ``ada/``.
            limit: The most of them.
            before: The last entry of the page before; None begins with the newest.
        """
        check_setting("limit", limit, int, least=1)
        return await self.store.list_entries(prefix, limit, before)

    async def truncate(self, conversation_id: str, keep: int, *, version: int | None = None) -> None:
        """Cut a conversation after its first messages; what awaits decisions behind them is void.

        Args:
            conversation_id: The conversation.
            keep: How many messages stay.
            version: The `Conversation.version` that this was decided on; None takes any.

        Raises:
            ConversationBusyError: A turn is under way.
            ConversationChangedError: It is of another version, or not there.
            TranscriptError: The cut would part a call from its result.
        """
        check_setting("keep", keep, int, least=0)
        await self._edit_messages(conversation_id, version, lambda messages: messages[:keep])

    async def replace(self, conversation_id: str, messages: Sequence[Message], *, version: int) -> None:
        """Put another transcript in the place of a conversation's, such as one without an address.

        The ids of its questions are forgotten.

        Raises:
            ConversationBusyError: A turn is under way.
            ConversationChangedError: It is of another version, or not there.
            TranscriptError: The messages are no valid transcript.
        """
        await self._edit_messages(conversation_id, version, lambda _: messages)

    async def fork(self, conversation_id: str, new_id: str, *, keep: int | None = None) -> None:
        """Begin a conversation with the messages of another one; what awaits decisions stays with that.

        Args:
            conversation_id: The conversation to copy.
            new_id: The new one.
            keep: How many messages are copied; None copies all.

        Raises:
            ConversationChangedError: The one is not there, or the other is there already.
            TranscriptError: The cut would part a call from its result.
        """
        found = await self.get(conversation_id)
        if not found.version:
            raise ConversationChangedError(conversation_id, "it is not there")
        messages = found.messages[:keep]
        validate_transcript(messages)
        check_conversation_id(new_id)
        async with _Owned(self._open_draft(new_id)) as draft:
            if draft.version:
                raise ConversationChangedError(new_id, "it is there already, and a fork would write over it")
            draft.messages[:] = messages
            await draft.write(ends=True)

    async def delete(self, conversation_id: str, *, version: int | None = None) -> None:
        """Delete a conversation, its messages and what awaits decisions; nothing happens where it is not there.

        Raises:
            ConversationBusyError: A turn is under way.
            ConversationChangedError: It is of another version.
        """
        check_conversation_id(conversation_id)
        async with _Owned(self._open_draft(conversation_id), loads=False) as draft:
            draft.check_version(version)
            await draft.delete()

    async def _edit_messages(
        self, conversation_id: str, version: int | None, change: Callable[[Sequence[Message]], Sequence[Message]]
    ) -> None:
        check_conversation_id(conversation_id)
        async with _Owned(self._open_draft(conversation_id)) as draft:
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

    def _open_draft(self, conversation_id: str) -> _Draft:
        return _Draft(self.store, self._text, conversation_id, self._lease)


class _Draft:
    """A conversation of which this process has the lease, or tries to; the one place that writes.

    Attributes:
        messages: The transcript.
        open_runs: The runs whose calls await decisions.
        asked: The last questions that have an id, the oldest first.
        version: How often it was written.
        is_held: True while this has the lease, as far as is known here.
        on_lost: Called once where it was lost.
    """

    def __init__(self, store: ConversationStore, text: StoredText, conversation_id: str, lease: float) -> None:
        self._store, self._text, self.id, self._lease = store, text, conversation_id, lease
        self._token = uuid.uuid4().hex
        self.messages: list[Message] = []
        self.open_runs: list[_OpenRun] = []
        self.asked: list[_Asked] = []
        self.version = 0
        self.is_held = False
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
        """Take what a store has."""
        try:
            self.messages = self._load_messages(stored.messages)
            self._load_state(stored.state)
        except (ConversationStoreError, ValueError, KeyError, TypeError) as error:
            is_ours = isinstance(error, ConversationStoreError)
            why = str(error) if is_ours else "a stored value was changed, or encrypted with another key"
            raise ConversationStoreError(
                f"conversation {self.id!r} can't be read: {why} (edit one by `Conversations.replace`)"
            ) from error
        self.version, self._stored = stored.version, list(self.messages)
        try:
            validate_transcript(self.messages)
        except TranscriptError:  # its process ended before the results of the last calls were in
            self.messages = repair_transcript(self.messages)
        lost = {call_id for run in self.open_runs for call_id in run.interrupted}
        self.put_results([_write_lost_result(each) for each in self._find_results(lost)])
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
        return self._text.write({"format": _FORMAT, "open": list(map(_save_run, self.open_runs)), "asked": asked})

    def load_queue(self, texts: Sequence[str]) -> list[tuple[Message, str]]:
        """Return the questions in line, each with the digest of its id; that is empty where it has none."""
        queued: list[dict[str, Any]] = [json.loads(self._text.read_text(text)) for text in texts]
        questions = load_messages(json.dumps([each["question"] for each in queued]))
        return [(question, each["key"]) for question, each in zip(questions, queued, strict=True)]

    def check_version(self, version: int | None) -> None:
        """Raise `ConversationChangedError` where it is of another version."""
        if version is not None and version != self.version:
            raise ConversationChangedError(self.id, f"it is of version {self.version}, and was of version {version}")

    # the transcript

    def _find_results(self, call_ids: set[str]) -> list[ToolResult]:
        return [each for each in self.messages if isinstance(each, ToolResult) and each.call_id in call_ids]

    def put_results(self, results: Sequence[ToolResult]) -> None:
        """Put results in the places of those that stand for the same calls."""
        by_id = {each.call_id: each for each in results}
        for place, message in enumerate(self.messages if by_id else ()):
            if isinstance(message, ToolResult) and message.call_id in by_id:
                self.messages[place] = by_id[message.call_id]

    def drop_cut_runs(self) -> None:
        """Forget the runs that await nothing anymore, or whose calls are no part of the transcript anymore."""
        if self.open_runs:
            there = {each.call_id for each in self.messages if isinstance(each, ToolResult)}
            self.open_runs = [run for run in self.open_runs if run.pending and there.issuperset(run.calls)]

    # questions that have an id

    def add_question(self, question: Message, key: str) -> bool:
        """Append a question to the transcript; return False where it was asked before."""
        asked = self.find_asked(key)
        if asked is None:
            self.messages.append(question)
            if key:
                self.asked = [*self.asked, _Asked(key, question)][-_IDS:]
        elif asked.question not in (None, question):
            raise ConversationChangedError(self.id, "another question was asked by the id of this one: give it its own")
        return asked is None

    def find_asked(self, key: str) -> _Asked | None:
        """Return the question of an id, by its digest; None where it was not asked."""
        return next((each for each in self.asked if key and each.key == key), None)

    def find_run(self, answer: Message | None) -> _OpenRun | None:
        """Return the run that awaits decisions on the calls of a message."""
        calls = [call.id for call in answer.tool_calls] if isinstance(answer, AssistantMessage) else []
        return next((run for run in self.open_runs if run.calls == calls), None)

    def answer_questions(self, result: ToolLoopResult[Any]) -> None:
        """Remember a result as the answer of the questions that have an id and none yet."""
        open_questions = [each for each in self.asked if each.result is None]
        if open_questions:
            answer = next((each for each in reversed(self.messages) if isinstance(each, AssistantMessage)), None)
            text = "" if answer is not None and answer.text == result.text else result.text
            # The messages are in the transcript, the snapshot is beside it, and what was used was so once.
            short = replace(result, text=text, response=None, messages=[], snapshot=None, usage=Usage())
            plain = dump_result(short)
            for each in open_questions:
                each.answer, each.result = answer, plain

    def load_answer(self, asked: _Asked) -> ToolLoopResult[Any] | None:
        """Return the result that answered a question; None where there is none."""
        place = next((place for place, each in enumerate(self.messages) if each is asked.answer), None)
        if asked.result is None or place is None:
            if asked.result is None and self.messages[-1].role != "assistant":
                return None
            raise ConversationChangedError(self.id, "the answer of this question is not in the transcript anymore")
        end = place + 1
        while end < len(self.messages) and isinstance(self.messages[end], ToolResult):
            end += 1
        result, run = load_result(asked.result), self.find_run(asked.answer)
        return replace(
            result,
            text=result.text or self.messages[place].text,
            messages=self.messages[:end],
            snapshot=None if run is None else run.snapshot,
        )

    # the lease

    async def acquire(self, *, loads: bool = True) -> bool:
        """Take the lease and read the conversation; return False where somebody else has it."""
        try:
            self._good_until = time.monotonic() + self._lease
            stored = await self._store.acquire(self.id, self._token, self._lease)
            if stored is not None and loads:
                self.load(stored)
        except BaseException:  # it may have been given, and the answer not have come
            await _finish_step(self._give_back)
            raise
        if stored is None:
            return False
        self.version, self.is_held = stored.version, True
        start_carried(partial(_renew_leases, weakref.ref(self), self._stop, self._lease / _BEATS), _ignore_end)
        return True

    async def _give_back(self) -> None:
        self.is_held = False
        self._stop.set()
        try:
            await self._store.renew(self.id, self._token, 0)
        except ConversationError as error:
            _logger.warning("the lease of conversation %r ends by itself: %s", self.id, error)

    async def renew(self) -> bool:
        """Renew the lease; return whether it is still this one's."""
        began = time.monotonic()
        try:
            if self.is_held and await self._store.renew(self.id, self._token, self._lease):
                self._good_until = began + self._lease
                return True
            is_lost = self.is_held
        except ConversationStoreError as error:
            _logger.warning("the lease of conversation %r was not renewed: %s", self.id, error)
            is_lost = time.monotonic() > self._good_until
        if is_lost:
            self.on_lost()
        return self.is_held and not is_lost

    async def wait_for_end(self) -> None:
        """Wait until this has no lease anymore."""
        await self._stop.wait()

    async def release(self) -> None:
        """Give the lease back, unless that was done; write nothing."""
        if self.is_held:
            is_empty = not self.version and not self.messages
            await _finish_step(self.delete if is_empty else self._give_back)

    async def delete(self) -> None:
        """Delete the conversation."""
        self.is_held = False
        self._stop.set()
        if not await self._insist_on(lambda: self._store.delete(self.id, self._token)):
            raise ConversationChangedError(self.id, "somebody else has taken it over")

    # writing

    async def write(self, *, ends: bool = False) -> None:
        """Write what has changed, whatever cancels this task meanwhile.

        Args:
            ends: True to give the lease back. Questions that came in line since are taken into the transcript.
        """
        async with self._lock:
            while not await self._write_once(ends=ends, taken=0):
                await self._take_queue()

    async def finish(self) -> bool:
        """Write, and give the lease back; or take the questions in line, and return True."""
        async with self._lock:
            while not await self._write_once(ends=True, taken=0):
                if await self._take_queue():
                    return True
            return False

    async def _take_queue(self) -> bool:
        """Move the questions in line to the end of the transcript; return False where all were asked before."""
        stored = await self._insist_on(lambda: self._store.read(self.id))
        queue, length = () if stored is None else stored.queue, len(self.messages)
        for question, key in self.load_queue(queue):
            if self.find_asked(key) is None:
                self.add_question(question, key)
        await self._write_once(ends=False, taken=len(queue))
        return len(self.messages) > length

    async def _write_once(self, *, ends: bool, taken: int) -> bool:
        """Write; return False where the lease can't end, since a question is in line."""
        if not self.is_held:
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
            self.is_held = False
            self._stop.set()
            raise self._make_loss()
        if outcome == "queued":
            return False
        self.version, self._stored, self.is_held = change.version, messages, not ends
        if ends:
            self._stop.set()
        return True

    def enqueue(self, question: Message, key: str) -> Awaitable[bool]:
        """Put a question in line behind the turn that is under way; return False where there is none."""
        [plain] = messages_to_plain([question])
        return self._store.enqueue(self.id, self._text.write({"question": plain, "key": key}))

    def _make_loss(self) -> ConversationChangedError:
        error = ConversationChangedError(
            self.id, "its lease ran out, since this process stood still or its store was away, and was not got back"
        )
        error.messages = tuple(self.messages)
        return error

    async def _insist_on(self, work: Callable[[], Awaitable[_Returned]]) -> _Returned:
        """Ask the store, again and again while it is away and the lease may still be got back."""
        deadline, pause = time.monotonic() + self._lease, _FIRST_PAUSE
        while True:
            try:
                return await _finish_step(work)
            except ConversationStoreError as error:
                if time.monotonic() > deadline:
                    error.messages = tuple(self.messages)
                    raise
                _logger.warning("the store of conversation %r is waited for: %s", self.id, error)
            await _finish_step(partial(anyio.sleep, pause))
            pause = min(_LONGEST_PAUSE, pause * _SLOWER)


async def _renew_leases(draft: weakref.ref[_Draft], stop: anyio.Event, seconds: float) -> None:
    """Renew the lease of a draft as long as somebody has it."""
    while not stop.is_set():
        with anyio.move_on_after(seconds):
            await stop.wait()
        held = draft()
        if held is None or stop.is_set() or not await held.renew():
            return
        del held


async def _finish_step(work: Callable[[], Awaitable[_Returned]]) -> _Returned:
    """Do a step of a store to its end, again where this task is cancelled in it; the cancellation goes on after it."""
    # asyncio's own cancellation, as at the end of a server, goes through the shields of anyio.
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
        _logger.error("the lease of a conversation is not renewed anymore", exc_info=error)


def _save_run(run: _OpenRun) -> dict[str, Any]:
    return {"snapshot": run.snapshot, "calls": run.calls, "taken": run.taken}


def _write_lost_result(result: ToolResult) -> ToolResult:
    return ToolResult(result.call_id, LOST, tool_name=result.tool_name, is_error=True)


class _Owned:
    """Has the lease of a conversation for a block that does not run a model."""

    def __init__(self, draft: _Draft, *, loads: bool = True) -> None:
        self._draft = draft
        self._loads = loads

    async def __aenter__(self) -> _Draft:
        if not await self._draft.acquire(loads=self._loads):
            raise ConversationBusyError(self._draft.id)
        return self._draft

    async def __aexit__(self, *_: object) -> None:
        await self._draft.release()


class ConversationTurn(Generic[Ctx]):
    """A turn of a conversation: enter it, and read its stream. `Conversations.turn` returns it.

    It runs one question, or one set of decisions; then the conversation is free for others, before the block ends.

    Args:
        draft: The conversation to be taken.
        ctx: The context of its tools.
        when_busy: As for `Conversations.turn`.
        wait: Seconds to wait for another turn.
    """

    def __init__(self, draft: _Draft, ctx: Ctx, when_busy: WhenBusy, wait: float) -> None:
        self._draft = draft
        self._ctx = ctx
        self._when_busy: WhenBusy = when_busy
        self._wait = wait
        self._stream: TurnStream[Any] | None = None
        self._is_entered = False

    async def __aenter__(self) -> Self:
        """Take the conversation.

        Raises:
            ConversationBusyError: Another turn is under way, and is not to be waited for, or not any longer.
            ConversationStoreError: The store is away, or the conversation can't be read.
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
        """End the run where it goes on, write the transcript, and free the conversation."""
        try:
            if self._stream is not None:
                await self._stream.__aexit__(kind, error, traceback)
        finally:
            await self._draft.release()

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came."""
        return list(self._draft.messages)

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that await decisions."""
        return self._draft.pending

    @property
    def is_queued(self) -> bool:
        """True where the question was put in line, once the stream was read: another turn answers it."""
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
        """Ask a question, or decide on calls, and return the events of the run, to be read with ``async for``.

        Nothing runs before they are read. The last one is `Done`, or `Failed`, which is raised then. Where questions
        in line were answered, or decisions are about calls of several runs, each run has its own.

        Args:
            provider: Talks to the model.
            registry: The tools.
            question: The question, which is written before the model is asked. It is answered while other calls await
                decisions, too; meanwhile nothing is compacted. None goes on with what is not answered yet, since the
                run ended before, or its process did.
            question_id: The client's own id of the question, such as an ``Idempotency-Key``: one that asks again, since
                it lost the answer, gives it again. The question then stands once: where it was answered, the events are
                that answer and its result, with nothing used; where its run was cut off, that goes on. The last 50 ids
                of a conversation are remembered.
            decisions: By the `PendingApproval.call_id` of calls, as an approver would answer. Each holds for the call
                as it is pending; where its tool has changed since, it stays pending.
            config: The settings; for decisions, with the `signing_key` of the run.
            system_prompt: Stands first, in the place of one that the transcript begins with.

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
        """Do what `stream` does, and return its result."""
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
        """Write a transcript that something else made from `messages`, such as a durable run.

        Raises:
            ConversationChangedError: The conversation was taken over.
            TranscriptError: The messages are no valid transcript.
        """
        validate_transcript(messages)
        self._draft.messages = list(messages)
        self._draft.drop_cut_runs()
        await self._draft.write()

    async def take_place(self, question: Message | None, key: str) -> bool:
        """Take the conversation where that is still to be done, or put the question in line and return False."""
        if self._draft.is_held:
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
    """Return the digest of the id of a question; empty where it has none."""
    if question_id is None:
        return ""
    check_setting("question_id", question_id, str)
    if question is None or not 0 < len(question_id) <= _LONGEST_ID:
        raise ConfigurationError(f"question_id is the id of a question that is given: 1 to {_LONGEST_ID} characters")
    return hashlib.blake2b(question_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class TurnStream(EventStream[Out]):
    """The events of a turn: read it with ``async for``, in the block of its turn, and leave it when you like.

    Reading raises what made the run fail, whose transcript is written then; `ConversationChangedError` where the
    conversation was taken over, or no decision is awaited; and `ConversationStoreError` where it could not be written.
    """

    __slots__ = ("_work",)

    def __init__(self, work: _TurnRun) -> None:
        super().__init__(work)
        self._work = work

    @property
    def is_queued(self) -> bool:
        """True where the question was put in line."""
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
        try:
            return await super().__anext__()
        except LoopUsageError:
            if self.is_queued:  # there is no result to look at
                raise StopAsyncIteration from None
            raise

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the run, or of the last one where questions in line were answered.

        Raises:
            LoopUsageError: It goes on, or the question was put in line.
            Exception: The exception that made it fail.
        """
        if self._work.is_queued:
            raise LoopUsageError("the question was put in line: the turn that is under way answers it in its stream")
        return super().result


class _TurnRun:
    """The work of a turn, behind its stream: question or decisions, then the questions in line.

    Attributes:
        is_queued: True where the question was put in line.
        question: The question; None goes on with what is not answered.
        key: The digest of its id; empty where it has none.
        decisions: The decisions, by call id.
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
        """The result of the last run, or the stored one; nothing where the question was put in line."""
        if self._handle is None and self._stored is None and not self.is_queued:
            raise LoopUsageError("the turn has not run: read its stream first")
        return cast("ToolLoopResult[Any]", self._stored) if self._handle is None else self._handle.result

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came."""
        return list(self._draft.messages)

    @property
    def usage(self) -> Usage:
        """The usage of the last run."""
        return Usage() if self._handle is None else self._handle.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`."""
        self._wish = self._wish or (reason,)
        if self._handle is not None:
            self._handle.cancel(reason)

    def read_partials(self) -> PartialAnswers:
        """Return a reader of the typed answer while it comes."""
        return read_partials(self._config)

    async def run_into(self, feed: EventFeed) -> None:
        """Run to the end, with the events for the reader of `feed`, and write the transcript whatever happens."""
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
            if draft.is_held:
                await _finish_step(partial(draft.write, ends=True))
        if self._failure is not None:
            raise self._failure

    def _ended_well(self) -> bool:
        result = self._stored if self._handle is None else _find_result(self._handle)
        return self._failure is None and result is not None and not isinstance(result.reason, Cancelled)

    # a question

    async def _answer_again(self, feed: EventFeed) -> None:
        """Emit the answer of a question that was asked before, or go on with it where that is missing."""
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
        """Run, and take the transcript that the run leaves, and the calls that await decisions."""
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
        """Take the calls that await decisions, and remember the result for questions that are asked again."""
        result = _find_result(handle)
        if result is not None and isinstance(result.reason, AwaitingApproval):
            assert result.snapshot is not None
            self._draft.open_runs.append(_OpenRun(result.snapshot, _find_last_calls(result.messages)))
        if result is not None and not isinstance(result.reason, Cancelled):
            self._draft.answer_questions(result)

    # decisions

    async def _take_decisions(self, feed: EventFeed) -> None:
        """Go on with each run that a decision is about."""
        known = {each.call_id for each in self._draft.pending}
        unknown = [call_id for call_id in self.decisions if call_id not in known]
        if unknown:
            raise ConversationChangedError(
                self._draft.id,
                f"no decision is awaited on call '{unknown[0]}': somebody has decided on it, or it was cut off",
            )
        for run in list(self._draft.open_runs):
            decisions = {
                each.call_id: self.decisions[each.call_id] for each in run.pending if each.call_id in self.decisions
            }
            if decisions and (self._handle is None or self._ended_well()):
                await self._resume_run(run, decisions, feed)

    async def _resume_run(self, run: _OpenRun, decisions: Mapping[str, Approval | bool | str], feed: EventFeed) -> None:
        """Run the calls that were decided on, put their results in their places, and let the model go on."""
        draft = self._draft
        lost = {call_id: Deny(LOST) for call_id in run.taken}
        for each in draft.asked:
            if draft.find_run(each.answer) is run:
                each.result = None
        # What was said since stands behind the results: a compaction would remove them before the model has read them.
        keeps_all = len(draft.open_runs) > 1 or not isinstance(draft.messages[-1], ToolResult)
        config = replace(self._config, compaction=None) if keeps_all else self._config
        handle = self._handle = ToolLoopHandle(
            *self._parts, run.snapshot, ctx=self._ctx, config=config, decisions={**decisions, **lost}
        )
        run.taken += [
            call_id for call_id, each in decisions.items() if each is True or isinstance(each, (Approve, Modify))
        ]
        await draft.write()  # before a call runs: nobody decides on it again
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
        """Put the results of calls in their places, and what follows them in their own run at the end."""
        places = [
            place for place, each in enumerate(messages) if isinstance(each, ToolResult) and each.call_id in calls
        ]
        self._draft.put_results([cast("ToolResult", messages[place]) for place in places])
        self._draft.messages += messages[places[-1] + 1 :]

    # the boundaries

    async def save_boundary(self) -> None:
        """Write the transcript as it is now."""
        if self._is_followed and self._handle is not None:
            self._draft.messages = list(self._handle.messages)
            await self._draft.write()

    def fail(self, error: ConversationError) -> None:
        """End the run, since what it does can't be written."""
        self._failure = error
        self.cancel()


class _Saving(Middleware[Any]):
    """Writes the transcript before each request, and before a call runs."""

    def __init__(self, work: _TurnRun) -> None:
        self._work = work

    async def around_request(self, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        """Write what the model is going to read."""
        del request
        await self._work.save_boundary()
        return await proceed()

    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        """Write that the call runs, before it does."""
        del call
        try:
            await self._work.save_boundary()
        except ConversationError as error:
            self._work.fail(error)
            raise
        return await proceed()


def _find_result(handle: ToolLoopHandle[Any, Any]) -> ToolLoopResult[Any] | None:
    """Return the result of a run that has ended; None where it goes on, or has failed."""
    try:
        return handle.result if handle.is_finished else None
    except Exception:  # noqa: BLE001 - the reader of the stream is given it
        return None


def _find_last_calls(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the calls whose results a transcript ends with."""
    calls: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ToolResult):
            break
        calls.insert(0, message.call_id)
    return calls
