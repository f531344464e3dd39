import ast
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import pytest
from hypothesis import given, settings, strategies as st

from tests.counted_work import count_calls, grows_with_its_input
from toolkit.calls.argument_repair import repair_arguments
from toolkit.tool_names import nearest_names, repair_name

Json: TypeAlias = Union[str, int, float, bool, list["Json"], dict[str, "Json"], None]  # noqa: UP007 - it names itself

# names

TOOLS = ("get_weather", "search_web", "read_file", "calculator", "add", "HTTP-Get")


@dataclass
class Named:
    written: str
    meant: str | None
    available: tuple[str, ...] = TOOLS
    hidden: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "case",
    [
        Named("get_weather", "get_weather"),
        # other spellings of the same letters
        Named("getWeather", "get_weather"),
        Named("Get-Weather", "get_weather"),
        Named("GET WEATHER", "get_weather"),
        Named("http_get", "HTTP-Get"),
        Named(" get_weather\n", "get_weather"),
        Named('"get_weather"', "get_weather"),
        Named("`get_weather`", "get_weather"),
        Named("[get_weather]", "get_weather"),
        Named("<get_weather>", "get_weather"),
        Named("get_weather()", "get_weather"),
        Named("**get_weather**", "get_weather"),
        # a namespace, and a name that stands there twice
        Named("functions.get_weather", "get_weather"),
        Named("default_api.getWeather", "get_weather"),
        Named("tools:get_weather", "get_weather"),
        Named("mcp__home__get_weather", "get_weather"),
        Named("functions/home/get_weather", "get_weather"),
        Named("get_weather.get_weather", "get_weather"),
        Named("get_weatherget_weather", "get_weather"),
        Named("functions.get_weather.get_weather", "get_weather"),
        Named("github.create_issue", "github__create_issue", ("github__create_issue", "create_issue")),
        Named("functions.github__create_issue", "github__create_issue", ("github__create_issue", "create_issue")),
        Named("bye_bye", "bye_bye", ("bye", "bye_bye")),
        Named("create_issue", None, ("github__create_issue",)),
        Named("functions.", None),
        # other letters
        Named("get_wether", None),
        Named("calculater", None),
        Named("get_weathers", None),
        Named("disable_user_account", None, ("enable_user_account",)),
        Named("delete_files", None, ("delete_file",)),
        Named("search", None),
        Named("ad", None),
        Named("", None),
        Named("___", None),
        Named("天气", None),
        Named("cafe\u0301", None, ("cafe",)),
        Named("!add", None),
        Named("add+add", None),
        Named("x" * 1_000_000, None),
        # numbers are more than their digits
        Named("read-v1.2", "read_v1_2", ("read_v1_2", "read_v12")),
        Named("read_v1_2", None, ("read_v12",)),
        # more than one
        Named("getuser", None, ("get_user", "getUser")),
        Named("getUser", "getUser", ("get_user", "getUser")),
        Named("anything", None, ()),
        Named("_", None, ("-", "__")),
        # what a scope has left out
        Named("delete", None, ("Delete",), hidden=("delete",)),
        Named("admin.delete", None, ("delete",), hidden=("admin__delete",)),
        Named("get user", None, ("get_user",), hidden=("getUser",)),
        Named("functions.getUser", None, ("get_user",), hidden=("getUser",)),
        Named("functions.home__add", "home__add", ("home__add",), hidden=("add",)),
        Named("getUser", "getUser", ("getUser",), hidden=("getUser",)),
    ],
)
def test_a_name_is_repaired_only_where_one_tool_alone_has_its_letters(case: Named) -> None:
    assert repair_name(case.written, case.available, hidden=case.hidden) == case.meant


