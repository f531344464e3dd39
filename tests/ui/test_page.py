"""The page as people have it: in a real browser, by mouse and by keyboard, wide and narrow, by day and by night."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.run_log.planted_secrets import PLANTED
from tests.ui.serving_viewer import viewer_of
from toolkit import (
    AssistantMessage,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.calls.events import ToolExecutionEnd, ToolExecutionStart
from toolkit.chat import TextBlock, ToolResult
from toolkit.events import dump_event
from toolkit.loop.events import RunStart
from toolkit.run_log import RunLog, ask_on_page
from toolkit.run_log.entries import make_header, write_line
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.real

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool
def say(text: str) -> str:
    """Say."""
    return text


ADDS = ToolCall("1", "add", '{"a": 17, "b": 25}')


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "runs")


def run_to_end(
    log: RunLog, *replies: Any, prompt: str = "What is 17 + 25?", tools: Any = (add, fail, say), **options: Any
) -> None:
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), max_iterations=100, **options)
    tool_loop_sync(ScriptedProvider(list(replies)), ToolRegistry(list(tools)), prompt, config=config)


@contextmanager
def playing(log: RunLog, *replies: Any, **options: Any) -> Generator[None]:
    """Have a run go on beside the browser, whose event loop has this thread, and wait for its end."""
    thread = threading.Thread(target=run_to_end, args=(log, *replies), kwargs=options)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)


def play(log: RunLog, *replies: Any, **options: Any) -> None:
    """Write a run to its end."""
    with playing(log, *replies, **options):
        pass


def play_nested(log: RunLog) -> None:
    """Write a run of three nested agents, two tools side by side, and one that fails."""
    side_by_side = AssistantMessage([ADDS, ToolCall("2", "fail", '{"reason": "no route"}')])
    reader = sub_agent_tool("reader", "Reads.", ScriptedProvider([side_by_side, "Read."]), ToolRegistry([add, fail]))
    researcher = sub_agent_tool(
        "researcher",
        "Researches.",
        ScriptedProvider([ToolCall("1", "reader", '{"task": "read"}'), "Researched."]),
        ToolRegistry([reader]),
        allow_sub_agents=True,
    )
    play(log, ToolCall("1", "researcher", '{"task": "find"}'), "It is 42.", tools=[researcher])


@contextmanager
def page_of(browser: Browser, link: str, **options: Any) -> Generator[Page]:
    """Open a link as a person of its own would; nothing may go wrong in the page's own script."""
    context = browser.new_context(viewport=options.pop("viewport", DESKTOP), **options)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.set_default_timeout(120_000)  # of a machine that others keep busy
    page.goto(link)
    yield page
    context.close()
    assert problems == []


def open_run(page: Page, name: str = "What is 17 + 25?") -> None:
    page.locator("#run-list button", has_text=name).first.click()
    expect(page.locator(".row:visible").first).to_be_visible()


def row(page: Page, title: str) -> Locator:
    return page.locator(".row:visible", has=page.locator(".title", has_text=title))


def read_column(page: Page) -> list[str]:
    return page.locator(".row:visible .title").all_inner_texts()


def test_a_run_is_shown_as_it_nests(browser: Browser, log: RunLog) -> None:
    play_nested(log)
    with viewer_of(log) as link, page_of(browser, link) as page:
        page.wait_for_function("sessionStorage.getItem('toolkit-viewer-token')")
        assert "code" not in page.url
        assert page.context.cookies() == []
        open_run(page)
        expect(row(page, "fail")).to_have_attribute("aria-level", "6")
        titles = [
            "run",
            "scripted",
            "researcher",
            "researcher",
            "scripted",
            "reader",
            "reader",
            "scripted",
            "add",
            "fail",
        ]
        assert read_column(page) == [*titles, "scripted", "scripted", "scripted"]
        row(page, "fail").click()
        expect(page.locator("#step-state")).to_have_text("error")
        expect(page.locator("#sections pre.error")).to_have_text("ValueError: no route")
        expect(page.locator("#sections pre.json")).to_contain_text('"reason": "no route"')
        row(page, "reader").first.locator(".fold").click()
        expect(row(page, "fail")).to_have_count(0)


