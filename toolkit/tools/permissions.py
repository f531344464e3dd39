"""Rules on what may be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Decision", "Permissions"]


@dataclass(frozen=True, slots=True)
class Decision:
    action: Literal["allow", "deny", "ask"]
    reason: str = ""


class Permissions:
    def decide(self, tool_name: str, arguments: Mapping[str, Any]) -> Decision:
        return Decision("allow")
