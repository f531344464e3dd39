"""Coverage-guided fuzzing of what reads a model's server: ``python tests/providers/fuzz.py TARGET FOLDER [options]``.

Targets are ``chat``, ``responses``, ``messages`` and ``generate``, the formats of `tests.providers.test_bent_answers`;
the folder keeps the inputs that led somewhere new, and begins with answers as servers give them; the options are
libFuzzer's, such as ``-max_total_time=60``.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def target(name: str) -> Callable[[bytes], None]:
    bent = import_module("tests.providers.test_bent_answers")
    adapter = import_module("toolkit.providers.adapter")
    errors = import_module("toolkit.errors")
    reader = import_module("toolkit.providers.event_stream").EventReader
    from_json = import_module("pydantic_core").from_json
    format_ = bent.FORMATS[name]
    refused = (errors.ProviderError, *adapter.UNREADABLE)

    def heard(data: bytes, size: int) -> tuple[str, list[Any]]:
        """What a stream says, however it is cut into pieces."""
        decoder, events = format_.decoder(), reader()
        told: list[Any] = []
        try:
            for start in range(0, len(data), size):
                for event in events.feed(data[start : start + size]):
                    told += decoder.feed(event)
            told.append(decoder.finish())
        except refused as error:
            return type(error).__name__, []
        bent.check_counts(told[-1].response)
        return "", told

    def test(data: bytes) -> None:
        size, text = 1 + (data[0] if data else 0) % 32, data[1:]
        assert heard(text, size) == heard(text, max(1, len(text))), text
        try:
            body = from_json(text)
        except ValueError:
            return
        if isinstance(body, dict):
            try:
                response = format_.decode(body)
            except refused:
                return
            bent.check_counts(response)
            assert not response.unfinished_calls or response.stop_reason == "max_tokens"

    return test


def write_corpus(name: str, folder: Path) -> None:
    import_ = import_module("tests.providers.test_bent_answers")
    wire, said = import_.FORMATS[name].wire, import_.SAID
    (folder / "whole").write_bytes(b"\x07" + import_module("json").dumps(wire.whole(said)).encode())
    (folder / "pieces").write_bytes(b"\x07" + b"".join(wire.pieces(said)))


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    sys.path.insert(0, str(ROOT))
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["toolkit.providers"]):
        test = target(name)
    write_corpus(name, folder)
    atheris.Setup([sys.argv[0], str(folder), *sys.argv[3:]], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
