import gc
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from toolkit.calls.caching import Cache, MemoryCache, SqliteCache
from toolkit.errors import ConfigurationError

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def make(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Callable[[int | None, float | timedelta | None], Cache]]:
    opened: list[SqliteCache] = []

    def make(max_entries: int | None, ttl: float | timedelta | None) -> Cache:
        if request.param == "memory":
            return MemoryCache(max_entries, ttl=ttl, clock=clock)
        opened.append(SqliteCache(tmp_path / "cache.db", max_entries=max_entries, ttl=ttl, clock=clock))
        return opened[-1]

    yield make
    for cache in opened:
        await cache.aclose()


Make = Callable[[int | None, float | timedelta | None], Cache]


async def test_what_is_set_is_given(make: Make) -> None:
    cache = make(None, None)
    assert await cache.get("a") is None
    await cache.set("a", "1")
    await cache.set("b", 'ü\0"\n')
    assert (await cache.get("a"), await cache.get("b")) == ("1", 'ü\0"\n')
    await cache.set("a", "2")
    assert await cache.get("a") == "2"


async def test_an_entry_is_given_until_it_is_too_old(make: Make, clock: Clock) -> None:
    cache = make(None, timedelta(seconds=10))
    await cache.set("a", "1")
    clock.now += 9.5
    await cache.set("b", "2")
    assert await cache.get("a") == "1"
    clock.now += 0.5
    assert await cache.get("a") is None
    assert await cache.get("b") == "2"


async def test_setting_an_entry_again_makes_it_young(make: Make, clock: Clock) -> None:
    cache = make(None, 10)
    await cache.set("a", "1")
    clock.now += 9
    await cache.set("a", "2")
    clock.now += 9
    assert await cache.get("a") == "2"


async def test_the_oldest_gives_way(make: Make) -> None:
    cache = make(3, None)
    for key in "abcab":
        await cache.set(key, key)
    await cache.set("d", "d")
    assert [key for key in "abcd" if await cache.get(key) is not None] == ["a", "b", "d"]


async def test_in_memory_the_least_recently_used_gives_way() -> None:
    cache = MemoryCache(2)
    await cache.set("a", "1")
    await cache.set("b", "2")
    await cache.get("a")
    await cache.set("c", "3")
    assert [key for key in "abc" if await cache.get(key) is not None] == ["a", "c"]
    assert len(cache) == 2
    await cache.clear()
    assert len(cache) == 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(("max_entries", "ttl"), [(0, None), (-1, None), (None, 0), (None, -1.0), (None, timedelta(0))])
def test_limits_that_keep_nothing_are_refused(
    kind: str, max_entries: int | None, ttl: float | timedelta | None, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="cache"):
        if kind == "memory":
            MemoryCache(max_entries, ttl=ttl)
        else:
            SqliteCache(tmp_path / "cache.db", max_entries=max_entries, ttl=ttl)
    assert not list(tmp_path.iterdir())


# files


async def test_a_file_outlives_the_one_who_wrote_it(tmp_path: Path) -> None:
    async with SqliteCache(tmp_path / "cache.db") as cache:
        await cache.set("a", "1")
    async with SqliteCache(str(tmp_path / "cache.db")) as cache:
        assert await cache.get("a") == "1"
        await cache.clear()
        assert await cache.get("a") is None


