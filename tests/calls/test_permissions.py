import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from toolkit.calls.permissions import Decision, PermissionAction, Permissions, Rule, allow, ask, deny
from toolkit.errors import ConfigurationError


@dataclass
class Case:
    rules: list[Rule]
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    action: PermissionAction = "allow"
    default: PermissionAction = "deny"


GIT = [allow("bash", args={"command": "git *"})]
MODE = {"options.mode": "safe*"}


@pytest.mark.parametrize(
    "case",
    [
        # names
        Case([], "anything", default="allow"),
        Case([], "anything", action="ask", default="ask"),
        Case([allow("read_*")], "read_file"),
        Case([allow("read_*")], "write_file", action="deny"),
        Case([allow("read_*")], "Read_file", action="deny"),
        Case([allow("read_?")], "read_ab", action="deny"),
        Case([allow("[rw]*")], "write"),
        Case([allow("read")], "read\n", action="deny"),
        # order
        Case([allow("*"), deny("bash")], "bash", action="deny"),
        Case([deny("bash"), allow("*")], "bash", action="deny"),
        Case([allow("*"), ask("bash")], "bash", action="allow"),
        Case([ask("bash"), allow("*")], "bash", action="ask"),
        Case([ask("bash"), allow("bash"), deny("b*")], "bash", action="deny"),
        # texts
        Case(GIT, "bash", {"command": "git status"}),
        Case(GIT, "bash", {"command": "git log\n--all"}),
        Case(GIT, "bash", {"command": "GIT status"}, action="deny"),
        Case(GIT, "bash", {"command": "rm -rf git "}, action="deny"),
        Case(GIT, "bash", {"command": 5}, action="deny"),
        Case(GIT, "bash", {}, action="deny"),
        Case([deny("bash", args={"command": "*sudo*"})], "bash", {"command": "x && sudo y"}, "deny", "allow"),
        Case([deny("bash", args={"command": "*sudo*"})], "bash", {}, "allow", "allow"),
        # all must match
        Case([allow("mv", args={"a": "/tmp/*", "b": "/tmp/*"})], "mv", {"a": "/tmp/1", "b": "/tmp/2"}),
        Case([allow("mv", args={"a": "/tmp/*", "b": "/tmp/*"})], "mv", {"a": "/tmp/1", "b": "/etc/2"}, "deny"),
        # equality
        Case([allow("f", args={"x": 1})], "f", {"x": 1.0}),
        Case([allow("f", args={"x": 1})], "f", {"x": True}, action="deny"),
        Case([allow("f", args={"x": False})], "f", {"x": 0}, action="deny"),
        Case([allow("f", args={"x": None})], "f", {"x": None}),
        Case([allow("f", args={"x": None})], "f", {}, action="deny"),
        Case([allow("f", args={"x": [1, {"y": True}]})], "f", {"x": [1, {"y": True}]}),
        Case([allow("f", args={"x": [1, {"y": True}]})], "f", {"x": [1, {"y": 1}]}, action="deny"),
        Case([allow("f", args={"x": [1]})], "f", {"x": [1, 2]}, action="deny"),
        # functions
        Case([allow("pay", args={"amount": lambda amount: amount < 100})], "pay", {"amount": 99}),
        Case([allow("pay", args={"amount": lambda amount: amount < 100})], "pay", {"amount": 100}, "deny"),
        Case([allow("pay", args={"amount": lambda _: True})], "pay", {}, "deny"),
        # paths
        Case([allow("f", args=MODE)], "f", {"options": {"mode": "safest"}}),
        Case([allow("f", args=MODE)], "f", {"options.mode": "safe"}),
        Case([allow("f", args=MODE)], "f", {"options.mode": "safe", "options": {"mode": "wild"}}, "deny"),
        Case([deny("f", args=MODE)], "f", {"options.mode": "wild", "options": {"mode": "safe"}}, "deny", "allow"),
        Case([allow("f", args=MODE)], "f", {"options": "safe"}, action="deny"),
        Case([allow("f", args=MODE)], "f", {"options": {}}, action="deny"),
        # lists
        Case([allow("rm", args={"paths": "/tmp/*"})], "rm", {"paths": ["/tmp/a", "/tmp/b"]}),
        Case([allow("rm", args={"paths": "/tmp/*"})], "rm", {"paths": ["/tmp/a", "/etc/b"]}, "deny"),
        Case([allow("rm", args={"paths": "/tmp/*"})], "rm", {"paths": []}, "deny"),
        Case([deny("rm", args={"paths": "/etc/*"})], "rm", {"paths": ["/tmp/a", "/etc/b"]}, "deny", "allow"),
        Case([ask("rm", args={"paths": "/etc/*"})], "rm", {"paths": ["/tmp/a", "/etc/b"]}, "ask", "allow"),
        Case([allow("send", args={"to.mail": "*@us"})], "send", {"to": [{"mail": "a@us"}, {"mail": "b@us"}]}),
        Case([allow("send", args={"to.mail": "*@us"})], "send", {"to": [{"mail": "a@us"}, {}]}, "deny"),
        Case([deny("send", args={"to.mail": "*@em"})], "send", {"to": [{"mail": "a@us"}, {"mail": "b@em"}]}, "deny"),
    ],
)
def test_rules_decide(case: Case) -> None:
    assert Permissions(case.rules, default=case.default).decide(case.tool, case.arguments).action == case.action


