"""One plugin as long as it is needed: described, called, and started again when it has ended.

A plugin answers in the order of its calls and says no id, unless it speaks the extension ``concurrent``. So a call that
nobody waits for anymore keeps its place in the row: its answer, when it comes late, is recognised by that and dropped.
A plugin that lets two calls in a row go by without a word is ended, and the next call starts it anew.
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
from toolkit.errors import PluginError, ToolFailedError
from toolkit.secrets import Redact
from toolkit.sources.plugin.program import start_plugin
from toolkit.sources.plugin.protocol import Description, encode, read_description, read_output
from toolkit.sources.process import LONGEST_LINE, LineProcess, LineTooLongError
from toolkit.tools.output import ToolOutput
from toolkit.tools.secrecy import redacted

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

__all__ = ["PluginSession"]

_logger = logging.getLogger("toolkit.plugins")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_MOST_UNANSWERED = 2
_LONGEST_QUOTE, _LONGEST_LOOKED_AT = 200, 2_000


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

    __slots__ = ("calls", "description", "outbox", "process", "scope")

    def __init__(self, process: LineProcess, scope: anyio.CancelScope) -> None:
        self.process = process
        self.scope = scope
        self.calls: deque[_Call] = deque()
        self.outbox: deque[bytes] = deque()
        self.description: Description | None = None


class PluginSession:
    """Keeps one plugin running and takes calls to it.

    Args:
        name: What logs and errors call it.
        command: The program and its arguments.
        env: Added to this process's environment.
        cwd: Where it is started.
        describe_timeout: Seconds that it may take to describe itself.
        redact: What strikes the secrets that it is given out of what it says.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        describe_timeout: float,
        redact: Redact,
    ) -> None:
        self.name = name
        self._command = command
        self._env = env
        self._cwd = cwd
        self._describe_timeout = describe_timeout
        self._redact = redact
        self._tasks: TaskGroup | None = None
        self._running: _Running | None = None
        self._starting = anyio.Lock()
        self._turn = anyio.Lock()
        self._more_to_write = anyio.Event()
        self._failures = 0
        self._next_number = 0

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

    async def call(self, tool: str, arguments: Mapping[str, Any], call_id: str, report: Report) -> ToolOutput:
        """Have a tool run and return its output.

        Args:
            tool: Which one, by the plugin's name for it.
            arguments: Its arguments.
            call_id: What the call is known by, in logs too; a number makes it its own.
            report: Takes updates.

        Raises:
            ToolFailedError: The plugin ended, or could not be started again; nothing was repeated.
        """
        try:
            running = await self._started()
            assert running.description is not None
            if "concurrent" in running.description.extensions:
                return await self._exchange(running, tool, arguments, call_id, report)
            async with self._turn:  # meanwhile it may have ended
                return await self._exchange(await self._started(), tool, arguments, call_id, report)
        except PluginError as error:
            raise ToolFailedError(str(error)) from error

    async def _exchange(
        self, running: _Running, tool: str, arguments: Mapping[str, Any], call_id: str, report: Report
    ) -> ToolOutput:
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
        extensions = running.description.extensions
        if "cancel" in extensions:
            self._write(running, {"type": "cancel", "call_id": call.call_id})
        if "concurrent" in extensions:
            running.calls.remove(call)  # whose answer would be told by its id
        elif sum(each.is_given_up for each in running.calls) >= _MOST_UNANSWERED:
            _logger.warning("%s: it answers no more and is started again with the next call", self.name)
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
                if self._failures:
                    pause = backoff_pause(self._failures - 1, initial=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                    await anyio.sleep(pause)
                started: _Running | PluginError = await self._tasks.start(self._run)
                if isinstance(started, PluginError):
                    self._failures += 1
                    raise started
                self._running = started
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
            await process.end()
            if running is not None:
                self._close(running)

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
            _logger.warning(text)
            self._fail_all(running, text)

    async def _describe(self, running: _Running) -> PluginError | None:
        """Ask it what it is; one that writes its answer over several lines is understood, too."""
        self._write(running, {"type": "describe"})
        process, said = running.process, ""
        try:
            with anyio.fail_after(self._describe_timeout):
                while (line := await process.read()) is not None:
                    said += self._redact(line.decode("utf-8", "replace")) + "\n"
                    try:
                        value: object = json.loads(said)
                    except (ValueError, RecursionError):
                        continue
                    running.description = read_description(self.name, value)
                    return None
                await process.ended_within(_FIRST_PAUSE)
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
        try:
            said: object = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            if line.strip():
                quote = self._redact(line[:_LONGEST_LOOKED_AT].decode("utf-8", "replace"))[:_LONGEST_QUOTE]
                _logger.warning("%s: what it wrote is not of the protocol and is ignored: %s", self.name, quote)
            return
        message = cast("dict[str, Any]", said)
        call = self._call_of(running, message)
        if call is None:
            _logger.warning("%s: an answer to no call is dropped", self.name)
        elif message.get("type") == "update":
            with suppress(RecursionError):  # what is nested so deeply can't be shown
                self._update(call, message)
        else:
            self._answer(running, call, message)

    def _call_of(self, running: _Running, message: Mapping[str, Any]) -> _Call | None:
        """Find the call that a message is about: by its id, else the one that is longest under way."""
        call_id = message.get("call_id")
        if call_id is not None:
            return next((call for call in running.calls if call.call_id == call_id), None)
        assert running.description is not None
        if "concurrent" in running.description.extensions and len(running.calls) != 1:
            return None
        return running.calls[0] if running.calls else None

    def _update(self, call: _Call, message: Mapping[str, Any]) -> None:
        output = read_output(message)
        if output is not None and not call.is_given_up:
            call.report(redacted(output, self._redact))

    def _answer(self, running: _Running, call: _Call, message: Mapping[str, Any]) -> None:
        running.calls.remove(call)
        self._failures = 0
        if call.is_given_up:
            _logger.warning("%s: a late answer is dropped: nobody waits for call %s", self.name, call.call_id)
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
        if running.calls:
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
