"""URLs of servers that are none: each is refused by an error of ours, which shows no password."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from toolkit import ToolkitError
from toolkit.errors import ConfigurationError, OpenApiError
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.sources.mcp import http, sse
from toolkit.sources.openapi import openapi_tools

pytestmark = pytest.mark.anyio

WRONG = [
    "", "not a url", "//host/x", "ftp://host/x", "http://", "http:///x", "http://[::1", "http://host:99999/x",
    "http://host:port/x", "https://user:pa[ss-77@host/x", "https://user:pa/ss-77@host/x", "http://host\x00/x",
    "https://user:ss-77@host:port/x",
]  # fmt: skip
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/x": {"get": {"operationId": "get_x", "responses": {"200": {"description": "It."}}}}},
}


async def by_base_url(url: str) -> None:
    async with openapi_tools(DOCUMENT, base_url=url):
        pass


async def by_document(url: str) -> None:
    async with openapi_tools({**DOCUMENT, "servers": [{"url": url}]}):
        pass


async def by_source(url: str) -> None:
    async with openapi_tools(url, base_url="http://127.0.0.1:9"):
        pass


MAKERS: dict[str, Callable[[str], Any]] = {
    "mcp": http,
    "events": sse,
    "chat": lambda url: OpenAIProvider("m", base_url=url, api_key="k"),
    "responses": lambda url: OpenAIResponsesProvider("m", base_url=url, api_key="k"),
    "anthropic": lambda url: AnthropicProvider("m", base_url=url, api_key="k"),
    "google": lambda url: GoogleProvider("m", base_url=url, api_key="k"),
}
USERS = {"base_url": by_base_url, "document": by_document, "source": by_source}


@pytest.mark.parametrize("url", WRONG, ids=ascii)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_wrong_url_is_refused_where_it_is_given(make: Callable[[str], Any], url: str) -> None:
    if not url and make not in (http, sse):
        return  # the vendor's own
    with pytest.raises(ConfigurationError) as caught:
        make(url)
    assert "ss-77" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", WRONG, ids=ascii)
@pytest.mark.parametrize("use", USERS.values(), ids=USERS)
async def test_a_wrong_url_of_an_api_is_an_error_of_ours(use: Callable[[str], Any], url: str) -> None:
    with pytest.raises(ToolkitError) as caught:
        await use(url)
    assert isinstance(caught.value, (ConfigurationError, OpenApiError))
    assert "ss-77" not in "".join(traceback.format_exception(caught.value))
