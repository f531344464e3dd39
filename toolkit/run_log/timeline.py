"""A run as steps: loops, requests to a model, calls of tools and what else happened, each with begin and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.run_log.entries import LogEntry, read_object

__all__ = ["RunStep", "StepKind", "StepStatus", "Timeline"]

StepKind: TypeAlias = Literal["loop", "model", "tool", "retry", "note"]

StepStatus: TypeAlias = Literal["running", "waiting", "done", "error", "refused", "unended"]
"""``waiting`` is for somebody's decision; ``unended`` is what its loop or process left when it ended."""

_MOST_ENTRIES = 2_000  # that a step keeps the places of; a call that reports without end is shown by its newest


@dataclass(slots=True, kw_only=True)
class RunStep:
    """One thing that a run did.

    Attributes:
        id: Its number in the run, from 0, in the order in which steps began.
        parent: The step inside which it happened; None for the outermost loop.
        kind: The kind of step.
        title: The title of its row: the agent, the model, the tool.
        status: How it stands.
        start: Seconds since 1970.
        end: The same; None where it has not ended.
        note: Its outcome, in few words.
        loop_id: The loop that did it.
        call_id: The call, for a tool.
        question: The id of the question that a person is asked about it; empty where nobody is.
        tokens: Input and output together, for a request and a loop.
        cost: In the currency of the prices, where it is known.
        positions: Where its entries stand in the log.
    """

    id: int
    parent: int | None
    kind: StepKind
    title: str
    status: StepStatus = "running"
    start: float = 0.0
    end: float | None = None
    note: str = ""
    loop_id: str = ""
    call_id: str = ""
    question: str = ""
    tokens: int = 0
    cost: float | None = None
    positions: list[int] = field(default_factory=list[int])


