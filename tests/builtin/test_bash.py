"""Commands: what comes back, limits, rules, and that nothing is left of them on either backend."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.builtin.calls import call, error_of, text_of
from toolkit import (
    ChatRequest,
    ConfigurationError,
    FunctionTool,
    OutputLimits,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop,
)
from toolkit.builtin import BashOptions, RootFolder, bash_tool, coding_tools, read_result_tool
from toolkit.chat import validate_transcript
from toolkit.events import ToolExecutionUpdate
from toolkit.policies import ResultStore
from toolkit.runtime.processes import Tail
from toolkit.testing import ScriptedProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def marked() -> str:
    """Return an argument by which the processes of one test are found."""
    return f"7{uuid.uuid4().int % 10**8:08}"


def processes(mark: str) -> list[str]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if mark in line]


async def gone(mark: str) -> None:
    """Wait for what was killed, and is nobody's child here, to be buried."""
    with anyio.fail_after(120):
        while processes(mark):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.02)


ANYTHING = BashOptions(confirm=lambda _: True)


@dataclass
class Case:
    name: str
    command: str
    text: str


CASES = [
    Case("output", "echo hi", "hi"),
    Case("nothing", "true", "(no output)"),
    Case("an exit code", "echo hi; exit 3", "hi\nExit code: 3"),
    Case("both streams", "echo out; echo err >&2; exit 1", "STDOUT:\nout\nSTDERR:\nerr\nExit code: 1"),
    Case("the second stream", "echo err >&2", "STDERR:\nerr"),
    Case("a signal", "kill -SEGV $$", "(no output)\nExit code: 139"),
    Case("no input", "cat; read x || echo none", "none"),
    Case("bytes that are no text", r"printf 'a\xffb'", "a\ufffdb"),
    Case("characters", "echo né日", "né日"),
    Case("several lines", "for i in 1 2; do\n echo $i\ndone", "1\n2"),
    Case("no such program", "nonesuch-program 2>/dev/null", "(no output)\nExit code: 127"),
    Case("something in the background", "sleep 600 & echo started", "started"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_command_gives_its_output_and_its_exit_code(case: Case, tmp_path: Path) -> None:
    with anyio.fail_after(120):
        result = await call(bash_tool(tmp_path), command=case.command)
    assert (result.is_error, result.text) == (False, case.text)


async def test_a_command_starts_in_the_working_folder_with_the_variables_that_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.setenv("LANGUAGE", "en")
    options = BashOptions(working_folder="inner", env_allowlist=["LANGUAGE", "NOT_SET"])
    text = await text_of(bash_tool(tmp_path, options), command="pwd; echo $PWD $TOKEN $LANGUAGE; env | cut -d= -f1")
    inner = f"{RootFolder(tmp_path).path}/inner"
    first, second, *names = text.split("\n")
    assert (first, second) == (inner, f"{inner} en")
    assert set(names) <= {"PATH", "HOME", "PWD", "LANGUAGE", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert await text_of(bash_tool(tmp_path), command="echo $TOKEN") == "secret"


async def test_updates_show_the_end_of_the_output_while_it_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    updates: list[str] = []
    texts: list[str] = []

    async def opened() -> None:
        async with await anyio.open_file(tmp_path / "gate", "w") as gate:
            await gate.write("go\n")

    async with anyio.create_task_group() as tasks:

        def on_event(event: object) -> None:
            if isinstance(event, ToolExecutionUpdate):
                updates.append(event.output.text)
                if len(updates) == 1:  # the command goes on only when its first output was seen
                    tasks.start_soon(opened)

        provider = ScriptedProvider([ToolCall("1", "bash", '{"command": "echo one; read x < gate; echo $x"}'), "Done."])
        config = ToolLoopConfig(on_event=on_event, timeout=60)
        result = await tool_loop(provider, ToolRegistry([bash_tool(tmp_path, ANYTHING)]), "go", config=config)
        texts.append(result.messages[2].text)
    assert updates[0] == "one\n"
    assert texts == ["one\ngo"]


def id_in(request: ChatRequest) -> str:
    return str(re.findall("call read_result with id '(.*?)'", request.messages[-1].text)[0])


async def test_the_end_of_a_long_output_is_shown_and_the_rest_can_be_read(tmp_path: Path) -> None:
    store = ResultStore()
    provider = ScriptedProvider(
        [
            ToolCall("1", "bash", '{"command": "seq 1 20000; exit 2"}'),
            lambda request: ToolCall("2", "read_result", json.dumps({"id": id_in(request), "length": 8})),
            "Done.",
        ]
    )
    tools = ToolRegistry([bash_tool(tmp_path, ANYTHING), read_result_tool(store)])
    result = await tool_loop(provider, tools, "go", config=ToolLoopConfig(output=OutputLimits(store=store)))
    cut, page = [message for message in result.messages if isinstance(message, ToolResult)]
    assert cut.text.endswith("\n19999\n20000\nExit code: 2")
    assert page.text.endswith("\n1\n2\n3\n4\n")
    assert cut.details == {"exit_code": 2, "success": False}


async def test_what_was_not_kept_is_counted(tmp_path: Path) -> None:
    text = await text_of(bash_tool(tmp_path, BashOptions(max_output_bytes=10)), command="seq 1 1000")
    told = "[The first 3,883 bytes were not kept. Send the output to a file to have all of it.]"
    assert text == f"{told}\n\n999\n1000"


def test_a_tail_keeps_whole_characters() -> None:
    tail = Tail(4)
    for chunk in ("日本".encode(), b"a"):
        tail.add(chunk)
    assert (tail.text(), tail.dropped) == ("本a", 3)
    tail.add(b"xyz")
    assert (tail.text(), tail.dropped) == ("axyz", 6)
    assert tail.last(2) == "yz"


def test_the_last_of_a_tail_is_as_much_as_is_asked_for_however_small_its_parts() -> None:
    tail = Tail(1_000)
    for number in range(100):
        tail.add(f"{number}\n".encode())
    assert tail.last(12) == "96\n97\n98\n99\n"
    assert tail.last(1_000) == tail.text()


TREES: dict[str, Callable[[str], str]] = {
    "a child that ignores signals": lambda mark: f"trap '' TERM INT HUP; sleep {mark}",
    "a grandchild that ignores signals and holds the pipes": lambda mark: (
        f"(trap '' TERM; (trap '' TERM; sleep {mark}) & wait) & sleep {mark}"
    ),
    "a session of its own": lambda mark: f"setsid sleep {mark} & setsid setsid nohup sleep {mark} & sleep {mark}",
    "a daemon without environment": lambda mark: (
        f"(env -i setsid sh -c 'trap \"\" TERM; sleep {mark}' >/dev/null 2>&1 &) ; sleep {mark}"
    ),
    "stopped": lambda mark: f"sleep {mark} & kill -STOP $!; sleep {mark}",
    "ten generations that flood both pipes": lambda mark: (
        "generation() { trap '' TERM INT HUP PIPE; "
        '[ "$1" -gt 0 ] && (generation $(($1 - 1)) &) ; '
        f"while :; do echo flood {mark}; echo flood {mark} >&2; done; }}; generation 10"
    ),
}


async def test_nothing_is_left_three_seconds_after_a_timeout(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, BashOptions(timeout=0.6, max_output_bytes=100_000))
    texts: dict[str, str] = {}
    left: dict[str, list[str]] = {}

    async def run(name: str) -> None:
        mark = marked()
        with anyio.fail_after(0.6 + 3 + 30):  # the last is for a busy machine
            texts[name] = await error_of(bash, command=TREES[name](mark))
        left[name] = processes(mark)

    async with anyio.create_task_group() as tasks:
        for name in TREES:
            tasks.start_soon(run, name)
    for name, text in texts.items():
        assert text.endswith("Command timed out after 0.6s. It was ended with all that it started."), name
    assert left == {name: [] for name in TREES}


async def test_nothing_is_left_of_a_command_that_is_cancelled(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path)
    left: dict[str, list[str]] = {}

    async def run(number: int, name: str) -> None:
        mark, gate = marked(), tmp_path / str(number)
        os.mkfifo(gate)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(bash, command=f"echo > {gate}; {TREES[name](mark)}"))
            async with await anyio.open_file(gate) as began:  # waits until the command writes to it
                await began.read()
            tasks.cancel_scope.cancel()
        left[name] = processes(mark)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number, name in enumerate(TREES):
                tasks.start_soon(run, number, name)
    assert left == {name: [] for name in TREES}


async def test_what_a_command_leaves_in_the_background_is_ended(tmp_path: Path) -> None:
    mark = marked()
    command = f"(trap '' TERM; sleep {mark}) & setsid sleep {mark} & echo started"
    with anyio.fail_after(120):
        assert await text_of(bash_tool(tmp_path), command=command) == "started"
    assert processes(mark) == []


async def test_a_command_that_kills_its_supervisor_is_ended_too(tmp_path: Path) -> None:
    mark = marked()
    with anyio.fail_after(120):
        result = await call(bash_tool(tmp_path), command=f"kill -9 $PPID; sleep {mark}")
    assert result.text.endswith("Exit code: 137")
    await gone(mark)


def test_nothing_is_left_when_the_program_is_killed(tmp_path: Path) -> None:
    mark = marked()
    script = (
        "import sys, anyio\nfrom toolkit.builtin import bash_tool\n"
        "anyio.run(bash_tool(sys.argv[1]).ainvoke, {'command': sys.argv[2]})\n"
    )
    os.mkfifo(tmp_path / "gate")
    command = f"(trap '' TERM; setsid sleep {mark}) & echo > gate; sleep {mark}"
    program = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), command], cwd=Path(__file__).parents[2])
    (tmp_path / "gate").read_text()
    assert processes(mark)
    program.kill()
    program.wait()
    anyio.run(gone, mark)


