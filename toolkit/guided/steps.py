"""The steps that ask the model, and the order in which all are taken.

The worth of a step is told where it was measured: by trials of its idea with a model of half a billion parameters, on
thirty tasks over ten tools, where schemas alone solved 14. Differences of two or three tasks may be chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.chat import Message, ToolDefinition, UserMessage
from toolkit.dataclass import dataclass
from toolkit.errors import ContextTooLongError, ProviderError
from toolkit.guided.checks import RequireGround, RequireNews, StopWhenDone
from toolkit.guided.folding import FoldedSchema, find_named_values, fold_schema, is_choice, is_named
from toolkit.guided.held_views import hold_view, leave_out_repeated
from toolkit.guided.languages import is_spaced
from toolkit.guided.remainders import (
    has_more_of_a_kind,
    is_one_of_several,
    list_used_values,
    may_be_needed,
    write_open_question,
)
from toolkit.guided.short_forms import list_request_stems
from toolkit.guided.spans import has_value
from toolkit.guided.tool_fit import rank_tools
from toolkit.guided.turn import GuidedTurn, StepVerdict
from toolkit.guided.wording import list_example_requests, shorten_description, strike_out, write_choice, write_filling
from toolkit.schema.nodes import is_array, is_object
from toolkit.settings import NonNegativeInt, PositiveInt, check_fields

__all__ = ["DEFAULT_STEPS", "ChooseTool", "FillArguments"]

_LONGEST_NAME_TOKENS = 48
_REFUSED_SCHEMA = frozenset({400, 422, 500, 501})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseTool:
    """Asks which tool the request needs, or whether it is answered without one.

    The tools' descriptions stand as examples of requests, each answered with its tool's name, and after them two of the
    requests that a description quotes (`For example: "Is it warm in Oslo?"`). That descriptions are cut cost no task of
    the trials (20 as before), and saved 40 % of the tokens. `is_selecting` is not measured by itself.

    The tool that fits best stands among the examples once more. In a trial of an earlier form of it, with other changes
    beside, the first choice of SmolLM2-135M was right for 15 of 24 paraphrases instead of 8, and for 6 of 8 requests
    with rich arguments instead of 1.

    Args:
        description_words: How many words of each description are shown.
        is_selecting: True where tools are left out whose required values nobody has said.
        most_at_once: With more tools than this, the winners of groups are asked about again.
        most_repeated: How many of the tools that fit best stand among the examples once more, as the last ones.
        small_talk: The example of a request that needs no tool.
    """

    description_words: PositiveInt = 8
    is_selecting: bool = True
    most_at_once: PositiveInt = 24
    most_repeated: NonNegativeInt = 1
    small_talk: str = "Hello!"

    def __post_init__(self) -> None:
        check_fields(self)

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Choose a tool."""
        tools = list(turn.tools)
        if turn.must_call and len(turn.open_tools) == 1:
            turn.tool = turn.open_tools[0]
            return "next"
        while len(tools) > self.most_at_once:
            groups = [tools[start : start + self.most_at_once] for start in range(0, len(tools), self.most_at_once)]
            winners = [await self._choose_among(turn, group) for group in groups]
            tools = [tool for tool in winners if tool is not None]
            if not tools:
                return "answer"
        turn.tool = await self._choose_among(turn, tools)
        return "answer" if turn.tool is None else "next"

    async def _choose_among(self, turn: GuidedTurn, tools: Sequence[ToolDefinition]) -> ToolDefinition | None:
        answer = "answer"
        while any(tool.name == answer for tool in tools):
            answer += "_"
        # Refused tools stay among the examples: a prompt that begins as the last one did is read from the cache.
        examples = [(shorten_description(tool, self.description_words), tool.name) for tool in tools]
        examples += [(said, tool.name) for tool in tools for said in list_example_requests(tool)]
        names = [tool.name for tool in tools if self._may_be_chosen(turn, tool)]
        if not names:
            return None
        if not turn.must_call:
            # The last examples weigh most; in this place it draws least from the tools.
            examples.insert(1, (self.small_talk, answer))
            names.append(answer)
        if self.most_repeated and len(tools) > self.most_repeated:
            fitting = [tool for tool in rank_tools(turn.question, tools) if tool.name in names][: self.most_repeated]
            examples += [(shorten_description(tool, self.description_words), tool.name) for tool in reversed(fitting)]
        schema = _make_object({"tool": {"enum": names}})
        value = await turn.ask(
            write_choice(examples, write_open_question(turn)), schema, max_tokens=_LONGEST_NAME_TOKENS
        )
        return next((tool for tool in tools if value is not None and tool.name == value["tool"]), None)

    def _may_be_chosen(self, turn: GuidedTurn, tool: ToolDefinition) -> bool:
        if tool.name in turn.refused or not _can_be_called(turn, tool):
            return False
        return not self.is_selecting or hold_view(turn, tool, fold_schema(tool.parameters, turn.question)) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FillArguments:
    """Asks for the arguments of the chosen tool, by a view of its schema alone, as a list with one item for each call.

    Where the words have more values of the same kind than one call takes, a list of calls is asked for. The worth of
    copying and of lists is not measured by itself.

    Args:
        is_copying: True where texts and numbers are held to what was said.
        is_folding: True where optional parameters that the words don't name are left out.
        most_calls: How many calls of the tool one reply may have, where the words may mean several.
        longest_text: How many characters a text may have in the second try after a reply that was cut off.
    """

    is_copying: bool = True
    is_folding: bool = True
    most_calls: PositiveInt = 4
    longest_text: PositiveInt = 120

    def __post_init__(self) -> None:
        check_fields(self)

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Fill in the arguments; a tool that takes none is not asked about."""
        tool = turn.require_tool(self)
        turn.view = fold_schema(tool.parameters, turn.question if self.is_folding else None)
        if not turn.view.properties:
            turn.calls = (turn.view.unfold({}),)
            return "next"
        schema = hold_view(turn, tool, turn.view) if self.is_copying else turn.view.schema
        if schema is None:
            return "again"
        filled = await self._fill_in(turn, schema, 1)
        if filled is None:  # a model that loops inside a text comes to its end where the text has one
            filled = await self._fill_in(turn, _bound_texts(schema, self.longest_text), 1)
        elif (other := leave_out_repeated(schema, filled[0])) is not None:
            filled = await self._fill_in(turn, other, 1) or filled
        elif self._may_be_several(turn, filled[0]):
            filled = await self._fill_in(turn, schema, self.most_calls) or filled
        turn.calls = [turn.view.unfold(_leave_out_unsaid(turn, turn.view, values)) for values in filled or ()]
        return "next" if filled else "again"

    def _may_be_several(self, turn: GuidedTurn, values: Mapping[str, Any]) -> bool:
        """Return whether the words may mean another call: not of a tool that is named, or that takes a list."""
        assert turn.view is not None
        has_list = any(node.get("type") == "array" for node in turn.view.properties.values())
        if has_list or turn.is_tool_named or turn.request.parallel_tool_calls is False or self.most_calls == 1:
            return False
        is_said = all(turn.ground.holds(value) for name, value in values.items() if name not in turn.view.asked)
        return is_said and has_more_of_a_kind(turn.question, turn.view, values)

    async def _fill_in(
        self, turn: GuidedTurn, schema: Mapping[str, Any], most: int
    ) -> Sequence[Mapping[str, Any]] | None:
        assert turn.tool is not None
        assert turn.view is not None
        prompt = write_filling(turn, turn.tool, turn.view.properties, has_several=most > 1)
        return await self._ask_by_types(turn, turn.view, [UserMessage(prompt)], schema, most)

    async def _ask_by_types(
        self, turn: GuidedTurn, view: FoldedSchema, messages: Sequence[Message], schema: Mapping[str, Any], most: int
    ) -> Sequence[Mapping[str, Any]] | None:
        try:
            return await _ask_for_calls(turn, messages, schema, most)
        except ContextTooLongError:
            raise
        except ProviderError as error:
            if error.status not in _REFUSED_SCHEMA:
                raise
            # The engine can't make a grammar of it: of the types alone every engine can.
            return await _ask_for_calls(turn, messages, _keep_types(view.schema), most)


DEFAULT_STEPS = (StopWhenDone(), ChooseTool(), FillArguments(), RequireGround(), RequireNews())
"""The steps of a turn."""


def _make_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _can_be_called(turn: GuidedTurn, tool: ToolDefinition) -> bool:
    """Return whether words are left for a tool that was not called, or values for one that was."""
    if not turn.past_calls or turn.must_call or not is_spaced(turn.question):
        return True
    if all(call.name != tool.name for call in turn.past_calls):
        return may_be_needed(turn, tool)
    left = strike_out(turn.question, list_used_values(turn))
    stems = frozenset(list_request_stems(left))
    named = (
        find_named_values(node.get("enum", ()), stems) for node in fold_schema(tool.parameters).properties.values()
    )
    return has_value(left) or any(named) or is_one_of_several(turn, tool)


async def _ask_for_calls(
    turn: GuidedTurn, messages: Sequence[Message], schema: Mapping[str, Any], most: int
) -> Sequence[Mapping[str, Any]] | None:
    if most == 1:
        values = await turn.ask(messages, schema)
        return None if values is None else [values]
    several = {"type": "array", "items": schema, "minItems": 1, "maxItems": most}
    reply = await turn.ask(messages, _make_object({"calls": several}))
    return None if reply is None else reply["calls"]


def _leave_out_unsaid(turn: GuidedTurn, view: FoldedSchema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without optional ones that were not said, and without such items of lists."""
    kept: dict[str, Any] = {}
    required = [values[name] for name in values if name not in view.asked]
    for name, value in values.items():
        node = view.properties.get(name, {})
        value = _drop_repeated_texts(turn.ground.without_ungrounded(value))  # noqa: PLW2901
        if name in view.asked:
            if "enum" in node and not _is_choice_said(turn, name, node["enum"], value):
                continue
            if not is_choice(node) and (not turn.ground.holds(value) or value in required):
                continue
        kept[name] = value
    return kept


