"""With a key, the examples of providers speak to the vendor; here a loopback server stands where it would."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_program
from tests.providers.loopback import completion
from tests.providers.vendor_answers import anthropic_stream, anthropic_text_stream, block_events, gemini_answer
from toolkit.testing.loopback import Answer, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = "key-of-this-test"
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
ADD = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'}
USE: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Rome"}}
ROME: dict[str, Any] = {"id": "c1", "name": "get_weather", "args": {"city": "Rome"}}
SUM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 3."}]}


def response(item: dict[str, Any]) -> Answer:
    end = {"type": "response.completed", "response": {"status": "completed", "output": [item]}}
    return Answer(pieces=[f"data: {json.dumps(end)}\n\n".encode()])


@dataclass(frozen=True)
class Example:
    name: str
    answers: tuple[Answer, ...]
    path: str
    prints: str
    result: str


CASES = [
    Example(
        "openai_tools.py",
        (Answer(completion(None, tool_calls=[CALL])), Answer(completion("Sunny."))),
        "/v1/chat/completions",
        "get_weather(city='Rome') -> Sunny, 21 degrees in Rome.\nSunny.\n2 requests, 20 tokens\n",
        "Sunny, 21 degrees in Rome.",
    ),
    Example(
        "anthropic_tools.py",
        (
            Answer(pieces=anthropic_stream(block_events(0, USE), stop_reason="tool_use")),
            Answer(pieces=anthropic_text_stream("Sunny.")),
        ),
        "/v1/messages",
        "[get_weather] Sunny.\n2 requests, 14 tokens read, 0 of them from the cache\n",
        "Sunny, 21 degrees in Rome.",
    ),
    Example(
        "gemini_tools.py",
        (Answer(gemini_answer({"functionCall": ROME})), Answer(gemini_answer({"text": "Sunny."}))),
        "/v1/models/gemini-3.8-flash:generateContent",
        "get_weather(city='Rome') -> Sunny, 21 degrees in Rome.\nSunny.\n2 requests, 20 tokens; signed: False\n",
        '"output":"Sunny, 21 degrees in Rome."',
    ),
    Example(
        "openai_reasoning.py",
        (response(ADD), response(SUM)),
        "/v1/responses",
        "[add] \nsealed thoughts in the transcript: 0\n",
        '"output":"3"',
    ),
]


@pytest.mark.parametrize("example", CASES, ids=lambda example: example.name)
def test_an_example_speaks_to_the_vendor_where_there_is_a_key(example: Example, tmp_path: Path) -> None:
    with serving(*example.answers) as server:
        # The vendor's own host would be given the key of the environment; a server of this machine is not.
        environment = {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": server.root,
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": server.root,
        }
        run = run_program(EXAMPLES / example.name, tmp_path, environment)
    assert (run.stdout, run.stderr) == (example.prints, "")
    assert server.paths == [example.path] * 2
    assert example.result in json.dumps(server.requests[1], separators=(",", ":"))
    assert KEY not in run.stdout
