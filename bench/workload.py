"""The functions and replies that both sides work on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

WAIT = 0.05
ECHO_PLUGIN = str(Path(__file__).with_name("echo_plugin.py"))


async def forecast(city: str, days: int, metric: bool = True) -> dict[str, Any]:
    """Forecast the weather.

    Args:
        city: Such as Paris.
        days: How many days ahead.
        metric: Whether to use degrees Celsius.
    """
    return {"city": city, "days": days, "degrees": 21.5 if metric else 70.7, "sky": "clear"}


RECORDS = [
    {"id": number, "name": f"record number {number}", "price": number * 1.25, "tags": ["new", "sale"], "sold": False}
    for number in range(115)
]
"""10 kB of JSON."""


async def search(city: str, days: int, metric: bool = True) -> list[dict[str, Any]]:
    """Find records.

    Args:
        city: Such as Paris.
        days: How many days ahead.
        metric: Whether to use degrees Celsius.
    """
    return RECORDS


async def wait(city: str, days: int, metric: bool = True) -> str:
    """Wait for something."""
    await asyncio.sleep(WAIT)
    return "done"


def block(city: str, days: int, metric: bool = True) -> str:
    """Block a thread."""
    time.sleep(WAIT)
    return "done"


def arguments_of(number: int) -> str:
    """Return the arguments of the call of that number: no two are the same."""
    return f'{{"city": "Paris", "days": {number}, "metric": true}}'


QUESTION = "How will the weather be? " * 8
OUTPUT = "Sunny, 21 degrees, a light wind from the west. " * 10
ANSWER = "It will be sunny all day. " * 8
