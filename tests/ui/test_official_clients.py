"""The official clients of both dialects over a served conversation: AG-UI's in Node.js, Vercel's as a page."""

import json
import shutil
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.node import node
from tests.npm import npm_packages
from toolkit import AssistantMessage, ChatRequest, ProviderError, ToolCall, ToolRegistry, ToolResult, tool
from toolkit.chat import ReasoningBlock, TextBlock
from toolkit.conversations import Conversations, MemoryStore
from toolkit.testing import FunctionProvider
from toolkit.ui.streams import InterfaceStreams, Posted

pytestmark = pytest.mark.real
CLIENTS = Path(__file__).parent / "clients"


class Service:
    """A service of both dialects, on a thread.

    Attributes:
        asked: The last text of each request to the model.
    """

    def __init__(self, **pages: str) -> None:
        self.asked: list[str] = []
        self.started, self.opened = threading.Event(), threading.Event()

        @tool(requires_approval=True)
        def pay(amount: int) -> dict[str, int]:
            """Pay."""
            return {"paid": amount}

        @tool(tags={"browser"})
        def locate() -> str:
            """Find the user."""
            raise NotImplementedError

        @tool
        async def wait() -> str:
            """Wait."""
            self.started.set()
            while not self.opened.is_set():  # noqa: ASYNC110 - another thread sets it
                await anyio.sleep(0.01)
            return "open"

        streams = InterfaceStreams(
            Conversations(MemoryStore()),
            FunctionProvider(self.reply),
            ToolRegistry([pay, locate, wait]),
            conversation_for=lambda request, thread: f"ada/{thread}",
            context_for=self.open_context,
            state_of=lambda ctx: ctx,
        )
        shown = [Route(f"/{name.replace('_', '.')}", self.make_page(text)) for name, text in pages.items()]
        routes = [*streams.routes("/chat", "ui-messages"), *streams.routes("/agent", "ag-ui")]
        self.app = Starlette(routes=[*routes, Route("/agent/started", self.wait_for_start), *shown])

    def open_context(self, request: Request, posted: Posted) -> dict[str, Any]:
        return {"seen": [*(posted.state or {"seen": ()})["seen"], "server"]}

    def make_page(self, text: str) -> Any:
        def show(request: Request) -> Response:
            return HTMLResponse(text)

        return show

    def wait_for_start(self, request: Request) -> Response:
        assert self.started.wait(60)
        return Response(status_code=204)

    async def reply(self, request: ChatRequest) -> Any:
        last = request.messages[-1]
        self.asked.append(last.text)
        if isinstance(last, ToolResult):
            return f"Now I know: {last.text}"
        calls: dict[str, list[Any]] = {
            "Pay 4.": [ReasoningBlock(text="Money."), TextBlock("One moment."), self.call("pay", '{"amount": 4}')],
            "Which color?": [self.call("pick_color", '{"hint": "warm"}')],
            "Where am I?": [self.call("locate", "{}")],
            "Wait.": [self.call("wait", "{}")],
        }
        if last.text == "Fail.":
            raise ProviderError("acme", "a secret of the server", is_retryable=False)
        return AssistantMessage(calls.get(last.text, [TextBlock("Hello.")]))

    def call(self, name: str, arguments: str) -> ToolCall:
        return ToolCall(f"{name}-{len(self.asked)}", name, arguments)

    @contextmanager
    def served(self) -> Generator[str]:
        server = uvicorn.Server(uvicorn.Config(self.app, port=0, log_level="error"))
        ready = threading.Event()
        startup = server.startup

        async def start(sockets: Any = None) -> None:
            await startup(sockets)
            ready.set()

        server.startup = start  # type: ignore[method-assign]
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert ready.wait(60)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            self.opened.set()
            server.should_exit = True
            thread.join()


def place(name: str, packages: Path, folder: Path) -> Path:
    """Return a copy of a client's program beside the packages that it imports."""
    (folder / "node_modules").symlink_to(packages)
    return Path(shutil.copy(CLIENTS / name, folder))


