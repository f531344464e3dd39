"""The steps of a run, with start, end and details, and its export as JSON lines, Markdown or a test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pprint import pformat
from typing import Any, Literal, TypeAlias, get_args

from toolkit.calls.output import READER
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.loop.config import ANSWER_TOOL
from toolkit.loop.outcome import name_ending
from toolkit.run_log.entries import LogEntry, RunState, RunSummary, join_texts, read_object, write_line
from toolkit.run_log.log import RunLog

StepKind: TypeAlias = Literal["loop", "model", "tool", "retry", "note"]

StepStatus: TypeAlias = Literal["running", "waiting", "done", "error", "refused", "unended"]
"""``waiting`` awaits a person's decision; an ``unended`` step was open when its loop or process ended."""

_CALL_KINDS = (
    "tool_call_repaired",
    "approval_requested",
    "question_asked",
    "question_answered",
    "tool_call_refused",
    "tool_execution_start",
    "tool_execution_update",
    "tool_progress",
    "tool_execution_end",
)
_MOST_ENTRIES = 2_000  # positions stored per step; a call with more updates is shown by the newest
SectionKind: TypeAlias = Literal["facts", "text", "json", "message", "error", "question"]
_REPORTS = ("Progress", "Update")
_LOOP_FACTS = ("agent", "provider", "model", "loop_id", "parent_loop_id", "parent_call_id")
ExportForm: TypeAlias = Literal["lines", "markdown", "test"]
"""The formats in which a run can be exported."""
_WIDTH = 100
_PLAYABLE = ("complete", "result_as_answer", "max_iterations")
_OFFERED_BY_LOOP = (ANSWER_TOOL, READER)
_TEST = '''"""Run {short} of {started}, played again."""

import json

from toolkit import Deny, ToolLoopConfig, ToolOutput, ToolRegistry, tool_from_schema_with_ctx, tool_loop_sync
from toolkit.chat import load_messages
from toolkit.chat.provider import response_from_plain
from toolkit.events import ToolExecutionStart
from toolkit.testing import ScriptedProvider

MESSAGES = {messages}

REPLIES = {replies}

TOOLS = {tools}

OUTPUTS = {outputs}
"""The result of each call: the text, and how it counted."""

REFUSED = {refused}
"""Calls that did not run."""


def make_stub(name):
    async def give_output(context, arguments):
        text, facts = OUTPUTS[context.call_id]
        return ToolOutput(text, **facts)

    return tool_from_schema_with_ctx(name, TOOLS[name]["description"], TOOLS[name]["parameters"], give_output)


def test_run_{short}():
    registry = ToolRegistry([make_stub(name) for name in TOOLS])  # or your own, to test your tools
    called = []

    def take_event(event):
        if isinstance(event, ToolExecutionStart):
            called.append((event.tool_name, json.loads(event.arguments_json)))

    provider = ScriptedProvider([response_from_plain(reply) for reply in REPLIES])
    config = ToolLoopConfig(
        on_event=take_event,
        on_tool_call=lambda request: Deny(OUTPUTS[request.call_id][0]) if request.call_id in REFUSED else True,
        {limit},
    )
    result = tool_loop_sync(provider, registry, load_messages(json.dumps(MESSAGES)), config=config)

    assert called == {calls}
    assert provider.unplayed == 0
{ending}'''


