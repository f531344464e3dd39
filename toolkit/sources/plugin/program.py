"""A plugin's program: how it is started, and what would help where it can't be."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.errors import PluginError
from toolkit.runtime.processes import SupervisedProcess
from toolkit.secrets import Redact
from toolkit.sources.line_process import LineProcess

__all__ = ["start_plugin"]

_logger = logging.getLogger("toolkit.sources.plugin")


async def start_plugin(
    name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, redact: Redact
) -> LineProcess:
    """Start a plugin, with nothing in its environment but `env`.

    Raises:
        PluginError: It can't be started; says what would help.
    """
    try:
        process = await SupervisedProcess.start(command, env=env, cwd=cwd)
    except FileNotFoundError as error:
        raise PluginError(f"plugin {name}: {_explain_missing(command[0], cwd)}") from error
    except PermissionError as error:
        raise PluginError(
            f"plugin {name}: '{command[0]}' is not executable: run `chmod +x` on it, or start it by its "
            f"interpreter, as in plugin_tools('python3', ['{command[0]}'])"
        ) from error
    except OSError as error:
        raise PluginError(
            f"plugin {name}: '{command[0]}' can't be started ({error.strerror}): a script needs a first line such "
            "as #!/usr/bin/env python3, or its interpreter in front"
        ) from error
    return LineProcess(name, process, redact=redact, logger=_logger)


def _explain_missing(program: str, cwd: Path | None) -> str:
    if cwd is not None and not cwd.is_dir():
        return f"there is no folder '{cwd}' to start it in"
    if Path(program).exists():
        return f"the first line of '{program}' names an interpreter that is not there"
    return f"there is no program '{program}'"
