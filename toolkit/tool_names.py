"""The one rule for names of tools, and the conversion of other names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from toolkit.errors import ConfigurationError, UnknownToolNameError
from toolkit.settings import check_setting

LONGEST_TOOL_NAME = 64
"""How many characters the name of a tool may have, as all providers have it."""
_LEGAL_TOOL_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOOL_NAME}}}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_DIGITS = 8


def is_legal_name(name: str) -> bool:
    """Return whether providers accept a name: whether it matches ``^[A-Za-z0-9_-]{1,64}$``."""
    return _LEGAL_TOOL_NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` when providers accept it.

    Raises:
        ConfigurationError: It does not match ``^[A-Za-z0-9_-]{1,64}$``.
    """
    check_setting("the name of a tool", name, str)
    if is_legal_name(name):
        return name
    if len(name) > LONGEST_TOOL_NAME:
        what = f"it has {len(name)} characters, and {LONGEST_TOOL_NAME} are allowed"
    else:
        what = "only letters, digits, '_' and '-' are allowed"
    raise ConfigurationError(f"'{name}' can't be the name of a tool: {what}; give another with name='...'")


def check_known_names(names: Iterable[str], known: Mapping[str, object], *, missing_ok: bool = False) -> frozenset[str]:
    """Return the names of the selected tools.

    Raises:
        UnknownToolNameError: One is not among the known, unless `missing_ok`.
        ConfigurationError: They are no names.
    """
    if isinstance(names, str):
        raise ConfigurationError(f"give several names, such as [{names!r}], not one string")
    check_setting("what names the tools", names, Iterable)
    wanted = frozenset(names)
    for name in wanted:
        check_setting("each name of a tool", name, str)
    unknown = [] if missing_ok else sorted(wanted - known.keys())
    if unknown:
        raise UnknownToolNameError(unknown[0], known)
    return wanted


def replace_illegal(name: str) -> str:
    """Return a name with ``_`` for each illegal character; it may still be empty, or too long."""
    return _ILLEGAL.sub("_", name).strip("_")


def hash_name(readable: str, source: str, longest: int = LONGEST_TOOL_NAME) -> str:
    """Return the readable beginning of a name, and a hash that distinguishes it from others.

    Args:
        readable: A name without anything that is not allowed, of any length.
        source: The text that it is made from; the same text gives the same name in each process.
        longest: How many characters the name may have.
    """
    from hashlib import sha256  # noqa: PLC0415 - slow to import, and few names need a hash

    digest = sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{readable[: longest - _HASH_DIGITS - 1]}_{digest}"


def legal_names(names: Sequence[str]) -> list[str]:
    """Return the names that foreign tools get here, by their original names.

    A name that is allowed stays. In others each illegal character becomes ``_``; where that makes a name too long,
    empty or the same as another one, it ends in a hash of the original, so that it does not depend on its neighbours'
    order.
    """
    mapped = [name if is_legal_name(name) else replace_illegal(name) for name in names]
    taken = Counter(mapped)
    return [
        plain if is_legal_name(plain) and (plain == name or taken[plain] == 1) else hash_name(plain, name)
        for plain, name in zip(mapped, names, strict=True)
    ]
