"""The same work as in `floor`, by toolkit, with any of its features switched on."""

import asyncio
import cProfile
import datetime
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from statistics import median
from typing import Annotated, Any, Literal

import pydantic

from bench.clock import BATCHES, LOOPS, OtherWork, cpu_of, cpu_of_async, on_asyncio, sized, wall_of
from bench.floor import hold, memory_of
from bench.rich import DOZEN, NESTED_ARGUMENTS, RICH_ARGUMENTS, Address, Kind, Point, make_nested_models
from bench.workload import ANSWER, ECHO_PLUGIN, OUTPUT, QUESTION, arguments_of, block, forecast, search, wait
from toolkit import (
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    FunctionTool,
    LoopDetectionConfig,
    LoopLimits,
    MemoryCache,
    Message,
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    Usage,
    UsageLimits,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent
from toolkit.events import LoopEvent, ToolExecutionEnd, listener
from toolkit.policies import ToolExecutionHooks
from toolkit.run_log import RunLog
from toolkit.sources.plugin import plugin_tools

FEATURES = ("approval", "hooks", "retry", "tool timeout", "loop timeout", "events", "detection", "limits", "cache")
HOOKS = ToolExecutionHooks(before=lambda name, call_id, arguments: True, after=lambda name, call_id, is_error: None)

PRODUCTION = ("approval", "events", "detection", "limits", "loop timeout", "tool timeout")
"""What a run has where people are."""
SYNC_PRODUCTION = ("sync approval", *PRODUCTION[1:])
"""The same with an approver that is asked in a thread."""
LISTENING = ("ends of calls", *(feature for feature in PRODUCTION if feature != "events"))
"""The same where only the ends of calls are taken."""


class Script:
    """A provider that costs next to nothing: it gives prepared responses, one after the other."""

    def __init__(self, responses: Sequence[ChatResponse] = (), *, yields: bool = False, is_slow: bool = False) -> None:
        self._responses = iter(responses)
        self._yields = yields
        self._is_slow = is_slow

    async def generate(self, request: ChatRequest) -> ChatResponse:
        if self._yields:
            await asyncio.sleep(0)
        if self._is_slow:
            OtherWork.do()
        return next(self._responses)

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        yield ResponseDone(await self.generate(request))


class HeldScript(Script):
    """Lets its second reply wait, as `floor.HeldModel` does."""

    async def generate(self, request: ChatRequest) -> ChatResponse:
        if len(request.messages) > 1:
            await hold()
        return next(self._responses)


def responses_of(turns: int, calls: int = 1, name: str = "forecast") -> list[ChatResponse]:
    """Return what the model says in a run of so many tool turns."""
    responses = [
        ChatResponse(
            message=AssistantMessage(
                [ToolCall(f"{turn}-{call}", name, arguments_of(turn * calls + call)) for call in range(calls)]
            ),
            usage=Usage(input_tokens=10, output_tokens=5),
            stop_reason="tool_use",
        )
        for turn in range(turns)
    ]
    return [*responses, ChatResponse(message=AssistantMessage("done"))]


class Setting:
    """The tool, the registry and the configuration of a run with some features.

    Args:
        function: The tool.
        features: Some of `FEATURES`.
        idle_tools: How many tools more there are, which nobody calls.
        has_many_calls: Whether a turn has more calls than one may have by default.
    """

    def __init__(
        self,
        function: Callable[..., Any] = forecast,
        features: Collection[str] = (),
        *,
        idle_tools: int = 0,
        has_many_calls: bool = False,
    ) -> None:
        self._features = frozenset(features)
        self._has_many_calls = has_many_calls
        self._configs: dict[int, ToolLoopConfig] = {}
        options: dict[str, Any] = {}
        if "retry" in features:
            options["retry"] = ToolRetryConfig()
        if "tool timeout" in features:
            options["timeout"] = 60
        self.name = function.__name__
        self.registry = ToolRegistry([_made(function, options)])
        for number in range(idle_tools):
            self.registry.register(tool(name=f"idle_{number}")(forecast))

    def config(self, turns: int) -> ToolLoopConfig | None:
        """Return the configuration of one run: a new one only for a cache, which must be new, or nothing would run."""
        if not self._features and turns < 10 and not self._has_many_calls:
            return None
        if turns not in self._configs or "cache" in self._features:
            self._configs[turns] = self._configured(turns)
        return self._configs[turns]

    def _configured(self, turns: int) -> ToolLoopConfig:
        has = self._features.__contains__
        return ToolLoopConfig(
            max_iterations=turns + 1,
            limits=LoopLimits(
                calls_per_turn=None,
                usage=UsageLimits(requests=10**6, tool_calls=10**6, total_tokens=10**9) if has("limits") else None,
            ),
            on_tool_call=_approve if has("approval") else _approve_in_thread if has("sync approval") else None,
            middleware=[HOOKS] if has("hooks") else [],
            timeout=3_600 if has("loop timeout") else None,
            on_event=_take_event if has("events") else _take_ends if has("ends of calls") else None,
            loop_detection=LoopDetectionConfig() if has("detection") else None,
            cache=MemoryCache() if has("cache") else None,
        )

    def run(self, provider: Script, config: ToolLoopConfig | None) -> Coroutine[Any, Any, ToolLoopResult]:
        """Return a loop to run."""
        return tool_loop(provider, self.registry, "What is the weather?", config=config)


def _take_event(event: LoopEvent) -> None:
    """Do nothing with an event."""


_take_ends = listener(ToolExecutionEnd, _take_event)


async def _approve(request: ApprovalRequest) -> Approve:
    """Say yes at once, in the event loop: one that is not async is asked in a thread."""
    return Approve()


def _approve_in_thread(request: ApprovalRequest) -> Approve:
    return Approve()


def _made(function: Callable[..., Any], options: dict[str, Any]) -> FunctionTool[object, ..., Any]:
    made: FunctionTool[object, ..., Any] = tool(**options)(function)
    return made


def making_simple(features: Collection[str]) -> float:
    def make() -> None:
        for _ in range(sized(50)):

            async def forecast(city: str, days: int, metric: bool = True) -> dict[str, Any]:
                """Forecast the weather.

                Args:
                    city: Such as Paris.
                    days: How many days ahead.
                    metric: Whether to use degrees Celsius.
                """
                raise NotImplementedError

            made = tool(forecast)
            assert made.definition.parameters
            made.parse_args(arguments_of(3))

    return cpu_of(make, sized(50))


def making_rich(features: Collection[str]) -> float:
    def make() -> None:
        for _ in range(sized(20)):

            async def order(
                name: Annotated[str, pydantic.Field(min_length=1, max_length=50)],
                address: Address,
                kind: Kind,
                tags: list[str],
                limits: dict[str, int],
                points: list[Point],
                codes: set[int] | str,
                mode: Literal["fast", "cheap"] = "fast",
                when: datetime.datetime | None = None,
                price: Annotated[float, pydantic.Field(ge=0)] = 1.0,
            ) -> None:
                """Order something.

                Args:
                    name: Whose order it is.
                    address: Where it goes.
                    kind: What it is.
                    tags: Words about it.
                    limits: The most of each.
                    points: Places on the way.
                    codes: Codes, or one word.
                    mode: How it goes.
                    when: When it goes.
                    price: What it costs.
                """

            made = tool(order)
            assert made.definition.parameters
            made.parse_args(RICH_ARGUMENTS)

    return cpu_of(make, sized(20))


def making_nested(features: Collection[str]) -> float:
    """Make a dozen tools that take the same models, of which nothing is known before."""
    models = [make_nested_models() for _ in range(BATCHES + 1)]

    def make() -> None:
        model = models.pop()
        for _ in range(DOZEN):

            async def place(order: Any, rush: bool = False) -> None:
                """Place an order.

                Args:
                    order: What is wanted.
                    rush: Whether it is urgent.
                """

            place.__annotations__["order"] = model
            made = tool(place)
            assert made.definition.parameters
            made.parse_args(NESTED_ARGUMENTS)

    return cpu_of(make, DOZEN)


def one_call(features: Collection[str]) -> float:
    registry, count = Setting(forecast, features).registry, sized(10_000)
    call = ToolCall("1", "forecast", arguments_of(1))

    async def work() -> None:
        messages: list[Any] = []
        for _ in range(count):
            messages.append(await registry.execute(call))

    return on_asyncio(work, count)


def turning(
    setting: Setting, turns: int, runs: int, calls: int = 1, *, is_slow: bool = False
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return what makes so many runs of so many turns of so many calls."""
    responses = responses_of(turns, calls, setting.name)

    async def work() -> None:
        for _ in range(runs):
            await setting.run(Script(responses, is_slow=is_slow), setting.config(turns))

    return work


def _turns(setting: Setting, turns: int, runs: int, calls: int = 1, per: int = 1, *, is_slow: bool = False) -> float:
    runs = sized(runs)
    return on_asyncio(turning(setting, turns, runs, calls, is_slow=is_slow), runs * per)


def one_run(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 1, 3_000)


def turns_50(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 50, 150, per=50)


def turns_800(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 800, 10, per=800)


def idle_tools(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features, idle_tools=100), 50, 150, per=50)


def large_results(features: Collection[str]) -> float:
    return _turns(Setting(search, features), 50, 30, per=50)


def calls_100(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 1, 50, calls=100, per=100)


def calls_1000(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features, has_many_calls=True), 1, 5, calls=1000, per=1000)


def spaced_run(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 1, 40, is_slow=True)


def spaced_turns_50(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 50, 1, per=50, is_slow=True)


def spaced_calls_100(features: Collection[str]) -> float:
    return _turns(Setting(forecast, features), 1, 10, calls=100, per=100, is_slow=True)


def spaced_production_run(features: Collection[str]) -> float:
    return spaced_run(PRODUCTION)


def spaced_production_turn(features: Collection[str]) -> float:
    return spaced_turns_50(PRODUCTION)


def spaced_production_call(features: Collection[str]) -> float:
    return spaced_calls_100(PRODUCTION)


def production_run(features: Collection[str]) -> float:
    return _turns(Setting(forecast, PRODUCTION), 1, 3_000)


def production_turn(features: Collection[str]) -> float:
    return _turns(Setting(forecast, PRODUCTION), 50, 50, per=50)


def run_log_turn(features: Collection[str]) -> float:
    """All that a run log takes: in the run, and in the thread that writes it to a disk."""
    turns, runs = 50, sized(20)
    registry, responses = ToolRegistry([_made(forecast, {})]), responses_of(turns)
    with tempfile.TemporaryDirectory() as folder:
        log = RunLog(folder)
        config = ToolLoopConfig(max_iterations=turns + 1, middleware=(log,))

        async def work() -> None:
            for _ in range(runs):
                await tool_loop(Script(responses), registry, QUESTION, config=config)
                log.flush(60)

        return on_asyncio(work, runs * turns)


def listening_turn(features: Collection[str]) -> float:
    """A turn of production whose events are the ends of calls alone."""
    return _turns(Setting(forecast, LISTENING), 50, 50, per=50)


def production_call(features: Collection[str]) -> float:
    return _turns(Setting(forecast, PRODUCTION), 1, 30, calls=100, per=100)


def sync_approver_turn(features: Collection[str]) -> float:
    return _turns(Setting(forecast, SYNC_PRODUCTION), 50, 50, per=50)


def sync_approver_call(features: Collection[str]) -> float:
    return _turns(Setting(forecast, SYNC_PRODUCTION), 1, 30, calls=100, per=100)


def waiting_100(features: Collection[str]) -> float:
    setting, responses = Setting(wait, features), responses_of(1, 100, "wait")
    return wall_of(lambda: setting.run(Script(responses), setting.config(1)))


def blocking_32(features: Collection[str]) -> float:
    setting, responses = Setting(block, features), responses_of(1, 32, "block")
    return wall_of(lambda: setting.run(Script(responses), setting.config(1)))


def plugin_call(features: Collection[str]) -> float:
    calls = sized(200)

    async def measured() -> float:
        async with plugin_tools(sys.executable, [ECHO_PLUGIN]) as tools:
            registry = ToolRegistry(tools)

            async def work() -> None:
                for number in range(calls):
                    await registry.execute(ToolCall(str(number), "echo", '{"text": "hello"}'))

            return await cpu_of_async(work, calls)

    return asyncio.run(measured())


def loops_1000(features: Collection[str]) -> float:
    setting, responses = Setting(forecast, features), responses_of(10)

    async def work() -> None:
        await asyncio.gather(*[setting.run(Script(responses, yields=True), setting.config(10)) for _ in range(LOOPS)])

    return on_asyncio(work, LOOPS * 10)


def encoding_1600(features: Collection[str]) -> float:
    from toolkit.providers.openai.chat import ChatEncoder

    messages: list[Message] = []
    for number in range(400):
        call = ToolCall(f"c{number}", "f", arguments_of(number))
        messages += [UserMessage(QUESTION), AssistantMessage([call]), ToolResult(f"c{number}", OUTPUT)]
        messages.append(AssistantMessage(ANSWER))
    encoder = ChatEncoder(model="m", defaults={})

    def encode() -> None:
        for _ in range(20):
            messages.append(UserMessage(QUESTION))
            assert len(encoder.encode(ChatRequest(messages=messages), streams=False)) > 400_000
        del messages[1600:]

    return cpu_of(encode, 20)


def memory(features: Collection[str]) -> float:
    return _memory(features)


def production_memory(features: Collection[str]) -> float:
    return _memory(PRODUCTION)


def _memory(features: Collection[str]) -> float:
    setting, responses = Setting(forecast, features), responses_of(1)
    config = setting.config(10)
    return asyncio.run(memory_of(lambda script: setting.run(script, config), lambda: HeldScript(responses)))


def price_of(feature: str) -> float:
    """Return the microseconds a turn that one feature adds, measured in turns with and without it."""
    turns, runs = 50, sized(40)
    without, within = turning(Setting(), turns, runs), turning(Setting(features=[feature]), turns, runs)

    async def measured() -> float:
        differences: list[float] = []
        for _ in range(BATCHES + 1):
            gc.collect()
            marks = [time.process_time()]
            for work in (without, within):
                await work()
                marks.append(time.process_time())
            differences.append((marks[2] - marks[1]) - (marks[1] - marks[0]))
        return median(differences[1:]) / turns / runs * 1e6

    return asyncio.run(measured())


def measure_on_trio(name: str, features: Collection[str] = ()) -> float:
    """Return what a turn (`turns`) or one of a hundred parallel calls (`calls`) costs on trio."""
    import trio

    runs = sized(100)
    work, units = {
        "turns": (turning(Setting(forecast, features), 50, runs), 50 * runs),
        "calls": (turning(Setting(forecast, features), 1, runs, calls=100), 100 * runs),
    }[name]

    return trio.run(cpu_of_async, work, units)


def trio_turns(features: Collection[str]) -> float:
    return measure_on_trio("turns")


def trio_calls(features: Collection[str]) -> float:
    return measure_on_trio("calls")


def calls_a_turn(turns: int, features: Collection[str] = ()) -> float:
    """Return how many Python functions a turn calls, counted by cProfile; built-in functions don't count."""
    setting, responses = Setting(forecast, features), responses_of(turns)
    config = setting.config(turns)

    async def count() -> int:
        await setting.run(Script(responses), config)
        profile = cProfile.Profile(builtins=False)
        profile.enable()
        await setting.run(Script(responses), config)
        profile.disable()
        # Not by `pstats`, which takes the constructors of all dataclasses for one function.
        return sum(entry.callcount for entry in profile.getstats())

    return asyncio.run(count()) / turns


def python_calls(features: Collection[str]) -> float:
    return calls_a_turn(200, features)


def production_python_calls(features: Collection[str]) -> float:
    return calls_a_turn(200, PRODUCTION)
