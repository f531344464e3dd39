"""`RunLog`: the middleware that logs runs, the reader of logged runs, and approvals asked for on their page.

The approval hook writes its question as an entry of the run, and waits until an answer to exactly that is there, from a
page or a program in this or another process. Anyone who can write to the log can answer: its files are private.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
from anyio import to_thread

from toolkit.calls.approval import Approval, ApprovalRequest, Approve, Deny
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.loop.middleware import Middleware, RunInfo
from toolkit.run_log.cleaning import ContentPolicy
from toolkit.run_log.entries import LogEntry, RunSummary, RunTally, read_header, read_line, read_object
from toolkit.run_log.stores import DatabaseStore, FolderStore, RunStore, StoredLine, StoredRun
from toolkit.run_log.writer import RunRecorder, RunWriter, make_record, recorded_run
from toolkit.settings import check_setting

_DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_GONE_SECONDS = 15.0
"""A run whose writer gave no sign of life for so long was cut off: a writer gives one every 5 s."""

_FOLLOW_SECONDS = 0.2
QuestionAnswer: TypeAlias = Literal["approve", "deny"]
_ANSWER_POLL_SECONDS = 0.25


class RunLog(Middleware[object]):
    """Logs each run as lines, and reads logged runs.

    ::

        log = RunLog("runs/")
        config = ToolLoopConfig(middleware=(log,))
        result = await tool_loop(provider, registry, "What's the weather?", config=config)

        for run in log.runs():
            print(run.id, run.state, run.ending, run.tool_calls)
        for entry in log.read(log.runs()[0].id):
            print(entry.kind, entry.event)

    Logging never blocks a run and never makes one fail: a thread writes, some milliseconds later, and if that is not
    possible, because a disk is full, say, one error is logged and the run continues. A run whose process was
    killed can be read up to its last whole line. Sub-agents and loops inside tools are part of the log of the run that
    they are a part of. Several processes may write to the same place and read it.

    A path that ends in ``.db``, ``.sqlite`` or ``.sqlite3`` is an SQLite file; any other is a folder, with a file of
    JSON lines for each run. Files are for their owner alone (0600, a new folder 0700).

    Args:
        path: Where the runs are.
        content: ``all`` logs messages, arguments and results. ``none`` logs the facts alone: tools and models, times,
            tokens, and how the run ended. Either way secrets are removed: texts that look like a key, values of names
            such as ``password``, and arguments that their schema calls secret.
        secrets: More texts to remove everywhere, such as the keys that the application knows.

    Raises:
        ConfigurationError: The path is a file that is no run log.
    """

    is_inherited = True

    def __init__(
        self, path: str | os.PathLike[str], *, content: ContentPolicy = "all", secrets: Iterable[str] = ()
    ) -> None:
        check_setting("the path of a run log", path, str, os.PathLike)
        check_setting("content", content, "all", "none")
        self.path = Path(path)
        self.content: ContentPolicy = content
        self._read_from(_open_store(self.path), str(self.path), secrets)

    @classmethod
    def of_store(cls, store: RunStore, place: str) -> RunLog:
        """Return a log over runs in another kind of store.

        Args:
            store: The runs.
            place: Where they are, for people.
        """
        log = cls.__new__(cls)
        log.path, log.content = Path(place), "all"
        log._read_from(store, place, ())
        return log

    def _read_from(self, store: RunStore, place: str, secrets: Iterable[str]) -> None:
        self.place: str = place
        self._store = store
        self._writer = RunWriter(store, self.content, secrets)
        self._tallies: dict[str, RunTally] = {}
        self._lock = threading.Lock()

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        """Return the middleware that logs this run."""
        return RunRecorder(self._writer.put, run)

    def flush(self, timeout: float = 3.0) -> bool:
        """Wait until everything that was logged so far is written.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            True if it is written; False if that took longer.
        """
        return self._writer.flush(timeout)

    def runs(self, limit: int | None = None) -> list[RunSummary]:
        """Return summaries of the runs, newest first; `problem` explains why a run can't be read."""
        self.flush()
        return [self._summarize_run(stored) for stored in self._store.list_runs()[:limit]]

    def find(self, run_id: str) -> str:
        """Return the id of the one run whose id begins with a text.

        Raises:
            ConfigurationError: There is none, or more than one.
        """
        if self._store.find_run(run_id) is not None:
            return run_id
        ids = [stored.id for stored in self._store.list_runs() if stored.id.startswith(run_id)]
        if len(ids) == 1 and run_id:
            return ids[0]
        if ids:
            raise ConfigurationError(
                f"{len(ids)} runs in {self.place} begin with {run_id!r}: {', '.join(ids[:3])}...; write more of the id"
            )
        raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")

    def summary(self, run_id: str) -> RunSummary:
        """Return one run in short.

        Raises:
            ConfigurationError: There is no such run.
        """
        return self._summarize_run(self._find_stored(run_id))

    def read(self, run_id: str, start: int = 0) -> Iterator[LogEntry]:
        """Yield the entries of a run as they are read: memory does not grow with the run.

        Lines that can't be read, such as one that was cut off by a kill, are ignored.

        Args:
            run_id: The run.
            start: `LogEntry.next_position` of the last entry that is known; 0 begins with the first.

        Raises:
            ConfigurationError: There is no such run, it is no run log, or of another version.
        """
        return self._read_entries(self._find_stored(run_id), start)

    def follow(self, run_id: str, start: int = 0) -> AsyncIterator[LogEntry]:
        """Yield the entries of a run, and then each new one as it is written, until the run has ended or is cut off.

        A run that ended to await a decision and resumes later must be followed again. The iterator may be left at any
        time.

        Args:
            run_id: The run.
            start: As for `read`.
        """
        return _Follower(self, run_id, start)

    def read_chunk(self, run_id: str, start: int = 0, most: int = 1_000) -> list[LogEntry]:
        """Return the next entries from a position on, at most so many; none where there is nothing new."""
        return list(islice(self.read(run_id, start), most))

    def find_lines(self, run_id: str, text: str) -> list[int]:
        """Return the positions of the entries that contain a text, ignoring case."""
        wanted = _as_in_json(text)
        lines = self._store.read_lines(run_id)
        return [line.position for line in lines if wanted in line.line.decode("utf-8", "replace").casefold()]

    @property
    def store(self) -> RunStore:
        """Where the lines are."""
        return self._store

    @property
    def writer(self) -> RunWriter:
        """The thread that writes the log."""
        return self._writer

    def _find_stored(self, run_id: str) -> StoredRun:
        self.flush()
        stored = self._store.find_run(run_id)
        if stored is None:
            raise ConfigurationError(f"there is no run {run_id!r} in {self.place}")
        return stored

    def _read_entries(self, stored: StoredRun, start: int) -> Iterator[LogEntry]:
        is_first = start == 0
        for line in self._store.read_lines(stored.id, start):
            if is_first:
                read_header(line.line, stored.where)
                is_first = False
            entry = _to_entry(line)
            if entry is not None:
                yield entry

    def _summarize_run(self, stored: StoredRun) -> RunSummary:
        first = next(iter(self._store.read_lines(stored.id)), None)
        try:
            read_header(b"" if first is None else first.line, stored.where)
        except ConfigurationError as error:
            problem = str(error) if first is not None else "its first line is not whole"
            return RunSummary(id=stored.id, state="unreadable", problem=problem, where=stored.where)
        last = read_line(self._store.read_last(stored.id))
        if last is not None and last["event"] == "run_ended":
            return _load_summary(read_object(last, "summary"), stored)
        counted = replace(self._count_entries(stored), where=stored.where)
        if counted.state == "running" and time.time() - stored.seen > _GONE_SECONDS:
            return replace(counted, state="cut off", problem="its process ended before it did")
        return counted

    def _count_entries(self, stored: StoredRun) -> RunSummary:
        """Count the entries since the last time."""
        with self._lock:
            tally = self._tallies.setdefault(stored.id, RunTally(stored.id))
            for line in self._store.read_lines(stored.id, tally.position):
                plain = read_line(line.line)
                if plain is not None:
                    tally.add(plain)
                tally.position = line.next_position
            return tally.summarize()


