"""Values that a text gives to names that tell of secrets, in any syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from toolkit.redaction.formats import (
    MASK,
    MIXED,
    find_known,
    find_places,
    fold_text,
    is_replaced,
    join_spans,
    mask_spans,
)
from toolkit.redaction.names import (
    LONGEST_NAME,
    NAME_SIGN,
    NAME_SIGNS,
    OTHER,
    SETTING_WORDS,
    TELLING,
    Pattern,
    holds_secret,
    is_random,
    is_secret_field,
    is_secret_value,
    judge_name,
)
from toolkit.redaction.values import find_in_rows, replace_secrets

_SHORTEST_TOLD = 15  # no shorter word is a key by its format
_LONG_WORD = Pattern(r"\"[^\"]{19}")


def without_keys(text: str) -> str:
    """Return a text without texts in the format of keys, and without the values that it gives to telling names."""
    if len(text) < _SHORTEST_TOLD and text.isidentifier():
        return text
    folded = fold_text(text)
    for find in (find_known, find_given):
        struck = mask_spans(text, find(*folded))
        if struck is not text:
            text, folded = struck, fold_text(struck)
    return text


def may_name_secrets(text: str) -> bool:
    """Return whether a JSON text may have a field whose name indicates a secret; most have none."""
    if len(text) > _LONGEST_READ or "\\u" in text:
        return True
    text, lowered = fold_text(text)
    if any(name in lowered for name in _TELLING_OBJECTS):
        return True
    return NAME_SIGN.compiled.search(lowered) is not None and any(_find_names(text, lowered))


def may_show_secrets(text: str, fields: int) -> bool:
    """Return whether JSON text with so many fields may have texts that show secrets, such as the logins of URLs.

    Words of less than 19 letters alone have nothing that gives a value to a name, and none is a key by its format.
    """
    is_marked = " " in text or "=" in text or "(" in text or "-" in text or "\\" in text or "%" in text or ">" in text
    if is_marked or text.count(":") != fields or not text.isascii():
        return True
    return _LONG_WORD.compiled.search(text) is not None


# Names in texts: what follows a telling name binds it to a value. A quote may be escaped, or encoded for a URL or HTML.
_LONGEST_READ = 10_000  # whether a longer text names secrets takes longer to find out than to look for them
_LONGEST_BELOW = 10_000
_LONGEST_RANDOM = 200
_LONGEST_HEAD = 1_000
_TELLING_OBJECTS = ("headers", "query", "cookies", "sensitive", "confidential", "masked")
_QUOTE = r"(?:\"\"\"|'''|\\{0,15}[\"'`]|[“”]|%22|&quot;|&\#3[49];|\\u002[27]|\\x2[27])"
_IN_VALUE = r"(?:(?!%2[26]|&quot;)[^\s\"'`“”&,;<>(){}\[\]\\])"
_IDENTIFIER = Pattern(r"[\w$]+(?:[.-]+[\w$]+)*")
_WORD_BEFORE = Pattern(r"(?:[A-Za-z]{2,12}[ -])?[A-Za-z]{2,12} \Z")
_READER = r"(?!\w*(?:get|read|load|input|env|fetch|ask|prompt))[\w.:]{1,30}"  # of a call: what it returns is no literal
_SCHEME = r"(?:(?:bearer|basic|token|api-?key|negotiate|ntlm)\s(?=\S))?"
_ASSIGNED = Pattern(
    rf"[?* ]{{0,2}}\]?(?P<closed>{_QUOTE}?)[\])]?\*{{0,2}}"
    # a type, in front of the sign
    r"(?:(?:\[\]|:\s?[\w.<>\[\]|]{1,30}|\s[Aa]s\s\w{1,20})(?=\s{0,4}=[^=>]))?"
    r"[ \t\xa0]{0,20}(?P<sign>=>|->|<-|[:?]?={1,3}|::?|\||%3[ad]|\.{3,80}:?|;s:\d{1,6}:|\.(?= \"))\*{0,2}"
    # comments, anchors and tags, quotes of a language, a call around the value, a scheme
    r"[ \t\xa0]{0,4}(?:/\*[^*\n]{0,80}\*/ ?|//[^\n]{0,80}\n\s{0,9}|[&!][\w!]{1,40} |[|>][+-]?(?=\n))?"
    r"(?:\r?\n\s{0,40}(?=\S+[ \t]*(?:\n|\Z|[\"'}])))?(?:string(?:\(\d+\))? )?"
    r"(?:[\w.]{1,60} (?:\|\||\?\?|or) (?=[\"'`]))?"
    rf"(?:{_READER}[({{]{{1,2}}(?=[\"']))?(?:[bfruRBN@$]{{1,2}}(?={_QUOTE}))?(?P<open>{_QUOTE}?)"
    rf"{_SCHEME}",
    re.IGNORECASE,
)
_BARE = Pattern(rf"{_IN_VALUE}{{4,}}(?!{_IN_VALUE}|[(\[])")
_REST_OF_LINE = Pattern(r"[^\s&;,\"'`<>]{4,}(?=[ \t]*,?(?:\r?\n| #|\Z))")
_LINE_START = Pattern(
    r"(?:[\w./-]{1,100}:\d+:)?[ \t>+*#-]*(?:(?:your|the|new|export|set) )?[\"'`*]{0,3}", re.IGNORECASE
)
_REFERENCE = Pattern(r"[A-Za-z_]+(?:(?:\.|::|->)[A-Za-z_]+)+;?|[A-Za-z_][\w.:]*[(\[].*[)\]];?|[$%{].*")
_NUMBER = Pattern(r"[-+]?\d[\d.eE+-]*")
_IN_QUERY = Pattern(r"=([^\s&;#\"'<>\\]+)")
_FIELDED_HEADERS = ("cookie", "set-cookie", "authorization", "proxy-authorization")
_OF_HEADER = Pattern(r":\s{0,2}(?>(?:[A-Za-z][\w-]{0,40} (?=\S))?)([^\r\n=]{0,4000}=[^\r\n]+|[^\s\d]{0,4000}\d\S*)")
_BLOCK = Pattern(r"[\"']?[ \t](?P<open>)(?=\{\s{0,9}\n)")
_BRACKETS = Pattern(r"(?:[A-Z]\w{0,60})?[\[({]")
_BRACKET = Pattern(r"[\[({]|[\])}]")
_FILLED = Pattern(r"[\"'`:=\d]")
_MAY_LINK = Pattern(r"[^ \t]|[ \t]+(?:[^\d\n]{0,45}\d|-\w{1,20} |\w{2,3} [\"'`“(]|[\"'`“({]|\S+[ \t]*(?:\n|\Z))")
_SETTING = Pattern(r"[\w.\"'-]{1,60}\s{0,4}[:=]\s{0,4}[\"']?(?=[a-z-]*(?![\w-])|\d{0,3}(?!\w))([^\s,;(){}\[\]\"']*)")
_INDENTED = r"[ \t]*((?:\n {{{0},}}(?:- *)?(?:[\w.-]+: *)?\S*)+)"


def _define_link(follows: str, before: str, pattern: str) -> tuple[str, Pattern, Pattern]:
    """Return a way in which a text binds a name to a value.

    Args:
        follows: The characters of which one follows the name.
        before: Matches what stands before the name in its line.
        pattern: Matches what follows the name, up to the value: its last group.
    """
    return follows, Pattern(f"(?:{before})[\\w$.-]+"), Pattern(pattern, re.IGNORECASE)


_LINKS = (
    # a call with literals alone; the next argument, or the other of a pair
    _define_link(
        "({",
        r"(?!.*\b(?:get|has|is|check|read|load|ask)\w*\Z).*",
        r"[({]\s?(?:\w+ ?[=:] ?)?[bfru@]?[\"']([^\n]{3,1000}?)(?=[\"']\s?[)}])",
    ),
    _define_link(
        "\"'",
        r".*[(\[{ ]b?[\"']-{0,2}",
        rf"[\"'],\s?(?:default=|value=)?[bfruN@]?[\"']{_SCHEME}([^\"'\n]+)(?=[\"']\s?[)\]])",
    ),
    # a part of a form, the next element, an element of that name, an error of Pydantic, a section of settings
    _define_link('"', r".*name=\"", r"\"[^\r\n]{0,200}(?:\r?\n[^\r\n]{1,200}){0,3}\r?\n\r?\n([^\r\n]+)"),
    _define_link("<:", r".*>[\w ]*", r":?\s?(?:</\w{1,20}>\s{0,9})?(?:<\w{1,20}>){1,2}([^<>]+)(?=</)"),
    _define_link("\"'", r".*(?:name|key)=[\"']", r"[\"'][^<>\n]{0,100}>([^<>]+)(?=</)"),
    _define_link("\n", r"", r"\n  [^\n]{0,1000}?input_value=([^\n]{1,4000}?)(?=, input_type=)"),
    _define_link("]", r"\[", r"\]\n((?:[\w.-]{1,60} ?= ?\S[^\n]{0,1000}\n?)+)"),
    # the name in a field, and the value in one on a line below
    _define_link(
        "\"'\n,",
        r"[ \t-]*[\"']?(?:\w*[nN]ame|key|kind|type|field|variable|header)[\"']?[:=] ?[\"']?[\w./-]*",
        r"[\"']?,?(?:\n(?![ \t]*-\s)[^\n]{0,200}){0,6}?\n[ \t]*[\"']?(?:string)?(?:value|content|data|text|val)[\"']?"
        r"[:=](?: ?[\"']?([^\s\"']{3,})|((?:\n[ ]+[^\n]*)+))",
    ),
    # an option, and a variable that a line sets
    _define_link(
        " \t",
        r"(?:.*[\s\"'\[(,`])?(?:--?|/)",
        r"(?<!file)(?<!path)(?<!dir)(?<!name)(?<!id)(?<!type)[ \t]{1,4}[\"']?(?:(?![A-Za-z]+(?!\S))"
        r"([^\s\"'-][^\s\"']{3,})|([A-Za-z]{4,})(?=[\"']?[ \t]*(?:\Z|\n|[|;&>]|--?[A-Za-z])))",
    ),
    _define_link(" \t", r"(?:[\w.:;&|-]+ ){0,4}[A-Z\d]+_", r" [\"']?([^\s=\"'][^\s\"']{3,})(?=[\"']?[ \t]*(?:\n|\Z))"),
    # a quoted word, a random one at most three words behind, and digits
    _define_link(
        " \t",
        r"(?!.*(?i:expected) )[\s\S]*",
        rf"(?: (?:to|for|as|is|was|by|-\w{{1,20}}))?[ \t]{{1,3}}[`\"'“(]{_SCHEME}([^\s`\"'”()]{{4,}})(?=[`\"'”)])",
    ),
    _define_link(
        " \t:=|->",
        r".*",
        r"(?:[ \t]{1,3}-{0,2}[a-z\d]{1,12}){0,3}?(?:[ \t]{0,2}[:=|]|[ \t]?->|[ \t](?:- )?){1,3}[*`'\"(]{0,3}"
        rf"{MIXED}([\w!@#$%^&+]{{8,}})(?![\w/-]|[.:=]\w|\()",
    ),
    _define_link(" \t:", r".*", r"(?:[ \t](?:is|was|to))?:?[ \t][`'\"*]{0,3}(\d{4,12})(?![\w.,:/-])"),
)


def _find_names(text: str, lowered: str) -> Iterator[tuple[int, int, int]]:
    """Yield where telling and doubtful names stand in a text, and which they are."""
    end = 0
    for place in find_places(lowered, NAME_SIGNS):
        if place < end:
            continue
        start, floor = place, max(end, place - LONGEST_NAME)
        while start > floor and (text[start - 1].isalnum() or text[start - 1] in "_-."):
            start -= 1
        found = _IDENTIFIER.compiled.search(text, start, place + LONGEST_NAME)
        assert found is not None
        start, end = found.span()
        told = judge_name(found[0])
        if told != TELLING and found[0].isalpha() and text[start - 1 : start] == " ":  # the last word of a label
            before = _WORD_BEFORE.compiled.search(text, max(0, start - 26), start)
            if before is not None and is_secret_field(f"{before[0]}{found[0]}".replace(" ", "_")):
                told = TELLING
        if told != OTHER:
            yield start, end, told


def find_given(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield where the values stand that a text gives to telling names, in any syntax."""
    spans, places = list[tuple[int, int]](), find_places(lowered, _TELLING_OBJECTS)
    for start, end, told in _find_names(text, lowered):
        places.append(start)
        span = _find_value(text, start, end, told) if not spans or start >= spans[-1][1] else None
        if span is not None and _is_worth_masking(text[slice(*span)], text[start:end]):
            spans.append(span)
    if places:
        spans += _find_in_structures(text, sorted(places))
    return join_spans(spans)


