"""Measure and print: ``python -m bench [--quick] [--features] [--rounds 5] [--json FILE] [--only NAME]``.

``python -m bench --exact [--write] [--only NAME]`` counts instructions in place of time; see `exact`.

Each measure runs in a process of its own, the floor and toolkit in turn; a ratio is the median over the rounds of what
one round gave.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench import exact

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Measure:
    """One row.

    Args:
        name: The function of it in `ours`.
        title: What a reader sees.
        unit: Of the two figures.
        must: The highest ratio, or figure where there is no floor, that is accepted.
        goal: The one that is aimed at.
        floor: What it is compared with: a function of `floor`, one of `ours` after a dot, or None.
    """

    name: str
    title: str
    unit: str
    must: float | None
    goal: float | None
    floor: str | None


MEASURES = (
    Measure("importing", "`import toolkit`", "ms", 1.25, 1.15, "importing"),
    Measure("importing_with_a_tool", "`import toolkit` and the first tool", "ms", None, None, "importing"),
    Measure("making_simple", "make a tool: 3 simple parameters, Google docstring", "us", 0.8, 0.2, "making_simple"),
    Measure("making_rich", "make a tool: 10 rich parameters", "us", 0.8, 0.2, "making_rich"),
    Measure("making_nested", "a tool with nested models, of a dozen that share them", "us", 0.8, 0.3, "making_nested"),
    Measure("one_call", "one call through the whole pipeline", "us", 2.5, 2.0, "one_call"),
    Measure("one_run", "one run of one tool turn", "us", 8.0, 6.0, "one_run"),
    Measure("turns_50", "a turn, of 50", "us", 4.0, 3.3, "turns_50"),
    Measure("turns_800", "a turn of 800, over one of 50", "us", 1.15, 1.05, "ours.turns_50"),
    Measure("idle_tools", "a turn with 100 idle tools more", "us", 4.0, 3.3, "turns_50"),
    Measure("large_results", "a turn with 10 kB results", "us", 1.5, 1.1, "large_results"),
    Measure("calls_100", "a call, of 100 in one turn", "us", 1.8, 1.5, "calls_100"),
    Measure("calls_1000", "a call, of 1,000 in one turn", "us", 1.8, 1.5, "calls_1000"),
    Measure("production_run", "production, one run of one tool turn", "us", 14.0, 9.0, "one_run"),
    Measure("production_turn", "production, a turn", "us", 7.0, 5.0, "turns_50"),
    Measure("run_log_turn", "a run log, a turn, all threads", "us", None, None, "turns_50"),
    Measure("tracing_api_turn", "tracing, API alone, a turn", "us", None, None, "turns_50"),
    Measure("tracing_unsampled_turn", "tracing, unsampled, a turn", "us", None, None, "turns_50"),
    Measure("tracing_batched_turn", "tracing, batched, a turn, all threads", "us", None, None, "turns_50"),
    Measure("tracing_content_turn", "tracing, with content, a turn, all threads", "us", None, None, "turns_50"),
    Measure("production_call", "production, per call of 100", "us", 3.0, 2.5, "calls_100"),
    Measure("listening_turn", "production that takes the ends of calls alone, a turn", "us", None, None, "turns_50"),
    Measure("spaced_run", "one run of one tool turn, other work before each reply", "us", None, None, "spaced_run"),
    Measure("spaced_turns_50", "a turn, of 50, other work before each reply", "us", None, None, "spaced_turns_50"),
    Measure("spaced_calls_100", "a call, of 100, other work before each reply", "us", None, None, "spaced_calls_100"),
    Measure("spaced_production_run", "production, one run, other work", "us", None, None, "spaced_run"),
    Measure("spaced_production_turn", "production, a turn, other work", "us", None, None, "spaced_turns_50"),
    Measure("spaced_production_call", "production, per call of 100, other work", "us", None, None, "spaced_calls_100"),
    Measure("sync_approver_turn", "production with a sync approver, a turn", "us", None, None, "turns_50"),
    Measure("sync_approver_call", "production with a sync approver, per call of 100", "us", None, None, "calls_100"),
    Measure("durable_turns", "a durable turn, without a database", "us", None, None, "turns_50"),
    Measure("waiting_100", "100 async tools of 50 ms in one turn, wall", "ms", 1.05, 1.01, "waiting_100"),
    Measure("blocking_32", "32 sync tools of 50 ms in one turn, wall", "ms", 1.10, 1.04, "blocking_32"),
    Measure("plugin_call", "a call of a plugin's tool, without the plugin's own time", "us", None, None, "plugin_call"),
    Measure("loops_1000", "a turn of 1,000 loops at once", "us", 5.0, 4.0, "loops_1000"),
    Measure("deltas", "a streamed text delta, of 10,000", "us", 7.0, 4.5, "deltas"),
    Measure("waiting_deltas", "a streamed text delta that the provider waits for", "us", 12.0, 8.0, "waiting_deltas"),
    Measure("streamed_calls", "a streamed run of a turn with three calls", "us", None, None, "streamed_calls"),
    Measure("encoding_1600", "encode a request of 1,600 messages, the last new", "us", 0.5, 0.25, "encoding_1600"),
    Measure("memory", "peak memory of a live loop", "KiB", 11.0, 8.0, None),
    Measure("production_memory", "production, peak memory of a live loop", "KiB", 18.0, 12.0, None),
    Measure("python_calls", "Python function calls a turn", "", 60.0, 40.0, None),
    Measure("production_python_calls", "production, Python function calls a turn", "", 100.0, 100.0, None),
    Measure("production_on_trio", "production on trio, a turn", "us", None, None, "turns_50"),
    Measure("process_call", "a call of a tool with a process, wall", "ms", None, None, None),
    Measure("mcp_call", "a call through the MCP client and server", "us", None, None, None),
    Measure("restored_200", "restore from a snapshot of 200 turns", "ms", None, None, None),
    Measure("trio_turns", "on trio: a turn, of 50", "us", None, None, "turns_50"),
    Measure("trio_calls", "on trio: a call, of 100 in one turn", "us", None, None, "calls_100"),
)
_WITHOUT_FEATURES = (
    "importing", "importing_with_a_tool", "making_simple", "making_rich", "making_nested", "one_call", "encoding_1600",
    "run_log_turn", "tracing",
    "production", "spaced_production", "listening", "sync_approver", "durable", "process", "mcp", "restored", "trio",
)  # fmt: skip


@dataclass
class Row:
    """What one measure gave."""

    measure: Measure
    ours: list[float]
    floor: list[float]

    @property
    def ratio(self) -> float | None:
        """The median over the rounds."""
        if not self.floor:
            return None
        return median([ours / floor for ours, floor in zip(self.ours, self.floor, strict=True)])

    @property
    def figure(self) -> float:
        """What is held against the targets."""
        return median(self.ours) if self.ratio is None else self.ratio

    def markdown(self) -> str:
        """Return the row of the table."""
        measure, ratio = self.measure, self.ratio
        times = "x" if ratio is not None else f" {measure.unit}".rstrip()
        floor = f"{median(self.floor):,.2f} {measure.unit}" if self.floor else ""
        must, goal = ("" if bound is None else f"{bound:g}{times}" for bound in (measure.must, measure.goal))
        verdict = ""
        if measure.must is not None and measure.goal is not None:
            verdict = "goal" if self.figure <= measure.goal else "must" if self.figure <= measure.must else "**missed**"
        cells = (
            measure.title,
            floor,
            f"{median(self.ours):,.2f} {measure.unit}".rstrip(),
            "" if ratio is None else f"{ratio:.2f}x",
            must,
            goal,
            verdict,
        )
        return "| " + " | ".join(cells) + " |"


def measured(name: str, *, quick: bool, features: bool = False) -> float:
    """Run one measure in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.measure", name, *(["--features"] if features else [])],
        cwd=_ROOT,
        env={**os.environ, "TOOLKIT_BENCH_QUICK": "1" if quick else "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return float(done.stdout)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less work and one round: for a first look")
    parser.add_argument("--features", action="store_true", help="switch every feature on, and price each")
    parser.add_argument("--rounds", type=int, help="how many; 5 if not given, 1 in quick mode")
    parser.add_argument("--only", action="append", help="one measure, by name; may be given several times")
    parser.add_argument("--json", type=Path, help="where the figures go; a temporary file if not given")
    parser.add_argument("--exact", action="store_true", help="count instructions, and compare with those in the tree")
    parser.add_argument("--write", action="store_true", help="with --exact: let these figures stand in the tree")
    wish = parser.parse_args()
    compileall.compile_dir(_ROOT / "toolkit", quiet=1)  # as installing does, whatever the environment says
    if wish.exact:
        raise SystemExit(exact.main(wish.only, writes=wish.write))
    rounds: int = wish.rounds or (1 if wish.quick else 5)
    rows = [
        Row(measure, [], [])
        for measure in MEASURES
        if (not wish.only or measure.name in wish.only)
        and not (wish.features and measure.name.startswith(_WITHOUT_FEATURES))
    ]
    for _ in range(rounds):
        for row in rows:
            if row.measure.floor is not None:
                side = "" if row.measure.floor.startswith("ours.") else "floor."
                row.floor.append(
                    measured(side + row.measure.floor, quick=wish.quick, features=wish.features and not side)
                )
            row.ours.append(measured(f"ours.{row.measure.name}", quick=wish.quick, features=wish.features))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("| measure | by hand | toolkit | ratio | must | goal | met |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for row in rows:
        print(row.markdown())
    figures = [{**asdict(row.measure), "ours": row.ours, "by_hand": row.floor, "ratio": row.ratio} for row in rows]
    prices: dict[str, float] = {}
    if wish.features:
        prices = _prices(rounds, quick=wish.quick)
    file: Path = wish.json or Path(tempfile.mkdtemp(prefix="toolkit-bench-")) / "figures.json"
    file.write_text(json.dumps({"python": sys.version, "rounds": rounds, "rows": figures, "prices": prices}, indent=1))
    print(f"\nPython {sys.version.split()[0]}, {rounds} round(s); all figures: {file}", file=sys.stderr)


def _prices(rounds: int, *, quick: bool) -> dict[str, float]:
    features = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.measure", "features"], cwd=_ROOT, capture_output=True, check=True
        ).stdout
    )
    found: dict[str, list[float]] = {feature: [] for feature in features}
    for _ in range(rounds):
        for feature, prices in found.items():
            prices.append(measured(f"price.{feature}", quick=quick))
    print("\n| feature | price a turn |\n|---|--:|")
    for feature, prices in found.items():
        print(f"| {feature} | {median(prices):.2f} us |")
    return {feature: median(prices) for feature, prices in found.items()}


if __name__ == "__main__":
    main()
