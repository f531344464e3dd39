"""The client that the conformance runner starts: it is told the scenario and the server's URL."""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from toolkit import ToolCall, ToolRegistry
from toolkit.sources.mcp import http, mcp_tools

CALLS = {"tools_call": ("add_numbers", '{"a": 17, "b": 25}'), "sse-retry": ("test_reconnection", "{}")}
DOCUMENT = "https://conformance-test.local/client-metadata.json"
BACK = "http://localhost:3030/callback"


class Memory:
    """Keeps what the authorization server gives."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return who we are."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep who we are."""
        self.client = client_info


def main() -> None:
    """Do what the scenario asks for."""
    anyio.run(use, os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[-1])


async def use(scenario: str, url: str) -> None:
    """Connect, list and call."""
    async with mcp_tools(
        http(url, auth=signer(url) if scenario.startswith("auth/") else None),
        elicitation=lambda question: question.defaults or True,
    ) as tools:
        registry = ToolRegistry(tools)
        name, arguments = CALLS.get(scenario, (registry.names[0] if registry.names else "", "{}"))
        if name:
            print(await registry.execute(ToolCall("1", name, arguments)))


def signer(url: str) -> httpx2.Auth:
    """Return the SDK's OAuth, whose user consents at once."""
    answers: list[str] = []

    async def visit(page: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answers.append((await browser.get(page)).headers["location"])

    async def come_back() -> AuthorizationCodeResult:
        asked = parse_qs(urlsplit(answers.pop()).query)
        return AuthorizationCodeResult(code=asked["code"][0], state=asked.get("state", [None])[0])

    metadata = OAuthClientMetadata.model_validate({"client_name": "toolkit", "redirect_uris": [BACK]})
    memory = Memory()
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "client_id" in known:
        memory.client = OAuthClientInformationFull(
            client_id=known["client_id"],
            client_secret=known["client_secret"],
            redirect_uris=metadata.redirect_uris,
            token_endpoint_auth_method="client_secret_basic",
        )
    return OAuthClientProvider(url, metadata, memory, visit, come_back, client_metadata_url=DOCUMENT)


if __name__ == "__main__":
    main()
