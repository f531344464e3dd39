"""Answers while they come, in the words of each vendor: whatever the pieces, each is a part of the last one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.flows.test_partial_answers import DRAFT, NOTE, Draft, Note, is_part, plain, write_reply
from tests.testing.wires.anthropic import MessagesWire
from tests.testing.wires.google import GenerateWire
from tests.testing.wires.openai_chat import ChatWire
from tests.testing.wires.openai_responses import ResponsesWire
from toolkit import AnswerFormat, ToolCall, ToolLoopConfig, ToolRegistry, tool_loop_stream
from toolkit.chat import StopReason, TextBlock
from toolkit.testing.conformance import Wire, response_of
from toolkit.testing.loopback import Answer, serving

pytestmark = pytest.mark.anyio
ANSWERS: list[tuple[Any, Any]] = [
    (Note, NOTE),
    (Draft, DRAFT | {"title": "é 🙂 x"}),
    (list[int], [1, 22, 333]),
]


def make_wires() -> list[Wire]:
    wires: list[Wire] = [ChatWire(), ResponsesWire(), MessagesWire(), GenerateWire()]
    try:
        from tests.testing.wires.bedrock import ConverseWire
    except ModuleNotFoundError:
        return wires
    return [*wires, ConverseWire()]


def cut_anywhere(pieces: Sequence[bytes], cut: random.Random) -> list[bytes]:
    """Return the same bytes in pieces that end anywhere, within letters too."""
    whole, parts = b"".join(pieces), list[bytes]()
    while whole:
        size = cut.choice([1, 20, 90, 300])
        parts.append(whole[:size])
        whole = whole[size:]
    return parts


@pytest.mark.parametrize("wire", make_wires(), ids=lambda wire: type(wire).__name__)
@pytest.mark.parametrize("mode", ["tool", "native"])
async def test_partial_answers_of_each_vendor_are_parts_of_the_whole(wire: Wire, mode: Any) -> None:
    if mode == "native" and not wire.features.structured_output:
        pytest.skip("this format has no structured output")
    stop: StopReason = "tool_use" if mode == "tool" else "end_turn"
    with serving(Answer()) as server:
        provider: Any = wire.provider(server)
        for seed, (kind, value) in enumerate(ANSWERS):
            text = write_reply(kind, value, mode)
            content = ToolCall("call_1", "final_answer", text) if mode == "tool" else TextBlock(text)
            pieces = wire.pieces(response_of(content, stop_reason=stop))
            server.answers[:] = [Answer(pieces=cut_anywhere(pieces, random.Random(seed)))]
            config = ToolLoopConfig(answer=AnswerFormat(kind, mode=mode))
            async with tool_loop_stream(provider, ToolRegistry(), "Go.", config=config) as events:
                found = [each async for each in events.partial_answers()]
            assert found[-1] == events.result.output
            parts = list(map(plain, found))
            assert all(is_part(part, later) for part, later in itertools.pairwise(parts))
            assert len(found) > 1
        await provider.aclose()
