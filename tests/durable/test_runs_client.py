"""Durable runs as a client sees them: on SQLite, with a worker beside."""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import anyio
import pytest

from tests.durable.desk import Desk, make_desk, read_notes
from tests.durable.serving import worker_beside
from toolkit import (
    AnswerFormat,
    Approve,
    ChatRequest,
    ConfigurationError,
    Deny,
    Message,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
)
from toolkit.calls.approval import Abort, Modify
from toolkit.chat import validate_transcript
from toolkit.durable import (
    DatabaseUnavailableError,
    DecisionRefusedError,
    DurableError,
    DurableLoop,
    DurableRun,
    DurableRunNotFoundError,
    DurableRuns,
    durable_loop,
)
from toolkit.durable.storage import Storage
from toolkit.errors import LoopUsageError
from toolkit.events import Done, IterationStart, ResponseReceived, TextDelta, ToolExecutionEnd
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("durable")


@pytest.fixture(scope="module")
def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


@pytest.fixture(scope="module")
def desk(folder: Path, url: str) -> Iterator[DurableLoop[Desk, None]]:
    loop = make_desk(folder)
    with worker_beside(url, loop, CALCULATOR, GREETER):
        yield loop


@dataclass(frozen=True)
class Sum:
    total: int
    day: date


DAY = date(2026, 11, 23)
CALCULATOR = durable_loop(
    "calculator",
    provider=FunctionProvider(
        lambda request: ToolCall("1", "final_answer", '{"answer": {"total": 3, "day": "2026-11-23"}}')
    ),
    registry=ToolRegistry(),
    config=ToolLoopConfig(answer=AnswerFormat(Sum)),
)


@pytest.fixture
async def runs(url: str) -> AsyncIterator[DurableRuns]:
    async with DurableRuns(url) as opened:
        yield opened


async def wait_for_note(folder: Path, run: DurableRun, note: str) -> None:
    with anyio.fail_after(90):
        while note not in read_notes(folder, run.id):  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.01)


@pytest.mark.usefixtures("desk")
async def test_the_answer_of_a_run_is_of_the_type_of_its_loop(runs: DurableRuns) -> None:
    run = await runs.start(CALCULATOR, "1 + 2")
    assert (await run.result(timeout=90)).require_output() == Sum(3, DAY)
    assert (await (await runs.get(run.id, CALCULATOR)).result()).output == Sum(3, DAY)
    assert (await (await runs.get(run.id)).result()).output == {"total": 3, "day": "2026-11-23"}
    changed = replace(CALCULATOR, config=ToolLoopConfig(answer=AnswerFormat(int)))
    with pytest.raises(DurableError, match="not of the type that loop 'calculator' has now"):
        await (await runs.get(run.id, changed)).result()
    with pytest.raises(DurableError, match="one of loop 'calculator', not of 'other'"):
        await runs.get(run.id, replace(CALCULATOR, name="other"))


def greet(user: str) -> str:
    return f"You speak with {user}."


GREETER = durable_loop(
    "greeter",
    provider=FunctionProvider(lambda request: " / ".join([each.text for each in request.messages])),
    registry=ToolRegistry[str](),
    ctx=lambda run: str(run.metadata["user"]),
    system_prompt=greet,
)


@pytest.mark.usefixtures("desk")
async def test_the_system_prompt_of_a_run_comes_from_its_context_once(runs: DurableRuns) -> None:
    run = await runs.start(GREETER, "Hi.", metadata={"user": "Ada"})
    assert (await run.result(timeout=90)).text == "You speak with Ada. / Hi."
    await run.say("And?")
    answers = ["You speak with Ada. / Hi.", "You speak with Ada. / Hi."]
    assert (await run.result(timeout=90)).text == f"{answers[0]} / {answers[1]} / And?"
    given: list[Message] = [SystemMessage("Be brief."), UserMessage("Hi.")]
    other = await runs.start(GREETER, given, metadata={"user": "Bob"})
    assert (await other.result(timeout=90)).text == "Be brief. / Hi."


async def test_a_run_gives_its_result_to_any_client(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path, url: str
) -> None:
    run = await runs.start(desk, "add add")
    result = await run.result(timeout=90)
    assert result.text == "Done after 2 turns: add add."
    assert result.reason.kind == "complete"
    assert read_notes(folder, run.id) == ["add c0", "add c1"]
    validate_transcript(result.messages)
    async with DurableRuns(url) as others:
        again = await (await others.get(run.id)).result(timeout=5)
        assert again.messages == result.messages
        status = await (await others.get(run.id)).status()
    assert (status.state, status.ending, status.loop, status.attempts) == ("done", "complete", "desk", 1)


