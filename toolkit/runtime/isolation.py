"""Functions in separate processes, which can be killed, unlike threads.

Both sides are here: `run_isolated` for the caller, and `serve`, which answers one request after another in the process
until its input ends. Both send JSON. A request contains the module and the qualified name of the function and its
arguments; a reply contains the output made from its value, or the text of the error. Printed text goes to the standard
error, and the standard input is empty. A process that writes anything but its reply is ended; all processes of an event
loop end with it, and each ends itself when its parent has ended.

`anyio.to_process` does not do the same. It unpickles replies, so that a faulty function can make the caller run any
code; it kills only the process and not its children; it runs the program's main module again if that is not guarded; it
can't distinguish a waiting call from one that has begun, which decides whether a cancelled call may have taken effect;
and it takes the late reply to an earlier call for the reply to the next.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import json
import os
import runpy
import secrets
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import ValidationError

from toolkit.chat.output import ToolOutput, dump_output, load_output, to_output, words_of
from toolkit.errors import (
    ConfigurationError,
    InvalidArgumentsError,
    ToolCancelledError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
)
from toolkit.plain_values import read_plain
from toolkit.runtime.backend import LoopLocal
from toolkit.runtime.processes import NO_PATIENCE, SupervisedProcess, describe_end, take_streams
from toolkit.schema import function_schema
from toolkit.schema.nodes import is_object
from toolkit.trace_context import enter_trace_context, inject_trace_context

_LONGEST_ERROR_NAME = 100
_MOST_LATE_REPLIES = 100
_REPLY_EXIT_SECONDS = 1.0  # from the end of the output of a process to its end


def check_isolated(function: Callable[..., Any]) -> None:
    """Check that another process can find a function by its module and name.

    Raises:
        ConfigurationError: It is not a function at the top of a module that has a file; the message says why, and what
            to do.
    """
    reason = _find_obstacle(function)
    if reason is not None:
        named = getattr(function, "__qualname__", None) or type(function).__qualname__
        raise ConfigurationError(
            f"{named}: isolation='process' can't be had for {reason}: another process finds a function by its module "
            "and name only. Write it with def at the top of a module, and give it what it needs as arguments."
        )


def _find_obstacle(function: Callable[..., Any]) -> str | None:
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


class IsolatedError(Exception):
    """An error of a class that is not created in this process; it has the name of that class."""


async def run_isolated(
    function: Callable[..., Any],
    arguments: str,
    *,
    is_raw: bool = False,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> ToolOutput:
    """Call a function in another process and return its output.

    An async function runs in an event loop there, and a generator is exhausted: the value is its return value, or else
    its last item. If this is cancelled, the process and its children in its process group are killed before the
    cancellation propagates. As many calls run at once as the machine has processors, and at least four; others wait.

    Args:
        function: A function that `check_isolated` accepts.
        arguments: A JSON object, validated and converted to the types of the function's hints in the other process.
        is_raw: True if the function takes that object unchanged, as one dict.
        waiting: Entered until the function is called.

    Raises:
        ConfigurationError: Its module has another function under its name.
        ToolFailedError: The process ended before it replied, or wrote something other than a reply.
        Exception: The exception of the function: built-in ones and those of toolkit are unchanged, others become an
            `IsolatedError` with their name.
    """
    if is_loading_main():
        raise _UnguardedMainExit(
            "This program's main module runs tools when it is only loaded to find a function for isolation='process'. "
            "Put what it runs under: if __name__ == '__main__':"
        )
    if find_function(sys.modules[function.__module__], function.__qualname__) is not function:
        raise ConfigurationError(
            f"{function.__module__}.{function.__qualname__} is not the function that became the tool: with "
            "isolation='process' the tool, or the very function, must stand in its module under the function's name"
        )
    carrier: dict[str, str] = {}
    inject_trace_context(carrier)
    request = {
        "trace": carrier,
        "path": list(sys.path),
        "main": _locate_main() if function.__module__ == "__main__" else None,
        "module": function.__module__,
        "name": function.__qualname__,
        "arguments": arguments,
        "is_raw": is_raw,
    }
    return _read_isolated_reply(await _process_pools.get().ask(request, waiting), function)


class _UnguardedMainExit(SystemExit):
    """Ends the import of a main module that is not guarded and would run its program here."""


def _locate_main() -> tuple[str | None, str]:
    """Return the name (with ``python -m``) and the file from which the main module can be loaded again."""
    main = sys.modules["__main__"]
    spec = main.__spec__
    return (None if spec is None else spec.name), os.path.abspath(str(main.__file__))  # noqa: PTH100  # as it is


def _read_isolated_reply(reply: Mapping[str, Any], function: Callable[..., Any]) -> ToolOutput:
    match reply:
        case {"output": str(text)}:
            try:
                return replace(load_output(text), details=reply.get("details"))
            except ValidationError as error:
                raise _refuse_reply(function.__qualname__) from error
        case {"error": {"kind": str(kind), "text": str(text), "args": [*args], "is_deliberate": bool(is_deliberate)}}:
            raise _restore_error(kind, text, args, is_deliberate=is_deliberate)
        case _:
            raise _refuse_reply(function.__qualname__)


def _refuse_reply(name: str) -> ToolFailedError:
    return ToolFailedError(f"The process of {name} wrote something else than an answer. It may have taken effect.")


def _restore_error(kind: str, text: str, args: list[Any], *, is_deliberate: bool) -> Exception:
    """Return an exception of toolkit, or a built-in one, created from plain values; else an `IsolatedError`."""
    if is_deliberate:
        known = _TOOL_ERRORS.get(kind)
        return ToolFailedError(text) if known is None else known(text)
    made: Any = getattr(builtins, kind, None)
    if isinstance(made, type) and issubclass(made, Exception) and not issubclass(made, BaseExceptionGroup):
        try:
            error: Exception = made(*args)
            if str(error) == text:
                return error
        except Exception:  # noqa: BLE001 - it takes other arguments
            return _name_error(kind, text)
    return _name_error(kind, text)


def _name_error(kind: str, text: str) -> IsolatedError:
    name = kind if kind.isidentifier() and len(kind) <= _LONGEST_ERROR_NAME else IsolatedError.__name__
    made: type[IsolatedError] = type(name, (IsolatedError,), {})
    return made(text)


_TOOL_ERRORS: dict[str, Callable[[str], Exception]] = {
    kind.__name__: kind
    for kind in (ToolError, ToolFailedError, ToolDeniedError, ToolCancelledError, InvalidArgumentsError)
}


class _WorkerPool:
    """The processes of one event loop, which end with it."""

    def __init__(self) -> None:
        self._idle: list[SupervisedProcess] = []
        self._places = anyio.CapacityLimiter(max(4, os.cpu_count() or 1))

    async def ask(
        self, request: dict[str, Any], waiting: Callable[[], AbstractContextManager[object]]
    ) -> Mapping[str, Any]:
        process: SupervisedProcess | None = None
        has_place = is_idle = False
        try:
            with waiting():
                await self._places.acquire()
                has_place = True
                exchange = reply = None
                while exchange is None or reply is None:
                    is_used = len(self._idle) > 0
                    process = await self._take_process()
                    exchange = _Exchange(process, request)
                    try:
                        reply = await exchange.begin()
                    except _ProcessEndedError:
                        if not is_used:
                            raise
                        await process.end()  # an earlier call left it dying: it has not begun this one
            if "begun" in reply:
                reply = await exchange.next()
            is_idle = exchange.is_over
            return reply
        finally:
            if process is not None:
                if is_idle:
                    self._idle.append(process)
                else:
                    await process.end()
            if has_place:
                self._places.release()

    async def _take_process(self) -> SupervisedProcess:
        while self._idle:
            process = self._idle.pop()
            if process.exit_code is None:
                return process
            await process.end()
        code = f"import sys; sys.path[:] = {sys.path!r}; from {serve.__module__} import serve; serve()"
        return await SupervisedProcess.start([sys.executable, "-c", code], errors=None, patience=NO_PATIENCE)


class _ProcessEndedError(ToolFailedError):
    """A process ended before it replied."""


class _Exchange:
    """One request to a process, and its replies."""

    def __init__(self, process: SupervisedProcess, request: dict[str, Any]) -> None:
        self._process = process
        self._name = str(request["name"])
        self._number = secrets.token_hex(8)  # the late reply to an earlier call is not taken for that to this one
        self._request = json.dumps({**request, "id": self._number}).encode()
        self._replies = BufferedByteReceiveStream(process.output)
        self._late_replies = 0

    @property
    def is_over(self) -> bool:
        """True if the process wrote nothing but the reply, so that it can serve another call."""
        return not self._replies.buffer and not self._late_replies

    async def begin(self) -> Mapping[str, Any]:
        """Send the request and return the first reply: that the function is about to be called, or an error."""
        try:
            await self._process.input.send(MESSAGE_LENGTH.pack(len(self._request)) + self._request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._describe_end() from error
        return await self.next()

    async def next(self) -> Mapping[str, Any]:
        """Return the next reply to this request; late ones to an earlier request are dropped."""
        while (reply := await self._read_reply()).get("id") != self._number:
            self._late_replies += 1
            if self._late_replies > _MOST_LATE_REPLIES:
                raise _refuse_reply(self._name)
        return reply

    async def _read_reply(self) -> Mapping[str, Any]:
        try:
            (length,) = MESSAGE_LENGTH.unpack(await self._replies.receive_exactly(MESSAGE_LENGTH.size))
            if length > LONGEST_REPLY:
                raise _refuse_reply(self._name)
            reply: Any = json.loads(await self._replies.receive_exactly(length))
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._describe_end() from error
        except (ValueError, RecursionError) as error:
            raise _refuse_reply(self._name) from error
        if not is_object(reply):
            raise _refuse_reply(self._name)
        return reply

    async def _describe_end(self) -> _ProcessEndedError:
        await self._process.has_ended_within(_REPLY_EXIT_SECONDS)
        return _ProcessEndedError(
            f"The process {describe_end(self._process.exit_code)} before the call had ended. It may have taken effect."
        )


_process_pools = LoopLocal(_WorkerPool)


MESSAGE_LENGTH = struct.Struct(">Q")
"""The length prefix of a message, in both directions."""

LONGEST_REPLY = 256 * 1024 * 1024

_MAIN = "__mp_main__"  # as in multiprocessing: the name of the program's main module in another process
_is_loading_main = False


def serve() -> NoReturn:
    """Answer requests on the standard input, one by one, until it ends; then end the process."""
    requests: SimpleQueue[bytes] = SimpleQueue()
    source, replies = take_streams()
    threading.Thread(target=_queue_requests, args=(source, requests), daemon=True).start()

    def say(message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode()
        replies.write(MESSAGE_LENGTH.pack(len(data)) + data)
        replies.flush()

    while True:
        request: dict[str, Any] = json.loads(requests.get())
        say(_answer_request(request, partial(say, {"id": request["id"], "begun": True})))


def find_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Return the function with a name, or that of the tool with this name."""
    found = getattr(module, name, None)
    while found is not None and not inspect.isfunction(found):
        found = getattr(found, "__wrapped__", None)
    return found


