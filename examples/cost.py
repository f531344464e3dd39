"""What a run costs, its sub-agent included, and a limit of the cost.

Prints:

    the run cost $0.00700
    the next one stopped: UsageLimit(limit='cost', maximum=0.003, used=0.004, budget='')
"""

from toolkit import LoopLimits, ToolCall, ToolLoopConfig, ToolRegistry, Usage, UsageLimits, tool, tool_loop_sync
from toolkit.agents import sub_agent_tool
from toolkit.chat import AssistantMessage, ChatResponse
from toolkit.providers import PricedProvider, TokenPrices
from toolkit.testing import ScriptedProvider


def asked(call: ToolCall) -> ChatResponse:
    """Return a reply with a call, as a model that read 1,000 tokens gives it."""
    return ChatResponse(message=AssistantMessage([call]), usage=Usage(input_tokens=1000))


def answered(text: str) -> ChatResponse:
    """Return a last reply."""
    return ChatResponse(message=AssistantMessage(text), usage=Usage(input_tokens=1000, output_tokens=100))


@tool
def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


# With a model of a vendor it is PricedProvider(OpenAIProvider("gpt-5-mini")): its prices are known.
PRICES = TokenPrices(input=1.0, output=5.0)  # dollars for a million tokens
researcher = PricedProvider(
    ScriptedProvider([asked(ToolCall("r", "search", '{"query": "llamas"}')), answered("Llamas hum.")]), PRICES
)
master = PricedProvider(
    ScriptedProvider(
        [
            asked(ToolCall("m", "research", '{"task": "What do llamas say?"}')),
            asked(ToolCall("n", "search", '{"query": "humming"}')),
            answered("They hum."),
            asked(ToolCall("o", "search", '{"query": "more"}')),
        ],
    ),
    TokenPrices(input=1.0, output=15.0),
)
registry = ToolRegistry([sub_agent_tool("research", "Look into it.", researcher, ToolRegistry([search])), search])

result = tool_loop_sync(master, registry, "What do llamas say?")
print(f"the run cost ${result.usage.cost:.5f}")

config = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=0.003)))
busy = PricedProvider(
    ScriptedProvider([asked(ToolCall("s", "search", '{"query": "more"}'))], repeats=True),
    TokenPrices(input=2, output=0),
)
print("the next one stopped:", tool_loop_sync(busy, registry, "Find out more.", config=config).reason)
