"""The text of a reply while it comes, in pieces that hold no half of a secret."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["ReplyText"]

_LAST_WORDS = re.compile(r"\S{0,400}[ \t]?\S{0,100}$")  # a name such as "password:" and what follows it
_OPEN_KEY = re.compile(r"PRIVATE KEY-----(?!.*-----END)", re.DOTALL)


class ReplyText:
    """Collects the deltas of one reply and gives out what can be shown of it, clean.

    Args:
        clean: Strikes secrets out of a text.
    """

    __slots__ = ("_clean", "_pieces", "_shown", "_text", "since")

    def __init__(self, clean: Callable[[str], str], since: float) -> None:
        self._clean = clean
        self._text = ""
        self._pieces: list[str] = []
        self._shown = ""
        self.since = since

    def add(self, text: str) -> None:
        """Take some more text."""
        self._pieces.append(text)

    @property
    def has_more(self) -> bool:
        """True where text was added since any was taken."""
        return bool(self._pieces)

    def take(self, now: float, held_back: int) -> str:
        """Return what can be shown beyond what was given out.

        Args:
            now: When.
            held_back: So many characters at the end wait, since a secret may have begun in them.
        """
        self.since = now
        self._text += "".join(self._pieces)
        self._pieces.clear()
        text = _LAST_WORDS.sub("", self._text[: len(self._text) - held_back])
        open_key = _OPEN_KEY.search(text)
        clean = self._clean(text if open_key is None else text[: open_key.start()])
        return self._take_beyond(clean)

    def take_rest(self) -> str:
        """Return what was not given out yet, where the reply is whole."""
        self._text += "".join(self._pieces)
        self._pieces.clear()
        return self._take_beyond(self._clean(self._text))

    def _take_beyond(self, clean: str) -> str:
        # Where more text has made a secret of what was shown, the rest waits for the whole reply.
        if len(clean) <= len(self._shown) or not clean.startswith(self._shown):
            return ""
        piece, self._shown = clean[len(self._shown) :], clean
        return piece