def is_loading_main() -> bool:
    """Return whether the main module of the program is being loaded here, only to find a function in it."""
    return _is_loading_main


def _queue_requests(source: BinaryIO, requests: SimpleQueue[bytes]) -> NoReturn:
    while len(head := source.read(MESSAGE_LENGTH.size)) == MESSAGE_LENGTH.size:
        requests.put(source.read(MESSAGE_LENGTH.unpack(head)[0]))
    os._exit(0)


def _answer_request(request: Mapping[str, Any], begin: Callable[[], object]) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": request["id"]}
    try:
        sys.path[:] = request["path"]
        with enter_trace_context(request["trace"]):
            output = to_output(_call_function(request, begin))
        answer |= {"output": dump_output(output), "details": read_plain(output.details).value}
        if len(answer["output"]) > LONGEST_REPLY // 2:
            raise ToolFailedError(f"The output is longer than {LONGEST_REPLY // 2:,} characters.")  # noqa: TRY301
    except BaseException as error:  # noqa: BLE001  # sys.exit() in the function is its failure, and does not end this process
        return {"id": request["id"], "error": _describe_error(error)}
    else:
        return answer
    finally:
        sys.stdout.flush()


def _describe_error(error: BaseException) -> dict[str, Any]:
    given = error.args
    if isinstance(error, OSError) and isinstance(error.filename, str):
        given = (error.errno, error.strerror, error.filename)  # which it does not count among them
    args = [arg if isinstance(arg, (str, int, float, bool, type(None))) else None for arg in given]
    is_deliberate = isinstance(error, ToolError)
    text = error.message if isinstance(error, ToolError) else words_of(error)
    return {"kind": type(error).__name__, "text": text, "args": args, "is_deliberate": is_deliberate}


