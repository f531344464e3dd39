"""Tools in processes of their own, in any language: newline-delimited JSON over standard input and output."""

from toolkit.sources.plugin.tools import PluginTools, plugin_tools

__all__ = ["PluginTools", "plugin_tools"]
