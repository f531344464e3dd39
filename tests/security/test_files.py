"""Files: names that look like others, files that something runs later, and changes that come in between."""

import json
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.builtin.calls import call, error_of, text_of
from tests.loop_turns import LONGEST_TURN, longest_turn
from toolkit import ApprovalRequest, FunctionTool, ToolCall, ToolRegistry
from toolkit.builtin import (
    RootFolder,
    apply_patch_tool,
    edit_file_tool,
    is_executed_later,
    list_files_tool,
    memory_tool,
    read_file_tool,
    search_tool,
    write_file_tool,
)
from toolkit.builtin.root_folder import exchange_files
from toolkit.errors import ToolFailedError
from toolkit.schema.nodes import is_object

pytestmark = pytest.mark.anyio

HIDDEN_NAMES = {
    "a line break": "a\nb.txt",
    "a carriage return": "a\rb.txt",
    "an escape code": "a\x1b[2K\x1b[1Gb.txt",
    "a backspace": "secret\x08\x08\x08\x08\x08\x08a.txt",
    "the other direction": "a\u202etxt.exe",
    "an isolate": "a\u2066b\u2069.txt",
    "a mark": "a\u200eb.txt",
    "no width": "a\u200bb.txt",
    "a joiner": "a\u2060b.txt",
    "a line separator": "a\u2028b.txt",
    "a tag": "a\U000e0041b.txt",
    "a soft hyphen": "a\u00adb.txt",
    "a byte that is no text": "a\udcffb.txt",
    "a control of the second kind": "a\x9b2Jb.txt",
    "words of the tool": "a.txt\n[The first 1 files; there are more.]",
    "a quote within": 'a"\n"b.txt',
    "a letter that is drawn as nothing": "a\u3164b.txt",
    "half a letter that is drawn as nothing": "a\u115fb.txt",
    "a selector": "a\ufe00b.txt",
    "a joiner of graphemes": "a\u034fb.txt",
    "a character that is none yet": "a\u0378b.txt",
}


@pytest.mark.parametrize("name", HIDDEN_NAMES)
async def test_a_name_passes_for_no_other(name: str, tmp_path: Path) -> None:
    (tmp_path / HIDDEN_NAMES[name]).write_text("needle")
    listed = await text_of(list_files_tool(tmp_path))
    found = [await text_of(search_tool(tmp_path, with_ripgrep=each), pattern="needle") for each in (False, True)]
    near = await error_of(
        read_file_tool(tmp_path), path=HIDDEN_NAMES[name][:-1].encode("utf-8", "ignore").decode() + "X"
    )
    for text in (listed, *found, near):
        assert not set(text) & set("\u3164\u115f\ufe00\u034f"), ascii(text)
        assert all(character.isprintable() or character == "\n" for character in text), ascii(text)
    assert listed.count("\n") == 0
    assert listed.startswith('"')
    assert listed.endswith('"')


IN_MESSAGES: list[tuple[Callable[[Path], FunctionTool[object, ..., Any]], dict[str, object]]] = [
    (edit_file_tool, {"old_text": "nothing", "new_text": "x"}),
    (edit_file_tool, {"old_text": "x", "new_text": "x"}),
    (edit_file_tool, {"old_text": "w", "new_text": "x"}),
    (edit_file_tool, {"edits": [{"old_text": "xab", "new_text": ""}, {"old_text": "abc", "new_text": ""}]}),
    (edit_file_tool, {"old_text": "x", "new_text": "y"}),
    (list_files_tool, {}),
    (search_tool, {"pattern": "x"}),
    (write_file_tool, {"content": "x"}),
    (apply_patch_tool, {"type": "update_file", "diff": "-\x1b\u202e"}),
    (apply_patch_tool, {"type": "update_file", "diff": "@@ \x1b\n@@ \u202e\n-x"}),
]


