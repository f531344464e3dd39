"""Whatever a function returns becomes what a model reads."""

import datetime
import decimal
import enum
import gc
import itertools
import re
import subprocess
import sys
import types
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field, SecretStr, computed_field

from toolkit import ConfigurationError, ToolCall, ToolError, ToolOutput, ToolRegistry, tool, tool_with_ctx
from toolkit.chat import AudioBlock, FileBlock, ImageBlock, TextBlock
from toolkit.chat.output import dump_output, load_output, to_output
from toolkit.errors import LoopUsageError, MaxDepthExceededError, ToolNotFoundError


class Color(enum.Enum):
    RED = "red"


class Person(BaseModel):
    full_name: str = Field(alias="fullName")
    tags: set[str] = set()
    key: SecretStr = SecretStr("hidden")


@dataclass
class Point:
    x: float
    y: float = 0
    marks: set[int] = field(default_factory=set[int])


@dataclass
class Case:
    name: str
    value: Any
    content: Any


NAN_NOTE = "\n(NaN and infinite numbers are shown as null.)"
IMAGE = ImageBlock(b"png")
CASES = [
    Case("text as it is", "hello", "hello"),
    Case("empty text as it is", "", ""),
    Case("text that is no ASCII", "grüße 🎈", "grüße 🎈"),
    Case("a lone surrogate is replaced", "a\ud83d", "a?"),
    Case("nothing, in words", None, "(no output)"),
    Case("a number", 42, "42"),
    Case("a large number", 10**30, "1" + "0" * 30),
    Case("a truth", True, "true"),
    Case("a fraction", 1.5, "1.5"),
    Case("no number", float("nan"), "null" + NAN_NOTE),
    Case("an infinite number inside", {"a": [float("inf"), 1.0]}, '{"a":[null,1.0]}' + NAN_NOTE),
    Case("a text that speaks of NaN", {"a": "NaN"}, '{"a":"NaN"}'),
    Case("a list", [1, "a", None], '[1,"a",null]'),
    Case("a tuple", (1, 2), "[1,2]"),
    Case("a range", range(3), "[0,1,2]"),
    Case("views of a mapping", [{"a": 1}.keys(), {"a": 1}.items()], '[["a"],[["a",1]]]'),
    Case("a set, sorted", {3, 1, 2}, "[1,2,3]"),
    Case("a set of text, sorted", {"b", "a"}, '["a","b"]'),
    Case("sets inside", {"a": [frozenset({2, 1})]}, '{"a":[[1,2]]}'),
    Case("a mixed set", {1, "a"}, '[1,"a"]'),
    Case("a decimal as text", decimal.Decimal("1.10"), '"1.10"'),
    Case("a moment", datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), '"2026-01-02T03:04:00Z"'),
    Case("a span", datetime.timedelta(hours=1), '"PT1H"'),
    Case("an id", uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    Case("a path", Path("a/b"), '"a/b"'),
    Case("an enum by its value", Color.RED, '"red"'),
    Case("a dataclass", Point(1.0, marks={2, 1}), '{"x":1.0,"y":0,"marks":[1,2]}'),
    Case(
        "a model by its aliases",
        Person(fullName="Ada", tags={"b", "a"}),
        '{"fullName":"Ada","tags":["a","b"],"key":"**********"}',
    ),
    Case("models inside", {"p": [Point(1)]}, '{"p":[{"x":1,"y":0,"marks":[]}]}'),
    Case("a lone surrogate inside", {"k\ud83d": ["a\ud83d"]}, '{"k?":["a?"]}'),
    Case("a block", IMAGE, (IMAGE,)),
    Case("blocks and text", ["see", IMAGE], (TextBlock("see"), IMAGE)),
    Case("a sound", AudioBlock(b"x"), (AudioBlock(b"x"),)),
    Case("bytes as a file", b"\x00\xff", (FileBlock(b"\x00\xff"),)),
    Case("bytes inside as base64", {"a": b"\x00\xff"}, '{"a":"AP8="}\n(Bytes are shown as Base64.)'),
    Case("an iterator is read to its end", iter([1, {2}]), "[1,[2]]"),
    Case("text in a block is sent", TextBlock("a\ud83d"), (TextBlock("a?"),)),
    Case("text in an output is sent", ToolOutput("a\ud83d"), "a?"),
    Case("text in the block of an output is sent", ToolOutput((TextBlock("a\ud83d"), IMAGE)), (TextBlock("a?"), IMAGE)),
    Case("no blocks stay none", ToolOutput(()), ()),
    Case("data in an output becomes text", ToolOutput({"a": 1}), '{"a":1}'),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Case("an output stays", ToolOutput("x", details=1), "x"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_value_becomes_what_a_model_reads(case: Case) -> None:
    output = to_output(case.value)
    assert output.content == case.content
    assert not output.is_error


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "content", "unserializable"),
    [
        (object(), "<object object>", "the value: object"),
        ({"a": object(), "b": [1]}, '{"a":"<object object>","b":[1]}', "a: object"),
        ([1, {"a": cyclic}], '[1,{"a":"<function cyclic>"}]', "[1].a: function"),
        (cyclic(), '["[[...]]"]', "[0]: list"),
        (Point(1, marks=cast("Any", {object()})), '{"x":1,"y":0,"marks":["<object object>"]}', "marks[0]: object"),
        (ValueError("no"), "ValueError: no", "the value: ValueError"),
        ({"a": re}, '{"a":"<module re>"}', "a: module"),
    ],
)
def test_what_json_can_not_carry_stands_as_its_text_and_loses_nothing_else(
    value: Any, content: str, unserializable: str
) -> None:
    output = to_output(value)
    assert output.content == content
    assert output.unserializable == (unserializable,)
    assert not output.is_error


