"""The floor: what one would write by hand for exactly this, without a single feature.

``json.loads`` -> ``model_validate`` -> await the function -> ``to_json`` -> append a message. Messages are plain
dictionaries, the model is a coroutine function that returns the next one.
"""

import asyncio
import datetime
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeAlias

import pydantic
from pydantic_core import to_json

from bench.clock import BATCHES, LOOPS, OtherWork, cpu_of, on_asyncio, sized, wall_of
from bench.rich import DOZEN, NESTED_ARGUMENTS, RICH_ARGUMENTS, Address, Kind, Point, make_nested_models
from bench.workload import ANSWER, ECHO_PLUGIN, OUTPUT, QUESTION, arguments_of, block, forecast, search, wait

Reply: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[..., Awaitable[Any]]


def making_simple() -> float:
    """Write a model of three fields by hand, derive its schema, and validate once."""

    def make() -> None:
        for _ in range(sized(50)):

            class Arguments(pydantic.BaseModel):
                model_config = pydantic.ConfigDict(extra="forbid")

                city: str = pydantic.Field(description="Such as Paris.")
                days: int = pydantic.Field(description="How many days ahead.")
                metric: bool = pydantic.Field(default=True, description="Whether to use degrees Celsius.")

            Arguments.model_json_schema()
            Arguments.model_validate(json.loads(arguments_of(3)))

    return cpu_of(make, sized(50))


def making_rich() -> float:
    """Do the same with ten rich fields."""

    def make() -> None:
        for _ in range(sized(20)):

            class Arguments(pydantic.BaseModel):
                model_config = pydantic.ConfigDict(extra="forbid")

                name: Annotated[str, pydantic.Field(min_length=1, max_length=50)] = pydantic.Field(
                    description="Whose order it is."
                )
                address: Address = pydantic.Field(description="Where it goes.")
                kind: Kind = pydantic.Field(description="What it is.")
                mode: Literal["fast", "cheap"] = pydantic.Field(default="fast", description="How it goes.")
                tags: list[str] = pydantic.Field(description="Words about it.")
                limits: dict[str, int] = pydantic.Field(description="The most of each.")
                when: datetime.datetime | None = pydantic.Field(default=None, description="When it goes.")
                points: list[Point] = pydantic.Field(description="Places on the way.")
                price: Annotated[float, pydantic.Field(ge=0)] = pydantic.Field(
                    default=1.0, description="What it costs."
                )
                codes: set[int] | str = pydantic.Field(description="Codes, or one word.")

            Arguments.model_json_schema()
            Arguments.model_validate(json.loads(RICH_ARGUMENTS))

    return cpu_of(make, sized(20))


def making_nested() -> float:
    """Do the same with a dozen models of two fields, one of them a model with models inside."""
    models = [make_nested_models() for _ in range(BATCHES + 1)]

    def make() -> None:
        model = models.pop()
        for _ in range(DOZEN):
            Arguments = pydantic.create_model(  # noqa: N806 - a class
                "Arguments",
                __config__=pydantic.ConfigDict(extra="forbid"),
                order=(model, pydantic.Field(description="What is wanted.")),
                rush=(bool, pydantic.Field(default=False, description="Whether it is urgent.")),
            )
            Arguments.model_json_schema()
            Arguments.model_validate(json.loads(NESTED_ARGUMENTS))

    return cpu_of(make, DOZEN)


def replies_of(turns: int, calls: int = 1) -> list[Reply]:
    """Return what the model says in a run of so many tool turns."""
    replies: list[Reply] = [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": f"{turn}-{call}", "name": "forecast", "arguments": arguments_of(turn * calls + call)}
                for call in range(calls)
            ],
        }
        for turn in range(turns)
    ]
    return [*replies, {"role": "assistant", "content": "done"}]


class Model:
    """Gives prepared replies, one after the other."""

    def __init__(self, replies: Sequence[Reply], *, yields: bool = False, is_slow: bool = False) -> None:
        self._replies = iter(replies)
        self._yields = yields
        self._is_slow = is_slow

    async def __call__(self, messages: list[Reply]) -> Reply:
        if self._yields:
            await asyncio.sleep(0)
        if self._is_slow:
            OtherWork.do()
        return next(self._replies)


class Loop:
    """The loop, with one tool."""

    def __init__(self, function: Function) -> None:
        class Arguments(pydantic.BaseModel):
            city: str
            days: int
            metric: bool = True

        self._validate = Arguments.model_validate
        self._function = function

    async def run_call(self, call: Reply) -> Reply:
        arguments = self._validate(json.loads(call["arguments"]))
        value = await self._function(arguments.city, arguments.days, arguments.metric)
        return {"role": "tool", "tool_call_id": call["id"], "content": to_json(value).decode()}

    async def run(self, model: Callable[[list[Reply]], Awaitable[Reply]]) -> list[Reply]:
        messages: list[Reply] = [{"role": "user", "content": "What is the weather?"}]
        while True:
            reply = await model(messages)
            messages.append(reply)
            calls = reply.get("tool_calls")
            if not calls:
                return messages
            if len(calls) == 1:
                messages.append(await self.run_call(calls[0]))
            else:
                messages.extend(await asyncio.gather(*[self.run_call(call) for call in calls]))


