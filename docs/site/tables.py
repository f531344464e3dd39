"""The tables of the reference, made from the code: settings, options, events, endings, errors, messages of loggers."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from griffe import Docstring, DocstringSectionParameters

import toolkit
from toolkit import ToolOptions, errors
from toolkit.chat import Capabilities
from toolkit.endings import TerminationReason
from toolkit.events import LoopEvent, list_fields, name_event
from toolkit.policies import (
    AnswerFormat,
    LoopDetectionConfig,
    LoopLimits,
    OutputLimits,
    ProviderRetryConfig,
    SteeredRetries,
    Timeouts,
    ToolOrder,
    ToolRetryConfig,
    ToolSearch,
    UsageLimits,
)
from toolkit.providers import provider_for
from toolkit.providers.adapter import Adapter
from toolkit.providers.encoding import ChatDialect
from toolkit.providers.servers import SERVERS

# The first is the one that the others stand in.
SETTINGS: tuple[type, ...] = (
    toolkit.ToolLoopConfig,
    LoopLimits,
    UsageLimits,
    Timeouts,
    OutputLimits,
    AnswerFormat,
    LoopDetectionConfig,
    ToolOrder,
    ToolSearch,
    SteeredRetries,
    ProviderRetryConfig,
)
OPTIONS: tuple[type, ...] = (ToolOptions, ToolRetryConfig)
LOG_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")

VENDORS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Chat completions", "openai:gpt-5", {}),
    ("Responses", "openai-responses:gpt-5", {}),
    ("Anthropic", "anthropic:claude-opus-5-5", {}),
    ("Gemini", "google:gemini-3-pro", {}),
    ("Converse", "bedrock:amazon.nova-pro-v1:0", {"region": "us-east-1"}),
    ("Ollama", "ollama:qwen3", {}),
)

_PLAIN_TYPES = {
    "NonNegativeInt": "int, 0 or more",
    "PositiveInt": "int, 1 or more",
    "NonNegativeFloat": "number, 0 or more",
    "ZeroToOne": "number from 0 to 1",
    "Seconds": "seconds or timedelta",
}
_STAMPS = ("run_id", "loop_id", "time")

Row = tuple[str, ...]


def write_settings_page() -> str:
    """Return the page with all settings of a loop."""
    return "# Table of settings\n\nThe fields of `ToolLoopConfig`, and of the groups in it.\n\n" + _write_groups(
        SETTINGS
    )


def write_options_page() -> str:
    """Return the page with all options of a tool."""
    return "# Table of options\n\nThe keywords of `tool`, `tool_with_ctx` and the like.\n\n" + _write_groups(OPTIONS)


def write_loggers_page() -> str:
    """Return the page with each message that a logger of toolkit writes."""
    introduction = "# Table of log messages\n\n[Logging](../logging.md) says how to see them.\n\n"
    return introduction + lay_out(("logger", "level", "message"), list_log_messages())


def write_module_table(module: str) -> str:
    """Return the table that stands at the top of a module's page; empty for most."""
    match module:
        case "toolkit.events":
            return lay_out(("event", "in JSON", "tells", "fields"), list_union_rows(get_args(LoopEvent)))
        case "toolkit.endings":
            return lay_out(("ending", "in JSON", "says", "fields"), list_union_rows(get_args(TerminationReason)))
        case "toolkit.errors":
            return lay_out(("error", "is a", "says"), list_error_rows())
        case _:
            return ""


def write_servers_table() -> str:
    """Return the table of the servers that speak chat completions, for ``docs/providers.md``."""
    usual = ChatDialect()
    rows = [
        (
            f"`{server.name}:`",
            f"[{server.title}]({server.source})",
            f"`{server.base_url}`" if server.base_url else f"`base_url=` or `{server.url_variable}`",
            f"`{server.key_variables[-1]}`" if server.key_variables else "none",
            "; ".join(_describe_dialect(server.dialect, usual)) or "nothing",
        )
        for server in SERVERS.values()
    ]
    return lay_out(("name", "server", "address", "key", "what differs"), rows)


def write_capabilities_table() -> str:
    """Return the table of what each vendor's models can do, for ``docs/providers.md``."""
    made = {title: provider_for(name, api_key="none", **settings) for title, name, settings in VENDORS}
    rows = [cast("Adapter", provider).capabilities() for provider in made.values()]
    arguments = _read_arguments(Capabilities)
    table = [
        (arguments[field.name].rstrip("."), *[str(getattr(row, field.name)) for row in rows])
        for field in dataclasses.fields(Capabilities)
        if field.name != "source"
    ]
    heads = [f"[{title}]({row.source})" for title, row in zip(made, rows, strict=True)]
    return lay_out(("capability", *heads), table)


def _describe_dialect(dialect: ChatDialect, usual: ChatDialect) -> Iterable[str]:
    if dialect.is_openai:
        yield "refuses fields of other servers"
    if dialect.longest_call_id < usual.longest_call_id:
        yield f"call ids of {dialect.longest_call_id} letters"
    if "one" not in dialect.choices:
        yield "a named tool is offered alone"
    if "none" not in dialect.choices:
        yield "no calls: the tools are left out"
    if not dialect.takes_parallel_switch:
        yield "one call at a time is asked for in words"
    if not dialect.takes_schema:
        yield "schemas of answers are asked for in words"
    if not dialect.takes_strict:
        yield "no strict tools"


