"""The same work by another library, Pydantic AI, with a model that costs next to nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from bench.clock import on_asyncio, sized
from bench.workload import QUESTION, arguments_of, forecast


class _Script(Model):
    """Gives prepared replies, one after the other."""

    def __init__(self, replies: Iterable[ModelResponse]) -> None:
        super().__init__()
        self._replies = iter(replies)

    @property
    def model_name(self) -> str:
        return "script"

    @property
    def system(self) -> str:
        return "script"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return next(self._replies)


def _replies_of(turns: int, calls: int) -> Iterator[ModelResponse]:
    for turn in range(turns):
        numbers = range(turn * calls, (turn + 1) * calls)
        yield ModelResponse(
            [ToolCallPart("forecast", arguments_of(number), tool_call_id=str(number)) for number in numbers]
        )
    yield ModelResponse([TextPart("done")])


def _turns(turns: int, runs: int, calls: int = 1) -> float:
    replies, runs = list(_replies_of(turns, calls)), sized(runs)

    async def work() -> None:
        for _ in range(runs):
            await agent.run(QUESTION, model=_Script(replies), usage_limits=UsageLimits(request_limit=None))

    agent = Agent(tools=[forecast])
    return on_asyncio(work, runs * turns * calls)


def pydantic_ai_run(features: Collection[str]) -> float:
    return _turns(1, 300)


def pydantic_ai_turns_50(features: Collection[str]) -> float:
    return _turns(50, 20)


def pydantic_ai_calls_100(features: Collection[str]) -> float:
    return _turns(1, 20, 100)
