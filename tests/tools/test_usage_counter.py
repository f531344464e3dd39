from concurrent.futures import ThreadPoolExecutor

import pytest

from toolkit.calls.registration import UsageCounter
from toolkit.errors import ConfigurationError, ToolUsageLimitExceededError


def test_a_counter_gives_as_many_uses_as_there_are() -> None:
    counter = UsageCounter(2)
    assert [counter.claim() for _ in range(4)] == [True, True, False, False]
    assert counter.current == 2
    assert counter.is_exhausted


def test_a_counter_without_a_maximum_is_never_exhausted() -> None:
    counter = UsageCounter(None)
    assert all(counter.claim() for _ in range(100))
    assert counter.current == 100
    assert not counter.is_exhausted


def test_a_counter_can_be_reset() -> None:
    counter = UsageCounter(1)
    counter.require("search")
    with pytest.raises(ToolUsageLimitExceededError, match="'search' has reached its usage limit of 1"):
        counter.require("search")
    counter.reset()
    assert counter.current == 0
    counter.require("search")


def test_a_maximum_of_none_at_all_is_a_maximum() -> None:
    assert not UsageCounter(0).claim()
    with pytest.raises(ConfigurationError, match="can't be used -1 times"):
        UsageCounter(-1)


def test_threads_never_claim_more_than_there_is() -> None:
    counter = UsageCounter(500)
    with ThreadPoolExecutor(16) as pool:
        claims = [pool.submit(counter.claim) for _ in range(2000)]
    won = sum(claim.result() for claim in claims)
    assert won == counter.current == 500
