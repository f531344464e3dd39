"""Typed answers of a run: their tools, the validation of an answer in text, and partial answers.

Pydantic parses the text of a partial answer, and validates it by the schema of the type with all fields optional. Texts
grow by pieces and lists by whole items; other values appear once they are complete.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError, WrapValidator
from pydantic_core import SchemaValidator, core_schema, from_json

from toolkit.calls.argument_repair import repair_arguments
from toolkit.calls.output import RunMemory
from toolkit.calls.prepare import Ready, Scope
from toolkit.calls.registration import Registration, ToolOptions
from toolkit.calls.run import CallHost, run as run_call
from toolkit.chat import ResponseFormat, ToolCall, ToolResult, UserMessage
from toolkit.chat.provider import ArgumentsDelta, TextDelta
from toolkit.errors import ConfigurationError, InvalidArgumentsError, SchemaError
from toolkit.json_text import write_json
from toolkit.logs import secrets_in_use
from toolkit.loop.config import ANSWER_TOOL, AnswerCheck, AnswerFormat, ToolLoopConfig
from toolkit.loop.events import IterationStart, LoopEvent, ProviderRetried
from toolkit.loop.feeds import AnswerJudged
from toolkit.loop.outcome import NoValidAnswer, Out, ToolLoopResult, TypedAnswer
from toolkit.schema import MalformedJsonError, find_local_names, kind_of, read_signature
from toolkit.schema.problems import describe_errors
from toolkit.settings import describe_value
from toolkit.tools.function_tool import FunctionTool, describe_function, read_value
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, ErrorDetails

    from toolkit.loop.run import Run

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*("?)|[\[\]{},]', re.DOTALL)
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}
_BEGINS = re.compile(r'[{\["]')
_PARTS = 64
_NOTHING = object()


class _CutText(str):
    """A text that may be incomplete."""

    __slots__ = ()


class PartialAnswers:
    """Reads a typed answer from the pieces of a reply, as text, or as the arguments of a tool.

    The text is parsed again after it has grown by a fraction of its length, so that the total cost is linear. The
    answer is the member ``answer`` of an object in the core schema, and in the text if `is_wrapped`.
    """

    __slots__ = ("_index", "_is_wrapped", "_last", "_length", "_pieces", "_read", "_schema", "_tool_name", "_validator")

    def __init__(self, schema: CoreSchema, tool_name: str | None, *, is_wrapped: bool) -> None:
        self._schema: Any = schema
        self._validator = SchemaValidator(cast("CoreSchema", _loosen_schema(schema)))
        self._tool_name = tool_name
        self._is_wrapped = is_wrapped
        self._begin_answer(None)

    def check_text(self, field: str | None) -> None:
        """Check that the answer is a text, or that a field of it is one.

        Raises:
            ConfigurationError: It is not; the message names the fields that are texts.
        """
        refs: dict[str, Any] = {each["ref"]: each for each in self._schema.get("definitions", ())}
        [whole] = _list_arms(self._schema, refs)
        arms = list(_list_arms(_read_fields(_find_parts(whole))["answer"]["schema"], refs))
        parts = [_find_parts(arm) for arm in arms if arm["type"] in _OBJECTS]
        fields = {name: each["schema"] for part in parts if part for name, each in _read_fields(part).items()}
        texts = [name for name, each in fields.items() if _may_be_text(each, refs)]
        is_open = None in parts or any(map(_takes_any_field, arms))
        if any(_may_be_text(arm, refs) for arm in arms) if field is None else is_open or field in texts:
            return
        named = ", ".join(map(repr, texts)) or "none"
        if field is None:
            raise ConfigurationError(f"the answer is no text: name a field of it that is one: {named}")
        if not fields:
            raise ConfigurationError("the answer has no fields: call answer_text() if it is a text")
        problem = f"the field '{field}' of the answer is no text" if field in fields else f"the answer has no '{field}'"
        raise ConfigurationError(f"{problem}; its texts: {named}")

    def _begin_answer(self, index: int | None) -> None:
        self._index = index  # of the call in its reply
        self._pieces: list[str] = []
        self._length = self._read = 0
        self._last: object = _NOTHING

    def take(self, event: LoopEvent) -> list[Any]:
        """Return a list with the partial answer after an event; an empty one if nothing changed."""
        match event:
            case IterationStart() | ProviderRetried():
                self._begin_answer(None)
            case TextDelta(text) if self._tool_name is None:
                return self._add_piece(text)
            case ArgumentsDelta(index=index, tool_name=name, text=text):
                if name == self._tool_name and index != self._index:
                    self._begin_answer(index)
                if index == self._index:
                    return self._add_piece(text)
            case _:
                pass
        return []

    def _add_piece(self, piece: str) -> list[Any]:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length - self._read < max(1, self._read // _PARTS):
            return []
        self._read = self._length
        text = "".join(self._pieces)
        self._pieces = [text]
        data = _read_data(text, is_wrapped=self._is_wrapped)
        if data is _NOTHING or (data == self._last and type(data) is type(self._last)):
            return []
        self._last = data
        try:
            found = self._validator.validate_python({"answer": data}, allow_partial=True)
        except ValidationError:
            return []
        return [found["answer"]] if "answer" in found else []


def _read_data(text: str, *, is_wrapped: bool) -> Any:
    """Return the JSON values of a partial answer; `_NOTHING` if there are none yet."""
    begin = _BEGINS.search(text)
    whole, is_cut = _cut_to_whole(text[begin.start() :] if begin else "")
    try:
        data = from_json(whole, allow_partial="trailing-strings")
    except ValueError:  # empty so far, or no JSON
        return _NOTHING
    if is_cut:
        data = _mark_cut(data)
    if not is_wrapped:
        return data
    return cast("dict[str, Any]", data).get("answer", _NOTHING) if isinstance(data, dict) else _NOTHING


def _cut_to_whole(text: str) -> tuple[str, bool]:
    """Return the text without an incomplete number, word or list item at its end, and True if it ends inside a text.

    For example, ``{"days": [{"n": 1}, {"n"`` becomes ``{"days": [{"n": 1}``.
    """
    outer = depth = end = whole = 0  # `outer` is the depth of the outermost open list
    for token in _TOKEN.finditer(text):
        kind, end = token[0][0], token.end()
        if kind == '"' and not token[1]:
            is_value = not depth or text[: token.start()].rstrip().endswith(":")
            return (text[:whole], False) if outer else (text, is_value)
        if kind in "]}" and depth == outer:
            outer = 0
        depth += _DEEPER.get(kind, 0)
        if kind == "[":
            outer = outer or depth
        if outer and depth == outer:  # behind an item of that list, or before a comma
            whole = token.start() if kind == "," else end
        if not depth:
            break
    return text[: whole if outer else end], False


def _mark_cut(data: Any) -> Any:
    """Return the values with the last text marked as incomplete."""
    if isinstance(data, str):
        return _CutText(data)
    if isinstance(data, dict) and data:
        values = cast("dict[str, Any]", data)
        last = next(reversed(values))
        values[last] = _mark_cut(values[last])
    return data  # pyright: ignore[reportUnknownVariableType]


# the schema of a type with all fields optional


def _loosen_schema(schema: Any) -> Any:
    """Return a core schema in which fields may be missing; items of lists are complete, and stay as they are."""
    kind = schema["type"]
    match kind:
        case "definitions":
            definitions = [*schema["definitions"], *map(_loosen_schema, schema["definitions"])]
            return {**schema, "schema": _loosen_schema(schema["schema"]), "definitions": definitions}
        case "definition-ref":
            return {**schema, "schema_ref": _name_loose(schema["schema_ref"])}
        case "nullable":
            loose = {**schema, "schema": _loosen_schema(schema["schema"])}
        case "default":
            loose = _loosen_schema(schema["schema"])  # a missing field stays missing
        case "union" | "tagged-union":
            loose = {**schema, "choices": _loosen_choices(schema["choices"])}
        case "model" | "dataclass" | "typed-dict":
            loose = _loosen_object(schema)
        case "function-before" | "function-after" | "function-wrap" if _is_object(schema["schema"]):
            loose = _loosen_schema(schema["schema"])  # a validator of the whole object, which is incomplete
        case "str" | "any":
            return schema
        case _:
            return _refuse_cut_text(schema)
    if "ref" in schema:
        loose = {**loose, "ref": _name_loose(schema["ref"])}
    return loose


def _loosen_choices(choices: dict[Any, Any] | list[Any]) -> Any:
    if isinstance(choices, list):  # a choice may have a label
        return [_loosen_schema(each[0] if isinstance(each, tuple) else each) for each in choices]
    return {tag: _loosen_schema(each) for tag, each in choices.items()}


def _name_loose(reference: str) -> str:
    return f"{reference}:partial"


def _is_object(schema: Any) -> bool:
    while schema["type"] in ("function-before", "function-after", "function-wrap"):
        schema = schema["schema"]
    return schema["type"] in ("model", "dataclass", "typed-dict", "definition-ref")


def _loosen_object(schema: Any) -> Any:
    """Return the schema of an object with all fields optional: of the mapping, and of the object made from it."""
    parts = _find_parts(schema)
    if parts is None:
        return _refuse_cut_text(schema)
    loose = {
        name: core_schema.typed_dict_field(
            _loosen_schema(field["schema"]), required=False, validation_alias=field.get("validation_alias")
        )
        for name, field in _read_fields(parts).items()
    }
    config = schema.get("config") or parts.get("config")
    mapping = core_schema.typed_dict_schema(loose, total=False, config=config)
    if schema["type"] == "typed-dict":
        return mapping
    build = _build_model if schema["type"] == "model" else _build_dataclass
    return core_schema.no_info_after_validator_function(lambda values: build(schema["cls"], values), mapping)


def _find_parts(schema: Any) -> Any:
    """Return the part of the schema of an object that has its fields; None for a root model."""
    parts = schema if schema["type"] == "typed-dict" else schema["schema"]
    while parts["type"].startswith("function-"):
        parts = parts["schema"]
    return parts if parts["type"] in ("typed-dict", "model-fields", "dataclass-args") else None


def _read_fields(parts: Any) -> dict[str, Any]:
    named: dict[str, Any] | list[Any] = parts["fields"]
    return {each["name"]: each for each in named} if isinstance(named, list) else named


def _build_model(cls: Any, values: dict[str, Any]) -> Any:
    made = cls.model_construct(**values)
    for name in made.__dict__.keys() - values.keys():  # defaults have not arrived
        del made.__dict__[name]
    return made


def _build_dataclass(cls: Any, values: dict[str, Any]) -> Any:
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _refuse_cut_text(schema: Any) -> Any:
    return core_schema.no_info_before_validator_function(_require_whole, schema)


def _require_whole(value: Any) -> Any:
    if isinstance(value, _CutText):
        raise ValueError("this text may be incomplete")  # noqa: TRY004 - Pydantic turns this one into a problem
    return value


# the texts of a type

_OBJECTS = ("model", "dataclass", "typed-dict")
_NO_TEXT = re.compile(
    "int|float|bool|none|decimal|date.*|time.*|list|tuple|set|frozenset|dict|model|dataclass|typed-dict"
)


def _list_arms(schema: Any, refs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema allows: the arms of a union, without what is round them."""
    match schema["type"]:
        case "definition-ref":
            yield from _list_arms(refs[schema["schema_ref"]], refs)
        case "union" | "tagged-union":
            choices: dict[Any, Any] | list[Any] = schema["choices"]
            for each in choices.values() if isinstance(choices, dict) else choices:
                yield from _list_arms(each[0] if isinstance(each, tuple) else each, refs)
        case "definitions" | "nullable" | "default" | "function-before" | "function-after" | "function-wrap":
            yield from _list_arms(schema["schema"], refs)
        case _:
            yield schema


def _takes_any_field(schema: Any) -> bool:
    config: Mapping[str, Any] = schema.get("config") or {}
    return schema["type"] in ("dict", "any") or config.get("extra_fields_behavior") == "allow"


def _may_be_text(schema: Any, refs: Mapping[str, Any]) -> bool:
    return any(not _NO_TEXT.fullmatch(arm["type"]) for arm in _list_arms(schema, refs))


_DESCRIPTION = "Give the final answer. Call this once, when you have it, and nothing else with it."

# Texts about the arguments of a call, and the same about an answer.
_OF_ANSWERS = [
    (re.compile(r"^The arguments have", re.MULTILINE), "Your answer has"),
    (re.compile(r"^The arguments are", re.MULTILINE), "Your answer is"),
    (re.compile(r"(?<=complete JSON: )they end", re.MULTILINE), "it ends"),
    (re.compile(r"^- arguments: ", re.MULTILINE), "- the answer: "),
    (re.compile(r"^Call it again", re.MULTILINE), "Answer again"),
]
# The same if the reply is the answer itself, and not an object that contains it.
_OF_BARE_ANSWERS = [
    (re.compile(r"^- answer: ", re.MULTILINE), "- the answer: "),
    (re.compile(r"^- answer\.?", re.MULTILINE), "- "),
    (re.compile(r'(?<=for example with: )\{"answer": (.*)\}$', re.MULTILINE), r"\1"),
]


class ExpectedAnswer(Generic[Out]):
    """Reads the typed answer of a run.

    Attributes:
        registrations: The tools that the model calls to answer, by name; in mode ``native`` the reader of the text.
        retries_left: How often the model may be asked again.
        value: The answer that was given in text.
        problems: The problems of the items that were left out of an answer in text.
    """

    __slots__ = ("_is_wrapped", "_reader", "_wanted", "problems", "registrations", "retries_left", "value")

    def __init__(self, wanted: AnswerFormat[Out]) -> None:
        self.value: Out | None = None
        self.retries_left: int = wanted.max_retries
        self._wanted = wanted
        tools = wanted.functions or (_make_answer_tool(wanted),)
        self.registrations: Mapping[str, Registration[Any]] = {
            tool.definition.name: _register_answer(tool) for tool in tools
        }
        self.problems: tuple[str, ...] = ()
        self._reader = next(iter(self.registrations.values()))
        self._is_wrapped = wanted.mode == "tool" or _find_object(self._reader) is None

    def check_tools(self, registry: ToolRegistry[Any]) -> None:
        """Check that no tool of the registry is one of the answer, or has the name of one.

        Raises:
            ConfigurationError: One is, or has.
        """
        for name, mine in self.registrations.items():
            if name in registry and not self._wanted.functions:
                raise ConfigurationError(
                    f"a tool is named '{name}', which AnswerFormat needs for itself: rename it, or use "
                    "AnswerFormat(..., mode='native')"
                )
            if name in registry:
                raise ConfigurationError(
                    f"'{name}' is an answer of AnswerFormat and the name of a tool of the registry too: a call of it "
                    "would be both. Leave it out of one of them"
                )
            same = [each.name for each in registry.registrations.values() if _is_same_function(each, mine)]
            if same:
                raise ConfigurationError(
                    f"'{name}' is an answer of AnswerFormat, and as '{same[0]}' a tool of the registry too: a model "
                    "could not know which of them ends the run. Leave it out of one of them"
                )

    def list_tools(self, ctx: object) -> Mapping[str, Registration[Any]]:
        """Return the tools that the model calls to answer; none in mode ``native``.

        Raises:
            ConfigurationError: There is no context, and a function or the check can't do without one.
        """
        for name, registration in self.registrations.items():
            if ctx is None and registration.needs_context is not None:
                who = f"'{name}'" if self._wanted.functions else "the check"
                raise ConfigurationError(
                    f"{who} of AnswerFormat needs a context of type {registration.needs_context}: pass it as ctx"
                )
        return self.registrations if self._wanted.mode == "tool" else {}

    @property
    def format(self) -> ResponseFormat:
        """The schema for the provider: an object as it is, any other type as a member of an object."""
        return ResponseFormat(_find_object(self._reader) or self._reader.definition.parameters)

    def read_partials(self) -> PartialAnswers:
        """Return a reader of partial answers.

        Raises:
            ConfigurationError: The answer is given by functions, or its check changes its type.
        """
        if self._wanted.functions:
            raise ConfigurationError(
                "functions return their answer whole: a partial answer needs a type, such as AnswerFormat(Forecast)"
            )
        hint: Any = self._wanted.type if self._wanted.has_type else str
        returned = self._find_hint(ANSWER_TOOL)
        if self._wanted.check is not None and returned not in (hint, Any):
            raise ConfigurationError(
                f"the check of AnswerFormat returns {returned!r} in place of {hint!r}: a partial answer would be of "
                "another type than the answer"
            )
        name = ANSWER_TOOL if self._wanted.mode == "tool" else None
        arguments: Any = self._reader.arguments  # of a function, as the answer's tool is one
        return PartialAnswers(arguments.core_schema, name, is_wrapped=self._is_wrapped)

    async def judge(self, text: str, run: Run[Any, Any]) -> AnswerJudged:
        """Validate an answer in text, and return the ending of the run or the message that asks again.

        Raises:
            ToolCrashedError: The check raised no `ToolError`, and ``on_tool_exception`` is ``raise``.
        """
        if self._wanted.mode == "tool":
            names = ", ".join(self.registrations)
            which = f"the tool {names}" if len(self.registrations) == 1 else f"one of the tools {names}"
            return self._ask_again(f"Give your answer by calling {which}.")
        problem = self.read(text)
        if problem is None and self._wanted.check is None:
            return AnswerJudged(TypedAnswer())
        if problem is None:
            result = await self._run_check(cast("Out", self.value), text, run)
            if not result.is_error:
                return AnswerJudged(TypedAnswer(), result.text)
            problem = result.text
        return self._ask_again(f"That answer can't be used. {problem}")

    def _ask_again(self, problem: str) -> AnswerJudged:
        return AnswerJudged(self.count_wrong(problem) or UserMessage(problem))

    async def _run_check(self, answer: Out, text: str, run: Run[Any, Any]) -> ToolResult:
        """Run the check on an answer in text, as a call of a tool."""
        reader, memory = self._reader, RunMemory(False)
        call = ToolCall(ANSWER_TOOL, ANSWER_TOOL, text)
        ready: Ready[Any] = Ready(
            call, reader, {"answer": answer}, call, Scope(self.registrations), given=call.arguments
        )
        host = CallHost(run.ctx, replace(run.policy, observer=None, around=None), memory=memory)
        with secrets_in_use(ready.find_secrets):
            result = await run_call(ready, host)
        self.value = memory.answers.get(call.id)
        return result

    def count_wrong(self, problem: str) -> NoValidAnswer | None:
        """Count an invalid answer; return the ending if no retry is left."""
        if self.retries_left == 0:
            return NoValidAnswer(problem)
        self.retries_left -= 1
        return None

    def restore_words(self, text: str, checked: str | None) -> None:
        """Restore an answer that was given in text in another process."""
        if checked is None:
            self.read(text)
        else:
            self.value = read_value(checked, self._find_hint(ANSWER_TOOL))

    def restore_call(self, ready: Ready[Any], result: ToolResult) -> Any:
        """Restore an answer that was given by a call in another process."""
        if self._wanted.functions or self._wanted.check is not None:
            return read_value(result.content, self._find_hint(result.tool_name))
        return _plain_items(ready.arguments["answer"])

    def load(self, result: ToolLoopResult[Any]) -> Any:
        """Return the answer of a result whose output was stored as JSON.

        Raises:
            ValueError: It is not of the type; says why.
        """
        if not self._wanted.functions and self._wanted.check is None:
            try:
                arguments = self._reader.parse_json(write_json({"answer": result.output}))
            except InvalidArgumentsError as error:
                raise ValueError(_speak_of_answer(error.message)) from error
            return _plain_items(arguments["answer"])
        called = [each.tool_name for each in result.messages if isinstance(each, ToolResult)]
        given = [name for name in reversed(called) if name in self.registrations]
        hint = self._find_hint(given[0] if given else next(iter(self.registrations)))
        return TypeAdapter(hint).validate_json(write_json(result.output))

    def _find_hint(self, name: str) -> Any:
        tool: Any = self.registrations[name].tool
        hint = tool.schema.return_hint
        return Any if hint is inspect.Parameter.empty else hint

    def read(self, text: str) -> str | None:
        """Store the answer from a reply in text, and return None, or its problems as a message to the model."""
        try:
            try:
                arguments = self._parse_words(text)
            except MalformedJsonError as error:
                repaired = repair_arguments(text)
                if repaired is None:
                    raise error from None
                arguments = self._parse_words(repaired)
        except InvalidArgumentsError as error:
            return _speak_of_answer(error.message, is_bare=not self._is_wrapped)
        self.problems = self.list_problems(arguments)
        self.value = cast("Out", _plain_items(arguments["answer"]))
        return None

    def _parse_words(self, text: str) -> dict[str, Any]:
        if self._is_wrapped or not _is_json(text):
            return self._reader.parse_json(text)
        return self._reader.parse_json(f'{{"answer": {text}}}')

    def list_problems(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the problems of the items that were left out of an answer: a sentence each, with its place."""
        answer = arguments.get("answer")
        if not isinstance(answer, _ValidItems):
            return ()
        details: list[Any] = [{**detail, "loc": ("answer", *detail["loc"])} for detail in answer.errors]
        lines = describe_errors(details, {"answer": answer.given}, self._reader.arguments.nodes)
        return tuple([line.removeprefix("answer") for line in lines])


def read_partials(config: ToolLoopConfig[Any]) -> PartialAnswers:
    """Return a reader of the partial answers of a run.

    Raises:
        ConfigurationError: No answer of a type was asked for, or one that can't come in pieces.
    """
    if config.answer is None:
        raise ConfigurationError("no answer of a type was asked for: give the config an answer=AnswerFormat(...)")
    return ExpectedAnswer(config.answer).read_partials()


def _speak_of_answer(message: str, *, is_bare: bool = False) -> str:
    """Return a message about the arguments of a call as one about an answer."""
    for pattern, words in [*_OF_ANSWERS, *(_OF_BARE_ANSWERS if is_bare else ())]:
        message = pattern.sub(words, message)
    return message


def _find_object(reader: Registration[Any]) -> dict[str, Any] | None:
    """Return the schema of the answer if it is an object; None for any other type, including unions."""
    parameters = reader.definition.parameters
    wanted = reader.arguments.nodes.resolve(parameters["properties"].get("answer"))
    if wanted.get("type") != "object":
        return None
    return {**wanted, "$defs": parameters["$defs"]} if "$defs" in parameters else dict(wanted)


class _ValidItems(list[Any]):
    """The valid items of a list, with the list as it was given and the errors of the other items."""

    __slots__ = ("errors", "given")

    def __init__(self, items: list[Any], given: list[Any], errors: list[ErrorDetails]) -> None:
        super().__init__(items)
        self.given = given
        self.errors = errors


def _keep_valid(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Validate a list; leave out invalid items if others are valid."""
    try:
        return validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        wrong = {detail["loc"][0] for detail in errors if detail["loc"]}
        given: list[Any] = [*cast("Sequence[Any]", value)] if isinstance(value, list) else []
        valid = [item for place, item in enumerate(given) if place not in wrong]
        if not valid or not wrong:
            raise
        return _ValidItems(validate(valid), given, errors)


def _plain_items(answer: Any) -> Any:
    return list(answer) if isinstance(answer, _ValidItems) else answer


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _register_answer(tool: FunctionTool[Any, ..., Any]) -> Registration[Any]:
    """Return the registration of a tool whose output is the answer."""
    registration = Registration[Any](tool)
    if not registration.options.result_as_answer:
        registration = registration.configured(replace(registration.options, result_as_answer=True))
    registration.is_offered_by_loop = True
    return registration


def _is_same_function(other: Registration[Any], mine: Registration[Any]) -> bool:
    function = getattr(mine.tool, "function", None)
    return other.is_same_tool(mine) or (function is not None and getattr(other.tool, "function", None) is function)


def _make_answer_tool(wanted: AnswerFormat[Any]) -> FunctionTool[Any, ..., Any]:
    """Return the tool that receives an answer of a type, and checks it.

    Raises:
        SchemaError: JSON can't carry the type.
        ConfigurationError: The check takes other parameters than an answer, or a context and an answer.
    """
    check = wanted.check
    hint: Any = wanted.type if wanted.has_type else str
    if check is None:

        def final_answer(answer: Any) -> Any:
            return _plain_items(answer)

        final_answer.__annotations__ = {"answer": hint, "return": hint}
        function: Callable[..., Any] = final_answer
    else:
        function = _compose_check(check, hint)
    if wanted.keep_valid:
        function.__annotations__["answer"] = Annotated[hint, WrapValidator(_keep_valid)]
    is_threaded = check is not None and kind_of(function) == "sync"
    options = ToolOptions(result_as_answer=True, run_in_thread=is_threaded)
    try:
        return FunctionTool(
            function, context=check is not None, name=ANSWER_TOOL, description=_DESCRIPTION, options=options
        )
    except SchemaError as error:
        raise SchemaError("the type of AnswerFormat", error.reason) from error


def _compose_check(check: AnswerCheck, hint: Any) -> Callable[..., Any]:
    """Return a function of the context and the answer that calls the check."""
    kind, count = kind_of(check), _count_parameters(check)
    if kind not in ("sync", "coroutine") or count not in (1, 2):
        raise ConfigurationError(
            f"the check of AnswerFormat, {describe_function(check)}, can't judge an answer: it takes the answer, or "
            "the context and the answer, and returns the answer"
        )
    ask = cast("Callable[..., Any]", check)
    places = slice(2 - count, 2)  # of the context and the answer
    first = next(iter(inspect.signature(check).parameters.values()))
    is_typed = count == 2 and first.annotation is not inspect.Parameter.empty
    read = read_signature(check, context=is_typed, receiver=False, localns=find_local_names(check))
    is_sure = read.return_hint is not inspect.Parameter.empty
    returned = read.return_hint if is_sure else hint
    require = partial(_require_type, hint=returned, is_sure=is_sure)

    async def await_check(ctx: Any, answer: Any) -> Any:
        return require(await ask(*(ctx, _plain_items(answer))[places]))

    def call_check(ctx: Any, answer: Any) -> Any:
        value = ask(*(ctx, _plain_items(answer))[places])
        return value if inspect.isawaitable(value) else require(value)

    function: Callable[..., Any] = await_check if kind == "coroutine" else call_check
    function.__annotations__ = {"ctx": read.context_hint if is_typed else object, "answer": hint, "return": returned}
    return function


def _count_parameters(check: AnswerCheck) -> int:
    """Return how many arguments a check is called with; 0 if it needs others, or has no signature, as some builtins."""
    try:
        parameters = inspect.signature(check).parameters.values()
    except (TypeError, ValueError):
        return 0
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in places if each.default is each.empty]
    if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        return 0
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return len(needed) or (1 if places or takes_any else 0)


def _require_type(value: Any, *, hint: Any, is_sure: bool) -> Any:
    """Return the value of a check if it has the right type.

    Raises:
        TypeError: It does not; without a return hint, any value but None is right.
    """
    if not is_sure and value is not None:
        return value
    try:
        TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError:
        name = getattr(hint, "__name__", None) or str(hint)
        raise TypeError(
            f"the check of AnswerFormat returned {describe_value(value)}: it must return the answer, of type {name}"
        ) from None
    except PydanticUserError:  # a type that Pydantic does not know
        pass
    return value
