"""Replies held to a JSON Schema, in the words of each server, and the flat views of schemas that small models fill in.

Whether a server obeys is checked; a flat view is mapped back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from toolkit.chat import ChatRequest, ChatResponse, Message, Provider, ResponseFormat, Usage
from toolkit.errors import BadResponseError, ConfigurationError, ContextTooLongError, ProviderError, SchemaError
from toolkit.schema.nodes import Node, Nodes, is_array, is_object, map_subschemas
from toolkit.schema.projections import merge_nodes, simplify_unions
from toolkit.schema.raw_schema import RawSchema

HoldingWay: TypeAlias = Literal["response_format", "json_schema", "structured_outputs", "guided_json", "format"]
"""The field by which a server takes a schema: OpenAI's and most others', llama.cpp's, vLLM's two, Ollama's."""

_FIELDS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "json_schema": lambda schema: schema,
    "structured_outputs": lambda schema: {"json": schema},
    "guided_json": lambda schema: schema,
    "format": lambda schema: schema,
}
# What servers answer where they don't know a field, or can't make a grammar of a schema.
_REFUSALS = frozenset({400, 404, 422, 500, 501})
_LONGEST_SHOWN_REPLY = 80


@dataclass(frozen=True, slots=True)
class HeldReply:
    """A reply that was held to a schema.

    Args:
        response: As the provider gave it.
        value: The object; None where the reply was cut off before its end.
    """

    response: ChatResponse
    value: Mapping[str, Any] | None


class SchemaHolder:
    """Asks a provider for objects of a schema, by the first way that its server obeys.

    Args:
        provider: Talks to the model.
        way: The field that its server takes; ``auto`` tries one after the other, and keeps to what worked.

    Raises:
        ConfigurationError: There is no such way.
    """

    def __init__(self, provider: Provider, way: HoldingWay | Literal["auto"]) -> None:
        ways: tuple[HoldingWay, ...] = get_args(HoldingWay)
        if way != "auto" and way not in ways:
            known = ", ".join([f"'{each}'" for each in ("auto", *ways)])
            raise ConfigurationError(f"hold_by must be one of {known}, not {way!r}")
        self._provider = provider
        self._ways: tuple[HoldingWay, ...] = ways if way == "auto" else (way,)

    async def ask(
        self,
        request: ChatRequest,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        *,
        max_tokens: int | None = None,
    ) -> HeldReply:
        """Return the model's reply to the messages, with the settings of the request.

        Raises:
            BadResponseError: No reply fits the schema: the server holds none to it.
            ProviderError: The server failed, or refused the schema in every way.
        """
        asked = strip_tools(request, messages)
        asked = replace(asked, stop=(), max_tokens=max_tokens or request.max_tokens)
        check = RawSchema(schema, subject="the schema of a step")
        spent, failure, said = Usage(), None, ""
        for way in self._ways:
            try:
                response = await self._provider.generate(_hold_to_schema(asked, schema, way))
            except ContextTooLongError:
                raise
            except ProviderError as error:
                if error.status not in _REFUSALS or len(self._ways) == 1:
                    raise
                failure = failure or error
                continue
            spent += response.usage
            response = replace(response, usage=spent)
            value = read_reply_object(response.text)
            if value is not None and check.is_valid(value):
                # Kept: the other ways cost a request each.
                self._ways = (way, *[other for other in self._ways if other != way])
                return HeldReply(response, value)
            if response.stop_reason == "max_tokens":
                return HeldReply(response, None)
            said = response.text
        if failure is not None and not said:
            raise failure
        raise _explain_neglect(self._provider, self._ways, said)


def make_check(schema: Mapping[str, Any]) -> Callable[[object], bool]:
    """Return a function that tells whether a value fits a schema; nothing fits an invalid one."""
    try:
        return RawSchema(schema, subject="the schema of an argument").is_valid
    except SchemaError:
        return lambda _: False


def strip_tools(request: ChatRequest, messages: Sequence[Message]) -> ChatRequest:
    """Return the request with other messages, and without a word of tools."""
    return replace(request, messages=messages, tools=None, tool_choice="auto", parallel_tool_calls=None)


