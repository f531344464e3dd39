"""The text by which a value is stored: JSON with a check sum, or encrypted.

Conversations and durable runs store their values so, in any database.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolkitError
from toolkit.json_text import write_json
from toolkit.settings import check_fields

_SEALED = "e1:"
"""Stands before a text that is encrypted with a key without an id; no JSON text begins so."""
_SEALED_BY = "e2:"
"""Stands before the id of a key, and a text that is encrypted with it."""
_PLAIN = " "
"""Stands before a message that is not encrypted, and may begin as those do that are."""
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{0,64}")
_SUMMED = "c1:"
"""Stands before a text with its check sum, which shows that a row was edited."""
_SUM_BYTES = 8


class Cipher(Protocol):
    """Encrypts stored values: a `Fernet` or `MultiFernet` of ``cryptography``, or an `Encryption`."""

    def encrypt(self, data: bytes, /) -> bytes:
        """Return bytes that only `decrypt` can read."""
        ...

    def decrypt(self, token: bytes, /) -> bytes:
        """Return what `encrypt` was given; raise for all else."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """The functions that encrypt the stored values of durable runs and of conversations.

    ::

        fernet = Fernet(key)
        encryption = Encryption(encrypt=fernet.encrypt, decrypt=fernet.decrypt, key_id="2026-11")

    Prompts, replies, arguments, results, snapshots, events, errors and metadata are encrypted. Ids, versions and times
    are not, nor are the loops, tenants, states and endings of runs: a database looks them up by these.

    To change the key, give the new one another `key_id` and the old ones in `older`: each stored value names its key.
    First give all workers and clients the new key as an older one, then make it the one that encrypts.

    Args:
        encrypt: Returns bytes that only `decrypt` can read.
        decrypt: Returns what `encrypt` was given; raises for all else.
        key_id: Stands with each stored value: up to 64 letters, digits, ``_``, ``.`` and ``-``. Empty names none.
        older: Those with other keys, whose values are read and which encrypt nothing.
        searchable: The parts of metadata that stay readable, since `DurableRuns.list` finds runs by them.
    """

    encrypt: Callable[[bytes], bytes]
    decrypt: Callable[[bytes], bytes]
    key_id: str = ""
    older: Sequence[Encryption] = ()
    searchable: Collection[str] = ()

    def __post_init__(self) -> None:
        check_fields(self, "encryption.{}")
        if not _KEY_ID.fullmatch(self.key_id):
            raise ConfigurationError(
                f"encryption.key_id is {self.key_id!r}: give at most 64 letters, digits, '_', '.' or '-'"
            )
        known = [self.key_id, *(each.key_id for each in self.older)]
        twice = next((key_id for key_id in known if known.count(key_id) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"two keys have the id {twice!r}: a stored value names one of them")


class StoredText:
    """Writes values as the text that is stored, and reads them.

    Args:
        cipher: None stores plain JSON with a check sum.
        failure: The class of the errors that it raises.
    """

    def __init__(self, cipher: Cipher | None, failure: type[ToolkitError]) -> None:
        if cipher is None or isinstance(cipher, Encryption):
            encryption = cipher
        else:
            encryption = Encryption(encrypt=cipher.encrypt, decrypt=cipher.decrypt)
        self._failure = failure
        self._encryption: Encryption | None = encryption
        keys = () if encryption is None else (encryption, *encryption.older)
        self._keys: Mapping[str, Encryption] = {each.key_id: each for each in keys}

    @property
    def is_encrypted(self) -> bool:
        """True where what is stored can't be searched."""
        return self._encryption is not None

    def is_searchable(self, name: str) -> bool:
        """Return whether runs may be found by a part of their metadata."""
        return self._encryption is None or name in self._encryption.searchable

    def write(self, value: object) -> str:
        """Return a value as it is stored; raise `TypeError` or `ValueError` for what is no JSON."""
        return self.write_text(write_json(value))

    def write_text(self, text: str) -> str:
        """Return a value that is written as JSON as it is stored."""
        return f"{_SUMMED}{_sum_up(text)}:{text}" if self._encryption is None else self.seal(text)

    def read(self, text: str) -> Any:
        """Return the value of a stored text, which may have no check sum where the engine of durable runs wrote it."""
        self._check_text(text)
        try:
            return json.loads(self.read_text(text) if text.startswith(_SUMMED) else self.open(text))
        except (ValueError, RecursionError) as error:
            raise self._failure(
                "a stored value can't be read: it was changed, or encrypted with another key"
            ) from error

    def _check_text(self, text: object) -> None:
        if not isinstance(text, str):  # a column of SQLite may have any type
            raise self._failure("a stored value was changed: it is no text")

    def read_text(self, text: str) -> str:
        """Return the JSON of a stored text that has a check sum or is encrypted."""
        self._check_text(text)
        if text.startswith((_SEALED, _SEALED_BY)):
            return self.open(text)
        known, _, value = text.removeprefix(_SUMMED).partition(":")
        if known != _sum_up(value):
            raise self._failure("a stored value was changed: its check sum does not fit")
        return value

    def seal(self, text: str) -> str:
        """Return a text as it is stored."""
        if self._encryption is None:
            return text
        key_id = self._encryption.key_id
        head = f"{_SEALED_BY}{key_id}:" if key_id else _SEALED
        return head + b64encode(self._encryption.encrypt(text.encode())).decode()

    def open(self, text: str) -> str:
        """Return the text that was stored as this one."""
        if text.startswith(_SEALED_BY):
            key_id, _, sealed = text.removeprefix(_SEALED_BY).partition(":")
        elif text.startswith(_SEALED):
            key_id, sealed = "", text.removeprefix(_SEALED)
        else:
            return text
        if self._encryption is None:
            raise self._failure("a stored value is encrypted: give the encryption that wrote it")
        key = self._keys.get(key_id)
        if key is None:
            named = f"the key {key_id!r}" if key_id else "a key without an id"
            raise self._failure(f"a stored value is encrypted with {named}: give that encryption in `older`")
        try:
            return key.decrypt(b64decode(sealed)).decode()
        except Exception as error:
            raise self._failure(
                f"a stored value can't be decrypted: {type(error).__name__}; is it the right key?"
            ) from error

    def seal_error(self, text: str) -> str:
        """Return the message of an error as it is stored, to be searched where it is not encrypted."""
        text = text.replace("\x00", "\ufffd")  # which Postgres does not take
        return self.seal(text) if self.is_encrypted and text else _PLAIN + text

    def open_error(self, text: str) -> str:
        """Return the message that was stored as this text."""
        return text.removeprefix(_PLAIN) if text.startswith(_PLAIN) else self.open(text)


def _sum_up(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_SUM_BYTES).hexdigest()
