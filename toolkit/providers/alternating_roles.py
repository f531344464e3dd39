"""Messages for formats whose roles alternate: neighbours of one role become one message, and the user begins."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["BEGINNING_LEFT_OUT", "USER", "join_by_role"]

USER = b"user"

BEGINNING_LEFT_OUT = "[The beginning of the conversation is left out.]"
"""The user's message where a transcript begins with the model."""


def join_by_role(spoken: Iterable[tuple[bytes, bytes]], *, field: bytes, opening: bytes) -> bytes:
    """Return the messages as a JSON list; an empty one where nothing is said.

    Args:
        spoken: The role of each message, and its blocks: JSON already, with commas between. No blocks are no message.
        field: Where a message of the list has its blocks.
        opening: The block that the user says where the model would begin.
    """
    pieces: list[bytes] = []
    speaker = b""
    for role, blocks in spoken:
        if not blocks:
            continue
        if role == speaker:
            pieces.append(b",")
        else:
            if not pieces and role != USER:
                pieces += [_begin_message(USER, field), opening]
            pieces += [b"]}," if pieces else b"", _begin_message(role, field)]
            speaker = role
        pieces.append(blocks)
    return b"[" + b"".join(pieces) + (b"]}]" if pieces else b"]")


def _begin_message(role: bytes, field: bytes) -> bytes:
    return b'{"role":"%s","%s":[' % (role, field)
