"""The commands that a shell script would run, as far as it can be read without running it, their words as values.

Quotes, escapes, braces, constants in variables, substitutions, functions, wrappers such as ``sudo`` and ``xargs``,
scripts inside ``sh -c``, ``eval`` and here-documents are seen through. What a program makes at run time is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from toolkit.builtin.file_tree import expanded_braces
from toolkit.errors import ToolFailedError
from toolkit.runtime.isolation import run_isolated

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["ShellScript", "Words", "dump_script", "read_script", "read_script_apart"]

Words = tuple[str | None, ...]
"""The words of a simple command; None stands for what is only known when it runs."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "fish"})
_WRAPPERS = frozenset({
    "sudo", "doas", "env", "nohup", "nice", "ionice", "time", "timeout", "command", "exec", "builtin", "xargs",
    "setsid", "stdbuf", "busybox", "toybox", "chroot", "unshare", "watch", "parallel", "find", "strace", "script",
    "su", "runuser", "eval", "trap", "flock", "chrt", "taskset", "coproc",
})  # fmt: skip
_PRINTERS = frozenset({"echo", "printf"})
_DEEPEST_SCRIPT = 5
_MOST_WORDS = 500_000
_BRACED = re.compile(r"(?<![^\s;|&()<>{}])[^\s;|&()<>{}]*+(?<!\$)\{[^{}\s]*,[^{}\s]*\}[^\s;|&()<>]*")
_BARE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*])")
_SPLIT = "\0"
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}$`]*)\}", re.DOTALL)
_LONGEST_HERE = 4_000  # for which the parser takes a fraction of a second and of the stack, whatever it reads
_READING_SECONDS = 3.0
_STARTING_SECONDS = 60  # of the process that reads, on a busy machine
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\033", "E": "\033", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """A script that was read.

    Args:
        commands: Its commands as they are written, in order.
        hidden: The commands that those would start: inside of wrappers, shells and what is handed to them.
    """

    commands: tuple[Words, ...]
    hidden: tuple[Words, ...]


def read_script(text: str) -> ShellScript:
    """Read a script of bash, whatever it is.

    Raises:
        ToolFailedError: It would take too long.
    """
    reading = _Reading(text)
    effort = _Effort()
    hidden = list(_find_hidden(reading, effort, 0))
    # The parser misreads words over two lines, alternatives in braces, and a name that is followed by other letters.
    joined = text.replace("\\\n", "")
    spread = _BARE.sub(r"${\1}", _BRACED.sub(lambda match: " ".join(expanded_braces(match[0])), joined))
    for other, is_unset in ((spread, False), (spread, True)):
        if is_unset or other != text:
            again = _Reading(other, is_unset=is_unset)
            hidden += [*again.commands, *_find_hidden(again, effort, 0)]
    return ShellScript(commands=tuple(reading.commands), hidden=tuple(hidden))


def dump_script(text: str) -> str:
    """Return what `read_script` reads as JSON, for a process that may end in the middle."""
    script = read_script(text)
    return json.dumps([script.commands, script.hidden])


async def read_script_apart(text: str) -> ShellScript:
    """Do what `read_script` does, off the event loop; a long text in another process, as it may take the parser there.

    Raises:
        ToolFailedError: It can't be read, or takes more than 3 seconds.
    """
    if len(text) <= _LONGEST_HERE:
        return await to_thread.run_sync(read_script, text, abandon_on_cancel=True)
    try:
        with anyio.fail_after(_STARTING_SECONDS) as scope:

            @contextmanager
            def wait_for_start() -> Generator[None]:
                yield
                scope.deadline = anyio.current_time() + _READING_SECONDS

            read = (await run_isolated(dump_script, json.dumps({"text": text}), waiting=wait_for_start)).text
    except (TimeoutError, ToolFailedError) as error:
        raise _refuse_length() from error
    commands, hidden = [tuple(tuple(words) for words in part) for part in json.loads(read)]
    return ShellScript(commands=commands, hidden=hidden)


class _Effort:
    """How much more may be read of what is inside of commands: it can be many times what is written."""

    def __init__(self) -> None:
        self._left = _MOST_WORDS

    def spend(self, words: int) -> None:
        self._left -= words
        if self._left < 0:
            raise _refuse_length()


def _refuse_length() -> ToolFailedError:
    return ToolFailedError(
        "The command is too long to be checked. Write it to a file and run that, or run it in parts."
    )


def _find_hidden(reading: _Reading, effort: _Effort, depth: int) -> Iterator[Words]:
    """Yield the commands inside of others: behind a wrapper, in a script that is a word, in what a shell is fed."""
    scripts: list[str] = []
    for words in reading.commands:
        name = _get_program_name(words)
        if name in _WRAPPERS or name in _SHELLS:
            effort.spend(len(words) ** 2 // 2)
            inner = [words[index:] for index in range(1, len(words))]
            yield from inner
            scripts += _list_inner_scripts(inner)
            if name == "eval":
                scripts.append(_join_words(words))
    if {_get_program_name(words) for words in reading.commands} & (_SHELLS | _WRAPPERS | {"source", "."}):
        scripts += reading.documents
        scripts += [_join_words(words) for words in reading.commands if _get_program_name(words) in _PRINTERS]
    if depth < _DEEPEST_SCRIPT:
        for script in dict.fromkeys(scripts):
            effort.spend(len(script))
            inner_reading = _Reading(script)
            yield from inner_reading.commands
            yield from _find_hidden(inner_reading, effort, depth + 1)


def _list_inner_scripts(commands: Sequence[Words]) -> list[str]:
    """Return the scripts among the words of commands that are one, or that a shell is given."""
    return [
        word
        for words in commands
        if words and words[0] is not None and (_get_program_name(words) in _SHELLS or _is_script(words[0]))
        for word in words
        if word is not None and _is_script(word)
    ]


def _join_words(words: Words) -> str:
    return " ".join([word for word in words[1:] if word is not None])


def _is_script(word: str) -> bool:
    return any(character in word for character in " \t\n;|&$`(<>")


def _get_program_name(words: Words) -> str:
    return PurePosixPath(words[0] or "").name.casefold() if words else ""


class _Reading:
    """One script: its commands and its here-documents.

    Args:
        text: The script.
        is_unset: True where variables that it does not set are taken to be empty; else they are unknown.
    """

    def __init__(self, text: str, *, is_unset: bool = False) -> None:
        root = _load_parser().parse(text.encode("utf-8", "replace")).root_node
        self.commands: list[Words] = []
        self.documents: list[str] = []
        self._is_unset = is_unset
        self._constants = _find_constants(root)
        self._visit_node(root)

    def _visit_node(self, node: Node) -> None:
        waiting = [node]
        while waiting:
            current = waiting.pop()
            match current.type:
                case "command":
                    self.commands.append(self._read_words(current))
                case "declaration_command" | "unset_command":
                    first = current.children[0]
                    self.commands.append((_get_node_text(first),))
                case "heredoc_body":
                    self.documents.append(_get_node_text(current))
                case "herestring_redirect":
                    self.documents += [value for child in current.named_children if (value := self._read_value(child))]
                case _:
                    pass
            waiting += reversed(current.children)

    def _read_words(self, node: Node) -> Words:
        words: list[str | None] = []
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment" or kind.endswith("_redirect"):
                continue
            value = self._read_value(
                child.named_children[0] if kind == "command_name" and child.named_children else child
            )
            if value is None:
                words.append(None)
            else:
                # What is empty after its variables are filled in is no word, unless it was quoted.
                parts = [part for part in value.split(_SPLIT) if part] if _SPLIT in value else [value]
                words += parts
        while words and words[0] == "":
            words.pop(0)
        return tuple(words)

    def _read_value(self, node: Node) -> str | None:
        """Return what a word is when its quotes are gone, with NUL where it falls into several; None if unknown."""
        text = _get_node_text(node)
        match node.type:
            case "raw_string":
                return text[1:-1]
            case "ansi_c_string":
                return _ANSI_ESCAPE.sub(_decode_escape, text[2:-1])
            case "string" | "translated_string" | "concatenation":
                return self._join_parts(node)
            case "string_content":
                return re.sub(r"\\([\"\\$`])", r"\1", text.replace("\\\n", ""))
            case "simple_expansion" | "expansion":
                return self._expand_braces(text)
            case "command_substitution" | "process_substitution" | "arithmetic_expansion":
                return None
            case _:
                return re.sub(r"\\(.)", r"\1", text.replace("\\\n", ""), flags=re.DOTALL)

    def _join_parts(self, node: Node) -> str | None:
        is_quoted = node.type != "concatenation"
        parts: list[str] = []
        for child in node.children:
            if child.type in ('"', "$", '$"'):
                continue
            value = self._read_value(child)
            if value is None:
                return None
            parts.append(value.replace(_SPLIT, " ") if is_quoted else value)
        return "".join(parts)

    def _expand_braces(self, text: str) -> str | None:
        name = text.strip("${}")
        if name == "HOME":
            return "~"
        if name == "IFS":
            return _SPLIT
        if re.fullmatch(r"[@*]|\d", name):
            return ""  # a script has no parameters here
        if self._is_unset and name not in self._constants:
            default = _DEFAULT.fullmatch(text)
            return default[1].strip("\"'") if default else ""
        value = self._constants.get(name)
        return None if value is None else re.sub(r"\s+", _SPLIT, value)


def _find_constants(root: Node) -> Mapping[str, str | None]:
    """Return the variables that are set once, to what is known."""
    found: dict[str, str | None] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "variable_assignment":
            name, _, value = _get_node_text(node).partition("=")
            is_plain = re.fullmatch(r"'[^']*'|\"[^\"$`\\]*\"|[^\s'\"$`\\]*", value) is not None
            found[name] = value.strip("'\"") if is_plain and name not in found else None
        waiting += node.children
    return found


def _decode_escape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
    elif code[0] in "01234567":
        number = int(code, 8) & 0xFF
    elif code[0] == "c" and len(code) > 1:
        number = ord(code[1]) & 0x1F
    else:
        return _ANSI_LETTERS.get(code, code)
    return chr(number) if number < 0x110000 else ""


def _get_node_text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


@cache
def _load_parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - an extra
    from tree_sitter import Language, Parser  # noqa: PLC0415 - an extra

    return Parser(Language(tree_sitter_bash.language()))