def read_reply_object(text: str) -> Mapping[str, Any] | None:
    """Return the object that a text is, within a fence or not; None where it is no whole JSON object."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.strip("`").removeprefix("json")
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def _hold_to_schema(request: ChatRequest, schema: Mapping[str, Any], way: HoldingWay) -> ChatRequest:
    if way == "response_format":
        return replace(request, response_format=ResponseFormat(schema, name="reply"))
    return replace(request, response_format=None, options={**request.options, way: _FIELDS[way](schema)})


def _explain_neglect(provider: Provider, ways: Sequence[HoldingWay], said: str) -> BadResponseError:
    shown = said if len(said) <= _LONGEST_SHOWN_REPLY else f"{said[:_LONGEST_SHOWN_REPLY]}..."
    return BadResponseError(
        str(getattr(provider, "name", "the provider")),
        f"the server does not hold a reply to a JSON Schema, which guided calls need (asked by {', '.join(ways)}): it "
        f"answered {shown!r}. Use a server that does (llama.cpp, vLLM, Ollama, OpenAI), or TextToolProvider",
    )


_DEEPEST_REFERENCE = 4
# What engines of grammars follow to the letter. Other keywords (patterns, formats, lengths) are left to the tool's own
# validation: some engines fail on them.
_SHAPE_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "anyOf"}
    | {"minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "description"}
)
# Those that each engine knows or ignores.
_KNOWN_FORMATS = frozenset({"date", "time", "date-time", "email"})
# Formats of ids that are copied and not composed.
_CODE_FORMATS = frozenset({"email", "uuid", "uri", "ipv4", "ipv6"})
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class FoldedSchema:
    """A view of a tool's parameters.

    Args:
        schema: The view, an object.
        paths: Where the value of each property belongs, as keys from the root.
        optional: The names of properties that may be left out.
        codes: By name, the ``pattern``, ``format`` and ``examples`` of a text, or of the items of a list, that is an id
            of some kind.
        filled: The arguments that can have only one value and are not asked for.
        nullable: The required arguments that become null if they are left out.
        objects: The objects that are always there.
    """

    schema: Mapping[str, Any]
    paths: Mapping[str, tuple[str, ...]]
    optional: frozenset[str]
    codes: Mapping[str, Mapping[str, Any]]
    filled: Mapping[tuple[str, ...], Any]
    nullable: Sequence[tuple[str, ...]]
    objects: Sequence[tuple[str, ...]]

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """The properties of the view, by name."""
        found: Mapping[str, Mapping[str, Any]] = self.schema["properties"]
        return found

    def select(self, names: Collection[str]) -> dict[str, Any]:
        """Return the view's schema with these properties alone."""
        return {
            **self.schema,
            "properties": {name: node for name, node in self.properties.items() if name in names},
            "required": [name for name in self.schema["required"] if name in names],
        }

    def unfold(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that the values of a view stand for.

        ::

            >>> fold_schema(parameters).unfold({"address.city": "Rome"})
            {'address': {'city': 'Rome'}}
        """
        arguments: dict[str, Any] = {}
        for path in self.objects:
            _set_at_path(arguments, path, {})
        for name, value in values.items():
            _set_at_path(arguments, self.paths.get(name, (name,)), value)
        for path, value in [*self.filled.items(), *((path, None) for path in self.nullable)]:
            parent = _find_at_path(arguments, path[:-1])
            if is_object(parent) and path[-1] not in parent:
                _set_at_path(arguments, path, value)
        return arguments

    def fold(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the view that arguments stand for; others are left out."""
        values = {name: _find_at_path(arguments, path) for name, path in self.paths.items()}
        nulls = {name for name, path in self.paths.items() if path in self.nullable and values[name] is None}
        return {name: value for name, value in values.items() if value is not _ABSENT and name not in nulls}


def fold_schema(parameters: Mapping[str, Any]) -> FoldedSchema:
    """Return a view of a schema for small models.

    References are inlined, objects inside objects become names with dots, and values that can only be one are left out.

    Args:
        parameters: A JSON Schema of type object.
    """
    return _Folding(parameters).fold()


class _Folding:
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._nodes = Nodes(parameters)
        self._properties: dict[str, Any] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._optional: set[str] = set()
        self._codes: dict[str, Mapping[str, Any]] = {}
        self._filled: dict[tuple[str, ...], Any] = {}
        self._nullable: list[tuple[str, ...]] = []
        self._objects: list[tuple[str, ...]] = []

    def fold(self) -> FoldedSchema:
        root = self._simplify_node(self._nodes.root, 0)
        self._add_members(root, (), is_optional=False)
        others = root.get("additionalProperties")
        schema: dict[str, Any] = {
            "type": "object",
            "properties": self._properties,
            "required": [name for name in self._properties if name not in self._optional],
            "additionalProperties": _keep_shape(others) if is_object(others) else False,
        }
        return FoldedSchema(
            schema, self._paths, frozenset(self._optional), self._codes, self._filled, self._nullable, self._objects
        )

    def _add_members(self, node: Node, path: tuple[str, ...], *, is_optional: bool) -> None:
        required = node.get("required", ())
        members: Mapping[str, Any] = node.get("properties", {})
        for key, given in members.items():
            member = self._simplify_node(given, 0)
            is_required = key in required
            if is_required and "enum" in member and len(member["enum"]) == 1:
                self._filled[(*path, key)] = member["enum"][0]
                continue
            may_be_null = bool(member.get("nullable"))
            if is_required and may_be_null:
                self._nullable.append((*path, key))
            self._add_property((*path, key), member, is_optional=is_optional or not is_required or may_be_null)

    def _add_property(self, path: tuple[str, ...], member: Node, *, is_optional: bool) -> None:
        if member.get("properties"):
            if not is_optional:
                self._objects.append(path)
            self._add_members(member, path, is_optional=is_optional)
            return
        name = ".".join(path)
        while name in self._properties:  # a key with a dot of its own
            name += "_"
        self._properties[name] = _keep_shape(member)
        self._paths[name] = path
        if is_optional:
            self._optional.add(name)
        items = member.get("items")
        code = _find_code(items if is_object(items) else member)
        if code:
            self._codes[name] = code

    def _simplify_node(self, node: Any, depth: int) -> dict[str, Any]:
        """Return a node without references and, as far as possible, without unions."""
        if not is_object(node):
            return {}
        if "$ref" in node:
            depth += 1
            if depth > _DEEPEST_REFERENCE:
                return {"type": "object"}
        node = simplify_unions(self._nodes.resolve(node))
        for part in node.pop("allOf", ()):
            node = simplify_unions(merge_nodes(self._nodes.resolve(part), node))
        node = self._join_arms(_split_null(node), depth)
        return map_subschemas(node, lambda member: self._simplify_node(member, depth))

    def _join_arms(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        arms: list[dict[str, Any]] = [self._simplify_node(arm, depth + 1) for arm in node.pop("anyOf", ())]
        useful = [arm for arm in arms if arm.get("type") != "null" and arm.get("enum") != [None]]
        if len(useful) < len(arms):
            node["nullable"] = True
        if len(useful) > 1:
            return {**node, "anyOf": useful}
        return {**useful[0], **node} if useful else node


def _find_code(node: Node) -> dict[str, Any]:
    """Return what a schema says about the form of an id; empty if it describes none."""
    if node.get("type") != "string" or "enum" in node:
        return {}
    code = {keyword: node[keyword] for keyword in ("pattern", "examples") if keyword in node}
    if node.get("format") in _CODE_FORMATS:
        code["format"] = node["format"]
    return code


def _split_null(node: dict[str, Any]) -> dict[str, Any]:
    """Say that a value may be null beside its type."""
    types: object = node.get("type")
    if is_array(types) and "null" in types:
        others = [each for each in types if each != "null"]
        node = {**node, "type": others[0] if len(others) == 1 else others, "nullable": True}
    values: object = node.get("enum")
    if is_array(values) and None in values and len(values) > 1:
        node = {**node, "enum": [value for value in values if value is not None], "nullable": True}
    return node


def _keep_shape(node: Any) -> Any:
    if not is_object(node):
        return node
    shape = {keyword: value for keyword, value in node.items() if keyword in _SHAPE_KEYWORDS}
    if node.get("format") in _KNOWN_FORMATS:
        shape["format"] = node["format"]
    shape = map_subschemas(shape, _keep_shape)
    if "properties" in shape and "additionalProperties" not in shape:
        shape["additionalProperties"] = False
    return shape


def _find_at_path(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = arguments
    for key in path:
        value = value.get(key, _ABSENT) if is_object(value) else _ABSENT
    return value


def _set_at_path(arguments: dict[str, Any], path: Sequence[str], value: Any) -> None:
    inside = arguments
    for key in path[:-1]:
        inside = inside.setdefault(key, {})
    inside[path[-1]] = value
