"""The rules on shell commands: only provably plain text is allowed, and denied commands are detected where possible.

Denying prevents mistakes, but not intent: a program can do anything that a denied command does, and a shell has more
ways to write a command than any list covers. Allowing is as safe as the allowed programs are.
`toolkit.builtin.Bubblewrap` contains any program.

The two rules use different parsers and one table of programs. The proof must never be wrong: its grammar is a short
list of harmless syntax, and everything else is not plain. The search for denied commands should miss little:
tree-sitter's bash grammar handles quotes, escapes, braces, constants in variables, substitutions, functions, wrappers
such as ``sudo`` and ``xargs``, and scripts inside ``sh -c``, ``eval`` and here-documents. Where it misreads a command,
no more runs than without it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase, translate
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio import to_thread

from toolkit.builtin.file_tree import expanded_braces
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolDeniedError, ToolFailedError
from toolkit.runtime.isolation import run_isolated
from toolkit.settings import FUNCTION, check_setting

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Words: TypeAlias = tuple[str | None, ...]
"""The words of a simple command; None is a word that is known only at run time."""

PlainWords: TypeAlias = tuple[str, ...]
"""The unquoted words of one command, the program first."""

CommandPattern: TypeAlias = str | Callable[[Words], bool]
"""Words such as ``git push``, each an `fnmatch` pattern; or a predicate on the words of a command."""

PlainCommandPattern: TypeAlias = str | Callable[[PlainWords], bool]
"""A `CommandPattern` for plain commands, whose words are all known."""

_OPERATORS = re.compile(r"[;|&(){}<>]")
_EVERYTHING = re.compile(r"//?|~\w*")
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
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "fish"})
# Programs that run commands from their arguments or their input.
_RUNNERS = frozenset({
    ".", "at", "batch", "builtin", "busybox", "busybox.static", "bwrap", "capsh", "catchsegv", "chpst", "chronic",
    "chroot", "chrt", "command", "coproc", "cpulimit", "dbus-launch", "dbus-run-session", "doas", "eatmydata", "entr",
    "env", "eval", "exec", "fakeroot", "faketime", "find", "firejail", "flock", "gdb", "ifne", "ionice", "logsave",
    "ltrace", "newgrp", "nice", "nohup", "nsenter", "numactl", "parallel", "pee", "perf", "pkexec", "prlimit", "proot",
    "rlwrap", "run-parts", "runcon", "runuser", "screen", "script", "sem", "setarch", "setpriv", "setsid", "setuidgid",
    "sg", "socat", "softlimit", "source", "ssh", "start-stop-daemon", "stdbuf", "strace", "su", "sudo", "systemd-run",
    "taskset", "time", "timeout", "tmux", "torsocks", "toybox", "trap", "unbuffer", "unshare", "valgrind", "watch",
    "xargs", "xvfb-run",
})  # fmt: skip
# Builtins that evaluate words as arithmetic, or change the meaning of later words.
_BUILTINS = frozenset({
    "[", "[[", "alias", "bind", "caller", "compgen", "complete", "compopt", "declare", "enable", "export", "fc",
    "getopts", "hash", "history", "jobs", "let", "local", "mapfile", "printf", "read", "readarray", "readonly", "set",
    "shift", "shopt", "test", "typeset", "ulimit", "umask", "unalias", "unset", "wait",
})  # fmt: skip
_NEVER_PLAIN = _RUNNERS | _BUILTINS
_INTERPRETERS = re.compile(
    r"(?:(?:ba|da|z|k|mk|lk|a|rba|fi|c|tc|xon|el|nu|po|ya|o|j|go|q|b)?sh|nu|elvish|pwsh|powershell|cmd|[gmn]?awk|"
    r"original-awk|g?sed|r?ed|ex|g?vim?|r?view|nvim|emacs|python|[bp]y(?:py|thon)|jython|micropython|ptpython|ipython|hy|perl|ruby|"
    r"[ij]rb|erb|pry|node|nodejs|ts-node|tsx|deno|bun|qjs|gjs|php|php-cgi|phpdbg|lua|luajit|texlua|tclsh|wish|expect|osascript|"
    r"cscript|wscript|r|rscript|julia|octave|gnuplot|guile|racket|sbcl|clisp|gsi|ocaml|erl|elixir|iex|ghc|ghci|runghc|"
    r"sqlite|psql|mysql|make|gmake|ninja|rake|just|bc|dc|m4|jshell|jrunscript|groovy|scala|kotlin|swift|gdb|lldb|"
    r"execlineb|ld-linux\S*|npx|bunx|uvx)(?:[-_.]?\d[\w.-]*|\.exe|\.static)?"
)
# Programs that change nothing with any arguments, except the options below.
_READING = (
    "basename cat cksum cmp comm cut df diff dirname du echo egrep false fgrep file grep head id join ls md5sum nl od "
    "paste pwd readlink realpath rg seq sha1sum sha256sum sort stat strings tac tail tr true uname wc which whoami"
)
_READING_GIT = (
    "git blame", "git cat-file", "git describe", "git diff", "git grep", "git log", "git ls-files", "git ls-tree",
    "git rev-list", "git rev-parse", "git shortlog", "git show", "git status",
)  # fmt: skip
# The options with which reading programs write files or run other programs.
_OPTIONS_THAT_WRITE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "git": (
        (
            "--output",
            "--ext-diff",
            "--textconv",
            "--open-files-in-pager",
            "--filters",
            "--upload-pack",
            "--show-signature",
        ),
        "O",
    ),
    "sort": (("--output", "--compress-program", "--temporary-directory"), "oT"),
    "rg": (("--pre", "--hostname-bin", "--search-zip"), "z"),
    "file": (("--compile", "--uncompress", "--uncompress-noreport"), "CzZ"),
    "date": (("--set",), "s"),
    "tree": (("--output",), "oR"),
    "diff": (("--paginate",), "l"),
    "strings": (("--target",), ""),
}
_HARMLESS_OPTIONS = frozenset({"--text", "--output-indicator-new", "--output-indicator-old"})
_PRINTERS = frozenset({"echo", "printf"})
_DEEPEST_SCRIPT = 5
_MOST_WORDS = 500_000
_BRACED = re.compile(r"(?<![^\s;|&()<>{}])[^\s;|&()<>{}]*+(?<!\$)\{[^{}\s,]*+,[^{}\s]*+\}[^\s;|&()<>]*+")
_BARE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*])")
_SPLIT = "\0"
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}$`]*)\}", re.DOTALL)
_LONGEST_HERE = 4_000  # up to this length the parser needs little time and stack for any text
_READING_SECONDS = 3.0
_STARTING_SECONDS = 60  # for the start of the parser process on a busy machine
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\033", "E": "\033", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def removes_everything(words: Words) -> bool:
    """Return True for a recursive ``rm`` of the root of the file system or of a home folder."""
    if not words or words[0] is None or not _is_program(words[0], "rm"):
        return False
    options = [word for word in words[1:] if word is not None and word.startswith("-")]
    is_recursive = any(
        re.search("[rR]", word) if not word.startswith("--") else "--recursive".startswith(word) and word != "--"
        for word in options
    )
    return is_recursive and any(word is not None and _is_everything(word) for word in words[1:])


def _is_everything(word: str) -> bool:
    """Return True if a path, with globs for any name, is the root, a home folder, or the whole content of one."""
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
    """The compiled rules of `BashOptions.deny` and `BashOptions.allow`.

    Args:
        deny: Patterns of commands to refuse: a guard against mistakes, not against intent, since no list covers all
            ways to disguise a command. Quotes and wrappers are resolved where possible. The first word is the program,
            with any path; the others must be among its arguments in this order. Consecutive words anywhere in the text
            are refused, too, such as inside a Python string. A pattern with a shell operator is searched in the text
            without blanks.
        allow: If not None, the commands that run without confirmation: plain text, each command of which begins with
            the words of a pattern (see `toolkit.builtin.runs_only`).

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
        """Refuse a script in which a denied command is detected.

        Args:
            text: The script.
            script: The parsed script.

        Raises:
            ToolDeniedError: A command is denied; the message names the pattern.
        """
        for words in (*script.commands, *script.hidden):
            for shown, is_denied in self._denied:
                if is_denied(words):
                    raise _deny_pattern(shown)
        for shown, is_in in self._texts:
            if is_in(text):
                raise _deny_pattern(shown)

    def find_objection(self, text: str) -> str:
        """Return why a script may not run without confirmation; empty if it may."""
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
    """Return True if a word names a program, with any path, or is a glob that may expand to its name."""
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
        return lambda _: False  # a single word may be a mention and not a command
    found = re.compile(r"(?<![\w.-])" + r"\s+".join(words) + r"(?![^\s;|&)'\"`])", re.IGNORECASE)
    return lambda text: found.search(text) is not None


