"""The life of a process that runs isolated functions: it answers one request after another, until its input ends.

`toolkit.runtime.isolation` starts it and says what crosses. Whatever a function does, the process ends with its parent.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import runpy
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

import anyio

from toolkit.chat.output import dump_output, to_output, words_of
from toolkit.errors import ToolError, ToolFailedError
from toolkit.schema import function_schema
from toolkit.trace_context import enter_trace_context

__all__ = ["LONGEST_REPLY", "MESSAGE_LENGTH", "find_function", "is_loading_main", "serve"]

MESSAGE_LENGTH = struct.Struct(">Q")
"""How the length of a message stands before it, in both directions."""

LONGEST_REPLY = 256 * 1024 * 1024

_MAIN = "__mp_main__"  # what multiprocessing too calls the program's main module in a process that isn't its own
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
    threading.Thread(target=_queue_requests, args=(source, requests), daemon=True).start()

    def say(message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode()
        replies.write(MESSAGE_LENGTH.pack(len(data)) + data)
        replies.flush()

    while True:
        request: dict[str, Any] = json.loads(requests.get())
        say(_answer_request(request, partial(say, {"id": request["id"], "begun": True})))


def find_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Return the function under a name, or the one that the tool there was made of."""
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
        answer |= {"output": dump_output(output), "details": _to_plain_details(output.details)}
        if len(answer["output"]) > LONGEST_REPLY // 2:
            raise ToolFailedError(f"The output is longer than {LONGEST_REPLY // 2:,} characters.")  # noqa: TRY301
    except BaseException as error:  # noqa: BLE001  # sys.exit() in the function is its failure, not the end of this
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


def _to_plain_details(details: object) -> Any:
    """Return details as JSON has them; None where it can't."""
    if details is None:
        return None
    try:
        return json.loads(to_output(details).text)
    except ValueError:
        return None if to_output(details).is_error else to_output(details).text


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
