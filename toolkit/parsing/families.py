"""The format that a model was trained to write its calls in."""

from __future__ import annotations

import re

from toolkit.parsing.formats import TextFormat

__all__ = ["format_of_model"]

# The first that is found in a model's name counts.
_FAMILIES: tuple[tuple[str, TextFormat], ...] = (
    (r"deepseek(?!.*distill)", "deepseek"),
    (r"kimi|moonshot", "kimi"),
    (r"gpt-?oss", "harmony"),
    (r"minimax", "minimax"),
    (r"phi-?4", "phi"),
    (r"claude", "anthropic"),
    (r"\bglm", "glm"),
    (r"qwen.*coder|coder.*qwen", "qwen"),
    (r"qwen|qwq|hermes|distill", "hermes"),
    (r"mistral|mixtral|ministral|magistral|devstral|codestral", "mistral"),
    (r"llama-?3\.2|llama-?4|gemma", "pythonic"),
    (r"llama-?3", "llama"),
)


def format_of_model(model: str) -> TextFormat:
    """Return the format of the family that a model's name tells; ``hermes``, which most can follow, for all others."""
    name = model.casefold().replace("_", "-")
    for pattern, format_ in _FAMILIES:
        if re.search(pattern, name):
            return format_
    return "hermes"
