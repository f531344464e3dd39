"""Large contents as rows of the database, written with the value that has them and read with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from toolkit.durable.contents import BESIDE, check_content, find_digests, has_contents, put_back, set_aside
from toolkit.durable.encryption import StoredText
from toolkit.durable.errors import DurableError
from toolkit.durable.tables import contents
from toolkit.errors import JournalError
from toolkit.json_text import write_json

__all__ = [
    "ContentRow",
    "keep_contents",
    "restore_lines",
    "restore_value",
    "restore_values",
    "split_value",
    "write_value",
]

_SPLIT_LINE = write_json({BESIDE: {}}).removesuffix("{}}")

ContentRow: TypeAlias = Mapping[str, str]
"""The columns of a content."""


def split_value(
    stored: StoredText, run_id: str, value: Any, text: str | None = None
) -> tuple[Any, Sequence[ContentRow]]:
    """Return a value as it is kept, and the rows of its large contents.

    Args:
        stored: How values are stored.
        run_id: The run.
        value: JSON.
        text: The same, written; None writes it.

    Raises:
        TypeError: It is no JSON.
        ValueError: The same.
    """
    small, beside = set_aside(value, write_json(value) if text is None else text, run_id)
    return small, [{"run_id": run_id, "digest": key, "value": stored.write(beside[key])} for key in beside]


def write_value(stored: StoredText, run_id: str, value: Any) -> tuple[str, Sequence[ContentRow]]:
    """Return a value as it is stored, and the rows of its large contents.

    Raises:
        TypeError: It is no JSON.
        ValueError: The same.
    """
    text = write_json(value)
    small, rows = split_value(stored, run_id, value, text)
    return stored.write_text(text if small is value else write_json(small)), rows


def keep_contents(connection: sa.Connection, rows: Sequence[ContentRow]) -> None:
    """Keep contents in the transaction of the values that have them."""
    if rows:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        # In one order, so that two transactions with the same contents do not wait for each other.
        ordered = sorted(rows, key=lambda row: (row["run_id"], row["digest"]))
        connection.execute(insert(contents).on_conflict_do_nothing(), ordered)


def restore_values(
    connection: sa.Connection, stored: StoredText, run_id: str, values: Sequence[Any]
) -> list[Any | JournalError]:
    """Return the values that were kept as these; an error for one whose contents are missing or were changed."""
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
    """Return the lines of events that are stored as these texts.

    Raises:
        DurableError: One can't be read.
        JournalError: Contents of one are missing or were changed.
    """
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
    except ValueError:  # somebody has edited it, and readers skip what is no JSON
        return line


def _open_content(stored: StoredText, text: str | None) -> object:
    if text is None:
        return None
    try:
        return stored.read(text)
    except DurableError:
        return False  # is no content, and said to be changed


def restore_value(connection: sa.Connection, stored: StoredText, run_id: str, value: Any) -> Any:
    """Return the value that was kept as this.

    Raises:
        JournalError: Contents of it are missing or were changed.
    """
    if not has_contents(value):
        return value
    [restored] = restore_values(connection, stored, run_id, [value])
    if isinstance(restored, JournalError):
        raise restored
    return restored
