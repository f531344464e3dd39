"""Coverage-guided fuzzing of what reads a model's words: ``python tests/parsing/fuzz.py TARGET FOLDER [options]``.

Targets are ``reply`` and ``repair``; the folder keeps the inputs that led somewhere new, and begins with the corpus;
the options are libFuzzer's, such as ``-max_total_time=60``.
"""

import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def words_in(value: Any) -> list[str]:
    """All words of the strings and keys in a JSON value."""
    # Not at the top: what is imported before the fuzzer is ready is not followed by it.
    from toolkit.schema.nodes import is_array, is_object

    if is_object(value):
        return [word for key, inner in value.items() for word in [*words_in(key), *words_in(inner)]]
    if is_array(value):
        return [word for inner in value for word in words_in(inner)]
    return re.findall(r"\w+", value) if isinstance(value, str) else []


def check_nothing_invented(arguments: str, text: str) -> None:
    value: Any = json.loads(arguments)
    assert isinstance(value, dict)
    if "\\" in text:
        return  # an escape stands for a character that is not there
    for word in words_in(value):
        assert word in text, (word, text)


def reply_target() -> Callable[[bytes], None]:
    parsing = import_module("toolkit.parsing")
    tools = import_module("tests.parsing.corpus").TOOLS

    def pieces(text: str, size: int) -> list[Any]:
        reader = parsing.ReplyReader(tools)
        parts: list[Any] = []
        for start in range(0, len(text), size):
            parts += reader.feed(text[start : start + size])
        return [*parts, *reader.finish()]

    def test(data: bytes) -> None:
        text = data[1:].decode("utf-8", "surrogateescape")
        reply = parsing.read_reply(text, tools)
        for size in {1, 1 + data[0] % 16} if data else ():
            parts = pieces(text, size)
            assert "".join([part for part in parts if isinstance(part, str)]) == reply.text, text
            others = [part for part in parts if not isinstance(part, str)]
            assert others == [part for part in reply.parts if not isinstance(part, str)], text
        if not reply.calls and not reply.unread:
            assert reply.text == text
        for call in reply.calls:
            assert call.name in text
            check_nothing_invented(call.arguments, text)
        assert all(unread.text in text and unread.reason for unread in reply.unread)

    return test


def repair_target() -> Callable[[bytes], None]:
    repair = import_module("toolkit.tools.repair")
    names = ["get_weather", "add", "read_file", "readFile"]

    def test(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        repaired = repair.repair_arguments(text)
        if repaired is not None:
            check_nothing_invented(repaired, text)
            assert json.loads(repair.repair_arguments(repaired)) == json.loads(repaired)
        name = repair.repair_name(text, names)
        assert name is None or name in names
        assert set(repair.nearest_names(text, names)) <= set(names)

    return test


TARGETS = {"reply": reply_target, "repair": repair_target}


def main() -> None:
    target, folder = sys.argv[1:3]
    sys.path.insert(0, str(ROOT))
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["toolkit.parsing", "toolkit.tools.repair"]):
        test = TARGETS[target]()
    for number, case in enumerate(import_module("tests.parsing.corpus").CORPUS):
        (Path(folder) / str(number)).write_bytes(b"\x03" + case.reply.encode("utf-8", "surrogatepass"))
    atheris.Setup([sys.argv[0], folder, *sys.argv[3:]], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
