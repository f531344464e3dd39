"""A final answer of a type: asked for as a tool or in the provider's own way, and checked."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, Generic, cast

from toolkit.calls.handler import Registration
from toolkit.calls.prepare import Ready
from toolkit.chat import ResponseFormat, UserMessage
from toolkit.errors import ConfigurationError, InvalidArgumentsError, SchemaError
from toolkit.loop.config import ANSWER_TOOL, AnswerFormat
from toolkit.loop.outcome import NoValidAnswer, Out, TypedAnswer
from toolkit.schema import MalformedJsonError
from toolkit.tools.decorators import tool_from_function

__all__ = ["ExpectedAnswer"]

# The words about the arguments of a call, and those about an answer.
_OF_ANSWERS = [
    (re.compile(r"^The arguments have", re.MULTILINE), "Your answer has"),
    (re.compile(r"^The arguments are", re.MULTILINE), "Your answer is"),
    (re.compile(r"(?<=complete JSON: )they end", re.MULTILINE), "it ends"),
    (re.compile(r"^- arguments: ", re.MULTILINE), "- the answer: "),
    (re.compile(r"^Call it again", re.MULTILINE), "Answer again"),
]


class ExpectedAnswer(Generic[Out]):
    """Knows what the answer must look like, and holds it once it was given.

    Args:
        wanted: The settings.

    Attributes:
        registration: The tool by which the model gives its answer.
        retries_left: How often the model may be asked again.
        value: The answer.
    """

    __slots__ = ("_asks_by_tool", "registration", "retries_left", "value")

    def __init__(self, wanted: AnswerFormat[Out]) -> None:
        self.value: Out | None = None
        self.retries_left: int = wanted.max_retries
        self._asks_by_tool = wanted.mode == "tool"

        def final_answer(answer: Any) -> Any:
            self.value = answer
            return answer

        final_answer.__annotations__ = {"answer": wanted.type if wanted.has_type else str}
        try:
            tool = tool_from_function(
                final_answer,
                name=ANSWER_TOOL,
                description="Give the final answer. Call this once, when you have it, and nothing else with it.",
                result_as_answer=True,
                run_in_thread=False,
            )
        except SchemaError as error:
            raise SchemaError("the type of AnswerFormat", error.reason) from error
        self.registration: Registration[Any] = Registration(tool)
        self.registration.is_offered_by_loop = True

    def check_name(self, names: Container[object]) -> None:
        """Check that no other tool has the answer's name.

        Raises:
            ConfigurationError: One has.
        """
        if ANSWER_TOOL in names:
            raise ConfigurationError(
                f"a tool is named '{ANSWER_TOOL}', which AnswerFormat needs for itself: rename it, or use "
                "AnswerFormat(..., mode='native')"
            )

    @property
    def format(self) -> ResponseFormat:
        """The schema that the provider is to hold the answer to."""
        return ResponseFormat(self.registration.definition.parameters)

    def judge(self, text: str) -> TypedAnswer | NoValidAnswer | UserMessage:
        """Return the consequence of a reply in words: the answer, the end, or the message that asks once more."""
        if self._asks_by_tool:
            problem = f"Give your answer by calling the tool {ANSWER_TOOL}."
        else:
            found = self.read(text)
            if found is None:
                return TypedAnswer()
            problem = f"That answer can't be used. {found}"
        if self.retries_left == 0:
            return NoValidAnswer(problem)
        self.retries_left -= 1
        return UserMessage(problem)

    def count_wrong_call(self, problem: str) -> NoValidAnswer | None:
        """Count a wrong call of the answer's tool as a wrong answer; return the end where it was one too many."""
        if self.retries_left == 0:
            return NoValidAnswer(problem)
        self.retries_left -= 1
        return None

    def restore(self, call: Ready[Any] | None, text: str) -> None:
        """Read an answer again that was given in another process: by a call, or in words."""
        if self._asks_by_tool:
            self.value = None if call is None else call.arguments["answer"]
        else:
            self.read(text)

    def read(self, text: str) -> str | None:
        """Take the answer from a reply in words; return what is wrong with it, in words that speak of it, or None."""
        try:
            try:
                arguments = self.registration.parse_json(text)
            except MalformedJsonError as error:
                from toolkit.calls.repair.names import repair_arguments  # noqa: PLC0415 - slow to import, and rarely needed

                mended = repair_arguments(text)
                if mended is None:
                    raise error from None
                arguments = self.registration.parse_json(mended)
        except InvalidArgumentsError as error:
            message = error.message
            for pattern, words in _OF_ANSWERS:
                message = pattern.sub(words, message)
            return message
        self.value = cast("Out", arguments["answer"])
        return None
