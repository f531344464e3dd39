"""Commands that are proved plain: what the shell runs is what stands there, word for word.

The grammar is a short list of what is known to be harmless, and everything else is not plain: simple words, quotes
without expansions in them, and the separators ``;``, ``&&``, ``||``, ``|`` and a line break. No variable, no glob, no
brace, no tilde, no backslash, no assignment, no redirection, no function, no substitution, no arithmetic, no comment,
nothing in the background; and no command that takes its words for code or for a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from toolkit.errors import ConfigurationError
from toolkit.settings import FUNCTION, check_setting

__all__ = ["PlainCommandPattern", "PlainWords", "compile_patterns", "read_plain_commands", "runs_only"]

PlainWords: TypeAlias = tuple[str, ...]
"""The words of one command, the program first, their quotes gone."""

PlainCommandPattern: TypeAlias = str | Callable[[PlainWords], bool]
"""Words such as ``git status``, each an `fnmatch` pattern; or a function that is asked about the words of a command."""

_PLAIN_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t]+)
    | (?P<end>;(?!;)|&&|\|\||\|(?!&)|\n)
    | (?P<word>(?:[A-Za-z0-9_./:@%+,=-]|'[^'\x00]*'|"[^"$`\\\x00]*")+)
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_SHELL_WORDS = frozenset({
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "time", "until", "while",
})  # fmt: skip
# They run words or the input as code or as a command, evaluate words as arithmetic, or change what later words mean.
_NEVER_PLAIN = frozenset({
    ".", "[", "[[", "alias", "bind", "builtin", "caller", "command", "compgen", "complete", "compopt", "declare",
    "enable", "eval",
    "exec", "export", "fc", "getopts", "hash", "history", "jobs", "let", "local", "mapfile", "printf", "read",
    "readarray",
    "readonly", "set", "shift", "shopt", "source", "test", "trap", "typeset", "ulimit", "umask", "unalias", "unset",
    "wait", "at", "batch", "busybox", "busybox.static", "chroot", "chrt", "doas", "entr", "env", "find", "flock",
    "gdb", "ionice",
    "nice", "nohup", "nsenter", "parallel", "perf", "pkexec", "runuser", "script", "setarch", "setpriv", "setsid",
    "ssh", "start-stop-daemon", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout", "toybox",
    "unshare", "valgrind", "watch", "xargs", "bwrap", "capsh", "catchsegv", "chpst", "chronic", "cpulimit",
    "dbus-launch", "dbus-run-session", "eatmydata", "faketime", "fakeroot", "firejail", "ifne", "logsave", "ltrace",
    "newgrp", "numactl", "pee", "prlimit", "proot", "rlwrap", "run-parts", "runcon", "screen", "sem", "setuidgid", "sg",
    "socat", "softlimit", "tmux", "torsocks", "unbuffer", "xvfb-run",
})  # fmt: skip
_INTERPRETERS = re.compile(
    r"(?:(?:ba|da|z|k|mk|lk|a|rba|fi|c|tc|xon|el|nu|po|ya|o|j|go|q|b)?sh|nu|elvish|pwsh|powershell|cmd|[gmn]?awk|"
    r"original-awk|g?sed|r?ed|ex|g?vim?|r?view|nvim|emacs|python|[bp]y(?:py|thon)|jython|micropython|ptpython|ipython|hy|perl|ruby|"
    r"[ij]rb|erb|pry|node|nodejs|ts-node|tsx|deno|bun|qjs|gjs|php|php-cgi|phpdbg|lua|luajit|texlua|tclsh|wish|expect|osascript|"
    r"cscript|wscript|r|rscript|julia|octave|gnuplot|guile|racket|sbcl|clisp|gsi|ocaml|erl|elixir|iex|ghc|ghci|runghc|"
    r"sqlite|psql|mysql|make|gmake|ninja|rake|just|bc|dc|m4|jshell|jrunscript|groovy|scala|kotlin|swift|gdb|lldb|"
    r"execlineb|ld-linux\S*|npx|bunx|uvx)(?:[-_.]?\d[\w.-]*|\.exe|\.static)?"
)


def read_plain_commands(text: str) -> list[PlainWords] | None:
    """Return the commands of a text that is plain, in order; None for every other text.

    The time is in proportion to the text.
    """
    commands: list[PlainWords] = []
    words: list[str] = []
    position, is_open = 0, False  # whether a separator wants a command behind it
    while position < len(text):
        token = _PLAIN_TOKEN.match(text, position)
        if token is None:
            return None
        position = token.end()
        if token.lastgroup == "word":
            if not words and not _is_plain_program(token[0]):
                return None
            words.append(_QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or "", token[0]))
        elif token.lastgroup == "end":
            if words:
                commands.append(tuple(words))
                words, is_open = [], token[0] not in (";", "\n")
            elif is_open or token[0] != "\n":
                return None
    if words:
        commands.append(tuple(words))
        is_open = False
    return None if is_open or not commands else commands


def _is_plain_program(written: str) -> bool:
    name = _QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or "", written)
    return (
        name != "" and "=" not in name and name not in _SHELL_WORDS and not _NEVER_PLAIN & {name, _strip_folder(name)}
    )


def _strip_folder(program: str) -> str:
    return program.rpartition("/")[2]


def runs_only(*patterns: PlainCommandPattern) -> Callable[[object], bool]:
    """Return what says whether a command line runs nothing but what these patterns name.

    ::

        rules = [allow("bash", args={"command": runs_only("git status", "git diff")}), ask("bash")]

    It is True only for text that is proved plain, each command of which begins with the words of a pattern; further
    words are let pass. Text with a variable, a glob, a substitution, a redirection, an assignment and the like never
    is, nor a command that runs others (``env``, ``find``, ``xargs``, ``sudo``); an interpreter (``python``, ``sh``,
    ``make``) only by a pattern that names what it runs, such as ``python -m pytest``. What a program does with its own
    options is its own affair: ``git diff`` writes files with ``--output``.

    Args:
        patterns: Each is the first words of a command, as `fnmatch` patterns; or a function that is given all words.

    Raises:
        ConfigurationError: There is no pattern; or one is empty, names an interpreter alone, or its program by a glob.
    """
    are_allowed = compile_patterns(patterns, "a pattern of runs_only")
    if not patterns:
        raise ConfigurationError("runs_only needs a pattern such as 'git status'")

    def runs_only_these(command: object) -> bool:
        commands = read_plain_commands(command) if isinstance(command, str) else None
        return commands is not None and are_allowed(commands)

    return runs_only_these


def compile_patterns(patterns: Iterable[PlainCommandPattern], what: str) -> Callable[[Sequence[PlainWords]], bool]:
    """Return what says whether each command is named by a pattern.

    Raises:
        ConfigurationError: A pattern is empty, or names an interpreter alone; `what` says which patterns these are.
    """
    compiled = [_compile_plain_pattern(pattern, what) for pattern in patterns]
    return lambda commands: all(any(names(words) for names in compiled) for words in commands)


def _compile_plain_pattern(pattern: PlainCommandPattern, what: str) -> Callable[[PlainWords], bool]:
    check_setting(what, pattern, str, FUNCTION)
    if not isinstance(pattern, str):
        return pattern
    wanted = pattern.split()
    if not wanted:
        raise ConfigurationError(f"{what} is empty: write one like 'git push'")
    if any(character in "*?[" for character in wanted[0]):
        raise ConfigurationError(
            f"{what}, '{pattern}', names no program: '{wanted[0]}' stands for programs that run others, too. "
            "Write one pattern for each program"
        )
    if _is_interpreter(wanted[0]) and not _names_code(wanted[1:]):
        raise ConfigurationError(
            f"{what}, '{pattern}', allows any code: '{wanted[0]}' runs what its words say. Name what it may run, such "
            "as 'python -m pytest', or give a function that reads all words"
        )

    def names(words: PlainWords) -> bool:
        if len(words) < len(wanted) or not all(map(fnmatchcase, words, wanted)):
            return False
        # "git *" means "git status" and not "git -c alias.x=!code x".
        pairs = zip(words[1:2], wanted[1:2], strict=False)
        return not any(word.startswith("-") and not meant.startswith("-") for word, meant in pairs)

    return names


def _is_interpreter(program: str) -> bool:
    name = _strip_folder(program).casefold()
    return _INTERPRETERS.fullmatch(name) is not None


def _names_code(words: Sequence[str]) -> bool:
    """Return whether the words after an interpreter name a file, a module or a target, and no code."""
    if not words:
        return False
    first = words[1:2] if words[0] == "-m" else words[:1]
    return bool(first) and not first[0].startswith("-") and not any(character in "*?[" for character in first[0])