class Unreadable(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError(f"no keys in {object()!r}")

    def __len__(self) -> int:
        return 1


class Unsure(BaseModel):
    @computed_field
    def sure(self) -> int:
        raise AttributeError("not sure")


class Unspeakable(BaseModel):
    @computed_field
    def word(self) -> int:
        raise UnspeakableError


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ([Unreadable(), 1], f'["<{__name__}.Unreadable object>",1]'),
        ([Unsure()], '[{"sure":"AttributeError: not sure"}]'),
        (Unspeakable(), '{"word":"<UnspeakableError object>"}'),
    ],
)
def test_an_object_that_can_not_be_read_loses_nothing_else(value: Any, content: str) -> None:
    output = to_output(value)
    assert output.content == content
    assert output.unserializable
    assert not output.is_error


def test_iterators_are_read_once_wherever_they_stand_and_not_for_ever() -> None:
    assert to_output({"a": iter([1, iter([2])])}).content == '{"a":[1,[2]]}'
    endless = to_output({"a": itertools.count()})
    assert endless.text.endswith(",99999]}\n(The first 100,000 values are shown.)")


class Plain:
    def __init__(self) -> None:
        self.name = "a"
        self.api_key = "hidden away"
        self._own = 1


class Grouped:
    def __init__(self) -> None:
        self.keys = ["region"]
        self.group_keys = True
        self.token_count = 3
        self.has_token = False
        self.secretary = "Ada"


class Slotted:
    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = {2, 1}


OBJECTS = [
    Case("a namespace", types.SimpleNamespace(a=1, key="b", of={2, 1}), '{"a":1,"key":"b","of":[1,2]}'),
    Case("an empty namespace", types.SimpleNamespace(), "{}"),
    Case(
        "a plain object without its secrets",
        Plain(),
        '{"name":"a","api_key":"***"}\n(What looks like a secret by its name is shown as ***.)',
    ),
    Case(
        "words like those of secrets",
        Grouped(),
        '{"keys":["region"],"group_keys":true,"token_count":3,"has_token":false,"secretary":"Ada"}',
    ),
    Case("a set of objects", {Slotted()}, '[{"size":[1,2]}]'),
    Case("standard Base64", [b"\xfb\xff", bytearray(b"a")], '["+/8=","YQ=="]\n(Bytes are shown as Base64.)'),
    Case("keys of one text", {1: "a", "1": "b", "c": {1}}, '{"1":"a","1 (2)":"b","c":[1]}'),
    Case("a complex number", [1 + 2j], '["1+2j"]'),
]


