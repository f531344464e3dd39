"""An agent that an editor talks to: driven by the client of the protocol's SDK, over a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp import schema
from acp.client.connection import ClientSideConnection

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ROOT = Path(__file__).parents[2]
AGENT = str(Path(__file__).parent / "acp_agent.py")
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what the SDK runs on


@dataclass
class Editor:
    """An editor.

    Attributes:
        answer: The option that the user chooses; empty where they end the question.
        updates: What the agent has shown.
        asked: The calls that the user was asked about.
        terminals: The commands that were run, and what became of each.
        exits: False where a command that runs in a terminal never ends.
        opens: Set where terminals are opened; until then the agent waits for them.
        shown: Set at each update, each request for a terminal, and each wait for its end.
    """

    answer: str = "allow_once"
    updates: list[Any] = field(default_factory=list[Any])
    asked: list[schema.ToolCallUpdate] = field(default_factory=list[schema.ToolCallUpdate])
    terminals: list[str] = field(default_factory=list[str])
    exits: bool = True
    opens: anyio.Event = field(default_factory=anyio.Event)
    shown: anyio.Event = field(default_factory=anyio.Event)

    def on_connect(self, conn: Any) -> None:
        pass

    def note(self) -> None:
        self.shown.set()
        self.shown = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.note()

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: Any, **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        if not self.answer:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        assert self.answer in {option.option_id for option in options} | {"allow_everything"}
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.answer)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_terminal(
        self, session_id: str, command: str, args: list[str] | None = None, **_: Any
    ) -> schema.CreateTerminalResponse:
        self.terminals.append(f"{command} {args}")
        self.note()
        if not self.exits:
            await self.opens.wait()
        return schema.CreateTerminalResponse(terminal_id="t1")

    async def wait_for_terminal_exit(self, **_: Any) -> schema.WaitForTerminalExitResponse:
        if not self.exits:
            self.terminals.append("awaited")
            self.note()
            await anyio.sleep_forever()
        return schema.WaitForTerminalExitResponse(exit_code=3)

    async def terminal_output(self, **_: Any) -> schema.TerminalOutputResponse:
        return schema.TerminalOutputResponse(output="two files", truncated=False)

    async def kill_terminal(self, **_: Any) -> None:
        self.terminals.append("killed")

    async def release_terminal(self, **_: Any) -> None:
        self.terminals.append("released")

    def texts(self, kind: type[Any]) -> str:
        return "".join(each.content.text for each in self.updates if isinstance(each, kind))

    def calls(self) -> list[tuple[str | None, str | None]]:
        kinds = (schema.ToolCallStart, schema.ToolCallProgress)
        return [(each.title, each.status) for each in self.updates if isinstance(each, kinds)]

    async def see(self, is_seen: Callable[[], bool]) -> None:
        while not is_seen():
            await self.shown.wait()


@asynccontextmanager
async def opened(
    editor: Editor, folder: Path, script: Sequence[Any], *, terminal: bool = False
) -> AsyncGenerator[ClientSideConnection]:
    (folder / "script.json").write_text(json.dumps(script))
    command = (sys.executable, AGENT, str(folder / "sessions.db"), str(folder / "script.json"))
    client: Any = editor
    with anyio.fail_after(240):
        async with acp.spawn_agent_process(client, *command, env={"PYTHONPATH": str(ROOT)}) as (agent, _):
            capabilities = schema.ClientCapabilities(terminal=terminal)
            done = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities)
            assert done.agent_capabilities is not None
            assert done.agent_capabilities.load_session
            yield agent


async def ask(agent: ClientSideConnection, session: str, text: str = "Go.") -> str:
    return (await agent.prompt(session_id=session, prompt=[acp.text_block(text)])).stop_reason


@on_asyncio
@pytest.mark.parametrize(
    ("answer", "asked", "end"),
    [
        pytest.param("allow_once", 2, "completed", marks=pytest.mark.full),
        ("allow_always", 1, "completed"),
        ("", 2, "failed"),
        pytest.param("reject_once", 2, "failed", marks=pytest.mark.full),
        ("allow_everything", 2, "failed"),
    ],
)
async def test_a_call_that_needs_approval_asks_the_user_of_the_editor(
    answer: str, asked: int, end: str, tmp_path: Path
) -> None:
    editor = Editor(answer)
    script = [[("1", "wipe", '{"path": "a"}')], [("2", "wipe", '{"path": "b"}')], "All done."]
    async with opened(editor, tmp_path, script) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        assert await ask(agent, session) == "end_turn"
    assert len(editor.asked) == asked
    assert [status for _, status in editor.calls() if status != "in_progress"][-1] == end
    assert editor.texts(schema.AgentMessageChunk) == "All done."


@on_asyncio
async def test_arguments_that_are_no_edits_are_shown_as_none(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"edits": 5}, {"edits": True}, {"edits": [None, 1, {}]}, {"old_text": "a", "new_text": 5}, {"old_text": ["a"]},
        {"old_text": "a", "new_text": [1]}, {"edits": [{"old_text": "a", "new_text": "b"}] * 500},
    ]  # fmt: skip
    editor = Editor()
    script = [[(str(place), "change", json.dumps({"path": "x", **each}))] for place, each in enumerate(odd)]
    async with opened(editor, tmp_path, [*script, "Done."]) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        assert await ask(agent, session) == "end_turn"
    starts = [each for each in editor.updates if isinstance(each, schema.ToolCallStart)]
    assert [len(each.content or ()) for each in starts] == [0] * 6 + [100]


@on_asyncio
async def test_a_session_needs_a_folder(tmp_path: Path) -> None:
    async with opened(Editor(), tmp_path, []) as agent:
        with pytest.raises(acp.RequestError) as raised:
            await agent.new_session(cwd="/" + "x" * 10_000)
    assert raised.value.data == {"cwd": "it is no absolute path of a folder"}


@on_asyncio
async def test_edits_are_shown_as_diffs_with_their_place_and_a_plan_as_its_steps(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("old words\n")
    editor = Editor()
    steps = [{"content": "Edit", "status": "completed"}, {"content": "Check", "priority": "high"}]
    edit = '{"path": "notes.txt", "old_text": "old", "new_text": "new"}'
    script = [[("1", "show_plan", json.dumps({"steps": steps})), ("2", "edit_file", edit)], "Done."]
    async with opened(editor, tmp_path, script) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        await ask(agent, session)
    assert (tmp_path / "notes.txt").read_text() == "new words\n"
    (plan,) = [each for each in editor.updates if isinstance(each, schema.AgentPlanUpdate)]
    assert [(each.content, each.status) for each in plan.entries] == [("Edit", "completed"), ("Check", "pending")]
    (start,) = [each for each in editor.updates if isinstance(each, schema.ToolCallStart) and each.title == "edit_file"]
    assert start.content is not None
    assert start.locations is not None
    assert start.kind == "edit"
    assert start.locations[0].path == str(tmp_path / "notes.txt")
    (diff,) = start.content
    assert isinstance(diff, schema.FileEditToolCallContent)
    assert (diff.path, diff.old_text, diff.new_text) == (str(tmp_path / "notes.txt"), "old", "new")


@on_asyncio
async def test_a_command_runs_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    editor = Editor()
    async with opened(editor, tmp_path, [[("1", "bash", '{"command": "make"}')], "Done."], terminal=True) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        await ask(agent, session)
    assert editor.terminals == ["/bin/sh ['-c', 'make']", "released"]
    assert len(editor.asked) == 1
    updates = [each for each in editor.updates if isinstance(each, schema.ToolCallProgress)]
    assert any(each.content and isinstance(each.content[0], schema.TerminalToolCallContent) for each in updates)
    assert updates[-1].raw_output == "two files\n(ended with status 3)"


@on_asyncio
@pytest.mark.parametrize(
    "moment", [pytest.param("tool", marks=pytest.mark.full), "opening", pytest.param("running", marks=pytest.mark.full)]
)
async def test_a_prompt_that_is_cancelled_ends_its_calls_and_the_session_goes_on(moment: str, tmp_path: Path) -> None:
    editor = Editor(exits=False)
    if moment == "running":
        editor.opens.set()
    reached = {
        "tool": lambda: "in_progress" in {status for _, status in editor.calls()},
        "opening": lambda: bool(editor.terminals),
        "running": lambda: "awaited" in editor.terminals,
    }
    call = ("1", "hang", "{}") if moment == "tool" else ("1", "bash", '{"command": "ls"}')
    stops: list[str] = []
    async with opened(editor, tmp_path, [[call], "Here again."], terminal=True) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                stops.append(await ask(agent, session))

            tasks.start_soon(prompt)
            await editor.see(reached[moment])
            with pytest.raises(acp.RequestError):
                await ask(agent, session, "At the same time.")
            await agent.cancel(session_id=session)
            with pytest.raises(acp.RequestError):
                await ask(agent, "of nobody")  # its answer comes after the cancellation was read
            editor.opens.set()
        stops.append(await ask(agent, session, "Still there?"))
    assert stops == ["cancelled", "end_turn"]
    assert editor.texts(schema.AgentMessageChunk) == "Here again."
    if moment != "tool":
        assert editor.terminals[0] == "/bin/sh ['-c', 'ls']"
        assert editor.terminals[-2:] == ["killed", "released"]


@on_asyncio
async def test_a_session_is_loaded_by_another_process(tmp_path: Path) -> None:
    async with opened(Editor(), tmp_path, [[("1", "wipe", '{"path": "a"}')], "It is gone."]) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        await ask(agent, session, "Wipe a.")
    editor = Editor()
    async with opened(editor, tmp_path, ["Yes."]) as agent:
        with pytest.raises(acp.RequestError):
            await agent.load_session(cwd=str(tmp_path), session_id="of another", mcp_servers=[])
        with pytest.raises(acp.RequestError):
            await agent.new_session(cwd=str(tmp_path / "nowhere"))
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        assert editor.texts(schema.UserMessageChunk) == "Wipe a."
        assert editor.texts(schema.AgentMessageChunk) == "It is gone."
        assert editor.calls() == [("wipe", "pending"), (None, "completed")]
        assert await ask(agent, session, "Is it?") == "end_turn"
    assert editor.texts(schema.AgentMessageChunk) == "It is gone.Yes."


@on_asyncio
async def test_a_server_that_the_editor_names_is_used(tmp_path: Path) -> None:
    served = str(Path(__file__).parent / "served_mcp.py")
    server = schema.McpServerStdio(
        name="numbers",
        command=sys.executable,
        args=[served],
        env=[schema.EnvVariable(name="PYTHONPATH", value=str(ROOT))],
    )
    editor = Editor()
    async with opened(editor, tmp_path, [[("1", "numbers__add", '{"a": 17, "b": 25}')], "Done."]) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[server])).session_id
        await ask(agent, session)
        wrong = schema.McpServerStdio(name="none", command="no-such-program", args=[], env=[])
        with pytest.raises(acp.RequestError):
            await agent.new_session(cwd=str(tmp_path), mcp_servers=[wrong])
    assert "42" in str([each.raw_output for each in editor.updates if isinstance(each, schema.ToolCallProgress)])


@on_asyncio
async def test_parts_of_a_prompt_reach_the_model_and_what_is_no_base64_does_not(tmp_path: Path) -> None:
    editor = Editor()
    async with opened(editor, tmp_path, ["Seen."]) as agent:
        session = (await agent.new_session(cwd=str(tmp_path))).session_id
        broken = acp.image_block("no base64!", "image/png")
        with pytest.raises(acp.RequestError):
            await agent.prompt(session_id=session, prompt=[broken])
        resource = acp.resource_block(acp.embedded_text_resource("file:///a.txt", "words"))
        parts: list[Any] = [acp.text_block("See."), acp.resource_link_block("b", "file:///b"), resource]
        assert (
            await agent.prompt(session_id=session, prompt=[*parts, acp.image_block("aGk=", "image/png")])
        ).stop_reason
    assert editor.texts(schema.AgentMessageChunk) == "Seen."


@on_asyncio
async def test_the_command_line_serves_an_agent(tmp_path: Path) -> None:
    program = (
        "from toolkit import ToolCall, tool\n"
        "from toolkit.testing import ScriptedProvider\n"
        "@tool\ndef add(a: int, b: int) -> int:\n    'Add.'\n    print('no message')\n    return a + b\n"
        "model = ScriptedProvider([ToolCall('1', 'add', '{\"a\": 17, \"b\": 25}'), 'It is 42.'])\n"
    )
    (tmp_path / "made.py").write_text(program)
    editor = Editor()
    client: Any = editor
    command = [sys.executable, "-m", "toolkit", "serve", "made.py", "--acp", "made.py:model", "--sessions", "s.db"]
    with anyio.fail_after(240):
        async with acp.spawn_agent_process(client, *command, env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path) as (agent, _):
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = (await agent.new_session(cwd=str(tmp_path))).session_id
            assert await ask(agent, session) == "end_turn"
    assert editor.texts(schema.AgentMessageChunk) == "It is 42."
    assert (tmp_path / "s.db").exists()
