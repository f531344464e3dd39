"""Rules on one call: under which names they know its tool, and what they see of its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import AliasChoices, Secret, SecretBytes, SecretStr

from toolkit.calls.permissions import Members, PermissionAction
from toolkit.schema.nodes import is_array, is_object

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from toolkit.calls.handler import Registration
    from toolkit.calls.permissions import Decision, Permissions
    from toolkit.schema import ArgumentsParser

__all__ = ["find_same", "judge"]


def find_same(registration: Registration[Any], known: Mapping[str, Registration[Any]]) -> Sequence[Registration[Any]]:
    """Return what is the same tool among others, whatever its names there."""
    return [other for other in known.values() if other.is_same_tool(registration)]


def judge(
    registration: Registration[Any],
    arguments: dict[str, Any],
    permissions: Permissions,
    there: Sequence[Registration[Any]],
) -> Decision:
    """Return what rules say to a call.

    A rule on a tool follows the tool: a denial or a question holds under every name that the tool has ever had, and
    an allowance under those that it has had where these rules hold.

    Args:
        registration: The tool as it is called.
        arguments: Validated.
        permissions: The rules.
        there: The same tool where the rules were made; it may have other names there.
    """
    former = [*registration.former_names, *(pair for other in there for pair in other.former_names)]
    aliases = {other.name for other in there} | {name for name, rules in former if rules is permissions}
    others = {name for name, _ in former} | {registration.tool.definition.name}
    seen = _read_arguments(registration, arguments)
    default: PermissionAction | None = "allow" if registration.is_offered_by_loop else None
    return permissions.decide(registration.name, seen, aliases=aliases, other_names=others, default=default)


def _read_arguments(registration: Registration[Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
    """Return arguments as rules see them: as JSON, secrets as they are, each under all the names that it has."""
    parser = registration.arguments
    plain: dict[str, Any] = json.loads(parser.dump_json(arguments, reveal_secrets=True))
    aliases: Mapping[str, str] = getattr(parser, "aliases", {})
    members = Members(plain)
    for name, value in arguments.items():
        written = name if name in plain else _find_written_name(parser, name, value)
        if written in plain:
            members[written] = _name_fields(value, plain[written])
        elif isinstance(value, _SECRETS):  # a default that is left out, as JSON can't say it
            written, members[name] = name, value.get_secret_value()
        else:
            continue
        for other in {name, aliases.get(name, name)} - {written}:
            members.others[other] = members[written]
    return members


_SECRETS = (SecretStr, SecretBytes, Secret)


def _find_written_name(parser: ArgumentsParser, name: str, value: Any) -> str:
    """Return the name under which a parameter is written as JSON."""
    alone: dict[str, Any] = json.loads(parser.dump_json({name: value}, reveal_secrets=True))
    return next(iter(alone), name)


def _name_fields(value: Any, plain: Any) -> Any:
    """Return the JSON of a value, with the members of models under all names that they have."""
    if is_object(plain):
        fields: Mapping[str, FieldInfo] = getattr(cast("object", type(value)), "__pydantic_fields__", {})
        if not fields:
            inner: Mapping[Any, Any] = cast("Any", value) if isinstance(value, Mapping) else {}
            return {name: _name_fields(inner.get(name), item) for name, item in plain.items()}
        members = Members(plain)
        for name, field in fields.items():
            names = list(_names_of(name, field))
            key = next((each for each in reversed(names) if each in plain), None)
            if key is not None:
                members[key] = _name_fields(getattr(value, name, None), plain[key])
                members.others.update(dict.fromkeys(names, members[key]))
        return members
    if is_array(plain):
        items: list[Any] = list(cast("Any", value)) if isinstance(value, (list, tuple)) else []
        if len(items) != len(plain):
            return plain
        return [_name_fields(item, each) for item, each in zip(items, plain, strict=True)]
    return plain


def _names_of(name: str, field: FieldInfo) -> Iterator[str]:
    """Yield the names of a field, that under which it is written last."""
    yield name
    validation = field.validation_alias
    choices = validation.choices if isinstance(validation, AliasChoices) else [validation]
    yield from (choice for choice in [*choices, field.alias, field.serialization_alias] if isinstance(choice, str))
