"""`--ctx MODULE:NAME` makes the context of the tools, for each command that runs them, and leaves it at the end."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

Run = Callable[..., Ran]
CONTEXTS = """
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
import anyio
from toolkit import tool_with_ctx
from toolkit.testing import ScriptedProvider
from toolkit import ToolCall

loaded = Path("loaded")
loaded.write_text(loaded.read_text() + "x" if loaded.exists() else "x")

def plain(): return 7

async def later():
    await anyio.sleep(0)
    return 8

@contextmanager
def entered():
    yield 9
    print("left")

@asynccontextmanager
async def opened():
    yield 10
    print("closed")

def failing(): raise OSError("no database")

def nothing(): return None

def bare():
    yield 1

async def bare_later():
    yield 1

async def hanging(): await anyio.sleep_forever()

@contextmanager
def kept_open():
    yield 11
    raise OSError("not closed")

@asynccontextmanager
async def refused():
    raise OSError("no database")
    yield 1

number = 3

class Number(int): pass

@tool_with_ctx
def double(app: int) -> str:
    "Double it."
    return str(app * 2)

calm = ScriptedProvider([ToolCall("1", "double", "{}"), "Doubled."])
"""


SAYS = """
from toolkit import ToolCall
from toolkit.testing import FunctionProvider


def reply(request):
    last = request.messages[-1]
    return last.text if last.role == "tool" else ToolCall("1", "double", "{}")


model = FunctionProvider(reply)
"""


@pytest.fixture
def contexts(file: Path) -> Path:
    (file.parent / "contexts.py").write_text(CONTEXTS)
    return file.parent


@pytest.mark.parametrize(
    ("name", "out", "left"),
    [("plain", "14\n", ""), ("later", "16\n", ""), ("entered", "18\n", "left"), ("opened", "20\n", "closed")],
)
def test_a_call_gets_the_context_that_a_function_makes(
    run: Run, contexts: Path, name: str, out: str, left: str
) -> None:
    ran = run("call", "contexts.py", "double", "--ctx", f"contexts.py:{name}")
    assert (ran.code, ran.out) == (0, out)
    assert left in ran.err
    assert (contexts / "loaded").read_text() == "x"  # imported once, as the source


def test_the_function_may_be_in_another_module_by_its_name(run: Run, contexts: Path) -> None:
    assert run("call", "some_tools.py:who", "who", "--ctx", "contexts:plain").out == "7\n"


def test_a_chat_has_the_tools_that_need_the_context(run: Run, contexts: Path) -> None:
    words = ("contexts.py", "-m", "contexts.py:calm", "-p", "Double it.", "--ctx", "contexts.py:opened")
    ran = run("chat", *words)
    assert (ran.code, ran.out) == (0, "Doubled.\n")
    assert "= 20" in ran.err
    assert "left out" not in ran.err


@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        ("contexts.py:failing", 1, "--ctx contexts.py:failing made no context: OSError: no database"),
        ("contexts.py:refused", 1, "--ctx contexts.py:refused made no context: OSError: no database"),
        ("contexts.py:nothing", 1, "--ctx contexts.py:nothing made no context: it returned None"),
        ("contexts.py:bare", 1, "is a generator: decorate its function with contextlib.contextmanager"),
        ("contexts.py:bare_later", 1, "is a generator: decorate its function with contextlib.asynccontextmanager"),
        ("contexts.py", 2, "--ctx contexts.py names no function: write --ctx MODULE:NAME"),
        ("contexts.py:number", 2, "is no function: name one without parameters"),
        ("contexts.py:plian", 2, "has nothing named plian; did you mean 'plain'"),
        ("nowhere.py:plain", 2, "there is no file nowhere.py"),
    ],
)
def test_a_context_that_can_not_be_made_is_told_in_one_line(
    run: Run, contexts: Path, word: str, code: int, words: str
) -> None:
    ran = run("call", "contexts.py", "double", "--ctx", word)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err.splitlines()[-1]


def test_a_context_that_is_not_ready_in_time_ends_the_command(run: Run, contexts: Path) -> None:
    ran = run("call", "contexts.py", "double", "--ctx", "contexts.py:hanging", "--timeout", "0.5")
    assert (ran.code, ran.out) == (1, "")
    assert "--ctx contexts.py:hanging made no context within 0.5 s: --timeout gives it more time" in ran.err


def test_a_context_that_can_not_be_closed_fails_the_command_behind_its_one_result(run: Run, contexts: Path) -> None:
    ran = run("call", "contexts.py", "double", "--ctx", "contexts.py:kept_open", "-o", "json")
    assert (ran.code, json.loads(ran.out)["text"]) == (1, "22")
    assert "--ctx contexts.py:kept_open did not close its context: OSError: not closed" in ran.err
    assert "Traceback" not in ran.err


def test_an_evaluation_runs_tools_with_the_context(run: Run, contexts: Path) -> None:
    (contexts / "tasks.yaml").write_text(
        'tasks:\n  - prompt: Double it.\n    calls: [{double: {}}]\n    says: ["18"]\n'
    )
    (contexts / "says.py").write_text(SAYS)
    words = ("contexts.py", "--tasks", "tasks.yaml", "-m", "says.py:model", "--run-tools")
    ran = run("eval", *words, "--ctx", "contexts.py:entered")
    assert ran.code == 0, ran.err
    assert "left out" not in ran.err
    assert "left" in ran.err
    assert "100 (" in ran.out
    assert "double" in run("eval", *words).err  # left out, by its name


@pytest.mark.real
def test_served_tools_get_the_context(run: Run, contexts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    serve = f"mcp:{sys.executable} -m toolkit serve contexts.py"
    for name, out in (("later", "16\n"), ("opened", "20\n")):
        source = f"{serve} --ctx contexts.py:{name}"
        assert run("call", source, "double", "--env", "PYTHONPATH", "--timeout", "60").out == out
    assert "double" not in run("tools", serve, "--env", "PYTHONPATH", "--timeout", "60").out