def read_plain_commands(text: str) -> list[PlainWords] | None:
    """Return the commands of a plain text, in order; None for any other text. It takes linear time."""
    commands: list[PlainWords] = []
    words: list[str] = []
    position, is_open = 0, False  # True while a separator needs a command after it
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
    """Return a predicate that is True if a command line runs only commands that match these patterns.

    ::

        rules = [allow("bash", args={"command": runs_only("git status", "git diff")}), ask("bash")]

    It is True only for provably plain text, each command of which begins with the words of a pattern; more words may
    follow. Text with a variable, glob, substitution, redirection or assignment is not plain, nor is a command that runs
    others (``env``, ``find``, ``xargs``, ``sudo``). An interpreter (``python``, ``sh``, ``make``) needs a pattern that
    names what it runs, such as ``python -m pytest``.

    Options with which git, sort and other reading programs write a file or run a program do not match: ``git diff
    --output=x`` needs a pattern that names it. Options of other programs are not checked: ``tar`` allows ``tar
    --to-command=x``.

    Args:
        patterns: The first words of a command, as `fnmatch` patterns; or a predicate on all words.

    Raises:
        ConfigurationError: There is no pattern; or one is empty, is only an interpreter, or has a glob as its program.
    """
    are_allowed = compile_patterns(patterns, "a pattern of runs_only")
    if not patterns:
        raise ConfigurationError("runs_only needs a pattern such as 'git status'")

    def runs_only_these(command: object) -> bool:
        commands = read_plain_commands(command) if isinstance(command, str) else None
        return commands is not None and are_allowed(commands)

    return runs_only_these


