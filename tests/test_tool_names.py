"""What others call their tools becomes what tools may be called."""

import hashlib
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from toolkit.tool_names import check_name, legal_names


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Case:
    names: list[str]
    expected: list[str]


CASES = {
    "allowed": Case(["get_user", "a-b"], ["get_user", "a-b"]),
    "other characters": Case(["get user!", "files.read", "größe"], ["get_user", "files_read", "gr_e"]),
    "two that become one": Case(["a.b", "a/b"], [f"a_b_{digest('a.b')}", f"a_b_{digest('a/b')}"]),
    "one that is there already": Case(["a_b", "a.b"], ["a_b", f"a_b_{digest('a.b')}"]),
    "nothing left": Case(["日本"], [f"_{digest('日本')}"]),
    "too long": Case(["x" * 70], ["x" * 55 + "_" + digest("x" * 70)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_name_is_mapped_to_one_that_is_allowed(case: Case) -> None:
    assert legal_names(case.names) == case.expected


@given(st.lists(st.text(), unique=True))
def test_every_name_is_allowed_and_its_own(names: list[str]) -> None:
    mapped = legal_names(names)
    assert [check_name(name) for name in mapped] == mapped
    assert len(set(mapped)) == len(names)
