"""The tools `list_files` and `search`: the files below a folder that ``.gitignore`` does not ignore, and their lines.

Files are found in a stable order, by a walk from descriptor to descriptor. For a pattern, ripgrep may narrow down the
files; those it names are in the same order, checked again by the rules here, and opened from the root folder.

Globs come from models and repositories. Python's `re` can take exponential time to match the expressions to which
`pathspec` converts them, so `re2` does.

The dialects of Python and ripgrep differ in details (case folding, white space, invalid bytes). So ripgrep only selects
the files of a search, by a pattern that matches whenever Python's does; a pattern without a safe equivalent is not
passed to it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

from pydantic import Field

from toolkit.builtin.files import searchable
from toolkit.builtin.root_folder import DEEPEST, RootFolder
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolFailedError
from toolkit.foreign_text import escape_in_name, escape_in_text
from toolkit.runtime.processes import NO_PATIENCE, BlockingProcess
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

if TYPE_CHECKING:
    import regex


_SKIPPED = frozenset({".git", "node_modules", "target"})
_LARGEST_RULES = 1_000_000
_RIPGREP_FAILED = 2
_RIPGREP_EXIT_SECONDS = 5.0  # from the end of its output to its exit
_GLOB_FREE_NAME = re.compile(r"[A-Za-z0-9._+-]+")  # without special characters of globs
_CLASSES = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "xdigit": "A-Fa-f0-9",
}
_CLASS = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]")
_WALKED_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LONGEST_GLOB = 1_000
_MOST_RULE_LINES = 2_000
_RULES_A_SET = 200  # a single automaton for too many rules would exceed its memory limit
_SET_BYTES = 32_000_000
_FOLDER_MARK = "(?P<ps_d>/)"  # pathspec's mark for the contents of a matching folder
_LONGEST_NAME_GLOB = 1_000
_MOST_ALTERNATIVES = 1_000
_BRACES = re.compile(r"\{([^{},]*+,[^{}]*+)\}")
_MOST_FILES = 1_000


class Deadline:
    """A point in time after which work must stop."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds: float = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        """True if it has passed."""
        return time.monotonic() >= self._end


def require_extra(tool: str, *modules: str) -> None:
    """Check that the packages of a tool are installed.

    Raises:
        ConfigurationError: A package is missing; the message names the extra.
    """
    if not all(find_spec(module) for module in modules):
        raise ConfigurationError(
            f"the tool {tool} needs packages that are not installed: pip install 'toolkit-sdk[coding]'"
        )


@cache
def has_ripgrep() -> bool:
    """Return True if ripgrep is installed and the platform can start it in a folder that is already open."""
    return Path("/proc/self/fd").is_dir() and shutil.which("rg") is not None


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file in the tree.

    Args:
        path: The path relative to the folder.
        folder: The descriptor of its parent folder, valid until the iterator advances; None if the parent is not open.
    """

    path: str
    folder: int | None


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of one ``.gitignore``, and its depth below the root."""

    depth: int
    rules: PathRules


class FileTree:
    """The files below one folder, for a single iteration.

    Args:
        root: The root folder.
        path: The folder in it.
        deadline: The time to stop.

    Attributes:
        is_cut: True if the time ran out before all files were visited.
    """

    def __init__(self, root: RootFolder, path: str, deadline: Deadline) -> None:
        self._root = root
        self._path = path
        self._deadline = deadline
        self._start: tuple[str, ...] = ()
        self._rules: dict[tuple[str, ...], tuple[_Rules, ...]] = {}
        self.is_cut: bool = False

    def files(self, max_depth: int | None = None) -> Generator[TreeFile]:
        """Yield the regular files; depth 1 means the entries of the folder itself."""
        with self._open_start() as folder:
            yield from self._walk_folder(folder, (), min(max_depth or DEEPEST, self._deepest_level))

    def candidates(self, pattern: str, largest: int) -> Generator[TreeFile]:
        """Yield the files in which ripgrep finds a pattern; all files if it can't parse the pattern.

        Args:
            pattern: A pattern in ripgrep's dialect.
            largest: Files with more bytes may be left out.
        """
        with self._open_start() as folder:
            is_understood = yield from self._ask_ripgrep(folder, pattern, largest)
            if not is_understood:
                yield from self._walk_folder(folder, (), self._deepest_level)

    def content(self, file: TreeFile, largest: int) -> bytes | None:
        """Return the content of a file; None if it is too large or can't be opened."""
        with suppress(OSError, ToolFailedError):
            if file.folder is None:
                with self._root.open_file(self.path_in_root(file)) as (descriptor, _):
                    return _read_tree_file(descriptor, largest)
            descriptor = os.open(file.path.rpartition("/")[2], _FILE_FLAGS, dir_fd=file.folder)
            try:
                return _read_tree_file(descriptor, largest) if self._root.may_read(os.fstat(descriptor)) else None
            finally:
                os.close(descriptor)
        return None

    def path_in_root(self, file: TreeFile) -> str:
        """Return the path relative to the root."""
        return "/".join((*self._start, file.path))

    @property
    def _deepest_level(self) -> int:
        return DEEPEST - len(self._start)

    @contextmanager
    def _open_start(self) -> Generator[int]:
        with self._root.open_folder(self._path) as (folder, found):
            self._start = found.parts
            self._rules[()] = self._find_rules_above(found.parts)
            yield folder

    def _walk_folder(self, folder: int, parts: tuple[str, ...], max_depth: int) -> Iterator[TreeFile]:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
        rules = self._find_rules_in(parts, has_file=any(entry.name == ".gitignore" for entry in entries))
        way = (*self._start, *parts)
        for entry in entries:
            if self._deadline.is_over:
                self.is_cut = True
                return
            name = entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not entry.is_file(follow_symlinks=False):
                continue
            if is_folder and (name in _SKIPPED or len(parts) + 1 >= max_depth):
                continue
            if rules and _is_left_out(rules, way, name, is_folder=is_folder):
                continue
            if not is_folder:
                yield TreeFile("/".join((*parts, name)), folder)
                continue
            with suppress(OSError):  # not readable, or no longer a folder
                inner = os.open(name, _WALKED_FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield from self._walk_folder(inner, (*parts, name), max_depth)
                finally:
                    os.close(inner)

    def _ask_ripgrep(self, folder: int, pattern: str, largest: int) -> Generator[TreeFile, None, bool]:
        """Yield the files that ripgrep names and the rules allow; return False if it can't parse the pattern."""
        command = [
            # Its own handling of .gitignore expands braces, which git does not.
            *("rg", "--no-config", "--no-ignore", "--hidden", "--null", "--sort=path", "--no-messages"),
            *(f"--glob=!**/{name}/" for name in sorted(_SKIPPED)),
            *(f"--glob=!/{name}/" for name in self._list_ignored_folders(folder)),
            f"--max-depth={self._deepest_level}",
            *("--files-with-matches", "--text", f"--max-filesize={largest}", "--regexp", pattern, "./"),
        ]
        # Without a shell, and with the pattern as the value of an option.
        process = BlockingProcess(command, cwd=f"/proc/self/fd/{folder}", has_input=False, patience=NO_PATIENCE)
        timer = Timer(self._deadline.left, process.kill)
        timer.start()
        has_answered = False
        try:
            for name in _read_ripgrep_names(process):
                has_answered = True
                path = name.removeprefix("./")
                if not self._is_ignored_on_the_way(path.split("/")):
                    yield TreeFile(path, None)
            self.is_cut = self._deadline.is_over
            has_ended = process.has_ended_within(_RIPGREP_EXIT_SECONDS)
            return has_answered or not (has_ended and process.exit_code == _RIPGREP_FAILED)
        finally:
            timer.cancel()
            process.end()

    def _list_ignored_folders(self, folder: int) -> list[str]:
        """Return the ignored folders directly below, which are often the large ones, such as virtual environments."""
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        plain = [name for name in names if _GLOB_FREE_NAME.fullmatch(name)]
        return [name for name in plain if _is_left_out(self._rules[()], self._start, name, is_folder=True)]

    def _is_ignored_on_the_way(self, parts: Sequence[str]) -> bool:
        for depth, name in enumerate(parts):
            above = tuple(parts[:depth])
            rules = self._find_rules_in(above)
            if rules and _is_left_out(rules, (*self._start, *above), name, is_folder=depth < len(parts) - 1):
                return True
        return False

    def _find_rules_in(self, parts: tuple[str, ...], *, has_file: bool = True) -> tuple[_Rules, ...]:
        """Return the rules for the entries of a folder; those of its parent must be loaded already."""
        if parts not in self._rules:
            way = (*self._start, *parts)
            self._rules[parts] = self._rules[parts[:-1]] + (self._load_rules(way) if has_file else ())
        return self._rules[parts]

    def _find_rules_above(self, start: tuple[str, ...]) -> tuple[_Rules, ...]:
        """Return the rules of the folder and its parents, without those that would ignore the folder itself."""
        rules: tuple[_Rules, ...] = ()
        for depth in range(len(start) + 1):
            rules += self._load_rules(start[:depth])
            if depth < len(start) and _is_left_out(rules, start[:depth], start[depth], is_folder=True):
                rules = ()
        return rules

    def _load_rules(self, way: tuple[str, ...]) -> tuple[_Rules, ...]:
        try:
            with self._root.open_file("/".join((".", *way, ".gitignore"))) as (descriptor, _):
                text = os.pread(descriptor, _LARGEST_RULES, 0).decode("utf-8-sig", "replace")
        except ToolFailedError:
            return ()
        return (_Rules(len(way), _read_rules(text)),)


def _read_rules(text: str) -> PathRules:
    """Return the rules of a file.

    They apply to a path itself and not to the contents of a matching folder: the walk has decided on its parents, and
    re-including a folder does not re-include contents that other rules ignore.
    """
    lines = (_CLASS.sub(lambda match: _CLASSES[match[1]], line.removesuffix("\r")) for line in text.split("\n"))
    return PathRules(lines, for_contents=False)


def _is_left_out(rules: Sequence[_Rules], way: Sequence[str], name: str, *, is_folder: bool) -> bool:
    """Return True if the nearest matching rules for a name in the folder at `way` ignore it."""
    for one in reversed(rules):
        path = "/".join((*way[one.depth :], f"{name}/" if is_folder else name))
        leaves_out = one.rules.decide(path)
        if leaves_out is not None:
            return leaves_out
    return False


def _read_ripgrep_names(process: BlockingProcess) -> Iterator[str]:
    rest = b""
    while data := os.read(process.output.fileno(), 65_536):
        *names, rest = (rest + data).split(b"\0")
        yield from map(os.fsdecode, names)


def _read_tree_file(descriptor: int, largest: int) -> bytes | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        return None
    data = os.read(descriptor, status.st_size + 1)
    if len(data) < status.st_size:  # some file systems return it in parts
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(largest + 1)
    return data if len(data) <= largest else None


class UnreadableGlobError(ValueError):
    """A line is not a valid glob."""


class _RuleSet(Protocol):
    """A ``re2.Set``, which has no type annotations."""

    def Add(self, pattern: str) -> int: ...  # noqa: N802 - named by re2
    def Compile(self) -> None: ...  # noqa: N802
    def Match(self, text: str) -> Sequence[int] | None: ...  # noqa: N802


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rules that are matched together, each with its verdict."""

    leaves_out: tuple[bool, ...]
    rules: _RuleSet


class PathRules:
    """The lines of a ``.gitignore``, of which the last match decides.

    Args:
        lines: The lines. Those of more than 1,000 characters are invalid, and those after the first 2,000 are ignored.
        for_contents: True if a line that matches a folder also matches its contents.
        is_strict: True to raise for an invalid line; otherwise it is ignored, as git does.

    Raises:
        UnreadableGlobError: A line is not a valid glob, and `is_strict` is True.
    """

    __slots__ = ("_batches",)

    def __init__(self, lines: Iterable[str], *, for_contents: bool, is_strict: bool = False) -> None:
        rules: list[tuple[bool, str]] = []
        for line in islice(lines, _MOST_RULE_LINES):
            try:
                rules += _read_line(line, for_contents=for_contents)
            except UnreadableGlobError:
                if is_strict:
                    raise
        self._batches = tuple(
            _compile_rules(rules[start : start + _RULES_A_SET]) for start in range(0, len(rules), _RULES_A_SET)
        )

    def __bool__(self) -> bool:
        return bool(self._batches)

    def decide(self, path: str) -> bool | None:
        """Return True if a line matches, False if one with ``!`` re-includes the path, None if none matches."""
        text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for batch in reversed(self._batches):
            matching = batch.rules.Match(text)
            if matching:
                return batch.leaves_out[max(matching)]
        return None


def _read_line(line: str, *, for_contents: bool) -> list[tuple[bool, str]]:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - an extra

    if len(line) > _LONGEST_GLOB:
        raise UnreadableGlobError(line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of nested sets, whose meaning may change in Python
            patterns = GitIgnoreSpec.from_lines([line], backend="simple").patterns
    except (ValueError, re.error) as error:
        raise UnreadableGlobError(line) from error
    found: list[tuple[bool, str]] = []
    for pattern in patterns:
        compiled = cast("re.Pattern[str] | None", pattern.regex)  # pyright: ignore[reportUnknownMemberType]
        if pattern.include is not None and compiled is not None:
            source = compiled.pattern
            if not for_contents and _FOLDER_MARK in source:
                source = rf"(?:{source})\z"
            source = source.replace(_FOLDER_MARK, "/")
            _check_source(source, line)
            found.append((pattern.include, source))
    return found


def _check_source(source: str, line: str) -> None:
    """Check that `re2` accepts a pattern; for a set it does not report which one is invalid."""
    re2 = _load_re2()
    try:
        re2.compile(source, _make_options())
    except re2.error as error:
        raise UnreadableGlobError(line) from error


def _compile_rules(rules: Sequence[tuple[bool, str]]) -> _Batch:
    compiled: _RuleSet = _load_re2().Set.SearchSet(_make_options())
    for _, source in rules:
        compiled.Add(source)
    compiled.Compile()
    return _Batch(tuple(leaves_out for leaves_out, _ in rules), compiled)


def _load_re2() -> Any:
    import re2  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415 - an extra

    return re2


def _make_options() -> Any:
    options = _load_re2().Options()
    options.log_errors = False
    options.max_mem = _SET_BYTES
    return options


def name_pattern(glob: str, parameter: str) -> Callable[[str], bool]:
    """Return a predicate that is True if a glob matches a path.

    A glob without a slash matches names at any depth, others match relative paths; a leading ``!`` negates it.

    Raises:
        ToolFailedError: It is not a valid glob, or has more than 1,000 characters; the message names the parameter.
    """
    if len(glob) > _LONGEST_NAME_GLOB:
        raise ToolFailedError(
            f"The glob in the argument {parameter} has {len(glob):,} characters; "
            f"at most {_LONGEST_NAME_GLOB:,} can be read."
        )
    is_negated = glob.startswith("!")
    lines = [re.sub(r"^(?=[#!])", r"\\", line) for line in expanded_braces(glob.removeprefix("!").removeprefix("./"))]
    try:
        rules = PathRules(lines, for_contents=True, is_strict=True)
    except UnreadableGlobError as error:
        raise _refuse_glob(glob, parameter) from error
    if not rules:
        raise _refuse_glob(glob, parameter)
    return lambda path: (rules.decide(path) is True) != is_negated


def expanded_braces(text: str) -> list[str]:
    """Return the alternatives of ``a{b,c}d``: ``abd`` and ``acd``.

    Raises:
        ToolFailedError: There are too many.
    """
    texts = [text]
    while any(found := [_BRACES.search(text) for text in texts]):
        texts = [
            f"{text[: match.start()]}{choice}{text[match.end() :]}" if match else text
            for text, match in zip(texts, found, strict=True)
            for choice in (match[1].split(",") if match else [""])
        ]
        if len(texts) > _MOST_ALTERNATIVES:
            raise ToolFailedError("The braces stand for too many alternatives. Use fewer.")
    return texts


def _refuse_glob(glob: str, parameter: str) -> ToolFailedError:
    return ToolFailedError(
        f"'{escape_in_text(glob)}' is no valid glob in the argument {parameter}. "
        "Write one like *.py, src/**/*.py or *.{js,ts}."
    )


def list_files_tool(
    root: RootFolder | str | os.PathLike[str], *, time_limit: float = 10
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``list_files``: the regular files below a folder, sorted by path, at most 200 by default.

    Files that ``.gitignore`` ignores are left out, and so are ``.git``, ``node_modules`` and ``target``; an ignored
    folder is listed if the call names it. Links are not followed. Needs the extra ``coding``.

    Args:
        root: The folder whose files may be listed.
        time_limit: The seconds after which the results so far are returned with a note.

    Raises:
        ConfigurationError: The folder does not exist, or a package is missing.
    """
    require_extra("list_files", "pathspec", "re2")
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def list_files(
        path: Annotated[str, Field(description="The folder, relative to the working folder.")] = ".",
        pattern: Annotated[
            str | None, Field(description="A glob such as *.py or src/**/*.{js,ts}, relative to path.")
        ] = None,
        max_depth: Annotated[int, Field(ge=1, le=100, description="How many folders deep.")] = 3,
        limit: Annotated[int, Field(ge=1, le=_MOST_FILES, description="How many files at most.")] = 200,
    ) -> ToolOutput:
        """List the files below a folder. Leaves out what .gitignore names, .git, node_modules and target."""
        is_meant = name_pattern(pattern, "pattern") if pattern is not None else None
        tree = FileTree(folder, path, Deadline(time_limit))
        with closing(tree.files(max_depth)) as files:
            meant = (tree.path_in_root(file) for file in files if is_meant is None or is_meant(file.path))
            names = list(islice(meant, limit + 1))
        notes: list[str] = []
        if len(names) > limit:
            notes.append(f"[The first {limit} files; there are more. Narrow it with path or pattern, or raise limit.]")
        if tree.is_cut:
            notes.append(f"[Stopped after {time_limit:g} s; there may be more. Narrow it with path or max_depth.]")
        if not names:
            notes.append(f"No files found in {escape_in_name(path)}, {max_depth} folders deep.")
        return ToolOutput("\n".join([*map(escape_in_name, names[:limit]), *notes]), details={"files": names[:limit]})

    return tool_from_function(list_files, tags={"read"}, cache=False)


_LARGEST_SEARCHED = 10_000_000
_HIT_LINE_CHARS = 500
_ANY_OTHER = r"(?-u:[\x80-\xff]{1,4})"  # a character of more than one byte, or invalid bytes
_PATTERN_TOKEN = re.compile(
    r"""
      (?P<group>\(\?:|\((?!\?)|[)|])
    | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{]))
    | (?P<start>\^) | (?P<end>\$)
    | (?P<any>\.)
    | (?P<edge>\\b)
    | (?P<kind>\\[wWsSdD])
    | (?P<escape>\\[.^$*+?()\[\]{}|/\\\-])
    | (?P<set>\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:;=<>/"'!@#%]|\\[.wsd\-])+\])
    | (?P<letter>[A-Za-z0-9_\ \t,:;=<>/"'!@\#%~`\-])
    """,
    re.VERBOSE,
)
_CALL_OF_A_GROUP = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
_LONGEST_PATTERN = 1_000
_MOST_REPEATED = 20_000
_PART = re.compile(r"\\.|\{(?:\d{0,9},)?(\d{1,9})\}|.", re.DOTALL)
_WIDE_KINDS = {r"\s": r"[\s\x1c-\x1f]", r"\S": r"[\S\x1c-\x1f]"}


@dataclass(frozen=True, slots=True)
class _Hit:
    """A file, its lines, and the numbers of the matching ones, from 0."""

    path: str
    lines: list[str]
    numbers: list[int]


def search_tool(
    root: RootFolder | str | os.PathLike[str], *, time_limit: float = 30, with_ripgrep: bool = True
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``search``: the lines that match a regular expression, sorted by path, 50 in all by default.

    The expressions are those of Python (of the package ``regex``), matched line by line. Left out are files above
    10 MB, binary files (with a NUL in the first 8 kB), files more than 256 folders deep, and those that
    `list_files_tool` leaves out. Invalid UTF-8 is shown as replacement characters. Needs the extra ``coding``.

    Args:
        root: The folder whose files may be searched.
        time_limit: The seconds after which, even within a slow expression, the results so far are returned with a note.
        with_ripgrep: True to let ripgrep, if installed, select the files; the results are the same.

    Raises:
        ConfigurationError: The folder does not exist, or a package is missing.
    """
    require_extra("search", "pathspec", "re2", "regex")
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def search(
        pattern: Annotated[str, Field(min_length=1, description="A regular expression, for single lines.")],
        path: Annotated[str, Field(description="The file or folder, relative to the working folder.")] = ".",
        include: Annotated[str | None, Field(description="Only files that match this glob, such as *.py.")] = None,
        case_sensitive: Annotated[bool, Field(description="Whether upper and lower case differ.")] = False,
        literal: Annotated[bool, Field(description="Whether pattern is plain text.")] = False,
        context: Annotated[int, Field(ge=0, le=20, description="Lines to show before and after each.")] = 0,
        limit: Annotated[int, Field(ge=1, le=1_000, description="How many matching lines at most.")] = 50,
    ) -> ToolOutput:
        """Find lines in files. Leaves out what .gitignore names, .git, node_modules, target, and binary files."""
        wanted = line_pattern(pattern, is_literal=literal, is_case_sensitive=case_sensitive)
        is_meant = name_pattern(include, "include") if include is not None else None
        deadline = Deadline(time_limit)
        hits = _find_hits(folder, path, wanted, is_meant, deadline, with_ripgrep=with_ripgrep)
        return _format_hits(hits, pattern, context, limit, deadline)

    return tool_from_function(search, tags={"read"}, cache=False)


def _find_hits(
    folder: RootFolder,
    path: str,
    wanted: LinePattern,
    is_meant: Callable[[str], bool] | None,
    deadline: Deadline,
    *,
    with_ripgrep: bool,
) -> Iterator[_Hit]:
    """Yield the files with matches; raise `TimeoutError` when the time is over."""
    for name, data in _read_contents(folder, path, wanted, is_meant, deadline, with_ripgrep=with_ripgrep):
        text = searchable(data)
        numbers = [] if text is None else wanted.matches(text, deadline)
        if text is not None and numbers:
            yield _Hit(name, text.split("\n"), numbers)


def _read_contents(
    folder: RootFolder,
    path: str,
    wanted: LinePattern,
    is_meant: Callable[[str], bool] | None,
    deadline: Deadline,
    *,
    with_ripgrep: bool,
) -> Iterator[tuple[str, bytes]]:
    with folder.find(path) as found:
        is_file = found.status is not None and not found.is_folder
    if is_file:
        with folder.open_file(path) as (descriptor, found):
            size = os.fstat(descriptor).st_size
            if size > _LARGEST_SEARCHED:
                raise ToolFailedError(
                    f"'{escape_in_name(path)}' has {size:,} bytes; at most {_LARGEST_SEARCHED:,} can be searched. "
                    "Use grep."
                )
            yield found.path, os.pread(descriptor, _LARGEST_SEARCHED, 0)
        return
    tree = FileTree(folder, path, deadline)
    pattern = wanted.for_ripgrep if with_ripgrep and has_ripgrep() else None
    with closing(tree.files() if pattern is None else tree.candidates(pattern, _LARGEST_SEARCHED)) as files:
        for file in files:
            if is_meant is None or is_meant(file.path):
                data = tree.content(file, _LARGEST_SEARCHED)
                if data is not None:
                    yield tree.path_in_root(file), data
    if tree.is_cut:
        raise TimeoutError


def _format_hits(hits: Iterator[_Hit], pattern: str, context: int, limit: int, deadline: Deadline) -> ToolOutput:
    blocks: list[str] = []
    matches: list[dict[str, object]] = []
    note = ""
    try:
        for hit in hits:
            room = limit - len(matches)
            if room == 0:
                note = f"[The first {limit} matches; there are more. Narrow the pattern or the path, or raise limit.]"
                break
            numbers = hit.numbers[:room]
            blocks.append(_format_block(hit, numbers, context))
            matches.extend({"path": hit.path, "line": number + 1} for number in numbers)
            if len(hit.numbers) > room:
                note = f"[The first {limit} matches; there are more. Narrow the pattern or the path, or raise limit.]"
                break
    except TimeoutError as error:
        if not matches:
            raise ToolFailedError(
                f"The search took more than {deadline.seconds:g} s and found nothing so far. "
                "Narrow path or include, or use a simpler pattern."
            ) from error
        note = f"[Stopped after {deadline.seconds:g} s; there may be more. Narrow path or include.]"
    if not matches:
        return ToolOutput(f"No matches found for '{escape_in_text(pattern)}'.", details={"matches": matches})
    text = ("\n--\n" if context else "\n").join(blocks)
    return ToolOutput(f"{text}\n{note}" if note else text, details={"matches": matches})


def _format_block(hit: _Hit, numbers: list[int], context: int) -> str:
    matching = set(numbers)
    wanted = sorted({
        near
        for number in numbers
        for near in range(max(number - context, 0), min(number + context + 1, len(hit.lines)))
    })  # fmt: skip
    path = escape_in_name(hit.path)
    shown: list[str] = []
    for before, number in zip([None, *wanted], wanted, strict=False):
        if context and before is not None and number > before + 1:
            shown.append("--")
        line = hit.lines[number].removesuffix("\r")
        cut = f"{line[:_HIT_LINE_CHARS]} [...]" if len(line) > _HIT_LINE_CHARS else line
        sign = ":" if number in matching else "-"
        shown.append(f"{path}{sign}{number + 1}{sign} {cut}")
    return "\n".join(shown)


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern for single lines.

    Args:
        lines: The pattern for one line.
        text: A pattern that matches every text with a matching line; None if there is none.
        for_ripgrep: The same for files, in ripgrep's dialect.
    """

    lines: regex.Pattern[str]
    text: regex.Pattern[str] | None
    for_ripgrep: str | None

    def matches(self, text: str, deadline: Deadline) -> list[int]:
        """Return the numbers of the matching lines, from 0; raise `TimeoutError` when the time is over."""
        if self.text is not None and self.text.search(text, timeout=deadline.left, concurrent=True) is None:
            return []
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        search = self.lines.search
        return [
            number
            for number, line in enumerate(lines)
            if search(line.removesuffix("\r"), timeout=deadline.left, concurrent=True) is not None
        ]


def line_pattern(pattern: str, *, is_literal: bool, is_case_sensitive: bool) -> LinePattern:
    """Return the compiled pattern.

    Raises:
        ToolFailedError: It is not a regular expression, or too large; the message gives the position of the fault.
    """
    import regex  # noqa: PLC0415 - an extra

    if len(pattern) > _LONGEST_PATTERN:
        raise ToolFailedError(
            f"The pattern has {len(pattern):,} characters; at most {_LONGEST_PATTERN:,} can be looked for."
        )
    source = regex.escape(pattern) if is_literal else pattern
    flags = regex.VERSION0 if is_case_sensitive else regex.VERSION0 | regex.IGNORECASE
    if "\n" in pattern:
        raise ToolFailedError("The pattern contains a line break, and lines are searched one by one. Search for one.")
    if not is_literal and _measure_pattern(pattern) > _MOST_REPEATED:
        raise ToolFailedError("The pattern repeats its parts too often. Use smaller numbers in braces, or * and +.")
    if not is_literal and _CALL_OF_A_GROUP.search(pattern):
        raise ToolFailedError(
            "The pattern calls a group again, which may take any amount of memory. Write it without (?R) and the like."
        )
    try:
        lines = regex.compile(source, flags)
        wide = _widen_pattern(re.escape(pattern) if is_literal else pattern, is_case_sensitive=is_case_sensitive)
        text = None if wide is None else regex.compile(source, flags | regex.MULTILINE)
    except (regex.error, ValueError) as error:  # the latter for flags that exclude each other
        raise ToolFailedError(
            f"'{escape_in_text(pattern)}' is no valid regular expression: {error}. "
            "Correct it, or set literal to true to find it as it is."
        ) from error
    except RecursionError as error:
        raise ToolFailedError("The pattern is nested too deeply. Use fewer brackets.") from error
    return LinePattern(lines, text, wide)


def _measure_pattern(pattern: str) -> int:
    """Return the approximate size of a pattern with its counted repetitions expanded, as they are compiled."""
    sizes, last = [0], 0
    for part in _PART.finditer(pattern):
        if part[0] == "(":
            sizes.append(0)
        elif part[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif part[1] is not None:
            more = last * (max(int(part[1]), 1) - 1)
            sizes[-1] += more
            last += more
        else:
            last = 1
            sizes[-1] += 1
        if sizes[-1] > _MOST_REPEATED:
            break
    return max(sizes)


def _widen_pattern(pattern: str, *, is_case_sensitive: bool) -> str | None:
    """Return a pattern for ripgrep that matches at least as much; None if there is no safe equivalent."""
    parts: list[str] = [] if is_case_sensitive else ["(?i)"]
    position = 0
    while position < len(pattern):
        token = _PATTERN_TOKEN.match(pattern, position)
        if token is None:
            return None
        parts.append(_widen_token(token.lastgroup or "", token[0], is_case_sensitive=is_case_sensitive))
        position = token.end()
    return "".join(parts)


def _widen_token(kind: str, text: str, *, is_case_sensitive: bool) -> str:
    match kind:
        case "end":
            return r"(?:\r?$)"
        case "any":
            return rf"(?:.|{_ANY_OTHER})"
        case "edge":
            return "(?:)"  # each dialect defines words differently
        case "kind":
            return rf"(?:{_WIDE_KINDS.get(text, text)}|{_ANY_OTHER})"
        case "set":
            return rf"(?:{text}|{_ANY_OTHER}|[\x1c-\x1f])"
        case "letter" if not is_case_sensitive and text.isalpha():
            return rf"(?:{text}|{_ANY_OTHER})"  # such as the long s and the Kelvin sign
        case _:
            return text