def _find_value(text: str, start: int, end: int, told: int) -> tuple[int, int] | None:
    """Return where the value of a name stands, if the name and the value tell of a secret."""
    before, follows = text[max(0, start - 1) : start], text[end : end + 1]
    most = len(text) if told == TELLING else end + _LONGEST_RANDOM
    if before in ("?", "&", ";") and (found := _IN_QUERY.compiled.match(text, end, most)):
        return found.span(1) if is_secret_value(unquote(text[start:end]), unquote(found[1])) else None
    line = max(text.rfind("\n", max(0, start - LONGEST_NAME), start) + 1, start - LONGEST_NAME, 0)
    if before == "<":
        return _find_below(text, start, end, line, None) if told == TELLING else None
    joined = None if text[end : end + 2].strip(" ").isalnum() else _ASSIGNED.compiled.match(text, end)
    if joined is not None or before == ":" or "{" in text[end : end + 3]:
        span = _find_below(text, start, end, line, joined) if told == TELLING else None
        span = span or (_find_assigned(text, start, line, joined) if joined is not None else None)
        if span is not None:
            return span if told == TELLING or is_random(text[slice(*span)]) else None
    if told != TELLING or (before not in ("-", "/") and not _MAY_LINK.compiled.match(text, end)):
        return None
    for letters, ahead, link in _LINKS:
        found = link.compiled.match(text, end) if follows in letters else None
        if found is not None and ahead.compiled.fullmatch(text, line, end):
            return found.span(found.lastindex or 0)
    return None


