"""What a docstring says of a function and of each parameter, in any of the usual styles."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DocumentedParameter", "Documentation", "read_docstring"]

_SECTION = re.compile(
    r"^\s*(?:[:@](?:param|parameter|arg|argument|key|keyword|kwarg|type|return|returns|rtype|raise|raises|yield|yields)\b"
    r"|(?:args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes|returns|yields|"
    r"raises|examples?|notes?|see also|references|warnings?|todo)\s*:?\s*$)",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedParameter:
    """What a docstring says of one parameter."""

    description: str = ""
    type_text: str | None = None

    def type_in(self, namespace: Mapping[str, Any]) -> Any:
        """Return the type that the text means; None where it means none that is known."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """A docstring, read."""

    description: str = ""
    parameters: dict[str, DocumentedParameter] = field(default_factory=dict[str, DocumentedParameter])


def read_docstring(text: str | None) -> Documentation:
    """Read a docstring; never raises: what can't be read as parameters stays description."""
    if not text:
        return Documentation()
    text = inspect.cleandoc(text)
    if _SECTION.search(text) is None:
        return Documentation(description=text)
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Documentation(description=text)
    description = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    return Documentation(
        description=description,
        parameters={
            found.arg_name: DocumentedParameter(description=found.description or "", type_text=found.type_name)
            for found in parsed.params
        },
    )
