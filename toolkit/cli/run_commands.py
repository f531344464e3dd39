"""The commands ``runs`` and ``worker``: show and export logged runs, manage and execute durable ones."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio

from toolkit.cli.screen import Command, CommandError, ExitCode, MisuseError, Screen, Style, Terminal
from toolkit.cli.sources import find_member, import_module
from toolkit.loop.middleware import Middleware
from toolkit.policies import Abort, Approve, Deny, Modify
from toolkit.run_log import ExportForm, RunLog, RunStep, RunSummary, Timeline, export_run

_SHORT_ID = 8
_NEWEST = 50  # a folder of runs has their times in whole seconds, so the newest is one of these
_BAD = ("failed", "error", "refused", "unreadable", "cut off", "unended")
_STYLES: dict[str, Style] = {"ended": "good", "done": "good", **dict.fromkeys(_BAD, "bad")}
_IMPORT_SECONDS = 60.0
_DAY = 86_400.0
_Kind = TypeVar("_Kind")


@contextmanager
def log_runs(place: Path | None) -> Generator[tuple[Middleware[Any], ...]]:
    """Yield the middleware that logs runs to a place, if one is given; the log is flushed when the block ends."""
    if place is None:
        yield ()
        return
    log = RunLog(place)
    try:
        yield (log,)
    finally:
        log.flush()


def list_runs(command: Command, log: str, limit: int, encryption: str, after: str | None, **filters: Any) -> int:
    """Write the newest runs, one a line."""
    if "://" in log:
        return _list_durable_runs(log, encryption, limit, after, filters, command.screen)
    if after is not None or any(filters.values()):
        raise MisuseError("runs are filtered in a database of durable runs: give its URL by --log")
    screen, opened = command.screen, _open_log(log)
    runs = sorted(opened.runs(limit + _NEWEST), key=lambda run: run.started, reverse=True)[:limit]
    screen.document({"runs": [asdict(run) for run in runs]})
    for run in runs:
        _write_summary(screen, run)
    if not runs:
        screen.note(f"there are no runs in {opened.place}")
    return ExitCode.DONE


def show_run(command: Command, run: str, log: str, encryption: str) -> int:
    """Write the steps of a run, indented below their parents; of a durable run also its state and calls."""
    screen, opened = command.screen, _open_log(log, encryption)
    status = _read_durable_status(log, run, encryption)
    if status is not None and not status.last_seq:  # nothing of it was logged yet
        screen.document({"run": None, "steps": [], "status": asdict(status)})
        _show_status(status, screen)
        return ExitCode.DONE
    summary = opened.summary(_find_run(opened, run))
    timeline = Timeline.of_entries(opened.read(summary.id), summary.state)
    more = {} if status is None else {"status": asdict(status)}
    screen.document({"run": asdict(summary), "steps": [asdict(step) for step in timeline.steps], **more})
    if status is None:
        _write_summary(screen, summary)
        if summary.error:
            screen.paragraph(summary.error, indent=2, style="bad")
    else:
        _show_status(status, screen)
    for step in timeline.steps:
        _write_step(screen, step, summary.started)
    return ExitCode.DONE


def write_export(command: Command, run: str, log: str, form: ExportForm) -> int:
    """Write a run in another form; as JSON, one document with the lines, or with the text."""
    screen, opened = command.screen, _open_log(log)
    found = _find_run(opened, run)
    pieces = export_run(opened, found, form)
    if screen.is_json:
        content = {"entries": list(map(json.loads, pieces))} if form == "lines" else {"text": "".join(pieces)}
        screen.document({"run": found, "form": form, **content})
    for piece in () if screen.is_json else pieces:
        screen.stream(piece)
    screen.end_line()
    return ExitCode.DONE


def view_runs(command: Command, log: str, port: int) -> int:
    """Serve the page until Ctrl-C."""
    from toolkit.ui import serve_viewer  # an extra

    screen, opened = command.screen, _open_log(log)

    async def main() -> int:
        await serve_viewer(opened, port=port, on_ready=partial(show_link, screen))
        return ExitCode.DONE

    return command.terminal.run(main)


def show_link(screen: Screen, url: str) -> None:
    """Write the link of a page."""
    screen.say(url)
    screen.document({"url": url}, is_line=True)
    screen.note("open it in a browser of this machine; Ctrl-C ends it")


def _list_durable_runs(
    url: str, encryption: str, limit: int, after: str | None, filters: dict[str, Any], screen: Screen
) -> int:
    async def list_page() -> tuple[list[Any], dict[Any, int]]:
        async with _open_durable_runs(url, encryption) as runs:
            return await runs.list(limit=limit, after=after, **filters), await runs.count(**filters)

    found, counts = anyio.run(list_page)
    screen.document({"runs": [asdict(each) for each in found], "counts": counts})
    for status in found:
        _show_status(status, screen)
    screen.note(", ".join(f"{count} {state}" for state, count in counts.items()))
    return ExitCode.DONE


def _read_durable_status(url: str, run: str, encryption: str) -> Any:
    """Return the status of a durable run; None if the log is no database of them, or the id is not complete."""
    if "://" not in url or not run:
        return None
    from toolkit.durable import DurableRunNotFoundError  # an extra

    async def read() -> Any:
        async with _open_durable_runs(url, encryption) as runs:
            try:
                return await (await runs.get(run)).status()
            except DurableRunNotFoundError:
                return None

    return anyio.run(read)


def _show_status(status: Any, screen: Screen) -> None:
    """Write the state of a durable run, and the calls that await decisions."""
    screen.stream(status.run_id, "strong")
    screen.stream(time.strftime("  %Y-%m-%d %H:%M:%S  ", time.localtime(status.updated)))
    screen.stream(status.state, _STYLES.get(status.state, "plain"))
    ending = f" ({status.ending})" if status.ending else ""
    tenant = f", tenant {status.tenant}" if status.tenant else ""
    screen.say(f"{ending}  loop {status.loop}{tenant}")
    if status.error:
        screen.paragraph(status.error, indent=4, style="bad")
    for pending in status.pending:
        decided = f"decided: {pending.decided}" if pending.decided else pending.reason
        screen.paragraph(f"call {pending.call_id} of {pending.tool_name} {pending.preview}  {decided}", indent=4)


def decide_call(
    command: Command,
    run: str,
    call_id: str,
    answer: str,
    log: str,
    encryption: str,
    reason: str,
    arguments: str,
    *,
    is_approved: bool,
) -> int:
    """Decide on a call of a durable run, after its arguments were shown and confirmed."""
    screen, terminal = command.screen, command.terminal
    decision = _make_decision(answer, reason, arguments)

    async def main() -> int:
        async with _open_durable_runs(_check_url(log), encryption) as runs:
            durable = await runs.get(run)
            status = await durable.status()
            pending = next((each for each in status.pending if each.call_id == call_id), None)
            if pending is None:
                waiting = ", ".join(each.call_id for each in status.pending) or "none"
                raise CommandError(f"run {run} is {status.state}; the calls that await a decision: {waiting}")
            screen.note(f"{answer} call {call_id} of {pending.tool_name} {pending.preview}")
            if not await _ask_consent(terminal, is_approved=is_approved):
                return ExitCode.NOT_APPROVED
            await durable.decide(call_id, decision, binding=pending.binding)
        screen.document({"run": run, "call": call_id, "decided": answer})
        screen.say("decided")
        return ExitCode.DONE

    return terminal.run(main)


def _make_decision(answer: str, reason: str, arguments: str) -> Any:
    if (answer == "modify") != bool(arguments):
        raise MisuseError("--arguments is for `modify`, which needs the new ones as a JSON object")
    match answer:
        case "approve":
            return Approve()
        case "modify":
            try:
                return Modify(json.loads(arguments))
            except ValueError as error:
                raise MisuseError(f"--arguments is no JSON: {error}") from error
        case "abort":
            return Abort(reason or "Aborted by an operator.")
        case _:
            return Deny(reason or "Tool call denied by an operator.")


def change_runs(
    command: Command,
    change: str,
    run_ids: Sequence[str],
    log: str,
    encryption: str,
    *,
    is_approved: bool,
    reason: str = "",
    **filters: Any,
) -> int:
    """Cancel, retry or delete durable runs: the named ones, or all that match the filters."""
    screen, terminal = command.screen, command.terminal
    arguments = (reason or None,) if change == "cancel" else ()
    if bool(run_ids) == any(filters.values()):
        raise MisuseError(f"name the runs to {change}, or filters such as --state failed, not both")

    async def main() -> int:
        async with _open_durable_runs(_check_url(log), encryption) as runs:
            if run_ids:
                for run_id in run_ids:
                    run = await runs.get(run_id)
                    await (runs.delete(run_id) if change == "delete" else getattr(run, change)(*arguments))
                count = len(run_ids)
            else:
                found = await runs.count(**filters)
                screen.note(f"{change} of these: " + ", ".join(f"{number} {state}" for state, number in found.items()))
                if not await _ask_consent(terminal, is_approved=is_approved):
                    return ExitCode.NOT_APPROVED
                count = await getattr(runs, f"{change}_all")(*arguments, **filters)
        screen.document({change: count})
        screen.say(f"{change}: {count} runs")
        return ExitCode.DONE

    return terminal.run(main)


def migrate_tables(command: Command, log: str, encryption: str) -> int:
    """Migrate the tables of durable runs, and fill in the columns that an earlier release left out."""
    from toolkit.durable.operations import RunSearch  # an extra
    from toolkit.durable.storage import TABLES_VERSION, Storage

    storage, count = Storage(_check_url(log), _find_encryption(encryption), may_migrate=True), 0
    try:
        while described := RunSearch(storage).describe_slice():
            count += described
    finally:
        storage.close()
    command.screen.say(f"the tables are of version {TABLES_VERSION}; {count} runs of an earlier release were completed")
    command.screen.document({"version": TABLES_VERSION, "completed": count})
    return ExitCode.DONE


async def _ask_consent(terminal: Terminal, *, is_approved: bool) -> bool:
    """Return True if the person agrees; without one, only --yes does."""
    if is_approved:
        return True
    if not terminal.is_interactive:
        raise CommandError("nobody can be asked here: say --yes", ExitCode.NOT_APPROVED)
    return (await terminal.ask("go on? [y/N] ")).lower() in ("y", "yes")


def _check_url(log: str) -> str:
    if "://" not in log:
        raise MisuseError("this is for durable runs: give the URL of their database by --log, or in TOOLKIT_DATABASE")
    return log


def _open_durable_runs(url: str, encryption: str) -> Any:
    from toolkit.durable import DurableRuns  # an extra

    key = os.environ.get("TOOLKIT_SIGNING_KEY") or None
    return DurableRuns(url, encryption=_find_encryption(encryption), signing_key=key)


def _find_encryption(word: str) -> Any:
    from toolkit.durable import Encryption

    return _find_kind(word, Encryption) if word else None


def _open_log(given: str, encryption: str = "") -> RunLog:
    if "://" in given:
        from toolkit.durable.event_reader import open_durable_log  # an extra

        return open_durable_log(given, _find_encryption(encryption))
    place = Path(given)
    if not place.exists():
        raise MisuseError(
            f"there are no runs at {place}: write some by `toolkit chat ... --log {place}`, or name another place by "
            "--log"
        )
    return RunLog(place)


def _find_run(log: RunLog, run_id: str) -> str:
    if run_id:
        return log.find(run_id)
    runs = log.runs(_NEWEST)
    if not runs:
        raise MisuseError(f"there are no runs in {log.place}")
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
    command: Command, words: Sequence[str], database: str, encryption: str, keep_days: float | None, **options: Any
) -> int:
    """Execute durable runs until a signal; `options` are further arguments of `DurableWorker`."""
    from toolkit.durable import DurableLoop, DurableWorker  # an extra

    loops: list[DurableLoop[Any, Any]] = []
    for word in words:
        found = [_find_kind(word, DurableLoop)] if ":" in word else _find_all(word, DurableLoop)
        loops += found
    key = _find_encryption(encryption)
    keep_seconds = None if keep_days is None else keep_days * _DAY
    screen, names = command.screen, [loop.name for loop in loops]

    async def main() -> int:
        async with DurableWorker(loops, database, encryption=key, keep_seconds=keep_seconds, **options) as worker:
            screen.say(f"worker {worker.executor} executes runs of {', '.join(names)}")
            screen.document({"worker": worker.executor, "loops": names}, is_line=True)
            screen.note("SIGTERM or Ctrl-C ends it: active runs come to rest, or continue at another worker")
            await anyio.sleep_forever()
        return ExitCode.DONE

    return command.terminal.run(main)


def _find_all(word: str, kind: type[_Kind]) -> list[_Kind]:
    found = [value for value in vars(import_module(word, _IMPORT_SECONDS)).values() if isinstance(value, kind)]
    if not found:
        raise MisuseError(f"{word} has no durable loop: make one by toolkit.durable.durable_loop")
    return found


def _find_kind(word: str, kind: type[_Kind]) -> _Kind:
    module, _, name = word.rpartition(":")
    if not module:
        raise MisuseError(f"{word} names no {kind.__name__}: write MODULE:NAME or FILE.py:NAME")
    found = find_member(import_module(module, _IMPORT_SECONDS), name, module)
    if not isinstance(found, kind):
        raise MisuseError(f"{word} is no {kind.__name__}")
    return found
