"""How well do models call these tools? Tasks in YAML, and two models.

No tool runs: each call is answered by what the task says. ``toolkit eval examples/evaluation.py --tasks
examples/evaluation.yaml --model local:`` measures a real model.

Prints:

    always calls: 2 of 4 (15 to 85 %)
        one call 2: wrong tool
        none 1: a call too many
    looks for codes: 3 of 4 (30 to 95 %)
        one call 2: no call
"""

import re
from contextlib import nullcontext
from pathlib import Path

import anyio

from toolkit import ChatRequest, ToolCall, ToolRegistry, ToolResult, tool
from toolkit.evaluation import Candidate, TrialSettings, load_tasks, run_candidates, summarize_trials
from toolkit.testing import FunctionProvider


@tool
def track_parcel(code: str) -> str:
    """Track a parcel."""
    raise NotImplementedError(code)


@tool
def cancel_order(order: int) -> str:
    """Cancel an order."""
    raise NotImplementedError(order)


def always_call(request: ChatRequest) -> str | ToolCall:
    """Call the same tool whatever is asked."""
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return last.text
    return ToolCall("call", "track_parcel", f'{{"code": "{find_code(last.text)}"}}')


def look_for_codes(request: ChatRequest) -> str | ToolCall:
    """Call the tool where the user names a parcel."""
    last = request.messages[-1]
    is_about_a_parcel = not isinstance(last, ToolResult) and "TR-" in last.text
    return always_call(request) if is_about_a_parcel else last.text


def find_code(text: str) -> str:
    """Return the code of a parcel in a text."""
    found = re.search(r"TR-\d+", text)
    return found[0] if found else ""


async def main() -> None:
    """Run the tasks and tell the figures."""
    tasks = load_tasks(Path(__file__).with_suffix(".yaml"))
    registry = ToolRegistry([track_parcel, cancel_order])
    candidates = [
        Candidate(model="always calls", way="native", open=lambda: nullcontext(FunctionProvider(always_call))),
        Candidate(model="looks for codes", way="native", open=lambda: nullcontext(FunctionProvider(look_for_codes))),
    ]
    outcomes = await run_candidates(candidates, tasks, registry, TrialSettings())
    summary = summarize_trials(outcomes, tasks.kinds)
    for outcome, figures in zip(outcomes, summary.candidates, strict=True):
        score = figures.scores["all"]
        print(f"{figures.model}: {score.solved} of {score.tasks} ({score.interval} %)")
        for trial in outcome.trials.values():
            if not trial.is_solved:
                print(f"    {trial.task}: {trial.reason}")


if __name__ == "__main__":
    anyio.run(main)