@pytest.mark.parametrize(
    "case",
    [
        Named("getWeather", "get_weather"),
        Named("get_wether", "get_weather"),
        Named("calculater", "calculator"),
        Named("get_weathers", "get_weather"),
        Named("search", None),
        Named("ad", None),
        Named("delete_everything", None),
        Named("x" * 1_000_000, None),
        Named("read_files", None, ("read_filea", "read_fileb")),
        Named("abcdefghijklmnopqrsX", "abcdefghijklmnopqrst", ("abcdefghijklmnopqrst", "abcdefghijklmnopZZZZ")),
        Named("delete_files", None, ("delete_file",), hidden=("delete_files",)),
        Named("Delete-Files", None, ("delete_file",), hidden=("delete_files",)),
        Named("delete_filez", None, ("delete_file",), hidden=("delete_filezz",)),
        Named("delete_fil", "delete_file", ("delete_file",), hidden=("delete_files",)),
        # 2 * 17 / 40 is the threshold itself, which is not enough
        Named("abcdefghijklmnopqXXX", None, ("abcdefghijklmnopqYYY",)),
        Named("abcdefghijklmnopqrXX", "abcdefghijklmnopqrYY", ("abcdefghijklmnopqrYY",)),
    ],
)
def test_a_similar_name_is_taken_only_on_request_and_where_no_other_fits(case: Named) -> None:
    assert repair_name(case.written, case.available, similar=True, hidden=case.hidden) == case.meant


NAMES = st.text("abAB12_-", min_size=1, max_size=8)


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.sets(NAMES, max_size=3), st.data())
def test_a_name_that_is_off_by_one_letter_is_never_taken(
    available: list[str], hidden: set[str], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(available))
    place, letter = data.draw(st.integers(0, len(name))), data.draw(st.sampled_from("abcx129"))
    kind = data.draw(st.sampled_from(["more", "less", "other"]))
    written = name[:place] + ("" if kind == "less" else letter) + name[place + (kind != "more") :]
    repaired = repair_name(written, available, hidden=hidden)
    if repaired is not None and repaired != written:
        assert _letters_of(repaired) in (_letters_of(written), _letters_of(written) * 2, *_halves(written))
    assert repair_name(next(iter(hidden), ""), available, similar=True, hidden=hidden) in (*available, None)
    for other in hidden - set(available):
        assert repair_name(other, available, similar=True, hidden=hidden) is None


