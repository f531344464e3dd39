"""OpenAPI documents and their operations: loaded from a file, a URL, text or a mapping, with references resolved.

`referencing` resolves references. A document may refer to other documents in its own folder or on its own server;
nothing else is opened. URLs are shown without their secrets.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import url2pathname

import anyio
import anyio.from_thread
import httpx2
import referencing
import yaml
from pydantic import BaseModel, ValidationError
from referencing.exceptions import NoSuchResource
from referencing.jsonschema import DRAFT202012

from toolkit.checked_yaml import YamlTooLargeError, load_yaml
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, OpenApiError
from toolkit.http_client import (
    ACCEPTED_ENCODINGS,
    ReplyTooLargeError,
    may_redirect,
    origin_of,
    protect_client,
    read_bounded,
    shared_trust,
)
from toolkit.redaction import MASK, without_credentials
from toolkit.schema.nodes import is_array, is_object


def is_url(text: str) -> bool:
    """Return True for a URL that can be fetched."""
    return text.startswith(("http://", "https://"))


Origin: TypeAlias = tuple[str, str, int | None]
"""Scheme, host and port."""


def allowed_origins(hosts: Iterable[str]) -> frozenset[Origin]:
    """Return the origins that `allow_hosts` names; an entry without a scheme means HTTPS.

    Raises:
        ConfigurationError: An entry is neither a host nor an origin.
    """
    if isinstance(hosts, str):
        raise ConfigurationError(f"allow_hosts must be several hosts, such as [{hosts!r}]")
    return frozenset(map(_read_allowed_host, hosts))


def _read_allowed_host(host: str) -> Origin:
    url = host if is_url(host) else f"https://{host}"
    try:
        parts = urlsplit(url)
        is_origin = parts.hostname and not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
        if is_origin and not re.search(r"[\s\\*]", host):
            return origin_of(url)
    except ValueError:
        pass
    shown = MASK if "@" in host else repr(host)
    raise ConfigurationError(
        f"allow_hosts names {shown}: write a host like 'api.example.com', or an origin like 'http://10.0.0.1:8080'"
    )


ModelT = TypeVar("ModelT", bound=BaseModel)

_MOST_DOCUMENT_BYTES = 200_000_000
_MOST_DOCUMENT_PARTS = 20_000_000
_MAX_REFERENCES = 50
_MAX_REDIRECTS = 10
_MOST_SECONDS_OF_WORK = 60.0  # CPU time of one thread: more than the largest published documents take
_VERSIONS = re.compile(r"3\.[01](\.|$)")


class DocumentReading:
    """The time limits and resolved references of reading one document.

    Args:
        timeout: The seconds to fetch the document and everything it refers to.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._fetched_until = time.monotonic() + timeout
        self._resolved: dict[int, tuple[object, Part]] = {}
        self.begin_work()

    def begin_work(self) -> None:
        """Start counting the CPU time of this thread; the work may continue in another one."""
        self._worked_until = time.thread_time() + _MOST_SECONDS_OF_WORK

    @property
    def seconds_to_fetch(self) -> float:
        """The seconds left for fetching; never negative."""
        return max(0.0, self._fetched_until - time.monotonic())

    def check_time(self, subject: str) -> None:
        """Check the CPU time of this thread.

        Raises:
            OpenApiError: It is more than a minute.
        """
        if time.thread_time() > self._worked_until:
            most = f"{_MOST_SECONDS_OF_WORK:g} s"
            raise OpenApiError(f"{subject}: to read the document takes more than {most}: choose with filter=")

    def find_resolved(self, value: object) -> Part | None:
        """Return the target of a piece that was resolved before; else None."""
        known = self._resolved.get(id(value))
        return None if known is None else known[1]

    def note_resolved(self, value: object, target: Part) -> None:
        """Store the target of a piece, and the piece itself, so that its id is not reused."""
        self._resolved[id(value)] = (value, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a document, with the base of its references."""

    value: Any
    resolver: Any
    subject: str
    reading: DocumentReading

    def at(self, key: str, default: Any = None) -> Part:
        """Return the piece under a key; `default` if the key is missing or this piece is not an object."""
        return self.of(self.value.get(key, default) if is_object(self.value) else default)

    def of(self, value: Any) -> Part:
        """Return a piece inside this one."""
        return Part(value=value, resolver=self.resolver, subject=self.subject, reading=self.reading)

    def about(self, subject: str) -> Part:
        """Return the same piece, with the subject of its errors."""
        return Part(value=self.value, resolver=self.resolver, subject=subject, reading=self.reading)

    def refer(self, reference: object) -> Part:
        """Return the target of a reference in this piece.

        Raises:
            OpenApiError: It can't be resolved, or points to a document that may not be opened.
        """
        if not isinstance(reference, str):
            raise OpenApiError(f"{self.subject}: a $ref must be text, not {reference!r}")
        self.reading.check_time(self.subject)
        try:
            found = self.resolver.lookup(reference)
        except Exception as error:  # on an invalid schema `referencing` may raise anything
            reason = _find_reason(error) or "nothing is there"
            raise OpenApiError(f"{self.subject}: the reference {reference!r} can't be followed: {reason}") from error
        return Part(value=found.contents, resolver=found.resolver, subject=self.subject, reading=self.reading)

    def read_as(self, model: type[ModelT], what: str) -> ModelT:
        """Return this piece, validated by a model of OpenAPI.

        Raises:
            OpenApiError: It is invalid; `what` names the piece.
        """
        try:
            return model.model_validate(self.value)
        except ValidationError as error:
            # In a union with references, errors about not being a reference do not help.
            complaints = error.errors(include_url=False, include_context=False, include_input=False)
            shown = [one for one in complaints if "Reference" not in one["loc"]] or complaints
            where = ".".join(str(step) for step in shown[0]["loc"])
            raise OpenApiError(
                f"{self.subject}: {what} is not what OpenAPI has{f', at {where}' if where else ''}: {shown[0]['msg']}"
            ) from error

    def resolved(self) -> Part:
        """Return this piece, or its target if it is only a reference.

        Raises:
            OpenApiError: A reference can't be resolved, or refers to itself.
        """
        part, passed = self, list[object]()
        while is_object(part.value) and "$ref" in part.value:
            known = self.reading.find_resolved(part.value)
            if known is None and len(passed) >= _MAX_REFERENCES:
                raise OpenApiError(f"{self.subject}: the reference {self.value['$ref']!r} leads round in a circle")
            passed.append(part.value)
            part = known.about(self.subject) if known is not None else part.refer(part.value["$ref"])
        for value in passed:
            self.reading.note_resolved(value, part)
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document.

    Args:
        root: Its root.
        name: Its name in errors: a path, a URL without credentials, or a word.
        version: Its declared version, such as ``3.1.0``.
        url: The URL it was loaded from, for relative server URLs; empty if there is none.
    """

    root: Part
    name: str
    version: str
    url: str

    @property
    def is_3_0(self) -> bool:
        """True if schemas use OpenAPI 3.0's own dialect rather than JSON Schema."""
        return self.version.startswith("3.0")


def read_document(source: Mapping[str, Any] | str | Path, *, timeout: float) -> Document:
    """Read a document; call it in a thread of `anyio.to_thread`, since the event loop does the fetching.

    Args:
        source: The document as a mapping, or as JSON or YAML text; or its path or URL.
        timeout: The seconds to fetch it and everything it refers to.

    Raises:
        OpenApiError: It can't be read, is not an OpenAPI document, or is of an unsupported version.
    """
    reading = DocumentReading(timeout)
    if isinstance(source, Mapping):
        name, uri, contents = "the document", "", _copy_mapping(source)
    elif isinstance(source, str) and is_url(source):
        name, uri = without_credentials(source), urldefrag(source)[0]
        text, uri = _fetch_text(uri, reading)
        contents = _parse_text(text, name)
    elif isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        name, uri, contents = "the text", "", _parse_text(source, "the text")
    else:
        path = Path(source)
        name, uri = str(path), path.resolve().as_uri()
        contents = _parse_text(_read_text_file(path), name)
    return _check_document(contents, name=name, uri=uri, reading=reading)


def _check_document(contents: Any, *, name: str, uri: str, reading: DocumentReading) -> Document:
    if not is_object(contents):
        raise OpenApiError(f"{name}: this is no OpenAPI document: it must be an object, not {_name_kind(contents)}")
    version = contents.get("openapi")
    if "swagger" in contents:
        raise OpenApiError(
            f"{name}: this is Swagger {contents['swagger']}, and OpenAPI 3.0 and 3.1 are read here: convert it first, "
            "with swagger2openapi from npm or at https://converter.swagger.io"
        )
    if not isinstance(version, str) or not _VERSIONS.match(version):
        problem = f"says openapi: {version!r}" if "openapi" in contents else "has no field openapi"
        raise OpenApiError(f"{name}: it {problem}; a document of OpenAPI 3.0 or 3.1 says so, such as openapi: 3.1.0")
    paths = contents.get("paths", {})
    if not is_object(paths):
        raise OpenApiError(f"{name}: its paths must be an object, not {_name_kind(paths)}")
    resource = _OPENAPI.create_resource(contents)
    registry: Any = cast("Any", referencing.Registry)(retrieve=_make_retriever(uri, reading)).with_resource(
        uri, resource
    )
    root = Part(value=contents, resolver=registry.resolver(base_uri=uri), subject=name, reading=reading)
    return Document(root=root, name=name, version=version, url=uri if is_url(uri) else "")


def _list_subresources(contents: Any) -> Iterable[Any]:
    # Only schemas are found by their $id or $anchor; elsewhere these keys mean nothing.
    if is_object(contents) and "openapi" in contents:
        components = contents.get("components")
        schemas = components.get("schemas") if is_object(components) else None
        return filter(is_object, schemas.values()) if is_object(schemas) else ()
    return DRAFT202012.subresources_of(contents)


def _read_id(contents: Any) -> str | None:
    found = contents.get("$id") if is_object(contents) else None
    return found if isinstance(found, str) else None


def _enter_subresource(segments: Any, resolver: Any, subresource: Any) -> Any:  # noqa: ARG001
    return resolver.in_subresource(subresource)


def _list_anchors(specification: Any, contents: Any) -> Any:  # noqa: ARG001
    return DRAFT202012.anchors_in(contents)


_OPENAPI: Any = cast("Any", referencing.Specification)(
    name="OpenAPI",
    id_of=_read_id,
    subresources_of=_list_subresources,
    maybe_in_subresource=_enter_subresource,
    anchors_in=_list_anchors,
)


def _make_retriever(base: str, reading: DocumentReading) -> Callable[[str], Any]:
    """Return a function that opens referenced documents where that is allowed."""
    opened: dict[str, Any] = {}

    def retrieve(uri: str) -> Any:
        if uri not in opened:
            opened[uri] = _OPENAPI.create_resource(_open_document(uri, base, reading))
        return opened[uri]

    return retrieve


def _open_document(uri: str, base: str, reading: DocumentReading) -> Any:
    shown = without_credentials(uri)
    if base.startswith("file:") and uri.startswith("file:"):
        path, folder = _read_file_path(uri).resolve(), _read_file_path(base).parent
        if not path.is_relative_to(folder):
            raise OpenApiError(f"{path} is not in the document's folder, {folder}: put what it means there")
        return _parse_text(_read_text_file(path), str(path))
    if is_url(base) and is_url(uri) and origin_of(base) == origin_of(uri):
        text, _ = _fetch_text(uri, reading, origin=origin_of(base))
        return _parse_text(text, shown)
    if not base:
        raise OpenApiError("the document was given as text, so it can refer to itself alone: pass its path or URL")
    raise OpenApiError(f"{shown or uri} is elsewhere, and is never fetched: put what it means into the document")


def _read_file_path(uri: str) -> Path:
    return Path(url2pathname(unquote(urlsplit(uri).path)))


def _read_text_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OpenApiError(f"{path}: this is no OpenAPI document: it is not text in UTF-8") from error
    except OSError as error:
        raise OpenApiError(f"{path}: it can't be read: {error.strerror or error}") from error


def _fetch_text(url: str, reading: DocumentReading, *, origin: Origin | None = None) -> tuple[str, str]:
    """Return the text at a URL, and the URL after redirects.

    Args:
        url: The URL.
        reading: Has the seconds left for fetching.
        origin: The only origin that redirects may lead to; None allows any.
    """
    content, found = anyio.from_thread.run(partial(_fetch_in_time, url, reading, origin))
    return content.decode("utf-8-sig", "replace"), found


async def _fetch_in_time(url: str, reading: DocumentReading, origin: Origin | None) -> tuple[bytes, str]:
    name = without_credentials(url)
    try:
        # One deadline for the whole: a server that trickles bytes never exceeds a read timeout.
        with anyio.fail_after(reading.seconds_to_fetch):
            async with httpx2.AsyncClient(timeout=reading.timeout, verify=shared_trust()) as client:
                protect_client(client)
                return await _fetch_content(client, url, name, origin)
    except TimeoutError as error:
        raise OpenApiError(f"{name}: it can't be fetched within {reading.timeout:g} s: pass timeout=") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OpenApiError(f"{name}: it can't be fetched: {type(error).__name__}") from error
    except ReplyTooLargeError as error:
        raise OpenApiError(f"{name}: the document is larger than {_MOST_DOCUMENT_BYTES:,} bytes") from error
    except ValueError as error:
        raise OpenApiError(f"{name}: it can't be fetched: {error}") from error


async def _fetch_content(client: httpx2.AsyncClient, url: str, name: str, origin: Origin | None) -> tuple[bytes, str]:
    for _ in range(_MAX_REDIRECTS):
        request = client.build_request("GET", url, headers={"accept-encoding": ACCEPTED_ENCODINGS})
        response = await client.send(request, stream=True)
        following = response.next_request
        if following is None and not response.is_error:
            return await read_bounded(response, most_bytes=_MOST_DOCUMENT_BYTES), url
        await response.aclose()
        if following is None:
            raise OpenApiError(
                f"{name}: it can't be fetched: {response.status_code} {response.reason_phrase}; check the URL, or "
                "fetch the document yourself and pass its text"
            )
        url = str(following.url)
        if not may_redirect(request.url, following.url) or (origin is not None and origin_of(url) != origin):
            raise OpenApiError(f"{name}: it leads to {without_credentials(url)}, which is never fetched")
    raise OpenApiError(f"{name}: it can't be fetched: too many redirects")


def _copy_mapping(source: Mapping[str, Any]) -> Any:
    try:
        return _to_plain_keys(source)
    except RecursionError as error:
        raise OpenApiError("the document: it is nested too deeply") from error


def _parse_text(text: str, name: str) -> Any:
    try:
        if text.lstrip()[:1] in ("{", "["):
            return json.loads(text)
        return _to_plain_keys(load_yaml(text, _OpenApiLoader, most_parts=_MOST_DOCUMENT_PARTS))
    except RecursionError as error:
        raise OpenApiError(f"{name}: it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise OpenApiError(
            f"{name}: this is no JSON, at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise OpenApiError(f"{name}: this is neither JSON nor YAML{where}: {error.problem or error.context}") from error
    except YamlTooLargeError as error:
        raise OpenApiError(f"{name}: it can't be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise OpenApiError(f"{name}: this is neither JSON nor YAML: {error}") from error


class _OpenApiLoader(yaml.CSafeLoader):
    """Reads YAML 1.2's types, as OpenAPI requires: ``no`` and ``on`` are strings, and so is a date."""


_OpenApiLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
cast("Any", _OpenApiLoader).add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"
)


def _to_plain_keys(value: Any, known: dict[int, Any] | None = None) -> Any:
    """Return a value with text keys (YAML reads status codes as numbers) and dicts for mappings.

    Objects shared by YAML aliases stay shared: copies could exhaust memory.
    """
    if not is_object(value) and not is_array(value):
        return value
    known = {} if known is None else known
    if id(value) not in known:
        if is_object(value):
            known[id(value)] = {_to_key(key): _to_plain_keys(item, known) for key, item in value.items()}
        else:
            known[id(value)] = [_to_plain_keys(item, known) for item in value]
    return known[id(value)]


def _to_key(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)


def _name_kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return type(value).__name__


def _find_reason(error: BaseException) -> str:
    """Return the text of our own error if it caused an error of `referencing`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OpenApiError):
            return str(cause)
        cause = None if isinstance(cause, NoSuchResource) else cause.__cause__
    return ""


_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9]+")

ParameterPlace: TypeAlias = Literal["path", "query", "header", "cookie"]
BodyKind: TypeAlias = Literal["json", "form", "multipart", "text", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as a filter sees it.

    Args:
        id: Its ``operationId``, or else ``{method}_{path}``.
        method: The HTTP method, such as ``GET``.
        path: The path in the document, such as ``/pets/{id}``.
        tags: The tags of the operation in the document.
        summary: One line; may be empty.
        is_deprecated: True if the document marks it as deprecated.
    """

    id: str
    method: str
    path: str
    tags: tuple[str, ...] = ()
    summary: str = ""
    is_deprecated: bool = False

    @property
    def is_read(self) -> bool:
        """True if its HTTP method is safe, so that it changes nothing."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEncoding:
    """The encoding of a value in a URL, a header or a form.

    Args:
        style: The OpenAPI style.
        explode: True to write each list item or object property separately.
        allow_reserved: True to leave the reserved characters of URLs unescaped.
        media_type: The media type in which the value is serialized instead of by style; None if by style.
    """

    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WireParameter:
    """A parameter: the model's argument and its encoding."""

    argument: str
    name: str
    place: ParameterPlace
    encoding: ValueEncoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body: the model's argument and its encoding.

    Args:
        argument: The name of the argument, usually ``body``.
        media_type: The media type of the body.
        kind: The kind of serialization.
        encodings: The encodings of a form's properties, if the document has any.
        files: The properties of a form that are files.
    """

    argument: str
    media_type: str
    kind: BodyKind
    encodings: Mapping[str, ValueEncoding] = field(default_factory=dict[str, ValueEncoding])
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything needed to call an operation.

    Args:
        operation: The operation of the document.
        description: The description that a model sees.
        base_url: The base URL without a trailing slash.
        parameters: The parameters in the order of the document.
        body: The body; None if it takes none.
        security: Alternative sets of schemes, all of one set being required; empty if none is needed.
        schema: The JSON Schema of the arguments.
    """

    operation: Operation
    description: str
    base_url: str
    parameters: tuple[WireParameter, ...]
    body: Body | None
    security: tuple[frozenset[str], ...]
    schema: Mapping[str, Any]


def list_operations(document: Document) -> Iterator[tuple[Operation, Part]]:
    """Yield the operations of a document in its order, each with its path item.

    Raises:
        OpenApiError: A path is not an object, or its reference can't be resolved.
    """
    paths = document.root.at("paths", {})
    for path, value in paths.value.items():
        if path.startswith("x-"):
            continue
        item = paths.of(value).about(f"{document.name}: {path}").resolved()
        if not is_object(item.value):
            raise OpenApiError(f"{item.subject}: a path must be an object, not {item.value!r:.60}")
        for method in _METHODS:
            found = item.value.get(method)
            if found is None:
                continue
            if not is_object(found):
                raise OpenApiError(f"{item.subject}: its {method} must be an object, not {found!r:.60}")
            tags = found.get("tags")
            name = found.get("operationId")
            made = _NOT_IN_AN_ID.sub("_", f"{method}_{path}").strip("_")
            yield (
                Operation(
                    id=name if isinstance(name, str) and name else made,
                    method=method.upper(),
                    path=path,
                    tags=tuple(map(str, tags)) if is_array(tags) else (),
                    summary=str(found.get("summary") or ""),
                    is_deprecated=found.get("deprecated") is True,
                ),
                item,
            )
