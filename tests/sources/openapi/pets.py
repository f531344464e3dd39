"""A small document to build others from."""

from collections.abc import Mapping
from typing import Any

__all__ = ["document", "operation"]


def operation(*parameters: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An operation that answers with anything."""
    return {"parameters": list(parameters), "responses": {"200": {"description": "Fine."}}, **more}


def document(paths: Mapping[str, Any], *, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    """A whole document with these paths."""
    return {
        "openapi": version,
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.test/v1"}],
        "paths": dict(paths),
        **more,
    }
