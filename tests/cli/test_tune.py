"""`toolkit tune`: words are chosen on one half, kept for what they do on the other, and written to a file alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from toolkit import ToolRegistry, tool
from toolkit.errors import UnknownToolNameError
from toolkit.evaluation import load_tool_words

Run = Callable[..., Ran]

# A model that calls a tool only where its description says "umbrella".
MODEL = '''
from toolkit import ProviderError, ToolCall, ToolResult
from toolkit.testing import FunctionProvider


def reply(request):
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return "18"
    for tool in request.tools or ():
        if "umbrella" in tool.description and "Hello" not in last.text:
            return ToolCall("call", tool.name, '{"city": "Paris"}')
    return "No."


model = FunctionProvider(reply)


def lucky(request):
    """Do better with other words on the training half alone."""
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return "18"
    [tool] = [tool for tool in request.tools if "weather" in tool.description.lower() or "umbrella" in tool.description]
    if "umbrella" in tool.description and "0" in last.text:
        return ToolCall("call", tool.name, '{"city": "Paris"}')
    return "No."


lucky = FunctionProvider(lucky)


def propose(request):
    return ToolCall("call", "final_answer", '{"answer": ["Say if an umbrella is good.", "", "x"]}')


proposer = FunctionProvider(propose)


def leave(request):
    raise ProviderError("it", "connection refused", is_retryable=True, retry_after=9999)


away = FunctionProvider(leave)
'''


def make_tasks(count: int = 24, words: str = "Is an umbrella good") -> str:
    call = "calls: [{get_weather: {city: Paris}}]"
    entries = [f"- {{prompt: '{words}, case {place % 2}{place}?', {call}}}" for place in range(count)]
    return "\n".join(["tasks:", *entries, "- {class: none, prompt: Hello there!, calls: []}"])


def evaluate(run: Run, *arguments: str) -> Ran:
    return run("eval", "some_tools.py", "--tasks", "tasks.yaml", "--model", "some_model.py:model", *arguments)


@pytest.fixture
def tasks(file: Path) -> Path:
    file.with_name("some_model.py").write_text(MODEL)
    path = file.with_name("tasks.yaml")
    path.write_text(make_tasks())
    return path


def tune(run: Run, *arguments: str, model: str = "model") -> Ran:
    return run("tune", "some_tools.py", "--tasks", "tasks.yaml", "--model", f"some_model.py:{model}", *arguments)


def test_words_that_win_on_the_held_out_half_are_written_and_the_sources_stay(
    run: Run, file: Path, tasks: Path
) -> None:
    source = file.read_text()
    ran = tune(run, "-o", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["is_kept"]
    assert document["held_out"]["interval"]["low"] > 0
    assert document["training"]["tasks"] + document["held_out"]["tasks"] == 25
    assert file.read_text() == source
    words = load_tool_words(tasks.with_name("words.yaml"))
    assert "umbrella" in words.descriptions["get_weather"]
    again = tune(run)
    assert "words.yaml is there already" in again.err


def test_words_in_the_file_are_used_by_eval_and_by_a_registry(run: Run, tasks: Path) -> None:
    path = tasks.with_name("words.yaml")
    path.write_text("words: {get_weather: {name: check_sky, description: Say if an umbrella is good.}}")
    ran = evaluate(run, "--words", "words.yaml", "-o", "json")
    assert json.loads(ran.out)["candidates"][0]["scores"]["all"]["solved"] == 25

    @tool
    def get_weather() -> str:
        """Get the weather."""
        return ""

    [definition] = load_tool_words(path).apply(ToolRegistry([get_weather])).definitions()
    assert (definition.name, definition.description) == ("check_sky", "Say if an umbrella is good.")
    with pytest.raises(UnknownToolNameError):
        load_tool_words(path).apply(ToolRegistry())


def test_words_that_win_by_chance_on_the_training_half_are_not_kept(run: Run, tasks: Path) -> None:
    tasks.write_text(make_tasks().replace("case 1", "case one"))
    ran = tune(run, model="lucky")
    assert ran.code == 0
    assert "they do not win by more than the interval" in ran.out
    assert not tasks.with_name("words.yaml").exists()


def test_a_model_may_propose_words_and_tries_are_bounded(run: Run, tasks: Path) -> None:
    ran = tune(run, "--propose-with", "some_model.py:proposer", "--tries", "40", "-o", "json")
    tried = [each["wording"] for each in json.loads(ran.out)["tried"]]
    rules = [wording["rule"] for wording in tried if wording["tool"] == "get_weather"]
    assert rules.count("proposed by the model") == 2
    tasks.with_name("words.yaml").unlink()
    assert len(json.loads(tune(run, "--tries", "2", "-o", "json").out)["tried"]) == 2


def test_no_word_does_better_where_nothing_can(run: Run, tasks: Path) -> None:
    ran = tune(run, model="away")
    assert ran.code == 1
    assert "the model was given up: it: connection refused" in ran.err


@pytest.mark.parametrize(("count", "words"), [(24, "What is the current weather"), (1, "Is an umbrella good"), (0, "")])
def test_without_paraphrases_for_both_halves_nothing_is_tuned(run: Run, tasks: Path, count: int, words: str) -> None:
    tasks.write_text(make_tasks(count, words))
    ran = tune(run)
    assert ran.code == 2
    assert "tuning takes two tasks or more that need a tool and share no word with any" in ran.err
    assert ("shares current, weather" in ran.err) == (count == 24)


def test_words_that_can_not_be_are_told(run: Run, tasks: Path) -> None:
    for text, told in [
        ("words: [", "can't be read"),
        ("words: {get_weather: {title: x}}", "title"),
        ("words: {get_wether: {name: x}}", "get_wether"),
        ("words: {get_weather: {name: 'a b'}}", "a b"),
        ("words: {get_weather: {name: tag}}", "tag"),
    ]:
        tasks.with_name("other.yaml").write_text(text)
        ran = evaluate(run, "--words", "other.yaml")
        assert (ran.code, told in ran.err) == (2, True), ran.err
