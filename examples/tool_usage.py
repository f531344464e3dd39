"""An agent that drives itself: one call from the model's text to its result, with events that say for whom.

Prints:

    start: web_search {'query': 'rust', 'limit': 5} for ada
    end: 5 pages on rust
    refused: You have just called web_search with the same arguments, and it was not run again. Use the result that you have, or try something else.
    start: web_search {'query': 'python', 'limit': 1} for ada
    end: 1 pages on python
"""  # noqa: E501

from toolkit import tool
from toolkit.events import ToolCallRefused, ToolExecutionEnd, ToolExecutionStart
from toolkit.parsing import ToolUsage, ToolUsageEvent


@tool
def web_search(query: str, limit: int = 5) -> str:
    """Search the web."""
    return f"{limit} pages on {query}"


def show(emitted: ToolUsageEvent) -> None:
    """Print what happens."""
    match emitted.event:
        case ToolExecutionStart(tool_name=name, arguments=arguments):
            print(f"start: {name} {arguments} for {emitted.fingerprint_context['user']}")
        case ToolExecutionEnd(result=result):
            print(f"end: {result.text}")
        case ToolCallRefused(result=result):
            print(f"refused: {result.text}")
        case _:
            pass


user = ToolUsage([web_search], agent_role="Researcher", fingerprint_context={"user": "ada"}, on_event=show)
user.use_tool('{"tool_name": "web_search", "arguments": {"query": "rust"}}')
user.use_tool("Let me search again.\n{'tool_name': 'WebSearch', 'arguments': {'query': 'rust', 'limit': '5'}}")
user.use_tool('Thought: Python, then.\nAction: web_search\nAction Input: {"query": "python", "limit": 1}')
