"""One plugin as long as it is needed: described, called, and started again when it has ended.

A plugin answers in the order of its calls, one after the other, unless it speaks the extension ``concurrent``. Where
its answers name the ``call_id`` of their call, a late or repeated one is dropped. Where they don't, one that is late,
lost, doubled or for nobody could be taken for that of another call: such a plugin is ended, and the next call starts it
anew. A call is never repeated.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from toolkit.backoff import backoff_pause
from toolkit.calls.secrecy import redacted
from toolkit.chat.output import ToolOutput
from toolkit.errors import PluginError, ToolFailedError
from toolkit.secrets import Redact
from toolkit.sources.plugin.program import start_plugin
from toolkit.sources.plugin.protocol import LONGEST_DESCRIPTION, Description, encode, read_description, read_output
from toolkit.sources.process import LONGEST_LINE, LineProcess, LineTooLongError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

__all__ = ["PluginSession"]

_logger = logging.getLogger("toolkit.plugins")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LATE_SECONDS = 5.0  # that a late answer is waited for before the plugin gets the next call
_QUIET_SECONDS = 0.002  # after an answer without an id: a second one that comes with it is seen before the next call
_LONGEST_QUOTE, _LONGEST_LOOKED_AT = 200, 2_000
_MOST_COMPLAINTS = 20
_EVERY_LINE_TRIED = 64 * 1024


Report = Callable[[ToolOutput], object]
"""Takes what there is so far of an output; must not wait."""


class _Call:
    """A call that was sent, and what became of it."""

    __slots__ = ("answered", "call_id", "failure", "is_given_up", "output", "report")

    def __init__(self, call_id: str, report: Report) -> None:
        self.call_id = call_id
        self.report = report
        self.answered = anyio.Event()
        self.output: ToolOutput | None = None
        self.failure: str | None = None
        self.is_given_up = False


class _Running:
    """A started process with the row of its calls."""

    __slots__ = (
        "answered_at",
        "calls",
        "complaints",
        "description",
        "ended",
        "is_dropped",
        "names_calls",
        "outbox",
        "process",
        "scope",
    )

    def __init__(self, process: LineProcess, scope: anyio.CancelScope) -> None:
        self.process = process
        self.scope = scope
        self.ended = anyio.Event()
        self.calls: deque[_Call] = deque()
        self.outbox: deque[bytes] = deque()
        self.description: Description | None = None
        self.names_calls = False  # an answer had the id of its call
        self.is_dropped = False
        self.answered_at = 0.0
        self.complaints = 0

    @property
    def is_concurrent(self) -> bool:
        return self.description is not None and "concurrent" in self.description.extensions


class PluginSession:
    """Keeps one plugin running and takes calls to it.

    Args:
        name: What logs and errors call it.
        command: The program and its arguments.
        env: All of its environment.
        cwd: Where it is started.
        describe_timeout: Seconds that it may take to describe itself.
        redact: What strikes the secrets that it is given out of what it says.

    Attributes:
        on_described: Told of each description after the first, before any call is made by it; must not raise.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        describe_timeout: float,
        redact: Redact,
    ) -> None:
        self.name = name
        self.on_described: Callable[[Description], object] | None = None
        self._command = command
        self._env = env
        self._cwd = cwd
        self._describe_timeout = describe_timeout
        self._redact = redact
        self._tasks: TaskGroup | None = None
        self._running: _Running | None = None
        self._last: _Running | None = None
        self._starting = anyio.Lock()
        self._more_to_write = anyio.Event()
        self._failures = 0
        self._next_number = 0

    @property
    def is_concurrent(self) -> bool:
        """Whether it takes a call while others run, as far as is known."""
        return self._last is not None and self._last.is_concurrent

    async def open(self, tasks: TaskGroup) -> Description:
        """Start the plugin in these tasks and return what it says of itself.

        Raises:
            PluginError: It can't be started or does not describe itself as it should.
        """
        self._tasks = tasks
        return cast("Description", (await self._started()).description)

    def close(self) -> None:
        """Let no call start the plugin again."""
        self._tasks = None

    async def prepare(self) -> None:
        """Have the plugin ready for a call: started, and done with the call before. Nothing has begun when this raises.

        Raises:
            ToolFailedError: It can't be started again.
        """
        try:
            running = await self._started()
            if not running.is_concurrent:
                await self._settle(running)
                await self._started()
        except PluginError as error:
            raise ToolFailedError(str(error)) from error

    async def _settle(self, running: _Running) -> None:
        """Wait for what is still to come of a call that was given up, and look whether an answer came twice."""
        if running.calls:
            with anyio.move_on_after(_LATE_SECONDS):
                await running.calls[0].answered.wait()
            if running.calls:
                self._drop(running, "does not answer")
        elif not running.names_calls:
            await anyio.sleep(max(0.0, running.answered_at + _QUIET_SECONDS - anyio.current_time()))
            if running.process.has_begun_line:
                self._drop(running, "wrote half of a line that nobody asked for")

    async def call(self, tool: str, arguments: Mapping[str, Any], call_id: str, report: Report) -> ToolOutput:
        """Have a tool run and return its output; `prepare` comes first, and one call after the other.

        Args:
            tool: Which one, by the plugin's name for it.
            arguments: Its arguments.
            call_id: What the call is known by, in logs too; a number makes it its own.
            report: Takes updates.

        Raises:
            ToolFailedError: The plugin ended, or could not be started again; nothing was repeated.
        """
        try:
            running = await self._started()  # since `prepare` it may have ended
        except PluginError as error:
            raise ToolFailedError(str(error)) from error
        description = running.description
        assert description is not None
        if tool not in [each.name for each in description.tools]:
            raise ToolFailedError(f"The plugin {self.name} was started again and has no tool '{tool}' anymore.")
        self._next_number += 1
        call = _Call(f"{call_id or 'call'}-{self._next_number}", report)
        message: dict[str, Any] = {"type": "call", "call_id": call.call_id, "params": arguments}
        if not description.is_single:
            message["tool"] = tool
        running.calls.append(call)
        self._write(running, message)
        try:
            await call.answered.wait()
        finally:
            if not call.answered.is_set():
                self._give_up(running, call)
        if call.failure is not None:
            raise ToolFailedError(call.failure)
        assert call.output is not None
        return call.output

    def _give_up(self, running: _Running, call: _Call) -> None:
        call.is_given_up = True
        _logger.warning("%s: call %s is given up without an answer", self.name, call.call_id)
        assert running.description is not None
        if "cancel" in running.description.extensions:
            self._write(running, {"type": "cancel", "call_id": call.call_id})
        if running.is_concurrent:
            running.calls.remove(call)  # whose answer would be told by its id
        elif not running.names_calls:
            self._drop(running, "names no call in its answers, so that a late one could be taken for another")

    def _drop(self, running: _Running, why: str) -> None:
        """End a process that is out of step; the next call starts another."""
        if not running.is_dropped:
            running.is_dropped = True
            self._failures += 1
            _logger.warning("%s: it %s; it is ended, and started again with the next call", self.name, why)
            if self._running is running:
                self._running = None
            running.scope.cancel()

    def _write(self, running: _Running, message: Mapping[str, Any]) -> None:
        running.outbox.append(encode(message))
        self._more_to_write.set()

    # the process

    async def _started(self) -> _Running:
        if self._running is not None:
            return self._running
        async with self._starting:
            if self._tasks is None:
                raise PluginError(f"plugin {self.name}: its tools are closed; use them inside of `async with`")
            if self._running is None:
                if self._last is not None:
                    await self._last.ended.wait()  # two must never be at work
                if self._failures:
                    pause = backoff_pause(self._failures - 1, initial=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                    await anyio.sleep(pause)
                started: _Running | PluginError = await self._tasks.start(self._run)
                if isinstance(started, PluginError):
                    self._failures += 1
                    raise started
                is_first = self._last is None
                self._running = self._last = started
                if not is_first and self.on_described is not None and started.description is not None:
                    self.on_described(started.description)
            return self._running

    async def _run(self, *, task_status: TaskStatus[_Running | PluginError]) -> None:
        """Run one process from its start to its end; what is wrong with it is told, never raised here."""
        try:
            process = await start_plugin(self.name, self._command, env=self._env, cwd=self._cwd, redact=self._redact)
        except PluginError as error:
            task_status.started(error)
            return
        running: _Running | None = None
        try:
            async with anyio.create_task_group() as tasks:
                running = _Running(process, tasks.cancel_scope)
                tasks.start_soon(process.log_errors)
                tasks.start_soon(self._write_all, running)
                await self._read(running, task_status)
                await process.ended_within(_FIRST_PAUSE)
                tasks.cancel_scope.cancel()
        finally:
            if self._running is running:
                self._running = None
            await process.end(at_once=running is not None and running.is_dropped)
            if running is not None:
                self._close(running)
                running.ended.set()

    async def _write_all(self, running: _Running) -> None:
        while True:
            self._more_to_write = anyio.Event()
            while running.outbox:
                line = running.outbox.popleft()
                try:
                    await running.process.write(line)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # its end is seen where it is read
            await self._more_to_write.wait()

    async def _read(self, running: _Running, task_status: TaskStatus[_Running | PluginError]) -> None:
        process = running.process
        problem: PluginError | None = None
        try:
            problem = await self._describe(running)
            task_status.started(problem or running)
            if problem is not None:
                return
            while (line := await process.read()) is not None:
                self._take(running, line)
            _logger.warning("plugin %s %s", self.name, process.describe_end())
        except LineTooLongError:
            text = f"The plugin {self.name} wrote a line of more than {LONGEST_LINE:,} bytes and was ended."
            if running.description is None:
                task_status.started(PluginError(f"plugin {self.name}: {text}"))
                return
            self._fail_all(running, f"{text} It was working on this, which may have taken effect.")
            self._drop(running, "wrote a line that does not end")

    async def _describe(self, running: _Running) -> PluginError | None:
        """Ask it what it is; one that writes its answer over several lines is understood, too."""
        self._write(running, {"type": "describe"})
        process, said = running.process, ""
        try:
            with anyio.fail_after(self._describe_timeout):
                while (line := await process.read()) is not None:
                    said += self._redact(line.decode("utf-8")) + "\n"
                    if len(said) > LONGEST_DESCRIPTION:
                        return PluginError(
                            f"plugin {self.name}: what it says of itself has more than {LONGEST_DESCRIPTION:,} "
                            f"characters.{_quoted(said)}"
                        )
                    if len(said) > _EVERY_LINE_TRIED and not line.startswith((b"{", b"}")):
                        continue  # to read it anew with each line would take for ever
                    try:
                        value: object = json.loads(said)
                    except (ValueError, RecursionError):
                        continue
                    running.description = read_description(self.name, value)
                    return None
                await process.ended_within(_FIRST_PAUSE)
        except UnicodeDecodeError as error:
            return PluginError(f"plugin {self.name}: what it says of itself {_describe_encoding(error)}")
        except TimeoutError:
            return PluginError(
                f"plugin {self.name}: it did not describe itself within {self._describe_timeout:g} s.{_quoted(said)} "
                'It must answer the line {"type":"describe"} with one line of JSON, and flush its output'
            )
        except PluginError as error:
            return error
        return PluginError(
            f"plugin {self.name}: it did not describe itself and {process.describe_end()}.{_quoted(said)}"
        )

    # its answers

    def _take(self, running: _Running, line: bytes) -> None:
        if running.is_dropped:
            return
        try:
            said: object = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            self._break(running, _describe_encoding(error))
            return
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            if line.strip():
                quote = self._redact(line[:_LONGEST_LOOKED_AT].decode("utf-8", "replace"))[:_LONGEST_QUOTE]
                self._complain(running, f"what it wrote is not of the protocol and is ignored: {quote}")
            return
        message = cast("dict[str, Any]", said)
        is_update = message.get("type") == "update"
        call = self._call_of(running, message)
        if call is None:
            if not is_update:
                self._take_stray(running, message)
        elif is_update:
            with suppress(RecursionError):  # what is nested so deeply can't be shown
                self._update(call, message)
        else:
            self._answer(running, call, message)

    def _call_of(self, running: _Running, message: Mapping[str, Any]) -> _Call | None:
        """Find the call that a message is about: by its id, else the one that is under way."""
        call_id = message.get("call_id")
        if call_id is not None:
            return next((call for call in running.calls if call.call_id == call_id), None)
        return running.calls[0] if len(running.calls) == 1 else None

    def _take_stray(self, running: _Running, message: Mapping[str, Any]) -> None:
        """Take an answer to no call that is under way: where it can be told whose it is, it is dropped."""
        call_id = message.get("call_id")
        if call_id is not None and self._was_sent(call_id):
            self._complain(running, f"an answer to no call is dropped: call {call_id} is over")
        elif call_id is not None and running.calls:
            self._break(running, f"answered a call with the id {_shown_id(call_id)}, which no call has")
        elif running.calls:
            self._break(running, "answered without the id of a call while several ran")
        else:
            _logger.warning("%s: an answer to no call is dropped", self.name)
            self._drop(running, "answered more often than it was called")

    def _was_sent(self, call_id: object) -> bool:
        number = call_id.rpartition("-")[2] if isinstance(call_id, str) else ""
        return len(number) < 20 and number.isdecimal() and 0 < int(number) <= self._next_number

    def _complain(self, running: _Running, problem: str) -> None:
        running.complaints += 1
        if running.complaints <= _MOST_COMPLAINTS:
            last = " (no more of this is logged)" if running.complaints == _MOST_COMPLAINTS else ""
            _logger.warning("%s: %s%s", self.name, problem, last)

    def _break(self, running: _Running, problem: str) -> None:
        """Fail what is under way, and end the process: nobody knows anymore what its answers are about."""
        self._fail_all(
            running, f"The plugin {self.name} {problem}. It was working on this, which may have taken effect."
        )
        self._drop(running, problem)

    def _update(self, call: _Call, message: Mapping[str, Any]) -> None:
        output = read_output(message)
        if output is not None and not call.is_given_up:
            call.report(redacted(output, self._redact))

    def _answer(self, running: _Running, call: _Call, message: Mapping[str, Any]) -> None:
        running.calls.remove(call)
        running.answered_at = anyio.current_time()
        running.names_calls = message.get("call_id") is not None
        self._failures = 0
        if call.is_given_up:
            _logger.warning("%s: a late answer is dropped: nobody waits for call %s", self.name, call.call_id)
            call.answered.set()
            return
        try:
            output = read_output(message)
            if output is not None:
                call.output = redacted(output, self._redact)
            else:
                quote = self._redact(json.dumps(message, ensure_ascii=False))[:_LONGEST_QUOTE]
                call.failure = f"The plugin {self.name} answered with something else than 'content': {quote}"
        except RecursionError:
            call.failure = f"The plugin {self.name} answered with something that is nested too deeply."
        call.answered.set()

    def _close(self, running: _Running) -> None:
        if running.calls and not running.is_dropped:
            self._failures += 1
        ended = running.process.describe_end()
        self._fail_all(running, f"The plugin {self.name} {ended}. It was working on this, which may have taken effect.")

    def _fail_all(self, running: _Running, text: str) -> None:
        for call in running.calls:
            call.failure = text
            call.answered.set()
        running.calls.clear()


def _quoted(said: str) -> str:
    return f" It wrote: {said.strip()[:_LONGEST_QUOTE]}." if said.strip() else ""


def _shown_id(call_id: object) -> str:
    return json.dumps(call_id, ensure_ascii=False)[:80]


def _describe_encoding(error: UnicodeDecodeError) -> str:
    return f"wrote what is not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}"
