"""What is asked of a framework that is not there."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("from_langchain", "langchain_core", "langchain"),
        ("to_openai_agents", "agents", "openai-agents"),
        ("to_pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_framework_that_is_missing_is_named_with_its_extra(name: str, module: str, extra: str) -> None:
    code = f"import sys; sys.modules['{module}'] = None; import toolkit.interop; toolkit.interop.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"`pip install 'toolkit-sdk[{extra}]'`" in done.stderr


def test_nothing_of_them_is_loaded_unasked() -> None:
    code = "import sys, toolkit.interop; print({'langchain_core', 'agents', 'pydantic_ai'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
