"""The browser that the page of runs is looked at with."""

from tests.browsers import browser

__all__ = ["browser"]
