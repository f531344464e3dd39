"""Two things of toolkit's sources that the reader of docstrings has to be told: its dataclasses, and its examples."""

import re
import textwrap
from typing import Any

from griffe import Alias, Extension, Object

_EXAMPLE = re.compile(r"^::\n\n(?P<code>(?: {4}.*\n?|\n)+)", re.MULTILINE)


class ToolkitDocstrings(Extension):
    """Reads the classes of `toolkit.dataclass` as dataclasses, and examples after ``::`` as blocks of Python."""

    def on_alias_instance(self, *, alias: Alias, **_: Any) -> None:
        """Take toolkit's decorator for the one of the standard library."""
        if alias.target_path == "toolkit.dataclass.dataclass":
            alias.target_path = "dataclasses.dataclass"

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Write the examples as Markdown does."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_write_block, obj.docstring.value + "\n").rstrip()


def _write_block(found: re.Match[str]) -> str:
    return f"```python\n{textwrap.dedent(found['code']).strip()}\n```\n\n"
