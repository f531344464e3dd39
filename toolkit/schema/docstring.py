"""Reads docstrings of the usual styles: the description of a function, and of each parameter.

Sections are found here (without blank lines, in any order, not in code); docstring-parser reads those of parameters.
No line is lost: lines of no parameter, outside of the sections that models don't read, belong to the description.
"""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import reduce
from itertools import chain
from typing import Any, Literal, TypeAlias

from docstring_parser import Docstring, rest as rest_style
from docstring_parser.google import GoogleParser
from docstring_parser.numpydoc import NumpydocParser

from toolkit.dataclass import dataclass

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
_NAME = r"[`*\\]*[^\W\d]\w*[`*]*"
_NAMES = rf"(?P<names>{_NAME}(?:\s*(?:,|/|\band\b)\s*{_NAME})*)"
_TYPE = r"\s*+(?:[(\[](?P<type>.*?)[)\]])?[`*]*\s*+"
_BULLET = re.compile(r"[-*+\u2022]\s+")
_DASH = r"(?<=\s)(?:--?|\u2013|\u2014)(?=\s|$)"
_ENTRY = re.compile(rf"{_NAMES}{_TYPE}(?::|{_DASH})(?P<text>.*)")
_BARE_ENTRY = re.compile(rf"{_NAMES}{_TYPE}(?P<text>)")
_ADMONITIONS = frozenset({"note", "notes", "warning", "warnings", "important", "caution", "tip", "hint", "attention"})

_TEXT_FIELDS = "param|parameter|arg|argument|key|keyword|kwarg|kwparam"
_DROPPED_FIELDS = "returns?|rtype|raises?|throws|except|exception|yields?|ytype|var|ivar|cvar|vartype|meta"
_FIELD = re.compile(
    rf"\s*[:@](?:(?P<text>{_TEXT_FIELDS})|(?P<type>type|kwtype)|{_DROPPED_FIELDS})(?=[:\s]|$)", re.IGNORECASE
)
_FIELD_HEAD = re.compile(rf"(?P<type>(?:[^:\s]+\s+(?!and\b))*?){_NAMES}\s*+(?::|{_DASH})(?P<text>.*)")
_JAVA_HEAD = re.compile(rf"(?P<names>{_NAME})(?P<type>)(?P<text>\s.*|$)")
_JS_HEAD = re.compile(
    r"\{(?P<type>[^{}]*)\}\s*(?:\[\s*(?P<optional>\w+)[^\]]*\]|(?P<names>[\w*`]+))\s*[-:]*\s*(?P<text>.*)"
)
_LONGEST_HEAD = 2_000  # docstring-parser takes more than linear time for it
_GOOGLE, _NUMPY = GoogleParser(), NumpydocParser()
# docstring-parser would end a head at a colon in the type, and drop ", optional" and "(default 3)".
_HIDDEN = str.maketrans(":,(?", "\ufe55\ufe50\ufe59\ufe56")
_SHOWN = {hidden: mark for mark, hidden in _HIDDEN.items()}

