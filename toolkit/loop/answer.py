"""A final answer of a type: asked for as a tool or in the provider's own way, and checked."""

from __future__ import annotations

from typing import Any, Generic, cast

from toolkit.chat import ResponseFormat
from toolkit.errors import ConfigurationError, InvalidArgumentsError, SchemaError
from toolkit.loop.outcome import Out
from toolkit.schema import MalformedJsonError
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.handler import Registration

__all__ = ["ANSWER_TOOL", "TypedAnswer"]

ANSWER_TOOL = "final_answer"


class TypedAnswer(Generic[Out]):
    """Knows what the answer must look like, and holds it once it was given."""

    __slots__ = ("registration", "value")

    def __init__(self, output_type: type[Out]) -> None:
        self.value: Out | None = None

        def final_answer(answer: Any) -> Any:
            self.value = answer
            return answer

        final_answer.__annotations__ = {"answer": output_type}
        try:
            tool = tool_from_function(
                final_answer,
                name=ANSWER_TOOL,
                description="Give the final answer. Call this once, when you have it, and nothing else with it.",
                result_as_answer=True,
                run_in_thread=False,
            )
        except SchemaError as error:
            raise SchemaError("output_type", error.reason) from error
        self.registration: Registration[Any] = Registration(tool)

    def beside(self, names: Any) -> None:
        """Check that no other tool has the answer's name.

        Raises:
            ConfigurationError: One has.
        """
        if ANSWER_TOOL in names:
            raise ConfigurationError(
                f"a tool is named '{ANSWER_TOOL}', which output_type needs for itself: rename it, or use "
                "output_mode='native'"
            )

    @property
    def format(self) -> ResponseFormat:
        """What the provider is to hold the answer to."""
        return ResponseFormat(self.registration.definition.parameters)

    def read(self, text: str) -> str | None:
        """Take the answer from a reply; return what is wrong with it, or None."""
        try:
            try:
                arguments = self.registration.parse_json(text)
            except MalformedJsonError as error:
                from toolkit.tools.repair import repair_arguments  # noqa: PLC0415 - slow to import, and rarely needed

                mended = repair_arguments(text)
                if mended is None:
                    raise error from None
                arguments = self.registration.parse_json(mended)
        except InvalidArgumentsError as error:
            return error.message
        self.value = cast("Out", arguments["answer"])
        return None
