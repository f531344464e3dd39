"""Approvals by whoever reads the log: a question stands in the run, the answer beside it.

The hook writes what it asks as an entry of the run, and waits until an answer to exactly that is there, by a page or a
program in this or another process. Who can write where the log is can answer: its files are for their owner alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import anyio
from anyio import to_thread

from toolkit.calls.approval import Approval, ApprovalRequest, Approve, Deny
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.loop.middleware import RunInfo
from toolkit.run_log.entries import read_line
from toolkit.run_log.lines import LogRecord
from toolkit.run_log.log import RunLog
from toolkit.run_log.recorder import recorded_run

__all__ = ["QuestionAnswer", "answer_question", "ask_on_page"]

QuestionAnswer: TypeAlias = Literal["approve", "deny"]

_ANSWER_POLL_SECONDS = 0.25


def ask_on_page(log: RunLog) -> Callable[[ApprovalRequest], Awaitable[Approval]]:
    """Return an approval hook that asks on the page of a log, where ``toolkit runs view`` takes the answer.

    ::

        log = RunLog("runs/")
        config = ToolLoopConfig(middleware=(log,), on_tool_call=ask_on_page(log))

    The run waits until somebody answers; ``ToolLoopConfig.timeouts.approval`` bounds that. Two pages may show the same
    question: the first answer counts.

    Args:
        log: Stands in the same configuration; it keeps contents, since nobody should approve what is not shown.

    Raises:
        ConfigurationError: The log keeps no contents.
    """
    if log.content != "all":
        raise ConfigurationError("a page can ask only about what it shows: give RunLog(..., content='all')")

    async def ask(request: ApprovalRequest) -> Approval:
        run = recorded_run.get()
        if run is None:
            return Deny("Tool call denied: nobody can be asked, because this run is not written to the log.")
        question = os.urandom(8).hex()
        facts: dict[str, Any] = {"question": question, "call_id": request.call_id, "tool_name": request.tool_name}
        said = {"preview": request.preview, "reason": request.reason, "agent": request.agent}
        _record_entry(log, run, "question_asked", **facts, **said)
        answer: dict[str, Any] = {"answer": "withdrawn"}
        try:
            answer = await _wait_for_answer(log, run.run_id, question)
        finally:
            told = {"answer": answer["answer"], "reason": answer.get("reason", "")}
            _record_entry(log, run, "question_answered", **facts, **told)
        return Approve() if answer["answer"] == "approve" else Deny(answer["reason"] or "Tool call denied.")

    return ask


def answer_question(log: RunLog, run_id: str, question: str, answer: QuestionAnswer, reason: str = "") -> None:
    """QuestionAnswer a question of a run.

    Args:
        log: Where the run is.
        run_id: The run.
        question: The ``question`` of the entry ``question_asked``.
        answer: The decision.
        reason: For a denial: what the model reads.

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
        raise ConfigurationError("nobody waits for this answer anymore: the question is answered, or was withdrawn")
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


def _record_entry(log: RunLog, run: RunInfo[Any], kind: str, **fields: Any) -> None:
    log.writer.put(LogRecord(kind=kind, run_id=run.run_id, loop_id=run.loop_id, time=time.time(), fields=fields))
