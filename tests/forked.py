"""Processes forked from one that has imported what they need, so that none waits for imports again."""

import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

_ROOT = str(Path(__file__).parents[1])
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["pytest", "toolkit.testing", "toolkit.cli.run_commands", "toolkit.durable.worker", "tests.durable.desk"]
)


@dataclass(frozen=True)
class Finished:
    """A program that has ended, and all that it wrote."""

    returncode: int | None
    stdout: str
    stderr: str


def fork_process(work: Callable[..., int | None], *arguments: object, log: Path) -> ForkServerProcess:
    """Start a function of a module in a process of its own, in the folder of its log.

    Its standard error is appended to the log, and its standard output to a file beside that, ending in ``.out``.
    """
    with mock.patch.dict(os.environ, {"PYTHONPATH": _ROOT, "PYTHONHASHSEED": "0"}):
        forkserver.ensure_running()
    process = _context.Process(target=_run_in_folder, args=(log, work, *arguments))
    process.start()
    return process


def run_program(program: Path, folder: Path, environment: Mapping[str, str | None]) -> Finished:
    """Run a file of Python as the main program, to its end, with warnings as errors.

    Args:
        program: The file.
        folder: Where it runs.
        environment: Variables that are set, or removed where they are None.
    """
    log = folder / f"{program.stem}.log"
    process = fork_process(_run_program, str(program), dict(environment), log=log)
    process.join(120)
    return Finished(process.exitcode, log.with_suffix(".out").read_text(), log.read_text())


def _run_program(program: str, environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    warnings.simplefilter("error")
    sys.argv = [program]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


def _run_in_folder(log: Path, work: Callable[..., int | None], *arguments: object) -> None:
    os.chdir(log.parent)
    for number, path in ((1, log.with_suffix(".out")), (2, log)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8")
    sys.exit(work(*arguments))