def _is_worth_masking(value: str, name: str) -> bool:
    plain = value.strip(" *`'\"").lower()
    settings = _SETTING.compiled.findall(plain) if len(plain) < _LONGEST_RANDOM else []
    if settings and all(each in SETTING_WORDS or each.isdecimal() or not each for each in settings):
        plain = _SETTING.compiled.sub("", plain).strip("{}[](), \n") or "true"
    return holds_secret(plain, name) and not (plain in SETTING_WORDS or is_replaced(value))


def _find_assigned(text: str, name: int, line: int, joined: re.Match[str]) -> tuple[int, int] | None:
    """Return where the value stands behind a sign: a quoted one, or a word, where the name begins a line its rest."""
    if text[name : joined.start()].lower() in _FIELDED_HEADERS:
        header = _OF_HEADER.compiled.match(text, joined.start())
        if header is not None:
            return header.span(1)
    is_switch = joined["sign"] == ":" and text[line:name].endswith("/")
    is_line = _LINE_START.compiled.fullmatch(text, line, name) is not None and joined["sign"] != "|"
    start, mark = joined.end(), joined["open"]
    if mark:
        mark = "”" if mark == "“" else mark
        end = text.find(mark, start, start + _LONGEST_BELOW)
        while end > 0 and text[end - 1] == "\\":  # a quote in the value
            end = text.find(mark, end + 1, start + _LONGEST_BELOW)
        if end >= 0:
            return start, end
    if joined["closed"] and (number := _NUMBER.compiled.match(text, start)):
        return number.span()
    rest = _REST_OF_LINE.compiled.match(text, start, start + _LONGEST_BELOW) if is_line else None
    bare = rest or _BARE.compiled.match(text, start)
    if bare is None or text.startswith(f" {MASK}", bare.end()):  # a scheme, in front of what is masked
        return None
    is_name = bare[0].replace("_", "").isalpha() and is_secret_field(bare[0])
    is_shown = bool(mark or joined["closed"] or rest or is_switch or "=" in joined["sign"])
    if _REFERENCE.compiled.fullmatch(bare[0]) or is_name or (bare[0].isalpha() and not is_shown):
        return None
    return bare.span()