def one_call() -> float:
    loop, count = Loop(forecast), sized(10_000)
    call = replies_of(1)[0]["tool_calls"][0]

    async def work() -> None:
        messages: list[Reply] = []
        for _ in range(count):
            messages.append(await loop.run_call(call))

    return on_asyncio(work, count)


def _turns(loop: Loop, turns: int, runs: int, calls: int = 1, per: int = 1, *, is_slow: bool = False) -> float:
    replies, runs = replies_of(turns, calls), sized(runs)

    async def work() -> None:
        for _ in range(runs):
            await loop.run(Model(replies, is_slow=is_slow))

    return on_asyncio(work, runs * per)


def one_run() -> float:
    return _turns(Loop(forecast), 1, 3_000)


def turns_50() -> float:
    return _turns(Loop(forecast), 50, 150, per=50)


def turns_800() -> float:
    return _turns(Loop(forecast), 800, 10, per=800)


def spaced_run() -> float:
    return _turns(Loop(forecast), 1, 40, is_slow=True)


def spaced_turns_50() -> float:
    return _turns(Loop(forecast), 50, 1, per=50, is_slow=True)


def spaced_calls_100() -> float:
    return _turns(Loop(forecast), 1, 10, calls=100, per=100, is_slow=True)


def large_results() -> float:
    return _turns(Loop(search), 50, 30, per=50)


def calls_100() -> float:
    return _turns(Loop(forecast), 1, 50, calls=100, per=100)


def calls_1000() -> float:
    return _turns(Loop(forecast), 1, 5, calls=1000, per=1000)


def waiting_100() -> float:
    loop, replies = Loop(wait), replies_of(1, 100)
    return wall_of(lambda: loop.run(Model(replies)))


def plugin_call() -> float:
    calls = sized(200)
    with subprocess.Popen([sys.executable, ECHO_PLUGIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as plugin:
        requests, answers = plugin.stdin, plugin.stdout
        assert requests is not None
        assert answers is not None

        def work() -> None:
            for number in range(calls):
                request = {"type": "call", "call_id": str(number), "params": {"text": "hello"}}
                requests.write(json.dumps(request).encode() + b"\n")
                requests.flush()
                json.loads(answers.readline())

        spent = cpu_of(work, calls)
        requests.close()
    return spent


def blocking_32() -> float:
    pool = ThreadPoolExecutor(40)

    async def in_thread(city: str, days: int, metric: bool) -> str:
        return await asyncio.get_running_loop().run_in_executor(pool, block, city, days, metric)

    loop, replies = Loop(in_thread), replies_of(1, 32)
    return wall_of(lambda: loop.run(Model(replies)))


def loops_1000() -> float:
    loop, replies = Loop(forecast), replies_of(10)

    async def work() -> None:
        await asyncio.gather(*[loop.run(Model(replies, yields=True)) for _ in range(LOOPS)])

    return on_asyncio(work, LOOPS * 10)


def deltas() -> float:
    """Iterate the stream of the same provider and join."""
    from bench.streams import Talker, read_by_hand

    return read_by_hand(Talker)


def waiting_deltas() -> float:
    from bench.streams import WaitingTalker, read_by_hand

    return read_by_hand(WaitingTalker)


def streamed_calls() -> float:
    from bench.streams import call_by_hand

    return call_by_hand()


def encoding_1600() -> float:
    """Write a conversation that grows by one message as JSON, all of it each time."""
    messages: list[Reply] = []
    for number in range(400):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": arguments_of(number)}}
        messages.append({"role": "user", "content": QUESTION})
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": OUTPUT})
        messages.append({"role": "assistant", "content": ANSWER})

    def encode() -> None:
        for _ in range(20):
            messages.append({"role": "user", "content": QUESTION})
            body = json.dumps({"model": "m", "messages": messages}, ensure_ascii=False).encode()
            assert len(body) > 400_000
        del messages[1600:]

    return cpu_of(encode, 20)


def memory() -> float:
    loop = Loop(forecast)
    return asyncio.run(memory_of(loop.run, lambda: HeldModel(replies_of(1))))


class HeldModel(Model):
    """Lets its second reply wait until it is told, so that the loop stays alive with a turn behind it."""

    awaited = 0
    gate: asyncio.Event
    all_held: asyncio.Event

    async def __call__(self, messages: list[Reply]) -> Reply:
        if len(messages) > 1:
            await hold()
        return await super().__call__(messages)


async def hold() -> None:
    """Wait in a loop, and tell when all wait."""
    HeldModel.awaited -= 1
    if HeldModel.awaited == 0:
        HeldModel.all_held.set()
    await HeldModel.gate.wait()


async def memory_of(run: Callable[[Any], Any], make: Callable[[], Any]) -> float:
    """Return KiB at the peak of one loop among a thousand that are alive, each with a turn behind it."""
    loops = 1_000
    HeldModel.gate = asyncio.Event()
    HeldModel.all_held = asyncio.Event()
    HeldModel.gate.set()
    await run(make())
    HeldModel.gate.clear()
    HeldModel.all_held.clear()
    HeldModel.awaited = loops
    models = [make() for _ in range(loops)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.ensure_future(run(model)) for model in models]
    await HeldModel.all_held.wait()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    HeldModel.gate.set()
    await asyncio.gather(*tasks)
    return peak / loops / 1024
