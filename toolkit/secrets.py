"""What must not be seen: which values are secrets by their names, and what is left of a text without them.

The one list of telling names, the one list of what keys look like, and the one mask. Who shows or writes a text that a
program, a server or a model has said strikes secrets out of it here first.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from itertools import pairwise
from json import dumps
from pathlib import PurePath
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

__all__ = [
    "MASK",
    "Redact",
    "is_secret_name",
    "program_name",
    "secrets_in_arguments",
    "secrets_in_url",
    "secrets_of",
    "secrets_of_headers",
    "without_credentials",
    "without_keys",
    "without_secrets",
]

MASK = "***"
"""What stands where a secret stood."""

Redact = Callable[[str], str]
"""Returns a text without secrets."""

_TELLING_NAME = re.compile(
    r"auth|key|token|secret|cookie|session|passw|passphrase|credential|signature|\bpwd\b|\bsig\b|\bpin\b|\bjwt\b"
    r"|bearer|csrf|xsrf",
    re.IGNORECASE,
)
# Names that hold a telling word and tell of no secret.
_PLAIN_NAME = re.compile(
    r"(max|min|num|total|input|output|prompt|completion|reasoning|cached?|stop|eos)_?\w*tokens?(_\w+)?|tokens"
    r"|keyboard\w*|keywords?|\w*key_?words?|authors?|author_\w+|monkey|key_?(code|name|id|type)s?",
    re.IGNORECASE,
)
_SETTINGS = frozenset({"true", "false", "none", "null", "default", "auto", "basic", "bearer", "disabled", "enabled"})
# Headers whose values are words of a protocol, which errors should be able to name.
_PROTOCOL_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "connection"}
    | {"content-length", "content-type", "openai-beta", "user-agent"}
)
# What keys of well-known vendors look like, web tokens, private keys, what "Bearer" and "Basic" authorize by, and the
# user and password in an address.
_KEYS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|\b(?:gsk|hf|r8|gh[pousr])_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\b(?:xai|pplx|nvapi|glpat)-[A-Za-z0-9_-]{20,}|\b(?-i:AKIA|ASIA)(?-i:[A-Z0-9]{16})\b"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\b(?-i:AQ\.A)[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}"
    r"|\b(?-i:eyJ)[A-Za-z0-9_-]{10,}\.(?-i:eyJ)[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|(?<=\bbearer )[A-Za-z0-9._~+/=-]{16,}|(?<=authorization: basic )[A-Za-z0-9+/=]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=PRIVATE KEY-----)[^-]+(?=-----END)",
    re.IGNORECASE,
)
_SHORTEST = 4
_SHORTEST_WITHIN = 6  # what is shorter is only struck out where it stands alone
_SHORTEST_ENCODED = 8  # the Base64 of less, cut at its ends, would be found in other words
_FIELDS = re.compile(r"[;,\s]+")  # between the fields of a cookie, or of what some schemes authorize by
_PROGRAM = re.compile(r"[\w@./][\w@./-]*")
_RUNNER = re.compile(
    r"(npx|uvx|uv|pipx|node|deno|bun|bunx|python[0-9.]*|ruby|perl|php|java|bash|sh|zsh|pwsh)(\.exe)?", re.IGNORECASE
)
_OF_RUNNERS = ("-y", "--yes", "-m", "-u", "-jar", "run", "tool")


def is_secret_name(name: str) -> bool:
    """Return whether the name of a header, variable, field or option tells of a secret."""
    return _TELLING_NAME.search(name) is not None and _PLAIN_NAME.fullmatch(name) is None


def secrets_of(values: Mapping[str, str]) -> list[str]:
    """Return the values whose names tell of secrets, such as headers or variables, and the tokens within them.

    One that only says how something is set, such as ``true``, is none: struck out, it would spoil other words.
    """
    found = [value for name, value in values.items() if is_secret_name(name) and value.lower() not in _SETTINGS]
    return [secret for value in found for secret in _parts_of(value)]


def secrets_of_headers(headers: Mapping[str, str] | None) -> list[str]:
    """Return the values of headers that an application has set, whatever their names, and the tokens within them.

    Nobody knows what a gateway takes for a password, so only the words of the protocol itself are left.
    """
    given = {name.lower(): value for name, value in (headers or {}).items()}
    found = [value for name, value in given.items() if name not in _PROTOCOL_HEADERS or _KEYS.search(value)]
    found = [value for value in found if value.lower() not in _SETTINGS]
    fields = [field.partition("=")[2].strip('"') for value in found for field in _FIELDS.split(value)]
    return [*(secret for value in found for secret in _parts_of(value)), *filter(None, fields)]


def secrets_in_url(url: str) -> list[str]:
    """Return the user, the password and the values of the query of a URL, as they stand in it and decoded."""
    parts = urlsplit(url)
    found = [part for part in (parts.password, parts.username) if part]
    if parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
        found.append(b64encode(pair.encode()).decode())
    found += [value for _, value in parse_qsl(parts.query, keep_blank_values=False)]
    found += [piece.partition("=")[2] for piece in parts.query.split("&")]
    return [form for value in found if value for form in dict.fromkeys((value, unquote(value)))]


def secrets_in_arguments(arguments: Sequence[str]) -> list[str]:
    """Return what a command line says after an option such as ``--api-key``, or as ``--api-key=...``."""
    found: list[str] = []
    for option, value in pairwise([*arguments, ""]):
        name, equals, joined = option.partition("=")
        if name.startswith("-"):
            found += secrets_of({name: joined if equals else value})
    return found


def without_secrets(text: str, secrets: Iterable[str], *, shortest: int = _SHORTEST) -> str:
    """Return a text with each secret struck out, also where it stands percent-encoded, escaped, in hex or Base64.

    Args:
        text: It may hold secrets.
        secrets: What to strike out.
        shortest: Shorter ones than that many characters would be found in everything, and are left.
    """
    known = frozenset([secret for secret in map(str.strip, secrets) if len(secret) >= shortest])
    return _pattern_of(known).sub(MASK, text) if known else text


def without_keys(text: str) -> str:
    """Return a text without what looks like a key, whoever it belongs to."""
    return _KEYS.sub(MASK, text)


def without_credentials(url: str) -> str:
    """Return a URL as errors may show it: no user, password, query or fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def program_name(command: str, arguments: Sequence[str]) -> str:
    """Return a name that can hold no secret: of the arguments only that which a runner of programs runs."""
    program = PurePath(command).name
    if _RUNNER.fullmatch(program):
        first = next((argument for argument in arguments if argument not in _OF_RUNNERS), "")
        if _PROGRAM.fullmatch(first):
            return PurePath(first).name
    return program


