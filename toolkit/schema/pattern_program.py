"""Regular expressions read into steps: the syntax that JavaScript and Python share, and named groups of both."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Literal, TypeAlias

from pydantic_core import SchemaError as PydanticSchemaError, SchemaValidator, core_schema

from toolkit.dataclass import dataclass

__all__ = [
    "BackStep", "COUNTED_REPEAT", "CharStep", "EdgeStep", "LookStep", "MAX_PROGRAM", "PatternError", "PatternProgram",
    "PatternStep", "SaveStep", "SplitStep", "compile_program",
]  # fmt: skip

COUNTED_REPEAT = re.compile(r"\{(\d+)(,?)(\d*)\}")
MAX_PROGRAM = 12_000
_MAX_GROUPS = 100


class PatternError(ValueError):
    """A pattern that can't be read, or is too large."""


@dataclass(slots=True)
class CharStep:
    """One character."""

    fits: Callable[[str], bool]


@dataclass(slots=True)
class SplitStep:
    """Two ways on, the first to be tried first, each as a number of steps from this one."""

    first: int
    second: int


@dataclass(slots=True)
class SaveStep:
    """The begin or end of a group."""

    group: int
    is_end: bool


@dataclass(slots=True)
class LookStep:
    """Something that must, or must not, be ahead or behind."""

    program: list[PatternStep]
    is_ahead: bool
    is_wanted: bool


@dataclass(slots=True)
class BackStep:
    """The text that a group has found, once more."""

    group: int


@dataclass(slots=True)
class EdgeStep:
    """A place between characters."""

    kind: Literal["start", "end", "word", "no word"]


PatternStep: TypeAlias = CharStep | SplitStep | SaveStep | LookStep | BackStep | EdgeStep


@dataclass(slots=True)
class PatternProgram:
    """A pattern as steps, run from the first to behind the last.

    Args:
        steps: The steps; equal parts of a pattern, such as what a repeat repeats, share theirs.
        groups: How many groups have to be remembered: 0 where nothing refers back to one.
    """

    steps: list[PatternStep]
    groups: int


def compile_program(pattern: str) -> PatternProgram:
    """Return the steps of a pattern.

    Raises:
        PatternError: It is no regular expression, or too large.
    """
    parser = _PatternParser(pattern)
    try:
        steps = parser.read()
    except IndexError:
        raise PatternError("it ends too early") from None
    except RecursionError:
        raise PatternError("it is nested too deeply") from None
    return PatternProgram(steps, parser.groups if parser.refers_back else 0)


