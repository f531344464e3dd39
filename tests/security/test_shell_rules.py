"""What may run by an allow list: text that is proved plain, and nothing that only looks like it."""

import json
import os
import random
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.builtin.calls import call, error_of, text_of
from toolkit import Permissions, ToolCall, ToolRegistry, allow, ask
from toolkit.builtin import BashOptions, bash_tool, runs_only
from toolkit.builtin.commands import read_plain_commands
from toolkit.errors import ConfigurationError

MARK = "run-by-mistake"

# Scripts that run `touch MARK` although they look like `git status`, by each of the shell's ways.
SCRIPTS = [
    "git status; touch M", "git status && touch M", "git status || touch M", "git status | touch M",
    "git status & touch M",
    "git status\ntouch M", "git status |& touch M", "git status $(touch M)", "git status `touch M`",
    "git status ${x:-`touch M`}", 'git status "${x:-$(touch M)}"', "git status <(touch M)", "git status >(touch M)",
    "git status ${x[$(touch M)]}", "git status $((x[$(touch M)]))", "git status $[x[$(touch M)]]",
    "git status; [[ 'a[$(touch M)]' -eq 0 ]]", "git status; test 'a[$(touch M)]' -eq 0",
    "git status; [ -v 'a[$(touch M)]' ]", "git status; ((a[$(touch M)]))", "git status; let 'a[$(touch M)]=1'",
    "git status; printf -v 'a[$(touch M)]' x", "git status; read 'a[$(touch M)]'", "git status; unset 'a[$(touch M)]'",
    "git status; declare 'a[$(touch M)]=1'", "git status; x='$(touch M)'; git status ${x@P}",
    "x='$(touch M)'; git status \"${x@P}\"", "git() { touch M; }; git status", "function git { touch M; }; git status",
    "alias git='touch M'\ngit status", "eval 'touch M'", "git status; eval 'touch M'", "git status; . ./x",
    "git status; source x", "git status <<EOF\n$(touch M)\nEOF", "git status <<< $(touch M)", "git status > M",
    "git status >> M", "git status &> M", "git status 2> M", "git status >| M", "git status <> M", "> M git status",
    "> M", "PATH=.:$PATH git status", "GIT_PAGER='touch M' git status", "GIT_CONFIG_COUNT=1 git status",
    "BASH_ENV=x git status", "env touch M", "command touch M", "exec touch M", "builtin eval 'touch M'",
    "git status; trap 'touch M' EXIT", "git status; PROMPT_COMMAND='touch M'", "sh -c 'touch M'", "bash -c 'touch M'",
    "$0 -c 'touch M'", "$BASH -c 'touch M'", "${BASH} -c 'touch M'", "'ba'sh -c 'touch M'", "t$@ouch M",
    "$'touch' M", "$'\\164ouch' M", "{touch,M}", "git status; {touch,M}", "t''ouch M", "to\\uch M", "~/touch M",
    "git status;touch M", "git status;;touch M", "git status \\\n; touch M", "git status # \ntouch M",
    "if git status; then touch M; fi", "while git status; do touch M; break; done", "until touch M; do :; done",
    "for i in 1; do touch M; done", "case x in x) touch M;; esac", "( touch M )", "{ touch M; }", "! touch M",
    "time touch M", "coproc touch M", "coproc git { touch M; }", "select x in 1; do touch M; done <<< 1",
    "git status; xargs touch <<< M", "git status | xargs touch M", "echo M | xargs touch",
    "find . -maxdepth 0 -exec touch M ;",
    "find . -maxdepth 0 -exec touch M \\;", "git -c alias.x='!touch M' x", "git -c core.pager='touch M' status",
    "git --exec-path=. status; touch M", "awk 'BEGIN { system(\"touch M\") }'", "sed '1e touch M' x",
    "python3 -c 'open(\"M\", \"w\")'",
    "perl -e '`touch M`'", "make -f /dev/stdin <<< 'x:; touch M'", "timeout 5 touch M", "nice touch M", "nohup touch M",
    "setsid touch M", "stdbuf -o0 touch M", "busybox touch M", "git status; mapfile -C 'touch M #' -c 1 <<< x",
    "git status; complete -C 'touch M' x", "git status; shopt -s expand_aliases\nalias ls='touch M'\nls",
    "git status\r\ntouch M", "git status\vtouch M", "git status\ftouch M", "git status\x85touch M",
    "git\u00a0status; touch M", "git status '\n'; touch M", "git status 'a'\\''; touch M; '",
    'git status "a\\"; touch M; "',
    "git status $'a\\'; touch M; '", 'git status $"`touch M`"', "git status %1; touch M", "!touch M", "^git^touch",
    "git status {fd}> M", "git status 1>M", "git status*; touch M", "[ -f x ] || touch M", "[[ -f x ]] || touch M",
]  # fmt: skip

