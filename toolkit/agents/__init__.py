"""Agents as tools: loops inside tools, and data that agents pass to each other."""

from toolkit.agents.attachments import add_image, read_input_file
from toolkit.agents.sub_agents import SubAgent, SubAgentRun, coworker_tools, sub_agent_tool
from toolkit.loop.events import SubAgentEvent

__all__ = [
    "SubAgent",
    "SubAgentEvent",
    "SubAgentRun",
    "add_image",
    "coworker_tools",
    "read_input_file",
    "sub_agent_tool",
]
