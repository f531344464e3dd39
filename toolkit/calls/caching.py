"""Caches of outputs, and the keys of calls.

An entry is the JSON of a `ToolOutput`, without its `details`. A key has the tool, its definition, the canonical
arguments and, for a tool with a context, the part of it that the output depends on, as its author says. Without that
part nothing is stored: a cache must not answer one user with the output of another.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from anyio import CancelScope, to_thread

from toolkit.chat import ToolDefinition
from toolkit.errors import ConfigurationError
from toolkit.json_text import digest_json, unique_json
from toolkit.logs import get_logger
from toolkit.private_files import make_private, write_ahead
from toolkit.settings import Duration, check_setting, to_seconds

if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Self

    from toolkit.calls.registration import Registration, ToolOptions

_logger = get_logger("toolkit.calls")

T = TypeVar("T")

_parents_connections: list[Connection] = []
_DELETE_ALL_BUT = """
    DELETE FROM outputs WHERE rowid <= (SELECT rowid FROM outputs ORDER BY rowid DESC LIMIT 1 OFFSET ?)
"""
_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}


class Cache(Protocol):
    """Stores texts under keys, and handles its own failures: a miss is always correct."""

    async def get(self, key: str) -> str | None:
        """Return the stored text, or None. Must not raise."""
        ...

    async def set(self, key: str, value: str) -> None:
        """Store `value` under `key`, replacing an earlier one. Must not raise."""
        ...


class MemoryCache:
    """Stores the most recently used entries in this process; safe for threads and event loops.

    ::

        @tool(cache=True)
        def look_up(word: str) -> str: ...

        config = ToolLoopConfig(cache=MemoryCache(ttl=600))

    Args:
        max_entries: The most entries; the least recently used one is dropped. None sets no limit.
        ttl: The lifetime of an entry, in seconds or as a `timedelta`; None sets no limit.
        clock: Returns seconds for `ttl`; it must be monotonic.

    Raises:
        ConfigurationError: A limit that is not above 0.
    """

    __slots__ = ("_clock", "_entries", "_lock", "_max_entries", "_ttl")

    def __init__(
        self,
        max_entries: int | None = 1000,
        *,
        ttl: Duration | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_entries, self._ttl = _check_bounds(max_entries, ttl)
        self._clock = clock
        self._entries: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """The number of entries; expired ones count until they are requested."""
        return len(self._entries)

    async def get(self, key: str) -> str | None:
        """Return the stored text, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            value, stored = entry
            if self._ttl is not None and self._clock() - stored >= self._ttl:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return value

    async def set(self, key: str, value: str) -> None:
        """Store `value` under `key`, replacing an earlier one."""
        with self._lock:
            self._entries[key] = (value, self._clock())
            self._entries.move_to_end(key)
            if self._max_entries is not None and len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    async def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()


class SqliteCache:
    """Stores entries in a file that any number of threads and processes share.

    Each entry is written in one transaction to a write-ahead log: readers don't wait for writers, and a process that is
    killed during a write leaves the file intact, without the entry. After a power failure the last entries may be
    missing. The file must be on a local disk, and only its owner can read it (mode 0600 on POSIX). Later failures (a
    full disk, a damaged file, a lock of more than `busy_timeout`) are logged and count as misses.

    ::

        async with SqliteCache("outputs.db", ttl=3600) as cache:
            result = await tool_loop(provider, registry, prompt, config=ToolLoopConfig(cache=cache))

    Args:
        path: The file, which is created in an existing folder if it is missing.
        ttl: The lifetime of an entry, in seconds or as a `timedelta`; None sets no limit.
        max_entries: The most entries; the oldest one is dropped. None sets no limit.
        busy_timeout: The longest wait for a write of another process.
        clock: Returns seconds for `ttl`, equal in all processes.

    Raises:
        ConfigurationError: The file can't be opened or is not a cache, or a limit is not above 0.
    """

    __slots__ = ("_busy_seconds", "_clock", "_connection", "_lock", "_max_entries", "_process", "_ttl", "path")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ttl: Duration | None = None,
        max_entries: int | None = None,
        busy_timeout: Duration = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection: Connection | None = None
        check_setting("the path of a cache", path, str, os.PathLike)
        self.path: Path = Path(path)
        self._max_entries, self._ttl = _check_bounds(max_entries, ttl)
        self._busy_seconds = to_seconds(busy_timeout, "busy_timeout")
        self._clock = clock
        self._lock = Lock()
        self._process = os.getpid()
        try:
            self._connection = _open_connection(self.path, self._busy_seconds)
        except Exception as error:
            raise ConfigurationError(
                f"the cache '{self.path}' can't be opened: {error}; give a file in a folder that is there and may be "
                "written to, either a new one or one that SqliteCache has made"
            ) from error

    async def get(self, key: str) -> str | None:
        """Return the stored text, or None."""

        def read(connection: Connection) -> str | None:
            row: tuple[str, float] | None = connection.execute(
                "SELECT value, stored FROM outputs WHERE key = ?", (key,)
            ).fetchone()
            if row is None or (self._ttl is not None and self._clock() - row[1] >= self._ttl):
                return None
            return row[0]

        return await to_thread.run_sync(self._try_work, read)

    async def set(self, key: str, value: str) -> None:
        """Store `value` under `key`, replacing an earlier one; every process sees it afterwards."""

        def write(connection: Connection) -> None:
            now = self._clock()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("REPLACE INTO outputs (key, value, stored) VALUES (?, ?, ?)", (key, value, now))
            if self._ttl is not None:
                connection.execute("DELETE FROM outputs WHERE stored <= ?", (now - self._ttl,))
            if self._max_entries is not None:
                connection.execute(_DELETE_ALL_BUT, (self._max_entries,))
            connection.execute("COMMIT")

        await to_thread.run_sync(self._try_work, write)

    async def clear(self) -> None:
        """Remove all entries, for all processes."""

        def delete(connection: Connection) -> None:
            connection.execute("DELETE FROM outputs")

        await to_thread.run_sync(self._try_work, delete)

    async def aclose(self) -> None:
        """Close the file; all later requests are misses. It may be closed again."""
        with CancelScope(shield=True):
            await to_thread.run_sync(self.close)

    def close(self) -> None:
        """Do what `aclose` does, without an event loop."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._connection is not None:
            self.close()

    def _try_work(self, work: Callable[[Connection], T]) -> T | None:
        """Do the work in one thread at a time; failures are misses."""
        with self._lock:
            if self._connection is None:
                return None
            try:
                return work(self._own_connection(self._connection))
            except Exception:
                _logger.warning("the cache '%s' failed, which counts as a miss", self.path, exc_info=True)
                if self._connection.in_transaction:
                    self._connection.rollback()
                return None

    def _own_connection(self, connection: Connection) -> Connection:
        # After a fork, the parent's connection must neither be used nor closed.
        if self._process != os.getpid():
            _parents_connections.append(connection)
            connection = self._connection = _open_connection(self.path, self._busy_seconds)
            self._process = os.getpid()
        return connection


def _open_connection(path: Path, busy_seconds: float) -> Connection:
    import sqlite3  # noqa: PLC0415 - a shared library that few programs need

    if str(path) != ":memory:":
        with suppress(OSError):  # SQLite raises a better error
            make_private(path, "-wal", "-shm", "-journal")  # later ones get the mode of the file
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        write_ahead(connection, busy_seconds)
        # The log is synced at checkpoints: a killed process loses nothing, a power failure little.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS outputs (key TEXT NOT NULL UNIQUE, value TEXT NOT NULL, stored REAL NOT NULL)"
        )
        connection.execute("CREATE INDEX IF NOT EXISTS outputs_by_age ON outputs (stored)")
        connection.execute("SELECT key, value, stored FROM outputs LIMIT 0")
    except Exception:
        connection.close()
        raise
    return connection


def _check_bounds(max_entries: int | None, ttl: Duration | None) -> tuple[int | None, float | None]:
    check_setting("the max_entries of a cache", max_entries, int, None, least=1)
    return max_entries, to_seconds(ttl, "the ttl of a cache")


def is_cached(options: ToolOptions, *, by_default: bool) -> bool:
    """Return whether a tool's outputs are cached."""
    if options.cache is False or options.should_cache is False:
        return False
    return options.cache is True or options.should_cache is not None or by_default


