"""Trying again goes on from a first run that has failed."""

import math

import pytest

from toolkit.backoff import backoff_pause, run_again

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails until it has been run a number of times; notes the attempts."""

    def __init__(self, works_at: float) -> None:
        self.works_at = works_at
        self.attempts: list[int] = []

    async def __call__(self, attempt: int) -> str:
        self.attempts.append(attempt)
        if attempt < self.works_at:
            raise ConnectionError(f"attempt {attempt}")
        return f"done at {attempt}"


def is_lost_connection(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def wait_nothing(retry: int, error: BaseException) -> float:
    return 0.0


async def test_it_is_run_until_it_works_and_each_pause_is_told_before() -> None:
    run, told = Flaky(works_at=4), list[tuple[int, str, float]]()

    async def tell(attempt: int, error: BaseException, pause: float) -> None:
        told.append((attempt, str(error), pause))

    result = await run_again(
        run,
        ConnectionError("attempt 1"),
        retries=5,
        is_worth_it=is_lost_connection,
        pause=lambda retry, error: backoff_pause(retry, initial=0.001, longest=0.003),
        before_pause=tell,
    )
    assert (result, run.attempts) == ("done at 4", [2, 3, 4])
    assert told == [(1, "attempt 1", 0.001), (2, "attempt 2", 0.002), (3, "attempt 3", 0.003)]


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_last_failure_is_raised_as_it_was(retries: int) -> None:
    run, first = Flaky(works_at=math.inf), ConnectionError("attempt 1")
    with pytest.raises(ConnectionError, match=f"attempt {retries + 1}") as caught:
        await run_again(run, first, retries=retries, is_worth_it=is_lost_connection, pause=wait_nothing)
    assert len(run.attempts) == retries
    assert (caught.value is first) is (retries == 0)


async def test_what_is_not_worth_it_is_not_run_again() -> None:
    run, failure = Flaky(works_at=2), ValueError("no")
    with pytest.raises(ValueError, match="no") as caught:
        await run_again(run, failure, retries=3, is_worth_it=is_lost_connection, pause=wait_nothing)
    assert caught.value is failure
    assert run.attempts == []
