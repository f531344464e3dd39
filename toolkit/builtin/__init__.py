"""Tools that come with the library."""

from toolkit.builtin.stored_results import CacheTools, read_result_tool

__all__ = ["CacheTools", "read_result_tool"]
