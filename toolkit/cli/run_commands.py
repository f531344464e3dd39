"""The commands ``runs`` and ``worker``: logged runs shown and exported, and durable runs moved on."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import anyio

from toolkit.cli.screen import CommandError, ExitCode, OutputFormat, Screen, Style
from toolkit.cli.sources import find_member, import_module
from toolkit.cli.terminal import Terminal
from toolkit.loop.middleware import Middleware
from toolkit.run_log import ExportForm, RunLog, RunStep, RunSummary, Timeline, export_run

_SHORT_ID = 8
_NEWEST = 50  # a folder of runs records their times in whole seconds: of as many, the newest is looked for
_BAD = ("failed", "error", "refused", "unreadable", "cut off", "unended")
_STYLES: dict[str, Style] = {"ended": "good", "done": "good", **dict.fromkeys(_BAD, "bad")}
_IMPORT_SECONDS = 60.0
_DAY = 86_400.0
_Kind = TypeVar("_Kind")


@contextmanager
def log_runs(place: Path | None) -> Generator[tuple[Middleware[Any], ...]]:
    """Give the middleware that logs runs there, if a place is given; everything is written when the block ends.

    Raises:
        ConfigurationError: It is a file that is no run log.
    """
    if place is None:
        yield ()
        return
    log = RunLog(place)
    try:
        yield (log,)
    finally:
        log.flush()


def list_runs(log: str, limit: int, output: OutputFormat) -> int:
    """Write the newest runs, one a line."""
    screen, opened = Screen(output), _open_log(log)
    runs = sorted(opened.runs(limit + _NEWEST), key=lambda run: run.started, reverse=True)[:limit]
    if screen.is_json:
        screen.document({"runs": [asdict(run) for run in runs]})
        return ExitCode.DONE
    for run in runs:
        _write_summary(screen, run)
    if not runs:
        screen.note(f"there are no runs in {opened.place}")
    return ExitCode.DONE


def show_run(run: str, log: str, output: OutputFormat) -> int:
    """Write the steps of a run, each indented below its parent."""
    screen, opened = Screen(output), _open_log(log)
    summary = opened.summary(_find_run(opened, run))
    timeline = Timeline.of_entries(opened.read(summary.id), summary.state)
    if screen.is_json:
        screen.document({"run": asdict(summary), "steps": [asdict(step) for step in timeline.steps]})
        return ExitCode.DONE
    _write_summary(screen, summary)
    if summary.error:
        screen.paragraph(summary.error, indent=2, style="bad")
    for step in timeline.steps:
        _write_step(screen, step, summary.started)
    return ExitCode.DONE


def write_export(run: str, log: str, form: ExportForm, output: OutputFormat) -> int:
    """Write a run in another form; as JSON, one document with the lines, or with the text."""
    screen, opened = Screen(output), _open_log(log)
    found = _find_run(opened, run)
    pieces = export_run(opened, found, form)
    if screen.is_json:
        content = {"entries": list(map(json.loads, pieces))} if form == "lines" else {"text": "".join(pieces)}
        screen.document({"run": found, "form": form, **content})
    for piece in () if screen.is_json else pieces:
        screen.stream(piece)
    screen.end_line()
    return ExitCode.DONE


def view_runs(log: str, port: int, output: OutputFormat) -> int:
    """Serve the page until Ctrl-C."""
    from toolkit.ui import serve_viewer  # an extra

    screen, opened = Screen(output), _open_log(log)

    def show_link(url: str) -> None:
        screen.say(url)
        if screen.is_json:
            screen.document({"url": url}, is_line=True)
        screen.note("open it in a browser of this machine; Ctrl-C ends it")

    async def main() -> int:
        await serve_viewer(opened, port=port, on_ready=show_link)
        return ExitCode.DONE

    return Terminal().run(main)


def _open_log(given: str) -> RunLog:
    if "://" in given:
        from toolkit.durable.event_reader import open_durable_log  # an extra

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
    runs = log.runs(_NEWEST)
    if not runs:
        raise CommandError(f"there are no runs in {log.place}", ExitCode.MISUSED)
    return max(runs, key=lambda run: run.started).id


def _write_summary(screen: Screen, run: RunSummary) -> None:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    screen.stream(run.id[:_SHORT_ID], "strong")
    screen.stream(f"  {began}  ")
    screen.stream(run.state, _STYLES.get(run.state, "plain"))
    cost = "" if run.cost is None else f", ${run.cost:.4f}"
    ending = f" ({run.ending})" if run.ending else ""
    tokens = run.input_tokens + run.output_tokens
    screen.say(
        f"{ending}  {run.seconds:.1f} s, {run.requests} requests, {run.tool_calls} calls, {tokens:,} tokens{cost}"
    )
    about = " ".join(run.prompt.split())
    if run.problem or about:
        screen.paragraph(run.problem or about, indent=4, style="bad" if run.problem else "faint")


def _write_step(screen: Screen, step: RunStep, began: float) -> None:
    seconds = "" if step.end is None else f"  {step.end - step.start:.2f} s"
    note = f"  {' '.join(step.note.split())}" if step.note else ""
    screen.stream(f"{max(step.start - began, 0):7.2f} {'  ' * (step.depth + 1)}", "faint")
    screen.stream(f"{step.title} ", "call" if step.kind == "tool" else "plain")
    screen.stream(step.status, _STYLES.get(step.status, "plain"))
    screen.say(f"{seconds}{note}", "faint")


def run_worker(
    words: Sequence[str], database: str, encryption: str, keep_days: float | None, output: OutputFormat, **options: Any
) -> int:
    """Move durable runs until a signal comes; `options` are further arguments of `DurableWorker`."""
    from toolkit.durable import DurableLoop, DurableWorker, Encryption  # an extra

    loops: list[DurableLoop[Any, Any]] = []
    for word in words:
        found = [_find_kind(word, DurableLoop)] if ":" in word else _find_all(word, DurableLoop)
        loops += found
    key = _find_kind(encryption, Encryption) if encryption else None
    keep_seconds = None if keep_days is None else keep_days * _DAY
    screen, names = Screen(output), [loop.name for loop in loops]

    async def main() -> int:
        async with DurableWorker(loops, database, encryption=key, keep_seconds=keep_seconds, **options) as worker:
            screen.say(f"worker {worker.executor} moves runs of {', '.join(names)}")
            if screen.is_json:
                screen.document({"worker": worker.executor, "loops": names}, is_line=True)
            screen.note("SIGTERM or Ctrl-C ends it: runs that move come to rest, or go on at another worker")
            await anyio.sleep_forever()
        return ExitCode.DONE

    return Terminal().run(main)


def _find_all(word: str, kind: type[_Kind]) -> list[_Kind]:
    found = [value for value in vars(import_module(word, _IMPORT_SECONDS)).values() if isinstance(value, kind)]
    if not found:
        raise CommandError(f"{word} has no durable loop: make one by toolkit.durable.durable_loop", ExitCode.MISUSED)
    return found


def _find_kind(word: str, kind: type[_Kind]) -> _Kind:
    module, _, name = word.rpartition(":")
    if not module:
        raise CommandError(f"{word} names no {kind.__name__}: write MODULE:NAME or FILE.py:NAME", ExitCode.MISUSED)
    found = find_member(import_module(module, _IMPORT_SECONDS), name, module)
    if not isinstance(found, kind):
        raise CommandError(f"{word} is no {kind.__name__}", ExitCode.MISUSED)
    return found
