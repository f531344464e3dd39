"""The services of the recipes, as they are served: clients that leave, two at once, a stop in mid-answer."""

import hmac
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs, urlencode

import anyio
import httpx
import pytest

from toolkit.chat import validate_transcript
from toolkit.conversations import Conversation, Conversations, SqlStore

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = '''
import json
from pathlib import Path

import anyio

from toolkit.testing import FunctionProvider


async def answer(request):
    """Answer as the question wants it: slowly, by a refund, or at once."""
    last = request.messages[-1]
    if last.role == "tool" and "approval" not in last.text:
        return "It is done."
    asked = next(each.text for each in reversed(request.messages) if each.role == "user")
    if asked.startswith("slow") and not Path("restarted").exists():
        await anyio.sleep_forever()
    if asked.startswith("The decision that was"):
        return "It is done."
    if asked.startswith("Refund"):
        arguments = ARGUMENTS | {name: asked.split()[-1] for name in ARGUMENTS}
        return shop.ToolCall(asked, TOOL, json.dumps(arguments))
    return f"re {asked}"


shop.provider = FunctionProvider(answer)
'''


@dataclass
class Kind:
    """How the service of a recipe is asked."""

    page: str
    app: str
    arguments: dict[str, object]
    tool: str = "refund"
    database: str = "chats.db"
    setup: str = ""

    def ask(self, url: str, question: str, timeout: float = 60) -> str:
        key = {"Idempotency-Key": question}
        if self.page == "django":
            query = {"name": "ada", "question": question}
            return httpx.get(f"{url}/ask", params=query, headers=key, timeout=timeout).text
        return httpx.post(f"{url}/chat/ada", json={"text": question}, headers=key, timeout=timeout).text

    def decide(self, url: str, call_id: str) -> str:
        if self.page == "django":
            return httpx.get(f"{url}/decide", params={"name": "ada", "call_id": call_id, "approve": "yes"}).text
        return httpx.post(f"{url}/decide/ada", json={call_id: True}).text


def read_text(reply: str) -> str:
    """Return the text of the events of a reply."""
    pieces = [json.loads(line.removeprefix("data: ")) for line in reply.split("\n\n") if line]
    return "".join([each if isinstance(each, str) else each.get("text", "") for each in pieces])


KINDS = [Kind("fastapi", "app", {"order_id": 0}), Kind("django", "application", {"item": ""})]


