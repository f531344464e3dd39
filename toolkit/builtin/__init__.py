"""Tools that come with the library."""

from toolkit.builtin.edits import edit_file_tool
from toolkit.builtin.files import read_file_tool, write_file_tool
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.stored_results import CacheTools, read_result_tool

__all__ = ["CacheTools", "RootFolder", "edit_file_tool", "read_file_tool", "read_result_tool", "write_file_tool"]
