"""Two things of toolkit's sources that the reader of docstrings has to be told: its dataclasses, and its examples."""

import re
import textwrap
from typing import Any

from griffe import Alias, Extension, Module, Object

_EXAMPLE = re.compile(r"^::\n\n(?P<code>(?: {4}.*\n?|\n)+)", re.MULTILINE)


class ToolkitDocstrings(Extension):
    """Reads the classes of `toolkit.dataclass` as dataclasses, and examples after ``::`` as blocks of Python."""

    def on_alias_instance(self, *, alias: Alias, **_: Any) -> None:
        """Take toolkit's decorator for the one of the standard library."""
        if alias.target_path == "toolkit.dataclass.dataclass":
            alias.target_path = "dataclasses.dataclass"

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Write the examples as Markdown does."""
        _write_examples(obj)

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Do the same for the package itself, of which `on_object` is not told."""
        _write_examples(pkg)


def _write_examples(documented: Object) -> None:
    if documented.docstring is not None:
        documented.docstring.value = _EXAMPLE.sub(_write_block, documented.docstring.value + "\n").rstrip()


def _write_block(found: re.Match[str]) -> str:
    return f"```python\n{textwrap.dedent(found['code']).strip()}\n```\n\n"
