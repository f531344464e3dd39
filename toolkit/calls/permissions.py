"""Rules on what may be called, by the name of the tool and by its arguments, and the verdict on one call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from toolkit.calls.provenance import CallTrust, Origin, TrustCondition
from toolkit.calls.registration import Effect
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.logs import get_logger
from toolkit.schema.nodes import is_array, is_object
from toolkit.settings import Settings, check_setting

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from toolkit.calls.registration import Registration
    from toolkit.schema import ArgumentsParser

_logger = get_logger("toolkit.calls")

PermissionAction: TypeAlias = Literal["allow", "deny", "ask"]

ArgumentPattern: TypeAlias = str | int | float | bool | list[Any] | Mapping[str, Any] | Callable[[Any], bool] | None
"""A text pattern, a value that must be equal as JSON, or a function that says whether a value matches."""


@dataclass(frozen=True, slots=True)
class Rule(Settings):
    """A rule on calls of these tools with these arguments: allow, deny or ask.

    ``Rule("fetch", args={"url": "https://docs.example.com/*"})`` allows what begins so. A text pattern looks at the
    text alone: ``"git *"`` would let ``git status; rm -rf /`` pass. Where a value has a grammar of its own, give a
    function that reads it: for commands of a shell ``toolkit.builtin.runs_only("git status")``.

    A rule follows the tool: in a scope that gives it another name the rule holds under the old one and the new, and so
    it does for the scope of a sub-agent. Arguments go by their names in the schema or in the function; secrets
    (`pydantic.SecretStr`) are seen as they are.

    Args:
        tool_pattern: A name or an `fnmatch` pattern (``*``, ``?``, ``[ab]``, ``[!ab]``); upper and lower case differ.
        args: A pattern for each argument that matters; all of them must match. A name may be a path,
            ``"options.mode"``. A string is an `fnmatch` pattern for the whole text of a string, line breaks included,
            and never matches a number or a boolean; a function is asked, and anything else must be equal as JSON.
            On its way through a list a path goes to each item, and a string pattern to each string of a list, however
            deep: to allow, all must match and there must be one; to deny or ask, one is enough. A decimal is text in
            JSON, spelled as the model spelled it: to compare its value, give a function.
            What is not there matches nothing. So what is absent is never allowed by a rule that names it, and never
            denied by one either: a denial that must hold without the argument, too, needs a rule without it.
        unsaid: An `fnmatch` pattern for the path of an argument: matches only calls in which such an argument stands
            nowhere in the conversation (`ToolCall.unsaid`).
        when: ``tainted`` matches only calls with effects in a run whose model has seen something untrusted, and
            ``unknown_destination`` those with a destination that neither the user nor a trusted tool named.
        effects: The effects that `when` is about; empty means all. See `ToolOptions.effects`.
        action: The decision.
        reason: Why; a model reads the reason of a denial, a person that of a question.

    Raises:
        ConfigurationError: A pattern or an action that can't be.
    """

    tool_pattern: str
    _: KW_ONLY
    args: Mapping[str, ArgumentPattern] | None = None
    action: PermissionAction = "allow"
    reason: str = ""
    unsaid: str = ""
    when: TrustCondition = ""
    effects: frozenset[Effect] = frozenset()

    def __post_init__(self) -> None:
        given: Any = self.tool_pattern
        object.__setattr__(self, "effects", frozenset(self.effects))
        if self.when not in get_args(TrustCondition) or not self.effects.issubset(get_args(Effect)):
            raise ConfigurationError(
                f"a rule can't be for {self.when!r} calls with the effects {sorted(self.effects)}: effects are "
                + ", ".join(get_args(Effect))
            )
        if not isinstance(given, str) or not given:
            raise ConfigurationError(f"a rule needs the name of a tool or a pattern such as 'read_*', not {given!r}")
        _check_action(self.action, f"the action of the rule for '{given}'")
        names: Any = self.args
        if names is None:
            return
        if not isinstance(names, Mapping):
            raise ConfigurationError(f"the args of the rule for '{given}' must map argument names to patterns")
        for name, pattern in cast("Mapping[object, object]", names).items():
            if not isinstance(name, str) or not all(name.split(".")):
                raise ConfigurationError(
                    f"the rule for '{given}' names the argument {name!r}: give a name, or a path such as 'options.mode'"
                )
            if not _is_pattern(pattern):
                raise ConfigurationError(
                    f"the rule for '{given}' can't match '{name}' with a value of type {type(pattern).__qualname__}: "
                    "give a text pattern, a JSON value or a function"
                )


def allow(tool_pattern: str, *, args: Mapping[str, ArgumentPattern] | None = None, reason: str = "") -> Rule:
    """Return a rule that allows."""
    return Rule(tool_pattern, args=args, action="allow", reason=reason)


def deny(
    tool_pattern: str, *, args: Mapping[str, ArgumentPattern] | None = None, reason: str = "", unsaid: str = ""
) -> Rule:
    """Return a rule that denies; it wins over every other."""
    return Rule(tool_pattern, args=args, action="deny", reason=reason, unsaid=unsaid)


def ask(
    tool_pattern: str, *, args: Mapping[str, ArgumentPattern] | None = None, reason: str = "", unsaid: str = ""
) -> Rule:
    """Return a rule that wants approval."""
    return Rule(tool_pattern, args=args, action="ask", reason=reason, unsaid=unsaid)


def ask_when_tainted(tool_pattern: str = "*", *, effects: Collection[Effect] = (), reason: str = "") -> Rule:
    """Return a rule that wants approval for calls with effects once the model has seen something untrusted.

    Beside `require_known_destinations` it leaves out calls whose destinations are all known.
    """
    return Rule(tool_pattern, action="ask", reason=reason, when="tainted", effects=frozenset(effects))


def deny_when_tainted(tool_pattern: str = "*", *, effects: Collection[Effect] = (), reason: str = "") -> Rule:
    """Return a rule that denies calls with these effects, or any, once the model has seen something untrusted."""
    return Rule(tool_pattern, action="deny", reason=reason, when="tainted", effects=frozenset(effects))


def require_known_destinations(tool_pattern: str = "*", *, effects: Collection[Effect] = (), reason: str = "") -> Rule:
    """Return a rule that wants approval for calls with a destination that nobody who is trusted has named.

    A destination is known if it stands in a message of the user or the application, or in the output of a trusted tool
    that was itself called with known values. Where an untrusted text spells out the call, approval is wanted even so.
    """
    return Rule(tool_pattern, action="ask", reason=reason, when="unknown_destination", effects=frozenset(effects))


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the rules on one call.

    Args:
        action: Run it, refuse it, or ask for approval.
        rule: The rule that decided; None where none matched.
        reason: Why, in a sentence; empty for what is allowed.
        origins: Where the destinations come from that nobody who is trusted named.
    """

    action: PermissionAction
    rule: Rule | None = None
    reason: str = ""
    origins: tuple[Origin, ...] = ()


