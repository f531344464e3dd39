"""The operations of an OpenAPI document as tools."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import anyio.to_thread
from typing_extensions import Unpack

from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, OpenApiError, SchemaError
from toolkit.http_replies import origin_of
from toolkit.secrets import secrets_of_headers, without_credentials
from toolkit.sources.openapi.auth import Secrets, make_signers
from toolkit.sources.openapi.client import OperationCaller
from toolkit.sources.openapi.document import Document, read_document
from toolkit.sources.openapi.endpoints import EndpointReader
from toolkit.sources.openapi.operation import Endpoint, Operation, list_operations
from toolkit.sources.openapi.options import OpenApiKeywords, OpenApiOptions
from toolkit.sources.openapi.response import ResponseLimits
from toolkit.sources.openapi.selection import check_filter
from toolkit.sources.openapi.urls import Origin, allowed_origins, is_url
from toolkit.tool_names import hash_name, is_legal_name, replace_illegal
from toolkit.tools.decorators import tool_from_schema
from toolkit.tools.function_tool import FunctionTool

__all__ = ["OpenApiTool", "openapi_tools"]

_logger = logging.getLogger("toolkit.sources.openapi")
_MAX_OPERATIONS = 10_000
_SAFE_TO_REPEAT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")
_MOST_ERRORS = 5

OpenApiTool: TypeAlias = FunctionTool[object, [dict[str, Any]], Any]
"""A tool that calls one operation."""


@asynccontextmanager
async def openapi_tools(
    source: Mapping[str, Any] | str | Path, **options: Unpack[OpenApiKeywords]
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
        options: The operations, the credentials and the limits; see `OpenApiOptions`.

    Raises:
        OpenApiError: The document can't be had or can't be used; names the place and what would be right.
        ConfigurationError: A setting that can't be; or `auth` or `headers` would go to a host that only the document
            names.
    """
    chosen = OpenApiOptions(**cast("Any", options))
    document, endpoints = await anyio.to_thread.run_sync(_read_endpoints, source, chosen, abandon_on_cancel=True)
    caller = _make_caller(source, document, endpoints, chosen)
    make = partial(_make_tools, document, endpoints, caller, chosen)
    tools = await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
    async with caller.connected():
        yield tools


def _make_caller(
    source: object, document: Document, endpoints: list[Endpoint], options: OpenApiOptions
) -> OperationCaller:
    secrets = Secrets()
    secrets.add(*secrets_of_headers(options.headers))
    named = [url for url in (options.base_url, source) if isinstance(url, str) and is_url(url)]
    trusted = allowed_origins(options.allow_hosts) | set(map(origin_of, named))
    sign = make_signers(options.auth, document, secrets, trusted)
    if options.auth is not None or options.headers:
        _check_origins(endpoints, trusted, document.name)
    return OperationCaller(
        trusted=trusted,
        sign=sign,
        secrets=secrets,
        headers=options.headers,
        timeout=options.timeout,
        limits=ResponseLimits(text=options.max_response_bytes, file=options.max_file_bytes),
        transport=options.transport,
    )


def _read_endpoints(source: Mapping[str, Any] | str | Path, options: OpenApiOptions) -> tuple[Document, list[Endpoint]]:
    document = read_document(source, timeout=options.timeout)
    found = list(list_operations(document))
    wanted = options.filter
    check_filter(wanted, [operation for operation, _ in found], document.name)
    chosen = [(operation, item) for operation, item in found if wanted is None or wanted(operation)]
    if len(chosen) > _MAX_OPERATIONS:
        raise OpenApiError(
            f"{document.name}: it has {len(chosen):,} operations, and at most {_MAX_OPERATIONS:,} become tools at once "
            "(a model can oversee some dozens): choose with filter="
        )
    reader = EndpointReader(document, base_url=options.base_url, server_variables=options.server_variables)
    broken = _BrokenOperations(skip=options.skip_broken)
    endpoints: list[Endpoint] = []
    for place, (operation, item) in enumerate(chosen):
        options.report_progress(place, 2 * len(chosen))  # tools are made of them next, which takes as long
        try:
            endpoints.append(reader.read(operation, item))
        except OpenApiError as error:
            broken.add(error)
    broken.check(len(endpoints))
    return document, endpoints


def _make_tools(
    document: Document, endpoints: list[Endpoint], caller: OperationCaller, options: OpenApiOptions
) -> list[OpenApiTool]:
    prefix = options.prefix
    broken = _BrokenOperations(skip=options.skip_broken)
    names: set[str] = set()
    tools: list[OpenApiTool] = []
    for place, endpoint in enumerate(endpoints):
        options.report_progress(len(endpoints) + place, 2 * len(endpoints))
        operation = endpoint.operation
        name = _choose_tool_name(f"{prefix}__{operation.id}" if prefix else operation.id, operation, names)
        try:
            tools.append(_make_operation_tool(name, endpoint, caller))
        except SchemaError as error:
            subject = f"{document.name}: {operation.method} {operation.path}"
            broken.add(OpenApiError(f"{subject}: no tool can be made of it: {error.reason}"))
        else:
            names.add(name)
    broken.check(len(tools))
    return tools


def _make_operation_tool(name: str, endpoint: Endpoint, caller: OperationCaller) -> OpenApiTool:
    operation = endpoint.operation

    async def call(arguments: dict[str, Any]) -> ToolOutput:
        return await caller.call(endpoint, arguments)

    return tool_from_schema(
        name,
        endpoint.description,
        endpoint.schema,
        call,
        label=operation.summary,
        tags=_choose_tags(operation),
        idempotent=operation.method in _SAFE_TO_REPEAT,
        cache=False,
        metadata={"method": operation.method, "path": operation.path, "operation_id": operation.id},
    )


def _choose_tags(operation: Operation) -> frozenset[str]:
    # A document must not be able to call something a read that is none.
    return frozenset(operation.tags) - {"read"} | ({"read"} if operation.is_read else set[str]())


def _choose_tool_name(wanted: str, operation: Operation, taken: set[str]) -> str:
    """Return a name that providers take; one that had to be shortened, or is taken, ends in a hash."""
    name = replace_illegal(wanted) or operation.method.lower()
    if is_legal_name(name) and name not in taken:
        return name
    return hash_name(name, f"{wanted} {operation.method} {operation.path}")


def _check_origins(endpoints: list[Endpoint], trusted: Collection[Origin], name: str) -> None:
    """Refuse to tell who calls to a host that nobody but the document has named."""
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
    """Operations that can't be used: refused together, or left out."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._errors: list[OpenApiError] = []

    def add(self, error: OpenApiError) -> None:
        """Note one."""
        if self._skip:
            _logger.warning("left out: %s", error)
        self._errors.append(error)

    def check(self, usable: int) -> None:
        """Raise for what was noted, where it is not left out."""
        if not self._errors or self._skip:
            return
        more = len(self._errors) - _MOST_ERRORS
        lines = [str(error) for error in self._errors[:_MOST_ERRORS]] + [f"and {more} more"] * (more > 0)
        if usable:
            lines.append(f"({usable} other operations are right: leave these out by filter=, or by skip_broken=True)")
        raise OpenApiError("\n".join(lines)) from self._errors[0]
