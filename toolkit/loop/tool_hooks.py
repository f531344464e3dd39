"""Functions around each run of a tool, as a middleware."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from toolkit.calls.approval import Approval, Deny
from toolkit.calls.events import ToolExecutionEnd, ToolExecutionUpdate
from toolkit.dataclass import dataclass
from toolkit.loop.events import LoopEvent, SubAgentEvent
from toolkit.loop.middleware import CallInfo, Middleware
from toolkit.settings import check_fields

__all__ = [
    "AfterToolExecution",
    "AfterToolExecutionUpdate",
    "BeforeToolExecution",
    "BeforeToolExecutionUpdate",
    "ToolExecutionHooks",
]

_logger = logging.getLogger("toolkit.loop")

BeforeToolExecution: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool | Awaitable[bool | None] | None]
"""Given tool name, call id and a copy of the arguments; False skips the call. Raising denies it."""

AfterToolExecution: TypeAlias = Callable[[str, str, bool], Awaitable[None] | None]
"""Given tool name, call id and whether it failed. Raising changes nothing."""

BeforeToolExecutionUpdate: TypeAlias = Callable[[str, str, str], bool | Awaitable[bool]]
"""Given tool name, call id and the text of an update; False suppresses that."""

AfterToolExecutionUpdate: TypeAlias = Callable[[str, str, str], Awaitable[None] | None]
"""Given tool name, call id and the text of an update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionHooks(Middleware[Any]):
    """Calls functions before and after each run of a tool, and each update that it reports; any may be async.

    ::

        hooks = ToolExecutionHooks(before=lambda name, call_id, arguments: name != "bash")
        config = ToolLoopConfig(middleware=(hooks,))

    Args:
        before: Asked before each call with name, call id and a copy of the arguments, after the rules of `Permissions`
            and before an approver; False skips it, with an error for the model. The calls of sub-agents are asked
            about, too.
        after: Told of the end of each call with name, call id and whether it failed; of those of sub-agents, too.
        before_update: Asked about each `ToolExecutionUpdate` with name, call id and text; False suppresses that event,
            and only that.
        after_update: Told of each update that was not suppressed, after `ToolLoopConfig.on_event`.
    """

    before: BeforeToolExecution | None = None
    after: AfterToolExecution | None = None
    before_update: BeforeToolExecutionUpdate | None = None
    after_update: AfterToolExecutionUpdate | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    async def guard_call(self, call: CallInfo[Any]) -> Approval | None:
        """Ask `before`; one that returns nothing only looked."""
        if self.before is None:
            return None
        if await _settle_value(self.before(call.tool_name, call.call_id, call.arguments)) is not False:
            return None
        _logger.warning("before_tool_execution skipped %s in call %s", call.tool_name, call.call_id)
        return Deny("Tool execution skipped by before_tool_execution hook.")

    async def allow_update(self, update: ToolExecutionUpdate) -> bool:
        """Ask `before_update`."""
        if self.before_update is None:
            return True
        return (
            await _settle_value(self.before_update(update.tool_name, update.call_id, update.output.text)) is not False
        )

    async def on_event(self, event: LoopEvent) -> None:
        """Tell `after` and `after_update`."""
        if self.after_update is not None and isinstance(event, ToolExecutionUpdate):
            await _settle_value(self.after_update(event.tool_name, event.call_id, event.output.text))
        while isinstance(event, ToolExecutionUpdate) and isinstance(event.output.details, SubAgentEvent):
            event = event.output.details.event
        if self.after is not None and isinstance(event, ToolExecutionEnd):
            await _settle_value(self.after(event.tool_name, event.call_id, event.result.is_error))


async def _settle_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
