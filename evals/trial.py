"""One task with one model: run as an application would, then judged by what was called and what was answered."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.household import registry
from evals.tasks import Task
from toolkit import ChatRequest, Message, Provider, ProviderError, ToolLoopConfig, UserMessage, tool_loop
from toolkit.evaluation.judging import judge_answer
from toolkit.events import LoopEvent, ToolCallRefused, ToolCallRepaired, ToolExecutionStart

__all__ = ["Trial", "run_trial"]

TOOLS = registry()
_MOST_TURNS = 3
# Models that were never taught to converse go on with what the user says next.
_STOPS = ("<|im_end|>", "<|im_start|>", "<tool_response>")


@dataclass(kw_only=True)
class Trial:
    """What came of a task.

    Args:
        task: The task.
        reason: Why it is not solved; empty where it is.
        answer: The last text of the model.
        ran: The calls that ran, as name and arguments.
        refused: What was said of those that did not.
        repairs: What was mended.
    """

    task: Task
    reason: str = ""
    answer: str = ""
    ran: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    refused: list[str] = field(default_factory=list[str])
    repairs: list[ToolCallRepaired] = field(default_factory=list[ToolCallRepaired])


async def run_trial(task: Task, provider: Provider, *, helps: bool, before: Sequence[Message] = ()) -> Trial:
    """Run a task and judge it.

    Args:
        task: The task.
        provider: The model.
        helps: Whether calls are mended.
        before: What was said before the task.
    """
    trial = Trial(task=task)

    def note(event: LoopEvent) -> None:
        match event:
            case ToolExecutionStart():
                trial.ran.append((event.tool_name, json.loads(event.arguments_json)))
            case ToolCallRefused(result=result):
                trial.refused.append(result.text)
            case ToolCallRepaired():
                trial.repairs.append(event)
            case _:
                pass

    config = ToolLoopConfig(
        max_iterations=_MOST_TURNS, on_event=note, stream=False, name_repair=helps, argument_repair=helps
    )
    try:
        request = ChatRequest(messages=[*before, UserMessage(task.prompt)], stop=_STOPS)
        result = await tool_loop(provider, TOOLS, request, config=config)
    except ProviderError as error:
        trial.reason = f"the request failed: {type(error).__name__}"
        return trial
    trial.answer = "" if result.response is None or result.response.tool_calls else result.text
    trial.reason = judge_answer(task.as_judged(), trial.ran, trial.refused, trial.answer, TOOLS)
    return trial
