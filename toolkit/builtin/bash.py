"""The tool `bash`: runs a shell command with a time limit, command rules and a sandbox, and ends all its processes."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream
from anyio.lowlevel import checkpoint_if_cancelled
from pydantic import Field

from toolkit.builtin.commands import (
    DEFAULT_DENY,
    CommandPattern,
    CommandRules,
    PlainCommandPattern,
    read_script_apart,
    reads_only,
)
from toolkit.builtin.file_tree import require_extra
from toolkit.builtin.root_folder import RootFolder
from toolkit.calls.context import ToolContext
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolDeniedError, ToolFailedError
from toolkit.runtime.processes import SupervisedProcess, Tail
from toolkit.settings import PositiveInt, Seconds, check_fields
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_SETTINGS = [
    "alternatives",
    "ld.so.cache",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
    "ssl",
    "hosts",
    "resolv.conf",
]
_SANDBOX_PROBE_SECONDS = 10
Confirm: TypeAlias = Callable[[str], bool | Awaitable[bool]]
"""Receives a command; False or an exception refuses it."""
_ALWAYS_INHERITED = ("PATH", "HOME", "PWD")
_UPDATE_SECONDS = 0.1
_UPDATE_BYTES = 4_000
_LONGEST_COMMAND = 100_000
# Characters that move the cursor or change the direction of text, so that a person would not see what the shell reads.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_CHUNK_BYTES = 65_536
_PIPE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """A sandbox for commands by `bubblewrap <https://github.com/containers/bubblewrap>`_, on Linux.

    A command runs in its own namespaces: it sees the system's programs read-only, the root folder, an empty ``/tmp``
    and no other process; it has no network, and ends with its parent. Unlike a deny list, this contains any command.

    Args:
        network: True to allow the network.
        read: More readable folders, such as the virtual environment of the tests.
        write: More writable folders.
    """

    network: bool = False
    read: Sequence[str | os.PathLike[str]] = ()
    write: Sequence[str | os.PathLike[str]] = ()

    def check(self, root: Path) -> None:
        """Check that it works here by running a command in it.

        Raises:
            ConfigurationError: It is not installed, or the system prevents it; the message has the remedy.
        """
        if not sys.platform.startswith("linux"):
            raise ConfigurationError("the sandbox is bubblewrap, which is for Linux only")
        if shutil.which("bwrap") is None:
            raise ConfigurationError(
                "the sandbox was asked for, but bubblewrap is not installed: apt install bubblewrap, "
                "dnf install bubblewrap"
            )
        try:
            run = subprocess.run(  # noqa: S603 - our own arguments, and no shell
                self.wrapped(["/bin/sh", "-c", "true"], root, root),
                capture_output=True,
                timeout=_SANDBOX_PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConfigurationError(f"bubblewrap did not answer within {_SANDBOX_PROBE_SECONDS} s") from error
        if run.returncode != 0:
            reason = run.stderr.decode("utf-8", "replace").strip()
            raise ConfigurationError(
                f"bubblewrap is installed but does not work here: {reason}. It needs unprivileged user namespaces, "
                "which containers and some distributions forbid."
            )

    def wrapped(self, command: Sequence[str], root: Path, working_folder: Path) -> list[str]:
        """Return the command line that runs a command in the sandbox, with the root folder writable at its own path."""
        arguments = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
        if self.network:
            arguments.append("--share-net")
        for path in _SYSTEM:
            if Path(path).is_symlink():
                arguments += ["--symlink", str(Path(path).readlink()), path]
            else:
                arguments += ["--ro-bind-try", path, path]
        for name in _SYSTEM_SETTINGS:
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
        for option, folders in (("--ro-bind", self.read), ("--bind", (*self.write, root))):
            for folder in folders:
                path = os.path.abspath(folder)  # noqa: PTH100 - links stay what they are
                arguments += [option, path, path]
        return [*arguments, "--chdir", str(working_folder), "--", *command]


@dataclass(frozen=True, slots=True, kw_only=True)
class BashOptions:
    """The rules, environment and limits of commands.

    Without a `sandbox`, `allow` or `confirm`, a command that may do more than read needs approval, and is refused if
    there is no approver: a deny list is not a sandbox.

    Args:
        timeout: The seconds for one command; a call may request less. None sets no limit.
        deny: Commands to refuse where they can be detected: a guard against mistakes. Only `sandbox` and `allow`
            protect against intent.
        allow: If not None, the commands that run without confirmation: only plain text, each command of which begins
            with the words of one of these patterns; see `toolkit.builtin.runs_only`. Others need `confirm`, and are
            refused without it.
        confirm: Decides on commands that `deny` does not match and `allow` does not list.
        env_allowlist: The only variables that commands inherit, besides PATH, HOME and PWD; None lets them inherit all,
            including keys. A command of the same user can still read the environment of this process by ``/proc``:
            only a sandbox hides it.
        working_folder: The folder in which commands start, relative to the root. They can leave it: only a sandbox
            confines them.
        sandbox: Runs every command in bubblewrap, by default without network and with only the root folder writable;
            None runs it with all rights of this process.
        max_output_bytes: The size of the stored end of each stream; earlier output is dropped and counted.
    """

    timeout: Seconds | None = 120.0
    deny: Collection[CommandPattern] = DEFAULT_DENY
    allow: Collection[PlainCommandPattern] | None = None
    confirm: Confirm | None = None
    env_allowlist: Collection[str] | None = None
    working_folder: str = "."
    sandbox: Bubblewrap | None = None
    max_output_bytes: PositiveInt = 4_000_000

    def __post_init__(self) -> None:
        check_fields(self)


def bash_tool(
    root: RootFolder | str | os.PathLike[str], options: BashOptions | None = None
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``bash``, which runs a command and returns its output and any exit code.

    The last lines of the output are emitted as updates. The model reads the end of a long output; with a `ResultStore`
    in the loop's configuration it can read the rest by ``read_result``. When the command ends, times out or is
    cancelled, all processes that it started are terminated, and killed a second later, including those that ignore
    signals, hold its pipes, or (on Linux) have their own session. A determined process can escape: in another session
    it can kill its supervisor first, or have a service start it. Only a sandbox prevents that. Needs the extra
    ``coding`` and a POSIX system.

    Args:
        root: The folder in which commands start; without a sandbox they are not confined to it.
        options: The rules and limits; None takes the defaults of `BashOptions`.

    Raises:
        ConfigurationError: The folder does not exist, a package is missing, or the sandbox does not work here.
    """
    require_extra("bash", "tree_sitter", "tree_sitter_bash")
    shell = _Shell(root if isinstance(root, RootFolder) else RootFolder(root), options or BashOptions())

    async def bash(
        context: ToolContext[object],
        command: Annotated[str, Field(min_length=1, description="The command that bash runs, in the working folder.")],
        timeout: Annotated[float | None, Field(gt=0, description="Seconds that it may take.")] = None,
    ) -> ToolOutput:
        """Run a command in bash; each starts anew in the working folder. Its background processes are ended."""
        await shell.authorize(command)
        return await shell.run(context, command, timeout)

    make = tool_with_ctx(
        keep_output="tail",
        tags={"execute"},
        cache=False,
        requires_approval=shell.find_approval_need,
        trust="untrusted",  # it may read anything outside of the folder
        effects={"run"},
        destinations=("command",),
    )
    return make(bash)


