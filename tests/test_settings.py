"""A setting of the wrong kind is refused where it is set, by its name and with what fits."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypedDict, get_type_hints

import pytest

import toolkit
import toolkit.policies
from toolkit import (
    AnswerFormat,
    ConfigurationError,
    EnvVar,
    LoopDetectionConfig,
    LoopLimits,
    MemoryCache,
    Modify,
    OutputLimits,
    Permissions,
    ProviderRetryConfig,
    Steering,
    Timeouts,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    UsageLimits,
    UserMessage,
    deny,
    stop_after,
    tool,
    tool_from_schema,
    tools_of,
)
from toolkit.errors import TranscriptError
from toolkit.policies import (
    Batched,
    Parallel,
    PendingApproval,
    ResultStore,
    SqliteCache,
    SteeredRetries,
    Stop,
    StopContext,
    ToolExecutionHooks,
    ToolOrder,
    and_,
    keep_last,
    or_,
    token_budget,
    when_called,
)
from toolkit.settings import NonNegativeInt, PositiveInt, Seconds, check_fields


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Shelf:
    """Has a tool."""

    @tool
    def find(self, title: str) -> str:
        """Find a book."""
        return title


@dataclass
class Case:
    make: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    message: str


def case(make: Callable[..., Any], *arguments: Any, says: str, **keywords: Any) -> Case:
    return Case(make, arguments, keywords, says)


CASES = [
    case(tool, label=3, says="label must be text, not 3"),
    case(tool, retry=3, says="retry must be a ToolRetryConfig or None, not 3"),
    case(tool, retry=ToolRetryConfig, says="retry must be a ToolRetryConfig or None, not the class ToolRetryConfig"),
    case(tool, timeout="5", says="timeout must be a number, a timedelta or None, not '5'"),
    case(tool, timeout=True, says="timeout must be a number, a timedelta or None, not True"),
    case(tool, strict="yes", says="strict must be True or False or None, not 'yes'"),
    case(tool, sequential=1, says="sequential must be True or False, not 1"),
    case(tool, concurrency="2", says="concurrency must be a whole number or None, not '2'"),
    case(tool, concurrency=0, says="concurrency must be 1 or more, not 0"),
    case(tool, lock=3, says="lock must be text, a function or None, not 3"),
    case(tool, isolation="thread", says="isolation must be 'process' or None, not 'thread'"),
    case(tool, keep_output="middle", says="keep_output must be 'head', 'tail', 'both' or None, not 'middle'"),
    case(tool, env_vars=EnvVar("A"), says="env_vars must be a list or the like, not an EnvVar"),
    case(tool, env_vars=["HOME"], says="each of env_vars must be an EnvVar, not 'HOME'"),
    case(tool, tags="read", says="tags must be several, such as ['read'], not one string"),
    case(tool, tags=[1], says="each of tags must be text, not 1"),
    case(tool, tags={"read": 1}, says="tags must be a list or the like, not a dict"),
    case(tool, metadata=[1], says="metadata must be a mapping, not a list"),
    case(tool, name=3, says="the name of a tool must be text or None, not 3"),
    case(tool, description=5, says="the description of a tool must be text or None, not 5"),
    case(tool, timeot=5, says="there is no option 'timeot' of a tool: did you mean 'timeout'?"),
    case(tool, fast=True, says="there is no option 'fast' of a tool: see ToolOptions"),
    case(tool_from_schema, 5, "", {}, print, says="the name of a tool must be text, not 5"),
    case(tool_from_schema, "a", "", {}, None, says="tool 'a': its handler must be a function, not None"),
    case(tools_of, Shelf, says="tools_of takes an object, and Shelf is a class: write tools_of(Shelf(...))"),
    case(add.invoke, [1, 2], says="what function 'add' is called with must be a mapping or text, not a list"),
    case(ToolRegistry, add, says="a registry takes a list of tools, not a FunctionTool: write ToolRegistry([...])"),
    case(ToolRegistry, [], permissions=[], says="permissions of a registry must be a Permissions or None, not a list"),
    case(ToolRegistry([add]).configured, "add", timeot=5, says="did you mean 'timeout'?"),
    case(ToolRegistry([add]).only, [1], says="each name of a tool must be text, not 1"),
    case(ToolRegistry([add]).tagged, ["read"], says="each tag must be text, not a list"),
    case(ToolRegistry([add]).where, "add", says="the predicate of where() must be a function, not 'add'"),
    case(ToolRegistry([add]).renamed, ["add"], says="what renamed() is given must be a mapping, not a list"),
    case(ToolRegistry([add]).renamed, {"add": 4}, says="the name of a tool must be text, not 4"),
    case(Permissions, deny("x"), says="the rules of permissions must be a list or the like, not a Rule"),
    case(Modify, "x", says="the arguments of Modify must be a mapping, not 'x'"),
    case(EnvVar, 3, says="the name of an environment variable must be text, not 3"),
    case(ToolRetryConfig, max_retries="3", says="max_retries must be a whole number, not '3'"),
    case(ToolRetryConfig, max_retries=-1, says="max_retries must be 0 or more, not -1"),
    case(ToolRetryConfig, jitter=2, says="jitter must be between 0 and 1, not 2"),
    case(ToolRetryConfig, max_backoff=None, says="max_backoff must be a number, not None"),
    case(ToolRetryConfig, retry_if=3, says="retry_if must be a function or None, not 3"),
    case(ProviderRetryConfig, initial_backoff=float("nan"), says="initial_backoff must be 0 or more, not nan"),
    case(LoopDetectionConfig, threshold="3", says="threshold must be a whole number, not '3'"),
    case(LoopDetectionConfig, mode="turn", says="mode must be 'batch' or 'call', not 'turn'"),
    case(
        ToolOrder, required_steps="look", says="order.required_steps must be several, such as ['look'], not one string"
    ),
    case(ToolOrder, after="look", says="order.after must be a mapping, not 'look'"),
    case(SteeredRetries, max_held=True, says="steered_retries.max_held must be a whole number, not True"),
    case(AnswerFormat, int, forces_calls=1, says="answer.forces_calls must be True or False, not 1"),
    case(LoopDetectionConfig, exempt="poll", says="exempt must be several, such as ['poll'], not one string"),
    case(UsageLimits, requests="3", says="usage limit requests must be a whole number or None, not '3'"),
    case(Timeouts, hook=None, says="timeouts.hook must be a number or a timedelta, not None"),
    case(Timeouts, tool="3", says="timeouts.tool must be a number, a timedelta or None, not '3'"),
    case(OutputLimits, max_chars=0, says="output.max_chars must be 1 or more, not 0"),
    case(OutputLimits, store=True, says="output.store must be a ResultStore, False or None, not True"),
    case(LoopLimits, usage={"requests": 3}, says="limits.usage must be an UsageLimits or None, not a dict"),
    case(LoopLimits, calls_per_turn=0, says="limits.calls_per_turn must be 1 or more, not 0"),
    case(AnswerFormat, int, mode="json", says="answer.mode must be 'tool' or 'native', not 'json'"),
    case(UsageLimits, cost="1", says="usage limit cost must be a number or None, not '1'"),
    case(Parallel, "3", says="the limit of Parallel must be a whole number or None, not '3'"),
    case(Batched, 0, says="the size of Batched must be 1 or more, not 0"),
    case(stop_after, steps="3", says="stop_after(steps=...) must be a whole number, not '3'"),
    case(token_budget, "3", says="token_budget must be a whole number, not '3'"),
    case(when_called, add, says="the name for when_called must be text, not a FunctionTool"),
    case(or_, 3, says="each condition of or_ must be a function, not 3"),
    case(and_, 3, says="each condition of and_ must be a function, not 3"),
    case(keep_last, "3", says="keep_last must be a whole number, not '3'"),
    case(MemoryCache, "x", says="the max_entries of a cache must be a whole number or None, not 'x'"),
    case(SqliteCache, 3, says="the path of a cache must be text or a PathLike, not 3"),
    case(ResultStore, 0, says="the max_chars of a result store must be 1 or more, not 0"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.message)
def test_what_is_set_wrongly_is_told_by_its_name_with_what_fits(case: Case) -> None:
    with pytest.raises(ConfigurationError) as caught:
        case.make(*case.arguments, **case.keywords)
    assert case.message in str(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigurationError, match=r"not 'x{79}\.\.\.$"):
        LoopDetectionConfig(mode="x" * 500)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def _stop(_: StopContext) -> Stop:
    return Stop()


LOOP_CASES: list[tuple[dict[str, Any], str]] = [
    ({"max_iterations": "3"}, "max_iterations must be a whole number, not '3'"),
    ({"max_iterations": None}, "max_iterations must be a whole number, not None"),
    ({"max_iterations": -1}, "max_iterations must be 0 or more, not -1"),
    ({"execution": "parallel"}, "execution must be a Sequential, a Parallel or a Batched, not 'parallel'"),
    ({"execution": Parallel}, "execution must be a Sequential, a Parallel or a Batched, not the class Parallel"),
    ({"timeout": "3"}, "timeout must be a number, a timedelta or None, not '3'"),
    ({"timeouts": 3}, "timeouts must be a Timeouts, not 3"),
    ({"on_tool_call": "yes"}, "on_tool_call must be a function or None, not 'yes'"),
    ({"stop_when": _stop}, "stop_when must not be async: it only looks at what is there, and nothing waits"),
    ({"loop_detection": 3}, "loop_detection must be a LoopDetectionConfig or None, not 3"),
    ({"limits": UsageLimits(requests=3)}, "limits must be a LoopLimits, not an UsageLimits"),
    ({"output": None}, "output must be an OutputLimits, not None"),
    ({"answer": int}, "answer must be an AnswerFormat or None, not the class int"),
    ({"provider_retry": None}, "provider_retry must be a ProviderRetryConfig, not None"),
    ({"cache": {}}, "cache must be a Cache with 'get' and 'set' or None, not a dict"),
    ({"steering": []}, "steering must be a Steering or None, not a list"),
    ({"sync_workers": 0}, "sync_workers must be 1 or more, not 0"),
    ({"name_repair": "no"}, "name_repair must be True or False or 'similar', not 'no'"),
]


@pytest.mark.parametrize(("settings", "message"), LOOP_CASES, ids=[message for _, message in LOOP_CASES])
def test_so_is_what_a_loop_is_set_to(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ToolLoopConfig(**settings)
    assert str(caught.value) == message


def test_what_a_loop_is_told_must_be_text_or_a_message_that_can_stand_alone() -> None:
    wrong: Any = {"role": "user", "content": "Stop."}
    with pytest.raises(TranscriptError, match="a dict is not a message"):
        Steering().steer(wrong)
    with pytest.raises(TranscriptError, match="answers no call before it"):
        Steering().follow_up(ToolResult("1", "done"))


class Store(Protocol):
    """Keeps texts."""

    def load(self) -> str: ...
    def save(self, text: str) -> None: ...


class Shelves:
    """Can be loaded and saved."""

    def load(self) -> str:
        return ""

    def save(self, text: str) -> None: ...


class Options(TypedDict):
    """Some."""

    fast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One field of each kind."""

    kind: ClassVar[str] = "settings"
    turns: PositiveInt | None = 10
    retries: NonNegativeInt = 0
    timeout: Seconds | None = None
    store: Store | None = None
    mode: Literal["fast", False] = False
    names: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    numbers: Collection[int] = ()
    lines: Iterable[str] = ()
    options: Options | None = None
    price: Decimal | None = None
    rate: Callable[[Decimal], int] | None = None
    places: dict[str, int] = field(default_factory=dict[str, int])
    count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_fields(self, "the {} of a shop")


