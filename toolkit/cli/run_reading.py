"""The commands of ``runs``: a run log is read, and shown to a person or a program."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.screen import OutputFormat, Screen, Style
from toolkit.cli.terminal import Terminal
from toolkit.run_log import (
    RunLog,
    RunStep,
    RunSummary,
    Timeline,
    export_lines,
    export_markdown,
    export_test,
)

__all__ = ["export_run", "list_runs", "show_run", "view_runs"]

_SHORT_ID = 8
_MOST_OF_A_SECOND = 50  # a folder of runs knows their seconds, no more
_STYLE_OF_STATUS: dict[str, Style] = {
    "ended": "good",
    "done": "good",
    "failed": "bad",
    "error": "bad",
    "refused": "bad",
    "unreadable": "bad",
    "cut off": "bad",
    "unended": "bad",
}


def list_runs(place: str, limit: int, output: OutputFormat) -> int:
    """Write the newest runs, one a line."""
    screen, log = Screen(output), _open_log(place)
    runs = sorted(log.runs(limit + _MOST_OF_A_SECOND), key=lambda run: run.started, reverse=True)[:limit]
    if screen.is_json:
        screen.document({"runs": [asdict(run) for run in runs]})
        return ExitCode.DONE
    for run in runs:
        _write_summary(screen, run)
    if not runs:
        screen.note(f"there are no runs in {log.place}")
    return ExitCode.DONE


def show_run(place: str, run_id: str, output: OutputFormat) -> int:
    """Write the steps of a run, each indented below what it is a part of."""
    screen, log = Screen(output), _open_log(place)
    summary = log.summary(_find_run(log, run_id))
    timeline = Timeline()
    for entry in log.read(summary.id):
        timeline.add(entry)
    if summary.state != "running":
        timeline.close()
    if screen.is_json:
        screen.document({"run": asdict(summary), "steps": [asdict(step) for step in timeline.steps]})
        return ExitCode.DONE
    _write_summary(screen, summary)
    if summary.error:
        screen.paragraph(summary.error, indent=2, style="bad")
    depths: dict[int | None, int] = {None: 0}
    for step in timeline.steps:
        depths[step.id] = depths.get(step.parent, 0) + 1
        _write_run_step(screen, step, depths[step.id], summary.started)
    return ExitCode.DONE


def export_run(place: str, run_id: str, form: Literal["lines", "markdown", "test"], output: OutputFormat) -> int:
    """Write a run in another form; as JSON, one document with the lines, or with the text."""
    screen, log = Screen(output), _open_log(place)
    found = _find_run(log, run_id)
    if screen.is_json:
        screen.document({"run": found, "form": form, **_export_values(log, found, form)})
        return ExitCode.DONE
    match form:
        case "lines":
            for line in export_lines(log, found):
                screen.stream(line)
        case "markdown":
            screen.stream(export_markdown(log, found))
        case "test":
            screen.stream(export_test(log, found))
    screen.end_line()
    return ExitCode.DONE


def _export_values(log: RunLog, run_id: str, form: Literal["lines", "markdown", "test"]) -> dict[str, Any]:
    if form == "lines":
        return {"entries": [json.loads(line) for line in export_lines(log, run_id)]}
    return {"text": export_markdown(log, run_id) if form == "markdown" else export_test(log, run_id)}


def view_runs(place: str, port: int, output: OutputFormat) -> int:
    """Serve the page until Ctrl-C."""
    from toolkit.ui import serve_viewer  # noqa: PLC0415 - an extra

    screen, log = Screen(output), _open_log(place)

    def tell(url: str) -> None:
        screen.say(url)
        if screen.is_json:
            screen.document({"url": url}, is_line=True)
        screen.note("open it in a browser of this machine; Ctrl-C ends it")

    async def main() -> int:
        await serve_viewer(log, port=port, on_ready=tell)
        return ExitCode.DONE

    return Terminal().run(main)


def _open_log(given: str) -> RunLog:
    if "://" in given:
        from toolkit.durable.log_store import open_durable_log  # noqa: PLC0415 - an extra

        return open_durable_log(given)
    place = Path(given)
    if not place.exists():
        raise CommandError(
            f"there are no runs at {place}: write some by `toolkit chat ... --log {place}`, or name another place by "
            "--log",
            ExitCode.MISUSED,
        )
    return RunLog(place)


def _find_run(log: RunLog, run_id: str) -> str:
    if run_id:
        return log.find(run_id)
    runs = log.runs(_MOST_OF_A_SECOND)
    if not runs:
        raise CommandError(f"there are no runs in {log.place}", ExitCode.MISUSED)
    return max(runs, key=lambda run: run.started).id


def _write_summary(screen: Screen, run: RunSummary) -> None:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    screen.stream(run.id[:_SHORT_ID], "strong")
    screen.stream(f"  {began}  ")
    screen.stream(run.state, _STYLE_OF_STATUS.get(run.state, "plain"))
    cost = "" if run.cost is None else f", ${run.cost:.4f}"
    ending = f" ({run.ending})" if run.ending else ""
    tokens = run.input_tokens + run.output_tokens
    screen.say(
        f"{ending}  {run.seconds:.1f} s, {run.requests} requests, {run.tool_calls} calls, {tokens:,} tokens{cost}"
    )
    about = " ".join(run.prompt.split())
    if run.problem or about:
        screen.paragraph(run.problem or about, indent=4, style="bad" if run.problem else "faint")


def _write_run_step(screen: Screen, step: RunStep, depth: int, began: float) -> None:
    seconds = "" if step.end is None else f"  {step.end - step.start:.2f} s"
    note = f"  {' '.join(step.note.split())}" if step.note else ""
    screen.stream(f"{max(step.start - began, 0):7.2f} {'  ' * depth}", "faint")
    screen.stream(f"{step.title} ", "call" if step.kind == "tool" else "plain")
    screen.stream(step.status, _STYLE_OF_STATUS.get(step.status, "plain"))
    screen.say(f"{seconds}{note}", "faint")