def _find_below(text: str, start: int, end: int, line: int, joined: re.Match[str] | None) -> tuple[int, int] | None:
    """Return all that a text has below a name: in brackets, in an element or indented."""
    name, most, before = text[start:end], end + _LONGEST_BELOW, text[max(0, start - 1) : start]
    if before == "<" or (before == ":" and "<" in text[max(0, start - 40) : start]):
        opened = text.find(">", end, end + 300)
        closed = text.find(f"{name}>", opened, most) if opened > 0 and text[opened - 1] != "/" else -1
        return None if closed < 0 else (opened + 1, text.rfind("<", opened, closed))
    indent = len(text[line:start]) if text[line:start].isspace() or line == start else -1
    if indent >= 0 and text.startswith(":", end):
        found = re.compile(_INDENTED.format(indent + 1)).match(text, end + 1, most)
        if found is not None and found[1].strip():
            return found.span(1)
    joined = (_BLOCK.compiled.match(text, end) if indent >= 0 or before == '"' else None) or joined
    if joined is None or joined["open"]:
        return None
    found = _BRACKETS.compiled.match(text, joined.end())
    if found is None:
        return None
    depth, inside = 1, found.end()
    for bracket in _BRACKET.compiled.finditer(text, inside, most):
        depth += 1 if bracket[0] in "[({" else -1
        if depth == 0:
            is_filled = _FILLED.compiled.search(text, inside, bracket.start()) is not None
            return (joined.end(), bracket.end()) if is_filled else None
    return joined.end(), min(most, len(text))


