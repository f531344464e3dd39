"""Durable runs in Restate: begun, decided on, cancelled and served, over a real server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toolkit.durable
from tests.durable.desk import make_desk, read_notes
from tests.durable.restate_server import RestateError, RestateFleet, find_port
from toolkit.chat import validate_transcript
from toolkit.durable import LoopQueue, restate_service
from toolkit.durable.rests import Rest, read_rest
from toolkit.errors import ConfigurationError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by POSIX's signal")

INTERRUPTED = "Interrupted: the process that ran it ended."


def await_state(fleet: RestateFleet, run: str, state: str) -> dict[str, Any]:
    """Return how a run stands as soon as it stands so."""
    deadline = time.monotonic() + 180
    while True:
        try:
            status: dict[str, Any] = fleet.server.call(f"/desk/{run}/status")
        except RestateError as error:
            status = {"state": str(error)}
        if status["state"] == state:
            return status
        assert time.monotonic() < deadline, f"{run} is {status}, not {state}"
        time.sleep(0.02)


def await_note(fleet: RestateFleet, run: str, note: str) -> None:
    deadline = time.monotonic() + 180
    while note not in read_notes(fleet.folder, run):
        assert time.monotonic() < deadline, f"{run} has only done {read_notes(fleet.folder, run)}"
        time.sleep(0.01)


def decide(fleet: RestateFleet, run: str, kind: str = "approve", **more: str) -> dict[str, Any]:
    """Decide on the first call that awaits it."""
    pending = await_state(fleet, run, "waiting")["pending"][0]
    body = {"call_id": pending["call_id"], "binding": pending["binding"], "decision": {"kind": kind, **more}}
    left: dict[str, Any] = fleet.server.call(f"/desk/{run}/decide", body)
    return left


@pytest.mark.real
def test_a_decision_is_taken_after_a_restart_of_server_and_workers(fleet: RestateFleet) -> None:
    left = fleet.server.call("/desk/patient/start", {"prompt": "add refund add"})
    assert (left["state"], left["ending"]) == ("waiting", "awaiting_approval")
    fleet.server.kill()
    fleet.workers.kill()
    fleet.server.start()
    left = decide(fleet, "patient")
    assert left["result"]["text"] == "Done after 3 turns: add refund add."
    assert read_notes(fleet.folder, "patient") == ["add c0", "refund c1 1", "add c2"]
    assert fleet.server.call("/desk/patient/result") == left
    assert read_rest(left).load_result().messages[-1].text == "Done after 3 turns: add refund add."


@pytest.mark.real
def test_a_sub_agent_that_awaits_a_decision_goes_on_after_a_restart_of_the_workers(fleet: RestateFleet) -> None:
    left = fleet.server.call("/desk/ward/start", {"prompt": "clerk add"})
    assert (left["state"], left["ending"]) == ("waiting", "awaiting_approval")
    [pending] = await_state(fleet, "ward", "waiting")["pending"]
    assert (pending["tool_name"], pending["agent"]) == ("refund", "clerk")
    fleet.workers.kill()
    left = decide(fleet, "ward")
    assert left["result"]["text"] == "Done after 2 turns: clerk add."
    assert read_rest(left).load_messages()[2].text == "gave back"
    assert read_notes(fleet.folder, "ward") == ["slow c0.s", "ended c0.s", "refund c0.r 5", "add c1"]


@pytest.mark.real
def test_a_run_goes_on_after_its_server_was_killed(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/bereft/start/send", {"prompt": "add wait add"})
    await_note(fleet, "bereft", "wait c1")
    fleet.server.kill()
    fleet.server.start()
    await_state(fleet, "bereft", "done")
    left = fleet.server.call("/desk/bereft/result")
    assert INTERRUPTED in read_rest(left).load_messages()[4].text
    assert read_notes(fleet.folder, "bereft").count("wait c1") == 1


@pytest.mark.real
def test_what_a_frozen_worker_says_late_is_not_heard(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/frozen/start/send", {"prompt": "add wait add"})
    await_note(fleet, "frozen", "wait c1")
    frozen = fleet.workers.find_pid()
    fleet.workers.send(frozen, signal.SIGSTOP)
    await_state(fleet, "frozen", "done")
    left = fleet.server.call("/desk/frozen/result")
    assert INTERRUPTED in read_rest(left).load_messages()[4].text
    (fleet.folder / "go-frozen").touch()  # its call may end now
    fleet.workers.send(frozen, signal.SIGCONT)
    fleet.server.call("/desk/after/start", {"prompt": "add"})
    assert fleet.server.call("/desk/frozen/result") == left
    assert read_notes(fleet.folder, "frozen")[:2] == ["add c0", "wait c1"]
    assert read_notes(fleet.folder, "frozen").count("add c2") == 1


@pytest.mark.real
def test_what_is_said_is_read_once_the_run_has_come_to_its_end(fleet: RestateFleet) -> None:
    with pytest.raises(RestateError, match="404: run 'spoken' was not started"):
        fleet.server.call("/desk/spoken/say", {"message": "add"})
    fleet.server.call("/desk/spoken/start/send", {"prompt": "add wait"})
    await_note(fleet, "spoken", "wait c1")
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(fleet.server.call, "/desk/spoken/say", {"message": "x refund add"})  # while it moves
        fleet.workers.kill()
        assert said.result()["state"] == "waiting"
    left = fleet.server.call("/desk/spoken/say", {"message": {"role": "user", "content": "x add"}})
    assert left["state"] == "waiting", "it is read after the decision"
    left = decide(fleet, "spoken")
    assert left["result"]["text"] == "Done after 7 turns: add wait x refund add x add."
    assert [message.text for message in read_rest(left).load_messages() if message.role == "user"] == [
        "add wait", "x refund add", "x add",
    ]  # fmt: skip
    assert read_notes(fleet.folder, "spoken") == ["add c0", "wait c1", "refund c3 3", "add c4", "add c6"]
    with pytest.raises(RestateError, match="400: the message can't be read"):
        fleet.server.call("/desk/spoken/say", {"message": {"role": "tool"}})
    with pytest.raises(RestateError, match="400: the message can't be read"):
        fleet.server.call("/desk/spoken/say", {})
    with pytest.raises(RestateError, match="400: the message can't be read: the message to a durable run is empty"):
        fleet.server.call("/desk/spoken/say", {"message": " "})


@pytest.mark.real
def test_a_cancelled_run_does_not_go_on_with_what_was_said_before(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/hushed/start", {"prompt": "refund"})
    fleet.server.call("/desk/hushed/say", {"message": "add"})
    fleet.server.call("/desk/hushed/cancel")
    await_state(fleet, "hushed", "cancelled")
    left = fleet.server.call("/desk/hushed/say", {"message": "add"})
    assert left["state"] == "done"
    assert [message.text for message in read_rest(left).load_messages() if message.role == "user"] == [
        "refund", "add", "add",
    ]  # fmt: skip


@pytest.mark.real
def test_a_second_decider_is_told_and_so_is_who_begins_a_run_anew(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/shared/start", {"prompt": "refund"})
    pending = await_state(fleet, "shared", "waiting")["pending"][0]
    left = decide(fleet, "shared", "deny", reason="too much")
    body = {"call_id": pending["call_id"], "binding": pending["binding"], "decision": {"kind": "approve"}}
    with pytest.raises(RestateError, match="409: the decision on call 'c0' of run 'shared' was not taken"):
        fleet.server.call("/desk/shared/decide", body)
    with pytest.raises(RestateError, match="400: a decision has a 'kind'"):
        fleet.server.call("/desk/shared/decide", {**body, "decision": "yes"})
    assert read_notes(fleet.folder, "shared") == []
    assert fleet.server.call("/desk/shared/start", {"prompt": "refund"}) == left
    with pytest.raises(RestateError, match="409: run 'shared' was begun with something else"):
        fleet.server.call("/desk/shared/start", {"prompt": "add"})
    fleet.server.call("/desk/shared/forget")
    with pytest.raises(RestateError, match="404: run 'shared' was not started"):
        fleet.server.call("/desk/shared/status")


@pytest.mark.real
def test_what_a_run_can_not_begin_with_is_told(fleet: RestateFleet) -> None:
    with pytest.raises(RestateError, match="400: the run can't be begun: the prompt of a durable run is empty"):
        fleet.server.call("/desk/wrong/start", {"prompt": ""})
    with pytest.raises(RestateError, match="400: a run's tenant is a text"):
        fleet.server.call("/desk/wrong/start", {"prompt": "add", "tenant": 3})
    with pytest.raises(RestateError, match="404"):
        fleet.server.call("/desk/wrong/result")


@pytest.mark.real
def test_what_nobody_decides_on_is_denied(fleet: RestateFleet) -> None:
    fleet.server.call("/hasty/slowpoke/start", {"prompt": "both add"})
    deadline = time.monotonic() + 180
    while fleet.server.call("/hasty/slowpoke/status")["state"] != "done":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    messages = read_rest(fleet.server.call("/hasty/slowpoke/result")).load_messages()
    assert [message.text for message in messages[2:4]] == ["Tool call denied: nobody decided in time."] * 2
    assert read_notes(fleet.folder, "slowpoke") == ["add c1"]


@pytest.mark.real
def test_a_cancelled_run_is_closed_wherever_it_is(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/busy/start/send", {"prompt": "add wait add"})
    await_note(fleet, "busy", "wait c1")
    fleet.server.call("/desk/thinking/start/send", {"prompt": "add think"})
    while not (fleet.folder / "thinking").exists():
        time.sleep(0.01)
    fleet.server.call("/desk/resting/start", {"prompt": "add refund"})
    for run in ("busy", "thinking", "resting"):
        fleet.server.call(f"/desk/{run}/cancel")
        await_state(fleet, run, "cancelled")
        rest = read_rest(fleet.server.call(f"/desk/{run}/result"))
        assert rest.ending == "cancelled"
        validate_transcript(rest.load_messages())
    assert read_notes(fleet.folder, "busy") == ["add c0", "wait c1", "told c1 CancelledError"]
    assert read_notes(fleet.folder, "resting") == ["add c0"]


@pytest.mark.real
def test_a_cancellation_holds_over_a_crash(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/cut/start/send", {"prompt": "add wait add"})
    await_note(fleet, "cut", "wait c1")
    fleet.workers.kill()
    fleet.server.call("/desk/cut/cancel")
    rest = await_rest(fleet, "cut")
    assert rest.state in ("cancelled", "done")  # the crash may have let it go on before it was cancelled
    validate_transcript(rest.load_messages())
    assert read_notes(fleet.folder, "cut").count("wait c1") == 1


def await_rest(fleet: RestateFleet, run: str) -> Rest:
    deadline = time.monotonic() + 180
    while fleet.server.call(f"/desk/{run}/status")["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return read_rest(fleet.server.call(f"/desk/{run}/result"))


@pytest.mark.real
def test_a_run_that_fails_says_why_and_is_not_tried_again(fleet: RestateFleet) -> None:
    left = fleet.server.call("/desk/unlucky/start", {"prompt": "add fail"})
    assert (left["state"], left["ending"]) == ("failed", "ProviderError")
    assert "the server is broken" in left["error"]
    assert read_notes(fleet.folder, "unlucky") == ["add c0"]


@pytest.mark.real
def test_settings_that_ask_for_other_entries_are_refused_until_they_are_mended(fleet: RestateFleet) -> None:
    other = fleet.folder / "changed.other"
    other.write_text("yes")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fleet.server.call, "/crashes/change_settings", "changed")
        deadline, told = time.monotonic() + 180, ""
        while "compact 1" not in told:
            assert time.monotonic() < deadline
            query = "select last_failure from sys_invocation where target = 'crashes/change_settings'"
            told = str(fleet.server.query(query))
            time.sleep(0.05)
        assert "turn 1" in told
        other.unlink()
        assert run.result() == "done"


@pytest.mark.real
def test_what_can_not_be_kept_is_told_again_and_the_model_is_not_asked_again(fleet: RestateFleet) -> None:
    error = fleet.server.call("/crashes/reply_with_no_json", "odd")
    assert "ModelReplied can't be stored in the log" in error
    assert (fleet.folder / "odd.attempts").read_text().split() == ["asked", "told", "told"]


@pytest.mark.real
def test_a_handler_of_ones_own_is_cancelled_by_the_engine(fleet: RestateFleet) -> None:
    (fleet.folder / "own").mkdir()
    (fleet.folder / "own" / "notes.held").touch()  # holds its calls, which would end in milliseconds
    run = fleet.server.call("/crashes/run_slowly/send", "own")["invocationId"]
    notes = fleet.folder / "own" / "notes"
    deadline = time.monotonic() + 180
    while not notes.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    fleet.server.cancel(run)
    query = f"select status, completion_failure from sys_invocation where id = '{run}'"
    while (found := fleet.server.query(query)[0])["status"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "cancelled" in found["completion_failure"]


@pytest.mark.real
def test_a_sub_agent_goes_on_from_its_own_log_after_a_crash(fleet: RestateFleet) -> None:
    fleet.server.call("/desk/helped/start/send", {"prompt": "helper wait helper"})
    await_note(fleet, "helped", "wait c1")
    fleet.workers.kill()
    (fleet.folder / "go-helped").touch()
    rest = await_rest(fleet, "helped")
    assert read_notes(fleet.folder, "helped").count("ended h0") == 2  # once in each of the two sub-agents
    assert rest.load_messages()[2].text.endswith("helped")

    fleet.server.call("/desk/torn/start/send", {"prompt": "helper"})
    await_note(fleet, "torn", "ended h0")
    fleet.workers.kill()
    rest = await_rest(fleet, "torn")
    assert rest.load_messages()[2].text.endswith("helped")
    done = read_notes(fleet.folder, "torn")
    assert (done.count("slow h0"), done.count("slow h1")) == (1, 1), "no call of the sub-agent ran twice"


def test_what_restate_has_no_place_for_is_refused_before_a_run(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    assert restate_service(desk).name == "desk"
    with pytest.raises(ConfigurationError, match="the loop 'desk' has a queue"):
        restate_service(replace(desk, queue=LoopQueue(concurrency=3)))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("toolkit.durable.restate_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "restate", None)
    with pytest.raises(ModuleNotFoundError, match=r"is not installed: `pip install 'toolkit-sdk\[restate\]'`"):
        toolkit.durable.restate_service  # noqa: B018


@contextmanager
def serving_shop(folder: Path, *command: str, protocol: str) -> Generator[int]:
    """Serve the loop of the guide page; yield the port."""
    page = (Path(__file__).parents[2] / "docs" / "durable_services.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    parts = [block for block in blocks if "support = durable_loop" in block or "restate.app" in block]
    assert len(parts) == 2
    (folder / "shop.py").write_text("\n".join(parts).replace(', protocol="bidi"', protocol), encoding="utf-8")
    port = find_port()
    full = [sys.executable, "-m", *(part.format(port=port) for part in command), "shop:app"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(full, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        await_port(port)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with the process that it has started
        process.wait(60)


@pytest.mark.real
def test_the_service_of_the_guide_page_runs(fleet: RestateFleet, tmp_path: Path) -> None:
    with serving_shop(tmp_path, "hypercorn", "--bind", "127.0.0.1:{port}", protocol=', protocol="bidi"') as port:
        fleet.server.register(port)
        begin = {"prompt": "Refund order 17.", "metadata": {"customer": 3}}
        assert fleet.server.call("/support/ticket-17/start", begin)["state"] == "waiting"
        [pending] = fleet.server.call("/support/ticket-17/status")["pending"]
        assert (pending["tool_name"], pending["arguments"]) == ("refund", {"number": 17})
        body = {"call_id": "c2", "binding": pending["binding"], "decision": {"kind": "approve"}}
        assert fleet.server.call("/support/ticket-17/decide", body)["state"] == "done"
        rest = read_rest(fleet.server.call("/support/ticket-17/result"))
        assert rest.load_result().text == "Done: order 17 was refunded, see c2."


@pytest.mark.real
def test_a_service_that_can_not_be_answered_while_it_works_is_told_and_runs_nothing(
    fleet: RestateFleet, tmp_path: Path
) -> None:
    with serving_shop(tmp_path, "uvicorn", "--port", "{port}", protocol="") as port:
        fleet.server.register(port, use_http_11=True)
        begin = {"prompt": "Refund order 17.", "metadata": {"customer": 3}}
        run = fleet.server.call("/support/ticket-18/start/send", begin)["invocationId"]
        deadline, told = time.monotonic() + 180, ""
        while "over HTTP/2, as hypercorn does" not in told:
            assert time.monotonic() < deadline
            told = str(fleet.server.query(f"select last_failure from sys_invocation where id = '{run}'"))
            time.sleep(0.05)
    with serving_shop(tmp_path, "hypercorn", "--bind", "127.0.0.1:{port}", protocol=', protocol="bidi"') as port:
        fleet.server.register(port)
        body = {"prompt": "Refund order 17.", "metadata": {"customer": 3}}
        assert fleet.server.call("/support/ticket-19/start", body)["state"] == "waiting"


def await_port(port: int) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return
