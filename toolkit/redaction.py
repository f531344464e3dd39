"""The values that must not be seen: which names and texts are secrets, and the one scrubber of values and texts.

The one list of secret-sounding names, the one list of key formats, and the one mask. All code that shows or stores a
text of a program, a server or a model removes the secrets from it here first.
"""

from __future__ import annotations

import os
import re
import unicodedata
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from json import dumps, loads
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard, cast
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

MASK = "***"
"""The mask that takes the place of a secret."""

Redact = Callable[[str], str]
"""Returns a text without secrets."""


class _Pattern:
    """A regular expression, compiled when it is first used: compiling all of this module takes 11 ms."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.source, self._flags)


_Path: TypeAlias = tuple[str | int, ...]

# Names are compared in lower case, their words joined by "_".
_TELLING_NAME = _Pattern(
    r"auth|key|token|secret|cookie|session|sessid|passw|pass_?(?:word|phrase|code|key)|credential|signature|bearer"
    r"|csrf|xsrf|hmac|mnemonic|assertion|(?:seed|recovery|backup)_?(?:phrase|word)|conn(?:ection)?_?str"
    r"|saml_?response|code_?verifier|id_(?:rsa|dsa|ecdsa|ed25519)|(?:access|activation|backup|factor|login|one_time|pin"
    r"|recovery|reset|security|sms|unlock|verification|2fa)_?code|(?:security|challenge)_?answer"
    r"|(?:pass|pwd?)(?![a-z_])|(?<![a-z])(?:pwd?s?|sig|pins?|jw[stek]s?|[th]?otps?|mfa|cvv|cvc|psk|creds?|dsn|pem|pat"
    r"|[dk]eks?|puk|netrc|sk_(?:live|test))(?![a-z])|(?<![a-z_])(?:connect_)?sid(?![a-z_])"
    r"|(?<![a-z])(?:refresh|priv(?:ate)?)(?![a-z_])"
)
# Names that contain a secret-sounding word but are not secrets.
_HARMLESS_NAME = _Pattern(
    r"(max|min|num|total|input|output|prompt|completion|reasoning|cached?|stop|eos)_?\w*tokens?(_\w+)?|tokens"
    r"|keyboard\w*|keywords?|\w*key_?words?|authors?|author_\w+|monkey|key_?(code|name|id|type)s?|tokeniz\w*"
    r"|(\w*cache|idempotency|primary|foreign|sort|partition|public|group|issue|project|object|item|entry|row|record"
    r"|file|board|epic|space|parent|attribute|field|label|tag|property|lookup)_?keys?|keys|secretar\w+"
    r"|tokens?_(count|limit|budget|usage|type)s?|\w*(page|continuation|sync)_?token"
    r"|\w*(by|com|over|sur|tres|under)pass|\w*(error|exception)"
)
# Names that many other things have: only a random text is a secret there.
_AMBIGUOUS_WORD = _Pattern(
    r"(?:keys?|codes?|licen[cs]es?|tickets?|grant|nonce|salt|seed|entropy|activation|verifier|unlock|vault|webhook"
    r"|invite|login|pass_?hash)(?![a-z])"
)
_AMBIGUOUS_NAME = _Pattern(rf"(?:.*_)?{_AMBIGUOUS_WORD.source}")
_RANDOM = _Pattern(r"(?=\D*\d)(?=[^a-z]*[a-z])(?!.*\d\.\d)[\w+/=.~!$%^*:-]{8,}", re.IGNORECASE)
_COUNTS = ("tokens", "refresh")  # a field of such a name is a secret, if it is no number
_SETTING_WORDS = frozenset(
    {"true", "false", "none", "null", "default", "auto", "basic", "bearer", "disabled", "enabled", "http", "https"}
    | {"json", "text", "html", "stream", "stdio"}
)
# Headers whose values are words of a protocol, which errors should be able to name.
_PROTOCOL_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "connection"}
    | {"content-length", "content-type", "openai-beta", "user-agent"}
)
# The formats of well-known vendors' keys, web tokens, private keys, the values after "Bearer" and "Basic", and the
# user and password in an address; a match begins with one of the signs.
_KEY_SIGNS = (
    *("sk", "pk-", "rk-", "pk_live_", "pk_test_", "rk_live_", "rk_test_", "gsk_", "hf_", "r8_", "ghp_", "gho_", "ghu_"),
    *("ghs_", "ghr_", "github_pat_", "xox", "xai-", "pplx-", "nvapi-", "glpat-", "akia", "asia", "npm_", "shp", "ntn_"),
    *("lin_api_", "figd_", "sbp_", "doo_v1_", "dop_v1_", "dor_v1_", "pul_", "rdme_", "glrt_", "hvs", "dckr_pat_"),
    *("pypi-", "sq0atp-", "sq0csp-", "pmak-", "gocspx-", "age-secret-key-", "dapi", "shippo_live-", "key-", "sg."),
    *(":aa", "whsec_", "1//0", "<cookie ", "atatt3", "$", "hooks.slack.com/", "discord.com/api/", "aiza", "aq.a"),
    *("ya29.", "eyj", "bearer ", "authorization: basic ", "://", "private key-----", "private key block-----"),
)
_KNOWN_KEYS = _Pattern(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|\b(?:gsk|hf|r8|gh[pousr])_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\b(?:xai|pplx|nvapi|glpat)-[A-Za-z0-9_-]{20,}|\b(?-i:AKIA|ASIA)(?-i:[A-Z0-9]{16})\b"
    r"|\b(?:npm|shp(?:at|ca|pa|ss)|lin_api|figd|ntn|sbp|do[opr]_v1|pul|rdme|glrt|hvs|dckr_pat)_[A-Za-z0-9_-]{20,}"
    r"|\b(?:pypi|sq0(?:atp|csp)|PMAK|GOCSPX|AGE-SECRET-KEY|dapi|shippo_live|key)-[A-Za-z0-9_-]{24,}|\bhvs\.[\w-]{20,}"
    r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|(?<=\d{8})(?P<before>:)(?-i:AA)[\w-]{30,}|\bwhsec_[\w+/=-]{20,}"
    r"|\b(?-i:SK)[0-9a-f]{32}\b|\b1//0[\w-]{30,}|(?P<cookie><Cookie )\S{1,4000}(?= for )"
    r"|\b(?-i:ATATT3)[\w=-]{30,}|\bdapi[0-9a-f]{32}|\$(?:apr1|argon2\w{1,2}|[1256y]|2[abxy])\$[\w./+=,$-]{8,}"
    r"|(?P<hook>hooks\.slack\.com/services/|discord\.com/api/webhooks/)[\w/-]{20,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\b(?-i:AQ\.A)[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}"
    r"|(?<![\w-])(?-i:eyJ)[A-Za-z0-9_-]{10,}\.(?-i:eyJ)[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|(?P<bearer>\bbearer )[A-Za-z0-9._~+/=-]{16,}|(?P<basic>authorization: basic )[A-Za-z0-9+/=]+"
    r"|(?P<address>://)[^/\s@?#\"'<>]+(?=@)|(?P<begin>PRIVATE KEY(?: BLOCK)?-----)(?s:.+?)(?=-----END|\Z)",
    re.IGNORECASE,
)
# A random text, which no word, path, host, version or name of a file is.
_OPAQUE = _Pattern(
    r"(?=\D*\d)(?=[^a-z]*[a-z])(?![\w.-]+==[\d.]+$)(?!.*\.[a-z]{1,5}$)[\w+=.~!$%^*-]{12,}"
    r"|(?=[\w-]{8})[\w-]*(?:secret|token|passw|key)[\w-]*",
    re.IGNORECASE,
)
_OPAQUE_SEGMENT = _Pattern(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])(?:\w{20,}|(?=.*[a-z])(?=.*[A-Z])[\w=~-]{20,})")
_WORD_BREAK = _Pattern(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+")
_DIGEST_SIGN = "secret:"
_DIGEST = _Pattern(f"{_DIGEST_SIGN}[0-9a-f]{{64}}")
_OPENS_JSON = ("{", "[")
_PIECE = 32_768
_SHORTEST_TOLD = 15  # no shorter word is a key by its format
_LOWER_CASE = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_SHORTEST_STRUCK = 4
_SHORTEST_WITHIN = 6  # shorter secrets are only redacted as separate words
_SHORTEST_ENCODED = 8  # the Base64 of less, cut at its ends, would be found in other words
_FIELDS = _Pattern(r"[;,\s]+")  # between the fields of a cookie, or of some schemes' credentials
_NAMING_FIELDS = frozenset(
    {"name", "key", "field", "header", "variable", "parameter", "option", "property", "label", "selector", "element"}
)
_VALUED_FIELDS = frozenset(
    {"value", "content", "val", "v", "text", "answer", "data", "input", "response", "payload", "string"}
)
_LONGEST_NAME = 100
_LONGEST_HEAD = 1_000
_SHOWN_VALUES = frozenset({"default", "example", "examples"})
_CARRIERS = _Pattern(r"\w*(headers|query|cookies)", re.IGNORECASE)
_LONGEST_READ = 10_000  # whether a longer text names secrets takes longer to find out than to look for them
_OPTION = _Pattern(r"--?[A-Za-z][\w.-]{1,60}")
_ONE_NAME = _Pattern(r"[A-Za-z]+(?:[_-][A-Za-z]+)*")
_NAMED = _Pattern(r"(--?[\w.-]+|[\w.-]+)(=|:\s+)(.*)", re.DOTALL)
_HEADER_OPTIONS = ("-H", "--header", "--headers")
_PROCESS_KEY = os.urandom(32)
_PROGRAM_NAME = _Pattern(r"[\w@./][\w@./-]*")
_RUNNER = _Pattern(
    r"(npx|uvx|uv|pipx|node|deno|bun|bunx|python[0-9.]*|ruby|perl|php|java|bash|sh|zsh|pwsh)(\.exe)?", re.IGNORECASE
)
_RUNNER_ARGUMENTS = ("-y", "--yes", "-m", "-u", "-jar", "run", "tool")


def is_secret_name(name: str) -> bool:
    """Return whether the name of a header, variable or option indicates a secret: of a long one, its end."""
    return _tells_secret(name[-_LONGEST_NAME:])


@lru_cache(maxsize=4096)
def _tells_secret(name: str) -> bool:
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
    words = _WORD_BREAK.compiled.sub("_", name).lower()
    return _TELLING_NAME.compiled.search(words) is not None and _HARMLESS_NAME.compiled.fullmatch(words) is None


def is_secret_field(name: str) -> bool:
    """Return whether the name of a field of JSON indicates a secret, such as that of an argument.

    A lone ``key`` does not: it finds an entry, where a header or an option of that name opens a door.
    """
    end = name[-_LONGEST_NAME:].lower()
    return (is_secret_name(name) and end != "key") or end in _COUNTS


def is_secret_value(name: str, value: object) -> bool:
    """Return whether a value is a secret by the name of its field: of an ambiguous name, if it has a random text."""
    if is_secret_field(name):
        return holds_secret(value, name)
    return _is_ambiguous(name) and _is_random(value)


@lru_cache(maxsize=4096)
def _is_ambiguous(name: object) -> bool:
    name = str(name)[-_LONGEST_NAME:]
    return _AMBIGUOUS_NAME.compiled.fullmatch(_WORD_BREAK.compiled.sub("_", name).lower()) is not None


def _is_random(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= _LONGEST_RANDOM and _RANDOM.compiled.fullmatch(value) is not None
        case dict():
            return any(map(_is_random, cast("Mapping[str, Any]", value).values()))
        case list():
            return any(map(_is_random, cast("Sequence[Any]", value)))
        case _:
            return False


def is_marked_secret(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema marks its value as secret: by ``writeOnly``, its format, or an extension."""
    if schema.get("writeOnly") is True or ("format" in schema and is_secret_name(str(schema["format"]))):
        return True
    extensions = [name for name, value in schema.items() if name[:2] == "x-" and value is True]
    return any("sensitive" in name or is_secret_name(name) for name in extensions)


