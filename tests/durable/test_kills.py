"""A process is killed at random, again and again, and the run that it left is what it would have been."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tests.durable.killed_run import move_run
from tests.forked import fork_process
from toolkit.chat import ToolResult, load_messages, validate_transcript

CALLS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7"]


@dataclass
class Findings:
    """What came of the kills."""

    kills: int = 0
    twice: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    told: int = 0


def kill_at_random(folder: Path, backend: str, chance: random.Random, most: int, findings: Findings) -> str:
    """Start the run again and again, and kill it up to so many times; return what it said in the end.

    The first kill comes while a call is under way, the others at any moment.
    """
    log, held = folder / "run.log", hold_calls(folder)
    while True:
        log.with_suffix(".out").unlink(missing_ok=True)  # one that was killed may have written its output
        process = fork_process(move_run, str(folder), backend, log=log)
        if findings.kills < most:
            wait_until_noted(process, folder, 1 if held.exists() else count_notes(folder) + chance.randint(0, 4))
            time.sleep(chance.random() * 0.02)
            if process.exitcode is None:
                process.kill()
                process.join()
                held.unlink(missing_ok=True)
                findings.kills += 1
                continue
        process.join()
        assert process.exitcode == 0, log.read_text()
        return log.with_suffix(".out").read_text()


def hold_calls(folder: Path) -> Path:
    """Return a file that has the calls of a run wait until it is removed."""
    held = folder / "notes.held"
    held.touch()
    return held


def wait_until_noted(process: ForkServerProcess, folder: Path, count: int) -> None:
    """Wait until the run has written down so much, or has ended."""
    while process.exitcode is None and count_notes(folder) < count:
        time.sleep(0.001)


def count_notes(folder: Path) -> int:
    notes = folder / "notes"
    return notes.read_bytes().count(b"\n") if notes.exists() else 0


def judge(folder: Path, output: str, findings: Findings) -> None:
    """Note what is wrong with a run that has ended."""
    notes = [line.split() for line in (folder / "notes").read_text().splitlines()]
    starts = Counter(call_id for word, call_id in notes if word == "start")
    ended = {call_id for word, call_id in notes if word == "end"}
    messages = load_messages(json.dumps(json.loads(output)["messages"]))
    validate_transcript(messages)
    results = {message.call_id: message for message in messages if isinstance(message, ToolResult)}
    if list(results) != CALLS or messages[-1].text != "done":
        findings.wrong.append(f"{folder.name}: {list(results)}")
    findings.twice += [f"{folder.name}: {call_id}" for call_id, count in starts.items() if count > 1]
    for call_id, result in results.items():
        if "the process that ran it ended" in result.text:
            findings.told += 1
        elif result.tool_name == "append" and call_id not in ended:
            findings.wrong.append(f"{folder.name}: {call_id} has a result and did not end")
        elif result.is_error:
            findings.lost.append(f"{folder.name}: {call_id} {result.text}")


def torture(folder: Path, backend: str, kills: int) -> Findings:
    findings, chance, runs = Findings(), random.Random(kills), 0
    while findings.kills < kills:
        place = folder / f"run{runs}"
        place.mkdir()
        runs += 1
        output = kill_at_random(place, backend, chance, min(kills, findings.kills + 5), findings)
        judge(place, output, findings)
    return findings


def check_findings(findings: Findings) -> None:
    print(f"{findings.kills} kills, {findings.told} calls told as interrupted")
    assert findings.twice == []
    assert findings.lost == []
    assert findings.wrong == []
    assert findings.told > 0


@pytest.mark.real
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by POSIX's signal")
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.full)])
def test_six_kills_run_no_call_twice_and_lose_no_result(backend: str, tmp_path: Path) -> None:
    check_findings(torture(tmp_path, backend, 6))


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by POSIX's signal")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_three_hundred_kills_run_no_call_twice_and_lose_no_result(backend: str, tmp_path: Path) -> None:
    check_findings(torture(tmp_path, backend, 150))
