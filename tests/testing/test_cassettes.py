"""What was recorded is played again, byte for byte, and nothing else is."""

import json
import multiprocessing
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Message,
    Provider,
    ProviderError,
    TextDelta,
    ToolCall,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.chat import (
    ChatResponse,
    ImageBlock,
    ReasoningBlock,
    ResponseDone,
    StreamEvent,
    TextBlock,
    ToolDefinition,
    dump_messages,
)
from toolkit.chat.provider import closing
from toolkit.errors import BadResponseError, RateLimitedError
from toolkit.testing import (
    EventCollector,
    FunctionProvider,
    Matching,
    RecordingProvider,
    ReplayProvider,
    ScriptedProvider,
    check_transcript,
)

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
SECRET = "hunter2-hunter2"
ANSWER = ChatResponse(
    message=AssistantMessage(
        [ReasoningBlock(text="Hm.", signature="s=="), TextBlock("Grüße\u2028\n"), ImageBlock(b"\xff")]
    ),
    model="m",
    metadata={"id": "x"},
)
both_ways = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "one.jsonl"


def written(path: Path) -> str:
    return path.read_bytes().decode()


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def run(provider: Provider, *, streams: bool) -> tuple[str, list[Any]]:
    """A loop, as the bytes of its transcript and what was streamed."""
    registry = ToolRegistry([add])
    if not streams:
        result = await tool_loop(provider, registry, "What is 1 plus 2?")
        return dump_messages(result.messages), []
    events = EventCollector()
    async with tool_loop_stream(provider, registry, "What is 1 plus 2?") as heard:
        async for event in heard:
            events(event)
    check_transcript(events.result.messages, events.events)
    return dump_messages(events.result.messages), events.of(TextDelta)


async def listen(provider: Provider, request: ChatRequest = REQUEST) -> list[StreamEvent]:
    stream = provider.stream(request)
    return [event async for event in stream]


def script() -> ScriptedProvider:
    return ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "The sum is 3."])


@both_ways
async def test_a_run_is_played_again_byte_for_byte(path: Path, streams: bool) -> None:
    recorded = await run(RecordingProvider(script(), path), streams=streams)
    before = written(path)
    for _ in range(2):
        replay = ReplayProvider(path)
        assert replay.unplayed == 2
        assert await run(replay, streams=streams) == recorded
        assert replay.unplayed == 0
    assert written(path) == before


@both_ways
async def test_all_that_an_answer_says_comes_back(path: Path, streams: bool) -> None:
    recording = RecordingProvider(ScriptedProvider([ANSWER]), path)
    if streams:
        heard = await listen(recording)
        assert await listen(ReplayProvider(path)) == heard
        assert heard[-1] == ResponseDone(ANSWER)
    else:
        assert await recording.generate(REQUEST) == ANSWER
        assert await ReplayProvider(path).generate(REQUEST) == ANSWER


ERRORS = [
    RateLimitedError("p", "slow down", status=429, retry_after=1.5, request_id="r"),
    BadResponseError("p", "nonsense", is_retryable=True),
    ProviderError("p", "down"),
]


@both_ways
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_errors_are_recorded_with_their_facts(path: Path, error: ProviderError, streams: bool) -> None:
    async def speak(request: ChatRequest) -> AsyncGenerator[str]:
        yield "Hel"
        raise error

    provider = FunctionProvider(speak) if streams else ScriptedProvider([error])
    caught: list[ProviderError] = []

    async def fail(source: Provider) -> None:
        heard: list[StreamEvent] = []
        with pytest.raises(ProviderError) as raised:
            if streams:
                async with closing(source.stream(REQUEST)) as events:
                    async for event in events:
                        heard.append(event)
            else:
                await source.generate(REQUEST)
        assert heard == ([TextDelta("Hel")] if streams else [])
        caught.append(raised.value)

    await fail(RecordingProvider(provider, path))
    await fail(ReplayProvider(path))
    assert type(caught[1]) is type(error)
    names = ("provider", "message", "status", "retry_after", "is_retryable", "request_id")
    assert [getattr(caught[1], name) for name in names] == [getattr(error, name) for name in names]
    assert str(caught[1]) == str(error)


async def test_an_error_of_a_class_of_ones_own_comes_back_as_the_one_it_stands_for(path: Path) -> None:
    class QuotaError(RateLimitedError):
        pass

    with pytest.raises(QuotaError):
        await RecordingProvider(ScriptedProvider([QuotaError("p", "no money")]), path).generate(REQUEST)
    with pytest.raises(RateLimitedError, match="no money"):
        await ReplayProvider(path).generate(REQUEST)


