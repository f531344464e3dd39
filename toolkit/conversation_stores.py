"""The stores of conversations: in memory, in a database by SQLAlchemy, in Redis.

A store has texts, a lease and a version for each conversation; it does not read the texts. Each write of the holder of
the lease is one atomic step, which fails after another turn has acquired the lease, so that a process that was frozen
can't write late. Leases use the clock of the store, since those of processes may differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, cast

from anyio import to_thread

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ConversationStoreError, naming_extra
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


# in memory


@dataclass(slots=True)
class _Record:
    created: float
    updated: float
    version: int = 0
    messages: list[str] = field(default_factory=list[str])
    state: str = ""
    queue: list[str] = field(default_factory=list[str])
    holder: str = ""
    writer: str = ""
    expires: float = 0.0

    @property
    def is_busy(self) -> bool:
        return bool(self.holder) and time.monotonic() < self.expires


class MemoryStore:
    """Stores conversations in this process, for tests and for programs that do not keep them."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._lock = threading.Lock()

    async def acquire(self, conversation_id: str, token: str, seconds: float) -> StoredConversation | None:
        """See `ConversationStore`."""
        with self._lock:
            now = time.time()
            record = self._records.setdefault(conversation_id, _Record(now, now))
            if record.is_busy and record.holder != token:
                return None
            record.holder, record.expires = token, time.monotonic() + seconds
            return _show_record(conversation_id, record)

    async def renew(self, conversation_id: str, token: str, seconds: float) -> bool:
        """See `ConversationStore`."""
        with self._lock:
            record = self._records.get(conversation_id)
            if record is None or record.holder != token:
                return False
            record.expires = time.monotonic() + seconds
            return True

    async def write(self, conversation_id: str, token: str, change: StoredChange, seconds: float) -> WriteOutcome:
        """See `ConversationStore`."""
        with self._lock:
            record = self._records.get(conversation_id)
            if record is not None and (record.writer, record.version) == (token, change.version):
                return "written"
            if record is None or record.holder != token:
                return "lost"
            if change.ends and len(record.queue) > change.taken:
                return "queued"
            del record.messages[change.length :]
            for position in sorted(change.messages):
                record.messages[position : position + 1] = [change.messages[position]]
            del record.queue[: change.taken]
            record.version, record.state, record.writer = change.version, change.state, token
            record.updated, record.expires = time.time(), time.monotonic() + seconds
            record.holder = "" if change.ends else token
            return "written"

    async def enqueue(self, conversation_id: str, text: str) -> bool:
        """See `ConversationStore`."""
        with self._lock:
            record = self._records.get(conversation_id)
            if record is None or not record.is_busy:
                return False
            record.queue.append(text)
            return True

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """See `ConversationStore`."""
        with self._lock:
            record = self._records.get(conversation_id)
            return None if record is None else _show_record(conversation_id, record)

    async def list_entries(
        self, prefix: str, limit: int, before: ConversationEntry | None
    ) -> Sequence[ConversationEntry]:
        """See `ConversationStore`."""
        with self._lock:
            found = [
                ConversationEntry(
                    id=conversation_id,
                    version=record.version,
                    length=len(record.messages),
                    created=record.created,
                    updated=record.updated,
                )
                for conversation_id, record in self._records.items()
                if conversation_id.startswith(prefix)
            ]
        found.sort(key=_place_entry, reverse=True)
        return [each for each in found if before is None or _place_entry(each) < _place_entry(before)][:limit]

    async def delete(self, conversation_id: str, token: str) -> bool:
        """See `ConversationStore`."""
        with self._lock:
            record = self._records.get(conversation_id)
            if record is not None and record.holder == token:
                del self._records[conversation_id]
            return conversation_id not in self._records

    async def aclose(self) -> None:
        """Do nothing: the conversations remain."""


def _show_record(conversation_id: str, record: _Record) -> StoredConversation:
    return StoredConversation(
        id=conversation_id,
        version=record.version,
        messages=tuple(record.messages),
        state=record.state,
        queue=tuple(record.queue),
        created=record.created,
        updated=record.updated,
        is_busy=record.is_busy,
    )


