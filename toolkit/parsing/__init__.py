"""Tool calls that a model writes into its text: read, also while they come, and written back."""

from toolkit.parsing.forms import TextFormat
from toolkit.parsing.provider import (
    CallingAdvice,
    CallingProbe,
    TextToolProvider,
    ToolOffer,
    advise_calling,
    probe_calling,
)
from toolkit.parsing.reply import Reply, ReplyPart, ReplyReader, UnreadCall, read_reply
from toolkit.parsing.tool_user import ToolCalling, ToolUsage, ToolUsageEvent, to_structured_tools
from toolkit.parsing.wording import CallingWay, ModelFamily, SamplingAdvice, find_family

__all__ = [
    "advise_calling",
    "CallingAdvice",
    "CallingProbe",
    "CallingWay",
    "find_family",
    "ModelFamily",
    "probe_calling",
    "SamplingAdvice",
    "read_reply",
    "Reply",
    "ReplyPart",
    "ReplyReader",
    "TextFormat",
    "TextToolProvider",
    "ToolOffer",
    "to_structured_tools",
    "ToolCalling",
    "ToolUsage",
    "ToolUsageEvent",
    "UnreadCall",
]
