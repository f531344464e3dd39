"""The docstring styles that people write, and what parsers of them get wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.counted_work import grows_with_its_input
from toolkit import tool
from toolkit.schema.docstring import read_docstring


@dataclass(kw_only=True)
class Case:
    name: str
    text: str
    description: str
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    types: dict[str, Any] = field(default_factory=dict[str, Any])
    names: tuple[str, ...] = ()


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
    Case(
        name="dashes and stars inside a text are no bullets",
        text="Do.\n\nArgs:\n    n: A number from 1 - 10.\n    m (int): Either * or + or - of it.\n    - k: no.",
        description="Do.",
        parameters={"n": "A number from 1 - 10.", "m": "Either * or + or - of it.\n- k: no."},
        types={"m": int},
    ),
    Case(
        name="dashes inside the text of a bullet",
        text="Do.\n\nArgs:\n    - n: A number from 1 - 10.\n    * m - One - two.",
        description="Do.",
        parameters={"n": "A number from 1 - 10.", "m": "One - two."},
    ),
    Case(
        name="dashes in NumPy's, reST's and Epydoc's text",
        text="Do.\n\n:param n: From 1 - 10.\n@param m: From 1 * 10.\n\n"
        "Other Parameters\n----------------\nk : int\n    1 + 2.",
        description="Do.",
        parameters={"n": "From 1 - 10.", "m": "From 1 * 10.", "k": "1 + 2."},
        types={"k": int},
    ),
    Case(
        name="PEP 257, plain",
        text="Do.\n\nKeyword arguments:\nreal -- the real part (default 0.0)\nimag -- the other part\n\nBye.",
        description="Do.\n\nBye.",
        parameters={"real": "the real part (default 0.0)", "imag": "the other part"},
    ),
    Case(
        name="PEP 257, indented",
        text="Do.\n\nArguments:\n    real -- the real part\n        on two lines\n    imag -- the other -- part",
        description="Do.",
        parameters={"real": "the real part\non two lines", "imag": "the other -- part"},
    ),
    Case(
        name="PEP 257 without a header",
        text="Do.\n\nreal -- the real part\nimag -- the other\n    part\n\nBye -- bye.",
        description="Do.\n\nBye -- bye.",
        parameters={"real": "the real part", "imag": "the other\npart"},
        names=("real", "imag"),
    ),
    Case(
        name="Epydoc's list of parameters",
        text="Do.\n\n:Parameters:\n  - `a`: The a - b\n  - `b` (int): The b\n    on two lines\n\n:Returns: It.",
        description="Do.",
        parameters={"a": "The a - b", "b": "The b\non two lines"},
        types={"b": int},
    ),
    Case(
        name="reST's list of parameters",
        text="Do.\n\n:Parameters:\n    a : int\n        The a.\n    b\n        The b.",
        description="Do.",
        parameters={"a": "The a.", "b": "The b."},
        types={"a": int},
        names=("a", "b"),
    ),
    Case(
        name="JSDoc",
        text="Do.\n\n@param {string} name - The name: all of it.\n@param {number[]} [counts=1] How\n    many.\n"
        "@returns {string} It.",
        description="Do.",
        parameters={"name": "The name: all of it.", "counts": "How\nmany."},
        types={"name": str, "counts": list[float]},
    ),
    Case(
        name="Javadoc",
        text="Do.\n\n@param name the thing: yes\n@param other the other\n@return it",
        description="Do.",
        parameters={"name": "the thing: yes", "other": "the other"},
        names=("name", "other"),
    ),
    Case(
        name="a line at the margin before the sections",
        text="Do.\n\nat the margin\n\n    Args:\n        n: The n.\n\n    Returns:\n        It.\n    ",
        description="Do.\n\nat the margin",
        parameters={"n": "The n."},
    ),
    Case(
        name="a line at the margin between fields",
        text="Do.\n\n    :param n: The n.\nat the margin\n    :param m: The m.\n    ",
        description="Do.",
        parameters={"n": "The n.\nat the margin", "m": "The m."},
    ),
    Case(
        name="a line at the margin between entries",
        text="Do.\n\nArgs:\n    n: The n.\nat the margin\n    m: The m.",
        description="Do.\n\nat the margin",
        parameters={"n": "The n.", "m": "The m."},
        names=("n", "m"),
    ),
    Case(
        name="text among the entries stays",
        text="Do.\n\nArgs:\n    All are numbers.\n    n: The n.\n    Note: It is even.\n\n"
        "Parameters\n----------\nm : int\n    The m.\nEither of them.",
        description="Do.\n\n    All are numbers.\n    Note: It is even.\n\nEither of them.",
        parameters={"n": "The n.", "m": "The m."},
        types={"m": int},
        names=("n", "m"),
    ),
    Case(
        name="a section without entries stays",
        text="Do.\n\nArgs:\n    See the manual.\n\nReturns:\n    It.",
        description="Do.\n\nArgs:\n    See the manual.",
    ),
    Case(
        name="a role at the beginning of a line is no field",
        text="Do it with\n:func:`other` or not.\n\n:param n: See\n    :class:`N`.\n\n:meth:`x` is better.",
        description="Do it with\n:func:`other` or not.\n\n:meth:`x` is better.",
        parameters={"n": "See\n:class:`N`."},
    ),
    Case(
        name="two descriptions of one parameter",
        text="Do.\n\n:param n: One.\n\nArgs:\n    n (int): Two.",
        description="Do.",
        parameters={"n": "One.\nTwo."},
        types={"n": int},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_docstring_is_read(case: Case) -> None:
    documentation = read_docstring(case.text, case.names)
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


@pytest.mark.parametrize(
    "text", ["text \t" * 2_000, "[" * 2_000, "list of " * 2_000 + "int", "{" * 2_000 + "}" * 2_000]
)
def test_a_type_that_is_nested_too_deeply_for_python_is_text(text: str) -> None:
    def look(x: int) -> str:
        return str(x)

    look.__doc__ = f"Look.\n\n:param x: a number\n:type x: {text}"
    assert tool(look).definition.parameters["properties"]["x"]["type"] == "integer"


def test_a_long_docstring_is_read_in_work_that_grows_with_it() -> None:
    def read(lines: int) -> None:
        def look() -> str:
            return ""

        look.__doc__ = "* \n" * lines
        assert tool(look).definition.description

    assert grows_with_its_input(read, 2_000)