def _place_entry(entry: ConversationEntry) -> tuple[float, str]:
    return entry.updated, entry.id


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
            sa.Column(
                "queued", sa.Integer, nullable=False
            ),  # counted here, so that one step can end the lease or refuse to
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


class SqlStore:
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

    # the steps

    async def acquire(self, conversation_id: str, token: str, seconds: float) -> StoredConversation | None:
        """See `ConversationStore`."""
        return await self._database.ask(
            lambda connection: self._take_lease(connection, conversation_id, token, seconds)
        )

    def _take_lease(
        self, connection: sa.Connection, conversation_id: str, token: str, seconds: float
    ) -> StoredConversation | None:
        table, now = self._tables.conversations, self._database.now
        values = {"holder": token, "expires": now + seconds}
        free = self._sa.or_(table.c.holder.in_(["", token]), table.c.expires <= now)
        take = table.update().where(table.c.id == conversation_id, free).values(values)
        if connection.execute(take).rowcount == 0:
            fresh = {"id": conversation_id, "version": 0, "length": 0, "state": "", "queued": 0, "writer": ""}
            try:
                with connection.begin_nested():
                    connection.execute(table.insert().values(**fresh, **values, created=now, updated=now))
            except self._sa.exc.IntegrityError:  # another turn has created it
                return None
        return self._read_rows(connection, conversation_id)

    async def renew(self, conversation_id: str, token: str, seconds: float) -> bool:
        """See `ConversationStore`."""
        table = self._tables.conversations
        mine = (
            table.update()
            .where(table.c.id == conversation_id, table.c.holder == token)
            .values(expires=self._database.now + seconds)
        )
        return await self._database.ask(lambda connection: connection.execute(mine).rowcount > 0)

    async def write(self, conversation_id: str, token: str, change: StoredChange, seconds: float) -> WriteOutcome:
        """See `ConversationStore`."""
        return await self._database.ask(
            lambda connection: self._write_change(connection, conversation_id, token, change, seconds)
        )

    def _write_change(
        self, connection: sa.Connection, conversation_id: str, token: str, change: StoredChange, seconds: float
    ) -> WriteOutcome:
        table, messages, queue, now = (
            self._tables.conversations,
            self._tables.messages,
            self._tables.queue,
            self._database.now,
        )
        is_done = self._sa.and_(table.c.writer == token, table.c.version == change.version)
        values = {"version": change.version, "length": change.length, "state": change.state, "writer": token}
        values |= {"holder": "" if change.ends else token, "expires": now + seconds, "updated": now}
        mine = table.update().where(table.c.id == conversation_id, table.c.holder == token, self._sa.not_(is_done))
        if change.ends:
            mine = mine.where(table.c.queued == change.taken)
        if connection.execute(mine.values(**values, queued=table.c.queued - change.taken)).rowcount == 0:
            row = connection.execute(
                self._sa.select(table.c.holder, table.c.writer, table.c.version).where(table.c.id == conversation_id)
            ).one_or_none()
            if row is not None and (row.writer, row.version) == (token, change.version):
                return "written"
            return "queued" if row is not None and row.holder == token else "lost"
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
        return "written"

    async def enqueue(self, conversation_id: str, text: str) -> bool:
        """See `ConversationStore`."""
        table, queue = self._tables.conversations, self._tables.queue
        busy = table.update().where(
            table.c.id == conversation_id, table.c.holder != "", table.c.expires > self._database.now
        )

        def add_to_queue(connection: sa.Connection) -> bool:
            if connection.execute(busy.values(queued=table.c.queued + 1)).rowcount == 0:
                return False
            connection.execute(queue.insert().values(id=conversation_id, value=text))
            return True

        return await self._database.ask(add_to_queue)

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """See `ConversationStore`."""
        return await self._database.ask(lambda connection: self._read_rows(connection, conversation_id))

    def _read_rows(self, connection: sa.Connection, conversation_id: str) -> StoredConversation | None:
        select, (table, messages, queue) = self._sa.select, self._list_tables()
        is_busy = self._sa.and_(table.c.holder != "", table.c.expires > self._database.now)
        texts = (
            select(messages.c.position, messages.c.value)
            .where(messages.c.id == conversation_id)
            .order_by(messages.c.position)
        )
        waiting = select(queue.c.value).where(queue.c.id == conversation_id).order_by(queue.c.number)
        while True:
            row = connection.execute(
                select(*table.c, is_busy.label("busy")).where(table.c.id == conversation_id)
            ).one_or_none()
            if row is None:
                return None
            rows = connection.execute(texts).all()
            # The two statements see two states if a write came between: then they are repeated.
            if connection.scalar(select(table.c.version).where(table.c.id == conversation_id)) == row.version:
                break
        if [each.position for each in rows] != list(range(row.length)):
            raise ConversationStoreError(
                f"conversation {conversation_id!r} was edited in the database: its messages have a gap"
            )
        return StoredConversation(
            id=conversation_id,
            version=row.version,
            messages=tuple([each.value for each in rows]),
            state=row.state,
            queue=tuple(connection.execute(waiting).scalars()),
            created=row.created,
            updated=row.updated,
            is_busy=bool(row.busy),
        )

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

    async def delete(self, conversation_id: str, token: str) -> bool:
        """See `ConversationStore`."""
        table, messages, queue = self._list_tables()

        def delete_rows(connection: sa.Connection) -> bool:
            mine = table.delete().where(table.c.id == conversation_id, table.c.holder == token)
            if connection.execute(mine).rowcount == 0:
                return connection.scalar(self._sa.select(table.c.id).where(table.c.id == conversation_id)) is None
            connection.execute(messages.delete().where(messages.c.id == conversation_id))
            connection.execute(queue.delete().where(queue.c.id == conversation_id))
            return True

        return await self._database.ask(delete_rows)

    async def aclose(self) -> None:
        """Close the connections, except those of an engine of the application."""
        await to_thread.run_sync(self._database.close)


