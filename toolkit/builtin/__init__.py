"""Tools that come with the library: for work on files, and for reading the cache."""

from toolkit.builtin.bash import BashOptions, Bubblewrap, bash_tool
from toolkit.builtin.coding import CodingPreset, coding_tools
from toolkit.builtin.commands import DEFAULT_DENY, CommandPattern, PlainCommandPattern, removes_everything, runs_only
from toolkit.builtin.edits import edit_file_tool
from toolkit.builtin.file_tree import list_files_tool
from toolkit.builtin.files import is_executed_later, read_file_tool, write_file_tool
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.search import search_tool
from toolkit.builtin.stored_results import CacheTools
from toolkit.tools.read_result import read_result_tool

__all__ = [
    "BashOptions",
    "Bubblewrap",
    "CacheTools",
    "CodingPreset",
    "CommandPattern",
    "DEFAULT_DENY",
    "PlainCommandPattern",
    "RootFolder",
    "bash_tool",
    "coding_tools",
    "edit_file_tool",
    "is_executed_later",
    "list_files_tool",
    "read_file_tool",
    "read_result_tool",
    "removes_everything",
    "runs_only",
    "search_tool",
    "write_file_tool",
]
