"""The session of a plugin: started, described, called, and restarted when it has ended.

A plugin answers one call after the other, in their order, unless it has the extension ``concurrent``. If its answers
have the ``call_id`` of their call, a late or repeated one is dropped. If they don't, a late or repeated one could be
mistaken for the answer to another call: a process is ended after such an answer, so that each call has its own
process. A call is never repeated.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import anyio
import anyio.to_thread
from pydantic import BaseModel, Field, ValidationError, field_validator

from toolkit.backoff import backoff_pause
from toolkit.calls.output import redacted
from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import PluginError, ToolFailedError
from toolkit.foreign_text import escape_in_json, escape_in_name, escape_in_text
from toolkit.logs import get_logger
from toolkit.redaction import Redact
from toolkit.runtime.processes import LONGEST_LINE, LineProcess, LineTooLongError, SupervisedProcess
from toolkit.schema.nodes import is_array, is_object

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_RUN_EXIT_SECONDS = 0.1  # from the end of its output to its own


class PluginSession:
    """Keeps one plugin running and sends calls to it.

    Args:
        name: Its name in logs and errors.
        command: The program and its arguments.
        env: All of its environment.
        cwd: Where it is started.
        describe_timeout: Seconds that it may take to describe itself.
        redact: Redacts the plugin's secrets from its texts.

    Attributes:
        on_described: Awaited with each description after the first, before any call uses it; must not raise.
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
        self.on_described: Callable[[Description], Awaitable[object]] | None = None
        self._command = command
        self._env = env
        self._cwd = cwd
        self._describe_timeout = describe_timeout
        self._redact = redact
        self._tasks: TaskGroup | None = None
        self._current: PluginConversation | None = None
        self._last: PluginConversation | None = None
        self._starting = anyio.Lock()
        self._failures = PluginFailures()
        self._call_count = 0

    @property
    def is_concurrent(self) -> bool:
        """True where it takes a call while others run, as far as is known."""
        return self._last is not None and self._last.is_concurrent

    async def open(self, tasks: TaskGroup) -> Description:
        """Start the plugin in these tasks and return its description.

        Raises:
            PluginError: It can't be started or does not describe itself as it should.
        """
        self._tasks = tasks
        return cast("Description", (await self._start_process()).description)

    def close(self) -> None:
        """Let no call start the plugin again."""
        self._tasks = None

    async def prepare(self) -> None:
        """Have the plugin ready for a call: started, and done with the call before. Nothing has begun when this raises.

        Raises:
            ToolFailedError: It can't be started again.
        """
        try:
            conversation = await self._start_process()
            if not conversation.is_concurrent:
                await conversation.settle()
                await self._start_process()
        except PluginError as error:
            raise ToolFailedError(str(error)) from error

    async def call(self, tool: str, arguments: Mapping[str, Any], call_id: str, report: Report) -> ToolOutput:
        """Run a tool and return its output; `prepare` runs first, one call at a time.

        Args:
            tool: The tool, by the plugin's name for it.
            arguments: Its arguments.
            call_id: The call's id, for the plugin and for logs; a number and a random part make it unique.
            report: Takes updates.

        Raises:
            ToolFailedError: The plugin ended, or could not be started again; nothing was repeated.
        """
        try:
            conversation = await self._start_process()  # since `prepare` it may have ended
        except PluginError as error:
            raise ToolFailedError(str(error)) from error
        assert conversation.description is not None
        if tool not in [each.name for each in conversation.description.tools]:
            raise ToolFailedError(f"The plugin {self.name} was started again and has no tool '{tool}' anymore.")
        self._call_count += 1
        # An id that can't be guessed: an answer that names it was written after the call was received.
        call = PluginCall(f"{call_id or 'call'}-{self._call_count}.{secrets.token_hex(8)}", report)
        await conversation.call(tool, arguments, call, self._call_count)
        if call.failure is not None:
            raise ToolFailedError(call.failure)
        assert call.output is not None
        return call.output

    async def _start_process(self) -> PluginConversation:
        """Return the conversation with the process that runs, starting one where none does."""
        running = self._find_running()
        if running is not None:
            return running
        async with self._starting:
            if self._tasks is None:
                raise PluginError(f"plugin {self.name}: its tools are closed; use them inside of `async with`")
            running = self._find_running()
            if running is not None:
                return running
            if self._last is not None:
                await self._last.ended.wait()  # two must never be at work
            if self._failures.count:
                pause = backoff_pause(self._failures.count - 1, initial=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                await anyio.sleep(pause)
            started: PluginConversation | PluginError = await self._tasks.start(self._run_process)
            if isinstance(started, PluginError):
                self._failures.count += 1
                raise started
            is_first = self._last is None
            self._current = self._last = started
            if not is_first and self.on_described is not None and started.description is not None:
                await self.on_described(started.description)
            return started

    def _find_running(self) -> PluginConversation | None:
        """Return the conversation that a call may join; None where there is none, or it is out of step."""
        return None if self._current is None or self._current.is_dropped else self._current

    async def _run_process(self, *, task_status: TaskStatus[PluginConversation | PluginError]) -> None:
        """Run one process from its start to its end; failures are reported, never raised here."""
        try:
            process = await start_plugin(self.name, self._command, env=self._env, cwd=self._cwd, redact=self._redact)
        except PluginError as error:
            task_status.started(error)
            return
        conversation: PluginConversation | None = None
        problem: PluginError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                conversation = PluginConversation(
                    self.name,
                    process,
                    tasks.cancel_scope,
                    self._failures,
                    calls_before=self._call_count,
                    redact=self._redact,
                )
                tasks.start_soon(process.log_errors)
                tasks.start_soon(conversation.write_messages)
                problem = await conversation.describe(self._describe_timeout)
                if problem is not None:
                    task_status.started(problem)
                elif conversation.description is not None:
                    task_status.started(conversation)
                    await conversation.read_answers()
                    await process.has_ended_within(_RUN_EXIT_SECONDS)
                tasks.cancel_scope.cancel()
        finally:
            if self._current is conversation:
                self._current = None
            await process.end(at_once=conversation is not None and conversation.is_out_of_step)
            if conversation is not None:
                conversation.close()
        if problem is None and conversation is not None and conversation.description is None:
            task_status.started(conversation.explain_silence())


_logger = get_logger("toolkit.sources.plugin")

_LATE_SECONDS = 5.0  # that a late answer is waited for before the plugin gets the next call
_LONGEST_QUOTE, _LONGEST_LOOKED_AT = 200, 2_000
_MOST_COMPLAINTS = 20
_LONGEST_ANSWER_JOINED = 4 * 1024 * 1024
_LONG_TEXT = 30_000
_MOST_PARTS = 5_000
_OF_ANSWERS = frozenset({"call_id", "content", "error"})

Report = Callable[[ToolOutput], object]
"""Receives the output so far; must not wait."""


class PluginFailures:
    """How often in a row a plugin failed: the pause before it is started again grows with that."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class PluginCall:
    """A call that was sent, and its outcome."""

    __slots__ = ("answered", "call_id", "failure", "is_given_up", "output", "report")

    def __init__(self, call_id: str, report: Report) -> None:
        self.call_id = call_id
        self.report = report
        self.answered = anyio.Event()
        self.output: ToolOutput | None = None
        self.failure: str | None = None
        self.is_given_up = False


class PluginConversation:
    """A started process with the row of the calls that it was sent.

    Args:
        name: The plugin's name in logs and errors.
        process: The process.
        scope: Cancelled when the process is out of step, and is to be ended.
        failures: Counts those of the plugin, from one process to the next.
        calls_before: How many calls the plugin was sent before this process.
        redact: Redacts the plugin's secrets from its texts.

    Attributes:
        description: Its words about itself; None before.
        ended: Set when the process is gone.
        is_dropped: True if it gets no more calls: its further messages are ignored.
        is_out_of_step: True if that is so since it did what it should not.
    """

    def __init__(
        self,
        name: str,
        process: LineProcess,
        scope: anyio.CancelScope,
        failures: PluginFailures,
        *,
        calls_before: int,
        redact: Redact,
    ) -> None:
        self.process = process
        self.ended = anyio.Event()
        self.description: Description | None = None
        self.is_dropped = False
        self.is_out_of_step = False
        self._name = name
        self._scope = scope
        self._failures = failures
        self._last_number = calls_before
        self._redact = redact
        self._calls: deque[PluginCall] = deque()
        self._outbox: deque[bytes] = deque()
        self._more_to_write = anyio.Event()
        self._names_calls = False  # an answer had the id of its call
        self._sent = 0
        self._has_given_up = False
        self._descriptions_due = 0
        self._joined = JoinedLines(_LONGEST_ANSWER_JOINED)
        self._complaints = 0
        self._described = JoinedLines(LONGEST_DESCRIPTION)

    @property
    def is_concurrent(self) -> bool:
        """True where it takes a call while others run."""
        return self.description is not None and "concurrent" in self.description.extensions

    async def describe(self, timeout: float) -> PluginError | None:
        """Request its description, and return the problem, if any; an answer of several lines is accepted, too.

        It stays undescribed where it closes its output: `explain_silence` has the problem when it has ended.
        """
        self._send_message({"type": "describe"})
        try:
            with anyio.fail_after(timeout):
                while (line := await self.process.read()) is not None:
                    whole = self._described.add(line.decode("utf-8"))
                    if self._described.is_too_long:
                        return self._refuse_description(
                            f"its description has more than {LONGEST_DESCRIPTION:,} characters."
                            f"{self._quote_description()}"
                        )
                    if whole is None:
                        continue
                    self.description = await self._read_description(whole)
                    if self.description is not None:
                        return None
        except UnicodeDecodeError as error:
            return self._refuse_description(f"it {_describe_encoding(error)}")
        except LineTooLongError:
            return self._refuse_description(self._describe_long_line())
        except TimeoutError:
            return self._refuse_description(
                f"it did not describe itself within {timeout:g} s.{self._quote_description()} "
                'It must answer the line {"type":"describe"} with one line of JSON, and flush its output'
            )
        except PluginError as error:
            return error
        return None

    async def _read_description(self, text: str) -> Description | None:
        """Return the description that a text is, read in a thread where it is long; None if it is no JSON.

        Raises:
            PluginError: It is JSON, and no description.
        """

        def read() -> Description | None:
            try:
                value: object = json.loads(self._redact(text))
            except (ValueError, RecursionError):
                return None
            return read_description(self._name, value)

        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True) if len(text) > _LONG_TEXT else read()

    def explain_silence(self) -> PluginError:
        """Return why it has no description; when it has ended, with its last words."""
        ended = self.process.describe_end()
        return self._refuse_description(f"it did not describe itself and {ended}.{self._quote_description()}")

    def _quote_description(self) -> str:
        text = self._redact(self._described.text[:_LONGEST_LOOKED_AT]).strip()[:_LONGEST_QUOTE]
        return f" It wrote: {escape_in_text(text)}." if text else ""

    def _refuse_description(self, problem: str) -> PluginError:
        return PluginError(f"plugin {self._name}: {problem}")

    def _describe_long_line(self) -> str:
        return f"The plugin {self._name} wrote a line of more than {LONGEST_LINE:,} bytes and was ended."

    async def settle(self) -> None:
        """Wait for the rest of an abandoned call: until it is answered, or another message is."""
        if not self._calls:
            return
        # An answer may have been lost: who describes itself again has nothing left to do.
        self._descriptions_due += 1
        self._send_message({"type": "describe"})
        with anyio.move_on_after(_LATE_SECONDS):
            await self._calls[0].answered.wait()
        if self._calls:
            self.drop("does not answer")

    async def call(self, tool: str, arguments: Mapping[str, Any], call: PluginCall, number: int) -> None:
        """Send a call, and wait until it is answered or has failed; a cancellation abandons it."""
        assert self.description is not None
        self._last_number = number
        message: dict[str, Any] = {"type": "call", "call_id": call.call_id, "params": arguments}
        if not self.description.is_single:
            message["tool"] = tool
        self._sent += 1
        self._calls.append(call)
        self._send_message(message)
        try:
            await call.answered.wait()
        finally:
            if not call.answered.is_set():
                self._give_up_call(call)

    def _give_up_call(self, call: PluginCall) -> None:
        call.is_given_up = self._has_given_up = True
        _logger.warning("%s: call %s is given up without an answer", self._name, call.call_id)
        assert self.description is not None
        if "cancel" in self.description.extensions:
            self._send_message({"type": "cancel", "call_id": call.call_id})
        if self.is_concurrent:
            self._calls.remove(call)  # whose answer would be identified by its id
        elif not self._names_calls:
            self.drop("names no call in its answers, so that a late one could be taken for another")

    def drop(self, why: str) -> None:
        """End a process that is out of step; the next call starts another."""
        if not self.is_dropped:
            self.is_out_of_step = True
            self._failures.count += 1
            _logger.warning("%s: it %s; it is ended, and started again with the next call", self._name, why)
            self._retire_process()

    def _retire_process(self) -> None:
        self.is_dropped = True
        self._scope.cancel()

    def _send_message(self, message: Mapping[str, Any]) -> None:
        self._outbox.append(encode(message))
        self._more_to_write.set()

    async def write_messages(self) -> None:
        """Write queued messages until the process stops reading."""
        while True:
            self._more_to_write = anyio.Event()
            while self._outbox:
                line = self._outbox.popleft()
                try:
                    await self.process.write(line)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # its end is seen where it is read
            await self._more_to_write.wait()

    async def read_answers(self) -> None:
        """Read its messages until it closes its output."""
        try:
            while (line := await self.process.read()) is not None:
                await self._take_line(line)
            _logger.warning("plugin %s %s", self._name, self.process.describe_end())
        except LineTooLongError:
            self._fail_calls(f"{self._describe_long_line()} It was working on this, which may have taken effect.")
            self.drop("wrote a line that does not end")

    def close(self) -> None:
        """Fail the open calls when the process has ended."""
        if self._calls and not self.is_dropped:
            self._failures.count += 1
        ended = self.process.describe_end()
        self._fail_calls(f"The plugin {self._name} {ended}. It was working on this, which may have taken effect.")
        self.ended.set()

    async def _take_line(self, line: bytes) -> None:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            self._break_off(_describe_encoding(error))
            return
        message = await self._read_message(text)
        if self.is_dropped:
            return
        if message is not None and (message.is_answer or not self._joined.is_open):
            self._joined.clear()
            self._take_message(message)
        elif text.strip() and not await self._take_part(text):
            self._log_line(line)

    async def _take_part(self, line: str) -> bool:
        """Take a line of a message that is written over several; return False where it is none."""
        if not (self._joined.is_open or line.startswith("{")):
            return False
        whole = self._joined.add(line)
        if whole is None:
            if self._joined.is_too_long:
                self._joined.clear()
            return self._joined.is_open
        self._joined.clear()
        message = await self._read_message(whole, is_on_several_lines=True)
        if message is not None and not self.is_dropped:
            self._take_message(message)
        return message is not None

    async def _read_message(self, text: str, *, is_on_several_lines: bool = False) -> PluginMessage | None:
        """Return the message that a text is, if any, read in a thread where it is long."""
        read = partial(
            read_plugin_message, self._name, text, redact=self._redact, is_on_several_lines=is_on_several_lines
        )
        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True) if len(text) > _LONG_TEXT else read()

    def _take_message(self, message: PluginMessage) -> None:
        if self._descriptions_due and not message.is_answer and not message.is_update:
            self._descriptions_due -= 1
            self._lose_call()
            return
        call = self._find_call(message)
        if call is None:
            if not message.is_update:
                self._take_stray(message.call_id)
        elif message.is_update:
            if message.output is not None and not call.is_given_up:
                call.report(message.output)
        else:
            self._take_answer(call, message)

    def _lose_call(self) -> None:
        """Go on without the answer of an abandoned call: the plugin has described itself since, so it works on none."""
        if self._calls and self._calls[0].is_given_up:
            call = self._calls.popleft()
            self._log_complaint(lambda: f"call {call.call_id} was never answered")
            call.answered.set()

    def _find_call(self, message: PluginMessage) -> PluginCall | None:
        """Find the call that a message is about: by its id; without one, the only one that it can be about."""
        if message.call_id is not None:
            return next((call for call in self._calls if call.call_id == message.call_id), None)
        is_clear = not self._has_given_up if message.is_update else self._sent == 1
        return self._calls[0] if is_clear and len(self._calls) == 1 else None

    def _take_stray(self, call_id: object) -> None:
        """Handle an answer that matches no open call: if its call can be identified, it is dropped."""
        if call_id is not None and self._was_sent(call_id):
            self._log_complaint(lambda: f"an answer to no call is dropped: call {call_id} is over")
        elif call_id is not None and self._calls:
            self._break_off(
                f"answered a call with the id {json.dumps(call_id, ensure_ascii=False)[:80]}, which no call has"
            )
        elif self._calls:
            self._break_off("answered without the id of its call, though it was sent several")
        else:
            _logger.warning("%s: an answer to no call is dropped", self._name)
            self.drop("answered more often than it was called")

    def _was_sent(self, call_id: object) -> bool:
        number = call_id.rpartition("-")[2].partition(".")[0] if isinstance(call_id, str) else ""
        return len(number) < 20 and number.isdecimal() and 0 < int(number) <= self._last_number

    def _log_line(self, line: bytes) -> None:
        def describe() -> str:
            quote = escape_in_text(self._redact(line[:_LONGEST_LOOKED_AT].decode("utf-8", "replace"))[:_LONGEST_QUOTE])
            return f"a line outside the protocol is ignored: {quote}"

        self._log_complaint(describe)

    def _log_complaint(self, describe: Callable[[], str]) -> None:
        self._complaints += 1
        if self._complaints <= _MOST_COMPLAINTS:
            last = " (no more of this is logged)" if self._complaints == _MOST_COMPLAINTS else ""
            _logger.warning("%s: %s%s", self._name, describe(), last)

    def _break_off(self, problem: str) -> None:
        """Fail the open calls, and end the process: its answers can no longer be matched to calls."""
        self._fail_calls(f"The plugin {self._name} {problem}. It was working on this, which may have taken effect.")
        self.drop(problem)

    def _take_answer(self, call: PluginCall, message: PluginMessage) -> None:
        self._calls.remove(call)
        self._names_calls = message.call_id is not None
        self._failures.count = 0
        if not self._names_calls:
            self._retire_process()  # its next answer could be a second one to this call
        if call.is_given_up:
            _logger.warning("%s: a late answer is dropped: nobody waits for call %s", self._name, call.call_id)
        call.output, call.failure = message.output, message.failure
        call.answered.set()

    def _fail_calls(self, text: str) -> None:
        for call in self._calls:
            call.failure = text
            call.answered.set()
        self._calls.clear()


def _describe_encoding(error: UnicodeDecodeError) -> str:
    return f"wrote what is not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}"


async def start_plugin(
    name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, redact: Redact
) -> LineProcess:
    """Start a plugin, with nothing in its environment but `env`.

    Raises:
        PluginError: It can't be started; the message has the remedy.
    """
    try:
        process = await SupervisedProcess.start(command, env=env, cwd=cwd)
    except FileNotFoundError as error:
        raise PluginError(f"plugin {name}: {_explain_missing(command[0], cwd)}") from error
    except PermissionError as error:
        raise PluginError(
            f"plugin {name}: '{command[0]}' is not executable: run `chmod +x` on it, or start it by its "
            f"interpreter, as in plugin_tools('python3', ['{command[0]}'])"
        ) from error
    except OSError as error:
        raise PluginError(
            f"plugin {name}: '{command[0]}' can't be started ({error.strerror}): a script needs a first line such "
            "as #!/usr/bin/env python3, or its interpreter in front"
        ) from error
    except ValueError as error:
        raise PluginError(f"plugin {name}: it can't be started: its command or environment has a null byte") from error
    return LineProcess(name, process, redact=redact, logger=_logger)


def _explain_missing(program: str, cwd: Path | None) -> str:
    if cwd is not None and not cwd.is_dir():
        return f"there is no folder '{cwd}' to start it in"
    if Path(program).exists():
        return f"the first line of '{program}' names an interpreter that is not there"
    return f"there is no program '{program}'"


class JoinedLines:
    """Lines of JSON that may be one value together; takes time in proportion to their length.

    Args:
        most: The number of characters that are taken.

    Attributes:
        is_too_long: True where there were more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Forget the lines."""
        self.is_too_long = False
        self._lines: list[str] = []
        self._length = self._depth = 0

    @property
    def text(self) -> str:
        """The lines so far."""
        return "\n".join(self._lines)

    @property
    def is_open(self) -> bool:
        """True where a bracket is open behind the last line."""
        return self._depth > 0

    def add(self, line: str) -> str | None:
        """Add a line, and return all of them where it closes the last bracket, or where there was none to close.

        Brackets in texts don't count; a text of JSON ends on its line.
        """
        self._length += len(line) + 1
        self.is_too_long = self._length > self._most
        if self.is_too_long or not line.strip():
            return None
        # What was complete before and no JSON, stays so.
        could_be = self._depth > 0 or not self._lines
        self._lines.append(line)
        plain = _TEXTS.sub("", line)
        self._depth += sum(map(plain.count, "{[")) - sum(map(plain.count, "}]"))
        return self.text if could_be and self._depth <= 0 else None


_TEXTS = re.compile(r'"(?:[^"\\]++|\\.)*+"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginMessage:
    """A message of a plugin that is an object.

    Args:
        call_id: The id that it names, of any type; None where it names none.
        is_update: True if it says that it is one.
        is_answer: True if it has a field of an answer; a description has none.
        output: The output in it, without secrets.
        failure: Why it has none that can be used.
    """

    call_id: object
    is_update: bool
    is_answer: bool
    output: ToolOutput | None = None
    failure: str | None = None


def read_plugin_message(plugin: str, text: str, *, redact: Redact, is_on_several_lines: bool) -> PluginMessage | None:
    """Return the message that a text is; None if it is no JSON object."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not is_object(value):
        return None
    message = PluginMessage(
        call_id=value.get("call_id"),
        is_update=value.get("type") == "update",
        is_answer=not value.keys().isdisjoint(_OF_ANSWERS),
    )
    content: object = value.get("content")
    failure: str | None = None
    if is_on_several_lines:
        failure = f"The plugin {plugin} ran this, and answered on several lines: an answer must be one line of JSON."
    elif is_array(content) and len(content) > _MOST_PARTS:
        failure = f"The plugin {plugin} answered with more than {_MOST_PARTS:,} parts."
    if failure is not None:
        return replace(message, failure=failure)
    try:
        output = read_output(value)
        if output is not None:
            return replace(message, output=redacted(output, redact))
        quote = redact(json.dumps(value, ensure_ascii=False)[:_LONGEST_LOOKED_AT])[:_LONGEST_QUOTE]
    except RecursionError:
        return replace(message, failure=f"The plugin {plugin} answered with something that is nested too deeply.")
    return replace(message, failure=f"The plugin {plugin} answered with something else than 'content': {quote}")


_MEDIA_TYPES = ("mimeType", "mime_type", "MIMEType", "media_type")


MOST_TOOLS = 256
LONGEST_DESCRIPTION = 1024 * 1024
_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_SCHEMA = 256, 20_000, 200_000


class PluginToolDefinition(BaseModel):
    """One tool, as its plugin describes it."""

    name: Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]
    description: Annotated[str, Field(max_length=_LONGEST_TEXT)] = ""
    parameters: dict[str, Any] = Field(default_factory=dict[str, Any])

    @field_validator("parameters")
    @classmethod
    def _require_object(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        size = len(json.dumps(parameters, ensure_ascii=False))
        if size > _LONGEST_SCHEMA:
            raise ValueError(f"the schema has {size:,} characters, and no more than {_LONGEST_SCHEMA:,} are taken")
        return {"type": "object", **parameters}


class Description(BaseModel):
    """A plugin's words about itself.

    Args:
        tools: At least one.
        extensions: The extensions that it speaks.
        is_single: True where it described one tool without a list: then calls don't name it.
    """

    tools: Annotated[list[PluginToolDefinition], Field(min_length=1, max_length=MOST_TOOLS)]
    extensions: frozenset[Literal["concurrent", "updates", "cancel"]] = frozenset()
    is_single: bool = False


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as the line that it is on the wire."""
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def read_description(plugin: str, message: object) -> Description:
    """Read the answer to ``describe``.

    Raises:
        PluginError: It is not a message, or it is too large; the message names the problem.
    """
    is_single = is_object(message) and "tools" not in message
    try:
        if is_single:
            tool = PluginToolDefinition.model_validate(message)
            extensions = message.get("extensions", ()) if is_object(message) else ()
            description = Description.model_validate({"tools": [tool], "extensions": extensions, "is_single": True})
        else:
            description = Description.model_validate(message)
    except RecursionError as error:
        raise PluginError(f"plugin {plugin}: its description is nested too deeply") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"])) or "the whole"
        raise PluginError(
            f"plugin {plugin}: its description is wrong at {place}: {problem['msg']}. It wrote: {_show_part(message)}"
        ) from error
    names = [tool.name for tool in description.tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PluginError(f"plugin {plugin}: two tools have the name '{escape_in_name(twice[0])}': give each its own")
    return description


def read_output(message: Mapping[str, Any]) -> ToolOutput | None:
    """Read the answer to a call, or an update; None where it is neither."""
    content: Any = message.get("content")
    reason = _read_reason(message.get("error"))
    if content is None and reason:
        content = []
    if isinstance(content, str):
        content = [content]
    if not is_array(content):
        return None
    blocks = [_read_part(part) for part in content]
    if reason and reason not in "".join(block.text for block in blocks if isinstance(block, TextBlock)):
        blocks.insert(0, TextBlock(f"{reason}\n" if blocks else reason))
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    return ToolOutput(
        "".join(texts) if len(texts) == len(blocks) else tuple(blocks),
        details=message.get("details"),
        is_error=reason is not None,
    )


def _read_reason(error: object) -> str | None:
    """Return the reason of an answer's error, empty if it gives none; None if there is no error."""
    if not error:
        return None
    if is_object(error):
        message = error.get("message")
        return message if isinstance(message, str) else _show_part(error)
    return "" if error is True else error if isinstance(error, str) else _show_part(error)


def _read_part(part: Any) -> ContentBlock:
    """Return a part of an answer as a block; a block of an unknown kind is shown as JSON."""
    block = _read_known_part(part) if is_object(part) else None
    return block or TextBlock(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False))


def _read_known_part(part: Mapping[str, Any]) -> ContentBlock | None:
    kind, text, url = part.get("type"), part.get("text"), part.get("url")
    if kind == "text":
        return TextBlock(text) if isinstance(text, str) else None
    data = _decode_data(part.get("data"))
    if data is None and not isinstance(url, str):
        return None
    media_type = next((str(part[name]) for name in _MEDIA_TYPES if name in part), None)
    match kind:
        case "image":
            return ImageBlock(data, media_type=media_type or "image/png", url=url)
        case "audio":
            return None if data is None else AudioBlock(data, media_type=media_type or "audio/wav")
        case "file":
            name = str(part.get("name", "file"))
            return FileBlock(data, name=name, media_type=media_type or "application/octet-stream", url=url)
        case _:
            return None


def _decode_data(data: object) -> bytes | None:
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _show_part(value: object) -> str:
    text = escape_in_json(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= 200 else text[:200] + "..."