def test_the_client_of_ag_ui_holds_a_conversation(tmp_path: Path) -> None:
    program = place("ag_ui.mjs", npm_packages("ag-ui", "@ag-ui/client@1.0.0"), tmp_path)
    service = Service()
    with service.served() as url:
        done = subprocess.run(
            [node(20), str(program), f"{url}/agent"], capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode == 0, done.stderr
    steps = {each["step"]: each for each in map(json.loads, done.stdout.splitlines())}
    question: list[Any] = ["user", "Pay 4.", []]
    calls: list[Any] = ["assistant", "One moment.", ["pay"]]

    asked = steps["asked"]
    assert asked["messages"] == [question, ["reasoning", "Money.", []], calls]
    assert asked["pending"] == [["pay-1", "Tool 'pay' needs approval."]]
    assert asked["state"] == {"seen": ["server"]}
    assert steps["approved"]["pending"] == []
    assert steps["approved"]["messages"][3:] == [
        ["tool", '{"paid":4}', []],
        ["assistant", 'Now I know: {"paid":4}', []],
    ]
    assert steps["waiting"]["notes"] == [["outcome", {"type": "success", "pendingToolCallIds": ["pick_color-3"]}]]
    assert steps["picked"]["messages"][-1] == ["assistant", "Now I know: red", []]
    assert steps["forged"]["refused"] == "409 no result of call 'never' is awaited from an interface"
    assert steps["failed"]["notes"][0] == ["error", "The answer failed.", "ProviderError"]
    assert ["outcome", {"type": "cancelled"}] in steps["cancelled"]["notes"]
    stored = steps["read"]["messages"]
    assert [each for each in stored if each[0] == "user"] == [
        ["user", text] for text in ("Pay 4.", "Which color?", "Fail.", "Wait.")
    ]
    assert "paid" not in service.asked


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page's script with the client in it."""
    wanted = ["ai@7.0.173", "@ai-sdk/react@4.0.177", "react@19.3.0", "react-dom@19.3.0", "esbuild@0.28.2"]
    packages = npm_packages("ui-messages", *wanted)
    folder = tmp_path_factory.mktemp("page")
    program = place("ui_messages.mjs", packages, folder)
    build = [node(20), str(packages / "esbuild/bin/esbuild"), str(program), "--bundle", "--format=esm"]
    options = ['--define:process.env.NODE_ENV="production"', f"--outfile={folder / 'page.js'}", "--log-level=error"]
    done = subprocess.run([*build, *options], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "page.js").read_text("utf-8")


PAGE = '<!doctype html><html lang="en"><title>Chat</title><div id="root"></div><script type="module">{}</script></html>'


def test_a_page_over_use_chat_holds_a_conversation(browser: Browser, bundle: str) -> None:
    service = Service(page=PAGE.format(bundle.replace("</script", "<\\/script")))
    with service.served() as url:
        page = browser.new_page()
        page.goto(f"{url}/page")

        def ask(text: str) -> None:
            expect(page.locator("output")).to_have_text("ready")
            page.locator("input").fill(text)
            page.locator("input").press("Enter")

        def expect_texts(*texts: str) -> None:
            expect(page.locator(".assistant .text")).to_have_text(list(texts))

        ask("Pay 4.")
        expect(page.locator(".reasoning")).to_have_text("Money.")
        expect(page.locator(".call")).to_contain_text('tool-pay {"amount":4} approval-requested')
        page.reload()  # the approval is stored, and its page comes back with it
        page.get_by_role("button", name="approve").click()
        expect(page.locator(".call")).to_have_text('tool-pay {"amount":4} output-available {"paid":4}')
        expect_texts("One moment.", 'Now I know: {"paid":4}')

        ask("Where am I?")  # the page answers by itself
        expect_texts("One moment.", 'Now I know: {"paid":4}', 'Now I know: {"city":"Rome"}')

        ask("Pay 4.")
        page.get_by_role("button", name="deny").click()
        expect(page.locator(".call").last).to_contain_text("output-denied")
        expect(page.locator(".assistant .text").last).to_have_text("Now I know: Tool call denied.")

        ask("Wait.")
        assert service.started.wait(60)
        page.reload()  # in the middle of an answer
        expect(page.locator(".call")).to_contain_text("tool-wait {} input-available")
        service.opened.set()
        expect_texts("Now I know: open")

        ask("Fail.")
        expect(page.locator("pre")).to_have_text("The answer failed.")
        page.close()
