"""Files that something will run later although nobody asks for it: writing one is running what is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from toolkit.builtin.root_folder import Found, RootFolder
from toolkit.errors import ToolError, ToolFailedError
from toolkit.visible_text import escape_in_name, is_hidden

__all__ = ["asks_before_writing", "guard_link", "is_executed_later"]

# Programs look for what they shall do in hidden files and folders; nothing in these leads one to run code.
_INERT = frozenset({
    ".github", ".gitignore", ".gitkeep", ".keep", ".mailmap", ".git-blame-ignore-revs", ".dockerignore", ".npmignore",
    ".eslintignore", ".prettierignore", ".stylelintignore", ".ignore", ".rgignore", ".helmignore", ".gcloudignore",
    ".vercelignore", ".editorconfig", ".env.example", ".env.sample", ".env.template", ".python-version",
    ".node-version", ".nvmrc", ".ruby-version", ".markdownlint.json", ".markdownlint.yaml", ".yamllint",
    ".yamllint.yaml", ".yamllint.yml", ".clang-format", ".nojekyll",
})  # fmt: skip
# HEAD makes a folder of ordinary files a repository, whose configuration git runs.
_EXECUTED_NAMES = (
    "head", "*.pth", "sitecustomize.py", "usercustomize.py", "pip.conf", "mise.toml", "mise.*.toml", "crontab",
    "*.code-workspace", "*.sublime-project", "jenkinsfile*", "lefthook*.yml", "lefthook*.yaml", "lefthook*.toml",
    "lefthook*.json", "appveyor.yml", "azure-pipelines*.yml", "azure-pipelines*.yaml", "bitbucket-pipelines.yml",
    "buildspec*.yml", "buildspec*.yaml", "cloudbuild*.yml", "cloudbuild*.yaml",
)  # fmt: skip
_FOLDERS = (
    ".github/workflows", ".github/actions", ".github/hooks", "library/launchagents", "library/launchdaemons",
    "systemd/user", "systemd/system", "autostart",
)  # fmt: skip
_SHORT_NAME = re.compile(r"[^.~]{1,6}~\d+(\.[^.]*)?")
_SEEMING_DOTS = str.maketrans({"\u2024": ".", "\uff0e": ".", "\ufe52": "."})


def is_executed_later(path: str) -> bool:
    """Return whether something may run what stands in a file, or be led by it, without being asked to.

    Programs look for such files under hidden names: ``.git`` (hooks, configuration), direnv, editors, hook managers, CI
    services, shells, debuggers, interpreters. So every path with a hidden name in it counts, but for the short list of
    those that are known to run nothing, such as ``.gitignore``. Files that are run without being hidden
    are named one by one: modules that Python imports by itself, CI files, units of systemd. Build
    files (``Makefile``, ``package.json``, ``conftest.py``) are not among them: who runs those has asked for it.

    Args:
        path: From the root folder on, with slashes. Case, characters that are not seen, and what some file systems
            leave out of names make no difference.
    """
    parts = [_fold_name(part) for part in path.split("/")]
    if any(_is_hidden_name(part) or _SHORT_NAME.fullmatch(part) for part in parts):
        return True
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return any(fnmatchcase(parts[-1], name) for name in _EXECUTED_NAMES) or any(
        end == folder or end.startswith(f"{folder}/") for end in ends for folder in _FOLDERS
    )


def _is_hidden_name(name: str) -> bool:
    """Return whether a folded name is hidden, and none of those that run nothing."""
    return name.startswith(".") and name not in {"", ".", ".."} and name not in _INERT


def _fold_name(name: str) -> str:
    """Return a name as the least exact of file systems takes it."""
    seen = "".join(character for character in name.translate(_SEEMING_DOTS) if not is_hidden(character))
    plain = unicodedata.normalize("NFKC", seen).casefold().partition(":")[0]
    return plain if plain in {".", ".."} else plain.rstrip(". \u3000")


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
