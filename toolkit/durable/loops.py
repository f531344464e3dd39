"""`durable_loop`: the provider, tools and settings of durable runs, under a name that every process knows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, TypeAlias, overload

from toolkit.calls.registration import Ctx
from toolkit.chat import Provider
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.loop.config import DEFAULT_CONFIG, SystemPrompt, ToolLoopConfig
from toolkit.loop.outcome import Out
from toolkit.settings import PositiveInt, Seconds, check_fields
from toolkit.tools.registry import ToolRegistry

MAX_LOST = 5
"""A failing machine, a bad deployment or a crash by another run of the worker causes fewer in a row."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_REFUSED = {
    "journal": "its worker stores the log of each run",
    "steering": "steer a run by `await run.steer(message)`, from any process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """The run that a context is made for.

    Args:
        run_id: Its id.
        loop: The name of its loop.
        tenant: The customer or team that it is for; empty without one.
        metadata: The metadata that it was started with.
    """

    run_id: str
    loop: str
    tenant: str
    metadata: Mapping[str, Any]


ContextMaker: TypeAlias = Callable[[RunPlace], Ctx | Awaitable[Ctx]]
"""Makes the context of a run, in the worker, each time that the run begins or resumes."""


@dataclass(frozen=True, slots=True)
class StartRate:
    """A limit of how many runs begin, or resume after a rest, in a time.

    Args:
        limit: The maximum number of runs.
        seconds: The length of the time.
    """

    limit: PositiveInt
    seconds: Seconds

    def __post_init__(self) -> None:
        check_fields(self, "the {} of a StartRate")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopQueue:
    """The limits of the runs of a loop, over all workers together.

    A run counts while it is executed; one that awaits a decision does not.

    Args:
        concurrency: The maximum number of concurrent runs; None sets no limit but that of the workers.
        rate: The limit of runs that begin in a time.
        tenant_concurrency: The maximum number of concurrent runs of one tenant.
        tenant_rate: The limit of runs of one tenant that begin in a time.
    """

    concurrency: PositiveInt | None = None
    rate: StartRate | None = None
    tenant_concurrency: PositiveInt | None = None
    tenant_rate: StartRate | None = None

    def __post_init__(self) -> None:
        check_fields(self, "queue.{}")
        most, each = self.concurrency, self.tenant_concurrency
        if most is not None and each is not None and each > most:
            raise ConfigurationError(
                f"queue.tenant_concurrency is {each}, and concurrency {most}: one tenant can't have more than all"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableLoop(Generic[Ctx, Out]):
    """A loop whose runs are durable; made by `durable_loop`, whose arguments are its attributes.

    Attributes:
        make_context: The ``ctx`` of `durable_loop`; None if the tools need none.
    """

    name: str
    provider: Provider
    registry: ToolRegistry[Any]
    config: ToolLoopConfig[Any]
    make_context: ContextMaker[Any] | None
    system_prompt: SystemPrompt[Any] = ""
    queue: LoopQueue
    approval_expiry: Seconds | None = None
    max_lost: PositiveInt | None = MAX_LOST
    events: Literal["all", "ends"] = "all"

    def __post_init__(self) -> None:
        check_fields(self, "the {} of a durable loop")
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} is no name of a durable loop: give 1 to 64 letters, digits, '_', '.' or '-', such as "
                "'support'; runs find their loop by it, also after a new release"
            )
        for setting, instead in _REFUSED.items():
            if getattr(self.config, setting) is not None:
                raise ConfigurationError(f"config.{setting} is not for a durable loop: {instead}")
        need = self.registry.find_context_need() if self.make_context is None else None
        if need is not None:
            raise ConfigurationError(f"{need}: give durable_loop ctx=lambda run: ..., which makes it for each run")


@overload
def durable_loop(
    name: str,
    *,
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    ctx: None = None,
    config: ToolLoopConfig[Out] | None = None,
    system_prompt: SystemPrompt[object] = "",
    queue: LoopQueue | None = None,
    approval_expiry: float | None = None,
    max_lost: int | None = MAX_LOST,
    events: Literal["all", "ends"] = "all",
) -> DurableLoop[object, Out]: ...


@overload
def durable_loop(
    name: str,
    *,
    provider: Provider,
    registry: ToolRegistry[Ctx],
    ctx: ContextMaker[Ctx],
    config: ToolLoopConfig[Out] | None = None,
    system_prompt: SystemPrompt[Ctx] = "",
    queue: LoopQueue | None = None,
    approval_expiry: float | None = None,
    max_lost: int | None = MAX_LOST,
    events: Literal["all", "ends"] = "all",
) -> DurableLoop[Ctx, Out]: ...


def durable_loop(
    name: str,
    *,
    provider: Provider,
    registry: ToolRegistry[Any],
    ctx: ContextMaker[Any] | None = None,
    config: ToolLoopConfig[Any] | None = None,
    system_prompt: SystemPrompt[Any] = "",
    queue: LoopQueue | None = None,
    approval_expiry: float | None = None,
    max_lost: int | None = MAX_LOST,
    events: Literal["all", "ends"] = "all",
) -> DurableLoop[Any, Any]:
    """Return a loop whose runs are durable: stored in a database, and resumed by another worker when one ends.

    ::

        support = durable_loop(
            "support",
            provider=provider_for("anthropic:claude-sonnet-4-5"),
            registry=ToolRegistry([find_order, refund]),
            ctx=lambda run: App(customer=run.metadata["customer"]),
        )

    Make it at import, in a module that the workers import as well: ``toolkit worker shop:support --database URL``.

    Args:
        name: The name by which runs find it, also in the next release: letters, digits, ``_``, ``.`` and ``-``.
        provider: Talks to the model, in the worker.
        registry: The tools, which run in the worker.
        ctx: Makes the context of a run, which is never stored; may be async.
        config: The settings; they are not stored either, and the next release may change them.
        system_prompt: The first message of each run that begins without a system prompt: a text, or a function of the
            context that the worker calls when the run begins. A later change does not affect the run.
        queue: The limits of its runs.
        approval_expiry: Seconds after which a call that awaits a decision is denied; None sets no limit.
        max_lost: The number of workers in a row that may crash while they execute a run, and before one of its calls
            has ended, until the run fails as the cause. A worker that is stopped by a signal does not count. With the
            default a run survives a failing machine and crashes by other runs; None sets no limit.
        events: The stored events: ``ends`` stores only replies and the ends of calls and of runs, about half of the
            bytes of ``all``; the text of a reply is not shown then before its end.

    Raises:
        ConfigurationError: A part can't be durable; the message names it, and the alternative.
    """
    return DurableLoop(
        name=name,
        provider=provider,
        registry=registry,
        config=config or DEFAULT_CONFIG,
        make_context=ctx,
        system_prompt=system_prompt,
        queue=queue or LoopQueue(),
        approval_expiry=approval_expiry,
        max_lost=max_lost,
        events=events,
    )
