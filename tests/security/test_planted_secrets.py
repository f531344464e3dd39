"""Secret arguments of each kind that a schema or a name tells of, planted in calls and looked for where calls show.

A row is a kind of secret, a column a place where calls are shown or written down.
"""

import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    ChatRequest,
    Defer,
    Tool,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    UserMessage,
    tool,
    tool_from_schema,
    tool_loop_sync,
)
from toolkit.chat import FileBlock, ImageBlock
from toolkit.events import LoopEvent, ToolCallRepaired, dump_event
from toolkit.run_log import RunLog
from toolkit.testing import RecordingProvider, ReplayProvider, ScriptedProvider
from toolkit.tracing import Tracing


@dataclass(frozen=True)
class Kind:
    """A kind of secret argument.

    Args:
        name: What it is.
        tool: Takes it.
        arguments: With ``{}`` for the secret.
        secret: As it stands in JSON.
    """

    name: str
    tool: Tool[object]
    arguments: str
    secret: str

    @property
    def text(self) -> str:
        """The arguments of the call."""
        return self.arguments.replace("{}", self.secret)

    @property
    def planted(self) -> str:
        """The text that must be seen nowhere."""
        return self.secret.strip('"')


class Login(BaseModel):
    phrase: SecretStr
    user: str = "ada"


@tool
def by_type(phrase: SecretStr | None = None, login: Login | None = None, raw: SecretBytes | None = None) -> str:
    """Do it."""
    return "done"


@tool
def by_number(door: Secret[int]) -> str:
    """Do it."""
    return "done"


@tool
def by_name(password: str = "", pin: int = 0, access_token: list[str] = [], n: int = 0) -> str:  # noqa: B006
    """Do it."""
    return "done"


@tool
def by_open_name(options: dict[str, Any]) -> str:
    """Do it."""
    return "done"


