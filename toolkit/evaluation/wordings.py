"""Other words for a tool: by rules, and by a model that is asked for some."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolkit.chat import Provider, ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, ProviderError
from toolkit.evaluation.tool_words import ToolWords
from toolkit.loop.config import AnswerFormat, ToolLoopConfig
from toolkit.loop.run import tool_loop
from toolkit.tool_names import check_name
from toolkit.tools.registry import ToolRegistry
from toolkit.word_stems import STOP_WORDS, split_words

__all__ = ["ToolWording", "propose_wordings", "vary_words"]

_FIRST_SENTENCE = re.compile(r".+?[.!?](?=\s|$)", re.DOTALL)
_MOST_WORDS_OF_NAME = 3
_MOST_PROMPTS = 8
_LONGEST_PROPOSED = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWording:
    """Other words for one tool.

    Args:
        tool: The tool.
        rule: How they were made.
        words: The words.
    """

    tool: str
    rule: str
    words: ToolWords


def vary_words(definition: ToolDefinition, prompts: Sequence[str]) -> Iterator[ToolWording]:
    """Yield other words for a tool, by rules; none is what the tool says already.

    Args:
        definition: The tool's name, description and parameters.
        prompts: Requests of users that take this tool, from the training half.
    """
    seen = {definition.description}
    for rule, description in _vary_description(definition, prompts):
        if description and description not in seen:
            seen.add(description)
            yield _describe_as(definition.name, rule, description)
    name = _make_name(definition)
    if name and name != definition.name:
        yield ToolWording(
            tool=definition.name, rule="a name out of the description", words=ToolWords(names={definition.name: name})
        )


async def propose_wordings(
    provider: Provider, definition: ToolDefinition, prompts: Sequence[str], count: int
) -> list[ToolWording]:
    """Ask a model for other descriptions of a tool; none where it gives no usable answer.

    Args:
        provider: The model.
        definition: The tool's name, description and parameters.
        prompts: Requests of users that take this tool, from the training half.
        count: How many to ask for.
    """
    listed = "\n".join(f"- {prompt}" for prompt in prompts[:_MOST_PROMPTS]) or "- (none)"
    question = (
        f"A language model chooses tools by their descriptions. The tool `{definition.name}` is described as: "
        f"{definition.description!r}. Requests that should lead to it:\n{listed}\n\nWrite {count} other descriptions "
        "of one or two short sentences, each different, that fit these and similar requests and promise nothing more."
    )
    config = ToolLoopConfig(answer=AnswerFormat(list[str]), max_iterations=3)
    try:
        result = await tool_loop(provider, ToolRegistry[object](), question, config=config)
    except (ProviderError, LoopError):
        return []
    texts = [text.strip() for text in result.output or () if 0 < len(text.strip()) <= _LONGEST_PROPOSED]
    return [_describe_as(definition.name, "proposed by the model", text) for text in dict.fromkeys(texts[:count])]


def _vary_description(definition: ToolDefinition, prompts: Sequence[str]) -> Iterator[tuple[str, str]]:
    text = " ".join(definition.description.split())
    first = _FIRST_SENTENCE.match(text)
    short = text if first is None else first[0]
    yield "the first sentence alone", short
    parameters: dict[str, object] = definition.parameters.get("properties", {})
    if parameters:
        yield "with its parameters", f"{text} Takes: {', '.join(name.replace('_', ' ') for name in parameters)}."
    if short:
        yield "as a purpose", f"Use this whenever the user wants to {short[0].lower()}{short[1:]}"
    if prompts:
        yield "with a request", f'{short} For example: "{prompts[0]}"'.strip()
    if len(prompts) > 1:
        chosen = [prompts[0], prompts[-1]]
        yield "with two requests", f"{short} For example: {' or '.join(map(_quote_text, chosen))}".strip()
        yield "a request alone", prompts[-1]


def _quote_text(text: str) -> str:
    return f'"{text}"'


def _describe_as(tool: str, rule: str, description: str) -> ToolWording:
    return ToolWording(tool=tool, rule=rule, words=ToolWords(descriptions={tool: description}))


def _make_name(definition: ToolDefinition) -> str:
    """Return a name out of a description: "Find the address of a person." gives `find_address_person`."""
    first = definition.description.partition(".")[0]
    words = [word for place, word in enumerate(split_words(first)) if place == 0 or word not in STOP_WORDS]
    plain = [word for word in words if word.isascii() and word.isalnum()][:_MOST_WORDS_OF_NAME]
    name = "_".join(plain)
    try:
        return check_name(name) if len(plain) > 1 else ""
    except ConfigurationError:
        return ""
