"""The pages of the reference: one for each module that users import from, made from its docstrings."""

import importlib
from pathlib import Path

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
    "toolkit.durable",
    "toolkit.evaluation",
    "toolkit.interop",
    "toolkit.parsing",
    "toolkit.plugin_sdk",
    "toolkit.providers",
    "toolkit.providers.anthropic",
    "toolkit.providers.google",
    "toolkit.providers.local",
    "toolkit.providers.openai",
    "toolkit.run_log",
    "toolkit.schema",
    "toolkit.serving.mcp",
    "toolkit.sources.mcp",
    "toolkit.sources.openapi",
    "toolkit.sources.plugin",
    "toolkit.testing",
    "toolkit.testing.conformance",
    "toolkit.testing.loopback",
    "toolkit.tool_config",
    "toolkit.tracing",
    "toolkit.ui",
)


def write_reference_pages(folder: Path) -> None:
    """Write a page for each public module, and the index of them."""
    folder.mkdir()
    for module in PUBLIC_MODULES:
        (folder / name_page(module)).write_text(f"# {module}\n\n::: {module}\n", encoding="utf-8")
    (folder / "index.md").write_text(_write_index(), encoding="utf-8")


def name_page(module: str) -> str:
    """Return the file name of the page of a module, as ``providers_openai.md``."""
    return (module.removeprefix("toolkit.") or module).replace(".", "_") + ".md"


def _write_index() -> str:
    lines = ["# Reference", "", "Every public name, by the module that it is imported from.", ""]
    lines += ["| module | holds |", "| --- | --- |"]
    for module in PUBLIC_MODULES:
        first_line = (importlib.import_module(module).__doc__ or "").split("\n")[0].replace("``", "`")
        lines.append(f"| [`{module}`]({name_page(module)}) | {first_line} |")
    return "\n".join(lines) + "\n"
