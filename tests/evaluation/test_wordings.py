"""Other words for tools by rules, and the two halves of tasks."""

from collections import Counter
from pathlib import Path

import pytest

import evals.office
from toolkit.errors import ConfigurationError
from toolkit.evaluation import EvaluationTask, TaskCall, TaskSet, load_tasks, split_tasks, vary_words
from toolkit.evaluation.vocabulary import is_paraphrase, list_tool_words

TASKS = load_tasks(Path(evals.office.__file__).with_name("office.yaml"))
TOOLS = evals.office.registry


def test_wordings_of_a_tool_are_made_by_rules_and_none_is_its_own() -> None:
    definition = TOOLS.registrations["find_contact"].definition
    wordings = list(vary_words(definition, ["Where is Ana?", "Mail of Ben?"]))
    assert {wording.rule: wording.words.descriptions.get("find_contact", "") for wording in wordings} == {
        "with its parameters": "Find the email address of a person. Takes: name.",
        "as a purpose": "Use this whenever the user wants to find the email address of a person.",
        "with a request": 'Find the email address of a person. For example: "Where is Ana?"',
        "with two requests": 'Find the email address of a person. For example: "Where is Ana?" or "Mail of Ben?"',
        "a request alone": "Mail of Ben?",
        "a name out of the description": "",
    }
    assert wordings[-1].words.names == {"find_contact": "find_email_address"}


def test_both_halves_have_each_class_and_half_of_the_paraphrases() -> None:
    training, held_out = split_tasks(TASKS, TOOLS)
    assert {task.id for task in training.tasks} | {task.id for task in held_out.tasks} == {t.id for t in TASKS.tasks}
    assert not {task.id for task in training.tasks} & {task.id for task in held_out.tasks}
    words = list_tool_words(TOOLS)
    counts = [sum(is_paraphrase(task, words) for task in half.tasks) for half in (training, held_out)]
    assert max(counts) - min(counts) <= 1
    one, other = (Counter(task.kind for task in half.tasks) for half in (training, held_out))
    assert all(abs(one[kind] - other[kind]) <= 1 for kind in TASKS.kinds)


def test_tasks_without_paraphrases_are_not_split() -> None:
    call = TaskCall(tool="get_weather", arguments={"city": "Oslo"})
    tasks = tuple(
        EvaluationTask(id=str(place), kind="one", prompt=prompt, calls=(call,))
        for place, prompt in enumerate(["The weather in Oslo?", "Weathers of Oslo?", "Is Oslo cold?"])
    )
    with pytest.raises(ConfigurationError, match=r"there is 1: add paraphrases.*'The weather in Oslo\?' shares"):
        split_tasks(TaskSet(tasks=tasks), TOOLS)