_TEXT = {"type": "string"}
_MARKED = {"type": "string", "format": "password"}
_SCHEMAS: dict[str, tuple[Mapping[str, Any], str]] = {
    "marked to be written only": ({"word": {**_TEXT, "writeOnly": True}}, '{"word": {}}'),
    "a password by its format": ({"word": _MARKED}, '{"word": {}}'),
    "one of a list": ({"words": {"type": "array", "items": _MARKED}}, '{"words": [{}]}'),
    "one of a tuple": ({"words": {"type": "array", "prefixItems": [_TEXT, _MARKED]}}, '{"words": ["a", {}]}'),
    "a value under any name": ({"by": {"type": "object", "additionalProperties": _MARKED}}, '{"by": {"a": {}}}'),
    "a value under a pattern": ({"by": {"patternProperties": {"^x": _MARKED}}}, '{"by": {"xa": {}}}'),
    "beside null": ({"word": {"anyOf": [_MARKED, {"type": "null"}]}}, '{"word": {}}'),
    "in two parts": ({"word": {"allOf": [{"minLength": 1}, _MARKED]}}, '{"word": {}}'),
    "in two parts of an object": (
        {"by": {"allOf": [{"properties": {"a": _TEXT}}, {"properties": {"b": _MARKED}}]}},
        '{"by": {"a": "x", "b": {}}}',
    ),
    "where something else is so": (
        {"by": {"if": {"required": ["a"]}, "then": {"properties": {"b": _MARKED}}}},
        '{"by": {"a": "x", "b": {}}}',
    ),
    "behind a reference": ({"login": {"$ref": "#/$defs/Login"}}, '{"login": {"word": {}}}'),
    "a whole object": ({"login": {"type": "object", "writeOnly": True}}, '{"login": {"a": {"b": {}}}}'),
    "an object behind a reference": ({"login": {"$ref": "#/$defs/Whole"}}, '{"login": {"a": {}}}'),
    "a name": ({"password": _TEXT}, '{"password": {}}'),
    "a name in camel case": ({"accessToken": _TEXT}, '{"accessToken": {}}'),
    "a name of several words": ({"Recovery Phrase": _TEXT, "API-Key": _TEXT}, '{"API-Key": {}}'),
    "all below a name": ({"auth": {"type": "object"}}, '{"auth": {"by": [{"value": {}}]}}'),
    "a list below a name": ({"tokens_of": {"type": "array"}}, '{"tokens_of": [{"token": {}}, {"of": {}}]}'),
    "a name that the schema leaves open": ({"body": {"type": "object"}}, '{"body": {"a": [{"client_secret": {}}]}}'),
    "a name that the schema does not know": ({"body": {}}, '{"passphrase": {}}'),
    "a name in wide letters": ({"body": {}}, '{"body": {"\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44": {}}}'),
    "a name with escapes": ({"body": {}}, '{"body": {"p\\u0061ssword": {}}}'),
    "a header": ({"headers": {"type": "object"}}, '{"headers": {"Authorization": {}}}'),
    "a header of a neutral name": ({"headers": {"type": "object"}}, '{"headers": {"X-Tenant": {}}}'),
    "a header of a pair": ({"headers": {"type": "array"}}, '{"headers": [["Authorization", {}]]}'),
    "an argument of an option": ({"argv": {"type": "array"}}, '{"argv": ["psql", "--password", {}]}'),
    "what is typed into a field": ({"fill": {"type": "array"}}, '{"fill": [{"selector": "#password", "text": {}}]}'),
    "a list of tokens": ({"tokens": {"type": "array"}}, '{"tokens": [{}]}'),
    "a name below a telling one": ({"auth": {"type": "object"}}, '{"auth": {{}: 1}}'),
    "a variable": ({"env": {"type": "array"}}, '{"env": [{"name": "DB_PASSWORD", "value": {}}]}'),
    "a value beside its key": ({"tags": {"type": "array"}}, '{"tags": [{"Key": "ApiSecret", "Value": {}}]}'),
    "a content beside its field": ({"form": {"type": "array"}}, '{"form": [{"field": "password", "content": {}}]}'),
    "JSON in a text": ({"body": _TEXT}, '{"body": "{\\"auth\\": {\\"value\\": \\"plant-%s\\"}}"}'),
    "a login in a URL": ({"url": _TEXT}, '{"url": "https://ada:plant-%s@host.example/x"}'),
    "a user in a URL": ({"url": _TEXT}, '{"url": "https://plant-%s@host.example/x"}'),
    "a password alone in a URL": ({"url": _TEXT}, '{"url": "redis://:plant-%s@host.example/x"}'),
}
_PLAIN_NAMES = (
    *("refresh", "kek", "license_key", "sk_live", "private", "userpwd", "pw", "jwe", "hotp", "puk", "netrc"),
    *("client_assertion_jwt", "challenge_answer", "scratch_codes", "invite_code", "licence", "unlock", "keys", "codes"),
    *("pass_hash", "nonce", "device_code"),
)
_FRESH: dict[str, tuple[Mapping[str, Any], str]] = {
    **{f"the name {name}": ({name: _TEXT}, f'{{"{name}": {{}}}}') for name in _PLAIN_NAMES},
    "a format in capitals": ({"word": {**_TEXT, "format": "PASSWORD"}}, '{"word": {}}'),
    "a format of another name": ({"word": {**_TEXT, "format": "api-key"}}, '{"word": {}}'),
    "an extension": ({"word": {**_TEXT, "x-sensitive": True}}, '{"word": {}}'),
    "an extension without its prefix": ({"word": {**_TEXT, "sensitive": True}}, '{"word": {}}'),
    "a class of data": ({"word": {**_TEXT, "x-classification": "secret"}}, '{"word": {}}'),
    "a widget for passwords": ({"word": {**_TEXT, "ui:widget": "password"}}, '{"word": {}}'),
    "a title": ({"word": {**_TEXT, "title": "API key"}}, '{"word": {}}'),
    "the title of an object": ({"word": {"type": "object", "title": "Credentials"}}, '{"word": {"a": {}}}'),
    "lists side by side": ({"body": {}}, '{"body": {"names": ["user", "password"], "values": ["ada", {}]}}'),
    "rows beside their columns": ({"body": {}}, '{"body": {"columns": ["user", "token"], "rows": [["ada", {}]]}}'),
    "a value beside a mark": ({"body": {}}, '{"body": {"key": "a", "masked": true, "value": {}}}'),
    "secret names": ({"by": {"propertyNames": {"format": "password"}}}, '{"by": {{}: 1}}'),
    "another name of a secret": ({"word": {**_TEXT, "writeOnly": True}}, '{"phrase_of_mine": {}}'),
    "a name inside of ambiguous ones": ({"keys": {"type": "array"}}, '{"keys": [{"v": {}}]}'),
    "a text beside an id": ({"fill": {"type": "array"}}, '{"fill": [{"id": "password", "text": {}}]}'),
    "an answer beside a question": ({"fill": {"type": "array"}}, '{"fill": [{"ask": "password", "response": {}}]}'),
    "a value at a path": ({"patch": {"type": "array"}}, '{"patch": [{"path": "/auth/password", "value": {}}]}'),
    "one of three": ({"steps": {"type": "array"}}, '{"steps": [["set", "password", {}]]}'),
    "a column of rows": ({"rows": {"type": "array"}}, '{"rows": [["user", "password"], ["ada", {}]]}'),
}
_IN_TEXTS = {
    "a dict in a dict of Python": "d = {'auth': {'value': '%s'}}",
    "a list of Python": "d = {'tokens': ['%s']}",
    "an object in an object of JavaScript": "const c = {auth: {value: '%s'}}",
    "an object in an object's repr": "Config(auth=Auth(value='%s'), n=1)",
    "a variable of the environment": "os.environ['API_KEY'] = '%s'",
    "an element of an element": "<credentials><v>%s</v></credentials>",
    "a list of YAML": "tokens:\n  - %s\n",
    "an object of YAML": "db:\n  auth:\n    value: %s\n",
    "a section of TOML": '[credentials]\nvalue = "%s"\n',
    "a section of settings": "[secrets]\nvalue = %s\n",
    "a struct of Go": "{Password:%s User:a}",
    "a variable of PowerShell": "$env:API_TOKEN='%s'",
    "a setting of Ansible": "ansible_become_pass=%s",
    "a digest in a header": "Proxy-Authorization: Digest %s",
    "a bold label": "- **API key**: `%s`",
    "a table further down": "Users:\nuser,password\nada,%s\n",
    "a query in GraphQL": 'mutation { login(password: "%s") { id } }',
    "JSON lines": '{"a": 1}\n{"auth": {"value": "%s"}}',
    "JSON three levels down": json.dumps({"a": json.dumps({"b": json.dumps({"tokens": ["%s"]})})}),
    "a quote in a value": '{"password": "ab\\"%s"}',
    "the fragment of an address": "https://h.example/a#access_token=%s",
    "a row of an insert": "INSERT INTO users (name, password) VALUES ('ada', '%s')",
    "a variable of a Dockerfile": "FROM x\nENV APP_SECRET %s\n",
    "any data of a secret of Kubernetes": "stringData:\n  user: %s\n",
    "an object within a sentence": 'sent {"name": "DB_PASSWORD", "value": "%s"} twice',
    "a connection string": "Server=h;Uid=a;Pwd=%s;",
}
_DEFS = {
    "Login": {"type": "object", "properties": {"word": _MARKED}},
    "Whole": {"type": "object", "writeOnly": True},
}
_TYPED: dict[str, tuple[Tool[object], str]] = {
    "a type": (by_type, '{"phrase": {}}'),
    "a type in a model": (by_type, '{"login": {"phrase": {}}}'),
    "a type of bytes": (by_type, '{"raw": {}}'),
    "a name of a function": (by_name, '{"password": {}}'),
    "a name of a list of a function": (by_name, '{"access_token": [{}]}'),
    "a name in a dict of a function": (by_open_name, '{"options": {"a": {"session": {"id": {}}}}}'),
}


