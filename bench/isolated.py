"""A tool that runs in a process of its own, which imports this module."""

from typing import Any

from toolkit import tool


@tool(isolation="process")
def forecast_in_a_process(city: str, days: int, metric: bool = True) -> dict[str, Any]:
    """Forecast the weather."""
    return {"city": city, "days": days, "degrees": 21.5 if metric else 70.7, "sky": "clear"}