def _is_choice_said(turn: GuidedTurn, name: str, choices: Sequence[Any], value: Any) -> bool:
    """Return whether an optional choice was named, or its parameter was, with no choice beside: "it is urgent"."""
    stems = frozenset(list_request_stems(turn.question))
    if find_named_values([value], stems) or (not isinstance(value, str) and turn.ground.holds(value)):
        return True
    return not find_named_values(choices, stems) and is_named(name, {}, stems)


def _drop_repeated_texts(value: Any) -> Any:
    is_list_of_texts = is_array(value) and all(isinstance(item, str) for item in value)
    return list(dict.fromkeys(value)) if is_list_of_texts else value


def _bound_texts(schema: Any, longest: int) -> Any:
    if is_array(schema):
        return [_bound_texts(item, longest) for item in schema]
    if not is_object(schema):
        return schema
    bounded = {key: _bound_texts(value, longest) for key, value in schema.items()}
    if bounded.get("type") == "string" and "enum" not in bounded:
        bounded["maxLength"] = longest
    if bounded.get("type") == "array" and "maxItems" not in bounded:
        bounded["maxItems"] = 16
    return bounded


def _keep_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: {"type": node["type"]} if isinstance(node.get("type"), str) else {}
        for name, node in schema["properties"].items()
    }
    return {"type": "object", "properties": plain, "required": list(schema["required"])}
