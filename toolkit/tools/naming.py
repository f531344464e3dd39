"""What a tool may be called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from toolkit.errors import ConfigurationError
from toolkit.settings import check_setting

__all__ = ["check_name", "is_legal_name", "legal_names"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 64
_HASH = 8


def check_name(name: str) -> str:
    """Return `name` when providers accept it.

    Raises:
        ConfigurationError: It does not match ``^[A-Za-z0-9_-]{1,64}$``.
    """
    check_setting("the name of a tool", name, str)
    if _NAME.fullmatch(name):
        return name
    if len(name) > _LONGEST:
        what = f"it has {len(name)} characters, and {_LONGEST} are allowed"
    else:
        what = "only letters, digits, '_' and '-' are allowed"
    raise ConfigurationError(f"'{name}' can't be the name of a tool: {what}; give another with name='...'")


def legal_names(names: Sequence[str]) -> list[str]:
    """Return, for names that somebody else gave, what the tools are called here.

    A name that is allowed stays. In others what is not allowed becomes ``_``; where that makes a name too long, empty
    or the same as another one, it ends in a hash of what it was, so that it does not depend on its neighbours' order.
    """
    mapped = [name if _NAME.fullmatch(name) else _ILLEGAL.sub("_", name).strip("_") for name in names]
    taken = Counter(mapped)
    return [
        plain if _NAME.fullmatch(plain) and (plain == name or taken[plain] == 1) else _hashed(plain, name)
        for plain, name in zip(mapped, names, strict=True)
    ]


def _hashed(plain: str, name: str) -> str:
    from hashlib import sha256  # noqa: PLC0415 - slow to import, and few names are too long

    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{plain[: _LONGEST - _HASH - 1]}_{digest}"


def is_legal_name(name: str) -> bool:
    """Return whether providers accept a name."""
    return _NAME.fullmatch(name) is not None
