"""The first stage of a call: find the tool, read the arguments, apply the rules; nobody is asked and nothing runs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal

from anyio import to_thread
from anyio.lowlevel import checkpoint

from toolkit.calls.events import ToolCallRepaired
from toolkit.calls.permissions import ArgumentsOnDemand, Decision, Permissions, find_same, judge
from toolkit.calls.provenance import CallTrust, Origin, RunTrust, find_trust
from toolkit.calls.registration import Ctx, Registration
from toolkit.chat import ToolCall, ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError, ToolDeniedError, ToolkitError, ToolNotFoundError
from toolkit.foreign_text import escape_in_json, escape_in_text, replace_surrogates
from toolkit.json_text import canonical_json
from toolkit.logs import end_use, get_logger, use_secrets
from toolkit.redaction import (
    MASK,
    clean_text,
    clean_texts,
    list_secret_texts,
    mask_json,
    may_show_secrets,
    replace_fields,
    without_keys,
    without_secrets,
)
from toolkit.schema.arguments import SHARED_BUDGET, TooMuchWorkError, WorkBudget, is_trial, may_hold_secrets
from toolkit.schema.nodes import is_array, is_object
from toolkit.tool_names import nearest_names, repair_name

if TYPE_CHECKING:
    from toolkit.calls.argument_repair import RepairStep
    from toolkit.calls.policy import ExecutionPolicy

_logger = get_logger("toolkit.calls")

LONG_TEXT = 30_000
_LONGEST_CLEANED = 16_000  # longer arguments are redacted where they are written, in threads
_LONG_BROKEN_TEXT = 2_000
_LONGEST_TURN = 0.005  # seconds
NO_SECRETS: frozenset[str] = frozenset()
_WORD = re.compile(r"[^\s\"'`{}\[\],:\\]{4,}")
_UNCHANGING = frozenset({str, int, float, bool, bytes, type(None)})


@dataclass(slots=True)
class Scope(Generic[Ctx]):
    """The tools that a call may mean, and the rules on them.

    Args:
        registrations: By name.
        permissions: The rules; None has none.
        hidden_names: Those of tools that the scope has left out: no repair makes another tool of one.
    """

    registrations: Mapping[str, Registration[Ctx]]
    permissions: Permissions | None = None
    hidden_names: Collection[str] = ()


@dataclass(slots=True)
class Ready(Generic[Ctx]):
    """A call that may run.

    Args:
        call: As it is taken, its name repaired.
        registration: The tool.
        arguments: Validated.
        original: As the model wrote it.
        scope: The registry that it was found in.
        asks: Why somebody must agree first; None when nobody must.
        asks_level: The level that wants the approval: 0 for the caller, 1 for the loop whose call runs it, and so on.
        repairs: The repairs that were made.
        is_modified: True where an approver has given arguments.
        is_changed: True where they are others than the model's.
        allowed_levels: The levels, as of `asks_level`, at which a rule allows the call.
        given: The JSON text of the arguments as the model gave them, repaired; empty once an approver gave others.
        trust: The call, as rules on trust see it; None where none of them asks about it.
        origins: Where the destinations come from that nobody who is trusted named.

    Attributes:
        shown_json: The value of `arguments_json` once that was written.
        shown_pending: The arguments and their preview, while a decision on the call is pending.
        given_secrets: The secrets in the text of the call, unless it is short: those are found when they are needed.
    """

    call: ToolCall
    registration: Registration[Ctx]
    arguments: dict[str, Any] = field(repr=False)
    original: ToolCall
    scope: Scope[Ctx]
    asks: str | None = None
    asks_level: int = 0
    repairs: tuple[ToolCallRepaired, ...] = ()
    is_modified: bool = False
    is_changed: bool = False
    allowed_levels: tuple[int, ...] = ()
    given: str = field(default="", repr=False)
    trust: CallTrust | None = None
    origins: tuple[Origin, ...] = ()
    shown_json: str | None = field(default=None, init=False)
    shown_pending: tuple[dict[str, Any], str] | None = field(default=None, init=False, repr=False)
    given_secrets: frozenset[str] | None = field(default=None, init=False, repr=False)
    _secrets: frozenset[str] | None = field(default=None, init=False, repr=False)
    _is_flat: bool | None = field(default=None, init=False)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The arguments of the model that stand nowhere in the conversation; none once an approver gave others."""
        return () if self.is_modified else self.original.unsaid

    @property
    def arguments_json(self) -> str:
        """The arguments as canonical JSON, for those who are shown the call: secrets are digests."""
        if self.shown_json is None:
            shown = self.registration.arguments.dump_json(self.arguments)
            if '"secret:' in shown:  # the model may have written one into another argument, too
                strike = partial(without_secrets, secrets=self._list_secrets())
                shown = canonical_json(clean_texts(json.loads(shown), strike))
            self.shown_json = _clean_json(shown, len(self.arguments))
        return self.shown_json

    def show_arguments(self) -> tuple[dict[str, Any], str]:
        """Return the arguments for observers, and `arguments_json`.

        Where there are secrets, both are JSON with digests in place of these.
        """
        shown = self.arguments_json
        if '"secret:' in shown or "***" in shown:  # as `toolkit.redaction` writes them
            return json.loads(shown), shown
        return self.arguments.copy() if self._is_flat else self.copy_arguments(), shown

    def find_secrets(self) -> frozenset[str]:
        """Return the texts of the secret arguments, which are struck out of the events and logs of the call."""
        if self._secrets is None:
            shown = self.arguments_json
            self._secrets = self._list_secrets() if '"secret:' in shown or MASK in shown else NO_SECRETS
        return self._secrets

    def _list_secrets(self) -> frozenset[str]:
        parser = self.registration.arguments
        return find_secrets(self.registration, parser.dump_json(self.arguments, reveal_secrets=True))

    def copy_arguments(self) -> dict[str, Any]:
        """Return the arguments for somebody who only looks: what is done to them changes nothing."""
        if self._is_flat or self.has_flat_arguments():
            return self.arguments.copy()
        return copy_values(self.registration, self.arguments)

    def modify(self, arguments: dict[str, Any]) -> None:
        """Take the arguments that an approver has given, validated, in the place of the model's."""
        parser = self.registration.arguments
        before = parser.dump_json(self.arguments, reveal_secrets=True)
        self.arguments, self.is_modified, self.given = arguments, True, ""
        self.shown_json = self.shown_pending = self._secrets = self._is_flat = None
        self.is_changed = self.is_changed or parser.dump_json(arguments, reveal_secrets=True) != before

    def has_flat_arguments(self) -> bool:
        """Return whether there are no values but text, numbers and the like."""
        if self._is_flat is None:
            is_plain = getattr(self.registration.arguments, "is_plain", None)
            self._is_flat = is_plain is True or _UNCHANGING.issuperset(map(type, self.arguments.values()))
        return self._is_flat


