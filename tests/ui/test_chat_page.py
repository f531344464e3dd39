"""`toolkit chat --web`: its small page, in a real browser."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.serving_viewer import ask

pytestmark = pytest.mark.real

TOOLS = '''
import anyio
from toolkit import AssistantMessage, ToolCall, tool
from toolkit.chat import ReasoningBlock, TextBlock
from toolkit.testing import ScriptedProvider


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount} <b>coins</b>"


@tool
async def wait() -> str:
    """Wait."""
    await anyio.sleep(1000)
    return "never"


def model() -> ScriptedProvider:
    pays = [ReasoningBlock(text="Money."), TextBlock("One moment."), ToolCall("1", "pay", '{"amount": 4}')]
    return ScriptedProvider([AssistantMessage(pays), "You paid.", ToolCall("2", "wait", "{}"), "Goodbye."])
'''


@contextmanager
def chatting(folder: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """Run the command; give its first link."""
    (folder / "shop.py").write_text(TOOLS)
    command = [sys.executable, "-m", "toolkit", "chat", "shop.py", "-m", "shop.py:model", "--web"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield program.stdout.readline().strip(), program
        finally:
            program.send_signal(signal.SIGINT)
            program.communicate(timeout=120)


def test_a_person_chats_on_the_page_and_approves_a_call(browser: Browser, tmp_path: Path) -> None:
    with chatting(tmp_path) as (link, _):
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(link)

        def say(text: str) -> None:
            page.get_by_label("Question").fill(text)
            page.get_by_role("button", name="Send").click()

        say("Pay 4 coins.")
        expect(page.locator(".reasoning")).to_have_text("Money.")
        expect(page.locator(".call")).to_contain_text('pay {"amount":4}')
        page.reload()  # its token is the tab's, and the question is stored
        expect(page.locator(".user")).to_have_text("Pay 4 coins.")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".call")).to_contain_text("= paid 4 <b>coins</b>")
        expect(page.locator(".assistant")).to_have_text(["One moment.", "You paid."])
        expect(page.get_by_role("button", name="Approve")).to_have_count(0)

        say("Wait.")
        expect(page.locator(".call").last).to_contain_text("wait")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#problem")).to_have_text("The answer was stopped.")
        say("Bye.")
        expect(page.locator(".assistant").last).to_have_text("Goodbye.")
        assert problems == []
        page.close()

        path = "/chat"
        assert ask(link, path, method="POST", body="{}", Content_Type="application/json").status == 403
        assert ask(link, f"{path}/chat/stream").status == 403
