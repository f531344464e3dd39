"""The pages of the reference: one for each module that users import from, made from its docstrings."""

import importlib
from pathlib import Path

from docs.site.tables import write_loggers_page, write_module_table, write_options_page, write_settings_page

# In the order of the navigation.
PUBLIC_MODULES = (
    "toolkit",
    "toolkit.chat",
    "toolkit.events",
    "toolkit.endings",
    "toolkit.errors",
    "toolkit.policies",
    "toolkit.agents",
    "toolkit.builtin",
    "toolkit.conversations",
    "toolkit.durable",
    "toolkit.evaluation",
    "toolkit.guided",
    "toolkit.interop",
    "toolkit.parsing",
    "toolkit.plugin_sdk",
    "toolkit.providers",
    "toolkit.providers.anthropic",
    "toolkit.providers.google",
    "toolkit.providers.local",
    "toolkit.providers.openai",
    "toolkit.run_log",
    "toolkit.serving.acp",
    "toolkit.serving.fastmcp",
    "toolkit.serving.mcp",
    "toolkit.sources",
    "toolkit.sources.mcp",
    "toolkit.sources.openapi",
    "toolkit.sources.pins",
    "toolkit.sources.plugin",
    "toolkit.testing",
    "toolkit.testing.conformance",
    "toolkit.testing.loopback",
    "toolkit.sql_budgets",
    "toolkit.tool_config",
    "toolkit.tracing",
    "toolkit.ui",
)


TABLE_PAGES = {"loggers.md": write_loggers_page, "options.md": write_options_page, "settings.md": write_settings_page}


def write_reference_pages(folder: Path) -> None:
    """Write a page for each public module, and the index of them."""
    folder.mkdir()
    pages = {
        name_page(module): f"# {module}\n\n{write_module_table(module)}\n::: {module}\n" for module in PUBLIC_MODULES
    }
    pages["index.md"] = _write_index()
    pages |= {name: write() for name, write in TABLE_PAGES.items()}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def name_page(module: str) -> str:
    """Return the file name of the page of a module, as ``providers_openai.md``."""
    return (module.removeprefix("toolkit.") or module).replace(".", "_") + ".md"


def _write_index() -> str:
    lines = ["# Reference", "", "Every public name, by the module that it is imported from.", ""]
    lines += ["Tables: [settings](settings.md), [options](options.md), [events](events.md), [endings](endings.md),"]
    lines += ["[errors](errors.md), [log messages](loggers.md).", ""]
    lines += ["| module | holds |", "| --- | --- |"]
    for module in PUBLIC_MODULES:
        first_line = (importlib.import_module(module).__doc__ or "").split("\n")[0].replace("``", "`")
        lines.append(f"| [`{module}`]({name_page(module)}) | {first_line} |")
    return "\n".join(lines) + "\n"
