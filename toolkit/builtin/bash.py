"""`bash`: one command in a shell, with a time, rules on what may run, and nothing left behind."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import anyio
from anyio import to_thread
from pydantic import Field

from toolkit.builtin.command_rules import DEFAULT_DENY, CommandPattern, CommandRules
from toolkit.builtin.file_tree import require_extra
from toolkit.builtin.processes import Tail, run_command
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.sandbox import Bubblewrap
from toolkit.errors import ConfigurationError, ToolDeniedError, ToolFailedError
from toolkit.tools.context import ToolContext
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.output import ToolOutput
from toolkit.tools.settings import FUNCTION, Kind, check_settings, to_seconds

__all__ = ["BashOptions", "Confirm", "bash_tool"]

Confirm: TypeAlias = Callable[[str], bool | Awaitable[bool]]
"""Given a command; False refuses it. Raising refuses it, too."""

_ALWAYS_INHERITED = ("PATH", "HOME", "PWD")
_UPDATE_SECONDS = 0.1
_UPDATE_BYTES = 4_000
_LONGEST_COMMAND = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BashOptions:
    """How commands run.

    Args:
        timeout: Seconds for one command; a call may ask for less. None sets no limit.
        deny: What must not run; see `CommandRules` for what a pattern means, and what it can't.
        allow: Where it is not None, all that may run; likewise.
        confirm: Asked about each command that the rules let pass.
        env_allowlist: The only variables that commands inherit, besides PATH, HOME and PWD; None lets them inherit
            all, so also what keys are in the environment.
        working_folder: Where commands start, relative to the root. They can go elsewhere: only a sandbox holds them.
        sandbox: Runs every command in bubblewrap; None runs it with all rights of this process.
        max_output_bytes: How much of each stream is kept, from its end; what came before is gone and counted.
    """

    timeout: float | None = 120
    deny: Sequence[CommandPattern] = DEFAULT_DENY
    allow: Sequence[CommandPattern] | None = None
    confirm: Confirm | None = None
    env_allowlist: Sequence[str] | None = None
    working_folder: str = "."
    sandbox: Bubblewrap | None = None
    max_output_bytes: int = 4_000_000

    def __post_init__(self) -> None:
        check_settings(self, _KINDS, {"max_output_bytes": 1})
        if isinstance(self.env_allowlist, str):
            raise ConfigurationError(f"env_allowlist must be several names, such as [{self.env_allowlist!r}]")
        # A timedelta is taken too; seconds are kept.
        object.__setattr__(self, "timeout", to_seconds(self.timeout, "timeout"))


_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "confirm": (FUNCTION, None),
    "env_allowlist": (Collection, None),
    "working_folder": (str,),
    "sandbox": (Bubblewrap, None),
    "max_output_bytes": (int,),
}


def bash_tool(
    root: RootFolder | str | os.PathLike[str], options: BashOptions | None = None
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``bash``: it runs a command and gives its output and its exit code, whatever that is.

    The output streams as updates, its last lines each time. The end of a long output is what the model reads; with a
    `ResultStore` in the loop's configuration it can read the rest by ``read_result``. When the command ends, when its
    time is over, or when the call is cancelled, all processes that it has started are ended, and killed a second later:
    also those that ignore signals, hold its pipes, or on Linux have made sessions of their own. What is out to get away
    can: from another session it kills its supervisor first, or has a service start it. Only a sandbox holds that.
    Needs the extra ``coding``, and a POSIX system.

    Args:
        root: Where commands start; they are not held in it without a sandbox.
        options: Rules and limits; None takes the defaults of `BashOptions`.

    Raises:
        ConfigurationError: There is no such folder, a package is missing, or the sandbox does not work here.
    """
    require_extra("bash", "tree_sitter", "tree_sitter_bash")
    settings = options or BashOptions()
    folder = root if isinstance(root, RootFolder) else RootFolder(root)
    rules = CommandRules(settings.deny, settings.allow)
    shell = shutil.which("bash") or shutil.which("sh")
    if shell is None:
        raise ConfigurationError("the tool bash needs a shell, and there is neither bash nor sh in PATH")
    try:
        with folder.open_folder(settings.working_folder) as (_, found):
            working_folder = folder.path.joinpath(*found.parts)
    except ToolFailedError as error:
        raise ConfigurationError(f"the working folder can't be used: {error.message}") from error
    if settings.sandbox is not None:
        settings.sandbox.check(folder.path)

    async def bash(
        context: ToolContext[object],
        command: Annotated[str, Field(min_length=1, description="What bash shall run, in the working folder.")],
        timeout: Annotated[float | None, Field(gt=0, description="Seconds that it may take.")] = None,
    ) -> ToolOutput:
        """Run a command in bash; each starts anew in the working folder. What it leaves in the background is ended."""
        _check_text(command)
        await to_thread.run_sync(rules.check, command, abandon_on_cancel=True)  # a long script takes a while
        if settings.confirm is not None and not await _is_confirmed(settings.confirm, command):
            raise ToolDeniedError("Command was not confirmed by the user.")
        seconds = min(filter(None, (timeout, settings.timeout)), default=None)
        called = [shell, "-c", command]
        if settings.sandbox is not None:
            called = settings.sandbox.wrapped(called, folder.path, working_folder)
        output, errors = Tail(settings.max_output_bytes), Tail(settings.max_output_bytes)
        exit_code = await run_command(
            called,
            working_folder=working_folder,
            environment=_environment(settings.env_allowlist, working_folder),
            timeout=seconds,
            output=output,
            errors=errors,
            told=_reporter(context, output, errors),
        )
        text = _text(output, errors)
        if exit_code is None:
            raise ToolFailedError(
                f"{text}\nCommand timed out after {seconds:g}s. It was ended with all that it started."
            )
        details = {"exit_code": exit_code, "success": exit_code == 0}
        return ToolOutput(f"{text}\nExit code: {exit_code}" if exit_code else text, details=details)

    make = tool_with_ctx(keep_output="tail", tags={"execute"}, should_cache=False)
    return make(bash)


