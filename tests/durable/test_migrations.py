"""Tables of each version are migrated, and their runs go on; those of a later release are refused in words."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from tests.durable.desk import make_desk, read_notes
from tests.durable.kept_databases import FOLDER, LARGE, PROMPTS, STATES, restore_postgres, restore_sqlite
from tests.durable.postgres import PostgresServer
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import wait_for_state
from toolkit import Approve
from toolkit.durable import DurableError, DurableRun, DurableRuns
from toolkit.durable.storage import TABLES_VERSION, Storage

VERSIONS = sorted(int(path.name.removeprefix("v").partition(".")[0]) for path in FOLDER.glob("*.sql.gz"))


@pytest.fixture
def restore(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], str]:
    """Give the function that returns the URL of a kept database of a version, of the same kind as `url`."""
    if url.startswith("sqlite"):
        return lambda version: restore_sqlite(version, tmp_path / f"v{version}.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return lambda version: restore_postgres(version, server)


def describe_tables(url: str) -> dict[str, list[str]]:
    """Return the columns and the indexes of our tables."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    found: dict[str, list[str]] = {}
    seen = sa.inspect(engine)
    for name in sorted(each for each in seen.get_table_names() if each.startswith("toolkit_")):
        parts = ("name", "type", "nullable", "default")
        columns = [" ".join(str(each.get(part)) for part in parts) for each in seen.get_columns(name)]
        indexes = [f"{each['name']} {each['column_names']} {each['unique']}" for each in seen.get_indexes(name)]
        key = [f"key {seen.get_pk_constraint(name)['constrained_columns']}"]
        # SQLite shows one type by each of the names that it was given.
        found[name] = sorted(each.replace(" REAL ", " DOUBLE ") for each in columns + indexes + key)
    engine.dispose()
    return found


def change_version(url: str, version: int) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.text(f"update toolkit_versions set version = {version}"))
    engine.dispose()


@pytest.mark.real
def test_tables_of_each_version_become_those_of_a_new_database(restore: Callable[[int], str], url: str) -> None:
    Storage(url).close()
    for version in VERSIONS:
        kept = restore(version)
        Storage(kept, may_migrate=True).close()
        assert describe_tables(kept) == describe_tables(url)
    assert TABLES_VERSION - 1 in VERSIONS, "a version that was released has its kept databases"


@pytest.mark.anyio
async def test_a_client_refuses_tables_of_an_earlier_version_and_says_who_migrates_them(tmp_path: Path) -> None:
    url = restore_sqlite(VERSIONS[-1], tmp_path / "runs.db")
    with pytest.raises(DurableError, match="start a worker of this release, or migrate them by `toolkit runs migrate`"):
        async with DurableRuns(url):
            pass


@pytest.mark.parametrize("may_migrate", [True, False])
def test_tables_of_a_later_version_are_refused_in_words(tmp_path: Path, *, may_migrate: bool) -> None:
    url = restore_sqlite(VERSIONS[-1], tmp_path / "runs.db")
    change_version(url, TABLES_VERSION + 1)
    before = describe_tables(url)
    with pytest.raises(DurableError, match=f"of version {TABLES_VERSION + 1}, and this library reads version"):
        Storage(url, may_migrate=may_migrate)
    assert describe_tables(url) == before


def test_a_migration_that_fails_leaves_the_tables_as_they_were(tmp_path: Path) -> None:
    url = restore_sqlite(VERSIONS[-1], tmp_path / "runs.db")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("create table toolkit_labels (of_somebody_else text)"))
    engine.dispose()
    before = describe_tables(url)
    with pytest.raises(DurableError, match="toolkit_labels already exists"):
        Storage(url, may_migrate=True)
    assert describe_tables(url) == before


async def decide_all(run: DurableRun) -> None:
    for pending in (await run.status()).pending:
        await run.decide(pending.call_id, Approve(), binding=pending.binding)


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_runs_of_each_version_go_on_after_the_migration(
    restore: Callable[[int], str], version: int, tmp_path: Path
) -> None:
    url, desk = restore(version), make_desk(tmp_path)
    (tmp_path / "go-moving").touch()
    with worker_beside(url, desk, lease=0.5):
        async with DurableRuns(url) as runs:
            made = {run_id: await runs.get(run_id) for run_id in PROMPTS}
            for run_id in ("moving", "queued"):
                await wait_for_state(made[run_id], "done")
            with anyio.fail_after(120):
                while any(not each.ending for each in await runs.list()):  # noqa: ASYNC110 - of another thread
                    await anyio.sleep(0.05)
            listed = {each.run_id: each for each in await runs.list()}
            assert {run_id: each.state for run_id, each in listed.items()} == {
                run_id: "done" if state in ("running", "queued") else state for run_id, state in STATES.items()
            }
            assert (listed["failed"].ending, listed["failed"].error) == ("ProviderError", "desk: the server is broken")
            assert [each.run_id for each in await runs.list(metadata={"customer": 1})] == ["failed"]
            (tmp_path / "mended").touch()
            await made["failed"].retry()
            for run_id in ("waiting", "both", "large"):
                await decide_all(made[run_id])
                await wait_for_state(made[run_id], "done")
            await wait_for_state(made["failed"], "done")
            texts = {run_id: (await run.result()).text for run_id, run in made.items() if run_id != "cancelled"}
    assert texts["failed"] == "Done after 3 turns: add fail add."
    assert texts["waiting"] == "Done after 4 turns: add refund add add.", "also what was said before"
    assert LARGE in texts["large"]
    assert read_notes(tmp_path, "moving") == ["add c2"], "the call under way ran once, before"
