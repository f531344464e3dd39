"""Several entries of a log at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio

from toolkit.loop.journal import JournalEntry, JournalValue

__all__ = ["take_together"]


async def take_together(
    entries: Sequence[JournalEntry], take: Callable[[int, JournalEntry], Awaitable[JournalValue]]
) -> list[JournalValue]:
    """Take entries at the same time, and return their values in their order.

    Args:
        entries: The entries; their positions are drawn already.
        take: Takes one by its index.

    Raises:
        BaseException: The first that came out of one, when all have ended.
    """
    if len(entries) == 1:
        return [await take(0, entries[0])]
    values: list[JournalValue] = [{} for _ in entries]
    errors: list[BaseException] = []

    async def take_one(index: int, entry: JournalEntry) -> None:
        try:
            values[index] = await take(index, entry)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised below, not in a group
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for index, entry in enumerate(entries):
            tasks.start_soon(take_one, index, entry)
    if errors:
        raise errors[0]
    return values