def _make_database_error(place: str, reason: str) -> ConversationStoreError:
    return ConversationStoreError(f"the conversations in {place} can't be used: {reason}")


def _describe_error(error: object) -> str:
    return without_keys(" ".join(str(error).split()))


# in Redis

_PRELUDE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HMGET', KEYS[1], 'holder', 'expires', 'writer', 'version')
local is_busy = held[1] and held[1] ~= '' and tonumber(held[2]) > now
local function number(value) return string.format('%.0f', value) end
local function show()
  local row = redis.call('HMGET', KEYS[1], 'version', 'length', 'state', 'created', 'updated')
  local queue, messages = redis.call('LRANGE', KEYS[3], 0, -1), redis.call('LRANGE', KEYS[2], 0, -1)
  return {row[1], row[2], row[3], row[4], row[5], is_busy and 1 or 0, messages, queue}
end
"""
_SCRIPTS = {
    "acquire": """
if is_busy and held[1] ~= ARGV[1] then return false end
if not held[4] then
  redis.call('HSET', KEYS[1], 'version', 0, 'length', 0, 'state', '', 'writer', '')
  redis.call('HSET', KEYS[1], 'created', number(now), 'updated', number(now))
  redis.call('ZADD', KEYS[4], number(now), ARGV[3])
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'expires', number(now + ARGV[2]))
return show()
""",
    "renew": """
if held[1] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'expires', number(now + ARGV[2]))
return 1
""",
    "write": """
if held[3] == ARGV[1] and held[4] == ARGV[4] then return 'written' end
if held[1] ~= ARGV[1] then return 'lost' end
local length, taken, ends = tonumber(ARGV[5]), tonumber(ARGV[7]), ARGV[8] == '1'
if ends and redis.call('LLEN', KEYS[3]) > taken then return 'queued' end
if length == 0 then redis.call('DEL', KEYS[2]) else redis.call('LTRIM', KEYS[2], 0, length - 1) end
local there = redis.call('LLEN', KEYS[2])
for index = 9, #ARGV, 2 do
  if tonumber(ARGV[index]) < there then redis.call('LSET', KEYS[2], ARGV[index], ARGV[index + 1])
  else redis.call('RPUSH', KEYS[2], ARGV[index + 1]) end
