"""Functions that run in a process of their own, found there by this module."""

import os
import time

from pydantic import BaseModel

from toolkit import tool


class Report(BaseModel):
    process: int
    words: list[str]


@tool(isolation="process")
def report(word: str) -> Report:
    """Say which process this is."""
    return Report(process=os.getpid(), words=[word])


@tool(isolation="process", timeout=0.2)
def sleep_isolated() -> None:
    """Sleep for long."""
    time.sleep(60)


@tool(isolation="process")
def fail_isolated() -> str:
    """Fail."""
    raise ValueError("no")
