"""What numpy, pandas, attrs and msgspec give back becomes JSON of its values."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import Any

import pytest

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.chat.output import to_output
from toolkit.events import ToolExecutionEnd
from toolkit.testing import EventCollector, ScriptedProvider

pytest.importorskip("numpy", reason="numpy is not installed: pip install numpy")
pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
pytest.importorskip("attrs", reason="attrs is not installed: pip install attrs")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")

import attrs
import msgspec
import numpy as np

pd: Any = importlib.import_module("pandas")  # its types are known in part only


@attrs.define
class Node:
    size: int
    _inside: object = None


class Shape(msgspec.Struct, rename="camel", tag="shape"):
    left_top: tuple[int, int]
    data: bytes = b""


@dataclass
class Case:
    name: str
    value: Any
    plain: Any
    note: str = ""


NO_NUMBERS = "\n(NaN and infinite numbers are shown as null.)"
BASE64 = "\n(Bytes are shown as Base64.)"
FRAME: Any = pd.DataFrame({"name": ["a", "b"], "size": [1.5, 2.0], "on": pd.to_datetime(["2026-01-01", None])})
RECORDS = [
    {"name": "a", "size": 1.5, "on": "2026-01-01T00:00:00"},
    {"name": "b", "size": 2.0, "on": None},
]
CASES = [
    Case("an integer", np.int64(3), 3),
    Case("a fraction", np.float32(0.5), 0.5),
    Case("a truth", np.bool_(True), True),
    Case("a text", np.str_("a"), "a"),
    Case("no number", np.float64("nan"), None, NO_NUMBERS),
    Case("a date", np.datetime64("2026-01-02"), "2026-01-02"),
    Case("no date", np.datetime64("NaT", "D"), None),
    Case("a matrix", np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
    Case("an array without a dimension", np.array(3), 3),
    Case("an array of objects", np.array([1, None, {"a": np.int8(1)}], dtype=object), [1, None, {"a": 1}]),
    Case("records", np.array([(1, "a")], dtype=[("x", int), ("y", "U3")]), [{"x": 1, "y": "a"}]),
    Case("inside of data", {"a": [np.float64(1.5)], np.int64(2): {np.int64(1)}}, {"a": [1.5], "2": [1]}),
    Case("a frame", FRAME, RECORDS),
    Case("a frame inside", {"rows": FRAME}, {"rows": RECORDS}),
    Case("a frame with an index", FRAME.set_index("name")[["size"]].head(1), [{"name": "a", "size": 1.5}]),
    Case("an index without a name", pd.DataFrame({"a": [1]}, index=["x"]), [{"index": "x", "a": 1}]),
    Case("columns of one name", pd.DataFrame([[1, 2, 3]], columns=["a", "a", "a"]), [{"a": 1, "a (2)": 2, "a (3)": 3}]),
    Case("a series", FRAME["name"], ["a", "b"]),
    Case("a series with an index", FRAME.set_index("name")["size"], {"a": 1.5, "b": 2.0}),
    Case("an index", pd.Index(["a", "b"]), ["a", "b"]),
    Case("moments", [pd.Timestamp("2026-01-01"), pd.NaT, pd.NA], ["2026-01-01T00:00:00", None, None]),
    Case("spans", [pd.Timedelta("1h"), pd.Period("2026-01")], ["P0DT1H0M0S", "2026-01"]),
    Case("an object of attrs", Node(1, Node(2)), {"size": 1, "inside": {"size": 2, "inside": None}}),
    Case("a struct", [Shape((1, 2), b"\xff")], [{"type": "shape", "leftTop": [1, 2], "data": "/w=="}], BASE64),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_value_becomes_json(case: Case) -> None:
    output = to_output(case.value)
    text, parenthesis, note = output.text.partition("\n(")
    plain = text if isinstance(case.value, str) else json.loads(text)
    assert plain == case.plain
    assert parenthesis + note == case.note
    assert output.unserializable == ()


def test_what_is_very_long_is_cut_with_a_note() -> None:
    frame = to_output(pd.DataFrame({"a": range(30_000), "b": range(30_000)}))
    assert frame.text.endswith('{"a":9999,"b":9999}]\n(The first 10,000 of 30,000 rows are shown.)')
    array = to_output(np.zeros((1000, 1000)))
    assert array.text.endswith("\n(The first 100 of 1,000 rows are shown.)")


@pytest.mark.anyio
async def test_an_event_says_what_json_could_not_carry() -> None:
    @tool
    def look() -> object:
        """Look."""
        return {"size": np.int64(2), "where": object()}

    collector = EventCollector()
    provider = ScriptedProvider([ToolCall("1", "look", "{}"), "done"])
    result = await tool_loop(provider, ToolRegistry([look]), "go", config=ToolLoopConfig(on_event=collector))
    [end] = [event for event in collector.events if isinstance(event, ToolExecutionEnd)]
    assert end.result.content == '{"size":2,"where":"<object object>"}'
    assert not end.result.is_error
    assert end.unserializable == ("where: object",)
    assert result.text == "done"