PLAIN = [
    "git status", "git status -s", "git status --porcelain=v2", "git status; git status", "git status && git status",
    "git status || git status", "git status | git status", "git status\ngit status\n", "git status 'a b' \"c d\"",
    "git status 'a$b`c`'", "git status -- src/a.py", "git status \"it's\"", "  git status  ", "'git' \"status\"",
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_not_plain_is_never_allowed(script: str) -> None:
    assert not runs_only("git status")(script)


@pytest.mark.parametrize("script", PLAIN)
def test_what_is_plain_and_named_is_allowed(script: str) -> None:
    assert runs_only("git status")(script)


@pytest.mark.real
@pytest.mark.anyio
async def test_no_script_runs_anything_else(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, BashOptions(allow=["git status"], deny=[]))
    (tmp_path / "x").write_text("touch M\n")
    (tmp_path / "touch").write_text("#!/bin/sh\n: > M\n")
    for script in SCRIPTS:
        await call(bash, command=script)
        assert not (tmp_path / "M").exists(), script


@pytest.mark.real
def test_the_scripts_do_run_something_else_where_nobody_looks(tmp_path: Path) -> None:
    """A control: without a rule most of them make the file, else they would prove nothing."""
    ran = 0
    for number, script in enumerate(SCRIPTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        subprocess.run(
            ["bash", "-c", script], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False
        )
        ran += (folder / "M").exists()
    assert ran > len(SCRIPTS) * 0.6


PROGRAMS = ("git", "a", "b")
ALPHABET = [*"abgit status'\"$`\\;&|<>(){}[]*?~#=!%^\n\t -./:@,", "git status", "touch M", "$(", "${", "'\\''", " && "]
LOG = '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" >> "$LOG"; printf "\\2" >> "$LOG"\n'
RUN = 'for text in "$@"; do : > "$LOG"; eval "$text" < /dev/null > /dev/null; cat "$LOG"; printf "\\1"; done'


@pytest.mark.real
@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_for_plain_the_shell_reads_in_the_same_way(seed: int, tmp_path: Path) -> None:
    """Bash itself says which words its programs get; they must be those that were read."""
    chance = random.Random(seed)
    for program in PROGRAMS:
        (tmp_path / program).write_text(LOG)
        (tmp_path / program).chmod(0o755)
    texts: list[str] = []
    while len(texts) < 150:
        text = "".join(chance.choices(ALPHABET, k=chance.randint(1, 12)))
        commands = read_plain_commands(text)
        if commands is not None and all(words[0] in PROGRAMS for words in commands) and "|" not in text:
            texts.append(text)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    run = subprocess.run(
        ["bash", "-c", RUN, "bash", *texts], capture_output=True, env=environment, text=True, timeout=60, check=True
    )
    logs = run.stdout.split("\1")[:-1]
    seen = [[tuple(words.split("\0")[:-1]) for words in log.split("\2")[:-1]] for log in logs]
    assert seen == [read_plain_commands(text) for text in texts]


ANY_CODE = [
    "python", "python *", "sh", "bash -c", "perl -e", "python -c *", "make", "node *", "", " ", "*", "p* x",
    "[gx]it status",
    "/usr/bin/* x", "python3.11-dbg", "bash5 -c", "ld-linux-x86-64.so.2", "npx", "uvx *", "powershell.exe",
    "original-awk", "ts-node", "luajit", "irb3.1", "rake", "yash", "node18 *", "lldb",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ANY_CODE)
def test_a_pattern_that_allows_any_code_is_the_authors_mistake(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        runs_only(pattern)
    with pytest.raises(ConfigurationError):
        bash_tool(".", BashOptions(allow=[pattern]))


def test_an_interpreter_is_allowed_by_what_it_is_to_run() -> None:
    tests = runs_only("python -m pytest", "bash run_tests.sh", "make test")
    assert tests("python -m pytest -q tests; make test")
    assert tests("bash run_tests.sh --fast")
    assert not tests("python -c 'import os'")
    assert not tests("python -m pip install x")
    assert not runs_only("git *")("git -c alias.x='!touch M' x")


async def ask_permissions(command: str) -> str:
    rules = [allow("bash", args={"command": runs_only("git status", "git diff")}), ask("bash", reason="Ask first.")]
    tools = ToolRegistry[object]([bash_tool(".")], permissions=Permissions(rules))
    return (await tools.execute(ToolCall("1", "bash", json.dumps({"command": command})), object())).text


@pytest.mark.real
@pytest.mark.anyio
async def test_the_same_patterns_serve_as_a_permission_rule() -> None:
    assert "Ask first." not in await ask_permissions("git diff --stat")
    assert "Ask first." in await ask_permissions("git diff; git push")


@pytest.mark.real
@pytest.mark.anyio
async def test_what_is_not_allowed_is_asked_about(tmp_path: Path) -> None:
    asked: list[str] = []

    def confirm(command: str) -> bool:
        asked.append(command)
        return command == "echo $HOME"

    bash = bash_tool(tmp_path, BashOptions(allow=["echo"], confirm=confirm))
    assert await text_of(bash, command="echo plain") == "plain"
    assert await text_of(bash, command="echo $HOME") == os.environ["HOME"]
    assert "not confirmed" in await error_of(bash, command="ls")
    assert asked == ["echo $HOME", "ls"]


@pytest.mark.anyio
@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\x1b[2K", "\r", "\x08", "\u200f", "\u2028"])
async def test_a_command_that_is_shown_as_another_is_refused(hidden: str, tmp_path: Path) -> None:
    assert "look like another" in await error_of(bash_tool(tmp_path), command=f"echo a{hidden}b")


OTHERS = ("./git status", "/usr/bin/git status", "GIT status", "gi\u0442 status", "git.exe status", "git  push")


@pytest.mark.anyio
@pytest.mark.parametrize("command", OTHERS)
async def test_a_name_that_is_like_an_allowed_program_is_another(command: str, tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, BashOptions(allow=["git status"]))
    assert "blocked by safety policy" in await error_of(bash, command=command)


SIZE = 100_000
HEAVY = {
    "braces": "{" * SIZE,
    "brace alternatives": "{" + "," * (SIZE - 1),
    "nested alternatives": "{a," * (SIZE // 3),
    "here-documents": "<<a " * (SIZE // 4),
    "angle brackets": "<" * SIZE,
    "closing angle brackets": ">" * SIZE,
    "pipes": "a|" * (SIZE // 2),
    "substitutions": "$(" * (SIZE // 2),
    "backticks": "`a " * (SIZE // 3),
    "parameters": "${" * (SIZE // 2),
    "arithmetic": "$((" * (SIZE // 3),
    "groups": "(" * SIZE,
    "tests": "[[" * (SIZE // 2),
    "conditions": "if " * (SIZE // 3),
    "quotes": "'\"" * (SIZE // 2),
    "lists": "a&&" * (SIZE // 3),
    "lines": "a\n" * (SIZE // 2),
    "cases": "case a in " * (SIZE // 10),
    "wrappers": "env " * (SIZE // 4),
    "escapes": "\\" * (SIZE - 1),
    "assignments": "a=" * (SIZE // 2),
    "functions": "a(){ " * (SIZE // 5),
}
SAMPLE = {"pipes", "brace alternatives", "lines", "wrappers"}


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.full) for name in HEAVY]
)
async def test_no_script_holds_the_event_loop_or_ends_the_process(name: str, tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, BashOptions(confirm=lambda _: False))
    with anyio.fail_after(300):  # it ends what hangs; a busy machine takes some of it
        text = await error_of(bash, command=HEAVY[name])
    assert text.startswith(("The command is too long to be checked.", "Command was not confirmed", "Command blocked"))


@pytest.mark.real
@pytest.mark.anyio
async def test_a_long_script_of_ordinary_lines_is_read_whole(tmp_path: Path) -> None:
    lines = "".join(f"echo line {number} > /dev/null\n" for number in range(1_000))
    assert await text_of(bash_tool(tmp_path), command=f"{lines}echo end") == "end"
    assert "blocked by safety policy" in await error_of(bash_tool(tmp_path), command=f"{lines}rm -rf /")


RUNNERS = [
    "\"[\" -v 'a[$(touch M)]' ']'", "/usr/bin/time touch M", "jobs -x touch M", "tmux new -d 'touch M'",
    "screen -dm touch M",
    "run-parts .", "fakeroot touch M", "bwrap touch M", "prlimit touch M", "unbuffer touch M", "socat EXEC:x -",
    "sg root x",
    "dbus-run-session touch M", "xvfb-run touch M", "proot touch M", "'time' touch M", "ltrace touch M",
    "capsh -- -c x",
]  # fmt: skip


@pytest.mark.parametrize("command", RUNNERS)
def test_a_program_that_runs_others_is_never_plain(command: str) -> None:
    assert read_plain_commands(command) is None
    assert not runs_only(lambda words: True)(f"git status; {command}")
