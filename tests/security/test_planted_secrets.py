"""Secret arguments of each kind that a schema or a name tells of, planted in calls and looked for where calls show.

A row is a kind of secret, a column a place where calls are shown or written down.
"""

import html
import importlib
import json
import logging
import pkgutil
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn, cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

import toolkit
from toolkit import (
    Abort,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Defer,
    Deny,
    Done,
    Failed,
    MemoryCache,
    Middleware,
    ProviderError,
    ProviderRetryConfig,
    Tool,
    ToolCall,
    ToolkitError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolOutput,
    ToolRegistry,
    ToolRetryConfig,
    UserMessage,
    tool,
    tool_from_function,
    tool_from_schema,
    tool_loop,
    tool_loop_sync,
)
from toolkit.calls.approval import Approval
from toolkit.calls.registration import ToolOptionKeywords
from toolkit.chat import ArgumentsDelta, FileBlock, ImageBlock
from toolkit.errors import ToolCrashedError
from toolkit.events import LoopEvent, ResponseReceived, ToolCallRepaired, dump_event
from toolkit.policies import CallInfo, CallProceed
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
    "a key of a vendor": ({"note": _TEXT}, '{"note": "use sk-proj-plant-%sa1B2a1B2a1B2"}'),
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
    "an extension for private values": ({"word": {**_TEXT, "x-private": True}}, '{"word": {}}'),
    "an extension for logs": ({"word": {**_TEXT, "x-no-log": True}}, '{"word": {}}'),
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

# Read as it is, by its name, by a repair, in values of another type, and not at all.
SAMPLE = (
    "as it should be",
    "under a repaired name",
    "encoded twice",
    "of another type",
    "to an unknown tool",
    "cut off",
)


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


@pytest.mark.parametrize("way", [way if way in SAMPLE else pytest.param(way, marks=pytest.mark.full) for way in WAYS])
def test_no_secret_argument_is_shown_or_written(way: str) -> None:
    places = play(way)
    found = [
        (kind.name, place) for kind in KINDS["arguments"] for place, shown in places.items() if kind.planted in shown
    ]
    assert found == []


@pytest.mark.parametrize(
    "way",
    [
        "as it should be",
        "cut off",
        *(pytest.param(way, marks=pytest.mark.full) for way in ("under a repaired name", "wrong beside it")),
    ],
)
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
    "block", [ImageBlock(url="https://u1:p-77q@h.example/a.png"), FileBlock(url="https://t-77q@h/a")]
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
    assert "-77q" not in shown  # no random id has that letter


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


_ADDRESS = "https://ada:{}@host.example/x"
_IN_FIELDS: Mapping[str, Callable[[str], object]] = {
    "a text": _ADDRESS.format,
    "a mapping": lambda secret: MappingProxyType({"password": secret, "at": [_ADDRESS.format(secret)]}),
    "a tuple": lambda secret: (_ADDRESS.format(secret), {"client_secret": secret}),
    "a set": lambda secret: frozenset({_ADDRESS.format(secret)}),
    "bytes": lambda secret: _ADDRESS.format(secret).encode(),
    "a number": lambda secret: {"pin": int(secret.rpartition("-")[2])},
    "a group of errors": lambda secret: ExceptionGroup("both", [ValueError(_ADDRESS.format(secret))]),
}


def _list_classes() -> list[type[Any]]:
    names = [each.name for each in pkgutil.walk_packages(toolkit.__path__, "toolkit.")]
    modules = [importlib.import_module(name) for name in names if "interop" not in name]  # whose libraries are slow
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    return [each for each in found if each.__module__.startswith("toolkit") and issubclass(each, ToolkitError)] + [
        each for each in found if each.__module__.startswith("toolkit") and is_dataclass(each)
    ]


@pytest.mark.parametrize("place", _IN_FIELDS)
def test_no_repr_of_any_class_shows_a_secret_in_one_of_its_fields(place: str) -> None:
    secret = "plant-7139000001"
    found: list[str] = []
    classes = _list_classes()
    for kind in classes:
        make: Any = kind.__new__  # the constructors of errors take all kinds of facts
        made = make(kind)
        value = _IN_FIELDS[place](secret)
        if isinstance(made, BaseException):
            made.args = (value,)
        for each in fields(made) if is_dataclass(made) else ():
            object.__setattr__(made, each.name, value)
        with suppress(TypeError, AttributeError):  # of a `repr` of its own that takes no such value
            found += [kind.__qualname__] if "7139000001" in repr(made) else []
    assert len(classes) > 300
    assert found == []


