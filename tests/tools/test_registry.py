"""Many tools under names, and the scopes made of them."""

from typing import Any

import pytest

from toolkit import (
    ConfigurationError,
    EnvVar,
    FunctionTool,
    Permissions,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolRegistry,
    deny,
    tool,
)
from toolkit.chat import ToolDefinition
from toolkit.errors import DuplicateToolError, MissingEnvError, UnknownToolNameError

pytestmark = pytest.mark.anyio

NONE: Any = None


@tool(tags={"read"})
async def search(query: str) -> str:
    """Search."""
    return query


@tool(tags={"read", "file"})
async def read_file(path: str) -> str:
    """Read a file."""
    return path


@tool(tags={"write", "file"}, max_usage_count=2)
async def write_file(path: str) -> str:
    """Write a file."""
    return path


def registry() -> ToolRegistry[object]:
    return ToolRegistry([search, read_file, write_file])


async def test_tools_stand_in_the_order_of_their_registration() -> None:
    tools = registry()
    assert tools.names == ("search", "read_file", "write_file")
    assert [definition.name for definition in tools.definitions()] == list(tools.names)
    assert list(tools) == [search, read_file, write_file]
    assert len(tools) == 3
    assert "search" in tools
    found = tools.configured("search", tags={"slow"}).get("search")
    assert found is not None
    assert found.tool is search
    assert found.tags == {"slow"}
    assert tools.get("nothing") is None
    assert repr(tools) == "<ToolRegistry search, read_file, write_file>"


async def test_registering_gives_the_tool_and_makes_one_of_a_function() -> None:
    def double(value: int) -> int:
        """Double it."""
        return value * 2

    tools = ToolRegistry()
    assert tools.register(search) is search
    made = tools.register(double)
    assert isinstance(made, FunctionTool)
    assert made(4) == 8
    assert (await tools.execute(ToolCall("1", "double", '{"value": 2}'))).text == "4"


async def test_definitions_are_the_same_object_until_the_registry_changes() -> None:
    tools = registry()
    first = tools.definitions()
    assert tools.definitions() is first
    tools.unregister("search")
    assert [definition.name for definition in tools.definitions()] == ["read_file", "write_file"]


async def test_a_name_that_is_taken_is_refused_unless_replaced() -> None:
    @tool(name="search")
    async def other() -> str:
        return "other"

    tools = registry()
    with pytest.raises(DuplicateToolError, match="register_or_replace"):
        tools.register(other)
    tools.register_or_replace(other)
    assert tools.names == ("search", "read_file", "write_file")
    assert tools.registrations["search"].tool is other


@pytest.mark.parametrize("name", ["", "two words", "über", "a" * 65, "dot.ted"])
async def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="can't be the name of a tool"):
        tool(name=name)(lambda: "")


async def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="int is neither a tool nor a function"):
        ToolRegistry().register(7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"name": "by_hand"}, "the definition of a tool must be a ToolDefinition, not a dict"),
        (ToolDefinition(name="by_hand", description="", parameters=NONE), "parameters of tool 'by_hand' must be a map"),
    ],
    ids=["a dict", "no parameters"],
)
async def test_a_tool_made_by_hand_is_told_what_its_definition_lacks(definition: Any, message: str) -> None:
    class ByHand:
        def __init__(self) -> None:
            self.definition = definition

        async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
            return ToolOutput("")

    with pytest.raises(ConfigurationError, match=message):
        ToolRegistry([ByHand()])


@pytest.mark.parametrize("method", ["only", "without"])
async def test_a_typo_never_changes_a_scope(method: str) -> None:
    scope = getattr(registry(), method)
    with pytest.raises(UnknownToolNameError, match="did you mean 'write_file'"):
        scope(["wirte_file"])
    with pytest.raises(ConfigurationError, match="not one string"):
        scope("search")
    assert len(scope(["nothing"], missing_ok=True)) == (0 if method == "only" else 3)


