"""The fixtures are there in every test where toolkit is installed, and cost the others nothing."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not any(point.value == "toolkit_pytest" for point in entry_points(group="pytest11")),
        reason="the pytest plugin is not installed: `python -m pip install -e '.[dev]'` installs it",
    ),
]

TESTS = """
import sys

import pytest

IS_LOADED = "toolkit" in sys.modules
pytestmark = pytest.mark.anyio


def test_toolkit_is_not_loaded_by_the_plugin():
    assert not IS_LOADED


async def test_a_script_is_played(scripted_provider, event_collector):
    from toolkit import ToolLoopConfig, ToolRegistry, tool_loop

    config = ToolLoopConfig(on_event=event_collector)
    result = await tool_loop(scripted_provider(["Hello."]), ToolRegistry([]), "Hi", config=config)
    assert event_collector.result.text == result.text == "Hello."


async def test_a_cassette_is_played(cassette):
    from toolkit import ChatRequest, UserMessage
    from toolkit.testing import ScriptedProvider

    provider = cassette(lambda: ScriptedProvider(["Recorded."]))
    assert (await provider.generate(ChatRequest(messages=[UserMessage("Hi")]))).text == "Recorded."


@pytest.mark.parametrize("said", ["a b", "a:b", "x" * 300])
class TestOther:
    async def test_a_cassette_is_played(self, cassette, said):
        from toolkit import ChatRequest, UserMessage
        from toolkit.testing import ScriptedProvider

        provider = cassette(lambda: ScriptedProvider([said]))
        assert (await provider.generate(ChatRequest(messages=[UserMessage("Hi")]))).text == said


def test_a_script_that_is_not_played_fails(scripted_provider):
    scripted_provider(["One.", "Two."])
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    """What pytest says with no other plugin than these: there may be many, and they take their time to load."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "anyio", "-p", "toolkit_pytest", *arguments, str(folder)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=120, env=environment
    ).stdout


def test_pytest_loads_the_plugin_by_itself(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("toolkit")


def test_the_fixtures_work_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("import pytest\nanyio_backend = pytest.fixture(lambda: 'asyncio')\n")
    unrecorded = run_pytest(tmp_path)
    assert "4 failed, 3 passed, 1 error" in unrecorded, unrecorded
    assert "--record-cassettes" in unrecorded
    assert "2 of the scripted replies were never asked for" in unrecorded
    assert "7 passed, 1 error" in run_pytest(tmp_path, "--record-cassettes")
    file = tmp_path / "cassettes" / "test_it" / "test_a_cassette_is_played.jsonl"
    recorded = file.read_bytes()
    assert b"Recorded." in recorded
    assert len(list(file.parent.iterdir())) == 4, "tests that share a name have a cassette each"
    played = run_pytest(tmp_path)
    assert "7 passed, 1 error" in played, played
    assert file.read_bytes() == recorded