def _call_function(request: Mapping[str, Any], begin: Callable[[], object]) -> Any:
    if request["main"] is not None:
        _load_main(*request["main"])
    function, schema = _import_function(request["module"], request["name"], is_raw=request["is_raw"])
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    if schema is None:
        args, kwargs = (json.loads(request["arguments"]),), {}
    else:
        arguments = schema.arguments.parse_json(request["arguments"])
        args, kwargs = ((), arguments) if schema.bind is None else schema.bind(arguments)
    begin()
    value = function(*args, **kwargs)
    if inspect.isawaitable(value):
        value = anyio.run(_await_value, value)
    if inspect.isgenerator(value):
        return _drain_generator(value)
    if inspect.isasyncgen(value):
        return anyio.run(_take_last, value)
    return value


@functools.cache
def _import_function(module: str, name: str, *, is_raw: bool) -> tuple[Callable[..., Any], Any]:
    function = find_function(importlib.import_module(module), name)
    if function is None:
        raise ToolFailedError(f"there is no function {name} in {module}")
    return function, None if is_raw else function_schema(function)


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


async def _await_value(value: Any) -> Any:
    return await value


def _drain_generator(values: Generator[Any, Any, Any]) -> Any:
    last: Any = None
    while True:
        try:
            last = next(values)
        except StopIteration as stop:
            return last if stop.value is None else stop.value


async def _take_last(values: AsyncIterator[Any]) -> Any:
    last: Any = None
    async for value in values:
        last = value
    return last
