"""What runs of what a model says: names off by a letter, replies cut anywhere, two users of one cache."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from toolkit import (
    AssistantMessage,
    MemoryCache,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    tool_from_function,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse
from toolkit.testing import ScriptedProvider, check_transcript

LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = st.lists(st.text(LETTERS, min_size=2, max_size=8), min_size=1, max_size=3).map("_".join)


BACKENDS = st.sampled_from(["asyncio", "trio"])


def play(run: Callable[[], Awaitable[None]], backend: str) -> None:
    anyio.run(run, backend=backend)


@st.composite
def off_by_one(draw: st.DrawFn) -> tuple[str, str]:
    """Give a name and one that is a letter away from it."""
    name = draw(NAMES)
    place = draw(st.integers(0, len(name) - 1))
    letter = draw(st.sampled_from(LETTERS))
    match draw(st.sampled_from(["other", "more", "less"])):
        case "other":
            wrong = name[:place] + letter + name[place + 1 :]
        case "more":
            wrong = name[:place] + letter + name[place:]
        case _:
            wrong = name[:place] + name[place + 1 :]
    return name, wrong


@given(names=off_by_one(), backend=BACKENDS)
@settings(max_examples=80, deadline=None)
def test_a_name_of_other_letters_runs_nothing(names: tuple[str, str], backend: str) -> None:
    name, wrong = names
    has_other_letters = name.replace("_", "") != wrong.replace("_", "")
    ran: list[str] = []

    def act() -> str:
        """Act."""
        ran.append(name)
        return "done"

    registry = ToolRegistry([tool_from_function(act, name=name, run_in_thread=False)])

    async def run() -> None:
        await registry.execute(ToolCall("1", wrong, "{}"))

    play(run, backend)
    assert ran == ([] if has_other_letters else [name])


VALUES = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3)


@given(arguments=VALUES, before=st.booleans(), backend=BACKENDS, data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_reply_cut_at_any_byte_runs_what_was_said_whole_and_nothing_else(
    arguments: dict[str, Any], before: bool, backend: str, data: st.DataObject
) -> None:
    whole = json.dumps({"values": arguments})
    cut = data.draw(st.integers(0, len(whole)))
    ran: list[object] = []

    def act(values: dict[str, int | str | None] | None = None) -> str:
        """Act."""
        ran.append(values)
        return "done"

    registry = ToolRegistry([tool_from_function(act, name="act", run_in_thread=False)])
    calls = [ToolCall("1", "act", whole)] if before else []
    message = AssistantMessage([*calls, ToolCall("2", "act", whole[:cut])])

    async def run() -> None:
        provider = ScriptedProvider([ChatResponse(message=message, stop_reason="max_tokens"), "Done."])
        check_transcript((await tool_loop(provider, registry, "Go")).messages)

    play(run, backend)
    assert ran == [arguments] * (before + (cut == len(whole)))


@dataclass
class User:
    name: str


@given(
    calls=st.lists(st.tuples(st.sampled_from(["ada", "bob"]), st.integers(0, 2)), max_size=12),
    is_keyed=st.booleans(),
    backend=BACKENDS,
)
@settings(max_examples=50, deadline=None)
def test_a_cache_gives_nobody_what_was_anothers(calls: list[tuple[str, int]], is_keyed: bool, backend: str) -> None:
    def name_of(user: User) -> str | None:
        return user.name if is_keyed else None

    @tool_with_ctx(cache=True, cache_key=name_of, run_in_thread=False)
    def balance(user: User, account: int) -> str:
        """Tell the balance."""
        return f"{user.name}'s {account}"

    registry, config = ToolRegistry[User]([balance]), ToolLoopConfig(cache=MemoryCache())

    async def run() -> None:
        for name, account in calls:
            provider = ScriptedProvider([ToolCall("1", "balance", json.dumps({"account": account})), "Done."])
            result = await tool_loop(provider, registry, "How much?", ctx=User(name), config=config)
            assert result.messages[2].text == f"{name}'s {account}"

    play(run, backend)


@pytest.mark.anyio
@pytest.mark.parametrize("reply", [ToolCall("1", "disable_account", "{}")])
async def test_the_opposite_of_a_tool_is_another_tool(reply: ToolCall) -> None:
    def enable_account() -> str:
        """Enable."""
        return "enabled"

    result = await tool_loop(ScriptedProvider([reply, "Done."]), ToolRegistry([enable_account]), "Go")
    assert "Did you mean enable_account" in result.messages[2].text
