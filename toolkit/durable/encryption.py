"""The texts that a durable run keeps: JSON, and encrypted where the application gives the functions for it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from toolkit.dataclass import dataclass
from toolkit.durable.errors import DurableError
from toolkit.json_text import write_json
from toolkit.settings import check_fields

__all__ = ["Encryption", "StoredText"]

_SEALED = "e1:"
"""Stands before an encrypted text; no JSON text begins so."""

_SUMMED = "c1:"
"""Stands before a text with its check sum, which tells a row that somebody has edited."""

_SUM_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """How what is stored is encrypted.

    ::

        fernet = Fernet(key)
        encryption = Encryption(encrypt=fernet.encrypt, decrypt=fernet.decrypt)

    Prompts, replies, arguments, results, snapshots and events are encrypted. The ids, loops, tenants, states and times
    of runs are not: they are what a database looks runs up by.

    Args:
        encrypt: Returns bytes that only `decrypt` can read.
        decrypt: Returns what `encrypt` was given, also what it was given before a key was changed; raises for all else.
    """

    encrypt: Callable[[bytes], bytes]
    decrypt: Callable[[bytes], bytes]

    def __post_init__(self) -> None:
        check_fields(self, "encryption.{}")


class StoredText:
    """Writes values as the text that is stored, and reads them.

    Args:
        encryption: None stores plain JSON.
    """

    def __init__(self, encryption: Encryption | None) -> None:
        self._encryption = encryption

    def write(self, value: object) -> str:
        """Return a value as it is stored.

        Raises:
            TypeError: It is no JSON.
            ValueError: The same.
        """
        return self.write_text(write_json(value))

    def write_text(self, text: str) -> str:
        """Return a value that is written as JSON as it is stored."""
        return f"{_SUMMED}{_sum_up(text)}:{text}" if self._encryption is None else self.seal(text)

    def read(self, text: str) -> Any:
        """Return the value of a stored text.

        Raises:
            DurableError: It can't be read: it is encrypted and there are no functions for it, or with another key, or
                it was changed.
        """
        try:
            if not text.startswith(_SUMMED):
                return json.loads(self.open(text))
            known, _, value = text.removeprefix(_SUMMED).partition(":")
            if known != _sum_up(value):
                raise DurableError("what is stored was changed: its check sum does not fit")
            return json.loads(value)
        except ValueError as error:
            raise DurableError("what is stored can't be read: it was changed, or encrypted with another key") from error

    def seal(self, text: str) -> str:
        """Return a text as it is stored."""
        if self._encryption is None:
            return text
        return _SEALED + b64encode(self._encryption.encrypt(text.encode())).decode()

    def open(self, text: str) -> str:
        """Return what was stored as this text.

        Raises:
            DurableError: As for `read`.
        """
        if not text.startswith(_SEALED):
            return text
        if self._encryption is None:
            raise DurableError("the durable runs in this database are encrypted: give the encryption that wrote them")
        try:
            return self._encryption.decrypt(b64decode(text.removeprefix(_SEALED))).decode()
        except Exception as error:
            raise DurableError(
                f"what is stored can't be decrypted: {type(error).__name__}; is it the right key?"
            ) from error


def _sum_up(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_SUM_BYTES).hexdigest()
