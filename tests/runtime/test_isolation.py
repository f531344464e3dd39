"""Functions in processes of their own."""

import ctypes
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.process_state import is_running
from toolkit.chat import ImageBlock, TextBlock
from toolkit.chat.output import ToolOutput, to_output
from toolkit.errors import ConfigurationError, InvalidArgumentsError, ToolDeniedError, ToolError, ToolFailedError
from toolkit.runtime.isolation import IsolatedError, check_isolated, run_isolated as run_to_output

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def run_isolated(function: Callable[..., Any], arguments: str) -> Any:
    """Return what the text of the output says."""
    text = (await run_to_output(function, arguments)).text
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass
class Point:
    x: int
    y: int = 0


class AwkwardError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class PartError(ToolError):
    """Raised with a message for the model."""


def moved(point: Point, by: int = 1) -> Point:
    return Point(point.x + by, point.y)


def joined(*parts: str, end: str) -> str:
    return "".join(parts) + end


def own_id() -> int:
    return os.getpid()


async def later(value: int) -> int:
    await anyio.lowlevel.checkpoint()
    return value


def counted() -> Iterator[int]:
    yield 1
    yield 2


async def counted_later() -> AsyncIterator[int]:
    yield 1
    yield 2


def failing(kind: str) -> None:
    match kind:
        case "value":
            raise ValueError("v")
        case "key":
            raise KeyError("k")
        case "missing":
            raise FileNotFoundError(2, "No such file", "x")
        case "denied":
            raise ToolDeniedError("no")
        case "awkward":
            raise AwkwardError("a", "b")
        case "part":
            raise PartError("told")
        case "exit":
            raise SystemExit(3)
        case _:
            raise KeyboardInterrupt


def unwritable() -> object:
    return [object]


def detailed() -> ToolOutput:
    return ToolOutput((TextBlock("a"), ImageBlock(b"i")), details={"a": (1, 2)}, result_as_answer=True)


def noisy() -> str:
    print("printed")
    os.write(1, b"written")
    subprocess.run([sys.executable, "-c", "print(input())"], check=False, stderr=subprocess.DEVNULL)
    return "quiet"


def crashed(how: str) -> None:
    if how == "exit":
        os._exit(3)
    ctypes.string_at(0)


def hanging(path: str) -> None:
    child = subprocess.Popen(["sleep", "60"])
    Path(path).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


def twice(function: Callable[[], int]) -> Callable[[], int]:
    @functools.wraps(function)
    def wrapper() -> int:
        return 2 * function()

    return wrapper


def bare() -> int:
    return 1


doubled = twice(bare)


@twice
def decorated() -> int:
    return 3


class Kind:
    def method(self) -> None: ...

    def __call__(self) -> None: ...


def nested() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: None, "a lambda"),
        (nested(), "a function defined inside a function"),
        pytest.param(Kind().method, "a method", id="bound"),
        pytest.param(Kind.method, "a method", id="unbound"),
        (Kind(), "an object that is no function"),
        (functools.partial(moved, by=2), "a functools.partial"),
    ],
)
def test_what_another_process_could_not_find_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"can't be had for {reason}: .*at the top of a module"):
        check_isolated(function)


def test_a_function_at_the_top_of_a_module_is_taken() -> None:
    check_isolated(moved)


async def test_arguments_and_values_cross_as_json() -> None:
    assert await run_isolated(moved, '{"point": {"x": 1}, "by": 2}') == {"x": 3, "y": 0}
    assert await run_isolated(joined, '{"parts": ["a", "b"], "end": "."}') == "ab."
    assert await run_isolated(later, '{"value": 7}') == 7
    assert await run_isolated(counted, "{}") == 2
    assert await run_isolated(counted_later, "{}") == 2


async def test_a_process_is_another_one_and_is_used_again() -> None:
    first = await run_isolated(own_id, "{}")
    assert first != os.getpid()
    assert await run_isolated(own_id, "{}") == first