def test_without_rules_everything_is_allowed() -> None:
    assert Permissions().decide("bash", {"command": "rm"}) == Decision("allow")


def test_a_decision_tells_the_rule_and_the_reason() -> None:
    no_force = deny("bash", args={"command": "*--force*"}, reason="Never force.")
    no_delete, check = deny("delete_*"), ask("bash", args={"command": "*", "cwd": "*"})
    permissions = Permissions([no_force, no_delete, check, ask("write")], default="deny")
    assert permissions.decide("bash", {"command": "git push --force"}) == Decision("deny", no_force, "Never force.")
    assert permissions.decide("delete_x", {}).reason == "Tool 'delete_x' may not be called here."
    assert permissions.decide("other", {}) == Decision("deny", None, "Tool 'other' may not be called here.")
    asked = permissions.decide("bash", {"command": "ls", "cwd": "/"})
    assert asked == Decision("ask", check, "Tool 'bash' needs approval for this 'command' and 'cwd'.")
    assert permissions.decide("write", {}).reason == "Tool 'write' needs approval."
    denied = Permissions([deny("bash", args={"command": "*"})]).decide("bash", {"command": "x"})
    assert denied.reason == "Tool 'bash' may not be called with this 'command'."


def test_a_rule_that_raises_denies(caplog: pytest.LogCaptureFixture) -> None:
    permissions = Permissions([allow("f", args={"x": lambda x: x > 1}), allow("*")])
    with caplog.at_level(logging.ERROR, "toolkit.calls"):
        decision = permissions.decide("f", {"x": "secret"})
    assert decision.action == "deny"
    assert decision.reason == "Tool 'f' may not be called: a permission rule failed."
    assert "denied" in caplog.text


def test_a_rule_written_out_allows() -> None:
    assert Rule("bash", args={"command": "git *"}) == allow("bash", args={"command": "git *"})


def _wrong_rules() -> list[tuple[Any, str]]:
    unknown: Any = object()
    return [
        (lambda: Rule(""), "such as 'read_*', not ''"),
        (lambda: Rule(unknown), "a rule needs the name of a tool"),
        (lambda: Rule("f", action=unknown), "the action of the rule for 'f' can't be"),
        (lambda: Rule("f", args=unknown), "must map argument names to patterns"),
        (lambda: Rule("f", args={"": "x"}), "names the argument ''"),
        (lambda: Rule("f", args={"a..b": "x"}), "names the argument 'a..b'"),
        (lambda: Rule("f", args={"a": unknown}), "can't match 'a' with a value of type object"),
        (lambda: Rule("f", args={"a": [unknown]}), "can't match 'a' with a value of type list"),
        (lambda: Rule("f", args={"a": {"b": unknown}}), "can't match 'a' with a value of type dict"),
        (lambda: Permissions(cast("Any", ["bash"])), "'bash' is none"),
        (lambda: Permissions(default=unknown), "the default of permissions can't be"),
    ]


@pytest.mark.parametrize(("build", "words"), _wrong_rules())
def test_what_can_not_be_a_rule_is_refused_at_once(build: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build()
    assert words in str(caught.value)


_rules = st.builds(
    Rule,
    st.sampled_from(["*", "a*", "b", "?"]),
    args=st.none() | st.just({"x": "1*"}) | st.just({"y.z": 1}),
    action=st.sampled_from(["allow", "deny", "ask"]),
)
_arguments = st.fixed_dictionaries(
    {}, optional={"x": st.sampled_from(["1", "2", ["1", "2"], 1]), "y": st.sampled_from([{"z": 1}, {"z": "1"}, [], 1])}
)


@given(st.lists(_rules, max_size=6), st.sampled_from(["a", "b", "ab"]), _arguments, st.randoms())
def test_a_denial_wins_wherever_it_stands_and_else_the_first_decides(
    rules: list[Rule], tool: str, arguments: dict[str, Any], random: Any
) -> None:
    matching = [rule for rule in rules if Permissions([rule], default="allow").decide(tool, arguments).rule is rule]
    decision = Permissions(rules, default="ask").decide(tool, arguments)
    denials = [rule for rule in matching if rule.action == "deny"]
    assert decision.rule is (denials[0] if denials else matching[0] if matching else None)
    shuffled = random.sample(rules, len(rules))
    assert (Permissions(shuffled).decide(tool, arguments).action == "deny") == bool(denials)


def test_permissions_show_their_rules() -> None:
    assert repr(Permissions([deny("bash")], default="ask")) == f"Permissions([{deny('bash')!r}], default='ask')"
