"""A run that is written down, and read again: what it did, step by step, and as a test that plays it again.

Prints:

    ended: complete, 2 requests, 2 calls, 1 of them failed
    loop run: done
      model scripted: done
      tool divide: done
      tool divide: error
      model scripted: done
    the test says: assert result.text == '7 / 2 is 3.5.'
"""

import tempfile

from toolkit import AssistantMessage, ToolCall, ToolError, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.run_log import RunLog, Timeline, export_test
from toolkit.testing import ScriptedProvider


@tool
def divide(a: float, b: float) -> float:
    """Divide."""
    if b == 0:
        raise ToolError("Nothing can be divided by 0.")
    return a / b


calls = AssistantMessage([ToolCall("1", "divide", '{"a": 7, "b": 2}'), ToolCall("2", "divide", '{"a": 7, "b": 0}')])
provider = ScriptedProvider([calls, "7 / 2 is 3.5."])

with tempfile.TemporaryDirectory() as folder:
    log = RunLog(f"{folder}/runs")
    tool_loop_sync(provider, ToolRegistry([divide]), "What is 7 / 2?", config=ToolLoopConfig(middleware=(log,)))

    (run,) = log.runs()
    print(
        f"{run.state}: {run.ending}, {run.requests} requests, {run.tool_calls} calls, {run.tool_errors} of them failed"
    )

    timeline = Timeline()
    for entry in log.read(run.id):
        timeline.add(entry)
    for step in timeline.steps:
        print(f"{'  ' if step.parent is not None else ''}{step.kind} {step.title}: {step.status}")

    asserted = [line.strip() for line in export_test(log, run.id).splitlines() if "result.text ==" in line]
    print("the test says:", asserted[0])
