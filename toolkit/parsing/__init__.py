"""Tool calls that a model writes into its text: read, also while they come, and written back."""

from toolkit.parsing.formats import TextFormat
from toolkit.parsing.provider import TextToolProvider
from toolkit.parsing.reply import ReplyReader, read_reply
from toolkit.parsing.reply_parts import Reply, ReplyPart, UnreadCall
from toolkit.parsing.tool_user import ToolCalling, ToolUsage, ToolUsageEvent, to_structured_tools

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
