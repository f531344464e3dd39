"""A conversation with a model that has tools: one turn after the other, each shown as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.calls.approval import ApprovalHook
from toolkit.calls.events import (
    ToolCallRefused,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.chat import Message, Provider, ReasoningDelta, SystemMessage, TextDelta, Usage, UserMessage
from toolkit.cli.screen import Screen
from toolkit.cli.terminal import Terminal
from toolkit.errors import ToolkitError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.event_json import dump_event
from toolkit.loop.events import LoopEvent, ProviderRetried
from toolkit.loop.handle import ToolLoopHandle
from toolkit.loop.middleware import Middleware
from toolkit.loop.outcome import (
    Aborted,
    Cancelled,
    Complete,
    LoopDetected,
    MaxIterations,
    TerminationReason,
    UsageLimit,
)
from toolkit.tools.registry import ToolRegistry
from toolkit.visible_text import shorten_to_line

__all__ = ["ModelConversation", "write_usage"]

_MOST_TURNS = 50
_LONGEST_LINE_SHOWN = 400


class ModelConversation:
    """The conversation so far, and its next turn.

    Args:
        provider: The model.
        registry: The tools.
        screen: Shows what happens.
        terminal: Has Ctrl-C end the turn that runs.
        approve: Decides on calls.
        instructions: The system prompt; empty for none.
        messages: The earlier messages.
        middleware: The middleware around each turn.

    Attributes:
        messages: The transcript: valid, also after a turn that was ended.
        usage: The usage of all turns, those that were undone too.
        requests: How often the model was asked.
        is_interrupted: True where Ctrl-C ended the last turn.
    """

    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Any],
        *,
        screen: Screen,
        terminal: Terminal,
        approve: ApprovalHook,
        instructions: str = "",
        messages: Sequence[Message] = (),
        middleware: Sequence[Middleware[Any]] = (),
    ) -> None:
        self._provider, self.registry = provider, registry
        self._screen, self._terminal = screen, terminal
        self._config: ToolLoopConfig[None] = ToolLoopConfig(
            max_iterations=_MOST_TURNS, on_tool_call=approve, keep_partial=True, middleware=middleware
        )
        self.messages: list[Message] = list(messages)
        if instructions:
            self.messages = [each for each in self.messages if not isinstance(each, SystemMessage)]
            self.messages.insert(0, SystemMessage(instructions))
        self.usage: Usage | None = None
        self.requests = 0
        self.is_interrupted = False

    async def ask(self, question: str) -> bool:
        """Take a turn, and return True where it ended with the model's answer.

        Ctrl-C ends it and keeps what was said and done. After a failure the transcript is what it was before.
        """
        handle: ToolLoopHandle[Any, None] = ToolLoopHandle(
            self._provider, self.registry, [*self.messages, UserMessage(question)], ctx=None, config=self._config
        )
        try:
            with self._terminal.on_interrupt(handle.cancel):
                async with handle.stream() as events:
                    async for event in events:
                        self._show_event(event)
        except ToolkitError as error:
            self._count_usage(handle)
            self._screen.end_line()
            if self._screen.is_json:  # `Failed` has told it
                return False
            self._screen.note(" ".join(str(error).split()), "bad")
            return False
        self._count_usage(handle)
        self._screen.end_line()
        result = handle.result
        self.messages = list(result.messages)
        self.is_interrupted = isinstance(result.reason, Cancelled)
        self._tell_ending(result.reason)
        return isinstance(result.reason, Complete)

    def undo(self) -> bool:
        """Forget the last question and all that followed it; return False where there is none."""
        questions = [index for index, message in enumerate(self.messages) if isinstance(message, UserMessage)]
        if questions:
            del self.messages[questions[-1] :]
        return bool(questions)

    def _count_usage(self, handle: ToolLoopHandle[Any, None]) -> None:
        self.usage = handle.usage if self.usage is None else self.usage + handle.usage
        self.requests += handle.iterations

    def _tell_ending(self, reason: TerminationReason) -> None:
        match reason:
            case Complete():
                return
            case Cancelled() | Aborted():
                text = "the turn was ended; the conversation goes on"
            case MaxIterations(limit):
                text = f"stopped after {limit} turns with tools: say 'go on' if it should"
            case UsageLimit(limit):
                text = f"stopped: the limit of {limit} is reached"
            case _:
                text = f"the turn ended: {reason.kind.replace('_', ' ')}"
        self._screen.note(text)

    def _show_event(self, event: LoopEvent) -> None:
        screen = self._screen
        if screen.is_json:
            screen.document(dump_event(event), is_line=True)
            return
        match event:
            case TextDelta(text):
                screen.stream(text)
            case ReasoningDelta(text) if screen.is_terminal:
                screen.stream(text, "faint")
            case _:
                self._note_event(event)

    def _note_event(self, event: LoopEvent) -> None:
        screen = self._screen
        match event:
            case ToolExecutionStart():
                screen.note(f"  {event.tool_name} {_shorten_line(event.arguments_json)}", "call")
            case ToolExecutionEnd(result=result):
                ending = f"  = {_shorten_line(result.text)}  ({event.duration:.2f} s)"
                screen.note(ending, "bad" if result.is_error else "good")
            case ToolCallRefused(result=result):
                screen.note(f"  {event.tool_name} was not run: {_shorten_line(result.text)}", "bad")
            case ToolProgress(text=text):
                screen.note(f"  {event.tool_name}: {_shorten_line(text)}")
            case ToolExecutionUpdate(output=output) if screen.is_terminal:
                screen.note(f"  {event.tool_name}: {_shorten_line(output.text[-_LONGEST_LINE_SHOWN:])}")
            case ProviderRetried(delay=delay, error=error):
                screen.note(f"the model could not be asked, and is again in {delay:.0f} s: {_shorten_line(str(error))}")
            case LoopDetected():
                screen.note(f"the model has called {event.tool_name} {event.count} times in the same way")
            case _:
                pass


def write_usage(usage: Usage | None, requests: int) -> str:
    """Return what a conversation cost, in words."""
    if usage is None:
        return "nothing was asked yet"
    cost = "" if usage.cost is None else f", ${usage.cost:.4f}"
    return f"{requests} requests, {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"


def _shorten_line(text: str) -> str:
    return shorten_to_line(text, _LONGEST_LINE_SHOWN)
