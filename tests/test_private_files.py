"""Databases in private files, opened by several processes at once."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolkit.calls.caching import SqliteCache
from toolkit.durable import SqliteJournal
from toolkit.durable.storage import Storage
from toolkit.errors import ToolkitError
from toolkit.private_files import write_ahead


def switch_mode(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        write_ahead(connection, 30)


OPENERS: dict[str, Callable[[Path], Any]] = {
    "cache": SqliteCache,
    "journal": lambda path: SqliteJournal(path, "run").close(),
    "durable runs": lambda path: Storage(f"sqlite:///{path}").close(),
    "run log": switch_mode,
}


@pytest.mark.parametrize("kind", OPENERS)
def test_a_new_database_is_opened_although_another_process_writes_to_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    failures: list[Exception] = []

    def open_it() -> None:
        try:
            OPENERS[kind](path)
        except (sqlite3.Error, ToolkitError) as error:
            failures.append(error)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opener = threading.Thread(target=open_it)
        opener.start()
        opener.join(0.1)
        other.execute("COMMIT")
        opener.join(60)
    assert failures == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
