"""A process of its own that attacks the one that started it: an attack a row. Nothing but JSON crosses."""

import functools
import inspect
import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import ConfigurationError, ToolCall, ToolContext, ToolError, ToolOutput, ToolRegistry, tool, tool_with_ctx
from toolkit.runtime.isolation import run_isolated

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def note(path: str) -> str:
    """Leave the id of the process that runs this: the attacks try to have it run in the parent."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return "noted"


class Reduced:
    """Runs `note` in whoever unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return note, (self.path,)


class ReducedText(str):
    __slots__ = ()

    def __reduce__(self) -> Any:
        return note, (str(self),)


class ReducedError(Exception):
    def __reduce__(self) -> Any:
        return note, self.args


class ReducedToolError(ToolError):
    def __reduce__(self) -> Any:
        return note, (self.message,)


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class EvilNameError(Exception):
    """Its class has a name that is no name."""


EvilNameError.__name__ = "x(object): pass\nimport os; os._exit(9) #"


class Stateful:
    def __init__(self, path: str) -> None:
        self.path = path

    def __getstate__(self) -> Any:
        return self.path

    def __setstate__(self, state: str) -> None:
        note(state)


class EvilDict(dict[str, Any]):
    def __reduce_ex__(self, protocol: Any) -> Any:
        return note, (self["path"],)


class EvilList(list[Any]):
    def __reduce_ex__(self, protocol: Any) -> Any:
        return note, (self[0],)


def raise_it(error: BaseException) -> Any:
    raise error


def nest_deeply() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def hold_itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


def yield_it(value: object) -> Iterator[object]:
    yield "first"
    yield value


VALUES: dict[str, Callable[[str], Any]] = {
    "an object": Reduced,
    "an object in a list": lambda path: [Reduced(path)],
    "an object in a tuple": lambda path: (Reduced(path),),
    "an object in a dict": lambda path: {"a": Reduced(path)},
    "an object as a key": lambda path: {Reduced(path): 1},
    "an object in a set": lambda path: {Reduced(path)},
    "an object deep inside": lambda path: {"a": [{"b": (Reduced(path),)}]},
    "a text": ReducedText,
    "a text in a list": lambda path: [ReducedText(path)],
    "a dict of its own class": lambda path: EvilDict(path=path),
    "a list of its own class": lambda path: EvilList([path]),
    "a state": Stateful,
    "a state in a list": lambda path: [Stateful(path)],
    "an exception as a value": ReducedError,
    "a function": lambda path: note,
    "a partial function": lambda path: functools.partial(note, path),
    "a class": lambda path: Reduced,
    "a module": lambda path: os,
    "a method": lambda path: Path(path).touch,
    "pickled bytes": lambda path: pickle.dumps(Reduced(path)),
    "pickled bytes in a list": lambda path: [pickle.dumps(Reduced(path))],
    "pickled bytes as text": lambda path: pickle.dumps(Reduced(path), protocol=0).decode(),
    "an output": lambda path: ToolOutput(ReducedText(path)),
    "an output with such details": lambda path: ToolOutput("x", details=Reduced(path)),
    "an output with details inside": lambda path: ToolOutput("x", details={"a": [Reduced(path)]}),
    "an output with a content that is none": lambda path: ToolOutput(Reduced(path)),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "an error output": lambda path: ToolOutput.error(ReducedText(path)),
    "a generator": lambda path: yield_it(Reduced(path)),
    "an iterator": lambda path: iter([Reduced(path)]),
    "an error": lambda path: raise_it(ReducedError(path)),
    "a tool error": lambda path: raise_it(ReducedToolError(path)),
    "a built-in error with such an argument": lambda path: raise_it(ValueError(Reduced(path))),
    "an error with a text of its own class": lambda path: raise_it(ValueError(ReducedText(path))),
    "an error that can't be told": lambda path: raise_it(SilentError(path)),
    "a class of a name that is code": lambda path: raise_it(EvilNameError(path)),
    "a group of errors": lambda path: raise_it(ExceptionGroup("g", [ReducedError(path)])),
    "an exit with an object": lambda path: raise_it(SystemExit(Reduced(path))),
    "an interrupt": lambda path: raise_it(KeyboardInterrupt(Reduced(path))),
    "the end of a generator": lambda path: raise_it(StopIteration(Reduced(path))),
    "an error with a cause": lambda path: raise_it(ValueError("x").with_traceback(None)),
    "a system error": lambda path: raise_it(OSError(2, path, Reduced(path))),
    "an encoding error": lambda path: raise_it(UnicodeDecodeError("utf-8", b"x", 0, 1, path)),
    "a number without end": lambda path: 10**5000,
    "no number": lambda path: float("nan"),
    "lone surrogates": lambda path: "\ud800",
    "a list that holds itself": lambda path: hold_itself(),
    "nested without end": lambda path: nest_deeply(),
}


def give(name: str, path: str) -> Any:
    return VALUES[name](path)


async def test_no_value_and_no_error_runs_anything_in_the_parent(tmp_path: Path) -> None:
    with anyio.fail_after(120):
        for name in VALUES:
            path = tmp_path / "noted"
            told = ""
            try:
                told = str((await run_isolated(give, json.dumps({"name": name, "path": str(path)}))).content)
            except Exception as error:  # noqa: BLE001 - each is fine that has words
                told = f"{type(error).__name__}: {error}"
            assert told, name
            noted = path.read_text(encoding="utf-8").split() if path.exists() else []
            assert str(os.getpid()) not in noted, name
            after = await run_isolated(give, json.dumps({"name": "no number", "path": ""}))
            assert after.text.startswith("null"), name