class _PatternParser:
    """Reads a pattern into steps: the syntax that JavaScript and Python share, and named groups of both."""

    def __init__(self, pattern: str) -> None:
        self.groups = 0
        self.refers_back = False
        self._names: dict[str, int] = {}
        self._at = 0
        flags = re.match(r"\(\?([ims]+)\)", pattern)
        self._flags = flags[1] if flags is not None else ""
        self._pattern = pattern[flags.end() :] if flags is not None else pattern

    def read(self) -> list[PatternStep]:
        steps = self._read_choices()
        if self._at < len(self._pattern):
            raise PatternError(f"a ')' too many at character {self._at + 1}")
        return steps

    def _take_text(self, text: str) -> bool:
        is_there = self._pattern.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _read_choices(self) -> list[PatternStep]:
        """Return the steps of ``a|bc|d``: a split before each choice but the last, a jump to the end behind it."""
        choices = [self._read_sequence()]
        size = len(choices[0])
        while self._take_text("|"):
            choices.append(self._read_sequence())
            size += len(choices[-1]) + 2
            _check_program_size(size)
        steps: list[PatternStep] = []
        for choice in choices[:-1]:
            steps += [SplitStep(1, len(choice) + 2), *choice]
            steps.append(_make_jump(size - len(steps)))
        return steps + choices[-1]

    def _read_sequence(self) -> list[PatternStep]:
        steps: list[PatternStep] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            steps += self._read_repeats(self._read_atom())
            _check_program_size(len(steps))
        return steps

    def _read_repeats(self, atom: list[PatternStep]) -> list[PatternStep]:
        counted = COUNTED_REPEAT.match(self._pattern, self._at)
        if counted is not None:
            self._at = counted.end()
            least = int(counted[1][:6])
            most = (int(counted[3][:6]) if counted[3] else None) if counted[2] else least
        elif self._take_text("*"):
            least, most = 0, None
        elif self._take_text("+"):
            least, most = 1, None
        elif self._take_text("?"):
            least, most = 0, 1
        else:
            return atom
        is_lazy = self._take_text("?")
        if self._take_text("+"):
            raise PatternError("'possessive' repeats are not supported")
        if most is not None and most < least:
            raise PatternError("a repeat counts from more to less")
        return _repeat_steps(atom, least, most, is_lazy=is_lazy)

    def _read_atom(self) -> list[PatternStep]:
        character = self._pattern[self._at]
        if character == "(":
            return self._read_group()
        if character == "[":
            return [CharStep(_compile_class(self._read_class(), self._flags))]
        if character == "\\":
            return [self._read_escape()]
        if character in "*+?":
            raise PatternError(f"nothing to repeat at character {self._at + 1}")
        self._at += 1
        match character:
            case "^" | "$" if "m" in self._flags:
                raise PatternError("the flag 'm' is not supported")
            case "^":
                return [EdgeStep("start")]
            case "$":
                return [EdgeStep("end")]
            case ".":
                return [CharStep((lambda _: True) if "s" in self._flags else (lambda one: one != "\n"))]
            case _ if "i" in self._flags:
                return [CharStep(lambda one: one.casefold() == character.casefold())]
            case _:
                return [CharStep(lambda one: one == character)]

    def _read_group(self) -> list[PatternStep]:
        self._at += 1
        for mark, is_ahead, is_wanted in (
            ("?=", True, True), ("?!", True, False), ("?<=", False, True), ("?<!", False, False),
        ):  # fmt: skip
            if self._take_text(mark):
                return [LookStep(self._read_inside(), is_ahead, is_wanted)]
        if self._take_text("?:"):
            return self._read_inside()
        name = re.compile(r"\?P?<(\w+)>").match(self._pattern, self._at)
        if name is not None:
            self._at = name.end()
        elif (known := re.compile(r"\?P=(\w+)\)").match(self._pattern, self._at)) is not None:
            self._at = known.end()
            return [self._make_back_step(known[1])]
        elif self._pattern.startswith("?", self._at):
            raise PatternError(f"a group that is not supported at character {self._at}")
        self.groups += 1
        group = self.groups
        if group > _MAX_GROUPS:
            raise PatternError(f"it has more than {_MAX_GROUPS} groups")
        if name is not None:
            self._names[name[1]] = group
        return [SaveStep(group, is_end=False), *self._read_inside(), SaveStep(group, is_end=True)]

    def _read_inside(self) -> list[PatternStep]:
        steps = self._read_choices()
        if not self._take_text(")"):
            raise PatternError("a ')' is missing")
        return steps

    def _read_class(self) -> str:
        end = self._at + 1
        end += self._pattern[end] == "^"
        end += self._pattern[end] == "]"
        while self._pattern[end] != "]":
            end += 2 if self._pattern[end] == "\\" else 1
        found, self._at = self._pattern[self._at : end + 1], end + 1
        return found

    def _read_escape(self) -> PatternStep:
        letter = self._pattern[self._at + 1]
        if letter in "bBAZz":
            self._at += 2
            kinds: dict[str, EdgeStep] = {"b": EdgeStep("word"), "B": EdgeStep("no word"), "A": EdgeStep("start")}
            return kinds.get(letter, EdgeStep("end"))
        back = re.compile(r"\\(?:([1-9]\d?)|k<(\w+)>)").match(self._pattern, self._at)
        if back is not None:
            self._at = back.end()
            return self._make_back_step(back[1] or back[2])
        escape = re.compile(
            r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|c[A-Za-z]|[pP](?:\{[^}]*\}|\w)|.)", re.DOTALL
        ).match(self._pattern, self._at)
        if escape is None:
            raise PatternError(f"an escape that can't be read at character {self._at + 1}")
        self._at = escape.end()
        if letter == "c":
            control = chr(ord(escape[0][2]) % 32)
            return CharStep(lambda one: one == control)
        written = escape[0].replace("{", "").replace("}", "") if escape[0].startswith("\\u{") else escape[0]
        if written.startswith("\\u"):
            code = chr(int(written.removeprefix("\\u"), 16))
            return CharStep(lambda one: one == code)
        return CharStep(_compile_class(f"[{written}]", self._flags))

    def _make_back_step(self, name: str) -> PatternStep:
        group = int(name) if name.isdecimal() else self._names.get(name, 0)
        if not 1 <= group <= self.groups:
            raise PatternError(f"a reference to a group that is not before it: {name}")
        self.refers_back = True
        return BackStep(group)


def _compile_class(characters: str, flags: str) -> Callable[[str], bool]:
    """Return whether one character is in a class such as ``[a-z]``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(characters, re.IGNORECASE if "i" in flags else 0)
    except re.error:
        prefix = "(?i)" if "i" in flags else ""
        try:
            return SchemaValidator(core_schema.str_schema(pattern=f"{prefix}^{characters}$")).isinstance_python
        except PydanticSchemaError:
            raise PatternError(f"{characters} can't be read") from None
    return lambda one: compiled.match(one) is not None


def _check_program_size(size: int) -> None:
    if size > MAX_PROGRAM:
        raise PatternError(f"it takes more than {MAX_PROGRAM:,} steps, with its repeats written out")


def _make_jump(by: int) -> PatternStep:
    return SplitStep(by, by)


def _repeat_steps(atom: list[PatternStep], least: int, most: int | None, *, is_lazy: bool) -> list[PatternStep]:
    """Return the steps of ``a{2,}`` or ``a{2,5}``: the atom twice, then a loop of it, or three times as a choice."""
    copies = least if most is None else most
    _check_program_size((copies + 1) * (len(atom) + 1))
    steps = atom * least
    if most is None:
        return [*steps, _make_split(len(atom) + 2, is_lazy), *atom, _make_jump(-len(atom) - 1)]
    size = len(atom) + 1
    for left in range(most - least, 0, -1):
        steps += [_make_split(left * size, is_lazy), *atom]
    return steps


def _make_split(behind: int, is_lazy: bool) -> PatternStep:
    return SplitStep(behind, 1) if is_lazy else SplitStep(1, behind)
