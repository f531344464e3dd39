"""The rows of messages and decisions for runs: stored by clients, taken by the worker that moves or resumes a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from toolkit.calls.approval import Abort, Approval, Approve, Defer, Deny, Modify, to_approval
from toolkit.durable.contents import check_json, keep_contents, restore_value, write_value
from toolkit.durable.errors import UnstorableValueError
from toolkit.durable.rests import TAKEN_AT_REST, InboxItem
from toolkit.durable.storage import Storage
from toolkit.durable.tables import inbox, runs
from toolkit.errors import ConfigurationError
from toolkit.loop.journal import storable_id

__all__ = [
    "decision_key",
    "InboxRows",
    "read_decision",
    "write_decision",
]


def decision_key(call_id: str, binding: str) -> str:
    """Return the key under which the decision on a call is kept, where no second one can be."""
    return f"decide/{storable_id(call_id)}/{storable_id(binding)}"


def write_decision(answer: Approval | bool | str) -> dict[str, Any]:
    """Return a decision as JSON values.

    Raises:
        ConfigurationError: It decides nothing.
    """
    match to_approval(answer):
        case Approve():
            return {"kind": "approve"}
        case Deny(reason):
            return {"kind": "deny", "reason": reason}
        case Modify(arguments):
            return {"kind": "modify", "arguments": dict(arguments)}
        case Abort(reason):
            return {"kind": "abort", "reason": reason}
        case Defer():
            raise ConfigurationError("Defer() decides nothing: the call awaits a decision already")


def read_decision(plain: Mapping[str, Any]) -> Approval:
    """Return the decision that `write_decision` said."""
    match plain["kind"]:
        case "approve":
            return Approve()
        case "modify":
            return Modify(plain["arguments"])
        case "abort":
            return Abort(plain["reason"])
        case _:
            return Deny(plain.get("reason") or "Tool call denied.")


class InboxRows:
    """Reads and writes the inbox; blocks.

    Args:
        storage: The database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read_items(self, connection: sa.Connection, run_id: str, logs: Sequence[int] = ()) -> list[InboxItem]:
        """Return what was said to a run and not taken; and what segments took that have failed, and are read again."""
        is_open: sa.ColumnElement[bool] = inbox.c.segment.is_(None)
        if logs:
            is_open |= inbox.c.segment.in_(logs) & inbox.c.kind.in_(("say", "steer"))
        query = sa.select(inbox.c.id, inbox.c.kind, inbox.c.body).where(inbox.c.run_id == run_id, is_open)
        rows = connection.execute(query.order_by(inbox.c.id)).all()
        return [self._read_item(connection, run_id, *row) for row in rows]

    def _read_item(self, connection: sa.Connection, run_id: str, id_: int, kind: str, body: str) -> InboxItem:
        read = restore_value(connection, self._storage.text, run_id, self._storage.text.read(body))
        return InboxItem(id=id_, kind=kind, body=read)

    def put_item(self, run_id: str, kind: str, key: str, body: Mapping[str, Any]) -> bool:
        """Keep what is said to a run; return False where something was said under the same key.

        Raises:
            UnstorableValueError: It is no JSON.
        """
        for name, part in body.items():
            check_json(f"the {name}", part)
        try:
            text, beside = write_value(self._storage.text, run_id, dict(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise UnstorableValueError(f"what is said to run '{run_id}'", f"it is no JSON: {error}") from error
        try:
            with self._storage.engine.begin() as connection:
                connection.execute(inbox.insert().values(run_id=run_id, key=key, kind=kind, body=text))
                keep_contents(connection, beside)
        except IntegrityError:
            return False
        return True

    def put_decision(self, run_id: str, segment: int, call_id: str, binding: str, decision: Mapping[str, Any]) -> bool:
        """Keep a decision on a call that a run awaited one on at the rest of a segment.

        Args:
            run_id: The run.
            segment: That segment.
            call_id: The call.
            binding: Names the arguments and the tool that were decided on.
            decision: As from `write_decision`.

        Returns:
            Whether it is the one that counts; another one may have been made meanwhile.

        Raises:
            UnstorableValueError: It is no JSON.
        """
        key = decision_key(call_id, binding)
        body = {"call_id": call_id, "binding": binding, "decision": decision}
        if self.put_item(run_id, "decide", key, body):
            return True
        # One that a segment took and that left the call pending did not hold: with its code the call was another one.
        spent = inbox.update().where(inbox.c.run_id == run_id, inbox.c.key == key, inbox.c.segment <= segment)
        with self._storage.engine.begin() as connection:
            found = connection.execute(spent.values(key=inbox.c.key + "/" + sa.cast(inbox.c.id, sa.Text)))
        return found.rowcount > 0 and self.put_item(run_id, "decide", key, body)

    def has_item(self, run_id: str, key: str) -> bool:
        """Return whether something was said to a run under a key."""
        query = sa.select(inbox.c.id).where(inbox.c.run_id == run_id, inbox.c.key == key)
        with self._storage.engine.connect() as connection:
            return connection.execute(query).first() is not None

    def is_cancelled(self, run_id: str, segment: int) -> bool:
        """Return whether a cancel was said to a run that its segment takes, or the next one."""
        query = sa.select(inbox.c.id).where(inbox.c.run_id == run_id, inbox.c.kind == "cancel")
        query = query.where(inbox.c.segment.is_(None) | (inbox.c.segment == segment))
        with self._storage.engine.connect() as connection:
            return connection.execute(query).first() is not None

    def find_said(self, run_ids: Sequence[str]) -> dict[str, list[InboxItem]]:
        """Return what was said to runs and not taken yet, by run, oldest first."""
        query = sa.select(inbox.c.run_id, inbox.c.id, inbox.c.kind, inbox.c.body).where(
            inbox.c.segment.is_(None), inbox.c.run_id.in_(run_ids)
        )
        found: dict[str, list[InboxItem]] = {}
        with self._storage.engine.connect() as connection:
            for run_id, *row in connection.execute(query.order_by(inbox.c.id)).all():
                found.setdefault(run_id, []).append(self._read_item(connection, run_id, *row))
        return found

    def find_called(self, limit: int) -> dict[str, int]:
        """Return runs at rest to which something was said that has them go on, with the newest item of each."""
        is_taken = sa.or_(
            *((runs.c.state == state) & inbox.c.kind.in_(kinds) for state, kinds in TAKEN_AT_REST.items())
        )
        query = (
            sa.select(inbox.c.run_id, sa.func.max(inbox.c.id))
            .join(runs, runs.c.run_id == inbox.c.run_id)
            .where(inbox.c.segment.is_(None), is_taken)
            .group_by(inbox.c.run_id)
            .order_by(sa.func.max(inbox.c.id).desc())
        )
        with self._storage.engine.connect() as connection:
            return {found[0]: found[1] for found in connection.execute(query.limit(limit)).all()}
