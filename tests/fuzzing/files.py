"""What reads files that anybody may have written: YAML, cassettes, snapshots."""

import json
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fuzzing.harness import Target, bend, hold_loop

__all__ = ["TARGETS"]


def yaml_target() -> Callable[[bytes], None]:
    load = import_module("toolkit.checked_yaml").load_yaml
    config = import_module("toolkit.tool_config")
    errors = import_module("toolkit.errors")
    yaml_error = import_module("yaml").YAMLError
    file = Path(tempfile.mkdtemp()) / "tools.yaml"

    def test(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        with suppress(ValueError, yaml_error):
            hold_loop(lambda: load(text, most_parts=1_000))
        file.write_bytes(data)
        with suppress(errors.ConfigurationError):
            hold_loop(lambda: config.load_tools(file, environment={"NAME": "value"}))

    return test


_YAML = (
    b"tools:\n  preset: readonly\n  work_dir: a\n  plugins:\n    - {path: a, args: [b], env: {A: b}, prefix: x}\n",
    b"a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b]\n",
    b"base: &base {a: 1}\nother:\n  <<: [*base, {b: 2}]\n  c: !!set {x, y}\n",
    b"tools: ${NAME:-none}\nday: 2026-01-31\nnumber: 0x1F\nbig: 1_000:59\nnothing: ~\n--- \n...\n",
    b"- ? [a, b]\n  : |-\n    text\n- !!binary aGk=\n- !!python/object:os.system {}\n- !!omap [a: 1]\n",
)


def cassette_target() -> Callable[[bytes], None]:
    cassettes = import_module("toolkit.testing.cassettes")
    error = import_module("toolkit.errors").ConfigurationError
    file = Path(tempfile.mkdtemp()) / "cassette.jsonl"

    def test(data: bytes) -> None:
        for content in (data, b'{"cassette": 1}\n' + data):
            file.write_bytes(content)
            with suppress(error):
                for exchange in hold_loop(lambda: cassettes.read_exchanges(file)):
                    assert exchange.answer is exchange.answer

    return test


def _cassettes() -> list[bytes]:
    toolkit = import_module("toolkit")
    testing = import_module("toolkit.testing")
    anyio = import_module("anyio")
    file = Path(tempfile.mkdtemp()) / "recorded.jsonl"
    blocks = [
        toolkit.chat.ReasoningBlock(text="Hm.", signature="c2VhbA=="),
        toolkit.chat.TextBlock("Hello"),
        toolkit.ToolCall("1", "add", '{"a": 1}'),
        toolkit.chat.ImageBlock(b"x"),
    ]

    async def record() -> None:
        provider = testing.RecordingProvider(testing.ScriptedProvider([toolkit.AssistantMessage(blocks)] * 2), file)
        request = toolkit.ChatRequest(messages=(toolkit.UserMessage("Hello"),))
        await provider.generate(request)
        async for _ in provider.stream(request):
            pass

    anyio.run(record)
    refused = {"type": "RateLimitedError", "provider": "p", "message": "slow down", "status": 429, "retry_after": 1.5}
    lines = [
        *file.read_bytes().splitlines(keepends=True)[1:],
        json.dumps({"request": {"messages": []}, "error": refused}).encode() + b"\n",
        b'{"request": {"messages": []}, "events": [{"type": "text_delta", "text": "x"}], "left": true}\n',
    ]
    return [file.read_bytes(), *lines, b"".join(lines)]


def snapshot_target() -> Callable[[bytes], None]:
    toolkit = import_module("toolkit")
    saving = import_module("toolkit.loop.snapshot")
    from toolkit.schema.nodes import is_object  # not at the top: it would not be followed

    scripted = import_module("toolkit.testing").ScriptedProvider
    registry, known = toolkit.ToolRegistry(), _snapshots()

    def test(data: bytes) -> None:
        try:
            snapshot: Any = json.loads(data)
        except (ValueError, RecursionError):  # then it says how a good one is bent
            dice = random.Random(data)
            snapshot = bend(json.loads(dice.choice(known)), dice)
        if is_object(snapshot):
            # Whoever writes it can make the checksum anew: what is behind it must take anything, too.
            content = {name: value for name, value in snapshot.items() if name != "seal"}
            snapshot = {**content, "seal": saving.make_seal(content, None)}
        try:
            handle = hold_loop(lambda: toolkit.ToolLoopHandle.restore(snapshot, scripted([]), registry, ctx=None))
        except (toolkit.errors.LoopUsageError, toolkit.ConfigurationError):
            return
        toolkit.chat.validate_transcript(handle.messages, allow_pending=True)
        try:
            again = handle.snapshot()
        except toolkit.errors.LoopUsageError:
            return
        assert saving.load_snapshot(again, None) is not None

    return test


def _snapshots() -> list[bytes]:
    toolkit = import_module("toolkit")
    scripted = import_module("toolkit.testing").ScriptedProvider
    anyio = import_module("anyio")
    made: list[bytes] = []

    async def save() -> None:
        call = toolkit.AssistantMessage([toolkit.chat.TextBlock("So."), toolkit.ToolCall("1", "look", "{}")])

        def look() -> str:
            """Look."""
            return "nothing"

        async def defer(request: Any) -> Any:
            return toolkit.Defer()

        for config in (toolkit.ToolLoopConfig(), toolkit.ToolLoopConfig(on_tool_call=defer)):
            handle = toolkit.ToolLoopHandle(
                scripted([call, toolkit.AssistantMessage("Done.")]),
                toolkit.ToolRegistry([look]),
                "Look.",
                config=config,
            )
            made.append(json.dumps(handle.snapshot()).encode())
            while isinstance(await handle.next_turn(), toolkit.Yielded):
                made.append(json.dumps(handle.snapshot()).encode())
            made.append(json.dumps(handle.snapshot()).encode())

    anyio.run(save)
    return made


_KEY = "sk-" + "aB3" * 8


def redaction_target() -> Callable[[bytes], None]:
    redaction = import_module("toolkit.redaction")

    def test(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        clean = hold_loop(lambda: redaction.clean_text(f"{text}\n {_KEY} "))
        assert _KEY not in clean, clean
        plain = {"arguments": {"note": text, "password": _KEY}, text: [text]}
        assert _KEY not in json.dumps(redaction.Scrubber()(plain))

    return test


def _telling_texts() -> list[bytes]:
    written = import_module("tests.test_redaction")
    return [text.replace("{}", written.PLANTED).encode() for text in (*written.WRITTEN.values(), *written.HARMLESS)]


def posted_target() -> Callable[[bytes], None]:
    dialects = import_module("toolkit.ui.dialects")

    def test(data: bytes) -> None:
        for read in (dialects.read_ui_request, dialects.read_ag_ui_request):
            with suppress(ValueError):
                assert read(data) if len(data) > _LONG_BODY else hold_loop(partial(read, data))

    return test


_LONG_BODY = 20_000  # what is longer is read in a thread
_PART = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
_ASKED = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}, _PART]}
_RAN = {"type": "tool-add", "toolCallId": "1", "state": "output-available", "input": {"a": 1}, "output": 2}
_INPUT: dict[str, Any] = {"threadId": "t", "runId": "r", "state": {}, "context": [], "forwardedProps": {}}
_POSTED: tuple[dict[str, Any], ...] = (
    {"id": "c", "messages": [_ASKED], "trigger": "submit-message"},
    {"id": "c", "messages": [{"id": "m", "role": "assistant", "parts": [_RAN]}]},
    {
        **_INPUT,
        "messages": [{"id": "m", "role": "user", "content": "Hi"}],
        "tools": [{"name": "add", "description": "", "parameters": {}}],
        "resume": [{"interruptId": "i", "status": "resolved", "payload": {"approved": True}}],
    },
)

TARGETS = [
    Target(
        name="posted",
        make=posted_target,
        seeds=lambda: [json.dumps(each).encode() for each in _POSTED],
        follows=["toolkit.ui.dialects"],
        swollen=_LONG_BODY,
    ),
    Target(
        name="redaction",
        make=redaction_target,
        seeds=_telling_texts,
        follows=["toolkit.redaction"],
        longest=2_000,
        swollen=20_000,  # what is longer is cleaned in a thread
    ),
    Target(
        name="yaml",
        make=yaml_target,
        seeds=lambda: _YAML,
        follows=["toolkit.checked_yaml", "toolkit.tool_config"],
        longest=3_000,
    ),
    Target(name="cassette", make=cassette_target, seeds=_cassettes, follows=["toolkit.testing", "toolkit.chat"]),
    Target(name="snapshot", make=snapshot_target, seeds=_snapshots, follows=["toolkit.loop", "toolkit.chat"]),
]
