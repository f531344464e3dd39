"""Functions in processes of their own, which can be killed, as no thread can.

Here is the side of the caller; `toolkit.runtime.isolated_worker` is the other one. What crosses in both directions is
JSON. A request is the function's place (module and qualified name) and its arguments; a reply is the output that its
value makes, or what was raised, in words. What the function prints goes to the standard error, and its standard input
is empty. A process serves one call after another, and is ended when it says anything else than its answer; all of an
event loop end with it, and each ends itself when its parent is gone.

`anyio.to_process` does not do the same. It unpickles what the other process says, so that a function gone wrong can
have this one run anything; it kills the process alone, not what that started; it runs the program's main module again
where that is not guarded; it can't tell a call that waits from one that has begun, which decides whether a cancelled
call may have taken effect; and it takes what an earlier call wrote late for the answer of the next.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import anyio
from anyio.lowlevel import RunVar
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import ValidationError

from toolkit.chat.output import ToolOutput, load_output
from toolkit.errors import (
    ConfigurationError,
    InvalidArgumentsError,
    ToolCancelledError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
)
from toolkit.runtime.isolated_worker import LONGEST_REPLY, MESSAGE_LENGTH, find_function, is_loading_main, serve
from toolkit.runtime.processes import NO_PATIENCE, SupervisedProcess, describe_end
from toolkit.schema.nodes import is_object
from toolkit.trace_context import inject_trace_context

__all__ = ["IsolatedError", "check_isolated", "run_isolated"]

_LONGEST_ERROR_NAME = 100
_REPLY_EXIT_SECONDS = 1.0  # from the end of its output to the end of a process that ends by itself


def check_isolated(function: Callable[..., Any]) -> None:
    """Check that another process could find a function: by its module and name.

    Raises:
        ConfigurationError: It is not a function at the top of a module that has a file; says why, and what to do.
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
    """An error that a function raised in its process, of a class that is not made anew; it has that class's name."""


async def run_isolated(
    function: Callable[..., Any],
    arguments: str,
    *,
    is_raw: bool = False,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> ToolOutput:
    """Call a function in another process and return the output that its value makes there.

    An asynchronous function is run to its end there, in an event loop of its own, and a generator is drained: its last
    value, or what it returns, is the value. When this is cancelled the process is killed, and all that it started in
    its process group, before the cancellation goes on. As many run at once as the machine has processors, and at least
    four; more wait.

    Args:
        function: One that `check_isolated` let pass.
        arguments: A JSON object, validated and turned into what the function's hints promise in the other process.
        is_raw: True where the function takes that object as it is, as one dict.
        waiting: Entered until the function is about to be called.

    Raises:
        ConfigurationError: Its module holds another function under its name.
        ToolFailedError: The process ended before it replied, or wrote something else than a reply.
        Exception: The function raised it: a built-in exception or one of toolkit's as it is, another one as an
            `IsolatedError` of its name.
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
    pool = _process_pools.get(None)
    if pool is None:
        pool = _WorkerPool()
        _process_pools.set(pool)
    return _read_isolated_reply(await pool.ask(request, waiting), function)


class _UnguardedMainExit(SystemExit):
    """Ends the loading of a main module that is not guarded: it must not run its program here."""


def _locate_main() -> tuple[str | None, str]:
    """Return by what name (with ``python -m``) and from what file the main module can be loaded again."""
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
    """Return an exception of ours, or a built-in one, where it can be made of plain values; else one of that name."""
    if is_deliberate:
        known = _TOOL_ERRORS.get(kind)
        return ToolFailedError(text) if known is None else known(text)
    made: Any = getattr(builtins, kind, None)
    if isinstance(made, type) and issubclass(made, Exception) and not issubclass(made, BaseExceptionGroup):
        try:
            error: Exception = made(*args)
            if str(error) == text:
                return error
        except Exception:  # noqa: BLE001 - it takes other arguments: then words must do
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
    """The processes of one event loop, which ends them."""

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
                process = await self._take_process()
                exchange = _Exchange(process, request)
                reply = await exchange.begin()
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


class _Exchange:
    """One request to a process, and what it says to that."""

    def __init__(self, process: SupervisedProcess, request: dict[str, Any]) -> None:
        self._process = process
        self._name = str(request["name"])
        self._number = secrets.token_hex(8)  # what a call before has written late is not taken for an answer
        self._request = json.dumps({**request, "id": self._number}).encode()
        self._replies = BufferedByteReceiveStream(process.output)

    @property
    def is_over(self) -> bool:
        """True where nothing came after the answer, so that the process can serve another call."""
        return not self._replies.buffer

    async def begin(self) -> Mapping[str, Any]:
        """Send the request and return the first that comes: that the function is about to be called, or an error."""
        try:
            await self._process.input.send(MESSAGE_LENGTH.pack(len(self._request)) + self._request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._describe_end() from error
        return await self.next()

    async def next(self) -> Mapping[str, Any]:
        try:
            (length,) = MESSAGE_LENGTH.unpack(await self._replies.receive_exactly(MESSAGE_LENGTH.size))
            if length > LONGEST_REPLY:
                raise _refuse_reply(self._name)
            said: Any = json.loads(await self._replies.receive_exactly(length))
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._describe_end() from error
        except (ValueError, RecursionError) as error:
            raise _refuse_reply(self._name) from error
        if not is_object(said) or said.get("id") != self._number:
            raise _refuse_reply(self._name)
        return said

    async def _describe_end(self) -> ToolFailedError:
        await self._process.has_ended_within(_REPLY_EXIT_SECONDS)
        return ToolFailedError(
            f"The process {describe_end(self._process.exit_code)} before the call had ended. It may have taken effect."
        )


_process_pools: RunVar[_WorkerPool] = RunVar("toolkit_isolation")
