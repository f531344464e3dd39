"""Secrets are planted wherever a run can get them: what promises to have none is searched for them."""

import json
import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from tests.durable.desk import Desk, make_desk
from tests.durable.serving import worker_beside
from tests.durable.test_workers_limits import wait_for_state
from toolkit import ChatRequest, ToolCall, ToolContext, ToolRegistry, tool_with_ctx
from toolkit.durable import DurableError, DurableRuns
from toolkit.errors import ProviderError
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio

_KEYS = {
    name: f"sk-{name}-" + f"{number}a7" * 12
    for number, name in enumerate(("prompt", "argument", "result", "metadata", "error", "text"))
}


_WORD = "swordfish"  # which its schema alone tells of


@tool_with_ctx
async def look_up(context: ToolContext[Desk], token: str, word: SecretStr) -> str:
    """Look something up."""
    assert word.get_secret_value() == _WORD
    return f"found {_KEYS['result']} by {len(token)} letters for {context.state.run_id}"


def model(request: ChatRequest) -> str | ToolCall:
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn == 0:
        return ToolCall("c0", "look_up", json.dumps({"token": _KEYS["argument"], "word": _WORD}))
    if "break" in request.messages[0].text:
        raise ProviderError("desk", f"the key {_KEYS['error']} has expired; password={_KEYS['error']}")
    return f"Your key is {_KEYS['text']}."


async def test_what_people_read_has_no_secret_and_what_runs_go_on_from_has_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    desk = replace(make_desk(tmp_path), provider=FunctionProvider(model), registry=ToolRegistry[Desk]([look_up]))
    prompt, metadata = f"My key is {_KEYS['prompt']}.", {"api_key": _KEYS["metadata"], "customer": 3}
    shown: list[str] = []
    with caplog.at_level(logging.DEBUG, "toolkit.durable"):
        async with DurableRuns(url) as runs:
            with worker_beside(url, desk):
                run = await runs.start(desk, prompt, run_id="well", metadata=metadata)
                broken = await runs.start(desk, f"{prompt} break", run_id="broken", metadata=metadata)
                await wait_for_state(run, "done")
                await wait_for_state(broken, "failed")
                with pytest.raises(DurableError) as failure:
                    await broken.result()
                shown.append(str(failure.value))
                for each in (run, broken):
                    shown += [repr(await each.status()), json.dumps(await each.export())]
                    shown += [repr(told) async for told in each.events()]
                shown.append(repr(await runs.list()))
                result = await run.result()
    shown += [record.getMessage() + str(record.exc_text or "") for record in caplog.records]
    for name, key in _KEYS.items():
        assert not [text for text in shown if key in text], f"the secret of the {name}"
    assert not [text for text in shown if _WORD in text], "an argument that the schema marks"
    whole = result.text + "".join(message.text for message in result.messages)
    assert all(_KEYS[name] in whole for name in ("prompt", "result", "text")), "a run goes on from what was said"
    check_tables(tmp_path / "runs.db")


def check_tables(path: Path) -> None:
    """Check that no event has a key, and that what runs go on from is all that has some."""
    holding: dict[str, set[str]] = {}
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            text = repr(database.execute(f"SELECT * FROM {table}").fetchall())
            holding[table] = {name for name, key in _KEYS.items() if key in text}
    assert holding["toolkit_events"] == holding["toolkit_workers"] == set()
    assert holding["toolkit_runs"] == {"metadata"}
    assert not any("error" in names for names in holding.values()), "an error is kept without the key that it names"


async def test_an_error_of_the_database_shows_nothing_of_what_was_to_be_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    desk = make_desk(tmp_path)
    async with DurableRuns(url) as runs:
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
            database.execute("DROP TABLE toolkit_runs")
        with pytest.raises(DurableError) as failure:
            await runs.start(desk, f"My key is {_KEYS['prompt']}.")
        await anyio.lowlevel.checkpoint()
    assert "no such table" in str(failure.value)
    shown: BaseException | None = failure.value
    while shown is not None:
        assert _KEYS["prompt"] not in str(shown)
        shown = shown.__cause__
