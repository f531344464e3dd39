"""A run for others: as JSON lines, as a transcript in Markdown, and as a test that plays it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pprint import pformat
from typing import Any, Literal, TypeAlias, get_args

from toolkit.calls.output import READER
from toolkit.errors import ConfigurationError
from toolkit.loop.config import ANSWER_TOOL
from toolkit.run_log.entries import LogEntry, RunSummary, join_texts, write_line
from toolkit.run_log.log import RunLog
from toolkit.run_log.timeline import RunStep, Section, Timeline, describe_step

ExportForm: TypeAlias = Literal["lines", "markdown", "test"]
"""The forms that a run can be exported in."""

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


def export_run(log: RunLog, run_id: str, form: ExportForm) -> Iterator[str]:
    """Return the pieces of the text of a run in a form.

    Raises:
        ConfigurationError: There is no such form or run, it is no run log, or it can't be played again.
    """
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
    """Yield the entries of a run as JSON lines, as they are in the log.

    Raises:
        ConfigurationError: There is no such run, or it is no run log.
    """
    for entry in log.read(run_id):
        yield write_line(entry.plain).decode()


def export_markdown(log: RunLog, run_id: str) -> str:
    """Return a run as a transcript in Markdown, with the arguments and results of each call.

    Raises:
        ConfigurationError: There is no such run, or it is no run log.
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
    """Return a text as a code block, with a longer fence than any run of backticks in it."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}\n{text}\n{ticks}"


def export_test(log: RunLog, run_id: str) -> str:
    """Return a run as the source of a pytest test: the model's replies as a script, with assertions on the outcome.

    The tools are stubs that return the logged outputs; replace them with your own registry to test your tools.
    A sub-agent is such a tool: its own run is not replayed.

    Raises:
        ConfigurationError: There is no such run, its contents were not logged, or no model answered in it.
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
    """Return the assertions on the end, unless it depends on something that is not played again."""
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