def compile_patterns(patterns: Iterable[PlainCommandPattern], what: str) -> Callable[[Sequence[PlainWords]], bool]:
    """Return a predicate that is True if each command matches a pattern.

    Raises:
        ConfigurationError: A pattern is empty, or is only an interpreter; `what` names the patterns in the message.
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
    if _INTERPRETERS.fullmatch(_strip_folder(wanted[0]).casefold()) and not _names_code(wanted[1:]):
        raise ConfigurationError(
            f"{what}, '{pattern}', allows any code: '{wanted[0]}' runs what its words say. Name what it may run, such "
            "as 'python -m pytest', or give a function that reads all words"
        )

    def names(words: PlainWords) -> bool:
        if len(words) < len(wanted) or not all(map(fnmatchcase, words, wanted)):
            return False
        if any(_writes_or_runs(words[0], word) and word not in wanted for word in words[1:]):
            return False
        # "git *" means "git status" and not "git -c alias.x=!code x".
        pairs = zip(words[1:2], wanted[1:2], strict=False)
        return not any(word.startswith("-") and not meant.startswith("-") for word, meant in pairs)

    return names


def _writes_or_runs(program: str, word: str) -> bool:
    """Return True if a word is an option with which a reading program writes a file or runs another program."""
    program = _strip_folder(program)
    long, short = _OPTIONS_THAT_WRITE.get(program, ((), ""))
    if program == "git" and "%G" in word:  # a format for which git runs the program that checks signatures
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]  # possibly abbreviated
        return len(name) > len("--") and name not in _HARMLESS_OPTIONS and any(each.startswith(name) for each in long)
    return word.startswith("-") and any(letter in word[1:] for letter in short)


def reads_only(text: str) -> bool:
    """Return True if a command line is plain, and its commands change no files and run no other programs."""
    commands = read_plain_commands(text)
    return commands is not None and _READS(commands)


def _names_code(words: Sequence[str]) -> bool:
    """Return True if the words after an interpreter name a file, a module or a target, and not inline code."""
    if not words:
        return False
    first = words[1:2] if words[0] == "-m" else words[:1]
    return bool(first) and not first[0].startswith("-") and not any(character in "*?[" for character in first[0])


def _is_uniq_without_output(words: PlainWords) -> bool:
    """Return True for ``uniq`` without a second file, which it would write."""
    files = [word for word in words[1:] if word == "-" or not word.startswith("-")]
    return words[0] == "uniq" and "--" not in words and len(files) <= 1


_READS = compile_patterns([*_READING.split(), *_READING_GIT, _is_uniq_without_output], "a command that reads")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """A parsed script.

    Args:
        commands: Its commands as written, in order.
        hidden: The commands inside wrappers, shells and their input.
    """

    commands: tuple[Words, ...]
    hidden: tuple[Words, ...]


def read_script(text: str) -> ShellScript:
    """Parse any text as a bash script.

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
    """Return the result of `read_script` as JSON, for a process that may be killed."""
    script = read_script(text)
    return json.dumps([script.commands, script.hidden])