FIELD_CASES: list[tuple[dict[str, Any], str]] = [
    ({"turns": 0}, "the turns of a shop must be 1 or more, not 0"),
    ({"retries": None}, "the retries of a shop must be a whole number, not None"),
    ({"timeout": 0}, "the timeout of a shop must be more than 0 seconds, not 0"),
    ({"timeout": timedelta(-1)}, "the timeout of a shop must be more than 0 seconds, not -86400"),
    ({"store": 3}, "the store of a shop must be a Store with 'load' and 'save' or None, not 3"),
    ({"store": Shelves}, "the store of a shop must be a Store with 'load' and 'save' or None, not the class Shelves"),
    ({"mode": True}, "the mode of a shop must be 'fast' or False, not True"),
    ({"names": "Ann"}, "the names of a shop must be several, such as ['Ann'], not one string"),
    ({"names": [1]}, "each of the names of a shop must be text, not 1"),
    ({"tags": 3}, "the tags of a shop must be a list or the like, not 3"),
    ({"numbers": ["1"]}, "each of the numbers of a shop must be a whole number, not '1'"),
    ({"numbers": None}, "the numbers of a shop must be a list or the like, not None"),
    ({"options": []}, "the options of a shop must be a mapping or None, not a list"),
    ({"rate": 3}, "the rate of a shop must be a function or None, not 3"),
    ({"places": []}, "the places of a shop must be a dict, not a list"),
]


