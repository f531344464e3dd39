"""Finds, counts and deletes durable runs by filters, and measures the figures of a database.

Lists and counts read the columns of runs and their labels by indexes. Deletions are made in slices, so that no
transaction is long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from toolkit.durable.contents import check_storable_text
from toolkit.durable.loops import DurableLoop
from toolkit.durable.rests import RESTING, DurableState
from toolkit.durable.rows import COLUMNS, RunRow, RunRows, delete_runs, insert_labels, is_label, write_ending
from toolkit.durable.storage import UNDESCRIBED, Storage, labels, runs
from toolkit.errors import ConfigurationError, ToolkitError
from toolkit.json_text import write_json
from toolkit.logs import get_logger
from toolkit.settings import check_setting
from toolkit.sql_database import database_now

STATES: Sequence[DurableState] = ("queued", "running", "waiting", "done", "failed", "cancelled")
SLICE = 500
"""The number of runs that are deleted, or described, in a transaction."""

_AGES: Mapping[str, float] = {"1m": 60.0, "10m": 600.0, "1h": 3_600.0, "1d": 86_400.0, "7d": 604_800.0}
_logger = get_logger("toolkit.durable")
_watched: list[tuple[Storage, Callable[[], tuple[Figures, bool]]]] = []  # a process has one worker
_measured: set[object] = set()  # the meter providers that have the gauges


class RunFilters(TypedDict, total=False):
    """Filters of runs: a run is selected if it matches all of them."""

    loop: DurableLoop[Any, Any] | str | None
    """Runs of this loop, or of the loop of this name."""
    state: DurableState | None
    """Runs in this state."""
    tenant: str | None
    """Runs of this tenant."""
    ending: str | None
    """Runs with this `kind` of ending, or this class of error, such as ``ProviderError``."""
    error: str | None
    """Runs that failed with this text in their error's message, in any case; not available with encryption."""
    since: datetime | float | None
    """Runs that were last written to at this time or later: an aware time, or seconds since 1970."""
    before: datetime | float | None
    """Runs that were last written to before this time."""
    metadata: Mapping[str, Any] | None
    """Runs with these parts in their metadata: texts, numbers, True, False or None."""
    text: str | None
    """Runs whose id, tenant or a part of the metadata begins with this text; there is no index of what follows."""


