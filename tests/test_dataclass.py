"""The dataclasses that are made in less time are what the standard library makes."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Hashable
from dataclasses import KW_ONLY, FrozenInstanceError, field, replace
from typing import Any, Generic, TypeVar

import pytest

from toolkit import ToolLoopConfig
from toolkit.chat import TextBlock, ToolCall, ToolResult
from toolkit.dataclass import dataclass, maker_of

T = TypeVar("T")


def made_by(make: Any, *, frozen: bool, slots: bool = True) -> Any:
    @make(frozen=frozen, slots=slots)
    class Point:
        """A place."""

        x: int
        y: Any = None
        _: KW_ONLY
        note: str = field(default="", compare=False)
        secret: str = field(default="", repr=False)

    return Point


@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_it_compares_hashes_and_shows_itself_as_usual(frozen: bool, slots: bool) -> None:
    ours, theirs = [made_by(make, frozen=frozen, slots=slots) for make in (dataclass, dataclasses.dataclass)]
    for kind in (ours, theirs):
        assert kind(1, "a") == kind(1, "a", note="other")
        assert kind(1) != kind(2)
        assert kind(1) != kind(1, secret="s")
        assert replace(kind(1), x=2) == kind(2)
        assert copy.deepcopy(kind(1, ["a"])) == kind(1, ["a"])
        assert isinstance(kind(1), Hashable) is frozen
    assert ours(1) != theirs(1)
    assert repr(ours(1, "a", note="n", secret="s")) == repr(theirs(1, "a", note="n", secret="s"))
    if frozen:
        assert hash(ours(1, "a")) == hash(theirs(1, "a"))
        with pytest.raises(FrozenInstanceError):
            ours(1).x = 2


@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("make", [dataclass, dataclasses.dataclass], ids=["ours", "theirs"])
def test_a_frozen_class_takes_its_fields_as_usual(make: Any, slots: bool) -> None:
    @make(frozen=True, slots=slots)
    class Base:
        x: int
        made: list[int] = field(default_factory=list[int])

    @make(frozen=True, slots=slots)
    class Made(Base):
        y: int = 0
        _: KW_ONLY
        z: str = "z"
        note: list[str] = field(default_factory=list[str], init=False)
        mark: str = field(default="m", init=False)
        late: str = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "late", f"{self.x} {self.mark}")

    make_one: Any = Made  # mypy does not see what `make` makes of it
    made = make_one(1, y=2)
    assert (made.x, made.made, made.y, made.z, made.note, made.mark, made.late) == (1, [], 2, "z", [], "m", "1 m")
    assert make_one(1).made is not make_one(1).made
    assert str(inspect.signature(Base)) == "(x: int, made: list[int] = <factory>) -> None"
    with pytest.raises(TypeError, match=r"Made\.__init__\(\) missing 1 required positional argument: 'x'"):
        Made()
    with pytest.raises(TypeError, match="unexpected keyword argument 'mark'"):
        make_one(1, mark="n")


@pytest.mark.parametrize("slots", [True, False])
def test_a_maker_makes_what_a_call_of_the_class_makes(slots: bool) -> None:
    @dataclass(frozen=True, slots=slots)  # type: ignore[literal-required]
    class Made:
        x: int
        made: list[int] = field(default_factory=list[int])
        _: KW_ONLY
        note: str = ""
        double: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", 2 * self.x)

    make = maker_of(Made)
    made = make(1, note="n")
    assert (type(made), made, made.made, made.double) == (Made, Made(1, note="n"), [], 2)
    assert make(1).made is not make(1).made
    with pytest.raises(FrozenInstanceError):
        setattr(made, "x", 2)  # noqa: B010 - a checker knows that it is frozen
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        maker: Any = make
        maker()


def test_one_that_holds_itself_can_be_shown() -> None:
    point = made_by(dataclass, frozen=False)(1, [])
    point.y.append(point)
    assert "..." in repr(point)


def test_what_a_class_says_of_itself_stands() -> None:
    @dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Named("a")), Named("a") == Named("b"), hash(Named("a"))) == ("a", True, 7)


@pytest.mark.parametrize("value", [TextBlock("a"), ToolCall("1", "f", "{}"), ToolResult("1", "a", details=[1])])
def test_ours_are_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    """Generic, frozen and with slots: what a type argument is given to when it is made."""

    content: T


def test_a_frozen_class_with_slots_can_be_made_with_a_type_argument() -> None:
    assert Box[int](1) == Box(1)
    assert ToolLoopConfig[object](max_iterations=2).max_iterations == 2


def test_a_frozen_class_with_slots_says_that_it_is_frozen() -> None:
    box = Box(1)
    for name in ("content", "other"):
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(box, name, 2)
        with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(box, name)


def test_a_dataclass_over_a_frozen_one_is_frozen_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Labelled(Box[int]):
        label: str = ""

    assert Labelled(1, "a") == Labelled(1, "a")
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Thawed", (Box,), {}))


def test_a_class_over_a_frozen_one_can_have_what_it_adds() -> None:
    class Marked(Box[int]):
        mark = 0

    marked = Marked(1)
    marked.mark = 2
    assert marked.mark == 2
    with pytest.raises(FrozenInstanceError):
        setattr(marked, "content", 2)  # noqa: B010 - a checker knows that it is frozen