def find_cache_key(
    registration: Registration[Any], arguments: dict[str, Any], state: object, *, written: str | None = None
) -> str | None:
    """Return the key of a call, or None if its output must not be stored.

    Args:
        registration: The tool; its name in the registry is irrelevant.
        arguments: The validated arguments.
        state: The application's context.
        written: The arguments as JSON, where they were written in a thread.
    """
    tool: Any = registration.tool
    identity = registration.cache_identity
    if identity is None:
        identity = registration.cache_identity = _make_identity(tool)
    if not identity:
        return None
    context = ""
    if getattr(tool, "takes_context", True):
        context = _read_context(registration.options.cache_key, state, registration.name)
        if not context:
            return None
    written = registration.arguments.dump_json(arguments) if written is None else written
    return f"tool:{identity}|input:{written}|context:{context}"


def _read_context(cache_key: Callable[[Any], object] | None, state: object, name: str) -> str:
    """Return the part of a context that an output depends on, or "" if it is unknown."""
    if cache_key is None:
        return ""

    try:
        key = cache_key(state)
        return "" if key is None else unique_json(key)
    except Exception:
        _logger.exception("the cache_key of %s failed; its output is not stored", name)
        return ""


def _make_identity(tool: Any) -> str:
    """Return a unique text for a tool, or "" if there is none.

    Functions are identified by module and qualified name, in every process; others, such as closures and the objects of
    bound methods, by a token, as long as they exist.
    """
    function, receiver = getattr(tool, "function", None), getattr(tool, "receiver", None)
    parts = [_name_or_token(tool if function is None else getattr(function, "__func__", function), tool)]
    if receiver is not None:
        parts.append(_name_or_token(receiver, receiver))
    return "" if "" in parts else ":".join([*parts, _digest_definition(tool.definition)])


def _name_or_token(thing: Any, tool: object) -> str:
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and _is_found(thing, module, name):
        file = getattr(sys.modules[module], "__file__", "") if module == "__main__" else ""
        return f"{module}{file and f'({file})'}.{name}"
    return _token_of(tool if thing is None else thing)


def _is_found(thing: object, module: str, name: str) -> bool:
    """Return whether a name refers to this object, or to the tool of this function."""
    try:
        found: Any = reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return False
    function = getattr(found, "function", None)
    return found is thing or function is thing or getattr(function, "__func__", None) is thing


def _token_of(thing: Any) -> str:
    """Return a unique text for an object, never reused; "" if it can't be tracked."""
    known = _tokens.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    number = id(thing)
    try:
        reference = weakref.ref(thing, lambda _: _tokens.pop(number, None))
    except TypeError:
        return ""
    _tokens[number] = reference, os.urandom(16).hex()
    return _tokens[number][1]


def _digest_definition(definition: ToolDefinition) -> str:
    shown = [definition.name, definition.description, definition.parameters, definition.output_schema]
    return digest_json(shown)[:32]
