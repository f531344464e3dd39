"""What hints and docstrings mean in the class that a method is taken from, and where a function was defined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict, Unpack

from toolkit import FunctionTool, ToolRegistry, tool, tool_from_function, tool_with_ctx, tools_of
from toolkit.errors import DuplicateToolError, SchemaError

if TYPE_CHECKING:
    from collections import Counter as App

    from toolkit import ToolContext

K = TypeVar("K")
T = TypeVar("T")
M = TypeVar("M")


class Item(BaseModel):
    number: int


@dataclasses.dataclass
class Money:
    cents: int

    @tool
    def add(self, other: Self, more: list[Self] | None = None) -> Self:
        """Add amounts."""
        return type(self)(self.cents + other.cents + sum(one.cents for one in more or []))


class Repo(Generic[K, T]):
    @tool
    def put(self, key: K, item: T, more: list[T] | None = None) -> T:
        """Put it there.

        Args:
            key: The place.
            item: The thing.
        """
        return item

    def take(self, key: K) -> T:
        """Take it - all of it."""
        raise NotImplementedError


class Named(Repo[str, M]):
    pass


class Items(Named[Item]):
    @tool
    def put(  # pyright: ignore[reportIncompatibleVariableOverride]  # a tool knows its receiver
        self, key: str, item: Item, more: list[Item] | None = None
    ) -> Item:
        return item

    def take(self, key: str) -> Item:
        raise NotImplementedError


class Others(Named[Item]):
    pass


class Store(BaseModel, Generic[T], ignored_types=(FunctionTool,)):
    held: list[T] = []

    @tool
    def keep(self, item: T) -> int:
        """Keep it."""
        return len(self.held)


def properties_of(found: Any) -> dict[str, Any]:
    properties: dict[str, Any] = found.definition.parameters["properties"]
    return properties


def test_self_is_the_class() -> None:
    found = Money(1).add
    assert found.definition.parameters["$defs"]["Money"]["properties"] == {"cents": {"type": "integer"}}
    assert found.invoke({"other": {"cents": 2}, "more": [{"cents": 3}]}) == Money(6)


def test_type_parameters_of_a_generic_base_are_those_of_the_class() -> None:
    found = Others().put
    assert properties_of(found)["key"] == {"type": "string", "description": "The place."}
    assert found.invoke({"key": "a", "item": {"number": 1}}) == Item(number=1)
    assert properties_of(Repo[int, Item]().put)["key"]["type"] == "integer"
    assert properties_of(Store[Item]().keep)["item"]["properties"] == {"number": {"type": "integer"}}
    assert properties_of(tool_from_function(Others().take))["key"] == {"type": "string"}


def test_an_override_without_a_docstring_inherits_it() -> None:
    found = Items().put
    assert found.definition.description == "Put it there."
    assert properties_of(found)["item"]["description"] == "The thing."
    assert tool_from_function(Items().take).definition.description == "Take it - all of it."


def test_a_context_type_that_only_type_checkers_know_is_enough() -> None:
    @tool_with_ctx
    def count(app: App[str], word: str) -> int:
        return app[word]

    @tool_with_ctx
    def named(context: ToolContext[App[str]], word: str) -> str:
        return f"{context.tool_name} {word}"

    assert count.invoke({"word": "a"}, ctx={"a": 3}) == 3  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert named.invoke({"word": "a"}) == "named a"


def test_local_classes_are_found_wherever_a_function_becomes_a_tool() -> None:
    class Size(BaseModel):
        inches: int

    def measure(size: Size, later: Later) -> int:
        return size.inches + later.number

    class Later(BaseModel):
        number: int

    def register(function: Callable[..., Any], registry: ToolRegistry[object]) -> Any:
        return registry.register(function)

    first = next(iter(ToolRegistry([measure])))
    second = register(measure, ToolRegistry())
    for found in (first, second, tool_from_function(measure)):
        assert properties_of(found)["size"]["properties"] == {"inches": {"type": "integer"}}


def shop_class() -> type[Any]:
    class Size(BaseModel):
        inches: int

    class Shop:
        class Color(BaseModel):
            name: str

        @tool
        def sell(self, size: Size, color: Color, to: Shop.Color | None = None) -> str:
            """Sell it."""
            return f"{size.inches} {color.name}"

    assert list(properties_of(Shop().sell)) == ["size", "color", "to"]
    return Shop


def test_methods_of_local_classes_find_them_too() -> None:
    [found] = tools_of(shop_class()())
    assert found.invoke({"size": {"inches": 3}, "color": {"name": "red"}}) == "3 red"


class Options(TypedDict, total=False):
    """How to search.

    Attributes:
        depth: How deep.
        quick: Whether to hurry.
    """

    depth: int
    quick: bool


def test_what_is_documented_of_keywords_is_kept() -> None:
    def find(name: str, **more: Any) -> None:
        """Find it.

        Args:
            name: The name.
            **more: Anything else, as text.

        Keyword Args:
            limit (int): How many.
            order ({'up', 'down'}): Which first.
        """

    found = tool_from_function(find)
    assert found.definition.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name."},
            "limit": {"type": "integer", "description": "How many."},
            "order": {"enum": ["up", "down"], "type": "string", "description": "Which first."},
        },
        "required": ["name"],
        "additionalProperties": {"description": "Anything else, as text."},
    }
    assert found.parse_args('{"name": "a", "limit": 3, "x": 1}') == {"name": "a", "limit": 3, "x": 1}


def test_what_is_documented_of_unpacked_keywords_is_kept() -> None:
    def find(name: str, **options: Unpack[Options]) -> None:
        """Find it.

        Args:
            name: The name.
            depth: How deep below it.
            **options: All are optional.
        """

    found = tool_from_function(find)
    assert found.definition.description == "Find it.\n\noptions: All are optional."
    assert {name: one["description"] for name, one in properties_of(found).items()} == {
        "name": "The name.",
        "depth": "How deep below it.",
        "quick": "Whether to hurry.",
    }


def test_the_text_of_a_type_is_kept_where_it_says_more_than_the_hint() -> None:
    def convert(
        value: float, unit: str, folder: str | None = None, count: int = 3, items: list[str] | None = None
    ) -> None:
        """Convert it.

        Parameters
        ----------
        value : non-negative float
            The value.
        unit : {'m', 'km'}
            The unit.
        folder : str, defaults to the current one
            Where.
        count : int, default 3
            How often.
        items : list of str, optional
            What.
        """

    described = {name: one["description"] for name, one in properties_of(tool_from_function(convert)).items()}
    assert described == {
        "value": "The value. (non-negative float)",
        "unit": "The unit. ({'m', 'km'})",
        "folder": "Where. (str, defaults to the current one)",
        "count": "How often.",
        "items": "What.",
    }


def named(name: str) -> Callable[[str], str]:
    def function(query: str) -> str:
        """Find it."""
        return query

    function.__name__ = name
    return function


def test_a_name_that_models_can_not_use_is_said_in_ascii_or_refused_with_the_remedy() -> None:
    assert tool_from_function(named("größe")).definition.name == "grosse"
    with pytest.raises(SchemaError, match=r"a tool can't be called 'поиск', .*: give it a name with name='\.\.\.'"):
        tool_from_function(named("поиск"))
    assert tool_from_function(named("поиск"), name="find").invoke({"query": "a"}) == "a"


def test_two_names_that_become_one_never_collide_silently() -> None:
    with pytest.raises(DuplicateToolError, match="grosse"):
        ToolRegistry([tool(named("größe")), tool(named("grosse"))])
