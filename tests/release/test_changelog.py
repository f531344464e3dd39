"""The changelog has the form of Keep a Changelog, and agrees with the version of the project."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"
GROUPS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
RELEASE = re.compile(r"(?P<version>\d+\.\d+\.\d+) - (?P<day>\d{4}-\d{2}-\d{2})")


def find_faults(text: str, project_version: str) -> list[str]:
    """Return what is wrong with the form of a changelog; a text of a few lines is enough to try a rule."""
    lines = text.splitlines()
    faults = [] if lines[:1] == ["# Changelog"] else ["its title is not '# Changelog'"]
    if "keepachangelog.com" not in text or "semantic versioning" not in text:
        faults.append("it does not name Keep a Changelog and semantic versioning")
    titles = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    if titles[:1] != ["Unreleased"]:
        faults.append("its first section is not 'Unreleased'")
    faults += [f"'{title}' is not 'X.Y.Z - YYYY-MM-DD'" for title in titles[1:] if not is_release(title)]
    versions = [read_version(title) for title in titles[1:] if is_release(title)]
    if versions != sorted(set(versions), reverse=True):
        faults.append("its releases are not in order, the newest first, each once")
    if versions and versions[0] > tuple(map(int, project_version.split("."))):
        faults.append(f"its newest release is newer than the project, {project_version}")
    return faults + [fault for section in text.split("\n## ")[1:] for fault in find_section_faults(section)]


def find_section_faults(section: str) -> list[str]:
    title = section.splitlines()[0]
    groups = re.findall(r"^### (.*)$", section, re.MULTILINE)
    faults = [f"{title}: '{group}' is no group" for group in groups if group not in GROUPS]
    known = [group for group in groups if group in GROUPS]
    if known != sorted(set(known), key=GROUPS.index):
        faults.append(f"{title}: its groups are not {', '.join(GROUPS)}, in this order, each once")
    head, *bodies = section.split("\n### ")
    if "\n- " in head:
        faults.append(f"{title}: an entry stands in no group")
    for body in bodies:
        group, *lines = body.splitlines()
        if not any(line.startswith("- ") for line in lines):
            faults.append(f"{title}: {group} is empty")
        faults += [f"{title}: {line!r} is no entry" for line in lines if line and not line.startswith(("- ", "  "))]
    return faults


def is_release(title: str) -> bool:
    match = RELEASE.fullmatch(title)
    if match is None:
        return False
    try:
        date.fromisoformat(match["day"])
    except ValueError:
        return False
    return True


def read_version(title: str) -> tuple[int, ...]:
    return tuple(map(int, title.partition(" ")[0].split(".")))


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert find_faults(CHANGELOG.read_text(), version) == []


HEAD = "# Changelog\n\nAs keepachangelog.com has it, with semantic versioning.\n"
UNRELEASED = "\n## Unreleased\n\n### Added\n\n- A thing,\n  over two lines.\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (HEAD + UNRELEASED + "\n## 1.0.0 - 2026-02-30\n\n### Fixed\n\n- A bug.\n", "is not 'X.Y.Z - YYYY-MM-DD'"),
        (HEAD + UNRELEASED + "\n## 9.0.0 - 2026-01-02\n\n### Fixed\n\n- A bug.\n", "newer than the project"),
        (HEAD + UNRELEASED + "\n## 0.1.0 - 2026-01-02\n\n## 0.2.0 - 2026-01-03\n", "not in order"),
        (HEAD + "\n## 0.1.0 - 2026-01-02\n", "first section"),
        (HEAD + UNRELEASED + "\n### Added\n\n- Another.\n", "each once"),
        (HEAD + UNRELEASED + "\n### Fixed\n", "is empty"),
        (HEAD + UNRELEASED + "\n### Bugs\n\n- One.\n", "is no group"),
        (HEAD + "\n## Unreleased\n\n- A thing.\n", "stands in no group"),
        (HEAD + UNRELEASED + "a line\n", "is no entry"),
        ("# News\n" + HEAD + UNRELEASED, "title"),
    ],
)
def test_a_changelog_of_another_form_is_refused(text: str, fault: str) -> None:
    assert any(fault in found for found in find_faults(text, "1.0.0"))


def test_a_changelog_with_releases_is_accepted() -> None:
    releases = "\n## 0.2.0 - 2026-01-03\n\n### Fixed\n\n- A bug.\n\n## 0.1.0 - 2026-01-02\n\n### Added\n\n- All.\n"
    assert find_faults(HEAD + UNRELEASED + releases, "0.2.0") == []