@pytest.mark.parametrize("case", OBJECTS, ids=lambda case: case.name)
def test_an_object_becomes_json_of_its_values(case: Case) -> None:
    output = to_output(case.value)
    assert output.content == case.content
    assert output.unserializable == ()


def test_the_text_is_made_when_the_tool_returns() -> None:
    live = {"a": [1]}
    output = to_output(live)
    live["a"].append(2)
    assert output.content == '{"a":[1]}'


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, categories=None))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.sampled_from([Color.RED, Point(1), object(), Path("x"), IMAGE]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=8,
)


@given(VALUES)
def test_nothing_that_a_tool_returns_raises_or_shows_an_address(value: Any) -> None:
    output = to_output(value)
    text = output.text
    text.encode()
    assert not re.search(r" at 0x[0-9a-f]{6}", text)


@given(VALUES)
def test_an_output_goes_through_a_cache_unchanged(value: Any) -> None:
    output = to_output(value)
    assert load_output(dump_output(output)).content == output.content


def test_all_of_this_holds_without_the_faster_library_too() -> None:
    code = (
        "import sys, pytest; sys.modules['orjson'] = None; "
        f"sys.exit(pytest.main([{__file__!r}, '-q', '-k', 'not without_the_faster_library']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_blocks_that_a_tool_promises_are_no_structured_output() -> None:
    @tool
    def several() -> list[TextBlock | ImageBlock]:
        """Give several."""
        return []

    @tool
    def one() -> ImageBlock | None:
        """Give one."""
        return None

    @tool
    def numbers() -> list[float]:
        """Give numbers."""
        return []

    assert several.definition.output_schema is None
    assert one.definition.output_schema is None
    assert numbers.definition.output_schema == {"type": "array", "items": {"type": "number"}}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such user"), "ValueError: no such user"),
        (ToolError("no such user"), "no such user"),
        (ToolNotFoundError("customer 42"), "Not found: customer 42"),
        (ToolNotFoundError("customer 42", near=["customer 24"]), "Not found: customer 42. Did you mean customer 24?"),
        (ToolNotFoundError("find", ["search"]), "Unknown tool: find. Available tools: search."),
        (ToolNotFoundError("find", []), "Unknown tool: find. No tools are available."),
        (KeyError(), "KeyError (it gave no message)"),
        (ExceptionGroup("two", [ValueError("a"), ToolError("b")]), "ExceptionGroup: ValueError: a; b"),
        (
            MaxDepthExceededError(3, 3),
            "MaxDepthExceededError: loop depth 3 is not below the limit of 3, so this can't be handed on any further",
        ),
        (ConfigurationError("write it so"), "ConfigurationError: the tool is not set up rightly and can't be used now"),
        (LoopUsageError("feed it"), "LoopUsageError: the tool is not set up rightly and can't be used now"),
    ],
    ids=repr,
)
@pytest.mark.anyio
async def test_an_exception_returned_or_raised_is_told_in_its_own_words_and_without_advice_to_its_author(
    error: Exception, text: str
) -> None:
    @tool
    async def give() -> ToolOutput:
        return ToolOutput.error(error)

    @tool
    async def throw() -> str:
        raise error

    registry = ToolRegistry([give, throw])
    for name in ("give", "throw"):
        result = await registry.execute(ToolCall("1", name, "{}"))
        assert (result.text, result.is_error) == (text, True)


@pytest.mark.anyio
async def test_a_forgotten_context_is_no_business_of_the_model() -> None:
    @tool_with_ctx
    async def whose(app: Path) -> str:
        return ""

    registry = ToolRegistry[Path]([whose]).widened(object)
    result = await registry.execute(ToolCall("1", "whose", "{}"))
    assert result.text == "ConfigurationError: the tool is not set up rightly and can't be used now"


def test_classes_that_are_made_while_a_program_runs_are_collected() -> None:
    alive: list[weakref.ref[type]] = []

    def show_one(number: int) -> str:
        kind = make_dataclass(f"Made{number}", ["x"])
        alive.append(weakref.ref(kind))
        return to_output(kind(number)).text

    for number in range(400):
        assert show_one(number) == f'{{"x":{number}}}'
    gc.collect()
    assert sum(kind() is not None for kind in alive) <= 256
