"""The parts and the prompt that a loop is made of, checked, with errors that show what would be right."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, TypeAlias

from typing_extensions import TypedDict

from toolkit.calls.approval import Approval
from toolkit.calls.output import READER
from toolkit.chat import (
    ChatRequest,
    Message,
    SystemMessage,
    UserMessage,
    repair_transcript,
    validate_transcript,
)
from toolkit.errors import ConfigurationError, TranscriptError
from toolkit.loop.config import ANSWER_TOOL, ToolLoopConfig, explain_loop_keyword
from toolkit.loop.outcome import Out, Snapshot
from toolkit.settings import check_setting, describe_value
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.registry import ToolRegistry

_logger = logging.getLogger("toolkit.loop")

Prompt: TypeAlias = str | Sequence[Message] | ChatRequest | Snapshot
"""The start of a loop: a question, a transcript, a request with its settings, or a saved loop."""

Decisions: TypeAlias = Mapping[str, Approval | bool | str]
"""The decisions on the calls of a snapshot, by call id; each holds for the call as it is pending in that snapshot."""


class LoopOptions(TypedDict, Generic[Out], total=False):
    """The keywords of every view of a loop, beside its context.

    Args:
        config: The settings.
        system_prompt: Stands first, in the place of one that the transcript begins with.
        decisions: With a snapshot: what was decided on calls that await it, by their ids.
    """

    config: ToolLoopConfig[Out] | None
    system_prompt: str
    decisions: Decisions | None


def check_parts(provider: object, registry: object, prompt: object, config: object) -> None:
    """Check that what a loop is made of is of the right kind.

    Raises:
        ConfigurationError: Says which part is not, and what would fit.
    """
    is_name = isinstance(provider, (str, type))
    if is_name or not (hasattr(provider, "generate") and hasattr(provider, "stream")):
        raise ConfigurationError(
            "the provider of a loop must be an object with 'generate' and 'stream', such as OpenAIProvider('gpt-5') or "
            f"provider_for('openai:gpt-5'), not {describe_value(provider)}"
        )
    check_setting("the registry of a loop", registry, ToolRegistry)
    if not isinstance(prompt, dict):
        check_setting("what a loop starts from", prompt, str, Sequence, ChatRequest)
    check_setting("the config of a loop", config, ToolLoopConfig, None)
    limits = config.limits.usage if isinstance(config, ToolLoopConfig) else None
    if limits is not None and limits.cost is not None and not getattr(provider, "reports_cost", True):
        raise ConfigurationError(
            f"UsageLimits(cost={limits.cost:g}) would limit nothing: {provider!r} never reports the cost of a reply; "
            "wrap it in toolkit.providers.PricedProvider, or limit total_tokens instead"
        )


def check_keywords(misspelled: Iterable[str]) -> None:
    """Refuse keywords that a loop does not take.

    Raises:
        ConfigurationError: Says where what was meant goes.
    """
    for name in misspelled:
        advice = explain_loop_keyword(name)
        if name in {field.name for field in fields(ToolLoopConfig) if field.init}:
            right = f"it is a setting, config=ToolLoopConfig({name}=...)"
        elif advice:
            right = f"write {advice}"
        else:
            right = ask_whether_meant(find_similar(name, _KEYWORDS, most=1)) or f"it takes {', '.join(_KEYWORDS)}"
        raise ConfigurationError(f"a loop takes no '{name}': {right}")


_KEYWORDS = ("ctx", "config", "system_prompt", "decisions")


def check_prompt(
    prompt: str | Sequence[Message] | ChatRequest, system_prompt: str
) -> str | Sequence[Message] | ChatRequest:
    """Return what a loop starts from, with its system prompt first.

    Raises:
        ConfigurationError: There is nothing to ask.
    """
    check_setting("system_prompt", system_prompt, str)
    messages = prompt.messages if isinstance(prompt, ChatRequest) else prompt
    if not (messages.strip() if isinstance(messages, str) else messages):
        raise ConfigurationError(
            "what a loop starts from is empty, and the model would be asked nothing: give a question, or a transcript "
            "of at least one message"
        )
    if not system_prompt:
        return prompt
    transcript = transcript_of(prompt)
    if isinstance(transcript[0], SystemMessage):
        del transcript[0]
    transcript.insert(0, SystemMessage(system_prompt))
    return replace(prompt, messages=transcript) if isinstance(prompt, ChatRequest) else transcript


def with_options(prompt: str | Sequence[Message] | ChatRequest, options: Mapping[str, Any]) -> ChatRequest:
    """Return a request with these options laid over its own."""
    if isinstance(prompt, ChatRequest):
        return replace(prompt, options={**prompt.options, **options})
    return ChatRequest(messages=transcript_of(prompt), options=dict(options))


def transcript_of(prompt: str | Sequence[Message] | ChatRequest) -> list[Message]:
    """Return a list of the loop's own: the caller's is never changed."""
    if isinstance(prompt, str):
        return [UserMessage(prompt)]
    messages = list(prompt.messages if isinstance(prompt, ChatRequest) else prompt)
    try:
        validate_transcript(messages)
    except TranscriptError as error:
        repaired = repair_transcript(messages)
        _logger.warning("the transcript handed in is not valid and was repaired: %s", error)
        return repaired
    return messages


def warn_of_unmatched_names(registry: ToolRegistry[Any], config: ToolLoopConfig[Any], run_id: str) -> None:
    """Warn of rules, tags and names of tools that match no tool: most are misspelled, and have no effect."""
    for finding in registry.list_unmatched():
        _logger.warning("run %s: %s", run_id, finding)
    if config.loop_detection is not None and config.loop_detection.exempt:
        known = (*registry.names, *registry.hidden_names, ANSWER_TOOL, READER)
        for name in config.loop_detection.exempt:
            if name not in known:
                meant = ask_whether_meant(find_similar(name, known, most=1))
                _logger.warning("run %s: loop_detection exempts '%s', which is no tool; %s", run_id, name, meant)
