"""`toolkit chat`: without a terminal in this process, and on one with a person at it."""

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.cli.pseudo_terminal import Person, sit_down
from tests.process_state import is_running

Run = Callable[..., Ran]

MODEL = """
from toolkit import ToolCall
from toolkit.testing import ScriptedProvider


def calm():
    return ScriptedProvider([ToolCall("1", "get_weather", '{"city": "Oslo"}'), "It is \\x1b[31msunny\\x1b[0m."])


def eager():
    return ScriptedProvider([ToolCall("1", "delete", '{"path": "a\\u202eb"}'), "Deleted.", "I remember."] * 5)


def broken():
    return ScriptedProvider([])


def waiting():
    return ScriptedProvider([ToolCall("1", "wait", "{}"), "Later."])


other = 3
"""

SLOW = '''
import anyio
from toolkit import tool
@tool
async def wait() -> str:
    """Wait."""
    await anyio.sleep(1000)
'''


@pytest.fixture
def model(file: Path) -> Path:
    (file.parent / "model.py").write_text(MODEL)
    (file.parent / "slow.py").write_text(SLOW)
    return file.parent / "model.py"


def test_the_answer_alone_is_on_standard_output(run: Run, model: Path) -> None:
    ran = run("chat", "some_tools.py", "-m", "model.py:calm", "-p", "Weather?")
    assert (ran.code, ran.out) == (0, "It is sunny.\n")
    assert 'get_weather {"city":"Oslo","days":1,"unit":"celsius"}' in ran.err
    assert "= Sunny in Oslo, 1 days, 21 degrees celsius." in ran.err
    assert "left out, as they need a context: who; --ctx MODULE:NAME gives one\n" in ran.err


def test_the_question_may_come_from_standard_input(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("Weather?\n"))
    assert run("chat", "some_tools.py", "-m", "model.py:calm").out == "It is sunny.\n"
    monkeypatch.setattr("sys.stdin", StringIO(""))
    ran = run("chat", "some_tools.py", "-m", "model.py:calm")
    assert (ran.code, ran.err.splitlines()[-1]) == (
        2,
        "toolkit: nothing was asked: give a question by --prompt or on standard input",
    )


