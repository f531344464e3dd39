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


def test_all_names_are_there_once_and_sorted() -> None:
    assert sorted(set(toolkit.__all__)) == toolkit.__all__
    for name in toolkit.__all__:
        assert getattr(toolkit, name) is not None


def test_every_public_class_and_function_says_what_it_is() -> None:
    public = {name: getattr(toolkit, name) for name in toolkit.__all__}
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
        "toolkit.sources.openapi",
        "toolkit.testing",
        "toolkit.testing.conformance",
        "toolkit.testing.loopback",
    ],
)
def test_edges_export_what_they_promise(module: str) -> None:
    edge = importlib.import_module(module)
    for name in edge.__all__:
        assert getattr(edge, name) is not None