def _list_fresh_kinds() -> list[Kind]:
    rows = {**_FRESH, **{name: ({"body": _TEXT}, json.dumps({"body": text})) for name, text in _IN_TEXTS.items()}}
    kinds: list[Kind] = []
    for number, (name, (properties, arguments)) in enumerate(rows.items()):
        schema = {"type": "object", "properties": properties}
        echoing = tool_from_schema(f"fresh_tool_{number}", "Do it.", schema, lambda _: "done")
        secret = f"Xq{number}w-{number * 7307 + 1009}"
        kinds.append(Kind(name, echoing, arguments.replace("%s", secret), f'"{secret}"'))
    return kinds


def _list_kinds() -> list[Kind]:
    kinds: list[Kind] = []
    for number, (name, (properties, arguments)) in enumerate(_SCHEMAS.items()):
        schema = {"type": "object", "properties": properties, "$defs": _DEFS}
        raw = tool_from_schema(f"raw_tool_{number}", "Do it.", schema, lambda _: "done")
        secret = f"t{number}-zeta-{number * 7919}"
        if "%s" in arguments:
            kinds.append(Kind(name, raw, arguments.replace("%s", secret), f'"{secret}"'))
            continue
        kinds.append(Kind(name, raw, arguments, f'"{secret}"'))
        if (
            "{}:" not in arguments
            and "[[" not in arguments
            and "argv" not in arguments
            and "_TEXT" not in str(properties)
            and "string" not in str(properties)
            and "Login" not in str(properties)
        ):
            numeric = tool_from_schema(f"raw_number_{number}", "Do it.", schema, lambda _: "done")
            kinds.append(Kind(f"{name}, a number", numeric, arguments, str(7_135_000_000 + number)))
    for number, (name, (typed, arguments)) in enumerate(_TYPED.items()):
        kinds.append(Kind(name, typed, arguments, f'"y{number}-zeta-{number * 6151}"'))
    kinds.append(Kind("a number of a function", by_name, '{"pin": {}, "n": 3}', "7136000001"))
    kinds.append(Kind("a secret number", by_number, '{"door": {}}', "7136000002"))
    return kinds