def test_events_are_lines_of_json(run: Run, model: Path) -> None:
    ran = run("chat", "some_tools.py", "-m", "model.py:calm", "-p", "Weather?", "-o", "json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert (kinds[0], kinds[-1]) == ("run_start", "done")
    assert "tool_execution_end" in kinds
    assert events[-1]["result"]["reason"]["kind"] == "complete"
    assert "\x1b" not in ran.out


def test_without_a_terminal_what_needs_approval_is_refused(run: Run, model: Path) -> None:
    ran = run("chat", "some_tools.py", "-m", "model.py:eager", "-p", "Delete it.")
    assert ran.code == 0
    assert "delete was not run: Tool 'delete' needs approval. Nobody is there to approve it" in ran.err
    assert "= deleted" in run("chat", "some_tools.py", "-m", "model.py:eager", "-p", "Delete it.", "--yes").err


def test_what_only_reads_is_not_asked_about_and_what_is_from_elsewhere_is(run: Run, model: Path) -> None:
    asked = ["chat", "some_tools.py", "-m", "model.py:calm", "-p", "Weather?"]
    assert "was not run" not in run(*asked, "--ask", "writes").err
    assert "get_weather was not run" in run(*asked, "--ask", "all").err
    (model.parent / "model.py").write_text(
        MODEL.replace('"delete", \'{"path": "a\\u202eb"}', '"bash", \'{"command": "ls"}')
    )
    ran = run("chat", "coding", "-m", "model.py:eager", "-p", "List.")
    assert "bash was not run: Tool 'bash' does not only read." in ran.err


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("nobody:x", 2, "no provider is named 'nobody'"),
        ("model.py:other", 2, "model.py:other is no model"),
        ("model.py:absent", 2, "model.py:absent is no model"),
        ("openai:gpt-5-mini", 1, "set the environment variable OPENAI_API_KEY"),
        ("model.py:broken", 1, "script"),
    ],
)
def test_a_model_that_can_not_be_asked_is_told_in_one_line(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, told: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ran = run("chat", "some_tools.py:tag", "-m", name, "-p", "Hello")
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


def test_several_sources_have_one_registry_and_names_that_collide_a_prefix(run: Run, model: Path) -> None:
    (model.parent / "more.py").write_text(SLOW + "\n@tool\ndef tag() -> str:\n    'Tag.'\n    return ''\n")
    ran = run("chat", "some_tools.py:tag", "more.py", "-m", "model.py:calm", "-p", "?", "-o", "json")
    refused = next(json.loads(line) for line in ran.out.splitlines() if '"tool_call_refused"' in line)
    assert "Available tools: tag, more__wait, more__tag." in refused["result"]["content"]


def at_prompt(folder: Path, model: str, *sources: str) -> list[str]:
    return ["chat", *(sources or ("some_tools.py",)), "-m", model]


@pytest.mark.real
def test_a_person_is_asked_with_the_exact_arguments(model: Path) -> None:
    with sit_down(at_prompt(model.parent, "model.py:eager"), model.parent, columns=40) as person:
        person.read_until(r"\n> ")
        person.type("Delete it.")
        shown = person.read_until("say why not: ")
        assert 'delete {"path":"a\\u202eb"}' in shown
        person.type("it is mine")
        assert "it is mine" in person.read_until(r"Deleted\.\n> ").split("say why not: ")[1]
        person.type("Once more")
        person.read_until(r"remember\.\n> ")
        person.type("/undo")
        person.read_until("forgotten\n> ")
        person.type("Delete it.")
        person.read_until("say why not: ")
        person.type("a")
        person.read_until(r"= deleted ab.*\nDeleted\.\n> ")
        person.type("/usage")
        person.read_until("5 requests, .* tokens in")
        person.type("/save kept.json")
        person.read_until("saved 8 messages to kept.json\n> ")
        person.type("/sav")
        person.read_until("there is no /sav; did you mean '/save'?")
        person.type("/tools")
        person.read_until(r"delete\(path\)")
        person.press("d")
        assert person.wait() == 0
    assert (model.parent / "kept.json").stat().st_mode & 0o777 == 0o600
    with sit_down(["chat", "some_tools.py", "-m", "model.py:eager", "--continue", "kept.json"], model.parent) as person:
        person.read_until(r"\n> ")
        person.type("/save kept.json")
        person.read_until("is there already, and is left as it is")
        person.type("/quit")
        assert person.wait() == 0


@pytest.mark.real
def test_ctrl_c_ends_the_turn_and_keeps_the_conversation(model: Path) -> None:
    with sit_down(at_prompt(model.parent, "model.py:waiting", "slow.py"), model.parent) as person:
        person.read_until(r"\n> ")
        person.type("Wait.")
        person.read_until("wait {}")
        person.press("c")
        person.read_until(r"the turn was ended; the conversation continues\n(\^C)?> ")
        person.type("And now?")
        person.read_until(r"Later\.\n> ")
        person.press_until("c", r"Ctrl-C again, Ctrl-D or /quit ends\n(\^C)?> ")
        person.press_until("c", r"requests?")  # what was used, at the end
        assert person.wait() == 0


@pytest.mark.real
def test_ctrl_c_ends_the_one_question_of_a_command_line(model: Path) -> None:
    with sit_down(["chat", "slow.py", "-m", "model.py:waiting", "-p", "Wait."], model.parent) as person:
        person.read_until("wait {}")
        person.press("c")
        assert person.wait() == 130


@pytest.mark.real
@pytest.mark.parametrize("how", ["c", "SIGTERM", "SIGHUP"])
def test_no_process_is_left_behind(model: Path, how: str) -> None:
    (model.parent / "plugin.py").write_text(
        "import json, os, pathlib, sys, time\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "for line in sys.stdin:\n"
        "    if 'describe' in line:\n"
        "        print(json.dumps({'name': 'wait', 'description': 'Wait.'}), flush=True)\n"
        "    else:\n"
        "        time.sleep(1000)\n"
    )
    with sit_down(["call", f"plugin:{sys.executable} plugin.py", "wait", "--yes"], model.parent) as person:
        pid = wait_for_pid(person, model.parent / "pid")
        if how == "c":
            person.press("c")
        else:
            import signal

            person.process.send_signal(getattr(signal, how))
        assert person.wait() == (130 if how == "c" else 143)
    assert not is_running(pid)


def wait_for_pid(person: Person, path: Path) -> int:
    import time

    while not (path.exists() and path.read_text()):
        assert person.process.poll() is None, person.shown
        time.sleep(0.02)
    return int(path.read_text())
