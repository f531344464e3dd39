"""Makes tools of the operations of an OpenAPI document: selection, options and names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import anyio.to_thread
import httpx2
from typing_extensions import TypedDict, Unpack

from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, OpenApiError, SchemaError
from toolkit.foreign_text import escape_in_name
from toolkit.http_client import check_headers, origin_of, split_url
from toolkit.logs import get_logger
from toolkit.redaction import secrets_in_headers, without_credentials
from toolkit.schema.nodes import Nodes
from toolkit.settings import PositiveInt, check_fields
from toolkit.sources import ServerLimits
from toolkit.sources.openapi.auth import Auth, Secrets, list_own_parameters, make_signers
from toolkit.sources.openapi.client import OperationCaller, ResponseLimits
from toolkit.sources.openapi.document import (
    Document,
    Endpoint,
    Operation,
    Origin,
    allowed_origins,
    is_url,
    list_operations,
    read_document,
)
from toolkit.sources.openapi.endpoints import EndpointReader
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tool_names import hash_name, is_legal_name, replace_illegal
from toolkit.tools.decorators import tool_from_schema
from toolkit.tools.function_tool import FunctionTool

Progress: TypeAlias = Callable[[int, int], None]
"""Receives the number of finished steps and the total."""


class OpenApiKeywords(TypedDict, total=False):
    """The keywords of `openapi_tools`; `OpenApiOptions` documents them."""

    filter: Filter | None
    auth: Auth | Mapping[str, Auth | str] | None
    base_url: str | None
    prefix: str | None
    server_variables: Mapping[str, str]
    headers: Mapping[str, str]
    allow_hosts: Collection[str]
    limits: ServerLimits
    max_response_bytes: int
    max_file_bytes: int
    skip_broken: bool
    transport: httpx2.AsyncBaseTransport | None
    on_progress: Progress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOptions:
    """The selection, credentials and limits of `openapi_tools`.

    Args:
        filter: The operations to use: `Only`, or a function of an `Operation`. None uses all.
        auth: One credential for every call, or a mapping from the document's security schemes, where a bare string is
            the token or key and each operation uses the scheme that it requires. Credentials are sent only to hosts
            that you have named: that of `base_url`, that of the URL in `source`, and `allow_hosts`. None signs
            nothing.
        base_url: The base URL of calls. None uses the operation's own server, or else its path's, or else the
            document's first.
        prefix: A prefix of each name, as ``{prefix}__{name}``.
        server_variables: The values of variables in a server's URL; the document's defaults replace missing ones.
        headers: Headers sent with each call to the hosts that may receive credentials; not after a redirect to another
            host, and not to token servers.
        allow_hosts: More hosts that may receive credentials, such as ``api.example.com``, or ``http://10.0.0.1:8080``
            without HTTPS.
        limits: The limits of calls and outputs. The timeout includes redirects and the body, and applies also to
            fetching the document with everything it refers to.
        max_response_bytes: Longer text is truncated.
        max_file_bytes: Larger images, sounds and files are not passed to the model.
        skip_broken: True to leave out invalid operations, with a warning in the log; by default they are an error.
        transport: The transport of requests, such as an ``httpx2.AsyncHTTPTransport`` with its own proxy or
            certificates; closed with the block. None is the network, with the proxies of the environment.
        on_progress: Called with the finished and the total number of steps while the document is read, on another
            thread.

    Raises:
        ConfigurationError: A setting is invalid.
    """

    filter: Filter | None = None
    auth: Auth | Mapping[str, Auth | str] | None = field(default=None, repr=False)
    base_url: str | None = None
    prefix: str | None = None
    server_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow_hosts: Collection[str] = ()
    limits: ServerLimits = field(default_factory=ServerLimits)
    max_response_bytes: PositiveInt = 65_536
    max_file_bytes: PositiveInt = 10_485_760
    skip_broken: bool = False
    transport: httpx2.AsyncBaseTransport | None = None
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_headers(self.headers)
        if self.base_url is not None:
            _check_base_url(self.base_url)

    def report_progress(self, done: int, total: int) -> None:
        """Call `on_progress`, if it is set."""
        if self.on_progress is not None:
            self.on_progress(done, total)


def _check_base_url(url: str) -> None:
    parts = split_url(url, "base_url")
    if parts.username or parts.password:
        raise ConfigurationError("base_url must not hold a user or password: pass auth=Basic(username, password)")
    if parts.query or parts.fragment:
        raise ConfigurationError("base_url must not have a query or fragment: pass auth=ApiKey(..., location='query')")


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """Selects operations that meet all given conditions; each is met by any of its values.

    Args:
        operations: Operation ids, as in the document.
        tags: Tags, as in the document.
        paths: Path prefixes, such as ``/pets``, which selects that path and those below it.
        methods: HTTP methods, such as ``GET``.
    """

    operations: Collection[str] | None = None
    tags: Collection[str] | None = None
    paths: Collection[str] | None = None
    methods: Collection[str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, operation: Operation) -> bool:
        """Return True if an operation is selected."""
        return (
            (self.operations is None or operation.id in self.operations)
            and (self.tags is None or not set(self.tags).isdisjoint(operation.tags))
            and (self.paths is None or any(_is_path_under(operation.path, path) for path in self.paths))
            and (self.methods is None or operation.method in {method.upper() for method in self.methods})
        )


Filter: TypeAlias = Callable[[Operation], bool]
"""`Only`, or any function of an `Operation`."""


def check_filter(wanted: Filter | None, operations: Sequence[Operation], document: str) -> None:
    """Refuse an `Only` with a name that the document does not have, which must be a typo.

    Raises:
        OpenApiError: A name does not exist; the message suggests similar ones.
    """
    if not isinstance(wanted, Only):
        return
    ids = [operation.id for operation in operations]
    tags = list(dict.fromkeys(tag for operation in operations for tag in operation.tags))
    _check_names(wanted.operations, ids, f"{document}: it has no operation")
    _check_names(wanted.tags, tags, f"{document}: no operation of it has the tag")
    _check_names(
        [method.upper() for method in wanted.methods or ()],
        list(dict.fromkeys(operation.method for operation in operations)),
        f"{document}: no operation of it has the method",
    )
    for path in wanted.paths or ():
        if not any(_is_path_under(operation.path, path) for operation in operations):
            near = find_similar(path, [operation.path for operation in operations])
            raise OpenApiError(f"{document}: no path of it begins with '{path}'{_suggest_names(near, ())}")


def _check_names(wanted: Collection[str] | None, there: Sequence[str], what: str) -> None:
    for name in wanted or ():
        if name not in there:
            raise OpenApiError(f"{what} '{name}'{_suggest_names(find_similar(name, there), there)}")


def _suggest_names(near: Sequence[str], there: Sequence[str]) -> str:
    if near:
        return f"; {ask_whether_meant(near)}"
    return f"; there are {_join_quoted(there[:10])}" if there else ""


def _join_quoted(names: Iterable[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def _is_path_under(path: str, prefix: str) -> bool:
    stem = prefix.rstrip("/")
    return path in (prefix, stem) or path.startswith(f"{stem}/")


_logger = get_logger("toolkit.sources.openapi")
_MAX_OPERATIONS = 10_000
_SAFE_TO_REPEAT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")
_MOST_ERRORS = 5

OpenApiTool: TypeAlias = FunctionTool[object, [dict[str, Any]], Any]
"""A tool that calls one operation."""


@asynccontextmanager
async def openapi_tools(
    source: Mapping[str, Any] | str | Path, **options: Unpack[OpenApiKeywords]
) -> AsyncGenerator[list[OpenApiTool]]:
    """Yield the operations of an OpenAPI 3.0 or 3.1 document as tools that call them, for the duration of the block.

    ::

        async with openapi_tools("https://petstore3.swagger.io/api/v3/openapi.json", auth=Bearer(token)) as tools:
            registry = ToolRegistry(tools).tagged("read")

    Arguments are validated against the document before a request is sent. Each tool is named after its operation's id,
    or else ``{method}_{path}``; each parameter is an argument of the same name, and the body is the argument ``body``.
    Names that collide, or that providers do not accept, are replaced; the request carries the original ones.

    Tools that only read (``GET`` and ``HEAD``), and no others, have the tag ``read``, besides the tags of their
    operation. Outputs of the others are never cached. The metadata of a tool has its ``method``, ``path`` and
    ``operation_id``.

    The model reads the status, the pagination headers and the body: text and JSON as text; images, sounds and files as
    blocks. A status of 400 or above is an error result. Redirects are followed for reads, without credentials on
    another host. Cookies are not stored.

    Args:
        source: The document as a mapping, as JSON or YAML text, or its path or URL (``http`` or ``https``). Documents
            that it refers to are read from its own folder or server.
        options: The operations, the credentials and the limits; see `OpenApiOptions`.

    Raises:
        OpenApiError: The document can't be read or is invalid; the message names the place and the remedy.
        ConfigurationError: A setting is invalid; or `auth` or `headers` would be sent to a host that only the document
            names.
    """
    chosen = OpenApiOptions(**cast("Any", options))
    document, endpoints = await anyio.to_thread.run_sync(_read_endpoints, source, chosen, abandon_on_cancel=True)
    # In a thread too: a security scheme may stand in another document.
    prepare = partial(_make_caller, source, document, endpoints, chosen)
    caller = await anyio.to_thread.run_sync(prepare, abandon_on_cancel=True)
    make = partial(_make_tools, document, endpoints, caller, chosen)
    tools = await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
    async with caller.connected():
        yield tools


def _make_caller(
    source: object, document: Document, endpoints: list[Endpoint], options: OpenApiOptions
) -> OperationCaller:
    if isinstance(source, str) and is_url(source):
        split_url(source, "the URL of the document")
    named = [url for url in (options.base_url, source) if isinstance(url, str) and is_url(url)]
    trusted = allowed_origins(options.allow_hosts) | set(map(origin_of, named))
    sign = make_signers(options.auth, document, trusted)
    if options.auth is not None or options.headers:
        _check_origins(endpoints, trusted, document.name)
    return OperationCaller(
        trusted=trusted,
        sign=sign,
        secrets=Secrets(secrets_in_headers(options.headers)),
        headers=options.headers,
        timeout=options.limits.timeout,
        limits=ResponseLimits(text=options.max_response_bytes, file=options.max_file_bytes),
        transport=options.transport,
    )


def _read_endpoints(source: Mapping[str, Any] | str | Path, options: OpenApiOptions) -> tuple[Document, list[Endpoint]]:
    document = read_document(source, timeout=options.limits.timeout)
    found = list(list_operations(document))
    wanted = options.filter
    check_filter(wanted, [operation for operation, _ in found], document.name)
    chosen = [(operation, item) for operation, item in found if wanted is None or wanted(operation)]
    if len(chosen) > _MAX_OPERATIONS:
        raise OpenApiError(
            f"{document.name}: it has {len(chosen):,} operations, and at most {_MAX_OPERATIONS:,} become tools at once "
            "(a model can oversee some dozens): choose with filter="
        )
    reader = EndpointReader(
        document,
        base_url=options.base_url,
        server_variables=options.server_variables,
        own=list_own_parameters(options.auth, options.headers, document),
    )
    broken = _BrokenOperations(skip=options.skip_broken)
    endpoints: list[Endpoint] = []
    for place, (operation, item) in enumerate(chosen):
        options.report_progress(place, 2 * len(chosen))  # making the tools afterwards takes as long
        try:
            endpoints.append(reader.read(operation, item))
        except OpenApiError as error:
            broken.add(error)
    broken.check(len(endpoints))
    if reader.left_out:
        warning = "%s: no parameters are made of headers that belong to HTTP, nor of what auth= and headers= send: %s"
        _logger.warning(warning, document.name, ", ".join(map(escape_in_name, list(reader.left_out)[:_MOST_ERRORS])))
    return document, endpoints


def _make_tools(
    document: Document, endpoints: list[Endpoint], caller: OperationCaller, options: OpenApiOptions
) -> list[OpenApiTool]:
    prefix = options.prefix
    broken = _BrokenOperations(skip=options.skip_broken)
    names: set[str] = set()
    tools: list[OpenApiTool] = []
    counter = options.limits.make_counter()
    reading = document.root.reading
    reading.begin_work()
    for place, endpoint in enumerate(endpoints):
        reading.check_time(document.name)
        options.report_progress(len(endpoints) + place, 2 * len(endpoints))
        operation = endpoint.operation
        name = _choose_tool_name(f"{prefix}__{operation.id}" if prefix else operation.id, operation, names)
        try:
            tool = _make_operation_tool(name, endpoint, caller, options.limits)
            tool.counter = counter or tool.counter
            tools.append(tool)
        except SchemaError as error:
            subject = f"{document.name}: {operation.method} {operation.path}"
            broken.add(OpenApiError(f"{subject}: no tool can be made of it: {error.reason}"))
        else:
            names.add(name)
    broken.check(len(tools))
    return tools


def _make_operation_tool(name: str, endpoint: Endpoint, caller: OperationCaller, limits: ServerLimits) -> OpenApiTool:
    operation, nodes = endpoint.operation, Nodes(endpoint.schema)

    async def call(arguments: dict[str, Any]) -> ToolOutput:
        return limits.check_output(await caller.call(endpoint, arguments, nodes))

    return tool_from_schema(
        name,
        endpoint.description,
        endpoint.schema,
        call,
        fills_defaults=False,
        label=operation.summary,
        # A document must not be able to declare a write as a read.
        tags=frozenset(operation.tags) - {"read"} | ({"read"} if operation.is_read else set[str]()),
        idempotent=operation.method in _SAFE_TO_REPEAT,
        cache=False,
        max_usage_count=limits.calls,
        trust="untrusted",
        effects=() if operation.is_read else ("write", "send"),
        metadata={"method": operation.method, "path": operation.path, "operation_id": operation.id},
    )


def _choose_tool_name(wanted: str, operation: Operation, taken: set[str]) -> str:
    """Return a name that providers accept; one that had to be shortened or was taken ends in a hash."""
    name = replace_illegal(wanted) or operation.method.lower()
    if is_legal_name(name) and name not in taken:
        return name
    return hash_name(name, f"{wanted} {operation.method} {operation.path}")


def _check_origins(endpoints: list[Endpoint], trusted: Collection[Origin], name: str) -> None:
    """Refuse to send credentials to a host that only the document has named."""
    for endpoint in endpoints:
        if origin_of(endpoint.base_url) not in trusted:
            url = without_credentials(endpoint.base_url)
            parts = urlsplit(url)
            host = parts.netloc if parts.scheme == "https" else f"{parts.scheme}://{parts.netloc}"
            raise ConfigurationError(
                f"{name}: {endpoint.operation.method} {endpoint.operation.path} goes to {url}, which only the document "
                f"names, and auth= or headers= would go there with it: pass allow_hosts=[{host!r}] if you trust it, or "
                "base_url="
            )


class _BrokenOperations:
    """Collects invalid operations, to refuse them together or to leave them out."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._errors: list[OpenApiError] = []

    def add(self, error: OpenApiError) -> None:
        """Record an invalid operation."""
        if self._skip:
            _logger.warning("left out: %s", error)
        self._errors.append(error)

    def check(self, usable: int) -> None:
        """Raise one error for all recorded operations, unless they are skipped."""
        if not self._errors or self._skip:
            return
        more = len(self._errors) - _MOST_ERRORS
        lines = [str(error) for error in self._errors[:_MOST_ERRORS]] + [f"and {more} more"] * (more > 0)
        if usable:
            lines.append(f"({usable} other operations are right: leave these out by filter=, or by skip_broken=True)")
        raise OpenApiError("\n".join(lines)) from self._errors[0]