def _letters_of(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _halves(name: str) -> list[str]:
    """The letters that are left where a namespace or a repetition is taken away."""
    parts = [_letters_of(name[place:]) for place in range(len(name)) if place == 0 or name[:place].endswith("__")]
    return [*parts, *(part[: len(part) // 2] for part in parts)]


@given(st.text(max_size=20), st.lists(st.text("abcAB_-", min_size=1, max_size=8), max_size=6, unique=True))
def test_a_repaired_name_is_always_an_available_one(name: str, available: list[str]) -> None:
    repaired = repair_name(name, available)
    assert repaired is None or repaired in available
    assert (repaired == name) or name not in available
    near = nearest_names(name, available)
    assert len(near) <= 3
    assert set(near) <= set(available)


def test_the_nearest_names_come_first() -> None:
    assert nearest_names("weather", TOOLS) == ("get_weather",)
    assert nearest_names("read_the_file", TOOLS)[0] == "read_file"
    assert nearest_names("getUser", ["get_user", "get_users", "set_user", "users_get"], 2) == ("get_user", "get_users")
    assert nearest_names("weather_in_berlin_and_lima", TOOLS) == ("get_weather",)
    assert nearest_names("getTheWholeFileFromDisk", TOOLS) == ("read_file",)
    assert nearest_names("zzz", TOOLS) == ()
    assert nearest_names("x" * 1_000_000, TOOLS) == ()


# arguments

CORPUS: list[tuple[str, dict[str, Any] | None]] = [
    # nothing
    ("", {}),
    ("  \n ", {}),
    ("null", {}),
    ("None", {}),
    ("{}", {}),
    ('""', {}),
    # already good
    ('{"a": 1, "b": [true, null, "x"], "c": {"d": -1.5e3}}', {"a": 1, "b": [True, None, "x"], "c": {"d": -1500.0}}),
    ('\ufeff{"a": 1}', {"a": 1}),
    # trailing commas
    ('{"a": 1,}', {"a": 1}),
    ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
    ('{"a": [1,,2]}', None),
    ('{"a": 1,,}', None),
    ('{,"a": 1}', None),
    ("{,}", None),
    ('{"a": [,]}', None),
    # quotes
    ("{'a': 'b'}", {"a": "b"}),
    ("{'a': \"it's\"}", {"a": "it's"}),
    ("{'a': 'it\\'s'}", {"a": "it's"}),
    ("{'a': 'say \"hi\"'}", {"a": 'say "hi"'}),
    ('{"a": "it\\\'s"}', {"a": "it's"}),
    ("{'a': 'it's'}", None),
    ("{'a': 'rock 'n' roll'}", None),
    ('{"a": "he said "hi" to me"}', None),
    ('{"a: 1}', None),
    ('{a": 1}', None),
    ('{"a": "b}', None),
    ('{"a": "b, "c": "d"}', None),
    ('{"a": b", "c": "d"}', None),
    ("{`a`: 1}", None),
    ("{\u201ca\u201d: 1}", None),
    ('{"""a""": 1}', None),
    ('{"a": "b" "c"}', None),
    ('{"a": f"x"}', None),
    # words
    ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}),
    ("{'a': [None, True]}", {"a": [None, True]}),
    ('{"a": TRUE}', None),
    ('{"a": undefined}', None),
    ('{"a": yes}', None),
    ('{"a": Paris}', None),
    ('{"a": ...}', None),
    ('{"a": NaN}', None),
    ('{"a": Infinity}', None),
    ('{"a": -Infinity}', None),
    ('{"a": 1e999}', None),
    # keys
    ("{a: 1, b_c: 2, $d: 3, e-f: 4}", {"a": 1, "b_c": 2, "$d": 3, "e-f": 4}),
    ("{städte: 1}", {"städte": 1}),
    ("{a b: 1}", None),
    ("{1: 2}", None),
    ("{True: 2}", None),
    ("{None: 2}", None),
    ("{Infinity: 2}", None),
    ("{: 2}", None),
    ("{a}", None),
    ("{a:}", None),
    ('{"a"}', None),
    ('{"a", "b"}', None),
    ('{"a" = 1}', None),
    ('{"a" => 1}', None),
    ('{"a":: 1}', None),
    # duplicates
    ('{"a": 1, "a": 2}', None),
    ("{\"a\": 1, 'a': 1}", {"a": 1}),
    ('{"a": 1, "a": 1.0}', None),
    ('{"b": [{"a": 1, "a": 1}], "c": 2}', {"b": [{"a": 1}], "c": 2}),
    ('{"a": 1; "b": 2}', {"a": 1, "b": 2}),
    ('{"a": [1; 2]}', None),
    ('{{"a": {{"b": 1}}}}', {"a": {"b": 1}}),
    ('{{"a": {"b": 1}}}', {"a": {"b": 1}}),
    ('{{"a": 1}', None),
    ('{{"a": 1} }', {"a": 1}),
    ('{{{"a": 1}}}', None),
    ('{"a": "b" + \'c\'}', {"a": "bc"}),
    ('{"a": "b" + c}', None),
    ('{"a": 1 + 2}', None),
    ('{"a" + "b": 1}', None),
    ('{\u200b"a":\u2060 1}', {"a": 1}),
    ('{"a\n": 1}', None),
    ('{" a": 1,}', None),
    ('{"a": "b\n"}', None),
    ('{"a": "b\nc\n"}', {"a": "b\nc\n"}),
    ('{"a": 7// two\n}', None),
    ('{"a": [\n# 1,\n2]}', None),
    ('{"a": {"b": 1, "\\u0062": 2}}', None),
    ('{"a": {"b": 1}, "b": 1}', {"a": {"b": 1}, "b": 1}),
    # commas and brackets that are missing, or too many
    ('{"a": 1 "b": 2}', None),
    ('{"a": 1\n"b": 2}', None),
    ('{"a": [1 2]}', None),
    ('{"a": 1', None),
    ('{"a": [1, 2}', None),
    ('{"a": {"b": 1}', None),
    ('{"a": 1}}', None),
    ('{"a": [1]]}', None),
    ('"a": 1', None),
    ('"a": 1}', None),
    ('{"a": 1]', None),
    ("[1, 2]", None),
    ('[{"a": 1}]', None),
    ('{"a": (1, 2)}', None),
    ('{"a": {1, 2}}', None),
    # cut off
    ("{", None),
    ('{"', None),
    ('{"a', None),
    ('{"a":', None),
    ('{"a": tr', None),
    ('{"a": "b', None),
    ('{"a": "b"', None),
    ('{"a": "b",', None),
    ('"{\\"a\\": 1', None),
    ('```json\n{"a": [1,', None),
    # comments
    ('{"a": 1, // one\n "b": 2}', {"a": 1, "b": 2}),
    ('{"a": 1, # one\n "b": 2}', {"a": 1, "b": 2}),
    ('{/* first */ "a": /* it is */ 1}', {"a": 1}),
    ('// the call\n{"a": 1}', {"a": 1}),
    ('{"a": 1} # done', {"a": 1}),
    ('{"a": "http://x/#y /* z */"}', {"a": "http://x/#y /* z */"}),
    ('{"a": 1 /* one }', None),
    ('{"a": 1 // one }', None),
    ('{"a": [#fff,\n#000\n]}', None),
    ('{"a": http://x}', None),
    # numbers
    ('{"a": +1, "b": .5, "c": 5., "d": -.5e1}', {"a": 1, "b": 0.5, "c": 5.0, "d": -5.0}),
    ('{"a": 007}', None),
    ('{"a": 1_000}', None),
    ('{"a": 1,000}', None),
    ('{"a": 0x1F}', None),
    ('{"a": 5%}', None),
    ('{"a": 10km}', None),
    ('{"a": 1.2.3}', None),
    ('{"a": -}', None),
    ('{"a": 2024-01-01}', None),
    ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    ('{"a": ' + "9" * 5000 + "}", None),
    # what is in strings
    ('{"a": "two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
    ('{"a": "\\u00e9\\n\\/"}', {"a": "é\n/"}),
    ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ('{"a": "\\ud83d"}', None),
    ('{"a": "\ud83d"}', None),
    ('{"a": "\\d+"}', None),
    ('{"a": "C:\\Users"}', None),
    ('{"a": "\\x41"}', None),
    ('{"a": "\\u12"}', None),
    ('{"a": "\x00"}', None),
    ('{"a": "{[,]}: \'x\' // y"}', {"a": "{[,]}: 'x' // y"}),
    # encoded again
    ('"{\\"a\\": 1}"', {"a": 1}),
    ("'{\"a\": 1}'", {"a": 1}),
    ("\"{'a': True,}\"", {"a": True}),
    ('{\\"a\\": \\"b\\"}', {"a": "b"}),
    ('{\\"a\\": "b\\", \\"c\\": \\"d"}', None),
    ('{\\"a\\": \\"b\\"', None),
    (json.dumps(json.dumps(json.dumps({"a": "x"}))), {"a": "x"}),
    (json.dumps(json.dumps(json.dumps(json.dumps(json.dumps({}))))), None),
    ('"hello"', None),
    ('"[1]"', None),
    # fences and prose
    ('```json\n{"a": 1}\n```', {"a": 1}),
    ('```\n{"a": 1}\n```', {"a": 1}),
    ("~~~json5\n{a: 1}\n~~~", {"a": 1}),
    ('```json\n{"a": 1}', {"a": 1}),
    ('`{"a": 1}`', {"a": 1}),
    ('`{"a": 1}', None),
    ('Here are the arguments:\n```json\n{"a": 1}\n```', {"a": 1}),
    ('Hier sind sie.\n```json\n{"a": 1}\n```', {"a": 1}),
    ('\u53c2\u6570\u5982\u4e0b\uff1a\n```\n{"a": 1}\n```', {"a": 1}),
    ('Here are the arguments: ```json\n{"a": 1}\n```', None),
    ('Here are 2:\n```json\n{"a": 1}\n```', None),
    ('options:\n```json\n{"a": 1}\n```', None),
    ('Here are the arguments:\n```json\n{"a": 1}\n```\nI hope that this helps!', None),
    ('Sure! Here\'s the call: {"a": 1}', None),
    ('{"a": 1};', {"a": 1}),
    ('arguments = {"a": 1}', {"a": 1}),
    ('Arguments: {"a": 1}', {"a": 1}),
    ('options: {"a": 1}', None),
    ('I set\noptions: {"a": 1}', None),
    ('"options": {"a": 1}', None),
    ('city: Paris, options: {"a": 1}', None),
    ('{"a": 1}, "b": 2', None),
    ('{"a": 1}, b', None),
    ('{"a": 1} b: 2', None),
    ('{"a": 1} ...', None),
    ('{"a": 1}.', {"a": 1}),
    ('{"a": 1} and then 2', None),
    ('{"a": 1} {"b": 2}', None),
    ('{"a": 1} or {"a": 2}', None),
    ('Do not use {"a": 1}', None),
    ('I don\'t want {"a": 1}', None),
    ('{"a": 1} is wrong', None),
    ('use {x} here: {"a": 1}', None),
    ('f({"a": 1})', None),
    ('<call>{"a": 1}</call>', None),
    ('```json\n{"a": 1}\n```\n```json\n{"b": 2}\n```', None),
    ('Paris {"a": 1}', None),
    ('The city is Paris. {"a": 1}', None),
    ('City Paris: {"a": 1}', None),
    ('{"a": 1}\nin Paris', None),
    ('Nicht {"a": 1}', None),
    ('I will call the tool with these arguments: {"a": 1}', None),
    ('Let me look.\n{"a": 1}\nHope this helps!', None),
    ("I can't do that.", None),
    ("hello", None),
    ("42", None),
    ("\x00", None),
]


@pytest.mark.parametrize(("text", "expected"), CORPUS, ids=[repr(text)[:60] for text, _ in CORPUS])
def test_a_broken_text_is_what_was_surely_meant_or_nothing(text: str, expected: dict[str, Any] | None) -> None:
    repaired = repair_arguments(text)
    assert (None if repaired is None else json.loads(repaired)) == expected
    if repaired is not None:
        assert repr(json.loads(repaired)) == repr(expected)
        assert repair_arguments(repaired) == repaired


def test_the_depth_is_bounded() -> None:
    assert repair_arguments('{"a": ' + "[" * 99 + "]" * 99 + ",}") is not None
    assert repair_arguments('{"a": ' + "[" * 100 + "]" * 100 + ",}") is None


HOSTILE: dict[str, Callable[[int], str]] = {
    "lists": lambda n: "[" * n,
    "objects": lambda n: "{" * n,
    "members": lambda n: '{"a":' * n,
    "items": lambda n: "{'a': [" + "1," * n,
    "items and an end": lambda n: "{'a': [" + "1," * n + "]}",
    "empty objects": lambda n: "{'a': [" + "{}," * n + "]}",
    "comments without end": lambda n: "{" + "/*" * n,
    "comments": lambda n: "{" + "/**/" * n,
    "backslashes in a name": lambda n: "{'" + "\\" * n,
    "escapes in a name": lambda n: '{"' + "\\u00e9" * n + '": 1,}',
    "single quotes": lambda n: "'" * n,
    "ticks": lambda n: "`" * n,
    "ticks around": lambda n: "`" * n + "{}" + "`" * n,
    "colons around": lambda n: ":" * n + "{}" + ":" * n,
    "labels before": lambda n: "a:\n" * n + "{}",
    "words around": lambda n: "n" * n + "{}" + " n'" * n,
    "spaces before": lambda n: " " * n + "x" + " " * n + "{}",
    "signs": lambda n: "{a: " + "-" * n,
    "many names": lambda n: "{" + "".join([f"k{number}: {number}, " for number in range(n)]) + "}",
    "backslashes": lambda n: "\\" * n,
    "hash comments": lambda n: "{" + "# \n" * n,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_the_work_of_a_repair_grows_with_the_text(make: Callable[[int], str]) -> None:
    assert grows_with_its_input(lambda size: repair_arguments(make(size)), 500)


@pytest.mark.full  # a search of the standard library shows its work in a text of this size alone
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_megabyte_of_anything_is_repaired_or_refused(make: Callable[[int], str]) -> None:
    repair_arguments(make(200_000))


def test_a_text_of_any_size_costs_little() -> None:
    text = "{'a': '" + "x" * 10_000_000 + "'}"
    assert repair_arguments(text) is None
    assert count_calls(lambda: repair_arguments(text)) < 20


# properties

_words = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\"'\\,:{}[]/#`\n\t"), max_size=8)
_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _words
_names = st.from_regex(r"[\w$](?:[\w$ .\"'{,:-]{0,6}[\w$])?", fullmatch=True).filter(str.isprintable)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3), max_leaves=8
)
_objects = st.dictionaries(_names, _values, max_size=4)


