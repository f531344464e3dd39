"""What a docstring says of a function and of each parameter, in any of the usual styles.

`docstring_parser` reads the entries of NumPy, reST and Epydoc docstrings. What it gets wrong is done here: where
sections begin and end (without blank lines, in any order, not inside code), Google and Markdown entries (types with
colons, several names, wrapped lines, lists in the text), and text after the last section.
"""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Any, Literal, TypeAlias

from toolkit.dataclass import dataclass

__all__ = ["DocumentedParameter", "Documentation", "read_docstring"]

_Section: TypeAlias = Literal["text", "entries", "numpy", "fields", "dropped"]

_ENTRIES = "args|arguments|parameters?|params|kwargs|keyword (?:args|arguments|parameters)|other parameters"
_DROPPED = (
    "returns?|return values?|yields?|receives|raises?|throws|exceptions?|warns|examples?|attributes|methods|see also|"
    "references|todo"
)
_HEADER = re.compile(
    rf"(?P<mark>\#{{1,6}}\s+|\*\*|__)?(?:(?P<entries>{_ENTRIES})|(?P<dropped>{_DROPPED}))\s*(?P<colon>:?)(?:\*\*|__)?(?P<after>:?)",
    re.IGNORECASE,
)
_INLINE = re.compile(r"(?:returns?|yields?|raises?)\s*:\s+\S", re.IGNORECASE)
_FIELD = re.compile(r"[:@][A-Za-z]+(?:\s+[^:\n]+)?:")
_UNDERLINE = re.compile(r"(-{3,}|={3,})")
_BULLET = re.compile(r"(?:[-*+\u2022])\s+")
_NAME = re.compile(r"[`*]*(?P<name>[^\W\d]\w*)[`*]*")
_MARKERS = re.compile(
    rf"[:@](?:param|arg|key|type|return|raise)|^\W*(?:{_ENTRIES}|{_DROPPED})\b", re.IGNORECASE | re.MULTILINE
)
_OPTIONAL = re.compile(r",?\s*(?:\(optional\)|\boptional\b|\bdefaults?\b.*|\bkeyword[- ]only\b)\s*$", re.IGNORECASE)