async def test_a_stream_that_was_left_is_played_as_far_as_it_was_heard(path: Path) -> None:
    recording = RecordingProvider(ScriptedProvider(["One two three."]), path)
    async with aclosing(recording.stream(REQUEST)) as events:
        assert await anext(events) == TextDelta("One")
    heard: list[StreamEvent] = []
    with pytest.raises(ConfigurationError, match=r"line 2: the recording ends here"):
        async with aclosing(ReplayProvider(path).stream(REQUEST)) as events:
            async for event in events:
                heard.append(event)
    assert heard == [TextDelta("One")]


async def test_a_cancelled_request_leaves_no_trace(path: Path) -> None:
    async def never(request: ChatRequest) -> str:
        await anyio.sleep_forever()
        return ""

    recording = RecordingProvider(FunctionProvider(never), path)
    with anyio.move_on_after(0.01):
        await recording.generate(REQUEST)
    assert written(path) == ""


async def test_secrets_are_in_no_cassette_and_change_no_match(path: Path) -> None:
    options = {"extra_headers": {"x-api-key": SECRET + "1"}, "user": "ada"}
    request = ChatRequest(messages=[UserMessage(f"My word is {SECRET}.")], options=options)
    error = ProviderError("p", f"no {SECRET}")
    recording = RecordingProvider(ScriptedProvider([f"It is {SECRET}.", error]), path, secrets=[SECRET])
    assert (await recording.generate(request)).text == f"It is {SECRET}."
    with pytest.raises(ProviderError):
        await recording.generate(REQUEST)
    assert SECRET not in written(path)
    assert '"user":"ada"' in written(path)
    replay = ReplayProvider(path, secrets=[SECRET])
    other_key = {"extra_headers": {"x-api-key": "another"}, "user": "ada"}
    assert (await replay.generate(replace(request, options=other_key))).text == "It is ***."


async def test_secrets_are_in_no_stream_however_it_is_cut(path: Path) -> None:
    async def spell(request: ChatRequest) -> AsyncGenerator[str]:
        for letter in f"It is {SECRET}.":
            yield letter

    recording = RecordingProvider(FunctionProvider(spell), path, secrets=[SECRET])
    assert len(await listen(recording)) == len(f"It is {SECRET}.") + 1
    replayed = await listen(ReplayProvider(path, secrets=[SECRET]))
    assert replayed[0] == TextDelta("It is ***.")
    assert len(replayed) == 2


CALLED: tuple[Message, ...] = (
    UserMessage("Add."),
    AssistantMessage([ReasoningBlock(text="Hm."), ToolCall("1", "add", '{"a": 1, "b": 2}')]),
    ToolResult("1", "3", tool_name="add"),
)
TOOL = ToolDefinition(name="add", description="Add.", parameters={"type": "object"})
ASKED = ChatRequest(messages=CALLED, tools=[TOOL], temperature=0)


@dataclass(frozen=True)
class Other:
    """Another request, and who takes it for the recorded one."""

    name: str
    request: ChatRequest
    strict: bool
    lenient: bool


OTHERS = [
    Other("the same", ASKED, strict=True, lenient=True),
    Other("a timeout", replace(ASKED, timeout=3), strict=True, lenient=True),
    Other("a list", replace(ASKED, messages=list(CALLED), tools=(TOOL,)), strict=True, lenient=True),
    Other("temperature", replace(ASKED, temperature=1), strict=False, lenient=True),
    Other("tools", replace(ASKED, tools=[replace(TOOL, description="Sum.")]), strict=False, lenient=True),
    Other(
        "ids, reasoning and blanks",
        replace(
            ASKED,
            messages=(
                CALLED[0],
                AssistantMessage([ToolCall("x", "add", '{"b":2,"a":1}')]),
                ToolResult("x", (TextBlock("3"),), tool_name="add"),
            ),
        ),
        strict=False,
        lenient=True,
    ),
    Other("a text", replace(ASKED, messages=(UserMessage("Sum."), *CALLED[1:])), strict=False, lenient=False),
    Other("a result", replace(ASKED, messages=(*CALLED[:2], ToolResult("1", "4"))), strict=False, lenient=False),
    Other(
        "arguments",
        replace(ASKED, messages=(CALLED[0], AssistantMessage([ToolCall("1", "add", '{"a": 1}')]), CALLED[2])),
        strict=False,
        lenient=False,
    ),
    Other("more", replace(ASKED, messages=(*CALLED, UserMessage("And?"))), strict=False, lenient=False),
]


