"""Durable runs found, counted and deleted by filters, whatever their number, and the figures that are watched.

Lists and counts read the columns of runs and their labels, each by an index. A deletion is made in slices, so that no
transaction is long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa

from toolkit.durable.contents import check_storable_text
from toolkit.durable.loops import DurableLoop
from toolkit.durable.rests import RESTING, DurableState
from toolkit.durable.rows import COLUMNS, RunRow, RunRows, delete_runs, describe_end, insert_labels, is_label
from toolkit.durable.storage import Storage
from toolkit.durable.tables import UNDESCRIBED, labels, runs
from toolkit.errors import ConfigurationError, ToolkitError
from toolkit.json_text import write_json
from toolkit.settings import check_setting

STATES: Sequence[DurableState] = ("queued", "running", "waiting", "done", "failed", "cancelled")
SLICE = 500
"""How many runs are deleted, or described, in a transaction."""

_AGES: Mapping[str, float] = {"1m": 60.0, "10m": 600.0, "1h": 3_600.0, "1d": 86_400.0, "7d": 604_800.0}
_UNSEEN_SECONDS = 10.0


class RunFilters(TypedDict, total=False):
    """The runs that are meant: those that fit all of these.

    Args:
        loop: Those of this loop, or of the loop of this name.
        state: Those in this state.
        tenant: Those of this tenant.
        ending: Those with this `kind` of ending, or this class of error, such as ``ProviderError``.
        error: Those whose error has this text in its message; not where values are encrypted.
        since: Those of which something was written at this time or later: aware, or seconds since 1970.
        before: Those of which nothing was written at this time or later.
        metadata: Those with these parts in their metadata: texts, numbers, True, False or None.
        text: Those with this text in their id, tenant, error or metadata, in small letters or large ones.
    """

    loop: DurableLoop[Any, Any] | str | None
    state: DurableState | None
    tenant: str | None
    ending: str | None
    error: str | None
    since: datetime | float | None
    before: datetime | float | None
    metadata: Mapping[str, Any] | None
    text: str | None


class RunSearch:
    """Finds, counts and deletes runs by filters; blocks.

    Args:
        storage: The database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._rows = RunRows(storage)

    def find(self, *, limit: int, after: str | None, **filters: Unpack[RunFilters]) -> list[RunRow]:
        """Return runs, the newest first, from behind the one with the id `after` on.

        Raises:
            ConfigurationError: A filter can't be applied.
            DurableRunNotFoundError: There is no run `after`.
        """
        query = sa.select(*COLUMNS).order_by(runs.c.created.desc(), runs.c.run_id.desc()).limit(limit)
        query = query.where(self._write_condition(filters))
        if after is not None:
            last = self._rows.read(after)
            query = query.where(
                sa.tuple_(runs.c.created, runs.c.run_id) < sa.tuple_(sa.literal(last.created), sa.literal(after))
            )
        with self._storage.engine.connect() as connection:
            return [self._rows.to_row(found) for found in connection.execute(query).all()]

    def count(self, **filters: Unpack[RunFilters]) -> dict[DurableState, int]:
        """Return the number of runs in each state.

        Raises:
            ConfigurationError: A filter can't be applied.
        """
        query = sa.select(runs.c.state, sa.func.count()).where(self._write_condition(filters)).group_by(runs.c.state)
        with self._storage.engine.connect() as connection:
            found = {row[0]: int(row[1]) for row in connection.execute(query).all()}
        return {state: found.get(state, 0) for state in STATES}

    def find_ids(self, states: Sequence[str], last: str, **filters: Unpack[RunFilters]) -> list[str]:
        """Return the ids of some runs in these states, in order, from behind the last one of the slice before.

        Raises:
            ConfigurationError: A filter can't be applied.
        """
        query = sa.select(runs.c.run_id).where(self._write_condition(filters), runs.c.state.in_(states))
        query = query.where(runs.c.run_id > last).order_by(runs.c.run_id).limit(SLICE)
        with self._storage.engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def delete_slice(self, states: Sequence[str], **filters: Unpack[RunFilters]) -> int:
        """Delete some of the runs in these states in one transaction; return how many, 0 where none are left.

        Raises:
            ConfigurationError: A filter can't be applied.
        """
        meant = sa.select(runs.c.run_id).where(self._write_condition(filters), runs.c.state.in_(states)).limit(SLICE)
        with self._storage.engine.begin() as connection:
            # Those that another process is about to resume or to delete are its own.
            ids = list(connection.execute(meant.with_for_update(skip_locked=True)).scalars())
            return delete_runs(connection, runs.c.run_id.in_(ids) & runs.c.state.in_(states)) if ids else 0

    def describe_slice(self) -> int:
        """Fill in some of the endings, errors and labels that an earlier release left out; return for how many runs.

        A run whose rest the engine has not stored yet is left for the next time.
        """
        query = sa.select(*COLUMNS).where(UNDESCRIBED).limit(SLICE)
        with self._storage.engine.connect() as connection:
            found = [self._rows.to_row(row) for row in connection.execute(query).all()]
        return sum(self._describe_run(row) for row in found)

    def _describe_run(self, row: RunRow) -> bool:
        try:
            rest = self._rows.read_rest(row) if row.state in RESTING else None
            ending, error = ("", "") if rest is None else (rest.ending, rest.error)
        except ToolkitError as problem:
            rest, ending, error = None, type(problem).__name__, str(problem)
        values: dict[str, Any] = {"described": 0, "ending": None, "error": None}
        if ending:
            values = describe_end(self._storage.text, row.segment, ending, error)
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
        """Return the condition of the runs that are meant.

        Raises:
            ConfigurationError: A filter can't be applied.
        """
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
            conditions.append(runs.c.error.contains(error, autoescape=True))
        if filters.get("ending") is not None or error is not None:
            conditions.append(runs.c.described == runs.c.segment)
        since, before = filters.get("since"), filters.get("before")
        if since is not None:
            conditions.append(runs.c.updated >= _to_seconds(since))
        if before is not None:
            conditions.append(runs.c.updated < _to_seconds(before))
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
        columns = [runs.c.run_id, runs.c.tenant]
        if not self._storage.text.is_encrypted:
            columns.append(runs.c.error)
        labelled = sa.select(labels.c.run_id).where(labels.c.value.icontains(text, autoescape=True))
        return sa.or_(*(column.icontains(text, autoescape=True) for column in columns), runs.c.run_id.in_(labelled))


def check_filters(filters: Mapping[str, Any]) -> None:
    """Check that filters can be applied.

    Raises:
        ConfigurationError: One is unknown, or of another type.
        UnstorableValueError: No run can have such a text.
    """
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


def _to_seconds(time: datetime | float) -> float:
    if not isinstance(time, datetime):
        return float(time)
    if time.tzinfo is None:
        raise ConfigurationError(f"the time {time} has no time zone: give datetime(..., tzinfo=UTC), or .astimezone()")
    return time.timestamp()
