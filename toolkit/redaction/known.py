"""Secrets that are known, wherever a text has them, however servers, logs and programs write them."""

from __future__ import annotations

import re
from base64 import b32encode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from toolkit.redaction.formats import fold_text, join_spans, mask_spans
from toolkit.redaction.names import Pattern

SHORTEST_STRUCK = 4
_SHORTEST_WITHIN = 6  # shorter secrets are only redacted as separate words
_SHORTEST_ENCODED = 8  # the Base64 of less, cut at its ends, would be found in other words
_ESCAPED = Pattern(  # one letter
    r"%[0-7][0-9a-f]|%[c-f][0-9a-f](?:%[89ab][0-9a-f]){1,3}|\\(?:u[0-9a-f]{4}|x[0-9a-f]{2}|[\"'/\\bfnrt])"
    r"|&(?:#\d{1,6}|#x[0-9a-f]{1,5}|amp|lt|gt|quot|apos);",
    re.IGNORECASE,
)
_MOST_ENCODED = 3  # times
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def without_secrets(text: str, secrets: Iterable[str], *, shortest: int = SHORTEST_STRUCK) -> str:
    """Return a text with each secret redacted, also percent-encoded, escaped, in hex or Base64.

    Args:
        text: It may hold secrets.
        secrets: The secrets to strike out.
        shortest: Shorter ones than that many characters would be found in everything, and are left.
    """
    known = frozenset([secret for secret in map(str.strip, secrets) if len(secret) >= shortest])
    return mask_spans(text, _find_secrets(text, known)) if known else text


def _find_secrets(text: str, secrets: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield where any form of some secrets stands, in the text and in what it encodes, those that overlap as one."""
    forms, spans = _list_forms(secrets), list[tuple[int, int]]()
    places: Sequence[int] = range(len(text) + 1)
    for _ in range(_MOST_ENCODED + 1):
        lowered = fold_text(text)[1]
        for form in forms:
            start = lowered.find(form)
            while start >= 0:
                end = start + len(form)
                if len(form) >= _SHORTEST_WITHIN or not _is_within_word(lowered, start, end):
                    spans.append((places[start], places[end]))
                start = lowered.find(form, end)
        before = text
        text, places = _decode_once(text, places)
        if text is before:
            break
    return join_spans(spans)


def _is_within_word(text: str, start: int, end: int) -> bool:
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return any(letter.isalnum() or letter == "_" for letter in beside)


def _decode_once(text: str, places: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return what a text encodes for URLs, JSON, Python or HTML, and the places of its letters in the first text."""
    decoded, kept, written = list[str](), list[int](), 0
    for found in _ESCAPED.compiled.finditer(text):
        decoded += text[written : found.start()], _decode_escape(found[0])
        kept += places[written : found.start() + 1]
        written = found.end()
    if not written:
        return text, places
    return "".join([*decoded, text[written:]]), [*kept, *places[written:]]


def _decode_escape(escape: str) -> str:
    """Return the letter of an escape."""
    body = escape[1:].rstrip(";").lower()
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode(errors="replace")[0]
    if escape[0] == "&":
        return _ENTITIES.get(body) or chr(int(f"0{body[1:]}", 16) if body[1] == "x" else int(body[1:]))
    return chr(int(body[1:], 16)) if len(body) > 1 else _LETTERS.get(body, body)


@lru_cache(maxsize=64)
def _list_forms(secrets: frozenset[str]) -> list[str]:
    """Return the forms of secrets that no decoding finds, in lower case."""
    return [*{form.lower() for secret in secrets for form in _encode_secret(secret)}]


def _encode_secret(secret: str) -> Iterator[str]:
    """Yield a secret as it is, in forms, as pairs of surrogates, in hex, and within Base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield secret.replace(" ", "+")
    yield _decode_once(secret, range(len(secret) + 1))[0]  # where the text around it is decoded
    yield raw.decode("latin-1")  # the repr of bytes, and servers that guess
    yield secret.encode("utf-16", "surrogatepass").decode("utf-16-le", "replace") if not secret.isascii() else secret
    if len(raw) < _SHORTEST_ENCODED:
        return
    yield raw.hex()
    yield b32encode(raw).decode().rstrip("=")
    for before in range(3):  # where it begins within three bytes decides how it looks within a longer text
        for encode in (b64encode, urlsafe_b64encode):
            whole = encode(b"\0" * before + raw).decode().rstrip("=")
            first = (0, 2, 3)[before]  # characters that the bytes before have a part in
            last = len(whole) if (before + len(raw)) % 3 == 0 else len(whole) - 1
            yield whole[first:last]