class _Shell:
    """A shell in a working folder, with the rules for commands.

    Raises:
        ConfigurationError: The shell or the folder does not exist, or the sandbox does not work here.
    """

    def __init__(self, folder: RootFolder, options: BashOptions) -> None:
        self._root = folder.path
        self._options = options
        self._rules = CommandRules(options.deny, options.allow)
        program = shutil.which("bash") or shutil.which("sh")
        if program is None:
            raise ConfigurationError("the tool bash needs a shell, and there is neither bash nor sh in PATH")
        self._program = program
        try:
            with folder.open_folder(options.working_folder) as (_, found):
                self._working_folder = folder.path.joinpath(*found.parts)
        except ToolFailedError as error:
            raise ConfigurationError(f"the working folder can't be used: {error.message}") from error
        if options.sandbox is not None:
            options.sandbox.check(folder.path)

    def find_approval_need(self, arguments: Mapping[str, Any]) -> str:
        """Return why a command needs approval, without sandbox, `allow` or `confirm`; empty if it only reads."""
        options = self._options
        is_held = options.sandbox is not None or options.allow is not None or options.confirm is not None
        if is_held or reads_only(str(arguments.get("command", ""))):
            return ""
        return "The command may do more than read, and neither a sandbox nor a list of allowed commands is set."

    async def authorize(self, command: str) -> None:
        """Apply the rules to a command, asking for confirmation where required.

        Raises:
            ToolDeniedError: It may not run.
            ToolFailedError: It can't be parsed.
        """
        _check_text(command)
        confirm = self._options.confirm
        objection = self._rules.find_objection(command)
        if objection and confirm is None:
            raise ToolDeniedError(objection)
        script = await read_script_apart(command)
        await to_thread.run_sync(self._rules.check_denied, command, script, abandon_on_cancel=True)
        if confirm is not None and (objection or self._options.allow is None):
            await _ask_about(confirm, command)

    async def run(self, context: ToolContext[object], command: str, timeout: float | None) -> ToolOutput:
        """Run an allowed command, and return its output."""
        options = self._options
        seconds = min(filter(None, (timeout, options.timeout)), default=None)
        called = [self._program, "-c", command]
        if options.sandbox is not None:
            called = options.sandbox.wrapped(called, self._root, self._working_folder)
        output, errors = Tail(options.max_output_bytes), Tail(options.max_output_bytes)
        exit_code = await run_command(
            called,
            working_folder=self._working_folder,
            environment=_build_environment(options.env_allowlist, self._working_folder),
            timeout=seconds,
            output=output,
            errors=errors,
            on_output=_make_output_reporter(context, output, errors),
        )
        text = _format_streams(output, errors)
        if exit_code is None:
            raise ToolFailedError(
                f"{text}\nCommand timed out after {seconds:g}s. It was ended with all that it started."
            )
        details = {"exit_code": exit_code, "success": exit_code == 0}
        return ToolOutput(f"{text}\nExit code: {exit_code}" if exit_code else text, details=details)


