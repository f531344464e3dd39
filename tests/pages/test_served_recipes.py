"""The services of the recipes, as they are served: clients that leave, two at once, a stop in mid-answer."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import httpx
import pytest

from toolkit.chat import validate_transcript
from toolkit.conversations import Conversation, Conversations, SqlStore

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = '''
import json

import anyio

from toolkit.testing import FunctionProvider


async def answer(request):
    """Answer as the question wants it: slowly, by a refund, or at once."""
    last = request.messages[-1]
    if last.role == "tool" and "approval" not in last.text:
        return "It is done."
    asked = next(each.text for each in reversed(request.messages) if each.role == "user")
    if asked.startswith("slow"):
        await anyio.sleep_forever()
    if asked.startswith("Refund"):
        arguments = ARGUMENTS | {name: asked.split()[-1] for name in ARGUMENTS}
        return shop.ToolCall(asked, "refund", json.dumps(arguments))
    return f"re {asked}"


shop.provider = FunctionProvider(answer)
'''


@dataclass
class Kind:
    """How the service of a recipe is asked."""

    page: str
    app: str
    arguments: dict[str, object]

    def ask(self, url: str, question: str, timeout: float = 60) -> str:
        if self.page == "django":
            return httpx.get(f"{url}/ask", params={"name": "ada", "question": question}, timeout=timeout).text
        return httpx.post(f"{url}/chat/ada", json={"text": question}, timeout=timeout).text

    def decide(self, url: str, call_id: str) -> str:
        if self.page == "django":
            return httpx.get(f"{url}/decide", params={"name": "ada", "call_id": call_id, "approve": "yes"}).text
        return httpx.post(f"{url}/decide/ada", json={call_id: True}).text


KINDS = [Kind("fastapi", "app", {"order_id": 0}), Kind("django", "application", {"item": ""})]


class Served:
    """The service of a recipe in a process of its own."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        page = (RECIPES / f"{kind.page}.md").read_text(encoding="utf-8")
        (folder / "shop.py").write_text(BLOCK.findall(page)[0], encoding="utf-8")
        model = MODEL.replace("ARGUMENTS", repr(kind.arguments))
        (folder / "served.py").write_text(f"import shop\nfrom shop import {kind.app}\n{model}", encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "uvicorn", f"served:{kind.app}", "--port", str(port), "--log-level", "error"]
        paths = os.pathsep.join([str(folder), str(RECIPES.parents[1])])
        environment = {**os.environ, "PYTHONPATH": paths}
        with (folder / "log").open("wb") as log:
            options = ["--timeout-graceful-shutdown", "1"]
            self.process = subprocess.Popen([*command, *options], cwd=folder, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self.process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=5):
                return True
        except OSError:
            return False

    def read(self) -> Conversation:
        """Return the conversation as another process finds it."""

        async def read() -> Conversation:
            store = SqlStore(f"sqlite:///{self.folder / 'chats.db'}")
            found = await Conversations(store).get("ada")
            await store.aclose()
            return found

        found = anyio.run(read)
        validate_transcript(found.messages)
        return found

    def read_until_free(self, question: str) -> Conversation:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = self.read()
            if not found.is_busy and any(each.text == question for each in found.messages):
                return found
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())


@pytest.fixture(params=KINDS, ids=["fastapi", "django"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    service = Served(request.param, tmp_path)
    yield service
    service.process.kill()
    service.process.wait()


@pytest.mark.real
def test_a_served_recipe_loses_nothing(served: Served) -> None:
    kind, url = served.kind, served.url
    with pytest.raises(httpx.ReadTimeout):  # a client that leaves before there is an answer
        kind.ask(url, "slow 1", timeout=1)
    left = served.read_until_free("slow 1")
    assert [each.role for each in left.messages] == ["user"]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(partial(kind.ask, url), ["one", "two"]))
        said = [each.text for each in served.read().messages[1:]]
        assert said in (["one", "re one", "two", "re two"], ["two", "re two", "one", "re one"])

        list(threads.map(partial(kind.ask, url), ["Refund 7", "Refund 8"]))
        assert "re" in kind.ask(url, "open")  # a question while two refunds wait
        assert {each.call_id for each in served.read().pending} == {"Refund 7", "Refund 8"}
        replies = list(threads.map(partial(kind.decide, url), ["Refund 7", "Refund 7", "Refund 8"]))
    assert sum("somebody has decided" in each for each in replies) == 1
    found = served.read()
    results = [each.text for each in found.messages if each.role == "tool"]
    assert len(results) == 2
    assert all("back" in each for each in results)
    assert found.pending == ()

    with ThreadPoolExecutor(1) as threads:  # a stop in the middle of an answer
        asked = threads.submit(kind.ask, url, "slow 2")
        deadline = time.monotonic() + 60
        while all(each.text != "slow 2" for each in served.read().messages):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) is not None
        asked.exception()
    stopped = served.read()
    assert not stopped.is_busy  # it was given back, not left to run out
    assert [each.text for each in stopped.messages[: len(found.messages)]] == [each.text for each in found.messages]
    assert stopped.messages[-1].text == "slow 2"
