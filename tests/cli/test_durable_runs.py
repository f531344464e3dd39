"""`toolkit runs` over a database of durable runs, for who is called at night: no worker is needed for any of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran
from tests.durable.kept_databases import restore_sqlite

Run = Callable[..., Ran]


@pytest.fixture
def url(run: Run, tmp_path: Path) -> str:
    """Return the URL of a database of an earlier release, once it is migrated."""
    url = restore_sqlite(4, tmp_path / "runs.db")
    assert "say `toolkit runs migrate`" in run("runs", "list", "--log", url).err.replace("migrate them by", "say")
    migrated = json.loads(run("runs", "migrate", "--log", url, "-o", "json").out)
    assert migrated == {"version": 5, "completed": 8}
    return url


def list_ids(run: Run, url: str, *filters: str) -> list[str]:
    return sorted(
        each["run_id"] for each in json.loads(run("runs", "list", "--log", url, *filters, "-o", "json").out)["runs"]
    )


def test_durable_runs_are_listed_by_filters_and_counted(run: Run, url: str) -> None:
    listed = run("runs", "list", "--log", url)
    assert "failed (ProviderError)  loop desk, tenant t1\n    desk: the server is broken" in listed.out
    assert "1 queued, 1 running, 3 waiting, 1 done, 1 failed, 1 cancelled" in listed.err
    assert list_ids(run, url, "--ending", "ProviderError", "--since", "2020-01-01") == ["failed"]
    assert list_ids(run, url, "--metadata", "customer=1", "--metadata", "plan=gold") == ["failed"]
    assert list_ids(run, url, "--before", "2020-01-01") == []
    assert list_ids(run, url, "--state", "waiting", "--limit", "2", "--after", "waiting") == []
    assert run("runs", "list", "--log", url, "--since", "yesterday").code == 2


def test_a_call_is_shown_and_decided_on(run: Run, url: str) -> None:
    shown = run("runs", "show", "waiting", "--log", url).out
    assert 'call c1 of refund {"n":1}' in shown
    decide = ("runs", "decide", "waiting", "c1", "modify", "--arguments", '{"n": 2}', "--log", url)
    asked = run(*decide)
    assert (asked.code, 'modify call c1 of refund {"n":1}' in asked.err) == (3, True)
    assert run(*decide, "--yes").out == "decided\n"
    status: dict[str, Any] = json.loads(run("runs", "show", "waiting", "--log", url, "-o", "json").out)["status"]
    assert (status["state"], [each["decided"] for each in status["pending"]]) == ("queued", ["modify"])
    again = run(*decide, "--yes")
    assert (again.code, "somebody has decided on it already" in again.err) == (1, True)
    missing = run("runs", "decide", "both", "c9", "deny", "--log", url)
    assert "the calls that await a decision: c0.1" in missing.err


def test_runs_are_retried_cancelled_and_deleted_by_name_or_by_filter(run: Run, url: str) -> None:
    assert run("runs", "retry", "--state", "failed", "--log", url).code == 3, "nobody can be asked"
    assert run("runs", "retry", "--state", "failed", "--yes", "--log", url).out == "retry: 1 runs\n"
    assert list_ids(run, url, "--state", "queued") == ["failed", "queued"]
    assert run("runs", "cancel", "both", "large", "--reason", "not needed", "--log", url).out == "cancel: 2 runs\n"
    assert list_ids(run, url, "--state", "queued") == ["both", "failed", "large", "queued"]
    assert run("runs", "delete", "--tenant", "t0", "--yes", "--log", url).out == "delete: 2 runs\n"
    assert list_ids(run, url, "--tenant", "t0") == ["both", "moving"]
    assert run("runs", "delete", "moving", "--log", url).code == 1, "it moves"
    assert run("runs", "delete", "--log", url).code == 2, "all runs are never meant"


def test_filters_and_changes_are_for_databases_alone(run: Run, tmp_path: Path) -> None:
    assert "give its URL by --log" in run("runs", "list", "--state", "failed").err
    assert "this is for durable runs" in run("runs", "retry", "x").err