async def test_the_same_id_is_the_same_run(runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path) -> None:
    run = await runs.start(desk, "add", run_id=(await runs.start(desk, "add")).id)
    await run.result(timeout=90)
    again = await runs.start(desk, "add add add", run_id=run.id)
    assert (await again.result(timeout=90)).text == "Done after 1 turns: add."
    assert read_notes(folder, run.id) == ["add c0"]


async def test_the_id_of_another_loops_run_is_refused(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "add")
    with pytest.raises(DurableError, match="is one of loop 'desk', not of 'other'"):
        await runs.start(make_desk(folder, name="other"), "add", run_id=run.id)


async def test_a_decision_has_the_run_go_on_and_a_second_decider_is_told(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "refund add")
    assert (await run.result(timeout=90)).reason.kind == "awaiting_approval"
    status = await run.status()
    (pending,) = status.pending
    assert (status.state, pending.tool_name, dict(pending.arguments)) == ("waiting", "refund", {"n": 0})
    with pytest.raises(DecisionRefusedError, match="look at it again"):
        await run.decide(pending.call_id, Approve(), binding="0" * 64)
    await run.decide(pending.call_id, Approve(), binding=pending.binding)
    with pytest.raises(DecisionRefusedError, match="somebody has decided on it already"):
        await run.decide(pending.call_id, Deny("no"), binding=pending.binding)
    assert (await run.result(timeout=90)).text == "Done after 2 turns: refund add."
    assert read_notes(folder, run.id) == ["refund c0 0", "add c1"]
    with pytest.raises(DecisionRefusedError, match="already"):
        await run.decide(pending.call_id, Approve(), binding=pending.binding)
    with pytest.raises(DecisionRefusedError, match="the run is done"):
        await run.decide("c9", Approve(), binding=pending.binding)


async def test_of_two_deciders_at_once_one_decides(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "refund")
    await run.result(timeout=90)
    (pending,) = (await run.status()).pending
    refused: list[DecisionRefusedError] = []

    async def decide() -> None:
        try:
            await run.decide(pending.call_id, Approve(), binding=pending.binding)
        except DecisionRefusedError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(decide)
    assert len(refused) == 4
    await run.result(timeout=90)
    assert read_notes(folder, run.id) == ["refund c0 0"]


async def test_calls_that_wait_together_are_decided_one_by_one(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "both")
    await run.result(timeout=90)
    first, second = (await run.status()).pending
    await run.decide(second.call_id, Modify({"n": 7}), binding=second.binding)
    with anyio.fail_after(90):
        while [each.call_id for each in (await run.status()).pending] != [first.call_id]:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    with pytest.raises(DecisionRefusedError, match="already"):
        await run.decide(second.call_id, Approve(), binding=second.binding)
    await run.decide(first.call_id, Deny("not this one"), binding=first.binding)
    with anyio.fail_after(90):
        while (await run.status()).state != "done":  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)
    result = await run.result()
    assert read_notes(folder, run.id) == ["refund c0.1 7"]
    texts = {message.call_id: message.text for message in result.messages if isinstance(message, ToolResult)}
    changed = '[The approver changed the arguments of this call: it ran with {"n":7}.]'
    assert texts == {"c0.0": "not this one", "c0.1": f"refunded 7\n\n{changed}"}


async def test_an_abort_ends_the_run(runs: DurableRuns, desk: DurableLoop[Desk, None]) -> None:
    run = await runs.start(desk, "refund")
    await run.result(timeout=90)
    (pending,) = (await run.status()).pending
    await run.decide(pending.call_id, Abort("fraud"), binding=pending.binding)
    assert (await run.result(timeout=90)).reason.kind == "aborted"


async def test_events_are_read_from_any_number_on_without_gap_or_repetition(
    runs: DurableRuns, desk: DurableLoop[Desk, None]
) -> None:
    run = await runs.start(desk, "add refund")
    live = [told async for told in run.events()]
    (pending,) = (await run.status()).pending
    await run.decide(pending.call_id, Approve(), binding=pending.binding)
    live += [told async for told in run.events(after=live[-1].seq)]
    assert [told.seq for told in live] == sorted({told.seq for told in live})
    for start in range(len(live)):
        after = live[start - 1].seq if start else 0
        assert [told async for told in run.events(after=after)] == live[start:]
    kinds = [type(told.event) for told in live]
    assert kinds.count(ToolExecutionEnd) == 2
    assert kinds[-1] is Done
    turns = [told.turn for told in live if isinstance(told.event, (IterationStart, ResponseReceived))]
    assert turns == [1, 1, 2, 2, 3, 3]
    text = "".join(told.event.text for told in live if isinstance(told.event, TextDelta))
    assert text == "Done after 2 turns: add refund."


