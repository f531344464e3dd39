"""The database of durable runs: its tables and migrations, its connections, and values with large contents.

The engine's tables have the segments, their workers and their rests. The state of a run is defined by the log of its
active segment, which is in these tables, or by the output of the last one.

A migration only adds, so that workers of the previous release continue beside it; what they leave out is filled in
later. A worker or ``toolkit runs migrate`` makes it in one transaction.
"""

from __future__ import annotations

import copy
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple

import anyio
import sqlalchemy as sa
from anyio import to_thread
from dbos import DBOS, DBOSClient, Serializer
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError as PoolTimeoutError,
)

from toolkit.durable.contents import (
    BESIDE,
    ContentRow,
    check_content,
    find_digests,
    has_contents,
    put_back,
)
from toolkit.errors import (
    DatabaseUnavailableError,
    DurableError,
    JournalError,
    UnstorableValueError,
)
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.redaction import without_keys
from toolkit.schema.nodes import is_object
from toolkit.settings import check_setting
from toolkit.sql_database import close_engine, open_engine
from toolkit.stored_text import Encryption, StoredText

_REFUSALS = ("22", "54")
"""The classes of Postgres's codes that are about a value: data exceptions, and limits of the program."""
_ENDED_SESSIONS = ("25P03", "25P04")
"""Postgres's codes of a transaction that was idle or open for too long: it is rolled back, and its session ended."""
_SPLIT_LINE = write_json({BESIDE: {}}).removesuffix("{}}")
_MOST_AT_ONCE = 1_000
ENGINE_NAME = "toolkit"
"""The application's name in the engine, which separates our work from other work in the database."""
ENGINE_VERSION = "toolkit-1"
"""The version of the log's format: the engine would take a hash of the code, and new code could not read old logs."""
_REFUSED_FORMATS = ("py_pickle", "portable_json")
"""The names by which DBOS stores values in its own formats."""
_BUSY_SECONDS = 30
_LOCK_SECONDS = 5
"""The seconds after which a worker that is frozen in a transaction loses its locks, and repeats what it did in it.

A client, which repeats nothing, loses them when others have waited for `_BUSY_SECONDS`: a busy machine may have it wait
for some seconds between two statements.
"""
_SEND_SECONDS = 60
"""The seconds after which a worker that takes no more of an answer loses its connection, and with it its locks."""
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_SQLITE_WITH_FRACTIONS = (3, 42)  # what the engine needs from Python 3.12 on; Debian 12 has 3.40
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_Returned = TypeVar("_Returned")
_Columns = TypeVarTuple("_Columns")
_logger = get_logger("toolkit.durable")
_KINDS = ("sqlite", "postgresql")
TABLES_VERSION = 5
"""The version of these tables, and of the entries of a segment's log."""
UNDESCRIBED = sa.text("described < 0 OR (described <> segment AND state IN ('cancelled', 'done', 'failed', 'waiting'))")
"""The runs whose endings, errors or labels an earlier release has left out."""
_BYTES = "text_pattern_ops"
"""Orders an index of Postgres by bytes, as SQLite does: all texts with one beginning are a range of it."""
schema = sa.MetaData()
"""The tables."""
versions = sa.Table("toolkit_versions", schema, sa.Column("version", sa.Integer, primary_key=True))
runs = sa.Table(
    "toolkit_runs",
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("loop", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Text),  # the token of the process that moves it: others' events are refused
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),  # attempts in a row that have not reported an end
    sa.Column("ended", sa.Integer, nullable=False),  # calls that had come to their end when the last of them began
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("updated", sa.Double, nullable=False),
    sa.Column("due", sa.Double),  # when the decisions that it awaits expire, by the database's clock
    sa.Column("begins", sa.Double),  # when it begins, if it was started for later
    sa.Column("ending", sa.Text),  # of the last rest, with its error
    sa.Column("error", sa.Text),
    # The segment whose rest they are of; 0 where there is none, less where an earlier release has begun the run.
    sa.Column("described", sa.Integer, nullable=False, server_default=sa.text("-1")),
    # A key, so that Postgres lets entries and events of a run be written at once, and none while `attempt` changes.
    sa.UniqueConstraint("run_id", "attempt"),
    sa.Index("toolkit_runs_by_state", "state", "updated"),
    sa.Index("toolkit_runs_by_creation", "created", "run_id"),
    sa.Index("toolkit_runs_in_state", "state", "created", "run_id"),
    sa.Index("toolkit_runs_by_due", "due"),
    sa.Index("toolkit_runs_by_ending", "ending", "created", "run_id"),
    sa.Index("toolkit_runs_by_tenant", "tenant", "created", "run_id", postgresql_ops={"tenant": _BYTES}),
    sa.Index("toolkit_runs_by_id", "run_id", postgresql_ops={"run_id": _BYTES}).ddl_if("postgresql"),
    sa.Index("toolkit_runs_undescribed", "run_id", sqlite_where=UNDESCRIBED, postgresql_where=UNDESCRIBED),
)
labels = sa.Table(
    "toolkit_labels",  # the parts of the metadata of runs that they are found by
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),  # as JSON
    sa.Index("toolkit_labels_by_value", "value", "name", "run_id", postgresql_ops={"value": _BYTES}),
)
events = sa.Table(
    "toolkit_events",
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("entry", sa.Text),  # the log entry of the same content: a take-over emits those that have no event
    sa.Column("line", sa.Text, nullable=False),
)
inbox = sa.Table(
    "toolkit_inbox",
    schema,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),  # a second decision on a call has the same, and is refused
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("segment", sa.Integer),  # that took it; null while none did, 0 by earlier releases where none ever will
    sa.UniqueConstraint("run_id", "key"),
    sa.Index("toolkit_inbox_waiting", "segment", "id"),
    sqlite_autoincrement=True,
)
entries = sa.Table(
    "toolkit_entries",  # the log of each segment; the engine knows a segment as one piece of work
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("path", sa.Text, primary_key=True),  # the calls that the log of a sub-agent is inside of
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
)
contents = sa.Table(
    "toolkit_contents",  # large texts of entries, events, messages and rests, each once for a run
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
workers = sa.Table(
    "toolkit_workers",
    schema,
    sa.Column("executor", sa.Text, primary_key=True),
    sa.Column("beats", sa.Integer, nullable=False),
    sa.Column("lease", sa.Double, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("seen", sa.Double, nullable=False),
    sa.Column("loops", sa.Text),  # the names of those that it serves, as a JSON list; null of an earlier release
)
_LOCK = 0x746B_6475  # "tkdu": who makes or migrates the tables in Postgres
_POSTGRES_MIGRATIONS: Mapping[int, str] = {
    5: f"; CREATE INDEX toolkit_runs_by_id ON toolkit_runs (run_id {_BYTES})",
}
_MIGRATIONS: Mapping[int, str] = {
    5: f"""
        ALTER TABLE toolkit_runs ADD COLUMN begins DOUBLE PRECISION;
        ALTER TABLE toolkit_runs ADD COLUMN ending TEXT;
        ALTER TABLE toolkit_runs ADD COLUMN error TEXT;
        ALTER TABLE toolkit_runs ADD COLUMN described INTEGER DEFAULT -1 NOT NULL;
        ALTER TABLE toolkit_workers ADD COLUMN loops TEXT;
        CREATE TABLE toolkit_labels (
            run_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run_id, name)
        );
        CREATE INDEX toolkit_labels_by_value ON toolkit_labels (value {_BYTES}, name, run_id);
        CREATE INDEX toolkit_runs_by_ending ON toolkit_runs (ending, created, run_id);
        CREATE INDEX toolkit_runs_by_tenant ON toolkit_runs (tenant {_BYTES}, created, run_id);
        CREATE INDEX toolkit_runs_undescribed ON toolkit_runs (run_id)
            WHERE described < 0 OR (described <> segment AND state IN ('cancelled', 'done', 'failed', 'waiting'))
    """,
}
"""The statements that bring the tables of the version before to this one; they stay as they were released."""


def is_refusal(error: BaseException) -> bool:
    """Return whether a database refuses a value, so that a repetition is of no use."""
    if isinstance(error, (DataError, OverflowError, UnicodeEncodeError, sqlite3.DataError)):
        return True
    return _find_code(error).startswith(_REFUSALS)


def is_away(error: BaseException) -> bool:
    """Return whether a database is unavailable, full or busy, or ended the session: it may accept the same later."""
    if isinstance(error, DBAPIError) and (error.connection_invalidated or _find_code(error) in _ENDED_SESSIONS):
        return True
    return isinstance(error, (OperationalError, InterfaceError, PoolTimeoutError)) and not is_refusal(error)


def _find_code(error: BaseException) -> str:
    """Return Postgres's code of an error, or an empty text."""
    code: object = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
    return code if isinstance(code, str) else ""


def insert_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, except for those whose keys are there."""
    if rows:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        connection.execute(insert(table).on_conflict_do_nothing(), rows)


def store_contents(connection: sa.Connection, rows: Sequence[ContentRow]) -> None:
    """Store contents in the transaction of the values that have them."""
    # In one order, so that two transactions with the same contents do not wait for each other.
    insert_missing(connection, contents, sorted(rows, key=lambda row: (row["run_id"], row["digest"])))


def restore_values(
    connection: sa.Connection, stored: StoredText, run_id: str, values: Sequence[Any]
) -> list[Any | JournalError]:
    """Return stored values with their contents; an error for one whose contents are missing or were changed."""
    digests = {digest for value in values for digest in find_digests(value)}
    texts: Mapping[str, str] = {}
    if digests:
        query = sa.select(contents.c.digest, contents.c.value)
        query = query.where(contents.c.run_id == run_id, contents.c.digest.in_(digests))
        texts = {row.digest: row.value for row in connection.execute(query)}

    def find(digest: str) -> str:
        return check_content(digest, _open_content(stored, texts.get(digest)), run_id, run_id)

    def restore(value: Any) -> Any | JournalError:
        try:
            return put_back(value, find)
        except JournalError as error:
            return error

    return [restore(value) for value in values]


def restore_lines(connection: sa.Connection, stored: StoredText, run_id: str, texts: Sequence[str]) -> list[str]:
    """Return the lines of events that are stored as these texts."""
    lines = [stored.open(text) for text in texts]
    split = {index: _parse_line(line) for index, line in enumerate(lines) if line.startswith(_SPLIT_LINE)}
    for index, value in zip(split, restore_values(connection, stored, run_id, list(split.values())), strict=True):
        if isinstance(value, JournalError):
            raise value
        lines[index] = value if isinstance(value, str) else write_json(value)
    return lines


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # it was edited, and readers skip what is no JSON
        return line


def _open_content(stored: StoredText, text: str | None) -> object:
    if text is None:
        return None
    try:
        return stored.read(text)
    except DurableError:
        return False  # refused as changed


def restore_value(connection: sa.Connection, stored: StoredText, run_id: str, value: Any) -> Any:
    """Return a stored value with its contents."""
    if not has_contents(value):
        return value
    [restored] = restore_values(connection, stored, run_id, [value])
    if isinstance(restored, JournalError):
        raise restored
    return restored


def find_executor(connection: sa.Connection, workflow_id: str) -> str | None:
    """Return the worker to which the engine has assigned a workflow."""
    table = _engine_table(connection, "workflow_status")
    query = sa.select(table.c.executor_id).where(table.c.workflow_uuid == workflow_id)
    return connection.scalar(query)


def delete_workflows(connection: sa.Connection, workflow_ids: Sequence[str]) -> None:
    """Delete workflows of the engine in this transaction; the engine would use one of its own."""
    for first in range(0, len(workflow_ids), _MOST_AT_ONCE):
        ids = workflow_ids[first : first + _MOST_AT_ONCE]
        for name in ("workflow_input", "workflow_output", "operation_outputs", "workflow_status"):
            table = _engine_table(connection, name)
            connection.execute(table.delete().where(table.c.workflow_uuid.in_(ids)))


def _engine_table(connection: sa.Connection, name: str) -> sa.TableClause:
    columns = [sa.column("workflow_uuid", sa.Text), sa.column("executor_id", sa.Text)]
    return sa.table(name, *columns, schema="dbos" if connection.dialect.name == "postgresql" else None)


class _JsonSerializer(Serializer):
    """Has the engine store JSON, and never pickles."""

    def __init__(self, text: StoredText) -> None:
        self._text = text

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = {"error": type(data).__name__, "text": without_keys(str(data))}
        elif is_object(data) and "args" in data:  # the engine passes a time to the work of a schedule
            args = [each.isoformat() if isinstance(each, datetime) else each for each in data["args"]]
            data = {**data, "args": args}
        return self._text.write(data)

    def deserialize(self, serialized_data: str) -> Any:
        return self._text.read(serialized_data)

    def name(self) -> str:
        return "toolkit_json"


def engine_of_dbos(engine: sa.Engine) -> sa.Engine:
    """Return the engine with the same connections through which DBOS reads only values that our serializer reads.

    DBOS stores the name of a value's format beside it, and would unpickle a value whose row names pickle: who can
    write to the database could run code in each worker and client.
    """
    dialect = copy.copy(engine.dialect)
    vars(dialect).pop("_type_memos", None)  # the types that it has adapted so far
    known = dialect.colspecs
    base: Any = known.get(sa.Text) or known.get(sa.String) or sa.Text

    def refuse_formats(*_: object) -> Callable[[Any], Any]:
        return lambda value: f"{value}, which is refused" if value in _REFUSED_FORMATS else value

    dialect.colspecs = {**known, sa.Text: type("EngineText", (base,), {"result_processor": refuse_formats})}
    guarded = engine.execution_options()
    guarded.dialect = dialect
    return guarded


def segment_id(run_id: str, segment: int) -> str:
    """Return the id of the engine's workflow that is one segment of a run."""
    return f"{run_id}/{segment}"


class Storage:
    """A database of durable runs. Its methods block: call them on a worker thread.

    Attributes:
        url: The address, without a password.
        engine: The connection pool.
        engine_of_dbos: The same for DBOS.
        client: The client of the engine.
        serializer: How the engine stores values.
        text: How we store values.
    """

    def __init__(self, url: str, encryption: Encryption | None = None, *, may_migrate: bool = False) -> None:
        check_setting("the URL of durable runs", url, str)
        check_setting("encryption", encryption, Encryption, None)
        self.text: StoredText = StoredText(encryption, DurableError)
        self.serializer: Serializer = _JsonSerializer(self.text)
        self.engine: sa.Engine = _open_engine(url, _LOCK_SECONDS if may_migrate else _BUSY_SECONDS)
        self.url: str = self.engine.url.render_as_string(hide_password=True).replace("+psycopg", "")
        self._lock = threading.Lock()
        try:
            with self.raising_failures():
                prepare_tables(self.engine, may_migrate=may_migrate)
            self.engine_of_dbos: sa.Engine = engine_of_dbos(self.engine)
            with self.raising_failures():
                self.client: DBOSClient = DBOSClient(
                    system_database_engine=self.engine_of_dbos,
                    serializer=self.serializer,
                    application_name=ENGINE_NAME,
                    retry_connection_errors=False,
                )
        except BaseException:
            self.engine.dispose()
            raise

    @property
    def is_postgres(self) -> bool:
        """True if several machines can share it."""
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def raising_failures(self) -> Generator[None]:
        """Raise `DatabaseUnavailableError` where it is away, and `UnstorableValueError` where it refuses a value."""
        try:
            yield
        except (DBAPIError, OverflowError, UnicodeEncodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            text = " ".join(str(cause).split())
            if is_refusal(error):
                raise UnstorableValueError(
                    "a value", f"the database does not take it ({text}): give another"
                ) from error
            raise DatabaseUnavailableError(self.url, text) from error
        except PoolTimeoutError as error:
            raise DatabaseUnavailableError(self.url, str(error)) from error
        except (sqlite3.Error, OSError) as error:
            raise DatabaseUnavailableError(self.url, str(error)) from error

    def fetch(self, query: sa.Select[*_Columns]) -> Sequence[sa.Row[*_Columns]]:
        """Return the rows of a query; blocks."""
        with self.engine.connect() as connection:
            return connection.execute(query).all()

    async def ask(self, work: Callable[[], _Returned]) -> _Returned:
        """Run a blocking function on a worker thread."""
        with self.raising_failures():
            return await to_thread.run_sync(work)

    async def insist(self, work: Callable[[], _Returned]) -> _Returned:
        """Run a blocking function on a worker thread, repeatedly while the database is unavailable or full.

        The work may have been done before, if its reply was lost.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return await to_thread.run_sync(work)
            except (SQLAlchemyError, OverflowError, UnicodeEncodeError) as error:
                if not is_away(error):
                    raise
                cause = error.orig if isinstance(error, DBAPIError) else error
                _logger.warning("waiting for the database of durable runs at %s: %s", self.url, cause)
            await anyio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def close(self) -> None:
        """Close all connections; those that threads still use when they are returned."""
        self.client.destroy()
        close_engine(self.engine)


class DatabaseThread:
    """A daemon thread that works on the database in rounds, until it is stopped.

    Args:
        name: The part of the worker or client that it is.
        work: A round; returns the seconds until the next one, or None to wait for `wake`.
        again: Seconds after which a round that raised is repeated.
    """

    def __init__(self, name: str, work: Callable[[], float | None], *, again: float = 0.5) -> None:
        self._name = name
        self._work = work
        self._again = again
        self._news = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run_rounds, name=f"toolkit durable {name}", daemon=True)

    @property
    def is_ending(self) -> bool:
        """True during the last round."""
        return self._ending.is_set()

    def start(self) -> None:
        """Start with the first round."""
        self._thread.start()

    def wake(self) -> None:
        """Start a round at once."""
        if not self._news.is_set():
            self._news.set()

    def stop(self) -> None:
        """Make a last round, and wait at most five seconds for its end."""
        self._ending.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def ends_within(self, seconds: float) -> bool:
        """Wait inside a round; return whether the thread was stopped meanwhile."""
        return self._ending.wait(seconds)

    def _run_rounds(self) -> None:
        pause: float | None = 0.0
        is_last = False
        while not is_last:
            self._news.wait(pause)
            self._news.clear()
            is_last = self.is_ending
            try:
                pause = self._work()
            except Exception as error:  # noqa: BLE001 - whatever a database does, the round is repeated
                _logger.warning("the %s thread of durable runs failed, and tries again: %s", self._name, error)
                self._ending.wait(self._again)
                pause = 0.0


def _open_engine(url: str, lock_seconds: int) -> sa.Engine:
    limits = f"-c idle_in_transaction_session_timeout={lock_seconds * 1000} -c tcp_user_timeout={_SEND_SECONDS * 1000}"
    arguments = {"application_name": ENGINE_NAME, "options": limits}
    engine = open_engine(url, "durable runs", _BUSY_SECONDS, kinds=_KINDS, makes_folder=True, **arguments)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "handle_error", _wait_for_space)
        if sqlite3.sqlite_version_info < _SQLITE_WITH_FRACTIONS:
            event.listen(engine, "connect", _add_clock)
        return engine
    engine.dialect.use_insertmanyvalues_wo_returning = True
    event.listen(engine, "do_executemany", _execute_each)
    return engine


def _execute_each(
    cursor: sa.engine.interfaces.DBAPICursor,
    statement: str,
    parameters: Sequence[Any],
    context: sa.engine.ExecutionContext,  # noqa: ARG001 - as SQLAlchemy calls it
) -> bool:
    """Execute a statement for each of its parameters, and not by psycopg's pipeline: that ends with a flush.

    Postgres stops its clock of an idle transaction at a flush, and a worker frozen behind it would never lose its
    locks. Insertions are not executed so: many rows of them are one statement.
    """
    for each in parameters:
        cursor.execute(statement, each)
    return True


def _add_clock(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001 - as SQLAlchemy calls it
    connection.create_function("unixepoch", 1, _read_clock)


def _read_clock(unit: str) -> float:
    """Return the seconds since 1970; the engine expects this function of newer versions of SQLite."""
    if unit != "subsec":
        raise ValueError(f"unixepoch({unit!r}) is none of the engine's")
    return time.time()


def _wait_for_space(context: sa.engine.ExceptionContext) -> None:
    """Have the engine wait for space on a full disk as for a connection of the pool; it would give up otherwise."""
    code = getattr(context.original_exception, "sqlite_errorcode", 0)
    if code & 0xFF in _FULL:
        raise PoolTimeoutError(f"{context.original_exception}: is the disk full?") from context.original_exception


def prepare_tables(engine: sa.Engine, *, may_migrate: bool) -> None:
    """Create missing tables of the engine and ours, and migrate ours from an earlier version if that is allowed."""
    with engine.connect() as connection:
        if sa.inspect(connection).has_table(versions.name) and _check_version(connection, may_migrate=may_migrate):
            return
    _make_engine_tables(engine.url)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if not sa.inspect(connection).has_table(versions.name):
            schema.create_all(connection)
            connection.execute(versions.insert().values(version=TABLES_VERSION))
        elif not _check_version(connection, may_migrate=True):  # another process may have been first
            _migrate_tables(connection)


def _make_engine_tables(url: sa.URL) -> None:
    logging.getLogger("dbos").setLevel(logging.WARNING)
    try:
        DBOS.migrate(url.render_as_string(hide_password=False).replace("+psycopg", ""))
    except SQLAlchemyError:
        raise
    except Exception as error:
        raise DurableError(f"the engine can't make its tables: {error}") from error


def _check_version(connection: sa.Connection, *, may_migrate: bool) -> bool:
    """Return whether the tables are of this version, and need no migration."""
    version = _read_version(connection)
    if version == TABLES_VERSION:
        return True
    if version is None or version + 1 not in _MIGRATIONS:
        raise DurableError(
            f"the durable runs in this database are of version {version}, and this library reads version "
            f"{TABLES_VERSION}: use the release that wrote them or a later one, or another database"
        )
    if not may_migrate:
        raise DurableError(
            f"the durable runs in this database are of version {version}, and this library reads version "
            f"{TABLES_VERSION}: start a worker of this release, or migrate them by `toolkit runs migrate`"
        )
    return False


def _read_version(connection: sa.Connection) -> int | None:
    return connection.scalar(sa.select(versions.c.version))


def _migrate_tables(connection: sa.Connection) -> None:
    before = _read_version(connection)
    assert before is not None
    for version in range(before + 1, TABLES_VERSION + 1):
        statements = _MIGRATIONS[version]
        if connection.dialect.name == "postgresql":
            statements += _POSTGRES_MIGRATIONS[version]
        else:
            statements = statements.replace(f" {_BYTES}", "")
        for statement in statements.split(";"):
            connection.exec_driver_sql(statement)
    connection.execute(versions.update().values(version=TABLES_VERSION))
    _logger.warning("the tables of durable runs were migrated from version %d to %d", before, TABLES_VERSION)
