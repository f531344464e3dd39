"""The official test suite of JSON Schema, from the source distribution of `jsonschema`; it is never committed."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import SchemaError
from toolkit.schema.raw import find_problems
from toolkit.schema.raw_schema import RawSchema

VERSION = "4.26.0"
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
# Tests of a draft: how many there are, less those that need a document from the network.
COUNTS = {"draft4": 593, "draft6": 806, "draft7": 890, "draft2019-09": 1193, "draft2020-12": 1210}
FORMAT_COUNTS = {"draft4": 146, "draft6": 207, "draft7": 353, "draft2019-09": 401, "draft2020-12": 408}
# Of what no draft requires: these formats need tables of Unicode, or the letters of another language of patterns.
UNCHECKED_FORMATS = (
    "idn-email.json",
    "idn-hostname.json",
    "ecmascript-regex.json",
    "unknown.json",
    "format-assertion.json",
)


@dataclass(frozen=True)
class Group:
    """Some tests of one schema."""

    file: str
    about: str
    schema: Any
    tests: list[dict[str, Any]]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    subprocess.run(
        [
            *[sys.executable, "-m", "pip", "download", f"jsonschema=={VERSION}", "--no-deps"],
            *["--no-binary", "jsonschema", "--dest", str(folder), "--quiet"],
        ],
        check=True,
        timeout=300,
        capture_output=True,
    )
    with tarfile.open(folder / f"jsonschema-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"jsonschema-{VERSION}" / "json" / "tests"


def groups_in(folder: Path, uri: str) -> Iterator[Group]:
    for file in sorted(folder.glob("*.json")):
        for group in json.loads(file.read_text()):
            schema = group["schema"]
            if isinstance(schema, bool):
                schema = {"allOf": [schema]}
            yield Group(file.name, group["description"], {"$schema": uri, **schema}, group["tests"])


def verdicts(groups: Iterator[Group], *, formats: bool) -> tuple[Counter[str], list[str]]:
    """Return how many tests passed or need the network, and what failed."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for group in groups:
        if group.about.startswith("schema that uses custom metaschema"):
            counts["network"] += len(group.tests)
            continue
        try:
            checker = RawSchema(group.schema, subject="suite", formats=formats)
        except SchemaError as error:
            if "never fetched" not in str(error):
                raise
            counts["network"] += len(group.tests)
            continue
        for test in group.tests:
            if checker.is_valid(test["data"]) is test["valid"]:
                counts["passed"] += 1
                # Looking for all that is wrong finds something just where something is.
                assert bool(find_problems(checker, test["data"])) is not test["valid"]
            else:
                wrong.append(f"{group.file}: {group.about}: {test['description']}")
    return counts, wrong


@pytest.mark.full
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_required_test_of_the_draft_passes(draft: str, suite: Path) -> None:
    counts, wrong = verdicts(groups_in(suite / draft, DRAFTS[draft]), formats=False)
    print(draft, dict(counts))
    assert wrong == []
    assert counts["passed"] >= COUNTS[draft]


@pytest.mark.full
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_format_that_is_checked_passes_its_tests(draft: str, suite: Path) -> None:
    folder = suite / draft / "optional" / "format"
    groups = (group for group in groups_in(folder, DRAFTS[draft]) if group.file not in UNCHECKED_FORMATS)
    counts, wrong = verdicts(groups, formats=True)
    print(draft, dict(counts))
    assert wrong == []
    assert counts["passed"] >= FORMAT_COUNTS[draft]
