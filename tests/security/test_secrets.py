"""Secrets come out nowhere: each is planted where an application gives one, and looked for where something is shown."""

import hashlib
import json
import logging
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from toolkit import (
    ChatRequest,
    Defer,
    MemoryCache,
    SqliteCache,
    Tool,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    UserMessage,
    tool,
    tool_from_schema,
    tool_loop,
)
from toolkit.chat.serialization import plain_to_json, request_to_plain
from toolkit.providers import CachedProvider
from toolkit.testing import RecordingProvider, ScriptedProvider

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


PIN = "4711-pin-of-ada"
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

CALLS = {
    "as it should be": f'{{"pin": "{PIN}"}}',
    "with null": f'{{"pin": "{PIN}", "user": null}}',
    "in an object": f'{{"pin": "x", "login": {{"pin": "{PIN}"}}}}',
    "in a list": f'{{"pin": "x", "pins": ["{PIN}"]}}',
    "with a comma too many": f'{{"pin": "{PIN}",}}',
    "in single quotes": f"{{'pin': '{PIN}'}}",
    "without quotes": f"{{pin: {PIN}}}",
    "in a fence": f'```json\n{{"pin": "{PIN}"}}\n```',
    "in a list of one": f'[{{"pin": "{PIN}"}}]',
    "wrapped": f'{{"arguments": {{"pin": "{PIN}"}}}}',
    "encoded twice": json.dumps(f'{{"pin": "{PIN}"}}'),
    "a list in a text": f'{{"pin": "{PIN}", "pins": "[\\"{PIN}\\"]"}}',
    "wrong beside it": f'{{"pin": "{PIN}", "user": 5}}',
    "of the wrong type": f'{{"pin": ["{PIN}"]}}',
    "cut off": f'{{"pin": "{PIN}", "user": "a',
}


class Watching:
    def __init__(self) -> None:
        self.seen: list[object] = []

    async def emit(self, event: object) -> None:
        self.seen.append(event)

    def offer(self, event: object) -> None:
        self.seen.append(event)


@pytest.mark.parametrize("arguments", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("offered", [sign_in, SIGN_IN_RAW], ids=["typed", "of a schema"])
async def test_no_event_nor_error_shows_a_secret_argument(
    offered: Tool[object], arguments: str, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    registry = ToolRegistry([offered])
    with caplog.at_level(logging.DEBUG):
        result = await registry.execute(ToolCall("1", "sign_in", arguments), ctx=None, observer=watching)
    assert PIN not in repr(watching.seen)
    assert PIN not in str(result.content)
    assert PIN not in caplog.text


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
    told = plain_to_json({"provider": "one", **request_to_plain(request)})
    assert kept != [f"answer:{hashlib.sha256(told.encode()).hexdigest()}"]