def frame(data: bytes) -> bytes:
    return struct.pack(">Q", len(data)) + data


def speak(data: str, how: str) -> str:
    """Write to whatever could lead to the parent, then end, or answer as usual."""
    for descriptor in range(3, 32):
        with suppress(OSError):
            os.write(descriptor, bytes.fromhex(data))
    if how == "end":
        os._exit(0)
    return "answered"


FRAMES = {
    "nothing": b"",
    "half of a length": b"\0\0\0",
    "a length without end": b"\xff" * 8,
    "a length of a terabyte": struct.pack(">Q", 2**40) + b"x",
    "a length of nothing": struct.pack(">Q", 0),
    "a pickle": frame(pickle.dumps(Reduced("/nowhere"))),
    "no JSON": frame(b"hello"),
    "a list": frame(b"[]"),
    "null": frame(b"null"),
    "no id": frame(b'{"output": "{\\"content\\": \\"STOLEN\\"}"}'),
    "an id of nobody": frame(b'{"id": "0", "output": "{\\"content\\": \\"STOLEN\\"}"}'),
    "an id that is null": frame(b'{"id": null, "output": "{\\"content\\": \\"STOLEN\\"}"}'),
    "not UTF-8": frame(b'{"id": "\xff"}'),
    "lists a hundred thousand deep": frame(b"[" * 100_000),
    "a number of a million digits": frame(b"9" * 1_000_000),
    "a hundred answers": frame(b'{"id": "0", "output": "{\\"content\\": \\"STOLEN\\"}"}') * 100,
    "zeros": b"\0" * 4096,
}


SAMPLE = ("a length of a terabyte", "a pickle", "no JSON", "an id of nobody", "a hundred answers")


@pytest.mark.parametrize("how", ["go on", "end"])
@pytest.mark.parametrize("names", [SAMPLE, pytest.param(tuple(FRAMES), marks=pytest.mark.full)], ids=["some", "all"])
async def test_what_a_function_writes_to_the_parent_is_no_answer_and_reaches_no_other_call(
    names: tuple[str, ...], how: str
) -> None:
    with anyio.fail_after(180):
        for name in names:
            data = FRAMES[name]
            if len(data) > 60_000:
                continue  # more than a pipe takes at once: the other end reads nothing until the function ends
            told = ""
            try:
                told = (await run_isolated(speak, json.dumps({"data": data.hex(), "how": how}))).text
            except ToolError as error:
                told = error.message
            assert "STOLEN" not in told, name
            after = await run_isolated(speak, json.dumps({"data": "", "how": "go on"}))
            assert after.text == "answered", name


def answer_twice(how: str) -> str:
    """Write an answer to this call to whatever could lead to the parent, then end, or return another."""
    request = next(each.frame.f_locals["request"] for each in inspect.stack() if "request" in each.frame.f_locals)
    forged = frame(json.dumps({"id": request["id"], "output": '{"content": "forged"}'}).encode())
    return speak(forged.hex(), how)


@pytest.mark.parametrize("how", ["go on", "end"])
async def test_a_forged_answer_to_a_call_fails_no_other_call(how: str) -> None:
    with anyio.fail_after(120):
        assert (await run_isolated(answer_twice, json.dumps({"how": how}))).text == "forged"
        assert (await run_isolated(speak, json.dumps({"data": "", "how": "go on"}))).text == "answered"


def module_level(n: int) -> int:
    return n


def with_context(context: ToolContext[object], n: int) -> int:
    return n


class Kind:
    def method(self, n: int) -> int:
        return n

    @staticmethod
    def static(n: int) -> int:
        return n

    @classmethod
    def of_class(cls, n: int) -> int:
        return n

    def __call__(self, n: int) -> int:
        return n


def closure() -> Callable[[int], int]:
    def inner(n: int) -> int:
        return n

    return inner


REFUSED: dict[str, tuple[Any, str]] = {
    "a lambda": (lambda: None, "a lambda"),
    "a closure": (closure(), "a function defined inside a function"),
    "a bound method": (Kind().method, "a method"),
    "a method": (Kind.method, "a method"),
    "a static method": (Kind.static, "a method"),
    "a class method": (Kind.of_class, "a method"),
    "a callable object": (Kind(), "an object that is no function"),
    "a class": (Kind, "an object that is no function"),
    "a partial function": (functools.partial(module_level, n=1), "a functools.partial"),
    "a built-in function": (len, "an object that is no function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_process_could_find_is_refused_at_decoration(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(ConfigurationError, match=f"can't be had for {reason}"):
        tool(isolation="process")(function)


def test_a_context_is_refused_at_decoration() -> None:
    with pytest.raises(ConfigurationError, match="isolation='process' and a context don't go together"):
        tool_with_ctx(isolation="process")(with_context)


async def test_a_function_at_the_top_of_a_module_is_taken() -> None:
    isolated = tool(isolation="process")(module_level)
    assert (await ToolRegistry([isolated]).execute(ToolCall("1", "module_level", '{"n": 3}'))).text == "3"
