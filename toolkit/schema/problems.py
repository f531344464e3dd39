"""What was wrong with arguments, in words that a small model can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

__all__ = ["message_for"]


def message_for(error: ValidationError, value: Any, schema: Mapping[str, Any]) -> str:
    """Return one message about all problems."""
    lines = [f"- {'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}" for problem in error.errors()]
    return "Invalid arguments:\n" + "\n".join(lines)
