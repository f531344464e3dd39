"""Runs as files of JSON lines in a folder that is its owner's alone."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from toolkit.private_files import make_private
from toolkit.run_log.stores import StoredLine, StoredRun

__all__ = ["FolderStore"]

_RUN_FILE = re.compile(r"\d{8}T\d{12}Z-(?P<run_id>[0-9a-zA-Z]{8,64})\.jsonl")
_TAIL_BYTES = 64 * 1024
_BUFFER_BYTES = 1024 * 1024


class FolderStore:
    """A folder with a file for each run, named by its start and its id; answers stand in a file beside it.

    Args:
        path: The folder; it is made with the first run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[str, int] = {}
        self._files: dict[str, Path] = {}

    def append(self, run_id: str, lines: bytes) -> None:
        """Write lines at the end of a run's file, all or none."""
        descriptor = self._open.get(run_id)
        if descriptor is None:
            descriptor = self._open[run_id] = self._open_file(run_id)
        end = os.fstat(descriptor).st_size
        try:
            while lines:
                lines = lines[os.write(descriptor, lines) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, end)  # a disk that is full leaves no half of a line
            raise

    def touch(self, run_ids: Iterable[str]) -> None:
        """Set the times of the runs' files to now."""
        for run_id in run_ids:
            if run_id in self._open:
                with suppress(OSError):
                    os.utime(self._find_file(run_id) or self.path)

    def close_run(self, run_id: str) -> None:
        """Close a run's file."""
        descriptor = self._open.pop(run_id, None)
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def list_runs(self) -> list[StoredRun]:
        """Return the runs in the folder, newest first; other files are passed over."""
        found: list[StoredRun] = []
        for file in sorted(self._list_files(), key=lambda file: file.name, reverse=True):
            run = _look_at(file)
            if run is not None:
                self._files[run.id] = file
                found.append(run)
        return found

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        file = self._find_file(run_id)
        return None if file is None else _look_at(file)

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the whole lines from a byte of the file on; what is being written is left for the next time."""
        file = self._find_file(run_id)
        if file is None:
            return
        with file.open("rb", buffering=_BUFFER_BYTES) as opened:
            opened.seek(start)
            position = start
            for line in opened:
                if not line.endswith(b"\n"):
                    return
                yield StoredLine(position, position + len(line), line)
                position += len(line)

    def read_last(self, run_id: str) -> bytes:
        """Return the last whole line; empty where it is longer than 64 KiB."""
        file = self._find_file(run_id)
        if file is None:
            return b""
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _TAIL_BYTES))
            lines = opened.read().split(b"\n")
        return lines[-2] if len(lines) > 2 or (size <= _TAIL_BYTES and len(lines) == 2) else b""

    def add_answer(self, run_id: str, line: bytes) -> None:
        """Append an answer to the file beside the run's."""
        file = self._find_answers(run_id)
        if file is None:
            return
        make_private(file)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line)  # one write: of two pages that answer, neither is in the other's line
        finally:
            os.close(descriptor)

    def read_answers(self, run_id: str) -> list[bytes]:
        """Return the answers in the file beside the run's."""
        file = self._find_answers(run_id)
        try:
            return [] if file is None else file.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def _open_file(self, run_id: str) -> int:
        file = self._find_file(run_id)
        if file is None:
            _make_private_folder(self.path)
            file = self.path / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{run_id}.jsonl"
        make_private(file)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND)
        self._files[run_id] = file
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.write(descriptor, b"\n")  # a process before was killed in the middle of a line
        return descriptor

    def _find_file(self, run_id: str) -> Path | None:
        known = self._files.get(run_id)
        if known is not None and known.exists():
            return known
        for file in self._list_files():
            found = _RUN_FILE.fullmatch(file.name)
            if found is not None and found["run_id"] == run_id:
                self._files[run_id] = file
                return file
        return None

    def _find_answers(self, run_id: str) -> Path | None:
        file = self._find_file(run_id)
        return None if file is None else file.with_suffix(".answers")

    def _list_files(self) -> list[Path]:
        try:
            return [file for file in self.path.iterdir() if file.suffix == ".jsonl"]
        except FileNotFoundError:
            return []


def _look_at(file: Path) -> StoredRun | None:
    found = _RUN_FILE.fullmatch(file.name)
    if found is None:
        return None
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return StoredRun(id=found["run_id"], where=str(file), seen=status.st_mtime, size=status.st_size)


def _make_private_folder(path: Path) -> None:
    """Make a folder for its owner alone; one that is there stays as it is, and its files are private all the same."""
    if path.is_dir():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=stat.S_IRWXU)
