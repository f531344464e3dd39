"""The values that must not be seen: which names and texts are secrets, and the one scrubber of values and texts.

A name tells of a secret by its words (`names`). A structure binds a name to a value (`values`, and for texts `texts`).
A text can also be a secret by its own format (`formats`), or since an application gave it (`known`). All code that
shows or stores a text of a program, a server or a model removes the secrets from it here first.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache
from json import dumps, loads
from pathlib import PurePath
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from toolkit.redaction.formats import DIGEST_SIGN, MASK, find_known, fold_text, is_replaced
from toolkit.redaction.known import SHORTEST_STRUCK, without_secrets
from toolkit.redaction.names import (
    SETTING_WORDS,
    Pattern,
    holds_secret,
    is_random,
    is_secret_field,
    is_secret_name,
    is_secret_value,
)
from toolkit.redaction.texts import find_given, may_name_secrets, may_show_secrets, without_keys
from toolkit.redaction.values import is_mark, is_naming, is_protocol_header, replace_fields, replace_secrets

__all__ = [
    "MASK",
    "ArgumentsSchema",
    "Redact",
    "Scrubber",
    "clean_text",
    "clean_texts",
    "cut_causes",
    "digest_of",
    "holds_secret",
    "is_marked_secret",
    "is_replaced",
    "is_secret_field",
    "is_secret_member",
    "is_secret_name",
    "is_secret_value",
    "list_secret_texts",
    "mask_json",
    "mask_leaves",
    "may_name_secrets",
    "may_show_secrets",
    "program_name",
    "replace_fields",
    "replace_secrets",
    "secrets_in_arguments",
    "secrets_in_headers",
    "secrets_in_url",
    "secrets_of",
    "without_credentials",
    "without_keys",
    "without_secret_values",
    "without_secrets",
]

Redact = Callable[[str], str]
"""Returns a text without secrets."""

_MOST_PROBLEMS = 1_000

# What an application gives to a server or a program.
_OPAQUE = Pattern(
    r"(?=\D*\d)(?=[^a-z]*[a-z])(?![\w.-]+==[\d.]+$)(?!.*\.[a-z]{1,5}$)[\w+=.~!$%^*-]{12,}"
    r"|(?=[\w-]{8})[\w-]*(?:secret|token|passw|key)[\w-]*",
    re.IGNORECASE,
)  # a random text, which no word, path, host, version or name of a file is
_OPAQUE_SEGMENT = Pattern(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])(?:\w{20,}|(?=.*[a-z])(?=.*[A-Z])[\w=~-]{20,})")
_EXTENSION = Pattern(r"format\Z|x-|\w+:")
_FIELDS = Pattern(r"[;,\s]+")  # between the fields of a cookie, or of some schemes' credentials
_OPENS_JSON = ("{", "[")
_NAMED = Pattern(r"(--?[\w.-]+|[\w.-]+)(=|:\s+)(.*)", re.DOTALL)
_HEADER_OPTIONS = ("-H", "--header", "--headers")
_VALUE_WORD = Pattern(r"""[^\s"'`{}\[\],:\\]{4,}+(?!\\*["'`]?\s*:)""")  # no name of a field
_PROCESS_KEY = os.urandom(32)
_PROGRAM_NAME = Pattern(r"[\w@./][\w@./-]*")
_RUNNER = Pattern(
    r"(npx|uvx|uv|pipx|node|deno|bun|bunx|python[0-9.]*|ruby|perl|php|java|bash|sh|zsh|pwsh)(\.exe)?", re.IGNORECASE
)
_RUNNER_ARGUMENTS = ("-y", "--yes", "-m", "-u", "-jar", "run", "tool")


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


def is_marked_secret(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema marks its value as secret: by ``writeOnly``, its format, or an extension."""
    return schema.get("writeOnly") is True or any(
        (is_secret_name(name) or is_mark(name) or name.endswith("private"))
        if value is True
        else isinstance(value, str) and _EXTENSION.compiled.match(name) and (is_secret_name(value) or is_mark(value))
        for name, value in schema.items()
    )


def is_secret_member(name: str, schema: Any) -> bool:
    """Return whether a field tells of a secret by its name, or by the title of its schema."""
    title = cast("Mapping[str, Any]", schema).get("title") if isinstance(schema, dict) else None
    return is_secret_field(name) or (isinstance(title, str) and is_naming("title", title))


def secrets_of(values: Mapping[str, str]) -> list[str]:
    """Return the values whose names indicate secrets, such as headers or variables, and the tokens within them.

    A value in the format of a key counts whatever its name, and so does a login in a URL. A value that only says how
    something is set, such as ``true``, is none: struck out, it would spoil other words.
    """
    telling = [value for name, value in values.items() if is_secret_name(name) and holds_secret(value, name)]
    found = [value for value in telling if value.lower() not in SETTING_WORDS]
    known = [secret for value in found for secret in _split_header(value)]
    return [*known, *(secret for value in values.values() for secret in _find_keys(value))]


def secrets_in_headers(headers: Mapping[str, str] | None) -> list[str]:
    """Return the values of headers that an application has set, whatever their names, and the tokens within them.

    Any header may be a password for some gateway, so only the words of the protocol itself are left.
    """
    given = {name.lower(): value for name, value in (headers or {}).items()}
    found = [
        value for name, value in given.items() if not is_protocol_header(name) or any(find_known(*fold_text(value)))
    ]
    found = [value for value in found if value.lower() not in SETTING_WORDS]
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
    found = [value for value in found if value and value.lower() not in SETTING_WORDS]
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


def _find_keys(text: str) -> Iterator[str]:
    """Yield the texts that are struck out by their format, as values in a query or behind a telling name."""
    text, lowered = fold_text(text)
    for start, end in find_known(text, lowered):
        key = text[start:end]
        yield key
        user, colon, password = key.partition(":")
        if colon:
            yield from (unquote(key), user, password, unquote(password))
    for start, end in find_given(text, lowered):
        yield text[start:end]
        yield unquote(text[start:end])


def program_name(command: str, arguments: Sequence[str]) -> str:
    """Return a name that can hold no secret: of the arguments only that which a runner of programs runs."""
    program = PurePath(command).name
    if _RUNNER.compiled.fullmatch(program):
        first = next((argument for argument in arguments if argument not in _RUNNER_ARGUMENTS), "")
        if _PROGRAM_NAME.compiled.fullmatch(first):
            return PurePath(first).name
    return program


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

    return DIGEST_SIGN + hmac.digest(_PROCESS_KEY, secret.encode("utf-8", "surrogatepass"), "sha256").hex()


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
                is_endless = _count_problems(other) > _MOST_PROBLEMS
                shown = "" if is_endless else f"{other!s} {other!r} {vars(other)}"
                shows_secret[id(other)] = is_endless or redact(shown) != shown
                waiting.append(other)
            if shows_secret[id(other)]:
                setattr(one, link, None)


def _count_problems(error: BaseException) -> int:
    """Return how many problems an error of Pydantic lists: the text of many has megabytes."""
    count: Callable[[], int] | None = getattr(error, "error_count", None)
    return 0 if count is None else count()


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
        list_readings: Returns the JSON that arguments which are none may mean by the schemas; None returns nothing.

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
        list_readings: Callable[[str, Sequence[ArgumentsSchema]], Sequence[str]] | None = None,
    ) -> None:
        self._find_schemas = self._find_learned if find_schemas is None else find_schemas
        self.secrets: frozenset[str] = frozenset(filter(None, secrets))
        self._words = tuple([word.lower() for word in words])
        self._replace = replace
        self._is_learning = is_learning
        self._list_readings = list_readings
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
            return clean_texts(value, self._clean_argument)

        masked = mask_json(text, mask)
        if masked is not None:
            return masked
        if not text or mask_json(text, lambda _: None) is not None:
            return text
        if not any(schema.takes_secrets for schema in schemas) and not may_name_secrets(text):
            return self.clean_text(text)
        if self._is_learning:
            readings = () if self._list_readings is None else self._list_readings(text, schemas)
            for reading in readings:
                mask_json(reading, mask)
            if not readings:
                self.secrets |= set(list_secret_texts(_VALUE_WORD.compiled.findall(text), is_marked=False))
        return MASK

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

    def _clean_argument(self, text: str) -> str:
        """Return a text of an argument without the secrets; those in its JSON are learned, too."""
        if self._is_learning:
            mask_json(text, lambda plain: replace_fields(plain, self._replace_argument, words=self._words))
        return self.clean_text(text)

    def _clean_field(self, name: str, value: object, *, is_call: bool) -> Any:
        is_clean = isinstance(value, str) and (name in _SEALED or (is_call and name == "arguments"))
        return value if is_clean else self(value)

    def clean_text(self, text: str) -> str:
        """Return a text without the secrets."""
        return clean_text(without_secrets(text, self.secrets, shortest=1) if self.secrets else text)


_SHOWN_VALUES = frozenset({"default", "example", "examples"})


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
    if is_listed or not holds_secret(value) or str(value).lower() in SETTING_WORDS:
        return False
    return any(is_secret_field(each) if isinstance(each, str) else is_marked_secret(each) for each in above)


def mask_leaves(value: Any) -> Any:
    """Return a secret with nothing of it left but its form, so that a schema may still accept it."""
    match value:
        case dict():
            fields = cast("Mapping[str, Any]", value)
            return {MASK if is_random(name) else name: mask_leaves(item) for name, item in fields.items()}
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
            if len(text) >= SHORTEST_STRUCK and not is_word and text.lower() not in SETTING_WORDS:
                yield text
            if text.startswith(_OPENS_JSON):
                with suppress(ValueError, RecursionError):
                    yield from list_secret_texts(loads(text), is_marked=is_marked)
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
