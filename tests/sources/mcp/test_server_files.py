"""Servers from the JSON files that editors write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import ConfigurationError
from toolkit.sources.mcp import HttpServer, StdioServer, mcp_servers, mcp_tools


def write(folder: Path, servers: Any, key: str = "mcpServers") -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({key: servers, "inputs": []}))
    return path


def test_servers_are_read_as_editors_write_them(tmp_path: Path) -> None:
    servers = {
        "notes": {
            "command": "npx",
            "args": ["-y", "notes", "--key=${KEY}"],
            "env": {"KEY": "${env:KEY}", "UNITS": "${UNITS:-metric}"},
            "cwd": "work",
            "autoApprove": ["x"],
        },
        "shop": {"type": "http", "url": "https://shop.example.com/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        "old": {"type": "sse", "serverUrl": "https://old.example.com/sse"},
        "off": {"command": "nothing", "disabled": True},
    }
    read = mcp_servers(write(tmp_path, servers), environment={"KEY": "s3cret-of-mine"})
    assert list(read) == ["notes", "shop", "old"]
    notes, shop, old = read.values()
    assert isinstance(notes, StdioServer)
    assert (notes.command, notes.arguments) == ("npx", ("-y", "notes", "--key=s3cret-of-mine"))
    assert notes.env == {"KEY": "s3cret-of-mine", "UNITS": "metric"}
    assert notes.cwd == tmp_path / "work"
    assert isinstance(shop, HttpServer)
    assert shop.headers == {"Authorization": "Bearer s3cret-of-mine"}
    assert isinstance(old, HttpServer)
    assert (shop.is_sse, old.is_sse) == (False, True)
    assert [server.name for server in read.values()] == list(read)
    assert "s3cret" not in repr(read)


def test_the_key_of_another_editor_is_read_too(tmp_path: Path) -> None:
    assert list(mcp_servers(write(tmp_path, {"a": {"command": "b"}}, key="servers"))) == ["a"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs either a 'command' or a 'url'"),
        ({"command": "a", "url": "https://b.example.com"}, "needs either a 'command' or a 'url'"),
        ({"command": ["npx"]}, "command: Input should be a valid string"),
        ({"command": "a", "args": "-y"}, "args: Input should be a valid list"),
        ({"command": "a", "env": {"KEY": 5}}, r"env\.KEY: Input should be a valid string"),
        ({"command": "a", "env": {"KEY": "${MISSING}"}}, r"\.env\.KEY needs the environment variable MISSING"),
        ({"command": "a", "args": ["${input:key}"]}, r"only an editor knows '\$\{input:key\}'"),
        ({"url": "shop"}, "URL"),
        ({"type": "carrier-pigeon", "url": "https://b.example.com"}, "type: "),
        ("npx", "valid dictionary"),
    ],
)
def test_a_server_that_can_not_be_read_is_named(settings: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, {"good": {"command": "a"}, "bad": settings})
    with pytest.raises(ConfigurationError, match=message) as refused:
        mcp_servers(path, environment={"SECRET": "s3cret"})
    assert f"{path}: the server 'bad'" in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mcpServers": []}', "{}", " " * 1_000_001, '{"a": ' * 300])
def test_a_file_that_can_not_be_read_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"mcp\.json"):
        mcp_servers(path)
    with pytest.raises(ConfigurationError, match=r"missing\.json can't be read"):
        mcp_servers(tmp_path / "missing.json")


@pytest.mark.real
def test_a_server_of_a_file_is_started(tmp_path: Path) -> None:
    path = write(tmp_path, {"time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]}})

    async def list_names() -> list[str]:
        async with mcp_tools(mcp_servers(path)["time"], prefix="time") as tools:
            return [each.definition.name for each in tools]

    assert "time__get_current_time" in anyio.run(list_names)
