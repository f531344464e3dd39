"""`toolkit call`: arguments by the schema, corrections, approvals, and what is written."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

Run = Callable[..., Ran]


def test_a_call_writes_the_result_alone_to_standard_output(run: Run, file: Path) -> None:
    ran = run("call", "some_tools.py", "get_weather", "city=Oslo", "days=3")
    assert (ran.code, ran.out) == (0, "Sunny in Oslo, 3 days, 21 degrees celsius.\n")
    assert ran.err == "printed by the module\nprinted by the tool\n"


@pytest.mark.parametrize(
    ("pairs", "read"),
    [
        (["names=a"], "(['a'], None, None, False)"),
        (["names=a", "names=3", "weights=3"], "(['a', '3'], [3], None, False)"),
        (['names=["a", "b=c"]', "weights=[1,2]"], "(['a', 'b=c'], [1, 2], None, False)"),
        (["names=x=y", "note=null", "is_final=true"], "(['x=y'], None, 'null', True)"),
        (["names=[]", "note=", "weights=null"], "([], None, '', False)"),
    ],
)
def test_values_are_read_by_the_schema(run: Run, file: Path, pairs: list[str], read: str) -> None:
    assert run("call", "some_tools.py", "tag", *pairs).out == f"{read}\n"


def test_arguments_may_be_json_also_from_standard_input(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("call", "some_tools.py", "plain", "--json", '{"count": 4}').code == 2  # it is no tool there
    assert run("call", "some_tools.py:plain", "plain", "--json", '{"count": 4}').out == "8\n"
    monkeypatch.setattr("sys.stdin", StringIO('{"count": 5}'))
    assert run("call", "some_tools.py:plain", "plain", "--json", "-").out == "10\n"
    assert run("call", "some_tools.py:plain", "plain", "--json", "{'count': 6,}").out == "12\n"


def test_a_wrong_call_is_told_in_the_words_of_the_library(run: Run, file: Path) -> None:
    ran = run("call", "some_tools.py", "get_weather", "town=Oslo")
    assert (ran.code, ran.out) == (2, "")
    assert '- town: unknown. Did you mean "city"?' in ran.err
    assert 'Call it again, for example with: {"city": "Oslo"}' in ran.err
    assert run("call", "some_tools.py", "get_weather", "city=Oslo", "days=many").code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["get_weather", "Oslo"], "Oslo is not key=value"),
        (["get_weather", "city=Oslo", "--json", "{}"], "give the arguments as key=value or by --json, not both"),
        (["get_wether"], "did you mean 'get_weather'?"),
        (["who"], "tool 'who' needs a context of type int: give it by --ctx MODULE:NAME, such as app:make_context"),
    ],
)
def test_a_call_that_can_not_be_made_is_told_in_one_line(run: Run, file: Path, arguments: list[str], told: str) -> None:
    ran = run("call", "some_tools.py", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err.splitlines()[-1]


def test_a_tool_that_fails_ends_with_one(run: Run, file: Path) -> None:
    ran = run("call", "some_tools.py", "get_weather", "city=Nowhere")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("No such city.\n")


def test_without_a_terminal_nobody_is_asked_and_what_needs_approval_is_refused(run: Run, file: Path) -> None:
    ran = run("call", "some_tools.py", "delete", "path=a")
    assert (ran.code, ran.out) == (3, "")
    assert "Nobody is there to approve it, so it was not run; --yes approves it." in ran.err
    assert run("call", "some_tools.py", "delete", "path=a", "--yes").out == "deleted a\n"


def test_what_a_terminal_would_obey_is_not_written(run: Run, file: Path) -> None:
    assert run("call", "some_tools.py", "shout").out == "red ab [bold]c[/]\n"
    text = run("call", "some_tools.py", "shout", "-o", "json").out
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert json.loads(text)["text"].startswith("\x1b[31mred")


def test_progress_is_shown_on_standard_error(run: Run, file: Path) -> None:
    ran = run("call", "some_tools.py", "work")
    assert ran.out == "done\n"
    assert "1 of 2" in ran.err


def test_a_call_as_json_has_stable_keys(run: Run, file: Path) -> None:
    called = json.loads(run("call", "some_tools.py", "get_weather", "city=Oslo", "-o", "json").out)
    assert called.pop("seconds") >= 0
    text = "Sunny in Oslo, 1 days, 21 degrees celsius."
    assert called == {
        "tool": "get_weather",
        "arguments": {"city": "Oslo", "unit": "celsius", "days": 1},
        "has_run": True,
        "is_error": False,
        "text": text,
        "content": [{"type": "text", "text": text}],
        "exit_code": 0,
    }
    wrong = json.loads(run("call", "some_tools.py", "get_weather", "-o", "json").out)
    assert (wrong["has_run"], wrong["is_error"], wrong["exit_code"]) == (False, True, 2)