_TYPES: dict[str, Any] = {
    "int": int, "integer": int, "str": str, "string": str, "text": str, "float": float, "number": float,
    "double": float, "bool": bool, "boolean": bool, "bytes": bytes, "list": list, "array": list, "sequence": list,
    "iterable": list, "tuple": tuple, "set": set, "dict": dict, "dictionary": dict, "mapping": dict, "object": object,
    "any": Any, "none": None, "null": None, "optional": typing.Optional, "union": typing.Union,
    "literal": typing.Literal,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedParameter:
    """What a docstring says of one parameter."""

    description: str = ""
    type_text: str | None = None

    def type_in(self, namespace: Mapping[str, Any]) -> Any:
        """Return the type that the text means; `NotImplemented` where it means none that is known.

        Read, never evaluated: names, ``list of int``, ``int or None``, ``{'a', 'b'}`` and the syntax of hints.
        """
        if not self.type_text:
            return NotImplemented
        text = _OPTIONAL.sub("", self.type_text.strip().strip("`")).strip()
        try:
            return _type_of_text(text, namespace)
        except (SyntaxError, ValueError, TypeError, LookupError, RecursionError):
            return NotImplemented


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """A docstring, read."""

    description: str = ""
    parameters: dict[str, DocumentedParameter] = field(default_factory=dict[str, DocumentedParameter])


def read_docstring(text: str | None) -> Documentation:
    """Read a docstring; never raises: what can't be read as parameters is left out or stays description."""
    if not text:
        return Documentation()
    text = inspect.cleandoc(text)
    if _MARKERS.search(text) is None:
        return Documentation(description=text)
    kept: list[str] = []
    parameters: dict[str, DocumentedParameter] = {}
    for section, lines in _sections(text.split("\n")):
        match section:
            case "text":
                kept += [*lines, ""]
            case "entries":
                parameters |= _read_entries(lines)
            case "numpy":
                parameters |= _parsed("Parameters\n----------\n" + "\n".join(lines), "NUMPYDOC")
            case "fields":
                style = "EPYDOC" if lines[0].startswith("@") else "REST"
                parameters |= _parsed("\n".join(lines), style)
            case "dropped":
                continue
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Documentation(description=description, parameters=parameters)


def _sections(lines: Sequence[str]) -> list[tuple[_Section, list[str]]]:
    sections: list[tuple[_Section, list[str]]] = [("text", [])]
    content: list[str]
    is_code = False
    index = 0
    while index < len(lines):
        line = lines[index]
        section, content = sections[-1]
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
            if is_code and section != "text" and not line[0].isspace() and not lines[index - 1].strip():
                content = []
                sections.append(("text", content))
        if is_code:
            content.append(line)
        elif (header := _header(lines, index)) is not None:
            sections.append((header, []))
            index += header == "numpy" or _is_underlined(lines, index)
        elif _FIELD.match(line):
            if section != "fields" or content[0][0] != line[0]:
                sections.append(("fields", []))
            sections[-1][1].append(line)
        elif index > 0 and _INLINE.match(line) and section != "numpy":
            sections.append(("dropped", [line]))
        elif _ends(section, content, line, lines, index):
            sections.append(("text", [line]))
        else:
            content.append(line)
        index += 1
    return sections


def _is_underlined(lines: Sequence[str], index: int) -> bool:
    return index + 1 < len(lines) and _UNDERLINE.fullmatch(lines[index + 1].strip()) is not None


def _header(lines: Sequence[str], index: int) -> _Section | None:
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


def _ends(section: _Section, content: Sequence[str], line: str, lines: Sequence[str], index: int) -> bool:
    """Whether a line that stands at the margin is no part of its section any more."""
    if section in ("text", "numpy") or not line.strip() or line[0].isspace():
        return False
    is_after_blank = not lines[index - 1].strip()
    if section == "entries" and any(item.strip() and item[0].isspace() for item in content[:2]):
        return True
    if section == "entries":
        return _split_entry(line) is None and (is_after_blank or not _BULLET.match(lines[index - 1]))
    if section == "dropped":
        has_margin_text = any(item.strip() and not item[0].isspace() for item in content)
        return (
            bool(content) and (is_after_blank or not has_margin_text) and not all(not item.strip() for item in content)
        )
    return is_after_blank


def _read_entries(lines: Sequence[str]) -> dict[str, DocumentedParameter]:
    """Read Google's ``name (type): text`` and Markdown's ``- `name` (type): text``."""
    first = next((line for line in lines if line.strip()), "")
    margin = len(first) - len(first.lstrip())
    is_bulleted = _BULLET.match(first.lstrip()) is not None
    parameters: dict[str, DocumentedParameter] = {}
    names: list[str] = []
    type_text: str | None = None
    body: list[str] = []

    def keep() -> None:
        description = "\n".join([body[0], inspect.cleandoc("\n" + "\n".join(body[1:]))] if body else []).strip()
        parameters.update({name: DocumentedParameter(description=description, type_text=type_text) for name in names})

    for line in lines:
        indent = len(line) - len(line.lstrip())
        starts = indent <= margin and line.strip() and (_BULLET.match(line.lstrip()) is not None) == is_bulleted
        entry = _split_entry(line) if starts else None
        if entry is not None:
            keep()
            names, type_text, text = entry
            body = [text]
        elif names:
            body.append(line)
    keep()
    return parameters


def _split_entry(line: str) -> tuple[list[str], str | None, str] | None:
    """Split ``name, name (type): text``; None where a line is no entry."""
    line = _BULLET.sub("", line.strip(), count=1)
    cut = _cut(line)
    if cut is None:
        return None
    head, text = line[: cut[0]].strip(), line[cut[1] :].strip()
    opening = re.search(r"[(\[]", head)
    names_text, type_text = (head[: opening.start()], head[opening.start() :].strip()) if opening else (head, None)
    if type_text is not None:
        if type_text[-1] not in ")]":
            return None
        type_text = type_text[1:-1].strip()
    names = [_NAME.fullmatch(part.strip()) for part in re.split(r",|/|\band\b", names_text)]
    found = [name["name"] for name in names if name is not None]
    if len(found) != len(names):
        return None
    return found, type_text or None, text


def _cut(line: str) -> tuple[int, int] | None:
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
        elif depth == 0 and (dash := re.match(r"\s(?:--?|\u2013|\u2014)\s", line[index:])):
            return index, index + dash.end()
    return None


def _parsed(text: str, style: str) -> dict[str, DocumentedParameter]:
    import docstring_parser  # noqa: PLC0415 - slow to import, and most docstrings are Google's or have no sections

    parameters: dict[str, DocumentedParameter] = {}
    texts = [text] if style == "NUMPYDOC" else _one_by_one(text)
    types: dict[str, str] = {}
    for part in texts:
        if (typed := re.match(r"[:@]type\s+(\w+)\s*:\s*(.+)", part, re.DOTALL)) is not None:
            types[typed[1]] = typed[2].strip()
            continue
        try:
            parsed = docstring_parser.parse(part, style=docstring_parser.DocstringStyle[style])
        except docstring_parser.ParseError:
            continue
        for found in parsed.params:
            documented = DocumentedParameter(description=(found.description or "").strip(), type_text=found.type_name)
            parameters |= {name.strip().lstrip("*\\"): documented for name in found.arg_name.split(",")}
    return {
        name: DocumentedParameter(description=found.description, type_text=found.type_text or types.get(name))
        for name, found in parameters.items()
    }


def _one_by_one(text: str) -> list[str]:
    """Split a field list, so that one bad field spoils no other; ``:param dict[str, int] x:`` loses its spaces."""
    fields = [part for part in re.split(r"\n(?=[:@][A-Za-z])", text) if part]
    return [
        re.sub(
            r"\A([:@](?:param|parameter|arg|argument|key|keyword|kwarg)\s+)([^:]+?)(\s+\S+\s*:)",
            lambda found: found[1] + found[2].replace(" ", "") + found[3],
            part,
        )
        for part in fields
    ]


def _type_of_text(text: str, namespace: Mapping[str, Any]) -> Any:
    if (of := re.fullmatch(r"(list|array|sequence|iterable|set|tuple)s?\s+of\s+(.+)", text, re.IGNORECASE)) is not None:
        item = _type_of_text(of[2].removesuffix("s") if of[2].lower() not in _TYPES else of[2], namespace)
        arguments = (item, ...) if of[1].lower() == "tuple" else (item,)
        return _TYPES[of[1].lower()][arguments]
    if text.startswith("{") and text.endswith("}"):
        return typing.Literal[tuple(ast.literal_eval(f"[{text[1:-1]}]"))]
    if " or " in text:
        hints = [_or_none(_type_of_text(part.strip(), namespace)) for part in text.split(" or ")]
        return reduce(lambda left, right: left | right, hints)
    return _type_of_node(ast.parse(text, mode="eval").body, namespace)


def _or_none(hint: Any) -> Any:
    return type(None) if hint is None else hint


def _type_of_node(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name):
            if name in namespace and (isinstance(namespace[name], type) or name not in _TYPES):
                found = namespace[name]
                if isinstance(found, type) or typing.get_origin(found) is not None:
                    return found
            return _TYPES[name.lower()]
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return getattr(namespace[module], name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _or_none(_type_of_node(left, namespace)) | _or_none(_type_of_node(right, namespace))
        case ast.Subscript(value=value, slice=inside):
            outer = _type_of_node(value, namespace)
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if outer is typing.Literal:
                return typing.Literal[tuple(ast.literal_eval(part) for part in parts)]
            hints = tuple(
                ... if isinstance(part, ast.Constant) and part.value is ... else _type_of_node(part, namespace)
                for part in parts
            )
            return outer[hints] if len(hints) != 1 else outer[next(iter(hints))]
        case _:
            raise ValueError(f"no type: {ast.dump(node)}")
