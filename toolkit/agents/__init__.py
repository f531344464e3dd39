"""Agents as tools: loops inside tools, and what agents hand to each other."""

from toolkit.agents.coworkers import coworker_tools
from toolkit.agents.images import add_image
from toolkit.agents.input_files import read_input_file
from toolkit.agents.sub_agents import SubAgent, SubAgentRun, sub_agent_tool
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