VALUES = {"None", "True", "False", "true", "false", "null", "NaN", "nan", "Infinity", "inf", "undefined"}


class Vandal:
    """Writes a value as a weak model would, in a way that leaves its meaning whole."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def blank(self) -> str:
        return self.draw(st.sampled_from(["", "", " ", "\n", " /* x, */ ", " // y]\n", " # z}\n"]))

    def write(self, value: Json) -> str:
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, dict):
            pairs = [
                self.key(key) + self.blank() + ":" + self.blank() + self.write(item) for key, item in value.items()
            ]
            return self.joined("{", pairs, "}")
        if isinstance(value, list):
            return self.joined("[", [self.write(item) for item in value], "]")
        if value is None or isinstance(value, bool):
            return self.draw(st.sampled_from([json.dumps(value), repr(value)]))
        return json.dumps(value)

    def joined(self, opening: str, parts: list[str], closing: str) -> str:
        comma = self.draw(st.sampled_from(["", ","])) if parts else ""
        inner = (self.blank() + "," + self.blank()).join(parts)
        return opening + self.blank() + inner + self.blank() + comma + self.blank() + closing

    def key(self, key: str) -> str:
        bare = key.isascii() and key.isidentifier() and key not in VALUES
        return key if bare and self.draw(st.booleans()) else self.string(key)

    def string(self, value: str) -> str:
        text = json.dumps(value, ensure_ascii=self.draw(st.booleans()))
        is_edge = value.count("\n") == 1 and value.strip("\n") != value  # which may be a slip of the quote
        if self.draw(st.booleans()) and not is_edge:
            text = text.replace("\\n", "\n") if "\\\\" not in text else text
        if self.draw(st.booleans()):
            return "'" + text[1:-1].replace('\\"', '"').replace("'", "\\'") + "'" if "\\\\" not in text else text
        return text


@st.composite
def _broken(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    value = draw(_objects)
    text = Vandal(draw).write(value)
    for _ in range(draw(st.integers(0, 2))):
        text = json.dumps(text)
    return value, text


@settings(max_examples=50)
@given(_broken())
def test_an_object_that_was_broken_without_loss_comes_back_equal(case: tuple[dict[str, Any], str]) -> None:
    value, text = case
    repaired = repair_arguments(text)
    assert repaired is not None
    assert json.loads(repaired) == value
    wrapped = repair_arguments(f"Sure, here it is:\n```json\n{text}\n```") if text[0] == "{" else repaired
    assert wrapped == repaired


@settings(max_examples=50)
@given(_broken(), st.data())
def test_what_is_cut_off_is_never_closed(case: tuple[dict[str, Any], str], data: st.DataObject) -> None:
    _, text = case
    end = data.draw(st.integers(1, len(text) - 1))
    assert repair_arguments(text[:end]) is None


_pieces = st.sampled_from(
    [
        *"{}[],:\"'\\\n (#x",
        '"a"',
        "'b'",
        "1",
        "-.5",
        "True",
        "null",
        "//",
        "/*",
        "*/",
        "```",
        "```json\n",
        "\\u0041",
        "NaN",
    ]
)


@settings(max_examples=120)
@given(
    st.lists(_pieces, max_size=14).map("".join) | st.lists(_pieces, max_size=10).map(lambda p: "{" + "".join(p) + "}")
)
def test_no_text_makes_it_raise_and_what_python_or_json_can_read_is_read_alike(text: str) -> None:
    repaired = repair_arguments(text)
    if repaired is None or repaired == "{}":
        return
    value: Any = json.loads(repaired)
    assert repaired.startswith("{")
    assert repair_arguments(repaired) == repaired
    assert all(math.isfinite(number) for number in _numbers(value))
    for reader in (json.loads, ast.literal_eval):
        try:
            other = reader(text)
        except (ValueError, SyntaxError, MemoryError):
            continue
        if isinstance(other, dict):
            assert other == value


def _numbers(value: Json) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [value] if isinstance(value, float) else []


@given(st.text())
def test_no_text_at_all_makes_it_raise(text: str) -> None:
    repaired = repair_arguments(text)
    assert repaired is None or isinstance(json.loads(repaired), dict)
