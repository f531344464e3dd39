"""Names of tools: validation, conversion of other names, and repair of misspelled ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from toolkit.errors import ConfigurationError, UnknownToolNameError
from toolkit.settings import check_setting
from toolkit.suggestions import bound_similarity, find_similar

LONGEST_TOOL_NAME = 64
"""The maximum length of a tool name that all providers accept."""
_LEGAL_TOOL_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOOL_NAME}}}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_DIGITS = 8
_SIMILAR = 0.85
_LONGEST_NAME_REPAIRED = 256
_SHORT_WORD = 3
_MOST_NAMES_COMPARED = 8
_AROUND = " \t\r\n\"'`\u2018\u2019\u201c\u201d*[](){}<>"
_SEPARATORS = re.compile(r"[\s_.:/-]+")
_NAMESPACE = re.compile(r"[.:/]+|__+")


def is_legal_name(name: str) -> bool:
    """Return True if providers accept a name, which must match ``^[A-Za-z0-9_-]{1,64}$``."""
    return _LEGAL_TOOL_NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` if providers accept it.

    Raises:
        ConfigurationError: It does not match ``^[A-Za-z0-9_-]{1,64}$``.
    """
    check_setting("the name of a tool", name, str)
    if is_legal_name(name):
        return name
    if len(name) > LONGEST_TOOL_NAME:
        what = f"it has {len(name)} characters, and {LONGEST_TOOL_NAME} are allowed"
    else:
        what = "only letters, digits, '_' and '-' are allowed"
    raise ConfigurationError(f"'{name}' can't be the name of a tool: {what}; give another with name='...'")


def check_known_names(names: Iterable[str], known: Mapping[str, object], *, missing_ok: bool = False) -> frozenset[str]:
    """Return the names of the selected tools.

    Raises:
        UnknownToolNameError: A name is unknown, and `missing_ok` is False.
        ConfigurationError: They are not names.
    """
    if isinstance(names, str):
        raise ConfigurationError(f"give several names, such as [{names!r}], not one string")
    check_setting("what names the tools", names, Iterable)
    wanted = frozenset(names)
    for name in wanted:
        check_setting("each name of a tool", name, str)
    unknown = [] if missing_ok else sorted(wanted - known.keys())
    if unknown:
        raise UnknownToolNameError(unknown[0], known)
    return wanted


def replace_illegal(name: str) -> str:
    """Return a name with ``_`` for each illegal character; it may still be empty, or too long."""
    return _ILLEGAL.sub("_", name).strip("_")


def hash_name(readable: str, source: str, longest: int = LONGEST_TOOL_NAME) -> str:
    """Return the start of a readable name followed by a hash that makes it unique.

    Args:
        readable: A name of legal characters, of any length.
        source: The text to hash; the same text gives the same name in each process.
        longest: The maximum length of the name.
    """
    from hashlib import sha256  # noqa: PLC0415 - slow to import, and few names need a hash

    digest = sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{readable[: longest - _HASH_DIGITS - 1]}_{digest}"


def legal_names(names: Sequence[str]) -> list[str]:
    """Return legal names for tools from elsewhere, in the order of their original names.

    A legal name is unchanged. In others, each illegal character becomes ``_``; if the result is too long, empty or not
    unique, it ends in a hash of the original, so that it does not depend on the order of the names.
    """
    mapped = [name if is_legal_name(name) else replace_illegal(name) for name in names]
    taken = Counter(mapped)
    return [
        plain if is_legal_name(plain) and (plain == name or taken[plain] == 1) else hash_name(plain, name)
        for plain, name in zip(mapped, names, strict=True)
    ]


def sort_by_letters(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return names grouped by their letters, as `repair_name` compares them."""
    by_letters: dict[str, list[str]] = {}
    for name in names:
        by_letters.setdefault(_read_letters_once(name), []).append(name)
    return by_letters


def repair_name(
    name: str,
    available: Collection[str],
    *,
    similar: bool = False,
    hidden: Collection[str] = (),
    by_letters: Mapping[str, Sequence[str]] | None = None,
) -> str | None:
    """Return the one name of `available` that `name` must mean, or None.

    That is the name itself, or else the only one with the same letters. Case, separators and camelCase may differ; it
    may be enclosed in quotes or brackets, follow a namespace or ``functions.``, or be repeated. As little as possible
    is removed, and a tie between two names gives None.

    Args:
        name: The name that a model wrote.
        available: The available names.
        similar: True to accept the single most similar name with a `difflib.SequenceMatcher` ratio above 0.85; none if
            there are too many candidates to compare.
        hidden: Names outside of the scope. A name that is one of them, or fits one equally well, is not repaired.
        by_letters: The result of `sort_by_letters` for all these names, if many are repaired.
    """
    if name in available:
        return name
    if name in hidden or len(name) > _LONGEST_NAME_REPAIRED:
        return None
    if by_letters is None:
        by_letters = sort_by_letters({*available, *hidden})
    for reading in _list_readings(name):
        found = by_letters.get(reading)
        if found is not None:
            return found[0] if len(found) == 1 and found[0] in available else None
    if not similar:
        return None
    best, highest = [""], _SIMILAR
    for other, ratio in _compare_names(name, {*available, *hidden}):
        if ratio > highest:
            best, highest = [other], ratio
        elif ratio == highest:
            best.append(other)
    return best[0] if len(best) == 1 and best[0] in available else None


def _list_readings(name: str) -> Iterator[str]:
    """Yield the possible readings of a name as letters, starting with the one that removes least."""
    name = name.strip(_AROUND)
    starts = [0, *(match.end() for match in _NAMESPACE.finditer(name))]
    for start in starts:
        letters = _read_letters(name[start:])
        half = letters[: len(letters) // 2]
        if letters:
            yield letters
        if half and letters == half * 2:
            yield half


def _read_letters(name: str) -> str:
    """Return a name without case and separators, or "" if it has other characters.

    Separators between digits are preserved: ``read_v1_2`` is not ``read_v12``.
    """
    parts = [part for part in _SEPARATORS.split(name.casefold()) if part]
    if not all(part.isalnum() for part in parts):
        return ""
    joined = ""
    for part in parts:
        joined += f"_{part}" if joined[-1:].isdigit() and part[0].isdigit() else part
    return joined


# Cached for the names of tools, which are compared with each unknown name; not for text of models.
_read_letters_once = lru_cache(maxsize=4096)(_read_letters)


def nearest_names(name: str, available: Collection[str], n: int = 3) -> tuple[str, ...]:
    """Return up to `n` names of `available` to suggest for an unknown one.

    The most similar ones come first, then those that share a word with it.
    """
    found = find_similar(name, available, most=n)
    words = _split_words(name[:_LONGEST_NAME_REPAIRED]) if len(found) < n else ()
    if not words:
        return found
    sharing = (other for other in available if other not in found and not words.isdisjoint(_split_words_once(other)))
    return (*found, *islice(sharing, n - len(found)))


def _split_words(name: str) -> frozenset[str]:
    parts = re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))
    return frozenset([part.casefold() for part in parts if len(part) > _SHORT_WORD])


_split_words_once = lru_cache(maxsize=4096)(_split_words)


def _compare_names(name: str, available: Collection[str]) -> Iterator[tuple[str, float]]:
    from difflib import SequenceMatcher  # noqa: PLC0415 - few names are misspelled

    candidates = [other for other in available if bound_similarity(name, other) > _SIMILAR]
    if len(candidates) > _MOST_NAMES_COMPARED:
        return
    matcher = SequenceMatcher(autojunk=False)
    for other in candidates:
        matcher.set_seqs(other, name)
        yield other, matcher.ratio()
