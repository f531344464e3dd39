"""A master that plans, workers that do, each with tools of its own; one budget for all three levels.

Prints:

    lead: [lead calls researcher]
    lead: [researcher calls search]
    lead: [lead calls writer]
    answer: Llamas hum. (Written from: llamas hum when they are calm)
    tokens of all four models: 98
"""

from toolkit import (
    AssistantMessage,
    ChatRequest,
    LoopLimits,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    Usage,
    UsageLimits,
    tool,
    tool_loop_sync,
)
from toolkit.agents import SubAgentEvent, sub_agent_tool
from toolkit.chat import ChatResponse
from toolkit.events import LoopEvent, ToolExecutionUpdate
from toolkit.testing import ScriptedProvider, ScriptedReply


@tool
def search(topic: str) -> str:
    """Search for facts."""
    return f"{topic} hum when they are calm"


def model(*replies: str | ToolCall) -> ScriptedProvider:
    """Return a model that plays these replies, for ten tokens each and one for each word of an answer."""

    def said(reply: str | ToolCall) -> ScriptedReply:
        def answer(request: ChatRequest) -> ChatResponse:
            text = reply.format(last=request.messages[-1].text) if isinstance(reply, str) else ""
            message = AssistantMessage(text if isinstance(reply, str) else [reply])
            return ChatResponse(message=message, usage=Usage(input_tokens=10, output_tokens=len(text.split()) // 2))

        return answer

    return ScriptedProvider([said(reply) for reply in replies])


researcher = sub_agent_tool(
    "researcher",
    "Finds facts.",
    model(ToolCall("r1", "search", '{"topic": "llamas"}'), "{last}"),
    ToolRegistry([search]),
)
writer = sub_agent_tool("writer", "Writes one sentence.", model("Llamas hum. (Written from: {last})"), ToolRegistry())
lead = sub_agent_tool(
    "lead",
    "Has an article written.",
    model(
        ToolCall("l1", "researcher", '{"task": "What do llamas do?"}'),
        ToolCall("l2", "writer", '{"task": "llamas hum when they are calm"}'),
        "{last}",
    ),
    ToolRegistry([researcher, writer]),
    allow_sub_agents=True,
)
master = model(ToolCall("m1", "lead", '{"task": "Write about llamas."}'), "{last}")


def show(event: LoopEvent) -> None:
    """Print which tools the agents call, at any depth."""
    if isinstance(event, ToolExecutionUpdate) and event.output.text.startswith("["):
        assert isinstance(event.output.details, SubAgentEvent)
        print(f"{event.output.details.sub_agent}: {event.output.text}")


config = ToolLoopConfig(on_event=show, limits=LoopLimits(usage=UsageLimits(requests=10, total_tokens=1_000)))
result = tool_loop_sync(master, ToolRegistry([lead]), "I want an article about llamas.", config=config)
print("answer:", result.text)
print(f"tokens of all four models: {result.usage.total_tokens}")