async def test_events_go_on_over_a_wait_where_that_is_asked(runs: DurableRuns, desk: DurableLoop[Desk, None]) -> None:
    run = await runs.start(desk, "refund")
    endings: list[str] = []
    with anyio.fail_after(90):
        async for told in run.events(until="end"):
            if isinstance(told.event, Done):
                endings.append(told.event.result.reason.kind)
                for pending in (await run.status()).pending:
                    await run.decide(pending.call_id, Approve(), binding=pending.binding)
    assert endings == ["awaiting_approval", "complete"]


async def test_a_call_that_runs_is_told_that_the_run_was_cancelled(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "wait")
    await wait_for_note(folder, run, "wait c0")
    await run.cancel("enough")
    with anyio.fail_after(120):
        result = await run.result()
    assert (result.reason.kind, (await run.status()).state) == ("cancelled", "cancelled")
    assert any(note.startswith("told c0") for note in read_notes(folder, run.id))
    validate_transcript(result.messages)
    (told,) = [message for message in result.messages if isinstance(message, ToolResult)]
    assert "may have taken effect" in told.text


async def test_a_request_that_is_under_way_ends_with_the_run_that_is_cancelled(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "add think")
    with anyio.fail_after(90):
        while not (folder / "thinking").exists():  # noqa: ASYNC110 - of another thread
            await anyio.sleep(0.01)
    await run.cancel("enough")
    with anyio.fail_after(120):
        result = await run.result()
    (folder / "thinking").unlink()
    assert (result.reason.kind, read_notes(folder, run.id)) == ("cancelled", ["add c0"])
    validate_transcript(result.messages)


async def test_a_sub_agent_works_durably(runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path) -> None:
    run = await runs.start(desk, "helper add")
    result = await run.result(timeout=90)
    assert read_notes(folder, run.id) == ["slow h0", "ended h0", "slow h1", "ended h1", "add c1"]
    assert next(message.text for message in result.messages if isinstance(message, ToolResult)).endswith("helped")


async def test_a_run_that_waits_is_closed_by_a_cancel(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "refund")
    await run.result(timeout=90)
    await run.cancel()
    with anyio.fail_after(90):
        while (await run.status()).state != "cancelled":  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)
    result = await run.result()
    validate_transcript(result.messages)
    assert read_notes(folder, run.id) == []


async def test_a_cancel_of_a_run_that_has_ended_changes_nothing(
    runs: DurableRuns, desk: DurableLoop[Desk, None]
) -> None:
    run = await runs.start(desk, "add")
    before = await run.result(timeout=90)
    await run.cancel()
    assert (await run.result(timeout=90)).messages == before.messages
    assert (await run.status()).state == "done"


async def test_what_is_said_to_a_run_that_has_ended_has_it_go_on(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "add")
    await run.result(timeout=90)
    await run.say("then add")
    with anyio.fail_after(90):
        while (await run.status()).state != "done":  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)
    result = await run.result()
    assert result.text == "Done after 3 turns: add then add."
    assert read_notes(folder, run.id) == ["add c0", "add c2"]
    for send in (run.say, run.steer):
        with pytest.raises(ConfigurationError, match="the message to a durable run is empty"):
            await send(" ")


async def test_what_is_said_while_a_run_moves_reaches_the_model_once(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "wait")
    await wait_for_note(folder, run, "wait c0")
    await run.say("later")
    await run.steer("now")
    (folder / f"go-{run.id}").touch()
    said: list[str] = []
    with anyio.fail_after(90):
        while len(said) < 3:
            result = await run.result()  # the run may end before a worker has looked, and goes on then
            said = [message.text for message in result.messages if isinstance(message, UserMessage)]
    assert sorted(said) == ["later", "now", "wait"]
    assert said[0] == "wait"


async def test_a_run_that_failed_goes_on_when_it_is_tried_again(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "add fail")
    with pytest.raises(DurableError, match=r"ProviderError.*the server is broken"):
        await run.result(timeout=90)
    status = await run.status()
    assert (status.state, status.ending) == ("failed", "ProviderError")
    (folder / "mended").touch()
    await run.retry()
    with anyio.fail_after(90):
        while (await run.status()).state != "done":  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.02)
    (folder / "mended").unlink()
    assert (await run.result()).text == "Done after 2 turns: add fail."
    assert read_notes(folder, run.id) == ["add c0", "add c1"]
    with pytest.raises(DurableError, match="only one that failed or was cancelled"):
        await run.retry()


