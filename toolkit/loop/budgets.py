"""Limits that runs share: concurrent runs, request rates, and budgets, by user or day."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, Literal, Protocol, TypeAlias

import anyio

from toolkit.chat import ChatRequest, ChatResponse, Usage
from toolkit.dataclass import dataclass
from toolkit.errors import (
    BudgetStoreError,
    ConfigurationError,
    LoopError,
    ProviderError,
    RunStoppedError,
    TooManyRunsError,
)
from toolkit.logs import get_logger
from toolkit.loop.limits import UsageLimits
from toolkit.loop.middleware import Middleware, RequestInfo, RequestMiddleware, RequestProceed, RunInfo, RunProceed
from toolkit.loop.outcome import UsageLimit
from toolkit.runtime.workers import enter_gate
from toolkit.settings import FUNCTION, Duration, check_setting, describe_value, to_seconds

_logger = get_logger("toolkit.loop")
_CHARACTERS_PER_TOKEN = 4
_MOST_IDLE = 10_000

Owner: TypeAlias = str | Callable[[RunInfo[Any]], str]
"""The owner: a fact on the run, such as ``user`` (see `RunInfo.find_fact`), or a function that returns a text."""


def estimated_tokens(request: ChatRequest) -> int:
    """Return an estimate of a request's tokens: a quarter of its characters, plus the maximum length of the answer."""
    return _estimate_input(request) + (request.max_tokens or 0)


def _estimate_input(request: ChatRequest) -> int:
    characters = 0
    for message in request.messages:
        characters += len(message.text)
        if message.role == "assistant":
            characters += sum([len(call.name) + len(call.arguments) for call in message.tool_calls])
    return characters // _CHARACTERS_PER_TOKEN


def _find_owner(per: Owner | None, run: RunInfo[Any], what: str) -> str:
    """Return the owner of the budget or rate that a run uses; empty if it is shared by all.

    Raises:
        ConfigurationError: The run has none.
    """
    if per is None:
        return ""
    owner: object = run.find_fact(per) if isinstance(per, str) else per(run)
    if not isinstance(owner, str) or not owner:
        named = f"'{per}'" if isinstance(per, str) else "that its function gives"
        remedy = (
            f"give ToolLoopConfig(metadata={{'{per}': ...}}), or a context with a text or number as '{per}'"
            if isinstance(per, str)
            else "it must return a text that is not empty"
        )
        raise ConfigurationError(f"{what} counts by the owner {named}, and this run has none: {remedy}")
    return f"{per} {owner}" if isinstance(per, str) else owner


# rates


@dataclass(slots=True)
class CountedTokens:
    """The tokens of one request; the amount is corrected when the answer reports it."""

    amount: int


