"""What is shown to a person says what it is."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies

from toolkit import (
    ApprovalRequest,
    Defer,
    FunctionTool,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop_sync,
)
from toolkit.foreign_text import escape_in_json, escape_in_name, shorten_to_line
from toolkit.policies import PendingApproval
from toolkit.testing import ScriptedProvider

HIDDEN = [
    "\n",
    "\r",
    "\t",
    "\x1b",
    "\x7f",
    "\x9b",
    "\u00ad",
    "\u200b",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ue000",
    "\U000e0041",
]


@given(strategies.text())
def test_json_that_is_shown_says_the_same(text: str) -> None:
    shown = escape_in_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(shown) == {"text": text}
    assert escape_in_json(shown) == shown


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_character_that_is_not_seen_is_escaped(hidden: str) -> None:
    assert hidden not in escape_in_name(f"a{hidden}b")
    assert hidden not in escape_in_json(json.dumps(f"a{hidden}b", ensure_ascii=False))


@pytest.mark.parametrize("name", ["a.txt", "ünï", "日本", "a b", "a\\b", '"'])
def test_a_name_that_is_seen_whole_stays(name: str) -> None:
    assert escape_in_name(name) == name


@pytest.mark.anyio
async def test_an_approver_is_shown_what_would_run() -> None:
    @tool
    def pay(to: str) -> str:
        """Pay."""
        return to

    seen: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append(request.preview)
        return False

    call = ToolCall("1", "pay", json.dumps({"to": "ada\u202e\nbob"}))
    await ToolRegistry([pay]).execute(call, approve=approve)
    assert seen == [r'{"to":"ada\u202e\nbob"}']
    pending = PendingApproval(call_id="1", tool_name="pay", arguments={"to": "ada\u202e"}, reason="", binding="")
    assert pending.preview == r'{"to": "ada\u202e"}'


@dataclass
class Address:
    city: str
    country: str = "FI"


@tool
def send(to: Address, copies: int = 1, notes: list[Address] | None = None) -> str:
    """Send it."""
    return ""


@tool(preview=lambda arguments: f"pay {arguments['amount']}\n to {arguments['to']}")
def pay(amount: int, to: str) -> str:
    """Pay."""
    return ""


@tool(preview=lambda arguments: arguments["nothing"])
def fails(amount: int, to: str = "") -> str:
    """Fail to show it."""
    return ""


TURKU = '{"to":{"city":"Turku"}}'
SHOWN = [
    (send, '{"to": {"city": "Turku"}}', TURKU),
    (send, '{"to": {"city": "A", "country": "B"}, "copies": "1"}', '{"copies":1,"to":{"city":"A","country":"B"}}'),
    (send, '{"to": {"city": "A"}, "notes": [{"city": "B"}]}', '{"notes":[{"city":"B"}],"to":{"city":"A"}}'),
    (send, '{"to": {"city": "A"}, "copies": null, "notes": null}', '{"notes":null,"to":{"city":"A"}}'),
    (send, "{'to': {'city': 'Turku'},}", TURKU),
    (send, '{"arguments": {"to": {"city": "Turku"}}}', TURKU),
    (pay, '{"amount": 3, "to": "ada\\u202e"}', "pay 3\n to ada\\u202e"),
    (fails, '{"amount": 3}', '{"amount":3}'),
]


@pytest.mark.parametrize(("shown", "arguments", "preview"), SHOWN)
def test_an_approver_is_shown_what_was_given_and_no_default(
    shown: FunctionTool[object, ..., str], arguments: str, preview: str
) -> None:
    seen: list[str] = []

    def defer(request: ApprovalRequest) -> Defer:
        seen.append(request.preview)
        return Defer()

    result = tool_loop_sync(
        ScriptedProvider([ToolCall("1", shown.definition.name, arguments)]),
        ToolRegistry([shown]),
        "Do it.",
        config=ToolLoopConfig(on_tool_call=defer),
    )
    assert result.snapshot is not None
    assert [*seen, *(each["preview"] for each in result.snapshot["pending_approvals"])] == [preview, preview]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  two\n words\t", "two words"),
        ("exactly it", "exactly it"),
        ("one too many", "one too ma..."),
        ("", ""),
    ],
)
def test_a_text_is_shortened_to_one_line(text: str, line: str) -> None:
    assert shorten_to_line(text, 10) == line
