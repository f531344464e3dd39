"""Secrets come out nowhere: each is planted where an application gives one, and looked for where something is shown."""

import hashlib
import json
import logging
import os
import sqlite3
import stat
import sys
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from openai import Omit
from pydantic import BaseModel, SecretStr

from toolkit import (
    ChatRequest,
    Defer,
    MemoryCache,
    ProviderError,
    Tool,
    ToolCall,
    ToolkitError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    UserMessage,
    tool,
    tool_from_schema,
    tool_loop,
)
from toolkit.chat.provider import request_to_plain
from toolkit.errors import LoopUsageError
from toolkit.json_text import canonical_json
from toolkit.policies import SqliteCache
from toolkit.providers import CachedProvider
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.sources.mcp import http, mcp_tools, sse, stdio
from toolkit.sources.openapi import ApiKey, openapi_tools
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import FunctionProvider, RecordingProvider, ScriptedProvider
from toolkit.testing.loopback import Answer, serving

pytestmark = pytest.mark.anyio


# files


needs_modes = pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX: on Windows folders decide")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: mode_of(file) & 0o077 for file in folder.iterdir()}


@needs_modes
@pytest.mark.parametrize("mode", [None, 0o666, 0o640, 0o604, 0o755, 0o600], ids=str)
async def test_a_cassette_is_for_its_owner_alone(
    tmp_path: Path, mode: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cassette.jsonl"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    with caplog.at_level(logging.WARNING, logger="toolkit"):
        recording = RecordingProvider(ScriptedProvider(["Hello."]), path)
    await recording.generate(ChatRequest(messages=[UserMessage("Hi")]))
    assert mode_of(path) & 0o077 == 0
    assert (str(path) in caplog.text) == (mode not in (None, 0o600))


@needs_modes
@pytest.mark.parametrize("mode", [None, 0o666, 0o640, 0o604, 0o755, 0o600], ids=str)
async def test_a_cache_is_for_its_owner_alone_with_all_that_belongs_to_it(
    tmp_path: Path, mode: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.db"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    with caplog.at_level(logging.WARNING, logger="toolkit"):
        async with SqliteCache(path) as cache:
            await cache.set("key", "value")
            modes = modes_in(tmp_path)
    assert modes == {"cache.db": 0, "cache.db-wal": 0, "cache.db-shm": 0}
    assert (str(path) in caplog.text) == (mode not in (None, 0o600))


@needs_modes
async def test_what_belongs_to_an_open_cache_is_narrowed_too_and_its_locks_stay(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    async with SqliteCache(path) as first:
        await first.set("key", "value")
        for name in modes_in(tmp_path):
            (tmp_path / name).chmod(0o666)
        async with SqliteCache(path) as second:
            assert set(modes_in(tmp_path).values()) == {0}
            await second.set("other", "value")
        assert await first.get("other") == "value"


async def test_a_cache_in_memory_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with SqliteCache(":memory:") as cache:
        await cache.set("key", "value")
    assert modes_in(tmp_path) == {}


# arguments


SECRET_SCHEMA = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "pin": {"type": "string", "writeOnly": True},
        "word": {"type": "string", "format": "password"},
        "login": {"type": "object", "properties": {"pin": {"type": "integer", "writeOnly": True}}},
        "pins": {"type": "array", "items": {"type": "string", "format": "password"}},
    },
    "required": ["pin"],
}


class Login(BaseModel):
    pin: SecretStr


@tool
async def sign_in(pin: SecretStr, user: str = "ada", login: Login | None = None, pins: list[SecretStr] = []) -> str:  # noqa: B006 - it is not changed
    """Sign in."""
    assert pin.get_secret_value()
    return f"{user} {login} {pins}"


async def sign_in_raw(arguments: dict[str, Any]) -> str:
    return f"Welcome, {arguments.get('user')}"


SIGN_IN_RAW = tool_from_schema("sign_in", "Sign in.", SECRET_SCHEMA, sign_in_raw)


@pytest.mark.parametrize("offered", [sign_in, SIGN_IN_RAW], ids=["typed", "of a schema"])
async def test_who_approves_sees_digests_that_nobody_can_make(offered: Tool[object]) -> None:
    provider = ScriptedProvider([ToolCall("1", "sign_in", '{"pin": "1234"}'), "Done."])
    config = ToolLoopConfig(on_tool_call=lambda _: Defer())
    registry = ToolRegistry([offered]).configured("sign_in", requires_approval=True)
    result = await tool_loop(provider, registry, "Sign in.", config=config)
    assert result.snapshot is not None
    (pending,) = result.snapshot["pending_approvals"]
    shown = pending["arguments"]["pin"]
    assert shown.startswith("secret:")
    for guess in range(10_000):
        for text in (f"{guess:04}", f'"{guess:04}"'):
            assert hashlib.sha256(text.encode()).hexdigest() not in shown


@pytest.mark.parametrize("offered", [sign_in, SIGN_IN_RAW], ids=["typed", "of a schema"])
async def test_no_shared_cache_tells_a_secret_argument(offered: Tool[object], tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    registry = ToolRegistry([offered]).configured("sign_in", cache=True)
    async with SqliteCache(path) as cache:
        config = ToolLoopConfig(cache=cache)
        for _ in range(2):
            provider = ScriptedProvider([ToolCall("1", "sign_in", '{"pin": "1234"}'), "Done."])
            await tool_loop(provider, registry, "Sign in.", config=config)
    with closing(sqlite3.connect(path)) as connection:
        kept = str(connection.execute("SELECT * FROM outputs").fetchall())
    assert "sign_in" in kept
    assert not [guess for guess in range(10_000) if hashlib.sha256(f'"{guess:04}"'.encode()).hexdigest() in kept]
    assert "1234" not in kept


async def test_no_shared_cache_of_answers_tells_a_secret_option() -> None:
    kept: list[str] = []

    class Noting(MemoryCache):
        async def set(self, key: str, value: str) -> None:
            kept.append(key)
            await super().set(key, value)

    request = ChatRequest(messages=[UserMessage("Hi")], options={"api_key": "1234", "extra_headers": {"X-Pin": "1234"}})
    provider = CachedProvider(ScriptedProvider(["Hello."]), Noting(), name="one")
    await provider.generate(request)
    assert (await provider.generate(request)).text == "Hello."
    told = canonical_json({"provider": "one", **request_to_plain(request)})
    assert kept != [f"answer:{hashlib.sha256(told.encode()).hexdigest()}"]


# what servers and programs echo, and what logs tell


WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in capitals": str.upper,
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "in JSON": json.dumps,
    "in Base64": lambda secret: b64encode(secret.encode()).decode(),
    "in Base64 of URLs": lambda secret: urlsafe_b64encode(secret.encode()).decode(),
    "in hex": lambda secret: secret.encode().hex(),
}
# Each is given in some place, and nowhere else.
HEADERS = {
    "X-Tenant": "tenant/one-99",
    "X-Thing": "Token thing+token-99",
    "Authorization": "Bearer bearer=token-99",
    "Cookie": "sid=cookie+value-99; b=cookie+other-99",
    "X-Login": "Basic " + b64encode(b"ada:basic-pass+99").decode(),
}
IN_HEADERS = [
    *("tenant/one-99", "thing+token-99", "bearer=token-99", "cookie+value-99", "cookie+other-99", "basic-pass+99"),
]
LOGIN = "ada99:pass%2Bword-99"
QUERY = "v=version+99&sig=signature-99"
IN_URL = ["pass+word-99", "pass%2Bword-99", "version 99", "signature-99", "pathTOKENabcdef0123456789"]
ARGUMENTS = [
    *("--api-key", "option-secret+99", "--token=joined-secret+99", "positional-random-99", "ENV_SECRET=variable+99"),
    *("--header", "X-Neutral: header+neutral-99", "postgres://bob:database+99@db/x", "https://h/x?token=query+99"),
    *('{"password": "configured+99"}', "-k", "short+option-99a", "AKIAABCDEFGHIJKLMNOP"),
]
IN_ARGUMENTS = [
    *("option-secret+99", "joined-secret+99", "positional-random-99", "variable+99", "header+neutral-99"),
    *("database+99", "query+99", "configured+99", "short+option-99a", "AKIAABCDEFGHIJKLMNOP"),
]
ENVIRONMENT = {
    "MY_TOKEN": "token+in+env-99",
    "DATABASE": "mysql://bob:login+99@db/x",
    "PLAIN": "sk-abcdefgh12345678-99",
}
IN_ENVIRONMENT = ["token+in+env-99", "login+99", "sk-abcdefgh12345678-99"]


def tell(error: BaseException) -> str:
    """All that can be shown of an error, with what stands behind it, whatever a traceback would leave out."""
    told, waiting, passed = list[str](), [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in passed:
            continue
        passed.add(id(one))
        told += [*traceback.format_exception(one), repr(one), str(one), repr(vars(one))]
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        waiting += getattr(one, "exceptions", ())
    return "\n".join(told)


def found_in(shown: str, secrets: Sequence[str]) -> list[str]:
    return [secret for secret in secrets if secret.lower() in shown.lower()]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO):
        yield caplog


@pytest.mark.parametrize("is_sse", [False, True], ids=["http", "events"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
async def test_no_error_nor_log_shows_what_an_mcp_server_is_told(
    log: pytest.LogCaptureFixture, write: Callable[[str], str], is_sse: bool
) -> None:
    secrets = [*IN_HEADERS, *IN_URL]
    echoed = [write(secret) for secret in secrets]
    message = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": " ".join(echoed)}}
    with serving() as server:
        url = server.root.replace("//", f"//{LOGIN}@") + f"/mcp/pathTOKENabcdef0123456789?{QUERY}"
        for answer in (
            Answer(message, status=400),
            Answer(" ".join(echoed).encode(), content_type="text/plain"),
            Answer(b"", status=307, headers={"location": "/other?token=" + quote(echoed[0])}),
        ):
            server.answers[:] = [answer]
            reached = (sse if is_sse else http)(url, headers=HEADERS, timeout=5)
            with pytest.raises(ToolkitError) as caught:
                async with mcp_tools(reached):
                    pass
            shown = tell(caught.value) + repr(reached)
            assert not found_in(shown, [*secrets, *echoed])
    assert not found_in(log.text, [*secrets, *echoed])
    assert "HTTP Request" in log.text


ECHOES = """
import json, os, sys
told = " ".join([*sys.argv[1:], *os.environ.values()])
forms = [told, json.dumps(told), *(value.encode().hex() for value in told.split())]
print("I was told", *forms, file=sys.stderr)
print(*forms, flush=True)
"""


async def test_no_error_nor_log_shows_what_a_program_is_told(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    program = tmp_path / "echoes.py"
    program.write_text(ECHOES)
    secrets = [*IN_ARGUMENTS, *IN_ENVIRONMENT]
    everything = [*secrets, *(secret.encode().hex() for secret in secrets)]
    reached = stdio(sys.executable, str(program), *ARGUMENTS, env=ENVIRONMENT)
    with pytest.raises(ToolkitError) as caught:
        async with mcp_tools(reached):
            pass
    assert not found_in(tell(caught.value) + repr(reached), everything)
    assert "I was told" in log.text
    with pytest.raises(ToolkitError) as caught:
        async with plugin_tools(sys.executable, [str(program), *ARGUMENTS], env=ENVIRONMENT):
            pass
    assert not found_in(tell(caught.value), everything)
    assert not found_in(log.text, everything)


async def test_a_plugin_inherits_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, seen = tmp_path / "notes.py", tmp_path / "seen"
    program.write_text(f"import json, os; open({str(seen)!r}, 'w').write(json.dumps(dict(os.environ)))")
    monkeypatch.setenv("OPENAI_API_KEY", "inherited-99")
    monkeypatch.setenv("DATABASE", "inherited-99")
    with pytest.raises(ToolkitError):
        async with plugin_tools(sys.executable, [str(program)]):
            pass
    assert "inherited-99" not in seen.read_text()


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/x": {"get": {"operationId": "get_x", "responses": {"200": {"description": "It."}}}}},
    "components": {"securitySchemes": {"key": {"type": "apiKey", "name": "v", "in": "query"}}},
}


@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
async def test_no_result_nor_log_shows_what_an_api_is_told(
    log: pytest.LogCaptureFixture, write: Callable[[str], str]
) -> None:
    secrets = [*IN_HEADERS, "query-key+99"]
    echoed = [write(secret) for secret in secrets]
    with serving() as server:
        for answer in (Answer({"echo": echoed}), Answer({"echo": echoed}, status=500), Answer(pieces=[], is_cut=True)):
            server.answers[:] = [answer]
            auth = ApiKey(name="v", value="query-key+99", location="query")
            async with openapi_tools(DOCUMENT, base_url=server.root, headers=HEADERS, auth=auth) as tools:
                result = await ToolRegistry(tools).execute(ToolCall("1", "get_x", "{}"))
                assert not found_in(repr(result) + repr(tools), [*secrets, *echoed])
    assert not found_in(log.text, [*secrets, *echoed, quote("query-key+99", safe="")])
    assert "HTTP Request" in log.text


async def test_no_result_of_an_api_shows_a_secret_argument_in_its_url() -> None:
    parameters = [
        {"name": "q", "in": "query", "schema": {"type": "string", "format": "password"}},
        {"name": "n", "in": "query", "schema": {"type": "string"}},
        {"name": "token", "in": "path", "required": True, "schema": {"type": "string"}},
    ]
    get = {**DOCUMENT["paths"]["/x"]["get"], "parameters": parameters}
    with serving() as server:
        for answer in (Answer({"a": 1}), Answer(pieces=[], is_cut=True)):
            server.answers[:] = [answer]
            async with openapi_tools(
                {**DOCUMENT, "paths": {"/x/{token}": {"get": get}}}, base_url=server.root
            ) as tools:
                call = ToolCall("1", "get_x", '{"q": "query-77", "n": "plain 1", "token": "path-77"}')
                result = await ToolRegistry(tools).execute(call)
            assert "/x/***" in result.text
            assert "-77" not in result.text
            assert ("?q=***&n=plain%201" in result.text) == (not result.is_error)


PROVIDERS: dict[str, Callable[..., Any]] = {
    "chat": partial(OpenAIProvider, "m"),
    "responses": partial(OpenAIResponsesProvider, "m"),
    "anthropic": partial(AnthropicProvider, "m"),
    "google": partial(GoogleProvider, "m"),
}


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_no_error_nor_log_shows_what_a_provider_is_told(log: pytest.LogCaptureFixture, kind: str) -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "Authorization"}
    planted = [secret for secret in IN_HEADERS if not secret.startswith("bearer")]
    secrets = [*planted, *IN_URL[:-1], "sk-the-key/0123456789+99"]
    echoed = [write(secret) for write in WRITTEN.values() for secret in secrets]
    with serving() as server:
        url = server.root.replace("//", f"//{LOGIN}@") + f"?{QUERY}"
        told = {"x-request-id": quote(" ".join(secrets[:3]), safe=" /+="), "request-id": secrets[0]}
        server.answers[:] = [Answer({"error": {"message": " ".join(echoed)}}, status=500, headers=told)]
        async with PROVIDERS[kind](base_url=url, api_key="sk-the-key/0123456789+99", headers=headers) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider.generate(ChatRequest(messages=[UserMessage("Hi")]))
            assert not found_in(tell(caught.value) + repr(provider), [*secrets, *echoed])
    assert not found_in(log.text, [*secrets, *echoed])
    assert "HTTP Request" in log.text


@pytest.mark.parametrize("url", ["https://gateway.example/v1", "http://192.168.1.7:8000/v1"])
@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_the_account_of_the_environment_stays_with_its_vendor(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-99")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-99")
    provider = PROVIDERS[kind](base_url=url, api_key="by-hand")
    left_out = {name for name, value in provider._request_headers.items() if isinstance(value, Omit)}
    assert {"OpenAI-Organization", "OpenAI-Project"} <= left_out
    at_home = PROVIDERS[kind](base_url="https://api.openai.com/v1", api_key="by-hand")
    assert not [value for value in at_home._request_headers.values() if isinstance(value, Omit)]


# snapshots


OPTIONS: dict[str, Any] = {
    "api_key": "option+99",
    "extra_headers": {"X-Tenant": "tenant+99", "Accept": "application/json"},
    "extra_query": {"v": "query+99"},
    "extra_body": {"client_secret": "body+99", "api_keys": ["list+99"], "top_k": 5},
}


async def test_a_snapshot_holds_no_secret_of_the_options_and_is_restored_with_them() -> None:
    asked: list[ChatRequest] = []

    def answer(request: ChatRequest) -> str:
        asked.append(request)
        return "Done."

    registry = ToolRegistry([sign_in]).configured("sign_in", requires_approval=True)
    provider = ScriptedProvider([ToolCall("1", "sign_in", '{"pin": "1234"}')])
    config = ToolLoopConfig(on_tool_call=lambda _: Defer())
    request = ChatRequest(messages=[UserMessage("Sign in.")], options={**OPTIONS, "service_tier": "flex"})
    result = await tool_loop(provider, registry, request, config=config)
    assert result.snapshot is not None
    saved = json.dumps(result.snapshot)
    assert "+99" not in saved
    assert "application/json" in saved
    with pytest.raises(LoopUsageError, match="api_key, extra_headers, extra_query, extra_body"):
        await tool_loop(FunctionProvider(answer), registry, result.snapshot)
    with pytest.raises(LoopUsageError, match=r"\(extra_body\)"):
        given = {name: OPTIONS[name] for name in ("api_key", "extra_headers", "extra_query")}
        await tool_loop(
            FunctionProvider(answer), registry, result.snapshot, config=ToolLoopConfig(request_options=given)
        )
    config = ToolLoopConfig(request_options=OPTIONS)
    assert "+99" not in repr(config)
    handle = ToolLoopHandle(FunctionProvider(answer), registry, result.snapshot, config=config, decisions={"1": True})
    assert (await handle.run()).text == "Done."
    assert asked[0].options == {**OPTIONS, "service_tier": "flex"}


async def test_options_of_the_configuration_are_laid_over_those_of_the_request() -> None:
    asked: list[ChatRequest] = []

    def answer(request: ChatRequest) -> str:
        asked.append(request)
        return "Done."

    config = ToolLoopConfig(request_options={"b": 3})
    for prompt in (ChatRequest(messages=[UserMessage("Hi.")], options={"a": 1, "b": 2}), "Hi.", [UserMessage("Hi.")]):
        await tool_loop(FunctionProvider(answer), ToolRegistry(), prompt, config=config)
    assert [request.options for request in asked] == [{"a": 1, "b": 3}, {"b": 3}, {"b": 3}]
    assert [request.messages[0] for request in asked] == [UserMessage("Hi.")] * 3