async def test_a_fork_goes_another_way_from_a_turn_on(
    runs: DurableRuns, desk: DurableLoop[Desk, None], folder: Path
) -> None:
    run = await runs.start(desk, "add add")
    await run.result(timeout=90)
    fork = await runs.fork(run.id, turn=1, prompt="add")
    result = await fork.result(timeout=90)
    assert result.text == "Done after 3 turns: add add add."
    assert read_notes(folder, fork.id) == ["add c1", "add c2"]
    with pytest.raises(DurableError, match="it can't be forked at 9"):
        await runs.fork(run.id, turn=9)
    with pytest.raises(DurableError, match=f"there is a run '{fork.id}' already: give another id"):
        await runs.fork(run.id, turn=1, new_run_id=fork.id)


async def test_runs_are_listed_by_loop_state_and_tenant(runs: DurableRuns, desk: DurableLoop[Desk, None]) -> None:
    made = [await runs.start(desk, "refund", tenant="acme") for _ in range(3)]
    for run in made:
        await run.result(timeout=90)
    found = await runs.list(loop=desk, state="waiting", tenant="acme")
    assert {status.run_id for status in found} >= {run.id for run in made}
    assert [status.run_id for status in found] == [s.run_id for s in sorted(found, key=lambda s: -s.created)]
    rest = await runs.list(loop="desk", tenant="acme", after=found[0].run_id, limit=1)
    assert [status.run_id for status in rest] == [found[1].run_id]
    assert await runs.list(loop="nothing") == []


async def test_a_run_is_exported_and_deleted_whole(runs: DurableRuns, desk: DurableLoop[Desk, None]) -> None:
    run = await runs.start(desk, "add", metadata={"customer": 7})
    await run.result(timeout=90)
    export = await run.export()
    assert (export["state"], export["metadata"], len(export["messages"])) == ("done", {"customer": 7}, 4)
    assert export["events"][0]["event"] == "run_opened"
    await runs.delete(run.id)
    with pytest.raises(DurableRunNotFoundError):
        await runs.get(run.id)
    with pytest.raises(DurableRunNotFoundError):
        await run.status()


async def test_what_can_not_be_stored_is_refused_before_the_start(
    runs: DurableRuns, desk: DurableLoop[Desk, None]
) -> None:
    with pytest.raises(DurableError, match="no JSON"):
        await runs.start(desk, "add", run_id="unstorable", metadata={"a": object()})
    with pytest.raises(DurableError, match="can't be stored"):
        await runs.start(desk, [ToolResult("1", "x")], run_id="unstorable")
    with pytest.raises(ConfigurationError, match="empty"):
        await runs.start(desk, " ", run_id="unstorable")
    with pytest.raises(ConfigurationError, match="settings of requests"):
        await runs.start(desk, ChatRequest(messages=(UserMessage("add"),)), run_id="unstorable")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="no id of a durable run"):
        await runs.start(desk, "add", run_id="a/b")
    with pytest.raises(DurableRunNotFoundError, match="'unstorable'"):
        await runs.get("unstorable")


async def test_a_database_that_is_none_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but a text that is long enough " * 20)
    with pytest.raises(DatabaseUnavailableError, match="file is not a database"):
        async with DurableRuns(f"sqlite:///{tmp_path / 'text.db'}"):
            pass
    with pytest.raises(DatabaseUnavailableError) as caught:
        async with DurableRuns("postgresql://me:hidden@127.0.0.1:1/none"):
            pass
    assert "hidden" not in str(caught.value)
    for wrong in ("runs.db", "mysql://x/y", "sqlite://"):
        with pytest.raises(ConfigurationError, match=r"sqlite:///runs\.db"):
            async with DurableRuns(wrong):
                pass
    with pytest.raises(LoopUsageError, match="async with DurableRuns"):
        await DurableRuns("sqlite:///never.db").get("x")


def test_the_engine_reads_the_clock_of_an_sqlite_that_is_older_than_it_thinks(tmp_path: Path) -> None:
    storage = Storage(f"sqlite:///{tmp_path / 'runs.db'}")
    with storage.engine.connect() as connection:
        now = connection.exec_driver_sql("SELECT unixepoch('subsec')").scalar_one()
    assert abs(time.time() - now) < 60
    storage.close()
