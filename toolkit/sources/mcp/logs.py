"""The logs of the MCP SDK, which tell of addresses, sessions and errors, without the secrets of the servers."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from toolkit.secrets import MASK, Redact, without_keys

__all__ = ["struck_logs"]

_SESSION = re.compile(r"(?<=session ID: )\S+")


class _Strikes(logging.Filter):
    """Strikes secrets out of records; lets all pass."""

    def __init__(self) -> None:
        super().__init__()
        self.redacts: tuple[Redact, ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (struck := self._strike_text(text)) != text:
            record.msg, record.args = struck, None
        if record.exc_info:
            shown = "".join(traceback.format_exception(*record.exc_info))
            if (struck := self._strike_text(shown)) != shown:
                record.exc_info, record.exc_text = None, struck
        return True

    def _strike_text(self, text: str) -> str:
        for redact in self.redacts:
            text = redact(text)
        return _SESSION.sub(MASK, without_keys(text))


_strikes = _Strikes()
_lock = Lock()


@contextmanager
def struck_logs(redact: Redact) -> Generator[None]:
    """Strike a server's secrets out of what the SDK logs, in all threads, for as long as the block lasts."""
    with _lock:
        _strikes.redacts += (redact,)
        for logger in _find_loggers():
            logger.addFilter(_strikes)
    try:
        yield
    finally:
        with _lock:
            left = list(_strikes.redacts)
            left.remove(redact)
            _strikes.redacts = tuple(left)
            for logger in () if left else _find_loggers():
                logger.removeFilter(_strikes)


def _find_loggers() -> list[logging.Logger]:
    """Return the SDK's loggers: a filter of one holds for none below it."""
    known = list(logging.root.manager.loggerDict.items())
    return [logger for name, logger in known if f"{name}.".startswith("mcp.") and isinstance(logger, logging.Logger)]
