"""The client that the conformance runner starts: it is told the scenario and the server's URL."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from toolkit import ToolCall, ToolRegistry
from toolkit.sources.mcp import http, mcp_tools

KNOWN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
ARGUMENTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 17, "b": 25}, "valid_tool": {"region": "eu"}}
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
    """Connect, list and call what is asked for, or each tool."""
    async with mcp_tools(
        http(url, auth=signer(scenario, url) if scenario.startswith("auth/") else None),
        elicitation=lambda question: question.defaults or True,
    ) as tools:
        registry = ToolRegistry(tools)
        calls = [(call["name"], call["arguments"]) for call in KNOWN.get("toolCalls", ())]
        for tool in tools if not calls else ():
            given = ARGUMENTS.get(tool.original_name, {})
            if tool.original_name == "json_schema_echo":
                given = {"schema": tools[0].listed.input_schema}
            calls.append((tool.definition.name, given))
        for name, given in calls:
            print(await registry.execute(ToolCall("1", name, json.dumps(given))))


def signer(scenario: str, url: str) -> httpx2.Auth:
    """Return the SDK's OAuth, whose user consents at once."""
    memory = Memory()
    if scenario == "auth/client-credentials-basic":
        return ClientCredentialsOAuthProvider(url, memory, KNOWN["client_id"], KNOWN["client_secret"])
    if scenario == "auth/client-credentials-jwt":
        signed = SignedJWTParameters(
            issuer=KNOWN["client_id"],
            subject=KNOWN["client_id"],
            signing_key=KNOWN["private_key_pem"],
            signing_algorithm=KNOWN["signing_algorithm"],
        )
        return PrivateKeyJWTOAuthProvider(url, memory, KNOWN["client_id"], signed.create_assertion_provider())
    answers: list[str] = []

    async def visit(page: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answers.append((await browser.get(page)).headers["location"])

    async def come_back() -> AuthorizationCodeResult:
        asked = parse_qs(urlsplit(answers.pop()).query)
        state, issuer = (asked.get(name, [None])[0] for name in ("state", "iss"))
        return AuthorizationCodeResult(code=asked["code"][0], state=state, iss=issuer)

    metadata = OAuthClientMetadata.model_validate({"client_name": "toolkit", "redirect_uris": [BACK]})
    if "client_id" in KNOWN:
        memory.client = OAuthClientInformationFull(
            client_id=KNOWN["client_id"],
            client_secret=KNOWN["client_secret"],
            issuer=KNOWN.get("issuer"),
            redirect_uris=metadata.redirect_uris,
            token_endpoint_auth_method="client_secret_basic",
        )
    return OAuthClientProvider(url, metadata, memory, visit, come_back, client_metadata_url=DOCUMENT)


if __name__ == "__main__":
    main()