end
if taken > 0 then redis.call('LTRIM', KEYS[3], taken, -1) end
redis.call('HSET', KEYS[1], 'version', ARGV[4], 'length', ARGV[5], 'state', ARGV[6], 'writer', ARGV[1])
redis.call('HSET', KEYS[1], 'holder', ends and '' or ARGV[1], 'expires', number(now + ARGV[2]))
redis.call('HSET', KEYS[1], 'updated', number(now))
redis.call('ZADD', KEYS[4], number(now), ARGV[3])
return 'written'
""",
    "enqueue": """
if not is_busy then return 0 end
redis.call('RPUSH', KEYS[3], ARGV[1])
return 1
""",
    "read": """
if not held[4] then return false end
return show()
""",
    "delete": """
if not held[4] then return 1 end
if held[1] ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[2])
return 1
""",
}
"""The steps, each of which the server executes atomically, on the keys of the conversation and the common index."""


class RedisStore:
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

    # the steps

    async def acquire(self, conversation_id: str, token: str, seconds: float) -> StoredConversation | None:
        """See `ConversationStore`."""
        return self._show_row(
            conversation_id,
            await self._run_script("acquire", conversation_id, token, _to_milliseconds(seconds), conversation_id),
        )

    async def renew(self, conversation_id: str, token: str, seconds: float) -> bool:
        """See `ConversationStore`."""
        return bool(await self._run_script("renew", conversation_id, token, _to_milliseconds(seconds)))

    async def write(self, conversation_id: str, token: str, change: StoredChange, seconds: float) -> WriteOutcome:
        """See `ConversationStore`."""
        texts = [part for position in sorted(change.messages) for part in (position, change.messages[position])]
        row = (change.version, change.length, change.state, change.taken, int(change.ends))
        outcome = await self._run_script(
            "write", conversation_id, token, _to_milliseconds(seconds), conversation_id, *row, *texts
        )
        return cast("WriteOutcome", _to_text(outcome))

    async def enqueue(self, conversation_id: str, text: str) -> bool:
        """See `ConversationStore`."""
        return bool(await self._run_script("enqueue", conversation_id, text))

    async def read(self, conversation_id: str) -> StoredConversation | None:
        """See `ConversationStore`."""
        return self._show_row(conversation_id, await self._run_script("read", conversation_id))

    def _show_row(self, conversation_id: str, row: Sequence[Any] | None) -> StoredConversation | None:
        if row is None:
            return None
        version, length, state, created, updated, is_busy, messages, queue = row
        if None in row or len(messages) != int(length):
            raise ConversationStoreError(
                f"conversation {conversation_id!r} was edited in Redis: its messages have a gap"
            )
        return StoredConversation(
            id=conversation_id,
            version=int(version),
            messages=tuple(map(_to_text, messages)),
            state=_to_text(state),
            queue=tuple(map(_to_text, queue)),
            created=int(created) / 1000,
            updated=int(updated) / 1000,
            is_busy=bool(is_busy),
        )

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

    async def delete(self, conversation_id: str, token: str) -> bool:
        """See `ConversationStore`."""
        return bool(await self._run_script("delete", conversation_id, token, conversation_id))

    async def aclose(self) -> None:
        """Close the client of this event loop."""
        await self._clients.aclose()

    # the server

    def _name_keys(self, conversation_id: str) -> list[str]:
        # The kind stands before the id, which may have any text: no key is that of another conversation.
        kinds = ("conversation", "messages", "queue")
        return [*(f"{self._prefix}{kind}:{conversation_id}" for kind in kinds), f"{self._prefix}index"]

    async def _run_script(self, name: str, conversation_id: str, *arguments: object) -> Any:
        return await self._ask_server(
            "eval", _PRELUDE + _SCRIPTS[name], 4, *self._name_keys(conversation_id), *arguments
        )

    async def _ask_server(self, command: str, *arguments: Any, **options: Any) -> Any:
        if not is_on_asyncio():
            raise ConfigurationError("conversations in Redis need asyncio, which its client is made for")
        try:
            return await getattr(self._clients.get(), command)(*arguments, **options)
        except self._errors as error:
            raise ConversationStoreError(
                f"the Redis of conversations can't be used: {_describe_error(error)}"
            ) from error


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


def _to_milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _to_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()  # by a client of the application
