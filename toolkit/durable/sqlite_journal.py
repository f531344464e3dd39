"""The log of a run in a file, without an engine: for a script, or a program on somebody's desk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from anyio import CancelScope, to_thread

from toolkit.durable.sqlite_log import Cipher, SqliteLog
from toolkit.errors import ConfigurationError, JournalError
from toolkit.loop.journal import JournalEntry, JournalValue, check_entry_name
from toolkit.runtime.backend import gather
from toolkit.settings import check_setting

__all__ = ["SqliteJournal"]


class SqliteJournal:
    """Keeps a run in a SQLite file: started again with it, the run goes on where it was when its process ended.

    ::

        with SqliteJournal("run.db", run_id="nightly-2026-11-22") as journal:
            result = await tool_loop(provider, registry, "Tidy up.", config=ToolLoopConfig(journal=journal))

    One file may hold many runs. A run goes on in one process at a time: a second one is refused, and the claim of a
    process that has ended is free. Each entry is one transaction; a process that is killed in mid-write leaves the file
    sound and the entry unwritten. The file must be on a local disk, and is for its owner alone (mode 0600 on POSIX).
    One journal serves one loop, once: the loops of its sub-agents have logs inside of it.

    What a model and tools say is kept as it is, since the run goes on with exactly that: where it may hold secrets,
    give `encrypt`.

    Args:
        path: The file; made where there is none, in a folder that must be there.
        run_id: Names the run in the file.
        encrypt: Applied to each entry before it is kept, such as ``Fernet(key).encrypt``; None keeps them readable.
        decrypt: Its reverse, such as ``Fernet(key).decrypt``.
        is_synced: True where each entry is synced to the disk before the run goes on, which takes some milliseconds
            each: a loss of power then loses none. By default the last entries may be missing after one, as after
            none of them had been made; the end of the process loses none either way.

    Raises:
        ConfigurationError: The file can't be used, or the run is under way elsewhere.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run_id: str,
        *,
        encrypt: Cipher | None = None,
        decrypt: Cipher | None = None,
        is_synced: bool = False,
    ) -> None:
        check_setting("the path of a journal", path, str, os.PathLike)
        check_setting("the run_id of a journal", run_id, str)
        if not run_id.strip():
            raise ConfigurationError("the run_id of a journal is empty: give the run a name")
        if (encrypt is None) != (decrypt is None):
            raise ConfigurationError("a journal takes encrypt and decrypt together, or neither")
        self._name = run_id
        self._open_log(SqliteLog(Path(path), run_id, encrypt, decrypt, is_synced=is_synced), "")

    def _open_log(self, log: SqliteLog, path: str) -> None:
        self._log = log
        self._path = path
        self._kept: dict[int, tuple[str, JournalValue]] | None = None  # what was not asked for yet
        self._last = self._position = 0

    @property
    def run_id(self) -> str:
        """The id that the events of the run carry; made with the run, which the file knows by the name it was given."""
        if not self._path:
            return self._log.run_id
        return hashlib.sha256(f"{self._log.run_id}/{self._path}".encode()).hexdigest()[:32]

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return what is kept at the next position, or do the work and keep what it gives; see `Journal`."""
        [value] = await self.all([entry])
        return value

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do so with several entries at once; see `Journal`."""
        kept = await self._read_kept()
        first, self._position = self._position + 1, self._position + len(entries)
        values: dict[int, JournalValue] = {}
        todo: list[tuple[int, JournalEntry]] = []
        for position, entry in enumerate(entries, first):
            if position in kept:
                name, values[position] = kept.pop(position)
                check_entry_name(name, entry.name)
            else:
                self._check_missing(position, entry, last=self._position)
                todo.append((position, entry))

        async def do_work(position: int, entry: JournalEntry) -> None:
            value = values[position] = await entry.work()
            with CancelScope(shield=True):
                await to_thread.run_sync(self._log.write_entry, self._path, position, entry.name, value)

        if len(todo) == 1:
            await do_work(*todo[0])
        elif todo:
            await gather([partial(do_work, *each) for each in todo], None)
        return [values[position] for position in range(first, self._position + 1)]

    async def recall(self, name: str) -> JournalValue | None:
        """Return what is kept at the next position where that is the entry of this name; see `Journal`."""
        kept = await self._read_kept()
        found = kept.get(self._position + 1)
        if found is None or found[0] != name:
            return None
        self._position += 1
        return kept.pop(self._position)[1]

    async def finish(self) -> None:
        """Check that nothing is kept behind the end of the run; see `Journal`."""
        kept = await self._read_kept()
        if kept:
            raise JournalError(
                f"the log of the run '{self._name}' goes on with '{kept[min(kept)][0]}' where the run has ended: it "
                "was written with other settings or by another version of the program, or it was changed"
            )

    def nested(self, name: str) -> SqliteJournal:
        """Return the log of a run inside of this one; see `Journal`."""
        inner = object.__new__(type(self))
        inner._name = f"{self._name}/{name}"
        inner._open_log(self._log, f"{self._path}/{name}")
        return inner

    def forget_failure(self) -> bool:
        """Forget the error that the run has ended with, so that it is asked again when it is started again.

        Returns:
            False where it has not ended with one, or with one in a call, which must not run twice.
        """
        entries = self._log.read_entries(self._path)
        position = max(entries, default=0)
        name, value = entries.get(position, ("", {}))
        if "failed" not in value or name.startswith("call "):
            return False
        self._log.delete_entry(self._path, position)
        self._kept = None
        return True

    def forget_run(self) -> None:
        """Delete the run from the file; the journal is of no use afterwards."""
        self._log.delete_run()
        self.close()

    def close(self) -> None:
        """Close the file, and let others go on with the run; twice is fine."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _read_kept(self) -> dict[int, tuple[str, JournalValue]]:
        if self._kept is None:
            self._kept = await to_thread.run_sync(self._log.read_entries, self._path)
            self._last = max(self._kept, default=0)
        return self._kept

    def _check_missing(self, position: int, entry: JournalEntry, *, last: int) -> None:
        """Refuse to do what the log must have, since it has what came later."""
        if self._last > last:
            raise JournalError(
                f"the log of the run '{self._name}' has no '{entry.name}' at position {position}, and goes on behind "
                "it: it was cut, or changed"
            )
        if entry.name == "begin" and position > 1:
            raise JournalError(
                f"the journal of the run '{self._name}' has served a loop already: give each loop a journal of its own"
            )
