"""Shortens transcripts between turns; a call and its result are never separated."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    Message,
    Provider,
    SystemMessage,
    ToolResult,
    UserMessage,
    dump_messages,
    is_untrusted,
    validate_transcript,
)
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, LoopUsageError, ProviderError, TranscriptError
from toolkit.settings import check_setting

_SUMMARY_PROMPT = (
    "Summarize the conversation below for a colleague who goes on with it: what was asked, what was found out, what "
    "was done, what is still open. Keep names, numbers and paths exactly. Answer with the summary alone."
)


def keep_last(messages: int) -> Callable[[Sequence[Message]], Sequence[Message]]:
    """Return a compaction that keeps the newest messages, besides the instructions and the first question.

    ::

        config = ToolLoopConfig(compaction=keep_last(40))

    Args:
        messages: The maximum number of messages; exceeded only if the newest turn alone has more.
    """
    check_setting("keep_last", messages, int, least=1)

    def compact(transcript: Sequence[Message]) -> Sequence[Message]:
        head = _count_instructions(transcript)
        start = _find_kept_start(transcript, head, messages)
        return transcript if start == head else [*transcript[:head], *transcript[start:]]

    return compact


def mask_old_results(*, keep_turns: int = 2, min_chars: int = 2000) -> Callable[[Sequence[Message]], Sequence[Message]]:
    """Return a compaction that replaces old results of tools by a note of one line.

    ::

        config = ToolLoopConfig(compaction=mask_old_results(keep_turns=3))

    Errors and short results stay. A masked result does not change again, so that the prompt caches of providers remain
    valid.

    Args:
        keep_turns: The number of newest turns whose results stay whole.
        min_chars: The minimum length of a text that is masked.
    """
    check_setting("keep_turns", keep_turns, int, least=1)
    check_setting("min_chars", min_chars, int, least=0)
    masked: dict[str, ToolResult] = {}

    def mask(result: ToolResult) -> ToolResult:
        known = masked.get(result.call_id)
        if known is None or (known.content != result.content and len(result.text) >= min_chars):
            note = f"[The result of {result.tool_name or 'this call'}, {len(result.text)} characters, was left out.]"
            known = masked[result.call_id] = replace(result, content=note)
        return known

    def compact(transcript: Sequence[Message]) -> Sequence[Message]:
        replies = [(index, each) for index, each in enumerate(transcript) if isinstance(each, AssistantMessage)]
        turns = [index for index, reply in replies if reply.tool_calls]
        if len(turns) <= keep_turns:
            return transcript
        limit = turns[-keep_turns]
        return [
            mask(message)
            if index < limit
            and isinstance(message, ToolResult)
            and not message.is_error
            and (len(message.text) >= min_chars)
            else message
            for index, message in enumerate(transcript)
        ]

    return compact


def summarize(
    provider: Provider, *, max_chars: int = 100_000, keep: int = 10
) -> Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]:
    """Return a compaction that has a model summarize all but the newest messages, once the transcript is too long.

    ::

        config = ToolLoopConfig(compaction=summarize(provider, max_chars=200_000))

    The instructions stay, and the summary is a user message in place of the older messages. The usage of its requests
    is not part of the loop's.

    Args:
        provider: The provider that summarizes.
        max_chars: The maximum length of a transcript, as JSON, that is not summarized.
        keep: The number of newest messages that stay unchanged.

    Raises:
        ProviderError: From the loop, if the provider fails.
    """
    check_setting("keep", keep, int, least=1)
    check_setting("max_chars", max_chars, int, least=0)

    return _Summary(provider, max_chars, keep)


@dataclass(frozen=True)
class _Summary:
    """The compaction of `summarize`."""

    provider: Provider
    max_chars: int
    keep: int

    async def __call__(self, transcript: Sequence[Message]) -> Sequence[Message]:
        return transcript if len(dump_messages(transcript)) <= self.max_chars else await self.shorten(transcript)

    async def shorten(self, transcript: Sequence[Message]) -> Sequence[Message]:
        """Return a transcript whose older messages are summarized, whatever its length is."""
        instructions = next(
            (index for index, message in enumerate(transcript) if not isinstance(message, SystemMessage)), 0
        )
        start = _find_kept_start(transcript, instructions, self.keep)
        if start == instructions:
            return transcript
        text = f"{_SUMMARY_PROMPT}\n\n{dump_messages(transcript[instructions:start])}"
        response = await self.provider.generate(ChatRequest(messages=[UserMessage(text)]))
        summary = UserMessage(f"Summary of the conversation so far:\n\n{response.text}")
        return [*transcript[:instructions], summary, *transcript[start:]]


def _count_instructions(transcript: Sequence[Message]) -> int:
    """Return how many messages at the start are instructions, with the first question after them."""
    for index, message in enumerate(transcript):
        if not isinstance(message, SystemMessage):
            return index + 1 if isinstance(message, UserMessage) else index
    return len(transcript)


def _find_kept_start(transcript: Sequence[Message], head: int, keep: int) -> int:
    """Return where the kept end begins: at most `keep` messages, from the start of a turn or of another message."""
    start = max(head, len(transcript) - keep)
    while start < len(transcript) and isinstance(transcript[start], ToolResult):
        start += 1
    if start < len(transcript):
        return start
    # The newest turn alone is longer than allowed: it stays whole.
    start = len(transcript) - 1
    while start > head and isinstance(transcript[start], ToolResult):
        start -= 1
    return max(start, head)


async def ask_compaction(
    compaction: Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]],
    transcript: Sequence[Message],
    *,
    is_too_long: bool = False,
) -> list[Message]:
    """Return the transcript as a compaction shortens it.

    Args:
        compaction: The compaction.
        transcript: The transcript.
        is_too_long: True if the model refused it: `summarize` then works whatever the length is, and if a compaction
            changes nothing, the older half of the messages is left out.

    Raises:
        LoopError: It raised an exception, or returned no valid transcript.
    """
    try:
        shorter = (
            compaction.shorten(transcript)
            if is_too_long and isinstance(compaction, _Summary)
            else compaction(transcript)
        )
        given = await shorter if inspect.isawaitable(shorter) else shorter
    except (LoopError, ProviderError):
        raise
    except Exception as error:
        raise LoopError(f"the compaction raised {type(error).__name__}: {error}") from error
    try:
        check_setting("what the compaction gives", given, Sequence)
        messages = list(given)
        if is_too_long and messages == list(transcript):
            messages = list(keep_last(max(1, len(messages) // 2))(messages))
        validate_transcript(messages)
    except ConfigurationError as error:
        raise LoopUsageError(str(error)) from None
    except TranscriptError as error:
        raise LoopUsageError(f"the compaction gave a transcript that is not valid: {error}") from error
    return _pass_on_trust(transcript, messages)


def _pass_on_trust(before: Sequence[Message], after: list[Message]) -> list[Message]:
    """Return a shorter transcript in which new messages are untrusted if the old ones had untrusted texts."""
    if not any(map(is_untrusted, before)):
        return after
    known = {id(message) for message in before}
    trusted = {(message.role, message.text) for message in before if not is_untrusted(message)}
    return [
        message
        if isinstance(message, AssistantMessage) or id(message) in known or (message.role, message.text) in trusted
        else replace(message, trust="untrusted")
        for message in after
    ]
