"""Options that a registry lays over those of its tools."""

from typing import Any

import anyio
import pytest

from toolkit import ConfigurationError, ToolCall, ToolRegistry, tool
from toolkit.errors import UnknownToolNameError

pytestmark = pytest.mark.anyio


@tool(max_output_chars=1000)
async def hang() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


TOOLS = ToolRegistry([hang, echo])
HANG = ToolCall("1", "hang", "{}")
ECHO = ToolCall("2", "echo", '{"text": "a"}')


async def test_a_scope_runs_its_tools_with_other_options() -> None:
    with anyio.fail_after(120):
        result = await TOOLS.configured("hang", timeout=0.01).execute(HANG)
    assert result.text == "Tool 'hang' timed out after 0.01 s. It may have taken effect."
    assert TOOLS.registrations["hang"].options.timeout is None


async def test_what_is_not_given_stays_and_renaming_keeps_it() -> None:
    scope = TOOLS.configured("hang", timeout=0.01).prefixed("my")
    options = scope.registrations["my__hang"].options
    assert (options.timeout, options.max_output_chars) == (0.01, 1000)


async def test_without_names_all_tools_are_configured() -> None:
    scope = TOOLS.configured(requires_approval=True)
    assert (await scope.execute(ECHO)).is_error
    assert (await scope.execute(ECHO, approve=lambda request: True)).text == "a"


async def test_another_usage_limit_counts_anew_and_leaves_the_tool_alone() -> None:
    scope = TOOLS.configured("echo", max_usage_count=1)
    assert (await scope.execute(ECHO)).text == "a"
    assert (await scope.execute(ECHO)).is_error
    assert (await TOOLS.execute(ECHO)).text == "a"


async def test_what_can_not_be_changed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="run_in_thread, strict can't be changed in a registry"):
        options: Any = {"strict": True, "run_in_thread": False}
        TOOLS.configured(**options)
    with pytest.raises(UnknownToolNameError, match="did you mean 'echo'"):
        TOOLS.configured("ecko", timeout=1)
    with pytest.raises(ConfigurationError, match="timeout must be more than 0"):
        TOOLS.configured("echo", timeout=-1)