class _Follower(AsyncIterator[LogEntry]):
    """Waits for the entries of one run; it need not be closed."""

    def __init__(self, log: RunLog, run_id: str, start: int) -> None:
        self._log = log
        self._run_id = run_id
        self._position = start
        self._entries: deque[LogEntry] = deque()

    async def __anext__(self) -> LogEntry:
        while not self._entries:
            # Before reading, so that everything that is written until the end of a run is read after that.
            state = (await to_thread.run_sync(self._log.summary, self._run_id)).state
            self._entries += await to_thread.run_sync(self._log.read_chunk, self._run_id, self._position)
            if not self._entries:
                if state != "running":
                    raise StopAsyncIteration
                await anyio.sleep(_FOLLOW_SECONDS)
        entry = self._entries.popleft()
        self._position = entry.next_position
        return entry


def _open_store(path: Path) -> RunStore:
    if path.suffix.lower() in _DATABASE_ENDINGS:
        return DatabaseStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigurationError(
            f"{path} is a file, and a run log is a folder of files: give the folder, or a path that ends in .db"
        )
    return FolderStore(path)


def _to_entry(line: StoredLine) -> LogEntry | None:
    plain = read_line(line.line)
    if plain is None:
        return None
    return LogEntry(position=line.position, next_position=line.next_position, plain=plain)


