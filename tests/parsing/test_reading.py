"""What holds for every reply: however it is cut, nothing is lost, nothing is invented, and it takes linear time."""

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from tests.counted_work import grows_with_its_input
from tests.parsing.corpus import ADD, ADD_JSON, CORPUS, PARIS_JSON, TOOLS, tagged
from toolkit import ToolCall
from toolkit.chat import ToolDefinition
from toolkit.errors import ConfigurationError
from toolkit.parsing import Reply, ReplyReader, UnreadCall, read_reply
from toolkit.schema.nodes import is_array, is_object

PIECES = [
    *[
        "<tool_call>",
        "</tool_call>",
        "<function=add>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "<|python_tag|>",
    ],
    *[
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "Action: add\n",
        "Action Input: ",
        "Observation: ",
        "**Action:** ",
        "Action",
    ],
    *["```", "```json\n", "\n```", "~~~", "`", "<think>", "</think>", "[add(a=1, b=2)]", "[add(", "a=1", ")", "]"],
    *[
        ADD_JSON,
        PARIS_JSON,
        '{"tool_name": "now"}',
        '{"x": ',
        "{",
        "}",
        "[",
        '"',
        "'",
        "\\",
        "//",
        "/*",
        "# ",
        ",",
        ":",
    ],
    *["<|tool_call|>", "add\n<arg_key>a</arg_key>", "<arg_value>1</arg_value>", "\nadd(a=1)", "now()", "<|im_end|>"],
    *[
        "Sure. ",
        "I look:\n",
        "For example:\n",
        "I used ",
        " ",
        "\n",
        "\t",
        "\x00",
        "\ud800",
        "é",
        "*",
        "<",
        "=",
        "1",
        "add",
        "a",
    ],
]
REPLIES = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.text(max_size=60),
    st.sampled_from([case.reply for case in CORPUS]),
)


def in_pieces(text: str, cuts: list[int]) -> Reply:
    reader = ReplyReader(TOOLS)
    bounds = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    parts = [part for start, end in pairwise(bounds) for part in reader.feed(text[start:end])]
    return reader.collect([*parts, *reader.finish()])


@settings(deadline=None)  # other work on the machine is no failure
@given(REPLIES, st.lists(st.integers(0, 1000), max_size=12))
def test_a_reply_in_pieces_is_read_like_the_whole(text: str, cuts: list[int]) -> None:
    assert in_pieces(text, cuts) == read_reply(text, TOOLS)


@settings(deadline=None)  # the character before a mark is looked at also where it came in another piece
@example("<)Action:`Let me<|tool_call_begin|>")
@example("re\nAction: add")
@example("<)Action:")
@example("  add(a=1, b=?)")
@given(REPLIES)
def test_a_reply_that_comes_character_by_character_is_read_like_the_whole(text: str) -> None:
    assert in_pieces(text, list(range(len(text)))) == read_reply(text, TOOLS)


@settings(deadline=None)
@given(REPLIES)
def test_text_stays_as_it_was_written(text: str) -> None:
    reply = read_reply(text, TOOLS)
    if not reply.calls and not reply.unread:
        assert reply.text == text
    position = 0
    for part in reply.parts:
        written = part.text if isinstance(part, UnreadCall) else part
        if isinstance(written, str):
            found = text.find(written.strip(), position)
            assert found >= position
            position = found + len(written.strip())


def leaves(value: Any) -> list[Any]:
    if is_object(value):
        return [leaf for key, inner in value.items() for leaf in [key, *leaves(inner)]]
    if is_array(value):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


@settings(deadline=None)
@given(REPLIES)
def test_a_call_says_nothing_that_was_not_written(text: str) -> None:
    for call in read_reply(text, TOOLS).calls:
        assert call.name in text
        for leaf in leaves(json.loads(call.arguments)):
            if isinstance(leaf, str):
                assert all(word in text for word in re.findall(r"\w+", leaf))
            elif leaf is not None and not isinstance(leaf, bool):
                assert str(leaf) in text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5).filter(str.isidentifier), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), VALUES, max_size=4), st.booleans())
def test_what_a_model_writes_rightly_is_read_in_every_form(arguments: dict[str, Any], indents: bool) -> None:
    written = json.dumps(arguments, indent=2 if indents else None, ensure_ascii=indents)
    call = f'{{"name": "add", "arguments": {written}}}'
    forms = [
        tagged(call),
        f"<|python_tag|>{call}",
        f"[TOOL_CALLS] [{call}]",
        f"[TOOL_CALLS]add[ARGS]{written}",
        f"<function=add>{written}</function>",
        f"<|tool_call|>[{call}]<|/tool_call|>",
        f"add({', '.join([f'{key}={json.dumps(value)}' for key, value in arguments.items()])})",
        f"Action: add\nAction Input: {written}",
        f"```json\n{call}\n```",
        call,
        f'{{"tool_name": "add", "arguments": {written}}}',
        f"[add({', '.join([f'{key}={json.dumps(value)}' for key, value in arguments.items()])})]",
    ]
    for form in forms:
        reply = read_reply(form, TOOLS)
        assert [(found.name, json.loads(found.arguments)) for found in reply.calls] == [("add", arguments)], form
        assert not reply.unread
        assert reply.text == ""


