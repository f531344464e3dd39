"""What `import toolkit` gives, and what it does not load."""

import importlib
import inspect
import subprocess
import sys

import pytest

import toolkit

OPTIONAL = [
    "openai",
    "httpx",
    "httpx2",
    "xllamacpp",
    "mcp",
    "openapi_pydantic",
    "jsonschema",
    "jsonschema_rs",
    "orjson",
    "json_repair",
    "trio",
]
LATER = ["tenacity", "docstring_parser", "sqlite3", "pydantic", "yaml"]


DOORS = ["toolkit", "toolkit.chat", "toolkit.endings", "toolkit.errors", "toolkit.events", "toolkit.policies"]


def test_the_first_door_is_small() -> None:
    assert len(toolkit.__all__) <= 65, "reach it by its subject: " + ", ".join(DOORS[1:])


@pytest.mark.parametrize("door", DOORS)
def test_all_names_are_there_once(door: str) -> None:
    module = importlib.import_module(door)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("door", DOORS)
def test_every_public_class_and_function_says_what_it_is(door: str) -> None:
    module = importlib.import_module(door)
    public = {name: getattr(module, name) for name in module.__all__}
    silent = [
        name
        for name, value in public.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not (value.__doc__ or "").strip()
    ]
    assert silent == []


def test_importing_loads_nothing_that_is_optional_or_needed_later() -> None:
    code = f"import sys, toolkit; print([name for name in {OPTIONAL + LATER} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module",
    [
        "toolkit.builtin",
        "toolkit.providers",
        "toolkit.providers.anthropic",
        "toolkit.providers.google",
        "toolkit.providers.local",
        "toolkit.providers.openai",
        "toolkit.run_log",
        "toolkit.sources.openapi",
        "toolkit.testing",
        "toolkit.testing.conformance",
        "toolkit.testing.loopback",
        "toolkit.ui",
    ],
)
def test_edges_export_what_they_promise(module: str) -> None:
    edge = importlib.import_module(module)
    for name in edge.__all__:
        assert getattr(edge, name) is not None
