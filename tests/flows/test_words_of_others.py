"""Words that people bring from elsewhere are answered with ours."""

from typing import Any

import pytest

from toolkit import ConfigurationError, ToolLoopConfig, ToolRegistry, tool


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("before_tool_execution", "ToolExecutionHooks(before=...)"),
        ("after_tool_execution", "ToolExecutionHooks(after=...)"),
        ("hook_timeout", "timeouts=Timeouts(hook=...)"),
        ("parallel_tool_execution", "execution=Parallel()"),
        ("on_approval", "on_tool_call=..."),
    ],
)
def test_a_setting_by_another_name_is_answered_with_ours(word: str, ours: str) -> None:
    settings: dict[str, Any] = {word: 1}
    with pytest.raises(ConfigurationError) as caught:
        ToolLoopConfig(**settings)
    assert ours in str(caught.value)


def test_the_tags_of_a_registration_are_there_to_choose_by() -> None:
    @tool(tags={"read"})
    def look() -> str:
        """Look."""
        return "seen"

    assert ToolRegistry([look]).where(lambda each: "read" in each.tags).names == ("look",)
