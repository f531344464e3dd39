"""Methods as tools: bound to their instance, finished when the class is."""

import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

import anyio
import pytest

from toolkit import ConfigurationError, ToolCall, ToolContext, ToolRegistry, tool, tool_with_ctx, tools_of
from toolkit.errors import SchemaError

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Shelf:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool
    def put(self, book: "Book") -> str:
        """Put a book on the shelf.

        Args:
            book: Which one.
        """
        return f"{book.title} on {self.name}"

    @tool
    async def find(self, title: str) -> str:
        """Find a book."""
        return f"{title} in {self.name}"

    @tool_with_ctx
    def lend(self, user: str, title: str) -> str:
        """Lend a book."""
        return f"{title} from {self.name} to {user}"

    @tool_with_ctx
    async def send(self, context: ToolContext[str], title: str) -> str:
        """Send a book."""
        return f"{title} from {self.name} to {context.state} by {context.call_id}"

    @staticmethod
    @tool
    def clean(times: int = 1) -> str:
        """Clean."""
        return f"cleaned {times}"

    @tool
    @staticmethod
    def dust(times: int = 1) -> str:
        """Dust."""
        return f"dusted {times}"

    @tool
    @classmethod
    def count(cls, upto: int) -> str:
        """Count."""
        return f"{cls.__name__} {upto}"

    @property
    def trap(self) -> str:
        raise AssertionError("a property was evaluated")


class Book:
    """Defined after the class that takes it: methods are finished at their first use."""

    def __init__(self, title: str) -> None:
        self.title = title

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


SHELF = Shelf("oak")


async def test_a_method_is_called_as_written() -> None:
    assert SHELF.put(Book("Emma")) == "Emma on oak"
    assert await SHELF.find("Emma") == "Emma in oak"
    assert SHELF.lend("ada", "Emma") == "Emma from oak to ada"
    assert SHELF.put.__name__ == "put"
    assert (SHELF.put.__doc__ or "").startswith("Put a book")


async def test_the_receiver_and_the_context_are_not_in_the_schema() -> None:
    assert list(SHELF.put.definition.parameters["properties"]) == ["book"]
    assert list(SHELF.lend.definition.parameters["properties"]) == ["title"]
    assert SHELF.put.definition.parameters["properties"]["book"]["description"] == "Which one."


async def test_methods_run_in_a_registry() -> None:
    registry = ToolRegistry[str](tools_of(SHELF))
    assert registry.names == ("put", "find", "lend", "send", "clean", "dust", "count")
    calls = {
        "put": ('{"book": "Emma"}', "Emma on oak"),
        "find": ('{"title": "Emma"}', "Emma in oak"),
        "lend": ('{"title": "Emma"}', "Emma from oak to ada"),
        "send": ('{"title": "Emma"}', "Emma from oak to ada by 1"),
        "clean": ("{}", "cleaned 1"),
        "dust": ('{"times": 2}', "dusted 2"),
        "count": ('{"upto": 3}', "Shelf 3"),
    }
    for name, (arguments, expected) in calls.items():
        assert (await registry.execute(ToolCall("1", name, arguments), "ada")).text == expected


async def test_each_instance_has_tools_of_its_own() -> None:
    pine = ToolRegistry(tools_of(Shelf("pine"))).only(["find"])
    assert (await pine.execute(ToolCall("1", "find", '{"title": "Emma"}'))).text == "Emma in pine"


async def test_methods_are_inherited_and_overridden() -> None:
    class Locked(Shelf):
        @tool
        async def find(self, title: str) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Find nothing."""
            return "locked"

    locked = Locked("iron")
    registry = ToolRegistry[str](tools_of(locked))
    assert registry.names == ("put", "find", "lend", "send", "clean", "dust", "count")
    assert (await registry.execute(ToolCall("1", "find", '{"title": "Emma"}'), "")).text == "locked"
    assert (await registry.execute(ToolCall("1", "count", '{"upto": 1}'), "")).text == "Locked 1"


async def test_methods_of_a_generic_class_work() -> None:
    class Box(Generic[T]):
        def __init__(self, value: T) -> None:
            self.value = value

        @tool
        def show(self, times: int = 1) -> str:
            """Show."""
            return str(self.value) * times

    assert Box[int](7).show.invoke({"times": 2}) == "77"


async def test_generator_methods_stream() -> None:
    class Clock:
        @tool
        def tick(self, times: int) -> Iterator[str]:
            """Tick."""
            for number in range(times):
                yield str(number)

        @tool
        async def tock(self, times: int) -> AsyncIterator[str]:
            """Tock."""
            for number in range(times):
                yield str(number)

    registry = ToolRegistry(tools_of(Clock()))
    for name in ("tick", "tock"):
        assert (await registry.execute(ToolCall("1", name, '{"times": 3}'))).text == "2"


async def test_a_method_taken_from_its_class_says_what_to_do() -> None:
    with pytest.raises(SchemaError, match=r"Shelf\.find.*take it from an instance, or use tools_of"):
        _ = Shelf.find.definition


async def test_errors_of_a_method_come_at_its_first_use() -> None:
    class Wrong:
        @tool_with_ctx
        def act(self, context: Any, value: int) -> str:
            """Act."""
            return ""

    wrong = Wrong()
    with pytest.raises(SchemaError, match="context"):
        _ = wrong.act.definition


class Wing:
    @classmethod
    @tool
    def flap(cls, times: int) -> str:
        """Flap."""
        return cls.__name__ * times


async def test_a_class_method_over_a_tool_works_or_says_what_to_do() -> None:
    flap: Any = Wing.flap
    assert flap(2) == "WingWing"
    for registry in (ToolRegistry([flap]), ToolRegistry(tools_of(Wing()))):
        assert list(registry.definitions()[0].parameters["properties"]) == ["times"]
        assert (await registry.execute(ToolCall("1", "flap", '{"times": 2}'))).text == "WingWing"
    if sys.version_info < (3, 13):
        assert flap.invoke({"times": 1}) == "Wing"
    else:
        with pytest.raises(SchemaError, match="put @tool over @classmethod, or use tools_of"):
            flap.invoke({"times": 1})


async def test_an_async_tool_is_not_invoked_where_a_loop_runs() -> None:
    with pytest.raises(ConfigurationError, match=r"Shelf\.find' is async: in async code, await ainvoke"):
        SHELF.find.invoke({"title": "Emma"})
    assert await SHELF.find.ainvoke({"title": "Emma"}) == "Emma in oak"


async def test_tools_bound_from_one_method_share_its_usage_limit() -> None:
    class Once:
        @tool(max_usage_count=1)
        async def go(self) -> str:
            """Go."""
            return "gone"

    once = Once()
    assert await once.go.ainvoke({}) == "gone"
    assert (await ToolRegistry([once.go]).execute(ToolCall("1", "go", "{}"))).is_error


async def test_a_signature_is_kept() -> None:
    assert list(inspect.signature(Shelf.find).parameters) == ["self", "title"]
    assert str(inspect.signature(SHELF.find)) == "(title: str) -> str"
    assert SHELF.put.__wrapped__(Book("Emma")) == "Emma on oak"

    @tool
    def local(a: int, *, b: str = "x") -> str:
        return f"{a}{b}"

    assert str(inspect.signature(local)) == "(a: int, *, b: str = 'x') -> str"
    assert local.__wrapped__(1) == "1x"
    assert anyio.get_current_task().name