class RunSearch:
    """Finds, counts and deletes runs by filters; blocks."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._rows = RunRows(storage)

    def find(self, *, limit: int, after: str | None, **filters: Unpack[RunFilters]) -> list[RunRow]:
        """Return runs, the newest first, that follow the one with the id `after`."""
        query = sa.select(*COLUMNS).order_by(runs.c.created.desc(), runs.c.run_id.desc()).limit(limit)
        query = query.where(self._write_condition(filters))
        if after is not None:
            last = self._rows.read(after)
            query = query.where(
                sa.tuple_(runs.c.created, runs.c.run_id) < sa.tuple_(sa.literal(last.created), sa.literal(after))
            )
        return [self._rows.to_row(found) for found in self._storage.fetch(query)]

    def count(self, **filters: Unpack[RunFilters]) -> dict[DurableState, int]:
        """Return the number of runs in each state."""
        query = sa.select(runs.c.state, sa.func.count()).where(self._write_condition(filters)).group_by(runs.c.state)
        found = {row[0]: int(row[1]) for row in self._storage.fetch(query)}
        return {state: found.get(state, 0) for state in STATES}

    def find_ids(self, states: Sequence[str], last: str, **filters: Unpack[RunFilters]) -> list[str]:
        """Return the ids of a slice of the runs in these states, which follows an id."""
        query = sa.select(runs.c.run_id).where(self._write_condition(filters), runs.c.state.in_(states))
        query = query.where(runs.c.run_id > last).order_by(runs.c.run_id).limit(SLICE)
        return [run_id for (run_id,) in self._storage.fetch(query)]

    def delete_slice(self, states: Sequence[str], **filters: Unpack[RunFilters]) -> int:
        """Delete a slice of the runs in these states in one transaction; return the number, 0 at the end."""
        meant = sa.select(runs.c.run_id).where(self._write_condition(filters), runs.c.state.in_(states)).limit(SLICE)
        with self._storage.engine.begin() as connection:
            # Runs that another process is about to resume or to delete are skipped.
            ids = list(connection.execute(meant.with_for_update(skip_locked=True)).scalars())
            return delete_runs(connection, runs.c.run_id.in_(ids) & runs.c.state.in_(states)) if ids else 0

    def describe_slice(self) -> int:
        """Fill in a slice of the endings, errors and labels that an earlier release left out; return the number.

        A run whose rest the engine has not stored yet is skipped.
        """
        query = sa.select(*COLUMNS).where(UNDESCRIBED).limit(SLICE)
        return sum(self._describe_run(self._rows.to_row(row)) for row in self._storage.fetch(query))

    def _describe_run(self, row: RunRow) -> bool:
        try:
            rest = self._rows.read_rest(row) if row.state in RESTING else None
            ending, error = ("", "") if rest is None else (rest.ending, rest.error)
        except ToolkitError as problem:
            rest, ending, error = None, type(problem).__name__, str(problem)
        values: dict[str, Any] = {"described": 0, "ending": None, "error": None}
        if ending:
            values = write_ending(self._storage.text, row.segment, ending, error)
        elif row.described >= 0:
            return False
        unchanged = (runs.c.run_id == row.run_id, runs.c.segment == row.segment, runs.c.state == row.state)
        with self._storage.engine.begin() as connection:
            if connection.execute(runs.update().where(*unchanged).values(values)).rowcount == 0:
                return False
            if row.described < 0:
                insert_labels(connection, self._storage.text, row.run_id, row.metadata)
        return True

    def _write_condition(self, filters: RunFilters) -> sa.ColumnElement[bool]:
        """Return the condition of the selected runs."""
        check_filters(filters)
        loop = filters.get("loop")
        name = loop.name if isinstance(loop, DurableLoop) else loop
        equal = {
            runs.c.loop: name,
            runs.c.state: filters.get("state"),
            runs.c.tenant: filters.get("tenant"),
            runs.c.ending: filters.get("ending"),
        }
        conditions: list[sa.ColumnElement[bool]] = [
            column == wanted for column, wanted in equal.items() if wanted is not None
        ]
        error, text = filters.get("error"), filters.get("text")
        if error is not None:
            self._check_readable(error)
            conditions += [runs.c.state == "failed", self._has_text(runs.c.error, error)]
        if filters.get("ending") is not None or error is not None:
            conditions.append(runs.c.described == runs.c.segment)
        since, before = filters.get("since"), filters.get("before")
        if since is not None:
            conditions.append(runs.c.updated >= to_epoch_seconds(since))
        if before is not None:
            conditions.append(runs.c.updated < to_epoch_seconds(before))
        conditions += [self._find_label(*part) for part in (filters.get("metadata") or {}).items()]
        if text is not None:
            conditions.append(self._find_text(text))
        return sa.and_(sa.true(), *conditions)

    def _check_readable(self, text: str) -> None:
        if self._storage.text.is_encrypted:
            raise ConfigurationError(
                f"the errors of runs are encrypted, and none is found by {text!r}: look for `ending=`, its class"
            )

    def _find_label(self, name: str, value: object) -> sa.ColumnElement[bool]:
        if not self._storage.text.is_searchable(name):
            raise ConfigurationError(
                f"metadata[{name!r}] is encrypted, and no run is found by it: name it in Encryption(searchable=...)"
            )
        if not is_label(name, value):
            raise ConfigurationError(
                f"no run is found by metadata[{name!r}] = {value!r}: give a text, a number, True, False or None"
            )
        found = sa.select(labels.c.run_id).where(labels.c.name == name, labels.c.value == write_json(value))
        return runs.c.run_id.in_(found)

    def _find_text(self, text: str) -> sa.ColumnElement[bool]:
        beginnings = (runs.c.run_id, text), (runs.c.tenant, text), (labels.c.value, text)
        as_json = (labels.c.value, write_json(text)[:-1])
        # A range of an index for each; the operators are those of Postgres's `text_pattern_ops`.
        least, below = ("~>=~", "~<~") if self._storage.is_postgres else (">=", "<")
        found = [
            sa.select(column.table.c.run_id).where(
                column.bool_op(least)(beginning), column.bool_op(below)(beginning + chr(sys.maxunicode))
            )
            for column, beginning in (*beginnings, as_json)
        ]
        return runs.c.run_id.in_(sa.union_all(*found))

    def _has_text(self, column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
        pattern = "%" + text.replace("/", "//").replace("%", "/%").replace("_", "/_") + "%"
        # SQLite's LIKE knows no case, and `ilike` would have it fold each value.
        return column.ilike(pattern, escape="/") if self._storage.is_postgres else column.like(pattern, escape="/")


Figures: TypeAlias = Mapping[str, Mapping[str, float]]
"""The values of gauges, by the gauge and by label; the label of a gauge with one value is empty."""


def read_figures(storage: Storage) -> Figures:
    """Return the current figures of a database, from the rows of runs that are not done, by an index."""
    now = database_now(storage.engine)
    age = now - runs.c.updated
    states = ("queued", "running", "waiting", "failed")
    count = sa.func.count()
    query = (
        sa.select(runs.c.state, count, sa.func.max(age), *(count.filter(age > each) for each in _AGES.values()))
        .add_columns(count.filter(runs.c.attempts > 1))
        .where(runs.c.state.in_(states), runs.c.begins.is_(None) | (runs.c.state != "queued") | (runs.c.begins <= now))
        .group_by(runs.c.state)
    )
    found: dict[str, Sequence[Any]] = {row[0]: tuple(row) for row in storage.fetch(query)}
    nothing: Sequence[Any] = (0,) * (4 + len(_AGES))
    waiting = found.get("waiting", nothing)
    return {
        "runs": {state: found.get(state, nothing)[1] for state in states},
        "queue.age": {"": max(0.0, float(found.get("queued", nothing)[2]))},
        "waiting": {name: waiting[place] for place, name in enumerate(_AGES, 3)},
        "taken_over": {"": found.get("running", nothing)[-1]},
    }


# The name, unit, description and label of each gauge.
_GAUGES: Mapping[str, tuple[str, str, str]] = {
    "runs": ("{run}", "Runs by state.", "state"),
    "queue.age": ("s", "The age of the oldest queued run.", ""),
    "waiting": ("{run}", "Runs that await decisions for longer.", "older_than"),
    "taken_over": ("{run}", "Moving runs that another worker began.", ""),
    "worker.runs": ("{run}", "Runs that move in this worker.", ""),
    "worker.event_lag": ("s", "The age of the oldest event that is not written.", ""),
    "worker.take_overs": ("{run}", "Runs of lost workers that this one handed over.", ""),
}


def watch_worker(storage: Storage, read: Callable[[], tuple[Figures, bool]], meter_provider: Any) -> None:
    """Let OpenTelemetry measure a worker until `forget_worker`; do nothing if it is not installed.

    `read` returns the figures of the worker, and whether it is the one that also measures those of the database.
    """
    _watched[:] = [(storage, read)]
    if meter_provider in _measured:
        return
    try:
        from opentelemetry.metrics import Observation, get_meter  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return
    _measured.add(meter_provider)
    meter = get_meter("toolkit.durable", meter_provider=meter_provider)
    for name, (unit, text, label) in _GAUGES.items():

        def observe(options: object, name: str = name, label: str = label) -> list[Observation]:  # noqa: ARG001 - as OpenTelemetry calls it
            return [Observation(value, {label: key} if label else {}) for key, value in _read_gauge(name).items()]

        meter.create_observable_gauge(f"toolkit.durable.{name}", [observe], unit=unit, description=text)


def forget_worker() -> None:
    """Stop measuring."""
    _watched.clear()


def _read_gauge(name: str) -> Mapping[str, float]:
    """Return the values of a gauge by their labels; none if another worker measures them."""
    for storage, read in _watched:
        figures, is_first = read()
        if name not in figures and is_first:
            try:
                figures = read_figures(storage)
            except SQLAlchemyError as error:
                _logger.debug("the figures of durable runs can't be read: %s", error)
        return figures.get(name, {})
    return {}


def check_filters(filters: Mapping[str, Any]) -> None:
    """Check that filters can be applied."""
    unknown = sorted(filters.keys() - RunFilters.__annotations__.keys())
    if unknown:
        raise ConfigurationError(f"runs are not found by {unknown[0]!r}: {', '.join(RunFilters.__annotations__)} are")
    check_setting("the loop of runs", filters.get("loop"), DurableLoop, str, None)
    check_setting("the state of runs", filters.get("state"), *STATES, None)
    for name in ("since", "before"):
        check_setting(f"the time {name} which runs are meant", filters.get(name), datetime, int, float, None)
    check_setting("the metadata of runs", filters.get("metadata"), Mapping, None)
    for name in ("loop", "tenant", "ending", "error", "text"):
        given = filters.get(name)
        if not isinstance(given, DurableLoop) and given is not None:
            check_setting(f"the {name} of runs", given, str)
            check_storable_text(f"the {name} of runs", given)


def to_epoch_seconds(time: datetime | float) -> float:
    """Return a time in seconds since 1970."""
    if not isinstance(time, datetime):
        return float(time)
    if time.tzinfo is None:
        raise ConfigurationError(f"the time {time} has no time zone: give datetime(..., tzinfo=UTC), or .astimezone()")
    return time.timestamp()
