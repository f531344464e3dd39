"""Plugins that work, and plugins that do what they should not."""

import json
import logging
import os
import re
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.busy_machine import with_time_enough
from tests.process_state import is_running
from toolkit import ToolCall, ToolLoopConfig, ToolLoopResult, ToolRegistry, ToolResult, tool_loop, tool_loop_sync
from toolkit.chat import AudioBlock, FileBlock, ImageBlock, TextBlock
from toolkit.errors import PluginError
from toolkit.events import LoopEvent, ToolExecutionUpdate
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import ScriptedProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FAULTY = Path(__file__).with_name("faulty.py")


@asynccontextmanager
async def faulty(mode: str, **options: Any) -> AsyncGenerator[ToolRegistry]:
    async with plugin_tools(sys.executable, [str(FAULTY), mode], **options) as tools:
        yield ToolRegistry(tools)


async def say(tools: ToolRegistry, said: str = "hello", name: str = "echo") -> ToolResult:
    return await tools.execute(ToolCall("1", name, json.dumps({"text": said})))


def plugins_running() -> list[int]:
    """Return the processes of the plugin that this one has started and that are there now."""
    running: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue
        if str(FAULTY).encode() in command and parent == os.getpid() and is_running(int(entry.name)):
            running.append(int(entry.name))
    return running


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what others do, of which nothing tells: a process that is not ours, a line in the log."""
    with anyio.fail_after(120):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_plugin_is_a_tool_like_any_other() -> None:
    async with faulty("plain", tags={"echo"}) as tools:
        (definition,) = tools.definitions()
        assert definition.description == "Say it again."
        assert definition.parameters["properties"] == {"text": {"type": "string"}}
        assert tools.tagged("echo").names == ("echo",)
        assert (await say(tools, 'h\u00e9 "\n \u2028 there')).text == 'h\u00e9 "\n \u2028 there'
        refused = await tools.execute(ToolCall("1", "echo", "{}"))
        assert "text: required" in refused.text
    assert not plugins_running()


async def test_a_default_of_the_plugin_is_never_sent_for_it() -> None:
    async with faulty("defaults") as tools:
        assert (await say(tools)).text == '{"text": "hello"}'


async def test_a_description_over_several_lines_is_understood() -> None:
    async with faulty("pretty") as tools:
        assert (await say(tools)).text == "hello"


async def test_several_tools_of_one_process_are_told_apart() -> None:
    async with faulty("several") as tools:
        assert tools.names == ("echo", "shout_it")
        assert (await say(tools, name="shout_it")).text == "shout it!: hello"


async def test_every_kind_of_block_comes_over() -> None:
    async with faulty("blocks") as tools:
        result = await say(tools)
    assert result.content == (
        TextBlock("hello"),
        ImageBlock(b"hi", media_type="image/gif"),
        AudioBlock(b"hi"),
        FileBlock(b"hi", name="a.txt"),
        TextBlock('{"type": "hologram", "x": 1}'),
    )
    assert result.details == {"a": 1}


async def test_an_error_is_an_error_and_its_texts_are_one() -> None:
    async with faulty("says no") as tools:
        result = await say(tools)
    assert (result.text, result.is_error) == ("Error: no hello", True)


async def test_it_has_its_own_folder_and_variables(tmp_path: Path) -> None:
    async with faulty("environment", env={"PLUGIN_COLOUR": "blue"}, cwd=tmp_path) as tools:
        assert (await say(tools, "PLUGIN_COLOUR")).text == f"blue {tmp_path}"


async def test_a_thousand_calls_at_once_and_one_after_the_other_are_answered_in_order() -> None:
    calls = [ToolCall(str(n), "echo", json.dumps({"text": str(n)})) for n in range(1_000)]
    async with faulty("echoing") as tools:
        at_once = await tools.execute_all(calls)
        in_turn = [await tools.execute(call) for call in calls]
    assert [result.text for result in at_once] == [result.text for result in in_turn] == [call.id for call in calls]


async def test_updates_are_told_while_it_works() -> None:
    events: list[LoopEvent] = []
    provider = ScriptedProvider([ToolCall("1", "echo", '{"text": "done"}'), "Done."])
    async with faulty("updates") as tools:
        await tool_loop(provider, tools, "Go.", config=ToolLoopConfig(on_event=events.append))
    updates = [event.output.text for event in events if isinstance(event, ToolExecutionUpdate)]
    assert updates == ["step 1", "step 2"]


async def test_its_tools_run_on_another_event_loop() -> None:
    events: list[LoopEvent] = []
    provider = ScriptedProvider([ToolCall("1", "echo", '{"text": "hello"}'), "Done."])
    async with faulty("updates") as tools:

        def ask() -> ToolLoopResult:
            return tool_loop_sync(provider, tools, "Go.", config=ToolLoopConfig(on_event=events.append))

        with anyio.fail_after(120):
            result = await anyio.to_thread.run_sync(ask)
    assert result.messages[2].text == "hello"
    assert [event.output.text for event in events if isinstance(event, ToolExecutionUpdate)] == ["step 1", "step 2"]


async def test_calls_run_at_once_where_it_says_so_and_a_cancelled_one_is_told() -> None:
    async with faulty("concurrent") as tools:
        with anyio.move_on_after(0.3):
            await say(tools, "nobody waits for this")
        first, second = await tools.execute_all([ToolCall(n, "echo", json.dumps({"text": n})) for n in ("a", "b")])
    assert (first.text, second.text) == ("a", "b")


DESCRIPTIONS = {
    "silent at first": r"did not describe itself within [\d.]+ s\. It must answer the line",
    "no JSON": r"did not describe itself within [\d.]+ s\. It wrote: Welcome to my plugin!",
    "wrong": r"wrong at name: Field required\. It wrote: \{\"title\": \"echo\"\}",
    "twice": r"two tools have the name 'echo'",
    "wrong extension": r"wrong at extensions\.\d: Input should be 'concurrent', 'updates' or 'cancel'",
    "wrong schema": r"of its tool 'echo' is wrong: its parameters are no JSON Schema, at \$\.properties\.text\.type",
    "nested without end": r"did not describe itself within [\d.]+ s\. It wrote: \[\[\[",
    "not UTF-8 at first": r"it wrote what is not UTF-8: byte 0xe9 at position 13",
    "too many": r"wrong at tools: List should have at most 256 items",
    "too long a description": r"wrong at description: String should have at most 20000 characters",
    "too large a schema": r"wrong at parameters: .*no more than 200,000 are taken",
    "endless description": r"its description has more than 1,048,576 characters",
    "ends at once": r"did not describe itself and ended with exit status 3\. Its last words: no config found",
    "ends later than its output": r"and ended with exit status 3\. Its last words: its config was lost",
}


@pytest.mark.parametrize("mode", DESCRIPTIONS)
async def test_a_plugin_that_does_not_describe_itself_is_an_error_that_says_why(mode: str) -> None:
    async def run(seconds: float) -> str:
        with pytest.raises(PluginError) as caught:
            async with faulty(mode, describe_timeout=seconds):
                pytest.fail("it has no tools")
        return str(caught.value)

    says = re.compile(DESCRIPTIONS[mode])
    assert says.search(await with_time_enough(run, says.search))
    assert not plugins_running()


async def test_a_program_that_can_not_be_started_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    script = tmp_path / "tool.py"
    script.write_text("print(1)", encoding="utf-8")
    for program, remedy in (
        ("no-such-program", "there is no program 'no-such-program'"),
        (tmp_path / "missing.py", "there is no program"),
        (script, "is not executable: run `chmod \\+x`"),
    ):
        with pytest.raises(PluginError, match=remedy):
            async with plugin_tools(program):
                pytest.fail("it has no tools")
    script.chmod(0o755)
    with pytest.raises(PluginError, match="a script needs a first line such as #!/usr/bin/env python3"):
        async with plugin_tools(script):
            pytest.fail("it has no tools")
    script.write_text("#!/no/such/python\n", encoding="utf-8")
    with pytest.raises(PluginError, match="names an interpreter that is not there"):
        async with plugin_tools(script):
            pytest.fail("it has no tools")
    with pytest.raises(PluginError, match=r"there is no folder '.*nowhere' to start it in"):
        async with plugin_tools(sys.executable, cwd=tmp_path / "nowhere"):
            pytest.fail("it has no tools")


async def test_a_slow_answer_is_not_taken_for_that_of_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    async def run(seconds: float) -> None:
        async with faulty("slow") as tools:
            (before,) = plugins_running()
            late = await say(tools.configured("echo", timeout=seconds), str(3 * seconds))
            assert f"timed out after {seconds:g} s. It may have taken effect" in late.text
            assert (await say(tools, "0")).text == "0"
            assert plugins_running() != [before]

    await run(0.3)
    assert "names no call in its answers" in caplog.text


async def test_a_late_answer_that_names_its_call_is_dropped_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty("echoing slowly") as tools:
        (before,) = plugins_running()
        assert (await say(tools, "0")).text == "0"
        late = await say(tools.configured("echo", timeout=0.2), "0.6")
        assert "timed out after 0.2 s. It may have taken effect" in late.text
        assert (await say(tools.configured("echo", timeout=0.3), "0.0")).text == "0.0"
        assert plugins_running() == [before]
    assert "a late answer is dropped" in caplog.text


@pytest.mark.parametrize("mode", ["two lines", "echoing twice", "again a moment later"])
async def test_an_answer_that_comes_twice_is_never_taken_for_that_of_the_next_call(mode: str) -> None:
    async with faulty(mode) as tools:
        for said in ("a", "b", "c", "d"):
            assert (await say(tools, said)).text == said


async def test_a_plugin_whose_answers_name_no_call_has_a_process_for_each_call() -> None:
    calls = [ToolCall(str(number), "echo", '{"text": "x"}') for number in range(3)]
    async with faulty("counts") as tools:
        unnamed = [result.text for result in await tools.execute_all(calls)]
    async with faulty("counts and names calls") as tools:
        named = [result.text for result in await tools.execute_all(calls)]
    assert [text.partition(" ")[0] for text in unnamed] == ["1", "1", "1"]
    assert len(set(unnamed)) == 3
    assert [text.partition(" ")[0] for text in named] == ["1", "2", "3"]
    assert len({text.rpartition(" ")[2] for text in named}) == 1


async def test_an_answer_without_an_id_is_none_where_it_could_be_of_another_call() -> None:
    async with faulty("names calls at first") as tools:
        assert (await say(tools)).text == "hello"
        refused = await say(tools, "again")
        assert "answered without the id of its call, though it was sent several" in refused.text
        assert (await say(tools)).text == "hello"


async def test_an_answer_that_is_lost_holds_up_no_other_call() -> None:
    async with faulty("loses one") as tools:
        (before,) = plugins_running()
        assert (await say(tools, "first")).text == "first"
        assert "timed out" in (await say(tools.configured("echo", timeout=0.2), "lose")).text
        with anyio.fail_after(4):  # less than a late answer is waited for
            assert (await say(tools, "next")).text == "next"
        assert plugins_running() == [before]


async def test_a_call_beside_one_whose_answer_is_lost_waits_for_its_end_alone() -> None:
    texts: dict[str, str] = {}
    async with faulty("loses one") as tools:
        (before,) = plugins_running()
        assert (await say(tools, "first")).text == "first"

        async def note(said: str) -> None:
            asked = tools.configured("echo", timeout=0.2) if said == "lose" else tools
            texts[said] = (await say(asked, said)).text

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for said in ("lose", "beside it", "and this"):
                    tasks.start_soon(note, said)
        assert plugins_running() == [before]
    assert "timed out" in texts.pop("lose")
    assert texts == {"beside it": "beside it", "and this": "and this"}


async def test_an_answer_on_several_lines_is_an_error_that_says_so() -> None:
    async with faulty("pretty answers") as tools:
        (before,) = plugins_running()
        with anyio.fail_after(120):
            results = [await say(tools), await say(tools)]
        assert plugins_running() == [before]
    for result in results:
        assert result.is_error
        assert "answered on several lines: an answer must be one line of JSON" in result.text
    async with faulty("pretty logs") as tools:
        assert (await say(tools)).text == "hello"


async def test_an_answer_to_another_call_is_none_and_ends_the_plugin() -> None:
    async with faulty("names another call") as tools:
        (before,) = plugins_running()
        with anyio.fail_after(120):
            results = [await say(tools), await say(tools)]
        assert plugins_running() != [before]
    for result in results:
        assert 'answered a call with the id "no such call", which no call has' in result.text
        assert "may have taken effect" in result.text


async def test_what_is_not_utf_8_is_named_as_such() -> None:
    async with faulty("not UTF-8") as tools:
        with anyio.fail_after(120):
            result = await say(tools, "break")
            assert "wrote what is not UTF-8: byte 0xe9 at position 16" in result.text
            assert "may have taken effect" in result.text
            assert (await say(tools)).text == "hello"


@pytest.mark.parametrize(
    ("mode", "said", "expected"),
    [
        ("error in words", "text", ("no luck", True)),
        ("error in words", "object", ("no luck", True)),
        ("error in words", "number", ("7", True)),
        ("error in words", "none", ("fine", False)),
        ("error in words", "null", ("fine", False)),
        ("error beside content", "x", ("no luck\nhalf of it", True)),
    ],
)
async def test_an_error_may_be_a_text(mode: str, said: str, expected: tuple[str, bool]) -> None:
    async with faulty(mode) as tools:
        result = await say(tools, said)
    assert (result.text, result.is_error) == expected


async def test_a_restart_renews_the_definitions_in_every_registry(tmp_path: Path) -> None:
    async with faulty("renews", env={"RENEWED": str(tmp_path / "renewed")}) as tools:
        scope = tools.prefixed("p")
        assert "may have taken effect" in (await say(tools, "exit")).text
        changed = await say(tools, "old arguments")
        assert changed.is_error
        assert "said: required" in changed.text
        for registry, name in ((tools, "echo"), (scope, "p__echo")):
            (definition,) = registry.definitions()
            assert (definition.name, definition.description) == (name, "Another.")
            assert list(definition.parameters["properties"]) == ["said"]


async def test_calls_of_one_plugin_wait_outside_of_their_time() -> None:
    calls = [ToolCall(str(number), "echo", json.dumps({"text": "0.2"})) for number in range(5)]
    async with faulty("slow", timeout=0.6, lock="another lock") as tools:
        with anyio.fail_after(120):
            results = await tools.execute_all(calls)
    assert [result.text for result in results] == ["0.2"] * 5


async def test_it_inherits_little_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-plugins")
    monkeypatch.setenv("HARMLESS", "yes")
    async with faulty("environment") as tools:
        assert (await say(tools, "OPENAI_API_KEY")).text.startswith("not set")
        assert (await say(tools, "HARMLESS")).text.startswith("not set")
        assert not (await say(tools, "PATH")).text.startswith("not set")
    async with faulty("environment", env_allowlist=["HARMLESS"]) as tools:
        assert (await say(tools, "HARMLESS")).text.startswith("yes")
        assert (await say(tools, "OPENAI_API_KEY")).text.startswith("not set")
    async with faulty("environment", env_allowlist=None) as tools:
        assert (await say(tools, "HARMLESS")).text.startswith("yes")
        assert "sk-not" not in (await say(tools, "OPENAI_API_KEY")).text  # struck out, by its name


async def test_the_time_of_a_call_begins_when_it_is_its_turn() -> None:
    async def run(seconds: float) -> list[str]:
        """Have five calls that take more time together than one of them has."""
        calls = [ToolCall(str(number), "echo", json.dumps({"text": f"{seconds / 4}"})) for number in range(5)]
        async with faulty("slow", timeout=seconds) as tools:
            with anyio.fail_after(120):
                results = await tools.execute_all(calls)
        return [result.text for result in results if not result.is_error]

    assert len(await with_time_enough(run, lambda texts: len(texts) == 5)) == 5


async def test_calls_that_wait_for_one_that_ends_the_plugin_go_to_the_next_one() -> None:
    calls = [
        ToolCall(str(number), name, json.dumps({"text": said}))
        for number, (name, said) in enumerate([("echo", "exit"), ("shout_it", "a"), ("echo", "b"), ("shout_it", "c")])
    ]
    async with faulty("several") as tools:
        assert tools.names == ("echo", "shout_it")
        results = await tools.execute_all(calls)
    assert "may have taken effect" in results[0].text
    assert [result.text for result in results[1:]] == ["shout it!: a", "echo: b", "shout it!: c"]


async def test_secrets_that_it_is_given_are_struck_out_of_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolkit.sources.plugin")
    said: list[str] = []
    for mode, value in (("exits", "exit s3cret-1"), ("no content", "s3cret-2"), ("plain", "s3cret-1 s3cret-2 plain")):
        arguments = [str(FAULTY), mode, "--api-key", "s3cret-1"]
        async with plugin_tools(sys.executable, arguments, env={"SOME_TOKEN": "s3cret-2", "MODE": "plain"}) as tools:
            said.append((await say(ToolRegistry(tools), value)).text)
    assert said[2] == "*** *** plain"
    assert "faulty.py" in said[0]
    assert "s3cret" not in "".join(said) + caplog.text


async def test_a_plugin_that_answers_no_more_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty("silent", timeout=0.2) as tools:
        (before,) = plugins_running()
        assert (await say(tools)).is_error
        assert (await say(tools)).is_error
        assert (await say(tools)).is_error
        assert plugins_running() != [before]
    assert "started again with the next call" in caplog.text
    assert not plugins_running()


@pytest.mark.parametrize(
    ("mode", "said", "text"),
    [
        ("exits", "exit", "ended with exit status 3. Its last words: giving up exit. It was working on this"),
        ("killed", "kill", "was killed by SIGKILL. It was working on this, which may have taken effect"),
        ("closed output", "close", "It was working on this, which may have taken effect"),
        ("huge line", "x", "wrote a line of more than 33,554,432 bytes and was ended"),
    ],
)
async def test_a_plugin_that_breaks_in_a_call_is_an_error_and_is_started_again(
    mode: str, said: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(120):
        async with faulty(mode) as tools:
            broken = await say(tools, said)
            assert broken.is_error
            assert text in broken.text
            again = await say(tools, "hello")
            assert again.is_error == (mode == "huge line")
    assert caplog.records
    assert not plugins_running()


@pytest.mark.parametrize("mode", ["garbage", "echoing twice"])
async def test_lines_that_nobody_asked_for_are_logged_and_ignored(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async with faulty(mode) as tools:
        assert (await say(tools)).text == "hello"
        unasked = ("outside the protocol", "an answer to no call is dropped")
        await eventually(lambda: any(words in caplog.text for words in unasked))
        assert (await say(tools, "again")).text == "again"


async def test_an_answer_without_content_is_an_error_that_shows_it() -> None:
    async with faulty("no content") as tools:
        result = await say(tools)
    assert result.is_error
    assert 'something else than \'content\': {"result": "hello"}' in result.text


async def test_what_is_nested_too_deeply_is_no_answer_and_ends_nothing() -> None:
    async with faulty("nested") as tools:
        (plugin,) = plugins_running()
        results = [await say(tools), await say(tools)]
        assert plugins_running() == [plugin]
    too_deeply = "The plugin faulty.py answered with something that is nested too deeply."
    for result in results:  # later Pythons go deeper
        assert result.text == too_deeply if result.is_error else result.text.startswith('{"x": [[[')


async def test_a_flood_of_errors_is_logged_in_bounded_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="toolkit.sources.plugin")
    tracemalloc.start()
    try:
        async with faulty("flood") as tools:
            assert (await say(tools)).text == "hello"
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


async def test_what_it_says_on_standard_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolkit.sources.plugin")
    async with faulty("exits") as tools:
        await say(tools, "exit")
    assert any("giving up" in record.getMessage() for record in caplog.records)


async def test_calls_that_outlive_the_block_are_told_that_it_is_closed() -> None:
    results: list[ToolResult] = []

    async def call(tools: ToolRegistry) -> None:
        results.append(await say(tools))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            async with plugin_tools(sys.executable, [str(FAULTY), "silent"]) as tools:
                for _ in range(2):
                    tasks.start_soon(call, ToolRegistry(tools))
                    await anyio.wait_all_tasks_blocked()
            await call(ToolRegistry(tools))
    assert "may have taken effect" in results[0].text
    for result in results[1:]:
        assert result.text == "plugin faulty.py: its tools are closed; use them inside of `async with`"


async def test_its_children_end_with_the_block_also_when_it_was_killed() -> None:
    async with faulty("children") as tools:
        child = int((await say(tools)).text)
        assert is_running(child)
        (plugin,) = plugins_running()
        os.kill(plugin, 9)
    await eventually(lambda: not is_running(child))
    assert not plugins_running()


async def test_an_error_in_the_block_leaves_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        async with faulty("plain"):
            raise ZeroDivisionError
    assert not plugins_running()


async def test_cancelling_at_any_time_leaves_no_process() -> None:
    async def run(seconds: float) -> None:
        with anyio.move_on_after(seconds) as scope:
            async with faulty("silent") as tools:
                await say(tools)
        assert scope.cancelled_caught

    async with anyio.create_task_group() as tasks:
        for seconds in (0.0, 0.001, 0.01, 0.05, 0.3):
            tasks.start_soon(run, seconds)
    assert not plugins_running()
