"""Roles alternate: bytes in, bytes out."""

import json
from dataclasses import dataclass

import pytest

from toolkit.providers.encoding import join_by_role

USER, MODEL = b"user", b"model"


@dataclass(frozen=True)
class Case:
    name: str
    spoken: list[tuple[bytes, bytes]]
    said: list[tuple[str, list[int]]]


CASES = [
    Case("nothing", [], []),
    Case("only empty messages", [(USER, b""), (MODEL, b"")], []),
    Case("one", [(USER, b"1")], [("user", [1])]),
    Case(
        "neighbours are one message",
        [(USER, b"1"), (USER, b"2,3"), (MODEL, b"4"), (MODEL, b"5"), (USER, b"6")],
        [("user", [1, 2, 3]), ("model", [4, 5]), ("user", [6])],
    ),
    Case("empty ones part nobody", [(USER, b"1"), (MODEL, b""), (USER, b"2")], [("user", [1, 2])]),
    Case("the user begins", [(USER, b""), (MODEL, b"1"), (USER, b"2")], [("user", [0]), ("model", [1]), ("user", [2])]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_neighbours_are_one_message_and_the_user_begins(case: Case) -> None:
    said = json.loads(join_by_role(case.spoken, field=b"blocks", opening=b"0"))
    assert [(message["role"], message["blocks"]) for message in said] == case.said
