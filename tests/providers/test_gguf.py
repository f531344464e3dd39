"""What a GGUF file says of its model, also where it is broken or lies."""

import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from toolkit import ChatRequest, ConfigurationError, UserMessage
from toolkit.providers.local import LocalProvider
from toolkit.providers.local.gguf import INSTALL_COMMAND, read_gguf_metadata


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def strings(*values: str) -> bytes:
    return struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values))


def file_of(*entries: bytes, version: int = 3, count: int | None = None, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, 0, len(entries) if count is None else count) + b"".join(entries)


NAME = entry("general.name", 8, text("Mine"))


def test_texts_and_numbers_are_read_and_lists_left_out(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(
        file_of(
            NAME,
            entry("tokenizer.ggml.tokens", 9, strings("a", "b" * 1000)),
            entry("tokenizer.ggml.scores", 9, struct.pack("<IQ2f", 6, 2, 0.5, 1.0)),
            entry("general.parameter_count", 10, struct.pack("<Q", 135_000_000)),
            entry("a.flag", 7, b"\x01"),
            entry("a.rate", 6, struct.pack("<f", 0.5)),
            entry("tokenizer.chat_template", 8, text("{% if tools %}é")),
        )
        + b"the weights"
    )
    assert read_gguf_metadata(path) == {
        "general.name": "Mine",
        "general.parameter_count": 135_000_000,
        "a.flag": True,
        "a.rate": 0.5,
        "tokenizer.chat_template": "{% if tools %}é",
    }


BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "does not begin with 'GGUF'"),
    "another file": (b"PK\x03\x04 and so on", "does not begin with 'GGUF'"),
    "only the beginning": (b"GGUF", "no whole GGUF file"),
    "another version": (file_of(NAME, version=9), "its version is 9, and 2 and 3 are known"),
    "the other order of bytes": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its version is 50331648"),
    "fewer entries than it says": (file_of(NAME, count=2), "no whole GGUF file"),
    "too many entries": (file_of(NAME, count=2**60), "claims to have"),
    "a text that is too long": (file_of(text("k") + struct.pack("<IQ", 8, 2**62)), "is too long"),
    "a text that ends outside": (file_of(text("k") + struct.pack("<IQ", 8, 1000)), "ends in the middle"),
    "a list that ends outside": (file_of(entry("k", 9, struct.pack("<IQ", 6, 2**62))), "ends in the middle"),
    "a long list of texts that is not there": (file_of(entry("k", 9, struct.pack("<IQ", 8, 2**62))), "no whole GGUF"),
    "a list of lists": (file_of(entry("k", 9, struct.pack("<IQ", 9, 1))), "a list is of kind 9"),
    "an unknown kind": (file_of(entry("k", 99, b"")), "an entry is of kind 99"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_its_path(tmp_path: Path, name: str) -> None:
    content, message = BROKEN[name]
    path: Any = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message) as failure:
        read_gguf_metadata(path)
    assert str(path) in str(failure.value)


needs_engine = pytest.mark.skipif(
    find_spec("xllamacpp") is None, reason=f"the engine is not installed; `{INSTALL_COMMAND}`"
)


@needs_engine
@pytest.mark.parametrize(
    ("name", "template", "request_temperature", "expected"),
    [
        ("Qwen3 8B", "{% if tools %}", None, (0.6, {"top_p": 0.95, "top_k": 20, "min_p": 0.0, "top_n": 1})),
        ("Qwen3 8B", "{% if tools %}", 0.1, (0.1, {"top_n": 1})),
        ("Llama 3.1 8B", "{% if tools %}", None, (None, {"top_n": 1})),
        ("Nobody's 8B", "{% if tools %}", None, (None, {"top_n": 1})),
    ],
)
def test_a_model_is_sampled_as_its_makers_say_where_they_warn_of_temperature_zero(
    tmp_path: Path,
    name: str,
    template: str,
    request_temperature: float | None,
    expected: tuple[float | None, dict[str, float]],
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file_of(entry("general.name", 8, text(name)), entry("tokenizer.chat_template", 8, text(template))))
    request = ChatRequest(messages=[UserMessage("Hi")], temperature=request_temperature, options={"top_n": 1})
    sampled = LocalProvider(path)._set_sampling(request)  # pyright: ignore[reportPrivateUsage]
    assert (sampled.temperature, sampled.options) == expected


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed: uv pip install xllamacpp")
@pytest.mark.parametrize(
    ("name", "template", "asked"),
    [
        ("Qwen3 8B", "{% if tools %}<tool_call>", "TextToolProvider"),
        ("Gemma 2 9b It", "{{ messages }}", "TextToolProvider"),
        ("Mine", "{% if tools %}<tool_call>", "EngineProvider"),
    ],
)
def test_a_local_model_of_a_known_family_may_write_its_calls_as_text(
    tmp_path: Path, name: str, template: str, asked: str
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file_of(entry("general.name", 8, text(name)), entry("tokenizer.chat_template", 8, text(template))))
    assert type(LocalProvider(path)._asked).__name__ == asked  # pyright: ignore[reportPrivateUsage]
    assert type(LocalProvider(path, calling="native")._asked).__name__ == "EngineProvider"  # pyright: ignore[reportPrivateUsage]