# while it comes


def test_text_flows_as_soon_as_it_can_be_no_call_anymore() -> None:
    reader = ReplyReader(TOOLS)
    assert reader.feed("The weather") == ["The weather"]
    assert reader.feed(" in <") == [" in"]
    assert reader.feed("b>") == [" <b>"]
    assert reader.feed("\n\n<tool") == []
    assert reader.feed('_call>{"name": "add"') == []
    assert reader.feed(', "arguments": {"a": 1, "b": 2}}</tool_') == []
    assert reader.feed("call>\n") == []  # what follows a call may make text of it
    assert reader.feed("And") == [f"\n\n{tagged(ADD_JSON)}", "\nAnd"]
    assert reader.feed(' {"city') == [' {"city']
    assert (
        "".join(map(str, reader.feed('": {"name": "add", "arguments": {}}}'))) == '": {"name": "add", "arguments": {}}}'
    )
    assert reader.feed(f".\n{tagged(ADD_JSON)}") == ["."]
    assert reader.finish() == [ToolCall("call_1", "add", '{"a": 1, "b": 2}')]


def test_data_and_code_of_other_languages_flow_too() -> None:
    reader = ReplyReader(TOOLS)
    given = [*reader.feed("```python\nx = "), *reader.feed('{"name": "add"'), *reader.feed(', "arguments": {}}\n')]
    assert (
        "".join([part for part in given if isinstance(part, str)]) == '```python\nx = {"name": "add", "arguments": {}}'
    )
    assert all(isinstance(part, str) for part in given)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "allOf": [{"properties": {"city": {"type": "string"}}, "required": ["city"]}]},
        {"type": "object", "patternProperties": {"^c": {"type": "string"}}},
        {"type": "object", "$ref": "#/$defs/city", "$defs": {"city": {"properties": {"city": {"type": "string"}}}}},
    ],
    ids=["anything", "additionalProperties", "allOf", "patternProperties", "reference"],
)
@pytest.mark.parametrize("written", ['{"city": "Paris"}', '\n{"city": "Paris"}', '\n\n```json\n{"city": "Paris"}\n```'])
def test_an_action_input_reaches_tools_that_name_no_parameters(parameters: dict[str, object], written: str) -> None:
    tools = [ToolDefinition(name="note", description="", parameters=parameters)]
    (call,) = read_reply(f"Action: note\nAction Input: {written}", tools, format="react").calls
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert not read_reply("Action: note\nAction Input:\nParis", tools, format="react").calls


def test_calls_are_returned_when_the_reply_is_over() -> None:
    reader = ReplyReader(TOOLS)
    assert reader.feed(f"{tagged(ADD_JSON)}\n<tool_call>") == []
    call, unread = reader.finish()
    assert call == ToolCall("call_1", "add", '{"a": 1, "b": 2}')
    assert isinstance(unread, UnreadCall)
    assert unread.text == "<tool_call>"


@pytest.mark.parametrize("thought", [tagged(PARIS_JSON), f"I might.\n{tagged(PARIS_JSON)}\nNo.", tagged('{"name": ')])
@pytest.mark.parametrize("end", ["</think>", "</thinking>", "[/THINK]", "\u25c1/think\u25b7"])
@pytest.mark.parametrize("answer", ["It is sunny.", tagged(ADD_JSON)])
def test_a_call_in_thoughts_that_the_prompt_has_begun_is_none(thought: str, end: str, answer: str) -> None:
    text = f"{thought}\n{end}\n\n{answer}"
    for reply in (read_reply(text, TOOLS), in_pieces(text, list(range(len(text))))):
        assert [call.name for call in reply.calls] == (["add"] if answer.startswith("<") else [])
        assert not reply.unread
        assert thought in reply.text


def test_a_quotation_goes_on_behind_thoughts_that_stand_in_it() -> None:
    call = "<|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|>"
    thought = "<|channel|>analysis<|message|>I look.<|end|>"
    for text in (f"> {thought}{call}", f"> <think>I look.</think>{tagged(ADD_JSON)}", f"> </think>{tagged(ADD_JSON)}"):
        assert not read_reply(text, TOOLS).calls
        assert not in_pieces(text, list(range(len(text)))).calls
    assert read_reply(f"{thought}{call}", TOOLS).calls
    assert not read_reply(f"> <think>I look.\n</think>{tagged(ADD_JSON)}", TOOLS).calls


