"""Structures that bind the name of a secret to its value, in values of JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias, cast

from toolkit.redaction.formats import OPTIONS, find_known, fold_text
from toolkit.redaction.names import (
    DOUBTFUL,
    FILLERS,
    LONGEST_NAME,
    NAME_WORD,
    SETTING_WORDS,
    Pattern,
    holds_secret,
    is_random,
    is_secret_field,
    is_secret_name,
    judge_name,
    read_words,
)

Path: TypeAlias = tuple[str | int, ...]

# Values. In an object, fields with a name of the first kind have the name of something, of the second its value, and of
# the third rows of values; the last word of a field's name counts.
_NAMING = read_words(
    "name key k field header variable var parameter param option property attribute attr setting label selector locator"
    " element title question ask prompt expect id path pointer target xpath type kind class column"
)
_VALUED = read_words(
    "value values val vals v content contents data text answer input response reply payload string new old to from arg"
    " args send fill is body"
)
_ROWS = read_words("rows records items cells tuples entries") | _VALUED
_MARKS = read_words("sensitive secret confidential masked mask redact redacted")
_CARRIERS = Pattern(r"\w*(headers|query|cookies)", re.IGNORECASE)
_COLUMN = Pattern(r"[A-Za-z$_][A-Za-z $_.:/-]{0,60}\d?")
_ONE_NAME = Pattern(r"[A-Za-z]+(?:[_-][A-Za-z]+)*")
_OPTION = Pattern(r"--?[A-Za-z][\w.-]{1,60}|/[A-Za-z-]{2,30}")
_HEADER_LINE = Pattern(r"([\w-]{1,60}):\s*(\S.*)", re.DOTALL)
_MOST_COLUMNS = 200
# Headers whose values are words of a protocol, which errors should be able to name.
_PROTOCOL_HEADERS = read_words(
    "accept accept-encoding accept-language anthropic-beta anthropic-version connection content-length content-type"
    " openai-beta user-agent"
)


def replace_fields(plain: object, replace: Callable[[Any], Any], *, words: Collection[str] = ()) -> Any:
    """Return JSON values with those of telling names replaced, each with all below it; the original is not changed.

    Args:
        plain: Options of a request, say.
        replace: Returns the replacement for a secret.
        words: More words that indicate a secret in the name of a field, in lower case.
    """

    def judge(name: object, path: object, inside: object) -> bool | None:
        del path, inside
        is_secret = isinstance(name, str) and (is_secret_field(name) or any(word in name.lower() for word in words))
        return False if is_secret else None

    def put(secret: object, path: object, is_marked: object) -> Any:
        del path, is_marked
        return replace(secret)

    return replace_secrets(plain, judge, put)


def replace_secrets(
    value: Any,
    judge: Callable[[Any, Path, Any], bool | None],
    replace: Callable[[Any, Path, bool], Any],
    path: Path = (),
    bound: Iterable[Path] = (),
) -> Any:
    """Return JSON values with the secrets replaced, each with all below it; the original is not changed.

    Args:
        value: JSON values.
        judge: Takes the name of a field or the index in a list, the path of what has it, and that; returns whether it
            is marked as a secret (True) or sounds like one (False), and None where it is none.
        replace: Returns the replacement for a secret at a path, by whether it is marked.
        path: Where the value stands.
        bound: The paths below it where something above it binds a telling name to a value.
    """
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        items = cast("Mapping[str, Any]", value).items()
    elif isinstance(value, list | tuple):
        items = enumerate(cast("Sequence[Any]", value))
    else:
        return value
    below: dict[Any, list[Path]] = {}
    for first, *rest in (*bound, *_find_bound(value, path)):
        below.setdefault(first, []).append(tuple(rest))
    replaced: dict[Any, Any] = {}
    for key, item in items:
        inside, is_marked = (*path, key), judge(key, path, value)
        bound = below.get(key, ())
        if is_marked is None and () in bound:
            is_marked = False
        is_secret = is_marked is not None and (item is not None if is_marked else holds_secret(item, str(key)))
        replaced[key] = (
            replace(item, inside, bool(is_marked))
            if is_secret
            else replace_secrets(item, judge, replace, inside, filter(None, bound))
        )
    return replaced if isinstance(value, dict) else list(replaced.values())


def _find_bound(value: Any, path: Path) -> Iterator[Path]:
    """Yield the paths of values that a structure binds to a telling name.

    In headers, queries and cookies these are all but the words of the protocol; in an object, what stands beside a
    field with such a name, or beside a mark; in lists, what follows such a name or has its place.
    """
    carrier = path[-1] if path and isinstance(path[-1], str) and _CARRIERS.compiled.fullmatch(path[-1]) else ""
    if isinstance(value, dict):
        fields = cast("Mapping[str, Any]", value)
        for name, item in fields.items():
            is_carried = carrier and not _is_shown(name, item)
            if is_carried or (judge_name(str(name)[-LONGEST_NAME:]) == DOUBTFUL and is_random(item)):
                yield (name,)
        yield from _find_beside(fields)
        yield from _find_parallel(fields)
        return
    items = cast("Sequence[Any]", value)
    if carrier:
        yield from _find_carried(items)
    yield from find_in_rows(items)
    yield from _find_following(items)


def is_protocol_header(name: str) -> bool:
    """Return whether the value of a header is a word of the protocol."""
    return name.lower() in _PROTOCOL_HEADERS or name.lower().startswith("x-stainless-")


def _is_shown(name: object, value: object) -> bool:
    return is_protocol_header(str(name)) or str(value).lower() in SETTING_WORDS


def _find_carried(items: Sequence[Any]) -> Iterator[Path]:
    """Yield the values of headers, queries or cookies that are a list."""
    for place, item in enumerate(items):
        match item:
            case str() if (found := _HEADER_LINE.compiled.fullmatch(item)) and not _is_shown(found[1], found[2]):
                yield (place,)
            case [str(name), value] if not _is_shown(name, value):
                yield place, 1
            case dict():
                fields = cast("Mapping[str, Any]", item)
                named = [text for name, text in fields.items() if _end_of(name) in _NAMING]
                if any(name.lower() in _PROTOCOL_HEADERS for name in named if isinstance(name, str)):
                    continue
                yield from ((place, name) for name in fields if _end_of(name) in _VALUED)
            case _:
                pass


@lru_cache(maxsize=4096)
def _end_of(name: object) -> str:
    """Return the last word of a name."""
    words = NAME_WORD.compiled.findall(str(name)[-LONGEST_NAME:])
    return words[-1].lower() if words else ""


def _find_beside(fields: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the fields that have the value of a secret which another field names or marks."""
    valued = [name for name in fields if _end_of(name) in _VALUED]
    if not valued:
        return
    for name, text in fields.items():
        is_named = isinstance(text, str) and name not in valued and is_naming(_end_of(name), text)
        is_name = _end_of(name) == "name" and is_secret_field(str(name)[: -len("name")])
        if is_named or is_name or (text is True and is_mark(name)):
            yield from ((each,) for each in valued)
            return