_TYPE_QUALIFIERS = re.compile(
    r",?\s*(?:\(optional\)|\boptional\b|\bdefaults?\b.*|\bkeyword[- ]only\b)\s*$", re.IGNORECASE
)
_NODES_OF_HINTS = (
    ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.List, ast.Load
)  # fmt: skip
_TYPES_BY_NAME: dict[str, Any] = {
    "int": int, "integer": int, "str": str, "string": str, "text": str, "float": float, "number": float,
    "double": float, "bool": bool, "boolean": bool, "bytes": bytes, "list": list, "array": list, "sequence": list,
    "iterable": list, "tuple": tuple, "set": set, "dict": dict, "dictionary": dict, "mapping": dict, "object": object,
    "any": Any, "none": None, "null": None, "optional": typing.Optional, "union": typing.Union,
    "literal": typing.Literal,
}  # fmt: skip
# Python's parser raises a `MemoryError` for what is nested too deeply.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedParameter:
    """The description and the type of a parameter in a docstring."""

    description: str = ""
    type_text: str | None = None

    def type_in(self, namespace: Mapping[str, Any]) -> Any:
        """Return the type of the text; `NotImplemented` if it is unknown."""
        return read_type(self.type_text, namespace) if self.type_text else NotImplemented

    def description_beside(self, hint: Any, default: Any) -> str:
        """Return the description, followed by the text of the type if it adds to the schema."""
        if self.type_text is None or not adds_to_hint(self.type_text, hint, default):
            return self.description
        return f"{self.description} ({self.type_text})".strip()

    def joined(self, other: DocumentedParameter) -> DocumentedParameter:
        """Return the description of a parameter that is described in two places."""
        is_other = self.type_text is not None and other.type_text not in (None, self.type_text)
        types = f"({other.type_text})" if is_other else ""
        texts = dict.fromkeys(text for text in (self.description, types, other.description) if text)
        return DocumentedParameter(description="\n".join(texts), type_text=self.type_text or other.type_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """The content of a docstring."""

    description: str = ""
    parameters: dict[str, DocumentedParameter] = field(default_factory=dict[str, DocumentedParameter])


def read_docstring(text: str | None, names: Collection[str] = ()) -> Documentation:
    """Read a docstring; never raises: whatever can't be read as parameters is description.

    Args:
        text: The docstring; None is an empty one.
        names: The existing parameters, which distinguish entries from other text where the notation is ambiguous.
    """
    if not text:
        return Documentation()
    text = inspect.cleandoc(text)
    if _MARKERS.search(text) is None:
        return Documentation(description=text)
    kept: list[str] = []
    parameters: dict[str, DocumentedParameter] = {}
    for section in _split_sections(_align_margins(text.split("\n")), names):
        found, rest = _read_section(section, names)
        for name, documented in found:
            known = parameters.get(name)
            parameters[name] = documented if known is None else known.joined(documented)
        kept += [*rest, ""]
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Documentation(description=description, parameters=parameters)


def read_attributes(text: str | None, names: Collection[str]) -> dict[str, DocumentedParameter]:
    """Return the attributes in the docstring of a class, from a section of attributes or of arguments."""
    renamed = re.sub(r"(?m)^(\s*)attributes(?=\s*:?\s*$)", r"\1Parameters", text or "", flags=re.IGNORECASE)
    renamed = re.sub(r"(?m)^(\s*[:@])(?:var|ivar|cvar)\b", r"\1param", renamed)
    found = read_docstring(renamed, names).parameters
    return {name: documented for name, documented in found.items() if name in names}


_Found: TypeAlias = tuple[list[tuple[str, DocumentedParameter]], list[str]]
"""The documented parameters of a section, and its other lines."""


@dataclass(slots=True)
class _DocstringSection:
    """A section: its kind, its lines and its header, if any."""

    kind: _SectionKind
    lines: list[str]
    header: list[str] = field(default_factory=list[str])


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
    """Add a line that is no header to its section."""
    section, line = sections[-1], lines[index]
    if _FIELD.match(line) and section.kind != "numpy" and (section.kind != "entries" or not line[0].isspace()):
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
    """Return whether an indented line continues the section before the text that interrupts it."""
    if len(sections) < 2 or sections[-2].kind != "entries" or not line[:1].isspace():
        return False
    entry = _match_entry(line)
    return entry is not None and all(name in names for name in _split_names(entry["names"]))


def _is_underlined(lines: Sequence[str], index: int) -> bool:
    return index + 1 < len(lines) and _UNDERLINE.fullmatch(lines[index + 1].strip()) is not None


def _read_header_kind(lines: Sequence[str], index: int) -> _SectionKind | None:
    found = _HEADER.fullmatch(lines[index].rstrip())
    is_underlined = _is_underlined(lines, index)
    if found is None:
        # Another NumPy section, such as Notes: its text is description.
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
    """Return whether a line at the margin ends its section."""
    if section.kind in ("text", "numpy") or not line.strip() or line[0].isspace():
        return False
    if section.kind == "entries":
        return _is_after_entries(section.lines, line, lines[index - 1], names)
    is_after_blank = not lines[index - 1].strip()
    if section.kind == "dropped":
        has_margin = any(item.strip() and not item[0].isspace() for item in section.lines)
        return is_after_blank if has_margin else any(item.strip() for item in section.lines)
    return is_after_blank


def _is_after_entries(entries: Sequence[str], line: str, line_before: str, names: Collection[str]) -> bool:
    """Return whether a line at the margin is neither an entry nor the text of one."""
    if any(item.strip() and item[0].isspace() for item in entries[:2]):
        return True
    entry = _match_entry(line)
    if entry is None:
        return not line_before.strip() or not _BULLET.match(line_before)
    return (
        not line_before.strip()
        and len(names) > 0
        and not _BULLET.match(line)
        and _split_names(entry["names"])[0] not in names
    )


def _align_margins(lines: list[str]) -> list[str]:
    """Return the lines without the docstring's own margin, also if some lines are left of it.

    `inspect.cleandoc` removes the common margin, which is none if a line is at the margin of the source.
    """
    bare = [line.strip() for line in lines]
    margins = [
        _measure_indent(line)
        for index, line in enumerate(lines)
        if _FIELD.match(line) or _read_header_kind(bare, index) is not None
    ]
    margin = min(margins, default=0)
    below = [line for line in lines[1:] if line.strip() and _measure_indent(line) < margin]
    level = [line for line in lines[1:] if line.strip() and _measure_indent(line) == margin]
    if margin == 0 or len(below) > len(level) or any(line.rstrip().endswith(":") for line in below):
        return lines
    return [line[min(margin, _measure_indent(line)) :] for line in lines]


def _read_section(section: _DocstringSection, names: Collection[str]) -> _Found:
    match section.kind:
        case "text":
            return [], section.lines
        case "dropped":
            return [], []
        case "entries":
            found, rest = _read_entries(section.lines, names)
            if not found and any(_FIELD.match(line) for line in section.lines):
                found, rest = _read_fields(section.lines, names)
        case "numpy":
            found, rest = _read_numpy(section.lines, names)
        case "fields":
            return _read_fields(section.lines, names)
    if not found and any(line.strip() for line in rest):
        rest = [*section.header, *rest]
    return found, rest


def _read_entries(lines: Sequence[str], names: Collection[str]) -> _Found:
    """Read Google's ``name (type): text``, Markdown's ``- `name` (type): text`` and PEP 257's ``name -- text``."""
    text, rest = list[str](), list[str]()
    margin, is_bulleted, is_entry = -1, False, False
    for index, line in enumerate(lines):
        is_bullet = _BULLET.match(line.lstrip()) is not None
        may_start = line.strip() != "" and (
            margin < 0 or (_measure_indent(line) <= margin and is_bullet == is_bulleted)
        )
        entry = (_match_entry(line) or _match_bare(lines, index, names)) if may_start else None
        if entry is None and is_entry:
            text.append(f"        {line}")
            continue
        is_entry = entry is not None and not _is_admonition(_split_names(entry["names"])[0], names)
        if entry is None or not is_entry:
            rest.append(line)
            continue
        if margin < 0:
            margin, is_bulleted = _measure_indent(line), is_bullet
        text.append(_write_google_entry(entry, lines, index))
    return _parse_section(["Args:"], text, _GOOGLE.parse, rest)


def _write_google_entry(entry: re.Match[str], lines: Sequence[str], index: int) -> str:
    type_text, words = entry["type"], entry["text"].strip()
    if type_text is None and " : " in lines[index] and _is_type_above(lines, index, words):
        type_text, words = words, ""
    shown = f" ({type_text.strip().translate(_HIDDEN)})" if type_text and type_text.strip() else ""
    return f"    {', '.join(_split_names(entry['names']))}{shown}: {words}"


def _read_numpy(lines: Sequence[str], names: Collection[str]) -> _Found:
    """Read NumPy's ``name, name : type`` with the text below it."""
    text, rest = list[str](), list[str]()
    margin = next((_measure_indent(line) for line in lines if line.strip()), 0)
    is_entry = False
    for index, line in enumerate(lines):
        if line.strip() and _measure_indent(line) <= margin:
            head, colon, type_text = line.partition(":")
            found = _split_names(head)
            is_entry = bool(found) and len(line) < _LONGEST_HEAD and not _is_admonition(found[0], names)
            is_entry = is_entry and (colon != "" or _is_deeper(lines, index) or not {*found}.isdisjoint(names))
            if is_entry:
                shown = f" : {type_text.strip().translate(_HIDDEN)}" if type_text.strip() else ""
                text.append(", ".join(found) + shown)
                continue
        (text if is_entry else rest).append(f"    {line}" if is_entry else line)
    return _parse_section(["Parameters", "-" * 10], text, _NUMPY.parse, rest)


def _read_fields(lines: Sequence[str], names: Collection[str]) -> _Found:
    """Read ``:param type name: text``, ``@param name: text`` and ``@param {type} name text``, and drop other fields."""
    rest: list[str] = []
    texts, types = dict[str, list[str]](), dict[str, list[str]]()
    for first, *below in _group_fields(lines):
        mark = _FIELD.match(first)
        head = None if mark is None else _match_field(first[mark.end() :].strip(), names)
        if mark is not None and mark["text"] is mark["type"] is None:
            continue
        if mark is None or head is None:
            rest += [first, *below]
            continue
        type_lines = [head["text"], *below] if mark["type"] else [head["type"] or ""]
        type_text = " ".join(" ".join(type_lines).split())
        indented = [f"    {line}" for line in below]
        for name in _name_field(head):
            if type_text:
                types.setdefault(name, []).append(f":type {name}: {type_text}")
            if mark["text"]:
                texts.setdefault(name, []).extend([f":param {name}: {head['text'].strip()}", *indented])
    found = [*types.values(), *({name: [f":param {name}:"] for name in types} | texts).values()]
    return _parse_section([], [*chain.from_iterable(found)], rest_style.parse, rest)


def _name_field(head: re.Match[str]) -> list[str]:
    """Return the names of a field, such as ``[name=1]`` of JSDoc."""
    optional = head.groupdict().get("optional")
    return [optional] if optional else _split_names(head["names"])


def _group_fields(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines of each field."""
    groups: list[list[str]] = []
    for line in lines:
        if not groups or _FIELD.match(line):
            groups.append([])
        groups[-1].append(line)
    return groups


def _parse_section(header: list[str], text: list[str], parse: Callable[[str], Docstring], rest: list[str]) -> _Found:
    """Parse the entries of a section by docstring-parser; lines that it can't parse belong to no parameter."""
    if not text:
        return [], rest
    try:  # after an empty line, because the margin of the first line is ignored
        found = parse("\n".join(["", *header, *text])).params
    except Exception:  # noqa: BLE001 - no docstring is wrong
        return [], [*text, *rest]
    documented = [
        (name, DocumentedParameter(description=(each.description or "").strip(), type_text=type_text or None))
        for each in found
        for type_text in [(each.type_name or "").translate(_SHOWN)]
        for name in _split_names(each.arg_name)
    ]
    return documented, rest


def _match_entry(line: str) -> re.Match[str] | None:
    line = line.strip()
    bullet = _BULLET.match(line)
    found = _ENTRY.fullmatch(line, bullet.end() if bullet is not None else 0)
    return None if found is None or found.start("text") > _LONGEST_HEAD else found


def _match_bare(lines: Sequence[str], index: int, names: Collection[str]) -> re.Match[str] | None:
    """Match ``name (type)`` with its text below."""
    line = _BULLET.sub("", lines[index].strip(), count=1)
    found = _BARE_ENTRY.fullmatch(line) if len(line) < _LONGEST_HEAD and _is_deeper(lines, index) else None
    return None if found is None or {*_split_names(found["names"])}.isdisjoint(names) else found


def _match_field(text: str, names: Collection[str]) -> re.Match[str] | None:
    """Match a name after ``:param``, with or without its type and a colon."""
    if (braced := _JS_HEAD.fullmatch(text)) is not None:
        return braced
    java = _JAVA_HEAD.fullmatch(text)
    found = _FIELD_HEAD.fullmatch(text) if len(text.partition(":")[0]) < _LONGEST_HEAD else None
    is_java = java is not None and _split_names(java["names"])[0] in names
    if found is None or (is_java and {*_split_names(found["names"])}.isdisjoint(names)):
        return java
    return found


def _split_names(text: str) -> list[str]:
    """Return the names in ``a, b and c``; empty if there is other text."""
    parts = [part.strip().strip("`*\\") for part in re.split(r",|/|\band\b", text)]
    return parts if all(part.isidentifier() for part in parts) else []


def _is_admonition(name: str, names: Collection[str]) -> bool:
    return name not in names and name.lower() in _ADMONITIONS


def _is_type_above(lines: Sequence[str], index: int, text: str) -> bool:
    """Return whether the text of ``name : int`` is a type, with the description below."""
    return _is_deeper(lines, index) and read_type(text, {}) is not NotImplemented


def _is_deeper(lines: Sequence[str], index: int) -> bool:
    below = next((lines[later] for later in range(index + 1, len(lines)) if lines[later].strip()), "")
    return below != "" and _measure_indent(below) > _measure_indent(lines[index])


def _measure_indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def read_type(text: str, namespace: Mapping[str, Any]) -> Any:
    """Return the type of a text; `NotImplemented` if it is unknown.

    Accepted are names, ``list of int``, ``int or None``, ``{'a', 'b'}``, ``int[]`` and the syntax of hints.
    """
    try:
        return _read_type_text(_strip_type_qualifiers(text), namespace)
    except (*_UNREADABLE, TypeError, LookupError, AttributeError):
        return NotImplemented


def adds_to_hint(text: str, hint: Any, default: Any) -> bool:
    """Return whether the text of a type adds to the hint and the default, such as ``{'m', 'km'}`` to ``str``."""
    plain = _strip_type_qualifiers(text)
    qualifiers = text.strip().strip("`")[len(plain) :]
    default_text = re.search(r"\bdefaults?\b\W*(?:to|is|value)?\W*(?P<value>.*)", qualifiers, re.IGNORECASE)
    if default_text is not None and default_text["value"].strip("`'\"() .") not in (str(default), "", "optional"):
        return True
    found = read_type(plain, {})
    if found is NotImplemented:
        return not all(_is_hint(part) for part in re.split(r",? or |(?<!,), (?![^\[(]*[\])])", plain))
    return typing.get_origin(found) is typing.Literal and typing.get_origin(hint) is not typing.Literal


def _is_hint(text: str) -> bool:
    """Return whether a text has the syntax of a hint."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except _UNREADABLE:
        return False
    return all(
        isinstance(node, _NODES_OF_HINTS) or (isinstance(node, ast.Constant) and node.value in (None, ...))
        for node in ast.walk(tree)
    )


def _strip_type_qualifiers(text: str) -> str:
    return _TYPE_QUALIFIERS.sub("", text.strip().strip("`")).strip()


def _read_type_text(text: str, namespace: Mapping[str, Any]) -> Any:
    if (of := re.fullmatch(r"(list|array|sequence|iterable|set|tuple)s?\s+of\s+(.+)", text, re.IGNORECASE)) is not None:
        item = _read_type_text(of[2].removesuffix("s") if of[2].lower() not in _TYPES_BY_NAME else of[2], namespace)
        arguments = (item, ...) if of[1].lower() == "tuple" else (item,)
        return _TYPES_BY_NAME[of[1].lower()][arguments]
    if text.endswith("[]"):
        return list[_read_type_text(text[:-2], namespace)]  # type: ignore[misc]  # a type known at run time only
    if text.startswith("{") and text.endswith("}"):
        return typing.Literal[tuple(ast.literal_eval(f"[{text[1:-1]}]"))]
    if " or " in text:
        hints = [_or_none(_read_type_text(part.strip(), namespace)) for part in text.split(" or ")]
        return reduce(lambda left, right: left | right, hints)
    return _read_type_node(ast.parse(text, mode="eval").body, namespace)


def _or_none(hint: Any) -> Any:
    return type(None) if hint is None else hint


def _read_type_node(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name):
            found = namespace.get(name)
            is_hint = isinstance(found, type) or (name not in _TYPES_BY_NAME and typing.get_origin(found) is not None)
            return found if is_hint else _TYPES_BY_NAME[name.lower()]
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return getattr(namespace[module], name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _or_none(_read_type_node(left, namespace)) | _or_none(_read_type_node(right, namespace))
        case ast.Subscript(value=value, slice=inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return _fill_generic(_read_type_node(value, namespace), parts, namespace)
        case _:
            raise ValueError(f"no type: {ast.dump(node)}")


def _fill_generic(outer: Any, parts: Sequence[ast.expr], namespace: Mapping[str, Any]) -> Any:
    if outer is typing.Literal:
        return typing.Literal[tuple(ast.literal_eval(part) for part in parts)]
    hints = tuple(
        ... if isinstance(part, ast.Constant) and part.value is ... else _read_type_node(part, namespace)
        for part in parts
    )
    return outer[hints] if len(hints) != 1 else outer[next(iter(hints))]