def test_matching_is_strict_or_lenient(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="matching must be 'strict' or 'lenient', not 'loose'"):
        ReplayProvider(path, matching="loose")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("matching", ["strict", "lenient"])
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.name)
async def test_what_counts_as_the_same_request(path: Path, other: Other, matching: Matching) -> None:
    await RecordingProvider(ScriptedProvider(["Three."]), path).generate(ASKED)
    replay = ReplayProvider(path, matching=matching)
    if other.strict if matching == "strict" else other.lenient:
        assert (await replay.generate(other.request)).text == "Three."
    else:
        with pytest.raises(ConfigurationError, match="was not recorded"):
            await replay.generate(other.request)


@pytest.mark.parametrize("seen", [b"\x00", b"\x01"], ids=["the same", "another"])
async def test_lenient_looks_at_images_and_at_calls_that_are_no_json(path: Path, seen: bytes) -> None:
    shown = UserMessage((TextBlock("Look."), ImageBlock(b"\x00")))
    called = AssistantMessage([ToolCall("1", "see", "{oops")])
    await RecordingProvider(ScriptedProvider(["Nice."]), path).generate(ChatRequest(messages=[shown, called]))
    replay = ReplayProvider(path, matching="lenient")
    asked = ChatRequest(messages=[UserMessage((TextBlock("Look."), ImageBlock(seen))), called])
    if seen == b"\x00":
        assert (await replay.generate(asked)).text == "Nice."
    else:
        with pytest.raises(ConfigurationError, match=r'-\s*"data": "AA==",\n\+\s*"data": "AQ==",'):
            await replay.generate(asked)


def test_providers_of_cassettes_name_their_file(path: Path) -> None:
    recording = RecordingProvider(ScriptedProvider([]), path, secrets=[SECRET])
    replay = ReplayProvider(path, secrets=[SECRET])
    assert str(path) in repr(recording)
    assert repr(replay) == f"ReplayProvider('{path}', matching='strict')"
    assert SECRET not in repr(recording) + repr(replay)


async def test_strict_takes_the_way_of_asking_too_and_plays_each_once(path: Path) -> None:
    recording = RecordingProvider(ScriptedProvider(["One.", "Two."]), path)
    await recording.generate(REQUEST)
    await recording.generate(REQUEST)
    replay = ReplayProvider(path)
    with pytest.raises(ConfigurationError, match=r'-\s*"method": "generate",\n\+\s*"method": "stream",'):
        await listen(replay)
    assert [(await replay.generate(REQUEST)).text for _ in range(2)] == ["One.", "Two."]
    with pytest.raises(ConfigurationError, match="all 2 exchanges are played"):
        await replay.generate(REQUEST)


async def test_lenient_streams_what_was_generated_and_plays_the_last_again(path: Path) -> None:
    recording = RecordingProvider(ScriptedProvider(["One.", "Two."]), path)
    await recording.generate(REQUEST)
    await listen(recording)
    replay = ReplayProvider(path, matching="lenient")
    assert (await listen(replay))[0] == TextDelta("One.")
    assert [(await replay.generate(REQUEST)).text for _ in range(2)] == ["Two.", "Two."]


async def test_a_mismatch_shows_where_the_request_differs(path: Path) -> None:
    await RecordingProvider(ScriptedProvider(["Three."]), path).generate(ASKED)
    with pytest.raises(ConfigurationError) as caught:
        await ReplayProvider(path).generate(replace(ASKED, temperature=0.5))
    text = str(caught.value)
    assert text.startswith(f"{path}: this request was not recorded, or has been played already; record anew")
    assert "--- recorded, line 2\n+++ asked now\n" in text
    assert re.search(r'\n- +"temperature": 0\.0,\n\+ +"temperature": 0\.5,\n', text)
    assert "Add." not in text, "only what differs, with a little around it"


async def test_a_long_difference_is_cut(path: Path) -> None:
    await RecordingProvider(ScriptedProvider(["Three."]), path).generate(ASKED)
    many = [UserMessage(str(number)) for number in range(500)]
    with pytest.raises(ConfigurationError, match=r"\.\.\. and \d+ lines more$") as caught:
        await ReplayProvider(path).generate(ChatRequest(messages=many))
    assert len(str(caught.value).splitlines()) < 70


