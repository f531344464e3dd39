"""A shell that nothing holds is for reading alone, and what an allow list names writes no file by an option."""

import json
from pathlib import Path

import pytest

from toolkit import ApprovalRequest, AssistantMessage, ToolCall, ToolLoopConfig, ToolRegistry, tool_loop
from toolkit.builtin import BashOptions, bash_tool, coding_tools, runs_only
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

READS = [
    "ls -la", "cat a.txt", "git status", "git diff --stat", "git log --oneline -5", "grep -rn x . | sort | uniq -c",
    "pwd; whoami", "head -5 a.txt && wc -l a.txt", "git show HEAD:a.txt", "git diff --text", "diff a.txt a.txt",
]  # fmt: skip
DOES_MORE = [
    "rm -r build", "rm a.txt", "touch b", "echo x > a.txt", "cat a.txt > b", "mv a.txt b", "cp a.txt b", "mkdir d",
    "chmod 000 a.txt", "truncate -s 0 a.txt", "git checkout .", "git reset --hard", "git clean -fdx", "git push",
    "git commit -m x", "git branch -D main", "git stash", "git config core.fsmonitor ./x", "git -c core.pager=./x log",
    "git diff --output=a.txt", "git diff --outp=a.txt", "git log --output a.txt", "git grep -O./x y",
    "git grep --open-files-in-pager=./x y", "git diff --ext-diff", "git log --show-signature", "git log --format=%G?",
    "git show --textconv", "sort -o a.txt b",
    "sort -ro a.txt b", "sort --output=a.txt b", "sort --compress-program=./x a.txt", "uniq a.txt b",
    "rg --pre ./x y", "file -C -m a.txt", "date -s 2020-01-01", "find . -delete", "find . -name a.txt",
    "xargs rm", "tee a.txt", "sed -i s/a/b/ a.txt", "awk 1 a.txt", "python3 -c 1", "python3 x.py", "make", "npm test",
    "curl http://h.example", "wget http://h.example", "ssh h", "dd if=/dev/zero of=a.txt", "ln -s a b", "kill %1",
    "tar xf a.tar", "unzip a.zip", "pip install x", "env ls", "sudo ls", "ls $(touch b)", "ls `touch b`", "ls; touch b",
    "uniq - b", "cat a.txt | uniq -c - b", "uniq -- a.txt b",
    "ls & touch b", "ls | tee b", "true && touch b", "PATH=. ls", "ls\ntouch b", "cat <(touch b)", "./ls", "tree -o b",
]  # fmt: skip


DESTROYS = [
    "rm -rf .", "rm -rf --no-preserve-root /", "\\rm -rf x", "/bin/rm -rf x", "unlink a.txt", "shred -u a.txt",
    "rmdir x", "find . -type f -exec rm {} +", "find . -name '*' -print0 | xargs -0 rm",
    "perl -e 'unlink glob \"*\"'", "ruby -e 'File.delete(\"a.txt\")'", "node -e 'fs.rmSync(\".\")'",
    "php -r 'unlink(\"a.txt\");'", "python - < x.py", "awk 'BEGIN{system(\"rm a.txt\")}'", "sed -n 'w b' a.txt",
    "sed -e 1e a.txt", "ed a.txt", "vim -c ':!rm a.txt' -c q", ": > a.txt", "> a.txt", "cat /dev/null > a.txt",
    "cp /dev/null a.txt", "dd of=a.txt if=/dev/null", "install /dev/null a.txt", "mkfs.ext4 /dev/sda1",
    "wipefs -a /dev/sda", "fdisk /dev/sda", "blkdiscard /dev/sda", "swapoff -a", "umount -a", "chown -R nobody .",
    "chattr +i a.txt", "setfacl -b a.txt", "git rm -r .", "git filter-branch -f", "git gc --prune=now",
    "git reflog expire --expire=now --all", "git update-ref -d HEAD", "git worktree prune", "git restore .",
    "git apply x", "git push --force origin main", "git remote set-url origin http://h.example",
    "git submodule update --init", "git archive -o a.txt HEAD", "git bundle create a.txt HEAD",
    "git format-patch -o . HEAD", "rsync -a --delete /x/ .", "tar -cf a.txt --remove-files x", "zip -m b.zip a.txt",
    "gzip a.txt", "bzip2 a.txt", "split -b 1 a.txt", "csplit a.txt 1", "patch -p0 < x", "logrotate -f x",
    "crontab -r", "at now", "systemctl stop ssh", "service ssh stop", "shutdown -h now", "reboot", "killall python",
    "pkill -9 -u root", "docker system prune -af", "kubectl delete ns default", "terraform destroy",
    "aws s3 rm s3://b --recursive", "psql -c 'DROP TABLE t'", "sqlite3 a.txt 'DROP TABLE t'", "redis-cli FLUSHALL",
    "npm uninstall x", "pip uninstall -y x", "apt-get -y remove x", "iptables -F", "ip link set eth0 down",
    "nc -l 80", "history -c", "eval rm a.txt", "exec rm a.txt", "bash -c 'rm a.txt'", "sh x.sh", "source x.sh",
    ". ./x.sh", "env rm a.txt", "nohup rm a.txt", "r'm' a.txt", 'r""m a.txt', "$'rm' a.txt", "X=rm; $X a.txt",
    "alias ls=rm; ls a.txt", "ls() { rm a.txt; }; ls", "ls || rm a.txt", "ls\r\nrm a.txt", "ls \\\n; rm a.txt",
    "{rm,a.txt}", "cat a.txt |& tee b", "echo x >| a.txt", "echo x &> a.txt", "ls 3<>b",
]  # fmt: skip