@dataclass(slots=True, kw_only=True)
class RunStep:
    """A step of a run: a loop, a request or a call.

    Attributes:
        id: Its number in the run, from 0, in the order in which steps began.
        parent: The enclosing step; None for the outermost loop.
        depth: The number of enclosing steps.
        kind: The kind of step.
        title: The agent, the model or the tool.
        status: The state of the step.
        start: The start, in seconds since 1970.
        end: The end, in seconds since 1970; None if it has not ended.
        note: A short description of the outcome.
        loop_id: The loop of the step.
        call_id: The id of the call, for a tool.
        question: The id of the open question about it; empty if there is none.
        tokens: The input and output tokens, for a request or a loop.
        cost: The cost in the currency of the prices, if known.
        positions: The positions of its entries in the log.
    """

    id: int
    parent: int | None
    depth: int = 0
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
    """Builds the steps of a run from its entries, one at a time.

    Attributes:
        steps: The steps so far, in the order in which they began.
        changes: The ids of steps in the order in which they were created or changed; at most one for each entry.
        next_position: The position of the next entry to add.
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
        self._handlers: dict[str, Callable[[LogEntry, Mapping[str, Any]], RunStep | None]] = {
            "loop_opened": self._open_loop,
            "run_start": self._start_loop,
            "iteration_start": self._start_request,
            "request_made": self._make_request,
            "text_delta": self._handle_delta,
            "reasoning_delta": self._handle_delta,
            "response_received": self._handle_response,
            "provider_retried": self._retry_request,
            **dict.fromkeys(_CALL_KINDS, self._change_call),
            **dict.fromkeys(("loop_detected", "compacted", "entries_dropped"), self._add_note),
            "done": self._end_loop,
            "failed": self._end_loop,
        }

    def add(self, entry: LogEntry) -> None:
        """Add an entry."""
        self.next_position = entry.next_position
        take = self._handlers.get(entry.kind)
        if take is None:
            return
        step = take(entry, entry.plain)
        if step is not None:
            if len(step.positions) >= _MOST_ENTRIES:
                del step.positions[_MOST_ENTRIES // 2]
            step.positions.append(entry.position)
            self.step_at[entry.position] = step.id
            self.changes.append(step.id)

    @classmethod
    def of_entries(cls, entries: Iterable[LogEntry], state: RunState) -> Timeline:
        """Return the timeline of a run in the given state, from all of its entries."""
        timeline = cls()
        for entry in entries:
            timeline.add(entry)
        if state != "running":
            timeline.close()
        return timeline

    def close(self) -> None:
        """Mark open steps as unended: the process of the run has ended, and no more entries will follow."""
        for step in self.steps:
            if step.status == "running":
                step.status = "unended"
                self.changes.append(step.id)

    def _begin_step(self, kind: StepKind, title: str, entry: LogEntry, parent: RunStep | None, **facts: Any) -> RunStep:
        step = RunStep(
            id=len(self.steps),
            parent=None if parent is None else parent.id,
            depth=0 if parent is None else parent.depth + 1,
            kind=kind,
            title=title,
            start=entry.time,
            loop_id=entry.loop_id,
            **facts,
        )
        self.steps.append(step)
        return step

    def _find_loop(self, entry: LogEntry) -> RunStep:
        """Return the step of the entry's loop; created here if the log lacks its start."""
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
        """Return the running call of a loop if there is exactly one; else None."""
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

    # A handler for each kind of entry.

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

    def _handle_delta(self, entry: LogEntry, _: Mapping[str, Any]) -> RunStep | None:
        return self._requests.get(entry.loop_id)

    def _handle_response(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._requests.get(entry.loop_id) or self._start_request(entry, plain)
        response = read_object(plain, "response")
        step.title = str(response.get("model") or step.title)
        step.status, step.end = "done", entry.time
        _set_usage(step, read_object(response, "usage"))
        step.note = str(response.get("stop_reason") or "")
        return step

    def _retry_request(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        error = read_object(plain, "error")
        step = self._begin_step("retry", f"retry after {error.get('type', 'an error')}", entry, self._find_loop(entry))
        step.status, step.end = "error", entry.time + float(plain.get("delay") or 0.0)
        step.note = f"attempt {plain.get('attempt')}"
        return step

    def _change_call(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_call(entry, plain)
        match entry.kind:
            case "tool_call_repaired":
                step.note = f"{plain.get('kind')} repaired"
            case "approval_requested" | "question_asked":
                step.status, step.note = "waiting", "approval"
                step.question = str(plain.get("question") or step.question)
            case "question_answered":
                step.status = "running" if step.status == "waiting" else step.status
                step.note, step.question = str(plain.get("answer") or ""), ""
            case "tool_call_refused":
                step.status, step.end, step.question = "refused", entry.time, ""
            case "tool_execution_start":
                step.status, step.question = "running", ""
            case "tool_execution_end":
                step.status = "error" if read_object(plain, "result").get("is_error") else "done"
                step.end, step.question = entry.time, ""
                step.note = "cached" if plain.get("is_cached") else ""
            case _:
                step.note = str(plain.get("text") or step.note)[:100]
        return step

    def _add_note(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep | None:
        status: StepStatus = "error"
        match entry.kind:
            case "loop_detected":
                title = f"{plain.get('tool_name')} repeated {plain.get('count')} times"
            case "compacted":
                title = f"transcript shortened from {plain.get('before')} to {plain.get('after')} messages"
                status = "done"
            case _:
                title = f"{plain.get('count')} entries are missing here"
        if entry.kind == "entries_dropped" and not self.steps:
            return None
        parent = self._find_loop(entry) if entry.loop_id else self.steps[0]
        return self._begin_step("note", title, entry, parent, status=status, end=entry.time)

    def _end_loop(self, entry: LogEntry, plain: Mapping[str, Any]) -> RunStep:
        step = self._find_loop(entry)
        failure: Mapping[str, Any] | None = plain.get("error")
        result = read_object(plain, "result")
        reason = read_object(result, "reason")
        step.status, step.end = ("done" if failure is None else "error"), entry.time
        ending = name_ending(str(reason.get("kind", "")), reason.get("stop"))
        step.note = ending if failure is None else str(failure.get("type", ""))
        _set_usage(step, read_object(plain if failure is not None else result, "usage"))
        self._end_open_steps(entry)
        return step

    def _end_open_steps(self, entry: LogEntry) -> None:
        """Mark the open steps of a finished loop as unended, and drop its calls."""
        ended = [key for key in self._calls if key[0] == entry.loop_id]
        left = [self._calls.pop(key) for key in ended]
        request = self._requests.pop(entry.loop_id, None)
        for step in [*left, *([] if request is None else [request])]:
            if step.end is None:
                step.end, step.status, step.question = entry.time, "unended", ""
                self.changes.append(step.id)


def _set_usage(step: RunStep, usage: Mapping[str, Any]) -> None:
    step.tokens = int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
    step.cost = usage.get("cost")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the details of a step.

    Args:
        title: The title, such as ``Arguments`` or the role of a message.
        kind: The kind of presentation.
        text: The text; empty for ``facts``.
        facts: The names and values of ``facts``.
    """

    title: str
    kind: SectionKind
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


def describe_step(entries: Iterable[LogEntry]) -> list[Section]:
    """Return the sections of a step from its entries, in order; see `RunStep.positions`."""
    sections: list[Section] = []
    reply: dict[str, list[str]] = {"text_delta": [], "reasoning_delta": []}
    for entry in entries:
        if entry.kind in reply:
            reply[entry.kind].append(str(entry.plain.get("text", "")))
            continue
        if entry.kind in ("response_received", "provider_retried"):
            reply = {kind: [] for kind in reply}
        describe = _DESCRIBERS.get(entry.kind)
        for section in () if describe is None else describe(entry.plain):
            _add_section(sections, section)
    for kind, title in (("reasoning_delta", "Reasoning so far"), ("text_delta", "Reply so far")):
        if reply[kind]:
            sections.append(Section(title, "message", "".join(reply[kind])))
    return sections


def _add_section(sections: list[Section], section: Section) -> None:
    """Append a section, joining successive progress reports of a call."""
    last = sections[-1] if sections else None
    if last is not None and last.title == section.title and section.title in _REPORTS:
        sections[-1] = replace(last, text=f"{last.text}\n{section.text}")
    else:
        sections.append(section)


def _describe_asked(plain: Mapping[str, Any]) -> list[Section]:
    known = int(plain.get("known_messages") or 0)
    sections = [Section("Before that", "text", f"{known} messages, as they were asked before.")] if known else []
    for message in plain.get("messages") or ():
        sections += describe_message(message)
    tools = [str(each.get("name")) for each in plain.get("definitions") or ()]
    if tools:
        sections.append(Section(f"Tools offered ({len(tools)})", "text", ", ".join(tools)))
    return sections


def describe_message(message: Mapping[str, Any]) -> list[Section]:
    """Return the sections of one message of a transcript."""
    role, content = str(message.get("role", "")), message.get("content")
    title = f"{role}: {message['tool_name']}" if message.get("tool_name") else role
    if isinstance(content, str):
        return [Section(title, "error" if message.get("is_error") else "message", content)] if content else []
    return [_describe_content(title, block) for block in content or ()]


def _describe_content(title: str, block: Mapping[str, Any]) -> Section:
    if block.get("type") == "call":
        return Section(f"{title} calls {block.get('name')}", "json", lay_out_json(block.get("arguments")))
    suffix = ", reasoning" if block.get("type") == "reasoning" else ""
    return Section(f"{title}{suffix}", "message", str(block.get("text", "")))


def _describe_reply(plain: Mapping[str, Any]) -> list[Section]:
    response = read_object(plain, "response")
    sections = describe_message(read_object(response, "message"))
    facts = {name: response.get(name) for name in ("model", "stop_reason", "request_id")}
    return [
        *[replace(section, title=section.title.replace("assistant", "Reply", 1)) for section in sections],
        _list_facts("Answer", {**facts, **read_object(response, "usage")}),
    ]


def _describe_retry(plain: Mapping[str, Any]) -> list[Section]:
    facts = {"attempt": plain.get("attempt"), "seconds until the next": plain.get("delay")}
    facts |= read_object(plain, "error")
    text = str(facts.pop("message", ""))
    return [Section("Error", "error", text), _list_facts("Retry", facts)]


def _describe_repair(plain: Mapping[str, Any]) -> list[Section]:
    assumed = "\n".join([f"({each})" for each in plain.get("assumed") or ()])
    text = f"{plain.get('before')}\nas\n{plain.get('after')}\n{assumed}".strip()
    return [Section(f"Repaired {plain.get('kind')}", "text", text)]


def _describe_asking(plain: Mapping[str, Any]) -> list[Section]:
    reason = plain.get("reason") or "Somebody is asked whether it may run."
    who = f"For sub-agent {plain['agent']}. " if plain.get("agent") else ""
    return [Section("Approval", "text", f"{who}{reason}")]


def _describe_result(plain: Mapping[str, Any]) -> list[Section]:
    result = read_object(plain, "result")
    sections = describe_message({**result, "role": "Result", "tool_name": ""})
    if result.get("is_error"):
        sections = [replace(section, title="Error", kind="error") for section in sections]
    facts: dict[str, Any] = {"cached": "yes"} if plain.get("is_cached") else {}
    if plain.get("duration"):
        facts["ran for"] = f"{plain['duration']:.3f} s"
    if plain.get("error"):
        facts["raised"] = f"{plain['error'].get('type')}: {plain['error'].get('message')}"
    if plain.get("tags"):
        facts["tags"] = ", ".join(plain["tags"])
    return [*sections, *([_list_facts("Call", facts)] if facts else [])]


def _describe_end(plain: Mapping[str, Any]) -> list[Section]:
    failure: Mapping[str, Any] | None = plain.get("error")
    if failure is not None:
        return [Section("Failed", "error", f"{failure.get('type')}: {failure.get('message')}")]
    result = read_object(plain, "result")
    facts = {"requests": result.get("iterations"), "turns with tools": result.get("tool_rounds")}
    sections = [Section("Answer", "message", str(result.get("text")))] if result.get("text") else []
    if result.get("output") is not None:
        sections.append(Section("Output", "json", lay_out_json(result["output"])))
    return [*sections, _list_facts("End", {**read_object(result, "reason"), **facts, **read_object(result, "usage")})]


def _list_facts(title: str, plain: Mapping[str, Any]) -> Section:
    known = {name.replace("_", " "): value for name, value in plain.items() if value not in (None, "", [], {})}
    written = {name: value if isinstance(value, str) else _dump_json(value) for name, value in known.items()}
    return Section(title, "facts", facts=written)


def _dump_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def lay_out_json(value: object) -> str:
    """Return a JSON value, or a text that may be JSON, with indentation."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return _dump_json(value, indent=2)


_DESCRIBERS: dict[str, Callable[[Mapping[str, Any]], list[Section]]] = {
    "loop_opened": lambda plain: [_list_facts("Loop", {name: plain.get(name) for name in _LOOP_FACTS})],
    "request_made": _describe_asked,
    "response_received": _describe_reply,
    "provider_retried": _describe_retry,
    "tool_call_repaired": _describe_repair,
    "approval_requested": _describe_asking,
    "question_asked": lambda plain: [Section("Arguments to approve", "question", lay_out_json(plain.get("preview")))],
    "question_answered": lambda plain: [
        Section("Decision", "text", f"{plain.get('answer')}. {plain.get('reason') or ''}".strip())
    ],
    "tool_execution_start": lambda plain: [Section("Arguments", "json", lay_out_json(plain.get("arguments")))],
    "tool_execution_update": lambda plain: describe_message({**read_object(plain, "output"), "role": "Update"}),
    "tool_progress": lambda plain: [Section("Progress", "text", str(plain.get("text", "")))],
    "tool_execution_end": _describe_result,
    "tool_call_refused": _describe_result,
    "done": _describe_end,
    "failed": _describe_end,
}


def export_run(log: RunLog, run_id: str, form: ExportForm) -> Iterator[str]:
    """Yield the text of an exported run in pieces."""
    match form:
        case "lines":
            return export_lines(log, run_id)
        case "markdown":
            return iter((export_markdown(log, run_id),))
        case "test":
            return iter((export_test(log, run_id),))
        case _:
            raise ConfigurationError(f"a run can be exported as {', '.join(get_args(ExportForm))}, not as {form!r}")


def export_lines(log: RunLog, run_id: str) -> Iterator[str]:
    """Yield the entries of a run as JSON lines, unchanged.

    Raises:
        ConfigurationError: The run does not exist, or the file is not a run log.
    """
    for entry in log.read(run_id):
        yield write_line(entry.plain).decode()


def export_markdown(log: RunLog, run_id: str) -> str:
    """Return a run as a transcript in Markdown, with the arguments and results of each call.

    Raises:
        ConfigurationError: The run does not exist, or the file is not a run log.
    """
    summary, entries = log.summary(run_id), list(log.read(run_id))
    timeline = Timeline.of_entries(entries, summary.state)
    belonging: dict[int | None, list[LogEntry]] = {}
    for entry in entries:
        belonging.setdefault(timeline.step_at.get(entry.position), []).append(entry)
    steps = [_step_as_markdown(step, describe_step(belonging.get(step.id, ()))) for step in timeline.steps]
    return "\n".join([_head_of(summary), *steps])


def _head_of(summary: RunSummary) -> str:
    started = datetime.fromtimestamp(summary.started, UTC)
    cost = "" if summary.cost is None else f", cost {summary.cost:.6g}"
    ending = f" ({summary.ending})" if summary.ending else ""
    facts = [
        f"{summary.state}{ending}",
        f"{started:%Y-%m-%d %H:%M:%S} UTC",
        f"{summary.seconds:.2f} s",
        f"{summary.requests} requests",
        f"{summary.tool_calls} tool calls ({summary.tool_errors} failed)",
        f"{summary.input_tokens} + {summary.output_tokens} tokens{cost}",
    ]
    lines = [f"# Run {summary.id}", "", ", ".join(facts), ""]
    if summary.problem:
        lines += [f"The log: {summary.problem}", ""]
    return "\n".join(lines)


def _step_as_markdown(step: RunStep, sections: Iterable[Section]) -> str:
    took = "" if step.end is None else f", {step.end - step.start:.3f} s"
    heading = "#" * min(6, step.depth + 2)
    lines = [f"{heading} {step.kind} {step.title} ({step.status}{took})".replace("\n", " "), ""]
    for section in sections:
        if section.kind == "facts":
            lines += [f"- {name}: {value}" for name, value in section.facts.items()]
        else:
            lines += [f"**{section.title}**".replace("\n", " "), "", _fence_text(section.text)]
        lines.append("")
    return "\n".join(lines)


def _fence_text(text: str) -> str:
    """Return a text as a code block, with a fence longer than any run of backticks in it."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}\n{text}\n{ticks}"


def export_test(log: RunLog, run_id: str) -> str:
    """Return a run as the source of a pytest test: the model's replies as a script, and assertions on the outcome.

    The tools are stubs that return the logged outputs; replace them with your own registry to test your tools. A
    sub-agent is also a stub: its own run is not replayed.

    Raises:
        ConfigurationError: The run does not exist, its contents were not logged, or no model answered in it.
    """
    header = next(iter(log.read(run_id))).plain
    if header.get("content") != "all":
        raise ConfigurationError(f"run {run_id} was written without contents, so that there is nothing to play again")
    played = _Played(run_id, log.read(run_id))
    if not played.replies:
        raise ConfigurationError(f"no model has answered in run {run_id}, so that there is nothing to play again")
    return _TEST.format(
        short=run_id[:12],
        started=f"{datetime.fromtimestamp(header['time'], UTC):%Y-%m-%d %H:%M} UTC",
        messages=_lay_out(played.messages),
        replies=_lay_out(played.replies),
        tools=_lay_out(played.tools),
        outputs=_lay_out(played.outputs),
        refused=_lay_out(played.refused),
        calls=_lay_out(played.calls),
        limit=f"max_iterations={played.most_rounds}",
        ending=_assert_ending(played.text, played.kind),
    )


def _assert_ending(text: str, kind: str) -> str:
    """Return the assertions on the ending, unless it depends on something that is not replayed."""
    if kind not in _PLAYABLE:
        return f"    # The run ended as {kind or 'a failure'}, which was not the model's doing.\n"
    return f"    assert result.reason.kind == {kind!r}\n    assert result.text == {_lay_out(text)}\n"


class _Played:
    """The parts of a run's outermost loop that a test needs."""

    def __init__(self, run_id: str, entries: Iterable[LogEntry]) -> None:
        self.messages: list[Any] = []
        self.replies: list[Any] = []
        self.tools: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.calls: list[tuple[str, Any]] = []
        self.text = ""
        self.kind = ""
        self.refused: list[str] = []
        self.most_rounds = 10
        for entry in entries:
            if entry.loop_id == run_id:
                self._add_entry(entry.kind, entry.plain)

    def _add_entry(self, kind: str, plain: Mapping[str, Any]) -> None:
        match kind:
            case "request_made":
                if not self.replies:
                    self.messages = list(plain["messages"])
                for tool in plain.get("definitions") or ():
                    if tool["name"] in _OFFERED_BY_LOOP:
                        continue
                    self.tools[tool["name"]] = {key: tool[key] for key in ("description", "parameters")}
            case "response_received":
                self.replies.append(plain["response"])
            case "tool_execution_start":
                self.calls.append((plain["tool_name"], plain["arguments"]))
            case "tool_execution_end" | "tool_call_refused":
                result = plain["result"]
                facts = {name: result[name] for name in ("is_error", "result_as_answer") if result[name]}
                self.outputs[plain["call_id"]] = (join_texts(result["content"]), facts)
                if kind == "tool_call_refused":
                    self.refused.append(plain["call_id"])
            case "done":
                result, reason = plain["result"], plain["result"]["reason"]
                self.text, self.kind = result["text"], reason["kind"]
                self.most_rounds = reason["limit"] if self.kind == "max_iterations" else result["tool_rounds"] + 1
            case _:
                pass


def _lay_out(value: object) -> str:
    return pformat(value, width=_WIDTH, sort_dicts=False)
