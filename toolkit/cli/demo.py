"""The demonstration: a model on this machine answers three questions, with a tool for each.

``python -m toolkit demo`` runs it. `examples/quickstart.py` is the same without the printing of steps and the checks.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import anyio

from toolkit import (
    AssistantMessage,
    ConfigurationError,
    Provider,
    ProviderError,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop,
)
from toolkit.dataclass import dataclass
from toolkit.events import LoopEvent, ToolExecutionEnd, ToolExecutionStart
from toolkit.testing import ScriptedProvider

if TYPE_CHECKING:
    from toolkit.cli.screen import Command

_LONGEST_TEXT = 4 * 79


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the current weather in a city.

    Args:
        city: The name of the city.
        unit: The unit of the temperature.
    """
    celsius = {"oslo": -3, "paris": 18, "tokyo": 21}.get(city.lower(), 15)
    return f"sunny, {celsius if unit == 'celsius' else round(celsius * 1.8 + 32)} degrees {unit}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@tool
def search(topic: str, limit: int = 5) -> str:
    """Search the library for books about a topic.

    Args:
        topic: The subject of the books.
        limit: How many books to return.
    """
    books = {"the sea": ["The Old Man and the Sea", "Moby-Dick", "Treasure Island", "Lord Jim"]}
    return ", ".join(books.get(topic.lower(), [])[:limit]) or f"nothing about {topic}"


_REGISTRY = ToolRegistry([get_weather, add, search])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    text: str
    tool_name: str
    arguments: dict[str, Any]
    scripted_answer: str


_QUESTIONS = (
    _Question(
        text="What is the weather in Tokyo, in fahrenheit?",
        tool_name="get_weather",
        arguments={"city": "Tokyo", "unit": "fahrenheit"},
        scripted_answer="In Tokyo it is sunny, 70 degrees fahrenheit.",
    ),
    _Question(
        text="What is 17 plus 25?",
        tool_name="add",
        arguments={"a": 17, "b": 25},
        scripted_answer="The answer is 42.",
    ),
    _Question(
        text="Search for 3 books about the sea.",
        tool_name="search",
        arguments={"topic": "the sea", "limit": 3},
        scripted_answer="The books are The Old Man and the Sea, Moby-Dick, Treasure Island.",
    ),
)


@dataclass(slots=True)
class _StepWitness:
    """Shows each step as it happens and stores the data for the verdict."""

    show: Callable[[str], object]
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    results: list[ToolResult] = field(default_factory=list[ToolResult])

    def __call__(self, event: LoopEvent) -> None:
        match event:
            case ToolExecutionStart():
                self.calls.append((event.tool_name, event.arguments))
                written = ", ".join([f"{name}={value!r}" for name, value in event.arguments.items()])
                self.show(f"  model  {event.tool_name}({written})")
            case ToolExecutionEnd():
                self.results.append(event.result)
                self.show(f"  tool   {event.result.text}")
            case _:
                pass

    def is_right(self, question: _Question, answer: str) -> bool:
        """Return True if the right tool was called once with the right arguments, and the answer has its result."""
        if len(self.calls) != 1 or len(self.results) != 1:
            return False
        [(tool_name, arguments)], [result] = self.calls, self.results
        is_asked = tool_name == question.tool_name and str(arguments).lower() == str(question.arguments).lower()
        return is_asked and not result.is_error and result.text in answer


def run_demo(command: Command | None = None) -> int:
    """Run the demonstration; return 0 where all three questions were answered rightly.

    Each step is printed as it happens; as JSON all of them are a document at the end. None prints without the extra
    ``cli``.
    """
    is_json = command is not None and command.screen.is_json
    report = anyio.run(_ask_questions, str if is_json else _print_text)
    if command is not None:
        command.screen.document(report)
    return int(report["exit_code"])


async def _ask_questions(show: Callable[[str], object]) -> dict[str, Any]:
    show("A language model calls Python functions: toolkit's main job, on this machine.")
    began = perf_counter()
    async with _open_model(show) as (provider, name):
        asked = [await _ask_question(provider, question, show) for question in _QUESTIONS]
    right = sum(each["is_right"] for each in asked)
    seconds = perf_counter() - began
    show(f"\n{right} of {len(_QUESTIONS)} right, {seconds:.1f} s in all.")
    exit_code = 0 if right == len(_QUESTIONS) else 1
    return {"model": name, "questions": asked, "right": right, "seconds": seconds, "exit_code": exit_code}


async def _ask_question(provider: Provider, question: _Question, show: Callable[[str], object]) -> dict[str, Any]:
    """Return the question, the calls, the answer, and ``is_right``."""
    began, answer, failure = perf_counter(), "", None
    witness = _StepWitness(show)
    show(f"\nuser     {question.text}")
    try:
        config = ToolLoopConfig(max_iterations=3, on_event=witness)
        answer = (await tool_loop(provider, _REGISTRY, question.text, config=config)).text
    except ProviderError as error:
        failure = str(error)
    is_right, seconds = witness.is_right(question, answer), perf_counter() - began
    verdict = "right" if is_right else "WRONG"
    show(f"  model  {answer} [{verdict}, {seconds:.1f} s]" if failure is None else f"  failed {failure}")
    calls = [{"tool": name, "arguments": arguments} for name, arguments in witness.calls]
    results = [result.text for result in witness.results]
    outcome = {"question": question.text, "calls": calls, "results": results, "answer": answer, "is_right": is_right}
    return {**outcome, "error": failure, "seconds": seconds}


@asynccontextmanager
async def _open_model(show: Callable[[str], object]) -> AsyncGenerator[tuple[Provider, str]]:
    """Yield a real model if there is one, else a script, and its name."""
    began = perf_counter()
    try:
        from toolkit.providers.local import LocalProvider

        local = LocalProvider()
        await local.start()
    except (ImportError, ConfigurationError, ProviderError) as error:
        show(f"No local model: {error}")
        show("Playing a SCRIPT instead: fixed replies, but the tools and the loop are real.")
        yield _make_script(), "scripted"
        return
    async with local:
        show(f"SmolLM2 135M, offline, in a child process, ready in {perf_counter() - began:.1f} s.")
        yield local, "local:"


def _make_script() -> Provider:
    replies: list[AssistantMessage] = []
    for question in _QUESTIONS:
        call = ToolCall(f"call_{question.tool_name}", question.tool_name, json.dumps(question.arguments))
        replies += [AssistantMessage([call]), AssistantMessage(question.scripted_answer)]
    return ScriptedProvider(replies)


def _print_text(text: str) -> None:
    """Print a text at once, in a few lines at most."""
    print(text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "...", flush=True)
