"""Docstrings say what is true in the indicative, and the public ones stand alone."""

import ast
import importlib
import inspect
import pydoc
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from docs.site.reference import PUBLIC_MODULES
from tests.package_sources import read_modules

WORDS = r"(?:Whether|What|Whatever|Which|Who|Whoever|Whom|Whose)\b"
QUESTION = re.compile(WORDS)
ENTRY = re.compile(r"\s+\*{0,2}\w+(?: \([^)]*\))?: " + WORDS + r"(?!.*\?$)")


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring: of modules, classes and functions, and below attributes."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield node.lineno, docstring
            case _:
                pass


def find_questions(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the docstrings, and the entries of their `Args` and their like, that begin as a question does."""
    return [
        f"{line}: {said.strip()}"
        for line, docstring in docstrings(nodes)
        for number, said in enumerate(docstring.splitlines())
        if (number == 0 and QUESTION.match(said)) or ENTRY.match(said)
    ]


def test_no_docstring_begins_as_a_question_does() -> None:
    found = {module.name: questions for module in read_modules() if (questions := find_questions(module.nodes))}
    assert found == {}, "say it in the indicative: 'True where ...', 'Return whether ...', 'The name of ...'"


@pytest.mark.parametrize(
    ("code", "is_question"),
    [
        ('def f():\n    """What it gives."""', True),
        ('def f(a):\n    """Return it.\n\n    Args:\n        a: Whether it is.\n    """', True),
        ('class A:\n    """A thing."""\n\n    a = 1\n    """Who asks."""', True),
        ('def f(a):\n    """Return it.\n\n    Args:\n        *a (int): Whose it is.\n    """', True),
        ('def f(a):\n    """Return whether it is.\n\n    Args:\n        a: True where it is.\n    """', False),
        ('def f():\n    """Return it.\n\n    What is not there is None.\n    """', False),
    ],
)
def test_questions_are_found_where_a_sentence_begins(code: str, is_question: bool) -> None:
    assert bool(find_questions(ast.walk(ast.parse(code)))) == is_question


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def find_stray_texts(nodes: Iterable[ast.AST]) -> list[int]:
    """Return the lines of texts that stand as statements where nothing reads them: neither first, nor below a name."""
    found: list[int] = []
    for node in nodes:
        body: list[ast.stmt] = node.body if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) else []
        for before, statement in pairwise(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str())) if not isinstance(before, (ast.Assign, ast.AnnAssign)):
                    found.append(statement.lineno)
                case _:
                    pass
    return found


def test_a_docstring_stands_at_what_it_tells_of() -> None:
    found = {module.name: lines for module in read_modules() if (lines := find_stray_texts(module.nodes))}
    assert found == {}, "a docstring is the first statement, or stands directly below a name"


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ('def f():\n    """Return it."""\n    return 1', []),
        ('"""Of the module."""\na = 1\n"""Of a name."""', []),
        ('def f():\n    """Return it."""\n    """Return something else."""', [3]),
        ('def f():\n    g()\n    """Return it."""', [3]),
    ],
)
def test_texts_that_nothing_reads_are_found(code: str, lines: list[int]) -> None:
    assert find_stray_texts(ast.walk(ast.parse(code))) == lines


PUBLIC = {
    f"{module}.{name}": getattr(importlib.import_module(module), name)
    for module in PUBLIC_MODULES
    for name in importlib.import_module(module).__all__
}

ENTRY_POINTS = [
    "toolkit.Middleware",
    "toolkit.MemoryCache",
    "toolkit.Permissions",
    "toolkit.Steering",
    "toolkit.ToolLoopConfig",
    "toolkit.ToolLoopHandle",
    "toolkit.ToolRegistry",
    "toolkit.stop_after",
    "toolkit.tool",
    "toolkit.tool_from_function",
    "toolkit.tool_from_schema",
    "toolkit.tool_from_schema_with_ctx",
    "toolkit.tool_loop",
    "toolkit.tool_loop_channel",
    "toolkit.tool_loop_stream",
    "toolkit.tool_loop_sync",
    "toolkit.tool_with_ctx",
    "toolkit.tools_of",
    "toolkit.agents.coworker_tools",
    "toolkit.agents.sub_agent_tool",
    "toolkit.builtin.coding_tools",
    "toolkit.chat.dump_messages",
    "toolkit.chat.load_messages",
    "toolkit.interop.from_langchain",
    "toolkit.interop.from_openai_agents",
    "toolkit.interop.from_pydantic_ai",
    "toolkit.interop.to_langchain",
    "toolkit.interop.to_openai_agents",
    "toolkit.interop.to_pydantic_ai",
    "toolkit.parsing.TextToolProvider",
    "toolkit.parsing.read_reply",
    "toolkit.plugin_sdk.serve_plugin",
    "toolkit.policies.keep_last",
    "toolkit.policies.mask_old_results",
    "toolkit.policies.summarize",
    "toolkit.providers.CachedProvider",
    "toolkit.providers.FallbackProvider",
    "toolkit.providers.PricedProvider",
    "toolkit.providers.RateLimitedProvider",
    "toolkit.providers.provider_for",
    "toolkit.providers.anthropic.AnthropicProvider",
    "toolkit.providers.google.GoogleProvider",
    "toolkit.providers.local.LocalProvider",
    "toolkit.providers.openai.OpenAIProvider",
    "toolkit.providers.openai.OpenAIResponsesProvider",
    "toolkit.run_log.RunLog",
    "toolkit.serving.mcp.mcp_app",
    "toolkit.serving.mcp.serve_mcp",
    "toolkit.serving.mcp.serve_mcp_http",
    "toolkit.sources.mcp.mcp_tools",
    "toolkit.sources.openapi.openapi_tools",
    "toolkit.sources.plugin.plugin_tools",
    "toolkit.testing.FlakyProvider",
    "toolkit.testing.FunctionProvider",
    "toolkit.testing.RecordingProvider",
    "toolkit.testing.ReplayProvider",
    "toolkit.testing.ScriptedProvider",
    "toolkit.testing.check_transcript",
    "toolkit.tool_config.load_tools",
    "toolkit.tracing.Tracing",
    "toolkit.ui.serve_viewer",
    "toolkit.ui.viewer_app",
]


def find_described_names() -> set[str]:
    """Return the names that have a docstring below their assignment, such as type aliases."""
    described: set[str] = set()
    for module in read_modules():
        for node, after in pairwise(module.tree.body):
            match node, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str())),
                ):
                    described.add(name)
                case _:
                    pass
    return described


def docstring_of(value: Any) -> str:
    """Return the docstring that is its own, and not that of a base class."""
    return inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value) or ""


def test_the_first_line_of_a_public_docstring_is_a_whole_sentence() -> None:
    described = find_described_names()
    wrong = {
        name: docstring_of(value).partition("\n")[0]
        for name, value in PUBLIC.items()
        if (inspect.isclass(value) or inspect.isroutine(value))
        and not re.match(r"[A-Z`\"\d].*[.:]$", docstring_of(value).partition("\n")[0])
    }
    aliases = [name for name, value in PUBLIC.items() if not inspect.isclass(value) and not inspect.isroutine(value)]
    silent = [name for name in aliases if name.rpartition(".")[2] not in described]
    assert (wrong, silent) == ({}, [])


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_has_an_example_that_is_python(name: str) -> None:
    example = re.search(r"^::\n\n((?: {4}.*\n?|\n)+)", docstring_of(PUBLIC[name]) + "\n", re.MULTILINE)
    assert example is not None, "write one after the first sentence, behind a line with '::'"
    code = textwrap.dedent(example[1])
    compile(code, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert name.rpartition(".")[2] in code


@pytest.mark.parametrize("view", ["tool_loop", "tool_loop_sync", "tool_loop_stream", "tool_loop_channel"])
def test_help_lists_the_keywords_of_a_loop_with_their_types_and_defaults(view: str) -> None:
    shown = pydoc.plain(pydoc.render_doc(PUBLIC[f"toolkit.{view}"]))
    for keyword in (
        "ctx: 'Any' = None",
        "config: 'ToolLoopConfig[Any] | None' = None",
        "decisions: 'Decisions | None'",
    ):
        assert keyword in shown
    assert "options" not in inspect.signature(PUBLIC[f"toolkit.{view}"]).parameters
