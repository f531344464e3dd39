"""The rules on commands: what is allowed must be proved plain, what is denied is looked for as far as can be seen.

Denying keeps a model from mistakes and is no guard against intent: a program can do anything that a denied command
does, and a shell has more ways to write a command than any list knows. Allowing holds as far as the allowed programs
do.
`toolkit.builtin.Bubblewrap` holds whatever runs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase, translate
from pathlib import PurePosixPath
from typing import TypeAlias

from toolkit.builtin.plain_commands import PlainCommandPattern, compile_patterns, read_plain_commands
from toolkit.builtin.shell_commands import ShellScript, Words
from toolkit.errors import ConfigurationError, ToolDeniedError

__all__ = ["DEFAULT_DENY", "CommandPattern", "CommandRules", "removes_everything"]

CommandPattern: TypeAlias = str | Callable[[Words], bool]
"""Words such as ``git push``, each an `fnmatch` pattern; or a function that is asked about the words of a command."""

_OPERATORS = re.compile(r"[;|&(){}<>]")
_EVERYTHING = re.compile(r"//?|~\w*")


def removes_everything(words: Words) -> bool:
    """Return whether a command is ``rm``, recursive, on the root of the file system or on the home folder."""
    if not words or words[0] is None or not _is_program(words[0], "rm"):
        return False
    options = [word for word in words[1:] if word is not None and word.startswith("-")]
    is_recursive = any(
        re.search("[rR]", word) if not word.startswith("--") else "--recursive".startswith(word) and word != "--"
        for word in options
    )
    return is_recursive and any(word is not None and _is_everything(word) for word in words[1:])


def _is_everything(word: str) -> bool:
    """Return whether a path, whose globs stand for any name, is the root, a home folder, or all that is in one."""
    return _EVERYTHING.fullmatch(posixpath.normpath(re.sub(r"[*?]+", ".", word))) is not None


DEFAULT_DENY: tuple[CommandPattern, ...] = (
    removes_everything,
    "rm -[rRf]* /",
    "rm -[rRf]* /[*]",
    "rm -[rRf]* ~",
    "rm --no-preserve-root",
    "mkfs*",
    "dd if=*",
    "dd of=/dev/*",
    "shred /dev/*",
    "find / -delete",
    "find / -exec* rm",
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    ":(){ :|:& };:",
)
"""Commands that no coding task needs: they destroy a machine or stop it."""


class CommandRules:
    """The rules of `BashOptions.deny` and `BashOptions.allow`, ready to be applied.

    Args:
        deny: A guard against mistakes, not against intent: of the ways to disguise a command this sees some and no list
            sees all. A command is refused that matches one, as far as its quotes and wrappers can be read. The
            first word is the program, with any path; the others must be among its arguments in this order, whatever
            stands between. The words one after the other anywhere in the text are refused, too: inside a
            string for Python, say. A pattern with an operator of the shell is looked for in the text, without blanks.
        allow: Where it is not None, what runs without a question: text that is proved plain, each command of which
            begins with the words of a pattern (see `toolkit.builtin.runs_only`).

    Raises:
        ConfigurationError: A pattern is empty.
    """

    def __init__(self, deny: Collection[CommandPattern], allow: Collection[PlainCommandPattern] | None) -> None:
        for pattern in deny:
            if isinstance(pattern, str) and not pattern.split():
                raise ConfigurationError("a pattern in deny is empty: write one like 'git push'")
        self._denied = [(_name_pattern(pattern), _compile_denial(pattern)) for pattern in deny]
        self._texts = [(pattern, _compile_text_search(pattern)) for pattern in deny if isinstance(pattern, str)]
        self._allowed = None if allow is None else compile_patterns(allow, "a pattern in allow")
        self._offer = ", ".join(_name_pattern(pattern) for pattern in allow or ()) or "nothing"

    def check_denied(self, text: str, script: ShellScript) -> None:
        """Refuse a script in which a denied command can be seen.

        Args:
            text: The script.
            script: The same, as it was read.

        Raises:
            ToolDeniedError: Names the pattern.
        """
        for words in (*script.commands, *script.hidden):
            for shown, is_denied in self._denied:
                if is_denied(words):
                    raise _deny_pattern(shown)
        for shown, is_in in self._texts:
            if is_in(text):
                raise _deny_pattern(shown)

    def find_objection(self, text: str) -> str:
        """Return why a script may not run without a question; nothing where it may."""
        if self._allowed is None:
            return ""
        commands = read_plain_commands(text)
        if commands is not None and self._allowed(commands):
            return ""
        why = "it is not one that may run here" if commands else "it is not made of plain words alone"
        return (
            f"Command blocked by safety policy: {why}. These commands may run, written with no variable, glob, "
            f"redirection, substitution or other syntax of the shell than quotes, ;, &&, || and |: {self._offer}."
        )


def _deny_pattern(shown: str) -> ToolDeniedError:
    return ToolDeniedError(
        f"Command blocked by safety policy: contains '{shown}'. This pattern is denied for safety. "
        "Do it in another way, or ask the user."
    )


def _name_pattern(pattern: CommandPattern | PlainCommandPattern) -> str:
    return pattern if isinstance(pattern, str) else getattr(pattern, "__name__", "a rule").replace("_", " ")


def _is_program(word: str, pattern: str) -> bool:
    """Return whether a word names a program, by any path, or is a glob that the shell may fill in with its name."""
    name = PurePosixPath(word).name.casefold()
    is_glob = re.search(r"[*?\[]", name) is not None
    return fnmatchcase(name, pattern.casefold()) or (is_glob and fnmatchcase(pattern, name))


def _compile_denial(pattern: CommandPattern) -> Callable[[Words], bool]:
    if not isinstance(pattern, str):
        return pattern
    if _OPERATORS.search(pattern):
        return lambda _: False
    first, *others = pattern.split()

    def is_denied(words: Words) -> bool:
        if not words or words[0] is None or not _is_program(words[0], first):
            return False
        arguments = iter(words[1:])
        return all(any(word is not None and fnmatchcase(word, other) for word in arguments) for other in others)

    return is_denied


def _compile_text_search(pattern: str) -> Callable[[str], bool]:
    if _OPERATORS.search(pattern):
        bare = "".join(pattern.split())
        return lambda text: bare in "".join(text.split())
    bodies = [translate(word).removeprefix("(?s:").rpartition(")")[0] for word in pattern.split()]
    words = [body.replace(".*", r"[^\s;|&'\"]*") for body in bodies]
    if len(words) == 1:
        return lambda _: False  # one word is too little to tell a command from a mention
    found = re.compile(r"(?<![\w.-])" + r"\s+".join(words) + r"(?![^\s;|&)'\"`])", re.IGNORECASE)
    return lambda text: found.search(text) is not None
