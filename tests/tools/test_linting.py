"""What a registry says about tools that are legal and still make models fail."""

from typing import Any, Literal

import pytest

from toolkit import (
    Permissions,
    Tool,
    ToolContext,
    ToolRegistry,
    allow,
    ask,
    deny,
    tool,
    tool_from_function,
    tool_from_schema,
    tool_with_ctx,
)
from toolkit.policies import Finding


@tool
def good(city: str, days: int = 1) -> str:
    """Get the weather.

    Args:
        city: Such as Paris.
        days: How many.
    """
    return ""


def test_a_good_tool_has_no_findings() -> None:
    assert ToolRegistry([good]).lint() == []


def test_what_is_missing_is_listed() -> None:
    @tool
    def bare(a: int) -> int:
        return a

    findings = ToolRegistry([good, bare]).lint()
    assert [(finding.tool, finding.parameter) for finding in findings] == [("bare", None), ("bare", "a")]
    assert str(findings[1]) == "bare(a): it has no description: say in the docstring what to put there"


def test_a_docstring_that_lies_and_a_parameter_without_a_type_are_listed() -> None:
    def lying(a: int, b=None) -> str:  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
        """Do something.

        Args:
            a: One thing.
            b: Another.
            c: What is not there.
        """
        return ""

    with pytest.warns(UserWarning, match=r"lying'.*'c', which is no parameter") as told:
        made = tool_from_function(lying)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    problems = "\n".join(str(finding) for finding in ToolRegistry([made]).lint())  # pyright: ignore[reportUnknownArgumentType]
    assert told[0].filename == __file__
    assert "'c'" in problems
    assert "'b'" in problems


def test_what_is_too_large_or_too_alike_is_listed() -> None:
    choices: Any = Literal[tuple(f"choice number {number}" for number in range(500))]

    def read_files(which: str) -> str:
        """Read.

        Args:
            which: Them.
        """
        return which

    read_files.__annotations__["which"] = choices
    read_file = tool(name="read_file", description="x" * 1025)(lambda: "")
    findings = ToolRegistry([tool_from_function(read_files), read_file]).lint()
    size, length, alike = findings
    assert isinstance(size, Finding)
    assert str(size).startswith("read_files: its schema has")
    assert length.problem.startswith("its description has 1025 characters, and some providers take 1024")
    assert (alike.tool, alike.problem) == (
        "read_file",
        "its name is easily taken for 'read_files': make them more different",
    )


def test_a_cached_tool_whose_context_has_no_key_is_told() -> None:
    @tool_with_ctx(cache=True)
    async def my_balance(context: ToolContext[object]) -> str:
        """Say how much money there is."""
        return ""

    @tool_with_ctx(cache=True, cache_key=str)
    async def balance(context: ToolContext[object]) -> str:
        """Say how much money there is."""
        return ""

    (finding,) = ToolRegistry([my_balance, balance]).only(["my_balance"]).lint()
    assert str(finding) == "my_balance: it takes a context, so nothing is cached without cache_key=lambda ctx: ..."
    assert ToolRegistry([balance]).lint() == []


def test_rules_that_match_no_tool_are_listed() -> None:
    rules = Permissions([deny("godo", reason="Not here."), allow("go*"), ask("file_?"), ask("final_answer")])
    findings = ToolRegistry([good], permissions=rules).lint()
    assert [str(finding) for finding in findings] == [
        "godo: this rule to deny matches no tool: did you mean 'good'?",
        "file_?: this rule to ask matches no tool",
    ]


def test_a_rule_about_a_tool_that_a_scope_left_out_or_renamed_is_no_mistake() -> None:
    @tool
    def other() -> str:
        """Do something else."""
        return ""

    registry = ToolRegistry([good, other], permissions=Permissions([deny("other"), ask("good")]))
    assert registry.without(["other"]).renamed({"good": "better"}).lint() == []


def test_a_tag_that_no_tool_has_is_listed_for_each_scope_that_comes_of_it() -> None:
    @tool(tags={"weather"})
    def forecast() -> str:
        """Say what the weather will be."""
        return ""

    registry = ToolRegistry([good, forecast])
    assert registry.tagged("weather").lint() == []
    expected = ["wether: no tool has this tag, by which a scope was made"]
    assert [str(finding) for finding in registry.tagged("wether").lint()] == expected
    assert [
        str(finding) for finding in (registry.tagged("weather", "wether") | registry).only(["good"]).lint()
    ] == expected


@pytest.mark.parametrize(
    ("description", "problem"),
    [
        ("Add.\u200b\u202e", "hidden characters: '\\u200b', '\\u202e'"),
        ("Add.\x1b[8m", "hidden characters: '\\x1b'"),
        ("Add to your p\u0430ypal account.", "mixes scripts in the word 'p\\u0430ypal'"),
        ("Fügt hinzu.\n\t\u044f: π\u00a0≈ 3 👩\u200d🔬", None),
    ],
)
def test_what_nobody_sees_in_a_description_is_reported(description: str, problem: str | None) -> None:
    made = tool_from_schema("add", description, {"type": "object", "properties": {}}, lambda _: "")
    problems = [finding.problem for finding in ToolRegistry([made]).lint()]
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]


def test_a_servers_tool_that_names_one_of_another_is_reported() -> None:
    def served(name: str, description: str, server: str) -> Tool[object]:
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        return tool_from_schema(name, description, schema, lambda _: "", metadata={"mcp_server": server})

    registry = ToolRegistry[object](
        [
            served("find_note", "Find. Before send_mail, call this; see read_note, too.", "notes"),
            served("read_note", "Read what find_note found.", "notes"),
            served("send_mail", "Send.", "mail"),
        ]
    )
    (finding,) = registry.lint()
    assert (
        str(finding)
        == "find_note: its description, from the server 'notes', names 'send_mail', which is not of that server"
    )
