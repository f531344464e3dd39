"""Tool calls that a model writes into its text: read, also while they come, and written back."""

from toolkit.parsing.formats import TextFormat
from toolkit.parsing.provider import TextToolProvider
from toolkit.parsing.reply import Reply, ReplyPart, ReplyReader, UnreadCall, read_reply
from toolkit.parsing.tool_user import ToolUser, ToolUserEvent, to_structured_tools

__all__ = [
    "read_reply",
    "Reply",
    "ReplyPart",
    "ReplyReader",
    "TextFormat",
    "TextToolProvider",
    "to_structured_tools",
    "ToolUser",
    "ToolUserEvent",
    "UnreadCall",
]