def list_setting_rows(settings: type) -> list[Row]:
    """Return name, type, default and meaning of each field that may be given."""
    meanings = {**_read_arguments(settings.__mro__[1]), **_read_arguments(settings)}
    fields = [field for field in dataclasses.fields(settings) if field.init and field.name != "_"]
    return [
        (f"`{field.name}`", f"`{_write_type(field)}`", f"`{_write_default(field)}`", meanings.get(field.name, ""))
        for field in sorted(fields, key=lambda field: field.name)
    ]


def list_union_rows(kinds: Iterable[type]) -> list[Row]:
    """Return name, tag in JSON, meaning and fields of the classes of a union."""
    return [(f"`{kind.__name__}`", f"`{_read_tag(kind)}`", _read_summary(kind), _write_fields(kind)) for kind in kinds]


def _read_tag(kind: type) -> str:
    """Return the word by which JSON tells the class: an ending's ``kind``, an event's ``event``."""
    tags = [field.default for field in dataclasses.fields(kind) if field.name == "kind"]
    return str(tags[0]) if kind in get_args(TerminationReason) else name_event(kind)


def _write_fields(kind: type) -> str:
    left_out = _STAMPS if kind in get_args(LoopEvent) else (*_STAMPS, "kind")
    fields = [f"`{name}` {_describe_hint(hint)}" for name, hint in list_fields(kind).items() if name not in left_out]
    return ", ".join(fields) or "none"


def _describe_hint(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    text = text.replace("SystemMessage | UserMessage | AssistantMessage | ToolResult", "Message")
    text = re.sub(r"Complete \|.*Cancelled", "TerminationReason", text)
    text = text.replace("BaseException", "error").replace("ProviderError", "error").replace("~Out", "object")
    return re.sub(r"\bException\b", "error", text).replace("|", "or").replace("typing.", "")


def list_error_rows() -> list[Row]:
    """Return name, parent and meaning of each error, each below its parent."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    kinds.sort(key=lambda kind: [parent.__name__ for parent in reversed(kind.__mro__)])
    return [(f"`{kind.__name__}`", f"`{kind.__base__.__name__}`", _read_summary(kind)) for kind in kinds]


def list_log_messages() -> list[Row]:
    """Return logger, level and text of each message in the sources."""
    folder = Path(inspect.getfile(toolkit)).parent
    rows = {row for path in folder.rglob("*.py") for row in _read_log_calls(path.read_text(encoding="utf-8"))}
    return sorted(rows)


def lay_out(head: Row, rows: Sequence[Row]) -> str:
    """Return a table of Markdown."""
    lines = [head, ("---",) * len(head), *[tuple(cell.replace("|", "\\|") for cell in row) for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _write_groups(kinds: Iterable[type]) -> str:
    head = ("name", "type", "default", "meaning")
    return "\n".join(f"## {kind.__name__}\n\n{lay_out(head, list_setting_rows(kind))}" for kind in kinds)


def _read_arguments(kind: type) -> dict[str, str]:
    sections = Docstring(inspect.getdoc(kind) or "").parse("google", warnings=False)
    return {
        parameter.name: _join_lines(parameter.description)
        for section in sections
        if isinstance(section, DocstringSectionParameters)
        for parameter in section.value
    }


def _read_summary(kind: type) -> str:
    return _join_lines((inspect.getdoc(kind) or "").split("\n\n")[0])


def _join_lines(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _write_type(field: dataclasses.Field[Any]) -> str:
    text = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
    return re.sub(r"\w+", lambda word: _PLAIN_TYPES.get(word[0], word[0]), text)


def _write_default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return (
            repr(field.default_factory()).split("(")[0] + "()" if _is_config(field) else repr(field.default_factory())
        )
    return "required" if field.default is dataclasses.MISSING else repr(field.default)


def _is_config(field: dataclasses.Field[Any]) -> bool:
    return dataclasses.is_dataclass(field.default_factory)


def _read_log_calls(source: str) -> Iterable[Row]:
    """Yield a row for each ``_logger.warning("...")`` of a module."""
    if _MAKER not in source:
        return
    tree = ast.parse(source)
    names = {
        target.id: ast.literal_eval(node.value.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == _MAKER
        for target in node.targets
        if isinstance(target, ast.Name) and node.value.args and isinstance(node.value.args[0], ast.Constant)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if node.func.attr not in LOG_LEVELS:
            continue
        logger = names.get(ast.unparse(node.func.value))
        if logger is not None:
            level = "error" if node.func.attr == "exception" else node.func.attr
            yield f"`{logger}`", f"`{level.upper()}`", _write_message(node.args[0])


_MAKER = "logging.getLogger"


def _write_message(template: ast.expr) -> str:
    text = str(template.value) if isinstance(template, ast.Constant) else "(a text that depends on the case)"
    return re.sub(r"%(\.\d+)?[sdrgf]", "…", text)
