"""Responses that are made in the background: started once, polled or streamed, cancelled, and found again."""

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.providers.loopback import Answer, Hang, Server, serving
from tests.providers.vendor_cases import generate, hear, response_of
from toolkit import ChatRequest, ProviderError, TextDelta, ToolLoopConfig, ToolRegistry, UserMessage, tool, tool_loop
from toolkit.chat.provider import closing
from toolkit.endings import Cancelled, Complete, Timeout
from toolkit.errors import ProviderTimeoutError
from toolkit.loop.handle import ToolLoopHandle
from toolkit.providers.openai import OpenAIResponsesProvider, background

pytestmark = pytest.mark.anyio
Body = dict[str, Any]
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
TEXT: Body = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
CALL: Body = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}


@pytest.fixture(autouse=True)
def polls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "POLL_SECONDS", (0.0,))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def made(server: Server, started: dict[str, str] | bool = True, **settings: Any) -> OpenAIResponsesProvider:
    return OpenAIResponsesProvider("gpt-5", base_url=server.url, background=started, **settings)


def response(status: str, *output: Body, name: str = "resp_1") -> Answer:
    return Answer({"id": name, "status": status, "model": "m", "output": list(output)})


def events(*told: Body, start: int = 0) -> list[bytes]:
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(told, start)]
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in numbered]


def delta(text: str) -> Body:
    return {"type": "response.output_text.delta", "output_index": 0, "delta": text}


CREATED: Body = {"type": "response.created", "response": {"id": "resp_1", "status": "queued"}}
END: Body = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [TEXT]}}
TOLD = [CREATED, delta("Hel"), delta("lo."), END]


async def test_a_response_is_started_once_and_polled_until_it_is_done(server: Server) -> None:
    server.answers[:] = [response("queued"), response("in_progress"), response("completed", TEXT)]
    started: dict[str, str] = {}
    assert (await generate(made(server, started), REQUEST)).text == "Hello."
    assert server.paths == ["/v1/responses", "/v1/responses/resp_1", "/v1/responses/resp_1"]
    assert (server.requests[0]["background"], server.requests[0]["store"]) == (True, True)
    assert started == {}


async def test_options_ask_for_the_background_too(server: Server) -> None:
    server.answers[:] = [response("queued"), response("completed", TEXT)]
    request = ChatRequest(messages=REQUEST.messages, options={"background": True})
    provider = OpenAIResponsesProvider("gpt-5", base_url=server.url)
    assert (await generate(provider, request)).text == "Hello."
    assert len(server.paths) == 2


async def test_a_loop_runs_over_background_responses(server: Server) -> None:
    @tool
    def add(a: int) -> int:
        return a + 1

    server.answers[:] = [response("queued"), response("completed", CALL), response("queued", name="resp_2")]
    server.answers.append(response("completed", TEXT, name="resp_2"))
    async with made(server) as provider:
        result = await tool_loop(provider, ToolRegistry([add]), "Hi")
    assert (result.text, result.reason) == ("Hello.", Complete())
    assert [path.removeprefix("/v1/responses") for path in server.paths] == ["", "/resp_1", "", "/resp_2"]
    assert server.requests[2]["input"][-1]["output"] == "2"


@pytest.mark.parametrize("cut", range(1, len(TOLD)))
async def test_a_stream_goes_on_after_the_last_event_wherever_it_breaks_off(server: Server, cut: int) -> None:
    whole = events(*TOLD)
    server.answers[:] = [Answer(pieces=whole[:cut], is_cut=True), Answer(pieces=whole[cut:])]
    heard = await hear(made(server), REQUEST)
    assert response_of(heard).text == "Hello."
    assert "".join([event.text for event in heard if isinstance(event, TextDelta)]) == "Hello."
    assert server.paths[1:] == [f"/v1/responses/resp_1?stream=true&starting_after={cut - 1}"]


async def test_a_stream_that_brings_nothing_more_is_given_up(server: Server) -> None:
    server.answers[:] = [Answer(pieces=events(*TOLD[:2]), is_cut=True), Answer(pieces=[], is_cut=True)]
    started: dict[str, str] = {}
    with pytest.raises(ProviderError) as caught:
        await hear(made(server, started), REQUEST)
    assert caught.value.is_retryable
    assert len(server.paths) == 6
    assert list(started.values()) == ["resp_1"], "the next request goes on with it"


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_another_process_goes_on_with_what_was_started(server: Server, streams: bool) -> None:
    started: dict[str, str] = {}
    first = Answer(pieces=events(*TOLD[:2]), is_cut=True) if streams else response("queued")
    server.answers[:] = [first, Answer({"error": {"message": "busy"}}, status=503)]
    ask: Any = hear if streams else generate
    with pytest.raises(ProviderError):
        await ask(made(server, started), REQUEST)
    (key,) = started
    server.paths.clear()
    server.answers[:] = [Answer(pieces=events(*TOLD)) if streams else response("completed", TEXT)]
    answer = await ask(made(server, {key: "resp_1"}), REQUEST)
    assert (response_of(answer) if streams else answer).text == "Hello."
    assert server.paths == [f"/v1/responses/resp_1{'?stream=true' if streams else ''}"]