async def test_arguments_are_validated_in_the_process() -> None:
    with pytest.raises(InvalidArgumentsError, match="point"):
        await run_isolated(moved, '{"point": "nonsense"}')


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("value", ValueError, "v"),
        ("key", KeyError, "'k'"),
        ("missing", FileNotFoundError, "[Errno 2] No such file: 'x'"),
        ("awkward", IsolatedError, "a and b"),
        ("part", ToolFailedError, "told"),
        ("denied", ToolDeniedError, "no"),
        ("exit", IsolatedError, "3"),
        ("interrupt", IsolatedError, ""),
    ],
)
async def test_what_is_raised_there_is_raised_here(kind: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        await run_isolated(failing, f'{{"kind": "{kind}"}}')
    if error is IsolatedError:
        assert type(caught.value).__name__ == KINDS[kind]
    else:
        assert type(caught.value) is error
    assert str(caught.value) == text


KINDS = {"awkward": "AwkwardError", "exit": "SystemExit", "interrupt": "KeyboardInterrupt"}


async def test_a_value_that_json_cannot_say_is_as_in_this_process() -> None:
    there, here = await run_to_output(unwritable, "{}"), to_output(unwritable())
    assert (there.text, there.is_error) == (here.text, here.is_error)


async def test_an_output_crosses_with_its_blocks_and_its_details() -> None:
    output = await run_to_output(detailed, "{}")
    assert output == ToolOutput((TextBlock("a"), ImageBlock(b"i")), details={"a": [1, 2]}, result_as_answer=True)


async def test_what_is_printed_does_not_get_between_the_replies() -> None:
    assert await run_isolated(noisy, "{}") == "quiet"
    assert await run_isolated(noisy, "{}") == "quiet"


@pytest.mark.parametrize(("how", "ending"), [("exit", "ended with exit status 3"), ("fault", "was killed by SIGSEGV")])
async def test_a_crash_is_an_error_that_says_how_it_ended(how: str, ending: str) -> None:
    with pytest.raises(ToolFailedError, match=f"The process {ending} before the call had ended"), anyio.fail_after(120):
        await run_isolated(crashed, f'{{"how": "{how}"}}')
    assert await run_isolated(later, '{"value": 7}') == 7


async def test_cancellation_kills_the_process_and_what_it_started(tmp_path: Path) -> None:
    noted = tmp_path / "ids"
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_isolated, hanging, f'{{"path": "{noted}"}}')
            while not (noted.exists() and len(noted.read_text().split()) == 2):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        process, child = (int(part) for part in noted.read_text().split())
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        while is_running(child):  # noqa: ASYNC110  # whoever adopted it has to notice
            await anyio.sleep(0.01)


async def test_a_function_that_its_name_does_not_lead_to_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not the function that became the tool"):
        await run_isolated(doubled, "{}")
    assert await run_isolated(decorated, "{}") == 6


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_process_outlives_its_loop(backend: str) -> None:
    async def main() -> int:
        found: int = await run_isolated(own_id, "{}")
        return found

    process = anyio.run(main, backend=backend)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


PROGRAM = """
from dataclasses import dataclass
import anyio
from toolkit.runtime.isolation import run_isolated

@dataclass
class Found:
    text: str

def find(text: str) -> Found:
    return Found(text)

async def main() -> None:
    print((await run_isolated(find, '{"text": "here"}')).text)

"""


@pytest.mark.parametrize("guard", ["if __name__ == '__main__': ", ""])
def test_a_function_of_the_main_module_is_found_where_the_main_module_is_guarded(guard: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + guard + "anyio.run(main)\n")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120, check=False)
    if guard:
        assert (done.returncode, done.stdout, done.stderr) == (0, '{"text":"here"}\n', "")
    else:
        assert done.returncode != 0
        assert "Put what it runs under: if __name__ == '__main__':" in done.stderr


def test_a_function_of_an_interactive_session_is_refused() -> None:
    program = "from toolkit.runtime.isolation import check_isolated\ndef f(): ...\ncheck_isolated(f)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "can't be had for a function of an interactive session" in done.stderr