class Permissions:
    """Rules in their order: a denial wins wherever it stands, else the first rule that matches decides.

    ::

        rules = [allow("bash", args={"command": runs_only("git status", "git diff")}), deny("delete_*")]
        permissions = Permissions(rules, default="ask")

    Args:
        rules: The rules.
        default: The decision on a call that no rule matches. It does not hold for what a loop offers by itself, such as
            ``final_answer`` and ``read_result``: only a rule on these does.

    Raises:
        ConfigurationError: Something in `rules` is no rule, or the default is no action.
    """

    __slots__ = ("_denials", "_others", "asks_about_trust", "default", "rules")

    def __init__(self, rules: Iterable[Rule] = (), default: PermissionAction = "allow") -> None:
        check_setting("the rules of permissions", rules, Iterable)
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.default: PermissionAction = default
        _check_action(default, "the default of permissions")
        for rule in cast("tuple[object, ...]", self.rules):
            if not isinstance(rule, Rule):
                raise ConfigurationError(f"permissions are made of rules, and {rule!r} is none: write allow('...')")
        self.asks_about_trust: bool = any(rule.when for rule in self.rules)
        vouches = any(rule.when == "unknown_destination" for rule in self.rules)
        compiled = [_CompiledRule(rule, vouches=vouches) for rule in self.rules]
        self._denials = [rule for rule in compiled if rule.rule.action == "deny"]
        self._others = [rule for rule in compiled if rule.rule.action != "deny"]

    def __repr__(self) -> str:
        return f"Permissions({list(self.rules)!r}, default={self.default!r})"

    def decide(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        *,
        aliases: Collection[str] = (),
        other_names: Collection[str] = (),
        default: PermissionAction | None = None,
        unsaid: Collection[str] = (),
        trust: CallTrust | None = None,
    ) -> Decision:
        """Return the decision of the rules on arguments as JSON has them, validated, with defaults filled in.

        It never raises: where the function of a rule raises, the call is denied.

        Args:
            tool_name: The name that the tool is called by.
            arguments: The arguments of the call, or a function that reads them, called where a rule looks at them.
            aliases: Other names of the same tool, for all rules.
            other_names: Further ones, for the rules that deny and ask.
            default: The decision where no rule matches; None takes the default of these rules.
            unsaid: The arguments that stand nowhere in the conversation.
            trust: The call, as rules on trust see it; None where there is no run.
        """
        trusted = {tool_name, *aliases}
        names = {*trusted, *other_names}
        try:
            for group in (self._denials, self._others):
                for compiled in group:
                    rule = compiled.rule
                    known = trusted if rule.action == "allow" else names
                    if not compiled.is_for_all and not compiled.matches(known, unsaid, arguments):
                        continue
                    if not rule.when:
                        return _make_decision(rule.action, rule, tool_name)
                    if trust is not None and (trust.is_tainted or rule.when != "tainted"):
                        decision = compiled.judge_trust(trust, tool_name)
                        if decision is not None:
                            return decision
        except Exception:
            _logger.exception("a permission rule failed for %s; the call is denied", tool_name)
            return Decision("deny", None, f"Tool '{tool_name}' may not be called: a permission rule failed.")
        return _make_decision(default or self.default, None, tool_name)

    def may_ask(self, tool_name: str) -> bool:
        """Return whether some call of this tool may need approval by these rules."""
        if any(not each.is_conditional and each.concerns([tool_name]) for each in self._denials):
            return False
        for compiled in self._others:
            if compiled.rule.when or not compiled.concerns([tool_name]):
                continue
            if compiled.rule.action == "ask" or not compiled.is_conditional:
                return compiled.rule.action == "ask"
        return self.default == "ask"

    def list_unmatched(self, tool_names: Collection[str]) -> list[Rule]:
        """Return the rules whose pattern fits none of these names."""
        unmatched = [each.rule for each in (*self._denials, *self._others) if not each.concerns(tool_names)]
        return [rule for rule in self.rules if rule in unmatched]


