"""Messages from outside to a run while one of its segments moves: taken by its loop once, whatever crashes."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from toolkit.chat import Message
from toolkit.dataclass import dataclass
from toolkit.loop.steering import Steering

__all__ = ["InboxKind", "InboxSteering"]

InboxKind: TypeAlias = Literal["steer", "say", "cancel", "decide", "retry"]
"""The kinds of what can be said to a run."""


@dataclass(slots=True)
class _SaidItem:
    id: int
    message: Message
    state: Literal["new", "waiting", "taken", "left"] = "new"


class InboxSteering(Steering):
    """The queue of a run's loop, which knows which items of the inbox the loop has taken.

    What a replay takes from the log is not fed again: the log says the ids of the items.
    """

    __slots__ = ("_items", "_lock", "_unlogged")

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, _SaidItem] = {}
        self._unlogged: list[int] = []
        self._lock = threading.Lock()

    def feed(self, item_id: int, kind: str, message: Message) -> None:
        """Take an item of the inbox, once; one that the log says was taken is known by then."""
        with self._lock:
            item = self._items.setdefault(item_id, _SaidItem(item_id, message))
            if item.state != "new":
                return
            item.state = "waiting"
        if kind == "steer":
            self.steer(message)
        else:
            self.follow_up(message)

    def expect(self, items: Sequence[tuple[int, Message]], taken: Collection[int]) -> None:
        """Learn what is in the inbox where an attempt begins, and which of it the log has."""
        for item_id, message in items:
            self._items[item_id] = _SaidItem(item_id, message, "taken" if item_id in taken else "new")

    def take_steered(self) -> list[Message]:
        """Return all that was steered and forget it."""
        return self._note_taken(super().take_steered())

    def take_follow_up(self) -> list[Message]:
        """Return the next follow-up, as a list of at most one, and forget it."""
        return self._note_taken(super().take_follow_up())

    def put_back(self, messages: Sequence[Message]) -> None:
        """Keep what reached no model for the next segment."""
        with self._lock:
            for message in messages:
                item = self._find_item(message, "taken")
                if item is not None:
                    item.state = "left"

    def drain_unlogged(self) -> list[int]:
        """Return, once, the items that were taken since this was asked last."""
        with self._lock:
            unlogged, self._unlogged = self._unlogged, []
            return unlogged

    @property
    def taken(self) -> list[int]:
        """The items that have come into the transcript."""
        return [item.id for item in self._items.values() if item.state == "taken"]

    def _note_taken(self, messages: list[Message]) -> list[Message]:
        if messages:
            with self._lock:
                for message in messages:
                    item = self._find_item(message, "waiting")
                    if item is not None:
                        item.state = "taken"
                        self._unlogged.append(item.id)
        return messages

    def _find_item(self, message: Message, state: str) -> _SaidItem | None:
        return next((item for item in self._items.values() if item.state == state and item.message == message), None)
