"""The errors of durable runs.

::

    ToolkitError
      DurableError                  a durable run can't be begun, found or changed as it was asked
        DurableRunNotFoundError
        DecisionRefusedError        decided already, or on something else
        DatabaseUnavailableError    the database is away: the same may be asked again
        UnstorableValueError        the database can't store a value: give another one
        WorkersLostError            the workers of a run ended one after the other, perhaps because of it

Wrong settings are a `ConfigurationError`, as everywhere.
"""

from toolkit.errors import ToolkitError


class DurableError(ToolkitError):
    """A durable run can't be begun, found or changed as it was asked."""


class DurableRunNotFoundError(DurableError):
    """There is no durable run of this id.

    Args:
        run_id: The id that was asked for.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"there is no durable run {run_id!r} in this database")


class DecisionRefusedError(DurableError):
    """A decision on a call of a durable run was refused: the call is decided already, or is not what was decided on.

    Args:
        run_id: The run.
        call_id: The call.
        reason: The reason, and what to do.
    """

    def __init__(self, run_id: str, call_id: str, reason: str) -> None:
        self.run_id = run_id
        self.call_id = call_id
        self.reason = reason
        super().__init__(f"the decision on call {call_id!r} of run {run_id!r} was not taken: {reason}")


class DatabaseUnavailableError(DurableError):
    """The database of durable runs can't be reached, or is none.

    Args:
        url: Its address without a password.
        reason: The problem, in words.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"the database of durable runs at {url} can't be used: {reason}")


class UnstorableValueError(DurableError):
    """A value can't be stored in a database that is available: it is too large, no JSON, or no Unicode.

    Args:
        place: The place of the value, such as ``metadata['since']``.
        reason: The problem, in words, and what would be right.
    """

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"{place} can't be stored: {reason}")


class WorkersLostError(DurableError):
    """The workers that moved a durable run ended one after the other, without a word; see ``durable_loop(max_lost=)``.

    Args:
        run_id: The run.
        count: How many did.
        under_way: The turn and the calls that it was at, in words.
    """

    def __init__(self, run_id: str, count: int, under_way: str) -> None:
        self.run_id = run_id
        self.count = count
        self.under_way = under_way
        workers = "the worker" if count == 1 else f"each of the {count} workers"
        super().__init__(
            f"{workers} that moved run {run_id!r} ended without a word before a call of it came to its end; when the "
            f"last one did, {under_way}. Does it crash the process, or use up its memory? `retry()` begins again"
        )