_ALLOWED = Decision("allow")
_TRUST_REASONS = {
    ("tainted", True): "may not be called after something untrusted was read.",
    ("tainted", False): "needs approval: something untrusted was read before.",
    ("unknown_destination", True): "may not be called with a destination that nobody has named.",
    ("unknown_destination", False): "needs approval for where this goes.",
}


def _make_decision(action: PermissionAction, rule: Rule | None, tool_name: str) -> Decision:
    if action == "allow":
        return _ALLOWED if rule is None else Decision("allow", rule)
    if rule is not None and rule.reason:
        return Decision(action, rule, rule.reason)
    names = " and ".join(f"'{name}'" for name in rule.args) if rule is not None and rule.args else ""
    if action == "ask":
        return Decision(action, rule, f"Tool '{tool_name}' needs approval{f' for this {names}' if names else ''}.")
    if names:
        return Decision(action, rule, f"Tool '{tool_name}' may not be called with this {names}.")
    return Decision(action, rule, f"Tool '{tool_name}' may not be called here.")


class _CompiledRule:
    __slots__ = ("_arguments", "_tool", "_unsaid", "_vouches", "is_conditional", "is_for_all", "rule")

    def __init__(self, rule: Rule, *, vouches: bool = False) -> None:
        self.rule = rule
        self._vouches = vouches
        self._tool = None if rule.tool_pattern == "*" else re.compile(translate(rule.tool_pattern)).match
        self._arguments = [(name, _make_matcher(pattern)) for name, pattern in (rule.args or {}).items()]
        self._unsaid = re.compile(translate(rule.unsaid)).match if rule.unsaid else None
        self.is_conditional = bool(rule.args or rule.unsaid or rule.when)
        self.is_for_all = self._tool is None and not rule.args and not rule.unsaid

    def concerns(self, tool_names: Iterable[str]) -> bool:
        return any(tool_names) if self._tool is None else any(map(self._tool, tool_names))

    def matches(
        self,
        tool_names: Iterable[str],
        unsaid: Collection[str],
        arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    ) -> bool:
        if self._tool is not None and not any(map(self._tool, tool_names)):
            return False
        if self._unsaid is not None and not any(map(self._unsaid, unsaid)):
            return False
        if not self._arguments:
            return True
        seen = arguments() if callable(arguments) else arguments
        return all(self._matches_argument(seen, name, matcher) for name, matcher in self._arguments)

    def judge_trust(self, call: CallTrust, tool_name: str) -> Decision | None:
        """Return the decision of a rule on trust on a call for which its condition may hold; None where it does not."""
        rule = self.rule
        if rule.effects and not rule.effects & call.options.effects:
            return None
        # Beside a rule that asks about unknown destinations, this one asks where there can be none.
        asks_vouched = self._vouches and rule.action == "ask" and call.options.destinations != ()
        asks_all = rule.when == "tainted" and not asks_vouched
        if not asks_all and not call.list_unknown():
            return None
        is_approved = call.recall(is_whole=asks_all) if rule.action == "ask" else None
        if is_approved is not None:
            refusal = f"Tool '{tool_name}' may not be called so: a person has refused this destination."
            return None if is_approved else Decision("deny", rule, refusal)
        origins = call.describe()
        reason = rule.reason or f"Tool '{tool_name}' {_TRUST_REASONS[rule.when, rule.action == 'deny']}"
        return Decision(rule.action, rule, " ".join([reason, *map(str, origins)]), origins)

    def _matches_argument(self, arguments: Mapping[str, Any], name: str, matcher: Callable[[Any], list[bool]]) -> bool:
        answers = [answer for value in _find_values(arguments, name) for answer in matcher(value)]
        return bool(answers) and (all(answers) if self.rule.action == "allow" else any(answers))