def test_a_format_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no format 'xml'; there are: auto, hermes, react, "):
        ReplyReader(TOOLS, format="xml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_ids_count_the_calls_of_a_reply() -> None:
    reply = read_reply(tagged(ADD_JSON) * 3, TOOLS)
    assert [call.id for call in reply.calls] == ["call_1", "call_2", "call_3"]
    assert {(call.name, call.arguments) for call in reply.calls} == {("add", json.dumps(ADD[1]))}


# hostile replies

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Hostile:
    unit: str
    start: str = ""
    end: str = ""

    def text(self, size: int) -> str:
        return self.start + self.unit * (size // len(self.unit)) + self.end


HOSTILE = [
    *[Hostile(unit) for unit in '[{<`\n"*\x00\ud800a'],
    *[Hostile(unit) for unit in ("[a(", "[{", '{"a":', '\n{"name":', "{name:", '{"name": []},', "[TOOL_CALLS][", "[]")],
    *[Hostile(unit) for unit in ("<tool_call>{'</tool_call>x", '<tool_call>{"', "<tool_call>{", "\nAction: add\n")],
    Hostile("x", start='<tool_call>{"name": "add", "arguments": {"a": "', end='"}}</tool_call>'),
    Hostile("a=1, ", start="[add(", end="b=1)]"),
    Hostile("add(a=1), ", start="[", end="]"),
    Hostile("<parameter=a>1</parameter>", start="<function=add>", end="</function>"),
    Hostile('{"name": "add", "arguments": {}}, ', start="[", end="]"),
    Hostile("x", start="Action: add\nAction Input: "),
    *[
        Hostile(unit)
        for unit in ("<think", "</think>", "<|channel|>", "a:\n", "<page>\n", "<invoke name=", "\nI will:\n- ")
    ],
    Hostile('\n{"name": "add", "arguments": {"a": ]}'),
    Hostile('\n{"name": "add", "arguments": {"a": "'),
]
MORE_HOSTILE = [
    Hostile("[],", start='<tool_call>{"name": "add", "arguments": {"a": [', end="[]]}}</tool_call>"),
    *[Hostile(unit) for unit in "(~ '\\/#1"],
    *[Hostile(piece) for piece in PIECES if len(piece) > 1],
    *[Hostile(f"\n{piece}") for piece in PIECES],
    *[Hostile(f"{piece} ", start="<tool_call>") for piece in PIECES],
    *[Hostile(piece, start='<tool_call>{"name": "add", "arguments": {"a": ') for piece in PIECES],
    *[Hostile(piece, start="[add(a=") for piece in PIECES],
    *[Hostile(piece, start="<function=add><parameter=a>") for piece in PIECES],
    *[Hostile(piece, start="Action: add\nAction Input: {") for piece in PIECES],
    *[Hostile(piece, start="```json\n") for piece in PIECES],
    *[Hostile(piece, start="<think>") for piece in PIECES],
]


def read_hostile(case: Hostile, size: int) -> None:
    assert len(read_reply(case.text(size), TOOLS).calls) <= 1000


def names_of(cases: list[Hostile]) -> list[str]:
    return [f"{number}-{case.start + case.unit!r:.30}" for number, case in enumerate(cases)]


@pytest.mark.parametrize("case", HOSTILE, ids=names_of(HOSTILE))
def test_the_work_of_reading_grows_with_the_text(case: Hostile) -> None:
    assert grows_with_its_input(lambda size: read_hostile(case, size), 400)


@pytest.mark.full
@pytest.mark.parametrize("case", MORE_HOSTILE, ids=names_of(MORE_HOSTILE))
def test_the_work_of_reading_anything_grows_with_the_text(case: Hostile) -> None:
    assert grows_with_its_input(lambda size: read_hostile(case, size), 1_000)


@pytest.mark.full  # what is no call but a search of the standard library shows in a text of this size alone
@pytest.mark.parametrize("case", [*HOSTILE, *MORE_HOSTILE], ids=names_of([*HOSTILE, *MORE_HOSTILE]))
def test_a_megabyte_of_anything_is_read(case: Hostile) -> None:
    read_hostile(case, MEGABYTE)


@pytest.mark.parametrize("case", HOSTILE, ids=names_of(HOSTILE))
def test_the_work_of_reading_small_pieces_grows_with_the_text(case: Hostile) -> None:
    def read_pieces(size: int) -> None:
        reader, text = ReplyReader(TOOLS), case.text(size)
        for start in range(0, len(text), 4):
            reader.feed(text[start : start + 4])
        reader.finish()

    assert grows_with_its_input(read_pieces, 400)


def test_ten_megabytes_of_arguments_are_refused_with_a_reason() -> None:
    text = tagged('{"name": "add", "arguments": {"a": "' + "x" * 10_000_000 + '"}}')
    reply = read_reply(text, TOOLS)
    assert not reply.calls
    assert reply.unread[0].reason == "The call is too long: 10000039 characters, and 2000000 are read."
