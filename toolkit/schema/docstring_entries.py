"""The entries of a docstring, one a parameter, in the notation of its section: Google, Markdown, NumPy or fields.

What is no entry is given back, so that no line gets lost.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.schema.documented_types import find_unsaid, read_type

__all__ = [
    "BULLET",
    "DocumentedParameter",
    "Entries",
    "is_field",
    "measure_indent",
    "read_entries",
    "read_fields",
    "read_numpy",
    "split_entry",
]

BULLET = re.compile(r"[-*+\u2022]\s+")

_PARAMETER_NAME = re.compile(r"[`*\\]*(?P<name>[^\W\d]\w*)[`*]*")
_TEXT_FIELD = "param|parameter|arg|argument|key|keyword|kwarg|kwparam"
_DROPPED_FIELD = "returns?|rtype|raises?|throws|except|exception|yields?|ytype|var|ivar|cvar|vartype|meta"
_FIELD = re.compile(rf"[:@](?P<word>{_TEXT_FIELD}|type|kwtype|{_DROPPED_FIELD})(?=[:\s]|$)", re.IGNORECASE)
_BRACED_TYPE = re.compile(r"\{(?P<type>[^{}]*)\}\s*(?:\[\s*(?P<optional>\w+)[^\]]*\]|(?P<name>[\w*`]+))\s*[-:]*\s*")
_EntryParts: TypeAlias = tuple[list[str], str | None, str]  # names, the text of their type, what is said of them
_ADMONITIONS = frozenset({"note", "notes", "warning", "warnings", "important", "caution", "tip", "hint", "attention"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedParameter:
    """The words of a docstring on one parameter."""

    description: str = ""
    type_text: str | None = None

    def type_in(self, namespace: Mapping[str, Any]) -> Any:
        """Return the type that the text means; `NotImplemented` where it means none that is known."""
        return read_type(self.type_text, namespace) if self.type_text else NotImplemented

    def text_beside(self, hint: Any, default: Any) -> str:
        """Return the description, and behind it the text of the type where the schema says less than that."""
        if self.type_text is None or not find_unsaid(self.type_text, hint, default):
            return self.description
        return f"{self.description} ({self.type_text})".strip()

    def joined(self, other: DocumentedParameter) -> DocumentedParameter:
        """Return what both say, for a parameter that is described in two places."""
        is_other = self.type_text is not None and other.type_text not in (None, self.type_text)
        types = f"({other.type_text})" if is_other else ""
        texts = dict.fromkeys(text for text in (self.description, types, other.description) if text)
        return DocumentedParameter(description="\n".join(texts), type_text=self.type_text or other.type_text)


@dataclass(slots=True)
class Entries:
    """The contents of one section: parameters, and the lines that belong to none."""

    parameters: dict[str, DocumentedParameter] = field(default_factory=dict[str, DocumentedParameter])
    rest: list[str] = field(default_factory=list[str])
    _names: list[str] = field(default_factory=list[str])
    _type_text: str | None = None
    _body: list[str] = field(default_factory=list[str])

    def begin(self, names: list[str], type_text: str | None, text: str) -> None:
        """Begin an entry; what follows belongs to it."""
        self.end()
        self._names, self._type_text, self._body = names, type_text, [text]

    def go_on(self, line: str) -> None:
        """Take a line that begins no entry."""
        (self._body if self._names else self.rest).append(line)

    def end(self) -> None:
        """End the entry that was begun."""
        if self._names:
            first, *others = self._body
            description = "\n".join([first, inspect.cleandoc("\n" + "\n".join(others))]).strip()
            documented = DocumentedParameter(description=description, type_text=self._type_text)
            for name in self._names:
                known = self.parameters.get(name)
                self.parameters[name] = documented if known is None else known.joined(documented)
        self._names = []


def read_entries(lines: Sequence[str], names: Collection[str]) -> Entries:
    """Read Google's ``name (type): text``, Markdown's ``- `name` (type): text`` and PEP 257's ``name -- text``."""
    entries = Entries()
    margin, is_bulleted = -1, False
    for index, line in enumerate(lines):
        text = line.strip()
        bullet = BULLET.match(text) is not None
        starts = text != "" and (margin < 0 or (measure_indent(line) <= margin and bullet == is_bulleted))
        entry = (split_entry(line) or _split_bare(lines, index, names)) if starts else None
        if entry is None:
            entries.go_on(line)
        elif entry[0][0] not in names and entry[0][0].lower() in _ADMONITIONS:
            entries.end()
            entries.go_on(line)
        else:
            if margin < 0:
                margin, is_bulleted = measure_indent(line), bullet
            entries.begin(*_separate_type(entry, lines, index))
    entries.end()
    return entries


def read_numpy(lines: Sequence[str], names: Collection[str]) -> Entries:
    """Read NumPy's ``name, name : type`` with the text below it."""
    entries = Entries()
    margin = next((measure_indent(line) for line in lines if line.strip()), 0)
    for index, line in enumerate(lines):
        if not line.strip() or measure_indent(line) > margin:
            entries.go_on(line)
            continue
        head, colon, type_text = line.partition(":")
        found = _split_names(head)
        is_entry = found and (colon or _is_deeper(lines, index) or not {*found}.isdisjoint(names))
        if is_entry and not (found[0] not in names and found[0].lower() in _ADMONITIONS):
            entries.begin(found, type_text.strip() or None, "")
        else:
            entries.end()
            entries.go_on(line)
    entries.end()
    return entries