class _Leaf(str):
    """A text within another, with its place there."""

    __slots__ = ("span",)
    span: tuple[int, int]

    def __new__(cls, text: str, start: int) -> _Leaf:
        leaf = super().__new__(cls, text)
        leaf.span = start, start + len(text)
        return leaf


class _Bracket:
    """An object or a list of a text, while it is read: some of its values have keys."""

    def __init__(self, opener: str) -> None:
        self.opener = opener
        self.fields: dict[Any, Any] = {}
        self.items: list[Any] = []
        self.key: Any = None

    def add(self, value: Any) -> None:
        if self.key is None:
            self.items.append(value)
        else:
            self.fields[self.key], self.key = value, None


_TOKEN = Pattern(
    r"(?P<open>[\[{(]|<(?=[A-Za-z]))|(?P<mark>=>|[:=])|(?P<close>[\]})>])|[,;]"
    r"|b?(?P<quote>\\{0,15}[\"'`])(?P<text>[^\n]{0,2000}?)(?<!\\)(?P=quote)|(?P<bare>[^\s\[\]{}()<>:,;=\"'`]+)"
)
_LITERALS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_BESIDE_ROWS = ("value", "values")
_ANY_BRACKET = Pattern(r"[\[{(\]})>]|<(?=[A-Za-z])")
_CLOSERS = {"]": "[", "}": "{", ")": "(", ">": "<"}
_DEEPEST = 40


