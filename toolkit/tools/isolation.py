"""Functions in processes of their own, which can be killed, as no thread can.

Here is both ends: `run_isolated` on the side of the caller, and `serve`, the life of such a process. A request is the
function's place (module and qualified name) and its arguments as JSON; a reply is a pickled value or exception. What
the function prints goes to the standard error, and its standard input is empty. A process serves one call after
another; all of an event loop end with it, and each ends itself when its parent is gone.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import os
import pickle
import runpy
import struct
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from queue import SimpleQueue
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

import anyio
from anyio.abc import Process
from anyio.lowlevel import RunVar
from anyio.streams.buffered import BufferedByteReceiveStream

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolError, ToolFailedError
from toolkit.schema import function_schema
from toolkit.tools.backend import at_loop_end
from toolkit.tools.processes import ending_of, signal_group, start_process

__all__ = ["check_isolated", "run_isolated", "serve"]

_LENGTH = struct.Struct(">Q")
_MAIN = "__mp_main__"  # what multiprocessing too calls the program's main module in a process that isn't its own
_EXIT_SECONDS = 1.0  # from the end of its output to the end of a process that ends by itself


def check_isolated(function: Callable[..., Any]) -> None:
    """Check that another process could find a function: by its module and name.

    Raises:
        ConfigurationError: It is not a function at the top of a module that has a file; says why, and what to do.
    """
    reason = _unfindable(function)
    if reason is not None:
        named = getattr(function, "__qualname__", None) or type(function).__qualname__
        raise ConfigurationError(
            f"{named}: isolation='process' can't be had for {reason}: another process finds a function by its module "
            "and name only. Write it with def at the top of a module, and give it what it needs as arguments."
        )


def _unfindable(function: Callable[..., Any]) -> str | None:
    if isinstance(function, functools.partial):
        return "a functools.partial"
    if inspect.ismethod(function):
        return "a method"
    if not inspect.isfunction(function):
        return "an object that is no function"
    if function.__name__ == "<lambda>":
        return "a lambda"
    if "<locals>" in function.__qualname__:
        return "a function defined inside a function"
    if "." in function.__qualname__:
        return "a method"
    if function.__module__ == "__main__" and getattr(sys.modules["__main__"], "__file__", None) is None:
        return "a function of an interactive session"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    path: list[str]
    main: tuple[str | None, str] | None
    module: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any


@dataclass(frozen=True, slots=True)
class _Failure:
    """What was raised: pickled, if that works in both directions, and in words."""

    pickled: bytes | None
    text: str


# The caller's side.


async def run_isolated(function: Callable[..., Any], arguments: str) -> Any:
    """Call a function in another process and return what it returns.

    An asynchronous function is run to its end there, in an event loop of its own, and a generator is drained: its last
    value, or what it returns, is the value. When this is cancelled the process is killed, and all that it started in
    its process group, before the cancellation goes on. As many run at once as the machine has processors, and at least
    four; more wait.

    Args:
        function: What `check_isolated` let pass.
        arguments: A JSON object, validated and turned into what the function's hints promise in the other process.

    Raises:
        ConfigurationError: What its module holds under its name is another function.
        ToolFailedError: The process ended before it replied; or what was raised or returned there can't be pickled.
        Exception: What the function raised.
    """
    if _is_loading_main:
        raise SystemExit(
            "This program's main module runs tools when it is only loaded to find a function for isolation='process'. "
            "Put what it runs under: if __name__ == '__main__':"
        )
    if _found(sys.modules[function.__module__], function.__qualname__) is not function:
        raise ConfigurationError(
            f"{function.__module__}.{function.__qualname__} is not the function that became the tool: with "
            "isolation='process' the tool, or the very function, must stand in its module under the function's name"
        )
    request = _Request(
        path=sys.path,
        main=_main_module() if function.__module__ == "__main__" else None,
        module=function.__module__,
        name=function.__qualname__,
        arguments=arguments,
    )
    pool = _pools.get(None)
    if pool is None:
        pool = await _open_pool()
    return _outcome(await pool.ask(pickle.dumps(request)), function)


def _main_module() -> tuple[str | None, str]:
    """Return by what name (with ``python -m``) and from what file the main module can be loaded again."""
    main = sys.modules["__main__"]
    spec = main.__spec__
    return (None if spec is None else spec.name), os.path.abspath(str(main.__file__))  # noqa: PTH100  # as it is


def _outcome(reply: bytes, function: Callable[..., Any]) -> Any:
    try:
        answer = _Unpickler(io.BytesIO(reply)).load()
    except Exception as error:
        raise ToolFailedError(f"{function.__qualname__} returned what can't be unpickled: {_text(error)}") from error
    if isinstance(answer, _Value):
        return answer.value
    assert isinstance(answer, _Failure)
    raise _raised(answer)


def _raised(failure: _Failure) -> Exception:
    if failure.pickled is not None:
        try:
            error = _Unpickler(io.BytesIO(failure.pickled)).load()
        except Exception:  # noqa: BLE001  # whatever its class does when it is made anew
            return ToolFailedError(failure.text)
        if isinstance(error, Exception):
            return error
    return ToolFailedError(failure.text)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class("__main__" if module_name == _MAIN else module_name, global_name)


class _Pool:
    """The processes of one event loop."""

    def __init__(self) -> None:
        self.end: AsyncGenerator[None] | None = None
        self._idle: list[Process] = []
        self._places = anyio.CapacityLimiter(max(4, os.cpu_count() or 1))

    async def ask(self, request: bytes) -> bytes:
        async with self._places:
            process = await self._process()
            is_idle = False
            try:
                reply = await _reply(process, request)
                is_idle = True
                return reply
            finally:
                if is_idle:
                    self._idle.append(process)
                else:
                    await _kill(process)

    async def _process(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            await _kill(process)
        return await self._new_process()

    async def _new_process(self) -> Process:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        return await start_process([sys.executable, "-c", code], errors=None)

    async def close(self) -> None:
        while self._idle:
            await _kill(self._idle.pop())


async def _reply(process: Process, request: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    replies = BufferedByteReceiveStream(process.stdout)
    try:
        await process.stdin.send(_LENGTH.pack(len(request)) + request)
        (length,) = _LENGTH.unpack(await replies.receive_exactly(_LENGTH.size))
        return await replies.receive_exactly(length)
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        with anyio.move_on_after(_EXIT_SECONDS):
            await process.wait()
        raise ToolFailedError(f"The process {ending_of(process.returncode)} before the call had ended.") from error


async def _kill(process: Process) -> None:
    """End a process, and what it started in its group; return when it is gone."""
    with anyio.CancelScope(shield=True):
        signal_group(process, "SIGKILL")
        await process.aclose()


_pools: RunVar[_Pool] = RunVar("toolkit_processes")


async def _open_pool() -> _Pool:
    pool = _Pool()
    _pools.set(pool)
    pool.end = await at_loop_end(pool.close)
    return pool


# The other process.

_is_loading_main = False


def serve() -> NoReturn:
    """Answer requests on the standard input, one by one, until it ends; then end the process, whatever it does."""
    requests: SimpleQueue[bytes] = SimpleQueue()
    source = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)  # what is printed, here or in a process of the function's own, must not get between the replies
    threading.Thread(target=_read, args=(source, requests), daemon=True).start()
    while True:
        reply = _answer(requests.get())
        replies.write(_LENGTH.pack(len(reply)) + reply)
        replies.flush()


def _read(source: BinaryIO, requests: SimpleQueue[bytes]) -> NoReturn:
    while len(head := source.read(_LENGTH.size)) == _LENGTH.size:
        requests.put(source.read(_LENGTH.unpack(head)[0]))
    os._exit(0)


def _answer(data: bytes) -> bytes:
    try:
        request: _Request = pickle.loads(data)  # noqa: S301  # the parent's
        sys.path[:] = request.path
        return pickle.dumps(_Value(_called(request)))
    except BaseException as error:  # noqa: BLE001  # sys.exit() in the function is its failure, not the end of this
        return pickle.dumps(_Failure(_pickled(error), _text(error)))
    finally:
        sys.stdout.flush()


def _called(request: _Request) -> Any:
    if request.main is not None:
        _load_main(*request.main)
    function, schema = _prepared(request.module, request.name)
    arguments = schema.arguments.parse_json(request.arguments)
    args, kwargs = ((), arguments) if schema.bind is None else schema.bind(arguments)
    value = function(*args, **kwargs)
    if inspect.isawaitable(value):
        value = anyio.run(_awaited, value)
    if inspect.isgenerator(value):
        return _drained(value)
    if inspect.isasyncgen(value):
        return anyio.run(_last, value)
    return value


@functools.cache
def _prepared(module: str, name: str) -> tuple[Callable[..., Any], Any]:
    function = _found(importlib.import_module(module), name)
    if function is None:
        raise ToolFailedError(f"there is no function {name} in {module}")
    return function, function_schema(function)


def _found(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Return the function under a name, or the one that the tool there was made of."""
    found = getattr(module, name, None)
    while found is not None and not inspect.isfunction(found):
        found = getattr(found, "__wrapped__", None)
    return found


@functools.cache
def _load_main(name: str | None, file: str) -> None:
    global _is_loading_main  # noqa: PLW0603  # a fact of this process
    _is_loading_main = True
    try:
        if name is not None:
            content = runpy.run_module(name, run_name=_MAIN, alter_sys=True)
        else:
            content = runpy.run_path(file, run_name=_MAIN)
    finally:
        _is_loading_main = False
    main = ModuleType(_MAIN)
    vars(main).update(content)
    sys.modules["__main__"] = sys.modules[_MAIN] = main


async def _awaited(value: Any) -> Any:
    return await value


def _drained(values: Generator[Any, Any, Any]) -> Any:
    last: Any = None
    while True:
        try:
            last = next(values)
        except StopIteration as stop:
            return last if stop.value is None else stop.value


async def _last(values: AsyncIterator[Any]) -> Any:
    last: Any = None
    async for value in values:
        last = value
    return last


def _pickled(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error)
        copy = pickle.loads(data)  # noqa: S301  # made in the line above
    except Exception:  # noqa: BLE001  # then words must do
        return None
    return data if type(copy) is type(error) and str(copy) == str(error) else None


def _text(error: BaseException) -> str:
    if isinstance(error, ToolError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
