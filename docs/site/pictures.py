"""The pictures of the documentation: ``python -m docs.site.pictures`` takes them anew, with Chromium."""

import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright

from toolkit import AssistantMessage, ToolCall, ToolError, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.run_log import RunLog
from toolkit.testing import ScriptedProvider, ScriptedReply
from toolkit.ui import viewer_app

FOLDER = Path(__file__).parents[1] / "assets"
_PORT = 8791


@tool
def track_parcel(number: str) -> str:
    """Find out where a parcel is."""
    if number != "P-200":
        raise ToolError(f"There is no parcel {number}.")
    return "It is in the van."


def main() -> None:
    """Take the pictures; a message on standard error and the exit code 1 say that there is no browser."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        sys.exit("needs Chromium or Chrome on the PATH")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        log = _write_runs(Path("runs"))  # before Playwright has an event loop on this thread
        with _serve_page(log) as link, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1100, "height": 620}, color_scheme="light")
            page.set_default_timeout(120_000)
            _take_picture_of_runs(page, link)
            browser.close()


def _write_runs(folder: Path) -> RunLog:
    """Write down two runs for the page to show."""
    log = RunLog(folder)
    calls = [ToolCall("a", "track_parcel", '{"number": "P-20"}'), ToolCall("b", "track_parcel", '{"number": "P-200"}')]
    scripts: dict[str, list[ScriptedReply]] = {
        "Where are my parcels?": [AssistantMessage(calls), "P-200 is in the van. There is no parcel P-20."],
        "Thank you!": ["You are welcome."],
    }
    for question, replies in scripts.items():
        config = ToolLoopConfig(middleware=(log,))
        tool_loop_sync(ScriptedProvider(replies), ToolRegistry([track_parcel]), question, config=config)
    log.flush()
    return log


@contextlib.contextmanager
def _serve_page(log: RunLog) -> Generator[str]:
    token = "for-the-picture"  # noqa: S105 - of a server that ends with it
    server = uvicorn.Server(uvicorn.Config(viewer_app(log, token), port=_PORT, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{_PORT}/#code={token}"
    finally:
        server.should_exit = True
        thread.join()


def _take_picture_of_runs(page: Page, link: str) -> None:
    page.goto(link)
    page.locator("#run-list button", has_text="Where are my parcels?").first.click()
    page.locator("main").get_by_text("track_parcel").first.click()
    page.screenshot(path=FOLDER / "runs.png")


if __name__ == "__main__":
    main()
