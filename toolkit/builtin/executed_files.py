"""Files that something will run later although nobody asks for it: writing one is running what is written."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from toolkit.builtin.root_folder import Found, RootFolder
from toolkit.errors import ToolError, ToolFailedError
from toolkit.visible_text import escape_in_name

__all__ = ["asks_before_writing", "guard_link", "is_executed_later"]

_FOLDERS = frozenset({
    ".git", ".husky", ".circleci", ".buildkite", ".woodpecker", ".vscode", ".idea", ".ssh", ".direnv", ".claude",
    ".cursor", ".devcontainer",
})  # fmt: skip
_NAMES = frozenset({
    ".envrc", ".gitconfig", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", "lefthook.yaml",
    ".gitlab-ci.yml", ".travis.yml", ".drone.yml", ".woodpecker.yml", ".cirrus.yml", "jenkinsfile", "appveyor.yml",
    "azure-pipelines.yml", "bitbucket-pipelines.yml", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout",
    ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc",
    ".login", ".inputrc", ".vimrc", ".exrc", ".nvimrc", ".gvimrc", ".emacs", ".dir-locals.el", ".gdbinit", ".lldbinit",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pypirc", "pip.conf", ".mcp.json", ".netrc",
    "sitecustomize.py", "usercustomize.py", ".tool-versions", "mise.toml", ".mise.toml", "crontab",
})  # fmt: skip
_PATHS = (
    "*.pth", ".github/workflows/*", ".github/actions/*", ".gitea/workflows/*", ".forgejo/workflows/*",
    ".config/fish/*", ".config/autostart/*", ".config/systemd/*", ".config/git/*", ".cargo/config*", ".yarn/*",
)  # fmt: skip


def is_executed_later(path: str) -> bool:
    """Return whether something runs what stands in a file, or is led by it, without being asked to.

    These are what is in ``.git`` (hooks, configuration), what direnv, editors, hook managers and CI services read,
    profiles of shells, and modules that Python imports by itself. Build files (``Makefile``, ``package.json``,
    ``conftest.py``) are not among them: who runs those has asked for it.

    Args:
        path: From the root folder on, with slashes. Case and characters that are not seen make no difference, as on
            some file systems.
    """
    visible = "".join(character for character in path if unicodedata.category(character) != "Cf")
    parts = visible.casefold().split("/")
    if not _FOLDERS.isdisjoint(parts) or parts[-1] in _NAMES:
        return True
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return any(fnmatchcase(end, pattern) for end in ends for pattern in _PATHS)


def asks_before_writing(folder: RootFolder) -> Callable[[Mapping[str, Any]], str]:
    """Return what says, by the arguments of a call, why somebody must agree before a file is written; else nothing."""

    def find_reason(arguments: Mapping[str, Any]) -> str:
        try:
            path = folder.spell(str(arguments["path"]))
        except ToolError:
            return ""  # the call fails, and says why
        if not is_executed_later(path):
            return ""
        return f"Writing '{escape_in_name(path)}' needs approval: something may run it later without being asked to."

    return find_reason


def guard_link(folder: RootFolder, path: str) -> Callable[[Found], None]:
    """Return what refuses a path that leads through a link to a file which would have been asked about."""

    def check(found: Found) -> None:
        if is_executed_later(found.path) and not is_executed_later(folder.spell(path)):
            raise ToolFailedError(
                f"'{path}' leads through a link to '{escape_in_name(found.path)}'. Give that path itself, "
                "so that it can be approved. Nothing was changed."
            )

    return check
