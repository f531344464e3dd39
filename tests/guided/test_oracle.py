"""Guided steps stand in the way of no right call: a model that makes no mistake solves each task."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import bench.models.office
from bench.models.__main__ import TOOLS
from tests.guided import free_tools, oracle_other_tools, oracle_tools
from tests.guided.oracle import run_with_oracle
from toolkit import ToolRegistry
from toolkit.evaluation import EvaluationTask, load_tasks

HERE, MEASURED = Path(__file__).parent, Path(bench.models.office.__file__).parent
SETS: dict[str, tuple[Path, ToolRegistry[Any]]] = {
    "office": (MEASURED / "office.yaml", TOOLS["office"]),
    "home": (MEASURED / "home.yaml", TOOLS["home"]),
    "home again": (HERE / "oracle_home_tasks.yaml", TOOLS["home"]),
    "various": (HERE / "oracle_tasks.yaml", oracle_tools.registry),
    "free": (HERE / "free_tasks.yaml", free_tools.registry),
    "other": (HERE / "oracle_other_tasks.yaml", oracle_other_tools.registry),
}
TASKS = {name: load_tasks(path) for name, (path, _) in SETS.items()}
CASES = [(name, task) for name, tasks in TASKS.items() for task in tasks.tasks]


@pytest.mark.parametrize("name", list(SETS))
def test_the_tasks_fit_the_tools(name: str) -> None:
    TASKS[name].check_tools(SETS[name][1])


@pytest.mark.parametrize(
    ("number", "name", "task"),
    [(number, *case) for number, case in enumerate(CASES)],
    ids=[f"{name} {task.id}" for name, task in CASES],
)
def test_a_perfect_model_solves_the_task_by_guided_steps(number: int, name: str, task: EvaluationTask) -> None:
    backend = ("asyncio", "trio")[number % 2]  # one of them for each task: both ways are the same but for the clock
    trial, oracle = anyio.run(_run, name, task, backend=backend)
    assert not trial.reason, (trial.reason, trial.calls, oracle.troubles)


async def _run(name: str, task: EvaluationTask) -> Any:
    runs_tools = name.split(maxsplit=1)[0] in TOOLS
    return await run_with_oracle(task, SETS[name][1], runs_tools=runs_tools, returns=TASKS[name].returns)
