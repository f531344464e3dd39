"""Places that runs and tools share: how many run at once, and that none waits for a stranger."""

import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop, tool_loop_sync
from toolkit.errors import ConfigurationError, TooManyRunsError
from toolkit.policies import ApprovalRequest, RunLimit, Timeouts
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


class Hall:
    """A tool that counts the runs inside it, and lets them out together."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.opened = threading.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            while not self.opened.is_set():  # noqa: ASYNC110
                await anyio.sleep(0.001)
            self.inside -= 1
            return "out"

        self.registry = ToolRegistry([wait])

    async def enter(self, config: ToolLoopConfig) -> str:
        provider = ScriptedProvider([ToolCall("1", "wait", "{}"), "done"])
        return (await tool_loop(provider, self.registry, "go", config=config)).text


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(120):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def test_only_so_many_runs_are_under_way_and_the_others_wait() -> None:
    hall, config = Hall(), ToolLoopConfig(middleware=(RunLimit(2),))
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(hall.enter, config)
        await until(lambda: hall.inside == 2)
        await anyio.wait_all_tasks_blocked()
        hall.opened.set()
    assert hall.most == 2


async def test_the_limit_of_runs_holds_over_threads() -> None:
    hall, config = Hall(), ToolLoopConfig(middleware=(RunLimit(2),))
    begun: list[int] = []

    def run(number: int) -> None:
        begun.append(number)
        provider = ScriptedProvider([ToolCall("1", "wait", "{}"), "done"])
        tool_loop_sync(provider, hall.registry, "go", config=config)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(anyio.to_thread.run_sync, run, number)
        await until(lambda: len(begun) == 5 and hall.inside == 2)
        hall.opened.set()
    assert hall.most == 2


async def test_a_run_beyond_those_that_may_wait_is_refused_in_words_and_the_place_is_free_again_later() -> None:
    hall, config = Hall(), ToolLoopConfig(middleware=(RunLimit(1, waiting=1),))
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(hall.enter, config)
        await until(lambda: hall.inside == 1)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(TooManyRunsError, match="1 runs are under way and 1 wait, which is the limit"):
            await hall.enter(config)
        hall.opened.set()
    assert await hall.enter(config) == "done"


async def test_a_loop_in_a_tool_takes_no_place_of_its_own() -> None:
    config = ToolLoopConfig(middleware=(RunLimit(1, waiting=0),))

    @tool
    async def delegate() -> str:
        """Run a loop."""
        return (await tool_loop(ScriptedProvider(["inner"]), ToolRegistry([]), "go", config=config)).text

    provider = ScriptedProvider([ToolCall("1", "delegate", "{}"), "done"])
    with anyio.fail_after(120):
        result = await tool_loop(provider, ToolRegistry([delegate]), "go", config=config)
    assert result.messages[2].text == "inner"


def test_a_limit_of_no_runs_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="runs"):
        RunLimit(0)


async def test_abandoned_calls_of_one_tool_leave_places_to_the_others() -> None:
    opened = threading.Event()

    @tool(timeout=0.01)
    def hang() -> str:
        """Never end."""
        opened.wait(300)
        return ""

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    replies = [ToolCall(str(number), "hang", "{}") for number in range(5)]
    provider = ScriptedProvider([*replies, ToolCall("a", "add", '{"a": 1, "b": 2}'), "done"])
    config = ToolLoopConfig(sync_workers=4)
    try:
        with anyio.fail_after(120):
            result = await tool_loop(provider, ToolRegistry([hang, add]), "go", config=config)
    finally:
        opened.set()
    texts = [message.text for message in result.messages if message.role == "tool"]
    assert [text.startswith("Not started: 2 earlier calls of this tool") for text in texts[:5]] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert texts[5] == "3"


async def test_approvers_that_wait_for_people_keep_no_tool_from_its_thread() -> None:
    asked, decided = threading.Event(), threading.Event()

    def approve(request: ApprovalRequest) -> bool:
        if request.tool_name == "pay":
            asked.set()
            decided.wait(120)
        return True

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    config = ToolLoopConfig(on_tool_call=approve, sync_workers=1, timeouts=Timeouts(wait=2))
    texts: list[str] = []

    async def run(call: ToolCall) -> None:
        result = await tool_loop(ScriptedProvider([call, "done"]), ToolRegistry([pay, add]), "go", config=config)
        texts.append(result.messages[2].text)

    try:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, ToolCall("1", "pay", "{}"))
                await until(asked.is_set)
                await run(ToolCall("2", "add", '{"a": 1, "b": 2}'))
                decided.set()
    finally:
        decided.set()
    assert texts == ["3", "paid"]


async def test_no_more_approvers_than_two_hundred_wait_in_threads_at_once() -> None:
    asked: list[str] = []
    at_once: list[int] = []
    decided = threading.Event()

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.call_id)
        decided.wait(120)
        return True

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    registry, config = ToolRegistry([pay]), ToolLoopConfig(on_tool_call=approve)

    async def run() -> None:
        await tool_loop(ScriptedProvider([ToolCall("1", "pay", "{}"), "done"]), registry, "go", config=config)

    try:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for _ in range(205):
                    tasks.start_soon(run)
                await until(lambda: len(asked) >= 200)
                await anyio.wait_all_tasks_blocked()
                at_once.append(len(asked))
                decided.set()
    finally:
        decided.set()
    assert (at_once, len(asked)) == ([200], 205)
