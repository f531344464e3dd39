"""One reading only: the published table holds, and no repair drops a token or invents one."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import Strict, StrictStr

from tests.calls.repair_table import PAGE, SECTIONS, Row, page, plan_trip, tool_of, write_file
from tests.counted_work import count_calls
from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_from_schema, tool_loop
from toolkit.calls.argument_repair import RepairStep, repair_to_fit
from toolkit.errors import InvalidArgumentsError
from toolkit.events import ToolCallRepaired
from toolkit.loop.events import LoopEvent
from toolkit.schema.nodes import is_array, is_object
from toolkit.testing import ScriptedProvider

ROWS = [row for section in SECTIONS for row in section.rows]


def arguments_of(the_tool: Any, text: str) -> tuple[dict[str, Any], list[RepairStep]] | None:
    """The arguments that a text is taken for, and the steps that led there; None where it is refused."""
    parser = the_tool.arguments
    try:
        return parser.parse_json(text), []
    except InvalidArgumentsError as error:
        refusal = error
    try:
        return repair_to_fit(text, parser, refusal, tool_name=the_tool.definition.name)
    except InvalidArgumentsError:
        return None


@pytest.mark.parametrize("row", ROWS, ids=[repr(row.written)[:70] for row in ROWS])
def test_a_row_of_the_table_holds(row: Row) -> None:
    the_tool = tool_of(row)
    found = arguments_of(the_tool, row.written)
    if row.taken is None:
        assert found is None
        return
    assert found is not None
    assert found[0] == the_tool.arguments.parse(row.taken)
    assert all(step.assumed for step in found[1])


def test_the_docs_show_the_table_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.calls.repair_table writes it anew"


def test_a_number_that_is_no_json_may_be_a_text_where_any_type_is_accepted() -> None:
    @tool
    def note(value: Any, ratio: float = 0) -> str:
        """Note a value."""
        return f"{value} {ratio}"

    assert arguments_of(note, '{"value": .1}') is None
    assert arguments_of(note, '{"value": 2, "ratio": .1}') is not None
    assert arguments_of(note, '{"value": 5., "ratio": .1}') is None
    assert arguments_of(note, '{"value": {"x": [+1]}}') is None


def test_the_schema_decides_on_which_side_of_a_space_a_quote_belongs() -> None:
    @tool
    def choose(unit: Literal["km", "miles"]) -> str:
        """Choose a unit."""
        return unit

    found = arguments_of(choose, "{'unit':' km'}")
    assert found is not None
    assert found[0] == {"unit": "km"}


@pytest.mark.parametrize(
    "text",
    [
        "{city = 'x',unit = 2.5,days = 'x'}",
        '{"city" = "Lima", "unit" = 2, "note" = "y"}',
        "city = 'x',unit = 2.5,days = 'x'",
        "{city \uff1a 'x',unit \uff1a 2.5,days \uff1a 'x'}",
    ],
)
def test_no_text_crosses_into_the_next_member_with_any_sign_between_name_and_value(text: str) -> None:
    assert arguments_of(plan_trip, text) is None


# strict fields


@tool
def strict_fields(
    count: Annotated[int, Strict()] = 1,
    text: StrictStr = "",
    ratio: Annotated[float, Strict()] | None = None,
    numbers: list[Annotated[int, Strict()]] | None = None,
    sure: Annotated[bool, Strict()] = False,
) -> str:
    return "it ran"


@pytest.mark.parametrize(
    "text",
    [
        '{"count": "5"}',
        '{"count": "1,000"}',
        '{"text": 5}',
        '{"ratio": "0.5"}',
        '{"numbers": ["1"]}',
        '{"numbers": "[\\"1\\"]"}',
        '{"sure": "true"}',
        "{'count': '5'}",
        "count=5, text=x, sure=yes",
    ],
)
def test_what_its_author_made_strict_is_not_coerced(text: str) -> None:
    assert arguments_of(strict_fields, text) is None


@pytest.mark.parametrize(
    "text", ['{"count": 5}', "{count: 5}", '{"text": Lima}', '{"numbers": "[1]"}', '{"count": null}']
)
def test_strict_fields_take_what_has_their_type(text: str) -> None:
    assert arguments_of(strict_fields, text) is not None


# events


async def repairs_of(the_tool: Any, text: str) -> list[ToolCallRepaired]:
    events: list[LoopEvent] = []
    call = ToolCall("1", the_tool.definition.name, text)
    config: ToolLoopConfig[object] = ToolLoopConfig(on_event=events.append)
    await tool_loop(ScriptedProvider([call, "ok"]), ToolRegistry([the_tool]), "go", config=config)
    return [event for event in events if isinstance(event, ToolCallRepaired)]


@pytest.mark.anyio
async def test_events_say_what_was_assumed() -> None:
    (text,) = await repairs_of(plan_trip, "{'city': Lima, \"days\": 3,}")
    assert (text.kind, text.after) == ("text", '{"city": "Lima", "days": 3}')
    assert text.assumed == (
        "a comma before a closing bracket was left out",
        "quotes were corrected",
        "words were quoted",
    )
    first, then = await repairs_of(plan_trip, "{'city': 'Lima', 'timeout_seconds': '3,000'}")
    assert (first.kind, then.kind, then.before) == ("text", "values", first.after)
    assert then.assumed == ("timeout_seconds: 3,000 was written as 3000",)
    for city in ("Li\nma", "Li\\'ma"):  # in a text that only the reader with a schema takes
        first, then = await repairs_of(plan_trip, f'[{{"city": "{city}"}}]')
        assert first.assumed == ("characters in strings were escaped",)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "the_tool",
    [
        plan_trip,
        tool_from_schema(
            "raw",
            "Take some.",
            {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
            lambda arguments: f"{arguments}",
        ),
    ],
    ids=["typed", "raw"],
)
async def test_null_for_what_has_a_default_is_a_repair(the_tool: Any) -> None:
    (repair,) = await repairs_of(the_tool, '{"city": "Lima", "days": null}')
    assert (repair.kind, repair.after) == ("values", '{"city": "Lima"}')
    assert repair.assumed == ("days: null was read as left out",)


@pytest.mark.anyio
async def test_null_where_it_is_a_value_is_no_repair() -> None:
    assert await repairs_of(plan_trip, '{"city": "null", "stops": null}') == []


def test_two_readings_are_told_apart_from_none() -> None:
    for text, is_told in (('{"city": "Lima" "note": "x"}', True), ('{"city": }', False)):
        with pytest.raises(InvalidArgumentsError) as caught:
            plan_trip.arguments.parse_json(text)
        with pytest.raises(InvalidArgumentsError) as final:
            repair_to_fit(text, plan_trip.arguments, caught.value)
        assert ("more than one way" in final.value.message) is is_told


# properties

_texts = st.text(st.sampled_from("abcXYZ 019.,:{}[]'\"\\/#=\u201c\n\u4e2d-"), max_size=12)
_trips = st.fixed_dictionaries(
    {"city": _texts},
    optional={
        "days": st.integers(-2000, 2000),
        "budget": st.floats(-5, 5).map(lambda value: round(value, 2)),
        "unit": st.sampled_from(["km", "miles"]),
        "stops": st.lists(_texts, max_size=3),
        "note": _texts,
        "quick": st.booleans(),
    },
)


def tokens_in(value: Any) -> Iterator[str]:
    """The words and numbers of a JSON value, in order."""
    if is_object(value):
        for key, inner in value.items():
            yield from re.findall(r"\w+", key)
            yield from tokens_in(inner)
    elif is_array(value):
        for inner in value:
            yield from tokens_in(inner)
    elif isinstance(value, str):
        yield from re.findall(r"\w+", value)
    elif isinstance(value, bool) or value is None:
        yield json.dumps(value)
    else:
        yield from re.findall(r"\w+", repr(value))


@settings(max_examples=80, deadline=None)
@given(_trips, st.data())
def test_nothing_that_is_cut_off_is_ever_read(trip: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(trip, ensure_ascii=data.draw(st.booleans()))
    end = data.draw(st.integers(1, len(text) - 1))
    assert arguments_of(plan_trip, text[:end]) is None


def break_text(data: st.DataObject, text: str) -> str:
    """Leave out, double or replace some characters that are no words."""
    for _ in range(data.draw(st.integers(1, 2))):
        places = [place.start() for place in re.finditer(r"[\"',:{}\[\]\\]", text)]
        place = data.draw(st.sampled_from(places)) if places else 0
        other = data.draw(st.sampled_from(["", '"', "'", "\u201d", "\uff0c", " ", "}", "\\", "=", "# ", "//", "\n"]))
        text = text[:place] + other + text[place + data.draw(st.integers(0, 1)) :]
    return text


@settings(max_examples=100, deadline=None)
@given(_trips, st.data())
def test_no_repair_drops_a_token_or_invents_one(trip: dict[str, Any], data: st.DataObject) -> None:
    text = break_text(data, json.dumps(trip, ensure_ascii=False))
    try:
        json.loads(text)
        return
    except ValueError:
        pass
    found = arguments_of(plan_trip, text)
    if found is None or "\\" in text:
        return
    _, steps = found
    after = json.loads(steps[0].after)
    if "comments were left out" in steps[0].assumed:
        text = re.sub(r"(?://|#(?=\s|#))[^\n]*", "", text)
    words = re.findall(r"\w+", text)
    if "a repetition of the object was left out" not in steps[0].assumed:
        assert list(tokens_in(after)) == words, text


@settings(max_examples=100, deadline=None)
@given(_texts, _texts, st.sampled_from(["'", '"', "\u201c\u201d", "\u2018\u2019"]))
def test_a_file_is_written_as_it_was_meant_or_not_at_all(path: str, content: str, quotes: str) -> None:
    opening, closing = quotes[0], quotes[-1]
    text = f'{{"path": {opening}{path}{closing}, "content": {opening}{content}{closing}}}'
    found = arguments_of(write_file, text)
    if found is not None and "\\" not in text:
        assert found[0] == {"path": path, "content": content}


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "' + '"x", ' * 3_000 + '"}',
        '{"city": "' + '", "note": "' * 3_000 + '" x}',
        '{"city": ' + "[" * 3_000 + "x]}",
        '{"city": "a" ' + '"note" ' * 5_000 + "}",
        '{"a": "' + "\\d" * 40_000 + '" x}',
        "city=" + "a=" * 9_000,
        "{" + "a:" * 40_000 + "}",
        '{"city": x "' + "y" * 90_000 + '"}',
        '{"city": "' + 'a" }' * 15_000 + '"}',
        '{"city": "' + 'a", b: ' * 13_000 + '"}',
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_search_for_readings_has_a_bound(text: str) -> None:
    assert count_calls(lambda: arguments_of(plan_trip, text)) < 2_000_000
