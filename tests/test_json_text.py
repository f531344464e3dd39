"""Values as JSON text: one canonical text for equal values, whatever they are."""

import enum
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType, SimpleNamespace

import pytest
from pydantic import BaseModel, SecretStr

from toolkit.json_text import canonical_json, digest_json, sign_json, write_json


class Color(enum.Enum):
    RED = "red"
    MIXED = (1, 2)


class Word(str, enum.Enum):  # noqa: UP042 - as many programs write it
    YES = "yes"


class Model(BaseModel):
    when: date
    words: set[str]


@dataclass
class Point:
    x: int
    model: Model


CASES: list[tuple[object, str]] = [
    ({"b": 1, "a": [True, None, 1.5, "\u00e9"]}, r'{"a":[true,null,1.5,"\u00e9"],"b":1}'),
    (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
    (MappingProxyType({"b": (1, 2), "a": ()}), '{"a":[],"b":[1,2]}'),
    ({3, 1, 2}, "[1,2,3]"),
    (frozenset({"b", "a", 1}), '["a","b",1]'),
    ({2: "b", "1": "a"}, '{"1":"a","2":"b"}'),
    ({None: 1, (1, 2): 2, Color.RED: 3, date(2026, 1, 31): 4}, '{"2026-01-31":4,"[1,2]":2,"null":1,"red":3}'),
    ([Color.RED, Color.MIXED, Word.YES], '["red","MIXED","yes"]'),
    ({Word.YES: 1}, '{"yes":1}'),
    (
        Point(1, Model(when=date(2026, 1, 31), words={"b", "a"})),
        '{"model":{"when":"2026-01-31","words":["a","b"]},"x":1}',
    ),
    (b"\xff\xfea", r'"\udcff\udcfea"'),
    ("\ud800", r'"\ud800"'),
    (float("inf"), "Infinity"),
]


@pytest.mark.parametrize(("value", "text"), CASES)
def test_any_value_has_one_canonical_text(value: object, text: str) -> None:
    assert canonical_json(value) == text


def test_a_canonical_text_shows_no_address_and_no_secret() -> None:
    assert " at 0x" not in canonical_json([object(), SimpleNamespace(inner=object()), len])
    hidden, other = canonical_json({"key": SecretStr("one")}), canonical_json({"key": SecretStr("two")})
    assert "one" not in hidden
    assert hidden != other
    assert canonical_json({"key": SecretStr("one")}, reveal_secrets=True) == '{"key":"one"}'
    assert canonical_json({1: SecretStr("one"), "a": 2}, reveal_secrets=True) == '{"1":"one","a":2}'


def test_digests_are_those_of_the_canonical_text_in_each_process() -> None:
    program = "from toolkit.json_text import digest_json; print(digest_json({'b': {'x', 'y', 'z'}, 'a': 1}))"
    told = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {digest_json({"a": 1, "b": ["x", "y", "z"]})}


def test_a_signature_depends_on_the_value_and_the_key() -> None:
    signature = sign_json({"a": 1, "b": 2}, b"key")
    assert signature == sign_json({"b": 2, "a": 1}, b"key")
    assert len({signature, sign_json({"a": 1, "b": 3}, b"key"), sign_json({"a": 1, "b": 2}, b"other")}) == 3


def test_what_is_sent_keeps_its_order_and_letters_and_no_lone_surrogate() -> None:
    assert write_json({"b": "\u00e9\ud800", "a": [1, 2]}) == '{"b":"\u00e9?","a":[1,2]}'
    assert write_json({"b": 1, "a": 2}, sort_keys=True) == '{"a":2,"b":1}'
    assert write_json({"a": [1]}, indent=1) == '{\n "a": [\n  1\n ]\n}'
    assert write_json({"a": {1}}, default=list) == '{"a":[1]}'
    with pytest.raises(ValueError, match="JSON"):
        write_json(float("nan"), allow_nan=False)
    with pytest.raises(TypeError):
        write_json({1, 2})
