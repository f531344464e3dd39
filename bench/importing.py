"""What an import costs; apart from the other measures, because it must be the first thing that a process does."""

import time


def load_floor() -> None:
    """Import what any such loop imports."""
    import asyncio
    import inspect

    import pydantic

    _ = asyncio, inspect, pydantic.BaseModel  # which is imported when it is named


def load_ours() -> None:
    """Import toolkit, without making a tool."""
    import toolkit

    _ = toolkit.tool_loop


def floor() -> float:
    """Return milliseconds of CPU for `load_floor`."""
    began = time.process_time()
    load_floor()
    return (time.process_time() - began) * 1e3


def ours() -> float:
    """Return milliseconds of CPU for `load_ours`."""
    began = time.process_time()
    load_ours()
    return (time.process_time() - began) * 1e3


def with_a_tool() -> float:
    """Return milliseconds of CPU for toolkit and one tool, which takes Pydantic."""
    began = time.process_time()
    import toolkit
    from bench.workload import forecast

    toolkit.tool(forecast)
    return (time.process_time() - began) * 1e3