_Say = Callable[[str], object]


def _raise(text: str, cause: BaseException | None = None) -> NoReturn:
    raise ValueError(text) from cause


def _raise_group(secret: str) -> NoReturn:
    raise ExceptionGroup("both", [ValueError(f"no account has {secret}")])


def _raise_note(secret: str) -> NoReturn:
    error = ValueError("no account")
    error.add_note(f"the account was {secret}")
    raise error


def _approve(say: _Say) -> ToolLoopConfig[None]:
    return ToolLoopConfig(on_tool_call=lambda request: say(_SECRETS[request.tool_name]))  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]


class _Guard(Middleware[object]):
    def __init__(self, say: _Say) -> None:
        self._say = say

    async def guard_call(self, call: CallInfo[object]) -> Approval | None:
        return cast("Approval | None", self._say(_SECRETS[call.tool_name]))

    async def around_call(self, call: CallInfo[object], proceed: CallProceed) -> ToolOutput:
        output = await proceed()
        return ToolOutput(f"{output.text} with {_SECRETS[call.tool_name]}")


_SECRETS = {
    "typed": "plant-typed-7141",
    "below": "plant-below-7142",
    "numbered": "7143000001",
    "open": "plant-open-7144",
}
_ARGUMENTS: Mapping[str, object] = {
    "typed": {"phrase": _SECRETS["typed"]},
    "below": {"auth": {"by": [{"value": _SECRETS["below"]}]}},
    "numbered": {"pin": int(_SECRETS["numbered"])},
    "open": {"body": {"client_secret": _SECRETS["open"]}},
}
_RETRIES = ToolRetryConfig(max_retries=1, initial_backoff=0)
_SAYINGS: Mapping[str, tuple[_Say, ToolOptionKeywords, ToolLoopConfig[None]]] = {
    "what a tool returns": (lambda secret: f"found {secret}", {}, ToolLoopConfig()),
    "a tool's error": (lambda secret: _raise(f"no account has {secret}"), {}, ToolLoopConfig()),
    "its cause": (lambda secret: _raise("no account", KeyError(secret)), {}, ToolLoopConfig()),
    "a note of it": (_raise_note, {}, ToolLoopConfig()),
    "a group of errors": (_raise_group, {}, ToolLoopConfig()),
    "an error that ends the run": (_raise_group, {}, ToolLoopConfig(on_tool_exception="raise")),
    "an error that is retried": (_raise, {"retry": _RETRIES}, ToolLoopConfig()),
    "an approver's words": (str, {}, _approve(lambda secret: Deny(f"not with {secret}"))),
    "the words of an abort": (str, {}, _approve(lambda secret: Abort(f"not with {secret}"))),
    "an approver's error": (str, {}, _approve(lambda secret: _raise(f"not with {secret}"))),
    "a guard's words": (str, {}, ToolLoopConfig(middleware=[_Guard(lambda secret: Deny(f"not with {secret}"))])),
    "a guard's error": (str, {}, ToolLoopConfig(middleware=[_Guard(_raise)])),
    "what is put round a call": (str, {}, ToolLoopConfig(middleware=[_Guard(lambda _: None)])),
    "the reason for an approval": (
        str,
        {"requires_approval": lambda arguments: f"it has {json.dumps(arguments, default=_reveal)}"},
        _approve(lambda _: True),
    ),
    "the error of such a reason": (
        str, {"requires_approval": lambda arguments: _raise(json.dumps(arguments, default=_reveal))}, ToolLoopConfig()
    ),
    "a preview": (
        str, {"preview": lambda arguments: json.dumps(arguments, default=_reveal)}, _approve(lambda _: True)
    ),
    "a cache's key": (
        str,
        {"cache": True, "cache_key": lambda arguments: _raise(json.dumps(arguments, default=_reveal))},
        ToolLoopConfig(cache=MemoryCache()),
    ),
}  # fmt: skip


