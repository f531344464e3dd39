"""The docstring styles that people write, and what parsers of them get wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from toolkit.schema.docstring import read_docstring


@dataclass(kw_only=True)
class Case:
    name: str
    text: str
    description: str
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    types: dict[str, Any] = field(default_factory=dict[str, Any])


CASES = [
    Case(name="nothing", text="", description=""),
    Case(name="one line", text="Do it: now.", description="Do it: now."),
    Case(
        name="no sections",
        text="""Do it.

        Args are not described here.

            indented
        """,
        description="Do it.\n\nArgs are not described here.\n\n    indented",
    ),
    Case(
        name="Google",
        text="""Find it.

        More words.

        Args:
            a (int): The a
                on two lines: yes.
            b (dict[str, int], optional): The b.
            *rest: The rest.
            **more: And more.

        Keyword Args:
            k: The k.

        Returns:
            dict: What was found.

            More of it.

        Raises:
            ValueError: If not.
        """,
        description="Find it.\n\nMore words.",
        parameters={
            "a": "The a\non two lines: yes.",
            "b": "The b.",
            "rest": "The rest.",
            "more": "And more.",
            "k": "The k.",
        },
        types={"a": int, "b": dict[str, int]},
    ),
    Case(
        name="Google without a blank line",
        text="""Find it.
        Args:
            a: The a.
        Returns: something.
        """,
        description="Find it.",
        parameters={"a": "The a."},
    ),
    Case(name="Google, arguments first", text="Args:\n    a: The a.", description="", parameters={"a": "The a."}),
    Case(
        name="Google at the margin",
        text="Find it.\nArgs:\na: The a.\nb: The b.\nReturns:\nsomething",
        description="Find it.",
        parameters={"a": "The a.", "b": "The b."},
    ),
    Case(
        name="Google, several names, lists and paragraphs in the text",
        text="""Find it.

        Args:
            a, b (int): Both.
            mode (Literal['x:y', 'z']): One of:
                - x:y
                - z

                And a paragraph.
            last: Last.
        """,
        description="Find it.",
        parameters={"a": "Both.", "b": "Both.", "mode": "One of:\n- x:y\n- z\n\nAnd a paragraph.", "last": "Last."},
        types={"a": int, "b": int, "mode": Literal["x:y", "z"]},
    ),
    Case(
        name="text after the sections is description",
        text="""Find it.

        Args:
            a: The a.

        Note:
            Careful.
        """,
        description="Find it.\n\nNote:\n    Careful.",
        parameters={"a": "The a."},
    ),
    Case(
        name="code is no section",
        text="""Find it.

        ```
        Args:
            z: Not this.
        ```

        Args:
            a: The a.
        """,
        description="Find it.\n\n```\nArgs:\n    z: Not this.\n```",
        parameters={"a": "The a."},
    ),
    Case(
        name="NumPy",
        text="""Find it.

        Parameters
        ----------
        a, b : int, optional
            Both.

            A paragraph.
        c : {'x', 'y'}
            One of them.

        Returns
        -------
        int
            What was found.

        Notes
        -----
        Careful.
        """,
        description="Find it.\n\nCareful.",
        parameters={"a": "Both.\n\nA paragraph.", "b": "Both.\n\nA paragraph.", "c": "One of them."},
        types={"a": int, "b": int, "c": Literal["x", "y"]},
    ),
    Case(
        name="reST",
        text="""Find it.

        :param int a: The a
            on two lines.
        :param dict[str, int] b: The b.
        :param c: The c.
        :type c: list of int
        :returns: What was found.
        :rtype: int

        More words.
        """,
        description="Find it.\n\nMore words.",
        parameters={"a": "The a\non two lines.", "b": "The b.", "c": "The c."},
        types={"a": int, "b": dict[str, int], "c": list[int]},
    ),
    Case(
        name="Epydoc",
        text="""Find it.
        @param a: The a.
        @type a: int or None
        @param b: The b.
        @return: What was found.
        """,
        description="Find it.",
        parameters={"a": "The a.", "b": "The b."},
        types={"a": int | None},
    ),
    Case(
        name="Markdown in bold",
        text="""Find it.

        **Parameters:**

        - `a` (int): The a
          on two lines.
        - **b** - The b.

        More words.
        """,
        description="Find it.\n\nMore words.",
        parameters={"a": "The a\non two lines.", "b": "The b."},
        types={"a": int},
    ),
    Case(
        name="Markdown with headings",
        text="""Find it.

        ## Arguments
        * a -- The a.

        ## Returns
        What was found.
        """,
        description="Find it.",
        parameters={"a": "The a."},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_docstring_is_read(case: Case) -> None:
    documentation = read_docstring(case.text)
    assert documentation.description == case.description
    assert {name: found.description for name, found in documentation.parameters.items()} == case.parameters
    types = {name: found.type_in({}) for name, found in documentation.parameters.items() if found.type_text}
    assert types == case.types


def test_a_type_in_a_docstring_is_read_and_never_run() -> None:
    text = "Do it.\n\nArgs:\n    a (__import__('os').getcwd()): The a.\n    b (Unknown): The b."
    found = read_docstring(text).parameters
    assert found["a"].type_in({}) is NotImplemented
    assert found["b"].type_in({}) is NotImplemented
    assert found["b"].type_in({"Unknown": int}) is int
