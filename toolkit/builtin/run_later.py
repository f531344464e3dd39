"""Files that are executed automatically later: writing one amounts to running its text, and so needs approval.

Programs obey such files because of their names, which a table lists; git also obeys the files of a repository made by
hand, and those that its configuration names.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from toolkit.builtin.root_folder import DEEPEST, RootFolder
from toolkit.errors import ToolError, ToolFailedError
from toolkit.foreign_text import escape_in_name, is_hidden

# Programs read instructions from hidden files and folders; nothing in the following ones runs code.
_INERT = frozenset({
    ".gitignore", ".gitkeep", ".keep", ".mailmap", ".git-blame-ignore-revs", ".dockerignore", ".npmignore",
    ".eslintignore", ".prettierignore", ".stylelintignore", ".ignore", ".rgignore", ".helmignore", ".gcloudignore",
    ".vercelignore", ".editorconfig", ".env.example", ".env.sample", ".env.template", ".python-version",
    ".node-version", ".nvmrc", ".ruby-version", ".markdownlint.json", ".markdownlint.yaml", ".yamllint",
    ".yamllint.yaml", ".yamllint.yml", ".clang-format", ".nojekyll",
})  # fmt: skip
# Files without a hidden name that are executed or obeyed automatically, by the page that documents it; in lower case. A
# pattern that ends in a slash is a folder with its contents.
_RUN_LATER: Mapping[str, tuple[str, ...]] = {
    # With `objects` and `refs` beside it, a folder is a repository, whose `config` and `hooks` git runs.
    "https://git-scm.com/docs/gitrepository-layout": ("head", "gitdir", "commondir", "config.worktree"),
    "https://docs.python.org/3/library/site.html": (
        "*.pth", "sitecustomize.*", "sitecustomize/", "usercustomize.*", "usercustomize/", "pyvenv.cfg"
    ),
    "https://docs.python.org/3/using/windows.html#finding-modules": ("*._pth",),
    "https://agents.md": ("agents.md",),
    "https://code.claude.com/docs/en/memory": ("claude.md", "claude.local.md"),
    "https://geminicli.com/docs/cli/gemini-md/": ("gemini.md",),
    "https://opencode.ai/docs/config/": ("opencode.json", "opencode.jsonc"),
    "https://pip.pypa.io/en/stable/topics/configuration/": ("pip.conf", "pip.ini"),
    "https://mise.jdx.dev/configuration.html": ("mise.toml", "mise.*.toml", "mise/config*.toml"),
    "https://man7.org/linux/man-pages/man5/crontab.5.html": (
        "crontab", "cron.d/", "cron.hourly/", "cron.daily/", "cron.weekly/", "cron.monthly/"
    ),
    "https://man7.org/linux/man-pages/man8/ld.so.8.html": ("ld.so.preload",),
    "https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html": ("etc/profile", "profile.d/"),
    "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html": ("systemd/user/", "systemd/system/"),
    "https://specifications.freedesktop.org/autostart-spec/latest/": ("autostart/",),
    "https://developer.apple.com/library/archive/documentation/MacOSX/Conceptual/BPSystemStartup/": (
        "library/launchagents/", "library/launchdaemons/"
    ),
    "https://learn.microsoft.com/powershell/module/microsoft.powershell.core/about/about_profiles": (
        "profile.ps1", "*_profile.ps1"
    ),
    "https://learn.microsoft.com/windows/win32/shell/csidl": ("start menu/programs/startup/",),
    "https://code.visualstudio.com/docs/editor/workspaces": ("*.code-workspace",),
    "https://www.sublimetext.com/docs/projects.html": ("*.sublime-project",),
    "https://lefthook.dev/configuration/": (
        "lefthook*.yml", "lefthook*.yaml", "lefthook*.toml", "lefthook*.json"
    ),
    "https://www.jenkins.io/doc/book/pipeline/jenkinsfile/": ("jenkinsfile*",),
    "https://www.appveyor.com/docs/appveyor-yml/": ("appveyor.yml",),
    "https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/": (
        "azure-pipelines*.yml", "azure-pipelines*.yaml"
    ),
    "https://support.atlassian.com/bitbucket-cloud/docs/bitbucket-pipelines-configuration-reference/": (
        "bitbucket-pipelines.yml",
    ),
    "https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html": ("buildspec*.yml", "buildspec*.yaml"),
    "https://cloud.google.com/build/docs/build-config-file-schema": ("cloudbuild*.*",),
    "https://docs.netlify.com/configure-builds/file-based-configuration/": ("netlify.toml",),
    "https://vercel.com/docs/project-configuration": ("vercel.json", "vercel.*s"),
    "https://developer.apple.com/documentation/xcode/writing-custom-build-scripts": ("ci_scripts/",),
    "https://docs.codemagic.io/yaml-basic-configuration/yaml-getting-started/": ("codemagic.yaml",),
    "https://docs.bitrise.io/en/bitrise-ci/references/basics-of-bitrise-yaml.html": ("bitrise.yml", "bitrise.yaml"),
    "https://render.com/docs/blueprint-spec": ("render.yaml",),
    "https://docs.aws.amazon.com/amplify/latest/userguide/yml-specification-syntax.html": ("amplify.yml",),
    "https://docs.railway.com/reference/config-as-code": ("railway.toml", "railway.json"),
    "https://developers.cloudflare.com/workers/wrangler/configuration/": (
        "wrangler.toml", "wrangler.json", "wrangler.jsonc"
    ),
    "https://devcenter.heroku.com/articles/build-docker-images-heroku-yml": ("heroku.yml",),
    "https://zuul-ci.org/docs/zuul/latest/project-config.html": ("zuul.yaml", "zuul.d/"),
    "https://docs.screwdriver.cd/user-guide/configuration/": ("screwdriver.yaml",),
    "https://confluence.atlassian.com/bamboo/bamboo-specs-894743906.html": ("bamboo-specs/",),
}  # fmt: skip
_EXECUTED_NAMES = tuple(name for names in _RUN_LATER.values() for name in names if not name.endswith("/"))
_FOLDERS = tuple(name[:-1] for names in _RUN_LATER.values() for name in names if name.endswith("/"))
_SHORT_NAME = re.compile(r"[^.~]{1,6}~\d+(\.[^.]*)?")
_SEEMING_DOTS = str.maketrans({"\u2024": ".", "\uff0e": ".", "\ufe52": "."})
# What git looks for in a folder to treat it as a repository or as the common part of several; see gitrepository-layout.
_OF_REPOSITORIES = frozenset({"HEAD", "commondir", "config", "hooks", "objects", "refs"})
_MOST_OF_CONFIG = 200_000
_MOST_CONFIGS = 50
_LONGEST_NAME = 1_000  # no file system has longer ones
_LONGEST_PATH = 8_000  # longer ones are not examined, and need approval
_MOST_WORDS = 1_000
_MOST_ENTRIES = 1_000
_CONTINUED_OR_QUOTED = re.compile(r'\\\r?\n|\\|"')
_SECTION = re.compile(r"\s*\[\s*(\w*)[^\]]*\]")
_BETWEEN_PATHS = re.compile(r"(?:\$\w+|\$\{\w+\}|[\s';|&=$`(){}<>!,])+")


def is_executed_later(path: str) -> bool:
    """Return True if another program may execute or obey the content of a file automatically.

    Most such files have hidden names: ``.git`` (hooks, configuration) and files of direnv, editors, hook managers, CI
    services, shells, debuggers and interpreters. So every path with a hidden name counts, except a short list of those
    known to run nothing, such as ``.gitignore``. Others are listed one by one: modules that Python imports
    automatically, CI files, systemd units, instructions of coding agents. Build files (``Makefile``, ``package.json``,
    ``conftest.py``) do not count, because they run only on request.

    Args:
        path: The path relative to the root folder, with slashes. Case, invisible characters, and characters that some
            file systems drop from names make no difference.
    """
    parts = [_fold_name(part) for part in path.split("/")]
    hidden = [part for part in parts if part.startswith(".") and part not in {".", ".."} and part not in _INERT]
    if hidden or any(map(_SHORT_NAME.fullmatch, parts)):
        return True
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return any(fnmatchcase(end, name) for name in _EXECUTED_NAMES for end in (parts[-1], *ends[-2:-1])) or any(
        end == folder or end.startswith(f"{folder}/") for end in ends for folder in _FOLDERS
    )


def _fold_name(name: str) -> str:
    """Return a name folded as by the most lenient file system."""
    if not (name.isascii() and name.isprintable()):
        name = "".join(character for character in name.translate(_SEEMING_DOTS) if not is_hidden(character))
    plain = unicodedata.normalize("NFKC", name).casefold().partition(":")[0]
    return plain if plain in {".", ".."} else plain.rstrip(". \u3000")


def _is_obeyed_by_git(root: Path, path: str) -> bool:
    """Return True if a file is in a handmade repository, would complete one, or is named in a git configuration.

    Git treats any folder with ``HEAD``, ``objects`` and ``refs`` as a repository, and runs the commands in its
    ``config`` (``core.fsmonitor``, ``core.hooksPath``, filters, ``include.path``), which may name ordinary files. With
    ``commondir``, all but ``HEAD`` are in another folder.
    """
    written = Path(os.path.normpath(root / path))
    folders = [*reversed(written.parents)]
    for folder, inside in pairwise([*folders, written]):
        names = {name for name in _OF_REPOSITORIES if os.path.lexists(folder / name)}
        names |= {name for name in _OF_REPOSITORIES if name.casefold() == _fold_name(inside.name)}
        if names >= {"HEAD", "commondir"} or (names >= {"objects", "refs"} and len(names) > 2):
            return True
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - unlike Path.home, it never raises
    for top in (home, *folders):
        found = _find_git_folders(top)
        if _is_linked(written, found):
            return True
        configs = [folder / name for folder in found for name in ("config", "config.worktree")]
        if (found or top == home) and _is_configured(
            written, top, [*configs, home / ".gitconfig", home / ".config/git/config"]
        ):
            return True
    return False


def _find_git_folders(top: Path) -> list[Path]:
    """Return the folder with the repository of a working tree and the one that it shares with others, if any."""
    place = top / ".git"
    if not os.path.lexists(place):
        return []
    if not place.is_dir():  # of a submodule, another working tree, or a repository elsewhere
        place = top / _read_beginning(place).removeprefix("gitdir:").strip()
    place = Path(os.path.realpath(place))
    return [place, *[place / text.strip() for text in [_read_beginning(place / "commondir")] if text]]


def _is_linked(written: Path, git_folders: Sequence[Path]) -> bool:
    """Return True if git reads a file by a link, such as one to a hook."""
    for folder in [outer / name for outer in git_folders for name in ("", "hooks", "info")]:
        with suppress(OSError), os.scandir(folder) as entries:
            links = [entry.path for entry in islice(entries, _MOST_ENTRIES) if entry.is_symlink()]
            if any(target in (written, *written.parents) for target in map(Path, map(os.path.realpath, links))):
                return True
    return False


def _is_configured(written: Path, top: Path, configs: list[Path]) -> bool:
    """Return True if configurations, or others that they include, name a file or a folder above it.

    A command in them names a file by its name, wherever the command finds it. One that composes the name is not
    recognized.
    """
    name = re.compile(rf"(?<![\w.-]){re.escape(written.name)}(?![\w.-])")
    seen: set[Path] = set()
    room, words = _MOST_OF_CONFIG, 0
    while configs:
        config = configs.pop()
        if config in seen:
            continue
        seen.add(config)
        text = _read_beginning(config)
        room -= len(text)
        if room < 0 or len(seen) > _MOST_CONFIGS:
            return True  # too much to know all that it names
        for section, key, value in _read_settings(text):
            if written.name in value and name.search(value):
                return True
            if section in ("include", "includeif") and key == "path":
                configs.append(_locate_path(config.parent, value))
            has_hooks = key in ("hookspath", "templatedir")
            for folder in _list_named_folders(value, (top, config.parent), written, is_folder=has_hooks):
                words += 1
                if words > _MOST_WORDS or (
                    folder in written.parents and (has_hooks or top in folder.parents) and section != "safe"
                ):
                    return True
    return False


def _list_named_folders(value: str, bases: Sequence[Path], written: Path, *, is_folder: bool) -> Iterator[Path]:
    """Yield the paths in a value that may be a folder above a file."""
    if is_folder or any(name in value for name in written.parts[1:-1]):
        for word in {value, value.partition(" #")[0].rstrip(), *_BETWEEN_PATHS.split(value)}:
            if is_folder or word.rstrip("/.").rpartition("/")[2] in written.parts:
                yield from (_locate_path(base, word) for base in bases)


def _locate_path(base: Path, path: str) -> Path:
    return Path(os.path.normpath(base / os.path.expanduser(path)))  # noqa: PTH111 - it never raises


def _read_settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, the key and the value of each setting, with comments."""
    section = ""
    for line in _CONTINUED_OR_QUOTED.sub("", text).split("\n"):
        header = _SECTION.match(line)
        if header is not None:
            section = header[1].lower()
        key, _, value = line[header.end() if header else 0 :].partition("=")
        if value:
            yield section, key.strip().lower(), value.strip()


