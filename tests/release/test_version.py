"""The version stands in `pyproject.toml` alone; all else asks what is installed."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_package_asks_what_is_installed_for_its_version() -> None:
    literal = re.compile(rf"""["']{re.escape(PROJECT["version"])}["']""")
    modules = sorted((ROOT / "toolkit").rglob("*.py"))
    assert [path.name for path in modules if literal.search(path.read_text(encoding="utf-8"))] == []


def test_what_is_installed_is_of_this_version() -> None:
    assert version(PROJECT["name"]) == PROJECT["version"], "install it again: pip install -e '.[dev]'"


def test_the_metadata_say_what_a_user_asks_first() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert PROJECT["license"] == "MIT"
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert len(PROJECT["description"]) <= 120
    assert {"keywords", "readme", "license-files"} <= set(PROJECT)