async def read_script_apart(text: str) -> ShellScript:
    """Run `read_script` off the event loop; for a long text in another process, which can be killed.

    Raises:
        ToolFailedError: It can't be parsed, or takes more than 3 seconds.
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
    """The budget for nested commands, which can be many times longer than the text."""

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
    """Yield the commands inside others: after a wrapper, in a script argument, in the input of a shell."""
    scripts: list[str] = []
    for words in reading.commands:
        name = _get_program_name(words)
        if name in _RUNNERS or name in _SHELLS:
            effort.spend(len(words) ** 2 // 2)
            inner = [words[index:] for index in range(1, len(words))]
            yield from inner
            scripts += _list_inner_scripts(inner)
            if name == "eval":
                scripts.append(_join_words(words))
    if {_get_program_name(words) for words in reading.commands} & (_SHELLS | _RUNNERS):
        scripts += reading.documents
        scripts += [_join_words(words) for words in reading.commands if _get_program_name(words) in _PRINTERS]
    if depth < _DEEPEST_SCRIPT:
        for script in dict.fromkeys(scripts):
            effort.spend(len(script))
            inner_reading = _Reading(script)
            yield from inner_reading.commands
            yield from _find_hidden(inner_reading, effort, depth + 1)


def _list_inner_scripts(commands: Sequence[Words]) -> list[str]:
    """Return the scripts in the arguments of commands, or in the input of a shell."""
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
        is_unset: True to treat variables that it does not set as empty; otherwise they are unknown.
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
                # A word that is empty after its variables are expanded is dropped, unless it was quoted.
                parts = [part for part in value.split(_SPLIT) if part] if _SPLIT in value else [value]
                words += parts
        while words and words[0] == "":
            words.pop(0)
        return tuple(words)

    def _read_value(self, node: Node) -> str | None:
        """Return an unquoted word, with NUL where it splits into several; None if unknown."""
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
    """Return the variables that are set exactly once, to a known value."""
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