def may_name_secrets(text: str) -> bool:
    """Return whether a JSON text may have a field whose name indicates a secret; most have none."""
    if len(text) > _LONGEST_READ:
        return True
    lowered = text.lower()
    if _NAME_SIGN.compiled.search(lowered) is None:
        return False
    if "\\u" in lowered or any(name in lowered for name in _TELLING_OBJECTS):
        return True
    words = _WORD_BREAK.compiled.sub("_", text).lower()
    return _TELLING_NAME.compiled.search(words) is not None or _AMBIGUOUS_WORD.compiled.search(words) is not None


def secrets_of(values: Mapping[str, str]) -> list[str]:
    """Return the values whose names indicate secrets, such as headers or variables, and the tokens within them.

    A value in the format of a key counts whatever its name, and so does a login in a URL. A value that only says how
    something is set, such as ``true``, is none: struck out, it would spoil other words.
    """
    found = [value for name, value in values.items() if is_secret_name(name) and value.lower() not in _SETTING_WORDS]
    known = [secret for value in found for secret in _split_header(value)]
    return [*known, *(secret for value in values.values() for secret in _find_keys(value))]


def secrets_in_headers(headers: Mapping[str, str] | None) -> list[str]:
    """Return the values of headers that an application has set, whatever their names, and the tokens within them.

    Any header may be a password for some gateway, so only the words of the protocol itself are left.
    """
    given = {name.lower(): value for name, value in (headers or {}).items()}
    found = [
        value
        for name, value in given.items()
        if not (name in _PROTOCOL_HEADERS or name.startswith("x-stainless-"))
        or any(_KNOWN.find_spans(value, _lower_text(value)))
    ]
    found = [value for value in found if value.lower() not in _SETTING_WORDS]
    fields = [field.partition("=")[2].strip('"') for value in found for field in _FIELDS.compiled.split(value)]
    return [*(secret for value in found for secret in _split_header(value)), *filter(None, fields)]