@dataclass(slots=True)
class Refused:
    """A call that will not run, with the result that says why.

    Args:
        call: As it is taken, its name repaired.
        result: Says why.
        repairs: The repairs that were made.
        crash: The exception that the result repeats, if any.
        mistake: The mistake of the model; None where a rule forbids the call.

    Attributes:
        given_secrets: As of `Ready`; none where the result repeats none of them.
    """

    call: ToolCall
    result: ToolResult
    repairs: tuple[ToolCallRepaired, ...] = ()
    crash: BaseException | None = None
    mistake: Literal["name", "arguments"] | None = None
    given_secrets: frozenset[str] | None = field(default=None, init=False, repr=False)


def find_secrets(registration: Registration[Any] | None, text: str) -> frozenset[str]:
    """Return the texts of the secret arguments in JSON text; all its words if it is no JSON and may hold secrets."""
    found = set[str]()
    if registration is None or not registration.may_take_secrets:
        return NO_SECRETS
    nodes = registration.arguments.nodes

    def add(secret: Any, path: object = None, is_marked: bool = False) -> None:
        del path
        found.update(list_secret_texts(secret, is_marked=is_marked))

    def add_those_within(part: str) -> str:
        mask_json(part, lambda plain: replace_fields(plain, add))
        return part

    try:
        value = json.loads(text)
        nodes.replace_secrets(value, add)
        clean_texts(value, add_those_within)
    except (ValueError, RecursionError):
        names = nodes.root.get("properties", {})
        return frozenset(_WORD.findall(text)).difference(names) if may_hold_secrets(text, nodes) else NO_SECRETS
    return frozenset(found)


