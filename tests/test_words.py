"""One word for each idea: those of the glossary in docs/architecture.md, and no second ones in public names."""

import ast
import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from docs.site.reference import PUBLIC_MODULES
from tests.package_sources import read_modules

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
GLOSSARY = Path(__file__).parents[1] / "docs" / "architecture.md"

SECOND_WORDS = {
    "callback": "hook",
    "chunk": "delta",
    "dependencies": "ctx",
    "deps": "ctx",
    "execution": "run",
    "history": "transcript",
    "interceptor": "middleware",
    "invocation": "call",
    "invoke": "call",
    "kwargs": "options",
    "listener": "hook",
    "llm": "model",
    "mend": "repair",
    "observation": "result",
    "observer": "hook",
    "outcome": "ending",
    "params": "parameters",
    "plugin": "source",
    "query": "prompt",
    "rounds": "turns",
    "session": "run",
    "termination": "ending",
    "thoughts": "reasoning",
    "toolbox": "registry",
    "toolkit": "registry",
    "toolset": "registry",
}
"""Each word that is not used, with the one that is."""

EXCEPTIONS = {
    "ElicitationCallback": "the word of the MCP SDK",
    "RunLog.read_chunk": "a part of a log, and not of a response",
    "AfterToolExecution": "an established name",
    "AfterToolExecutionUpdate": "an established name",
    "BeforeToolExecution": "an established name",
    "BeforeToolExecutionUpdate": "an established name",
    "Execution": "the order in which the calls of a turn run",
    "ToolLoopConfig.execution": "the order in which the calls of a turn run",
    "ToolExecutionEnd": "an established name",
    "ToolExecutionHooks": "an established name",
    "ToolExecutionStart": "an established name",
    "ToolExecutionUpdate": "an established name",
    "FunctionTool.invoke": "an established name",
    "EventListener": "the object that `listener` returns, of a function and the kinds that it takes",
    "listener": "a hook with the kinds of events that it takes",
    "TurnOutcome": "of a turn that is stepped by hand; an ending is of a run",
    "Observer": "an object that takes the events of calls, where a hook is a function",
    "PluginError": "a plugin is one kind of source",
    "PluginTools": "a plugin is one kind of source",
    "plugin_tools": "a plugin is one kind of source",
    "serve_plugin": "a plugin is one kind of source",
    "ToolLoopResult.tool_rounds": "an established name: the turns that ran tools",
    "MCPNativeTool(session)": "the word of MCP",
    "PluginTools(session)": "a plugin's process, from its start to its end",
    "TerminationReason": "an established name",
    "ToolkitError": "the name of the library",
}
"""Each name with such a word, and why it has it."""


SECOND_WORDS_OF_MESSAGES = {
    "agent loop": "loop",
    "conversation history": "transcript",
    "history": "transcript",
    "function call": "call",
    "tool execution": "run, or call",
    "tool use": "call",
    "in the parameter": "in the argument",
    "the parameter encoding": "the argument encoding",
    **{
        word: SECOND_WORDS[word]
        for word in ("callback", "chunk", "invocation", "kwargs", "llm", "observation", "toolbox", "toolset")
    },
}
"""Words that no error and no log message has, each with the one that is used."""


def list_messages() -> list[tuple[str, str]]:
    """Return the module and the fixed words of each error that is raised and of each message that is logged."""
    return [
        (module.name, read_texts(node))
        for module in read_modules()
        for node in module.nodes
        if isinstance(node, ast.Raise) or is_log_call(node)
    ]


def is_log_call(node: ast.AST) -> bool:
    called = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    return isinstance(called, ast.Name) and called.id == "_logger"


def read_texts(node: ast.AST) -> str:
    parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return " ".join([part for part in parts if isinstance(part, str)])


def test_no_message_has_a_second_word_for_an_idea() -> None:
    messages = list_messages()
    assert len(messages) > 500
    found = {
        (module, text, word): right
        for module, text in messages
        for word, right in SECOND_WORDS_OF_MESSAGES.items()
        if re.search(rf"\b{word}s?\b", text, re.IGNORECASE)
    }
    assert found == {}


def public_names() -> set[str]:
    """Return what is exported, its members as ``Class.member``, and parameters as ``function(parameter)``."""
    names: set[str] = set()
    for module in map(importlib.import_module, PUBLIC_MODULES):
        for name in module.__all__:
            names |= {name, *members_of(name, getattr(module, name))}
    return names


def members_of(name: str, exported: Any) -> set[str]:
    names: set[str] = set()
    if inspect.isclass(exported):
        fields = [field.name for field in dataclasses.fields(exported)] if dataclasses.is_dataclass(exported) else []
        members = [member for member in (*vars(exported), *fields) if not member.startswith(("_", "test_"))]
        names |= {f"{name}.{member}" for member in members}
    if inspect.isfunction(exported) or (inspect.isclass(exported) and "__init__" in vars(exported)):
        given = inspect.signature(exported).parameters.values()
        names |= {f"{name}({each.name})" for each in given if each.kind is not each.VAR_KEYWORD}
        names -= {f"{name}({member.rpartition('.')[2]})" for member in names if "." in member}
    return names


def words_of(name: str) -> set[str]:
    """Return the words of the last part of a name, which is what is named."""
    return {word.lower() for word in WORD.findall(re.split(r"[.(]", name.rstrip(")"))[-1])}


def test_no_public_name_has_a_second_word_for_an_idea() -> None:
    found = {name: sorted(words_of(name) & set(SECOND_WORDS)) for name in public_names()}
    wrong = {name: [f"{word} -> {SECOND_WORDS[word]}" for word in words] for name, words in found.items() if words}
    assert {name: words for name, words in wrong.items() if name not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) - set(wrong) == set(), "these have no such word any more: take them off the list"


def test_the_words_that_are_used_are_not_among_those_that_are_not() -> None:
    assert set(SECOND_WORDS.values()) & set(SECOND_WORDS) == set()
    glossary = GLOSSARY.read_text(encoding="utf-8").partition("## Words")[2]
    terms = set(re.findall(r"^- \*\*(\w+)\*\*: ", glossary, re.MULTILINE))
    assert {"turn", "call", "result", "output", "run", "loop", "scope", "ending"} <= terms
    assert terms & set(SECOND_WORDS) == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ToolLoopResult.tool_rounds", {"tool", "rounds"}),
        ("MCPNativeTool(session)", {"session"}),
        ("HTTPError", {"http", "error"}),
        ("run_log", {"run", "log"}),
    ],
)
def test_a_name_is_taken_apart_into_its_words(name: str, words: set[str]) -> None:
    assert words_of(name) == words