def is_naming(field: str, text: str) -> bool:
    """Return whether a field with a name has that of a secret: of a path the end tells, of a phrase its last words."""
    if field not in _NAMING or len(text) > LONGEST_NAME or "://" in text:
        return False
    text = text if "[" in text else text.rpartition("/")[2]
    text = text.rpartition(".")[2] if field == "path" else text
    words = text.split()
    while len(words) > 1 and _end_of(words[-1]) in {*FILLERS, ""}:
        words.pop()
    if len(words) <= 1 or is_secret_field(words[-1]):
        return is_secret_name(words[-1]) if words else False
    return not is_secret_field(words[-2]) and is_secret_field(f"{words[-2]}_{words[-1]}")


def is_mark(name: str) -> bool:
    """Return whether a keyword or a field with the value true marks what it is about as secret."""
    words = [word.lower() for word in NAME_WORD.compiled.findall(name[:LONGEST_NAME])]
    return not _MARKS.isdisjoint(words) or "".join(words).endswith("nolog")


def _list_telling(head: Any) -> list[int]:
    """Return the places of telling names in a list of distinct names, such as those of columns; empty if it is none."""
    if not isinstance(head, list) or len(cast("Sequence[Any]", head)) > _MOST_COLUMNS:
        return []
    names = [_name_of(each) for each in cast("Sequence[Any]", head)]
    telling = [
        place for place, name in enumerate(names) if is_secret_field(name) and not name.lower().endswith("tokens")
    ]
    is_head = telling and len(names) == len({*names}) and all(_COLUMN.compiled.fullmatch(name) for name in names)
    return telling if is_head else []


def _name_of(column: Any) -> str:
    """Return the name of a column, which may be an object whose first field it is."""
    if isinstance(column, dict):
        column = next(iter(cast("Mapping[str, Any]", column).values()), "")
    return column if isinstance(column, str) and len(column) < LONGEST_NAME else ""


def _find_parallel(fields: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the values in lists, or in the rows of lists, that have the place of a telling name in another list."""
    lists = {name: cast("Sequence[Any]", item) for name, item in fields.items() if isinstance(item, list) and item}
    for head, names in lists.items() if len(lists) > 1 else ():
        telling = _list_telling(names)
        for name, items in lists.items() if telling else ():
            if name != head and _end_of(name) in _ROWS:
                rows = (
                    [((place,), row) for place, row in enumerate(items)]
                    if isinstance(items[0], list)
                    else [((), items)]
                )
                for place, row in rows:
                    if isinstance(row, list) and len(cast("Sequence[Any]", row)) == len(names):
                        yield from ((name, *place, column) for column in telling)


def find_in_rows(rows: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield the row and the column of values below a telling name of a head, and behind one in rows of two."""
    telling = _list_telling(rows[0]) if rows else []
    are_pairs = telling == [0] and len(rows[0]) == len(("name", "value"))
    for place, row in enumerate(rows):
        match row:
            case [str(name), value] if is_secret_field(name) and not (
                isinstance(value, str) and is_secret_field(value)
            ):
                yield place, 1
            case list() if place and not are_pairs:
                size = len(cast("Sequence[Any]", row))
                yield from ((place, column) for column in telling if column < size)
            case _:
                pass


def _find_following(items: Sequence[Any]) -> Iterator[Path]:
    """Yield the places of what follows a telling option, or a telling name and is none itself."""
    for place, (name, value) in enumerate(pairwise(items), 1):
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            continue
        text = value if isinstance(value, str) else "0"
        if (
            (name.startswith("-") and any(find_known(*fold_text(f"{name} {text}"), OPTIONS)))
            or (_OPTION.compiled.fullmatch(name) and is_secret_name(name) and not text.startswith("-"))
            or (
                is_secret_field(name)
                and not _ONE_NAME.compiled.fullmatch(text)
                and (len(items) <= len(("set", name, text)) or is_random(text))
            )
        ):
            yield (place,)
