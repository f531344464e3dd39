"""Count the instructions of the processor that each measure takes, ours and by hand: ``python -m bench --exact``.

They repeat within 1 % whatever else the machine does; callgrind counts them (Debian: ``apt install valgrind``). The
figures that stand in the tree are in ``exact.json``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("exact.json")
TOLERANCE = 1.05
HOW_TO_RAISE = "python -m bench --exact --write"
MEASURES = {
    "importing": "importing",
    "making_simple": "making_simple",
    "making_rich": "making_rich",
    "making_nested": "making_nested",
    "one_call": "one_call",
    "one_run": "one_run",
    "turns_50": "turns_50",
    "turns_800": "turns_50",
    "idle_tools": "turns_50",
    "calls_100": "calls_100",
    "deltas": "deltas",
    "waiting_deltas": "waiting_deltas",
    "streamed_calls": "streamed_calls",
    "loops_1000": "loops_1000",
    "production_run": "one_run",
    "production_turn": "turns_50",
    "production_call": "calls_100",
    "listening_turn": "turns_50",
    "sync_approver_turn": "turns_50",
    "sync_approver_call": "calls_100",
    "durable_turns": "turns_50",
    "ruled_turn": "turns_50",
    "labelled_turn": "turns_50",
    "tainted_turn": "turns_50",
}
"""What is counted, and what it is compared with by hand."""
PEERS = {
    "pydantic_ai_run": "one_run",
    "pydantic_ai_turns_50": "turns_50",
    "pydantic_ai_calls_100": "calls_100",
    "mirascope_run": "one_run",
    "mirascope_turns_50": "turns_50",
    "mirascope_calls_100": "calls_100",
}
"""The same by other libraries; counted where it is asked for."""

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Figure:
    """Thousands of instructions for a unit of a measure."""

    by_hand: float
    toolkit: float

    @property
    def ratio(self) -> float:
        """Times by hand."""
        return self.toolkit / self.by_hand

    def is_above(self, known: Figure) -> bool:
        """Return whether ours takes more than 5 % above another figure, in itself and over the same by hand."""
        return min(self.toolkit / known.toolkit, self.ratio / known.ratio) > TOLERANCE


def find_missing() -> str | None:
    """Return what this machine lacks to count instructions, in words; None where it lacks nothing."""
    if shutil.which("valgrind") is None or shutil.which("cc") is None:
        return "no valgrind or no C compiler: `apt install gcc valgrind`"
    return None


def count(names: list[str]) -> dict[str, Figure]:
    """Count the measures of these names, each side in a process of its own."""
    sides = [f"ours.{name}" for name in names]
    floors = MEASURES | PEERS
    sides += dict.fromkeys(f"floor.{floors[name]}" for name in names)
    with tempfile.TemporaryDirectory(prefix="toolkit-bench-") as folder:
        marks = Path(folder, "marks.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", marks, Path(__file__).with_name("count.c")], check=True)
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/%p"]
        done = subprocess.run(
            [*valgrind, sys.executable, "-m", "bench.instructions", *sides],
            cwd=_ROOT,
            env={**compiled_environment(folder), "TOOLKIT_BENCH_MARKS": str(marks), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"the instructions were not counted:\n{done.stderr}")
        counted = {side: float(Path(folder, side).read_text()) for side in sides}
    return {name: Figure(counted[f"floor.{floors[name]}"], counted[f"ours.{name}"]) for name in names}


def compiled_environment(folder: str) -> dict[str, str]:
    """Return an environment where what both sides import is compiled, as installing does, whatever this one says."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = "import bench.streams; from bench.importing import load_floor; load_floor()"
    subprocess.run([sys.executable, "-c", code], cwd=_ROOT, env=environment, check=True)
    return environment


def read_file() -> tuple[str, dict[str, Figure]]:
    """Return the version of Python, and the figures that stand in the tree."""
    stored = json.loads(FILE.read_text())
    return stored["python"], {name: Figure(*figure) for name, figure in stored["thousands"].items()}


def write_file(figures: dict[str, Figure]) -> None:
    """Write figures to the file in the tree; those of other measures stay there."""
    known = read_file()[1] if FILE.exists() else {}
    known.update(figures)
    rows = [
        f"  {json.dumps(name)}: [{known[name].by_hand:.1f}, {known[name].toolkit:.1f}]"
        for name in MEASURES
        if name in known
    ]
    FILE.write_text(f'{{\n "python": "{python_version()}",\n "thousands": {{\n' + ",\n".join(rows) + "\n }\n}\n")


def python_version() -> str:
    """Return the version of Python up to which figures can be compared."""
    return ".".join(map(str, sys.version_info[:2]))


def main(only: list[str] | None, *, writes: bool) -> int:
    """Count and print; return 1 where ours is more than 5 % above what stands in the tree, and its ratio too.

    A release of a library that only one side uses moves one of the two: that is none of our doing.
    """
    missing = find_missing()
    if missing is not None:
        raise SystemExit(missing)
    figures = count([name for name in MEASURES | PEERS if name in (only or MEASURES)])
    python, known = read_file() if FILE.exists() else (python_version(), {})
    print("| measure, thousands of instructions | by hand | toolkit | ratio | in the tree |")
    print("|---|--:|--:|--:|--:|")
    for name, figure in figures.items():
        stands = f"{known[name].ratio:.2f}x" if name in known else ""
        print(f"| {name} | {figure.by_hand:,.1f} | {figure.toolkit:,.1f} | {figure.ratio:.2f}x | {stands} |")
    if writes:
        write_file(figures)
        return 0
    if python != python_version():
        print(f"\nthe figures in the tree are of Python {python}: nothing is compared", file=sys.stderr)
        return 0
    above = [name for name, each in figures.items() if name in known and each.is_above(known[name])]
    if above:
        print(f"\nmore than 5 % above {FILE.name}: {', '.join(above)}", file=sys.stderr)
        print(f"where that is worth it, raise it by: {HOW_TO_RAISE}, and say why in the commit", file=sys.stderr)
    return int(bool(above))
