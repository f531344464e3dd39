"""Docstrings read in any of the usual styles: the description of a function, and of each parameter.

Here is where sections begin and end (without blank lines, in any order, not inside code). No line gets lost: one that
belongs to no parameter, and to no section that models don't read, is description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.schema.docstring_entries import (
    BULLET,
    DocumentedParameter,
    Entries,
    is_field,
    measure_indent,
    read_entries,
    read_fields,
    read_numpy,
    split_entry,
)

__all__ = ["DocumentedParameter", "Documentation", "read_attributes", "read_docstring"]

_SectionKind: TypeAlias = Literal["text", "entries", "numpy", "fields", "dropped"]

_ENTRY_HEADERS = "args|arguments|parameters?|params|kwargs|keyword (?:args|arguments|parameters)|other parameters"
_DROPPED_HEADERS = (
    "returns?|return values?|yields?|receives|raises?|throws|exceptions?|warns|examples?|attributes|methods|see also|"
    "references|todo"
)
_HEADER = re.compile(
    rf"(?P<mark>\#{{1,6}}\s+|\*\*|__|:(?=\S))?(?:(?P<entries>{_ENTRY_HEADERS})|(?P<dropped>{_DROPPED_HEADERS}))\s*(?P<colon>:?)(?:\*\*|__)?(?P<after>:?)",
    re.IGNORECASE,
)
_INLINE = re.compile(r"(?:returns?|yields?|raises?)\s*:\s+\S", re.IGNORECASE)
_UNDERLINE = re.compile(r"(-{3,}|={3,})")
_CODE_FENCES = ("```", "~~~")
_PEP257 = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s+--\s+\S")
_MARKERS = re.compile(
    rf"[:@](?:param|arg|key|kwarg|type|return|raise)|^[^\w\n]*(?:{_ENTRY_HEADERS}|{_DROPPED_HEADERS})\b|\s--\s",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """A docstring, read."""

    description: str = ""
    parameters: dict[str, DocumentedParameter] = field(default_factory=dict[str, DocumentedParameter])


def read_docstring(text: str | None, names: Collection[str] = ()) -> Documentation:
    """Read a docstring; never raises: what can't be read as parameters stays description.

    Args:
        text: The docstring; None is an empty one.
        names: The parameters that there are: they tell entries from other text where the notation leaves it open.
    """
    if not text:
        return Documentation()
    text = inspect.cleandoc(text)
    if _MARKERS.search(text) is None:
        return Documentation(description=text)
    kept: list[str] = []
    parameters: dict[str, DocumentedParameter] = {}
    for section in _split_sections(_align_margins(text.split("\n")), names):
        found = _read_section(section, names)
        for name, documented in found.parameters.items():
            known = parameters.get(name)
            parameters[name] = documented if known is None else known.joined(documented)
        kept += [*found.rest, ""]
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Documentation(description=description, parameters=parameters)


def read_attributes(text: str | None, names: Collection[str]) -> dict[str, DocumentedParameter]:
    """Return what the docstring of a class says of its attributes, in a section of them or of arguments."""
    renamed = re.sub(r"(?m)^(\s*)attributes(?=\s*:?\s*$)", r"\1Parameters", text or "", flags=re.IGNORECASE)
    renamed = re.sub(r"(?m)^(\s*[:@])(?:var|ivar|cvar)\b", r"\1param", renamed)
    found = read_docstring(renamed, names).parameters
    return {name: documented for name, documented in found.items() if name in names}


@dataclass(slots=True)
class _DocstringSection:
    """A section: its kind, its header (empty without one) and the lines below it."""

    kind: _SectionKind
    lines: list[str]
    header: list[str] = field(default_factory=list[str])


def _read_section(section: _DocstringSection, names: Collection[str]) -> Entries:
    match section.kind:
        case "text":
            return Entries(rest=section.lines)
        case "dropped":
            return Entries()
        case "entries":
            found = read_entries(section.lines, names)
            if not found.parameters and any(is_field(line) for line in section.lines):
                found = read_fields(section.lines, names)
        case "numpy":
            found = read_numpy(section.lines, names)
        case "fields":
            return read_fields(section.lines, names)
    if not found.parameters and any(line.strip() for line in found.rest):
        found.rest = [*section.header, *found.rest]
    return found


def _split_sections(lines: Sequence[str], names: Collection[str]) -> list[_DocstringSection]:
    sections = [_DocstringSection("text", [])]
    is_code = False
    skipped = -1
    for index, line in enumerate(lines):
        section = sections[-1]
        if index == skipped:
            continue
        if line.lstrip().startswith(_CODE_FENCES):
            is_code = not is_code
            starts_text = section.kind != "text" and not line[0].isspace() and not lines[index - 1].strip()
            if is_code and starts_text:
                section = _DocstringSection("text", [])
                sections.append(section)
        if is_code:
            section.lines.append(line)
            continue
        header = _read_header_kind(lines, index)
        if header is not None:
            is_underlined = _is_underlined(lines, index)
            skipped = index + 1 if header == "numpy" or is_underlined else -1
            title = list(lines[index : index + 1 + is_underlined])
            is_said = header == "text" and line.strip().lower() != "notes"
            sections.append(_DocstringSection(header, title if is_said else [], title))
        else:
            _take_line(sections, lines, index, names)
    return sections


def _take_line(sections: list[_DocstringSection], lines: Sequence[str], index: int, names: Collection[str]) -> None:
    """Put a line that is no header into the section that it belongs to."""
    section, line = sections[-1], lines[index]
    if is_field(line) and section.kind != "numpy" and (section.kind != "entries" or not line[0].isspace()):
        if section.kind != "fields" and (not line[0].isspace() or section.kind == "text"):
            sections.append(_DocstringSection("fields", []))
        sections[-1].lines.append(line)
    elif index > 0 and _INLINE.match(line) and section.kind != "numpy":
        sections.append(_DocstringSection("dropped", [line]))
    elif section.kind == "text" and _is_pep257(line, names):
        sections.append(_DocstringSection("entries", [line]))
    elif _is_outside_section(section, line, lines, index, names):
        is_entry = _is_pep257(line, names)
        sections.append(_DocstringSection("entries" if is_entry else "text", [line]))
    elif section.kind == "text" and _is_split_entry(sections, line, names):
        sections.append(_DocstringSection(sections[-2].kind, [line]))
    else:
        section.lines.append(line)


def _is_pep257(line: str, names: Collection[str]) -> bool:
    found = _PEP257.match(line)
    return found is not None and found["name"] in names


def _is_split_entry(sections: Sequence[_DocstringSection], line: str, names: Collection[str]) -> bool:
    """Return whether an indented line is an entry of the section before the text that has cut it in two."""
    if len(sections) < 2 or sections[-2].kind != "entries" or not line[:1].isspace():
        return False
    entry = split_entry(line)
    return entry is not None and all(name in names for name in entry[0])


def _is_underlined(lines: Sequence[str], index: int) -> bool:
    return index + 1 < len(lines) and _UNDERLINE.fullmatch(lines[index + 1].strip()) is not None


def _read_header_kind(lines: Sequence[str], index: int) -> _SectionKind | None:
    found = _HEADER.fullmatch(lines[index].rstrip())
    is_underlined = _is_underlined(lines, index)
    if found is None:
        # Another NumPy section, such as Notes: it ends the one before, and its text is description.
        is_title = is_underlined and lines[index][:1].isalpha() and len(lines[index]) < 40
        return "text" if is_title and index > 0 else None
    if not (is_underlined or found["mark"] or found["colon"] or found["after"]):
        return None
    if found["dropped"]:
        return "dropped"
    return "numpy" if is_underlined else "entries"


def _is_outside_section(
    section: _DocstringSection, line: str, lines: Sequence[str], index: int, names: Collection[str]
) -> bool:
    """Return whether a line that stands at the margin is no part of its section any more."""
    if section.kind in ("text", "numpy") or not line.strip() or line[0].isspace():
        return False
    if section.kind == "entries":
        return _is_after_entries(section.lines, line, lines[index - 1], names)
    is_after_blank = not lines[index - 1].strip()
    if section.kind == "dropped":
        said = [item for item in section.lines if item.strip()]
        return bool(said) and (is_after_blank or all(item[0].isspace() for item in said))
    return is_after_blank


def _is_after_entries(entries: Sequence[str], line: str, line_before: str, names: Collection[str]) -> bool:
    """Return whether a line at the margin ends a section of entries, and is neither an entry nor the text of one."""
    if any(item.strip() and item[0].isspace() for item in entries[:2]):
        return True
    entry = split_entry(line)
    if entry is None:
        return not line_before.strip() or not BULLET.match(line_before)
    return not line_before.strip() and len(names) > 0 and not BULLET.match(line) and entry[0][0] not in names


def _align_margins(lines: list[str]) -> list[str]:
    """Return the lines as they would be had no line been put left of the docstring's own margin.

    `inspect.cleandoc` takes off what all lines have in common, which is nothing where one stands at the margin.
    """
    bare = [line.strip() for line in lines]
    margins = [
        measure_indent(line)
        for index, line in enumerate(lines)
        if is_field(line) or _read_header_kind(bare, index) is not None
    ]
    margin = min(margins, default=0)
    below = [line for line in lines[1:] if line.strip() and measure_indent(line) < margin]
    level = [line for line in lines[1:] if line.strip() and measure_indent(line) == margin]
    if margin == 0 or len(below) > len(level) or any(line.rstrip().endswith(":") for line in below):
        return lines
    return [line[min(margin, measure_indent(line)) :] for line in lines]