def secrets_in_url(url: str) -> list[str]:
    """Return the secret parts of a URL, as written and decoded.

    They are its user, its password, the values of its query, and random texts in its path.
    """
    parts = urlsplit(url)
    found = [part for part in (parts.password, parts.username) if part]
    if parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
        found.append(b64encode(pair.encode()).decode())
    found += [value for _, value in parse_qsl(parts.query, keep_blank_values=False)]
    found += [piece.partition("=")[2] for piece in parts.query.split("&")]
    found += [segment for segment in parts.path.split("/") if _OPAQUE_SEGMENT.compiled.fullmatch(segment)]
    found = [value for value in found if value and value.lower() not in _SETTING_WORDS]
    return [form for value in found for form in dict.fromkeys((value, unquote(value)))]


def secrets_in_arguments(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the secret parts of a command line, in any position.

    They are the values after an option such as ``--api-key``, or a name as in ``API_KEY=...`` and ``X-Auth: ...``;
    logins in URLs; texts in the format of keys; and random texts.
    """
    found: list[str] = []
    run = program_name(command, arguments)
    for before, argument, following in zip(["", *arguments], arguments, [*arguments[1:], ""], strict=False):
        named = _NAMED.compiled.fullmatch(argument)
        if named is not None:
            is_header = ":" in named[2] and ("-" in named[1] or before in _HEADER_OPTIONS)
            found += (secrets_in_headers if is_header else secrets_of)({named[1]: named[3]})
        elif argument.startswith("-"):
            found += secrets_of({argument: following})
        elif PurePath(argument).name != run and _OPAQUE.compiled.fullmatch(argument):
            found.append(argument)
        found += _find_keys(argument)
    return found


def without_secrets(text: str, secrets: Iterable[str], *, shortest: int = _SHORTEST_STRUCK) -> str:
    """Return a text with each secret redacted, also percent-encoded, escaped, in hex or Base64.

    Args:
        text: It may hold secrets.
        secrets: The secrets to strike out.
        shortest: Shorter ones than that many characters would be found in everything, and are left.
    """
    known = frozenset([secret for secret in map(str.strip, secrets) if len(secret) >= shortest])
    if not known:
        return text
    return _mask_spans(text, _compile_secrets(known).find_spans(text, text))


def without_keys(text: str) -> str:
    """Return a text without texts in the format of keys, and without the values that it gives to telling names."""
    if len(text) < _SHORTEST_TOLD and text.isidentifier():
        return text
    lowered = _lower_text(text)
    for find in _FINDERS:
        struck = _mask_spans(text, find(text, lowered))
        if struck is not text:
            text, lowered = struck, _lower_text(struck)
    return text


def _mask_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with a mask for each of its secrets: the same object where there are none."""
    pieces: list[str] = []
    written = 0
    for start, end in spans:
        is_digest = text.endswith(_DIGEST_SIGN, 0, start) and is_replaced(text[start - len(_DIGEST_SIGN) : end])
        if start >= written and not (is_digest or text.startswith(MASK, start)):
            pieces += text[written:start], MASK
            written = end
    return "".join([*pieces, text[written:]]) if pieces else text


def _lower_text(text: str) -> str:
    """Return a text in lower case, each character at its place."""
    lowered = text.lower()  # in Turkish, a letter becomes two
    return lowered if len(lowered) == len(text) else text.translate(_LOWER_CASE)


def clean_text(text: str) -> str:
    """Return a text as it may be shown or written: as `without_keys` does, and with all below telling names in JSON."""
    if text[:1] in _OPENS_JSON or text[:1].isspace():
        masked = mask_json(text, _clean_values)
        if masked is not None:
            return masked
    return without_keys(text)


def _clean_values(plain: Any) -> Any:
    return clean_texts(replace_fields(plain, _mask_value), clean_text)


def clean_texts(value: Any, clean: Callable[[str], str]) -> Any:
    """Return JSON values with each text clean, names of fields included."""
    match value:
        case str():
            return clean(value)
        case dict():
            fields = cast("Mapping[str, Any]", value)
            return {clean(name): clean_texts(item, clean) for name, item in fields.items()}
        case list():
            return [clean_texts(item, clean) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def mask_json(text: str, mask: Callable[[Any], Any]) -> str | None:
    """Return a text of a JSON object or list with its values masked; None where it is none, or stays as it is."""
    if text.lstrip()[:1] not in _OPENS_JSON:
        return None
    try:
        plain: Any = loads(text)
        masked = mask(plain)
        return None if masked == plain else dumps(masked, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def without_credentials(url: str) -> str:
    """Return a URL as errors may show it: no user, password, query, fragment or random text in its path."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # what of it is a password can't be found out
        return MASK
    path = "/".join(
        MASK if _OPAQUE_SEGMENT.compiled.fullmatch(segment) else segment for segment in parts.path.split("/")
    )
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path, query="", fragment=""))


def digest_of(secret: str) -> str:
    """Return a digest that distinguishes secrets within this process and reveals nothing outside it.

    It uses a key that only this process has: a short secret could be found from a plain digest by trying.
    """
    import hmac  # noqa: PLC0415 - slow to import, and few arguments are secrets

    return _DIGEST_SIGN + hmac.digest(_PROCESS_KEY, secret.encode("utf-8", "surrogatepass"), "sha256").hex()


def cut_causes(error: BaseException, redact: Redact) -> None:
    """Cut the chain of causes behind an error before each that shows a secret, as tracebacks show them all.

    Args:
        error: Shows none itself.
        redact: Redacts secrets.
    """
    shows_secret, waiting = {id(error): False}, [error]
    while waiting:
        one = waiting.pop()
        for link in ("__cause__", "__context__"):
            other: BaseException | None = getattr(one, link)
            if other is None:
                continue
            if id(other) not in shows_secret:  # to write one with a long message takes tens of milliseconds
                shown = f"{other!s} {other!r} {vars(other)}"
                shows_secret[id(other)] = redact(shown) != shown
                waiting.append(other)
            if shows_secret[id(other)]:
                setattr(one, link, None)


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
    judge: Callable[[Any, _Path, Any], bool | None],
    replace: Callable[[Any, _Path, bool], Any],
    path: _Path = (),
) -> Any:
    """Return JSON values with the secrets replaced, each with all below it; the original is not changed.

    In headers, queries and cookies all but the words of the protocol are replaced; in an object that gives a telling
    ``name``, ``key`` or the like, its ``value`` or ``content``; in a list, what follows a telling option or header.

    Args:
        value: JSON values.
        judge: Takes the name of a field or the index in a list, the path of what has it, and that; returns whether it
            is marked as a secret (True) or sounds like one (False), and None where it is none.
        replace: Returns the replacement for a secret at a path, by whether it is marked.
        path: Where the value stands.
    """
    match value:
        case dict():
            fields = cast("Mapping[str, Any]", value)
            told: Set[Any] = _find_carried(fields, path) | _find_named_values(fields)
            told |= {name for name, item in fields.items() if _is_ambiguous(name) and _is_random(item)}
            items: Iterable[tuple[Any, Any]] = fields.items()
        case [head, *rows] if _names_columns(head):
            return [head, *[_replace_in_row(head, row, judge, replace, path) for row in cast("Sequence[Any]", rows)]]
        case list() | tuple():
            told = _find_listed(cast("Sequence[Any]", value))
            items = enumerate(cast("Sequence[Any]", value))
        case _:
            return value
    replaced: dict[Any, Any] = {}
    for key, item in items:
        inside, is_marked = (*path, key), judge(key, path, value)
        if is_marked is None and key in told:
            is_marked = False
        is_secret = is_marked is not None and (item is not None if is_marked else holds_secret(item, str(key)))
        replaced[key] = (
            replace(item, inside, bool(is_marked)) if is_secret else replace_secrets(item, judge, replace, inside)
        )
    return replaced if isinstance(value, dict) else list(replaced.values())


def _find_named_values(fields: Mapping[str, Any]) -> Set[str]:
    """Return the fields of an object that have the value of a secret which another of its fields names."""
    short = {name: str(name)[:_LONGEST_NAME].lower() for name in fields}
    valued = {name for name, lowered in short.items() if lowered in _VALUED_FIELDS}
    if not valued:
        return valued
    named = [(lowered, fields[name]) for name, lowered in short.items() if name not in valued]
    return valued if any(isinstance(text, str) and _is_naming(lowered, text) for lowered, text in named) else set()


def _is_naming(field: str, text: str) -> bool:
    if len(text) > _LONGEST_NAME or not is_secret_name(text):
        return False
    return field in _NAMING_FIELDS or (" " not in text and is_secret_field(text))


def _find_carried(fields: Mapping[str, Any], path: Sequence[str | int]) -> set[str]:
    """Return the names of headers, or of values of a query, that are not words of the protocol."""
    if not (path and isinstance(path[-1], str) and _CARRIERS.compiled.fullmatch(path[-1])):
        return set()
    return {name for name, value in fields.items() if str(value) in secrets_in_headers({str(name): str(value)})}


def _names_columns(head: Any) -> TypeGuard[Sequence[str]]:
    """Return whether a row of a table has the names of its columns, one of them telling."""
    if not isinstance(head, list):
        return False
    names = [name for name in cast("Sequence[Any]", head) if isinstance(name, str)]
    is_head = len(names) == len({*names}) == len(cast("Sequence[Any]", head))
    return is_head and all(map(_ONE_NAME.compiled.fullmatch, names)) and any(map(is_secret_field, names))


def _replace_in_row(head: Sequence[str], row: Any, judge: Any, replace: Any, path: _Path) -> Any:
    """Return a row of a table with the secrets replaced that its head names."""
    if not isinstance(row, list):
        return replace_secrets(row, judge, replace, path)
    cells = dict(zip(head, cast("Sequence[Any]", row), strict=False))
    return [*replace_secrets(cells, judge, replace, path).values(), *cast("Sequence[Any]", row)[len(head) :]]


def _find_listed(items: Sequence[Any]) -> set[int]:
    """Return the places in a list of what follows a telling option, or is the second of a pair with a telling name."""
    found: set[int] = set()
    for place, (name, value) in enumerate(pairwise(items), 1):
        if isinstance(name, str) and is_secret_name(name):
            text = value if isinstance(value, str) else "0"
            is_pair = len(items) <= len(("set", "name", "value")) and not _ONE_NAME.compiled.fullmatch(text)
            if is_pair or (_OPTION.compiled.fullmatch(name) and not text.startswith("-")):
                found.add(place)
    return found


def holds_secret(value: object, name: str = "") -> bool:
    """Return whether a value below a telling name may be a secret: nothing, a truth value and a count are none."""
    if name.lower() in _COUNTS and str(value).replace(".", "", 1).isdecimal():
        return False
    return not (value is None or isinstance(value, bool) or value in ("", [], {}, ()))


def program_name(command: str, arguments: Sequence[str]) -> str:
    """Return a name that can hold no secret: of the arguments only that which a runner of programs runs."""
    program = PurePath(command).name
    if _RUNNER.compiled.fullmatch(program):
        first = next((argument for argument in arguments if argument not in _RUNNER_ARGUMENTS), "")
        if _PROGRAM_NAME.compiled.fullmatch(first):
            return PurePath(first).name
    return program


def _find_keys(text: str) -> Iterator[str]:
    """Yield the texts that are struck out by their format, as values in a query or behind a telling name."""
    lowered = _lower_text(text)
    for start, end in _KNOWN.find_spans(text, lowered):
        key = text[start:end]
        yield key
        user, colon, password = key.partition(":")
        if colon:
            yield from (unquote(key), user, password, unquote(password))
    for start, end in _find_named(text, lowered):
        yield text[start:end]
        yield unquote(text[start:end])


class _Rule(NamedTuple):
    """A way in which texts show secrets.

    Args:
        pattern: Finds a secret: its group ``value``, else what is behind its other groups.
        signs: A match begins with one of these, in lower case; to look for them takes a twentieth of the time.
    """

    pattern: _Pattern
    signs: Sequence[str] = ()

    def find_spans(self, text: str, lowered: str) -> Iterator[tuple[int, int]]:
        """Yield where the secrets stand in a text."""
        has_value = "value" in self.pattern.compiled.groupindex
        for found in self._find_at_signs(text, lowered) if self.signs else self._find_in_pieces(text):
            before = found.end(found.lastindex) if found.lastindex else found.start()
            yield found.span("value") if has_value else (before, found.end())

    def _find_at_signs(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        end = 0
        for place in _find_places(lowered, self.signs):
            found = self.pattern.compiled.match(text, place) if place >= end else None
            if found is not None:
                end = found.end()
                yield found

    def _find_in_pieces(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches of the pattern: one search holds the interpreter's lock to its end."""
        start = 0
        while start < len(text):
            end = start + _PIECE
            found = self.pattern.compiled.search(text, start, end + _PIECE)
            if found is None or found.start() >= end:
                start = end
            else:
                yield found
                start = max(found.end(), start + 1)


def _find_places(lowered: str, signs: Iterable[str]) -> list[int]:
    """Return where one of the signs begins, in order."""
    places: list[int] = []
    for sign in signs:
        place = lowered.find(sign)
        while place >= 0:
            places.append(place)
            place = lowered.find(sign, place + 1)
    return sorted(places)


# Names in texts. Each telling name has one of the signs; what joins it to its value tells the syntax of the text.
_NAME_SIGNS = (
    *("auth", "key", "token", "secret", "cookie", "sess", "pass", "pw", "cred", "sig", "bearer", "csrf", "xsrf"),
    *("hmac", "mnemonic", "assertion", "phrase", "word", "conn", "saml", "verifier", "id_", "code", "answer", "pin"),
    *("jw", "otp", "mfa", "cvv", "cvc", "psk", "dsn", "pem", "pat", "kek", "dek", "puk", "netrc", "sk_", "sid"),
    *("refresh", "priv", "licen", "ticket", "grant", "nonce", "salt", "seed", "entropy", "activation", "unlock"),
    *("vault", "webhook", "invite"),
)
_TELLING_OBJECTS = ("headers", "query", "cookies")


def _join_words(words: Iterable[str]) -> str:
    """Return a pattern of any of these words, by their first letters: that is searched in a third of the time."""
    rest: dict[str, list[str]] = {}
    for word in words:
        rest.setdefault(word[:1], []).append(word[1:])
    if "" in rest:
        return ""
    return "(?:" + "|".join([re.escape(first) + _join_words(after) for first, after in rest.items()]) + ")"


_NAME_SIGN = _Pattern(_join_words((*_NAME_SIGNS, *_TELLING_OBJECTS, "\\u")))
_QUOTE = r"(?:\\{0,15}[\"'`]|%22|&quot;|&\#3[49];|\\u002[27])"
_IN_VALUE = r"(?:(?!%2[26]|&quot;)[^\s\"'`&,;<>(){}\[\]\\])"
_IDENTIFIER = _Pattern(r"[\w$]+(?:[.-]+[\w$]+)*")
_LABEL = _Pattern(
    r"(?:(?:api|access|account|auth|private|secret|shared|license|client|subscription|encryption)[ _-]key"
    r"|(?:verification|security|recovery|backup|one[_-]?time)[ _-]codes?)\Z",
    re.IGNORECASE,
)
_ASSIGNED = _Pattern(
    rf"(?P<closed>{_QUOTE}?)\]?\*{{0,2}}\s{{0,4}}(?P<sign>=>|->|:=|={{1,3}}|[:|]|%3[ad])\*{{0,2}}\s{{0,4}}"
    rf"(?:[|>][+-]?\n\s{{1,40}})?(?:b(?={_QUOTE}))?(?P<open>{_QUOTE}?)(?:(?:bearer|basic|token|api-?key|negotiate|ntlm)\s(?=\S))?",
    re.IGNORECASE,
)
_BARE = _Pattern(rf"{_IN_VALUE}{{4,}}(?!{_IN_VALUE}|\()")
_NUMBER = _Pattern(r"[-+]?\d[\d.eE+-]*")
_IN_QUERY = _Pattern(r"=([^\s&;#\"'<>\\]+)")
_OF_HEADER = _Pattern(r":\s{0,2}(?>(?:[A-Za-z][\w-]{0,40} (?=\S))?)([^\r\n=]{0,4000}=[^\r\n]+|[^\s\d]{0,4000}\d\S*)")
_BRACKETS = _Pattern(r"(?:[A-Z]\w{0,60})?[\[({]")
_BRACKET = _Pattern(r"[\[({]|[\])}]")
_FILLED = _Pattern(r"[\"'`:=\d]")
_INDENTED = r"[ \t]*((?:\n {{{0},}}(?:- *)?(?:[\w.-]+: *)?\S*)+)"
_OTHER_LINKS = tuple(
    _Pattern(pattern)
    for pattern in (
        # a header as a pair, a part of a form, a pair of elements, an error of Pydantic, a section of settings
        r"(?P<open>[\"']),\s?b?(?P=open)([^\"'\n]+)(?=(?P=open)\s?[)\]])",
        r"\"[^\r\n]{0,200}(?:\r?\n[^\r\n]{1,200}){0,3}\r?\n\r?\n([^\r\n]+)",
        r"</\w{1,20}>\s{0,9}<\w{1,20}>([^<>]+)(?=</)",
        r"\n  [^\n]{0,1000}?input_value=([^\n]{1,4000}?)(?=, input_type=)",
        r"\]\n((?:[\w.-]{1,60} ?= ?\S[^\n]{0,1000}\n?)+)",
    )
)
_OPTION_VALUE = _Pattern(
    r"(?<!file)(?<!path)(?<!dir)(?<!name)(?<!id)(?<!type)[ \t]{1,4}[\"']?(?![A-Za-z]+(?!\S))([^\s\"'-][^\s\"']{3,})"
)
_LONGEST_BELOW = 10_000
_LONGEST_RANDOM = 200
_LABEL_ENDS = ("key", "code", "codes")
_COLUMN = _Pattern(r"[\w -]{0,40}")


def _find_named(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield where the values stand that a text gives to telling names, in any syntax."""
    end = 0
    for place in _find_places(lowered, _NAME_SIGNS):
        if place < end:
            continue
        start, floor = place, max(end, place - _LONGEST_NAME)
        while start > floor and (text[start - 1].isalnum() or text[start - 1] in "_-."):
            start -= 1
        found = _IDENTIFIER.compiled.search(text, start, place + _LONGEST_NAME)
        assert found is not None
        start, end = found.span()
        span = _find_value(text, start, end)
        if span is not None:
            yield span
            end = span[1]


def _find_value(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return where the value of a name stands, if the name and the value tell of a secret."""
    name, before = text[start:end], text[max(0, start - 1) : start]
    if before not in ("-", "<", ":") and text[end : end + 8].lstrip(" \t")[:1].isalnum():
        return None
    if before in ("?", "&", ";") and (found := _IN_QUERY.compiled.match(text, end, end + _LONGEST_RANDOM)):
        if is_secret_name(unquote(name)):
            found = cast("re.Match[str]", _IN_QUERY.compiled.match(text, end))
        elif not is_secret_value(unquote(name), unquote(found[1])):
            return None
        return found.span(1) if _is_worth_masking(found[1]) else None
    is_label = name.lower().endswith(_LABEL_ENDS) and _LABEL.compiled.search(text, max(0, start - 24), end)
    is_telling = is_secret_field(name) or bool(is_label)
    if is_telling:
        for span in (_find_below(text, start, end, before), _find_linked(text, start, end)):
            if span is not None:
                return span if _is_worth_masking(text[slice(*span)], name) else None
    found = _ASSIGNED.compiled.match(text, end)
    if found is None or not (is_telling or _is_ambiguous(name)):
        return None
    span = _find_assigned(text, found, most=len(text) if is_telling else end + _LONGEST_RANDOM)
    if span is None or (not is_telling and not _is_random(text[slice(*span)])):
        return None
    return span if _is_worth_masking(text[slice(*span)], name) else None


def _is_worth_masking(value: str, name: str = "") -> bool:
    plain = value.strip(" *").lower()
    return holds_secret(plain, name) and not (plain in _SETTING_WORDS or plain.startswith("$") or is_replaced(value))


def _find_assigned(text: str, found: re.Match[str], *, most: int) -> tuple[int, int] | None:
    """Return where the value stands behind a sign."""
    start, mark = found.end(), found["open"]
    if mark:
        end = text.find(mark, start, start + _LONGEST_BELOW)
        while end > 0 and text[end - 1] == "\\":  # a quote in the value
            end = text.find(mark, end + 1, start + _LONGEST_BELOW)
        if end >= 0:
            return start, end
    if found["closed"] and (number := _NUMBER.compiled.match(text, start)):
        return number.span()
    bare = _BARE.compiled.match(text, start, most)
    if bare is None or text.startswith(f" {MASK}", bare.end()):  # a scheme, in front of what is masked
        return None
    if bare[0].isalpha() and "=" not in found["sign"] and not (mark or found["closed"]):
        return None
    return bare.span()


def _find_below(text: str, start: int, end: int, before: str) -> tuple[int, int] | None:
    """Return all that a text has below a name: in brackets, in an element or indented."""
    name, most = text[start:end], end + _LONGEST_BELOW
    if before == "<" or (before == ":" and "<" in text[max(0, start - 40) : start]):
        opened = text.find(">", end, end + 300)
        closed = text.find(f"{name}>", opened, most) if opened > 0 and text[opened - 1] != "/" else -1
        return None if closed < 0 else (opened + 1, text.rfind("<", opened, closed))
    line = text.rfind("\n", 0, start) + 1
    indent = len(text[line:start]) if text[line:start].isspace() or line == start else -1
    if indent >= 0 and text.startswith(":", end):
        found = re.compile(_INDENTED.format(indent + 1)).match(text, end + 1, most)
        if found is not None and found[1].strip():
            return found.span(1)
    joined = _ASSIGNED.compiled.match(text, end)
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


def _find_linked(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the value that a syntax of its own links to a name."""
    if text[start:end].lower() in ("cookie", "set-cookie", "authorization", "proxy-authorization"):
        found = _OF_HEADER.compiled.match(text, end)
        if found is not None:
            return found.span(1)
    if text[max(0, start - 2) : start].strip(" \"'[,(\n") in ("-", "--"):
        found = _OPTION_VALUE.compiled.match(text, end)
        if found is not None:
            return found.span(1)
    for link in _OTHER_LINKS:
        found = link.compiled.match(text, end)
        if found is not None:
            return found.span(found.lastindex or 0)
    return None


_NAMING = _Pattern(
    r"\s(?:name|id|key|type|property)\s{0,2}=\s{0,2}(?P<open>[\"'])(?P<name>[\w.:\[\] -]{1,60})(?P=open)"
)
_VALUED = _Pattern(r"\s(?:value|content)\s{0,2}=\s{0,2}(?P<open>[\"'])(?P<value>[^\"'<>]+)(?=(?P=open))")
_TAG = _Rule(_Pattern(r"<[A-Za-z][^<>]{0,2000}>"), ("<",))


def _find_in_tags(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield the values of tags in which one attribute names a secret and another gives its value."""
    for start, end in _TAG.find_spans(text, lowered):
        if any(is_secret_field(found["name"]) for found in _NAMING.compiled.finditer(text, start, end)):
            for found in _VALUED.compiled.finditer(text, start, end):
                yield found.span("value")


def _find_cells(text: str, lowered: str) -> Iterator[tuple[int, int]]:  # noqa: ARG001 - as all finders
    """Yield the cells of tables below telling names of columns."""
    names: list[str] = []
    place, separator, lines = 0, "", text.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        cells = line.split(separator) if names else []
        if not names or len(cells) != len(names):
            separator = next((each for each in "\t|;," if 0 < line.count(each) == following.count(each)), "")
            names = _list_columns(line, separator) if separator else []
        elif set(line) - set("|-: "):
            start = place
            for name, cell in zip(names, cells, strict=True):
                if name and holds_secret(cell.strip(), name):
                    yield start + len(cell) - len(cell.lstrip()), start + len(cell.rstrip())
                start += len(cell) + 1
        place += len(line) + 1


def _list_columns(head: str, separator: str) -> list[str]:
    """Return the names of the columns of a table, those that tell of no secret empty; nothing if none tells of one."""
    if len(head) > _LONGEST_HEAD or ", " in head:
        return []
    names = [name.strip(" \"'") for name in head.split(separator)]
    telling = [name if is_secret_field(name) else "" for name in names]
    return telling if any(telling) and all(_COLUMN.compiled.fullmatch(name) for name in names) else []


_KNOWN = _Rule(_KNOWN_KEYS, _KEY_SIGNS)
_OTHER_RULES = (
    # the token of a bot
    (r"[MNO](?<!\w[MNO])[A-Za-z\d_-]{23,27}\.[\w-]{6}\.[\w-]{27,}", ()),
    # a line of pgpass, the login of curl, and a password in SQL
    (r"(?m)^[^\s:]{1,200}:(?:\d{2,5}|\*):(?!\d+:)[^\s:]{1,100}:[^\s:]{1,100}:(?P<value>[^\s:]+)$", ()),
    (
        r"(?<!\S)(?:-u|--(?:proxy-)?user)[ =][ \t]?[\"']?[^\s:\"'@/]{1,100}:(?!\d+(?!\S))(?P<value>[^\s\"']{4,})",
        ("-u", "--user", "--proxy-user"),
    ),
    (
        r"(?i)\b(?:password|identified\s+(?:with\s+\w{1,40}\s+)?by)\s+(?P<open>[\"'])(?P<value>[^\"'\n]+)(?=(?P=open))",
        ("password", "identified"),
    ),
    # the option of a password, which other programs have for something else: with a word of mixed letters and digits
    (
        (
            r"(?<!\S)-[pP](?:(?=[\w!@#$%^&+]{4}(?<!\d{4}))|[ \t][\"']?(?=\w{8})(?=\w*[a-z])(?=\w*[A-Z]))"
            r"(?P<value>(?=[^\W\d]*\d)(?=\d*[^\W\d])[\w!@#$%^&+]+)(?![\w./:=-])"
        ),
        ("-p",),
    ),
    # a random word behind a telling one, in prose or a command: of letters and digits, and no part of a longer name
    (
        (
            r"(?i)(?:pass(?:wor[dt]|wd|phrase|code|in|out)?|pwd|secret|credentials?|token|identified by"
            r"|(?:api|access|auth|private|shared|license|client)[ _-]key"
            r"|(?:recovery|backup|security|verification)[ _-]code)(?![a-z])"
            r"(?:[ \t]{1,3}-{0,2}[a-z]{1,12}){0,3}(?:[ \t]{0,2}[:=|]|-{0,1}>|[ \t]){1,3}[*`'\"(]{0,3}"
            r"(?=[^\W\d]*\d)(?=\d*[^\W\d])(?P<value>[\w!@#$%^&+]{8,})(?![\w/-]|[.:=]\w|\()"
        ),
        (
            *("secret", "credential", "token", "api", "access", "auth", "private", "shared", "license", "client"),
            *("recovery", "backup", "security", "verification", "pass", "pwd", "identified by"),
        ),
    ),
)
_FINDERS: Sequence[Callable[[str, str], Iterable[tuple[int, int]]]] = (
    *(_KNOWN.find_spans, _find_cells, _find_in_tags, _find_named),
    *(_Rule(_Pattern(pattern), signs).find_spans for pattern, signs in _OTHER_RULES),
)


def _split_header(value: str) -> Iterator[str]:
    """Yield a value, its words after a scheme such as ``Bearer``, and the login in its Base64."""
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
def _compile_secrets(secrets: frozenset[str]) -> _Rule:
    """Return the rule that strikes out any form of these secrets, the longest first."""
    forms = {form for secret in secrets for form in _list_forms(secret)}
    exact = [re.escape(form) for form in sorted(forms, key=len, reverse=True) if len(form) >= _SHORTEST_WITHIN]
    words = [rf"(?<!\w){re.escape(form)}(?!\w)" for form in forms if len(form) < _SHORTEST_WITHIN]
    return _Rule(_Pattern("|".join([*exact, *words]), re.IGNORECASE))


def _list_forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as servers, logs and programs write it."""
    from html import escape  # noqa: PLC0415 - its table of letters is large, and few programs have secrets to strike out

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


# Long random texts, which may contain anything, and which must not be changed.
_SEALED = frozenset({"data", "signature", "encrypted"})


# Fields whose own fields are named by an application or a vendor, so that their names indicate secrets.
_NAMED_FIELDS = frozenset({"options", "metadata", "arguments", "output"})


class ArgumentsSchema(Protocol):
    """The schema of a tool's arguments, as far as secrets go; `toolkit.schema.nodes.Nodes` is one."""

    @property
    def takes_secrets(self) -> bool:
        """True where some arguments are secret."""
        ...

    def replace_secrets(self, value: Any, replace: Callable[[Any, Any, bool], Any]) -> Any:
        """Return arguments with each secret replaced by what `replace` returns for it, its path, and if marked."""
        ...


class Scrubber:
    """Redacts secrets by schemas, by the names of their fields, by the format of keys, and given secrets.

    Names count in options, in the metadata of answers, in arguments and in texts that are JSON; the rest is searched
    for the texts alone. All that is written to a file or sent elsewhere goes through one, last.

    Args:
        secrets: Texts to strike out wherever they are, however they are written; empty ones are passed over.
        words: More words that indicate a secret in the name of a field.
        replace: Returns the replacement for a secret argument; None has the mask for all.
        is_learning: True where secret arguments are struck out of all that is cleaned after them, too.
        find_schemas: Returns the schemas of a tool; None has those that `learn_tool` was given.

    Attributes:
        secrets: The texts that are struck out.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        words: Iterable[str] = (),
        *,
        replace: Callable[[Any], Any] | None = None,
        is_learning: bool = False,
        find_schemas: Callable[[str], Sequence[ArgumentsSchema]] | None = None,
    ) -> None:
        self._find_schemas = self._find_learned if find_schemas is None else find_schemas
        self.secrets: frozenset[str] = frozenset(filter(None, secrets))
        self._words = tuple([word.lower() for word in words])
        self._replace = replace
        self._is_learning = is_learning
        self._learned: dict[str, Callable[[], ArgumentsSchema]] = {}

    def learn_tool(self, name: str, read_schema: Callable[[], ArgumentsSchema]) -> None:
        """Remember a tool; its schema is read when it is needed."""
        self._learned[name] = cache(read_schema)

    def __call__(self, plain: object) -> Any:
        """Return JSON values without the secrets; the original is not changed."""
        match plain:
            case str():
                return self.clean_text(plain)
            case dict():
                fields = self.mask_fields(cast("Mapping[str, object]", plain))
                is_call = fields.get("type") == "call"
                return {
                    self.clean_text(name): self._clean_field(name, value, is_call=is_call)
                    for name, value in fields.items()
                }
            case list() | tuple():
                return [self(item) for item in cast("Sequence[object]", plain)]
            case _:
                return plain

    def clean_whole(self, plain: object) -> Any:
        """Return JSON values as a call does, and the secret arguments of their calls struck out of all of them."""
        learning = copy(self)
        learning._is_learning = True
        clean = learning(plain)
        return clean if learning.secrets == self.secrets else learning(clean)

    def events(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the events of a stream without the secrets, those that are spread over several deltas too.

        Where there is one, the deltas of that text become one, at the place of the first.
        """
        texts: dict[object, list[str]] = {}
        tools: dict[object, str] = {}
        for event in events:
            key, text = _read_delta(event)
            texts.setdefault(key, []).append(text)
            if isinstance(key, int) and event["arguments"][2]:
                tools.setdefault(key, event["arguments"][2])
        joined = {key: "".join(pieces) for key, pieces in texts.items()}
        masked = {key: self.mask_arguments(tools[key], text) if key in tools else text for key, text in joined.items()}
        clean = {key: text if key in tools else self.clean_text(text) for key, text in masked.items()}
        clean = {key: text for key, text in clean.items() if text != joined[key]}
        redacted: list[dict[str, Any]] = []
        seen: set[object] = set()
        for event in events:
            key, _ = _read_delta(event)
            if key is None:
                redacted.append(self(event))
            elif key not in clean:
                redacted.append(event)
            elif key not in seen:
                seen.add(key)
                redacted.append(_replace_text(event, clean[key]))
        return redacted

    def mask_fields(self, fields: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the fields of an object, without secret arguments where it is a call, and those of telling names."""
        match fields:
            case {"type": "call", "name": str(name), "arguments": str(arguments)}:
                return {**fields, "arguments": self.mask_arguments(name, arguments)}
            case {"name": str(), "description": str(), "parameters": dict()}:
                return {**fields, "parameters": without_secret_values(fields["parameters"])}
            case _:
                pass
        if _NAMED_FIELDS.isdisjoint(fields):
            return fields
        return {
            name: replace_fields(value, _mask_value, words=self._words) if name in _NAMED_FIELDS else value
            for name, value in fields.items()
        }

    def mask_arguments(self, tool: str, text: str) -> str:
        """Return the JSON of a call's arguments without those that are secret."""
        schemas = self._find_schemas(tool)

        def mask(value: Any) -> Any:
            for schema in schemas:
                value = schema.replace_secrets(value, self._replace_argument)
            if len(schemas) != 1 or self._words:
                value = replace_fields(value, self._replace_argument, words=self._words)
            return clean_texts(value, self.clean_text)

        masked = mask_json(text, mask)
        if masked is not None:
            return masked
        if not text or mask_json(text, lambda _: None) is not None:
            return text
        is_secret = any(schema.takes_secrets for schema in schemas) or may_name_secrets(text)
        return MASK if is_secret else self.clean_text(text)

    def _find_learned(self, tool: str) -> Sequence[ArgumentsSchema]:
        # A name that is no tool's may be repaired to that of any.
        return [self._learned[name]() for name in ([tool] if tool in self._learned else self._learned)]

    def _replace_argument(self, secret: Any, path: object = None, is_marked: bool = False) -> Any:
        del path
        if is_replaced(secret):
            return secret
        if self._is_learning:
            self.secrets |= set(list_secret_texts(secret, is_marked=is_marked))
        return MASK if self._replace is None else self._replace(secret)

    def _clean_field(self, name: str, value: object, *, is_call: bool) -> Any:
        is_clean = isinstance(value, str) and (name in _SEALED or (is_call and name == "arguments"))
        return value if is_clean else self(value)

    def clean_text(self, text: str) -> str:
        """Return a text without the secrets."""
        return clean_text(without_secrets(text, self.secrets, shortest=1) if self.secrets else text)


def is_replaced(value: object) -> bool:
    """Return whether a value is a mask or a digest already."""
    return isinstance(value, str) and (value == MASK or _DIGEST.compiled.fullmatch(value) is not None)


def _mask_value(value: Any) -> Any:
    return value if is_replaced(value) else MASK


def without_secret_values(schema: Any, above: tuple[Any, ...] = ()) -> Any:
    """Return a JSON Schema without the defaults and examples that have secrets.

    Args:
        schema: A schema, or a list or an object of some.
        above: The schemas and the names of fields that it is in.
    """
    if isinstance(schema, list):
        return [without_secret_values(each, above) for each in cast("Sequence[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    node, clean = cast("Mapping[str, Any]", schema), dict[str, Any]()
    above = (*above, node)
    for keyword, value in node.items():
        if keyword in _SHOWN_VALUES:
            if not _has_secret_value(value, above):
                clean[keyword] = value
        elif keyword == "properties" and isinstance(value, dict):
            members = cast("Mapping[str, Any]", value)
            clean[keyword] = {name: without_secret_values(one, (*above, name)) for name, one in members.items()}
        else:
            clean[keyword] = without_secret_values(value, above) if type(value) in (dict, list) else value
    return clean


def _has_secret_value(value: Any, above: tuple[Any, ...]) -> bool:
    """Return whether a default or an example is a secret, or has one."""
    if type(value) in (dict, list) and replace_fields(value, _mask_value) != value:
        return True
    is_listed = "enum" in above[-1] or "const" in above[-1]
    if is_listed or not holds_secret(value) or str(value).lower() in _SETTING_WORDS:
        return False
    return any(is_secret_field(each) if isinstance(each, str) else is_marked_secret(each) for each in above)


def mask_leaves(value: Any) -> Any:
    """Return a secret with nothing of it left but its form, so that a schema may still accept it."""
    match value:
        case dict():
            fields = cast("Mapping[str, Any]", value)
            return {
                MASK if _RANDOM.compiled.fullmatch(name) else name: mask_leaves(item) for name, item in fields.items()
            }
        case list():
            return [mask_leaves(item) for item in cast("Sequence[Any]", value)]
        case int() | float() if not isinstance(value, bool):
            return 0
        case _:
            return MASK if isinstance(value, str) else value


def list_secret_texts(secret: Any, *, is_marked: bool) -> Iterator[str]:
    """Yield the texts of a secret value that are struck out wherever they are.

    Short ones would be found in everything, and words are struck out only if a schema says that they are secret.
    """
    match secret:
        case dict():
            for item in cast("Mapping[str, Any]", secret).values():
                yield from list_secret_texts(item, is_marked=is_marked)
        case list():
            for item in cast("Sequence[Any]", secret):
                yield from list_secret_texts(item, is_marked=is_marked)
        case str() | int() | float():
            text = str(secret)
            is_word = text.isalpha() and not is_marked
            if len(text) >= _SHORTEST_STRUCK and not is_word and text.lower() not in _SETTING_WORDS:
                yield text
        case _:
            pass


def _read_delta(event: Mapping[str, Any]) -> tuple[object, str]:
    """Return the block that the delta belongs to, and its text; the end of a stream has none."""
    match event:
        case {"text": str(text)}:
            return "text", text
        case {"reasoning": str(text)}:
            return "reasoning", text
        case {"arguments": [int(index), _, _, str(text)]}:
            return index, text
        case _:
            return None, ""


def _replace_text(event: Mapping[str, Any], text: str) -> dict[str, Any]:
    if "arguments" in event:
        index, call_id, tool_name, _ = event["arguments"]
        return {"arguments": [index, call_id, tool_name, text]}
    return dict.fromkeys(event, text)
