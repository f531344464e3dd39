#!/usr/bin/env python3
"""A plugin with one tool, ``stats``: descriptive statistics. It needs nothing but Python."""

import json
import math
import sys

DEFINITION: dict[str, object] = {
    "name": "stats",
    "description": "Compute the minimum, maximum, mean and standard deviation of a list of numbers.",
    "parameters": {
        "type": "object",
        "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "description": "The numbers"},
            "precision": {"type": "integer", "description": "Decimal places in the output", "default": 2},
        },
        "required": ["numbers"],
    },
}


def stats(numbers: list[float], precision: int = 2) -> tuple[str, dict[str, float]]:
    """Return the words and the figures."""
    mean = sum(numbers) / len(numbers)
    spread = math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))
    figures = {"min": min(numbers), "max": max(numbers), "mean": mean, "stddev": spread}
    words = "  ".join(f"{name}={value:.{precision}f}" for name, value in figures.items())
    return f"n={len(numbers)}  {words}", figures


for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "describe":
        answer = DEFINITION
    elif request["type"] == "call":
        try:
            text, details = stats(**request["params"])
            answer = {"content": [{"type": "text", "text": text}], "details": details, "error": False}
        except (TypeError, ValueError, ZeroDivisionError) as problem:
            answer = {"content": [{"type": "text", "text": f"Error: {problem}"}], "error": True}
    else:
        continue
    print(json.dumps(answer), flush=True)
