"""An interface whose server is killed in the middle of an answer."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolkit.chat import Message
from toolkit.conversations import Conversations, SqlStore

PROGRAM = str(Path(__file__).parent / "mortal_chat.py")
QUESTION: dict[str, dict[str, Any]] = {
    "ag-ui": {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m1", "role": "user", "content": "Wait."}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    },
    "ui": {"id": "t", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Wait."}]}]},
}


@contextmanager
def serving(port: int, store: Path, reply: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, PROGRAM, str(port), str(store), reply], env=os.environ) as process:
        try:
            for _ in range(600):
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def read_events(answer: httpx2.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    mark = ""
    for line in answer.iter_lines():
        if line.startswith("id: "):
            mark = line[4:]
        elif line.startswith("data: {"):
            yield mark, json.loads(line[6:])


async def read_messages(store: Path) -> Sequence[Message]:
    async with Conversations(SqlStore(f"sqlite:///{store}")) as conversations:
        return (await conversations.get("user/t")).messages


@pytest.mark.real
@pytest.mark.parametrize("path", ["ag-ui", "ui"])
@pytest.mark.parametrize("is_stored", [True, False], ids=["call-stored", "at-once"])
def test_a_client_whose_server_was_killed_asks_again_and_gets_one_answer(
    path: str, is_stored: bool, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    url, store = f"http://127.0.0.1:{port}/{path}", tmp_path / "chats.db"
    started = {"ag-ui": "TOOL_CALL_END", "ui": "tool-input-available"}[path]
    marks: list[str] = []
    with (
        serving(port, store, "hang") as process,
        httpx2.Client(timeout=60) as client,
        client.stream("POST", url, json=QUESTION[path]) as answer,
        pytest.raises(httpx2.TransportError),
    ):
        for mark, event in read_events(answer):
            marks.append(mark)
            if event["type"] == started:
                while is_stored and len(asyncio.run(read_messages(store))) < 2:
                    time.sleep(0.05)
                process.kill()
    with serving(port, store, "Here it is."), httpx2.Client(timeout=60) as client:
        back = client.get(f"{url}/t/stream", headers={"Last-Event-ID": marks[-1]})
        last = [event for _, event in read_events(back)][-1]
        with client.stream("POST", url, json=QUESTION[path]) as answer:
            assert answer.status_code == 200, answer.read()
            events = [event for _, event in read_events(answer)]
        stored = client.get(f"{url}/t/stream")
    assert last["type"] == {"ag-ui": "RUN_ERROR", "ui": "error"}[path]
    assert "no answer" in str(last)
    assert "".join(event.get("delta", "") for event in events) == "Here it is."
    assert stored.text.count("Wait.") <= 1
    assert stored.text.count("Here it is.") == 1