@pytest.mark.parametrize("place", ["", "folder", "large", "link"])
@pytest.mark.parametrize(("make", "arguments"), IN_MESSAGES)
async def test_no_message_has_a_name_with_what_is_hidden_in_it(
    make: Callable[[Path], FunctionTool[object, ..., Any]], arguments: dict[str, object], place: str, tmp_path: Path
) -> None:
    name = f"{place}a\x1b[2K\u202e\rb"
    (tmp_path / "a\x1b[2K\u202e\rb").write_text("xabc ww\n")
    (tmp_path / "foldera\x1b[2K\u202e\rb").mkdir()
    (tmp_path / "linka\x1b[2K\u202e\rb").symlink_to(".git/x")
    (tmp_path / ".git").mkdir()
    with (tmp_path / "largea\x1b[2K\u202e\rb").open("wb") as file:
        file.truncate(11_000_000)
    tool = make(tmp_path)
    result = await call(tool, path=name, **arguments)
    diff: str = result.details.get("diff", "") if is_object(result.details) else ""
    assert all(character.isprintable() or character == "\n" for character in f"{result.text}{diff}"), ascii(result.text)


async def test_a_name_in_quotes_passes_for_no_escaped_one(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("x")
    (tmp_path / '"a\\nb"').write_text("x")
    assert len({*(await text_of(list_files_tool(tmp_path))).split("\n")}) == 2


HIDDEN_WORDS = [
    (search_tool, {"pattern": "nothing\u202esuch"}),
    (search_tool, {"pattern": "(\u202e\x1b[2K"}),
    (search_tool, {"pattern": "x", "include": "[\u2066"}),
    (list_files_tool, {"pattern": "{\u202e,["}),
    (read_file_tool, {"path": "plain", "encoding": "no\u202e\x1bsuch"}),
]


@pytest.mark.parametrize(("make", "arguments"), HIDDEN_WORDS)
async def test_what_a_model_wrote_is_repeated_with_what_is_hidden_in_it(
    make: Callable[[Path], FunctionTool[object, ..., Any]], arguments: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("x")
    tool = make(tmp_path)
    call = ToolCall("1", tool.definition.name, json.dumps(arguments))
    text = (await ToolRegistry[object]([tool]).execute(call, object())).text
    assert all(character.isprintable() or character == "\n" for character in text), ascii(text)


@pytest.mark.parametrize("name", ["ünï.txt", "日本.txt", "a b.txt", "a'b.txt", "naïve file.txt", "👍🏽.txt"])
async def test_a_name_of_characters_that_are_seen_is_shown_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("needle")
    assert await text_of(list_files_tool(tmp_path)) == name


EXECUTED = [
    ".git/config", ".git/hooks/pre-commit", ".git", "sub/.git/hooks/x", ".GIT/config", ".g\u200cit/config", ".envrc",
    "a/.envrc", ".github/workflows/ci.yml", "x/.github/workflows/ci.yml", ".gitlab-ci.yml", "Jenkinsfile", ".bashrc",
    ".zshrc", ".profile", ".ssh/authorized_keys", ".vscode/tasks.json", ".husky/pre-commit", ".pre-commit-config.yaml",
    "sitecustomize.py", "lib/python3/site-packages/x.pth", ".config/autostart/x.desktop", ".npmrc", ".mcp.json",
    ".git/modules/x/config", ".vimrc", ".devcontainer/devcontainer.json", ".cargo/config.toml", ".gitconfig",
    "./.git/config", "a/../.git/config", ".//.git//config", "{root}/.git/config", ".git./config", ".git \u3000/config",
    ".\uff47it/config", "\uff0egit/config", "GIT~1/config", ".git::$INDEX_ALLOCATION/config", ".gi\u034ft/config",
    ".env",
    ".env.local", ".gitattributes", ".gitmodules", ".devcontainer.json", ".lefthook.yml", "lefthook-local.yml",
    ".pythonrc.py", ".ipython/profile_default/startup/a.py", ".pdbrc", ".nvim.lua", ".config/nvim/init.lua",
    ".emacs.d/init.el", ".tmux.conf", ".irbrc", ".Rprofile", ".ghci", ".mailcap", ".forward", ".xinitrc",
    ".local/share/systemd/user/a.service", "systemd/user/a.service", "Library/LaunchAgents/a.plist", ".zed/tasks.json",
    "x.code-workspace", ".helix/languages.toml", ".gitpod.yml", "buildspec.yml", "cloudbuild.yaml", ".hg/hgrc",
    ".svn/hooks/pre-commit", ".jj/repo/config.toml", ".direnvrc", ".mise/config.toml", ".bundle/config", ".rspec",
    ".curlrc", ".wgetrc", ".aws/config", ".kube/config", ".docker/config.json", ".mvn/jvm.config", ".condarc",
    ".logout", ".pam_environment", ".eslintrc.js", ".prettierrc.js", ".coveragerc", ".flake8", ".unheard-of/x",
    "HEAD", "sub/HEAD", "Jenkinsfile.release", "pyvenv.cfg", "env/pyvenv.cfg", "etc/profile.d/a.sh", "cron.daily/a",
    "etc/ld.so.preload", "Microsoft.PowerShell_profile.ps1", "netlify.toml", "commondir", "gitdir",
    "ios/ci_scripts/ci_post_clone.sh", "codemagic.yaml", "bitrise.yml", "render.yaml", "cloudbuild.json", "vercel.ts",
    "CLAUDE.md", "sub/AGENTS.md", "GEMINI.md", "CLAUDE.local.md", ".github/copilot-instructions.md", "opencode.json",
    ".github/instructions/x.instructions.md", ".github/dependabot.yml", ".github/README.md", "mise/config.toml",
    "sitecustomize/__init__.py", "lib/usercustomize/__init__.py", "sitecustomize.pyc", "python311._pth",
    "config.worktree", "amplify.yml", "railway.toml", "wrangler.jsonc", "heroku.yml", "zuul.d/a.yaml",
    "screwdriver.yaml", "bamboo-specs/bamboo.yaml",
]  # fmt: skip
ORDINARY = [
    "main.py", "Makefile", ".gitignore", "git/config", "docs/bashrc.md", "package.json", "x.path", "app.json",
    "src/config", "envrc", ".env.example", "workflows/ci.yml", ".editorconfig", ".dockerignore", "sub/.gitkeep",
    "a.b", "x/...", "overhead.py", "Info.plist", "deploy/app.service", "~1",
    "src/head.py",
]  # fmt: skip


async def ask_about(tool: FunctionTool[object, ..., Any], approved: bool = False, **arguments: object) -> str:
    asked: list[str] = []
    registry = ToolRegistry[object]([tool])

    def approve(request: Any) -> bool:
        asked.append(request.reason)
        return approved

    result = await registry.execute(
        ToolCall("1", tool.definition.name, json.dumps(arguments)), object(), approve=approve
    )
    assert result.is_error != approved, result.text
    return asked[0]


@pytest.mark.parametrize("path", EXECUTED)
async def test_what_something_runs_later_is_asked_about(path: str, tmp_path: Path) -> None:
    spelled = path.replace("{root}", str(tmp_path))
    assert "something may run it later" in await ask_about(write_file_tool(tmp_path), path=spelled, content="x")
    said = await error_of(write_file_tool(tmp_path), path=spelled, content="x")
    assert "needs approval" in said
    assert not any(os.scandir(tmp_path))
    target = tmp_path / "plain"
    target.write_text("x")
    assert "something may run it later" in await ask_about(
        edit_file_tool(tmp_path), path=spelled, old_text="x", new_text="y"
    )


@pytest.mark.parametrize("path", ORDINARY)
async def test_an_ordinary_file_is_written_without_a_question(path: str, tmp_path: Path) -> None:
    assert not is_executed_later(path)
    await text_of(write_file_tool(tmp_path), path=path, content="x")


REPOSITORY = {"r/HEAD": "ref: refs/heads/main", "r/objects/": "", "r/refs/": ""}
CONFIG = """[core]
\tfsmonitor = "tools/watch.sh --once"
\thooksPath = scripts/hooks
[include]
\tpath = ../shared/git.inc
[filter "x"]
\tclean = python3 'tools/clean.py' %f
[alias]
\tst = !sh tools/st.sh
"""
WORKING_TREE = {"m/.git/worktrees/w/commondir": "../..\n", "m/.git/config": CONFIG}
MADE_BY_HAND: list[tuple[Mapping[str, str], str, bool]] = [
    (REPOSITORY, "r/config", True),
    (REPOSITORY, "r/hooks/pre-commit", True),
    (REPOSITORY, "r/info/attributes", True),
    (REPOSITORY, "r/sub/deep/main.py", True),
    (REPOSITORY, "r2/config", False),
    ({"r/HEAD": "x", "r/objects/a": ""}, "r/refs/heads/main", True),
    ({"r/HEAD": "x", "r/refs/a": ""}, "r/objects/x", True),
    ({"r/HEAD": "x", "r/refs/a": ""}, "r/OBJECTS/x", True),
    ({"HEAD": "x", "objects/": "", "refs/": ""}, "config", True),
    ({"HEAD": "x", "objects/": "", "refs/": ""}, "main.py", True),
    ({"r/objects/": "", "r/refs/": ""}, "r/config", True),  # several repositories may share it
    ({"r/objects/": "", "r/refs/": ""}, "r/hooks/post-checkout", True),
    ({"r/objects/": "", "r/refs/": ""}, "r/main.py", False),
    ({"r/HEAD": "x", "r/commondir": "../c"}, "r/info/x", True),
    ({".git/config": CONFIG}, "tools/watch.sh", True),
    ({".git/config": CONFIG}, "scripts/hooks/pre-commit", True),
    ({".git/config": CONFIG}, "shared/git.inc", True),
    ({".git/config": CONFIG}, "tools/clean.py", True),
    ({".git/config": CONFIG}, "tools/st.sh", True),
    ({".git/config": CONFIG}, "tools/other.py", False),
    ({"sub/.git/config": CONFIG}, "sub/tools/watch.sh", True),
    ({"sub/.git/config": CONFIG}, "tools/watch.sh", False),
    *[
        ({".git/config": f"[core]\n\tfsmonitor = {command}\n"}, "tools/x.sh", True)
        for command in (
            '"\\"$PWD\\"/tools/x.sh"',
            "sh ${PWD}/tools/x.sh",
            "!tools/x.sh",
            'sh -c \\"tools/x.sh\\"',
            "`tools/x.sh`",
            "{tools/x.sh,y}",
            "sh<tools/x.sh",
            "cd tools && ./x.sh",
            "sh -ctools/x.sh",
            "sh too\\\nls/x.sh",
            "PATH=tools x",
        )
    ],
    ({".git/config": '[filter "a#b"] clean = tools/x.sh'}, "tools/x.sh", True),
    ({".git/config": "[core]\n\thooksPath = my hooks # mine\n"}, "my hooks/pre-push", True),
    ({".git/config": '[core]\n\thooksPath = scr"ipts"/hooks\n'}, "scripts/hooks/pre-push", True),
    ({".git/config": "[core]\n\thooksPath = .\n"}, "pre-push", True),
    ({".git/config": "[core]\n\thooksPath = hooks\n" + "# x\n" * 90_000}, "main.py", True),
    ({".git/config": "[include]\n\tpath = ../a\n", "a": "[include]\n\tpath = b\n", "b": CONFIG}, "tools/st.sh", True),
    ({".git/config": "[include]\n\tpath = ../a\n", "a": "[include]\n\tpath = b\n"}, "b", True),
    ({".git/config": '[includeIf "onbranch:x"]\n\tpath = ../a\n', "a": CONFIG}, "tools/st.sh", True),
    ({".git/config": "[include]\n\tpath = config\n" * 9}, "main.py", False),
    ({"w/.git": "gitdir: ../m/.git/worktrees/w\n", **WORKING_TREE}, "w/scripts/hooks/pre-push", True),
    ({"w/.git": "gitdir: ../m/.git/worktrees/w\n", **WORKING_TREE}, "w/tools/clean.py", True),
    ({"w/.git": "gitdir: ../m/.git/worktrees/w\n", **WORKING_TREE}, "w/main.py", False),
    ({"s/.git": "gitdir: ../.git/modules/s\n", ".git/modules/s/config": CONFIG}, "s/tools/st.sh", True),
    ({".git": "gitdir: store\n", "store/config": CONFIG}, "tools/st.sh", True),
    ({".git": "-> store", "store/config": CONFIG}, "tools/st.sh", True),
    ({".git/hooks/pre-push": "-> ../../scripts/check.sh"}, "scripts/check.sh", True),
    ({".git/hooks": "-> ../scripts"}, "scripts/pre-push", True),
    ({".git/config": "-> ../settings"}, "settings", True),
    ({".git/info/attributes": "-> ../../attributes"}, "attributes", True),
    ({".git": "gitdir: \0"}, "main.py", False),
    ({".git/config": '[core]\n\tbare = false\n[remote "o"]\n\turl = .\n'}, "src/main.py", False),
]


@pytest.mark.parametrize(("files", "path", "is_run"), MADE_BY_HAND)
async def test_what_git_would_run_or_obey_is_asked_about(
    files: Mapping[str, str], path: str, is_run: bool, tmp_path: Path
) -> None:
    for name, text in files.items():
        place = tmp_path / name
        (place if name.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            place.symlink_to(text.removeprefix("-> "))
        elif not name.endswith("/"):
            place.write_text(text)
    if is_run:
        assert "something may run it later" in await ask_about(write_file_tool(tmp_path), path=path, content="x")
        assert not (tmp_path / path).exists()
    else:
        await text_of(write_file_tool(tmp_path), path=path, content="x")


OF_USERS = [
    ("[core]\n\thooksPath = ~/hooks\n", "hooks/pre-push", True),
    ("[init]\n\ttemplateDir = ~/template\n", "template/hooks/pre-push", True),
    ("[core]\n\thooksPath = checks\n", "project/checks/pre-push", True),
    ("[alias]\n\tx = !~/scripts/x.sh\n", "scripts/x.sh", True),
    ("[safe]\n\tdirectory = {home}/project\n[user]\n\tname = a\n", "project/main.py", False),
]


@pytest.mark.parametrize(("config", "path", "is_run"), OF_USERS)
async def test_what_the_configuration_of_a_user_names_is_asked_about(
    config: str, path: str, is_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(config.replace("{home}", str(tmp_path)))
    (tmp_path / "project/.git").mkdir(parents=True)
    if is_run:
        assert "something may run it later" in await ask_about(write_file_tool(tmp_path), path=path, content="x")
    else:
        await text_of(write_file_tool(tmp_path), path=path, content="x")


@pytest.mark.parametrize("config", ["a pipe", "an endless file", "many settings", "a long name"])
async def test_a_configuration_that_never_ends_holds_nothing(config: str, tmp_path: Path) -> None:
    place = tmp_path / ".git/config"
    place.parent.mkdir()
    match config:
        case "a pipe":
            os.mkfifo(place)
        case "an endless file":
            place.symlink_to("/dev/zero")
        case "many settings":
            place.write_text("[x]\n" + "a = b c;d\n" * 18_000)
        case _:
            place.write_text(f"[x]\na = {'../a/' * 38_000}\n")
    with anyio.fail_after(30):
        await text_of(write_file_tool(tmp_path), path="main.py", content="x")


LONG_CALLS: dict[str, dict[str, object]] = {
    "a long configuration": {"path": "src/a/main.py", "content": "x"},
    "a path of many parts": {"path": "abc/" * 200_000, "content": "x"},
    "a path of long parts": {"path": f"{'é' * 250}/" * 250 + "a", "content": "x"},
    "a long name": {"path": "é" * 400_000, "content": "x"},
}


@pytest.mark.parametrize("name", LONG_CALLS)
def test_no_call_of_a_file_tool_holds_the_event_loop(name: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[x]\n" + "a = b/a ../src/b/a b/src;c/a\n" * 6_800)
    longest_turn(partial(call, write_file_tool(tmp_path), path="a", content="x"))  # what is imported late
    assert longest_turn(partial(call, write_file_tool(tmp_path), **LONG_CALLS[name])) < LONGEST_TURN


def test_no_preview_of_many_edits_holds_the_event_loop(tmp_path: Path) -> None:
    dice = random.Random(1)
    lines = ["\n".join(dice.choices("ab", k=199)) for _ in range(20)]
    edits = [{"old_text": lines[0], "new_text": each} for each in lines]

    async def look_and_refuse(request: ApprovalRequest) -> bool:
        return not request.preview

    async def ask(edits: list[dict[str, str]]) -> None:
        call = ToolCall("1", "edit_file", json.dumps({"path": "a", "edits": edits}))
        await ToolRegistry[object]([edit_file_tool(tmp_path)]).execute(call, object(), approve=look_and_refuse)

    longest_turn(partial(ask, edits[:1]))  # what is imported late
    assert longest_turn(partial(ask, edits)) < LONGEST_TURN


async def test_a_path_of_endless_length_is_refused_at_once(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        for path in ("abcdefgh/" * 20_000 + "x", "a/../" * 20_000 + "x"):
            assert "the path goes through more than 256 folders" in await error_of(
                write_file_tool(tmp_path), path=path, content="x"
            )


async def test_a_root_inside_a_repository_that_was_made_by_hand_counts(tmp_path: Path) -> None:
    for name in ("HEAD", "objects", "refs", "hooks"):
        (tmp_path / name).mkdir()
    tool = write_file_tool(tmp_path / "hooks")
    assert "something may run it later" in await ask_about(tool, path="post-checkout", content="x")


async def test_what_is_approved_is_written(tmp_path: Path) -> None:
    await ask_about(write_file_tool(tmp_path), approved=True, path=".envrc", content="x")
    assert (tmp_path / ".envrc").read_text() == "x"


async def test_no_link_leads_to_what_would_be_asked_about(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("old")
    (tmp_path / "folder").symlink_to(".git")
    (tmp_path / "file").symlink_to(".git/config")
    for path in ("folder/config", "file", "folder/hooks"):
        assert "leads through a link to '.git/" in await error_of(write_file_tool(tmp_path), path=path, content="new")
    assert "leads through a link" in await error_of(
        edit_file_tool(tmp_path), path="file", old_text="old", new_text="new"
    )
    assert (tmp_path / ".git/config").read_text() == "old"
    (tmp_path / ".env").symlink_to(".git/config")
    for path in ("folder/new/deep/config", ".env"):
        await call(write_file_tool(tmp_path), path=path, content="new")
        assert "leads through a link" in await ask_and_fail(write_file_tool(tmp_path), path=path, content="new")
    assert not (tmp_path / ".git/new").exists()
    assert (tmp_path / ".git/config").read_text() == "old"


async def ask_and_fail(tool: FunctionTool[object, ..., Any], **arguments: object) -> str:
    call = ToolCall("1", tool.definition.name, json.dumps(arguments))
    return (await ToolRegistry[object]([tool]).execute(call, object(), approve=lambda _: True)).text


MOVED = [("a/workflows/ci.yml", "a", ".github"), ("a/user/x.service", "a", "systemd"), ("a", "a", "link/pre-commit")]


@pytest.mark.parametrize(("file", "old", "new"), MOVED)
async def test_what_is_moved_to_where_something_runs_it_needs_approval(
    file: str, old: str, new: str, tmp_path: Path
) -> None:
    notes = tmp_path / "memories"
    (notes / file).parent.mkdir(parents=True)
    (notes / file).write_text("x")
    (notes / ".git").mkdir()
    (notes / "link").symlink_to(".git")
    tool = memory_tool(tmp_path)
    await error_of(tool, command="rename", old_path=f"/memories/{old}", new_path=f"/memories/{new}")
    assert (notes / file).exists()


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6711, 0o1644])
@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_no_bit_that_gives_rights_is_kept(mode: int, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(mode)
    if tool == "write":
        await text_of(write_file_tool(tmp_path), path="a", content="new")
    else:
        await text_of(edit_file_tool(tmp_path), path="a", old_text="old", new_text="new")
    assert stat.S_IMODE(path.stat().st_mode) == mode & 0o777


def change_by_another(path: Path, how: str) -> None:
    """Change a file as other programs do: in place, or by a new file in its place, or so that its size stays."""
    if how == "in place":
        with path.open("a") as file:
            file.write("theirs\n")
    elif how == "replaced":
        other = path.with_name("other")
        other.write_text("theirs\n")
        other.rename(path)
    else:
        status = path.stat()
        path.write_text(path.read_text().replace("a", "b"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def refuse_exchange(folder: int, one: str, other: str) -> bool:
    """Stand in for a system that can't exchange files."""
    return False


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("how", ["in place", "replaced", "of the same size and time"])
def test_a_change_between_reading_and_writing_is_seen_and_kept(
    how: str, can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr("toolkit.builtin.root_folder.exchange_files", refuse_exchange)
    path = tmp_path / "a.txt"
    path.write_text("aaa\n")
    change_by_another(path, how)
    theirs = path.read_text()
    with pytest.raises(ToolFailedError, match="was changed by another process meanwhile"):
        RootFolder(tmp_path).write("a.txt", b"ours\n", expected=b"aaa\n")
    assert path.read_text() == theirs
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux exchanges two files")
def test_a_change_in_the_very_moment_of_the_exchange_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("aaa\n")

    def exchange(folder: int, one: str, other: str) -> bool:
        if path.read_text() == "aaa\n":
            path.write_text("theirs\n")
        return exchange_files(folder, one, other)

    monkeypatch.setattr("toolkit.builtin.root_folder.exchange_files", exchange)
    with pytest.raises(ToolFailedError, match="was changed by another process meanwhile"):
        RootFolder(tmp_path).write("a.txt", b"ours\n", expected=b"aaa\n")
    assert path.read_text() == "theirs\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


EDITOR = """
import sys, anyio
from toolkit.builtin import edit_file_tool
edit, name = edit_file_tool(sys.argv[1]), sys.argv[2]
for number in range(int(sys.argv[3])):
    anyio.run(edit.ainvoke, {"path": "a.txt", "old_text": f"<{name}{number}>", "new_text": f"[{name}{number}]"})
"""


@pytest.mark.real
def test_two_processes_that_edit_one_file_lose_nothing(tmp_path: Path) -> None:
    count = 60
    lines = [f"<{name}{number}>\n" for number in range(count) for name in "ab"]
    (tmp_path / "a.txt").write_text("".join(lines))
    editors = [
        subprocess.Popen([sys.executable, "-c", EDITOR, str(tmp_path), name, str(count)], cwd=Path.cwd())
        for name in "ab"
    ]
    assert [editor.wait(120) for editor in editors] == [0, 0]
    assert (tmp_path / "a.txt").read_text() == "".join(lines).replace("<", "[").replace(">", "]")


async def test_a_file_of_several_names_is_not_searched_or_listed_by_its_content(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    os.link(tmp_path / "secret", root / ".gitignore")
    os.link(tmp_path / "secret", root / "a.txt")
    (root / "secret").write_text("not left out")
    assert (await call(list_files_tool(root))).details["files"] == [".gitignore", "a.txt", "secret"]
    assert await text_of(search_tool(root), pattern="secret|left") == "secret:1: not left out"


NOT_FOR_FILES = [
    "punycode",
    "idna",
    "unicode_escape",
    "raw_unicode_escape",
    "undefined",
    "rot13",
    "hex",
    "zip",
    "x" * 9999,
]


@pytest.mark.parametrize("encoding", NOT_FOR_FILES)
async def test_only_encodings_in_which_files_are_written_are_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100_000 + b"-" + b"a" * 100_000)
    assert "is no encoding of text" in await error_of(read_file_tool(tmp_path), path="a", encoding=encoding)
    edit = edit_file_tool(tmp_path)
    assert "is no encoding of text" in await error_of(edit, path="a", old_text="b", new_text="c", encoding=encoding)
