"""The generated tables of the reference are complete, and say something about each row."""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.site.tables import (
    LOG_LEVELS,
    OPTIONS,
    SETTINGS,
    list_error_rows,
    list_log_messages,
    list_setting_rows,
    write_capabilities_table,
    write_module_table,
    write_servers_table,
)
from toolkit import errors

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", [*SETTINGS, *OPTIONS], ids=lambda kind: kind.__name__)
def test_each_setting_has_a_row_that_says_what_it_means(kind: type) -> None:
    rows = list_setting_rows(kind)
    given = {field.name for field in dataclasses.fields(kind) if field.init} - {"_"}
    assert {name.strip("`") for name, *_ in rows} == given
    assert [name for name, *_, meaning in rows if not meaning] == []


def test_each_error_has_a_row() -> None:
    assert {name.strip("`") for name, *_ in list_error_rows()} == set(errors.__all__)


@pytest.mark.parametrize("module", ["toolkit.events", "toolkit.endings", "toolkit.errors"])
def test_each_row_of_a_union_says_something(module: str) -> None:
    rows = write_module_table(module).splitlines()[2:]
    assert len(rows) > 10
    assert [row for row in rows if not all(cell.strip() for cell in row.split(" | ")[:2])] == []


def test_the_rows_of_events_and_endings_name_what_stands_in_json() -> None:
    rows = write_module_table("toolkit.events") + write_module_table("toolkit.endings")
    assert (
        "| `Compacted` | `compacted` | The transcript was shortened between two turns. | `before` int, `after` int |"
        in rows
    )
    assert "| `Aborted` | `aborted` | An approver ended the run. | `reason` str |" in rows
    assert "| `Complete` | `complete` | The model gave its answer. | `stop` " in rows


def test_each_logger_of_the_sources_has_a_message() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "toolkit").rglob("*.py"))
    names = [name for name in logging.root.manager.loggerDict if name.startswith("toolkit")]
    named = {f"`{name}`" for name in names if f'getLogger("{name}")' in sources}
    rows = list_log_messages()
    assert named <= {logger for logger, *_ in rows}
    assert {level for _, level, _ in rows} <= {f"`{level.upper()}`" for level in LOG_LEVELS}


@pytest.mark.parametrize("write", [write_servers_table, write_capabilities_table], ids=lambda write: write.__name__)
def test_the_tables_of_the_providers_page_are_made_from_the_code(write: Callable[[], str]) -> None:
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    assert write().strip() in page
