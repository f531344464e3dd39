"""The operations of an OpenAPI document as tools."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import anyio.to_thread
import httpx2

from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, OpenApiError, SchemaError
from toolkit.http_replies import origin_of
from toolkit.secrets import secrets_of_headers, without_credentials
from toolkit.settings import Duration, to_seconds
from toolkit.sources.openapi.auth import Auth, Secrets, signers
from toolkit.sources.openapi.client import Caller
from toolkit.sources.openapi.document import Document, Part, read_document
from toolkit.sources.openapi.operation import Endpoint, Operation, endpoint_of, operations_of
from toolkit.sources.openapi.response import Limits
from toolkit.sources.openapi.schema import Schemas
from toolkit.sources.openapi.selection import Filter, check_filter
from toolkit.sources.openapi.urls import Origin, allowed_origins, is_url
from toolkit.tools.decorators import tool_from_schema
from toolkit.tools.function_tool import FunctionTool

__all__ = ["OpenApiTool", "openapi_tools"]

_LOG = logging.getLogger("toolkit.sources.openapi")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64
_MAX_OPERATIONS = 10_000
_SAFE_TO_REPEAT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")
_SHOWN = 5

Progress: TypeAlias = Callable[[int, int], None]
"""Takes how much is done of how much."""

OpenApiTool: TypeAlias = FunctionTool[object, [dict[str, Any]], Any]
"""A tool that calls one operation."""


@asynccontextmanager
async def openapi_tools(
    source: Mapping[str, Any] | str | Path,
    *,
    filter: Filter | None = None,  # noqa: A002 - what it is
    auth: Auth | Mapping[str, Auth | str] | None = None,
    base_url: str | None = None,
    prefix: str | None = None,
    server_variables: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    allow_hosts: Collection[str] = (),
    timeout: Duration = 30.0,
    max_response_bytes: int = 65_536,
    max_file_bytes: int = 10_485_760,
    skip_broken: bool = False,
    transport: httpx2.AsyncBaseTransport | None = None,
    on_progress: Progress | None = None,
) -> AsyncGenerator[list[OpenApiTool]]:
    """Give the operations of an OpenAPI 3.0 or 3.1 document as tools that call them, for the length of the block.

    ::

        async with openapi_tools("https://petstore3.swagger.io/api/v3/openapi.json", auth=Bearer(token)) as tools:
            registry = ToolRegistry(tools).tagged("read")

    Arguments are checked against the document before anything is sent. Each tool is named after its operation's id,
    or ``{method}_{path}`` where it has none; a parameter is an argument of its own name, a body the argument ``body``.
    Where two would have one name, or a name has what providers don't take, another is made and the right one is sent.

    Tools that only read (``GET`` and ``HEAD``) have the tag ``read``, and no other tool has; besides, a tool has its
    operation's tags. Outputs of the others are never taken from a cache. The metadata of a tool says its ``method``,
    ``path`` and ``operation_id``.

    The model reads the status, the headers that tell of further pages, and the body: text and JSON as text, images,
    sounds and files as such. A status of 400 or above is an error result. Redirects are followed for reads; a server
    elsewhere is told no secret. No cookie is kept.

    Args:
        source: The document as a mapping, as JSON or YAML text, or its path or URL (``http`` or ``https``). What it
            refers to beside it is read too: from its folder, or from its server.
        filter: Which operations; None takes all. `Only` or a function of an `Operation`.
        auth: Who calls. One for every call; or by the names of the document's security schemes, where a bare string is
            the token or key and each operation takes what it asks for. It goes to hosts that you have named alone: that
            of `base_url`, that of the URL in `source`, and those of `allow_hosts`. None signs nothing.
        base_url: Instead of the document's servers. None takes an operation's own server, else that of its path,
            else the document's first.
        prefix: Put before each name, as ``{prefix}__{name}``.
        server_variables: What to put into a server's URL; what is not said takes the document's default.
        headers: Sent with each call to hosts that you have named, as for `auth`; not where a redirect leads elsewhere,
            and not to who gives tokens.
        allow_hosts: More hosts that may be told who calls, such as ``api.example.com``, or ``http://10.0.0.1:8080`` for
            one without HTTPS.
        timeout: Seconds for a call, redirects and body too.
        max_response_bytes: Longer text is cut there.
        max_file_bytes: An image, sound or file that is larger is not handed to the model.
        skip_broken: Whether an operation that the document gets wrong is left out, with a warning in the log, rather
            than refused together with all others.
        transport: What sends requests, such as an ``httpx2.AsyncHTTPTransport`` with a proxy or certificates of its
            own; None is the network, with the proxies that the environment names. Closed with the block.
        on_progress: Told how much is done of how much, while the document becomes tools, on another thread.

    Raises:
        OpenApiError: The document can't be had or can't be used; names the place and what would be right.
        ConfigurationError: A setting that can't be; or `auth` or `headers` would go to a host that only the document
            names.
    """
    seconds = to_seconds(timeout, "timeout") or 0.0
    if base_url is not None:
        _check_base_url(base_url)
    for name, size in (("max_response_bytes", max_response_bytes), ("max_file_bytes", max_file_bytes)):
        if size < 1:
            raise ConfigurationError(f"{name} must be 1 or more, not {size}")
    secrets = Secrets()
    secrets.add(*secrets_of_headers(headers))

    def prepare() -> tuple[Document, list[Endpoint]]:
        document = read_document(source, timeout=seconds)
        tell = on_progress or _tell_nobody
        chosen = _choose_operations(document, filter)
        endpoints = _endpoints(document, chosen, base_url, server_variables or {}, tell, skip_broken=skip_broken)
        return document, endpoints

    document, endpoints = await anyio.to_thread.run_sync(prepare, abandon_on_cancel=True)
    named = [url for url in (base_url, source) if isinstance(url, str) and is_url(url)]
    trusted = allowed_origins(allow_hosts) | set(map(origin_of, named))
    sign = signers(auth, document, secrets, trusted)
    if auth is not None or headers:
        _check_origins(endpoints, trusted, document.name)
    caller = Caller(
        trusted=trusted,
        sign=sign,
        secrets=secrets,
        headers=headers or {},
        timeout=seconds,
        limits=Limits(text=max_response_bytes, file=max_file_bytes),
        transport=transport,
    )
    tell = on_progress or _tell_nobody
    make = partial(_tools, document, endpoints, caller, prefix, tell, skip_broken=skip_broken)
    tools = await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
    async with caller.connected():
        yield tools


def _tell_nobody(done: int, total: int) -> None:
    """Take what nobody wants to know."""


def _choose_operations(document: Document, wanted: Filter | None) -> list[tuple[Operation, Part]]:
    """Return the operations that are wanted, each with its path item."""
    found = list(operations_of(document))
    check_filter(wanted, [operation for operation, _ in found], document.name)
    chosen = [(operation, item) for operation, item in found if wanted is None or wanted(operation)]
    if len(chosen) > _MAX_OPERATIONS:
        raise OpenApiError(
            f"{document.name}: it has {len(chosen):,} operations, and at most {_MAX_OPERATIONS:,} become tools at once "
            "(a model can oversee some dozens): choose with filter="
        )
    return chosen


def _endpoints(
    document: Document,
    chosen: list[tuple[Operation, Part]],
    base_url: str | None,
    server_variables: Mapping[str, str],
    tell: Progress,
    *,
    skip_broken: bool,
) -> list[Endpoint]:
    schemas = Schemas(is_3_0=document.is_3_0)
    broken = _Broken(skip=skip_broken)
    endpoints: list[Endpoint] = []
    for place, (operation, item) in enumerate(chosen):
        tell(place, 2 * len(chosen))  # tools are made of them next, which takes as long
        try:
            endpoints.append(
                endpoint_of(
                    document,
                    schemas,
                    operation,
                    item,
                    base_url=base_url.rstrip("/") if base_url else None,
                    server_variables=server_variables,
                )
            )
        except OpenApiError as error:
            broken.add(error)
    broken.check(len(endpoints))
    return endpoints


def _tools(
    document: Document,
    endpoints: list[Endpoint],
    caller: Caller,
    prefix: str | None,
    tell: Progress,
    *,
    skip_broken: bool,
) -> list[OpenApiTool]:
    broken = _Broken(skip=skip_broken)
    names: set[str] = set()
    tools: list[OpenApiTool] = []
    for place, endpoint in enumerate(endpoints):
        tell(len(endpoints) + place, 2 * len(endpoints))
        operation = endpoint.operation
        name = _name(f"{prefix}__{operation.id}" if prefix else operation.id, operation, names)
        try:
            tools.append(_tool(name, endpoint, caller))
        except SchemaError as error:
            subject = f"{document.name}: {operation.method} {operation.path}"
            broken.add(OpenApiError(f"{subject}: no tool can be made of it: {error.reason}"))
        else:
            names.add(name)
    broken.check(len(tools))
    return tools


def _tool(name: str, endpoint: Endpoint, caller: Caller) -> OpenApiTool:
    operation = endpoint.operation

    async def call(arguments: dict[str, Any]) -> ToolOutput:
        return await caller.call(endpoint, arguments)

    return tool_from_schema(
        name,
        endpoint.description,
        endpoint.schema,
        call,
        label=operation.summary,
        tags=_tags(operation),
        idempotent=operation.method in _SAFE_TO_REPEAT,
        cache=False,
        metadata={"method": operation.method, "path": operation.path, "operation_id": operation.id},
    )


def _tags(operation: Operation) -> frozenset[str]:
    # A document must not be able to call something a read that is none.
    return frozenset(operation.tags) - {"read"} | ({"read"} if operation.is_read else set[str]())


def _name(wanted: str, operation: Operation, taken: set[str]) -> str:
    """Return a name that providers take; one that had to be shortened, or is taken, ends in a hash."""
    name = _NOT_IN_A_NAME.sub("_", wanted).strip("_") or operation.method.lower()
    if len(name) <= _MAX_NAME and name not in taken:
        return name
    digest = hashlib.sha256(f"{wanted} {operation.method} {operation.path}".encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}_{digest}"


def _check_base_url(url: str) -> None:
    parts = urlsplit(url)
    if not is_url(url) or not parts.hostname:
        raise ConfigurationError("base_url must be an absolute URL, such as https://api.example.com/v1")
    if parts.username or parts.password:
        raise ConfigurationError("base_url must not hold a user or password: pass auth=Basic(username, password)")
    if parts.query or parts.fragment:
        raise ConfigurationError("base_url must not have a query or fragment: pass auth=ApiKey(..., location='query')")


def _check_origins(endpoints: list[Endpoint], trusted: Collection[Origin], name: str) -> None:
    """Refuse to tell who calls to a host that nobody but the document has named."""
    for endpoint in endpoints:
        if origin_of(endpoint.base_url) not in trusted:
            host = urlsplit(endpoint.base_url).netloc
            raise ConfigurationError(
                f"{name}: {endpoint.operation.method} {endpoint.operation.path} goes to "
                f"{without_credentials(endpoint.base_url)}, which only the document names, and auth= or headers= would "
                f"go there with it: pass allow_hosts=[{host!r}] if you trust it, or base_url="
            )


class _Broken:
    """Operations that can't be used: refused together, or left out."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._errors: list[OpenApiError] = []

    def add(self, error: OpenApiError) -> None:
        """Note one."""
        if self._skip:
            _LOG.warning("left out: %s", error)
        self._errors.append(error)

    def check(self, usable: int) -> None:
        """Raise for what was noted, where it is not left out."""
        if not self._errors or self._skip:
            return
        more = len(self._errors) - _SHOWN
        lines = [str(error) for error in self._errors[:_SHOWN]] + [f"and {more} more"] * (more > 0)
        if usable:
            lines.append(f"({usable} other operations are right: leave these out by filter=, or by skip_broken=True)")
        raise OpenApiError("\n".join(lines)) from self._errors[0]
