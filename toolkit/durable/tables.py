"""The tables of durable runs, and their migrations from one version to the next.

A migration only adds, so that workers of the release before continue beside it; what they leave out is filled in later.
It is one transaction, of a worker or of ``toolkit runs migrate``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import sqlalchemy as sa
from dbos import DBOS
from sqlalchemy.exc import SQLAlchemyError

from toolkit.durable.errors import DurableError

TABLES_VERSION = 5
"""The version of these tables, and of the entries of a segment's log."""
UNDESCRIBED = sa.text("described < 0 OR (described <> segment AND state IN ('cancelled', 'done', 'failed', 'waiting'))")
"""The runs whose endings, errors or labels an earlier release has left out."""

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
    sa.Index("toolkit_runs_by_tenant", "tenant", "created", "run_id"),
    sa.Index("toolkit_runs_undescribed", "run_id", sqlite_where=UNDESCRIBED, postgresql_where=UNDESCRIBED),
)
labels = sa.Table(
    "toolkit_labels",  # the parts of the metadata of runs that they are found by
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),  # as JSON
    sa.Index("toolkit_labels_by_value", "name", "value", "run_id"),
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
    sa.Column("segment", sa.Integer),  # that took it; null while none did, 0 where none ever will
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
_logger = logging.getLogger("toolkit.durable")


def prepare_tables(url: sa.URL, engine: sa.Engine, *, may_migrate: bool) -> None:
    """Make the engine's tables and ours where they are not there; migrate ours where they are of an earlier version.

    Args:
        url: The database.
        engine: The same.
        may_migrate: False refuses tables of an earlier version.

    Raises:
        DurableError: They are of a later version, or of an earlier one and may not be migrated.
    """
    with engine.connect() as connection:
        if sa.inspect(connection).has_table(versions.name) and _check_version(connection, may_migrate=may_migrate):
            return
    _make_engine_tables(url)
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
    """Return whether the tables are of this version, and need no migration.

    Raises:
        DurableError: They can't be used, or may not be migrated.
    """
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
        for statement in _MIGRATIONS[version].split(";"):
            connection.exec_driver_sql(statement)
    connection.execute(versions.update().values(version=TABLES_VERSION))
    _logger.warning("the tables of durable runs were migrated from version %d to %d", before, TABLES_VERSION)


_MIGRATIONS: Mapping[int, str] = {
    5: """
        ALTER TABLE toolkit_runs ADD COLUMN begins DOUBLE PRECISION;
        ALTER TABLE toolkit_runs ADD COLUMN ending TEXT;
        ALTER TABLE toolkit_runs ADD COLUMN error TEXT;
        ALTER TABLE toolkit_runs ADD COLUMN described INTEGER DEFAULT -1 NOT NULL;
        ALTER TABLE toolkit_workers ADD COLUMN loops TEXT;
        CREATE TABLE toolkit_labels (
            run_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run_id, name)
        );
        CREATE INDEX toolkit_labels_by_value ON toolkit_labels (name, value, run_id);
        CREATE INDEX toolkit_runs_by_ending ON toolkit_runs (ending, created, run_id);
        CREATE INDEX toolkit_runs_by_tenant ON toolkit_runs (tenant, created, run_id);
        CREATE INDEX toolkit_runs_undescribed ON toolkit_runs (run_id)
            WHERE described < 0 OR (described <> segment AND state IN ('cancelled', 'done', 'failed', 'waiting'))
    """,
}
"""The statements that bring the tables of the version before to this one; they stay as they were released."""
