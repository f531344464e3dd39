"""`durable_loop`: the parts of durable runs, under the name by which every process finds them."""

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
"""A machine that fails, a deployment that goes wrong and a neighbour that crashes its worker make fewer in a row."""

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
        tenant: The customer or team that it is for; empty where `DurableRuns.start` was given none.
        metadata: The value that `DurableRuns.start` was given.
    """

    run_id: str
    loop: str
    tenant: str
    metadata: Mapping[str, Any]


ContextMaker: TypeAlias = Callable[[RunPlace], Ctx | Awaitable[Ctx]]
"""Makes the context of a run, in the worker, each time that the run begins or is resumed."""


@dataclass(frozen=True, slots=True)
class StartRate:
    """How many runs may begin, or go on after a rest, in a time.

    Args:
        limit: How many.
        seconds: In how many seconds.
    """

    limit: PositiveInt
    seconds: Seconds

    def __post_init__(self) -> None:
        check_fields(self, "the {} of a StartRate")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopQueue:
    """How the runs of a loop are shared out, over all workers together.

    A run counts while it moves; one that waits for a decision takes no place.

    Args:
        concurrency: How many runs move at once; None sets no limit but that of the workers.
        rate: How many may begin in a time.
        tenant_concurrency: How many runs of one tenant move at once.
        tenant_rate: How many of one tenant may begin in a time.
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
    """A loop whose runs are durable; made by `durable_loop`.

    Attributes:
        name: The name by which runs know it.
        provider: Talks to the model.
        registry: The tools.
        config: The settings.
        make_context: Makes the context of a run; None where the tools need none.
        system_prompt: Stands first in each run's transcript.
        queue: How its runs are shared out.
        approval_expiry: Seconds after which a call that awaits a decision is denied; None sets no limit.
        max_lost: How many workers in a row may end without a word while they move a run; None sets no bound.
        events: The events that are stored.
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
        name: How runs find it, also in the next release: letters, digits, ``_``, ``.`` and ``-``.
        provider: Talks to the model, in the worker.
        registry: The tools, which run in the worker.
        ctx: Makes the context of a run, which is never stored; may be async.
        config: The settings; they are not stored either, and the next release may change them.
        system_prompt: Stands first in the transcript of each run that begins without one, and stays as it was then; a
            text, or a function of the context that the worker calls when the run begins.
        queue: Limits of how many runs move at once and begin in a time.
        approval_expiry: Seconds after which a call that awaits a decision is denied; None sets no limit.
        max_lost: How many workers in a row may end without a word while they move a run, and before a call of it comes
            to its end, until the run fails as one that ends them. A worker that is stopped by a signal does not count.
            With the default a run outlives a machine that fails and a neighbour's crashes; None sets no limit.
        events: The events that are stored: ``ends`` are replies, and the ends of calls and of runs, about half of the
            bytes of ``all``; nobody sees text while it comes then.

    Raises:
        ConfigurationError: A part of it can't work durably; the message names it, and what to do instead.
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