def _load_summary(plain: Mapping[str, Any], stored: StoredRun) -> RunSummary:
    known: dict[str, Any] = {field.name: plain[field.name] for field in fields(RunSummary) if field.name in plain}
    known.update(id=stored.id, where=stored.where)
    return RunSummary(**known)


def _as_in_json(text: str) -> str:
    return write_json(text)[1:-1].casefold()


def ask_on_page(log: RunLog) -> Callable[[ApprovalRequest], Awaitable[Approval]]:
    """Return an approval hook that asks on the page of a log, where ``toolkit runs view`` takes the answer.

    ::

        log = RunLog("runs/")
        config = ToolLoopConfig(middleware=(log,), on_tool_call=ask_on_page(log))

    The run waits for an answer; ``ToolLoopConfig.timeouts.approval`` bounds that. Two pages may show the same
    question: the first answer counts.

    Args:
        log: The log of the same configuration; it must log contents, since unseen arguments must not be approved.

    Raises:
        ConfigurationError: The log has no contents.
    """
    if log.content != "all":
        raise ConfigurationError("a page can ask only about contents that it shows: give RunLog(..., content='all')")

    async def ask(request: ApprovalRequest) -> Approval:
        run = recorded_run.get()
        if run is None:
            return Deny("Tool call denied: there is no page to ask on, because this run is not logged.")
        question = os.urandom(8).hex()
        facts: dict[str, Any] = {"question": question, "call_id": request.call_id, "tool_name": request.tool_name}
        shown = {"preview": request.preview, "reason": request.reason, "agent": request.agent}
        log.writer.put(make_record(run, "question_asked", {**facts, **shown}))
        answer: dict[str, Any] = {"answer": "withdrawn"}
        try:
            answer = await _wait_for_answer(log, run.run_id, question)
        finally:
            decision = {"answer": answer["answer"], "reason": answer.get("reason", "")}
            log.writer.put(make_record(run, "question_answered", {**facts, **decision}))
        return Approve() if answer["answer"] == "approve" else Deny(answer["reason"] or "Tool call denied.")

    return ask


def answer_question(log: RunLog, run_id: str, question: str, answer: QuestionAnswer, reason: str = "") -> None:
    """Answer a question of a run.

    Args:
        log: Where the run is.
        run_id: The run.
        question: The ``question`` of the entry ``question_asked``.
        answer: The decision.
        reason: For a denial: the text that the model reads.

    Raises:
        ConfigurationError: There is no such question, or it is answered already.
    """
    waiting: set[str] = set()
    for entry in log.read(run_id):
        if entry.kind == "question_asked":
            waiting.add(str(entry.plain["question"]))
        elif entry.kind == "question_answered":
            waiting.discard(str(entry.plain["question"]))
    if question not in waiting or _find_answer(log, run_id, question) is not None:
        raise ConfigurationError("the question is no longer open: it is answered, or was withdrawn")
    line = write_json({"event": "answer", "question": question, "answer": answer, "reason": reason})
    log.store.add_answer(run_id, line.encode() + b"\n")


async def _wait_for_answer(log: RunLog, run_id: str, question: str) -> dict[str, Any]:
    while True:
        answer = await to_thread.run_sync(_find_answer, log, run_id, question)
        if answer is not None:
            return answer
        await anyio.sleep(_ANSWER_POLL_SECONDS)


def _find_answer(log: RunLog, run_id: str, question: str) -> dict[str, Any] | None:
    """Return the first answer to a question that is one."""
    for line in log.store.read_answers(run_id):
        plain = read_line(line)
        if plain is not None and plain.get("question") == question and plain.get("answer") in ("approve", "deny"):
            return plain
    return None