KINDS = {"arguments": _list_kinds(), "fresh": _list_fresh_kinds()}


def _rename(name: str) -> str:
    """Return the name of a tool as a model may get it wrong."""
    return name.replace("_", "-").title()


WAYS: dict[str, Callable[[Kind], ToolCall]] = {
    "as it should be": lambda kind: ToolCall(kind.name, kind.tool.definition.name, kind.text),
    "under a repaired name": lambda kind: ToolCall(kind.name, _rename(kind.tool.definition.name), kind.text),
    "with a comma too many": lambda kind: ToolCall(kind.name, kind.tool.definition.name, kind.text[:-1] + ",}"),
    "in a fence": lambda kind: ToolCall(kind.name, kind.tool.definition.name, f"```json\n{kind.text}\n```"),
    "encoded twice": lambda kind: ToolCall(kind.name, kind.tool.definition.name, json.dumps(kind.text)),
    "in single quotes": lambda kind: ToolCall(
        kind.name, kind.tool.definition.name, kind.text if "\\" in kind.text else kind.text.replace('"', "'")
    ),
    "in a list of one": lambda kind: ToolCall(kind.name, kind.tool.definition.name, f"[{kind.text}]"),
    "wrapped": lambda kind: ToolCall(kind.name, kind.tool.definition.name, f'{{"arguments": {kind.text}}}'),
    "wrong beside it": lambda kind: ToolCall(
        kind.name, kind.tool.definition.name, f'{kind.text[:-1]}, "zzz": [null], "n": "x", "user": 5}}'
    ),
    "of another type": lambda kind: ToolCall(
        kind.name, kind.tool.definition.name, kind.text.replace(kind.secret, f"[[{kind.secret}]]")
    ),
    "to an unknown tool": lambda kind: ToolCall(kind.name, "nothing_like_it", kind.text),
    "cut off": lambda kind: ToolCall(kind.name, kind.tool.definition.name, kind.text[:-1]),
}