def test_a_live_run_is_followed_and_what_is_open_stays_open(browser: Browser, log: RunLog) -> None:
    half, rest = threading.Event(), threading.Event()

    @tool_with_ctx
    def work(context: ToolContext[object], steps: int) -> str:
        """Work."""
        context.report_progress("the first half")
        half.wait(30)
        context.report_progress("the second half")
        rest.wait(30)
        return "worked"

    with viewer_of(log) as link, page_of(browser, link) as page:
        expect(page.locator("#no-runs")).to_be_visible()
        with playing(log, ToolCall("1", "work", '{"steps": 2}'), "Done.", prompt="Work", tools=[work]):
            open_run(page, "Work")
            row(page, "work").click()
            expect(page.locator("#run-state")).to_have_text("running")
            page.locator("#sections details", has_text="Arguments").locator("summary").click()
            expect(page.locator("#sections details", has_text="Progress").locator("pre")).to_have_text("the first half")
            half.set()
            expect(page.locator("#sections details", has_text="Progress").locator("pre")).to_contain_text("second half")
            assert page.locator("#sections details", has_text="Arguments").get_attribute("open") is None
            assert page.locator("#sections details", has_text="Progress").get_attribute("open") is not None
            rest.set()
        expect(page.locator("#run-state")).to_have_text("ended")
        expect(page.locator("#step-state")).to_have_text("done")
        expect(page.locator("#sections details", has_text="Result").locator("pre")).to_have_text("worked")
        assert page.locator("#sections details", has_text="Arguments").get_attribute("open") is None


def test_steps_are_found_by_kind_by_name_and_by_what_they_said(browser: Browser, log: RunLog) -> None:
    play_nested(log)
    with viewer_of(log) as link, page_of(browser, link) as page:
        open_run(page)
        page.get_by_role("button", name="Failed", exact=True).click()
        expect(page.locator(".row:visible")).to_have_count(6)
        assert read_column(page)[-1] == "fail"
        page.get_by_role("button", name="All", exact=True).click()
        page.locator("#search").fill("READER")
        expect(row(page, "add")).to_have_count(0)
        page.locator("#search").fill("no route")
        expect(row(page, "fail")).to_have_count(1)
        page.locator("#search").fill("nothing says this")
        expect(page.locator("#no-steps")).to_be_visible()
        page.locator("#search").press("Escape")
        expect(page.locator(".row:visible")).to_have_count(13)
        page.locator("#run-filter").fill("nope")
        expect(page.locator("#run-list button")).to_have_count(0)


@pytest.mark.parametrize("answer", ["Approve", "Deny"])
def test_a_waiting_call_is_decided_on_by_one_of_two_pages(browser: Browser, log: RunLog, answer: str) -> None:
    asking = ask_on_page(log)
    with (
        viewer_of(log) as one,
        viewer_of(RunLog(log.path)) as other,
        page_of(browser, one) as page,
        page_of(browser, other) as second,
        playing(log, ADDS, "Well.", on_tool_call=asking),
    ):
        open_run(page)
        open_run(second)
        expect(page.locator("#asking")).to_contain_text("add waits for your decision")
        page.locator("#asking button").click()
        expect(page.locator("#question-text")).to_contain_text('"a": 17')
        row(second, "add").click()
        if answer == "Deny":
            page.locator("#reason").fill("Not today.")
        page.get_by_role("button", name=answer, exact=True).click()
        expect(page.locator("#run-state")).to_have_text("ended")
        expect(second.locator("#question")).to_be_hidden()
        wanted = "42" if answer == "Approve" else "Not today."
        expect(second.locator("#sections")).to_contain_text(wanted)
        expect(page.locator("#asking")).to_be_hidden()


def test_all_can_be_done_by_keyboard_alone(browser: Browser, log: RunLog) -> None:
    play_nested(log)
    with viewer_of(log) as link, page_of(browser, link) as page:
        page.locator("#run-list button").first.wait_for()
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        row(page, "fail").wait_for()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.keyboard.type("no route")
        expect(row(page, "add")).to_have_count(0)
        page.keyboard.press("Escape")
        expect(row(page, "add")).to_have_count(1)
        assert page.evaluate("document.activeElement.id") == "tree"
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
        expect(row(page, "add")).to_have_count(0)
        page.keyboard.press("ArrowRight")
        expect(row(page, "add")).to_have_count(1)
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "step"
        expect(page.locator("#sections")).to_contain_text("It is 42.")
        page.keyboard.press("Escape")
        expect(page.locator("#step")).to_be_hidden()
        assert page.evaluate("document.activeElement.id") == "tree"
        with playing(log, ADDS, "Well.", prompt="Ask me", on_tool_call=ask_on_page(log)):
            page.locator("#run-list button", has_text="Ask me").focus()
            page.keyboard.press("Enter")
            page.locator("#asking button").wait_for()
            page.locator("#asking button").focus()
            page.keyboard.press("Enter")
            expect(page.locator("#approve")).to_be_visible()  # the focus of what is hidden goes nowhere
            page.locator("#approve").focus()
            page.keyboard.press("Enter")
            expect(page.locator("#run-state")).to_have_text("ended")


