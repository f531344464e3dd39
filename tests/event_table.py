"""The table of events in the docs, made from the code: ``python -m tests.event_table`` writes it anew."""

import dataclasses
import re
from pathlib import Path
from typing import Any, get_args

from toolkit.loop.event_json import list_fields, name_event
from toolkit.loop.events import LoopEvent
from toolkit.loop.outcome import TerminationReason, ToolLoopResult

DOCS = Path(__file__).parents[1] / "docs" / "events.md"

_STAMPS = ("run_id", "loop_id", "time")
_MARKED = re.compile(r"(?<=<!-- events -->\n).*?(?=<!-- end -->)", re.DOTALL)


def write_table(text: str) -> str:
    """Return the text of the page with the table as the code has it."""
    return _MARKED.sub(lambda _: _make_table(), text)


def _make_table() -> str:
    rows = [(f"`{name_event(kind)}`", _say_purpose(kind), _say_fields(kind)) for kind in get_args(LoopEvent)]
    rows.append(("a result", _say_purpose(ToolLoopResult), _say_fields(ToolLoopResult)))
    endings = [
        (f"`{_tag_of(kind)}`", _say_purpose(kind), _say_fields(kind, left_out=("kind", *_STAMPS)))
        for kind in get_args(TerminationReason)
    ]
    return (
        _lay_out(("`event`", "Says", "Fields"), rows)
        + "\n`reason` of a result is one of these, by its `kind`:\n\n"
        + _lay_out(("`kind`", "Says", "Fields"), endings)
    )


def _lay_out(head: tuple[str, ...], rows: list[tuple[str, str, str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _tag_of(kind: Any) -> str:
    return str(next(field.default for field in dataclasses.fields(kind) if field.name == "kind"))


def _say_purpose(kind: type) -> str:
    paragraph = (kind.__doc__ or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def _say_fields(kind: type, left_out: tuple[str, ...] = _STAMPS) -> str:
    fields = [f"`{name}` {_say_type(hint)}" for name, hint in list_fields(kind).items() if name not in left_out]
    return ", ".join(fields) or "none"


def _say_type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    text = text.replace("SystemMessage | UserMessage | AssistantMessage | ToolResult", "Message")
    text = re.sub(r"Complete \|.*Cancelled", "TerminationReason", text)
    text = text.replace("Optional[~Out]", "any").replace("BaseException", "error").replace("ProviderError", "error")
    return re.sub(r"\bException\b", "error", text).replace("|", "or").replace("typing.", "")


if __name__ == "__main__":
    DOCS.write_text(write_table(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