@cache
def play(way: str, group: str = "arguments") -> Mapping[str, str]:
    """Return all that is shown and written of a run that makes each call, by where it is found."""
    events: list[LoopEvent] = []
    asked: list[ApprovalRequest] = []
    exporter = InMemorySpanExporter()
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    calls = [WAYS[way](kind) for kind in KINDS[group]]
    registry = ToolRegistry({kind.tool.definition.name: kind.tool for kind in KINDS[group]}.values())
    messages: list[logging.LogRecord] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record)

    handler = Collecting()
    logging.getLogger("toolkit").addHandler(handler)

    def ask(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        log = RunLog(path / "runs")
        recording = RecordingProvider(ScriptedProvider([AssistantMessage(calls), "done"]), path / "cassette.jsonl")
        config: ToolLoopConfig[None] = ToolLoopConfig(
            on_event=events.append,
            on_tool_call=ask,
            middleware=(log, Tracing(content="all", tracer_provider=spans)),
        )
        result = tool_loop_sync(recording, registry, "go", config=config)
        log.flush()
        written = "".join(file.read_text() for file in (path / "runs").iterdir() if file.is_file())
        cassette = (path / "cassette.jsonl").read_text()
    deferring: ToolLoopConfig[None] = ToolLoopConfig(on_tool_call=lambda _: Defer())
    waiting = tool_loop_sync(ScriptedProvider([AssistantMessage(calls), "done"]), registry, "go", config=deferring)
    pending: Any = [] if waiting.snapshot is None else waiting.snapshot["pending_approvals"]
    logging.getLogger("toolkit").removeHandler(handler)
    request = ChatRequest(messages=result.messages, tools=registry.definitions())
    fields = [
        [getattr(each, name) for name in ("arguments", "arguments_json") if hasattr(each, name)] for each in events
    ]
    return {
        "events as JSON": json.dumps([dump_event(each) for each in events]),
        "the repr of events": repr(events),
        "arguments of events": repr(fields),
        "repairs": repr([each for each in events if isinstance(each, ToolCallRepaired)]),
        "previews": "".join(each.preview for each in asked),
        "the repr of a request for approval": repr(asked),
        "pending approvals": json.dumps(pending),
        "the repr of calls": repr(calls),
        "the repr of a request": repr(request),
        "the repr of a result": repr(result) + str(result),
        "what the model reads of failures": "".join(each.text for each in result.messages if each.role == "tool"),
        "a run log": written,
        "a cassette": cassette,
        "traces": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "logs": "".join(f"{each.getMessage()} {each.exc_info}" for each in messages),
    }


@pytest.mark.parametrize("way", WAYS)
def test_no_secret_argument_is_shown_or_written(way: str) -> None:
    places = play(way)
    found = [
        (kind.name, place) for kind in KINDS["arguments"] for place, shown in places.items() if kind.planted in shown
    ]
    assert found == []


@pytest.mark.parametrize("way", ["as it should be", "under a repaired name", "wrong beside it", "cut off"])
def test_no_secret_of_another_kind_is_shown_or_written(way: str) -> None:
    places = play(way, "fresh")
    found = [(kind.name, place) for kind in KINDS["fresh"] for place, shown in places.items() if kind.planted in shown]
    assert found == []


def test_what_a_tool_repeats_of_a_secret_is_struck_out_of_events_logs_and_cassettes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def sign_in(password: str, phrase: SecretStr, n: int = 0) -> str:
        """Sign in."""
        if n:
            raise ValueError(f"no account has {password} or {phrase.get_secret_value()}")
        return f"{password} and {phrase.get_secret_value()} are right"

    events: list[LoopEvent] = []
    text = '{"password": "word-79-x", "phrase": "phrase-79-y", "n": %d}'
    calls = [ToolCall(str(number), "sign_in", text % number) for number in range(2)]
    recording = RecordingProvider(ScriptedProvider([AssistantMessage(calls), "done"]), tmp_path / "cassette.jsonl")
    result = tool_loop_sync(recording, ToolRegistry([sign_in]), "go", config=ToolLoopConfig(on_event=events.append))
    dumped = json.dumps([dump_event(each) for each in events])
    shown = dumped + repr(events) + caplog.text + (tmp_path / "cassette.jsonl").read_text()
    assert "are right" in shown
    assert "no account has" in caplog.text
    assert "-79-" not in shown
    assert "word-79-x and phrase-79-y are right" in str([message.text for message in result.messages])


def test_a_model_is_sent_no_default_of_a_secret() -> None:
    @tool
    def connect(host: str = "db", password: str = "by-default-80", auth: Literal["basic", "none"] = "none") -> str:
        """Connect."""
        return f"{host} {password} {auth}"

    sent = connect.definition.parameters["properties"]
    assert [name for name, each in sent.items() if "default" in each] == ["host", "auth"]
    assert connect() == "db by-default-80 none"


def test_the_places_are_not_empty() -> None:
    empty = {name for name, shown in play("under a repaired name").items() if len(shown) < 100}
    assert empty <= {"what the model reads of failures", "logs", "repairs"}
    assert "done" in play("as it should be")["what the model reads of failures"]


def test_what_is_no_secret_is_still_shown() -> None:
    @tool
    def deploy(target: str, key: str, max_tokens: int, issue_key: str, auth: bool, note: dict[str, Any]) -> str:
        """Deploy."""
        return "done"

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    arguments = {"target": "east", "key": "color", "max_tokens": 77, "issue_key": "AB-12", "auth": True}
    events: list[LoopEvent] = []
    asked: list[ApprovalRequest] = []
    config: ToolLoopConfig[None] = ToolLoopConfig(on_event=events.append, on_tool_call=approve)
    call = ToolCall("1", "deploy", json.dumps({**arguments, "note": {"next_page_token": "p2", "author": "ada"}}))
    tool_loop_sync(ScriptedProvider([call, "done"]), ToolRegistry([deploy]), "go", config=config)
    shown = json.loads(asked[0].preview)
    assert shown == {**arguments, "note": {"next_page_token": "p2", "author": "ada"}}


@pytest.mark.parametrize(
    "block", [ImageBlock(url="https://u1:p-77@h.example/a.png"), FileBlock(url="https://t-77@h/a")]
)
def test_no_url_of_a_block_shows_its_login(block: Any, tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    exporter = InMemorySpanExporter()
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    recording = RecordingProvider(ScriptedProvider(["done"]), tmp_path / "cassette.jsonl")
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log, Tracing(content="all", tracer_provider=spans)))
    message = UserMessage((block,))
    tool_loop_sync(recording, ToolRegistry(), [message], config=config)
    log.flush()
    written = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    written += [span.to_json() for span in exporter.get_finished_spans()]
    shown = "".join([*written, repr(message), repr(ChatRequest(messages=[message]))])
    assert "h.example" in shown or "@h/a" in shown
    assert "-77" not in shown