async def test_scopes_are_by_value() -> None:
    tools = registry()
    scope = tools.without(["search"])
    tools.unregister("read_file")
    assert scope.names == ("read_file", "write_file")
    scope.unregister("write_file")
    assert tools.names == ("search", "write_file")


async def test_scopes_share_the_tools_and_their_counters() -> None:
    write_file.reset_usage_count()
    tools = registry()
    call = ToolCall("1", "write_file", '{"path": "a"}')
    assert not (await tools.only(["write_file"]).execute(call)).is_error
    renamed = tools.renamed({"write_file": "save"})
    assert not (await renamed.execute(ToolCall("1", "save", '{"path": "a"}'))).is_error
    assert (await tools.execute(call)).is_error
    write_file.reset_usage_count()


async def test_scopes_by_tag_predicate_and_name() -> None:
    tools = registry()
    assert tools.tagged("read").names == ("search", "read_file")
    assert tools.tagged("read", "file").names == ("read_file",)
    assert tools.where(lambda registration: "file" in registration.name).names == ("read_file", "write_file")
    assert tools.prefixed("fs").names == ("fs__search", "fs__read_file", "fs__write_file")
    assert tools.renamed({"search": "find"}).names == ("find", "read_file", "write_file")
    assert tools.renamed({"search": "find"}).definitions()[0].name == "find"
    assert (tools.only(["write_file", "search"])).names == ("search", "write_file")


async def test_renaming_to_a_name_that_is_taken_or_illegal_is_refused() -> None:
    with pytest.raises(DuplicateToolError):
        registry().renamed({"search": "read_file"})
    with pytest.raises(UnknownToolNameError):
        registry().renamed({"nothing": "something"})
    with pytest.raises(ConfigurationError, match="64 are allowed"):
        registry().prefixed("x" * 60)


async def test_a_union_has_the_tools_of_both_once() -> None:
    one, other = registry().only(["search", "read_file"]), registry().only(["read_file", "write_file"])
    assert (one | other).names == ("search", "read_file", "write_file")

    @tool(name="search")
    async def another() -> str:
        return ""

    with pytest.raises(DuplicateToolError):
        _ = one | ToolRegistry([another])


async def test_rules_go_with_every_scope() -> None:
    rules = Permissions([deny("write_*", reason="Only reading here.")])
    tools = ToolRegistry([search, read_file, write_file], permissions=rules)
    for scope in (tools, tools.only(["write_file"]), tools.widened(str), tools | ToolRegistry([])):
        result = await scope.execute(ToolCall("1", "write_file", '{"path": "a"}'), "")
        assert result.text == "Only reading here."
    with pytest.raises(ConfigurationError, match="both registries have permissions"):
        _ = tools | ToolRegistry([], permissions=Permissions())


async def test_a_missing_variable_is_told_at_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    key = EnvVar("TOOLKIT_TEST_KEY", "the key of the search service")
    level = EnvVar("TOOLKIT_TEST_LEVEL", "how deep", default="3")

    @tool(env_vars=[key, level])
    async def deep_search() -> str:
        return f"{key.read('deep_search')} {level.read()}"

    monkeypatch.delenv("TOOLKIT_TEST_KEY", raising=False)
    with pytest.raises(
        MissingEnvError,
        match=r"'deep_search' needs .* TOOLKIT_TEST_KEY \(the key of the search service\), which is not",
    ):
        ToolRegistry([deep_search])
    with pytest.raises(MissingEnvError, match=r"^needed is the environment variable TOOLKIT_TEST_KEY \("):
        key.read()
    monkeypatch.setenv("TOOLKIT_TEST_KEY", "k")
    assert (await ToolRegistry([deep_search]).execute(ToolCall("1", "deep_search", ""))).text == "k 3"


async def test_results_come_in_the_order_of_the_calls() -> None:
    calls = [ToolCall(str(number), "search", f'{{"query": "{number}"}}') for number in range(5)]
    results = await registry().execute_all(calls, limit=2)
    assert [(result.call_id, result.text) for result in results] == [(str(number), str(number)) for number in range(5)]
    assert await registry().execute_all([]) == []
