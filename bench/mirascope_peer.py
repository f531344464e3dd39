"""The same work by another library, Mirascope, by the loop of its own pages, with a model that costs next to nothing.

It is no dependency of ours: ``pip install mirascope`` before it is measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

from bench.clock import on_asyncio, sized
from bench.workload import QUESTION, arguments_of, forecast

llm: Any = import_module("mirascope.llm")
Provider: Any = import_module("mirascope.llm.providers.base").BaseProvider


class _Script:
    """Gives prepared replies, one after the other."""

    id = "script"
    default_scope = "script/"
    replies: Iterator[Any]

    async def call_async(self, *, model_id: str, messages: Any, toolkit: Any, **more: Any) -> Any:
        return llm.AsyncResponse(
            raw=None,
            provider_id="script",
            model_id=model_id,
            provider_model_name="model",
            params={},
            tools=toolkit,
            format=more["format"],
            input_messages=messages,
            assistant_message=next(self.replies),
            finish_reason=None,
            usage=None,
        )

    resume_async = Provider.resume_async


def _make_reply(content: list[Any]) -> Any:
    return llm.AssistantMessage(
        content=content, provider_id=None, model_id=None, provider_model_name=None, raw_message=None
    )


def _make_call(number: int) -> Any:
    return llm.ToolCall(id=str(number), name="forecast", args=arguments_of(number))


def _turns(turns: int, runs: int, calls: int = 1) -> float:
    provider, runs = _Script(), sized(runs)
    contents = [list(map(_make_call, range(first, first + calls))) for first in range(0, turns * calls, calls)]
    replies = [_make_reply(content) for content in [*contents, [llm.Text(text="done")]]]
    llm.register_provider(provider, scope="script/")
    model, tools = llm.Model("script/model"), [llm.tool(forecast)]

    async def work() -> None:
        for _ in range(runs):
            provider.replies = iter(replies)
            response = await model.call_async(QUESTION, tools=tools)
            while response.tool_calls:
                response = await response.resume(await response.execute_tools())

    return on_asyncio(work, runs * turns * calls)


def mirascope_run(features: Collection[str]) -> float:
    return _turns(1, 1_000)


def mirascope_turns_50(features: Collection[str]) -> float:
    return _turns(50, 50)


def mirascope_calls_100(features: Collection[str]) -> float:
    return _turns(1, 50, 100)
