"""Whatever is given up, whenever and by whom: what must not run together never does, and each text says what was."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings, strategies as st

from toolkit import (
    AssistantMessage,
    Timeouts,
    Tool,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool_loop,
    tool_with_ctx,
)
from toolkit.runtime import workers as pools
from toolkit.runtime.workers import abandoned_count
from toolkit.testing import EventCollector, ScriptedProvider, check_transcript


class Ledger:
    """Notes who is at work; safe between threads."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.overlaps: list[tuple[str, ...]] = []
        self._lock = threading.Lock()
        self._at_work: list[tuple[str, ...]] = []

    def begin(self, call_id: str, *held: str) -> None:
        with self._lock:
            self.begun[call_id] += 1
            self.overlaps += [held for other in self._at_work if set(other) & set(held)]
            self._at_work.append(held)

    def end(self, *held: str) -> None:
        with self._lock:
            self._at_work.remove(held)


ledgers = [Ledger()]
NEVER = threading.Event()


def in_thread(lock: Any, key: str, timeout: float | None) -> Tool[Any]:
    @tool_with_ctx(name=f"thread_{key}_{timeout is None}", lock=lock, timeout=timeout)
    def work(context: ToolContext[None], milliseconds: int, account: str = "x") -> str:
        """Work on in a thread, whoever waits for it."""
        held = account if callable(lock) else key
        ledgers[0].begin(context.call_id, held)
        NEVER.wait(milliseconds / 1000)
        ledgers[0].end(held)
        return "done"

    return work


def on_loop(lock: Any, key: str, timeout: float | None) -> Tool[Any]:
    @tool_with_ctx(name=f"async_{key}_{timeout is None}", lock=lock, timeout=timeout)
    async def work(context: ToolContext[None], milliseconds: int, account: str = "x") -> str:
        """Work on the event loop, and stop when told to."""
        held = account if callable(lock) else key
        ledgers[0].begin(context.call_id, held)
        try:
            await anyio.sleep(milliseconds / 1000)
        finally:
            ledgers[0].end(held)
        return "done"

    return work


def account_of(arguments: Any) -> Any:
    return arguments["account"]


TOOLS = ToolRegistry[None](
    [
        make(lock, key, timeout)
        for make in (in_thread, on_loop)
        for lock, key in (("x", "x"), ("y", "y"), (account_of, "by_account"))
        for timeout in (None, 0.003)
    ]
)


@dataclass(frozen=True)
class Wish:
    name: str
    milliseconds: int
    account: str


WISHES = st.builds(
    Wish, st.sampled_from([each.definition.name for each in TOOLS]), st.sampled_from([0, 1, 6]), st.sampled_from("xy")
)


def script_of(turns: Sequence[Sequence[Wish]]) -> ScriptedProvider:
    calls = [
        AssistantMessage(
            [
                ToolCall(
                    f"{turn}-{number}",
                    wish.name,
                    f'{{"milliseconds": {wish.milliseconds}, "account": "{wish.account}"}}',
                )
                for number, wish in enumerate(wishes)
            ]
        )
        for turn, wishes in enumerate(turns)
    ]
    return ScriptedProvider([*calls, "done"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(WISHES, min_size=1, max_size=6), min_size=1, max_size=2),
    st.sampled_from([None, 0.002, 0.008]),
    st.sampled_from([0.004, 30]),
    st.sampled_from([2, 40]),
)
def test_what_must_not_run_together_never_does_and_each_text_is_true(
    backend: str, turns: list[list[Wish]], timeout: float | None, wait_timeout: float, workers: int
) -> None:
    ledger = ledgers[0] = Ledger()  # the tools are made once
    events = EventCollector()

    async def main() -> None:
        config = ToolLoopConfig(
            timeout=timeout, timeouts=Timeouts(wait=wait_timeout), sync_workers=workers, on_event=events
        )
        with anyio.fail_after(120):
            result = await tool_loop(script_of(turns), TOOLS, "go", ctx=None, config=config)
            while abandoned_count():  # nothing announces the end of a thread
                await anyio.lowlevel.checkpoint()
        check_transcript(result.messages, events.events)
        for message in result.messages:
            if isinstance(message, ToolResult):
                has_begun = bool(ledger.begun[message.call_id])
                assert has_begun != message.text.startswith("Not started"), message.text
                if has_begun and message.is_error:
                    assert "may have taken effect" in message.text

    anyio.run(main, backend=backend)
    assert ledger.overlaps == []
    assert all(count == 1 for count in ledger.begun.values())
    assert not pools._open_gates  # pyright: ignore[reportPrivateUsage]