@pytest.mark.parametrize(("settings", "message"), FIELD_CASES, ids=[message for _, message in FIELD_CASES])
def test_a_field_is_checked_by_its_hint(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(**settings)
    assert str(caught.value) == message


def test_a_field_is_kept_as_its_hint_says() -> None:
    loose: Any = {"timeout": timedelta(minutes=1), "names": ["Ann"], "tags": {"read"}, "store": Shelves()}
    settings = Settings(**loose)
    assert (settings.timeout, settings.names, settings.tags) == (60.0, ("Ann",), frozenset({"read"}))


def test_a_hint_names_what_exists_when_the_program_runs() -> None:
    package = Path(toolkit.__file__).parent
    paths = [path for path in package.rglob("*.py") if "check_fields(self" in path.read_text("utf-8")]
    checked = 0
    for path in paths:
        module = importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
        for kind in vars(module).values():
            if isinstance(kind, type) and hasattr(kind, "__post_init__"):
                assert get_type_hints(kind, include_extras=True)
                checked += 1
    assert checked > 30


class Counted:
    """Counts how often it is part of a hint that is read."""

    reads: ClassVar[int] = 0

    def __class_getitem__(cls, _: object) -> type[Counted]:
        cls.reads += 1
        return cls


@dataclass(frozen=True, slots=True)
class CountedSettings:
    """Has a hint that tells when it is read."""

    value: Counted[int] | None = None  # type: ignore[type-arg]

    def __post_init__(self) -> None:
        check_fields(self)


def test_a_hint_is_read_once_and_only_when_its_field_is_set() -> None:
    CountedSettings()
    assert Counted.reads == 0
    CountedSettings(Counted())
    CountedSettings(Counted())
    assert Counted.reads == 1


def test_the_fields_of_a_subclass_are_checked_as_those_of_its_base_are() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Limits(UsageLimits):
        words: PositiveInt | None = None

    with pytest.raises(ConfigurationError, match="usage limit words must be 1 or more, not 0"):
        Limits(words=0)
    with pytest.raises(ConfigurationError, match="usage limit requests must be 0 or more, not -1"):
        Limits(requests=-1)


@dataclass
class WrongKeyword:
    make: Callable[..., object]
    keyword: str
    message: str


WRONG_KEYWORDS = [
    WrongKeyword(
        ToolLoopConfig, "max_iteration", "ToolLoopConfig takes no 'max_iteration': did you mean 'max_iterations'"
    ),
    WrongKeyword(
        ToolLoopConfig, "temperature", "write ChatRequest(messages=..., temperature=...) in place of the prompt"
    ),
    WrongKeyword(ToolLoopConfig, "top_p", "write request_options={'top_p': ...}"),
    WrongKeyword(ToolLoopConfig, "system_prompt", "write system_prompt=... beside config=..."),
    WrongKeyword(ToolLoopConfig, "model", "write it into the provider, such as OpenAIProvider('gpt-5')"),
    WrongKeyword(ToolLoopConfig, "tool_timeout", "write timeouts=Timeouts(tool=...)"),
    WrongKeyword(ToolLoopConfig, "max_chars", "write output=OutputLimits(max_chars=...)"),
    WrongKeyword(ToolLoopConfig, "policy", "ToolLoopConfig takes no 'policy'"),
    WrongKeyword(OutputLimits, "max_char", "OutputLimits takes no 'max_char': did you mean 'max_chars'?"),
    WrongKeyword(OutputLimits, "colour", "OutputLimits takes no 'colour': it takes max_chars, keep, store"),
    WrongKeyword(ToolRetryConfig, "retries", "did you mean 'max_retries'?"),
    WrongKeyword(UsageLimits, "request", "did you mean 'requests'?"),
    WrongKeyword(AnswerFormat, "retries", "did you mean 'max_retries'?"),
    WrongKeyword(ToolExecutionHooks, "befor", "did you mean 'before'?"),
]


@pytest.mark.parametrize("case", WRONG_KEYWORDS, ids=lambda case: f"{case.make.__name__} {case.keyword}")
def test_a_keyword_that_settings_do_not_have_is_answered_with_what_to_write(case: WrongKeyword) -> None:
    with pytest.raises(ConfigurationError) as raised:
        case.make(**fill_required(case.make), **{case.keyword: 1})
    assert case.message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ToolLoopConfig, [3], "ToolLoopConfig takes its settings by name: on_tool_call=..., "),
        (OutputLimits, [3], "takes its settings by name: max_chars=..., keep=..., store=..."),
        (AnswerFormat, [int, "native"], "by name: check=..., mode=..., max_retries=..., forces_calls=..."),
    ],
)
def test_settings_without_their_names_are_refused_with_the_names(kind: Any, values: list[Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        kind(*values)
    assert message in str(raised.value)


def test_settings_are_shown_with_the_keywords_that_they_take() -> None:
    shown = inspect.signature(OutputLimits)
    assert list(shown.parameters) == ["max_chars", "keep", "store", "saved_chars"]
    misspelled: dict[str, Any] = {"keeps": "head"}
    with pytest.raises(ConfigurationError, match="did you mean 'keep'"):
        replace(OutputLimits(), **misspelled)


def test_every_public_class_that_checks_its_fields_refuses_other_keywords_in_its_own_words() -> None:
    public: list[Any] = [getattr(module, name) for module in (toolkit, toolkit.policies) for name in module.__all__]
    kinds = [kind for kind in public if hasattr(kind, "__dataclass_fields__") and hasattr(kind, "__post_init__")]
    kinds = [kind for kind in kinds if kind not in (PendingApproval, ToolResult, UserMessage)]
    assert len(kinds) > 15
    for kind in kinds:
        with pytest.raises(ConfigurationError, match=f"{kind.__name__} takes no 'no_such_thing'"):
            kind(**fill_required(kind), no_such_thing=1)


def fill_required(make: Callable[..., object]) -> dict[str, None]:
    parameters = inspect.signature(make).parameters.values()
    return {each.name: None for each in parameters if each.default is each.empty}