def _clean_json(text: str, count: int) -> str:
    """Return the JSON of so many arguments without secrets in its texts, such as the logins of URLs."""
    if len(text) > _LONGEST_CLEANED or not may_show_secrets(text, count):
        return text
    return canonical_json(clean_texts(json.loads(text), clean_text))


def write_canonically(prepared: Ready[Any] | Refused) -> tuple[str, str]:
    """Return the repaired name of a call and its arguments as canonical JSON, which are equal for equal calls."""
    call = prepared.call
    if not isinstance(prepared, Ready):
        return call.name, canonical_arguments(call.arguments)
    try:
        text = prepared.registration.arguments.dump_json(prepared.arguments, reveal_secrets=True)
    except (TypeError, ValueError, RecursionError):  # of a type of the author's own
        text = canonical_arguments(call.arguments)
    else:
        if prepared.registration.takes_secrets is False and prepared.has_flat_arguments():
            prepared.shown_json = _clean_json(text, len(prepared.arguments))
    return call.name, text


def canonical_arguments(text: str) -> str:
    """Return JSON text that is equal for equal values; what is no JSON stays as it is."""
    try:
        return canonical_json(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return text


def write_preview(registration: Registration[Any], arguments: Mapping[str, Any], written: str, given: str) -> str:
    """Return the arguments of a call for the person who decides on it: no default that nobody gave, nothing hidden.

    Args:
        registration: The tool, which may have a preview of its own.
        arguments: Validated.
        written: The same as canonical JSON, secrets as digests.
        given: The JSON text that they were read from; empty shows all of them.
    """
    write = registration.options.preview
    if write is not None:
        try:
            secrets = find_secrets(registration, registration.arguments.dump_json(dict(arguments), reveal_secrets=True))
            shown = clean_text(without_secrets(write(arguments), secrets))
            return "\n".join(map(escape_in_text, shown.split("\n")))
        except Exception:
            _logger.exception("the preview of %s raised; the arguments are shown as JSON", registration.name)
    with suppress(ValueError, RecursionError):  # of a text that only the parser of the tool reads: all is shown
        written = canonical_json(_keep_given(json.loads(written), json.loads(given)))
    return escape_in_json(without_keys(written))


def _keep_given(value: Any, given: Any) -> Any:
    """Return a validated value without the members that were not given: those are defaults."""
    if is_object(value) and is_object(given) and given.keys() <= value.keys():
        taken = [key for key, came in given.items() if came is not None or value[key] is None]  # null: left out
        return {key: _keep_given(value[key], given[key]) for key in taken}
    if is_array(value) and is_array(given) and len(value) == len(given):
        return [_keep_given(item, came) for item, came in zip(value, given, strict=True)]
    return value


def copy_values(registration: Registration[Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments of a tool; a value that can't be copied is given as JSON says it."""
    if _UNCHANGING.issuperset(map(type, arguments.values())):
        return dict(arguments)
    import copy  # noqa: PLC0415 - few arguments hold more than text and numbers

    try:
        return copy.deepcopy(arguments)
    except Exception:  # noqa: BLE001 - whatever a value of the application's own does when it is copied
        plain: dict[str, Any] = json.loads(registration.arguments.dump_json(arguments))
        return plain


def error_result(call: ToolCall, message: str) -> ToolResult:
    """Return the error result of `call`."""
    return ToolResult(call.id, replace_surrogates(message), tool_name=call.name, is_error=True, time=time.time())


def prepare(call: ToolCall, scope: Scope[Ctx], policy: ExecutionPolicy) -> Ready[Ctx] | Refused:
    """Find the tool, read the arguments and apply the rules; nobody is asked and nothing runs."""
    registration = scope.registrations.get(call.name)
    repairs: tuple[ToolCallRepaired, ...] = ()
    original = call
    if registration is None:
        name = _repair_name(call, scope, policy)
        if isinstance(name, Refused):
            return name
        repairs = (
            ToolCallRepaired(
                call_id=call.id, tool_name=name, program=call.program, kind="name", before=call.name, after=name
            ),
        )
        registration = scope.registrations[name]
        call = ToolCall(call.id, name, call.arguments, extra=call.extra)
    token = None
    if registration.takes_secrets is not False:
        token = use_secrets(partial(find_secrets, registration, call.arguments))
    repaired = ""
    try:
        try:
            arguments = registration.parse_json(call.arguments)
        except Exception as error:  # noqa: BLE001 - of a parser of the application's own, it may be anything
            arguments, more, repaired = _read_refused(call, registration, policy, error)
            repairs += more
        else:
            if "null" in call.arguments:
                repairs += _describe_nulls(call, registration, arguments)
        ready = Ready(call, registration, arguments, original, scope)
        ready.given = repaired or call.arguments
        if repairs:
            ready.repairs = repairs
        if registration.options.requires_approval is not False:
            ready.asks = _find_approval_need(ready, registration)
        return ready if scope.permissions is None and policy.caller is None else permit(ready, policy)
    except InvalidArgumentsError as error:
        return Refused(call, error_result(call, error.message), repairs, error.crash, mistake="arguments")
    finally:
        if token is not None:
            end_use(token)


def _repair_name(call: ToolCall, scope: Scope[Any], policy: ExecutionPolicy) -> str | Refused:
    """Return the name that was meant by one that is not there, or the refusal of the call."""
    registrations = scope.registrations
    name: str | None = None
    if policy.config.name_repair is not False:
        similar = policy.config.name_repair == "similar"
        name = repair_name(call.name, registrations, similar=similar, hidden=scope.hidden_names)
    if name is not None:
        return name
    unknown = ToolNotFoundError(call.name, tuple(registrations), nearest_names(call.name, registrations))
    return Refused(call, error_result(call, unknown.message), mistake="name")


def _read_refused(
    call: ToolCall, registration: Registration[Any], policy: ExecutionPolicy, error: Exception
) -> tuple[dict[str, Any], tuple[ToolCallRepaired, ...], str]:
    """Return repaired arguments in place of those on which a parser raised this, or raise the refusal for the model."""
    if isinstance(error, InvalidArgumentsError):
        if len(call.arguments) > _LONG_BROKEN_TEXT and is_trial():
            raise TooMuchWorkError  # what looks for readings of it takes its time
        allowed = registration.options.argument_repair
        if policy.config.argument_repair if allowed is None else allowed:
            return _repair_arguments(call, registration, error)
    if isinstance(error, (ToolkitError, TooMuchWorkError)):
        raise error
    _logger.error("the arguments of a call of %s could not be read", call.name, exc_info=error)
    refusal = InvalidArgumentsError(f"The arguments were refused: {type(error).__name__}: {error}")
    refusal.crash = error
    raise refusal from error


async def prepare_all(
    calls: Sequence[ToolCall], scope: Scope[Ctx], policy: ExecutionPolicy
) -> list[Ready[Ctx] | Refused]:
    """Prepare calls, one after the other; between many calls other tasks have their turn."""
    prepared: list[Ready[Ctx] | Refused] = []
    turn_ends = time.perf_counter() + _LONGEST_TURN
    for call in calls:
        if prepared and time.perf_counter() > turn_ends:
            await checkpoint()
            turn_ends = time.perf_counter() + _LONGEST_TURN
        found = prepare_here(call, scope, policy)
        prepared.append(await prepare_beside(call, scope, policy) if found is None else found)
    return prepared


def prepare_here(call: ToolCall, scope: Scope[Ctx], policy: ExecutionPolicy) -> Ready[Ctx] | Refused | None:
    """Prepare a call in the event loop; return None where that is not quick, and `prepare_beside` has to do it.

    All that is checked of the call takes its steps from one budget.
    """
    if len(call.arguments) > LONG_TEXT or (policy.trust is not None and policy.trust.is_behind):
        return None
    SHARED_BUDGET.current = "trial"
    try:
        return prepare(call, scope, policy)
    except TooMuchWorkError:
        return None
    finally:
        SHARED_BUDGET.current = None


async def prepare_beside(call: ToolCall, scope: Scope[Ctx], policy: ExecutionPolicy) -> Ready[Ctx] | Refused:
    """Prepare a call in a thread beside the event loop, with a budget for long work."""
    # Not a thread of tools: all of those may be held by what was abandoned.
    return await to_thread.run_sync(_prepare_long, call, scope, policy, abandon_on_cancel=True)


def _prepare_long(call: ToolCall, scope: Scope[Ctx], policy: ExecutionPolicy) -> Ready[Ctx] | Refused:
    SHARED_BUDGET.current = WorkBudget()
    try:
        if policy.trust is not None:
            policy.trust.index()
        prepared = prepare(call, scope, policy)
        # So that nobody does it in the event loop.
        secrets = find_secrets(scope.registrations.get(prepared.call.name), call.arguments)
        if isinstance(prepared, Ready):
            prepared.find_secrets()
        elif prepared.crash is None and without_secrets(prepared.result.text, secrets) == prepared.result.text:
            secrets = NO_SECRETS
        prepared.given_secrets = secrets
        return prepared
    finally:
        SHARED_BUDGET.current = None


def _find_approval_need(ready: Ready[Any], registration: Registration[Any]) -> str | None:
    """Return why the tool, as it is registered, wants somebody to agree to a call, or None."""
    rule = registration.options.requires_approval
    need: bool | str
    if rule == "unsaid":
        need = f"The conversation says nothing of: {', '.join(ready.unsaid)}." if ready.unsaid else False
    elif callable(rule):
        try:
            need = rule(ready.copy_arguments())
        except Exception:
            _logger.exception("requires_approval of %s raised; the call needs approval", ready.call.name)
            need = True
    else:
        need = rule
    if not need:
        return None
    if not isinstance(need, str):
        return f"Tool '{ready.call.name}' needs approval."
    return without_secrets(need, ready.find_secrets())


def _repair_arguments(
    call: ToolCall, registration: Registration[Any], error: InvalidArgumentsError
) -> tuple[dict[str, Any], tuple[ToolCallRepaired, ...], str]:
    """Return arguments that were refused once, their repairs and their repaired text, or raise the refusal."""
    from toolkit.calls.argument_repair import explain_nulls, repair_to_fit  # noqa: PLC0415 - few arguments are broken

    try:
        arguments, steps = repair_to_fit(call.arguments, registration.arguments, error, tool_name=call.name)
    except (ToolkitError, TooMuchWorkError):
        raise
    except Exception:
        _logger.exception("the arguments of a call of %s could not be repaired", call.name)
        raise error from None
    nulls = explain_nulls(steps[-1].after, registration.arguments) if "null" in steps[-1].after else None
    steps = [*steps, nulls] if nulls is not None else steps
    return arguments, _describe_repairs(call, registration, arguments, steps), steps[-1].after


def _describe_nulls(
    call: ToolCall, registration: Registration[Any], arguments: dict[str, Any]
) -> tuple[ToolCallRepaired, ...]:
    from toolkit.calls.argument_repair import explain_nulls  # noqa: PLC0415 - as in `_repair_arguments`

    step = explain_nulls(call.arguments, registration.arguments)
    return () if step is None else _describe_repairs(call, registration, arguments, [step])


_HIDDEN = ("what was assumed may hold a secret and is not told",)


def _describe_repairs(
    call: ToolCall, registration: Registration[Any], arguments: dict[str, Any], steps: Sequence[RepairStep]
) -> tuple[ToolCallRepaired, ...]:
    """Return the events of repairs; where a parameter is a secret, no text of the model's that may hold it."""
    parser = registration.arguments
    is_secret = may_hold_secrets(call.arguments, parser.nodes)
    events: list[ToolCallRepaired] = []
    before = call.arguments
    for step in steps:
        after = parser.dump_json(arguments) if is_secret else step.after
        events.append(
            ToolCallRepaired(
                call_id=call.id,
                tool_name=call.name,
                program=call.program,
                kind=step.kind,
                before=MASK if is_secret else before,
                after=after,
                assumed=_HIDDEN if is_secret else step.assumed,
            )
        )
        before = step.after
    return tuple(events)


def permit(ready: Ready[Ctx], policy: ExecutionPolicy) -> Ready[Ctx] | Refused:
    """Apply the rules to the arguments: refuse the call, note why somebody must agree, or leave it as it is.

    What the callers of a sub-agent may not do, or only with approval, holds for it too.
    """
    scope, caller, level = ready.scope, policy.caller, 0
    ready.allowed_levels, ready.trust, ready.origins = (), None, ()
    while True:
        refused = _apply_rules(ready, scope, level, policy)
        if refused is not None:
            return refused
        if caller is None:
            return ready
        scope, caller, level = caller.scope, caller.policy.caller, level + 1


def permit_again(ready: Ready[Ctx], policy: ExecutionPolicy) -> Ready[Ctx] | Refused:
    """Apply the rules once more: people may have decided on the same destinations since the call was prepared."""
    needs_approval = ready.registration.options.requires_approval is not False
    ready.asks, ready.asks_level = _find_approval_need(ready, ready.registration) if needs_approval else None, 0
    return permit(ready, policy)


def _apply_rules(ready: Ready[Any], scope: Scope[Any], level: int, policy: ExecutionPolicy) -> Refused | None:
    """Apply the rules of one level; where a caller has the tool, too, its need of approval there counts as well."""
    if level == 0:
        there: Sequence[Registration[Any]] = [ready.registration]
        asks = None
    else:
        there = find_same(ready.registration, scope.registrations)
        needs = [_find_approval_need(ready, other) for other in there]
        asks = next((need for need in needs if need is not None), None)
    if scope.permissions is not None:
        call = ready.call
        try:
            decision, trust = _judge_call(ready, scope.permissions, there, policy)
        except Exception:
            _logger.exception("the rules on %s could not be applied; call %s is denied", call.name, call.id)
            reason = f"Tool '{call.name}' may not be called: a permission rule failed."
            return Refused(call, error_result(call, reason), ready.repairs)
        if decision.action == "deny":
            return Refused(call, error_result(call, ToolDeniedError(decision.reason).message), ready.repairs)
        if decision.action == "ask":
            asks = decision.reason
            if decision.rule is not None and decision.rule.when:
                ready.trust, ready.origins = trust, decision.origins
        elif decision.rule is not None:
            ready.allowed_levels += (level,)
    if asks is not None:
        ready.asks = asks if level == 0 else ready.asks or asks
        ready.asks_level = level
    return None


def _judge_call(
    ready: Ready[Any], permissions: Permissions, there: Sequence[Registration[Any]], policy: ExecutionPolicy
) -> tuple[Decision, CallTrust | None]:
    """Return what the rules say of a call, and the call as rules on trust see it where some ask about that."""
    read = ArgumentsOnDemand(ready.registration, ready.arguments)
    trust = _find_call_trust(ready, there, policy, read) if permissions.asks_about_trust else None
    return judge(ready.registration, read, permissions, there, ready.unsaid, trust), trust


def _find_call_trust(
    ready: Ready[Any],
    there: Sequence[Registration[Any]],
    policy: ExecutionPolicy,
    read: ArgumentsOnDemand,
) -> CallTrust | None:
    """Return a call with effects as rules on trust see it, with the labels that its tool has where the rules are."""
    registration = ready.registration
    if not registration.options.effects:
        registration = next((each for each in there if each.options.effects), registration)
    elif there and there[0].options.effects:
        registration = there[0]
    if not registration.options.effects:
        return None
    return CallTrust(policy.trust or find_trust() or RunTrust(None), registration, read)
