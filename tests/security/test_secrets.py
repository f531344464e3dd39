"""Secrets come out nowhere: each is planted where an application gives one, and looked for where something is shown."""

import logging
import os
import stat
from pathlib import Path

import pytest

from toolkit import ChatRequest, SqliteCache, UserMessage
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