def _parts_of(value: str) -> Iterator[str]:
    """Yield a value, the words of it behind a scheme such as ``Bearer``, and what Base64 of a login holds."""
    yield value
    scheme, space, rest = value.strip().partition(" ")
    if not space:
        return
    yield rest.strip()
    yield value.rpartition(" ")[2]
    if scheme.lower() == "basic":
        try:
            pair = b64decode(rest, validate=True).decode()
        except ValueError:
            return
        yield pair
        yield pair.partition(":")[2]


@lru_cache(maxsize=64)
def _pattern_of(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return what finds any form of these secrets, the longest first."""
    forms = {form for secret in secrets for form in _forms_of(secret)}
    exact = [re.escape(form) for form in sorted(forms, key=len, reverse=True) if len(form) >= _SHORTEST_WITHIN]
    words = [rf"(?<!\w){re.escape(form)}(?!\w)" for form in forms if _SHORTEST <= len(form) < _SHORTEST_WITHIN]
    return re.compile("|".join([*exact, *words]), re.IGNORECASE)


def _forms_of(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as servers, logs and programs write it."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    yield quote(quote(raw, safe=""), safe="")
    yield escape(secret)
    yield dumps(secret)[1:-1]
    yield dumps(secret, ensure_ascii=False)[1:-1].replace("/", "\\/")
    yield repr(secret)[1:-1]
    if len(raw) < _SHORTEST_ENCODED:
        return
    yield raw.hex()
    for before in range(3):  # where it begins within three bytes decides how it looks within a longer text
        for encode in (b64encode, urlsafe_b64encode):
            whole = encode(b"\0" * before + raw).decode().rstrip("=")
            first = (0, 2, 3)[before]  # characters that the bytes before have a part in
            last = len(whole) if (before + len(raw)) % 3 == 0 else len(whole) - 1
            yield whole[first:last]