def test_options_and_arguments_of_the_application_are_not_in_a_repr() -> None:
    options = {"api_key": "option-77", "extra_headers": {"X-Tenant": "tenant-77"}, "auth": {"a": [{"b": "deep-77"}]}}
    assert "-77" not in repr(ChatRequest(messages=[], options=options))
    assert "sampling" in repr(ChatRequest(messages=[], options={"mode": "sampling"}))


def test_a_recording_with_a_secret_number_is_replayed(tmp_path: Path) -> None:
    call = ToolCall("1", "by_name", '{"pin": 7137000001, "password": "word-77-xyz"}')
    recording = RecordingProvider(ScriptedProvider([call, "done"]), tmp_path / "cassette.jsonl")
    tool_loop_sync(recording, ToolRegistry([by_name]), "go")
    result = tool_loop_sync(ReplayProvider(tmp_path / "cassette.jsonl"), ToolRegistry([by_name]), "go")
    assert result.text == "done"


def test_no_secret_comes_out_by_the_words_of_a_tool_or_by_its_definition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def connect(phrase: SecretStr, token: str = "by-default-78", n: int = 0) -> str:
        """Connect."""
        raise ValueError(f"no answer for {phrase.get_secret_value()} with password=raised-78" if n else "no")

    @tool
    def greet(phrase: SecretStr) -> str:
        """Greet."""
        return f"hello {phrase.get_secret_value()}"

    exporter = InMemorySpanExporter()
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    log, events = RunLog(tmp_path / "runs"), list[LoopEvent]()
    calls = [
        ToolCall("1", "connect", '{"phrase": "argument-78", "n": 1}'),
        ToolCall("2", "greet", '{"phrase": "word-78"}'),
    ]
    recording = RecordingProvider(ScriptedProvider([AssistantMessage(calls), "done"]), tmp_path / "cassette.jsonl")
    config: ToolLoopConfig[None] = ToolLoopConfig(
        on_event=events.append, middleware=(log, Tracing(content="all", tracer_provider=spans))
    )
    tool_loop_sync(recording, ToolRegistry([connect, greet]), "go", config=config)
    log.flush()
    written = "".join(file.read_text() for file in (tmp_path / "runs").iterdir())
    assert "hello" in written
    assert "-78" not in written
    traced = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert "hello" in traced
    assert "-78" not in traced
    assert "by-default-78" not in (tmp_path / "cassette.jsonl").read_text()
    assert "raised-78" not in repr(events) + caplog.text
    assert "no answer" in caplog.text