def read_fields(lines: Sequence[str], names: Collection[str]) -> Entries:
    """Read ``:param type name: text``, ``@param name: text`` and ``@param {type} name text``, and drop other fields."""
    entries = Entries()
    types: dict[str, str] = {}
    parts: list[list[str]] = []
    for line in lines:
        if is_field(line) or not parts:
            parts.append([])
        parts[-1].append(line)
    for first, *others in parts:
        found = _FIELD.match(first.lstrip())
        word = found["word"].lower() if found is not None else ""
        if found is None:
            entries.rest += [first, *others]
            continue
        is_type = word in ("type", "kwtype")
        if not is_type and not re.fullmatch(_TEXT_FIELD, word):
            continue
        entry = _split_field(first.lstrip()[found.end() :], names)
        if entry is None:
            entries.rest += [first, *others]
        elif is_type:
            types[entry[0][0]] = " ".join([entry[2], *map(str.strip, others)]).strip()
        else:
            entries.begin(*entry)
            for line in others:
                entries.go_on(line)
            entries.end()
    for name, type_text in types.items():
        typed = DocumentedParameter(type_text=type_text)
        entries.parameters[name] = entries.parameters.get(name, typed).joined(typed)
    return entries


def is_field(line: str) -> bool:
    """Return whether a line begins a field such as ``:param x:`` or ``@returns``; roles such as ``:func:`` are none."""
    return _FIELD.match(line.lstrip()) is not None


def split_entry(line: str) -> _EntryParts | None:
    """Split ``name, name (type): text``; None where a line is no entry."""
    line = line.strip()
    bullet = BULLET.match(line)
    line = line[bullet.end() :] if bullet is not None else line
    cut = _find_cut(line)
    if cut is None:
        return None
    head = _split_head(line[: cut[0]])
    return None if head is None else (*head, line[cut[1] :].strip())


def _split_bare(lines: Sequence[str], index: int, names: Collection[str]) -> _EntryParts | None:
    """Split ``name (type)`` whose text stands below it."""
    head = _split_head(BULLET.sub("", lines[index].strip(), count=1)) if _is_deeper(lines, index) else None
    return None if head is None or {*head[0]}.isdisjoint(names) else (*head, "")


def _separate_type(entry: _EntryParts, lines: Sequence[str], index: int) -> _EntryParts:
    """Take the text of ``name : int`` for a type where the words stand below it."""
    names, type_text, text = entry
    is_type = " : " in lines[index] and _is_deeper(lines, index) and read_type(text, {}) is not NotImplemented
    return (names, text, "") if is_type and type_text is None else entry


def _split_head(head: str) -> tuple[list[str], str | None] | None:
    head = head.strip()
    opening = re.search(r"[(\[]", head)
    names_text, type_text = (head[: opening.start()], head[opening.start() :].strip()) if opening else (head, None)
    if type_text is not None:
        type_text = type_text.strip("*")
        if not type_text or type_text[-1] not in ")]":
            return None
        type_text = type_text[1:-1].strip()
    names = _split_names(names_text)
    return (names, type_text or None) if names else None


def _split_names(text: str) -> list[str]:
    """Return the names in ``a, b and c``; nothing where there is anything else."""
    found = [_PARAMETER_NAME.fullmatch(part.strip()) for part in re.split(r",|/|\band\b", text)]
    names = [name["name"] for name in found if name is not None]
    return names if len(names) == len(found) else []


def _split_field(text: str, names: Collection[str]) -> _EntryParts | None:
    """Split what follows ``:param``: a name with or without its type, before a colon or not."""
    text = text.strip()
    if (braced := _BRACED_TYPE.match(text)) is not None:
        name = braced["optional"] or braced["name"].strip("`*")
        return [name], braced["type"].strip() or None, text[braced.end() :]
    cut = _find_cut(text)
    head, said = (text[: cut[0]], text[cut[1] :].strip()) if cut is not None else (text, "")
    words = head.split()
    if not words:
        return None
    is_java = len(words) > 1 and words[0] in names and words[-1] not in names
    if is_java or (cut is None and len(words) > 1 and _PARAMETER_NAME.fullmatch(words[0])):
        return [words[0].strip("`*")], None, text[len(words[0]) :].strip()
    found = _split_names(head)
    if found:
        return found, None, said
    named = _PARAMETER_NAME.fullmatch(words[-1])
    return None if named is None else ([named["name"]], " ".join(words[:-1]), said)


def _find_cut(line: str) -> tuple[int, int] | None:
    """Return where the colon or dash after an entry's head begins and ends; those inside brackets don't count."""
    depth, quote = 0, ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and depth:
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0 and character == ":":
            return index, index + 1
        elif depth == 0 and (dash := re.match(r"\s+(?:--?|\u2013|\u2014)(?:\s|$)", line[index:])):
            return index, index + dash.end()
    return None


def _is_deeper(lines: Sequence[str], index: int) -> bool:
    below = next((line for line in lines[index + 1 :] if line.strip()), "")
    return below != "" and measure_indent(below) > measure_indent(lines[index])


def measure_indent(line: str) -> int:
    """Return how many spaces a line begins with."""
    return len(line) - len(line.lstrip())