class Window:
    """The amount that was spent in the last `seconds`."""

    def __init__(self, limit: int | None, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._counted: deque[tuple[float, CountedTokens]] = deque()

    def wait(self, amount: int, now: float) -> float:
        """Return the seconds until `amount` can be spent, or until nothing else counts."""
        self._drop_old(now)
        wait = 0.0
        left = math.inf if self._limit is None else self._limit - self.used(now)
        for begun, spent in self._counted:
            if amount <= left:
                break
            left += spent.amount
            wait = begun + self._seconds - now
        return wait

    def used(self, now: float) -> int:
        """Return the amount that counts."""
        self._drop_old(now)
        return sum([spent.amount for _, spent in self._counted])

    def count(self, spent: CountedTokens, now: float) -> None:
        """Count the usage from now on."""
        if self._limit is not None:
            self._counted.append((now, spent))

    def _drop_old(self, now: float) -> None:
        while self._counted and self._counted[0][0] + self._seconds <= now:
            self._counted.popleft()


class RequestRate:
    """Limits the number and tokens of requests in a window, in order of arrival, over all threads.

    Args:
        requests: How many in a window; None sets no limit.
        tokens: How many in a window, input and output together; None sets no limit.
        seconds: The length of the window.
    """

    def __init__(self, requests: int | None, tokens: int | None, seconds: float) -> None:
        self._limits: dict[Literal["requests", "total_tokens"], tuple[int | None, Window]] = {
            "requests": (requests, Window(requests, seconds)),
            "total_tokens": (tokens, Window(tokens, seconds)),
        }
        self._open_at = 0.0
        self._lock = Lock()
        self._head_of_line = object()

    def pause(self, seconds: float) -> None:
        """Delay all requests by so many seconds."""
        self._open_at = max(self._open_at, time.monotonic() + seconds)

    async def wait(self, tokens: int) -> CountedTokens:
        """Wait until a request may begin, and count it; a request that is cancelled while it waits does not count."""
        counted = CountedTokens(tokens)
        # The first request has the gate while it waits; it passes on in order of arrival.
        leave_line = await enter_gate(self._head_of_line)
        try:
            while (wait := self._count_request(counted)) > 0:  # noqa: ASYNC110 - no event tells that time has passed
                await anyio.sleep(wait)
        finally:
            leave_line()
        return counted

    def try_now(self, tokens: int) -> CountedTokens | UsageLimit:
        """Count a request that begins now, or return the limit that it exceeds."""
        counted = CountedTokens(tokens)
        if self._count_request(counted) <= 0:
            return counted
        now = time.monotonic()
        with self._lock:
            for name, (limit, window) in self._limits.items():
                amount = 1 if name == "requests" else tokens
                if limit is not None and window.wait(amount, now) > 0:
                    return UsageLimit(name, limit, window.used(now))
        return counted  # time has passed, and the first window is empty now

    @property
    def is_idle(self) -> bool:
        """True if nothing counts."""
        now = time.monotonic()
        with self._lock:
            return not any(window.used(now) for _, window in self._limits.values())

    def _count_request(self, counted: CountedTokens) -> float:
        """Count a request, or return the seconds after which to try again."""
        with self._lock:
            now = time.monotonic()
            _, requests = self._limits["requests"]
            _, tokens = self._limits["total_tokens"]
            wait = max(self._open_at - now, requests.wait(1, now), tokens.wait(counted.amount, now))
            if wait <= 0:
                requests.count(CountedTokens(1), now)
                tokens.count(counted, now)
            return wait


class RateLimit(Middleware[Any]):
    """Limits the rate of requests, by user or another owner: further requests wait, or end their run.

    ::

        limit = RateLimit(per="user", requests=20, tokens=50_000)  # one object, for all runs
        config = ToolLoopConfig(middleware=(limit,))

    It counts in this process, over all threads and event loops, sub-agents included; use `Budget` for several
    processes. A request counts with its estimated tokens until its answer reports the usage. A request that exceeds the
    limit by itself waits until nothing else counts. The wait counts for the `timeout` of the loop.

    Args:
        per: The owner whose requests count together; None counts all together.
        requests: How many in `window`; None sets no limit.
        tokens: How many in `window`, input and output together; None sets no limit.
        window: The length of the sliding window; a minute by default, as at most vendors.
        waits: False ends the run as `UsageLimit` instead of waiting.
        estimate: Returns the tokens of a request before it is made.

    Raises:
        ConfigurationError: There is no limit, or one that is no whole number above 0.
    """

    is_inherited = True

    def __init__(
        self,
        *,
        per: Owner | None = None,
        requests: int | None = None,
        tokens: int | None = None,
        window: Duration = 60.0,
        waits: bool = True,
        estimate: Callable[[ChatRequest], int] = estimated_tokens,
    ) -> None:
        check_setting("per", per, str, FUNCTION, None)
        for name, limit in (("requests", requests), ("tokens", tokens)):
            check_setting(name, limit, int, None, least=1)
        if requests is None and tokens is None:
            raise ConfigurationError("a RateLimit without requests= or tokens= would limit nothing: give one")
        check_setting("waits", waits, bool)
        self._per = per
        self._limits = (requests, tokens)
        self._seconds = to_seconds(window, "the window of a RateLimit")
        self._waits = waits
        self._estimate = estimate
        self._rates: dict[str, RequestRate] = {}
        self._lock = Lock()

    def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
        """Return the middleware that counts the requests of one run.

        Raises:
            ConfigurationError: The run has no owner.
        """
        owner = _find_owner(self._per, run, "a RateLimit")
        with self._lock:
            if len(self._rates) >= _MOST_IDLE:
                self._rates = {name: rate for name, rate in self._rates.items() if not rate.is_idle}
            rate = self._rates.setdefault(owner, RequestRate(*self._limits, self._seconds))
        return RequestMiddleware(partial(self._ask_in_time, rate, owner), is_inherited=True)

    async def _ask_in_time(
        self, rate: RequestRate, owner: str, request: RequestInfo[Any], proceed: RequestProceed
    ) -> ChatResponse:
        """Make a request when it may begin, or end the run if it may not begin now and `waits` is False."""
        tokens = 0 if self._limits[1] is None else self._estimate(request.chat)
        counted = await rate.wait(tokens) if self._waits else rate.try_now(tokens)
        if isinstance(counted, UsageLimit):
            budget = ", ".join([*([owner] if owner else []), f"in {self._seconds:g} s"])
            raise RunStoppedError(UsageLimit(counted.limit, counted.maximum, counted.used, budget=budget))
        response = await proceed()
        counted.amount = response.usage.total_tokens
        return response


# runs


class RunLimit(Middleware[Any]):
    """Limits the concurrent runs of this process, over all threads and event loops.

    ::

        limit = RunLimit(50, waiting=200)  # one object for all runs that count together
        config = ToolLoopConfig(middleware=(limit,))

    Further runs wait in order of arrival, which the loop's `timeout` does not count. Loops inside tools belong to the
    run around them. In a run that is stepped, each `next_turn` takes a place.

    Args:
        runs: The maximum of concurrent runs.
        waiting: The maximum of waiting runs; further ones fail with a `TooManyRunsError` before they begin. None is no
            maximum.
    """

    def __init__(self, runs: int, *, waiting: int | None = None) -> None:
        check_setting("runs", runs, int, least=1)
        check_setting("waiting", waiting, int, None, least=0)
        self._runs = runs
        self._most_waiting = waiting
        self._lock = Lock()
        self._count = 0

    async def around_run(self, run: RunInfo[Any], proceed: RunProceed) -> None:
        """Wait for a place.

        Raises:
            TooManyRunsError: As many wait as may.
        """
        if run.parent_loop_id is not None:
            await proceed()
            return
        with self._lock:
            if self._most_waiting is not None and self._count >= self._runs + self._most_waiting:
                raise TooManyRunsError(self._runs, self._most_waiting)
            self._count += 1
        try:
            leave = await enter_gate(self, self._runs)
            try:
                await proceed()
            finally:
                leave()
        finally:
            with self._lock:
                self._count -= 1


# budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """An amount that is spent or reserved.

    Args:
        requests: Requests to a model.
        input_tokens: Tokens read by the model.
        output_tokens: Tokens written by the model.
        cost: In the currency in which the provider reports it.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An amount that one request takes out of a budget until it is settled.

    Args:
        id: Its own, which no other has.
        budget: The name of the budget, with its owner and its time.
        amount: The amount.
        begun: When it was made, in seconds since 1970.
        lapses: When it counts no longer, since its process has not settled it.
    """

    id: str = field(default_factory=lambda: os.urandom(16).hex())
    budget: str
    amount: Spending
    begun: float
    lapses: float


def find_exceeded(limits: UsageLimits, spent: Spending, wanted: Spending, budget: str) -> UsageLimit | None:
    """Return the first limit of a budget that is used up, or that `wanted` would exceed in addition to `spent`."""
    names: tuple[Literal["requests", "input_tokens", "output_tokens", "total_tokens", "cost"], ...]
    names = ("requests", "input_tokens", "output_tokens", "total_tokens", "cost")
    for name in names:
        limit, used = getattr(limits, name), getattr(spent, name)
        if limit is not None and (used >= limit or used + getattr(wanted, name) > limit):
            return UsageLimit(name, limit, used, budget=budget)
    return None


class BudgetStore(Protocol):
    """Where budgets are stored; each method is one step, whatever else happens at the same time."""

    async def reserve(self, reservation: Reservation, limits: UsageLimits) -> UsageLimit | None:
        """Store a reservation, or return the limit that forbids it, by `find_exceeded`, and store nothing.

        Raises:
            BudgetStoreError: The store can't be used.
        """
        ...

    async def settle(self, reservation: Reservation, spent: Spending) -> None:
        """Replace a reservation, also one that has lapsed, by the amount that was spent; a second call changes nothing.

        Raises:
            BudgetStoreError: The store can't be used.
        """
        ...

    async def read(self, budget: str) -> Spending:
        """Return the amount that is spent of a budget, without reservations.

        Raises:
            BudgetStoreError: The store can't be used.
        """
        ...


class MemoryBudgets:
    """Budgets of this process alone, over all its threads; they end with it."""

    def __init__(self) -> None:
        self._spent: dict[str, Spending] = {}
        self._reserved: dict[str, dict[str, Reservation]] = {}
        self._lock = Lock()

    async def reserve(self, reservation: Reservation, limits: UsageLimits) -> UsageLimit | None:
        """Store a reservation, or return the limit that forbids it."""
        budget, now = reservation.budget, reservation.begun
        with self._lock:
            waiting = self._reserved.setdefault(budget, {})
            spent = self._spent.get(budget, Spending())
            reserved = sum([each.amount for each in waiting.values() if each.lapses > now], Spending())
            exceeded = find_exceeded(limits, spent + reserved, reservation.amount, budget)
            if exceeded is None:
                waiting[reservation.id] = reservation
        return exceeded

    async def settle(self, reservation: Reservation, spent: Spending) -> None:
        """Replace a reservation by the amount that was spent."""
        budget = reservation.budget
        with self._lock:
            waiting = self._reserved.get(budget, {})
            if waiting.pop(reservation.id, None) is not None:
                self._spent[budget] = self._spent.get(budget, Spending()) + spent
            if not waiting:
                self._reserved.pop(budget, None)

    async def read(self, budget: str) -> Spending:
        """Return the amount that is spent."""
        with self._lock:
            return self._spent.get(budget, Spending())


class Budget(Middleware[Any]):
    """Limits the total spending of runs, by user or day, in all processes that share its store.

    ::

        budget = Budget(UsageLimits(cost=2.0), per="user", window="day", store=SqlBudgets("sqlite:///budgets.db"))
        config = ToolLoopConfig(middleware=(budget,))  # the same for all users

    Each request reserves an amount first, and settles it by its real usage afterwards. If too little is left, the run
    ends as `UsageLimit`, whose `budget` names the owner. So the limits are exceeded at most by the parts of answers
    that go beyond their reservations. Sub-agents spend from it too. If the store fails before a request, the run fails
    with a `BudgetStoreError`, and the request is not made; if it fails later, the answer is used and an error logged.

    Args:
        limits: The maximum; `tool_calls` are limited per run, by `LoopLimits`.
        per: The owner of the budget; None is one budget for all.
        window: The time after which it is reset: ``day`` and ``month`` in UTC, a number of seconds, or None for never.
        store: Where it is: `toolkit.sql_budgets.SqlBudgets`, or one of your own; None stores it in this process.
        reserve: The amount that is reserved for a request. By default the tokens are estimated, as by
            `estimated_tokens`, and the cost is taken for 0, so that the requests that are under way when a limit of
            cost is reached may go over it.
        lease: The longest that a request may take. A reservation that is not settled after this time, because its
            process has ended, no longer counts.
        name: Distinguishes it from other budgets in the store.
        read_time: Returns the seconds since 1970.

    Raises:
        ConfigurationError: A setting can't be.
    """

    is_inherited = True

    def __init__(
        self,
        limits: UsageLimits,
        *,
        per: Owner | None = None,
        window: Duration | Literal["day", "month"] | None = None,
        store: BudgetStore | None = None,
        reserve: Usage | None = None,
        lease: Duration = 900.0,
        name: str = "",
        read_time: Callable[[], float] = time.time,
    ) -> None:
        check_setting("the limits of a Budget", limits, UsageLimits)
        check_setting("per", per, str, FUNCTION, None)
        check_setting("reserve", reserve, Usage, None)
        check_setting("the name of a Budget", name, str)
        if isinstance(window, str):
            check_setting("the window of a Budget", window, "day", "month")
        if limits.tool_calls is not None:
            raise ConfigurationError(
                "a Budget is spent by requests, and tool_calls are none: LoopLimits(usage=UsageLimits(tool_calls=...)) "
                "limits those of each run"
            )
        if limits == UsageLimits():
            raise ConfigurationError("a Budget without a limit would limit nothing: give one, as UsageLimits(cost=...)")
        if store is not None and not hasattr(store, "reserve"):
            raise ConfigurationError(
                f"the store of a Budget must be one of SqlBudgets('sqlite:///budgets.db'), not {describe_value(store)}"
            )
        self._limits = limits
        self._per = per
        self._window = window if window is None or isinstance(window, str) else to_seconds(window, "the window")
        self._store: BudgetStore = MemoryBudgets() if store is None else store
        self._reserve = reserve
        self._lease = to_seconds(lease, "the lease of a Budget")
        self.name = name
        self._read_time = read_time

    def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
        """Return the middleware that spends for one run.

        Raises:
            ConfigurationError: The run has no owner.
        """
        owner = _find_owner(self._per, run, "a Budget")
        return RequestMiddleware(partial(self._ask_in_budget, owner), is_inherited=True)

    async def read_spent(self, owner: str | None = None) -> Spending:
        """Return the amount that is spent in the current window, without reservations.

        Args:
            owner: The owner, as the runs say it: of ``per="user"`` the user; None where `per` is None.

        Raises:
            BudgetStoreError: The store can't be used.
        """
        named = f"{self._per} {owner}" if isinstance(self._per, str) and owner is not None else owner or ""
        return await self._store.read(self._name_budget(named, self._read_time()))

    async def _ask_in_budget(self, owner: str, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        """Reserve an amount before a request, and settle it afterwards."""
        reservation = await self._reserve_amount(owner, request.chat)
        spent = reservation.amount  # of a request that is cancelled: its vendor may charge for it all the same
        try:
            response = await proceed()
            spent = self._count_usage(response.usage, reservation.budget)
        except (RunStoppedError, ProviderError, LoopError) as error:
            requests = 0 if isinstance(error, RunStoppedError) else 1  # before the request, or by it
            unknown = Spending(requests=requests)
            spent = unknown if error.usage is None else self._count_usage(error.usage, reservation.budget)
            raise
        except Exception:
            spent = Spending(requests=1)
            raise
        finally:
            await self._settle_reservation(reservation, spent)
        return response

    async def _reserve_amount(self, owner: str, chat: ChatRequest) -> Reservation:
        now, wanted = self._read_time(), self._reserve
        if wanted is None:
            counts = any(getattr(self._limits, name) for name in ("input_tokens", "total_tokens"))
            wanted = Usage(input_tokens=_estimate_input(chat) if counts else 0, output_tokens=chat.max_tokens or 0)
        amount = Spending(
            requests=1,
            input_tokens=wanted.input_tokens,
            output_tokens=wanted.output_tokens,
            cost=wanted.cost or 0.0,
        )
        budget = self._name_budget(owner, now)
        reservation = Reservation(budget=budget, amount=amount, begun=now, lapses=now + self._lease)
        exceeded = await self._store.reserve(reservation, self._limits)
        if exceeded is not None:
            raise RunStoppedError(exceeded)
        return reservation

    async def _settle_reservation(self, reservation: Reservation, spent: Spending) -> None:
        """Settle a reservation, even if the run is cancelled; log an error if the store fails."""
        try:
            with anyio.CancelScope(shield=True):
                await self._store.settle(reservation, spent)
        except BudgetStoreError as error:
            text = "%s; the usage of a request is not settled (budget %s, %d tokens): its reservation lapses in %g s"
            _logger.error(text, error, reservation.budget, spent.total_tokens, self._lease)  # noqa: TRY400 - no traceback

    def _count_usage(self, usage: Usage, budget: str) -> Spending:
        """Return the spending of a request; an unknown cost counts as the reserved one, else as the limit."""
        cost = usage.cost or 0.0
        if self._limits.cost is not None and usage.has_unknown_cost:
            reserved = None if self._reserve is None else self._reserve.cost
            cost = self._limits.cost if reserved is None else reserved
            text = (
                "budget %s: the cost of a request is unknown, and is taken for %g: wrap the provider in "
                "PricedProvider, or give Budget(reserve=Usage(cost=...))"
            )
            _logger.warning(text, budget, cost)
        return Spending(requests=1, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost=cost)

    def _name_budget(self, owner: str, now: float) -> str:
        """Return the name of the budget in the store, which its `UsageLimit` shows."""
        window, since = self._window, ""
        if isinstance(window, str):
            since = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d" if window == "day" else "%Y-%m")
        elif window is not None:
            begun = datetime.fromtimestamp(now // window * window, UTC)
            since = begun.isoformat(timespec="milliseconds" if window % 1 else "seconds")
        return ", ".join([part for part in (self.name, owner, since) if part]) or "all"
