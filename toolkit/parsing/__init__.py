"""Tool calls that a model writes into its text: read, also while they come, and written back."""

from toolkit.parsing.formats import TextFormat
from toolkit.parsing.lifecycle import ToolCalling, ToolUsage, ToolUsageEvent, to_structured_tools
from toolkit.parsing.provider import TextToolProvider
from toolkit.parsing.reply import Reply, ReplyPart, ReplyReader, UnreadCall, read_reply

__all__ = [
    "read_reply",
    "Reply",
    "ReplyPart",
    "ReplyReader",
    "TextFormat",
    "TextToolProvider",
    "to_structured_tools",
    "ToolCalling",
    "ToolUsage",
    "ToolUsageEvent",
    "UnreadCall",
]
