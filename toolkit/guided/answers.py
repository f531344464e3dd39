"""How a guided model is asked for its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from toolkit.chat import ChatRequest, SystemMessage, UserMessage
from toolkit.dataclass import dataclass
from toolkit.guided.holding import strip_tools
from toolkit.guided.turn import GuidedTurn
from toolkit.guided.wording import flatten_message
from toolkit.settings import PositiveInt, check_fields

__all__ = ["AnswerFromResults", "GuidedAnswer"]


class GuidedAnswer(Protocol):
    """Writes the request for the answer of a turn, in text."""

    def write(self, turn: GuidedTurn) -> ChatRequest:
        """Return the request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFromResults:
    """Restates the results as the answer, and asks for a sentence; without results the conversation is answered.

    Args:
        is_quoting: True where the answer must end with the results, word by word, where these are a short line: by a
            grammar as llama.cpp takes it. A small model would rather compute the sum itself, and wrongly. The worth in
            the trials that `toolkit.guided.steps` tells of: 21 tasks of 30 instead of 20.
        longest_quoted: Characters of results that are quoted.
    """

    is_quoting: bool = False
    longest_quoted: PositiveInt = 200

    def __post_init__(self) -> None:
        check_fields(self)

    def write(self, turn: GuidedTurn) -> ChatRequest:
        """Return the request."""
        request = turn.request
        if not turn.past_calls:
            return strip_tools(request, [flatten_message(message) for message in request.messages])
        good = [call.result for call in turn.past_calls if not call.is_error]
        told = "\n".join(good or [call.result for call in turn.past_calls])
        if not good:
            prompt = f"{turn.question}\n\nThat failed: {told}\n\nSay in a sentence that it failed, and why."
        else:
            prompt = f"{turn.question}\n\nThe answer is: {told}\n\nSay the answer in a sentence."
        instructions = [message for message in request.messages if isinstance(message, SystemMessage)]
        asked = strip_tools(request, [*instructions, UserMessage(prompt)])
        quoted = " and ".join([result.strip().rstrip(".") for result in good])
        if self._is_quotable(quoted) and request.response_format is None and "grammar" not in request.options:
            asked = replace(asked, options={**asked.options, "grammar": _make_quoting_grammar(quoted)})
        return asked

    def _is_quotable(self, text: str) -> bool:
        return self.is_quoting and bool(text.strip()) and "\n" not in text and len(text) <= self.longest_quoted


def _make_quoting_grammar(text: str) -> str:
    """Return a grammar: a few words without figures of their own, then the text, then the end."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\t", "\\t")
    return f'root ::= ([^ \\t\\n0-9"{{\\[]{{1,16}} " "){{0,7}} "{quoted}" "."?'