def _reveal(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _make_saying_tools(say: _Say, options: ToolOptionKeywords) -> list[Tool[object]]:
    def typed(phrase: SecretStr) -> object:
        """Do it."""
        return say(phrase.get_secret_value())

    schemas: Mapping[str, Any] = {
        "below": {"auth": {"type": "object"}},
        "numbered": {"pin": {"type": "integer"}},
        "open": {"body": {}},
    }
    raw = [
        tool_from_schema(
            name,
            "Do it.",
            {"type": "object", "properties": properties},
            lambda _, name=name: say(_SECRETS[name]),  # type: ignore[misc]
            **options,
        )
        for name, properties in schemas.items()
    ]
    return [tool_from_function(typed, **options), *raw]


def _play_saying(
    saying: str, calls: Sequence[ToolCall], folder: Path, caplog: pytest.LogCaptureFixture
) -> Mapping[str, str]:
    """Return all that is shown and written of a run whose tools, hooks or people repeat secrets of calls."""
    say, options, config = _SAYINGS[saying]
    events: list[LoopEvent] = []
    asked: list[ApprovalRequest] = []
    exporter = InMemorySpanExporter()
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    log = RunLog(folder / "runs")

    def note(event: LoopEvent) -> None:
        events.append(event)

    def ask(request: ApprovalRequest) -> Any:
        asked.append(request)
        assert config.on_tool_call is not None
        return config.on_tool_call(request)

    whole = replace(
        config,
        on_event=note,
        on_tool_call=None if config.on_tool_call is None else ask,
        middleware=(log, Tracing(content="all", tracer_provider=spans), *config.middleware),
    )
    recording = RecordingProvider(ScriptedProvider([AssistantMessage(calls), "done"]), folder / "cassette.jsonl")
    with suppress(ToolCrashedError), caplog.at_level(logging.DEBUG):
        tool_loop_sync(recording, ToolRegistry(_make_saying_tools(say, options)), "go", config=whole)
    log.flush()
    calls_alone = [each for each in events if not isinstance(each, (Done, Failed, ResponseReceived))]
    return {
        "events as JSON": json.dumps([dump_event(each) for each in events]),
        "the repr of events": repr(events),
        "the events": repr([vars(each) for each in calls_alone if not isinstance(each, ArgumentsDelta)]),
        "approvals": repr(asked) + "".join(each.preview + each.reason for each in asked),
        "logs": caplog.text,
        "traces": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "a run log": "".join(file.read_text() for file in (folder / "runs").iterdir()),
        "a cassette": (folder / "cassette.jsonl").read_text(),
    }


@pytest.mark.parametrize("saying", _SAYINGS)
def test_no_secret_comes_out_by_what_tools_hooks_and_people_say_of_a_call(
    saying: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [ToolCall(name, name, json.dumps(arguments)) for name, arguments in _ARGUMENTS.items()]
    places = _play_saying(saying, calls, tmp_path, caplog)
    found = [(name, place) for place, shown in places.items() for name in _SECRETS if _SECRETS[name] in shown]
    assert len(places["events as JSON"]) > 1000
    assert found == []


_BROKEN: Mapping[str, Callable[[str], str]] = {
    "a comma too many": lambda text: text[:-1] + ",}",
    "a fence": lambda text: f"```json\n{text}\n```",
    "encoded twice": json.dumps,
    "single quotes": lambda text: text.replace('"', "'"),
    "a list of one": lambda text: f"[{text}]",
    "wrapped": lambda text: f'{{"arguments": {text}}}',
    "wrapped as a text": lambda text: json.dumps({"arguments": text}),
    "a sentence after": lambda text: f"{text}\nI hope that this helps.",
    "a bracket too many": lambda text: text + "}",
    "the sign of Python": lambda text: text.replace(": ", "="),
    "quotes of print": lambda text: re.sub(r'"([^"]*)"', "\u201c\\1\u201d", text),
    "entities of HTML": html.escape,
}


@pytest.mark.parametrize("way", _BROKEN)
def test_no_secret_of_repaired_arguments_comes_out_by_what_a_tool_says(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [ToolCall(name, name, _BROKEN[way](json.dumps(arguments))) for name, arguments in _ARGUMENTS.items()]
    places = _play_saying("what a tool returns", calls, tmp_path, caplog)
    found = [(name, place) for place, shown in places.items() for name in _SECRETS if _SECRETS[name] in shown]
    assert "found ***" in places["a run log"]
    assert found == []


@pytest.mark.parametrize("text", ["[{}, 1]", "[[{}]]", "{}", '[1, {"n": {}}, {}]', "7 {}"])
def test_arguments_that_are_no_object_are_not_shown_for_a_tool_that_takes_secrets(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [ToolCall("1", "typed", text.replace("{}", f'"{_SECRETS["typed"]}"'))]
    places = _play_saying("what a tool returns", calls, tmp_path, caplog)
    assert [place for place, shown in places.items() if _SECRETS["typed"] in shown] == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["go", "my phrase is plant-7145-x"])
@pytest.mark.parametrize("matching", ["strict", "lenient"])
def test_a_recording_has_no_secret_that_only_a_reply_told_of_and_is_replayed(
    stream: bool, prompt: str, matching: Literal["strict", "lenient"], tmp_path: Path
) -> None:
    @tool
    def sign_in(phrase: SecretStr) -> str:
        """Sign in."""
        return f"welcome, {phrase.get_secret_value()}"

    path, registry, config = tmp_path / "cassette.jsonl", ToolRegistry([sign_in]), ToolLoopConfig[None](stream=stream)
    call = ToolCall("1", "sign_in", '{"phrase": "plant-7145-x"}')
    script = ScriptedProvider([call, "your phrase plant-7145-x is right"])
    tool_loop_sync(RecordingProvider(script, path), registry, prompt, config=config)
    assert "7145" not in path.read_text()
    result = tool_loop_sync(ReplayProvider(path, matching=matching), registry, prompt, config=config)
    assert result.text == "your phrase *** is right"
    with pytest.raises(ConfigurationError, match="was not recorded"):
        tool_loop_sync(ReplayProvider(path, matching=matching), registry, f"Now {prompt}", config=config)


def test_pieces_of_arguments_that_may_have_a_secret_are_not_dumped() -> None:
    text = '{"options": {"client_secret": "plant-7146-x"}}'
    pieces = [ArgumentsDelta(0, "1", "by_open_name", text[at : at + 3]) for at in range(0, len(text), 3)]
    assert {dump_event(each)["text"] for each in pieces} == {"***"}

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    registry = ToolRegistry([add, by_open_name])
    assert len(registry) == 2
    assert dump_event(ArgumentsDelta(0, "1", "add", '{"a": 1'))["text"] == '{"a": 1'


@pytest.mark.anyio
async def test_a_restored_run_goes_on_with_its_secrets_and_shows_none_of_them(tmp_path: Path) -> None:
    taken: list[str] = []

    @tool(requires_approval=True)
    def sign_in(phrase: SecretStr, options: dict[str, Any] | None = None) -> str:
        """Sign in."""
        taken.append(f"{phrase.get_secret_value()} {options}")
        return f"welcome, {phrase.get_secret_value()}"

    arguments = '{"phrase": "plant-7150-x", "options": {"client_secret": "plant-7150-y"}}'
    first = await tool_loop(
        ScriptedProvider([ToolCall("1", "sign_in", arguments)]),
        ToolRegistry([sign_in]),
        "go",
        config=ToolLoopConfig(on_tool_call=lambda _: Defer()),
    )
    snapshot = json.loads(json.dumps(first.snapshot))
    [pending] = snapshot["pending_approvals"]
    assert "7150" not in json.dumps(pending)
    events: list[LoopEvent] = []
    exporter, log = InMemorySpanExporter(), RunLog(tmp_path / "runs")
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    config: ToolLoopConfig[None] = ToolLoopConfig(
        on_event=events.append, middleware=(log, Tracing(content="all", tracer_provider=spans))
    )
    loop = ToolLoopHandle.restore(
        snapshot, ScriptedProvider(["done"]), ToolRegistry([sign_in]), ctx=None, config=config
    )
    await loop.decide("1", Approve(), binding=pending["binding"])
    assert (await loop.run()).text == "done"
    log.flush()
    assert taken == ["plant-7150-x {'client_secret': 'plant-7150-y'}"]
    written = "".join(file.read_text() for file in (tmp_path / "runs").iterdir())
    shown = written + repr(events) + "".join(span.to_json() for span in exporter.get_finished_spans())
    assert shown.count("welcome, ***") >= 3
    assert "7150" not in shown


def test_what_a_provider_quotes_of_a_secret_argument_is_struck_out(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(is_retryable: bool) -> ProviderError:
        return ProviderError("Test", "no such phrase: plant-7147-x", is_retryable=is_retryable)

    events: list[LoopEvent] = []
    script: list[ToolCall | ProviderError] = [
        ToolCall("1", "by_type", '{"phrase": "plant-7147-x"}'),
        refuse(True),
        refuse(False),
    ]
    config: ToolLoopConfig[None] = ToolLoopConfig(
        on_event=events.append, provider_retry=ProviderRetryConfig(initial_backoff=0, jitter=0)
    )
    with pytest.raises(ProviderError, match=r"no such phrase: \*\*\*") as failure:
        tool_loop_sync(ScriptedProvider(script), ToolRegistry([by_type]), "go", config=config)
    shown = repr(failure.value) + repr(events) + json.dumps([dump_event(each) for each in events]) + caplog.text
    assert shown.count("no such phrase: ***") >= 5
    assert "7147" not in shown
