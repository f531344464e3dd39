"""No word of a docstring vanishes: those of all installed packages are read, or a sample of them."""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.schema.docstring import read_docstring

PACKAGES = Path(sysconfig.get_paths()["purelib"])
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
# From here on words may be left out: what a function returns, raises and shows is not for models.
LEFT_OUT = re.compile(
    r"^\W*(?:returns?|return values?|yields?|receives|raises?|throws|exceptions?|except|warns|examples?|attributes|"
    r"methods|see also|references|todo|rtype|ytype|i?c?var|vartype|meta)\b",
    re.IGNORECASE | re.MULTILINE,
)
NOTATION = re.compile(r"(?:kw)?(?:arg|argument|parameter|param|type)s?|keyword|key|other|and|notes", re.IGNORECASE)


def documented_in(path: Path) -> Iterator[tuple[str, list[str], str]]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (text := ast.get_docstring(node)):
            found = node.args
            names = [*found.posonlyargs, *found.args, *found.kwonlyargs, found.vararg, found.kwarg]
            yield f"{path}:{node.lineno}", [name.arg for name in names if name is not None], text


def words_in(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


def words_kept(text: str, names: list[str]) -> Counter[str]:
    """Return all words of what was read; its `repr` shows no value that has the name of a secret."""
    found = read_docstring(text, names)
    texts = [f"{name} {one.description} {one.type_text or ''}" for name, one in found.parameters.items()]
    return words_in("\n".join([found.description, *texts]))


def lost_words(text: str, names: list[str]) -> Counter[str]:
    left_out = LEFT_OUT.search(text)
    found = read_docstring(text, names)
    kept = words_in(found.description)
    for name, documented in found.parameters.items():
        # A name stands once where its text is and may stand again where its type is.
        kept += words_in(f"{documented.description} {documented.type_text or ''}") + Counter({name: 2})
    lost = words_in(text[: left_out.start()] if left_out is not None else text) - kept
    return Counter({word: count for word, count in lost.items() if not NOTATION.fullmatch(word)})


def check(paths: list[Path]) -> int:
    losses: dict[str, Counter[str]] = {}
    total = 0
    for path in paths:
        for place, names, text in documented_in(path):
            total += 1
            # What is said twice is kept once, and so are two texts of one name.
            lost = lost_words(text, names)
            if lost and not all(word in words_kept(text, names) for word in lost):
                losses[place] = lost
    assert losses == {}
    return total


def python_files() -> list[Path]:
    own = [path for path in LIBRARY.rglob("*.py") if "site-packages" not in path.parts and "test" not in path.parts]
    return sorted([*own, *PACKAGES.rglob("*.py")])


def test_no_word_of_a_docstring_vanishes() -> None:
    assert check(random.Random(7).sample(python_files(), 60)) > 50


@pytest.mark.full
def test_no_word_of_any_docstring_vanishes() -> None:
    assert check(python_files()) > 10_000
