"""The base URL of an operation, by the servers that a document names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from openapi_pydantic.v3 import v3_0, v3_1

from toolkit.errors import OpenApiError
from toolkit.schema.nodes import is_array
from toolkit.sources.openapi.document import Document, Part

__all__ = ["find_base_url", "find_names_in_braces"]

_IN_BRACES = re.compile(r"\{([^{}]+)\}")


def find_names_in_braces(text: str) -> list[str]:
    """Return the names that a path or URL leaves open, in its order."""
    return cast("list[str]", _IN_BRACES.findall(text))


def find_base_url(document: Document, part: Part, item: Part, variables: Mapping[str, str], models: Any) -> str:
    """Return the URL of the first server that is named nearest to an operation, without a slash at the end.

    Raises:
        OpenApiError: It is not absolute, holds a password, or needs a variable that is not set.
    """
    for owner in (part, item, document.root):
        servers: Any = owner.at("servers").value
        if is_array(servers) and servers:
            return _read_server_url(owner.of(servers[0]), document, variables, models)
    return _read_server_url(part.of({"url": "/"}), document, variables, models)


def _read_server_url(part: Part, document: Document, variables: Mapping[str, str], models: Any) -> str:
    server: v3_0.Server | v3_1.Server = part.read_as(models.Server, "its server")
    declared: Mapping[str, v3_0.ServerVariable | v3_1.ServerVariable] = server.variables or {}
    values: dict[str, str] = {}
    for name in find_names_in_braces(server.url):
        variable = declared.get(name)
        if name not in variables and variable is None:
            raise OpenApiError(
                f"{part.subject}: its server {server.url} needs a value for '{name}': "
                f"pass server_variables={{'{name}': ...}}, or base_url="
            )
        value = variables.get(name, variable.default if variable else "")
        allowed: Sequence[str] | None = variable.enum if variable else None
        if name in variables and allowed and value not in allowed:
            raise OpenApiError(
                f"{part.subject}: the server variable '{name}' can be {' or '.join(allowed)}, not '{value}'"
            )
        values[name] = value
    url = _IN_BRACES.sub(lambda match: values[match[1]], server.url)
    url = urljoin(document.url, url) if document.url else url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OpenApiError(
            f"{part.subject}: no absolute base URL: the document's server is {server.url!r}; "
            "pass base_url='https://...'"
        )
    if "@" in parts.netloc:
        raise OpenApiError(f"{part.subject}: its server's URL holds a user or password: pass base_url= and auth=")
    return url.rstrip("/")
