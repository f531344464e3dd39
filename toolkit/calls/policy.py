"""What the caller of a run wants for every call of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolkit.calls.approval import ApprovalHook
from toolkit.calls.caching import Cache
from toolkit.calls.events import Observer
from toolkit.dataclass import dataclass

if TYPE_CHECKING:
    from toolkit.calls.prepare import Scope

__all__ = ["AfterToolExecution", "BeforeToolExecution", "Caller", "ExecutionPolicy", "NameRepair"]

BeforeToolExecution: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool | Awaitable[bool | None] | None]
"""Given tool name, call id and a copy of the arguments; False skips the call. Raising skips it too."""

NameRepair: TypeAlias = Literal["similar"] | bool
"""Which names that are not there are taken for one that is; see `ToolLoopConfig`."""

AfterToolExecution: TypeAlias = Callable[[str, str, bool], Awaitable[None] | None]
"""Given tool name, call id and whether it failed. Raising changes nothing."""


@dataclass(slots=True, kw_only=True)
class Caller:
    """The caller that runs a sub-agent: its rules and its guards hold for the sub-agent's calls, too.

    Args:
        policy: With its guards.
        scope: With its rules, and the tools that they are made for.
        abort: Ends its run, given a reason; None where it is no loop.
    """

    policy: ExecutionPolicy
    scope: Scope[Any]
    abort: Callable[[str], None] | None = None


@dataclass(slots=True, kw_only=True)
class ExecutionPolicy:
    """What the caller wants for every call; made once per run.

    Args:
        tool_timeout: Seconds for one run of a tool that has no timeout of its own, from when its body begins.
        wait_timeout: Seconds that a call may wait for a lock, a place, a thread or a process; None sets no limit.
        max_output_chars: The longest text that the model reads.
        name_repair: Whether a tool's name is taken in another spelling of the same letters, or also, by ``similar``,
            with other letters.
        argument_repair: Whether malformed arguments are mended.
        keep_output: Which part of a longer text that is.
        cache: Where outputs are kept; None keeps none.
        caches_by_default: Whether tools are cached that don't say so.
        before: Asked before each call.
        after: Told after each call.
        approve: Asked about each call, after `before`.
        approval_timeout: Seconds that an answer of `approve` may take; None waits for as long as it takes.
        hook_timeout: Seconds that another async hook may take.
        on_tool_exception: Whether what a tool raises, and is no `ToolError`, is told to the model alone, or ends the
            run too.
        observer: Takes the events.
        metadata: For `ToolContext.metadata`.
        sync_workers: How many worker threads may run at once.
        agent: The sub-agent whose calls these are; empty where they are not those of one.
        loop_id: The id of its loop.
        caller: Who is asked about these calls, too; None where nobody is.

    Attributes:
        is_approver_async: Whether `approve` is asked in the event loop; else it may block, and is asked in a thread.
    """

    tool_timeout: float | None = None
    wait_timeout: float | None = 300.0
    max_output_chars: int | None = 32_000
    name_repair: NameRepair = True
    argument_repair: bool = True
    keep_output: Literal["head", "tail", "both"] = "both"
    cache: Cache | None = None
    caches_by_default: bool = False
    before: BeforeToolExecution | None = None
    after: AfterToolExecution | None = None
    approve: ApprovalHook | None = None
    approval_timeout: float | None = None
    hook_timeout: float = 60.0
    on_tool_exception: Literal["tell", "raise"] = "tell"
    observer: Observer | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sync_workers: int = 40
    agent: str = ""
    loop_id: str = ""
    caller: Caller | None = None
    is_approver_async: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        approve = self.approve
        if approve is not None:
            self.is_approver_async = iscoroutinefunction(approve) or iscoroutinefunction(type(approve).__call__)
