"""Processes forked from one that has imported what they need, so that none waits for imports again."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

_ROOT = str(Path(__file__).parents[2])
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["pytest", "toolkit.cli.run_commands", "tests.durable.desk", "toolkit.durable.worker"])


def fork_process(work: Callable[..., int | None], *arguments: object, log: Path) -> ForkServerProcess:
    """Start a function of a module in a process of its own, in the folder of its log.

    Its standard error is appended to the log, and its standard output to a file beside that, ending in ``.out``.
    """
    with mock.patch.dict(os.environ, {"PYTHONPATH": _ROOT}):
        forkserver.ensure_running()
    process = _context.Process(target=_run_in_folder, args=(log, work, *arguments))
    process.start()
    return process


def _run_in_folder(log: Path, work: Callable[..., int | None], *arguments: object) -> None:
    os.chdir(log.parent)
    for number, path in ((1, log.with_suffix(".out")), (2, log)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8")
    sys.exit(work(*arguments))