class _Members(dict[str, Any]):
    """The members of a JSON object, of which some have other names too."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__(members)
        self.others: dict[str, Any] = {}


def _split_path(path: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to read a path as a key and a path inside of it: a key may have dots, too."""
    for index, character in enumerate(path):
        if character == ".":
            yield path[:index], path[index + 1 :]


class _Absent:
    """Stands for an argument that is not there."""


def _find_values(value: Any, path: str) -> Iterator[Any]:
    """Yield whatever may be meant by a path: a key with dots in it as well as keys inside of keys."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _find_values(item, path)
        return
    found = False
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        others = mapping.others if isinstance(mapping, _Members) else {}
        for members in (mapping, others):
            if path in members:
                found = True
                yield members[path]
            for key, rest in _split_path(path):
                if key in members:
                    found = True
                    yield from _find_values(members[key], rest)
    if not found:
        yield _Absent


def _make_matcher(pattern: Any) -> Callable[[Any], list[bool]]:
    """Return a function that gives one answer for a value, or one for each item of a list for a text pattern."""
    if isinstance(pattern, str):
        text = re.compile(translate(pattern)).match
        return lambda value: [isinstance(item, str) and text(item) is not None for item in _walk_items(value)]
    if callable(pattern):
        # Each is given its own copy: what one does to a value is nothing to the next.
        return lambda value: [value is not _Absent and bool(pattern(_copy_json(value)))]
    return lambda value: [_is_equal(value, pattern)]


def _copy_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: _copy_json(item) for name, item in members.items()}
    return [_copy_json(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


def _walk_items(value: Any) -> Iterator[object]:
    """Yield the items of a list and of the lists in it, or the value itself."""
    if not isinstance(value, list):
        yield value
        return
    for item in cast("list[object]", value):
        yield from _walk_items(item)


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON: true is not 1, and 1 is 1.0."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        mapping, same = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
        return mapping.keys() == same.keys() and all(_is_equal(item, same[key]) for key, item in mapping.items())
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[object]", one), cast("list[object]", other)
        return len(items) == len(others) and all(map(_is_equal, items, others))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_pattern(pattern: Any) -> bool:
    if isinstance(pattern, Mapping):
        items = cast("Mapping[object, object]", pattern).items()
        return all(isinstance(key, str) and _is_json(item) for key, item in items)
    return callable(pattern) or _is_json(pattern)


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return _is_pattern(value)
    if isinstance(value, list):
        return all(_is_json(item) for item in cast("list[object]", value))
    return value is None or isinstance(value, (str, int, float))


def _check_action(action: Any, what: str) -> None:
    actions = get_args(PermissionAction)
    if action not in actions:
        raise ConfigurationError(f"{what} can't be {action!r}: give one of " + ", ".join(map(repr, actions)))


def find_same(registration: Registration[Any], known: Mapping[str, Registration[Any]]) -> Sequence[Registration[Any]]:
    """Return the registrations of the same tool among others, whatever its names there."""
    return [other for other in known.values() if other.is_same_tool(registration)]


def judge(
    registration: Registration[Any],
    arguments: Callable[[], Mapping[str, Any]],
    permissions: Permissions,
    there: Sequence[Registration[Any]],
    unsaid: Sequence[str] = (),
    trust: CallTrust | None = None,
) -> Decision:
    """Return the decision of rules on a call.

    A rule on a tool follows the tool: a denial or a question holds under every name that the tool has ever had, and
    an allowance under those that it has had where these rules hold.

    Args:
        registration: The tool as it is called.
        arguments: Reads the arguments as rules see them; called where a rule looks at them.
        permissions: The rules.
        there: The same tool where the rules were made; it may have other names there.
        unsaid: The arguments that stand nowhere in the conversation.
        trust: The call, as rules on trust see it.
    """
    former = [*registration.former_names, *(pair for other in there for pair in other.former_names)]
    aliases = {other.name for other in there} | {name for name, rules in former if rules is permissions}
    others = {name for name, _ in former} | {registration.tool.definition.name}
    default: PermissionAction | None = "allow" if registration.is_offered_by_loop else None
    return permissions.decide(
        registration.name,
        arguments,
        aliases=aliases,
        other_names=others,
        default=default,
        unsaid=unsaid,
        trust=trust,
    )


_PLAIN = frozenset({str, int, float, bool, type(None)})


class ArgumentsOnDemand:
    """Reads validated arguments as rules see them, once and only where a rule looks at them."""

    __slots__ = ("_arguments", "_registration", "_seen")

    def __init__(self, registration: Registration[Any], arguments: dict[str, Any]) -> None:
        self._registration = registration
        self._arguments = arguments
        self._seen: Mapping[str, Any] | None = None

    def __call__(self) -> Mapping[str, Any]:
        """Return the arguments."""
        if self._seen is None:
            self._seen, parser = self._arguments, self._registration.arguments
            is_plain = not getattr(parser, "aliases", None)
            for value in self._arguments.values():
                is_plain = is_plain and type(value) in _PLAIN
            if not is_plain:
                self._seen = _read_arguments(self._registration, self._arguments)
        return self._seen


def _read_arguments(registration: Registration[Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
    """Return arguments as rules see them: as JSON, secrets as they are, each under all the names that it has."""
    parser = registration.arguments
    plain: dict[str, Any] = json.loads(parser.dump_json(arguments, reveal_secrets=True))
    aliases: Mapping[str, str] = getattr(parser, "aliases", {})
    members = _Members(plain)
    for name, value in arguments.items():
        written = name if name in plain else _find_written_name(parser, name, value)
        if written in plain:
            members[written] = _name_fields(value, plain[written])
        elif hasattr(value, "get_secret_value"):  # a default that is left out, as JSON can't say it
            written, members[name] = name, value.get_secret_value()
        else:
            continue
        for other in {name, aliases.get(name, name)} - {written}:
            members.others[other] = members[written]
    return members


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
        members = _Members(plain)
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
    from pydantic import AliasChoices  # noqa: PLC0415 - slow to import, and here whenever a model is

    validation = field.validation_alias
    choices = validation.choices if isinstance(validation, AliasChoices) else [validation]
    yield from (choice for choice in [*choices, field.alias, field.serialization_alias] if isinstance(choice, str))