async def test_a_response_that_the_server_has_forgotten_is_started_anew(server: Server) -> None:
    started: dict[str, str] = {}
    server.answers[:] = [response("queued"), Answer({"error": {"message": "busy"}}, status=503)]
    with pytest.raises(ProviderError):
        await generate(made(server, started), REQUEST)
    server.paths.clear()
    server.answers[:] = [Answer({"error": {"message": "gone"}}, status=404), response("completed", TEXT)]
    assert (await generate(made(server, started), REQUEST)).text == "Hello."
    assert server.paths == ["/v1/responses/resp_1", "/v1/responses"]
    assert started == {}


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_a_run_that_is_cancelled_cancels_the_response(server: Server, streams: bool) -> None:
    first = Hang(events(*TOLD[:2])) if streams else response("queued")
    waiting = first if isinstance(first, Hang) else Hang()
    server.answers[:] = [first] if streams else [first, waiting]
    server.answers.append(response("cancelled"))
    config = ToolLoopConfig[Any](stream=streams)
    async with made(server) as provider, anyio.create_task_group() as group:
        handle = ToolLoopHandle(provider, ToolRegistry(), "Hi", config=config)

        async def cancel() -> None:
            await anyio.to_thread.run_sync(waiting.has_come.wait)
            handle.cancel()

        group.start_soon(cancel)
        assert isinstance((await handle.run()).reason, Cancelled)
    assert server.paths[-1] == "/v1/responses/resp_1/cancel"


async def test_the_time_of_the_loop_bounds_the_response(server: Server) -> None:
    server.answers[:] = [response("queued"), Hang(), response("cancelled")]
    async with made(server) as provider:
        result = await tool_loop(provider, ToolRegistry(), "Hi", config=ToolLoopConfig(timeout=2))
    assert isinstance(result.reason, Timeout)
    assert server.paths[-1] == "/v1/responses/resp_1/cancel"


async def test_the_time_of_a_request_bounds_the_response(server: Server) -> None:
    server.answers[:] = [response("queued"), Hang(), response("cancelled")]
    with pytest.raises(ProviderTimeoutError):
        await generate(made(server), ChatRequest(messages=REQUEST.messages, timeout=2))
    assert server.paths[-1] == "/v1/responses/resp_1/cancel"


async def test_who_leaves_a_stream_cancels_the_response(server: Server) -> None:
    server.answers[:] = [Hang(events(*TOLD[:2])), response("cancelled")]
    async with made(server) as provider, closing(provider.stream(REQUEST)) as heard:
        assert isinstance(await anext(heard), TextDelta)
        await heard.aclose()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        assert server.paths[-1] == "/v1/responses/resp_1/cancel"


async def test_a_response_that_failed_is_an_error(server: Server) -> None:
    failed = {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "It broke."}}
    server.answers[:] = [response("queued"), Answer({**failed, "output": []})]
    started: dict[str, str] = {}
    with pytest.raises(ProviderError, match=r"It broke\."):
        await generate(made(server, started), REQUEST)
    assert started == {}


async def test_equal_requests_at_one_time_are_two_responses(server: Server) -> None:
    server.answers[:] = [Hang(events(*TOLD[:2])), Answer(pieces=events(*TOLD)), response("cancelled")]
    async with made(server) as provider, closing(provider.stream(REQUEST)) as first:
        await anext(first)
        async with closing(provider.stream(REQUEST)) as second:
            assert response_of([event async for event in second]).text == "Hello."
    assert server.paths == ["/v1/responses"] * 2 + ["/v1/responses/resp_1/cancel"]


PROGRAM = """
import asyncio, shelve, sys
from toolkit import TextDelta, ToolLoopConfig, ToolRegistry, tool_loop
from toolkit.providers.openai import OpenAIResponsesProvider, background

async def main(url, path, streams):
    background.POLL_SECONDS = (0.0,)
    with shelve.open(path) as started:
        provider = OpenAIResponsesProvider("gpt-5", base_url=url, background=started)
        config = ToolLoopConfig(stream=streams == "True", on_event=tell)
        async with provider:
            print((await tool_loop(provider, ToolRegistry(), "Hi", config=config)).text)

def tell(event):
    if isinstance(event, TextDelta):
        print(event.text, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def asking(server: Server, started: Path, streams: bool) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, server.url, str(started), str(streams)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.real
@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
def test_a_program_that_was_killed_goes_on_with_its_response(server: Server, tmp_path: Path, streams: bool) -> None:
    waiting = Hang(events(*TOLD[:2]) if streams else [])
    server.answers[:] = [waiting] if streams else [response("queued"), response("in_progress"), waiting]
    with asking(server, tmp_path / "started", streams) as process:
        assert process.stdout is not None
        if streams:
            assert process.stdout.readline() == "Hel\n"
        assert waiting.has_come.wait(120)
        process.kill()
    assert process.returncode == -9
    assert waiting.has_left.wait(120)
    server.paths.clear()
    server.answers[:] = [Answer(pieces=events(*TOLD)) if streams else response("completed", TEXT)]
    with asking(server, tmp_path / "started", streams) as process:
        printed, _ = process.communicate(timeout=120)
    assert printed.splitlines()[-1] == "Hello."
    assert server.paths == [f"/v1/responses/resp_1{'?stream=true' if streams else ''}"], "nothing was started anew"
    server.paths.clear()
    with asking(server, tmp_path / "started", streams) as process:
        process.communicate(timeout=120)
    assert server.paths == ["/v1/responses"], "a response that is done is forgotten"