async def test_a_command_that_stops_its_supervisor_is_ended_in_time(tmp_path: Path) -> None:
    mark = marked()
    with anyio.fail_after(120):
        text = await error_of(bash_tool(tmp_path), command=f"kill -STOP $PPID; sleep {mark}", timeout=0.5)
    assert text.endswith("It was ended with all that it started.")
    assert processes(mark) == []


async def test_a_time_limit_may_be_a_timedelta(tmp_path: Path) -> None:
    options: dict[str, Any] = {"timeout": timedelta(seconds=0.2)}
    with anyio.fail_after(120):
        text = await error_of(bash_tool(tmp_path, BashOptions(**options)), command="sleep 600")
    assert "timed out after 0.2s" in text


async def test_a_working_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    bash = bash_tool(root)
    await text_of(bash, command="rm -r $PWD")
    assert f"the working folder {root} is not there any more" in await error_of(bash, command="ls")


async def test_another_tool_goes_on_while_a_command_floods(tmp_path: Path) -> None:
    @tool
    async def tick() -> str:
        """Tick."""
        for _ in range(50):
            await anyio.sleep(0.001)
        return "ticked"

    mark, gate = marked(), tmp_path / "gate"
    os.mkfifo(gate)
    registry = ToolRegistry[object]([tick, bash_tool(tmp_path, ANYTHING)])
    command = f"echo > {gate}; {TREES['ten generations that flood both pipes'](mark)}"
    flooded: list[ToolResult] = []

    async def flood() -> None:
        flooded.append(await registry.execute(ToolCall("1", "bash", json.dumps({"command": command}))))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            async with await anyio.open_file(gate) as began:  # waits until the command writes to it
                await began.read()
            assert (await registry.execute(ToolCall("2", "tick", "{}"))).text == "ticked"
            assert not flooded
            tasks.cancel_scope.cancel()
    assert processes(mark) == []


