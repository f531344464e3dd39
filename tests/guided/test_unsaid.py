"""Arguments that stand nowhere in the conversation are marked, and rules and approval can ask about them."""

from typing import Any

import pytest

from tests.guided.held_model import HeldModel
from toolkit import ApprovalRequest, ChatRequest, ToolCall, ToolLoopConfig, ToolRegistry, UserMessage, tool, tool_loop
from toolkit.chat import AssistantMessage, Message, ToolResult
from toolkit.guided import GuidedProvider
from toolkit.policies import Permissions, ask, deny

pytestmark = pytest.mark.anyio


@tool
def pay(recipient: str, amount: float) -> str:
    """Send money to a person."""
    return f"paid {amount:g} to {recipient}"


@tool
def list_events(day: str) -> str:
    """Show the calendar of a day."""
    return "Dentist at nine"


@tool
def add_event(title: str) -> str:
    """Put an appointment somewhere."""
    return f"added {title}"


GUESSED = {"recipient": "Falk", "amount": 2000}


def guess() -> GuidedProvider:
    return GuidedProvider(HeldModel(["pay"], [GUESSED]).provider)


async def test_a_value_is_neither_forced_nor_refused_but_marked() -> None:
    request = ChatRequest(messages=[UserMessage("Pay two grand to Falk.")], tools=[pay.definition])
    [call] = (await guess().generate(request)).tool_calls
    assert call.unsaid == ("amount",)
    said = ChatRequest(messages=[UserMessage("Pay 2000 to Falk.")], tools=[pay.definition])
    [call] = (await guess().generate(said)).tool_calls
    assert (call.unsaid, call.extra) == ((), None)


@pytest.mark.parametrize(
    ("registry", "text"),
    [
        (ToolRegistry([pay], permissions=Permissions([deny("pay", unsaid="amount")])), "may not be called"),
        (ToolRegistry([pay], permissions=Permissions([deny("pay", unsaid="recipient")])), "paid 2000 to Falk"),
        (ToolRegistry([pay], permissions=Permissions([ask("*", unsaid="*")])), "needs approval"),
        (ToolRegistry([pay]).configured(requires_approval="unsaid"), "The conversation says nothing of: amount."),
    ],
)
async def test_rules_and_tools_can_ask_about_what_nobody_said(registry: ToolRegistry, text: str) -> None:
    result = await tool_loop(guess(), registry, "Pay two grand to Falk.")
    [answered] = [message for message in result.messages if isinstance(message, ToolResult)]
    assert text in answered.text


async def test_an_approver_reads_which_arguments_nobody_said() -> None:
    seen: list[tuple[str, ...]] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append(request.unsaid)
        return True

    config = ToolLoopConfig(on_tool_call=approve)
    await tool_loop(guess(), ToolRegistry([pay]), "Pay two grand to Falk.", config=config)
    assert seen == [("amount",)]


def after_a_result(prompt: str) -> ChatRequest:
    messages: list[Message] = [
        UserMessage(prompt),
        AssistantMessage([ToolCall("1", "list_events", '{"day": "2026-05-04"}')]),
        ToolResult("1", "Dentist at nine", tool_name="list_events"),
    ]
    return ChatRequest(messages=messages, tools=[list_events.definition, add_event.definition])


async def test_a_call_of_which_the_request_has_nothing_is_asked_about_again() -> None:
    model = HeldModel(["add_event"], [{"title": "Dentist"}])
    request = after_a_result("What is on 2026-05-04? Don't put anything new into it.")
    response = await GuidedProvider(model.provider).generate(request)
    assert response.text == "Done."
    assert model.offered(1) == ["add_event", "answer"]


async def test_a_model_that_insists_has_its_call_marked_whole() -> None:
    model = HeldModel(["add_event", "add_event"], [{"title": "Dentist"}])
    response = await GuidedProvider(model.provider).generate(after_a_result("Nochmal bitte: was war am 2026-05-04?"))
    assert [call.unsaid for call in response.tool_calls] == [("title",)]


async def test_a_call_that_the_request_names_is_not_asked_about_again() -> None:
    model = HeldModel(["add_event"], [{"title": "Dentist"}])
    request = after_a_result("What is on 2026-05-04? Make an appointment like it.")
    response = await GuidedProvider(model.provider).generate(request)
    assert [(call.name, call.unsaid) for call in response.tool_calls] == [("add_event", ())]


async def test_ids_are_offered_as_they_are_written() -> None:
    order: dict[str, Any] = {"type": "string", "pattern": "^[A-Z]-[0-9]+$"}
    schema = {"type": "object", "properties": {"order": order}, "required": ["order"]}
    model = HeldModel(["look_up"], [{"order": "A-7"}, [{"order": "A-7"}]])
    definition = pay.definition.__class__(name="look_up", description="Look it up.", parameters=schema)
    request = ChatRequest(messages=[UserMessage("Where is a-7, or B-9?")], tools=[definition])
    await GuidedProvider(model.provider).generate(request)
    assert model.schemas[1]["properties"]["order"] == {"enum": ["A-7", "B-9"]}