def _check_text(command: str) -> None:
    if "\0" in command:
        raise ToolFailedError("A command can't contain the character NUL. Write it as \\0 for printf.")
    hidden = _HIDDEN.search(command)
    if hidden is not None:
        raise ToolFailedError(
            f"The command contains U+{ord(hidden[0]):04X}, which makes it look like another one to a reader. "
            "Leave it out, or write it with an escape such as $'\\u202e'."
        )
    if len(command) > _LONGEST_COMMAND:
        raise ToolFailedError(
            f"The command has {len(command):,} characters; at most {_LONGEST_COMMAND:,} can be run. "
            "Write it to a file and run that."
        )
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ToolFailedError("The command contains lone surrogates, which are no characters.") from error


async def _ask_about(confirm: Confirm, command: str) -> None:
    answer = confirm(command)
    if not (await answer if inspect.isawaitable(answer) else answer):
        raise ToolDeniedError("Command was not confirmed by the user.")


def _build_environment(allowlist: Collection[str] | None, working_folder: Path) -> Mapping[str, str]:
    names = os.environ if allowlist is None else (*_ALWAYS_INHERITED, *allowlist)
    return {name: os.environ[name] for name in names if name in os.environ} | {"PWD": str(working_folder)}


def _make_output_reporter(context: ToolContext[object], output: Tail, errors: Tail) -> Callable[[], None]:
    """Return a function that reports the end of the output so far, at most ten times a second."""
    next_time = 0.0

    def report() -> None:
        nonlocal next_time
        now = anyio.current_time()
        if context.is_observed and now >= next_time:
            next_time = now + _UPDATE_SECONDS
            context.report_update("".join(tail.last(_UPDATE_BYTES) for tail in (output, errors)))

    return report


def _format_streams(output: Tail, errors: Tail) -> str:
    shown, shown_errors = _format_stream(output), _format_stream(errors)
    if shown_errors:
        return f"STDOUT:\n{shown}\nSTDERR:\n{shown_errors}" if shown else f"STDERR:\n{shown_errors}"
    return shown or "(no output)"


def _format_stream(tail: Tail) -> str:
    text = tail.text().rstrip("\n")
    if not tail.dropped:
        return text
    return f"[The first {tail.dropped:,} bytes were not kept. Send the output to a file to have all of it.]\n{text}"


async def run_command(
    command: Sequence[str],
    *,
    working_folder: Path,
    environment: Mapping[str, str],
    timeout: float | None,
    output: Tail,
    errors: Tail,
    on_output: Callable[[], None],
) -> int | None:
    """Return the exit code of a command once it and all its children have ended; None if it timed out.

    The code is 128 and more for a signal. When the command ends, times out or is cancelled, its background processes
    are terminated, and killed after a second, including those that ignore signals, hold the pipes or (on Linux) have
    their own session.

    Args:
        command: The program's path and its arguments.
        working_folder: The folder in which it runs.
        environment: Its complete environment.
        timeout: The limit in seconds; None sets no limit.
        output: Collects the standard output.
        errors: Collects the standard error.
        on_output: Called after each piece of either.

    Raises:
        ToolFailedError: It can't be started.
    """
    process = await _start_command(command, working_folder, environment)
    is_in_time = False
    try:
        await checkpoint_if_cancelled()
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as tasks:
                for stream, tail in ((process.output, output), (process.errors, errors)):
                    tasks.start_soon(_read_to_tail, stream, tail, on_output)
                await process.wait()
                # All processes that could hold the pipes have ended, unless the command killed its supervisor.
                tasks.cancel_scope.deadline = anyio.current_time() + _PIPE_SECONDS
            is_in_time = True
    finally:
        await process.end()
    code = process.exit_code
    if not is_in_time or code is None:
        return None
    return 128 - code if code < 0 else code


async def _start_command(
    command: Sequence[str], working_folder: Path, environment: Mapping[str, str]
) -> SupervisedProcess:
    try:
        return await SupervisedProcess.start(command, cwd=working_folder, env=environment, keeps_orphans=True)
    except OSError as error:
        if not await anyio.Path(working_folder).is_dir():
            raise ToolFailedError(
                f"The command can't be started: the working folder {working_folder} is not there any more."
            ) from error
        raise ToolFailedError(f"The command can't be started: {error.strerror}.") from error


async def _read_to_tail(stream: ByteReceiveStream, tail: Tail, on_output: Callable[[], None]) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            tail.add(await stream.receive(_CHUNK_BYTES))
            on_output()