async def run(command: str, tools: ToolRegistry[object], *, approved: list[str] | None = None) -> str:
    def approve(request: ApprovalRequest) -> bool:
        assert approved is not None
        approved.append(request.reason)
        return True

    config: ToolLoopConfig[object] = ToolLoopConfig(on_tool_call=None if approved is None else approve)
    provider = ScriptedProvider([ToolCall("1", "bash", json.dumps({"command": command})), "done"])
    result = await tool_loop(provider, tools, "go", ctx=object(), config=config)
    return result.messages[-2].text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("text\n")
    return tmp_path


@pytest.fixture
def no_programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no program to be found: where a command is run after all, it does nothing to this machine."""
    shell = tmp_path_factory.mktemp("programs")
    (shell / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(shell))


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("command", DOES_MORE)
async def test_a_shell_that_nothing_holds_refuses_what_may_do_more_than_read(command: str, root: Path) -> None:
    text = await run(command, ToolRegistry(coding_tools(root, "all")))
    assert "Nobody is there to approve it, so it was not run." in text, text
    assert names_in(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "text\n"


@pytest.mark.usefixtures("no_programs")
async def test_no_command_that_destroys_something_passes_a_shell_that_nothing_holds(root: Path) -> None:
    calls = [ToolCall(str(place), "bash", json.dumps({"command": command})) for place, command in enumerate(DESTROYS)]
    provider = ScriptedProvider([AssistantMessage(calls), "done"])
    result = await tool_loop(provider, ToolRegistry(coding_tools(root, "all")), "go", ctx=object())
    texts = [message.text for message in result.messages[2:-1]]
    passed = [
        command
        for command, text in zip(DESTROYS, texts, strict=True)
        if "so it was not run" not in text and "blocked by safety policy" not in text and "Denied" not in text
    ]
    assert passed == []
    assert names_in(root) == ["a.txt"]


@pytest.mark.parametrize("command", READS)
async def test_what_only_reads_runs_without_a_question(command: str, root: Path) -> None:
    asked: list[str] = []
    assert "approve" not in await run(command, ToolRegistry([bash_tool(root)]))
    await run(command, ToolRegistry([bash_tool(root)]), approved=asked)
    assert not [reason for reason in asked if reason]


async def test_an_approver_is_asked_about_the_rest(root: Path) -> None:
    asked: list[str] = []
    await run("touch b", ToolRegistry([bash_tool(root)]), approved=asked)
    assert asked == ["The command may do more than read, and neither a sandbox nor a list of allowed commands is set."]
    assert (root / "b").exists()


@pytest.mark.parametrize(
    "options", [BashOptions(allow=["touch"]), BashOptions(confirm=lambda _: True)], ids=["allow", "confirm"]
)
async def test_what_holds_the_shell_is_asked_instead(options: BashOptions, root: Path) -> None:
    await run("touch b", ToolRegistry([bash_tool(root, options)]))
    assert (root / "b").exists()


NOT_MEANT = {
    "git diff": ["git diff --output=x", "git diff --output x", "git diff --outp=x", "git diff HEAD --output=x"],
    "git log": ["git log -p --output=x", "git log --ext-diff"],
    "git grep": ["git grep -O./x y", "git grep -nO./x y"],
    "git *": ["git diff --output=x"],
    "sort": ["sort -o x y", "sort -ox y", "sort -uo x y", "sort --outpu=x y", "sort --compress-program=./x y"],
    "rg": ["rg --pre ./x y", "rg --pre=./x y"],
    "file": ["file -C"],
    "date": ["date -s now", "date --set=now"],
    "tree": ["tree -o x"],
}  # fmt: skip


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize(("pattern", "command"), [(key, each) for key, texts in NOT_MEANT.items() for each in texts])
async def test_no_option_of_an_allowed_command_writes_a_file(pattern: str, command: str, root: Path) -> None:
    assert not runs_only(pattern)(command)
    text = await run(command, ToolRegistry([bash_tool(root, BashOptions(allow=[pattern]))]))
    assert "blocked by safety policy" in text
    assert not (root / "x").exists()


def test_a_pattern_that_names_the_option_allows_it() -> None:
    assert runs_only("git diff --output=patch.txt")("git diff --output=patch.txt")
    assert runs_only("sort -o")("sort -o x y")
    assert runs_only("git diff")("git diff --stat --text")
