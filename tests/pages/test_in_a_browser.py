"""The site in a real browser: on a phone and on a desk, by keyboard, in both colours, and nothing fetched elsewhere."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from docs.site.tutorial import join_program
from tests.npm import npm_packages

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
PAGES = ["index.html", "tools.html", "reference/endings.html"]
PHONE = ViewportSize(width=390, height=844)
DESK = ViewportSize(width=1280, height=800)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the folder without a line on standard error for each request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base
        """Keep silent."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=[("phone", "dark"), ("desk", "light")], ids="-".join)
def page(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Page]:
    device, colours = request.param
    context = browser.new_context(
        base_url=address, viewport=PHONE if device == "phone" else DESK, color_scheme=colours, service_workers="block"
    )
    page = context.new_page()
    page.set_default_timeout(120_000)  # of a machine that others keep busy
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on(
        "request", lambda sent: None if sent.url.startswith((address, "blob:", "data:")) else faults.append(sent.url)
    )
    yield page
    context.close()
    assert faults == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen_and_can_be_read(page: Page, name: str) -> None:
    page.goto(name)
    assert page.locator("h1").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.add_script_tag(path=npm_packages("axe", "axe-core@4.11.0") / "axe-core" / "axe.min.js")
    found: list[str] = page.evaluate(
        """async () => {
            const rules = ["color-contrast", "link-name", "button-name", "image-alt", "html-has-lang"];
            const report = await axe.run(document, {runOnly: rules});
            return report.violations.flatMap(
                (rule) => rule.nodes.slice(0, 3).map((node) => `${rule.id}: ${node.html} ${node.failureSummary}`));
        }"""
    )
    assert found == []


def test_the_search_is_used_by_the_keyboard(page: Page) -> None:
    page.goto("index.html", wait_until="networkidle")
    field = page.locator("input[aria-label=Search]")
    while not field.is_visible():  # its script listens some time after the page was loaded
        page.keyboard.press("Control+k")
        page.wait_for_timeout(200)
    page.keyboard.type("approval")
    page.locator("a[href*='approvals.html?h=']").first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "approvals.html" in url)


SERVED = """
from contextlib import nullcontext

import shop
from toolkit import ToolCall
from toolkit.testing import FunctionProvider


def answer(request):
    last = request.messages[-1]
    if last.text.startswith("The decision that was"):
        return "It is done."
    if "lamp" in last.text:
        return ToolCall("call_1", "refund", '{"number": "O-1", "reason": "broken"}')
    return "We open at nine."


shop.make_provider = lambda: nullcontext(FunctionProvider(answer))
app = shop.app
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    """The whole program of the tutorial, served in a process of its own."""
    (tmp_path / "shop.py").write_text(join_program(ROOT / "docs" / "tutorial"), encoding="utf-8")
    (tmp_path / "served.py").write_text(SERVED, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "served:app", "--port", str(port), "--log-level", "info"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = list(takewhile(lambda line: "running on" not in line, process.stderr))
    assert process.poll() is None, lines
    yield f"http://127.0.0.1:{port}/"
    process.terminate()
    process.communicate(timeout=60)


def test_the_page_of_the_tutorial_shows_answers_and_that_a_refund_waits(browser: Browser, shop: str) -> None:
    page = browser.new_page(base_url=shop)
    page.goto("/")

    def ask(question: str, answer: str) -> None:
        page.get_by_label("Question").fill(question)
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_have_text(answer)

    ask("When do you open?", "We open at nine.")
    ask("Refund my lamp.", "[A member of our staff has to agree. We will let you know.]")
    ask("When do you open?", "We open at nine.")
    (waiting,) = page.request.get("/waiting").json()
    decision = {"customer": "ada", "call_id": waiting["call_id"], "approve": "true"}
    assert page.request.post("/decide", params=decision).json() == {"answer": "It is done."}
    assert page.request.get("/waiting").json() == []
    page.context.close()


def test_the_first_link_by_the_keyboard_skips_to_the_text(page: Page) -> None:
    page.goto("tools.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Skip to content"
