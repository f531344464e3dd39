"""What a tool may be called."""

from __future__ import annotations

import re

from toolkit.errors import ConfigurationError

__all__ = ["check_name"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_name(name: str) -> str:
    """Return `name` when providers accept it.

    Raises:
        ConfigurationError: It does not match ``^[A-Za-z0-9_-]{1,64}$``.
    """
    if _NAME.fullmatch(name):
        return name
    if len(name) > 64:
        what = f"it has {len(name)} characters, and 64 are allowed"
    else:
        what = "only letters, digits, '_' and '-' are allowed"
    raise ConfigurationError(f"'{name}' can't be the name of a tool: {what}; give another with name='...'")