def _check_text(command: str) -> None:
    if "\0" in command:
        raise ToolFailedError("A command can't contain the character NUL. Write it as \\0 for printf.")
    if len(command) > _LONGEST_COMMAND:
        raise ToolFailedError(
            f"The command has {len(command):,} characters; at most {_LONGEST_COMMAND:,} can be run. "
            "Write it to a file and run that."
        )
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ToolFailedError("The command contains lone surrogates, which are no characters.") from error


async def _is_confirmed(confirm: Confirm, command: str) -> bool:
    answer = confirm(command)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _environment(allowlist: Sequence[str] | None, working_folder: Path) -> Mapping[str, str]:
    names = os.environ if allowlist is None else (*_ALWAYS_INHERITED, *allowlist)
    return {name: os.environ[name] for name in names if name in os.environ} | {"PWD": str(working_folder)}


def _reporter(context: ToolContext[object], output: Tail, errors: Tail) -> Callable[[], None]:
    """Return what shows the end of what there is so far, at most ten times a second."""
    next_time = 0.0

    def report() -> None:
        nonlocal next_time
        now = anyio.current_time()
        if context.is_observed and now >= next_time:
            next_time = now + _UPDATE_SECONDS
            context.report_update("".join(tail.last(_UPDATE_BYTES) for tail in (output, errors)))

    return report


def _text(output: Tail, errors: Tail) -> str:
    said, complained = _stream(output), _stream(errors)
    if complained:
        return f"STDOUT:\n{said}\nSTDERR:\n{complained}" if said else f"STDERR:\n{complained}"
    return said or "(no output)"


def _stream(tail: Tail) -> str:
    text = tail.text().rstrip("\n")
    if not tail.dropped:
        return text
    return f"[The first {tail.dropped:,} bytes were not kept. Send the output to a file to have all of it.]\n{text}"
