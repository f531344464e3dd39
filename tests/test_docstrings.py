"""Docstrings say what is true in the indicative, and the public ones stand alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolkit

PACKAGE = Path(toolkit.__file__).parent
WORDS = r"(?:Whether|What|Whatever|Which|Who|Whoever|Whom|Whose)\b"
QUESTION = re.compile(WORDS)
ENTRY = re.compile(r"\s+\*{0,2}\w+(?: \([^)]*\))?: " + WORDS + r"(?!.*\?$)")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring: of modules, classes and functions, and below attributes."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield node.lineno, docstring
            case _:
                pass


def find_questions(text: str) -> list[str]:
    """Return the docstrings, and the entries of their `Args` and their like, that begin as a question does."""
    return [
        f"{line}: {said.strip()}"
        for line, docstring in docstrings(text)
        for number, said in enumerate(docstring.splitlines())
        if (number == 0 and QUESTION.match(said)) or ENTRY.match(said)
    ]


def test_no_docstring_begins_as_a_question_does() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): questions
        for path in sorted(PACKAGE.rglob("*.py"))
        if (questions := find_questions(path.read_text(encoding="utf-8")))
    }
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
    assert bool(find_questions(code)) == is_question