_HOLD_STEPS = """() => {
    const fetch = window.fetch, released = new Promise((release) => { window.release = release; });
    window.fetch = async (url, options) => {
        if (String(url).includes("/steps/")) await released;
        return fetch(url, options);
    };
}"""


def test_nobody_decides_before_the_question_has_come(browser: Browser, log: RunLog) -> None:
    with viewer_of(log) as link, page_of(browser, link) as page:
        with playing(log, ADDS, "Well.", prompt="Ask me", on_tool_call=ask_on_page(log)):
            open_run(page, "Ask me")
            page.evaluate(_HOLD_STEPS)
            page.locator("#asking button").click()
            expect(page.locator("#step-state")).to_be_visible()
            was_hidden = page.locator("#question").is_hidden()
            page.evaluate("window.release()")
            page.locator("#approve").click()
            expect(page.locator("#run-state")).to_have_text("ended")
        assert was_hidden


def test_on_a_phone_one_thing_is_shown_at_a_time(browser: Browser, log: RunLog) -> None:
    play_nested(log)
    with viewer_of(log) as link, page_of(browser, link, viewport=PHONE, has_touch=True) as page:
        expect(page.locator("#run")).to_be_hidden()
        page.locator("#run-list button").first.tap()
        expect(page.locator("#runs")).to_be_hidden()
        row(page, "fail").tap()
        expect(page.locator("#run")).to_be_hidden()
        expect(page.locator("#sections")).to_contain_text("no route")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator("#to-run").tap()
        expect(page.locator("#tree")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator("#to-runs").tap()
        expect(page.locator("#runs")).to_be_visible()


_CONTRAST = """() => {
    const lightness = (color) => {
        const parts = color.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const color = getComputedStyle(each).backgroundColor;
            if (!color.startsWith('rgba(0, 0, 0, 0')) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility()) continue;
        const colors = [getComputedStyle(element).color, ground(element)];
        const [one, other] = colors.map(lightness).sort((a, b) => b - a);
        if ((one + 0.05) / (other + 0.05) < 4.5) faint.push(element.className + ' ' + element.textContent.slice(0, 30));
    }
    return [faint, getComputedStyle(document.body).backgroundColor];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read_by_day_and_by_night(browser: Browser, log: RunLog, scheme: str) -> None:
    play_nested(log)
    options: dict[str, Any] = {"color_scheme": scheme}
    with viewer_of(log) as link, page_of(browser, link, **options) as page:
        open_run(page)
        row(page, "fail").click()
        page.locator("#sections pre").first.wait_for()
        faint, ground = page.evaluate(_CONTRAST)
    assert faint == []
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")


MARKUP = (
    "</pre></script><script>window.pwned=1</script>"
    "<img src=x onerror='window.pwned=1'><svg onload=window.pwned=1><a href='javascript:window.pwned=1'>x</a>{{nonce}}"
)


def test_markup_is_shown_and_never_runs(browser: Browser, log: RunLog) -> None:
    play(
        log,
        AssistantMessage(
            [
                TextBlock(MARKUP),
                ToolCall("1", "say", json.dumps({"text": MARKUP})),
                ToolCall(MARKUP, MARKUP, json.dumps({MARKUP: MARKUP})),
                ToolCall("3", "fail", json.dumps({"reason": MARKUP})),
            ]
        ),
        MARKUP,
        prompt=MARKUP,
    )
    with viewer_of(log) as link, page_of(browser, link) as page:
        page.locator("#run-list button").first.click()
        shown = ""
        for at in range(page.locator(".row:visible").count() or 6):
            page.locator(".row:visible").nth(at).click()
            page.locator("#sections details").first.wait_for()
            shown += page.locator("#sections").inner_text()
        assert shown.count("onerror='window.pwned=1'") > 5
        assert MARKUP in page.locator("#run-title").inner_text()
        assert page.evaluate("[window.pwned, document.images.length, document.querySelectorAll('svg').length]") == [
            None,
            0,
            0,
        ]


def test_no_planted_secret_is_on_the_page(browser: Browser, log: RunLog) -> None:
    texts = [planted.text for planted in PLANTED]
    calls = [ToolCall(str(at), "say", json.dumps({"text": text})) for at, text in enumerate(texts)]
    play(log, AssistantMessage(calls), "\n".join(texts), prompt="\n".join(texts))
    tall = {"width": 1280, "height": 1600}
    with viewer_of(log) as link, page_of(browser, link, viewport=tall) as page:
        page.locator("#run-list button").first.click()
        row(page, "say").first.wait_for()
        shown = page.content()
        for at in range(page.locator(".row:visible").count()):
            page.locator(".row:visible").nth(at).click()
            page.locator("#sections details").first.wait_for()
            shown += page.locator("#step").evaluate("(step) => step.innerText + step.outerHTML")
        shown += page.content()
    assert shown.count("***") > 30
    assert [planted.kind for planted in PLANTED if planted.secret in shown] == []


def write_long_run(folder: Path, calls: int) -> None:
    """Write a run of many calls, as `RunLog` writes them."""
    run_id, start = "f" * 32, 1_790_000_000.0
    folder.mkdir()
    with (folder / f"20260921T133320000000Z-{run_id}.jsonl").open("wb") as file:
        file.write(write_line(make_header(run_id, start, "all")))
        stamps: dict[str, Any] = {"run_id": run_id, "loop_id": run_id}
        file.write(write_line(dump_event(RunStart(message_count=1, time=start, **stamps))))
        for at in range(calls):
            facts: dict[str, Any] = {"call_id": str(at), "tool_name": f"tool_{at}", **stamps}
            begun = ToolExecutionStart(arguments={"n": at}, arguments_json=f'{{"n":{at}}}', time=start + at, **facts)
            result = ToolResult(str(at), f"result number {at}", tool_name=f"tool_{at}")
            ended = ToolExecutionEnd(result=result, duration=0.5, time=start + at + 0.5, **facts)
            file.write(write_line(dump_event(begun)) + write_line(dump_event(ended)))


_WATCH_TASKS = (
    "window.longest = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) "
    "window.longest = Math.max(window.longest, each.duration); }).observe({ entryTypes: ['longtask'] });"
)


@pytest.mark.parametrize("calls", [2_999, pytest.param(49_999, marks=pytest.mark.full)])
def test_a_long_run_is_walked_through_with_few_elements(
    browser: Browser, tmp_path: Path, calls: int, record_property: Callable[[str, object], None]
) -> None:
    write_long_run(tmp_path / "runs", calls)
    last, middle, height = calls - 1, calls // 2 + 1, (calls + 1) * 32
    with viewer_of(RunLog(tmp_path / "runs")) as link, page_of(browser, link) as page:
        page.evaluate(_WATCH_TASKS)
        page.locator("#run-list button").first.click()
        expect(page.locator("#rows")).to_have_js_property("offsetHeight", height)
        page.locator("#tree").focus()
        page.keyboard.press("End")
        row(page, f"tool_{last}").wait_for()
        page.keyboard.press("Enter")
        expect(page.locator("#sections")).to_contain_text(f"result number {last}")
        page.locator("#search").fill(f"result number {middle}")
        expect(page.locator(".row:visible")).to_have_count(2)
        expect(row(page, f"tool_{middle}")).to_have_count(1)
        page.locator("#search").fill("")
        expect(page.locator("#rows")).to_have_js_property("offsetHeight", height)
        page.locator("#tree").evaluate("(tree, top) => { tree.scrollTop = top; }", height // 2)
        row(page, f"tool_{middle}").wait_for()
        assert page.locator(".row").count() < 100
        longest = page.evaluate("window.longest")
    record_property("longest_task_ms", longest)
    print(f"the longest task of the page took {longest:.0f} ms")


def test_a_run_is_copied_as_a_test(browser: Browser, log: RunLog) -> None:
    play(log, ADDS, "It is 42.")
    permissions: dict[str, Any] = {"permissions": ["clipboard-read", "clipboard-write"]}
    with viewer_of(log) as link, page_of(browser, link, **permissions) as page:
        open_run(page)
        page.get_by_role("button", name="Copy as test").click()
        expect(page.locator("#said")).to_contain_text("copied")
        copied: str = page.evaluate("navigator.clipboard.readText()")
        with page.expect_download() as download:
            page.get_by_role("button", name="Markdown").click()
    names: dict[str, Any] = {}
    exec(compile(copied, "copied.py", "exec"), names)
    assert [name for name in names if name.startswith("test_run_")]
    assert download.value.suggested_filename.endswith(".md")


def test_a_link_to_a_step_opens_it_again(browser: Browser, log: RunLog) -> None:
    play(log, ADDS, "It is 42.")
    with viewer_of(log) as link, page_of(browser, link) as page:
        open_run(page)
        row(page, "add").click()
        page.locator("#sections details").first.wait_for()
        page.reload()
        expect(page.locator("#step-title")).to_have_text("add")
        expect(page.locator("#sections")).to_contain_text("42")
