"""What a run is given is its own: its arguments, its context variables, its place among those that must not overlap."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from toolkit import ToolCall, ToolRegistry, ToolRetryConfig, tool, tool_from_function, tools_of

pytestmark = pytest.mark.anyio

_user: ContextVar[str] = ContextVar("user", default="nobody")


async def test_another_attempt_gets_the_arguments_that_the_first_one_was_given() -> None:
    given: list[dict[str, int]] = []

    @tool(retry=ToolRetryConfig(max_retries=2, initial_backoff=0))
    def take(order: dict[str, int]) -> str:
        """Take."""
        given.append(dict(order))
        order.clear()
        if len(given) < 3:
            raise OSError("busy")
        return "taken"

    result = await ToolRegistry([take]).execute(ToolCall("1", "take", '{"order": {"apples": 2}}'))
    assert (result.text, given) == ("taken", [{"apples": 2}] * 3)


async def test_a_lock_that_changes_what_it_is_given_changes_nothing() -> None:
    def name_lock(arguments: Any) -> str:
        arguments["amount"] = "lots"
        arguments["to"].clear()
        return "accounts"

    @tool(lock=name_lock)
    def pay(amount: str, to: list[str]) -> str:
        """Pay."""
        return f"{amount} to {to}"

    result = await ToolRegistry([pay]).execute(ToolCall("1", "pay", '{"amount": "5", "to": ["ada"]}'))
    assert result.text == "5 to ['ada']"


async def _set_user() -> str:
    before = _user.get()
    _user.set("eve")
    return before


def _set_user_at_once() -> str:
    before = _user.get()
    _user.set("eve")
    return before


@pytest.mark.parametrize("function", [_set_user, _set_user_at_once], ids=["async", "inline"])
@pytest.mark.parametrize("way", ["execute", "execute_all", "ainvoke"])
async def test_context_variables_that_a_tool_sets_stay_inside_it(
    function: Callable[[], Awaitable[str] | str], way: str
) -> None:
    made = tool_from_function(function, name="set_user", description="Set.", run_in_thread=False)
    registry, call = ToolRegistry([made]), ToolCall("1", "set_user", "{}")
    token = _user.set("ada")
    try:
        match way:
            case "execute":
                seen: object = (await registry.execute(call)).text
            case "execute_all":
                seen = (await registry.execute_all([call]))[0].text
            case _:
                seen = await made.ainvoke({})
        assert (seen, _user.get()) == ("ada", "ada")
    finally:
        _user.reset(token)


async def test_tools_bound_twice_from_one_method_share_its_places() -> None:
    class Desk:
        def __init__(self) -> None:
            self.is_inside = anyio.Event()
            self.goes_on = anyio.Event()
            self.inside = 0

        @tool(concurrency=1)
        async def sit(self) -> str:
            """Sit."""
            self.inside += 1
            most = self.inside
            self.is_inside.set()
            await self.goes_on.wait()
            self.inside -= 1
            return str(most)

    desk, other = Desk(), Desk()
    seen: list[str] = []

    async def sit(at: Desk) -> None:
        seen.append((await ToolRegistry(tools_of(at)).execute(ToolCall("1", "sit", "{}"))).text)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for at in (desk, desk, other):
                tasks.start_soon(sit, at)
            await desk.is_inside.wait()
            await other.is_inside.wait()  # a desk of its own
            await anyio.wait_all_tasks_blocked()
            desk.goes_on.set()
            other.goes_on.set()
    assert seen == ["1", "1", "1"]


async def test_a_prefix_hides_what_the_scope_has_left_out_under_its_new_name_too() -> None:
    def delete_file() -> str:
        """Delete one."""
        return "one is gone"

    def delete_files() -> str:
        """Delete all."""
        return "all are gone"

    scope = ToolRegistry([delete_file, delete_files]).without(["delete_files"]).prefixed("disk")
    for name in ("disk_delete_files", "disk__delete_files", "DISK__DELETE_FILES"):
        result = await scope.execute(ToolCall("1", name, "{}"), name_repair="similar")
        assert result.is_error, name