def _read_brackets(text: str, start: int, end: int) -> Iterator[list[Any]]:
    """Yield the lists, objects and tags that a text has in brackets, those side by side in one list."""
    stack = [_Bracket("")]
    for token in _TOKEN.compiled.finditer(text, start, end):
        kind, last = token.lastgroup, stack[-1]
        if kind == "open" and len(stack) < _DEEPEST:
            stack.append(_Bracket(token[0]))
        elif kind == "close" and last.opener == _CLOSERS[token[0]]:
            stack.pop()
            stack[-1].add(last.fields or last.items)
        elif kind == "mark" and last.items and isinstance(last.items[-1], str):
            last.key = last.items.pop()
        elif kind == "text" and last.opener:
            last.add(_Leaf(token["text"], token.start("text")))
        elif kind == "bare" and last.opener and not text.startswith("(", token.end()):  # which calls something
            last.add(_LITERALS.get(token[0], _Leaf(token[0], token.start())))
        elif kind == "bare" and not last.opener and last.items and token[0].lower() not in _BESIDE_ROWS:
            yield last.items
            last.items = []
    yield from ([last.fields] if last.fields else last.items for last in stack)


_RULE_LINE = frozenset("|-+=: ")
_COLUMN_MARKS = "\t|;,"
_CELLS = {mark: Pattern(rf"[^{mark}]+") for mark in _COLUMN_MARKS} | {"  ": Pattern(r"\S+(?: \S+)*")}


def _read_tables(text: str) -> Iterator[list[Any]]:
    """Yield the tables of a text as lists of rows, where a first row has a word of telling names."""
    rows, mark, place = list[list[_Leaf]](), "", 0
    for line in text.split("\n"):
        if not _RULE_LINE.issuperset(line):
            row = _read_row(line, mark, place) if rows else []
            if not rows or len(row) != len(rows[0]):
                yield rows if len(rows) > 1 else []
                rows, mark = [], next((each for each in _COLUMN_MARKS if each in line), "  ")
                is_head = len(line) < _LONGEST_HEAD and ", " not in line and NAME_SIGN.compiled.search(line.lower())
                row = _read_row(line, mark, place) if is_head else []
            rows += [row] if len(row) > 1 else []
        place += len(line) + 1
    yield rows if len(rows) > 1 else []


def _read_row(line: str, mark: str, place: int) -> list[_Leaf]:
    row = list[_Leaf]()
    for found in _CELLS[mark].compiled.finditer(line):
        if cell := found[0].strip(" \"'\r"):
            row.append(_Leaf(cell, place + found.start() + found[0].index(cell)))
    return row


def _find_in_structures(text: str, names: Sequence[int]) -> list[tuple[int, int]]:
    """Return the values in brackets and tables, in the syntax of any language, that a structure binds to a name.

    Args:
        text: The text.
        names: Where there are names that tell of secrets.
    """
    found: list[_Leaf] = []

    def note(secret: Any, path: object, is_marked: object) -> None:
        del path, is_marked
        found.extend(_list_leaves(secret))

    def judge(name: object, path: object, inside: object) -> None:
        del name, path, inside

    for region in _find_regions(text, names):
        for group in _read_brackets(text, *region):
            replace_secrets(group, judge, note)
    for rows in _read_tables(text):
        cells = [rows[place][column] for place, column in find_in_rows(rows)]
        found += [cell for cell in cells if " " not in cell]
    return [leaf.span for leaf in found if _is_worth_masking(leaf, "")]


def _list_leaves(value: Any) -> Iterator[_Leaf]:
    match value:
        case _Leaf():
            yield value
        case dict():
            yield from _list_leaves([*cast("Mapping[str, Any]", value).values()])
        case list():
            for item in cast("Sequence[Any]", value):
                yield from _list_leaves(item)
        case _:
            pass


def _find_regions(text: str, names: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the outermost brackets with one of these names inside, together with those behind them."""
    stack, begun, ended, place = list[str](), 0, 0, 0  # the place is that of the next name
    for found in _ANY_BRACKET.compiled.finditer(text):
        opener = _CLOSERS.get(found[0])
        if opener is None:
            if not stack and found.start() - ended > len("\nvalues\n  "):
                if place < len(names) and names[place] < ended:
                    yield begun, ended
                begun = found.start()
                place = next((each for each in range(place, len(names)) if names[each] >= begun), len(names))
            stack += [found[0]] if len(stack) < _DEEPEST else []
        elif stack and stack[-1] == opener:
            stack.pop()
            ended = found.end()
    ended = len(text) if stack else ended
    if place < len(names) and names[place] < ended:
        yield begun, ended