class Timeline:
    """Makes steps of the entries of one run, one entry at a time.

    Attributes:
        steps: The steps so far, in the order in which they began.
        changes: The ids of steps in the order in which they were made or changed; one for each entry at most.
        next_position: Where the next entry to add stands.
    """

    def __init__(self) -> None:
        self.steps: list[RunStep] = []
        self.changes: list[int] = []
        self.next_position = 0
        self.step_at: dict[int, int] = {}
        """The step that an entry belongs to, by the entry's position."""
        self._loops: dict[str, RunStep] = {}
        self._requests: dict[str, RunStep] = {}
        self._calls: dict[tuple[str, str], RunStep] = {}
        self._takers: dict[str, Callable[[LogEntry, Mapping[str, Any]], RunStep | None]] = {
            "loop_opened": self._open_loop,
            "run_start": self._start_loop,
            "iteration_start": self._start_request,
            "request_made": self._make_request,
            "text_delta": self._take_delta,
            "reasoning_delta": self._take_delta,
            "response_received": self._take_response,
            "provider_retried": self._retry_request,
            "tool_call_repaired": self._take_repair,
            "approval_requested": self._ask_approval,
            "question_asked": self._ask_question,
            "question_answered": self._answer_question,
            "tool_call_refused": self._refuse_call,
            "tool_execution_start": self._start_call,
            "tool_execution_update": self._take_report,
            "tool_progress": self._take_report,
            "tool_execution_end": self._end_call,
            "loop_detected": self._note_detection,
            "compacted": self._note_compaction,
            "entries_dropped": self._note_gap,
            "done": self._end_loop,
            "failed": self._end_loop,
        }

    def add(self, entry: LogEntry) -> None:
        """Take an entry into account."""
        self.next_position = entry.next_position
        take = self._takers.get(entry.kind)
        if take is None:
            return
        step = take(entry, entry.plain)
        if step is not None:
            if len(step.positions) >= _MOST_ENTRIES:
                del step.positions[_MOST_ENTRIES // 2]
            step.positions.append(entry.position)
            self.step_at[entry.position] = step.id
            self.changes.append(step.id)

    def close(self) -> None:
        """Mark what was going on as unended: the process of the run has ended, and no entry is to come."""
        for step in self.steps:
            if step.status == "running":
                step.status = "unended"
                self.changes.append(step.id)

    def _begin_step(self, kind: StepKind, title: str, entry: LogEntry, parent: RunStep | None, **facts: Any) -> RunStep:
        step = RunStep(
            id=len(self.steps),
            parent=None if parent is None else parent.id,
            kind=kind,
            title=title,
            start=entry.time,
            loop_id=entry.loop_id,
            **facts,
        )
        self.steps.append(step)
        return step

    def _find_loop(self, entry: LogEntry) -> RunStep:
        """Return the step of the entry's loop; made here where the log has lost its begin."""
        step = self._loops.get(entry.loop_id)
        if step is None:
            plain = entry.plain
            parent_loop = str(plain.get("parent_loop_id") or "")
            parent = self._calls.get((parent_loop, str(plain.get("parent_call_id") or ""))) or self._find_open_call(
                parent_loop
            )
            outermost = self.steps[0] if self.steps else None
            parent = parent or self._loops.get(parent_loop) or outermost
            step = self._loops[entry.loop_id] = self._begin_step(
                "loop", "run" if parent is None else "loop", entry, parent
            )
        return step

    def _find_open_call(self, loop_id: str) -> RunStep | None:
        """Return the one call of a loop that is running, where it is only one."""
        open_calls = [
            step for (loop, _), step in self._calls.items() if loop == loop_id and loop and step.status == "running"
        ]
        return open_calls[0] if len(open_calls) == 1 else None

    def _find_call(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        call_id = str(plain.get("call_id") or "")
        key = (entry.loop_id, call_id)
        step = self._calls.get(key)
        if step is None or (step.end is not None and entry.kind != "question_answered"):
            loop = self._find_loop(entry)
            title = str(plain.get("label") or plain.get("tool_name") or "")
            step = self._calls[key] = self._begin_step("tool", title, entry, loop, call_id=call_id)
        return step

    # one for each kind of entry

    def _open_loop(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_loop(entry)
        step.title = str(plain.get("agent") or step.title)
        return step

    def _start_loop(self, entry: LogEntry, _: Mapping[str, Any]) -> RunStep:
        step = self._find_loop(entry)
        step.status, step.end = "running", None
        return step

    def _start_request(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._begin_step("model", f"request {plain.get('iteration', '')}".strip(), entry, self._find_loop(entry))
        self._requests[entry.loop_id] = step
        return step

    def _make_request(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._requests.get(entry.loop_id)
        if step is None or step.end is not None:
            step = self._start_request(entry, plain)
        step.title = str(plain.get("model") or step.title)
        return step

    def _take_delta(self, entry: LogEntry, _: Mapping[str, Any]) -> RunStep | None:
        return self._requests.get(entry.loop_id)

    def _take_response(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._requests.get(entry.loop_id) or self._start_request(entry, plain)
        response = read_object(plain, "response")
        usage = read_object(response, "usage")
        step.title = str(response.get("model") or step.title)
        step.status, step.end = "done", entry.time
        step.tokens = int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
        step.cost = usage.get("cost")
        step.note = str(response.get("stop_reason") or "")
        return step

    def _retry_request(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        error = read_object(plain, "error")
        step = self._begin_step("retry", f"retry after {error.get('type', 'an error')}", entry, self._find_loop(entry))
        step.status, step.end = "error", entry.time + float(plain.get("delay") or 0.0)
        step.note = f"attempt {plain.get('attempt')}"
        return step

    def _take_repair(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        step.note = f"{plain.get('kind')} repaired"
        return step

    def _ask_approval(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        step.status = "waiting"
        step.note = "approval"
        return step

    def _ask_question(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._ask_approval(entry, plain)
        step.question = str(plain.get("question") or "")
        return step

    def _answer_question(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        step.question = ""
        step.note = str(plain.get("answer") or "")
        if step.status == "waiting":
            step.status = "running"
        return step

    def _refuse_call(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        step.status, step.end, step.question = "refused", entry.time, ""
        return step

    def _start_call(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        step.status, step.question = "running", ""
        return step

    def _take_report(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        step.note = str(plain.get("text") or step.note)[:100]
        return step

    def _end_call(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        result = read_object(plain, "result")
        step.status = "error" if result.get("is_error") else "done"
        step.end, step.question = entry.time, ""
        step.note = "cached" if plain.get("is_cached") else ""
        return step

    def _note_detection(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        return self._add_note(entry, f"{plain.get('tool_name')} repeated {plain.get('count')} times", "error")

    def _note_compaction(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        return self._add_note(
            entry, f"transcript shortened from {plain.get('before')} to {plain.get('after')} messages"
        )

    def _note_gap(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep | None:
        return self._add_note(entry, f"{plain.get('count')} entries are missing here", "error") if self.steps else None

    def _add_note(self, entry: LogEntry, title: str, status: StepStatus = "done") -> RunStep:
        parent = self._find_loop(entry) if entry.loop_id else self.steps[0]
        return self._begin_step("note", title, entry, parent, status=status, end=entry.time)

    def _end_loop(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_loop(entry)
        failure: Mapping[str, Any] | None = plain.get("error")
        result = read_object(plain, "result")
        usage = read_object(plain if failure is not None else result, "usage")
        step.status, step.end = ("done" if failure is None else "error"), entry.time
        reason = read_object(result, "reason")
        step.note = str(reason.get("kind", "") if failure is None else failure.get("type", ""))
        step.tokens = int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
        step.cost = usage.get("cost")
        self._end_open_steps(entry)
        return step

    def _end_open_steps(self, entry: LogEntry) -> None:
        """Mark what was going on in a loop that has ended, and forget its calls."""
        ended = [key for key in self._calls if key[0] == entry.loop_id]
        left = [self._calls.pop(key) for key in ended]
        request = self._requests.pop(entry.loop_id, None)
        for step in [*left, *([] if request is None else [request])]:
            if step.end is None:
                step.end, step.status, step.question = entry.time, "unended", ""
                self.changes.append(step.id)