MEMORY = """
import resource, sys, anyio
from toolkit.builtin import bash_tool
bash = bash_tool(sys.argv[1])
anyio.run(bash.ainvoke, {"command": "seq 1 1000"})
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
output = anyio.run(bash.ainvoke, {"command": "yes 0123456789 | head -c 1000000000"})
print(len(output.text), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
"""


def test_a_gigabyte_of_output_takes_little_memory(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    length, grown = map(int, run.stdout.split())
    assert length > 3_900_000
    assert grown * (1 if sys.platform == "darwin" else 1024) < 64_000_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"command": "env x " * 5_000}, "too long to be checked"),
        ({"command": "a\0b"}, "can't contain the character NUL"),
        ({"command": "x" * 100_001}, "at most 100,000 can be run"),
        ({"command": ""}, "command"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({"command": "sleep 600", "timeout": 0.2}, "timed out after 0.2s"),
    ],
    ids=["too much to check", "NUL", "too long", "empty", "no time", "its own timeout"],
)
async def test_a_bad_command_is_refused(arguments: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert says in await error_of(bash_tool(tmp_path), **arguments)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_person_confirms_commands(is_async: bool, tmp_path: Path) -> None:
    asked: list[str] = []

    def confirm(command: str) -> bool:
        asked.append(command)
        return "no" not in command

    async def confirm_later(command: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return confirm(command)

    bash = bash_tool(tmp_path, BashOptions(confirm=confirm_later if is_async else confirm, deny=["echo denied"]))
    assert await text_of(bash, command="echo yes") == "yes"
    assert await error_of(bash, command="echo no") == "Command was not confirmed by the user."
    assert "blocked by safety policy" in await error_of(bash, command="echo denied")
    assert asked == ["echo yes", "echo no"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"max_output_bytes": 0}, "max_output_bytes must be 1 or more"),
        ({"env_allowlist": "HOME"}, "must be several"),
        ({"confirm": True}, "confirm must be a function or None, not True"),
        ({"sandbox": "bwrap"}, "sandbox must be a Bubblewrap or None, not 'bwrap'"),
        ({"working_folder": "nope"}, "the working folder can't be used: 'nope' can't be used: there is nothing"),
        ({"working_folder": ".."}, "is outside of the folder"),
        ({"deny": [3]}, "each of deny must be text or a function, not 3"),
        ({"allow": 3}, "allow must be a list or the like or None, not 3"),
        ({"deny": "rm"}, "deny must be several, such as"),
        ({"allow": ["  "]}, "a pattern in allow is empty"),
    ],
    ids=str,
)
def test_options_that_can_not_be_are_the_callers_mistake(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=says):
        bash_tool(tmp_path, BashOptions(**options))


def test_the_presets_have_their_tools(tmp_path: Path) -> None:
    def names(tools: list[FunctionTool[object, ..., Any]]) -> list[str]:
        return [tool.definition.name for tool in tools]

    assert names(coding_tools(tmp_path)) == ["bash", "read_file", "write_file", "edit_file"]
    assert names(coding_tools(tmp_path, "readonly")) == ["read_file", "list_files", "search"]
    assert len(coding_tools(tmp_path, "all")) == 6
    assert coding_tools(tmp_path, "none") == []
    with pytest.raises(ConfigurationError, match="there is no preset 'most'"):
        coding_tools(tmp_path, "most")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def test_a_loop_that_is_cancelled_in_a_command_has_a_valid_transcript(tmp_path: Path) -> None:
    mark = marked()
    provider = ScriptedProvider([ToolCall("1", "bash", json.dumps({"command": f"sleep {mark}"})), "Done."])
    result = await tool_loop(
        provider, ToolRegistry([bash_tool(tmp_path, ANYTHING)]), "go", config=ToolLoopConfig(timeout=0.5)
    )
    validate_transcript(result.messages)
    assert processes(mark) == []
