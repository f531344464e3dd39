"""The loggers of the package: no record shows a secret, in its message or in the traceback that handlers write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

from toolkit.redaction import clean_text, without_secrets

_FindSecrets = Callable[[], Collection[str]]
_in_use: ContextVar[tuple[_FindSecrets, ...]] = ContextVar("toolkit_secrets", default=())


def get_logger(name: str) -> logging.Logger:
    """Return a logger whose records are cleaned; a filter of a logger does not apply to its children."""
    logger = logging.getLogger(name)
    logger.addFilter(_CLEAN_RECORDS)
    return logger


def use_secrets(find: _FindSecrets) -> Token[Any]:
    """Strike the secrets of a call out of what is logged in the current context, until `end_use`."""
    return _in_use.set((*_in_use.get(), find))


def end_use(token: Token[Any]) -> None:
    """Restore what was struck out before `use_secrets`, which has returned this."""
    _in_use.reset(token)


@contextmanager
def secrets_in_use(find: _FindSecrets) -> Generator[None]:
    """Strike the secrets of a call, which are looked for if anything is logged, out of that in the block."""
    token = use_secrets(find)
    try:
        yield
    finally:
        end_use(token)


class _CleanRecords(logging.Filter):
    """Cleans messages and tracebacks; the exception of a record is unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = [secret for find in _in_use.get() for secret in find()]
        message = record.getMessage()
        if (clean := clean_text(without_secrets(message, secrets))) != message:
            record.msg, record.args = clean, None
        if record.exc_info and record.exc_text is None:
            shown = logging.Formatter().formatException(record.exc_info)
            secrets += _find_struck(record.exc_info[1])
            clean = clean_text(without_secrets(shown, secrets))
            record.exc_text = None if clean == shown else clean
        return True


_CLEAN_RECORDS = _CleanRecords()


def _find_struck(error: BaseException | None) -> Iterator[str]:
    """Yield the secrets that an error, and those behind it, have struck out of their own messages."""
    waiting = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield from getattr(one, "struck_secrets", ())
            waiting += one.__cause__, one.__context__
