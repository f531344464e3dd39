"""What an import costs; apart from the other measures, because it must be the first thing that a process does."""

import time


def floor() -> float:
    """Return milliseconds of CPU for what any such loop imports."""
    began = time.process_time()
    import asyncio
    import inspect

    import pydantic

    _ = asyncio, inspect, pydantic.BaseModel  # which is imported when it is named
    return (time.process_time() - began) * 1e3


def ours() -> float:
    """Return milliseconds of CPU for toolkit, without making a tool."""
    began = time.process_time()
    import toolkit

    _ = toolkit.tool_loop
    return (time.process_time() - began) * 1e3


def with_a_tool() -> float:
    """Return milliseconds of CPU for toolkit and one tool, which takes Pydantic."""
    began = time.process_time()
    import toolkit
    from bench.workload import forecast

    toolkit.tool(forecast)
    return (time.process_time() - began) * 1e3
