"""A plugin that gives back what it is sent: a line for a line."""

import json
import sys
from typing import Any

TOOL: dict[str, Any] = {
    "name": "echo",
    "description": "Echo.",
    "parameters": {"type": "object", "properties": {"text": {}}},
}

for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "describe":
        print(json.dumps(TOOL), flush=True)
    else:
        content = [{"type": "text", "text": request["params"]["text"]}]
        print(json.dumps({"call_id": request["call_id"], "content": content}), flush=True)
