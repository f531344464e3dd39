"""Plugins that attack who calls them: an attack a row. No answer reaches another call, and none takes the process."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import ToolCall, ToolRegistry, ToolResult
from toolkit.errors import PluginError
from toolkit.sources.plugin import plugin_tools

pytestmark = [pytest.mark.anyio, pytest.mark.real]

HOSTILE = Path(__file__).with_name("hostile_plugin.py")
GOOD = b'{"content": "good"}'
STOLEN = b'{"content": "STOLEN"}\n'


def plugin(described: bytes = b"", attack: bytes = b"", *flags: str, **options: Any) -> Any:
    arguments = ["-I", "-S", str(HOSTILE), described.hex(), attack.hex(), *flags]
    settings: dict[str, Any] = {"timeout": 0.3, "describe_timeout": 10, **options}
    return plugin_tools(sys.executable, arguments, **settings)


async def ask(tools: ToolRegistry, text: str) -> ToolResult:
    return await tools.execute(ToolCall("1", "echo", json.dumps({"text": text})))


@dataclass
class Answer:
    """What a plugin writes when it is called; `says` stands in the result, and an error is one where `is_error`."""

    name: str
    data: bytes
    says: str = ""
    is_error: bool = True
    names_calls: bool = False


ANSWERS = [
    Answer("nothing at all", b"", "timed out"),
    Answer("an empty line", b"\n", "timed out"),
    Answer("thousand empty lines", b"\n" * 1000, "timed out"),
    Answer("two answers in one write", GOOD + b"\n" + STOLEN, "good", is_error=False),
    Answer(
        "names its calls, and answers twice, the second time a moment later",
        b'{"call_id": "$ID", "content": "good"}\nPAUSE{"call_id": "$ID", "content": "STOLEN"}\n',
        "good",
        is_error=False,
        names_calls=True,
    ),
    Answer("a hundred answers", GOOD + b"\n" + STOLEN * 100, "good", is_error=False),
    Answer("an answer and half of another", GOOD + b'\n{"content": "STOL', "good", is_error=False),
    Answer("an answer and a line that is no JSON", GOOD + b"\nhello\n", "good", is_error=False),
    Answer("half of an answer", b'{"content": "STOL', "timed out"),
    Answer("an answer without its end", GOOD, "timed out"),
    Answer("the id of another call", b'{"call_id": "STOLEN", "content": "x"}\n', "which no call has"),
    Answer("an id that is a number", b'{"call_id": 7, "content": "x"}\n', "which no call has"),
    Answer("an id that is a list", b'{"call_id": [1], "content": "x"}\n', "which no call has"),
    Answer("an id that is an object", b'{"call_id": {}, "content": "x"}\n', "which no call has"),
    Answer("an id of a million digits", b'{"call_id": "1-' + b"9" * 100_000 + b'", "content": "x"}\n', "no call has"),
    Answer("the id of the next call", b'{"call_id": "1-2", "content": "STOLEN"}\n', "which no call has"),
    Answer("an id that is null", b'{"call_id": null, "content": "good"}\n', "good", is_error=False),
    Answer(
        "the right id, then an answer without one",
        b'{"call_id": "$ID", "content": "good"}\n' + STOLEN,
        "good",
        is_error=False,
    ),
    Answer(
        "the right id, then one for the next call",
        b'{"call_id": "$ID", "content": "good"}\n{"call_id": "1-2", "content": "STOLEN"}\n',
        "good",
        is_error=False,
    ),
    Answer(
        "names its calls, and answers twice",
        b'{"call_id": "$ID", "content": "good"}\n' * 2,
        "good",
        is_error=False,
        names_calls=True,
    ),
    Answer("names its calls, and then not", STOLEN, "without the id of its call", names_calls=True),
    Answer("an answer, and another a moment later", GOOD + b"\nPAUSE" + STOLEN, "good", is_error=False),
    Answer("an answer over three lines", b'{\n"content": "x"\n}\n', "on several lines"),
    Answer("an object that never ends", b'{"content": [\n' * 1_000, "timed out"),
    Answer("quotes that never end", b'{"' + b'\\"' * 400_000 + b"\n", "timed out"),
    Answer("a latin letter", b'{"content": "caf\xe9"}\n', "not UTF-8: byte 0xe9"),
    Answer("a lone continuation byte", b'{"content": "\x80"}\n', "not UTF-8: byte 0x80"),
    Answer("an overlong slash", b'{"content": "\xc0\xaf"}\n', "not UTF-8: byte 0xc0"),
    Answer("a surrogate in UTF-8", b'{"content": "\xed\xa0\x80"}\n', "not UTF-8: byte 0xed"),
    Answer("UTF-16", '{"content": "x"}\n'.encode("utf-16"), "not UTF-8: byte 0xff"),
    Answer("a byte order mark", b'\xef\xbb\xbf{"content": "x"}\n', "timed out"),
    Answer("an escaped lone surrogate", b'{"content": "a\\ud800b"}\n', "a?b", is_error=False),
    Answer("a null character", b'{"content": "a\\u0000b"}\n', "a\0b", is_error=False),
    Answer("zero bytes", b"\0" * 1000 + b"\n", "timed out"),
    Answer("lists a hundred thousand deep", b"[" * 100_000 + b"\n", "timed out"),
    Answer("a content nested deeply", b'{"content": ' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", "timed out"),
    Answer("a number of a million digits", b'{"content": ["x"], "details": ' + b"9" * 1_000_000 + b"}\n", "timed out"),
    Answer("no number", b'{"content": "x", "details": NaN}\n', "x", is_error=False),
    Answer("a list", b'["content"]\n', "timed out"),
    Answer("a text", b'"content"\n', "timed out"),
    Answer("null", b"null\n", "timed out"),
    Answer("no content", b"{}\n", "something else than 'content'"),
    Answer("a content that is a number", b'{"content": 7}\n', "something else than 'content'"),
    Answer("a content that is an object", b'{"content": {"text": "x"}}\n', "something else than 'content'"),
    Answer("a content of nothing", b'{"content": []}\n', "", is_error=False),
    Answer(
        "a block that is none", b'{"content": [7, null, {"type": "evil"}]}\n', '7null{"type": "evil"}', is_error=False
    ),
    Answer("an image that is no Base64", b'{"content": [{"type": "image", "data": "!!"}]}\n', "image", is_error=False),
    Answer("an error that is a text", b'{"error": "no"}\n', "no"),
    Answer("an error that is an object", b'{"error": {"message": "no"}}\n', "no"),
    Answer("an error that is a list", b'{"error": ["no"]}\n', '["no"]'),
    Answer("an error with a content that hides it", b'{"error": "no", "content": "all is well"}\n', "no"),
    Answer("an error in capitals", b'{"error": "FALSE", "content": ""}\n', "FALSE"),
    Answer("a content twice", b'{"content": "STOLEN", "content": "good"}\n', "good", is_error=False),
    Answer("an update that is none", b'{"type": "update", "content": 7}\n' + GOOD + b"\n", "good", is_error=False),
    Answer("ten thousand updates", b'{"type": "update", "content": "x"}\n' * 10_000 + GOOD + b"\n", "good", False),
    Answer("an update after the end", GOOD + b'\n{"type": "update", "content": "STOLEN"}\n', "good", is_error=False),
    Answer("ten thousand lines that are no JSON", b"x\n" * 10_000 + GOOD + b"\n", "good", is_error=False),
    Answer(
        "a request of its own",
        b'{"type": "call", "call_id": "$ID", "params": {}}\n',
        "something else",
        names_calls=True,
    ),
    Answer("its description again", b'{"name": "echo", "description": "STOLEN"}\n', "something else than"),
    Answer("an oversized line", b'{"content": "' + b"x" * 40_000_000 + b'"}\n', "more than 33,554,432 bytes"),
    Answer("its end", b"EXIT", "ended with exit status 7"),
    Answer("the end of its output", b"CLOSE", "may have taken effect"),
]


@pytest.mark.parametrize("case", [each for each in ANSWERS if len(each.data) < 50_000], ids=lambda case: case.name)
async def test_no_answer_reaches_another_call(case: Answer, caplog: pytest.LogCaptureFixture) -> None:
    await attack(case, caplog)


@pytest.mark.parametrize("case", [each for each in ANSWERS if len(each.data) >= 50_000], ids=lambda case: case.name)
async def test_no_large_answer_reaches_another_call(
    case: Answer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await attack(case, caplog, tmp_path)


async def attack(case: Answer, caplog: pytest.LogCaptureFixture, folder: Path | None = None) -> None:
    flags = ["names-calls"] if case.names_calls else []
    data = case.data
    if folder is not None:  # more than a command line takes
        (folder / "attack").write_bytes(data)
        data = b""
        flags.append(f"--attack={folder / 'attack'}")
    with anyio.fail_after(120):
        async with plugin(b"", data, *flags) as offered:
            tools = ToolRegistry(offered)
            if case.names_calls:
                assert (await ask(tools, "first")).text == "first"
            # An answer must be read as far as it is taken or refused: how long that takes is not what is tested.
            is_read = "more than" in case.says or not case.is_error
            attacked = await ask(tools.configured("echo", timeout=30) if is_read else tools, "attack")
            after = await ask(tools.configured("echo", timeout=20), "after")
            assert (after.text, after.is_error) == ("after", False)
    assert case.says in attacked.text
    assert attacked.is_error == case.is_error
    if "timed out" in attacked.text:
        assert "may have taken effect" in attacked.text
    assert len(caplog.records) < 60


@dataclass
class Description:
    name: str
    data: bytes
    says: str


def described(**more: Any) -> bytes:
    return json.dumps({"name": "echo", "parameters": {}, **more}).encode() + b"\n"


DESCRIPTIONS = [
    Description("no JSON", b"hello\n", "did not describe itself"),
    Description("a list", b"[]\n", "its description is wrong"),
    Description("null", b"null\n", "its description is wrong"),
    Description("no name", b'{"parameters": {}}\n', "wrong at name"),
    Description("an empty name", described(name=""), "wrong at name"),
    Description("an endless name", described(name="x" * 1000), "wrong at name"),
    Description("a name that is a list", described(name=["x"]), "wrong at name"),
    Description("an endless description", described(description="x" * 21_000), "wrong at description"),
    Description("parameters that are a list", described(parameters=[]), "wrong at parameters"),
    Description(
        "parameters that are no schema", described(parameters={"properties": 7}), "parameters are no JSON Schema"
    ),
    Description("an illegal type", described(parameters={"type": "evil"}), "parameters"),
    Description("no tools", b'{"tools": []}\n', "wrong at tools"),
    Description("tools that are an object", b'{"tools": {}}\n', "wrong at tools"),
    Description("one name twice", b'{"tools": [{"name": "a"}, {"name": "a"}]}\n', "two tools have the name 'a'"),
    Description("an unknown extension", described(extensions=["root"]), "wrong at extensions"),
    Description("extensions that are a text", described(extensions="concurrent"), "wrong at extensions"),
    Description("a latin letter", b'{"name": "caf\xe9"}\n', "not UTF-8: byte 0xe9"),
    Description(
        "nested without end", b'{"name": "x", "parameters": ' + b"[" * 20_000 + b"\n", "did not describe itself"
    ),
]


@pytest.mark.parametrize("case", DESCRIPTIONS, ids=lambda case: case.name)
async def test_a_description_that_attacks_is_an_error_that_says_where(case: Description) -> None:
    with anyio.fail_after(120), pytest.raises(PluginError) as caught:
        async with plugin(case.data, describe_timeout=0.7):
            pytest.fail("it has no tools")
    assert case.says in str(caught.value)
    assert len(str(caught.value)) < 2_000


async def test_the_id_of_a_call_can_not_be_guessed_before_it_is_sent() -> None:
    code = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    call_id = json.loads(line).get('call_id')\n"
        "    print(json.dumps({'call_id': call_id, 'content': call_id} if call_id else {'name': 'id'}), flush=True)\n"
    )
    ids: set[str] = set()
    for _ in range(2):
        async with plugin_tools(sys.executable, ["-I", "-S", "-c", code]) as offered:
            tools = ToolRegistry(offered)
            ids |= {(await tools.execute(ToolCall("1", "id", "{}"))).text for _ in range(2)}
    assert len(ids) == 4


ESCAPES = [
    ("import sys; sys.stderr.write('\\x1b]0;x\\x07\\x1b[2Ja\\u202e\\rb\\n'); sys.exit(1)", "ended with exit status 1"),
    ('print(\'{"name": "\\\\u001b[2J\\\\ud800"}\', flush=True)', "wrong at name"),
    ('print(\'{"name": "\\\\u001b[2J", "parameters": {"properties": 7}}\', flush=True)', "no JSON Schema"),
    ('print(\'{"tools": [\' + \'{"name": "\\\\u001b[2J"},\' * 2 + \'{"name": "a"}]}\', flush=True)', "two tools have"),
    ("print('\\x1b[2Jno JSON', flush=True)", "no JSON"),
]


@pytest.mark.parametrize(("code", "says"), ESCAPES)
async def test_no_error_or_log_has_what_a_terminal_obeys(
    code: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with anyio.fail_after(60), pytest.raises(PluginError) as caught:
        async with plugin_tools(sys.executable, ["-I", "-S", "-X", "utf8", "-c", code], describe_timeout=5):
            pytest.fail("it has no tools")
    assert says in str(caught.value)
    for text in (str(caught.value), *caplog.messages):
        assert text.isprintable(), ascii(text)


SECRETS = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "SSH_AUTH_SOCK", "LD_PRELOAD"]


async def test_nothing_of_the_environment_is_inherited_that_was_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "")
    code = (
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    is_call = json.loads(line)['type'] == 'call'\n"
        "    print(json.dumps({'content': ' '.join(os.environ)} if is_call else {'name': 'names'}), flush=True)\n"
    )
    async with plugin_tools(sys.executable, ["-I", "-S", "-c", code]) as tools:
        names = (await ToolRegistry(tools).execute(ToolCall("1", "names", "{}"))).text.split()
    assert "PATH" in names
    assert not set(SECRETS) & set(names)
    assert set(names) < {*os.environ, "LC_CTYPE"}
