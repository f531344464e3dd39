"""The stores of conversations: in memory, in a database by SQLAlchemy, in Redis.

A store has texts, a lease and a version for each conversation; it does not read the texts. Each step reads and writes a
conversation atomically, and a write fails after another turn has acquired the lease, so that a process that was frozen
can't write late. Leases use the clock of the store, since those of processes may differ.

`_SteppedStore` decides what a step does; each store reads and writes rows.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, cast
from uuid import uuid4

from anyio import to_thread

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ConversationStoreError, naming_extra
from toolkit.json_text import write_json
from toolkit.redaction import without_keys
from toolkit.runtime.backend import LoopLocal, is_on_asyncio
from toolkit.settings import FUNCTION, check_setting

if TYPE_CHECKING:
    import redis.asyncio
    import sqlalchemy as sa

_TABLES_VERSION = 1
_LONGEST_ID = 200
_BUSY_SECONDS = 30
_CONNECT_SECONDS = 5
_PAGE = 100
_Returned = TypeVar("_Returned")


# what a store is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """The stored form of a conversation.

    Args:
        id: Its id.
        version: The number of writes.
        messages: The text of each message, in order.
        state: The text of its further state; empty before the first write.
        queue: The texts of the queued questions, the oldest first.
        created: The time of its creation, in seconds since 1970.
        updated: The time of the last write.
        is_busy: True while a turn has the lease.
    """

    id: str
    version: int
    messages: Sequence[str]
    state: str
    queue: Sequence[str]
    created: float
    updated: float
    is_busy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEntry:
    """A conversation in a list.

    Args:
        id: Its id.
        version: The number of writes.
        length: The number of messages.
        created: The time of its creation, in seconds since 1970.
        updated: The time of the last write.
    """

    id: str
    version: int
    length: int
    created: float
    updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """A write by the holder of the lease.

    Args:
        version: The new version.
        length: The new number of messages.
        messages: The text of each new or changed message, by its position.
        state: The text of the further state.
        taken: The number of questions to remove from the head of the queue.
        ends: True to give back the lease, which is refused while a question is queued.
    """

    version: int
    length: int
    messages: Mapping[int, str]
    state: str
    taken: int = 0
    ends: bool = False


WriteOutcome: TypeAlias = Literal["written", "lost", "queued"]
"""The outcome of a write: done; refused, since another turn has the lease; refused, since a question is queued."""


class ConversationStore(Protocol):
    """A store of conversations. Each method is one atomic step, and raises `ConversationStoreError` if it fails.

    All steps but `enqueue` are idempotent, so that a step whose reply was lost can be repeated.
    """

    async def acquire(self, conversation_id: str, token: str, seconds: float) -> StoredConversation | None:
        """Grant a token the lease for some seconds, and create a missing conversation; None if another token has it."""
        ...

    async def renew(self, conversation_id: str, token: str, seconds: float) -> bool:
        """Extend the lease of a token to some seconds from now; return False if it has none."""
        ...

    async def write(self, conversation_id: str, token: str, change: StoredChange, seconds: float) -> WriteOutcome:
        """Write a change by the token that has the lease, and renew or end the lease."""
        ...

    async def enqueue(self, conversation_id: str, text: str) -> bool:
        """Queue a question for the holder of the lease; return False if there is none."""
        ...

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """Return a conversation; None if it does not exist."""
        ...

    async def list_entries(
        self, prefix: str, limit: int, before: ConversationEntry | None
    ) -> Sequence[ConversationEntry]:
        """Return conversations whose ids begin with a text, the last written first, after an entry."""
        ...

    async def delete(self, conversation_id: str, token: str) -> bool:
        """Delete a conversation by the token that has the lease; return False if another token has it."""
        ...

    async def aclose(self) -> None:
        """Close the connections of the store."""
        ...


def check_conversation_id(conversation_id: str) -> None:
    """Check that a text can be the id of a conversation."""
    check_setting("the id of a conversation", conversation_id, str)
    if not 0 < len(conversation_id) <= _LONGEST_ID or not conversation_id.isprintable():
        raise ConfigurationError(
            f"{conversation_id[:50]!r} is no id of a conversation: give 1 to {_LONGEST_ID} printable characters, "
            "such as 'ada/7'"
        )


# the steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The row of a conversation, by which each step is decided; `queued` questions stand beside it."""

    version: int = 0
    length: int = 0
    state: str = ""
    queued: int = 0
    holder: str = ""
    writer: str = ""
    expires: float = 0.0
    created: float
    updated: float

    def is_busy(self, now: float) -> bool:
        """Return whether a turn has the lease."""
        return bool(self.holder) and now < self.expires

    def show(
        self, conversation_id: str, now: float, messages: Sequence[str], queue: Sequence[str]
    ) -> StoredConversation:
        """Return the conversation with its texts."""
        return StoredConversation(
            id=conversation_id,
            version=self.version,
            messages=tuple(messages),
            state=self.state,
            queue=tuple(queue),
            created=self.created,
            updated=self.updated,
            is_busy=self.is_busy(now),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A decided step.

    Args:
        result: Returned to the caller.
        shows: True returns the conversation after the step instead.
        head: The new row; None leaves the conversation unchanged.
        change: The messages to write, and the number of questions to remove.
        question: A question to queue; empty for none.
        deletes: True to delete the conversation.
    """

    result: Any = None
    shows: bool = False
    head: _Head | None = None
    change: StoredChange | None = None
    question: str = ""
    deletes: bool = False


_Decide: TypeAlias = Callable[[_Head | None, float], _Step]
"""Decides on a step by the row of a conversation, None if it does not exist, and the time of the store's clock."""


class _SteppedStore(ABC):
    @abstractmethod
    async def _do_step(self, conversation_id: str, decide: _Decide) -> Any:
        """Do a step atomically, and return its result; None if another process has just created the conversation."""

    async def acquire(self, conversation_id: str, token: str, seconds: float) -> StoredConversation | None:
        """See `ConversationStore`."""

        def take(head: _Head | None, now: float) -> _Step:
            if head is None:
                head = _Head(created=now, updated=now)
            if head.is_busy(now) and head.holder != token:
                return _Step()
            return _Step(head=replace(head, holder=token, expires=now + seconds), shows=True)

        return cast("StoredConversation | None", await self._do_step(conversation_id, take))

    async def renew(self, conversation_id: str, token: str, seconds: float) -> bool:
        """See `ConversationStore`."""

        def extend(head: _Head | None, now: float) -> _Step:
            if head is None or head.holder != token:
                return _Step(result=False)
            return _Step(result=True, head=replace(head, expires=now + seconds))

        return bool(await self._do_step(conversation_id, extend))

    async def write(self, conversation_id: str, token: str, change: StoredChange, seconds: float) -> WriteOutcome:
        """See `ConversationStore`."""

        def put(head: _Head | None, now: float) -> _Step:
            if head is not None and (head.writer, head.version) == (token, change.version):
                return _Step(result="written")  # by a step whose reply was lost
            if head is None or head.holder != token:
                return _Step(result="lost")
            if change.ends and head.queued > change.taken:
                return _Step(result="queued")
            head = replace(
                head,
                version=change.version,
                length=change.length,
                state=change.state,
                queued=head.queued - change.taken,
                holder="" if change.ends else token,
                writer=token,
                expires=now + seconds,
                updated=now,
            )
            return _Step(result="written", head=head, change=change)

        return cast("WriteOutcome", await self._do_step(conversation_id, put))

    async def enqueue(self, conversation_id: str, text: str) -> bool:
        """See `ConversationStore`."""

        def add(head: _Head | None, now: float) -> _Step:
            if head is None or not head.is_busy(now):
                return _Step(result=False)
            return _Step(result=True, head=replace(head, queued=head.queued + 1), question=text)

        return bool(await self._do_step(conversation_id, add))

    async def delete(self, conversation_id: str, token: str) -> bool:
        """See `ConversationStore`."""

        def remove(head: _Head | None, now: float) -> _Step:
            del now
            return _Step(result=head is None or head.holder == token, deletes=head is not None and head.holder == token)

        return bool(await self._do_step(conversation_id, remove))


def _make_gap_error(conversation_id: str, place: str) -> ConversationStoreError:
    return ConversationStoreError(
        f"conversation {conversation_id!r} was edited in {place}: its messages or its questions have a gap"
    )


def _place_entry(entry: ConversationEntry) -> tuple[float, str]:
    return entry.updated, entry.id


# in memory


class MemoryStore(_SteppedStore):
    """Stores conversations in this process, for tests and for programs that do not keep them."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[_Head, list[str], list[str]]] = {}
        self._lock = threading.Lock()
        self._epoch = time.time() - time.monotonic()

    async def _do_step(self, conversation_id: str, decide: _Decide) -> Any:
        with self._lock:
            now = self._epoch + time.monotonic()
            new: tuple[_Head | None, list[str], list[str]] = (None, [], [])
            head, messages, queue = self._rows.get(conversation_id, new)
            step = decide(head, now)
            if step.deletes:
                del self._rows[conversation_id]
            if step.head is not None:
                head = step.head
                self._rows[conversation_id] = head, messages, queue
            if step.change is not None:
                del messages[step.change.length :], queue[: step.change.taken]
                for position in sorted(step.change.messages):
                    messages[position : position + 1] = [step.change.messages[position]]
            if step.question:
                queue.append(step.question)
            return head.show(conversation_id, now, messages, queue) if step.shows and head is not None else step.result

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """See `ConversationStore`."""
        found: StoredConversation | None = await self._do_step(conversation_id, lambda _head, _now: _Step(shows=True))
        return found

    async def list_entries(
        self, prefix: str, limit: int, before: ConversationEntry | None
    ) -> Sequence[ConversationEntry]:
        """See `ConversationStore`."""
        with self._lock:
            heads = {each: head for each, (head, _, _) in self._rows.items() if each.startswith(prefix)}
        found = [
            ConversationEntry(
                id=each, version=head.version, length=head.length, created=head.created, updated=head.updated
            )
            for each, head in heads.items()
        ]
        found.sort(key=_place_entry, reverse=True)
        return [each for each in found if before is None or _place_entry(each) < _place_entry(before)][:limit]

    async def aclose(self) -> None:
        """Do nothing: the conversations remain."""


# in a database


class _Tables:
    """The tables of a database, defined once SQLAlchemy is loaded."""

    def __init__(self) -> None:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra

        self.schema = sa.MetaData()
        self.versions = sa.Table(
            "toolkit_conversation_tables", self.schema, sa.Column("version", sa.Integer, primary_key=True)
        )
        self.conversations = sa.Table(
            "toolkit_conversations",
            self.schema,
            sa.Column("id", sa.String(_LONGEST_ID), primary_key=True),
            sa.Column("version", sa.Integer, nullable=False),
            sa.Column("length", sa.Integer, nullable=False),
            sa.Column("state", sa.Text, nullable=False),
            sa.Column("queued", sa.Integer, nullable=False),
            sa.Column("holder", sa.String(32), nullable=False),
            sa.Column("writer", sa.String(32), nullable=False),
            sa.Column("expires", sa.Double, nullable=False),
            sa.Column("created", sa.Double, nullable=False),
            sa.Column("updated", sa.Double, nullable=False),
            sa.Index("toolkit_conversations_by_time", "updated", "id"),
        )
        self.messages = sa.Table(
            "toolkit_conversation_messages",
            self.schema,
            sa.Column("id", sa.String(_LONGEST_ID), primary_key=True),
            sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("value", sa.Text, nullable=False),
        )
        self.queue = sa.Table(
            "toolkit_conversation_queue",
            self.schema,
            sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
            sa.Column("id", sa.String(_LONGEST_ID), nullable=False, index=True),
            sa.Column("value", sa.Text, nullable=False),
        )


class SqlStore(_SteppedStore):
    """Stores conversations in a database, by SQLAlchemy; any number of processes may share it.

    Tested with SQLite and Postgres. Its tables are made at the first use. It needs ``toolkit-sdk[sql]``, and
    the driver of any other database.

    Args:
        database: The URL, such as ``sqlite:///chats.db`` or ``postgresql://user:password@host/database``, or an engine
            of the application's own.

    Raises:
        ConfigurationError: It is no such URL.
        ModuleNotFoundError: SQLAlchemy is not installed.
    """

    def __init__(self, database: str | sa.Engine) -> None:
        with naming_extra("sql"):
            import sqlalchemy  # noqa: PLC0415 - an extra

            from toolkit.sql_database import SqlDatabase  # noqa: PLC0415 - an extra

        self._sa, self._tables = sqlalchemy, _Tables()
        self._database = SqlDatabase(
            database,
            "conversations",
            self._tables.versions,
            version=_TABLES_VERSION,
            failure=_make_database_error,
            busy_seconds=_BUSY_SECONDS,
        )

    async def _do_step(self, conversation_id: str, decide: _Decide) -> Any:
        return await self._database.ask(lambda connection: self._change_rows(connection, conversation_id, decide))

    def _change_rows(self, connection: sa.Connection, conversation_id: str, decide: _Decide) -> Any:
        table, now = self._tables.conversations, self._database.now
        mine = table.c.id == conversation_id
        # The first statement writes, so that it locks the row: what is read after it stays true.
        is_there = connection.execute(table.update().where(mine).values(holder=table.c.holder)).rowcount > 0
        if is_there:
            row = connection.execute(self._sa.select(*table.c, now.label("now")).where(mine)).one()
            step = decide(_read_head(row), float(row.now))
        else:
            step = decide(None, float(connection.scalar(self._sa.select(now)) or 0.0))
        if step.deletes:
            for each in self._list_tables():
                connection.execute(each.delete().where(each.c.id == conversation_id))
        if step.head is not None and is_there:
            connection.execute(table.update().where(mine).values(asdict(step.head)))
        elif step.head is not None:
            try:
                with connection.begin_nested():
                    connection.execute(table.insert().values(id=conversation_id, **asdict(step.head)))
            except self._sa.exc.IntegrityError:  # another turn has created it
                return None
        if step.change is not None:
            self._write_texts(connection, conversation_id, step.change)
        if step.question:
            connection.execute(self._tables.queue.insert().values(id=conversation_id, value=step.question))
        return self._read_rows(connection, conversation_id) if step.shows else step.result

    def _write_texts(self, connection: sa.Connection, conversation_id: str, change: StoredChange) -> None:
        _, messages, queue = self._list_tables()
        of_it, changed = messages.c.id == conversation_id, list(change.messages)
        connection.execute(messages.delete().where(of_it, messages.c.position >= change.length))
        if changed:
            connection.execute(messages.delete().where(of_it, messages.c.position.in_(changed)))
            rows = [{"id": conversation_id, "position": place, "value": change.messages[place]} for place in changed]
            connection.execute(messages.insert(), rows)
        if change.taken:
            first = self._sa.select(queue.c.number).where(queue.c.id == conversation_id).order_by(queue.c.number)
            numbers = list(connection.execute(first.limit(change.taken)).scalars())
            connection.execute(queue.delete().where(queue.c.number.in_(numbers)))

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """See `ConversationStore`."""
        return await self._database.ask(lambda connection: self._read_rows(connection, conversation_id))

    def _read_rows(self, connection: sa.Connection, conversation_id: str) -> StoredConversation | None:
        select, (table, messages, queue) = self._sa.select, self._list_tables()
        heads = select(*table.c, self._database.now.label("now")).where(table.c.id == conversation_id)
        texts = select(messages.c.position, messages.c.value).where(messages.c.id == conversation_id)
        waiting = select(queue.c.value).where(queue.c.id == conversation_id).order_by(queue.c.number)
        while True:
            row = connection.execute(heads).one_or_none()
            if row is None:
                return None
            rows = connection.execute(texts.order_by(messages.c.position)).all()
            queued = connection.execute(waiting).scalars().all()
            # The statements see several states if a write came between: then they are repeated.
            again = connection.execute(heads).one_or_none()
            if again is not None and (again.version, again.queued) == (row.version, row.queued):
                break
        head = _read_head(row)
        places = [each.position for each in rows]
        if (len(rows), len(queued)) != (head.length, head.queued) or places != list(range(len(rows))):
            raise _make_gap_error(conversation_id, "the database")
        return head.show(conversation_id, float(row.now), [each.value for each in rows], queued)

    def _list_tables(self) -> tuple[sa.Table, sa.Table, sa.Table]:
        return self._tables.conversations, self._tables.messages, self._tables.queue

    async def list_entries(
        self, prefix: str, limit: int, before: ConversationEntry | None
    ) -> Sequence[ConversationEntry]:
        """See `ConversationStore`."""
        table = self._tables.conversations
        columns = [table.c[name] for name in ("id", "version", "length", "created", "updated")]
        # Not LIKE, for which SQLite's letters have no case: it would list the conversations of "Ada" to "ada".
        found = self._sa.select(*columns).where(self._sa.func.substr(table.c.id, 1, len(prefix)) == prefix)
        if before is not None:
            place = self._sa.tuple_(self._sa.literal(before.updated), self._sa.literal(before.id))
            found = found.where(self._sa.tuple_(table.c.updated, table.c.id) < place)
        found = found.order_by(table.c.updated.desc(), table.c.id.desc()).limit(limit)
        rows = await self._database.ask(lambda connection: connection.execute(found).mappings().all())
        return [ConversationEntry(**row) for row in rows]

    async def aclose(self) -> None:
        """Close the connections, except those of an engine of the application."""
        await to_thread.run_sync(self._database.close)


def _read_head(row: Any) -> _Head:
    head = _Head(**{part.name: getattr(row, part.name) for part in fields(_Head)})
    counts, times = (head.version, head.length, head.queued), (head.expires, head.created, head.updated)
    if not (_are_all(counts, int) and _are_all(times, int, float)):  # a column of SQLite may have any type
        raise ConversationStoreError(f"conversation {row.id!r} was edited in the database: one of its numbers is none")
    return head


def _are_all(values: Sequence[object], *kinds: type) -> bool:
    return all(isinstance(each, kinds) for each in values)


def _make_database_error(place: str, reason: str) -> ConversationStoreError:
    return ConversationStoreError(f"the conversations in {place} can't be used: {reason}")


# in Redis

_LOOK = """
local texts = {}
for index = 2, 3 do texts[index - 1] = ARGV[1] == '1' and redis.call('LRANGE', KEYS[index], 0, -1) or {} end
return {redis.call('TIME'), redis.call('HGETALL', KEYS[1]), texts[1], texts[2]}
"""
"""Returns the time and the row of a conversation, and its texts if they are asked for."""
_COMMIT = """
local step = cjson.decode(ARGV[1])
if (redis.call('HGET', KEYS[1], 'changes') or '') ~= step.seen then return false end
if step.deletes then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
  return redis.call('ZREM', KEYS[4], step.id)
end
for name, value in pairs(step.row) do redis.call('HSET', KEYS[1], name, value) end
redis.call('ZADD', KEYS[4], step.row.updated, step.id)
if step.length == 0 then redis.call('DEL', KEYS[2]) end
if step.length > 0 then redis.call('LTRIM', KEYS[2], 0, step.length - 1) end
local there = redis.call('LLEN', KEYS[2])
for _, message in ipairs(step.messages) do
  if message[1] < there then redis.call('LSET', KEYS[2], message[1], message[2])
  else redis.call('RPUSH', KEYS[2], message[2]) end
end
if step.taken > 0 then redis.call('LTRIM', KEYS[3], step.taken, -1) end
if step.question ~= '' then redis.call('RPUSH', KEYS[3], step.question) end
return 1
"""
"""Writes a step, unless another one was written since the row was read."""
_TIMES = ("expires", "created", "updated")  # stored in milliseconds


class RedisStore(_SteppedStore):
    """Stores conversations in Redis or Valkey; any number of processes may share it. It needs asyncio.

    The settings of the server define what survives its end: with ``appendonly yes`` and ``appendfsync everysec`` a
    crash of its machine loses the last second. It needs ``toolkit-sdk[redis]``.

    Args:
        server: The URL, such as ``redis://localhost:6379/0``, or a function that returns a client, which is called once
            for each event loop.
        prefix: The beginning of the keys, all of which belong to one slot of a cluster.

    Raises:
        ConfigurationError: The URL is not one of Redis.
        ModuleNotFoundError: ``redis`` is not installed.
    """

    def __init__(self, server: str | Callable[[], redis.asyncio.Redis], *, prefix: str = "toolkit") -> None:
        check_setting("the server of conversations", server, str, FUNCTION)
        check_setting("prefix", prefix, str)
        with naming_extra("redis"):
            from redis import asyncio as clients, exceptions  # noqa: PLC0415 - an extra

        self._errors = (exceptions.RedisError, OSError, UnicodeError)
        self._prefix = f"{{{prefix}}}:"
        if isinstance(server, str):
            try:
                pools: Any = clients.ConnectionPool
                pools.from_url(server)
            except ValueError:
                raise ConfigurationError(
                    "the URL of conversations can't be read: give 'redis://host:6379/0', or 'rediss://' with TLS"
                ) from None
        self._clients: LoopLocal[Any] = LoopLocal(partial(_make_client, server), _close_client)

    async def _do_step(self, conversation_id: str, decide: _Decide) -> Any:
        while True:
            seen, head, now, *_ = await self._look_at(conversation_id)
            step = decide(head, now)
            if step.head is None and not step.deletes:
                return step.result
            row = {} if step.head is None else asdict(step.head)
            row |= {name: round(row[name] * 1000) for name in _TIMES if row}
            change = step.change
            plain = {
                "id": conversation_id,
                "seen": seen,
                "deletes": step.deletes,
                "row": {name: str(value) for name, value in {**row, "changes": uuid4().hex}.items()},
                "length": -1 if change is None else change.length,
                "messages": [] if change is None else sorted(change.messages.items()),
                "taken": 0 if change is None else change.taken,
                "question": step.question,
            }
            if await self._run_script(_COMMIT, conversation_id, write_json(plain)) is not None:
                return await self.read(conversation_id) if step.shows else step.result

    async def _look_at(
        self, conversation_id: str, *, reads: bool = False
    ) -> tuple[str, _Head | None, float, list[str], list[str]]:
        """Return the mark of the last change, the row, the time, and the texts if it `reads` them."""
        (seconds, micros), row, *lists = await self._run_script(_LOOK, conversation_id, int(reads))
        names, messages, queue = ([*map(_to_text, each)] for each in (row, *lists))
        stored: dict[str, Any] = dict(zip(names[::2], names[1::2], strict=True))
        now = (1000 * int(seconds) + int(micros) // 1000) / 1000
        if not stored:
            return "", None, now, [], []
        try:
            stored |= {name: int(stored.get(name, 0)) for name in ("version", "length", "queued")}
            stored |= {name: int(stored[name]) / 1000 for name in _TIMES}
            head = _Head(**{part.name: stored[part.name] for part in fields(_Head)})
        except (KeyError, ValueError):
            raise _make_gap_error(conversation_id, "Redis") from None
        return stored.get("changes", ""), head, now, messages, queue

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """See `ConversationStore`."""
        _, head, now, messages, queue = await self._look_at(conversation_id, reads=True)
        if head is not None and (len(messages), len(queue)) != (head.length, head.queued):
            raise _make_gap_error(conversation_id, "Redis")
        return None if head is None else head.show(conversation_id, now, messages, queue)

    async def list_entries(
        self, prefix: str, limit: int, before: ConversationEntry | None
    ) -> Sequence[ConversationEntry]:
        """See `ConversationStore`."""
        found: list[ConversationEntry] = []
        newest: Any = "+inf" if before is None else round(before.updated * 1000)
        start = 0
        while len(found) < limit:
            page: Any = await self._ask_server(
                "zrevrangebyscore", f"{self._prefix}index", newest, "-inf", start=start, num=_PAGE
            )
            for key in page:
                conversation_id = _to_text(key)
                entry = await self._read_entry(conversation_id) if conversation_id.startswith(prefix) else None
                if entry is not None and (before is None or _place_entry(entry) < _place_entry(before)):
                    found.append(entry)
            start += _PAGE
            if len(page) < _PAGE:
                break
        return found[:limit]

    async def _read_entry(self, conversation_id: str) -> ConversationEntry | None:
        row: Any = await self._ask_server(
            "hmget", self._name_keys(conversation_id)[0], ["version", "length", "created", "updated"]
        )
        if None in row:
            return None
        version, length, created, updated = map(int, row)
        return ConversationEntry(
            id=conversation_id, version=version, length=length, created=created / 1000, updated=updated / 1000
        )

    async def aclose(self) -> None:
        """Close the client of this event loop."""
        await self._clients.aclose()

    # the server

    def _name_keys(self, conversation_id: str) -> list[str]:
        # The kind stands before the id, which may have any text: no key is that of another conversation.
        kinds = ("conversation", "messages", "queue")
        return [*(f"{self._prefix}{kind}:{conversation_id}" for kind in kinds), f"{self._prefix}index"]

    async def _run_script(self, script: str, conversation_id: str, *arguments: object) -> Any:
        return await self._ask_server("eval", script, 4, *self._name_keys(conversation_id), *arguments)

    async def _ask_server(self, command: str, *arguments: Any, **options: Any) -> Any:
        if not is_on_asyncio():
            raise ConfigurationError("conversations in Redis need asyncio, which its client is made for")
        try:
            return await getattr(self._clients.get(), command)(*arguments, **options)
        except self._errors as error:
            text = without_keys(" ".join(str(error).split()))
            raise ConversationStoreError(f"the Redis of conversations can't be used: {text}") from error


def _make_client(server: str | Callable[[], redis.asyncio.Redis]) -> redis.asyncio.Redis:
    import redis.asyncio  # noqa: PLC0415 - an extra

    if not isinstance(server, str):
        return server()
    clients: Any = redis.asyncio.Redis
    client: redis.asyncio.Redis = clients.from_url(
        server, socket_timeout=_BUSY_SECONDS, socket_connect_timeout=_CONNECT_SECONDS
    )
    return client


async def _close_client(client: redis.asyncio.Redis) -> None:
    await client.aclose()


def _to_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()  # by a client of the application