async def test_requests_side_by_side_are_matched_by_what_they_ask(path: Path) -> None:
    async def echo(request: ChatRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return f"You said {request.messages[-1].text}."

    texts = [str(number) for number in range(20)]

    async def ask_all(provider: Provider) -> dict[str, str]:
        answers: dict[str, str] = {}

        async def ask(text: str) -> None:
            answers[text] = (await provider.generate(ChatRequest(messages=[UserMessage(text)]))).text

        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(ask, text)
        return answers

    recorded = await ask_all(RecordingProvider(FunctionProvider(echo), path))
    assert await ask_all(ReplayProvider(path)) == recorded == {text: f"You said {text}." for text in texts}


def record_many(path: Path, name: str) -> None:
    async def record() -> None:
        recording = RecordingProvider(ScriptedProvider(["x" * 20_000], repeats=True), path)
        for number in range(20):
            await recording.generate(ChatRequest(messages=[UserMessage(f"{name} {number}")]))

    anyio.run(record)


def test_processes_may_write_one_cassette(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=record_many, args=(path, name)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert ReplayProvider(path).unplayed == 40


BROKEN = {
    "nothing there": (None, "there is no cassette at .*record one with RecordingProvider"),
    "no JSON": (b"hello\n", "line 1: not what a cassette has there"),
    "nested deeply": (b'{"cassette":1}\n{"request": ' + b"[" * 100_000 + b"\n", "line 2: not what a cassette has"),
    "a number for a message": (b'{"cassette":1}\n{"left": true, "request": {"messages": [1]}}\n', "line 2: not what"),
    "a number for a request": (b'{"cassette":1}\n{"left": true, "request": 1}\n', "line 2: not what"),
    "another version": (b'{"cassette":2}\n', r"line 1: .*must be \{\"cassette\": 1\}"),
    "another file": (b'{"name":"x"}\n', "line 1: .*first line must be"),
    "cut off": (b'{"cassette":1}\n{"requ', "line 2: the line is cut off"),
    "no exchange": (b'{"cassette":1}\n[]\n', "line 2: .*an exchange is an object"),
    "no request": (b'{"cassette":1}\n{"response":{}}\n', "line 2: .*'request'"),
    "no outcome": (b'{"cassette":1}\n{"request":{"messages":[]}}\n', "line 2: .*has a response, events"),
    "no such error": (
        b'{"cassette":1}\n{"request":{"messages":[]},"error":{"type":"OSError"}}\n',
        "line 2: .*OSError is no error of a provider",
    ),
    "no UTF-8": (b"\xff\n", "can't be read"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_cassette_says_where(tmp_path: Path, broken: str) -> None:
    content, says = BROKEN[broken]
    file = tmp_path / "broken.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        ReplayProvider(file)
    if content is not None:
        with pytest.raises(ConfigurationError, match=says):
            RecordingProvider(ScriptedProvider([]), file)
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("exchange", "says"),
    [
        ('{"request":{"messages":[]},"events":[{"a":1}]}', "line 2: .*no event"),
        ('{"request":{"messages":[]},"events":[{"text":"a"}]}', "line 2: .*events end with a response"),
    ],
)
async def test_what_is_no_answer_says_where_when_it_is_asked_for(tmp_path: Path, exchange: str, says: str) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"cassette":1}\n' + exchange + "\n")
    with pytest.raises(ConfigurationError, match=says):
        await ReplayProvider(file, matching="lenient").generate(ChatRequest(messages=[]))


def test_a_cassette_that_cannot_be_written_is_told_before_a_model_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be written"):
        RecordingProvider(ScriptedProvider([]), tmp_path)


async def test_an_existing_cassette_is_added_to(path: Path) -> None:
    await RecordingProvider(ScriptedProvider(["One."]), path).generate(REQUEST)
    await RecordingProvider(ScriptedProvider(["Two."]), path).generate(REQUEST)
    lines = written(path).splitlines()
    assert json.loads(lines[0]) == {"cassette": 1}
    assert len(lines) == 3


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from toolkit import ConfigurationError
from toolkit.testing.cassettes import append_exchange, prepare_file, read_exchanges

path = Path(sys.argv[1])
prepare_file(path)
exchange = {"request": {"messages": []}, "left": True}
append_exchange(path, exchange)
before = path.read_bytes()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    append_exchange(path, {**exchange, "filling": "x" * 2000})
except ConfigurationError as error:
    print(str(error).partition(": ")[2], path.read_bytes() == before, len(read_exchanges(path)), sep=", ")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files; run it on Linux or macOS")
def test_a_disk_that_is_full_leaves_no_half_of_a_line(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large, True, 1\n"
