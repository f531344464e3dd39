"""The tables beside those of the engine: who is at work, what was told, what was said to a run, and where each stands.

All that the engine must know is in its own tables: a run's truth is the log of the segment that moves, or the output of
the last one. These here are what it has no place for.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

__all__ = ["TABLES_VERSION", "database_now", "entries", "events", "inbox", "runs", "schema", "versions", "workers"]

TABLES_VERSION = 1
"""The version of these tables, and of what the log of a segment holds."""

schema = sa.MetaData()
"""All of them."""

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
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("updated", sa.Double, nullable=False),
    sa.Column("due", sa.Double),  # when the decisions that it awaits expire, by the database's clock
    sa.Index("toolkit_runs_by_state", "state", "updated"),
    sa.Index("toolkit_runs_by_creation", "created", "run_id"),
)

events = sa.Table(
    "toolkit_events",
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("entry", sa.Text),  # the entry of the log that says the same, to tell what a take-over has to tell anew
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
    "toolkit_entries",  # of the logs of sub-agents, whose work goes on inside of one step of the engine
    schema,
    sa.Column("log", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
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
)


def database_now(engine: sa.Engine) -> sa.ColumnElement[Any]:
    """Return the time by the database's clock in seconds since 1970: the one clock that all processes share."""
    if engine.dialect.name == "postgresql":
        return sa.extract("epoch", sa.func.clock_timestamp())
    return (sa.func.julianday("now") - 2440587.5) * 86400.0
