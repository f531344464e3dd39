"""One plugin as long as it is needed: described, called, and started again when it has ended.

A plugin answers in the order of its calls, one after the other, unless it speaks the extension ``concurrent``. Where
its answers name the ``call_id`` of their call, a late or repeated one is dropped. Where they don't, one that is late,
lost, doubled or for nobody could be taken for that of another call: such a plugin is ended, and the next call starts it
anew. A call is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from toolkit.backoff import backoff_pause
from toolkit.chat.output import ToolOutput
from toolkit.errors import PluginError, ToolFailedError
from toolkit.secrets import Redact
from toolkit.sources.plugin.conversation import PluginCall, PluginConversation, PluginFailures, Report
from toolkit.sources.plugin.program import start_plugin
from toolkit.sources.plugin.protocol import Description

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

__all__ = ["PluginSession"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_RUN_EXIT_SECONDS = 0.1  # from the end of its output to its own


class PluginSession:
    """Keeps one plugin running and takes calls to it.

    Args:
        name: Its name in logs and errors.
        command: The program and its arguments.
        env: All of its environment.
        cwd: Where it is started.
        describe_timeout: Seconds that it may take to describe itself.
        redact: Strikes the secrets that it is given out of what it says.

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
        """Start the plugin in these tasks and return what it says of itself.

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
        """Have a tool run and return its output; `prepare` comes first, and one call after the other.

        Args:
            tool: The tool, by the plugin's name for it.
            arguments: Its arguments.
            call_id: The call's id, for the plugin and for logs; a number makes it its own.
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
        call = PluginCall(f"{call_id or 'call'}-{self._call_count}", report)
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
                self.on_described(started.description)
            return started

    def _find_running(self) -> PluginConversation | None:
        """Return the conversation that a call may join; None where there is none, or it is out of step."""
        return None if self._current is None or self._current.is_dropped else self._current

    async def _run_process(self, *, task_status: TaskStatus[PluginConversation | PluginError]) -> None:
        """Run one process from its start to its end; what is wrong with it is told, never raised here."""
        try:
            process = await start_plugin(self.name, self._command, env=self._env, cwd=self._cwd, redact=self._redact)
        except PluginError as error:
            task_status.started(error)
            return
        conversation: PluginConversation | None = None
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
                task_status.started(problem or conversation)
                if problem is None:
                    await conversation.read_answers()
                await process.has_ended_within(_RUN_EXIT_SECONDS)
                tasks.cancel_scope.cancel()
        finally:
            if self._current is conversation:
                self._current = None
            await process.end(at_once=conversation is not None and conversation.is_dropped)
            if conversation is not None:
                conversation.close()
