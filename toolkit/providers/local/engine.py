"""The program of the engine's own process: loads the model, serves it on loopback, dies with its parent.

Run as a file, it imports nothing of this library. It reads one line of JSON from its standard input (what to load),
writes one line of JSON to its standard output (where it listens, or what went wrong), and ends as soon as its
standard input closes, which also happens when the parent is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib import import_module
from typing import Any


def run_engine() -> None:
    """Serve until the standard input closes."""
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the engine prints must not look like a report
    settings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        server = _serve_model(settings)
    except Exception as error:  # noqa: BLE001 - the parent reports it to the user
        answer = {"error": f"{type(error).__name__}: {error}"}
    else:
        answer = {"url": server.listening_address}
    report.write(json.dumps(answer) + "\n")
    report.close()
    if "url" in answer:
        threading.Event().wait()


def _serve_model(settings: dict[str, Any]) -> Any:
    xllamacpp: Any = import_module("xllamacpp")  # here, because its failure is one of those that are reported
    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["model"]
    parameters.n_ctx = settings["context_size"]
    parameters.port = 0  # the system picks a free one, so none can be in use
    parameters.api_keys = [settings["key"]]
    parameters.n_parallel = 1
    parameters.verbosity = 1
    if settings["threads"] is not None:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = settings["threads"]
    return xllamacpp.Server(parameters)


def _end_with_the_parent() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    run_engine()