async def test_old_entries_leave_the_file(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "cache.db"
    async with SqliteCache(path, ttl=10, clock=clock) as cache:
        await cache.set("a", "1")
        clock.now += 10
        await cache.set("b", "2")
        assert _count(path) == 1


def test_what_can_not_be_opened_is_a_mistake_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.*unable to open.*folder that is there"):
        SqliteCache(tmp_path / "nowhere" / "cache.db")
    with pytest.raises(ConfigurationError, match="can't be opened"):
        SqliteCache(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes, and no database at all\n" * 100)
    with pytest.raises(ConfigurationError, match="not a database"):
        SqliteCache(text)
    assert text.read_text().startswith("these are my notes")


def test_a_file_with_other_tables_of_that_name_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE outputs (name TEXT)")
    connection.close()
    with pytest.raises(ConfigurationError, match="no such column"):
        SqliteCache(tmp_path / "other.db")


async def test_what_goes_wrong_later_is_a_miss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cache.db"
    async with SqliteCache(path) as cache:
        await cache.set("a", "1")
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE outputs")
        connection.close()
        with caplog.at_level(logging.WARNING, "toolkit.calls"):
            assert await cache.get("a") is None
            await cache.set("a", "1")
            await cache.set("a", "\ud800")
    assert caplog.text.count("counts as a miss") == 3


async def test_a_file_that_is_locked_for_too_long_is_a_miss_and_serves_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.db"
    async with SqliteCache(path, busy_timeout=0.01) as cache:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await cache.set("a", "1")
        assert "locked" in caplog.text
        other.execute("ROLLBACK")
        other.close()
        await cache.set("a", "2")
        assert await cache.get("a") == "2"


async def test_a_closed_cache_has_only_misses(tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    await cache.set("a", "1")
    await cache.aclose()
    await cache.aclose()
    cache.close()
    await cache.set("b", "2")
    assert await cache.get("a") is None


async def test_a_cache_that_is_dropped_closes_its_file(tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    await cache.set("a", "1")
    del cache
    with anyio.fail_after(120):
        # The thread that worked for it lets go of it a moment later.
        while os.listdir(tmp_path) != ["cache.db"]:  # noqa: PTH208 - nothing announces it
            gc.collect()
            await anyio.sleep(0.001)


async def test_a_cancelled_block_closes_the_file(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        async with SqliteCache(tmp_path / "cache.db") as cache:
            await cache.set("a", "1")
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert os.listdir(tmp_path) == ["cache.db"]  # noqa: PTH208 - the log is gone: the file was closed


async def test_many_tasks_and_threads_share_one_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    async with SqliteCache(path) as cache, SqliteCache(path) as other:

        async def use(number: int) -> None:
            await (cache if number % 2 else other).set(f"key {number}", str(number))
            assert await (other if number % 2 else cache).get(f"key {number}") == str(number)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(use, number)
    assert _count(path) == 100


@pytest.mark.real
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork; run it on Linux or macOS")
def test_a_forked_process_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _FORKER, str(tmp_path / "cache.db")], check=False, timeout=60)
    assert done.returncode == 0
    assert _count(tmp_path / "cache.db") == 2


_FORKER = """
import os, sys
import anyio
from toolkit.calls.caching import SqliteCache

cache = SqliteCache(sys.argv[1])
anyio.run(cache.set, "parent", "1")
child = os.fork()
if child == 0:
    anyio.run(cache.set, "child", "2")
    cache.close()
    os._exit(0 if anyio.run(cache.get, "parent") is None else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert anyio.run(cache.get, "child") == "2"
cache.close()
"""

_WRITER = """
import sys
import anyio
from toolkit.calls.caching import SqliteCache

async def main(path, name, count):
    async with SqliteCache(path, busy_timeout=60) as cache:
        for number in range(count):
            await cache.set(f"{name} {number}", f"{name} {number} " + "x" * 2000)
            await cache.get(f"{name} {number // 2}")
            print(number, flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def _write_in_process(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def _count(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        count: int = connection.execute("SELECT count(*) FROM outputs").fetchone()[0]
        return count
    finally:
        connection.close()


@pytest.mark.real
def test_two_processes_under_load_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    writers = [_write_in_process(path, name, 300) for name in ("one", "two")]
    for writer in writers:
        output, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        assert len(output.splitlines()) == 300
    _assert_sound(path, {"one": 300, "two": 300})


@pytest.mark.real
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system can't kill; run it on Linux or macOS")
def test_a_process_that_is_killed_while_it_writes_leaves_the_file_sound(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    for attempt in range(3):
        name = f"writer{attempt}"
        with _write_in_process(path, name, 1_000_000) as writer:
            assert writer.stdout is not None
            for _ in range(20 + 13 * attempt):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read()
        written = 20 + 13 * attempt + rest.count("\n")
        _assert_sound(path, {name: written})


def _assert_sound(path: Path, written: dict[str, int]) -> None:
    async def check() -> None:
        async with SqliteCache(path) as cache:
            for name, count in written.items():
                for number in range(count):
                    assert await cache.get(f"{name} {number}") == f"{name} {number} " + "x" * 2000
            await cache.set("still", "usable")
            assert await cache.get("still") == "usable"

    anyio.run(check)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_importing_the_library_loads_no_database() -> None:
    code = "import sys, toolkit.calls.caching; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
