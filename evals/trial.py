"""One task with one model: run as an application would, then judged by what was called and what was answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_jsonable_python

from evals.household import registry
from evals.tasks import Expected, Task
from toolkit import ChatRequest, FunctionTool, Message, Provider, ProviderError, ToolLoopConfig, UserMessage, tool_loop
from toolkit.events import LoopEvent, ToolCallRefused, ToolCallRepaired, ToolExecutionStart
from toolkit.schema.nodes import is_array, is_object

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
            case ToolExecutionStart(tool_name=name, arguments=arguments):
                trial.ran.append((name, _plain(arguments)))
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
    trial.reason = _reason(trial)
    return trial


def _reason(trial: Trial) -> str:
    wanted = [(call.tool, _plain(_arguments(call))) for call in trial.task.calls]
    missing = [call for call in wanted if call not in trial.ran]
    wrong = [call for call in trial.ran if call not in wanted]
    if missing:
        if not trial.ran:
            return _why_nothing_ran(trial)
        if len(missing) < len(wanted) and not wrong:
            return "a call is missing"
        same = {name for name, _ in missing} & {name for name, _ in wrong}
        return "wrong arguments" if same else "wrong tool"
    if wrong:
        return "a call too many"
    if not trial.answer.strip():
        return "no answer"
    return "" if all(_says(trial.answer, fact) for fact in trial.task.facts) else "the answer does not use the result"


def _why_nothing_ran(trial: Trial) -> str:
    if not trial.refused:
        return "no call"
    return "unknown tool" if trial.refused[0].startswith("Unknown tool") else "arguments refused"


def _arguments(call: Expected) -> Mapping[str, Any]:
    tool = TOOLS.get(call.tool)
    assert isinstance(tool, FunctionTool)
    return tool.parse_args(call.arguments)


def _plain(value: object) -> Any:
    """Return arguments as JSON, without what makes no difference: case, and spaces and full stops at the ends."""
    plain = to_jsonable_python(value)
    if is_object(plain):
        return {key: _plain(member) for key, member in plain.items()}
    if is_array(plain):
        return [_plain(item) for item in plain]
    return plain.strip(" .").casefold() if isinstance(plain, str) else plain


def _says(answer: str, fact: str) -> bool:
    words = answer.replace(",", "").split()
    return any(word.strip(".!?:;()*\"'`$%°CF") == fact for word in words)