class Served:
    """The service of a recipe in a process of its own."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        page = (RECIPES / f"{kind.page}.md").read_text(encoding="utf-8")
        (folder / "shop.py").write_text(BLOCK.findall(page)[0], encoding="utf-8")
        model = MODEL.replace("ARGUMENTS", repr(kind.arguments)).replace("TOOL", repr(kind.tool)) + kind.setup
        (folder / "served.py").write_text(f"import shop\nfrom shop import {kind.app}\n{model}", encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "uvicorn", f"served:{kind.app}", "--port", str(port)]
        self._command += ["--log-level", "error", "--timeout-graceful-shutdown", "1"]
        if kind.page == "slack":
            main = f'if __name__ == "__main__":\n    app.start(port={port})\n'
            (folder / "served.py").write_text(f"import shop\nfrom shop import {kind.app}\n{model}\n{main}", "utf-8")
            self._command = [sys.executable, "served.py"]
        self.start()

    def start(self) -> None:
        paths = os.pathsep.join([str(self.folder), str(RECIPES.parents[1])])
        environment = {**os.environ, "PYTHONPATH": paths}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self.folder, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
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
            store = SqlStore(f"sqlite:///{self.folder / self.kind.database}")
            found = await Conversations(store).get("ada")
            await store.aclose()
            return found

        found = anyio.run(read)
        validate_transcript(found.messages)
        return found

    def read_until_asked(self, question: str) -> None:
        deadline = time.monotonic() + 60
        while all(each.text != question for each in self.read().messages):
            assert time.monotonic() < deadline
            time.sleep(0.05)

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
        answered, _ = threads.map(partial(kind.ask, url), ["one", "two"])
        assert read_text(answered) == "re one"
        said = [each.text for each in served.read().messages[1:]]
        assert said in (["one", "re one", "two", "re two"], ["two", "re two", "one", "re one"])

        list(threads.map(partial(kind.ask, url), ["Refund 7", "Refund 8"]))
        assert "re" in kind.ask(url, "open")  # a question while two refunds wait
        assert {each.call_id for each in served.read().pending} == {"Refund 7", "Refund 8"}
        replies = list(threads.map(partial(kind.decide, url), ["Refund 7", "Refund 7", "Refund 8"]))
    assert sum("somebody has decided" in each for each in replies) == 1
    assert read_text(kind.ask(url, "one")) == "re one"  # a client that lost the answer
    found = served.read()
    results = [each.text for each in found.messages if each.role == "tool"]
    assert len(results) == 2
    assert all("back" in each for each in results)
    assert found.pending == ()

    with ThreadPoolExecutor(1) as threads:  # a stop in the middle of an answer
        asked = threads.submit(kind.ask, url, "slow 2")
        served.read_until_asked("slow 2")
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) is not None
        asked.exception()
    stopped = served.read()
    assert not stopped.is_busy  # it was given back, not left to run out
    assert [each.text for each in stopped.messages[: len(found.messages)]] == [each.text for each in found.messages]
    assert stopped.messages[-1].text == "slow 2"


class SlackServer(ThreadingHTTPServer):
    """Plays Slack's servers: it notes what the bot says."""

    said: ClassVar[list[dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path.endswith("chat.postMessage"):
                said = (
                    json.loads(body)
                    if body.startswith("{")
                    else {name: each[0] for name, each in parse_qs(body).items()}
                )
                SlackServer.said.append(said)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"ok": true, "user_id": "U1", "bot_id": "B1", "team_id": "T1", "user": "bot"}')

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name there


def deliver(url: str, body: Mapping[str, object], *, is_form: bool = False) -> None:
    """Send an event or a press of a button as Slack does, with its signature."""
    text = json.dumps(body)
    text, now = urlencode({"payload": text}) if is_form else text, str(int(time.time()))
    seal = hmac.new(b"none", f"v0:{now}:{text}".encode(), "sha256").hexdigest()
    kind = "application/x-www-form-urlencoded" if is_form else "application/json"
    headers = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": f"v0={seal}", "Content-Type": kind}
    assert httpx.post(f"{url}/slack/events", content=text, headers=headers, timeout=60).status_code == 200


def mention(url: str, text: str, ts: str) -> None:
    event = {"type": "app_mention", "user": "U2", "text": text, "ts": ts, "thread_ts": "ada", "channel": "C1"}
    deliver(url, {"type": "event_callback", "event": event, "team_id": "T1"})


def press(url: str, action: str, call_id: str) -> None:
    button = {"type": "button", "action_id": action, "block_id": "b", "action_ts": "9.0"}
    body = {"type": "block_actions", "actions": [button | {"value": json.dumps(["ada", call_id])}]}
    deliver(url, body | {"user": {"id": "U2"}, "team": {"id": "T1"}, "channel": {"id": "C1"}}, is_form=True)


def wait_for(said: list[str]) -> None:
    deadline = time.monotonic() + 60
    while sorted(each["text"] for each in SlackServer.said) != sorted(said):
        assert time.monotonic() < deadline, SlackServer.said
        time.sleep(0.05)


@pytest.mark.real
def test_the_served_bot_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("slack_bolt", reason="the recipe needs slack_bolt")
    with SlackServer(("127.0.0.1", 0), SlackServer.Handler) as slack:
        Thread(target=slack.serve_forever, daemon=True).start()
        setup = f"""
shop.app.client.base_url = "http://127.0.0.1:{slack.server_port}/api/"
shop.conversations = shop.Conversations(shop.SqlStore("sqlite:///bot.db"), lease=2)
"""
        served = Served(Kind("slack", "app", {"service": ""}, "restart", "bot.db", setup), tmp_path)
        try:
            with ThreadPoolExecutor(2) as threads:  # two questions at once
                list(threads.map(partial(mention, served.url), ["one", "two"], ["1.0", "2.0"]))
            said = ["re one", "re two"]
            wait_for(said)
            mention(served.url, "Refund 7", "3.0")
            said.append('May I call restart with {"service":"7"}?')
            wait_for(said)
            mention(served.url, "open", "4.0")  # a question while a decision is awaited
            said.append("re open")
            wait_for(said)
            for action in ("Yes", "No"):  # two that decide
                press(served.url, action, "Refund 7")
            said += ["It is done.", "Somebody else has decided."]
            wait_for(said)
            mention(served.url, "slow 1", "5.0")
            served.read_until_asked("slow 1")
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(60) is not None
            (tmp_path / "restarted").touch()
            served.start()
            for _ in range(2):
                mention(served.url, "slow 1", "5.0")  # Slack sends again what got no answer
                said.append("re slow 1")
                wait_for(said)
        finally:
            served.process.kill()
            served.process.wait()
            slack.shutdown()
    asked = [each.text for each in served.read().messages if each.role == "user"]
    assert sorted(each for each in asked if not each.startswith("The decision")) == [
        "Refund 7",
        "one",
        "open",
        "slow 1",
        "two",
    ]
