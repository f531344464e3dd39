"""One measure, in this process: ``python -m bench.measure ours.turns_50 [--features]`` prints the figure."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from bench import importing

_IMPORTS = {
    "floor.importing": importing.floor,
    "ours.importing": importing.ours,
    "ours.importing_with_a_tool": importing.with_a_tool,
}
_ASIDE = {
    "deltas": "bench.streams",
    "waiting_deltas": "bench.streams",
    "streamed_calls": "bench.streams",
    "durable_turns": "bench.durable_turns",
    "pydantic_ai_run": "bench.peers",
    "pydantic_ai_turns_50": "bench.peers",
    "pydantic_ai_calls_100": "bench.peers",
    "mirascope_run": "bench.mirascope_peer",
    "mirascope_turns_50": "bench.mirascope_peer",
    "mirascope_calls_100": "bench.mirascope_peer",
}


def main(name: str, *, features: bool) -> float:
    """Return the figure of the measure of that name."""
    if name in _IMPORTS:
        return _IMPORTS[name]()
    side, _, measure = name.partition(".")
    if side == "floor":
        return float(getattr(import_module("bench.floor"), measure)())
    ours = import_module("bench.ours")
    if side == "price":
        return float(ours.price_of(measure))
    aside = _ASIDE.get(measure, "bench.traces" if measure.startswith("tracing") else "bench.edges")  # they import much
    module = ours if hasattr(ours, measure) else import_module(aside)
    return float(getattr(module, measure)(ours.FEATURES if features else ()))


if __name__ == "__main__":
    if sys.argv[1] == "features":
        print(json.dumps(import_module("bench.ours").FEATURES))
    else:
        print(main(sys.argv[1], features="--features" in sys.argv))