def _read_beginning(path: Path) -> str:
    """Return the beginning of a regular file, a byte longer than a configuration may be; empty if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with os.fdopen(descriptor, "rb") as file:
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return file.read(_MOST_OF_CONFIG + 1).decode("utf-8", "replace").replace("\0", "") if is_regular else ""


def asks_before_writing(folder: RootFolder) -> Callable[[Mapping[str, Any]], str]:
    """Return a function of a call's arguments that returns why writing needs approval; empty if it does not."""

    def find_reason(arguments: Mapping[str, Any]) -> str:
        try:
            path = folder.spell(str(arguments["path"]))
        except ToolError:
            return ""  # the call fails, with the reason
        parts = path.split("/")
        if len(parts) > DEEPEST + 1 or max(map(len, parts)) > _LONGEST_NAME:
            return ""  # it can't be opened
        if len(path) <= _LONGEST_PATH and not _needs_approval(folder, path):
            return ""
        return f"Writing '{escape_in_name(path)}' needs approval: something may run it later without being asked to."

    return find_reason


def _needs_approval(folder: RootFolder, path: str) -> bool:
    return is_executed_later(path) or _is_obeyed_by_git(folder.path, path)


def guard_link(folder: RootFolder, path: str) -> Callable[[str], None]:
    """Return a check that refuses the target of a path if it needs approval and the path leads there through a link."""
    given = folder.spell(path)

    def check(target: str) -> None:
        if target != given and _needs_approval(folder, target):
            raise ToolFailedError(
                f"'{escape_in_name(path)}' leads through a link to '{escape_in_name(target)}'. Give that path itself, "
                "so that it can be approved. Nothing was changed."
            )

    return check
